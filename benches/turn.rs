//! What turns cost, against the least that a client can do: `cargo bench`. With `--gate` it fails where a promise does
//! not hold; `.ci/bench` does that with the program as packages carry it.
//!
//! The client is `min.c`, built here, static and without any of our cares. All programs run interleaved in one run, so
//! that a noisy machine disturbs all alike; what is compared are minima of wall and CPU time, never clocks of two runs.
//! The old sessions take 1.5 GB of the temporary directory.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Runs of each program. The first is not counted: it warms caches.
const ROUNDS: usize = 20;
const PIECES: usize = 20_000;

/// The program that is measured: the one that was built for this, or the one that a package would carry.
fn program() -> String {
    std::env::var("NANOBOT_BENCH").unwrap_or_else(|_| env!("CARGO_BIN_EXE_nanobot").into())
}

fn main() -> ExitCode {
    // For `.ci/dist`, which watches runs: the server alone.
    if std::env::args().any(|word| word == "--serve") {
        println!("{}", serve());
        loop {
            std::thread::park();
        }
    }
    let gate = std::env::args().any(|word| word == "--gate");
    let bench = Bench::new();
    let mut table = Table::default();
    for round in 0..=ROUNDS {
        for case in &bench.cases {
            // What takes long is run less often.
            if round == 0 || round % case.every == 0 {
                let sample = bench.run(case, round);
                if round > 0 {
                    table.rows.entry(case.name).or_default().push(sample);
                }
            }
        }
    }
    table.print();
    let held = bench.gates(&table);
    match gate && !held {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// One program with its arguments.
struct Case {
    name: &'static str,
    every: usize,
    words: Vec<String>,
    /// Its home, and whether the turn is brought to the disk.
    home: Option<(PathBuf, bool)>,
    /// Its session is cut to this length before each run: our closing lines are gone, as if the Python program had
    /// rewritten it, and all of it must be looked at.
    cut: Option<u64>,
    /// When old messages become memory. `detached` is what a terminal gives.
    memory: &'static str,
    /// Its answer goes to a terminal.
    shows: bool,
}

/// What one run took.
#[derive(Clone, Copy)]
struct Sample {
    wall: Duration,
    cpu: Duration,
    /// KiB at most in memory.
    memory: u64,
    /// Bytes given to write(2), standard output included.
    written: u64,
}

struct Bench {
    temp: tempfile::TempDir,
    min: PathBuf,
    cases: Vec<Case>,
    /// `json.loads` and no more, of a session of 100,000 messages.
    validate: Duration,
}

/// Messages in the old sessions, which the Python program has written.
const SIZES: [(&str, &str, usize); 3] = [
    ("resume 100", "old100", 100),
    ("resume 10k", "old10k", 10_000),
    ("resume 100k", "old100k", 100_000),
];

/// Sessions of our own, of a hundred and of a million messages: all but the last of them consolidated, or none.
const YOUNG: [&str; 2] = ["lived 100", "lived 100, whole"];
const OLD: [&str; 2] = ["lived 1M", "lived 1M, whole"];

/// With five MCP servers, of which none is needed, or one.
const SERVED: [(&str, &str); 2] = [
    ("hello, 5 servers", "hello"),
    ("call, 5 servers", "served/2"),
];

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let min = temp.path().join("min");
        let built = Command::new("cc")
            .args(["-O2", "-static", "-o"])
            .arg(&min)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/min.c"))
            .status();
        assert!(
            built.is_ok_and(|status| status.success()),
            "a C compiler with a static libc is needed"
        );
        let port = serve();
        let home = |name: &str, path: &str| home(&temp.path().join(name), port, path);
        let ours = |name, every, arguments: &[&str], home: PathBuf, sync| {
            let arguments = arguments.iter().map(|word| (*word).to_owned());
            let words = [program()].into_iter().chain(arguments);
            Case {
                name,
                every,
                words: words.collect(),
                home: Some((home, sync)),
                cut: None,
                memory: "manual",
                shows: false,
            }
        };
        let theirs = |name, every, arguments: &[&str]| {
            let words = [min.to_str().unwrap()]
                .into_iter()
                .chain(arguments.iter().copied());
            Case {
                name,
                every,
                words: words.map(str::to_owned).collect(),
                home: None,
                cut: None,
                memory: "manual",
                shows: false,
            }
        };
        let port_text = port.to_string();
        let log = temp.path().join("log");
        let log = log.to_str().unwrap();
        // `@` is the number of the round: a session of its own for each.
        let agent = |session| ["agent", "-m", "hello", "-s", session];
        let bare = ["agent", "-m", "hello", "-s", "new@", "--sandbox", "off"];
        let read = ["agent", "-m", "hello", "-s", "new@", "-C", "/usr"];
        let mut cases = vec![
            theirs("min hello", 1, &["hello", &port_text]),
            ours(
                "--version",
                1,
                &["--version"],
                home("version", "hello"),
                false,
            ),
            ours("--help", 1, &["--help"], home("help", "hello"), false),
            ours("hello", 1, &agent("new@"), home("hello", "hello"), false),
            ours(
                "hello, synced",
                1,
                &agent("new@"),
                home("synced", "hello"),
                true,
            ),
            theirs("min loop 10", 2, &["loop", &port_text, "10", log]),
            theirs("min loop 40", 2, &["loop", &port_text, "40", log]),
            ours(
                "loop 10",
                2,
                &agent("new@"),
                home("loop10", "read/10"),
                false,
            ),
            ours(
                "loop 40",
                2,
                &agent("new@"),
                home("loop40", "read/40"),
                false,
            ),
            theirs("min sh 30", 2, &["sh", "30"]),
            ours("exec 10", 2, &bare, home("exec10", "exec/10"), false),
            ours("exec 40", 2, &bare, home("exec40", "exec/40"), false),
            ours(
                "exec, fenced 10",
                2,
                &read,
                home("fenced10", "exec/10"),
                false,
            ),
            ours(
                "exec, fenced 40",
                2,
                &read,
                home("fenced40", "exec/40"),
                false,
            ),
            ours(
                "exec, written 10",
                2,
                &agent("new@"),
                home("written10", "exec/10"),
                false,
            ),
            ours(
                "exec, written 40",
                2,
                &agent("new@"),
                home("written40", "exec/40"),
                false,
            ),
            ours(
                "8 x sleep 0.2",
                5,
                // Side by side run commands that may write nothing, which the sandbox sees to.
                &read,
                home("parallel", "parallel"),
                false,
            ),
            theirs("min stream 20k", 2, &["stream", &port_text]),
            ours(
                "stream 20k, text",
                2,
                &agent("new@"),
                home("stream", "stream/20000"),
                false,
            ),
            ours(
                "stream 20k, json",
                2,
                &[
                    "agent",
                    "-m",
                    "hello",
                    "-s",
                    "new@",
                    "--output-format",
                    "stream-json",
                ],
                home("stream-json", "stream/20000"),
                false,
            ),
        ];
        for (name, shows, path) in [
            ("hello, shown", true, "hello"),
            ("stream 20k, shown", true, "stream/20000"),
            ("prose 20k", false, "prose/20000"),
            ("prose 20k, shown", true, "prose/20000"),
        ] {
            cases.push(Case {
                shows,
                ..ours(name, 2, &agent("new@"), home(name, path), false)
            });
        }
        // The least process: it does nothing, and ends.
        cases.push(theirs("min exit", 1, &["sh", "0"]));
        for (name, schedule) in [
            (
                "not due, zoned",
                json!({ "kind": "cron", "expr": "7 3 29 2 *", "tz": "Asia/Kathmandu" }),
            ),
            (
                "not due, every",
                json!({ "kind": "every", "everyMs": 90 * 60_000 }),
            ),
        ] {
            let home = home(name, "hello");
            jobs(&home, &schedule);
            cases.push(ours(
                name,
                1,
                &["cron", "run", JOB, "--scheduled"],
                home,
                false,
            ));
        }
        for (name, path) in SERVED {
            let home = home(name, path);
            servers(&home);
            cases.push(ours(name, 1, &agent("new@"), home, false));
        }
        let mut validate = Duration::MAX;
        for (name, dir, size) in SIZES {
            let home = home(dir, "hello");
            let text = session(size);
            std::fs::write(session_of(&home), &text).unwrap();
            cases.push(ours(name, 1, &["agent", "-m", "hello"], home, false));
            if size == 100_000 {
                let home = self::home(&temp.path().join("foreign"), port, "hello");
                std::fs::write(session_of(&home), &text).unwrap();
                cases.push(Case {
                    cut: Some(text.len() as u64),
                    ..ours("foreign 100k", 4, &["agent", "-m", "hello"], home, false)
                });
                for _ in 0..5 {
                    let started = Instant::now();
                    for line in text.lines() {
                        serde_json::from_str::<serde::de::IgnoredAny>(line).expect("it is JSON");
                    }
                    validate = validate.min(started.elapsed());
                }
            }
        }
        for (names, size) in [(YOUNG, 100), (OLD, 1_000_000)] {
            let paths = names.map(|name| {
                let home = home(name, "hello");
                let path = session_of(&home);
                cases.push(ours(name, 1, &["agent", "-m", "hello"], home, false));
                path
            });
            live(&paths[0], size);
            std::fs::copy(&paths[0], &paths[1]).unwrap();
            close(&paths[1], size, 0);
        }
        // Each turn of theirs is one too many for the window, so that memory is due after each.
        for (name, memory) in [("nothing due", "manual"), ("due", "detached")] {
            let home = home(name, "hello");
            live(&session_of(&home), 100);
            let config = home.join(".nanobot/config.json");
            let text = std::fs::read_to_string(&config).unwrap();
            let text = text.replace(
                "\"provider\":\"custom\"}}",
                "\"provider\":\"custom\",\"memoryWindow\":2}}",
            );
            std::fs::write(config, text).unwrap();
            cases.push(Case {
                memory,
                ..ours(name, 1, &["agent", "-m", "hello"], home, false)
            });
        }
        let home = home("foreign 1M", "hello");
        let text = session(1_000_000);
        std::fs::write(session_of(&home), &text).unwrap();
        cases.push(Case {
            cut: Some(text.len() as u64),
            ..ours("foreign 1M", 10, &["agent", "-m", "hello"], home, false)
        });
        drop(text);
        Self {
            temp,
            min,
            cases,
            validate,
        }
    }

    fn command(&self, case: &Case, round: usize) -> Vec<String> {
        let number = |word: &String| word.replace('@', &round.to_string());
        case.words.iter().map(number).collect()
    }

    fn run(&self, case: &Case, round: usize) -> Sample {
        if let (Some(length), Some((home, _))) = (case.cut, &case.home) {
            let file = File::options().write(true).open(session_of(home));
            file.unwrap().set_len(length).unwrap();
        }
        let out = self.temp.path().join("out");
        let mut command = Command::new(&self.min);
        let verb = if case.shows { "show" } else { "run" };
        command.arg(verb).arg(&out).args(self.command(case, round));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/");
        if let Some((home, sync)) = &case.home {
            command.env("HOME", home);
            command.env("NANOBOT_SESSION__SYNC", if *sync { "turn" } else { "none" });
            command.env("NANOBOT_MEMORY__CONSOLIDATE", case.memory);
        }
        assert!(command.status().unwrap().success(), "{}", case.name);
        if case.memory == "detached" {
            // What it left behind is not to be in the way of the next one.
            std::thread::sleep(Duration::from_millis(150));
        }
        let text = std::fs::read_to_string(&out).unwrap();
        let numbers: Vec<i64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        Sample {
            wall: Duration::from_nanos(numbers[0].unsigned_abs()),
            cpu: Duration::from_micros(numbers[1].unsigned_abs()),
            memory: numbers[2].unsigned_abs(),
            written: numbers[3].unsigned_abs(),
        }
    }

    /// System calls, files opened and threads or processes made by a hello, as `strace` counts them.
    fn traced(&self) -> Option<(usize, usize, usize)> {
        let case = self.cases.iter().find(|case| case.name == "hello")?;
        let out = self.temp.path().join("trace");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-o"])
            .arg(&out)
            .args(self.command(case, 9999));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir("/");
        command
            .env("HOME", &case.home.as_ref()?.0)
            .env("NANOBOT_SESSION__SYNC", "none")
            .env("NANOBOT_MEMORY__CONSOLIDATE", "manual");
        if !command.output().ok()?.status.success() {
            return None;
        }
        let text = std::fs::read_to_string(out).ok()?;
        let calls = |names: &[&str]| {
            let is = |line: &&str| {
                let call = line
                    .split_once(' ')
                    .map_or("", |(_, call)| call.trim_start());
                names
                    .iter()
                    .any(|name| call.starts_with(&format!("{name}(")))
            };
            text.lines()
                .filter(is)
                .filter(|line| !line.contains("= -1"))
                .count()
        };
        let all = text.lines().filter(|line| !line.contains("+++")).count();
        Some((
            all,
            calls(&["open", "openat", "openat2"]),
            calls(&["clone", "clone3", "fork", "vfork"]),
        ))
    }

    /// Print whether each promise holds.
    fn gates(&self, table: &Table) -> bool {
        let mut gates = Gates::default();
        let (wall, cpu) = (|name| table.wall(name), |name| table.cpu(name));
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        let per_turn = |few: f64, many: f64| (many - few).max(0.0) / 30.0;
        gates.most(
            "--version / min hello, wall",
            wall("--version") / wall("min hello"),
            1.5,
        );
        gates.most(
            "--help / min hello, wall",
            wall("--help") / wall("min hello"),
            1.5,
        );
        gates.most(
            "hello / min hello, wall",
            wall("hello") / wall("min hello"),
            3.0,
        );
        gates.told("hello / min hello, CPU", cpu("hello") / cpu("min hello"));
        gates.told(
            "syncing a hello adds, ms",
            wall("hello, synced") - wall("hello"),
        );
        // It was 4 before there were sandbox, policy and web tools: what is mapped of the program is most of it.
        gates.most("memory of a hello, MB", table.memory("hello"), 5.0);
        gates.most("memory of loop 40, MB", table.memory("loop 40"), 8.0);
        gates.most(
            "memory of resume 100k, MB",
            table.memory("resume 100k"),
            8.0,
        );
        // What servers offer is known from the first round, which is not counted.
        let [(idle, _), (calling, _)] = SERVED;
        let ratio = wall(idle) / wall("hello");
        gates.most("a hello with 5 servers / with none, wall", ratio, 1.1);
        gates.told("the same, CPU", cpu(idle) / cpu("hello"));
        gates.most(
            "servers started by a hello with 5",
            self.starts(idle, table),
            0.0,
        );
        let starts = self.starts(calling, table);
        gates.most("by a turn that calls a tool of one", starts, 1.0);
        gates.told(
            "such a turn over a hello, ms",
            wall(calling) - wall("hello"),
        );
        let turn = per_turn(cpu("loop 10"), cpu("loop 40"));
        gates.most("a turn with a reading tool, CPU ms", turn, 0.5);
        gates.told(
            "the same of the least client, CPU ms",
            per_turn(cpu("min loop 10"), cpu("min loop 40")),
        );
        for name in ["not due, zoned", "not due, every"] {
            let what = format!("{name} / a process that only exits, wall");
            gates.most(&what, wall(name) / wall("min exit"), 3.0);
        }
        let exec = per_turn(wall("exec 10"), wall("exec 40"));
        gates.most(
            "a turn with exec, over `sh -c true`, ms",
            exec - wall("min sh 30") / 30.0,
            0.7,
        );
        let fenced = per_turn(wall("exec, fenced 10"), wall("exec, fenced 40"));
        gates.most("the sandbox adds to an exec, ms", fenced - exec, 2.0);
        let written = per_turn(wall("exec, written 10"), wall("exec, written 40"));
        gates.most("the same where it may write, ms", written - exec, 2.0);
        gates.most(
            "8 x sleep 0.2 over a hello, / 200 ms",
            (wall("8 x sleep 0.2") - wall("hello")) / 200.0,
            1.1,
        );
        gates.most(
            "20,000 chunks over a hello, CPU ms",
            cpu("stream 20k, text") - cpu("hello"),
            50.0,
        );
        for (name, shown) in [
            ("stream 20k, text", "stream 20k, shown"),
            ("prose 20k", "prose 20k, shown"),
        ] {
            let ratio = cpu(shown) / cpu(name);
            gates.most(&format!("{shown} / not, CPU"), ratio, 2.0);
        }
        gates.told(
            "the same as stream-json",
            cpu("stream 20k, json") - cpu("hello"),
        );
        gates.told(
            "the same of the least client",
            cpu("min stream 20k") - cpu("min hello"),
        );
        // In CPU time: a processor of a virtual machine takes a millisecond to wake, and which run finds one asleep is
        // chance. The wall is told.
        gates.most(
            "resume of 100k over a hello, CPU ms",
            cpu("resume 100k") - cpu("hello"),
            1.0,
        );
        gates.told("the same, wall ms", wall("resume 100k") - wall("hello"));
        gates.most(
            "a turn with memory due / one without, wall",
            wall("due") / wall("nothing due"),
            1.5,
        );
        gates.told(
            "resume of 100k / resume of 100",
            wall("resume 100k") / wall("resume 100"),
        );
        // The age of a session costs nothing, whether it was consolidated or not.
        for (young, old) in YOUNG.into_iter().zip(OLD) {
            let ratio = |of: fn(&Table, &str) -> f64| of(table, old) / of(table, young);
            gates.most(&format!("{old} / {young}, wall"), ratio(Table::wall), 1.2);
            gates.most(&format!("{old} / {young}, CPU"), ratio(Table::cpu), 1.2);
            gates.most(
                &format!("{old} / {young}, memory"),
                ratio(Table::memory),
                1.2,
            );
        }
        let home = self.temp.path().join(OLD[0]);
        let size = session_of(&home).metadata().unwrap().len();
        gates.told("the size of that million, MB", size as f64 / 1e6);
        // Where another program wrote last, its age is paid for, once.
        gates.told(
            "a whole look at a million, ms",
            wall("foreign 1M") - wall("hello"),
        );
        gates.most("memory of it, MB", table.memory("foreign 1M"), 8.0);
        let whole = cpu("foreign 100k") - cpu("hello");
        gates.most(
            "a whole look at 100k / a JSON check of it",
            whole / millis(self.validate),
            3.0,
        );
        // Three lines of a new session that the Python program would write as well, and the answer on standard output.
        gates.most(
            "written by a hello beyond its lines, bytes",
            table.written("hello") - self.lines(true),
            512.0,
        );
        gates.most(
            "the same at 100k",
            table.written("resume 100k") - self.lines(false),
            512.0,
        );
        match self.traced() {
            Some((calls, opened, made)) => {
                gates.most("system calls of a hello", calls as f64, 200.0);
                gates.most("files opened by it", opened as f64, 20.0);
                gates.most("threads and processes made by it", made as f64, 0.0);
            }
            None => println!("strace is not there: system calls were not counted"),
        }
        let binary = std::fs::metadata(program()).unwrap().len();
        // The reader of web pages alone is 1.3 of it.
        gates.most("size of the program, MB", binary as f64 / 1e6, 15.0);
        gates.held
    }

    /// How many servers each counted run of that name has started.
    fn starts(&self, name: &str, table: &Table) -> f64 {
        let starts = std::fs::read_to_string(self.temp.path().join(name).join("starts"));
        let all = starts.expect("the first round starts them").lines().count();
        assert!(all >= SERVERS, "{name}: not all were asked what they offer");
        (all - SERVERS) as f64 / table.rows[name].len() as f64
    }

    /// The bytes of what a hello must write: its message, its answer, and the answer once more on standard output; and
    /// the line that a new session begins with.
    fn lines(&self, begins: bool) -> f64 {
        let case = self.cases.iter().find(|case| case.name == "hello").unwrap();
        let sessions = case
            .home
            .as_ref()
            .unwrap()
            .0
            .join(".nanobot/workspace/sessions");
        let text = std::fs::read_to_string(sessions.join("new1.jsonl")).unwrap();
        let is_said = |line: &str| line.starts_with("{\"role\"");
        let first = text.lines().take(usize::from(begins));
        let said = first.chain(text.lines().filter(|line| is_said(line)));
        let said: usize = said.map(|line| line.len() + 1).sum();
        // What the call cost is a line too, in the ledger.
        let ledger = std::fs::read_to_string(sessions.join("../../usage.jsonl")).unwrap();
        let spent = ledger.lines().next().unwrap().len() + 1;
        (said + spent + "Hello.\n".len()) as f64
    }
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<&'static str, Vec<Sample>>,
}

