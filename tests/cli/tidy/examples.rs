//! A failing example for every rule: small sources that break it, and the expected messages.

use super::rules::RULES;
use super::source::Source;
use super::tree::SourceTree;

/// A rule, files that break it, and its messages; none if they follow it.
type RuleExample = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const EXAMPLES: &[RuleExample] = &[
    (
        "layers",
        &[
            (
                "src/ops/mod.rs",
                "fn f(shared: &crate::cli::Shared, world: &crate::World) {\n    super::command::run()\n}",
            ),
            ("src/cli.rs", ""),
            ("src/command/mod.rs", ""),
            ("src/lib.rs", ""),
        ],
        &[
            "src/ops/mod.rs:1: `crate::cli::Shared`: `cli` is not among its imports in LAYERS: have it passed in, or add it if the design says so",
            "src/ops/mod.rs:1: `crate::World`: `lib` is in a higher layer: move the item down, or have it passed in as an argument",
            "src/ops/mod.rs:2: `super::command::run`: `command` is in a higher layer: move the item down, or have it passed in as an argument",
        ],
    ),
    // Paths in tokens of a macro and of an attribute; a higher module that only re-exports.
    (
        "layers",
        &[
            (
                "src/options.rs",
                "fn f() {\n    assert!(crate::ops::agent::run());\n}\n#[serde(with = crate::command::text)]\nstruct S;",
            ),
            ("src/cli.rs", "use crate::ops as o;\ntype M = o::Message;"),
            ("src/repl/mod.rs", "use crate::command::Message;"),
            ("src/command/mod.rs", "pub use crate::options::Message;"),
            ("src/ops/agent.rs", ""),
            ("src/ops/mod.rs", ""),
        ],
        &[
            "src/cli.rs:1: `crate::ops`: `ops` is in a higher layer: move the item down, or have it passed in as an argument",
            "src/options.rs:2: `crate::ops::agent::run`: `ops` is in a higher layer: move the item down, or have it passed in as an argument",
            "src/options.rs:4: `crate::command::text`: `command` is in a higher layer: move the item down, or have it passed in as an argument",
            "src/repl/mod.rs:1: `crate::command::Message`: `command` is in a higher layer: move the item down, or have it passed in as an argument",
        ],
    ),
    (
        "layers",
        &[("src/shop.rs", "")],
        &["src/shop.rs: `shop` has no row in LAYERS: add one at its height"],
    ),
    (
        "layers",
        &[
            (
                "src/ops/mod.rs",
                "use nanobot_agent::turn::Turn;\nuse nanobot_os::clock::Clock;\n#[cfg(test)]\nmod tests {\n    use crate::command::run;\n}",
            ),
            ("src/command/mod.rs", ""),
            ("crates/os/src/clock.rs", "pub(in crate::terminal) struct Clock;"),
            ("crates/agent/src/turn.rs", ""),
        ],
        &[],
    ),
    (
        "cycles",
        &[
            ("cron/mod.rs", "pub mod job;\nfn f() {\n    job::run()\n}"),
            ("cron/job.rs", "use super::f;"),
        ],
        &[
            "cron/job.rs: cycle: move what these files share into a file below them, or pass it in:\n    cron/job.rs:1: `super::f` imports cron/mod.rs\n    cron/mod.rs:3: `job::run` imports cron/job.rs",
        ],
    ),
    (
        "cycles",
        &[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::{self, C};"),
            ("c.rs", "type A = crate::a::A;"),
            ("d.rs", "use crate::a::A;"),
        ],
        &[
            "a.rs: cycle: move what these files share into a file below them, or pass it in:\n    a.rs:1: `crate::b::B` imports b.rs\n    b.rs:1: `crate::c` imports c.rs\n    c.rs:1: `crate::a::A` imports a.rs",
        ],
    ),
    // A child may import from its parent what the parent only re-exports; test files are ignored.
    (
        "cycles",
        &[
            (
                "cron/mod.rs",
                "pub mod job;\nmod store;\npub use store::Store;\nuse job::Job;\n#[cfg(test)]\nmod fuzz;",
            ),
            ("cron/job.rs", "use super::Store;"),
            ("cron/store.rs", ""),
            ("cron/fuzz.rs", "use crate::cron::Job;"),
        ],
        &[],
    ),
    // The parent of an inline module is the file.
    (
        "cycles",
        &[
            ("undo/mod.rs", "mod journal;\nuse journal::Line;"),
            (
                "undo/journal.rs",
                "use serde::Deserialize;\nmod path_text {\n    use super::Deserialize;\n    use super::super::Undo;\n}",
            ),
        ],
        &[
            "undo/journal.rs: cycle: move what these files share into a file below them, or pass it in:\n    undo/journal.rs:4: `super::Undo` imports undo/mod.rs\n    undo/mod.rs:2: `journal::Line` imports undo/journal.rs",
        ],
    ),
    // No file imports itself through others here, but the folders do. A file counts as a part of the folder of its name.
    (
        "folder cycles",
        &[
            ("ops/mod.rs", ""),
            ("ops/turn.rs", "mod setup;\nuse crate::ops::jobs::store::Jobs;\nuse setup::X;"),
            ("ops/jobs/mod.rs", ""),
            ("ops/turn/setup.rs", "use super::Turn;"),
            ("ops/jobs/store.rs", ""),
            ("ops/jobs/run.rs", "use crate::ops::turn::setup::Setup;"),
        ],
        &[
            "ops/jobs: cycle: move what these folders share below them, or pass it in:\n    ops/jobs/run.rs:1: `crate::ops::turn::setup::Setup` imports ops/turn/setup.rs\n    ops/turn.rs:2: `crate::ops::jobs::store::Jobs` imports ops/jobs/store.rs",
        ],
    ),
    (
        "one place",
        &[
            (
                "src/ops/job.rs",
                "use clap::Args;\nuse std::{env, thread};\nfn f() {\n    let home = env::var(\"HOME\");\n    thread::sleep(SECOND);\n    println!(\"{home}\");\n}",
            ),
            ("src/command/job.rs", "use clap::Args;"),
            ("crates/os/src/env.rs", "fn f() {\n    std::env::vars_os()\n}"),
        ],
        &[
            "src/ops/job.rs:1: `clap::Args`: `clap` stands only in src/lib.rs, src/cli, src/command, src/options, crates/cron/src: call that",
            "src/ops/job.rs:4: `env::var`: `std::env::var` stands only in crates/os/src/env.rs: call that",
            "src/ops/job.rs:5: `thread::sleep`: `std::thread::sleep` stands only in crates/sandbox/src/process, crates/os/src/children.rs, crates/os/src/file_lock.rs: call that",
            "src/ops/job.rs:6: `println!`: `println!` stands nowhere in this program: use `nanobot_os`",
        ],
    ),
    (
        "no I/O",
        &[
            (
                "crates/config/src/policy/mod.rs",
                "use std::fs::File;\nuse nanobot_os::clock::Clock;\nuse std::path::Path;",
            ),
            ("crates/cron/src/schedule.rs", "fn f() {\n    std::io::stdin()\n}"),
            ("crates/os/src/lib.rs", "use std::fs::File;"),
            ("crates/os/src/clock.rs", ""),
        ],
        &[
            "crates/config/src/policy/mod.rs:1: `std::fs::File`: no I/O here: do it in the caller and pass the result in",
            "crates/config/src/policy/mod.rs:2: `nanobot_os::clock::Clock`: no I/O here: do it in the caller and pass the result in",
            "crates/cron/src/schedule.rs:2: `std::io::stdin`: no I/O here: do it in the caller and pass the result in",
        ],
    ),
    (
        "turn imports",
        &[
            ("crates/agent/src/turn/ask.rs", "use nanobot_tool::{CompletedCall, grep::Grep};"),
            ("crates/tool/src/lib.rs", "pub struct CompletedCall;"),
            ("crates/tool/src/grep.rs", ""),
        ],
        &[
            "crates/agent/src/turn/ask.rs:1: `nanobot_tool::grep::Grep`: the turn takes only CompletedCall Toolbox from crates/tool/src: bring a feature in as a tool, guard, provider or event sink",
        ],
    ),
    (
        "module comment",
        &[("a.rs", "use b;\n")],
        &["a.rs: open it with a `//!` comment that says what it is for"],
    ),
    (
        "log topics",
        &[(
            "a.rs",
            "fn f() {\n    log::info!(target: \"http\", \"a\");\n    log::warn!(target: \"shop\", \"b\");\n}",
        )],
        &["a.rs:3: `shop` is no topic of the log: use one of `nanobot_os::log::TOPICS`, or add it"],
    ),
    (
        "names",
        &[(
            "a.rs",
            "mod words;\nstruct Held { told: u8 }\nenum Answer { Seen }\nconst MOST: u8 = 1;\n#[cfg(test)]\nmod tests {\n    fn look() {}\n}",
        )],
        &[
            "a.rs:1: `words`: use the field's term for what this is or does",
            "a.rs:2: `Held`: use the field's term for what this is or does",
            "a.rs:2: `told`: use the field's term for what this is or does",
            "a.rs:3: `Seen`: use the field's term for what this is or does",
            "a.rs:4: `MOST`: use the field's term for what this is or does",
        ],
    ),
    (
        "locals",
        &[(
            "a.rs",
            "fn f(words: &str) {\n    let found = words.len();\n    let size = found;\n    g(|told| told + size);\n}\n#[cfg(test)]\nmod tests {\n    fn f(place: u8) {}\n}",
        )],
        &[
            "a.rs:1: `words`: name a value after what it is: `settings`, `response`, `path`",
            "a.rs:2: `found`: name a value after what it is: `settings`, `response`, `path`",
            "a.rs:4: `told`: name a value after what it is: `settings`, `response`, `path`",
        ],
    ),
    (
        "renamed fields",
        &[(
            "a.rs",
            "fn f(line: Line) {\n    let Line { text: letters, end: line_end, start, number: _ } = line;\n}",
        )],
        &["a.rs:2: `letters`: the field is `text`: keep its name"],
    ),
    (
        "signatures",
        &[(
            "a.rs",
            "fn f(pair: (u8, u8)) {}\nfn g() -> Result<Option<Result<u8>>> {}\nfn h(size: Option<Option<u8>>) {}\nfn i() -> Result<Option<u8>> {}",
        )],
        &[
            "a.rs:1: `f`: a tuple as a parameter: pass its parts, or name a type",
            "a.rs:2: `g`: a nested `Option` or `Result`: name a type, or make two functions",
            "a.rs:3: `h`: a nested `Option` or `Result`: name a type",
        ],
    ),
    (
        "parameters",
        &[(
            "a.rs",
            "struct RunState;\nfn f(state: &RunState, run_states: &[RunState], next: RunState, stamps: Option<&RunState>) {}",
        )],
        &["a.rs:2: `stamps`: say in the name that it is a `RunState`"],
    ),
    (
        "doc words",
        &[(
            "a.rs",
            "/// Reads `path` into `buffer`, as `read_all` does, for the key `name`.\nfn f(path: &str) {\n    g(\"name\");\n}\nfn read_all() {}",
        )],
        &["a.rs:1: `buffer`: the doc names something that is not there"],
    ),
    (
        "unique types",
        &[("a.rs", "struct Line;"), ("b.rs", "\nenum Line {}\nfn f() {}")],
        &["b.rs:2: `Line`: another type has this name: say in it which one this is"],
    ),
    (
        "units",
        &[(
            "a.rs",
            "const POLL: Duration = Duration::ZERO;\nconst LARGEST: usize = 1 << 20;\nconst MAX_NAME: usize = 3;\nconst MAX_ROWS: usize = 3;\nconst MAX_ROWS_PER_PAGE: usize = 3;\nconst MAX_DEPTH: usize = 3;",
        )],
        &[
            "a.rs:1: `POLL`: say in the name of a duration what it is: `…_TIMEOUT`, `…_INTERVAL`",
            "a.rs:2: `LARGEST`: say in the name of a size that it is in bytes: `…_BYTES`",
            "a.rs:3: `MAX_NAME`: say in the name of a limit what it counts: `MAX_NAME_CHARS`, `MAX_ROWS`",
        ],
    ),
    (
        "comments",
        &[(
            "a.rs",
            "//! What a run holds.\n\n// Nobody waits for it.\n// It runs as `nobody`.\nfn f() {}",
        )],
        &[
            "a.rs:3: `nobody`: write instead: say which process, user or program does not",
            "a.rs:1: `What`: open the comment with a noun or a verb",
        ],
    ),
    (
        "messages",
        &[(
            "a.rs",
            "fn f() -> &'static str {\n    \"it is not to be had\"\n}\n#[cfg(test)]\nmod tests {\n    const NAME: &str = \"nobody\";\n}",
        )],
        &["a.rs:2: `is not to be had`: write instead: is not available"],
    ),
];

#[test]
fn every_rule_fails_when_it_is_broken() {
    for (name, judge) in RULES {
        let examples: Vec<&RuleExample> =
            EXAMPLES.iter().filter(|(rule, ..)| rule == name).collect();
        assert!(
            examples.iter().any(|(.., message)| !message.is_empty()),
            "no example breaks `{name}`"
        );
        for (_, files, expected) in examples {
            let parse =
                |(name, text): &(&str, &str)| Source::parse(name, (*text).to_owned()).unwrap();
            let tree = SourceTree::new(files.iter().map(parse).collect());
            let messages: Vec<String> =
                judge(&tree).into_iter().map(|violation| violation.message).collect();
            assert_eq!(messages, *expected, "{name}");
        }
    }
}
