//! `nanobot forget`: what is found and removed, what stays, and a removal that is refused or killed.

use crate::channel::telegram_story;
use crate::cron::{add_job, run_cron};
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::memory::{calls_save_memory, session_text};
use crate::screen::Key;
use crate::server::{calls, says};
use crate::story::{Story, write};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const NAME: &str = "Jörg Zwölf";
/// A session of the Python program, which escapes letters, with a tool call whose arguments are JSON in JSON.
const PYTHON_SESSION: &str = concat!(
    r#"{"_type": "metadata", "key": "cli:python", "created_at": "2026-01-01T00:00:00", "updated_at": "2026-01-01T00:00:00", "metadata": {}, "last_consolidated": 0}"#,
    "\n",
    r#"{"role": "user", "content": "Who is J\u00f6rg Zw\u00f6lf?", "timestamp": "2026-01-01T10:00:00"}"#,
    "\n",
    r#"{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "web_search", "arguments": "{\"query\": \"J\\u00f6rg Zw\\u00f6lf\"}"}}], "timestamp": "2026-01-01T10:00:01"}"#,
    "\n",
    r#"{"role": "tool", "tool_call_id": "c1", "name": "web_search", "content": "JÖRG ZWÖLF is a gardener.\nOthers are not.", "timestamp": "2026-01-01T10:00:02"}"#,
    "\n",
    r#"{"role": "assistant", "content": "A gardener.", "timestamp": "2026-01-01T10:00:03"}"#,
    "\n",
);

pub(crate) fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

/// All files below the home, with their contents.
pub(crate) fn contents(story: &Story) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![story.home().join(".nanobot")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push((path.clone(), text(&path))) }
        }
    }
    files.sort();
    files
}

/// The files that have `name`, in any case, as it is or escaped.
pub(crate) fn files_with(story: &Story, name: &str) -> Vec<PathBuf> {
    let escape = |letter: char| {
        if letter.is_ascii() { letter.to_string() } else { format!("\\u{:04x}", u32::from(letter)) }
    };
    let name = name.to_lowercase();
    let escaped: String = name.chars().map(escape).collect();
    let has = |text: &str| {
        let text = text.to_lowercase().replace("\\\\u", "\\u");
        text.contains(&name) || text.contains(&escaped)
    };
    let contents = contents(story).into_iter();
    contents.filter(|(_, text)| has(text)).map(|(path, _)| path).collect()
}

/// The recording of a run.
fn tape(story: &Story) -> PathBuf {
    story.home().join("tape.jsonl")
}

/// A home in which each store has got the name by use, and a recording.
fn used_story() -> Story {
    let story = Story::new()
        .workspace_file("USER.md", format!("- {NAME} is a friend.\n- Likes tea.\n"))
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", 60))
        .workspace_file("sessions/cli_python.jsonl", PYTHON_SESSION);
    let put = |text: &str| calls("write_file", json!({ "path": "a.md", "content": text }));
    story.server().script([
        put(NAME),
        calls("exec", json!({ "command": format!("echo {NAME}") })),
        says(&format!("{NAME} is noted.")),
        put("nobody"),
        says("Done."),
        says(NAME),
        calls_save_memory(
            &format!("[2026-01-02 03:04] Talked about {NAME}."),
            &format!("- The user is a friend of {NAME}.\n- The user likes tea.\n"),
        ),
        says(&format!("{NAME} in a pipe")),
        says(&format!("{NAME} in a job")),
    ]);
    let message = format!("remember {NAME}");
    let tape = tape(&story);
    let turn = ["agent", "-s", "work", "--write", "--record", tape.to_str().unwrap(), "-m"];
    story.run(turn.iter().chain(&[&*message])).stdout_has("noted").error_text();
    story.run(turn.iter().chain(&["clear a.md"])).stdout("Done.\n").error_text();
    story.run(["agent", "-s", "gone", "-m", "who?"]).stdout_has(NAME);
    story.run(["session", "rm", "gone", "-q"]);
    story.run(["session", "title", "work", NAME]).text();
    story.run(["memory", "consolidate", "-s", "cli:direct"]).stdout_has("messages");
    let line = json!({ "id": "1", "session": "piped", "text": NAME });
    let mut shell = story.program("/bin/sh");
    let pipe = format!("echo '{line}' | {} serve pipe --name p", crate::story::NANOBOT);
    let answer = shell.args(["-c", &pipe]).output().unwrap();
    assert!(String::from_utf8_lossy(&answer.stdout).contains("in a pipe"));
    let id = add_job(&story, &["-e", "1h", "-n", "digest"]);
    run_cron(&story, &["run", &id]).stdout_has("in a job").error_text();
    let root = story.home().join(".nanobot");
    write(&root.join("history/repl_history"), format!("#V2\n{NAME}\n").as_bytes());
    write(&root.join("media/telegram/1-note.txt"), NAME.as_bytes());
    write(&root.join("mcp/logs/time.log"), format!("asked for {NAME}\n").as_bytes());
    story
}

