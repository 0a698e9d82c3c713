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
fn an_outage_of_the_model_gives_no_message_up() {
    let (story, telegram) = telegram_story();
    // The attempts are one turn of the sender.
    let story = story.set("channels.perSenderPerHour", json!(2));
    telegram.message(ANN, "hi");
    for _ in 0..4 {
        story.server().script(outage());
        story.run(["channel", "poll"]).status(75).error_text();
    }
    assert!(telegram.sent().is_empty());
    let story = story.script([says("Now."), says("Again.")]);
    story.run(["channel", "poll"]);
    telegram.message(ANN, "more");
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Now.", "Again."]);
    let log = std::fs::read_to_string(story.workspace().join("sessions/telegram_7.jsonl")).unwrap();
    assert_eq!(log.matches("\"hi\"").count(), 1, "the turn went on: {log}");
}

#[test]
fn a_message_that_is_too_old_after_an_outage_is_given_up() {
    let (story, telegram) = telegram_story();
    telegram.message(ANN, "hi");
    let story = story.script(outage());
    story.run(["channel", "poll"]).status(75).error_text();
    // A day later.
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-03T03:04:06Z");
    let reason = "all attempts failed until it was too old";
    let report = format!("a message in telegram:7 was not answered: {reason}");
    story.run(["channel", "poll"]).status(1).stderr_has(&report);
    assert_eq!(telegram.sent(), [format!("I could not answer this message: {reason}.")]);
    assert_eq!(story.requests().len(), 4);
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent().len(), 1);
}

#[test]
fn a_message_that_kills_each_poll_is_given_up() {
    let (story, telegram) = telegram_story();
    telegram.message(ANN, "hi");
    for attempt in 1..=2 {
        let (_sender, stream) = Response::streaming();
        story.server().script([sends(stream)]);
        let poll = start_poll(&story, &[]);
        story.server().wait_for_requests(attempt);
        kill(poll);
    }
    let report = "a message in telegram:7 was not answered: several attempts failed";
    story.run(["channel", "poll"]).status(1).stderr_has(report);
    assert_eq!(telegram.sent(), ["I could not answer this message: several attempts failed."]);
    assert_eq!(story.requests().len(), 2);
}

#[test]
fn a_turn_that_takes_too_long_is_reported() {
    let (story, telegram) = telegram_story();
    // The time may be over before the request.
    let (_sender, stream) = Response::streaming();
    story.server().always(sends(stream));
    let story = story.env("NANOBOT_TEST_CHAT_TIMEOUT", "2");
    telegram.message(ANN, "hi");
    let reason = "it took longer than 10 minutes";
    let report = format!("a message in telegram:7 was not answered: {reason}");
    story.run(["channel", "poll"]).status(1).stderr_has(&report);
    assert_eq!(telegram.sent(), [format!("I could not answer this message: {reason}.")]);
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent().len(), 1);
}

/// The answer of a poll that was killed before the journal had it.
#[test]
fn the_parts_of_a_cut_answer_are_joined_after_a_kill() {
    let check = |script: Vec<Responder>, status: i32, expect: &str| {
        let (story, telegram) = telegram_story();
        let count = script.len();
        let story = story.script(script);
        telegram.message(ANN, "count");
        telegram.stall("sendMessage");
        let poll = start_poll(&story, &[]);
        telegram.wait_for_calls("sendMessage", 1);
        kill(poll);
        forget_answers(&story);
        let result = story.run(["channel", "poll"]);
        result.status(status).error_text();
        assert_eq!(telegram.sent(), [expect, expect]);
        assert_eq!(story.requests().len(), count);
    };
    check(vec![cut("One, "), says("two.")], 0, "One, two.");
    let cuts = ["One, ", "two, ", "three, ", "four"].map(cut);
    check(cuts.into(), 3, "One, two, three, four");
}