impl Table {
    fn least(&self, name: &str, of: impl Fn(&Sample) -> f64) -> f64 {
        self.rows[name].iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// In milliseconds.
    fn wall(&self, name: &str) -> f64 {
        self.least(name, |sample| sample.wall.as_secs_f64() * 1000.0)
    }

    fn cpu(&self, name: &str) -> f64 {
        self.least(name, |sample| sample.cpu.as_secs_f64() * 1000.0)
    }

    fn memory(&self, name: &str) -> f64 {
        self.least(name, |sample| sample.memory as f64 / 1024.0)
    }

    fn written(&self, name: &str) -> f64 {
        self.least(name, |sample| sample.written as f64)
    }

    fn print(&self) {
        println!(
            "minima of at most {ROUNDS} interleaved runs; `session.sync: none` but where it says so"
        );
        println!(
            "{:<18} {:>9} {:>9} {:>9} {:>11} {:>5}",
            "", "wall ms", "CPU ms", "RSS MB", "written B", "runs"
        );
        for (name, samples) in &self.rows {
            println!(
                "{name:<18} {:>9.2} {:>9.2} {:>9.1} {:>11.0} {:>5}",
                self.wall(name),
                self.cpu(name),
                self.memory(name),
                self.written(name),
                samples.len()
            );
        }
        println!();
    }
}

struct Gates {
    held: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { held: true }
    }
}

