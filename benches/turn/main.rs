//! What turns cost, against the least that a client can do: `cargo bench`. With `--gate`, as `.ci/bench` calls it, it fails
//! where a promise does not hold. What no other work can disturb is counted instead, with `--counts` (`counts.rs`).
//!
//! The client is `min.c`, built here, static and without any of our cares. All programs run interleaved in one run, so
//! that a noisy machine disturbs all alike; what is compared are minima of wall and CPU time, never clocks of two runs.
//! The old sessions take 1.5 GB of the temporary directory.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod counts;
mod homes;
mod readme;
mod server;

use homes::{JOB, SERVERS, close, home, jobs, live, servers, session, session_of};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Runs of each program. The first is not counted: it warms caches.
const ROUNDS: usize = 20;

/// The program that is measured.
fn program() -> String {
    std::env::var("NANOBOT_BENCH").unwrap_or_else(|_| env!("CARGO_BIN_EXE_nanobot").into())
}

/// Builds the client that does the least, and returns its path.
fn build_client(folder: &Path) -> PathBuf {
    let client = folder.join("min");
    let built = Command::new("cc")
        .args(["-O2", "-static", "-o"])
        .arg(&client)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/turn/min.c"))
        .status();
    assert!(
        built.is_ok_and(|status| status.success()),
        "a C compiler with a static libc is needed"
    );
    client
}