#[test]
fn a_stopped_turn_stays_stopped_after_a_kill() {
    let (story, telegram) = telegram_story();
    let (_sender, stream) = Response::streaming();
    story.server().script([sends(stream)]);
    telegram.message(ANN, "count to a million");
    let poll = start_poll(&story, &["--wait", "60"]);
    story.server().wait_for_requests(1);
    telegram.stall("sendMessage");
    telegram.message(ANN, "/stop");
    telegram.wait_for_calls("sendMessage", 1);
    kill(poll);
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Stopped 1 task.", "Stopped 1 task."]);
    assert_eq!(story.requests().len(), 1);
}

/// A message that is reported as stopped gets no answer, and one that is answered is not reported as stopped.
#[test]
fn stop_claims_nothing_for_a_turn_that_is_answered() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Done.")]);
    telegram.message(ANN, "hi");
    telegram.stall("sendMessage");
    let poll = start_poll(&story, &["--wait", "60"]);
    telegram.wait_for_calls("sendMessage", 1);
    telegram.message(ANN, "/stop");
    wait_for_line(&story, "No active task to stop.");
    kill(poll);
    assert_eq!(count_lines(&story, "dropped"), 0);
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Done.", "Done.", "No active task to stop."]);
}

#[test]
fn stop_does_not_give_up_an_older_message() {
    let (story, telegram) = telegram_story();
    let (_sender, stream) = Response::streaming();
    story.server().script(outage());
    story.server().script([sends(stream), says("Older.")]);
    telegram.message(ANN, "older");
    let mut poll = start_poll(&story, &["--wait", "60"]);
    wait_for_line(&story, "\"ended\":true");
    telegram.message(ANN, "newer");
    story.server().wait_for_requests(5);
    telegram.message(ANN, "/stop");
    telegram.wait_for_calls("sendMessage", 1);
    assert_eq!(telegram.sent(), ["Stopped 1 task."]);
    send_signal(&poll, Signal::TERM);
    poll.wait().unwrap();
    let waiting: Value = story.run(["channel", "inbox", "--json"]).json();
    assert_eq!(waiting["state"], "unanswered");
    story
        .run(["channel", "retry", waiting["id"].as_str().unwrap()])
        .status(75)
        .stderr_has("waits for its answer");
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Stopped 1 task.", "Older."]);
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
    let calls = telegram.calls("sendDocument");
    assert_eq!(calls.len(), 4);
    let raw = &calls[3].raw;
    assert!(raw.contains("filename=\"report.txt\"") && raw.contains("numbers"));
    let copies = story.home().join(".nanobot/media/telegram");
    assert_eq!(std::fs::read_dir(copies).unwrap().count(), 0);
}

#[test]
fn a_rate_limit_of_one_chat_holds_no_other_up() {
    let (story, telegram) = telegram_story();
    let story = story
        .set("channels.telegram.allowFrom", json!(["7", "8"]))
        .script([says("For Ann."), says("For Bob.")]);
    telegram.fail("sendMessage", 429, rate_limit(600));
    telegram.message(ANN, "hi");
    let poll = start_poll(&story, &["--follow"]);
    telegram.wait_for_calls("sendMessage", 1);
    // Each message of an unknown sender ends a look with nothing to do, after which waiting work is taken up.
    for _ in 0..5 {
        let calls = telegram.calls("getUpdates").len();
        telegram.message(9, "let me in");
        telegram.wait_for_calls("getUpdates", calls + 1);
    }
    telegram.message(8, "hi");
    telegram.wait_for_calls("sendMessage", 2);
    send_signal(&poll, Signal::TERM);
    let output = poll.wait_with_output().unwrap();
    assert_eq!(chats(&telegram), [7, 8]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.matches("rate limit of 600 s").count(), 1, "{errors}");
    // Another poll does not know of it.
    story.run(["channel", "poll"]);
    assert_eq!(chats(&telegram), [7, 8, 7]);
}

