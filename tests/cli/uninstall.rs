//! `nanobot uninstall`: what is listed and removed, and what is kept.

use crate::cron::add_job;
use crate::screen::Key;
use crate::story::{Story, write};
use std::path::PathBuf;

const OTHERS_LINES: &str =
    "MAILTO=me\n0 1 * * * backup\n* * * * * nanobot channel poll --wait 60\n";

/// A home with a config, a session, a job and a completion script, and files and a crontab line of others.
fn used_story() -> Story {
    let story = Story::new()
        .workspace_file("memory/MEMORY.md", "Ada likes tea.\n")
        .env("SHELL", "/bin/bash");
    story.crontab().set_table(OTHERS_LINES);
    let turn = ["agent", "--replay", "demo", "-m", "x", "-s", "work"];
    let result = story.run(turn);
    result.text();
    result.error_text();
    drop(result);
    add_job(&story, &["-e", "1h"]);
    story.run(["onboard", "--completions", "--yes", "-q"]).stdout("");
    for name in FOREIGN_FILES {
        write(&story.home().join(name), b"theirs");
    }
    story
}

/// All files below the home.
fn files(story: &Story) -> Vec<String> {
    let mut paths = Vec::new();
    let mut folders = vec![story.home()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() { folders.push(path) } else { paths.push(path) }
        }
    }
    let short = |path: PathBuf| path.strip_prefix(story.home()).unwrap().display().to_string();
    let mut names: Vec<String> = paths.into_iter().map(short).collect();
    names.sort();
    names
}

const FOREIGN_FILES: [&str; 12] = [
    ".nanobot/commands/review.md",
    ".nanobot/cron/jobs.json",
    ".nanobot/history/cli_history",
    ".nanobot/hooks/format",
    ".nanobot/photo.png",
    ".nanobot/profiles/careful.md",
    ".nanobot/prompts/digest.md",
    ".nanobot/sessions/old.jsonl",
    ".nanobot/tools/weather",
    ".nanobot/workspace/USER.md",
    ".nanobot/workspace/notes/tea.md",
    ".nanobot/workspace/skills/tea/SKILL.md",
];

#[test]
fn what_is_listed_is_removed_and_the_rest_is_kept() {
    let story = used_story();
    let before = files(&story);
    let table = story.crontab().table();
    let listed = story.run(["uninstall", "--dry-run"]).text();
    assert_eq!((files(&story), story.crontab().table()), (before, table));
    for line in [
        "would remove crontab: 1 line\n",
        "would remove ~/.nanobot/config.json: ",
        "would remove ~/.nanobot/workspace/sessions/: ",
        "would remove ~/.nanobot/workspace/memory/: ",
        "would remove ~/.local/share/bash-completion/completions/nanobot: ",
        "kept crontab: lines that name nanobot, of your own or of another workspace: 1\n",
        "kept ~/.nanobot/photo.png: not written by nanobot\n",
        "kept ~/.nanobot/workspace/notes: not written by nanobot\n",
        "kept ~/.nanobot/sessions: not written by nanobot\n",
        "kept ~/.nanobot/profiles/careful.md: yours\n",
        "kept ~/.nanobot/workspace/skills/tea: yours\n",
        "kept ~/.nanobot/workspace/USER.md: changed since nanobot wrote it\n",
        "would remove ~/.nanobot/workspace/: ",
        ": the program; `rm` removes it\n",
    ] {
        assert!(listed.contains(line), "{line}\n{listed}");
    }
    let removed = story.run(["uninstall", "--yes"]).text();
    assert_eq!(removed, listed.replace("would remove", "removed"));
    assert_eq!(files(&story), FOREIGN_FILES);
    assert_eq!(story.crontab().table().as_deref(), Some(OTHERS_LINES));
    // Once more: what is kept is not counted as something to remove.
    story.run(["uninstall", "--yes"]).stdout("").stderr("nanobot: there is nothing to remove\n");
}

#[test]
fn nothing_is_removed_without_a_yes() {
    let story = used_story();
    let before = files(&story);
    story
        .run(["uninstall"])
        .status(2)
        .stdout_has("would remove")
        .stderr_has("`--yes`, or `--dry-run`");
    let mut screen = story.screen(30, 80).args(["uninstall"]);
    screen.until("permanently? [y/N]").press(Key::Enter);
    screen.until("nothing was removed");
    assert_eq!(screen.code(), 1);
    // A sandboxed command of the agent cannot do it.
    let inside = story.command(["uninstall", "--yes"]).env("NANOBOT_INSIDE", "1").output();
    let inside = story.run_result(inside.unwrap());
    inside.status(77).stderr_has("the agent's sandbox");
    assert_eq!(files(&story), before);
}

#[test]
fn files_in_use_and_a_crontab_that_cannot_be_changed_stop_the_removal() {
    let story = used_story();
    let before = files(&story);
    let lock = story.workspace().join("sessions/work.jsonl.lock");
    let file = std::fs::File::open(&lock).unwrap();
    file.lock().unwrap();
    story
        .run(["uninstall", "--yes"])
        .status(75)
        .stderr_has("~/.nanobot/workspace/sessions/work.jsonl.lock` is in use");
    story.run(["uninstall", "--dry-run"]).stdout_has("would remove");
    file.unlock().unwrap();
    story.crontab().set_behavior("forbidden");
    story.run(["uninstall", "--yes"]).status(74).stderr_has("crontab");
    assert_eq!(files(&story), before);
}

#[test]
fn a_workspace_elsewhere_and_links_are_not_followed() {
    let story = Story::new();
    let notes = story.home().join("notes");
    write(&notes.join("AGENTS.md"), b"mine");
    let story = story.set("agents.defaults.workspace", notes.to_str().unwrap().into());
    add_job(&story, &["-e", "1h"]);
    let media = story.home().join(".nanobot/media");
    std::fs::create_dir_all(&media).unwrap();
    std::os::unix::fs::symlink(&notes, media.join("telegram")).unwrap();
    let removed = story.run(["uninstall", "--yes"]).text();
    assert!(removed.contains("removed crontab: 1 line\n"), "{removed}");
    assert!(removed.contains("kept ~/notes: the workspace, outside"), "{removed}");
    assert!(removed.contains("kept ~/.nanobot/media/telegram"), "{removed}");
    assert_eq!(std::fs::read(notes.join("AGENTS.md")).unwrap(), b"mine");
    assert!(notes.join("cron/jobs.json").exists());
    assert!(!story.home().join(".nanobot/config.json").exists());
    // Our directory must be only ours.
    let root = story.home();
    let mut command = story.command(["uninstall", "--yes"]);
    let result = command.env("NANOBOT_HOME", &root).output();
    story.run_result(result.unwrap()).status(1).stderr_has("contains more than nanobot's files");
}

#[test]
fn a_config_that_cannot_be_used_is_removed_too() {
    let story = used_story();
    std::fs::write(story.home().join(".nanobot/config.json"), "{").unwrap();
    let result = story.run(["uninstall", "--yes"]);
    result.stdout_has("removed crontab: 1 line\n").stderr_has("the config cannot be used");
    assert_eq!(files(&story), FOREIGN_FILES);
}
