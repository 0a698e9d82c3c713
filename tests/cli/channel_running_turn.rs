//! `channel`: messages that arrive while a turn of their chat runs go into it, once, also after a kill; edits of a message that is not
//! answered yet are taken, and the parts of one paste are one message.

use crate::channel::{ANN, journal_path, send_signal, telegram_story};
use crate::channel_approvals::STORY_TIME;
use crate::channel_weixin::WeixinServer;
use crate::chat_services::{ALL, StandIn, story_of};
use crate::fault_injection::{can_inject, chat_files, kill_at_each_write, run_with_fault};
use crate::server::{Request, Responder, Response, calls, fails, says, sends};
use crate::slack_server::APP_TOKEN;
use crate::story::{Story, write};
use crate::telegram_server::TelegramServer;
use crate::wait::{self, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;

/// A call that ends once the workspace has the file `go`.
fn waits_for_go() -> Responder {
    let command = "i=0; until [ -e go ] || [ $i -ge 300 ]; do i=$((i+1)); sleep 0.1; done";
    calls("exec", json!({ "command": command }))
}

fn go(story: &Story) {
    write(&story.workspace().join("go"), b"");
}

/// Waits until the journal of a channel contains a text.
fn wait_for_line(story: &Story, channel: &str, text: &str) {
    let directory = story.home().join(".nanobot/channels").join(channel);
    let read = || std::fs::read_to_string(directory.join("inbox.jsonl")).unwrap_or_default();
    wait::until_change_in(&directory, || read().contains(text));
}

/// A poll in whose turn for "first" a call runs, while the message "second thing" is in the journal.
fn poll_with_second(story: &Story, telegram: &TelegramServer) -> Child {
    telegram.message(ANN, "first");
    let child = story.start(&mut story.command(["channel", "poll", "--wait", "60"]));
    story.server().wait_for_requests(1);
    telegram.message(ANN, "second thing");
    wait_for_line(story, "telegram", "\"second thing\"");
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Nothing is left to answer, and nothing was answered twice.
fn assert_answered_once(story: &Story, telegram: &TelegramServer, answers: &[&str]) {
    let count = story.requests().len();
    story.run(["channel", "poll"]).text();
    assert_eq!(telegram.sent(), answers);
    assert_eq!(story.requests().len(), count);
    story.run(["channel", "inbox"]).stdout("");
    let seconds = story.last_request().raw.matches("second thing").count();
    assert_eq!(seconds, 1, "{}", story.last_request().raw);
}

#[test]
fn a_message_goes_into_the_running_turn_with_its_last_text() {
    for service in ALL.map(|start| start()) {
        let name = service.facts().name;
        if !["telegram", "matrix", "slack", "discord", "mattermost"].contains(&name) {
            continue;
        }
        let mut story = story_of(&*service, 1);
        if name == "slack" {
            story = story.set("channels.slack.appToken", json!(APP_TOKEN));
        }
        let story = story.script([waits_for_go(), says("Both.")]);
        let child = story.start(&mut story.command(["channel", "poll", "--follow"]));
        if let Some(sockets) = service.sockets() {
            sockets.wait_for_connections(1);
        }
        service.write_in(0, "first");
        story.server().wait_for_requests(1);
        service.write_in(0, "secnod");
        wait_for_line(&story, name, "secnod");
        let text = if service.edit_in(0, "second, corrected") {
            wait_for_line(&story, name, "second, corrected");
            "second, corrected"
        } else {
            "secnod"
        };
        go(&story);
        until("both are answered", || service.answers_in(0) == ["Both."]);
        send_signal(&child, Signal::TERM);
        assert_eq!(story.wait(child).signal(), Some(15), "{name}");
        assert_eq!(story.last_request().last_content(), text, "{name}");
        // The signal may have come before the delivery was recorded.
        story.run(["channel", "poll"]);
        story.run(["channel", "inbox"]).stdout("");
        // An answered message is not answered again.
        service.edit_in(0, "third");
        story.run(["channel", "poll"]);
        assert_eq!((story.requests().len(), service.answers_in(0).len()), (2, 1), "{name}");
    }
}

/// Stores "second thing" after the message in a journal, as another process does, unless it has it.
fn store_second(journal: &Path) {
    let lines = std::fs::read_to_string(journal).unwrap();
    if lines.contains("second thing") {
        return;
    }
    let line = lines.lines().find(|line| line.contains("\"first\"")).unwrap();
    let mut line: Value = serde_json::from_str(line).unwrap();
    line["message"]["id"] = json!("999");
    line["message"]["text"] = json!("second thing");
    let mut file = std::fs::OpenOptions::new().append(true).open(journal).unwrap();
    writeln!(file, "{line}").unwrap();
}

/// A model that makes a call in each turn and then names the messages that it answers. "second thing" comes during its first request.
fn naming_model(journal: PathBuf) -> Responder {
    Box::new(move |request: &Request| {
        store_second(&journal);
        let messages = request.messages();
        let is_answer = |it: &Value| it["role"] == "assistant" && it["tool_calls"].is_null();
        let turn = messages.rsplit(is_answer).next().unwrap_or_default();
        if turn.iter().all(|it| it["role"] != "tool") {
            return calls("list_dir", json!({}))(request);
        }
        let typed = || turn.iter().filter(|it| it["role"] == "user");
        let is_typed = |name: &&str| typed().any(|it| it["content"].to_string().contains(name));
        let names: Vec<&str> = ["first", "second"].into_iter().filter(is_typed).collect();
        says(&format!("Read {}.", names.join(" and ")))(request)
    })
}

/// Kills a poll whose turn a second message joins at the `n`-th call of a kind. Returns whether there was such a call.
fn kill_joined_at(kind: &str, n: usize) -> bool {
    let service = WeixinServer::start();
    let story = story_of(&service, 1);
    let session_file = service.facts().session_file;
    let paths = chat_files(&story, "weixin", session_file);
    story.server().always(naming_model(paths[0].clone()));
    service.write_in(0, "first");
    let fault = (kind, "SIGKILL", n);
    let (result, is_killed) = run_with_fault(&story, &["channel", "poll"], &paths, fault);
    result.text();
    result.error_text();
    result.code();
    drop(result);
    for _ in 0..2 {
        story.run(["channel", "poll"]);
    }
    story.run(["channel", "inbox"]).stdout("");
    let (answers, session) = (service.answers_in(0), story.session(session_file));
    let case = format!("{kind} {n}: {answers:?} {session:?}");
    for name in ["first", "second"] {
        let typed = session.iter().filter(|it| it["role"] == "user");
        let count = typed.filter(|it| it["content"].to_string().contains(name)).count();
        assert_eq!(count, 1, "{case}");
        assert_eq!(answers.iter().filter(|text| text.contains(name)).count(), 1, "{case}");
    }
    assert!(is_killed || answers == ["Read first and second."], "{case}");
    is_killed
}

#[test]
fn a_kill_at_any_write_of_a_turn_loses_no_message_and_answers_none_twice() {
    if can_inject() {
        let kills = kill_at_each_write(kill_joined_at);
        assert!(kills > 6, "only {kills} kills");
    }
}

#[test]
fn a_message_that_another_process_stores_goes_into_the_turn_and_stop_ends_both() {
    let (story, telegram) = telegram_story();
    let story = story.script([waits_for_go(), says("Both.")]);
    telegram.message(ANN, "first");
    let child = story.start(&mut story.command(["channel", "poll"]));
    story.server().wait_for_requests(1);
    store_second(&journal_path(&story));
    go(&story);
    story.wait(child).text();
    assert_answered_once(&story, &telegram, &["Both."]);

    let (story, telegram) = telegram_story();
    let (_sender, stream) = Response::streaming();
    let story = story.script([waits_for_go(), sends(stream)]);
    let child = poll_with_second(&story, &telegram);
    go(&story);
    story.server().wait_for_requests(2);
    telegram.message(ANN, "/stop");
    telegram.wait_for_calls("sendMessage", 1);
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
    assert_answered_once(&story, &telegram, &["Stopped 1 task."]);
}

#[test]
fn a_turn_that_an_outage_ends_is_repeated_with_what_has_joined_it() {
    let (story, telegram) = telegram_story();
    let story = story.script([waits_for_go()]);
    story.server().script(std::array::from_fn::<_, 4, _>(|_| fails(429, "slow")));
    story.server().script([says("Both.")]);
    let child = poll_with_second(&story, &telegram);
    go(&story);
    wait_for_line(&story, "telegram", "\"type\":\"done\"");
    kill(child);
    assert_answered_once(&story, &telegram, &["Both."]);
}

#[test]
fn a_hook_decides_about_each_message_before_its_turn() {
    let (story, telegram) = telegram_story();
    let hooks = json!({ "pre_turn": [{ "in": "sandbox", "command": "true" }] });
    let story = story.set("hooks", hooks);
    let story = story.script([waits_for_go(), says("First."), says("Second.")]);
    let child = poll_with_second(&story, &telegram);
    go(&story);
    until("both are answered", || telegram.sent() == ["First.", "Second."]);
    kill(child);
}

#[test]
fn the_parts_of_a_paste_are_one_message() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Read."), says("Short."), says("Late."), says("Two.")]);
    let poll = |texts: &[&str]| {
        texts.iter().for_each(|text| telegram.message(ANN, text));
        story.run(["channel", "poll"]).text();
        story.last_request().last_content()
    };
    let (full, spaced) = ("x".repeat(4096), "y".repeat(4000));
    // The rest looks like a command and like an answer.
    let content = poll(&[full.as_str(), spaced.as_str(), "/new or yes"]);
    assert!(content.contains(&format!("{full}{spaced}\n/new or yes")), "{content}");
    assert!(poll(&["a", "b"]).contains("a\n\nb"));
    // A rest that comes later is a message of its own.
    assert!(!poll(&["z"]).contains("xx"));
    // So is one that was sent much later, though it comes in the same batch.
    telegram.message(ANN, &full);
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" },
        "text": "much later", "date": STORY_TIME + 60,
    }));
    assert!(poll(&[]).contains("x\n\nmuch later"));
    assert_eq!(telegram.sent(), ["Read.", "Short.", "Late.", "Two."]);
    assert_eq!(story.requests().len(), 4);
}

