//! `nanobot forget --session` and `--sender`: what belongs to a session or a person, and what does not.

use crate::channel::{ANN, telegram_story};
use crate::cron::{add_job, run_cron};
use crate::fault_injection::{can_inject, run_with_fault};
use crate::forget::{contents, files_with, text};
use crate::forget_text::{ForgetRun, forget};
use crate::memory::session_text;
use crate::server::says;
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn home_file(story: &Story, name: &str) -> PathBuf {
    story.home().join(".nanobot").join(name)
}

/// The line of an inbox about a message.
fn inbound(from: &str, chat: &str, session: &str, text: &str) -> String {
    let message = json!({ "id": "1", "chat": { "id": chat, "is_direct": from == chat }, "from": { "id": from }, "text": text, "sent_at": 0 });
    let line = json!({ "type": "in", "message": message, "session": session, "at": 1_767_000_000_000_i64 });
    format!("{line}\n")
}

/// The line of the ledger about a call.
fn call(day: &str, session: &str, sender: Option<&str>) -> String {
    let mut line = json!({
        "v": 1, "time": format!("{day}T10:00:00Z"), "day": day, "session": session, "turn": "t",
        "job": null, "cause": "turn", "provider": "openai", "model": "gpt-5", "input": 1, "cached": 0,
        "cache_write": 0, "output": 1, "reasoning": 0, "estimated": false, "usd": 0.25, "ms": 1, "outcome": "ok",
        "day_usd": 0.75, "month_usd": 1.5,
    });
    if let Some(sender) = sender {
        line["sender"] = sender.into();
    }
    format!("{line}\n")
}

/// Forgets a session or a sender, of which something must be removed.
fn remove(story: &Story, arguments: [&str; 2]) -> String {
    let [flag, value] = arguments;
    let ForgetRun { status, text } = forget(story, &[flag, value, "--yes"]);
    assert_eq!(status, 0, "{text}");
    text
}

#[test]
fn the_same_id_in_another_channel_is_another_person() {
    let story = Story::new();
    let settled = json!({ "type": "dropped", "ids": ["1"], "result": "stale" });
    let own = inbound("ada", "ada", "telegram:ada", "hello") + &settled.to_string() + "\n";
    let [own_path, other_path] =
        ["telegram", "irc"].map(|name| home_file(&story, &format!("channels/{name}/inbox.jsonl")));
    let other = inbound("ada", "#tea", "irc:#tea", "another ada asks");
    write(&own_path, own.as_bytes());
    write(&other_path, other.as_bytes());
    let note = json!({ "session": "telegram:ada", "text": "my own" }).to_string();
    let notes = story.workspace().join("notes.jsonl");
    write(&notes, note.as_bytes());
    remove(&story, ["--sender", "telegram:ada"]);
    assert!(!text(&own_path).contains("hello"));
    assert_eq!(text(&other_path), other);
    assert_eq!(text(&notes), note);
}

#[test]
fn a_session_of_unknown_writers_stays() {
    let story = Story::new();
    let names = ["telegram_-9", "telegram_7", "telegram_-5", "slack_C1"];
    for (name, key) in names.iter().zip(["telegram:-9", "telegram:7", "telegram:-5", "slack:C1"]) {
        let path = story.workspace().join(format!("sessions/{name}.jsonl"));
        write(&path, session_text(key, 2).as_bytes());
    }
    let is_there = |name: &str| story.workspace().join(format!("sessions/{name}.jsonl")).exists();
    let ledger = home_file(&story, "usage.jsonl");
    let lines = [
        call("2025-09-01", "telegram:-9", Some("telegram:8")),
        call("2025-09-02", "telegram:-9", Some("telegram:9")),
        call("2025-09-02", "telegram:-5", Some("telegram:7")),
        call("2026-01-02", "telegram:-9", Some("telegram:7")),
        call("2026-01-02", "telegram:7", None),
        call("2026-01-02", "slack:C1", Some("slack:U7")),
        // The owner.
        call("2026-01-02", "slack:C1", None),
    ];
    write(&ledger, lines.concat().as_bytes());
    // The sums of a month know the senders.
    story.run(["usage", "--rotate", "-q"]).stdout("");
    assert_eq!(
        text(&ledger).matches("\"cause\":\"sum\"").count(),
        0,
        "each is the only one of its month"
    );
    let more = call("2025-09-03", "telegram:-9", Some("telegram:8"));
    write(&ledger, (more + &lines.concat()).as_bytes());
    story.run(["usage", "--rotate"]).stdout_has("1 fewer line");
    let list = remove(&story, ["--sender", "telegram:7"]);
    assert!(list.contains("removed ~/.nanobot/workspace/sessions/telegram_7.jsonl\n"), "{list}");
    assert!(list.contains("removed ~/.nanobot/workspace/sessions/telegram_-5.jsonl\n"), "{list}");
    assert!(
        list.contains("kept ~/.nanobot/workspace/sessions/telegram_-9.jsonl: others wrote"),
        "{list}"
    );
    assert!(is_there("telegram_-9") && !is_there("telegram_7") && !is_there("telegram_-5"));
    // Sums of earlier releases do not.
    let list = remove(&story, ["--sender", "slack:U7"]);
    assert!(
        list.contains("kept ~/.nanobot/workspace/sessions/slack_C1.jsonl: others wrote"),
        "{list}"
    );
    assert!(is_there("slack_C1"));
}

