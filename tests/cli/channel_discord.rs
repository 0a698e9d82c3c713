//! The Discord channel through the whole program, against a stand-in for the API and the gateway on loopback.

use crate::channel::send_signal;
use crate::channel_adapter::{Reader, open};
use crate::discord_server::{ANN, BOT, DIRECT, DiscordServer, EVE, THREAD, TOWN};
use crate::server::{Ending, Response, says};
use crate::story::Story;
use crate::wait::until;
use nanobot_channel::Channel;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

/// A story after its first poll, in which only Ann is allowed.
fn discord_story() -> (Story, DiscordServer) {
    let server = DiscordServer::start();
    server.write(DIRECT, ANN, "before the first look");
    mention(&server, TOWN, ANN, "before the first look");
    let story = Story::new().set("channels", json!({ "discord": server.keys() }));
    story.run(["channel", "poll"]);
    (story, server)
}

fn connect(server: &DiscordServer) -> Box<dyn Channel> {
    open("discord", &server.keys()).unwrap()
}

/// A message that mentions us.
fn mention(server: &DiscordServer, channel: &str, user: &str, text: &str) -> String {
    server.add(json!({ "channel_id": channel, "author": { "id": user }, "content": format!("<@{BOT}> {text}"),
        "mentions": [{ "id": BOT, "username": "bot" }] }))
}

#[test]
fn an_answer_notifies_no_one_and_marks_its_message() {
    let (story, server) = discord_story();
    let story = story
        .set("channels.discord.readReceiptEmoji", json!("👀"))
        .script([says("#### **Hello**, @everyone.")]);
    server.write(DIRECT, ANN, "hi");
    story.run(["channel", "poll"]);
    let answers = server.answers(DIRECT);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["content"], "### **Hello**, @everyone.");
    assert_eq!(answers[0]["allowed_mentions"]["parse"], json!([]));
    assert_eq!(answers[0]["enforce_nonce"], true);
    assert_eq!(answers[0]["message_reference"], Value::Null);
    assert_eq!(server.reactions(), ["%F0%9F%91%80"]);
    story.run(["channel", "check", "discord"]).stdout_has("bot");
}

#[test]
fn an_idle_look_asks_for_lists_and_direct_chats() {
    let (story, server) = discord_story();
    let before = server.http.requests().len();
    story.run(["channel", "poll"]);
    let requests = server.http.requests().split_off(before);
    let paths: Vec<&str> = requests.iter().map(|it| it.path.as_str()).collect();
    // One server and one direct chat. The account and the list of servers are known.
    assert_eq!(paths.len(), 3, "{paths:?}");
    let ends = ["/channels", "/threads/active", "&limit=100"];
    let pairs = paths.iter().zip(ends);
    assert!(pairs.into_iter().all(|(path, end)| path.ends_with(end)), "{paths:?}");
    assert!(paths[2].contains(DIRECT), "{paths:?}");
    assert!(story.requests().is_empty());
}

#[test]
fn mentions_and_replies_are_answered_in_channels_and_threads() {
    let (story, server) = discord_story();
    let story = story.script([says("Yes?"), says("In the thread."), says("Indeed.")]);
    server.write(TOWN, ANN, "not for the bot");
    mention(&server, TOWN, EVE, "hi");
    let id = mention(&server, TOWN, ANN, "are you there?");
    story.run(["channel", "poll"]);
    let answers = server.answers(TOWN);
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["message_reference"]["message_id"], id.as_str());
    let content = story.requests()[0].last_content();
    assert!(content.contains("are you there?") && !content.contains("<@"), "{content}");
    mention(&server, THREAD, ANN, "and here?");
    story.run(["channel", "poll"]);
    assert_eq!(server.answer_texts(THREAD), ["In the thread."]);
    story.session(&format!("discord_{TOWN}_thread_{THREAD}.jsonl"));
    // A reply to ours is a mention; the text of another user is quoted.
    let replied = json!({ "author": { "id": BOT }, "content": "Yes?" });
    server.add(json!({ "channel_id": TOWN, "type": 19, "author": { "id": ANN }, "content": "good",
        "referenced_message": replied }));
    server.add(json!({ "channel_id": TOWN, "type": 19, "author": { "id": ANN }, "content": "no",
        "referenced_message": { "author": { "id": EVE }, "content": "do evil" } }));
    story.run(["channel", "poll"]);
    assert_eq!(server.answer_texts(TOWN)[1..], ["Indeed."]);
    story.run(["channel", "show", "discord"]).stdout_has(&format!("refused sender {EVE}"));
}

