//! Damaged state files: one case for each cell of the table in the man page about files.

use crate::cron::add_job;
use crate::server::says;
use crate::story::{Story, write};
use nanobot::cli::state_files::STATE_FILES;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The way in which a file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Empty,
    Torn,
    Unreadable,
    Newer,
}

/// A command after the damage: its status, and a text in its standard error or, if it is 0, in its output.
type Expectation = (i32, &'static str);

/// A row of the table: the file, the command, and what it does after each damage.
struct Row {
    path: &'static str,
    command: &'static [&'static str],
    empty: Expectation,
    torn: Expectation,
    unreadable: Expectation,
    newer: Expectation,
    /// The story in which two processes change it at once.
    concurrent: &'static str,
}

const TURN: &[&str] = &["agent", "--replay", "demo", "-m", "x", "-s", "work"];

const ROWS: &[Row] = &[
    Row {
        path: "~/.nanobot/config.json",
        command: TURN,
        empty: (78, "is empty"),
        torn: (78, "correct the file by hand"),
        unreadable: (78, "read config"),
        newer: (0, "unknown keys: `v`, `version`, misspelt or of a newer nanobot"),
        concurrent: "concurrency::concurrent_changes_of_the_config_are_all_kept",
    },
    Row {
        path: "~/.nanobot/nanobot.json",
        command: TURN,
        empty: (78, "is empty"),
        torn: (78, "correct the file by hand"),
        unreadable: (78, "read config"),
        newer: (0, "unknown keys: `v`, `version`, misspelt or of a newer nanobot"),
        concurrent: "concurrency::concurrent_changes_of_the_config_are_all_kept",
    },
    Row {
        path: "~/.nanobot/trust.json",
        command: TURN,
        empty: (0, "kept as `$HOME/.nanobot/trust.json.damaged`"),
        torn: (0, "kept as `$HOME/.nanobot/trust.json.damaged`"),
        unreadable: (74, "trust.json"),
        newer: (0, "This folder contains"),
        concurrent: "concurrency::concurrent_changes_of_trust_are_all_kept",
    },
    Row {
        path: "~/.nanobot/git-objects",
        command: TURN,
        empty: (0, ""),
        torn: (0, ""),
        unreadable: (0, ""),
        newer: (0, ""),
        concurrent: "startup_files::what_a_turn_gives_to_git_stays_known_whatever_becomes_of_the_turn_and_the_repository",
    },
    Row {
        path: "~/.nanobot/written-skills",
        command: TURN,
        empty: (0, ""),
        torn: (0, ""),
        unreadable: (74, "written-skills"),
        newer: (0, ""),
        concurrent: "provenance::skills_of_concurrent_runs_are_all_recorded",
    },
    Row {
        path: "~/.nanobot/workspace/cron/jobs.json",
        command: &["cron", "add", "-m", "y", "-e", "1h"],
        empty: (78, "a copy is kept as"),
        torn: (78, "a copy is kept as"),
        unreadable: (74, "is not a regular file"),
        newer: (78, "has format version 99"),
        concurrent: "cron::concurrent_additions_are_all_stored",
    },
    Row {
        path: "~/.nanobot/cron/ID/job.json",
        command: &["cron", "list"],
        empty: (0, "never: its options are unreadable"),
        torn: (0, "never: its options are unreadable"),
        unreadable: (0, "never: its options are unreadable"),
        newer: (0, "never: its options are unreadable"),
        concurrent: "cron::concurrent_additions_are_all_stored",
    },
    Row {
        path: "~/.nanobot/cron/ID/job.json",
        command: &["cron", "run", "ID"],
        empty: (78, "cannot be used"),
        torn: (78, "cannot be used"),
        unreadable: (74, "is not a regular file"),
        newer: (78, "was written by a newer release"),
        concurrent: "cron_kills::only_one_of_a_hundred_concurrent_starts_runs",
    },
    Row {
        path: "~/.nanobot/cron/ID/state.json",
        command: &["cron", "run", "ID", "--scheduled"],
        empty: (78, "remove the file if the job may run again immediately"),
        torn: (78, "remove the file if the job may run again immediately"),
        unreadable: (74, "is not a regular file"),
        newer: (78, "was written by a newer release"),
        concurrent: "cron_kills::only_one_of_a_hundred_concurrent_starts_runs",
    },
    Row {
        path: "~/.nanobot/cron/ID/state.json",
        command: &["cron", "list"],
        empty: (0, "state.json` is invalid"),
        torn: (0, "state.json` is invalid"),
        unreadable: (0, "state.json` is not a regular file"),
        newer: (0, "state.json` was written by a newer release"),
        concurrent: "cron_kills::only_one_of_a_hundred_concurrent_starts_runs",
    },
    Row {
        path: "~/.nanobot/cron/ID/runs.jsonl",
        command: &["cron", "list"],
        empty: (0, "every hour"),
        torn: (0, "every hour"),
        unreadable: (0, "runs.jsonl` is not a regular file"),
        newer: (0, "ok, Fri 2 Jan"),
        concurrent: "cron_kills::only_one_of_a_hundred_concurrent_starts_runs",
    },
    Row {
        path: "~/.nanobot/cron/ID/runs.jsonl",
        command: &["cron", "logs"],
        empty: (0, "No runs yet."),
        torn: (0, "No runs yet."),
        unreadable: (74, "is not a regular file"),
        newer: (0, "Fri 2 Jan"),
        concurrent: "budgets::sixty_four_concurrent_runs_spend_exactly_the_budget",
    },
    Row {
        path: "~/.nanobot/usage.jsonl",
        command: &["usage"],
        empty: (0, "the ledger is empty"),
        torn: (0, "skipped invalid lines of the ledger: 1"),
        unreadable: (74, "usage.jsonl"),
        newer: (0, "skipped invalid lines of the ledger: 1"),
        concurrent: "budgets::sixty_four_concurrent_runs_spend_exactly_the_budget",
    },
    Row {
        path: "~/.nanobot/pipes/NAME/inbox.jsonl",
        command: &["serve", "pipe", "--name", "NAME"],
        empty: (0, ""),
        torn: (0, ""),
        unreadable: (74, "inbox.jsonl"),
        newer: (0, "kept"),
        concurrent: "pipe_command::one_process_at_a_time_has_a_journal",
    },
    Row {
        path: "~/.nanobot/workspace/sessions/KEY.jsonl",
        command: TURN,
        empty: (0, "This folder contains"),
        torn: (0, "it was moved to"),
        unreadable: (74, "is not a regular file"),
        newer: (78, "was written by a newer nanobot"),
        concurrent: "concurrency::sixteen_runs_with_ten_turns_each_on_one_session",
    },
    Row {
        path: "~/.nanobot/workspace/memory/MEMORY.md",
        command: TURN,
        empty: (0, "This folder contains"),
        torn: (0, "This folder contains"),
        unreadable: (74, "MEMORY.md"),
        newer: (0, "This folder contains"),
        concurrent: "memory::thirty_two_concurrent_runs_lose_no_line",
    },
];