#[test]
fn voice_messages_are_removed_with_their_texts() {
    let (story, telegram) = telegram_story();
    let story = story
        .set("transcription.command", json!("echo my PIN is 4711"))
        .set("channels.telegram.allowFrom", json!(["7", "8"]));
    story.server().always(says("Noted."));
    let send = |from: i64, id: &str| {
        telegram.add(json!({
            "from": { "id": from, "is_bot": false }, "chat": { "id": from, "type": "private" },
            "voice": { "file_id": id, "file_size": 23, "duration": 4 },
        }));
    };
    let media = || {
        let files = contents(&story).into_iter().map(|(path, _)| path);
        files.filter(|path| path.starts_with(home_file(&story, "media"))).count()
    };
    send(ANN, "f1");
    send(8, "f2");
    story.run(["channel", "poll"]).code();
    assert_eq!(media(), 4);
    let list = remove(&story, ["--sender", "telegram:7"]);
    assert_eq!(list.matches("removed ~/.nanobot/media/telegram/").count(), 2, "{list}");
    assert_eq!(media(), 2);
    // The inbox, which knew the recording, has been compacted.
    std::fs::remove_file(home_file(&story, "channels/telegram/inbox.jsonl")).unwrap();
    remove(&story, ["--session", "telegram:8"]);
    assert_eq!(media(), 0);
    // With its text, the recording goes too.
    send(8, "f3");
    story.run(["channel", "poll"]).code();
    assert_eq!(media(), 2);
    let ForgetRun { status, text } = forget(&story, &["PIN is 4711", "--yes"]);
    assert_eq!((status, media()), (0, 0), "{text}");
}

#[test]
fn the_session_of_a_pipe_is_removed_from_its_journal() {
    let story = Story::new();
    story.server().always(says("hi"));
    let serve = |session: &str, name: &str, flags: &str| {
        let line =
            json!({ "id": session, "session": session, "text": format!("PIN of {session}") });
        let mut shell = story.program("/bin/sh");
        let pipe = format!("echo '{line}' | {NANOBOT} serve pipe --name {name} {flags}");
        assert!(shell.args(["-c", &pipe]).output().unwrap().status.success());
    };
    serve("s1", "p", "");
    serve("bus:s2", "p", "");
    serve("s3", "q", "--any-session");
    let journal = |name: &str| text(&home_file(&story, &format!("pipes/{name}/inbox.jsonl")));
    // Another session of that name, of the command line.
    story.run(["agent", "-s", "s1", "-m", "x"]).stdout("hi\n");
    remove(&story, ["--session", "s1"]);
    assert!(journal("p").contains("PIN of s1"));
    for key in ["bus:s1", "bus:s2", "s3"] {
        let list = remove(&story, ["--session", key]);
        assert!(list.contains("/inbox.jsonl: "), "{key}: {list}");
    }
    assert!(!journal("p").contains("PIN of") && !journal("q").contains("PIN of"));
}

#[test]
fn a_removal_of_a_session_that_is_killed_leaves_no_attachment() {
    if !can_inject() {
        return;
    }
    let story = Story::new();
    let session = story.workspace().join("sessions/telegram_7.jsonl");
    let attachments =
        ["1-a.txt", "2-b.txt"].map(|name| home_file(&story, &format!("media/telegram/{name}")));
    let paths: Vec<PathBuf> = attachments.iter().chain([&session]).cloned().collect();
    let notes = attachments.clone().map(|path| {
        let content = format!("[file: {}]", path.display());
        json!({ "role": "user", "content": content }).to_string() + "\n"
    });
    for number in 1..=3 {
        write(&session, (session_text("telegram:7", 2) + &notes.concat()).as_bytes());
        attachments.iter().for_each(|path| write(path, b"x"));
        let arguments = ["forget", "--session", "telegram:7", "--yes", "-q"];
        let fault = ("unlink,unlinkat", "SIGKILL", number);
        let (result, is_killed) = run_with_fault(&story, &arguments, &paths, fault);
        result.signal();
        result.error_text();
        drop(result);
        let ForgetRun { text, .. } = forget(&story, &arguments[1..]);
        assert!(is_killed && paths.iter().all(|path| !path.exists()), "{number}: {text}");
    }
}

