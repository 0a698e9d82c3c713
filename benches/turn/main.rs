//! The cost of turns, compared with a minimal client: `cargo bench`. With `--gate`, as `.ci/bench` calls it, it fails if a limit is
//! exceeded. `--counts` (`counts.rs`) counts what other work on the machine does not change.
//!
//! The client is `min.c`, which is built here, static, and only sends requests. All programs run interleaved in one run, so that
//! other work on the machine affects all alike, and the minima of wall and CPU time are compared. The sessions take 1.5 GB of the
//! temporary directory.
#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod counts;
mod homes;
mod readme;
mod server;

use homes::{
    JOB, SERVERS, add_servers, close_session, create_home, python_session, session_path,
    write_jobs, write_session,
};
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

/// Builds the minimal client, and returns its path.
fn build_client(folder: &Path) -> PathBuf {
    let client = folder.join("min");
    let status = Command::new("cc")
        .args(["-O2", "-static", "-o"])
        .arg(&client)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/turn/min.c"))
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "a C compiler with a static libc is needed"
    );
    client
}

fn main() -> ExitCode {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
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
    let is_gate = has("--gate");
    let bench = Bench::new();
    let mut table = Table::default();
    for round in 0..=ROUNDS {
        for case in &bench.cases {
            // Slow cases run less often.
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
    if is_gate && !gates.are_met { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// One program with its arguments.
struct Case {
    name: &'static str,
    /// It runs in each round whose number this divides.
    every: usize,
    arguments: Vec<String>,
    /// The home of our program; `None` for the minimal client.
    home: Option<PathBuf>,
    /// True if the session is synced to the disk.
    is_synced: bool,
    /// The session is truncated to this length before each run. Then it has no closing lines of ours, as if the Python program had
    /// rewritten it, and all of it must be read.
    session_length: Option<u64>,
    /// The value of `memory.consolidate`.
    consolidate: &'static str,
    /// True if the answer goes to a terminal.
    has_terminal: bool,
}

/// The cost of one run.
#[derive(Clone, Copy)]
struct Sample {
    wall: Duration,
    cpu: Duration,
    /// Maximum resident memory in KiB.
    memory: u64,
    /// Bytes given to write(2), standard output included.
    written: u64,
}

struct Bench {
    temp: tempfile::TempDir,
    client: PathBuf,
    cases: Vec<Case>,
}

/// The sessions of the Python program: the names of the cases and of their homes, and the numbers of messages.
const PYTHON_SESSIONS: [(&str, &str, usize); 3] = [
    ("resume 100", "old100", 100),
    ("resume 10k", "old10k", 10_000),
    ("resume 100k", "old100k", 100_000),
];

/// Sessions of our own, of a hundred and of a million messages: all but the last ones consolidated, or none.
const SHORT_SESSIONS: [&str; 2] = ["own 100", "own 100, unconsolidated"];
const LONG_SESSIONS: [&str; 2] = ["own 1M", "own 1M, unconsolidated"];

/// Turns with five MCP servers, of which none or one is called.
const WITH_SERVERS: [(&str, &str); 2] =
    [("hello, 5 servers", "hello"), ("call, 5 servers", "served/2")];

impl Bench {
    fn new() -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let client = build_client(temp.path());
        let port = server::start();
        let home = |name: &str, path: &str| create_home(&temp.path().join(name), port, path);
        let case = |name, every, program: &str, arguments: &[&str], home| {
            let arguments = [program].into_iter().chain(arguments.iter().copied());
            Case {
                name,
                every,
                arguments: arguments.map(str::to_owned).collect(),
                home,
                is_synced: false,
                session_length: None,
                consolidate: "manual",
                has_terminal: false,
            }
        };
        let program = program();
        let program_case = |name, every, arguments: &[&str], home: PathBuf| {
            case(name, every, &program, arguments, Some(home))
        };
        let client_path = client.to_str().unwrap();
        let client_case =
            |name, every, arguments: &[&str]| case(name, every, client_path, arguments, None);
        let port_text = port.to_string();
        let log = temp.path().join("log");
        let log = log.to_str().unwrap();
        // `@` is the number of the round: a session of its own for each.
        let agent = |session| ["agent", "-m", "hello", "-s", session];
        let unsandboxed = ["agent", "-m", "hello", "-s", "new@", "--sandbox", "off"];
        let read_only = ["agent", "-m", "hello", "-s", "new@", "-C", "/usr"];
        let tree = homes::create_large_tree(&temp.path().join("tree"));
        let mut in_tree = agent("new@").to_vec();
        in_tree.extend(["--write", "-C", tree.to_str().unwrap()]);
        let mut cases = vec![
            client_case("min hello", 1, &["hello", &port_text]),
            program_case("--version", 1, &["--version"], home("version", "hello")),
            program_case("--help", 1, &["--help"], home("help", "hello")),
            program_case("hello", 1, &agent("new@"), home("hello", "hello")),
            Case {
                is_synced: true,
                ..program_case("hello, synced", 1, &agent("new@"), home("synced", "hello"))
            },
            client_case("min loop 10", 2, &["loop", &port_text, "10", log]),
            client_case("min loop 40", 2, &["loop", &port_text, "40", log]),
            program_case("loop 10", 2, &agent("new@"), home("loop10", "read/10")),
            program_case("loop 40", 2, &agent("new@"), home("loop40", "read/40")),
            client_case("min sh 30", 2, &["sh", "30"]),
            program_case("exec 10", 2, &unsandboxed, home("exec10", "exec/10")),
            program_case("exec 40", 2, &unsandboxed, home("exec40", "exec/40")),
            program_case("exec, sandboxed 10", 2, &read_only, home("sandboxed10", "exec/10")),
            program_case("exec, sandboxed 40", 2, &read_only, home("sandboxed40", "exec/40")),
            program_case("exec, writable 10", 2, &agent("new@"), home("writable10", "exec/10")),
            program_case("exec, writable 40", 2, &agent("new@"), home("writable40", "exec/40")),
            program_case("exec, large tree 10", 5, &in_tree, home("large10", "exec/10")),
            program_case("exec, large tree 40", 5, &in_tree, home("large40", "exec/40")),
            client_case("min stream 20k", 2, &["stream", &port_text]),
            program_case("stream 20k, text", 2, &agent("new@"), home("stream", "stream/20000")),
            program_case(
                "stream 20k, json",
                2,
                &["agent", "-m", "hello", "-s", "new@", "--output-format", "stream-json"],
                home("stream-json", "stream/20000"),
            ),
        ];
        for (name, has_terminal, path) in [
            ("hello, shown", true, "hello"),
            ("stream 20k, shown", true, "stream/20000"),
            ("prose 20k", false, "prose/20000"),
            ("prose 20k, shown", true, "prose/20000"),
        ] {
            cases.push(Case {
                has_terminal,
                ..program_case(name, 2, &agent("new@"), home(name, path))
            });
        }
        // The minimal process: it only ends.
        cases.push(client_case("min exit", 1, &["sh", "0"]));
        for (name, schedule) in [
            (
                "not due, zoned",
                json!({ "kind": "cron", "expr": "7 3 29 2 *", "tz": "Asia/Kathmandu" }),
            ),
            ("not due, every", json!({ "kind": "every", "everyMs": 90 * 60_000 })),
        ] {
            let home = home(name, "hello");
            write_jobs(&home, &schedule);
            cases.push(program_case(name, 1, &["cron", "run", JOB, "--scheduled"], home));
        }
        for (name, path) in WITH_SERVERS {
            let home = home(name, path);
            add_servers(&home);
            cases.push(program_case(name, 1, &agent("new@"), home));
        }
        for (name, dir, size) in PYTHON_SESSIONS {
            let home = home(dir, "hello");
            let text = python_session(size);
            std::fs::write(session_path(&home), &text).unwrap();
            cases.push(program_case(name, 1, &["agent", "-m", "hello"], home));
            if size == 100_000 {
                let home = create_home(&temp.path().join("rewritten"), port, "hello");
                std::fs::write(session_path(&home), &text).unwrap();
                cases.push(Case {
                    session_length: Some(text.len() as u64),
                    ..program_case("rewritten 100k", 4, &["agent", "-m", "hello"], home)
                });
            }
        }
        for (names, size) in [(SHORT_SESSIONS, 100), (LONG_SESSIONS, 1_000_000)] {
            let paths = names.map(|name| {
                let home = home(name, "hello");
                let path = session_path(&home);
                cases.push(program_case(name, 1, &["agent", "-m", "hello"], home));
                path
            });
            write_session(&paths[0], size);
            std::fs::copy(&paths[0], &paths[1]).unwrap();
            close_session(&paths[1], size, 0);
        }
        // The window is so small that a consolidation is due after each turn.
        for (name, consolidate) in [("nothing due", "manual"), ("due", "detached")] {
            let home = home(name, "hello");
            write_session(&session_path(&home), 100);
            let config = home.join(".nanobot/config.json");
            let text = std::fs::read_to_string(&config).unwrap();
            let text = text.replace(
                "\"provider\":\"custom\"}}",
                "\"provider\":\"custom\",\"memoryWindow\":2}}",
            );
            std::fs::write(config, text).unwrap();
            cases.push(Case {
                consolidate,
                ..program_case(name, 1, &["agent", "-m", "hello"], home)
            });
        }
        let home = home("rewritten 1M", "hello");
        let text = python_session(1_000_000);
        std::fs::write(session_path(&home), &text).unwrap();
        cases.push(Case {
            session_length: Some(text.len() as u64),
            ..program_case("rewritten 1M", 10, &["agent", "-m", "hello"], home)
        });
        drop(text);
        Self { temp, client, cases }
    }

    fn run(&self, case: &Case, round: usize) -> Sample {
        if let (Some(length), Some(home)) = (case.session_length, &case.home) {
            let file = File::options().write(true).open(session_path(home));
            file.unwrap().set_len(length).unwrap();
        }
        let output = self.temp.path().join("out");
        let mut command = Command::new(&self.client);
        let verb = if case.has_terminal { "show" } else { "run" };
        let arguments = case.arguments.iter().map(|text| text.replace('@', &round.to_string()));
        command.arg(verb).arg(&output).args(arguments);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        if let Some(home) = &case.home {
            command.env("HOME", home);
            command.env("NANOBOT_SESSION__SYNC", if case.is_synced { "turn" } else { "none" });
            command.env("NANOBOT_MEMORY__CONSOLIDATE", case.consolidate);
        }
        assert!(command.status().unwrap().success(), "{}", case.name);
        if case.consolidate == "detached" {
            // The detached process must not run during the next case.
            std::thread::sleep(Duration::from_millis(150));
        }
        let text = std::fs::read_to_string(&output).unwrap();
        let numbers: Vec<i64> =
            text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        Sample {
            wall: Duration::from_nanos(numbers[0].unsigned_abs()),
            cpu: Duration::from_micros(numbers[1].unsigned_abs()),
            memory: numbers[2].unsigned_abs(),
            written: numbers[3].unsigned_abs(),
        }
    }

    /// Compares the costs with their limits, and prints them.
    fn gates(&self, table: &Table) -> Gates {
        let mut gates = Gates::default();
        let (wall, cpu) = (|name| table.wall(name), |name| table.cpu(name));
        let per_turn = |few: f64, many: f64| (many - few).max(0.0) / 30.0;
        gates.check("--version / min hello, wall", wall("--version") / wall("min hello"), 1.5);
        gates.check("--help / min hello, wall", wall("--help") / wall("min hello"), 1.5);
        gates.check("hello / min hello, wall", wall("hello") / wall("min hello"), 2.0);
        gates.check("hello / min hello, CPU", cpu("hello") / cpu("min hello"), 4.0);
        gates.report("syncing a hello adds, ms", wall("hello, synced") - wall("hello"));
        gates.check("memory of a hello, MB", table.memory("hello"), 6.0);
        gates.check("memory of loop 40, MB", table.memory("loop 40"), 8.0);
        gates.check("memory of resume 100k, MB", table.memory("resume 100k"), 8.0);
        // The tools of the servers are cached in the first round, which is not counted.
        let [(idle, _), (calling, _)] = WITH_SERVERS;
        let ratio = wall(idle) / wall("hello");
        gates.check("a hello with 5 servers / with none, wall", ratio, 1.1);
        gates.report("the same, CPU", cpu(idle) / cpu("hello"));
        gates.check("servers started by a hello with 5", self.starts(idle, table), 0.0);
        let starts = self.starts(calling, table);
        gates.check("by a turn that calls a tool of one", starts, 1.0);
        gates.report("such a turn over a hello, ms", wall(calling) - wall("hello"));
        let turn = per_turn(cpu("loop 10"), cpu("loop 40"));
        gates.check("a turn with a reading tool, CPU ms", turn, 0.25);
        gates.report(
            "the same of the minimal client, CPU ms",
            per_turn(cpu("min loop 10"), cpu("min loop 40")),
        );
        for name in ["not due, zoned", "not due, every"] {
            let gate = format!("{name} / a process that only exits, wall");
            gates.check(&gate, wall(name) / wall("min exit"), 2.0);
        }
        let exec = per_turn(wall("exec 10"), wall("exec 40"));
        gates.check(
            "a turn with exec, over `sh -c true`, ms",
            exec - wall("min sh 30") / 30.0,
            0.7,
        );
        let sandboxed = per_turn(wall("exec, sandboxed 10"), wall("exec, sandboxed 40"));
        gates.check("the sandbox adds to an exec, ms", sandboxed - exec, 3.0);
        let writable = per_turn(wall("exec, writable 10"), wall("exec, writable 40"));
        gates.check("the same where it may write, ms", writable - exec, 2.0);
        let large = per_turn(wall("exec, large tree 10"), wall("exec, large tree 40"));
        gates.check("the same in a tree of 100,000 files, ms", large - exec, 50.0);
        gates.check(
            "20,000 chunks over a hello, CPU ms",
            cpu("stream 20k, text") - cpu("hello"),
            25.0,
        );
        for (name, terminal_name) in
            [("stream 20k, text", "stream 20k, shown"), ("prose 20k", "prose 20k, shown")]
        {
            let ratio = cpu(terminal_name) / cpu(name);
            gates.check(&format!("{terminal_name} / not, CPU"), ratio, 2.0);
        }
        gates.report("the same as stream-json", cpu("stream 20k, json") - cpu("hello"));
        gates.report("the same of the minimal client", cpu("min stream 20k") - cpu("min hello"));
        // In CPU time, since a processor of a virtual machine takes a millisecond to wake, and chance decides which run waits for one.
        gates.check("resume of 100k over a hello, CPU ms", cpu("resume 100k") - cpu("hello"), 1.0);
        gates.report("the same, wall ms", wall("resume 100k") - wall("hello"));
        gates.check(
            "a turn with memory due / one without, wall",
            wall("due") / wall("nothing due"),
            1.5,
        );
        gates.report("resume of 100k / resume of 100", wall("resume 100k") / wall("resume 100"));
        // The length of a session costs nothing, whether it was consolidated or not.
        for (short, long) in SHORT_SESSIONS.into_iter().zip(LONG_SESSIONS) {
            let ratio =
                |minimum: fn(&Table, &str) -> f64| minimum(table, long) / minimum(table, short);
            gates.check(&format!("{long} / {short}, wall"), ratio(Table::wall), 1.2);
            gates.check(&format!("{long} / {short}, CPU"), ratio(Table::cpu), 1.2);
            gates.check(&format!("{long} / {short}, memory"), ratio(Table::memory), 1.2);
        }
        let home = self.temp.path().join(LONG_SESSIONS[0]);
        let size = session_path(&home).metadata().unwrap().len();
        gates.report("the size of that million, MB", size as f64 / 1e6);
        // If another program wrote last, all of the session is read once.
        gates.report("a full read of a million, ms", wall("rewritten 1M") - wall("hello"));
        gates.check("memory of it, MB", table.memory("rewritten 1M"), 8.0);
        gates.check("a full read of 100k, CPU ms", cpu("rewritten 100k") - cpu("hello"), 15.0);
        // Three lines of a new session that the Python program would write as well, and the answer on standard output.
        gates.check(
            "written by a hello beyond its lines, bytes",
            table.written("hello") - self.expected_bytes(true),
            512.0,
        );
        gates.check(
            "the same at 100k",
            table.written("resume 100k") - self.expected_bytes(false),
            512.0,
        );
        gates
    }

    /// The number of servers that each counted run of the case `name` has started.
    fn starts(&self, name: &str, table: &Table) -> f64 {
        let starts = std::fs::read_to_string(self.temp.path().join(name).join("starts"));
        let count = starts.expect("the first round starts them").lines().count();
        assert!(count >= SERVERS, "{name}: not all were asked for their tools");
        (count - SERVERS) as f64 / table.rows[name].len() as f64
    }

    /// The bytes that a hello must write: its message, its answer, the answer on standard output, its line in the ledger, and the first
    /// line of a new session.
    fn expected_bytes(&self, is_new: bool) -> f64 {
        let case = self.cases.iter().find(|case| case.name == "hello").unwrap();
        let sessions = case.home.as_ref().unwrap().join(".nanobot/workspace/sessions");
        let text = std::fs::read_to_string(sessions.join("new1.jsonl")).unwrap();
        let is_message = |line: &str| line.starts_with("{\"role\"");
        let first = text.lines().take(usize::from(is_new));
        let lines = first.chain(text.lines().filter(|line| is_message(line)));
        let session_bytes: usize = lines.map(|line| line.len() + 1).sum();
        let ledger = std::fs::read_to_string(sessions.join("../../usage.jsonl")).unwrap();
        let ledger_bytes = ledger.lines().next().unwrap().len() + 1;
        (session_bytes + ledger_bytes + "Hello.\n".len()) as f64
    }
}

#[derive(Default)]
struct Table {
    rows: BTreeMap<&'static str, Vec<Sample>>,
}

impl Table {
    fn minimum(&self, name: &str, cost: impl Fn(&Sample) -> f64) -> f64 {
        self.rows[name].iter().map(cost).fold(f64::INFINITY, f64::min)
    }

    /// In milliseconds.
    fn wall(&self, name: &str) -> f64 {
        self.minimum(name, |sample| sample.wall.as_secs_f64() * 1000.0)
    }

    fn cpu(&self, name: &str) -> f64 {
        self.minimum(name, |sample| sample.cpu.as_secs_f64() * 1000.0)
    }

    fn memory(&self, name: &str) -> f64 {
        self.minimum(name, |sample| sample.memory as f64 / 1024.0)
    }

    fn written(&self, name: &str) -> f64 {
        self.minimum(name, |sample| sample.written as f64)
    }

    fn print(&self) {
        println!(
            "minima of at most {ROUNDS} interleaved runs; `session.sync: none` unless the name says `synced`"
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
    are_met: bool,
    /// The name, the value and the limit of each gate.
    measured: Vec<(String, f64, f64)>,
}

impl Default for Gates {
    fn default() -> Self {
        Self { are_met: true, measured: Vec::new() }
    }
}

impl Gates {
    fn check(&mut self, name: &str, value: f64, limit: f64) {
        let is_met = value <= limit;
        self.are_met &= is_met;
        self.measured.push((name.to_owned(), value, limit));
        let mark = if is_met { "ok  " } else { "NOT " };
        println!("{mark} {name:<46} {value:>9.2}  at most {limit}");
    }

    fn report(&self, name: &str, value: f64) {
        println!("     {name:<46} {value:>9.2}");
    }
}