impl Gates {
    fn most(&mut self, what: &str, found: f64, limit: f64) {
        let holds = found <= limit;
        self.held &= holds;
        println!(
            "{} {what:<46} {found:>9.2}  at most {limit}",
            if holds { "ok  " } else { "NOT " }
        );
    }

    fn told(&self, what: &str, found: f64) {
        println!("     {what:<46} {found:>9.2}");
    }
}

/// A home with a config that names the server; `path` says how that is to answer.
fn home(home: &Path, port: u16, path: &str) -> PathBuf {
    let workspace = home.join(".nanobot/workspace");
    std::fs::create_dir_all(workspace.join("sessions")).unwrap();
    let config = json!({
        "agents": { "defaults": { "model": "m", "provider": "custom" } },
        "providers": { "custom": { "apiKey": "k", "apiBase": format!("http://127.0.0.1:{port}/{path}") } },
    });
    std::fs::write(home.join(".nanobot/config.json"), config.to_string()).unwrap();
    std::fs::write(workspace.join("note.txt"), "a short note\n").unwrap();
    home.to_owned()
}

const SERVERS: usize = 5;

/// The least server: it writes down that it was started, and answers by what stands in the line.
const SERVER: &str = r#"
echo started >> "$1"
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=${line#*'"id":'} id=${id%%[,\}]*}
  case $line in
    *'"initialize"'*) say '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"least","version":"1"}}' ;;
    *'"tools/list"'*) say "$TOOLS" ;;
    *'"tools/call"'*) say '{"content":[{"type":"text","text":"done"}]}' ;;
  esac