/// A home with every file of the table, and the id of its job.
fn prepared_story() -> (Story, String) {
    let story = Story::new()
        .file("AGENTS.md", "SAY MOO")
        .workspace_file("memory/MEMORY.md", "- a fact\n- another fact\n")
        .workspace_file(
            "skills/tea/SKILL.md",
            "---\nname: tea\ndescription: tea\n---\nhttps://tea.example\n",
        )
        .script([says("by hand")]);
    let id = add_job(&story, &["-n", "hourly", "-e", "1h"]);
    story.run(["cron", "run", &id]).stdout("by hand\n");
    drop(story.run(["trust", "."]).text());
    let name = "ce013625030ba8dba906f756967f9e9ca394464a";
    let objects = format!("begin 1767323045.0 1-1767323045.0\n{name}\nend 1-1767323045.0\n");
    write(&story.home().join(".nanobot/git-objects"), objects.as_bytes());
    let digest = "00112233445566778899aabbccddeeff\n";
    write(&story.home().join(".nanobot/written-skills"), digest.as_bytes());
    write(&story.home().join(".nanobot/nanobot.json"), b"{\"budget\": {\"daily\": 5}}\n");
    // An answer that was not printed.
    let answer = json!({ "type": "out", "key": "1", "answers": ["1"], "session": "s", "destination": { "chat": { "id": "" } },
        "parts": [{ "plain": "kept" }], "at": 1_767_323_045_000_i64 });
    let path = story.home().join(".nanobot/pipes/NAME/inbox.jsonl");
    write(&path, format!("{answer}\n").as_bytes());
    story.run(TURN).stdout_has("This folder contains");
    (story, id)
}

