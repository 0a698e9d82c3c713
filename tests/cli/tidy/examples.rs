//! A failing example for every rule: small sources that break it, and the expected messages.

use super::rules::RULES;
use super::source::Source;
use super::tree::SourceTree;

/// A rule, files that break it, and its messages; none if they follow it.
type RuleExample = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const EXAMPLES: &[RuleExample] = &[
    (
        "layers",
        &[("tool.rs", "use crate::turn::Turn;"), ("turn.rs", "pub struct Turn;")],
        &[
            "tool.rs:1: `crate::turn::Turn`: `turn` is in a higher layer: move the item down, or have it passed in as an argument",
        ],
    ),
    (
        "layers",
        &[("memory/mod.rs", "fn f() {\n    super::ledger::total()\n}"), ("ledger.rs", "")],
        &[
            "memory/mod.rs:2: `super::ledger::total`: `ledger` is not among its imports in LAYERS: have it passed in, or add it if the design says so",
        ],
    ),
    (
        "layers",
        &[
            ("ops/mod.rs", "fn f(shared: &crate::cli::Shared, world: &crate::World) {}"),
            ("cli.rs", ""),
            ("lib.rs", ""),
        ],
        &[
            "ops/mod.rs:1: `crate::cli::Shared`: `cli` is not among its imports in LAYERS: have it passed in, or add it if the design says so",
            "ops/mod.rs:1: `crate::World`: `lib` is in a higher layer: move the item down, or have it passed in as an argument",
        ],
    ),
    // Paths in tokens of a macro and of an attribute; a higher module that only re-exports.
    (
        "layers",
        &[
            (
                "history.rs",
                "fn f() {\n    assert!(crate::ops::agent::run());\n}\n#[serde(with = crate::report::text)]\nstruct S;",
            ),
            ("policy.rs", "use crate::ops as o;\ntype M = o::Message;"),
            ("prompt.rs", "use crate::ops::Message;"),
            ("ops/mod.rs", "pub use crate::message::Message;"),
            ("ops/agent.rs", ""),
            ("report.rs", ""),
            ("message.rs", ""),
        ],
        &[
            "history.rs:2: `crate::ops::agent::run`: `ops` is in a higher layer: move the item down, or have it passed in as an argument",
            "history.rs:4: `crate::report::text`: `report` is in a higher layer: move the item down, or have it passed in as an argument",
            "policy.rs:1: `crate::ops`: `ops` is in a higher layer: move the item down, or have it passed in as an argument",
            "prompt.rs:1: `crate::ops::Message`: `ops` is in a higher layer: move the item down, or have it passed in as an argument",
        ],
    ),
    (
        "layers",
        &[("shop.rs", "")],
        &["shop.rs: `shop` has no row in LAYERS: add one at its height"],
    ),
    (
        "layers",
        &[
            (
                "ops/mod.rs",
                "use crate::turn::Turn;\nuse crate::sys::clock::Clock;\n#[cfg(test)]\nmod tests {\n    use crate::command::run;\n}",
            ),
            ("command/mod.rs", ""),
            ("sys/clock.rs", "pub(in crate::command) struct Clock;"),
            ("sys/mod.rs", ""),
            ("turn.rs", ""),
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
                "ops/job.rs",
                "use clap::Args;\nuse std::{env, thread};\nfn f() {\n    let home = env::var(\"HOME\");\n    thread::sleep(SECOND);\n    println!(\"{home}\");\n}",
            ),
            ("command/job.rs", "use clap::Args;"),
            ("sys/env.rs", "fn f() {\n    std::env::vars_os()\n}"),
        ],
        &[
            "ops/job.rs:1: `clap::Args`: `clap` stands only in lib.rs, cli, command, options, cron/job.rs, cron/schedule.rs: call that",
            "ops/job.rs:4: `env::var`: `std::env::var` stands only in sys/env.rs: call that",
            "ops/job.rs:5: `thread::sleep`: `std::thread::sleep` stands only in sys/process, sys/children.rs, sys/file_lock.rs: call that",
            "ops/job.rs:6: `println!`: `println!` stands nowhere in this program: use `sys`",
        ],
    ),
    (
        "no I/O",
        &[
            (
                "policy/mod.rs",
                "use std::fs::File;\nuse crate::sys::clock::Clock;\nuse std::path::Path;",
            ),
            ("cron/schedule.rs", "fn f() {\n    std::io::stdin()\n}"),
            ("sys/mod.rs", "use std::fs::File;"),
            ("sys/clock.rs", ""),
        ],
        &[
            "cron/schedule.rs:2: `std::io::stdin`: no I/O here: do it in the caller and pass the result in",
            "policy/mod.rs:1: `std::fs::File`: no I/O here: do it in the caller and pass the result in",
            "policy/mod.rs:2: `crate::sys::clock::Clock`: no I/O here: do it in the caller and pass the result in",
        ],
    ),
    (
        "turn imports",
        &[
            ("turn/ask.rs", "use crate::tool::{CompletedCall, grep::Grep};"),
            ("tool/mod.rs", "pub struct CompletedCall;"),
            ("tool/grep.rs", ""),
        ],
        &[
            "turn/ask.rs:1: `crate::tool::grep::Grep`: the turn takes only CompletedCall Toolbox from `tool`: bring a feature in as a tool, guard, provider or event sink",
        ],
    ),
    (
        "module comment",
        &[("a.rs", "use b;\n")],
        &["a.rs: open it with a `//!` comment that says what it is for"],
    ),
    (
        "map",
        &[
            ("lib.rs", "//! | [`tool`] | tools |\n// [`turn`]"),
            ("tool/mod.rs", ""),
            ("turn.rs", ""),
        ],
        &["lib.rs: the map names no [`turn`]: say there what it holds"],
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
        assert!(examples.iter().any(|(.., said)| !said.is_empty()), "no example breaks `{name}`");
        for (_, files, expected) in examples {
            let parse =
                |(name, text): &(&str, &str)| Source::parse(name, (*text).to_owned()).unwrap();
            let tree = SourceTree::new(files.iter().map(parse).collect());
            let said: Vec<String> = judge(&tree).into_iter().map(|found| found.message).collect();
            assert_eq!(said, *expected, "{name}");
        }
    }
}
