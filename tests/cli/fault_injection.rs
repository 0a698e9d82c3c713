//! Fault injection: the n-th system call of a kind fails, for one n after another until a run finishes without a fault.
//! `strace` injects the faults.

use crate::requirements::skip;
use crate::server::{Request, Responder, calls, says};
use crate::story::{NANOBOT, Story};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

/// A model that lists the directory once and then answers.
fn listing_model() -> Responder {
    Box::new(|request: &Request| match request.messages().last() {
        Some(last) if last["role"] == "tool" => says("The answer.")(request),
        _ => calls("list_dir", json!({}))(request),
    })
}

/// True if `strace` is available to inject faults. `.ci/run` installs it.
pub(crate) fn can_inject() -> bool {
    let story = Story::bare();
    let strace_status = story.program("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    let is_installed = strace_status.is_ok_and(|status| status.success());
    if !is_installed {
        skip("`strace` is not installed, or may not trace");
    }
    is_installed
}

/// True with `NANOBOT_FAULTS=all`.
pub(crate) fn is_exhaustive() -> bool {
    std::env::var("NANOBOT_FAULTS").is_ok_and(|faults| faults == "all")
}

/// The numbers of the system calls at which faults are injected: with `NANOBOT_FAULTS=all` each; otherwise every third of the first
/// ones, and ever fewer of the later ones, which mostly repeat what the first do.
pub(crate) fn fault_numbers() -> impl Iterator<Item = usize> {
    let is_whole = is_exhaustive();
    std::iter::successors(Some(1), move |n| Some(n + if is_whole { 1 } else { 3.max(n / 4) }))
}

/// Injects faults until `inject` returns that there was no such call. Returns the number of the last call with a fault.
pub(crate) fn inject_at_calls(mut inject: impl FnMut(usize) -> bool) -> usize {
    fault_numbers().take_while(|n| inject(*n)).last().unwrap_or(0)
}

/// Kills at each write to some files, one after another, until `kill` returns that there was no such write. Returns the number of kills.
pub(crate) fn kill_at_each_write(mut kill: impl FnMut(&str, usize) -> bool) -> usize {
    let mut count = |kind: &str| (1..).take_while(|n| kill(kind, *n)).count();
    count("write") + count("rename")
}

/// The files that tell of the messages of a chat, of their turns, and of the questions about calls.
pub(crate) fn chat_files(story: &Story, channel: &str, session: &str) -> [PathBuf; 3] {
    let directory = story.home().join(".nanobot/channels").join(channel);
    let session = story.workspace().join("sessions").join(session);
    [directory.join("inbox.jsonl"), directory.join("approvals.json"), session]
}

/// The system calls of a kind.
fn syscalls_of_kind(kind: &str) -> &str {
    match kind {
        "write" => "write,pwrite64,writev",
        "fsync" => "fsync,fdatasync",
        "rename" => "rename,renameat,renameat2",
        "open" => "open,openat,openat2",
        // Kinds without an alias are system call names.
        other => other,
    }
}

/// A run in which the `n`-th call of `kind` on one of `paths` fails with `error`; also returns whether there was such a
/// call.
pub(crate) fn run_with_fault<'a>(
    story: &'a Story,
    arguments: &[&str],
    paths: &[PathBuf],
    (kind, error, n): (&str, &str, usize),
) -> (crate::story::RunResult<'a>, bool) {
    let trace = story.dir().join("trace");
    let mut command = story.program("strace");
    command.args(["-f", "-qq", "-o", trace.to_str().unwrap()]);
    command.args(["-e", &format!("trace={}", syscalls_of_kind(kind))]);
    command.args([
        "-e",
        // An injected signal, instead of a failure, ends the program in the middle of its work.
        &match error.strip_prefix("SIG") {
            Some(_) => format!("inject={}:signal={error}:when={n}", syscalls_of_kind(kind)),
            None => format!("inject={}:error={error}:when={n}", syscalls_of_kind(kind)),
        },
    ]);
    for path in paths {
        command.args(["-P", path.to_str().unwrap()]);
    }
    let child = story.start(command.arg(NANOBOT).args(arguments));
    let result = story.wait(child);
    let traced = std::fs::read_to_string(&trace);
    let traced = traced.unwrap_or_else(|error| panic!("{error}: {}", result.error_text()));
    let injected = traced.contains("INJECTED") || was_killed_at(&traced, n);
    std::fs::remove_file(trace).unwrap();
    (result, injected)
}