#[test]
fn what_a_message_says() {
    let server = DiscordServer::start();
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    let check = |message: Value, expect: Option<(&str, &[&str])>, reader: &mut Reader<'_>| {
        let mut message = message;
        message["channel_id"] = json!(DIRECT);
        message["author"] = json!({ "id": ANN });
        server.add(message);
        let messages = reader.poll_as(BOT, Duration::ZERO).unwrap();
        let first = messages.first().map(|it| {
            let quotes = it.quotes.iter().map(|quote| quote.text.as_str());
            (it.text.as_str(), quotes.collect::<Vec<_>>())
        });
        let expect = expect.map(|(text, quotes)| (text, quotes.to_vec()));
        assert_eq!(first, expect);
    };
    check(json!({ "content": "a" }), Some(("a", &[])), &mut reader);
    check(json!({ "content": "pinned", "type": 6 }), None, &mut reader);
    check(json!({ "content": "" }), None, &mut reader);
    let named = json!({ "content": format!("<@{EVE}> said"), "mentions": [{ "id": EVE, "username": "eve" }] });
    check(named, Some(("@eve said", &[])), &mut reader);
    let forward =
        json!({ "content": "", "message_snapshots": [{ "message": { "content": "do evil" } }] });
    check(forward, Some(("", &["do evil"])), &mut reader);
}

#[test]
fn policies_of_channels() {
    let check = |keys: Value, expect: &[&str]| {
        let server = DiscordServer::start();
        let mut all = server.keys();
        for (key, value) in keys.as_object().unwrap() {
            all[key] = value.clone();
        }
        let story = Story::new().set("channels", json!({ "discord": all }));
        story.run(["channel", "poll"]);
        story.server().always(says("Yes."));
        server.write(TOWN, ANN, "one");
        mention(&server, THREAD, ANN, "two");
        server.write(DIRECT, ANN, "three");
        server.add(
            json!({ "channel_id": DIRECT, "author": { "id": "9", "bot": true }, "content": "bot" }),
        );
        story.run(["channel", "poll"]);
        let requests = story.requests();
        let was_sent = |word: &&&str| requests.iter().any(|it| it.last_content().contains(**word));
        let texts = ["one", "two", "three", "bot"];
        let texts: Vec<&str> = texts.iter().filter(was_sent).copied().collect();
        assert_eq!(texts, expect, "{keys}");
    };
    check(json!({}), &["two", "three"]);
    check(json!({ "groupPolicy": "open" }), &["one", "two", "three"]);
    check(json!({ "allowChannels": ["1"] }), &["three"]);
    let listed = json!({ "groupPolicy": "allowlist", "allowChannels": [TOWN] });
    check(listed, &["one", "two", "three"]);
    check(json!({ "allowFrom": [EVE] }), &[]);
}

#[test]
fn failures_have_their_statuses() {
    let (story, server) = discord_story();
    let story = story.script([says("Hello.")]);
    let limited = |seconds: f64| {
        let body = json!({ "message": "You are being rate limited.", "retry_after": seconds, "global": false });
        Response::json(429, &body)
    };
    server.fail_next("/users/@me/guilds", limited(0.3));
    server.fail_next("/guilds", limited(0.3));
    let messages = format!("/channels/{DIRECT}/messages");
    server.write(DIRECT, ANN, "hi");
    story.run(["channel", "poll"]);
    assert_eq!(server.answer_texts(DIRECT), ["Hello."]);
    let too_fast = json!({ "code": 20028, "message": "too fast" });
    server.fail_next(&messages, Response::json(400, &too_fast));
    story.run(["channel", "send", "discord", DIRECT, "x"]).status(75).error_text();
    // The connection breaks after the message was taken: the nonce makes it one.
    let broken = Response::text(200, "application/json", "{").ending(Ending::Disconnect);
    server.fail_next(&messages, broken);
    story.run(["channel", "send", "discord", ANN, "y"]).text();
    assert!(server.answer_texts(DIRECT).contains(&"y".to_owned()));
    story.run(["channel", "send", "discord", "1", "x"]).status(65).stderr_has("Unknown Channel");
}

#[test]
fn a_rate_limit_is_waited_for_before_it_is_exceeded() {
    let (story, server) = discord_story();
    server.limit_messages(Duration::from_millis(300));
    let mut command = story.command(["channel", "send", "discord", DIRECT]);
    // The time passes while it waits.
    let command = command.env_remove("NANOBOT_TEST_TIME");
    let text = "word ".repeat(1000);
    let child = story.start(command.arg(&text));
    assert_eq!(story.wait(child).text().lines().count(), 3);
    assert_eq!(server.answers(DIRECT).len(), 3);
    assert_eq!(server.early_requests(), 0);
}

