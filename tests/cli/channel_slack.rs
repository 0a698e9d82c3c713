//! The Slack channel through the whole program, against a stand-in for the Web API on loopback.

use crate::channel::send_signal;
use crate::channel_adapter::{Reader, open};
use crate::server::{Ending, Response, says};
use crate::slack_server::{ANN, APP_TOKEN, BOT, SlackServer, refuse};
use crate::story::Story;
use crate::wait::until;
use nanobot_channel::Channel;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// A story after its first poll, in which only Ann is allowed.
fn slack_story() -> (Story, SlackServer) {
    let server = SlackServer::start();
    server.write("D1", ANN, "before the first look");
    server.write("C1", ANN, "<@UBOT> before the first look");
    let story = Story::new().set("channels", json!({ "slack": server.keys() }));
    story.run(["channel", "poll"]);
    (story, server)
}

fn connect(server: &SlackServer) -> Box<dyn Channel> {
    open("slack", &server.keys()).unwrap()
}

#[test]
fn an_answer_has_the_form_of_slack_and_marks_its_message() {
    let (story, server) = slack_story();
    let story = story.script([says("**Hello**, <!channel> & @here.")]);
    let stamp = server.write("D1", ANN, "what is 1 &lt; 2?");
    story.run(["channel", "poll"]);
    let answers = server.answers("D1");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["text"], "**Hello**, <\u{2060}!channel> & @\u{2060}here.");
    assert_eq!(answers[0]["thread_ts"], Value::Null);
    let content = story.requests()[0].last_content();
    assert!(content.contains("what is 1 < 2?"), "{content}");
    let posted = &server.calls("chat.postMessage")[0];
    assert_eq!(posted["unfurl_links"], false);
    let done = json!({ "channel": "D1", "timestamp": stamp, "name": "white_check_mark" });
    assert_eq!(server.calls("reactions.add").last(), Some(&done));
    story.run(["channel", "check", "slack"]).stdout_has("bot");
}

#[test]
fn an_idle_look_is_one_request_for_each_conversation() {
    let (story, server) = slack_story();
    let before = server.http.requests().len();
    story.run(["channel", "poll"]);
    let requests = server.http.requests().split_off(before);
    let is_history = |path: &str| path.starts_with("/api/conversations.history?");
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|it| is_history(&it.path)));
    assert!(story.requests().is_empty());
}

#[test]
fn a_mention_opens_a_thread_whose_replies_are_read() {
    let (story, server) = slack_story();
    let story = story.script([says("Yes?"), says("In the thread.")]);
    server.write("C1", ANN, "not for the bot");
    server.write("C1", "UEVE", "<@UBOT> hi");
    let root = server.write("C1", ANN, "<@UBOT> are you there?");
    story.run(["channel", "poll"]);
    let answers = server.answers("C1");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["thread_ts"], root.as_str());
    let reply = |user: &str, text: &str| {
        server.add(json!({ "channel": "C1", "user": user, "text": text, "thread_ts": root }))
    };
    reply("UEVE", "Ann means the <https://x.y|report>.");
    reply(ANN, "<@UBOT> what does she mean?");
    story.run(["channel", "poll"]);
    let answers = server.answers("C1");
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[1]["thread_ts"], root.as_str());
    let content = story.requests()[1].last_content();
    assert!(content.contains("Ann means the report (https://x.y)."), "{content}");
    let session = story.session(&format!("slack_C1_{root}.jsonl"));
    assert_eq!(session.iter().filter(|it| it["role"] == "user").count(), 2);
    story.run(["channel", "show", "slack"]).stdout_has("refused sender UEVE");
    // Nothing is new: one request for each conversation, and the list at most.
    let before = server.http.requests().len();
    story.run(["channel", "poll"]);
    assert!(server.http.requests().len() <= before + 3);
}

#[test]
fn policies_of_channels() {
    let check = |keys: Value, expect: &[&str]| {
        let server = SlackServer::start();
        let mut all = server.keys();
        for (key, value) in keys.as_object().unwrap() {
            all[key] = value.clone();
        }
        let channel = open("slack", &all).unwrap();
        let mut reader = Reader::after_first_look(&*channel);
        server.write("C1", ANN, "one");
        server.write("C1", ANN, "<@UBOT> two");
        server.write("D1", ANN, "three");
        server
            .add(json!({ "channel": "C1", "user": ANN, "text": "x", "subtype": "channel_topic" }));
        server.write("D1", BOT, "ours");
        server.add(
            json!({ "channel": "D1", "bot_id": "B7", "text": "bot", "subtype": "bot_message" }),
        );
        let messages = reader.poll_as(BOT, Duration::ZERO).unwrap();
        let rows = messages.iter().map(|it| {
            let marks = [(it.mentions_us, "!"), (it.from.is_bot, "*")];
            let marks = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| *mark);
            format!("{}{}", it.text.as_str(), marks.collect::<String>())
        });
        assert_eq!(rows.collect::<Vec<_>>(), expect, "{keys}");
    };
    check(json!({}), &["three", "bot*", "one", "two!"]);
    check(json!({ "groupRequireMention": true }), &["three", "bot*", "two!"]);
}

