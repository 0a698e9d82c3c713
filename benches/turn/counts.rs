//! Counts that other work on the machine does not change: instructions, page faults, system calls, bytes.
//!
//! `cargo bench --bench turn -- --counts PROFILE` compares the program of a profile with its [`GATES`], and that of `release`
//! with `benches/counts.json` too: it fails if a count has grown by more than its tolerance. `--record` writes the file instead.
//! A change that makes one larger on purpose changes the file.

use crate::homes::{JOB, add_channel, create_home, session_path, write_jobs, write_session};
use crate::{build_client, program, server};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/counts.json");
const LOCK_FILE: &str = include_str!("../../Cargo.lock");
/// How much larger than its recorded value a count may be.
const TOLERANCE: f64 = 0.03;
/// The same for counts of memory, in which machines differ: how much of a file the kernel maps at a fault depends on its cache.
const MEMORY_TOLERANCE: f64 = 0.10;
/// What a run may cost at most, in a program of the profiles `dist` and `release`.
const GATES: [(&str, u64, u64); 3] = [
    ("instructions: hello", 2_000_000, 2_600_000),
    ("program: bytes", 16_000_000, 26_000_000),
    ("crates compiled", 232, 232),
];
/// Runs of which the smallest page faults count: the first one reads the program from the disk.
const ROUNDS: usize = 6;
/// Earlier turns of the two sessions whose difference is the cost of one turn; both fit into the window.
const EARLIER_TURNS: [usize; 2] = [2, 12];

/// The counts by name.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Measures and prints the counts of the program of `release`, or of `dist`. Returns true if all are within their limits.
pub(crate) fn compare(is_dist: bool, is_recording: bool) -> bool {
    let counts = measure();
    let mut is_within = true;
    for (name, dist, release) in GATES {
        let gate = if is_dist { dist } else { release };
        let count = counts[name];
        is_within &= count <= gate;
        println!("{} {name:<46} {count:>11}  gate {gate:>11}", mark(count <= gate));
    }
    if is_dist {
        return is_within;
    }
    if is_recording {
        let text = serde_json::to_string_pretty(&counts).expect("counts are JSON");
        std::fs::write(RECORDED, text + "\n").expect("the file can be written");
    }
    let recorded = std::fs::read_to_string(RECORDED).expect("there is a recorded file");
    let recorded: Counts = serde_json::from_str(&recorded).expect("the recorded file is JSON");
    if !recorded.keys().eq(counts.keys()) {
        println!("{RECORDED} has other counts");
        is_within = false;
    }
    for (name, count) in &counts {
        let before = recorded.get(name).copied().unwrap_or_default();
        let is_of_memory = name.ends_with("KiB") || name.ends_with("page faults");
        let tolerance = if is_of_memory { MEMORY_TOLERANCE } else { TOLERANCE };
        let has_grown = *count as f64 > before as f64 * (1.0 + tolerance);
        is_within &= !has_grown;
        println!("{} {name:<46} {count:>11}  recorded {before:>11}", mark(!has_grown));
    }
    is_within
}

/// The beginning of the line of a count.
fn mark(is_within: bool) -> &'static str {
    if is_within { "ok  " } else { "NOT " }
}

