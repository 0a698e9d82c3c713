//! `undo`: restores what a turn changed, byte for byte.

use crate::crash::Random;
use crate::fault_injection::{can_inject, run_with_fault};
use crate::requirements::require;
use crate::server::{Ending, Request, Responder, Response, calls, calls_all, says, sends};
use crate::story::{Story, write};
use crate::worktree::git;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The entry at each path: its kind with its mode, and its content or link target.
pub(crate) type TreeSnapshot = BTreeMap<PathBuf, (String, Vec<u8>)>;

/// Everything beneath a directory.
pub(crate) fn snapshot_tree(dir: &Path) -> TreeSnapshot {
    let mut tree = TreeSnapshot::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(path) = dirs.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let (kind, bytes) = if metadata.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            ("link", target.to_str().unwrap().as_bytes().to_vec())
        } else if metadata.is_dir() {
            dirs.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            ("dir", Vec::new())
        } else {
            ("file", std::fs::read(&path).unwrap())
        };
        let name = path.strip_prefix(dir).unwrap().to_owned();
        tree.insert(name, (format!("{kind} {mode:o}"), bytes));
    }
    tree
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory with files of many kinds.
fn story_with_files() -> Story {
    let mut story = Story::new();
    for number in 0..20 {
        let text = format!("number {number}\nkeep\r\n\u{fffd}\ttabs  \n");
        story = story.file(&format!("f/{number}.txt"), text);
        let mode = [0o600, 0o644, 0o755, 0o640, 0o664][number % 5];
        set_mode(&story.dir().join(format!("f/{number}.txt")), mode);
    }
    let dir = story.dir();
    write(&dir.join("bin"), &[0, 255, 254, 10, 13]);
    write(&dir.join("no newline"), b"x");
    write(&dir.join("empty"), b"");
    std::fs::create_dir_all(dir.join("deep/deeper")).unwrap();
    std::fs::create_dir(dir.join("hollow")).unwrap();
    set_mode(&dir.join("hollow"), 0o750);
    symlink("f/1.txt", dir.join("link")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    story
}

/// Fifty edits, new files and deletions, some of which fail.
fn fifty_changes() -> [Responder; 5] {
    let edit = |number: usize, old: &str, new: &str| {
        let path = format!("f/{number}.txt");
        ("edit_file", json!({ "path": path, "old_text": old, "new_text": new }))
    };
    let put = |path: &str, text: &str| ("write_file", json!({ "path": path, "content": text }));
    let delete = |path: &str| ("delete_file", json!({ "path": path }));
    let mut first = Vec::new();
    for number in 0..15 {
        first.push(edit(number, "keep", "kept"));
    }
    let second = vec![
        edit(0, "kept", "kept again"),
        edit(1, "number", "nummer"),
        put("bin", "text now"),
        put("no newline", "y\n"),
        put("empty", "full"),
        put("new/a/b/c.txt", "c"),
        put("new/a/d.txt", "d"),
        put("deep/deeper/x", "x"),
        put("link", "through the link"),
        put("new/a/d.txt", "d, once more"),
    ];
    let third: Vec<(&str, Value)> = vec![
        delete("f/15.txt"),
        delete("f/16.txt"),
        delete("f/2.txt"),
        delete("link"),
        delete("dangling"),
        delete("hollow"),
        delete("new/a/d.txt"),
        delete("empty"),
        delete("nothing there"),
        delete("f"),
    ];
    let fourth = vec![
        put("f/15.txt", "another one"),
        put("hollow", "a file now"),
        put("link/below", "a directory now"),
        edit(17, "nowhere to be found", "x"),
        put("../outside", "x"),
        put("f/16.txt/below", "where a file was"),
        delete("f/3.txt"),
        put("f/3.txt", "number 3"),
        delete("f/3.txt"),
        put("made/then/gone", "x"),
        delete("made/then/gone"),
        delete("made/then"),
        delete("made"),
        edit(18, "number 18", "18"),
        edit(19, "number 19", "19"),
    ];
    [calls_all(first), calls_all(second), calls_all(third), calls_all(fourth), says("done")]
}

#[test]
fn a_turn_of_fifty_changes_is_undone_and_redone() {
    let story = story_with_files().script(fifty_changes());
    let before = snapshot_tree(&story.dir());
    let result = story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert!(result.error_text().contains("denied: "));
    let after = snapshot_tree(&story.dir());
    assert_ne!(before, after);
    let stdout = story.run(["undo", "--dry-run"]).stderr_has("nanobot: turn ").text();
    assert!(
        stdout.contains("would restore f/0.txt\n")
            && stdout.contains("would remove new/a/b/c.txt\n")
    );
    assert_eq!(snapshot_tree(&story.dir()), after);
    let stdout = story.run(["undo"]).stderr_has("nanobot: turn ").text();
    assert!(stdout.contains("restored f/0.txt\n") && stdout.contains("removed new/a/b/c.txt\n"));
    assert_eq!(snapshot_tree(&story.dir()), before);
    story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").stdout_has("restored f/0.txt\n");
    let mut again = snapshot_tree(&story.dir());
    // Recreated files have the mode of new files, which is the same here.
    assert_eq!(again, after);
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout_has("restored");
    again = snapshot_tree(&story.dir());
    assert_eq!(again, before);
}

#[test]
fn turns_are_undone_one_after_the_other() {
    let put = |text: &str| calls("write_file", json!({ "path": "a", "content": text }));
    let story = Story::new().file("a", "one").script([
        put("two"),
        says("ok"),
        put("three"),
        says("ok"),
        says("nothing changed"),
    ]);
    let now = || std::fs::read_to_string(story.dir().join("a")).unwrap();
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    story.run(["agent", "-m", "x", "--write"]).stdout("nothing changed\n");
    // The first turn's file now belongs to the second turn.
    story.run(["undo", "1"]).status(1).stderr_has("`a`: it was changed");
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(now(), "two");
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(now(), "one");
    story.run(["undo"]).status(66).stderr_has("nothing to undo in this directory");
    let is_undone = "nanobot: turn 2 is already undone\n  try: `nanobot undo --redo 2`, which takes that back\n";
    story.run(["undo", "2"]).status(66).stderr(is_undone);
    story.run(["undo", "--list"]).stdout(
        "TURN  TIME              FILES          SESSION     DIRECTORY\n   2  2026-01-02 03:04      1  undone  \
         cli:direct  $DIR\n   1  2026-01-02 03:04      1  undone  cli:direct  $DIR\n",
    );
    let lines = story.run(["undo", "--list", "--json"]).text();
    assert_eq!(lines.lines().count(), 2);
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(line["id"], 2);
    assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    // The id that `agent --json` prints names the turn as well.
    let first: Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    let turn = first["turn"].as_str().unwrap();
    story.run(["undo", turn, "--dry-run", "--redo"]).stdout("would restore a\n");
    assert_eq!(line["paths"][0], "$DIR/a");
    story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(now(), "two");
    story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(now(), "three");
    story.run(["undo", "--redo"]).status(66).stderr_has("nothing to redo");
    story
        .run(["undo", "9"])
        .status(66)
        .stderr("nanobot: there is no turn 9 to undo\n  try: `nanobot undo --list`\n");
}

#[test]
fn a_file_that_is_written_as_it_was_is_no_change() {
    let put = |text: &str| calls("write_file", json!({ "path": "a", "content": text }));
    let story = Story::new().file("a", "one").script([
        put("one"),
        says("ok"),
        put("two"),
        put("two"),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    story.run(["undo", "--list", "--json"]).stdout("");
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    let text = std::fs::read_to_string(story.dir().join("a")).unwrap();
    assert_eq!(text, "one");
}

#[test]
fn undo_selects_the_last_turn_of_the_directory() {
    let put = |text: &str| calls("write_file", json!({ "path": "a", "content": text }));
    let story = Story::new().file("a", "one").file("sub/x", "").script([
        put("two"),
        says("ok"),
        put("three"),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let elsewhere = story.home();
    let run = |arguments: &[&str]| {
        let mut command = story.command(arguments);
        command.current_dir(&elsewhere);
        story.wait(command.spawn().unwrap())
    };
    run(&["undo"]).status(66).stderr_has("nanobot undo TURN");
    // Both in the changed directory and in the current one.
    let dir = story.dir();
    run(&["agent", "-m", "x", "-C", dir.to_str().unwrap(), "--write"]).stdout("ok\n");
    run(&["undo"]).stderr_has("nanobot: turn ").stdout("restored $DIR/a\n");
    run(&["undo"]).status(66).stderr_has("nothing to undo");
    run(&["undo", "1"]).stdout("restored $DIR/a\n");
    assert_eq!(std::fs::read(story.dir().join("a")).unwrap(), b"one");
}

#[test]
fn a_deleted_directory_has_no_last_turn() {
    let story = Story::new()
        .file("a", "one")
        .script([calls("write_file", json!({ "path": "a", "content": "two" })), says("ok")]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let undo = |arguments: &[&str]| {
        let mut command = story.in_deleted_directory(&[&["undo"], arguments].concat());
        story.wait(command.spawn().unwrap())
    };
    undo(&[])
        .status(66)
        .stderr_has("the current directory cannot be found")
        .stderr_has("nanobot undo TURN");
    assert_eq!(file_text(&story, "a"), "two");
    undo(&["1"]).stdout("restored $DIR/a\n");
    assert_eq!(file_text(&story, "a"), "one");
}

#[test]
fn turns_match_by_the_changed_directory_and_its_contents() {
    let put = |path: &str| calls("write_file", json!({ "path": path, "content": "two" }));
    let story = Story::new().file("a", "one").file("sub/x", "x").script([
        put("a"),
        says("ok"),
        put("~/other/b"),
        says("ok"),
    ]);
    let other = story.home().join("other");
    write(&other.join("b"), b"one");
    let undo = |dir: &Path| {
        let mut command = story.command(["undo"]);
        command.current_dir(dir);
        story.wait(command.spawn().unwrap())
    };
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let flag = format!("--write={}", other.display());
    story.run(["agent", "-m", "x", &flag]).stdout("ok\n");
    // Another turn has changed this file.
    undo(&other)
        .stderr("nanobot: turn 2 of 2026-01-02 03:04 in `cli:direct`, 1 file\n")
        .stdout("restored b\n");
    undo(&other).status(66).stderr_has("nothing to undo");
    // And this one is in the parent directory.
    undo(&story.dir().join("sub")).stderr_has("turn 1 of").stdout("restored $DIR/a\n");
    let outside = story.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    undo(&outside).status(66).stderr_has("nothing to undo");
}

#[test]
fn files_changed_by_others_since_are_left_alone() {
    let script = || {
        let put = |path: &str| ("write_file", json!({ "path": path, "content": "ours" }));
        [calls_all([put("a"), put("b"), put("new/c")]), says("ok")]
    };
    let story = Story::new().file("a", "one").file("b", "two").script(script());
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    write(&story.dir().join("a"), b"theirs");
    write(&story.dir().join("new/other"), b"theirs");
    let now = snapshot_tree(&story.dir());
    story.run(["undo"]).status(1).stderr(
        "nanobot: nothing was done, because files have changed since turn 1: `a`: it was changed\n  try: `--force` to overwrite \
         these changes\n",
    );
    assert_eq!(snapshot_tree(&story.dir()), now);
    story
        .run(["undo", "--force"])
        .stderr_has("nanobot: turn ")
        .stdout("restored a\nrestored b\nremoved new/c\n");
    let text = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap();
    assert_eq!((text("a"), text("b")), ("one".into(), "two".into()));
    // A created directory stays if others put files into it.
    assert_eq!(text("new/other"), "theirs");
    story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").stdout_has("restored a\n");
    assert_eq!(snapshot_tree(&story.dir()), now);
}

/// A mode alone is a change too.
#[test]
fn what_a_later_turn_changed_is_a_conflict() {
    let story = Story::new().file("a", "one").script([
        calls("write_file", json!({ "path": "a", "content": "two" })),
        says("ok"),
        calls("exec", json!({ "command": "chmod +x a" })),
        says("ok"),
    ]);
    for session in ["one", "two"] {
        story.run(["agent", "-s", session, "-m", "x", "--write"]).stdout("ok\n");
    }
    story.run(["undo", "1"]).status(1).stderr_has("since turn 1: `a`: a later turn changed it");
    story.run(["undo"]).stderr_has("turn 2 of").stdout("restored a\n");
    story.run(["undo"]).stderr_has("turn 1 of").stdout("restored a\n");
    assert_eq!(file_text(&story, "a"), "one");
}

fn file_text(story: &Story, name: &str) -> String {
    std::fs::read_to_string(story.dir().join(name)).unwrap()
}

#[test]
fn undo_follows_no_links() {
    let story = Story::new()
        .file("sub/a", "one")
        .script([calls("write_file", json!({ "path": "sub/a", "content": "ours" })), says("ok")]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let (sub, outside) = (story.dir().join("sub"), story.home().join("outside"));
    std::fs::rename(&sub, story.dir().join("moved")).unwrap();
    write(&outside.join("a"), b"ours");
    symlink(&outside, &sub).unwrap();
    for arguments in [&["undo"][..], &["undo", "--force"]] {
        story.run(arguments).status(1).stderr_has("`sub/a`: its path contains a link");
    }
    assert_eq!(std::fs::read(outside.join("a")).unwrap(), b"ours");
    std::fs::remove_file(&sub).unwrap();
    std::fs::rename(story.dir().join("moved"), &sub).unwrap();
    std::fs::remove_file(sub.join("a")).unwrap();
    symlink(outside.join("a"), sub.join("a")).unwrap();
    story.run(["undo"]).status(1).stderr_has("it was changed");
    story.run(["undo", "--force"]).stderr_has("nanobot: turn ").stdout("restored sub/a\n");
    assert_eq!(std::fs::read(outside.join("a")).unwrap(), b"ours");
    assert_eq!(file_text(&story, "sub/a"), "one");
}

#[test]
fn the_journal_is_private() {
    for umask in ["000", "077"] {
        let story = story_with_files().script(fifty_changes());
        let mut command = story.program("sh");
        let script = format!("umask {umask}; exec \"$0\" agent -m x --write");
        command.args(["-c", &script, crate::story::NANOBOT]);
        let result = story.wait(command.spawn().unwrap()).stdout("done\n");
        assert!(result.error_text().contains("denied: "));
        let mut command = story.program("sh");
        let script = format!("umask {umask}; exec \"$0\" undo -q");
        command.args(["-c", &script, crate::story::NANOBOT]);
        story.wait(command.spawn().unwrap()).stdout_has("restored");
        let before = snapshot_tree(&story.home().join(".nanobot/undo"));
        assert!(before.len() > 20, "{}", before.len());
        for (path, (kind, _)) in before {
            assert!(kind == "dir 700" || kind == "file 600", "{umask}: {path:?} is {kind}");
        }
    }
}

#[test]
fn a_turn_that_only_moves_head_is_the_last_one() {
    if !require("git") {
        return;
    }
    let story = Story::new().file("a", "1");
    let commit = "git -c user.name=u -c user.email=u@example.org commit -qm";
    git(&story, &format!("git init -q; git add a; {commit} one; echo 2 > a; {commit} two -a"));
    story.server().script([
        calls("write_file", json!({ "path": "kept", "content": "x" })),
        says("Written."),
        calls("exec", json!({ "command": "git reset -q --soft HEAD~1" })),
        says("Reset."),
    ]);
    story.run(["agent", "--write", "-m", "write"]).stdout("Written.\n").error_text();
    story.run(["agent", "--write", "-m", "reset"]).stdout("Reset.\n");
    story.run(["undo"]).status(1).stderr_has("git has moved `HEAD`");
    assert!(story.dir().join("kept").exists());
}

#[test]
fn a_commit_beside_changes_of_files_is_said_to_stay() {
    if !require("git") {
        return;
    }
    let story = Story::new().file("a", "1");
    let commit = "git -c user.name=u -c user.email=u@example.org commit -qm";
    git(&story, &format!("git init -q; git add a; {commit} one"));
    story.server().script([
        calls("exec", json!({ "command": format!("echo 2 > a; {commit} two -a") })),
        says("Done."),
    ]);
    let gap_text = ".git`: git has moved `HEAD` (a commit, a reset or a checkout), which only git takes back\n";
    story
        .run(["agent", "--write", "-m", "commit"])
        .stdout("Done.\n")
        .stderr_has("undo` cannot take back all that commands changed: ")
        .stderr_has(gap_text);
    story.run(["undo"]).stdout("restored a\n").stderr_has("not taken back: ").stderr_has(gap_text);
    assert_eq!(file_text(&story, "a"), "1");
}

#[test]
fn a_running_turn_is_not_undone() {
    let stall = Response { ending: Ending::Stall, ..Response::text(200, "text/event-stream", "") };
    let story = Story::new()
        .script([calls("write_file", json!({ "path": "a", "content": "x" })), sends(stall)]);
    let mut command =
        story.command(["agent", "-m", "x", "--write", "--output-format", "stream-json"]);
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert!(lines.any(|line| line["type"] == "tool_result"));
    story.server().wait_for_requests(2);
    story.run(["undo"]).status(75).stderr_has("turn 1 is still running");
    child.kill().unwrap();
    child.wait().unwrap();
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("removed a\n");
    assert!(!story.dir().join("a").exists());
}

/// A model that edits, writes and deletes as long as it gets requests.
fn changing_model() -> Responder {
    Box::new(|request: &Request| {
        let round = request.messages().len();
        let mut random = Random(round as u64);
        let mut list = Vec::new();
        for number in 0..8 {
            let path = format!("f/{}.txt", random.next_below(22));
            list.push(match random.next_below(4) {
                0 => ("delete_file", json!({ "path": path })),
                1 => (
                    "write_file",
                    json!({ "path": format!("n/{}/{}", random.next_below(3), random.next_below(9)), "content": "new" }),
                ),
                _ => (
                    "write_file",
                    json!({ "path": path, "content": format!("{round} {number}\n").repeat(200) }),
                ),
            });
        }
        calls_all(list)(request)
    })
}

/// Kills a turn at a random point and undoes it, `rounds` times.
#[allow(clippy::print_stdout, reason = "the count is to be seen")]
fn check_kills(rounds: usize, seed: u64) {
    let story = story_with_files();
    story.server().always(changing_model());
    let before = snapshot_tree(&story.dir());
    let mut random = Random(seed);
    let mut changed = 0;
    for round in 0..rounds {
        let mut command = story.command([
            "agent",
            "-m",
            "x",
            "--write",
            "--ephemeral",
            "--output-format",
            "stream-json",
        ]);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = 12 + random.next_below(60);
        let mut ok_count = 0;
        for line in lines.by_ref().take(wanted) {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            ok_count += usize::from(line["type"] == "tool_result" && line["outcome"] == "ok");
        }
        // A short delay, to be anywhere within a change.
        for _ in 0..random.next_below(400_000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        changed += usize::from(snapshot_tree(&story.dir()) != before);
        let result = story.run(["undo"]).stderr_has("nanobot: turn ");
        match ok_count {
            // It was killed before it had recorded a change.
            0 if result.code() == 66 => drop((result.text(), result.error_text())),
            _ => drop(result.status(0).text()),
        }
        assert_eq!(snapshot_tree(&story.dir()), before, "seed {seed}, round {round}");
    }
    assert!(changed * 2 > rounds, "the kills came too early: {changed} of {rounds} found a change");
    println!("{rounds} kills, {changed} after a change: 0 trees that undo did not bring back");
}

#[test]
fn a_killed_turn_is_undone() {
    check_kills(12, 1);
}

/// `cargo test --features test-hooks --test cli many_killed_turns -- --ignored --nocapture`: takes about two minutes.
#[test]
#[ignore = "takes minutes"]
fn many_killed_turns_are_undone() {
    check_kills(1_000, 2);
}

#[test]
fn a_truncated_journal_is_readable() {
    let story = Story::new().file("a", "one").script([
        calls_all([
            ("edit_file", json!({ "path": "a", "old_text": "one", "new_text": "two" })),
            ("write_file", json!({ "path": "new/b", "content": "x" })),
        ]),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let journal = story.home().join(".nanobot/undo/1/journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    // As if the run had been killed while writing the second file: its temporary file exists, and the next journal line is
    // incomplete.
    let change: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let temp = change["change"]["temp"].as_str().unwrap();
    std::fs::rename(story.dir().join("new/b"), story.dir().join("new").join(temp)).unwrap();
    std::fs::write(&journal, format!("{text}{{\"change\":{{\"path\":\"/x")).unwrap();
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(file_text(&story, "a"), "one");
    assert!(!story.dir().join("new").exists());
    // An unreadable journal is reported, and others can still be undone.
    std::fs::write(&journal, "no journal\n").unwrap();
    story
        .run(["undo"])
        .status(66)
        .stderr_has("skipped turn 1: read line 1 of `$HOME/.nanobot/undo/1/journal.jsonl`");
}

#[test]
fn a_file_that_cannot_be_backed_up_is_not_changed() {
    let put = || calls("write_file", json!({ "path": "a", "content": "x" }));
    let story = Story::new().file("a", "one").script([put(), says("ok")]);
    write(&story.home().join(".nanobot/undo"), b"in the way");
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let content = story.requests()[1].last_content();
    assert!(
        content.contains("nothing was done because the old content could not be saved for undo"),
        "{content}"
    );
    assert_eq!(file_text(&story, "a"), "one");

    let story = Story::new().file("a", "").script([
        put(),
        calls("delete_file", json!({ "path": "a" })),
        says("ok"),
    ]);
    let large = std::fs::File::options().write(true).open(story.dir().join("a")).unwrap();
    large.set_len(65 << 20).unwrap();
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    for request in &story.requests()[1..] {
        assert!(
            request.last_content().contains("too large to be saved for undo"),
            "{}",
            request.last_content()
        );
    }
    assert_eq!(std::fs::metadata(story.dir().join("a")).unwrap().len(), 65 << 20);
    story.run(["undo"]).status(66).stderr_has("nothing to undo");
}

#[test]
fn the_backups_are_denied_to_the_tools() {
    let story = Story::new().file("a", "CANARY of the copy").script([
        calls("write_file", json!({ "path": "a", "content": "x" })),
        calls_all([
            ("read_file", json!({ "path": "~/.nanobot/undo/1/0.old" })),
            ("grep", json!({ "pattern": "CANARY", "path": "~/.nanobot", "all": true })),
            ("glob", json!({ "pattern": "**", "path": "~/.nanobot", "all": true })),
            ("write_file", json!({ "path": "~/.nanobot/undo/1/journal.jsonl", "content": "x" })),
        ]),
        says("ok"),
    ]);
    let home = story.home();
    let home = home.to_str().unwrap();
    let result = story.run(["agent", "-m", "x", "--write", &format!("--write={home}")]);
    assert!(result.error_text().contains("denied: "));
    result.stdout("ok\n");
    let messages = story.requests()[2].messages();
    let results: Vec<&str> =
        messages[5..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert!(results[0].contains("is internal to nanobot"));
    assert!(results[1].contains("is hidden in a home directory"));
    assert!(!results[2].contains("undo"), "{}", results[2]);
    assert!(results[3].contains("is internal to nanobot"));
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
}

#[test]
fn old_turns_are_pruned() {
    let story = Story::new();
    story.server().always(Box::new(|request| {
        if request.messages().last().unwrap()["role"] == "tool" {
            says("ok")(request)
        } else {
            calls("write_file", json!({ "path": "a", "content": "x" }))(request)
        }
    }));
    let folder = story.home().join(".nanobot/undo");
    for id in 1..130 {
        write(&folder.join(format!("{id}/journal.jsonl")), b"");
    }
    let old = std::fs::File::options().write(true).open(folder.join("129/journal.jsonl")).unwrap();
    let week = std::time::Duration::from_secs(8 * 86_400);
    old.set_modified(std::time::SystemTime::now() - week).unwrap();
    story.run(["agent", "-m", "x", "--write", "--ephemeral"]).stdout("ok\n");
    let mut ids: Vec<u32> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), 99);
    assert_eq!((ids[0], ids[97], ids[98]), (31, 128, 130));
}

/// Runs `command` in the story's directory, with permission to write.
fn run_command(story: &Story, arguments: Value) -> String {
    story.server().script([calls("exec", arguments), says("done")]);
    let result = story.run(["agent", "-m", "x", "--write"]);
    let errors = result.error_text();
    result.stdout("done\n");
    errors
}

#[test]
fn changes_of_commands_are_undone_and_redone() {
    let story = story_with_files();
    let before = snapshot_tree(&story.dir());
    let edits = "sed -i s/keep/kept/ f/*.txt && rm -r deep 'no newline' dangling && mkdir -p new/a hollow/b && chmod 700 hollow/b && echo 1 > new/a/one \
                 && ln -s one new/a/link && : > bin && touch f/1.txt && mv f/2.txt moved.txt && ln -sfn f/3.txt link";
    assert_eq!(run_command(&story, json!({ "command": edits })), "");
    let after = snapshot_tree(&story.dir());
    assert_ne!(before, after);
    for _ in 0..2 {
        drop(story.run(["undo"]).stderr_has("nanobot: turn ").text());
        assert_eq!(snapshot_tree(&story.dir()), before);
        drop(story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").text());
        assert_eq!(snapshot_tree(&story.dir()), after);
    }
    // Later changes by the user are left alone.
    write(&story.dir().join("new/a/one"), b"mine");
    story.run(["undo"]).status(1).stderr_has("new/a/one");
    assert_eq!(file_text(&story, "new/a/one"), "mine");
}

#[test]
fn tools_and_commands_of_a_turn_are_undone_together() {
    let story = Story::new().file("a", "old");
    let put = |text: &str| calls("write_file", json!({ "path": "a", "content": text }));
    let run = |command: &str| calls("exec", json!({ "command": command }));
    story.server().script([
        run("true"),
        put("1"),
        calls("write_file", json!({ "path": "t/x", "content": "" })),
        run("cat a > b; echo 2 > a; rm -r t"),
        calls("read_file", json!({ "path": "a" })),
        put("3"),
        run("rm b"),
        says("done"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    assert_eq!(file_text(&story, "a"), "3");
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(file_text(&story, "a"), "old");
    story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert_eq!(file_text(&story, "a"), "3");
    assert!(!story.dir().join("t").exists());
}

#[test]
fn changes_between_the_commands_of_a_turn_are_the_users() {
    let story = Story::new().file("mine", "old").file("its", "old");
    let dir = story.dir().join("mine");
    let run = |command: &str| calls("exec", json!({ "command": command }));
    let second = run("echo new > its");
    // The user writes while the model thinks.
    let edits: Responder = Box::new(move |request| {
        write(&dir, b"new");
        second(request)
    });
    story.server().script([run("cat mine"), edits, says("done")]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored its\n");
    assert_eq!((file_text(&story, "mine"), file_text(&story, "its")), ("new".into(), "old".into()));
}

#[test]
fn changes_of_background_and_stopped_commands_are_undone() {
    let story = Story::new().file("a", "old");
    for arguments in [
        json!({ "command": "echo new > a; echo x > b; sleep 600", "timeout": 1 }),
        json!({ "command": "echo new > a; echo x > b; exec sleep 600", "background": true }),
    ] {
        let is_background = arguments.get("background").is_some();
        let wait = calls("exec", json!({ "command": "until test -e b; do sleep 0.01; done" }));
        let script = [calls("exec", arguments), wait, says("done")];
        story.server().script(script);
        drop(story.run(["agent", "-m", "x", "--write"]).text());
        assert_eq!(file_text(&story, "a"), "new\n", "{is_background}");
        let stdout = story.run(["undo"]).stderr_has("nanobot: turn ").text();
        assert!(stdout.contains("restored a\n") && stdout.contains("removed b\n"), "{stdout}");
        assert_eq!(file_text(&story, "a"), "old");
    }
}

#[test]
fn what_commands_change_beyond_the_limits_is_told() {
    let story = Story::new().file("small", "old");
    std::fs::write(story.dir().join("big"), vec![b'x'; (4 << 20) + 1]).unwrap();
    let output = run_command(&story, json!({ "command": "echo >> big; echo new > small" }));
    assert!(
        output.contains("`nanobot undo` cannot take back all that commands changed: `"),
        "{output}"
    );
    assert!(output.contains("/big`: it is too large to be copied\n"), "{output}");
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored small\n");
    // Reading the large file is no change.
    assert_eq!(run_command(&story, json!({ "command": "cat big | wc -c" })), "");
    // Folders of dependencies do not count.
    let fill = |folder: &str| format!("mkdir -p {folder} && cd {folder} && seq 5001 | xargs touch");
    assert_eq!(run_command(&story, json!({ "command": fill("node_modules/x") })), "");
    let output = run_command(&story, json!({ "command": fill("many") }));
    assert!(output.contains("it has more than 5000 entries\n"), "{output}");
    story
        .run(["undo"])
        .status(1)
        .stderr_has("cannot be taken back: `$DIR`: it has more than 5000 entries");
}

/// Without an argument, an older turn is never taken back in place of one that cannot be.
#[test]
fn the_last_turn_is_not_skipped() {
    let story = Story::new().file("big", vec![b'x'; (4 << 20) + 1]);
    for name in ["target/x", "sub/vendor/x", ".git/objects/x"] {
        write(&story.dir().join(name), b"");
    }
    let write_keep = calls("write_file", json!({ "path": "keep", "content": "mine" }));
    story.server().script([write_keep, says("ok")]);
    story.run(["agent", "-s", "first", "-m", "x", "--write"]).stdout("ok\n");
    let mut turn = 1;
    let mut check = |command: &str, phrases: &[&str], reason: &str| {
        turn += 1;
        let errors = run_command(&story, json!({ "command": command }));
        for phrase in phrases {
            assert!(errors.contains(phrase), "{command}: {errors}");
        }
        let undone = story.run(["undo"]).status(1).stdout("").error_text();
        let cause = format!(
            "nanobot: turn {turn} of 2026-01-02 03:04 in `cli:direct` cannot be taken back: "
        );
        assert!(undone.starts_with(&cause) && undone.contains(reason), "{command}: {undone}");
        let hint =
            "  try: `nanobot undo 1` to take back turn 1 of 2026-01-02 03:04 in `first`, 1 file\n";
        assert!(undone.ends_with(hint), "{undone}");
        assert_eq!(file_text(&story, "keep"), "mine");
    };
    let warning = "`nanobot undo` cannot take back all that commands changed: `";
    check("rm -r target", &[warning], "/target`: its content is not copied");
    check(
        "rm -r .git/objects",
        &[warning],
        "/.git`: `objects` in it was removed, and its content is not copied",
    );
    check("rm big", &[warning], "/big`: it is too large to be copied");
    // Killed: the command ends with the run, and no one has compared the files.
    let command = calls("exec", json!({ "command": "echo > mark; exec sleep 600" }));
    story.server().script([command]);
    let mut child = story.command(["agent", "-m", "x", "--write"]).spawn().unwrap();
    while !story.dir().join("mark").exists() {
        std::thread::yield_now();
    }
    story.run(["undo"]).status(75).stderr_has("turn 5 is still running");
    child.kill().unwrap();
    child.wait().unwrap();
    story
        .run(["undo"])
        .status(1)
        .stderr_has("the run was killed while a command ran, so its changes are unknown");
    let list = story.run(["undo", "--list"]).text();
    assert_eq!(list.matches("  0  cannot be undone  ").count(), 4, "{list}");
    // What can be taken back is, and the rest is reported.
    run_command(&story, json!({ "command": "rm -r sub; echo > new" }));
    story
        .run(["undo"])
        .stderr_has("not taken back: `$DIR/sub/vendor`: its content is not copied")
        .stdout("removed new\nrestored sub\n");
    story.run(["undo", "1"]).stdout("removed keep\n");
    story.run(["undo"]).status(1).stderr_has("turn 5 of");
    // Builds and dependencies come and go, and so does what git keeps.
    for command in
        ["mkdir -p target/x vendor && touch target/x/y .git/y", "rm target/x/y .git/y", "ls"]
    {
        assert_eq!(run_command(&story, json!({ "command": command })), "");
        story.run(["undo"]).status(1).stderr_has("turn 5 of");
    }
}

#[test]
fn modes_and_directories_of_commands_are_undone() {
    for command in [
        "chmod 755 f/0.txt",
        "chmod 700 hollow",
        "mkdir -p made/deeper",
        "chmod -R a-w f deep; chmod 500 deep/deeper",
        "echo 1 > new; chmod 444 new; echo 2 > f/0.txt; chmod 400 f/0.txt; mkdir d; echo 3 > d/x; chmod 500 d",
        "chmod 700 hollow; echo > hollow/x; chmod 500 hollow; rm f/1.txt; chmod 555 f",
    ] {
        // Of turns that were undone at the same instant, the oldest is redone.
        let story = story_with_files();
        let before = snapshot_tree(&story.dir());
        assert_eq!(run_command(&story, json!({ "command": command })), "");
        let after = snapshot_tree(&story.dir());
        assert_ne!(before, after, "{command}");
        drop(story.run(["undo"]).stderr_has("nanobot: turn ").text());
        assert_eq!(snapshot_tree(&story.dir()), before, "{command}");
        drop(story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").text());
        assert_eq!(snapshot_tree(&story.dir()), after, "{command}");
        drop(story.run(["undo"]).stderr_has("nanobot: turn ").text());
    }
}

#[test]
fn a_change_that_was_not_made_is_not_undone() {
    if !can_inject() {
        return;
    }
    let story = Story::new().file("a", "old");
    let put = |path: &str| calls("write_file", json!({ "path": path, "content": "new" }));
    let paths = [story.dir()];
    let fault = ("rename", "EIO", 1);
    let arguments = ["agent", "-m", "x", "--write"];
    story.server().script([put("a"), says("ok")]);
    let (result, is_injected) = run_with_fault(&story, &arguments, &paths, fault);
    assert!(is_injected);
    result.stdout("ok\n");
    assert!(story.requests()[1].last_content().contains("cannot be written"));
    story.run(["undo", "--list", "--json"]).stdout("");
    story.server().script([put("b"), says("ok")]);
    story.run(arguments).stdout("ok\n");
    story.run(["undo"]).stderr_has(", 1 file\n").stdout("removed b\n");
    assert_eq!(file_text(&story, "a"), "old");
}

#[test]
fn commands_that_only_read_leave_no_trace() {
    let story = Story::new().file("a", "old");
    for flags in [&["--write"][..], &[]] {
        let script = [calls("exec", json!({ "command": "cat a" })), says("done")];
        story.server().script(script);
        let arguments = ["agent", "-m", "x"].iter().chain(flags);
        story.run(arguments).stdout("done\n");
    }
    let entries = std::fs::read_dir(story.home().join(".nanobot/undo"));
    assert_eq!(entries.into_iter().flatten().count(), 0);
}

#[test]
fn our_own_state_is_no_change_of_a_command() {
    let story = Story::new();
    let workspace = story.workspace();
    std::fs::create_dir_all(&workspace).unwrap();
    let result = |command: &str| {
        let call = calls("exec", json!({ "command": command }));
        story.server().script([call, says("done")]);
        let home = story.home();
        let flags = ["agent", "-m", "x", "--profile", "full", "-C", home.to_str().unwrap()];
        drop(story.run(flags).text());
    };
    result("echo 1 > a");
    let before = story.session("cli_direct.jsonl").len();
    result("echo 2 > a");
    let after = story.session("cli_direct.jsonl");
    assert!(after.len() > before);
    // Without limits, commands can write everywhere; the session that grew meanwhile is not theirs.
    let list = story.run(["undo", "--list", "--json"]).text();
    assert!(!list.contains("sessions") && !list.contains(".nanobot"), "{list}");
    let undone = story.run(["undo", "2"]).stderr_has("changed by a command").text();
    assert!(undone.contains("restored ") && !undone.contains("jsonl"), "{undone}");
    assert_eq!(story.session("cli_direct.jsonl")[..after.len()], after[..]);
    assert_eq!(std::fs::read_to_string(story.home().join("a")).unwrap(), "1\n");
}

/// The conversation would go on from a wrong state: the model has read that it changed the files.
#[test]
fn an_undo_is_told_with_the_next_message() {
    let put = calls("write_file", json!({ "path": "a", "content": "new" }));
    let story = Story::new().file("a", "old").script([put, says("done")]);
    story.run(["agent", "-m", "x", "--write"]).stdout("done\n");
    let messages = |message: &str| {
        story.server().script([says("ok")]);
        story.run(["agent", "-m", message]).stdout("ok\n");
        story.last_request().messages().iter().map(Value::to_string).collect::<String>()
    };
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    let note = "[The user has undone file changes of this conversation; as before them again: `a`]";
    assert_eq!(messages("go on").matches(note).count(), 1);
    assert_eq!(messages("and on").matches(note).count(), 1);
    story.run(["undo", "--redo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    assert!(messages("last").contains("has redone undone file changes of this conversation"));
    // A new conversation has not read of the changes.
    story.run(["undo"]).stderr_has("nanobot: turn ").stdout("restored a\n");
    story.server().script([says("ok")]);
    story.run(["agent", "-m", "hello", "--new"]).stdout("ok\n");
    let request = story.last_request().body.to_string();
    assert!(!request.contains("has undone"), "{request}");
}

/// A command's changes are found by comparison, so those of the user in the meantime are among them.
#[test]
fn an_undo_tells_what_changed_while_a_command_ran() {
    let story = Story::new().file("a", "old");
    run_command(&story, json!({ "command": "echo new > a" }));
    story
        .run(["undo"])
        .stderr_has(
            "`a`: changed by a command; if you wrote there at the same time, that is undone too",
        )
        .stdout("restored a\n");
}