#[test]
fn a_text_is_found_everywhere_and_removed() {
    let story = used_story();
    let before = contents(&story);
    let tape = tape(&story);
    let arguments = ["forget", "jörg zwölf", "--file", tape.to_str().unwrap()];
    let listed = story.run(arguments.iter().chain(&["--dry-run"]));
    listed.error_text();
    let list = listed.text();
    drop(listed);
    for line in [
        "would overwrite ~/tape.jsonl: ",
        "would overwrite ~/.nanobot/workspace/USER.md: once, \"- Jörg Zwölf is a friend.\"\n",
        "would overwrite ~/.nanobot/workspace/memory/MEMORY.md: once, ",
        "would overwrite ~/.nanobot/workspace/memory/HISTORY.md: once, ",
        "would overwrite ~/.nanobot/workspace/memory/.versions/",
        "would overwrite ~/.nanobot/workspace/sessions/work.jsonl: ",
        "would overwrite ~/.nanobot/workspace/sessions/cli_python.jsonl: 3 times, \"Who is Jörg Zwölf?\"\n",
        "would overwrite ~/.nanobot/workspace/sessions/.trash/",
        "would overwrite ~/.nanobot/pipes/p/inbox.jsonl: ",
        "would overwrite ~/.nanobot/cron/",
        "would overwrite ~/.nanobot/history/repl_history: once, ",
        "would overwrite ~/.nanobot/mcp/logs/time.log: once, ",
        "would remove ~/.nanobot/media/telegram/1-note.txt: once, ",
        "would remove ~/.nanobot/undo/2: ",
    ] {
        assert!(list.contains(line), "{line}\n{list}");
    }
    // Without a yes nothing changes.
    let refused = story.run(arguments).status(2).stderr_has("`--yes`, or `--dry-run`");
    assert_eq!(refused.text(), list);
    drop(refused);
    let mut screen = story.screen(60, 160).args(arguments);
    screen.until("permanently? [y/N]").press(Key::Enter);
    screen.until("nothing was removed");
    assert_eq!(screen.code(), 1);
    assert!(contents(&story) == before, "files have changed");
    let mut screen = story.screen(60, 160).args(arguments);
    screen.until("permanently? [y/N]").type_("y").press(Key::Enter);
    screen.until("removed ~/.nanobot/undo/2");
    assert_eq!(screen.code(), 0);
    assert_eq!(files_with(&story, NAME), Vec::<PathBuf>::new());
    assert!(!text(&tape).contains(NAME));
    story.run(arguments).status(1).stderr("nanobot: it was not found\n");
    // Only the name is gone, and everything still works.
    let notes = text(&story.workspace().join("USER.md"));
    assert_eq!(notes, "- ************ is a friend.\n- Likes tea.\n");
    let lines: Vec<Value> = story.session("cli_python.jsonl");
    assert_eq!(lines[3]["content"], "************ is a gardener.\nOthers are not.");
    let arguments = lines[2]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).unwrap()["query"].is_string());
    let checked = story.run(["session", "repair", "--all", "--dry-run"]);
    checked.error_text();
    let problems = checked.text();
    assert!(problems.lines().all(|line| line.contains("mode 0644")), "{problems}");
    drop(checked);
    for (command, has) in [
        (&["session", "list"][..], "work"),
        (&["session", "show", "work"], "is noted"),
        (&["session", "show", "cli:python"], "gardener"),
        (&["session", "search", "noted"], "work:"),
        (&["session", "restore"], "gone"),
        (&["session", "restore", "gone"], ""),
        (&["cron", "logs"], "digest"),
        (&["cron", "list"], "digest"),
        (&["undo", "--list"], "work"),
        (&["undo", "--list", "--json"], "a.md"),
        (&["memory", "show"], "likes tea"),
        (&["memory", "log"], "consolidation"),
        (&["usage"], ""),
    ] {
        let result = story.run(command).stdout_has(has);
        result.code();
        result.error_text();
    }
    assert_eq!(std::fs::read_to_string(story.dir().join("a.md")).unwrap(), "nobody");
    // The conversations go on.
    story.server().script([says("Hello."), says("Hi.")]);
    story.run(["agent", "-s", "work", "-m", "hello"]).stdout("Hello.\n");
    story.run(["agent", "-s", "cli:python", "-m", "hello"]).stdout("Hi.\n");
    let requests = story.requests();
    let messages = requests.last().unwrap().messages();
    assert!(messages.iter().any(|message| message["content"] == "A gardener."), "{messages:?}");
}

