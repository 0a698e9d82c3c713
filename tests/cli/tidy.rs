//! The map in `src/lib.rs`, held against the sources: who imports whom, who prints, who reads the environment.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What each room may import of ours. A room that is not listed is an error, so that a new one gets its arrow drawn.
const ARROWS: &[(&str, &[&str])] = &[
    ("cli", &[]),
    ("error", &[]),
    ("message", &[]),
    ("event", &["message"]),
    ("sys", &["error"]),
    ("policy", &["error", "message"]),
    ("diff", &[]),
    ("history", &["message", "prompt"]),
    ("prompt", &[]),
    ("attach", &["error", "sys", "message", "policy", "prompt"]),
    ("skill", &["error", "history", "sys"]),
    ("trust", &["error", "sys"]),
    ("cron", &["error", "policy", "sys"]),
    ("mcp", &["error", "settings", "sys"]),
    ("workspace", &["error", "sys"]),
    ("settings", &["error", "sys", "policy"]),
    ("session", &["error", "sys", "message", "history"]),
    ("ledger", &["error", "sys", "message"]),
    ("memory", &["error", "sys", "message", "prompt", "provider"]),
    ("answer", &["error", "turn"]),
    ("provider", &["error", "sys", "message", "event", "ledger"]),
    (
        "tool",
        &[
            "attach", "diff", "error", "sys", "mcp", "message", "event", "provider", "policy",
            "prompt", "skill", "undo",
        ],
    ),
    ("undo", &["error", "sys"]),
    ("guard", &["history", "message", "turn"]),
    (
        "turn",
        &[
            "error", "event", "guard", "history", "message", "provider", "session", "sys", "tool",
        ],
    ),
    (
        "report",
        &["error", "event", "ledger", "message", "sys", "turn"],
    ),
    (
        "command",
        &[
            "answer",
            "attach",
            "cli",
            "cron",
            "diff",
            "error",
            "event",
            "guard",
            "history",
            "ledger",
            "mcp",
            "memory",
            "message",
            "policy",
            "prompt",
            "provider",
            "report",
            "report_with",
            "session",
            "settings",
            "skill",
            "sys",
            "tool",
            "trust",
            "turn",
            "undo",
            "workspace",
            "World",
        ],
    ),
];

/// The names that `turn` may take from the rooms of interfaces: never a concrete tool or provider.
const TURN_TAKES: &[&str] = &[
    "Calls",
    "Delta",
    "Done",
    "Provider",
    "ProviderError",
    "Request",
    "Sampling",
    "Toolbox",
    "Session",
    "Guard",
    "State",
    "Verdict",
];

/// Words that may stand in one place only.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("std::env::var", &["sys/env.rs"]),
    ("std::env::home_dir", &["sys/paths.rs"]),
    ("println!", &[]),
    ("print!(", &[]),
    ("eprint", &[]),
    ("std::io::stdout", &["sys/terminal.rs", "sys/terminal"]),
    ("std::io::stderr", &["sys/terminal.rs", "sys/terminal"]),
    ("process::exit", &[]),
    ("Timestamp::now", &["sys/clock.rs"]),
    ("Zoned::now", &["sys/clock.rs"]),
    ("SystemTime::now", &[]),
    // A sleep that no signal ends.
    ("thread::sleep", &["sys/process", "sys/store.rs"]),
    ("Command::new", &["sys/process"]),
    ("ureq::", &["sys/http"]),
    ("rmcp::", &["mcp/client"]),
    ("tokio::", &["mcp/client"]),
];

/// Rooms that do no I/O.
const PURE: &[&str] = &[
    "diff", "message", "event", "prompt", "history", "policy", "cli", "guard",
];

fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|kind| kind == "rs") => files.push(path),
                false => {}
            }
        }
    }
    let name = |path: &Path| {
        path.strip_prefix(&root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    };
    let mut sources: Vec<(String, String)> = files
        .iter()
        .map(|path| (name(path), std::fs::read_to_string(path).unwrap()))
        .collect();
    // Part of the tests.
    sources.retain(|(name, _)| name != "fuzz.rs");
    sources.sort();
    sources
}

/// The code of a source: what is neither a comment nor a test at its end.
fn code(text: &str) -> String {
    let body = text.split("#[cfg(test)]").next().unwrap_or_default();
    body.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn room(name: &str) -> &str {
    name.split(['/', '.']).next().unwrap_or_default()
}

/// The rooms that `code` names after `crate::`.
fn imports(code: &str) -> BTreeSet<&str> {
    let word = |rest: &'_ str| {
        rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .unwrap_or(rest.len())
    };
    code.match_indices("crate::")
        .map(|(at, found)| &code[at + found.len()..])
        .map(|rest| &rest[..word(rest)])
        .collect()
}

#[test]
fn arrows_point_one_way() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        if ["lib.rs", "main.rs"].contains(&name.as_str()) {
            continue;
        }
        let own = room(&name);
        let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| *room == own) else {
            wrong.push(format!("{name}: the room `{own}` has no arrows"));
            continue;
        };
        for import in imports(&code(&text)) {
            if import != own && !allowed.contains(&import) {
                wrong.push(format!("{name}: `{own}` may not know `{import}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_is_on_the_map() {
    let sources = sources();
    let (_, map) = sources.iter().find(|(name, _)| name == "lib.rs").unwrap();
    for (name, _) in &sources {
        let room = room(name);
        let drawn = ["lib", "main"].contains(&room) || map.contains(&format!("//! | [`{room}`] |"));
        assert!(drawn, "{name}: `{room}` is not on the map in src/lib.rs");
    }
}

#[test]
fn each_concern_has_one_place() {
    let mut wrong = Vec::new();
    for (name, text) in sources() {
        let code = code(&text);
        for (words, places) in ONLY_IN {
            let is_there = |place: &&str| Path::new(&name).starts_with(place);
            if code.contains(words) && !places.iter().any(is_there) {
                wrong.push(format!("{name}: `{words}` belongs into {places:?}"));
            }
        }
        let impure = [
            "std::fs",
            "std::net",
            "std::process",
            "std::io",
            "crate::sys",
        ]
        .iter()
        .find(|words| code.contains(**words));
        if PURE.contains(&room(&name))
            && let Some(words) = impure
        {
            wrong.push(format!("{name}: `{words}` in a room without I/O"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_turn_knows_interfaces_only_and_stays_short() {
    let sources = sources();
    let (_, text) = sources.iter().find(|(name, _)| name == "turn.rs").unwrap();
    for line in code(text)
        .lines()
        .filter(|line| line.starts_with("use crate::"))
    {
        let room = line
            .trim_start_matches("use crate::")
            .split("::")
            .next()
            .unwrap();
        if !["provider", "tool", "session", "guard"].contains(&room) {
            continue;
        }
        let names = line
            .split("::")
            .last()
            .unwrap()
            .trim_matches(['{', '}', ';']);
        for name in names
            .split(", ")
            .map(|name| name.trim_matches(['{', '}', ';']))
        {
            assert!(
                TURN_TAKES.contains(&name),
                "turn.rs takes `{name}` from `{room}`"
            );
        }
    }
    let (_, algorithm) = text
        .split_once("/// Run one turn to its end")
        .expect("the algorithm starts there");
    assert!(
        algorithm.lines().count() <= 200,
        "the algorithm has {} lines",
        algorithm.lines().count()
    );
}

#[test]
fn every_module_says_what_it_is_for() {
    for (name, text) in sources() {
        assert!(
            text.starts_with("//! "),
            "{name} does not open with a module comment"
        );
    }
}
