//! Architecture tests: the sources must follow the map in `src/lib.rs` in layers, cycles, and one place for each concern.
//!
//! This file has the tables, [`rules`] the checks; [`source`] and [`tree`] read the sources. To allow something new, change a table.

mod definitions;
mod examples;
mod rules;
mod source;
mod tree;
mod vocabulary;

use nanobot::cli::topics::TOPICS;
use rules::RULES;
use std::path::Path;
use tree::SourceTree;

/// The modules from the highest to the lowest, each with the lower modules that it may import.
const LAYERS: &[(&str, &str)] = &[
    ("main", "lib"),
    ("lib", "command ops cli tool attach channel"),
    (
        "command",
        "repl ops cli options report session tool mcp provider memory channel cron undo skill trust ledger workspace settings policy event message",
    ),
    ("repl", "ops options report session tool mcp provider skill settings policy"),
    (
        "ops",
        "options guard report answer_schema turn session tool mcp provider memory channel cron attach undo skill trust ledger workspace settings policy history prompt event message",
    ),
    ("cli", "options"),
    ("options", "cron settings policy message"),
    ("guard", "turn history event message"),
    ("report", "turn event message"),
    ("answer_schema", "turn"),
    ("turn", "session tool provider policy history prompt event message"),
    ("session", "history message"),
    ("tool", "mcp attach undo skill policy event message"),
    ("mcp", "auth settings"),
    ("provider", "auth ledger event message"),
    ("memory", "message"),
    ("channel", "settings message"),
    ("cron", ""),
    ("attach", "policy message"),
    ("auth", ""),
    ("undo", ""),
    ("skill", "message"),
    ("trust", ""),
    ("ledger", "message"),
    ("workspace", ""),
    ("settings", "policy"),
    ("policy", "message"),
    ("history", "message"),
    ("prompt", "message"),
    ("event", "message"),
    ("message", ""),
    ("patch", ""),
    ("json_rpc", ""),
    ("line_search", ""),
    ("markdown", ""),
    ("diff", ""),
    ("format", ""),
    ("shell_quote", ""),
    ("terminal_text", ""),
    ("sys", ""),
    ("error", ""),
];

/// Modules that every other one may import, except where [`PURE`] forbids I/O.
const IMPORTABLE_BY_ALL: [&str; 10] = [
    "sys",
    "error",
    "diff",
    "format",
    "json_rpc",
    "line_search",
    "markdown",
    "patch",
    "shell_quote",
    "terminal_text",
];

/// Files and directories without I/O. Of `sys` they may only import [`NO_IO_IN_SYS`].
const PURE: &[&str] = &[
    "channel/dialect",
    "cli",
    "cron/expression",
    "cron/schedule",
    "diff",
    "event",
    "format",
    "guard",
    "history",
    "json_rpc",
    "line_search",
    "markdown",
    "message",
    "options",
    "patch",
    "policy",
    "prompt",
    "shell_quote",
    "terminal_text",
];

const NO_IO_IN_SYS: &[&str] = &["sys/home", "sys/repository", "sys/sync", "sys/wire_paths"];

/// The imports of the turn from modules whose implementations it must not know.
const TURN_IMPORTS: &[(&str, &str)] = &[
    (
        "provider",
        "Delta FailureKind MessageFault Provider ProviderError Request Sampling ToolChoice",
    ),
    ("session", "Session SessionStats"),
    ("tool", "CompletedCall Toolbox"),
];

/// Paths into other crates, by prefix, and the only files and directories that may use them.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("clap", &["lib.rs", "cli", "command", "options", "cron/job.rs", "cron/schedule.rs"]),
    ("println!", &[]),
    ("print!", &[]),
    ("eprintln!", &[]),
    ("eprint!", &[]),
    ("std::env::var", &["sys/env.rs"]),
    ("std::env::home_dir", &["sys/home.rs"]),
    ("std::io::stdout", &["sys/terminal"]),
    ("std::io::stderr", &["sys/terminal"]),
    ("std::process::exit", &["sys/panic_report.rs"]),
    ("std::process::Command", &["sys/process"]),
    ("jiff::Timestamp::now", &["sys/clock.rs"]),
    ("jiff::Zoned::now", &["sys/clock.rs"]),
    ("std::time::SystemTime::now", &[]),
    ("std::sync::PoisonError", &["sys/sync.rs"]),
    // A sleep that no signal interrupts.
    ("std::thread::sleep", &["sys/process", "sys/children.rs", "sys/file_lock.rs"]),
    ("ureq", &["sys/http"]),
    ("tokio", &["mcp/client"]),
];

/// Rule, subject, and reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

const MAX_EXCEPTIONS: usize = 5;

fn sources() -> SourceTree {
    SourceTree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn the_sources_follow_every_rule() {
    let tree = sources();
    let mut broken = Vec::new();
    let mut is_needed = vec![false; EXCEPTIONS.len()];
    for (rule, judge) in RULES {
        for violation in judge(&tree) {
            let is_it = |(name, subject, _): &(&str, &str, &str)| {
                name == rule && *subject == violation.subject
            };
            match EXCEPTIONS.iter().position(is_it) {
                Some(index) => is_needed[index] = true,
                None => broken.push(format!("{rule}: {}", violation.message)),
            }
        }
    }
    for ((rule, subject, _), _) in EXCEPTIONS.iter().zip(is_needed).filter(|(_, needed)| !needed) {
        broken.push(format!(
            "exceptions: `{subject}` keeps the rule `{rule}` by now: delete its line"
        ));
    }
    assert!(broken.is_empty(), "{} violations\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn the_tests_use_the_same_vocabulary() {
    let tree = SourceTree::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli"));
    let found = [vocabulary::names(&tree), vocabulary::comments(&tree)].concat();
    let messages: Vec<String> = found.into_iter().map(|found| found.message).collect();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

#[test]
fn the_topics_use_the_same_vocabulary() {
    for topic in TOPICS {
        let words: Vec<&str> = topic.text.split_whitespace().collect();
        let found = vocabulary::phrases_in(&words.join(" "));
        assert!(found.is_empty(), "{}: {found:?}", topic.name);
    }
}

#[test]
fn exceptions_are_few_and_have_reasons() {
    assert!(EXCEPTIONS.len() <= MAX_EXCEPTIONS, "split one instead");
    assert!(EXCEPTIONS.iter().all(|(_, _, reason)| !reason.is_empty()));
}

/// This guarantees that LAYERS has no cycle.
#[test]
fn layers_import_only_lower_layers() {
    for (row, (module, allowed)) in LAYERS.iter().enumerate() {
        for name in allowed.split_whitespace() {
            let is_below = LAYERS[row + 1..].iter().any(|(other, _)| *other == name);
            assert!(is_below, "`{name}` does not stand below `{module}`");
        }
    }
}