done
"#;

/// Five servers for the home, of five tools each.
fn servers(home: &Path) {
    let starts = home.join("starts");
    std::fs::write(&starts, "").unwrap();
    let script = home.join("server.sh");
    std::fs::write(&script, SERVER).unwrap();
    let property = json!({ "type": "string", "description": "What is to be worked on." });
    let tool = |number: usize| {
        json!({ "name": format!("work{number}"), "description": "Does some of the work.",
                "annotations": { "readOnlyHint": true },
                "inputSchema": { "type": "object", "properties": { "what": property } } })
    };
    let tools = json!({ "tools": (1..=5).map(tool).collect::<Vec<_>>() }).to_string();
    let path = home.join(".nanobot/config.json");
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for number in 1..=SERVERS {
        config["tools"]["mcpServers"][format!("s{number}")] =
            json!({ "command": "sh", "args": [script, starts], "env": { "TOOLS": tools } });
    }
    std::fs::write(path, config.to_string()).unwrap();
}

/// The job that is looked at.
const JOB: &str = "0a1b2c3d";

/// A hundred jobs, of which the last, which is not due, has this schedule. The home says where it is, as a line does.
fn jobs(home: &Path, schedule: &Value) {
    let made = 1_767_322_745_000_i64;
    let job = |number: usize| {
        let (id, schedule) = match number {
            99 => (JOB.to_owned(), schedule.clone()),
            _ => (
                format!("{number:08x}"),
                json!({ "kind": "cron", "expr": "0 8 * * 1-5" }),
            ),
        };
        json!({
            "id": id, "name": format!("job {number}"), "enabled": true, "schedule": schedule,
            "payload": { "kind": "agent_turn", "message": "What is new?", "deliver": false, "channel": null, "to": null },
            "state": { "nextRunAtMs": null, "lastRunAtMs": null, "lastStatus": null, "lastError": null },
            "createdAtMs": made, "updatedAtMs": made, "deleteAfterRun": false,
        })
    };
    let file = json!({ "version": 1, "jobs": (0..100).map(job).collect::<Vec<_>>() });
    let folder = home.join(".nanobot/workspace/cron");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("jobs.json"),
        serde_json::to_string_pretty(&file).unwrap(),
    )
    .unwrap();
    for number in 0..100 {
        let folder = home
            .join(".nanobot/cron")
            .join(job(number)["id"].as_str().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        // Its last time was handled, however old the file is.
        let far = jiff::Timestamp::now().as_millisecond();
        let terms = json!({ "v": 1, "sinceMs": far });
        std::fs::write(folder.join("job.json"), terms.to_string()).unwrap();
        let stamps = json!({ "v": 1, "handledMs": far, "started": null });
        std::fs::write(folder.join("state.json"), stamps.to_string()).unwrap();
    }
}