/// Measures everything.
pub(crate) fn measure() -> Counts {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let port = server::start();
    let home = |name: &str, path: &str| create_home(&temp.path().join(name), port, path);
    let hello: &[&str] = &["agent", "-m", "hello", "--sandbox", "off"];
    let mut counts = Counts::new();

    let idle = home("idle", "hello");
    write_jobs(&idle, &json!({ "kind": "cron", "expr": "7 3 29 2 *" }));
    let quiet = home("quiet", "hello");
    add_channel(&quiet, port);
    for (name, home, arguments) in [
        ("--version", home("version", "hello"), &["--version"][..]),
        ("hello", home("hello", "hello"), hello),
        ("a turn with a reading tool", home("read", "read/2"), hello),
        ("1,000 chunks", home("stream", "stream/1000"), hello),
        ("cron run, nothing due", idle, &["cron", "run", JOB, "--scheduled"]),
        ("channel poll, nothing new", quiet, &["channel", "poll", "telegram"]),
    ] {
        let count = count_instructions(&home, arguments);
        counts.insert(format!("instructions: {name}"), count);
    }
    let [few, many] = EARLIER_TURNS.map(|turns| {
        let home = home(&format!("after{turns:02}"), "hello");
        write_session(&session_path(&home), turns * 4);
        count_instructions(&home, hello)
    });
    let turns = (EARLIER_TURNS[1] - EARLIER_TURNS[0]) as u64;
    counts.insert("instructions: an earlier turn".into(), many.saturating_sub(few) / turns);

    let hello = &hello[..3];
    let home = home("costs", "hello");
    let client = build_client(temp.path());
    let samples: Vec<[u64; 3]> =
        (0..ROUNDS).map(|_| measure_resources(&client, temp.path(), &home, hello)).collect();
    for (index, name) in ["resident KiB", "bytes written", "page faults"].into_iter().enumerate() {
        // The first run writes the head of the session as well.
        let later = samples.iter().skip(1).map(|sample| sample[index]);
        let minimum = later.min().unwrap_or_default();
        counts.insert(format!("hello: {name}"), minimum);
    }
    let calls = system_calls(&home, hello, temp.path());
    counts.insert("hello: system calls".into(), calls.len() as u64);
    for (kind, names) in [
        ("opened files", ["open(", "openat(", "openat2("]),
        ("threads and processes", ["clone(", "clone3(", "vfork("]),
    ] {
        let is_counted = |call: &&String| {
            names.iter().any(|name| call.starts_with(name)) && !call.contains("= -1 ")
        };
        let count = calls.iter().filter(is_counted).count();
        counts.insert(format!("hello: {kind}"), count as u64);
    }
    let metadata = std::fs::metadata(program()).expect("the program exists");
    counts.insert("program: bytes".into(), metadata.len());
    // Our own have no source.
    let crates = LOCK_FILE.matches("\nsource = ").count();
    counts.insert("crates in the lock file".into(), crates as u64);
    counts.insert("crates compiled".into(), compiled_crates() as u64);
    counts
}

/// The crates of others that are compiled for the program on this system, build scripts and macros included.
fn compiled_crates() -> usize {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    // Our own have a path.
    let crates: BTreeSet<Vec<&str>> = text
        .lines()
        .filter(|line| !line.contains("(/"))
        .map(|line| line.split(' ').take(2).collect())
        .collect();
    crates.len()
}

/// A command that runs in `home`, and in no other environment.
fn command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home)
        .env("NANOBOT_MEMORY__CONSOLIDATE", "manual")
        .current_dir("/")
        .stdin(Stdio::null());
    command
}

/// Counts the instructions of one run with Valgrind. The first run, which sets up the workspace, is not counted.
fn count_instructions(home: &Path, arguments: &[&str]) -> u64 {
    let status = command(program(), home).args(arguments).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
    let output = command("valgrind", home)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program())
        .args(arguments)
        .output()
        .expect("valgrind is needed");
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| {
        let (_, count) = line.split_once("Collected : ")?;
        count.trim().parse().ok()
    });
    count.unwrap_or_else(|| panic!("valgrind prints a count: {text}"))
}

/// Measures the resident memory in KiB, the bytes written and the page faults of one run.
fn measure_resources(client: &Path, folder: &Path, home: &Path, arguments: &[&str]) -> [u64; 3] {
    let output = folder.join("out");
    let mut command = command(client, home);
    let status = command.arg("run").arg(&output).arg(program()).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
    let text = std::fs::read_to_string(output).expect("the client writes its measurements");
    let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    [numbers[2], numbers[3], numbers[4]]
}

/// The system calls of one run and of its children.
fn system_calls(home: &Path, arguments: &[&str], folder: &Path) -> Vec<String> {
    let trace: PathBuf = folder.join("trace");
    let output = command("strace", home)
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .arg(program())
        .args(arguments)
        .output()
        .expect("strace is needed");
    assert!(output.status.success(), "{arguments:?}");
    let text = std::fs::read_to_string(trace).expect("strace writes its trace");
    let call = |line: &str| {
        let (_, call) = line.split_once(' ')?;
        let call = call.trim_start();
        (!call.starts_with("+++") && !call.contains(" resumed>")).then(|| call.to_owned())
    };
    text.lines().filter_map(call).collect()
}