fn main() -> ExitCode {
    let has = |flag: &str| std::env::args().any(|word| word == flag);
    if has("--serve") {
        println!("{}", server::start());
        loop {
            std::thread::park();
        }
    }
    if has("--counts") || has("--record") {
        let is_within = counts::compare(has("dist"), has("--record"));
        return if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let gate = has("--gate");
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
    let gates = bench.gates(&table);
    if has("--readme") {
        readme::write(&gates.measured);
    }
    if gate && !gates.held { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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
const SERVED: [(&str, &str); 2] = [("hello, 5 servers", "hello"), ("call, 5 servers", "served/2")];

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let min = build_client(temp.path());
        let port = server::start();
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
            let words = [min.to_str().unwrap()].into_iter().chain(arguments.iter().copied());
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
        let tree = homes::large_tree(&temp.path().join("tree"));
        let mut in_tree = agent("new@").to_vec();
        in_tree.extend(["--write", "-C", tree.to_str().unwrap()]);
        let mut cases = vec![
            theirs("min hello", 1, &["hello", &port_text]),
            ours("--version", 1, &["--version"], home("version", "hello"), false),
            ours("--help", 1, &["--help"], home("help", "hello"), false),
            ours("hello", 1, &agent("new@"), home("hello", "hello"), false),
            ours("hello, synced", 1, &agent("new@"), home("synced", "hello"), true),
            theirs("min loop 10", 2, &["loop", &port_text, "10", log]),
            theirs("min loop 40", 2, &["loop", &port_text, "40", log]),
            ours("loop 10", 2, &agent("new@"), home("loop10", "read/10"), false),
            ours("loop 40", 2, &agent("new@"), home("loop40", "read/40"), false),
            theirs("min sh 30", 2, &["sh", "30"]),
            ours("exec 10", 2, &bare, home("exec10", "exec/10"), false),
            ours("exec 40", 2, &bare, home("exec40", "exec/40"), false),
            ours("exec, fenced 10", 2, &read, home("fenced10", "exec/10"), false),
            ours("exec, fenced 40", 2, &read, home("fenced40", "exec/40"), false),
            ours("exec, written 10", 2, &agent("new@"), home("written10", "exec/10"), false),
            ours("exec, written 40", 2, &agent("new@"), home("written40", "exec/40"), false),
            ours("exec, large tree 10", 5, &in_tree, home("large10", "exec/10"), false),
            ours("exec, large tree 40", 5, &in_tree, home("large40", "exec/40"), false),
            theirs("min stream 20k", 2, &["stream", &port_text]),
            ours("stream 20k, text", 2, &agent("new@"), home("stream", "stream/20000"), false),
            ours(
                "stream 20k, json",
                2,
                &["agent", "-m", "hello", "-s", "new@", "--output-format", "stream-json"],
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
            cases.push(Case { shows, ..ours(name, 2, &agent("new@"), home(name, path), false) });
        }
        // The least process: it does nothing, and ends.
        cases.push(theirs("min exit", 1, &["sh", "0"]));
        for (name, schedule) in [
            (
                "not due, zoned",
                json!({ "kind": "cron", "expr": "7 3 29 2 *", "tz": "Asia/Kathmandu" }),
            ),
            ("not due, every", json!({ "kind": "every", "everyMs": 90 * 60_000 })),
        ] {
            let home = home(name, "hello");
            jobs(&home, &schedule);
            cases.push(ours(name, 1, &["cron", "run", JOB, "--scheduled"], home, false));
        }
        for (name, path) in SERVED {
            let home = home(name, path);
            servers(&home);
            cases.push(ours(name, 1, &agent("new@"), home, false));
        }
        for (name, dir, size) in SIZES {
            let home = home(dir, "hello");
            let text = session(size);
            std::fs::write(session_of(&home), &text).unwrap();
            cases.push(ours(name, 1, &["agent", "-m", "hello"], home, false));
            if size == 100_000 {
                let home = homes::home(&temp.path().join("foreign"), port, "hello");
                std::fs::write(session_of(&home), &text).unwrap();
                cases.push(Case {
                    cut: Some(text.len() as u64),
                    ..ours("foreign 100k", 4, &["agent", "-m", "hello"], home, false)
                });
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
            cases.push(Case { memory, ..ours(name, 1, &["agent", "-m", "hello"], home, false) });
        }
        let home = home("foreign 1M", "hello");
        let text = session(1_000_000);
        std::fs::write(session_of(&home), &text).unwrap();
        cases.push(Case {
            cut: Some(text.len() as u64),
            ..ours("foreign 1M", 10, &["agent", "-m", "hello"], home, false)
        });
        drop(text);
        Self { temp, min, cases }
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
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
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
        let numbers: Vec<i64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        Sample {
            wall: Duration::from_nanos(numbers[0].unsigned_abs()),
            cpu: Duration::from_micros(numbers[1].unsigned_abs()),
            memory: numbers[2].unsigned_abs(),
            written: numbers[3].unsigned_abs(),
        }
    }

    /// Print whether each promise holds.
    fn gates(&self, table: &Table) -> Gates {
        let mut gates = Gates::default();
        let (wall, cpu) = (|name| table.wall(name), |name| table.cpu(name));
        let per_turn = |few: f64, many: f64| (many - few).max(0.0) / 30.0;
        gates.most("--version / min hello, wall", wall("--version") / wall("min hello"), 1.5);
        gates.most("--help / min hello, wall", wall("--help") / wall("min hello"), 1.5);
        gates.most("hello / min hello, wall", wall("hello") / wall("min hello"), 2.0);
        gates.most("hello / min hello, CPU", cpu("hello") / cpu("min hello"), 4.0);
        gates.told("syncing a hello adds, ms", wall("hello, synced") - wall("hello"));
        gates.most("memory of a hello, MB", table.memory("hello"), 6.0);
        gates.most("memory of loop 40, MB", table.memory("loop 40"), 8.0);
        gates.most("memory of resume 100k, MB", table.memory("resume 100k"), 8.0);
        // What servers offer is known from the first round, which is not counted.
        let [(idle, _), (calling, _)] = SERVED;
        let ratio = wall(idle) / wall("hello");
        gates.most("a hello with 5 servers / with none, wall", ratio, 1.1);
        gates.told("the same, CPU", cpu(idle) / cpu("hello"));
        gates.most("servers started by a hello with 5", self.starts(idle, table), 0.0);
        let starts = self.starts(calling, table);
        gates.most("by a turn that calls a tool of one", starts, 1.0);
        gates.told("such a turn over a hello, ms", wall(calling) - wall("hello"));
        let turn = per_turn(cpu("loop 10"), cpu("loop 40"));
        gates.most("a turn with a reading tool, CPU ms", turn, 0.25);
        gates.told(
            "the same of the least client, CPU ms",
            per_turn(cpu("min loop 10"), cpu("min loop 40")),
        );
        for name in ["not due, zoned", "not due, every"] {
            let what = format!("{name} / a process that only exits, wall");
            gates.most(&what, wall(name) / wall("min exit"), 2.0);
        }
        let exec = per_turn(wall("exec 10"), wall("exec 40"));
        gates.most("a turn with exec, over `sh -c true`, ms", exec - wall("min sh 30") / 30.0, 0.7);
        let fenced = per_turn(wall("exec, fenced 10"), wall("exec, fenced 40"));
        gates.most("the sandbox adds to an exec, ms", fenced - exec, 3.0);
        let written = per_turn(wall("exec, written 10"), wall("exec, written 40"));
        gates.most("the same where it may write, ms", written - exec, 2.0);
        let large = per_turn(wall("exec, large tree 10"), wall("exec, large tree 40"));
        gates.most("the same in a tree of 100,000 files, ms", large - exec, 50.0);
        gates.most(
            "20,000 chunks over a hello, CPU ms",
            cpu("stream 20k, text") - cpu("hello"),
            25.0,
        );
        for (name, shown) in
            [("stream 20k, text", "stream 20k, shown"), ("prose 20k", "prose 20k, shown")]
        {
            let ratio = cpu(shown) / cpu(name);
            gates.most(&format!("{shown} / not, CPU"), ratio, 2.0);
        }
        gates.told("the same as stream-json", cpu("stream 20k, json") - cpu("hello"));
        gates.told("the same of the least client", cpu("min stream 20k") - cpu("min hello"));
        // In CPU time: a processor of a virtual machine takes a millisecond to wake, and which run finds one asleep is
        // chance. The wall is told.
        gates.most("resume of 100k over a hello, CPU ms", cpu("resume 100k") - cpu("hello"), 1.0);
        gates.told("the same, wall ms", wall("resume 100k") - wall("hello"));
        gates.most(
            "a turn with memory due / one without, wall",
            wall("due") / wall("nothing due"),
            1.5,
        );
        gates.told("resume of 100k / resume of 100", wall("resume 100k") / wall("resume 100"));
        // The age of a session costs nothing, whether it was consolidated or not.
        for (young, old) in YOUNG.into_iter().zip(OLD) {
            let ratio = |of: fn(&Table, &str) -> f64| of(table, old) / of(table, young);
            gates.most(&format!("{old} / {young}, wall"), ratio(Table::wall), 1.2);
            gates.most(&format!("{old} / {young}, CPU"), ratio(Table::cpu), 1.2);
            gates.most(&format!("{old} / {young}, memory"), ratio(Table::memory), 1.2);
        }
        let home = self.temp.path().join(OLD[0]);
        let size = session_of(&home).metadata().unwrap().len();
        gates.told("the size of that million, MB", size as f64 / 1e6);
        // Where another program wrote last, its age is paid for, once.
        gates.told("a whole look at a million, ms", wall("foreign 1M") - wall("hello"));
        gates.most("memory of it, MB", table.memory("foreign 1M"), 8.0);
        gates.most("a whole look at 100k, CPU ms", cpu("foreign 100k") - cpu("hello"), 15.0);
        // Three lines of a new session that the Python program would write as well, and the answer on standard output.
        gates.most(
            "written by a hello beyond its lines, bytes",
            table.written("hello") - self.lines(true),
            512.0,
        );
        gates.most("the same at 100k", table.written("resume 100k") - self.lines(false), 512.0);
        gates
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
        let sessions = case.home.as_ref().unwrap().0.join(".nanobot/workspace/sessions");
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
    /// Name, value and limit of each.
    measured: Vec<(String, f64, f64)>,
}

impl Default for Gates {
    fn default() -> Self {
        Self { held: true, measured: Vec::new() }
    }
}

impl Gates {
    fn most(&mut self, what: &str, found: f64, limit: f64) {
        let holds = found <= limit;
        self.held &= holds;
        self.measured.push((what.to_owned(), found, limit));
        println!(
            "{} {what:<46} {found:>9.2}  at most {limit}",
            if holds { "ok  " } else { "NOT " }
        );
    }

    fn told(&self, what: &str, found: f64) {
        println!("     {what:<46} {found:>9.2}");
    }
}