#[test]
fn an_answer_that_slack_does_not_take_is_sent_in_its_older_form() {
    let (story, server) = slack_story();
    let story = story.script([says("**a** < `b & c`, see [this](https://x.y)")]);
    server.write("D1", ANN, "plain");
    server.fail_next("chat.postMessage", refuse("invalid_arguments"));
    story.run(["channel", "poll"]);
    assert_eq!(server.answer_texts("D1")[0], "*a* &lt; `b &amp; c`, see <https://x.y|this>");
}

#[test]
fn failures_have_their_statuses() {
    let (story, server) = slack_story();
    let story = story.script([says("Hello.")]);
    let limited = |seconds: &str| {
        let body = json!({ "ok": false, "error": "ratelimited" });
        Response::json(429, &body).header("retry-after", seconds)
    };
    server.fail_next("conversations.history", limited("1"));
    server.fail_next("chat.postMessage", limited("300"));
    server.write("D1", ANN, "hi");
    story.run(["channel", "poll"]).status(75).error_text();
    let broken = Response::text(200, "application/json", "{").ending(Ending::Disconnect);
    server.fail_next("conversations.history", broken);
    story.run(["channel", "poll"]).error_text();
    assert_eq!(server.answer_texts("D1"), ["Hello."]);
    server.fail_next("users.conversations", refuse("missing_scope"));
    server.fail_next("conversations.history", refuse("missing_scope"));
    story.run(["channel", "poll"]).status(78).stderr_has("lacks the scope `channels:history`");
    story.run(["channel", "send", "slack", "C9", "x"]).status(65).stderr_has("channel_not_found");
}

#[test]
fn attachments_go_both_ways() {
    let (story, server) = slack_story();
    let story = story.script([says("A shopping list.")]).file("report.txt", "the report");
    let file = server.add_file("list.txt", "buy milk");
    server.add(json!({ "channel": "D1", "user": ANN, "text": "what is this?",
        "subtype": "file_share", "files": [file] }));
    story.run(["channel", "poll"]);
    let body = story.requests()[0].body.to_string();
    assert!(body.contains("buy milk"), "{body}");
    story.run(["channel", "send", "slack", ANN, "see", "-a", "report.txt"]).stdout_has("F9");
    assert_eq!(server.answer_texts("D1")[1], "see");
    assert_eq!(server.files()[1], "the report");
    let completed = &server.calls("files.completeUploadExternal")[0];
    assert_eq!(completed["channel_id"], "D1");
    assert_eq!(completed["files"][0]["title"], "report.txt");
    // The token goes to no other host.
    let file = nanobot_channel::RemoteFile {
        id: "https://slack.com.example.org/x".into(),
        ..Default::default()
    };
    let fetched = connect(&server).fetch(&file, &mut Vec::new(), 9);
    assert!(fetched.unwrap_err().to_string().contains("is not one of Slack"));
}

#[test]
fn a_poll_that_follows_answers_events_and_reconnects() {
    let (story, server) = slack_story();
    let story = story.set("channels.slack.appToken", json!(APP_TOKEN));
    story.server().always(says("Yes."));
    let mut command = story.command(["channel", "poll", "--follow"]);
    let child = story.start(&mut command);
    server.sockets.wait_for_connections(1);
    for (number, text) in ["one", "two", "three"].iter().enumerate() {
        let stamp = server.write("D1", ANN, text);
        until("the answer is sent", || server.answers("D1").len() == number + 1);
        if number != 1 {
            let id = json!(format!("e{stamp}"));
            server.sockets.wait_for_message(|message| message["envelope_id"] == id);
        }
        if number == 0 {
            server.sockets.send(&json!({ "type": "disconnect", "reason": "refresh_requested" }));
            server.sockets.wait_for_connections(2);
        }
    }
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
    assert_eq!(story.requests().len(), 3);
    assert!(server.sockets.received().iter().all(|it| it["envelope_id"].is_string()));
}

#[test]
fn a_reply_in_an_old_thread_is_read_after_a_failure() {
    let server = SlackServer::start();
    let root = server.write("D1", ANN, "root");
    // The root is on the second page of the history, which is not read.
    for number in 0..200 {
        server.write("D1", ANN, &number.to_string());
    }
    let mut keys = server.keys();
    keys["appToken"] = json!(APP_TOKEN);
    let channel = open("slack", &keys).unwrap();
    let mut reader = Reader::after_first_look(&*channel);
    assert!(reader.poll_as(BOT, Duration::from_millis(1)).unwrap().is_empty());
    server.sockets.wait_for_connections(1);
    server.fail_next("conversations.replies", refuse("internal_error"));
    server.add(json!({ "channel": "D1", "user": ANN, "text": "late", "thread_ts": root }));
    assert!(reader.poll_as(BOT, Duration::from_secs(600)).is_err());
    let messages = reader.poll_as(BOT, Duration::from_secs(600)).unwrap();
    let texts: Vec<&str> = messages.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(texts, ["late"]);
}