/// True if a process or a thread was killed at its `n`-th call. Others are killed by the program, such as a helper that it no longer
/// needs.
fn was_killed_at(trace: &str, n: usize) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (id, event) in trace.lines().filter_map(|line| line.split_once(' ')) {
        let event = event.trim_start();
        if event.starts_with("+++ killed by") && counts.get(id).is_some_and(|count| *count >= n) {
            return true;
        }
        if event.starts_with(char::is_alphabetic) {
            *counts.entry(id).or_default() += 1;
        }
    }
    false
}

/// A story after one turn, and the files that a turn touches.
fn story_after_turn() -> (Story, Vec<PathBuf>) {
    let story = Story::new().workspace_file("SOUL.md", "You are calm.");
    let story = story.workspace_file("memory/MEMORY.md", "The user likes tea.");
    story.server().always(listing_model());
    story.run(["agent", "-m", "first"]).stdout("The answer.\n");
    let workspace = story.workspace();
    let mut paths: Vec<PathBuf> = [
        "sessions",
        ".nanobot/workspace-id",
        "sessions/cli_direct.jsonl",
        "SOUL.md",
        "memory/MEMORY.md",
    ]
    .map(|name| workspace.join(name))
    .into();
    paths.push(story.home().join(".nanobot/config.json"));
    paths.push(workspace);
    (story, paths)
}