fn session_of(home: &Path) -> PathBuf {
    home.join(".nanobot/workspace/sessions/cli_direct.jsonl")
}

const TIME: &str = "2026-01-02T03:04:05.000000";

/// A session of `size` messages of about 380 bytes, as the Python program leaves it.
fn session(size: usize) -> String {
    let mut text = format!(
        "{{\"_type\": \"metadata\", \"key\": null, \"created_at\": \"{TIME}\", \"updated_at\": \"{TIME}\", \
         \"metadata\": {{}}, \"last_consolidated\": {}}}\n",
        size - 50
    );
    let words = "lorem ipsum ".repeat(27);
    for number in 0..size {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        writeln!(
            text,
            "{{\"role\": \"{role}\", \"content\": \"{number} {words}\", \"timestamp\": \"{TIME}\"}}"
        )
        .unwrap();
    }
    text
}

/// A session of `size` messages as this program leaves it: in each turn a question, a call, its result, an answer and a
/// closing line. All but the last are consolidated.
fn live(path: &Path, size: usize) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut at = 0;
    let mut put = |line: &Value| {
        let line = format!("{line}\n");
        file.write_all(line.as_bytes()).unwrap();
        at += line.len();
        at
    };
    let mut end = put(&metadata(0));
    for turn in 0..size / 4 {
        let words = |count| format!("{turn} {}", "lorem ipsum ".repeat(count));
        let id = format!("c{turn}");
        let function = json!({ "name": "read_file", "arguments": "{\"path\":\"note.txt\"}" });
        let call = json!({ "id": id, "type": "function", "function": function });
        for mut line in [
            json!({ "role": "user", "content": words(15), "facts": "[Runtime Context]" }),
            json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": id, "name": "read_file", "content": words(40) }),
            json!({ "role": "assistant", "content": words(20) }),
        ] {
            line["timestamp"] = TIME.into();
            line["turn"] = turn.to_string().into();
            if line["role"] != "tool" {
                line["id"] = turn.to_string().into();
            }
            if line["role"] == "assistant" {
                line["model"] = "m".into();
                line["usage"] = json!({ "input": 100, "cached": 0, "output": 5, "reasoning": 0 });
            }
            end = put(&line);
        }
        let count = (turn + 1) * 4;
        end = put(&closing(end, count, count.saturating_sub(52)));
    }
    file.into_inner().expect("all of it can be written");
}

