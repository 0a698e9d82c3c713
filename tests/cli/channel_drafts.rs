//! Drafts: an answer in a direct chat is shown while it is written, in one message that becomes the answer.

use crate::channel::{ANN, send_signal, telegram_story};
use crate::chat_services::{OF_CONVERSATIONS, StartService, story_of};
use crate::push_servers::PushServer;
use crate::server::{Response, says, sends};
use crate::story::Story;
use crate::telegram_server::{TOKEN, TelegramServer};
use crate::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Child;
use std::sync::mpsc::Sender;

/// A reply that a test writes piece by piece.
struct Reply(Sender<Vec<u8>>);

impl Reply {
    /// The next request gets it.
    fn begin(story: &Story) -> Self {
        let (sender, stream) = Response::streaming();
        story.server().script([sends(stream)]);
        Self(sender)
    }

    fn write(&self, text: &str) {
        self.send(&json!({ "content": text }), &Value::Null);
    }

    fn end(self) {
        self.send(&json!({}), &json!("stop"));
        self.0.send(b"data: [DONE]\n\n".to_vec()).unwrap();
    }

    fn send(&self, delta: &Value, finish: &Value) {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        let event = json!({ "id": "c", "object": "chat.completion.chunk", "choices": [choice] });
        self.0.send(format!("data: {event}\n\n").into_bytes()).unwrap();
    }
}

fn story() -> (Story, TelegramServer) {
    let (story, telegram) = telegram_story();
    let story = story
        .set("channels.telegram.streaming", json!(true))
        .set("memory", json!({ "consolidate": "manual" }));
    (story, telegram)
}

fn start_poll(story: &Story, option: &str) -> Child {
    let mut command = story.command(["channel", "poll"]);
    if !option.is_empty() {
        command.arg(option);
    }
    story.start(&mut command)
}

fn edits(telegram: &TelegramServer) -> Vec<String> {
    let calls = telegram.calls("editMessageText").into_iter();
    calls.map(|call| call.body["text"].as_str().unwrap().to_owned()).collect()
}

/// The lines of the journal that record a draft.
fn draft_records(story: &Story) -> Vec<Value> {
    let path = story.home().join(".nanobot/channels/telegram/inbox.jsonl");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["type"] == "draft").collect()
}

#[test]
fn a_draft_is_recorded_then_changed_and_becomes_the_answer() {
    let (story, telegram) = story();
    let reply = Reply::begin(&story);
    telegram.message(ANN, "hi");
    let child = start_poll(&story, "");
    let (start, end) = TOKEN.split_at(9);
    reply.write(&format!("The key is {start}"));
    telegram.wait_for_calls("sendMessage", 1);
    assert_eq!(telegram.sent(), ["The key is …"]);
    until("the draft is recorded", || draft_records(&story).len() == 1);
    assert_eq!(draft_records(&story)[0]["remote"], "1001");
    assert!(edits(&telegram).is_empty());
    reply.write(&format!("{end} as **you** know"));
    telegram.wait_for_calls("editMessageText", 1);
    reply.write(" it.");
    reply.end();
    story.wait(child).text();
    let edits = edits(&telegram);
    assert_eq!(edits.last().unwrap(), "The key is *** as <b>you</b> know it.");
    assert!(edits.iter().all(|text| !text.contains(start)), "{edits:?}");
    assert!(telegram.calls("editMessageText").iter().all(|it| it.body["message_id"] == 1001));
    assert_eq!(telegram.sent().len(), 1);
    story.run(["channel", "poll"]);
    story.run(["channel", "inbox"]).stdout("");
    assert_eq!((telegram.sent().len(), story.requests().len()), (1, 1));
}

/// The text that comes before a call of a tool is no part of the answer.
#[test]
fn the_text_before_a_call_is_replaced() {
    let (story, telegram) = story();
    let reply = Reply::begin(&story);
    telegram.message(ANN, "what is here?");
    let child = start_poll(&story, "");
    reply.write("Let me look at it.");
    telegram.wait_for_calls("sendMessage", 1);
    let call = json!({ "index": 0, "id": "t1", "type": "function",
        "function": { "name": "list_dir", "arguments": "{\"path\":\".\"}" } });
    reply.send(&json!({ "tool_calls": [call] }), &Value::Null);
    let answer = Reply::begin(&story);
    reply.send(&json!({}), &json!("tool_calls"));
    drop(reply);
    answer.write("Nothing is here.");
    telegram.wait_for_calls("editMessageText", 1);
    answer.end();
    story.wait(child).text();
    assert_eq!(telegram.sent(), ["Let me look at …"]);
    let edits = edits(&telegram);
    assert_eq!((edits[0].as_str(), edits[1].as_str()), ("Nothing is …", "Nothing is here."));
}