fn session_lines(story: &Story, name: &str) -> Vec<Value> {
    let path = story.workspace().join("sessions").join(name);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Lets every call of `kind` in a turn fail, one after another. `is_new_session` starts a session, otherwise the turn
/// continues one.
fn check_faults_in_turn(kind: &str, error: &str, is_new_session: bool) {
    let (key, name) =
        if is_new_session { ("new", "new.jsonl") } else { ("cli:direct", "cli_direct.jsonl") };
    for n in fault_numbers() {
        let (story, mut paths) = story_after_turn();
        paths.push(story.workspace().join("sessions/new.jsonl"));
        if kind == "open" {
            paths.push(story.workspace().join(format!("sessions/{name}.lock")));
        }
        let before = session_lines(&story, "cli_direct.jsonl");
        let request_count = story.requests().len();
        let arguments = ["agent", "-m", "second", "-s", key, "--output-format", "stream-json"];
        let (run_result, injected) = run_with_fault(&story, &arguments, &paths, (kind, error, n));
        if !injected {
            let min_faults = match kind {
                "write" => 5,
                "open" => 6,
                _ => 1,
            };
            assert!(n > min_faults, "{kind}: only the calls before {n} were made to fail");
            run_result.text();
            return;
        }
        let case = format!("{kind} {n} {error} {key}: {}", run_result.error_text());
        let lines = run_result.json_lines();
        let result = lines.last().cloned().unwrap_or_default();
        assert_eq!(run_result.code(), 74, "{case}");
        assert!(!run_result.error_text().is_empty(), "{case}");
        assert_eq!(result["error"]["cause"], "io", "{case}");
        // The second request of the turn is for its answer; after it the answer has been printed.
        let paid = story.requests().len() == request_count + 2;
        assert_eq!(result["text"] == "The answer.", paid, "{case}: {result}");
        drop(run_result);
        // Everything that was reported as stored exists, and so does all earlier content.
        let after = session_lines(&story, "cli_direct.jsonl");
        assert_eq!(after[..before.len().min(after.len())], before, "{case}");
        let after = session_lines(&story, name);
        let ids: BTreeSet<&str> = after
            .iter()
            .flat_map(|line| [&line["id"], &line["tool_call_id"]])
            .filter_map(Value::as_str)
            .collect();
        let mut acknowledged = lines.iter().filter(|line| {
            matches!(line["type"].as_str(), Some("user" | "tool_result"))
                || (line["type"] == "assistant" && line["last"] == false)
        });
        assert!(acknowledged.all(|line| ids.contains(line["id"].as_str().unwrap())), "{case}");
        // The next run works.
        let run_result = story.run(["agent", "-m", "third", "-s", key]).stdout("The answer.\n");
        run_result.error_text();
    }
}

#[test]
fn a_turn_survives_a_failure_of_any_write() {
    if can_inject() {
        check_faults_in_turn("write", "ENOSPC", false);
        check_faults_in_turn("write", "EIO", true);
    }
}

#[test]
fn a_turn_survives_a_failure_of_any_sync() {
    if can_inject() {
        check_faults_in_turn("fsync", "EIO", false);
        check_faults_in_turn("fsync", "ENOSPC", true);
    }
}

#[test]
fn a_turn_survives_a_failure_of_any_open() {
    if can_inject() {
        check_faults_in_turn("open", "EMFILE", true);
        check_faults_in_turn("open", "EACCES", false);
        check_faults_in_turn("open", "EROFS", false);
        check_faults_in_turn("open", "EIO", false);
    }
}

#[test]
fn a_config_change_survives_a_failure_of_any_call() {
    if !can_inject() {
        return;
    }
    for (kind, error) in [
        ("write", "ENOSPC"),
        ("fsync", "EIO"),
        ("rename", "EIO"),
        ("rename", "EACCES"),
        ("open", "EMFILE"),
    ] {
        for n in fault_numbers() {
            let story = Story::new();
            let path = story.home().join(".nanobot/config.json");
            let before = std::fs::read(&path).unwrap();
            let arguments = ["config", "set", "agents.defaults.model", "other"];
            // The name of the temporary file changes each time, so all calls after the program's start-up are counted.
            let paths = [];
            let first = match kind {
                "open" => opens_before_main(&story, &arguments),
                _ => 0,
            };
            let (result, injected) =
                run_with_fault(&story, &arguments, &paths, (kind, error, first + n));
            result.text();
            if !injected {
                assert!(n > 1, "{kind}: nothing was made to fail");
                break;
            }
            let case = format!("{kind} {n} {error}: {}", result.error_text());
            let after = std::fs::read(&path).unwrap();
            // The failed call may be a write to standard output or error about a change that was made.
            let whole = after == before
                || after
                    == String::from_utf8_lossy(&before).replace("scripted", "other").as_bytes();
            assert!(whole, "{case}");
            // The note in the lock file, about who holds it, may fail without harm.
            let is_done = result.code() == 0 && after != before;
            assert!(is_done || result.code() == 74, "{case}");
            drop(result);
            let names: Vec<_> = std::fs::read_dir(path.parent().unwrap())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            assert_eq!(names, ["config.json"], "{case}");
            story.run(arguments);
        }
    }
}

/// Number of files that the system opens before the program's own code runs.
fn opens_before_main(story: &Story, arguments: &[&str]) -> usize {
    let trace = story.dir().join("opens");
    let mut command = story.program("strace");
    command.args(["-f", "-qq", "-o", trace.to_str().unwrap(), "-e", "trace=open,openat,openat2"]);
    // With a config that is not a regular file the program stops early.
    let child = command.arg(NANOBOT).arg("--version").args(&arguments[..0]).spawn().unwrap();
    story.wait(child).text();
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(trace).unwrap();
    text.lines().count()
}

#[test]
fn a_file_system_without_locks_is_reported() {
    if !can_inject() {
        return;
    }
    for n in 1..=2 {
        let story = Story::new();
        let mut command = story.program("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=flock"]);
        command.args(["-e", &format!("inject=flock:error=ENOLCK:when={n}")]);
        let child = command.arg(NANOBOT).args(["agent", "-m", "x"]).spawn().unwrap();
        story.wait(child).status(74).stderr_has("this file system cannot lock");
        assert!(story.requests().is_empty());
    }
}

/// The temporary files in the directory of the memory.
fn temporary_files(story: &Story) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(story.workspace().join("memory")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b".tmp"))
}