/// Close a session of `size` messages once more.
fn close(path: &Path, size: usize, consolidated: usize) {
    let mut file = File::options().append(true).open(path).unwrap();
    let at = file.metadata().unwrap().len();
    let line = closing(at.try_into().unwrap(), size, consolidated);
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn closing(at: usize, messages: usize, consolidated: usize) -> Value {
    let mut line = metadata(consolidated);
    line["turn"] = "t".into();
    line["messages"] = messages.into();
    line["at"] = at.into();
    line["ending"] = "answered".into();
    line
}

fn metadata(consolidated: usize) -> Value {
    json!({ "_type": "metadata", "key": "cli:direct", "created_at": TIME, "updated_at": TIME, "metadata": {},
            "last_consolidated": consolidated })
}

/// Start a server that answers at once from prepared bytes: by the path, and by how often a connection has asked.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener
        .local_addr()
        .expect("a bound listener has an address")
        .port();
    let stream = Streams {
        words: events((0..PIECES).map(|number| format!("word{number} "))).concat(),
        prose: events(PROSE.split_inclusive(' ').cycle().take(PIECES)),
    };
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let stream = stream.clone();
            std::thread::spawn(move || answer_all(connection, &stream));
        }
    });
    port
}

fn answer_all(connection: TcpStream, streams: &Streams) {
    connection.set_nodelay(true).expect("TCP has it");
    let mut reader = BufReader::new(connection.try_clone().expect("a socket can be cloned"));
    let mut writer = connection;
    for asked in 1.. {
        let Some(path) = request(&mut reader) else {
            return;
        };
        let words: Vec<&str> = path.trim_matches('/').split('/').collect();
        let limit = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(1);
        let sent = match words[0] {
            "stream" => writer.write_all(&streams.words),
            "prose" => {
                let mut pieces = streams.prose.iter();
                pieces.try_for_each(|piece| writer.write_all(piece))
            }
            "read" if asked < limit => {
                let path = json!({ "path": "note.txt" });
                writer.write_all(&whole(&calls("read_file", &path, 1)))
            }
            "exec" if asked < limit => writer.write_all(&whole(&calls(
                "exec",
                &json!({ "command": "true; true" }),
                1,
            ))),
            "served" if asked < limit => {
                let what = json!({ "what": "it" });
                writer.write_all(&whole(&calls("mcp_s3_work1", &what, 1)))
            }
            "parallel" if asked < 2 => writer.write_all(&whole(&calls(
                "exec",
                &json!({ "command": "sleep 0.2" }),
                8,
            ))),
            _ => writer.write_all(&whole(&json!({ "role": "assistant", "content": "Hello." }))),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Read a request; its path.
fn request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|count| *count > 0)?;
    let path = line
        .split(' ')
        .nth(1)?
        .trim_end_matches("/chat/completions")
        .to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(path)
}

fn calls(name: &str, arguments: &Value, count: usize) -> Value {
    let call = |number: usize| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        json!({ "id": format!("c{number}"), "type": "function", "function": function })
    };
    json!({ "role": "assistant", "content": null, "tool_calls": (0..count).map(call).collect::<Vec<_>>() })
}