#[test]
fn an_edit_of_a_waiting_message_replaces_its_text_and_makes_no_command() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("One."), says("Two."), says("Three.")]);
    let poll = |text: &str, edits: &[&str]| {
        telegram.message(ANN, text);
        edits.iter().for_each(|edit| telegram.edit_last(ANN, edit));
        story.run(["channel", "poll"]).text();
        story.last_request().last_content()
    };
    let content = poll("two cats", &["three cats", "/new", "yes", "four cats"]);
    assert!(content.contains("four cats") && !content.contains("two"), "{content}");
    telegram.message(ANN, "/id");
    telegram.edit_last(ANN, "please answer");
    story.run(["channel", "poll"]).text();
    assert!(telegram.sent().last().unwrap().contains("Your id: 7"), "{:?}", telegram.sent());
    // Another person cannot change it.
    telegram.message(ANN, "mine");
    telegram.edit_last(66, "theirs");
    story.run(["channel", "poll"]).text();
    let content = story.last_request().last_content();
    assert!(content.contains("mine") && !content.contains("theirs"), "{content}");
    // A text that may be one of several parts.
    let content = poll(&"y".repeat(4000), &["short"]);
    assert!(content.contains("yyy") && !content.contains("short"), "{content}");
    assert_eq!(story.requests().len(), 3);
}