/// The typing notice, which is renewed every four seconds, tells that the time of a draft has passed.
#[test]
fn a_group_and_a_chat_without_the_key_have_no_draft() {
    for in_group in [true, false] {
        let (story, telegram) = story();
        let story = story.set("channels.telegram.streaming", json!(in_group));
        let reply = Reply::begin(&story);
        if in_group {
            telegram.add(json!({
                "from": { "id": ANN, "is_bot": false }, "chat": { "id": -5, "type": "group" }, "text": "hi",
                "reply_to_message": { "message_id": 1, "from": { "id": 4242 }, "text": "hello" },
            }));
        } else {
            telegram.message(ANN, "hi");
        }
        let child = start_poll(&story, "");
        reply.write("Hello Ann and others.");
        story.server().wait_for_requests(1);
        let count = telegram.calls("sendChatAction").len();
        telegram.wait_for_calls("sendChatAction", count + 2);
        reply.end();
        story.wait(child).text();
        assert_eq!(telegram.sent(), ["Hello Ann and others."]);
        assert!(edits(&telegram).is_empty() && draft_records(&story).is_empty());
    }
}

#[test]
fn after_a_kill_the_next_run_turns_the_draft_into_the_answer() {
    let (story, telegram) = story();
    let reply = Reply::begin(&story);
    telegram.message(ANN, "hi");
    let mut child = start_poll(&story, "");
    reply.write("Half of it ");
    telegram.wait_for_calls("sendMessage", 1);
    until("the draft is recorded", || draft_records(&story).len() == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(reply);
    let story = story.script([says("All of it.")]);
    story.run(["channel", "poll"]);
    assert_eq!((telegram.sent().len(), edits(&telegram)), (1, vec!["All of it.".to_owned()]));
    story.run(["channel", "inbox"]).stdout("");
}

/// A draft that the user has removed: the answer is a message of its own.
#[test]
fn an_answer_does_not_need_its_draft() {
    let (story, telegram) = story();
    let reply = Reply::begin(&story);
    telegram.message(ANN, "hi");
    let child = start_poll(&story, "");
    reply.write("One two three.");
    telegram.wait_for_calls("sendMessage", 1);
    until("the draft is recorded", || draft_records(&story).len() == 1);
    let response = json!({ "ok": false, "error_code": 400, "description": "Bad Request: message to edit not found" });
    telegram.fail("editMessageText", 400, response);
    reply.end();
    story.wait(child).text();
    assert_eq!(telegram.sent(), ["One two …", "One two three."]);
    story.run(["channel", "inbox"]).stdout("");
}

#[test]
fn stop_marks_the_draft() {
    let (story, telegram) = story();
    let reply = Reply::begin(&story);
    telegram.message(ANN, "hi");
    let child = start_poll(&story, "--follow");
    reply.write("One two three.");
    telegram.wait_for_calls("sendMessage", 1);
    until("the draft is recorded", || draft_records(&story).len() == 1);
    telegram.message(ANN, "/stop");
    telegram.wait_for_calls("editMessageText", 1);
    telegram.wait_for_calls("sendMessage", 2);
    assert_eq!(edits(&telegram), ["(interrupted)"]);
    assert_eq!(telegram.sent()[1], "Stopped 1 task.");
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
}

#[test]
fn other_services_change_the_draft_too() {
    let feishu: StartService = || Box::new(PushServer::by_name("feishu"));
    for start in OF_CONVERSATIONS.into_iter().chain([feishu]) {
        let service = start();
        let name = service.facts().name;
        let story = story_of(&*service, 1)
            .set(&format!("channels.{name}.streaming"), json!(true))
            .set("memory", json!({ "consolidate": "manual" }));
        let reply = Reply::begin(&story);
        service.write_in(0, "hi");
        let child = start_poll(&story, "");
        reply.write("One two");
        until("the draft is shown", || !service.answers_in(0).is_empty());
        assert_eq!(service.answers_in(0), ["One …"], "{name}");
        reply.write(" three.");
        reply.end();
        story.wait(child).text();
        assert_eq!(service.answers_in(0), ["One two three."], "{name}");
        story.run(["channel", "inbox"]).stdout("");
    }
}
