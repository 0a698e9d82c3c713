//! `nanobot forget TEXT`: the forms in which a text is found, the files that are searched, and those that cannot be.

use crate::forget::{contents, files_with, text};
use crate::memory::session_text;
use crate::server::{calls, says};
use crate::story::{Story, write};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const NAME: &str = "Ada Lovelace";

/// The status of `nanobot forget`, and what it prints.
pub(crate) struct ForgetRun {
    pub(crate) status: i32,
    pub(crate) text: String,
}

pub(crate) fn forget(story: &Story, arguments: &[&str]) -> ForgetRun {
    let output = story.command(["forget"].iter().chain(arguments)).output().unwrap();
    let parts = [output.stdout, output.stderr];
    let text: String = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
    ForgetRun { status: output.status.code().unwrap(), text: story.normalize_paths(&text) }
}

/// Forgets the name, which must be found and removed.
fn forget_name(story: &Story) -> String {
    let ForgetRun { status, text } = forget(story, &[NAME, "--yes"]);
    assert_eq!(status, 0, "{text}");
    text
}

fn home_file(story: &Story, name: &str) -> PathBuf {
    story.home().join(".nanobot").join(name)
}

/// Sets the time of a file or a directory to two minutes ago.
fn make_old(path: &Path) {
    let time = SystemTime::now() - Duration::from_secs(120);
    std::fs::File::open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_line_of_json_hides_no_other_line() {
    let story = Story::new();
    let content = format!("- {NAME} lives in London.\n{{\"indent\": 2}}\nÜber {NAME}\n{{}}\n");
    let names = [
        "workspace/memory/MEMORY.md",
        "workspace/memory/HISTORY.md",
        "workspace/memory/.versions/000001.md",
        "workspace/USER.md",
        "workspace/sessions/work.jsonl.torn-20260101",
        "cron/tea/output/1.txt",
        "mcp/logs/time.log",
        "history/repl_history",
    ];
    for name in names {
        write(&home_file(&story, name), content.as_bytes());
    }
    let list = forget_name(&story);
    for name in names {
        assert!(list.contains(&format!("overwritten ~/.nanobot/{name}: 2 times\n")), "{list}");
        let text_of_file = text(&home_file(&story, name));
        assert_eq!(text_of_file, content.replace(NAME, "************"), "{name}");
    }
}

#[test]
fn a_text_is_found_however_it_is_written() {
    let story = Story::new();
    let notes = story.workspace().join("USER.md");
    let check = |name: &str, content: &str, expect: &str| {
        write(&notes, content.as_bytes());
        let ForgetRun { status, text: list } = forget(&story, &[name, "--yes"]);
        assert_eq!((status, &*text(&notes)), (0, expect), "{list}");
    };
    check(NAME, "ADA\n  lovelace\n", "***\n**********\n");
    check(
        NAME,
        "?q=Ada+Lovelace&r=Ada%20Lovelace Ada\u{a0}Lovelace",
        "?q=************&r=************** *************",
    );
    check(
        "Jörg Zwölf",
        "Jo\u{308}rg Zwo\u{308}lf, J\\u00f6rg Zw\\u00f6lf",
        "**************, ********************",
    );
    check(r"C:\Users\Ada", r"C:\Users\Ada, C:\\Users\\Ada", "************, **************");
    // At the end of a piece and the beginning of the next one.
    let long = format!("{}{NAME}{}", "x".repeat((8 << 20) - 6), "y".repeat(9 << 20));
    check(NAME, &long, &long.replace(NAME, "************"));
    // The stars are none.
    let ForgetRun { status, text } = forget(&story, &["****", "--yes"]);
    assert_eq!((status, &*text), (1, "nanobot: it was not found\n"));
}

#[test]
fn json_in_a_conversation_is_a_text() {
    let lines = "{\"name\": \"J\\u00f6rg Zw\\u00f6lf\", \"pin\": 47114711}\n{\"name\": \"Ann\"}\n";
    let story = Story::new()
        .file("c.json", "{\"customer\": {\"phone\": 4915112345678, \"Ada Lovelace\": true}}")
        .file("l.jsonl", lines);
    let read = |path: &str| calls("read_file", json!({ "path": path }));
    let remember = calls("remember", json!({ "phone": 4_915_112_345_678_i64 }));
    story.server().script([read("c.json"), read("l.jsonl"), remember, says("Seen.")]);
    story.run(["agent", "-m", "{\"pin\": 47114711}"]).stdout("Seen.\n").error_text();
    let session = story.workspace().join("sessions/cli_direct.jsonl");
    for name in ["4915112345678", "Jörg Zwölf", NAME, "47114711"] {
        let ForgetRun { status, text: list } = forget(&story, &[name, "--yes"]);
        assert_eq!(status, 0, "{name}: {list}");
        let ForgetRun { status, text: list } = forget(&story, &[name, "--yes"]);
        assert_eq!(status, 1, "{name}: {list}");
    }
    let log = text(&session);
    for part in ["4915112345678", "J\\\\u00f6rg", NAME, "47114711"] {
        assert!(!log.contains(part), "{part}: {log}");
    }
    // The arguments are JSON still, with the names of the tool.
    assert!(log.contains(r#"{\"phone\":1111111111111}"#), "{log}");
    story.run(["session", "repair", "--all"]).stderr_has("ok: 1");
    story.server().script([says("more")]);
    story.run(["agent", "-m", "go on"]).stdout("more\n");
}

#[test]
fn links_to_directories_of_ours_are_followed() {
    let story = Story::new().workspace_file("memory/MEMORY.md", format!("- {NAME}\n"));
    let elsewhere = story.home().join("elsewhere");
    let move_away = |path: &Path| {
        let target = elsewhere.join(path.file_name().unwrap());
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::rename(path, &target).unwrap();
        symlink(&target, path).unwrap();
    };
    story.server().script([says(&format!("hello {NAME}"))]);
    story.run(["agent", "-m", "hi"]).stdout_has(NAME);
    write(&home_file(&story, "media/telegram/1-a.txt"), NAME.as_bytes());
    write(&home_file(&story, "cron/tea/output/1.txt"), NAME.as_bytes());
    for path in [
        story.workspace().join("sessions"),
        story.workspace().join("memory"),
        home_file(&story, "media"),
        home_file(&story, "cron/tea"),
        story.workspace(),
    ] {
        move_away(&path);
    }
    // It leads to what was searched.
    let own = story.workspace().join("sessions/loop");
    symlink(".", &own).unwrap();
    let projects = story.home().join("projects");
    write(&projects.join("a.md"), NAME.as_bytes());
    symlink(&projects, story.workspace().join("projects")).unwrap();
    let list = forget_name(&story);
    for line in [
        "overwritten ~/.nanobot/workspace/sessions/cli_direct.jsonl: ",
        "overwritten ~/.nanobot/workspace/memory/MEMORY.md: once\n",
        "overwritten ~/.nanobot/cron/tea/output/1.txt: once\n",
        "removed ~/.nanobot/media/telegram/1-a.txt: once\n",
        "kept ~/.nanobot/workspace/projects: a link to a directory, which was not searched\n",
    ] {
        assert!(list.contains(line), "{line}\n{list}");
    }
    assert!(!list.contains("loop"), "{list}");
    std::fs::remove_file(own).unwrap();
    let files = contents(&story).into_iter().filter(|(_, text)| text.contains(NAME));
    let paths: Vec<PathBuf> = files.map(|(path, _)| path).collect();
    assert!(paths.iter().all(|path| path.ends_with("projects/a.md")), "{paths:?}");
}

#[test]
fn directories_are_not_skipped_by_their_names() {
    let story = Story::new()
        .workspace_file("vendor/n.md", NAME)
        .workspace_file("yarn.lock", NAME.repeat(30));
    let line = json!({ "type": "in", "message": { "id": "1", "chat": { "id": "" }, "from": { "id": "" }, "text": NAME, "sent_at": 0 }, "session": "s1", "at": 0 });
    let settled = json!({ "type": "dropped", "ids": ["1"], "result": "stale" });
    write(
        &home_file(&story, "pipes/target/inbox.jsonl"),
        format!("{line}\n{settled}\n").as_bytes(),
    );
    write(&home_file(&story, "worktrees/r/b/n.md"), NAME.as_bytes());
    let list = forget_name(&story);
    for line in [
        "overwritten ~/.nanobot/pipes/target/inbox.jsonl: once\n",
        "kept ~/.nanobot/workspace/vendor/n.md: once: a file in the workspace",
        "kept ~/.nanobot/workspace/yarn.lock: 30 times: a file in the workspace",
        "kept ~/.nanobot/worktrees/r/b/n.md: once: a worktree of your repository\n",
    ] {
        assert!(list.contains(line), "{line}\n{list}");
    }
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_removed() {
    let story = Story::new().workspace_file("USER.md", format!("{NAME}\n"));
    // Its beginning cannot be read by any process.
    symlink("/proc/self/mem", story.workspace().join("unreadable")).unwrap();
    let message = "~/.nanobot/workspace/unreadable: not searched: ";
    let ForgetRun { status, text: list } = forget(&story, &[NAME, "--dry-run"]);
    assert!(status == 74 && list.contains(&format!("would keep {message}")), "{list}");
    let ForgetRun { status, text: list } = forget(&story, &[NAME, "--yes"]);
    assert!(status == 74 && list.contains(&format!("kept {message}")), "{list}");
    assert!(list.contains("some of it was not searched"), "{list}");
    assert_eq!(text(&story.workspace().join("USER.md")), "************\n");
    let ForgetRun { status, text: list } = forget(&story, &[NAME, "--yes"]);
    assert!(status == 74 && list.contains("some of it was not searched"), "{list}");
    // What the user names must be there.
    let ForgetRun { status, text: list } = forget(&story, &[NAME, "--yes", "--file", "missing"]);
    assert!(status == 66 && list.contains("no such file: `missing`"), "{list}");
    let ForgetRun { status, text: list } = forget(&story, &[NAME, "--yes", "--file", "."]);
    assert!(status == 66 && list.contains("not a regular file"), "{list}");
}

#[test]
fn a_file_that_is_named_is_treated_once() {
    let story = Story::new().workspace_file("x.txt", NAME);
    let path = story.workspace().join("x.txt");
    let link = story.home().join("link.txt");
    symlink(&path, &link).unwrap();
    let [path, link] = [&path, &link].map(|path| path.to_str().unwrap());
    let ForgetRun { status, text: list } =
        forget(&story, &[NAME, "--yes", "--file", path, "--file", link]);
    let line = "overwritten ~/.nanobot/workspace/x.txt: once\n";
    assert!(status == 0 && list.starts_with(line), "{list}");
    assert_eq!(list.matches("x.txt").count(), 1, "{list}");
}

#[test]
fn an_unfinished_consolidation_brings_no_text_back() {
    let story = Story::new()
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", 4))
        .workspace_file("memory/MEMORY.md", format!("- {NAME}\n"));
    let plan = json!({ "v": 1, "piece": ["cli:direct", 0, 2], "entries": [format!("Talked about {NAME}.")],
        "history": 0, "stamp": "2026-01-02 03:04", "base": null, "version": null });
    let pending = story.workspace().join("memory/.pending.json");
    for memory in [format!("- {NAME}\n"), "- tea\n".into()] {
        write(&story.workspace().join("memory/MEMORY.md"), memory.as_bytes());
        let before = text(&story.workspace().join("memory/MEMORY.md"));
        write(&pending, plan.to_string().as_bytes());
        let ForgetRun { text: list, .. } = forget(&story, &[NAME, "--dry-run"]);
        assert!(
            list.contains("would overwrite ~/.nanobot/workspace/memory/.pending.json: once"),
            "{list}"
        );
        assert!(pending.exists() && text(&story.workspace().join("memory/MEMORY.md")) == before);
        forget_name(&story);
        assert!(!pending.exists());
        assert_eq!(files_with(&story, NAME), Vec::<PathBuf>::new());
    }
    let history = text(&story.workspace().join("memory/HISTORY.md"));
    assert!(history.contains("Talked about ************."), "{history}");
}

#[test]
fn leftovers_of_killed_runs_are_removed() {
    let story = Story::new().workspace_file("USER.md", NAME);
    let private = story.home().join("tmp/nanobot-run-0123456789abcdef");
    write(&private.join("base/a.md"), NAME.as_bytes());
    make_old(&private);
    let story = story.env("TMPDIR", private.parent().unwrap().to_str().unwrap());
    let metadata = json!({ "_type": "metadata", "key": "copy", "metadata": { "fork_of": "work" } });
    let leftovers = ["sessions/.tmpAb12Cd", "memory/.versions/.tmpaaaaaa", ".tmpbbbbbb"]
        .map(|name| story.workspace().join(name));
    for path in &leftovers {
        write(path, format!("{metadata}\n{NAME}\n").as_bytes());
        make_old(path);
    }
    let young = story.workspace().join("sessions/.tmpYoung1");
    write(&young, NAME.as_bytes());
    let list = forget_name(&story);
    assert!(list.contains("removed ~/.nanobot/workspace/sessions/.tmpAb12Cd: once\n"), "{list}");
    assert!(
        list.contains("kept ~/.nanobot/workspace/sessions/.tmpYoung1: once: a run is writing it\n"),
        "{list}"
    );
    assert!(leftovers.iter().all(|path| !path.exists()) && young.exists() && !private.exists());
    // The name of the session is in the copy alone.
    write(&leftovers[0], format!("{metadata}\n").as_bytes());
    make_old(&leftovers[0]);
    let ForgetRun { text: list, .. } = forget(&story, &["--session", "work", "--yes"]);
    assert!(list.contains("removed ~/.nanobot/workspace/sessions/.tmpAb12Cd"), "{list}");
}

#[test]
fn the_directory_of_a_turn_removes_no_undo_data() {
    let story = Story::new();
    let put = |path: &str| calls("write_file", json!({ "path": path, "content": "x" }));
    story.server().script([put("lovelace.md"), says("Done.")]);
    story.run(["agent", "--write", "-m", "x"]).stdout("Done.\n").error_text();
    let undo = home_file(&story, "undo/1");
    let part = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let directory = part(&story.dir());
    let home = part(story.home().parent().unwrap());
    for word in [&directory, &home, "change", "turn", "path", "nothing"] {
        let ForgetRun { text: list, .. } = forget(&story, &[word, "--yes"]);
        assert!(undo.exists(), "{word}: {list}");
    }
    let ForgetRun { status, text: list } = forget(&story, &["lovelace", "--yes"]);
    assert!(status == 0 && list.contains("removed ~/.nanobot/undo/1: once\n"), "{list}");
    assert!(!undo.exists());
}

#[test]
fn a_removal_prints_no_part_of_the_text() {
    let story = Story::new().workspace_file("USER.md", format!("The secret {NAME} friend\n"));
    let ForgetRun { text: list, .. } = forget(&story, &[NAME, "--dry-run"]);
    assert!(list.contains("once, \"The secret Ada Lovelace friend\""), "{list}");
    let list = forget_name(&story);
    assert!(!list.contains("secret") && !list.contains(NAME), "{list}");
}
