//! Architecture tests: layers within the program, cycles within each crate, and one place for each concern. The compiler and the
//! manifests hold the order of the crates.
//!
//! This file has the tables, [`rules`] the checks; [`source`] and [`tree`] read the sources. To allow something new, change a table.

mod definitions;
mod examples;
mod locals;
mod rules;
mod source;
mod tree;
mod vocabulary;

use nanobot::cli::topics::TOPICS;
use rules::RULES;
use std::path::Path;
use tree::SourceTree;

/// The modules of the program from the highest to the lowest, each with the lower modules that it may import. The compiler holds
/// the order of the crates.
const LAYERS: &[(&str, &str)] = &[
    ("main", "lib"),
    ("lib", "command cli ops name_service"),
    ("command", "repl ops cli options"),
    ("repl", "ops options"),
    ("ops", "options"),
    ("cli", "options"),
    ("options", ""),
    ("name_service", ""),
];

/// Files and directories without I/O. Of `crates/os` they may only import [`NO_IO_IN_OS`].
const PURE: &[&str] = &[
    "crates/agent/src/guard",
    "crates/agent/src/prompt",
    "crates/base/src/diff",
    "crates/base/src/event",
    "crates/base/src/format",
    "crates/base/src/json_rpc",
    "crates/base/src/line_search",
    "crates/base/src/markdown",
    "crates/base/src/message",
    "crates/base/src/patch",
    "crates/base/src/shell_quote",
    "crates/base/src/terminal_text",
    "crates/channel/src/dialect",
    "crates/config/src/policy",
    "crates/cron/src/expression",
    "crates/cron/src/schedule",
    "crates/store/src/history",
    "src/cli",
    "src/options",
];

const NO_IO_IN_OS: &[&str] = &[
    "crates/os/src/deferred",
    "crates/os/src/home",
    "crates/os/src/repository",
    "crates/os/src/wire_paths",
];

/// The files of the turn, and its imports from modules whose implementations it must not know.
const TURN: &str = "crates/agent/src/turn";
const TURN_IMPORTS: &[(&str, &str)] = &[
    (
        "crates/model/src/provider",
        "Delta FailureKind MessageFault Provider ProviderError Request Sampling ToolChoice",
    ),
    ("crates/store/src/session", "Session SessionStats"),
    ("crates/tool/src", "CompletedCall Toolbox"),
];

/// Paths into crates of others, by prefix, and the only files and directories that may use them. Which crate uses which, the
/// manifests say.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("clap", &["src/lib.rs", "src/cli", "src/command", "src/options", "crates/cron/src"]),
    ("println!", &[]),
    ("print!", &[]),
    ("eprintln!", &[]),
    ("eprint!", &[]),
    ("std::env::var", &["crates/os/src/env.rs"]),
    ("std::env::home_dir", &["crates/os/src/home.rs"]),
    ("std::io::stdout", &["crates/os/src/terminal"]),
    ("std::io::stderr", &["crates/os/src/terminal"]),
    ("std::process::exit", &["crates/os/src/panic_report.rs"]),
    ("std::process::Command", &["crates/sandbox/src/process"]),
    ("jiff::Timestamp::now", &["crates/os/src/clock.rs"]),
    ("jiff::Zoned::now", &["crates/os/src/clock.rs"]),
    ("std::time::SystemTime::now", &[]),
    ("std::sync::PoisonError", &[]),
    // A sleep that no signal interrupts.
    (
        "std::thread::sleep",
        &["crates/sandbox/src/process", "crates/os/src/children.rs", "crates/os/src/file_lock.rs"],
    ),
];

/// Rule, subject, and reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

const MAX_EXCEPTIONS: usize = 5;

fn sources() -> SourceTree {
    SourceTree::read(Path::new(env!("CARGO_MANIFEST_DIR")), &["src", "crates"])
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
fn the_tests_follow_their_rules() {
    let tree = SourceTree::read(Path::new(env!("CARGO_MANIFEST_DIR")), &["tests/cli"]);
    let rules = [vocabulary::names, vocabulary::comments, vocabulary::locals, rules::accept_loops];
    let violations = rules.into_iter().flat_map(|rule| rule(&tree));
    let messages: Vec<String> = violations.map(|violation| violation.message).collect();
    assert!(messages.is_empty(), "{}", messages.join("\n"));
}

#[test]
fn the_topics_use_the_same_vocabulary() {
    for topic in TOPICS {
        let topic_words: Vec<&str> = topic.text.split_whitespace().collect();
        let phrases = vocabulary::phrases_in(&topic_words.join(" "));
        assert!(phrases.is_empty(), "{}: {phrases:?}", topic.name);
    }
}

/// The list by which names of values are chosen: for each type of the project, the names of its parameters and locals.
/// `cargo test --features test-hooks --test cli names_of_each_type -- --ignored --nocapture`
#[test]
#[ignore = "prints a list for people"]
fn names_of_each_type() {
    use std::io::Write;
    let list = vocabulary::names_by_type(&sources());
    std::io::stdout().write_all(list.as_bytes()).unwrap();
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
