//! The Mattermost channel through the whole program, against a server on loopback.

use crate::channel::send_signal;
use crate::channel_adapter::{Reader, open, text_part, to_chat};
use crate::mattermost_server::{ANN, BOT, MattermostServer};
use crate::server::{Response, says};
use crate::story::Story;
use crate::wait::until;
use nanobot_channel::Channel;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// A story after its first poll, in which only Ann is allowed.
fn mattermost_story() -> (Story, MattermostServer) {
    let server = MattermostServer::start();
    server.write("direct", ANN, "before the first look");
    server.write("town", ANN, "@bot before the first look");
    let story = Story::new().set("channels", json!({ "mattermost": server.keys() }));
    story.run(["channel", "poll"]);
    (story, server)
}

fn connect(server: &MattermostServer) -> Box<dyn Channel> {
    open("mattermost", &server.keys()).unwrap()
}

/// The texts of the new messages.
fn texts(reader: &mut Reader<'_>) -> Vec<String> {
    let messages = reader.poll_as("bot", Duration::ZERO).unwrap();
    messages.into_iter().map(|it| it.text.as_str().to_owned()).collect()
}

#[test]
fn an_answer_notifies_no_one_and_marks_its_message() {
    let (story, server) = mattermost_story();
    let story = story.script([says("**Hello**, @all and @ann.")]);
    let id = server.write("direct", ANN, "hi");
    story.run(["channel", "poll"]);
    let answers = server.answers("direct");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["message"], "**Hello**, @\u{2060}all and @ann.");
    assert_eq!(answers[0]["root_id"], Value::Null);
    let reaction = json!({ "user_id": BOT, "post_id": id, "emoji_name": "white_check_mark" });
    assert_eq!(server.reactions(), [reaction]);
    story.run(["channel", "check", "mattermost"]).stdout_has("bot");
}

#[test]
fn an_idle_look_is_one_request() {
    let (story, server) = mattermost_story();
    server.write("town", "eve", "not for the bot");
    story.run(["channel", "poll"]);
    let before = server.http.requests().len();
    story.run(["channel", "poll"]);
    assert_eq!(server.http.requests().len(), before + 1);
    assert!(story.requests().is_empty());
}

#[test]
fn a_mention_in_a_channel_opens_a_thread() {
    let (story, server) = mattermost_story();
    let story = story.script([says("Yes?"), says("In the thread.")]);
    server.write("town", ANN, "hi @bottle");
    server.write("town", "eve", "@bot hi");
    let root = server.write("town", ANN, "@bot, are you there?");
    story.run(["channel", "poll"]);
    let answers = server.answers("town");
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["root_id"], root.as_str());
    let content = story.requests()[0].last_content();
    assert!(content.contains(", are you there?") && !content.contains("@bot"), "{content}");
    // In the thread, others have written meanwhile.
    let reply = |user: &str, text: &str| {
        server
            .add(json!({ "channel_id": "town", "user_id": user, "message": text, "root_id": root }))
    };
    reply("eve", "Ann means the report.");
    reply(ANN, "not for the bot");
    reply(ANN, "@bot what does she mean?");
    story.run(["channel", "poll"]);
    let answers = server.answers("town");
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[1]["root_id"], root.as_str());
    let content = story.requests()[1].last_content();
    assert!(content.contains("Ann means the report."), "{content}");
    let name = format!("mattermost_town_{root}.jsonl");
    assert_eq!(story.session(&name).iter().filter(|it| it["role"] == "user").count(), 2);
    story
        .run(["channel", "show", "mattermost"])
        .stdout_has("refused sender eve (no user name) in chat town\n");
}