#[test]
fn what_cannot_be_removed_is_named() {
    let story = Story::new()
        .workspace_file("skills/tea/SKILL.md", "---\ndescription: tea of Ada Lovelace\n---\n")
        .workspace_file("letters/one.md", "Dear Ada Lovelace")
        .workspace_file("USER.md", "A friend of Ada Lovelace.\n")
        .workspace_file("memory/MEMORY.md", "Ada Lovelace likes tea.\n")
        .set("agents.defaults.botName", json!("Ada Lovelace"))
        .script([says("Ada Lovelace it is."), says("Yes.")]);
    story.run(["agent", "-s", "work", "-m", "Ada Lovelace"]).text();
    story.run(["agent", "-s", "chat:ada lovelace", "-m", "hello"]).text();
    run_cron(&story, &["add", "-n", "tea", "-m", "greet Ada Lovelace", "-e", "1h"]).text();
    let lock = |name: &str| {
        let file = std::fs::File::create(story.workspace().join(name)).unwrap();
        file.lock().unwrap();
        file
    };
    let locks = [lock("sessions/work.jsonl.lock"), lock("memory/.lock")];
    let notes = story.workspace().join("USER.md");
    let set_mode = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&notes, mode).unwrap();
    };
    set_mode(0o400);
    let result = story.run(["forget", "Ada Lovelace", "--yes"]).status(75);
    let list = result
        .stderr_has("some of it was not removed")
        .stderr_has("providers and chat services")
        .text();
    for line in [
        "kept ~/.nanobot/config.json: once: ",
        "kept ~/.nanobot/workspace/skills/tea/SKILL.md: once: ",
        "kept ~/.nanobot/workspace/letters/one.md: once: ",
        "kept ~/.nanobot/workspace/cron/jobs.json: ",
        "kept ~/.nanobot/workspace/USER.md: once: it is read-only\n",
        "kept ~/.nanobot/workspace/memory/MEMORY.md: once: the memory is in use",
        "kept ~/.nanobot/workspace/sessions/chat_ada lovelace.jsonl: ",
        ": in keys, names and numbers of its format; `--session`",
    ] {
        assert!(list.contains(line), "{line}\n{list}");
    }
    let locked_line = list.lines().find(|line| line.contains("sessions/work.jsonl")).unwrap();
    assert!(locked_line.starts_with("kept ") && locked_line.contains("in use"), "{locked_line}");
    assert!(text(&story.workspace().join("sessions/work.jsonl")).contains("Ada Lovelace"));
    // Once they are free, the rest is removed.
    drop(locks);
    story
        .run(["forget", "Ada Lovelace", "--yes"])
        .status(74)
        .stdout_has("it is read-only")
        .error_text();
    set_mode(0o600);
    story.run(["forget", "Ada Lovelace", "--yes", "-q"]).stdout("");
    let mut remaining_files = files_with(&story, "Ada Lovelace");
    remaining_files.retain(|path| !path.ends_with("sessions/chat_ada lovelace.jsonl"));
    let names = [
        "config.json",
        "jobs.json",
        "job.json",
        "usage.jsonl",
        "tools.jsonl",
        "one.md",
        "SKILL.md",
    ];
    let is_named = |path: &PathBuf| names.iter().any(|name| path.ends_with(name));
    assert!(remaining_files.iter().all(is_named), "{remaining_files:?}");
    story.run(["forget", "--session", "chat:ada lovelace", "--yes", "-q"]).stdout("");
    story.run(["session", "list"]).stdout_has("work");
    let remaining_files = files_with(&story, "chat:ada lovelace");
    assert_eq!(remaining_files, Vec::<PathBuf>::new());
    story.run(["usage"]).stdout_has("TOTAL");
    // Command lines that mean too much, or nothing.
    story.run(["forget", "Ada"]).status(2).stderr_has("so short");
    story.run(["forget", "a\nb"]).status(2).stderr_has("one line");
    story.run(["forget"]).status(2).stderr_has("--sender");
    story.run(["forget", "--sender", "Ada"]).status(2).stderr_has("telegram:123456");
    story.run(["forget", "--session", "nothing"]).status(1).stderr_has("not found");
}