#[test]
fn a_rate_limit_beyond_the_end_of_a_poll_is_not_waited_for() {
    let (story, telegram) = telegram_story();
    telegram.fail("getUpdates", 429, rate_limit(30));
    let poll = story.run(["channel", "poll", "--wait", "10"]);
    poll.status(75).stderr_has("rate limit of 30 s");
    assert_eq!(telegram.calls("getUpdates").len(), 1);
    // One look has no end before it is done.
    telegram.fail("getUpdates", 429, rate_limit(30));
    story.run(["channel", "poll"]);
    assert_eq!(telegram.calls("getUpdates").len(), 3);
}

#[test]
fn a_rate_limit_of_zero_is_waited_for_a_second() {
    let (story, telegram) = telegram_story();
    for _ in 0..70 {
        telegram.fail("sendMessage", 429, rate_limit(0));
    }
    let send = story.run(["channel", "send", "telegram", "9", "hi"]);
    send.status(75).stderr_has("waits to be sent");
    assert_eq!(telegram.calls("sendMessage").len(), 61, "a minute in all");
}

/// The poll was killed after the code was on disk and before the journal had its message.
#[test]
fn a_code_of_a_killed_poll_is_sent_once() {
    let (story, telegram) = telegram_story();
    let story = story.set("channels.telegram.allowFrom", json!([]));
    // The time of a story is 2026-01-02T03:04:05Z.
    let code = json!({ "channel": "telegram", "sender_id": "8",
        "created_at": 1_767_323_044, "expires_at": 1_767_323_644 });
    let pairing = json!({ "pending": { "ABCD-EFGH": code } }).to_string();
    std::fs::write(story.home().join(".nanobot/pairing.json"), pairing).unwrap();
    telegram.message(8, "let me in");
    telegram.message(8, "hello?");
    for _ in 0..2 {
        story.run(["channel", "poll"]);
        let messages = telegram.sent();
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("code is ABCD-EFGH"), "{messages:?}");
        telegram.message(8, "again");
    }
}

#[test]
fn the_grace_period_bounds_the_sending_too() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Answer.")]);
    telegram.stall("sendMessage");
    telegram.message(ANN, "hi");
    let poll = start_poll(&story, &["--follow", "--grace", "1"]);
    telegram.wait_for_calls("sendMessage", 1);
    send_signal(&poll, Signal::TERM);
    let output = poll.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
    // The end of the poll says nothing about the service.
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Answer.", "Answer."]);
    assert_eq!(story.requests().len(), 1);
}

/// A turn that a signal has ended is no attempt that was killed.
#[test]
fn a_turn_may_be_ended_by_any_number_of_signals() {
    let (story, telegram) = telegram_story();
    telegram.message(ANN, "hi");
    for attempt in 1..=4 {
        let (_sender, stream) = Response::streaming();
        story.server().script([sends(stream)]);
        let mut poll = start_poll(&story, &["--follow", "--grace", "1"]);
        story.server().wait_for_requests(attempt);
        send_signal(&poll, Signal::TERM);
        poll.wait().unwrap();
    }
    let story = story.script([says("Answer.")]);
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Answer."]);
}

/// With both flags, `--wait` is the time to wait for another poll.
#[test]
fn a_poll_that_follows_listens_without_an_end() {
    let (story, telegram) = telegram_story();
    let mut poll = start_poll(&story, &["--follow", "--wait", "1"]);
    telegram.wait_for_calls("getUpdates", 1);
    assert_eq!(telegram.calls("getUpdates")[0].body["timeout"], 50);
    send_signal(&poll, Signal::TERM);
    poll.wait().unwrap();
}

#[test]
fn a_text_that_shows_nothing_is_not_sent() {
    let (story, telegram) = telegram_story();
    for text in ["```\n```", " \n "] {
        let send = story.run(["channel", "send", "telegram", "9", text]);
        send.status(66).stderr_has("nothing to send");
    }
    assert!(telegram.sent().is_empty());
    assert_eq!(journal(&story), "");
}
