//! Homes that are not the user's alone: shared with a group, left by another user, or not writable at all.

use crate::requirements::require_root;
use crate::server::says;
use crate::story::{RunResult, Story, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// A user who is neither root nor the owner of anything in a story.
const OTHER_USER_ID: u32 = 65_534;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn run_with_umask<'a>(story: &'a Story, umask: &str, arguments: &str) -> RunResult<'a> {
    let mut shell = story.program("/bin/sh");
    let line = format!("umask {umask}; exec '{}' {arguments}", crate::story::NANOBOT);
    story.wait(shell.args(["-c", &line]).spawn().unwrap())
}

#[test]
fn files_of_a_shared_workspace_follow_the_umask() {
    let check = |workspace: u32, umask: &str, file: u32, directory: u32| {
        let story = Story::new().script([says("one"), says("two")]);
        std::fs::create_dir_all(story.workspace()).unwrap();
        set_mode(&story.workspace(), workspace);
        for answer in ["one\n", "two\n"] {
            run_with_umask(&story, umask, "agent -m x -s work").stdout(answer);
        }
        let sessions = story.workspace().join("sessions");
        assert_eq!(mode(&sessions), directory, "{workspace:o} {umask}");
        let session = sessions.join("work.jsonl");
        assert_eq!(mode(&session), file, "{workspace:o} {umask}");
        assert_eq!(mode(&sessions.join("work.jsonl.lock")), file);
        run_with_umask(&story, umask, "cron add -q -m x -e 1h").stdout_has("Added");
        assert_eq!(mode(&story.workspace().join("cron/jobs.json")), file);
        // Files with keys stay private.
        assert_eq!(mode(&story.home().join(".nanobot/cron")), 0o700);
        run_with_umask(&story, umask, "session repair work --dry-run").stderr_has("ok: 1");
    };
    check(0o2770, "007", 0o660, 0o2770);
    check(0o2775, "002", 0o660, 0o2770);
    // Open to the group by accident, as a program with another umask made it.
    check(0o775, "002", 0o600, 0o700);
    check(0o700, "007", 0o600, 0o700);
}

#[test]
fn files_of_another_user_are_named_with_their_owner() {
    if !require_root("only root can give files away") {
        return;
    }
    let story = Story::new().script([says("x")]);
    story.run(["agent", "-m", "x", "-s", "work"]).stdout("x\n");
    let session = story.workspace().join("sessions/work.jsonl");
    chown(&session, Some(OTHER_USER_ID), None).unwrap();
    let result = story.run(["status", "check", "--offline"]);
    result.code();
    result.error_text();
    let text = result.text();
    let line = text.lines().find(|line| line.contains("owners")).unwrap();
    let phrase = "files of other users: `~/.nanobot/workspace/sessions/work.jsonl` (nobody)";
    assert!(line.contains(phrase), "{text}");
    drop(result);
    chown(&session, Some(0), None).unwrap();
    let result = story.run(["status", "check", "--offline"]);
    result.code();
    result.error_text();
    assert!(!result.text().contains("owners"));
}

#[test]
fn an_ephemeral_run_works_where_the_home_cannot_be_written() {
    let story = Story::new().script([says("Hello.")]);
    let config = std::fs::read(story.home().join(".nanobot/config.json")).unwrap();
    write(&story.dir().join("config.json"), &config);
    // Nothing can be created below a file, by root either.
    write(&story.dir().join("file"), b"");
    let home = story.dir().join("file/home");
    let run = |more: &[&str]| {
        let arguments = [&["-c", "config.json", "agent", "-m", "x"], more].concat();
        let mut command = story.command(arguments);
        command.env("NANOBOT_HOME", &home);
        story.wait(command.spawn().unwrap())
    };
    run(&["--ephemeral"]).stdout("Hello.\n").stderr_has("the cost was not recorded");
    run(&[]).status(74).stderr_has("file/home");
}