#[test]
fn words_of_the_formats_stay() {
    let story = Story::new().file("a.txt", "the project of a user\n");
    story
        .server()
        .script([calls("read_file", json!({ "path": "a.txt" })), says("an external project")]);
    story.run(["agent", "-m", "the user and the turn"]).stdout("an external project\n");
    let explain = || story.run(["policy", "explain", "--session", "cli:direct"]).text();
    let (origin, sessions) = (explain(), story.run(["session", "list", "--json"]).json());
    assert!(origin.contains("origin      project"), "{origin}");
    for word in ["user", "project", "assistant", "turn", "agent", "read_file"] {
        let result = story.command(["forget", word, "--yes"]).output().unwrap();
        assert!(matches!(result.status.code(), Some(0 | 1)), "{result:?}");
    }
    assert_eq!(explain(), origin);
    let after = story.run(["session", "list", "--json"]).json();
    for key in ["key", "messages", "statistics"] {
        assert_eq!(after[key], sessions[key], "{key}");
    }
    story.run(["session", "repair", "--all"]).stderr_has("ok: 1");
    // A later request repeats the call.
    story.server().script([says("more")]);
    story.run(["agent", "-m", "go on"]).stdout("more\n");
    let requests = story.requests();
    let messages = requests.last().unwrap().messages();
    let mut calls = messages.iter().filter_map(|message| message["tool_calls"][0].as_object());
    assert_eq!(calls.next().unwrap()["function"]["name"], "read_file");
    let log = text(&story.workspace().join("sessions/cli_direct.jsonl"));
    assert!(log.contains("the **** and the ****") && !log.contains("an external project"), "{log}");
}