fn whole(message: &Value) -> Vec<u8> {
    let body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
                       "usage": { "prompt_tokens": 100, "completion_tokens": 5 } })
    .to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Streamed answers, as they go over the wire.
#[derive(Clone)]
struct Streams {
    /// Sent in one go.
    words: Vec<u8>,
    /// Of markdown; each piece is sent by itself.
    prose: Vec<Vec<u8>>,
}

/// What models say, with one of each.
const PROSE: &str = "\
## A heading of some words

A paragraph that is longer than a row, with **bold words**, `code` and a [link](https://example.org/) in it, as models write
them when they explain what they have done and what is to be done next.

- a list
  - within a list
1. and a number

| name | price |
|:-----|------:|
| pear |  1.20 |

```rust
fn main() { println!(\"hello\"); }
```

";

/// A streamed answer of such pieces: the head, each piece, and the end.
fn events<S: Into<String>>(pieces: impl Iterator<Item = S>) -> Vec<Vec<u8>> {
    let chunk = |data: &str| {
        let event = format!("data: {data}\n\n");
        format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
    };
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut all = vec![head.as_bytes().to_vec()];
    for piece in pieces {
        let delta = json!({ "content": piece.into() });
        all.push(chunk(&json!({ "id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }).to_string()));
    }
    all.push(chunk(
        &json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }).to_string(),
    ));
    all.push(chunk("[DONE]"));
    all.push(b"0\r\n\r\n".to_vec());
    all
}