#[test]
fn policies_of_channels_and_threads() {
    let check = |keys: Value, expect: &[&str]| {
        let server = MattermostServer::start();
        server.add_channel("other", "P", "team2");
        let mut all = server.keys();
        for (key, value) in keys.as_object().unwrap() {
            all[key] = value.clone();
        }
        let story = Story::new().set("channels", json!({ "mattermost": all }));
        story.run(["channel", "poll"]);
        story.server().always(says("Yes."));
        let root = server.write("town", ANN, "one");
        server.add(
            json!({ "channel_id": "town", "user_id": ANN, "message": "two", "root_id": root }),
        );
        server.write("other", ANN, "three");
        server.write("other", ANN, "@bot four");
        server.write("direct", ANN, "five");
        server.write("direct", "bob", "six");
        story.run(["channel", "poll"]);
        let mut contents: Vec<String> =
            story.requests().iter().map(|it| it.last_content()).collect();
        contents.iter_mut().for_each(|text| {
            let texts = ["six", "five", "four", "three", "two", "one"];
            *text = texts.iter().find(|word| text.contains(**word)).unwrap().to_string();
        });
        contents.sort();
        assert_eq!(contents, expect, "{keys}");
    };
    check(json!({}), &["five", "four"]);
    check(json!({ "teamId": "team" }), &["five"]);
    check(json!({ "groupPolicyInThread": "open" }), &["five", "four", "two"]);
    let open = json!({ "groupPolicy": "open", "groupPolicyInThread": "mention", "dm": { "enabled": false } });
    check(open, &["four", "one", "three"]);
    let listed = json!({ "groupPolicy": "allowlist", "groupAllowFrom": ["other"],
        "dm": { "policy": "allowlist", "allowFrom": ["bob"] } });
    check(listed, &["four", "six", "three"]);
    let named = json!({ "allowFrom": ["@annid-name"], "allowFromMatchMode": "username" });
    check(named, &["five", "four"]);
    check(json!({ "allowFrom": ["annid-name"] }), &[]);
}

#[test]
fn failures_have_their_statuses() {
    let (story, server) = mattermost_story();
    let story = story.script([says("Hello.")]);
    let limited = || {
        let body = json!({ "message": "limit exceeded" });
        Response::json(429, &body).header("x-ratelimit-reset", "1")
    };
    server.fail_next("/api/v4/users/me/channels", limited());
    server.write("direct", ANN, "hi");
    for _ in 0..4 {
        server.fail_next("/api/v4/posts", Response::text(503, "text/plain", "busy"));
    }
    story.run(["channel", "poll"]).status(69).stderr_has("a message waits to be sent");
    assert!(server.answers("direct").is_empty());
    story.run(["channel", "poll"]);
    assert_eq!(server.answer_texts("direct"), ["Hello."]);
    server.fail_next("/api/v4/users/me/channels", Response::text(404, "text/plain", "no page"));
    story.run(["channel", "poll"]).status(78).stderr_has("`channels.mattermost.serverUrl`");
    // A channel that we were removed from does not stop the others.
    server.write("town", ANN, "@bot hi");
    server.fail_next("/api/v4/channels/town", Response::json(403, &json!({ "message": "no" })));
    story.run(["channel", "poll"]);
}

#[test]
fn a_server_that_breaks_off_gets_no_answer_twice() {
    let (story, server) = mattermost_story();
    let story = story.script([says("Hello.")]);
    server.write("direct", ANN, "hi");
    let broken = Response::text(201, "application/json", "{\"id\":")
        .ending(crate::server::Ending::Disconnect);
    server.fail_next("/api/v4/posts", broken);
    story.run(["channel", "poll"]);
    assert_eq!(server.paths("/api/v4/posts").len(), 2);
    assert_eq!(server.answer_texts("direct"), ["Hello."]);
}

#[test]
fn attachments_go_both_ways() {
    let (story, server) = mattermost_story();
    let story = story.script([says("A shopping list.")]).file("report.txt", "the report");
    let file = server.add_file("list.txt", "text/plain", "buy milk");
    server.add(json!({ "channel_id": "direct", "user_id": ANN, "message": "what is this?",
        "metadata": { "files": [file] } }));
    story.run(["channel", "poll"]);
    let body = story.requests()[0].body.to_string();
    assert!(body.contains("buy milk"), "{body}");
    story
        .run(["channel", "send", "mattermost", "direct", "see", "-a", "report.txt"])
        .stdout_has("post");
    let answers = server.answers("direct");
    assert_eq!(answers[1]["message"], "see");
    assert_eq!(answers[2]["file_ids"], json!(["file1"]));
    let uploaded = &server.files()[1];
    assert!(uploaded.contains("the report") && uploaded.contains("filename=\"report.txt\""));
    // Recipients may be users.
    story.run(["channel", "send", "mattermost", "@ann", "one"]).text();
    story.run(["channel", "send", "mattermost", ANN, "two"]).text();
    assert_eq!(server.answer_texts("direct")[3..], ["one", "two"]);
    story
        .run(["channel", "send", "mattermost", "nobody", "three"])
        .status(65)
        .stderr_has("appropriate permissions");
}