#[test]
fn a_sender_is_removed_with_the_sessions_of_their_own() {
    let (story, telegram) = telegram_story();
    let story = story.set("channels.telegram.allowFrom", json!(["7", "8"]));
    story.server().always(says("Understood."));
    telegram.message(7, "my PIN is 4711");
    telegram.message(8, "my PIN is 4712");
    let group = |from: i64, text: &str| {
        telegram.add(json!({
            "from": { "id": from, "username": format!("user{from}"), "is_bot": false },
            "chat": { "id": -9, "type": "group", "title": "all" }, "text": text,
        }));
    };
    group(7, "/status@story_bot group PIN 4713");
    group(8, "/status@story_bot group PIN 4714");
    story.run(["channel", "poll"]).code();
    let pairing = json!({ "approved": { "telegram": ["7", "8"] }, "pending": {} });
    write(&story.home().join(".nanobot/pairing.json"), pairing.to_string().as_bytes());
    let approval = |sender: &str| json!({ "session": "telegram:-9", "sender": sender, "tool": "cron", "flag": "--allow cron", "permission": "jobs" });
    let approvals_path = story.home().join(".nanobot/channels/telegram/approvals.json");
    let approvals = json!({ "lasting": [approval("7"), approval("8")] });
    write(&approvals_path, approvals.to_string().as_bytes());
    assert!(!files_with(&story, "PIN is 4711").is_empty());
    let attachment = story.home().join(".nanobot/media/telegram/1-a.txt");
    write(&attachment, b"x");
    let session = story.workspace().join("sessions/telegram_7.jsonl");
    let line = json!({ "role": "user", "content": format!("[file: {}]", attachment.display()) });
    write(&session, (text(&session) + &line.to_string() + "\n").as_bytes());
    // A turn of theirs is running.
    let lock =
        std::fs::File::create(story.workspace().join("sessions/telegram_7.jsonl.lock")).unwrap();
    lock.lock().unwrap();
    let before = contents(&story);
    story
        .run(["forget", "--sender", "telegram:7", "--yes"])
        .status(75)
        .stderr_has("in use")
        .stdout("");
    assert!(contents(&story) == before, "files have changed");
    drop(lock);
    let result = story.run(["forget", "--sender", "telegram:7", "--yes"]);
    let result = result.stdout_has("removed ~/.nanobot/workspace/sessions/telegram_7.jsonl");
    let result = result.stdout_has("removed ~/.nanobot/pairing.json").stdout_has("1-a.txt\n");
    result.error_text();
    drop(result);
    assert_eq!(files_with(&story, "PIN is 4711"), Vec::<PathBuf>::new());
    assert_eq!(files_with(&story, "telegram:7\""), Vec::<PathBuf>::new());
    assert!(!attachment.exists());
    assert_eq!(files_with(&story, "PIN is 4712").len(), 2, "the inbox and the session");
    let pairing = std::fs::read(story.home().join(".nanobot/pairing.json")).unwrap();
    let pairing: Value = serde_json::from_slice(&pairing).unwrap();
    assert_eq!(pairing["approved"]["telegram"], json!(["8"]));
    let approvals: Value = serde_json::from_str(&text(&approvals_path)).unwrap();
    assert_eq!(approvals["lasting"], json!([approval("8")]));
    // What was received stays received, and both go on.
    let request_count = story.requests().len();
    story.run(["channel", "poll"]).code();
    assert_eq!(story.requests().len(), request_count);
    telegram.message(7, "hello");
    story.run(["channel", "poll"]).code();
    assert_eq!(story.requests().len(), request_count + 1);
    story.run(["usage", "--by", "session"]).stdout_has("telegram:8");
    story.run(["forget", "--sender", "telegram:99"]).status(1).stderr_has("not found");
}

#[test]
fn a_removal_that_is_killed_is_finished_by_the_next() {
    if !can_inject() {
        return;
    }
    let story = Story::new()
        .workspace_file("sessions/cli_python.jsonl", PYTHON_SESSION)
        .workspace_file("memory/MEMORY.md", format!("- {NAME}\n- tea\n- {NAME}\n"));
    let paths =
        ["sessions/cli_python.jsonl", "memory/MEMORY.md"].map(|name| story.workspace().join(name));
    let originals = paths.clone().map(|path| std::fs::read(path).unwrap());
    let kills = inject_at_calls(|number| {
        for (path, original) in paths.iter().zip(&originals) {
            std::fs::write(path, original).unwrap();
        }
        let arguments = ["forget", NAME, "--yes", "-q"];
        let (result, is_killed) =
            run_with_fault(&story, &arguments, &paths, ("write", "SIGKILL", number));
        result.signal();
        result.error_text();
        drop(result);
        for (path, original) in paths.iter().zip(&originals) {
            assert_eq!(std::fs::metadata(path).unwrap().len(), original.len() as u64);
        }
        assert_eq!(story.session("cli_python.jsonl").len(), 5);
        let result = story.run(arguments);
        result.code();
        result.error_text();
        drop(result);
        assert_eq!(files_with(&story, NAME), Vec::<PathBuf>::new());
        is_killed
    });
    assert!(kills > 0);
}