fn damage(path: &Path, how: Damage) {
    let before = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match how {
        Damage::Empty => write(path, b""),
        Damage::Torn => write(path, &before[..before.len() * 2 / 3]),
        // A file that may not be read is no obstacle for root, who runs tests in containers.
        Damage::Unreadable => {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
        Damage::Newer => write(path, newer_version(&before).as_bytes()),
    }
}

/// The same content, of version 99. Text has no version.
fn newer_version(before: &[u8]) -> String {
    let text = String::from_utf8(before.to_vec()).unwrap();
    let raise = |mut value: Value| {
        (value["v"], value["version"]) = (json!(99), json!(99));
        if value["_type"] == "metadata" {
            value["metadata"]["nanobot"]["v"] = json!(99);
        }
        value.to_string()
    };
    if let Ok(value @ Value::Object(_)) = serde_json::from_str(&text) {
        return raise(value);
    }
    let line = |line: &str| match serde_json::from_str(line) {
        Ok(value @ Value::Object(_)) => raise(value) + "\n",
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn real_path(story: &Story, path: &str, id: &str) -> PathBuf {
    let path = path.strip_prefix("~/").unwrap();
    let path = path.replace("/ID/", &format!("/{id}/"));
    story.home().join(path.replace("KEY", "work"))
}

fn check_row(row: &Row) {
    let cells = [
        (Damage::Empty, row.empty),
        (Damage::Torn, row.torn),
        (Damage::Unreadable, row.unreadable),
        (Damage::Newer, row.newer),
    ];
    for (how, (status, phrase)) in cells {
        let (story, id) = prepared_story();
        damage(&real_path(&story, row.path, &id), how);
        let command = row.command.iter();
        let command = command.map(|word| if *word == "ID" { &*id } else { word });
        let result = story.run(command);
        let done = (result.code(), result.text(), result.error_text());
        drop(result);
        let case = format!("{} {how:?}: {done:?}", row.path);
        assert_eq!(done.0, status, "{case}");
        let is_as_documented = done.2.contains(phrase) || status == 0 && done.1.contains(phrase);
        assert!(is_as_documented, "no `{phrase}`: {case}");
    }
}

#[test]
fn each_damaged_file_is_handled_as_documented() {
    for file in STATE_FILES {
        assert!(ROWS.iter().any(|row| row.path == file.path), "{}", file.path);
    }
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli");
    std::thread::scope(|scope| {
        for row in ROWS {
            assert!(STATE_FILES.iter().any(|file| file.path == row.path));
            let (module, name) = row.concurrent.split_once("::").unwrap();
            let text = std::fs::read_to_string(stories.join(format!("{module}.rs"))).unwrap();
            let has_story = text.contains(&format!("#[test]\nfn {name}()"));
            assert!(has_story, "{}: no {}", row.path, row.concurrent);
            scope.spawn(|| check_row(row));
        }
    });
}

#[test]
fn a_damaged_job_does_not_stop_the_others() {
    for (name, how) in [
        ("job.json", Damage::Empty),
        ("state.json", Damage::Torn),
        ("runs.jsonl", Damage::Unreadable),
    ] {
        let (story, id) = prepared_story();
        let story = story.script([says("the other")]);
        add_job(&story, &["-n", "other", "-e", "2h"]);
        damage(&real_path(&story, &format!("~/.nanobot/cron/ID/{name}"), &id), how);
        let mut due = story.command(["cron", "run", "--due"]);
        due.env("NANOBOT_TEST_TIME", "2026-01-02T05:04:05Z");
        let result = story.wait(due.spawn().unwrap());
        result.code();
        result.error_text();
        assert_eq!(result.text(), "the other\n", "{name}");
    }
}