#[test]
fn attachments_that_stay_keep_their_session() {
    let story = Story::new();
    let session = story.workspace().join("sessions/telegram_7.jsonl");
    let attachment = home_file(&story, "media/telegram/1-a.txt");
    write(&attachment, b"x");
    let note = json!({ "role": "user", "content": format!("[file: {}]", attachment.display()) });
    write(&session, format!("{}{note}\n", session_text("telegram:7", 2)).as_bytes());
    // Its turn is running.
    let child = home_file(&story, "undo/1/journal.jsonl");
    let turn = json!({ "turn": { "turn": "t", "session": "telegram:7", "directory": "/", "from": "/", "time": "" } });
    write(&child, format!("{turn}\n").as_bytes());
    let journal = std::fs::File::open(&child).unwrap();
    journal.lock().unwrap();
    let ForgetRun { status, text: list } = forget(&story, &["--session", "telegram:7", "--yes"]);
    assert!(
        status == 75
            && list.contains("kept ~/.nanobot/workspace/sessions/telegram_7.jsonl: it tells of"),
        "{list}"
    );
    assert!(session.exists());
    drop(journal);
    remove(&story, ["--session", "telegram:7"]);
    assert!(!session.exists() && !attachment.exists() && !child.exists());
}

#[test]
fn copies_that_stay_are_named() {
    let (story, _telegram) = telegram_story();
    story.server().always(says("Understood."));
    story.run(["agent", "-s", "work", "-m", "my PIN is 4711"]).stdout("Understood.\n");
    story.run(["session", "fork", "work", "work2"]).stderr_has("copied");
    story.run(["session", "rm", "work", "-q"]);
    story.run(["agent", "-s", "work", "-m", "again"]).stdout("Understood.\n");
    write(&home_file(&story, "history/repl_history"), b"#V2\nmy PIN\n");
    write(&story.workspace().join("memory/HISTORY.md"), b"[2026-01-01 10:00] The PIN.\n");
    let list = remove(&story, ["--session", "work"]);
    for line in [
        "kept ~/.nanobot/workspace/sessions/work2.jsonl: a fork of it: `nanobot forget --session work2`\n",
        "kept ~/.nanobot/workspace/memory/HISTORY.md: entries about all sessions",
        "kept ~/.nanobot/history/repl_history: what was typed in all sessions",
        "removed ~/.nanobot/workspace/sessions/work.jsonl\n",
        "removed ~/.nanobot/workspace/sessions/.trash/",
    ] {
        assert!(list.contains(line), "{line}\n{list}");
    }
    let id = add_job(&story, &["-e", "1h", "--channel", "telegram", "--to", "7"]);
    write(
        &story.workspace().join("sessions/telegram_7.jsonl"),
        session_text("telegram:7", 2).as_bytes(),
    );
    write(&home_file(&story, "channels/telegram/contexts.json"), br#"{"7": "x"}"#);
    let list = remove(&story, ["--sender", "telegram:7"]);
    for line in [
        "kept ~/.nanobot/config.json: the sender may still write: `channels.telegram.allowFrom`\n"
            .to_owned(),
        format!(
            "kept ~/.nanobot/workspace/cron/jobs.json: a job sends its answers there: `nanobot cron edit {id}`\n"
        ),
        "kept ~/.nanobot/channels/telegram/contexts.json: once: data that the channel needs\n"
            .to_owned(),
    ] {
        assert!(list.contains(&line), "{line}\n{list}");
    }
    assert_eq!(files_with(&story, "word0."), Vec::<PathBuf>::new());
    let jobs: Value =
        serde_json::from_str(&text(&story.workspace().join("cron/jobs.json"))).unwrap();
    assert_eq!(jobs["jobs"][0]["id"], id.as_str());
    run_cron(&story, &["rm", &id]).text();
    assert!(Path::new(&home_file(&story, "config.json")).exists());
}