#[test]
fn posts_that_the_server_left_out_are_paged_back() {
    let server = MattermostServer::start();
    let read = server.write("direct", ANN, "before");
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    let mut numbers: Vec<String> = (0..1330).map(|number| number.to_string()).collect();
    // Replies in two pages to a post that was read.
    let is_reply = |number: usize| matches!(number, 500 | 1000 | 1010);
    let write = |(number, text): (usize, &String)| {
        let root = if is_reply(number) { &*read } else { "" };
        server.add(json!({ "channel_id": "direct", "user_id": ANN, "message": text,
            "root_id": root }))
    };
    let ids: Vec<String> = numbers.iter().enumerate().map(write).collect();
    server.delete(&ids[700]);
    numbers.remove(700);
    assert_eq!(texts(&mut reader), numbers);
    let pages = server.paths("per_page=200");
    assert_eq!(pages.len(), 7, "{pages:?}");
    assert_eq!(texts(&mut reader), [""; 0]);
}

#[test]
fn posts_that_become_visible_late_are_read_once() {
    let server = MattermostServer::start();
    server.write("direct", ANN, "before");
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    for text in ["one", "two", "three", "four"] {
        server.write("direct", ANN, text);
    }
    assert_eq!(texts(&mut reader), ["one", "two", "three", "four"]);
    server.write_late("direct", ANN, "late");
    server.write("direct", ANN, "last");
    assert_eq!(texts(&mut reader), ["late", "last"]);
    assert_eq!(texts(&mut reader), [""; 0]);
}

#[test]
fn what_was_written_before_we_came_is_not_for_us() {
    let server = MattermostServer::start();
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    server.write("town", ANN, "one");
    assert_eq!(texts(&mut reader), ["one"]);
    server.write("new", ANN, "two");
    server.add(json!({ "channel_id": "new", "user_id": ANN, "type": "system_add_to_channel",
        "message": "ann added bot", "props": { "addedUserId": BOT } }));
    server.write("new", ANN, "three");
    server.add_channel("new", "O", "team");
    let mut reader = Reader { channel: &*channel, cursor: reader.cursor };
    let messages = reader.poll_as(BOT, Duration::ZERO).unwrap();
    let message_texts: Vec<&str> = messages.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(message_texts, ["three"]);
}

#[test]
fn a_poll_that_follows_answers_events_and_reconnects() {
    let (story, server) = mattermost_story();
    story.server().always(says("Yes."));
    let mut command = story.command(["channel", "poll", "--follow"]);
    let child = story.start(&mut command);
    server.sockets.wait_for_connections(1);
    for (number, text) in ["one", "two", "three"].iter().enumerate() {
        server.write("direct", ANN, text);
        until("the answer is sent", || server.answers("direct").len() == number + 1);
        if number == 0 {
            server.sockets.close(1001);
            server.sockets.wait_for_connections(2);
        }
    }
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
    assert_eq!(story.requests().len(), 3);
    let listed = server.paths("/users/me/channels").len();
    assert!(listed <= 5, "{listed}");
}

#[test]
fn a_part_is_sent_to_a_channel() {
    let server = MattermostServer::start();
    let result = connect(&server).send(&to_chat("direct"), &text_part("x"), "k");
    assert_eq!(result.unwrap(), "post0");
}

#[test]
fn a_part_that_was_sent_is_found() {
    let server = MattermostServer::start();
    let channel = connect(&server);
    for recipient in ["town", "@ann", ANN] {
        let destination = to_chat(recipient);
        let ids = channel.send(&destination, &text_part("x"), recipient).unwrap();
        assert_eq!(channel.find_sent(&destination, recipient).unwrap(), Some(ids));
        assert_eq!(channel.find_sent(&destination, "other").unwrap(), None);
    }
    for unknown in ["nobody", "@nobody"] {
        assert_eq!(channel.find_sent(&to_chat(unknown), "k").unwrap(), None);
    }
}