/// Every call of `kind` in a consolidation fails, or kills the run, one after another: the memory is old or new, and the
/// next consolidation updates it once.
fn check_faults_in_consolidation(kind: &str, error: &str) {
    let entry = "[2026-01-01 10:00] They spoke of words.";
    for n in fault_numbers() {
        let story = Story::new().workspace_file("memory/MEMORY.md", "old").workspace_file(
            "sessions/cli_direct.jsonl",
            crate::memory::session_text("cli:direct", 120),
        );
        story.server().always(Box::new(move |request: &Request| {
            crate::memory::calls_save_memory(entry, "new")(request)
        }));
        let text =
            |name: &str| std::fs::read_to_string(story.workspace().join(name)).unwrap_or_default();
        let moved = || {
            let lines = session_lines(&story, "cli_direct.jsonl");
            let last = lines.iter().rfind(|line| line["_type"] == "metadata");
            last.unwrap()["last_consolidated"].as_u64().unwrap()
        };
        let whole = format!("{entry}\n\n");
        let (result, injected) =
            run_with_fault(&story, &["memory", "consolidate"], &[], (kind, error, n));
        let case = format!("{kind} {n} {error}: {} {}", result.code(), result.error_text());
        result.text();
        drop(result);
        let now = (text("memory/MEMORY.md"), text("memory/HISTORY.md"), moved());
        assert!(["old", "new"].contains(&now.0.as_str()), "{case}: {now:?}");
        assert!(now.1.is_empty() || now.1 == whole, "{case}: {now:?}");
        if now.2 != 0 {
            assert_eq!(now, ("new".into(), whole.clone(), 70), "{case}");
        }
        if !injected {
            assert_eq!(now.2, 70, "{case}");
            assert!(n > 4, "{kind}: only the calls before {n} were made to fail");
            return;
        }
        // Younger temporary files could be those of running programs.
        for path in temporary_files(&story) {
            std::fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let result = story.run(["memory", "consolidate"]);
        let case = format!("{case}, then {}", result.error_text());
        result.text();
        drop(result);
        let now = (text("memory/MEMORY.md"), text("memory/HISTORY.md"), moved());
        assert_eq!(now, ("new".into(), whole, 70), "{case}");
        assert!(!story.workspace().join("memory/.pending.json").exists());
        assert_eq!(temporary_files(&story).next(), None, "{case}");
        // Undo restores the previous content.
        story.run(["memory", "undo"]).error_text();
        assert_eq!(text("memory/MEMORY.md"), "old", "{case}");
    }
}

#[test]
fn a_consolidation_survives_a_failure_of_any_write() {
    if can_inject() {
        check_faults_in_consolidation("write", "ENOSPC");
        check_faults_in_consolidation("write", "SIGKILL");
    }
}

#[test]
fn a_consolidation_survives_a_failure_of_any_sync() {
    if can_inject() {
        check_faults_in_consolidation("fsync", "EIO");
        check_faults_in_consolidation("fsync", "SIGKILL");
    }
}

#[test]
fn a_consolidation_survives_a_failure_of_any_rename() {
    if can_inject() {
        check_faults_in_consolidation("rename", "EIO");
        check_faults_in_consolidation("rename", "SIGKILL");
    }
}

/// Whatever fails during fork, rename or remove: the session exists, complete, under one key or the other.
#[test]
fn session_commands_never_lose_a_session() {
    if !can_inject() {
        return;
    }
    let is_stored = |story: &Story, key: &str| -> bool {
        let output = story.command(["session", "show", key, "--json"]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.contains("first") && text.contains("The answer.")
    };
    for (kind, error) in [("write", "ENOSPC"), ("fsync", "EIO"), ("rename", "EIO")] {
        for arguments in ["fork cli:direct other", "rename cli:direct other", "rm cli:direct"] {
            let arguments: Vec<&str> =
                ["session"].into_iter().chain(arguments.split(' ')).collect();
            for n in fault_numbers() {
                let (story, _) = story_after_turn();
                let (result, injected) = run_with_fault(&story, &arguments, &[], (kind, error, n));
                let (code, _) = (result.code(), result.error_text());
                assert!(injected || code == 0, "{kind} {arguments:?} {n}: {code}");
                // Failures without a message are of optional steps, such as the note in a lock file.
                let other = is_stored(&story, "other");
                let was_stored = is_stored(&story, "cli:direct");
                match arguments[1] {
                    "fork" => assert!(was_stored && (other || code != 0), "{kind} {n}"),
                    "rename" => assert!(was_stored || other, "{kind} {n}"),
                    _ if was_stored => assert!(code != 0, "{kind} {n}"),
                    _ => {
                        story.run(["session", "restore", "cli:direct", "-q"]);
                        assert!(is_stored(&story, "cli:direct"), "{kind} {n}");
                    }
                }
                if !injected {
                    break;
                }
            }
        }
    }
}
