//! `channel`: outages, rate limits, signals and kills, against the stand-in for Telegram.

use crate::channel::{
    ANN, count_lines, forget_answers, journal, journal_path, send_signal, telegram_story,
};
use crate::server::{Responder, Response, fails, replies, says, sends};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use crate::wait;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

/// An answer of the service that asks to wait.
fn rate_limit(secs: u64) -> Value {
    json!({ "ok": false, "error_code": 429, "description": "Too Many Requests",
        "parameters": { "retry_after": secs } })
}

/// A turn whose provider is overloaded in all attempts.
fn outage() -> [Responder; 4] {
    std::array::from_fn(|_| fails(429, "slow"))
}

/// A reply that the output limit has cut.
fn cut(text: &str) -> Responder {
    replies(json!({ "role": "assistant", "content": text }), "length")
}

/// The chats of the sent messages, in order.
fn chats(telegram: &TelegramServer) -> Vec<Value> {
    let calls = telegram.calls("sendMessage").into_iter();
    calls.map(|call| call.body["chat_id"].clone()).collect()
}

fn start_poll(story: &Story, flags: &[&str]) -> Child {
    let arguments = ["channel", "poll"].iter().chain(flags);
    story.command(arguments).spawn().unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits until the journal contains a text.
fn wait_for_line(story: &Story, text: &str) {
    let path = journal_path(story);
    wait::until_change_in(path.parent().unwrap(), || journal(story).contains(text));
}

#[test]
fn a_file_that_waits_is_sent_as_it_was() {
    let (story, telegram) = telegram_story();
    let story = story.file("report.txt", "numbers");
    let file = story.dir().join("report.txt");
    let body = json!({ "ok": false, "error_code": 502, "description": "Bad Gateway" });
    for _ in 0..3 {
        telegram.fail("sendDocument", 502, body.clone());
    }
    let send = ["channel", "send", "telegram", "9", "-a", "report.txt"];
    story.run(send).status(69).stderr_has("waits to be sent");
    std::fs::write(&file, "other").unwrap();
    std::fs::remove_file(&file).unwrap();
    story.run(["channel", "poll"]);
    let sent = telegram.calls("sendDocument");
    assert_eq!(sent.len(), 4);
    let raw = &sent[3].raw;
    assert!(raw.contains("filename=\"report.txt\"") && raw.contains("numbers"));
    let copies = story.home().join(".nanobot/media/telegram");
    assert_eq!(std::fs::read_dir(copies).unwrap().count(), 0);
}