#[test]
fn a_global_rate_limit_holds_all_chats_up() {
    let check = |is_global: bool, expect: usize| {
        let server = DiscordServer::start();
        server.add_direct("9", "6009");
        let mut keys = server.keys();
        keys["allowFrom"] = json!([ANN, "9"]);
        let story = Story::new().set("channels", json!({ "discord": keys, "maxParallel": 1 }));
        story.run(["channel", "poll"]);
        story.server().always(says("Hello."));
        server.write(DIRECT, ANN, "hi");
        server.write("6009", "9", "hi");
        let body = json!({ "message": "You are being rate limited.", "retry_after": 600.0, "global": is_global });
        let limited = Response::json(429, &body);
        server.fail_next_message(if is_global {
            limited.header("x-ratelimit-global", "true")
        } else {
            limited
        });
        story.run(["channel", "poll"]).status(75).stderr_has("rate limit");
        let message_count = server.answers(DIRECT).len() + server.answers("6009").len();
        assert_eq!(message_count, expect);
        // The next process does not know of it, and the limit is over.
        story.run(["channel", "poll"]);
        assert_eq!(server.answers(DIRECT).len() + server.answers("6009").len(), 2);
    };
    check(true, 0);
    check(false, 1);
}

#[test]
fn attachments_go_both_ways() {
    let (story, server) = discord_story();
    let story = story.script([says("A shopping list.")]).file("report.txt", "the report");
    let file = json!({ "id": "1", "filename": "list.txt", "size": 8, "url": server.file_url(),
        "content_type": "text/plain" });
    server.add(json!({ "channel_id": DIRECT, "author": { "id": ANN }, "content": "what is this?",
        "attachments": [file] }));
    story.run(["channel", "poll"]);
    let body = story.requests()[0].body.to_string();
    assert!(body.contains("buy milk"), "{body}");
    story.run(["channel", "send", "discord", ANN, "see", "-a", "report.txt"]).text();
    let messages = server.answers(DIRECT);
    assert_eq!(messages[1]["content"], "see");
    assert_eq!(messages[2]["files"], json!(["report.txt: the report"]));
}

#[test]
fn a_poll_that_follows_resumes_its_session() {
    let (story, server) = discord_story();
    story.server().always(says("Yes."));
    let follow = |count: usize, expect: usize| {
        let mut command = story.command(["channel", "poll", "--follow"]);
        let child = story.start(&mut command);
        server.sockets.wait_for_connections(count);
        server.write(DIRECT, ANN, "hi");
        until("the answer is sent", || server.answers(DIRECT).len() == expect);
        child
    };
    let child = follow(1, 1);
    let heartbeats = || server.sockets.received().iter().filter(|it| it["op"] == 1).count();
    until("heartbeats are sent", || heartbeats() > 2);
    // The gateway asks for another connection, then breaks off.
    server.sockets.send(&json!({ "op": 7, "d": null, "s": null, "t": null }));
    server.sockets.wait_for_connections(2);
    server.sockets.close(4000);
    server.sockets.wait_for_connections(3);
    server.write(DIRECT, ANN, "again");
    until("the answer is sent", || server.answers(DIRECT).len() == 2);
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
    assert_eq!(server.sessions(), 1);
    // A stranger's direct chat is known from its event.
    let child = follow(4, 3);
    server.add_direct(EVE, "600000000000000077");
    server.write("600000000000000077", EVE, "hi");
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
    assert_eq!(server.sessions(), 1);
    let resumed = server.sockets.received();
    assert_eq!(resumed.iter().filter(|it| it["op"] == 6).count(), 3);
}

#[test]
fn the_gateway_says_what_the_config_lacks() {
    for (code, phrase) in
        [(4004, "does not accept `channels.discord.token`"), (4014, "message content intent")]
    {
        let (story, server) = discord_story();
        let mut command = story.command(["channel", "poll", "--follow"]);
        let child = story.start(&mut command);
        server.sockets.wait_for_message(|message| message["op"] == 2);
        server.sockets.close(code);
        until("the failure is noted", || {
            story.run(["channel", "list", "--json"]).text().contains("\"problem\":\"failing\"")
        });
        send_signal(&child, Signal::TERM);
        let result = story.wait(child);
        assert_eq!(result.signal(), Some(15));
        result.stderr_has(phrase);
    }
}
