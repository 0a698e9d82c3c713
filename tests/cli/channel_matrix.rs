//! The Matrix channel against a homeserver on loopback, and, with `tests/real/synapse`, against Synapse.

use crate::channel::telegram_story;
use crate::channel_adapter::{Reader, open, open_failure, text_part, to_chat};
use crate::chat_services::story_of;
use crate::matrix_server::{BOT, MatrixServer};
use crate::server::says;
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use nanobot_channel::table;
use nanobot_channel::{AttachmentKind, Batch, Channel, ChannelError, Identity, Part, PollRequest};
use nanobot_net::http::{Http, HttpMethod, HttpTimeouts, Network};
use serde_json::Value;
use serde_json::json;
use std::io::Read;
use std::time::Duration;

fn connect(server: &MatrixServer) -> Box<dyn Channel> {
    open("matrix", &server.keys()).unwrap()
}

#[test]
fn the_first_sync_answers_nothing_and_later_messages_come_once() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    server.write("!r:h", "@ann:h", "before");
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    server.write("!r:h", "@ann:h", "hello");
    server.push(
        "!r:h",
        "m.room.message",
        "@ann:h",
        json!({ "msgtype": "m.notice", "body": "bot" }),
    );
    let messages = reader.poll();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].text.as_str(), "hello");
    assert_eq!(messages[0].from.id, "@ann:h");
    assert!(messages[0].chat.is_direct);
    assert_eq!(table::find("matrix").unwrap().session_key(&messages[0].chat), "matrix:!r:h");
    channel.send(&to_chat("!r:h"), &text_part("hi"), "k").unwrap();
    assert_eq!(reader.texts(), [""; 0]);
    assert_eq!(channel.identity().unwrap().id, "@bot:h");
}

#[test]
fn a_room_to_which_a_third_user_is_invited_is_no_direct_chat() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    server.invite_others("!r:h", 1);
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    server.write("!r:h", "@ann:h", "hello");
    assert!(!reader.poll()[0].chat.is_direct);
}

#[test]
fn a_part_that_is_sent_again_is_one_event() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let first = channel.send(&to_chat("!r:h"), &text_part("hi"), "m1/0 x").unwrap();
    let again = connect(&server).send(&to_chat("!r:h"), &text_part("hi"), "m1/0 x").unwrap();
    assert_eq!(first, again);
    let answers = server.answers("!r:h");
    let expect = json!({ "msgtype": "m.text", "body": "hi", "m.mentions": {},
        "format": "org.matrix.custom.html", "formatted_body": "<p>hi</p>" });
    assert_eq!(answers, [expect]);
    channel.send(&to_chat("!r:h"), &text_part("hi"), "m1/1").unwrap();
    assert_eq!(server.answers("!r:h").len(), 2);
}

#[test]
fn messages_that_the_server_left_out_are_paged_back() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    server.write("!r:h", "@ann:h", "before");
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    let numbers: Vec<String> = (0..330).map(|number| number.to_string()).collect();
    for text in &numbers {
        server.write("!r:h", "@ann:h", text);
    }
    assert_eq!(reader.texts(), numbers);
    // Three pages, each to find it and to read it.
    assert_eq!(server.requests_with("/messages").len(), 6);
    assert_eq!(reader.texts(), [""; 0]);
}

/// However many there are, the oldest come first, in batches of a page, and the position moves after the last one.
#[test]
fn a_room_with_thousands_of_new_messages_is_read_page_by_page() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    let numbers: Vec<String> = (0..2530).map(|number| number.to_string()).collect();
    for text in &numbers {
        server.write("!r:h", "@ann:h", text);
    }
    let identity = Identity { id: BOT.to_owned(), name: BOT.to_owned() };
    let read = |limit: usize| {
        let mut batches: Vec<Batch> = Vec::new();
        let mut take = |batch: Batch| {
            batches.push(batch);
            if batches.len() == limit { Err(anyhow::anyhow!("the disk is full")) } else { Ok(()) }
        };
        let polled = channel.poll(PollRequest {
            identity: &identity,
            cursor: reader.cursor.as_ref(),
            wait: Duration::ZERO,
            store_batch: &mut take,
            report: &|text| panic!("{text}"),
            move_chat: &|moved| panic!("{moved:?}"),
        });
        assert_eq!(polled.is_err(), limit > 0);
        batches
    };
    let begun = read(2);
    assert_eq!(begun[0].messages[0].text.as_str(), "0");
    assert_eq!(Some(&begun[0].cursor), reader.cursor.as_ref());
    let batches = read(0);
    let texts = batches.iter().flat_map(|batch| &batch.messages);
    let texts: Vec<&str> = texts.map(|message| message.text.as_str()).collect();
    assert_eq!(texts, numbers);
    let sizes = batches.iter().map(|batch| batch.messages.len());
    assert!(sizes.max() <= Some(100));
    let last = batches.last().unwrap().cursor.clone();
    reader.cursor = Some(last);
    assert_eq!(reader.texts(), [""; 0]);
}

#[test]
fn a_long_history_is_read_from_the_invitation_on() {
    for is_invited in [true, false] {
        let server = MatrixServer::start();
        server.add_room("!r:h", 2);
        let channel = connect(&server);
        let mut reader = Reader::after_first_look(&*channel);
        let write = |text: &str, count: usize| {
            for number in 0..count {
                server.write("!r:h", "@ann:h", &format!("{text} {number}"));
            }
        };
        let enter = |membership: &str| {
            let content = json!({ "membership": membership });
            server.push_member("!r:h", BOT, content, &json!({}));
        };
        write("to others", 220);
        if is_invited {
            enter("invite");
            write("to us", 120);
        }
        enter("join");
        write("to us", 120);
        let texts = reader.texts();
        let expect = if is_invited { 240 } else { 120 };
        assert_eq!(texts.len(), expect, "{texts:?}");
        assert!(texts.iter().all(|text| text.starts_with("to us")));
    }
}

#[test]
fn only_allowed_users_can_invite() {
    let server = MatrixServer::start();
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    server.write("!new:h", "@ann:h", "to others");
    server.invite("!new:h", "@ann:h");
    server.invite("!bad:h", "@eve:h");
    server.write("!new:h", "@ann:h", "to us");
    assert_eq!(reader.texts(), [""; 0]);
    assert_eq!(server.requests_with("/join/"), ["/_matrix/client/v3/join/%21new%3Ah"]);
    assert_eq!(reader.texts(), ["to us"]);
}

#[test]
fn groups_have_mentions_and_threads() {
    let server = MatrixServer::start();
    server.add_room("!g:h", 3);
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    let content = json!({ "msgtype": "m.text", "body": "hi", "m.mentions": { "user_ids": ["@bot:h"] },
        "m.relates_to": { "rel_type": "m.thread", "event_id": "$root" } });
    server.push("!g:h", "m.room.message", "@ann:h", content);
    server.write("!g:h", "@ann:h", "to others");
    let messages = reader.poll();
    let facts: Vec<_> =
        messages.iter().map(|message| (message.chat.is_direct, message.mentions_us)).collect();
    assert_eq!(facts, [(false, true), (false, false)]);
    let mut destination = to_chat("!g:h");
    destination.chat.thread = messages[0].chat.thread.clone();
    destination.reply_facts = messages[0].reply_facts.clone();
    channel.send(&destination, &text_part("hello"), "k").unwrap();
    let expect = json!({ "rel_type": "m.thread", "event_id": "$root", "is_falling_back": true,
        "m.in_reply_to": { "event_id": messages[0].id } });
    assert_eq!(server.answers("!g:h")[0]["m.relates_to"], expect);
    channel.show_typing(&destination);
    assert_eq!(server.requests_with("/typing/").len(), 1);
}

#[test]
fn an_encrypted_room_is_told_once() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    let before = reader.cursor.clone();
    server.push("!r:h", "m.room.encrypted", "@eve:h", json!({ "ciphertext": "x" }));
    assert_eq!(reader.texts(), [""; 0]);
    assert_eq!(server.answers("!r:h").len(), 0);
    server.push("!r:h", "m.room.encrypted", "@ann:h", json!({ "ciphertext": "x" }));
    assert_eq!(reader.texts(), [""; 0]);
    server.push("!r:h", "m.room.encrypted", "@ann:h", json!({ "ciphertext": "y" }));
    assert_eq!(reader.texts(), [""; 0]);
    // As after a crash before the position was written.
    reader.cursor = before;
    assert_eq!(reader.texts(), [""; 0]);
    assert_eq!(server.answers("!r:h").len(), 1);
}

#[test]
fn failures_have_their_causes() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let send = |room_id: &str, key: &str| channel.send(&to_chat(room_id), &text_part("hi"), key);
    let limit =
        |pause: u64| (429, json!({ "errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": pause }));
    server.fail_next([limit(4241), (502, json!({}))]);
    send("!r:h", "k1").unwrap();
    server.fail_next([limit(120_000)]);
    assert!(
        matches!(send("!r:h", "k2"), Err(ChannelError::RateLimited(limit, _)) if limit.0.as_secs() == 120)
    );
    server.fail_next([(500, json!({})), (500, json!({})), (500, json!({}))]);
    assert!(matches!(send("!r:h", "k3"), Err(ChannelError::Unavailable(_))));
    assert!(matches!(send("!gone:h", "k4"), Err(ChannelError::RecipientRefused(_))));
    assert!(matches!(send("@ann:h", "k5"), Err(ChannelError::Undeliverable(_))));
    let too_large = || (413, json!({ "errcode": "M_TOO_LARGE" }));
    server.fail_next([too_large()]);
    send("!r:h", "k6").unwrap();
    let plain = json!({ "msgtype": "m.text", "body": "hi", "m.mentions": {} });
    assert_eq!(server.answers("!r:h").last(), Some(&plain));
    server.fail_next([too_large(), too_large()]);
    assert!(matches!(send("!r:h", "k7"), Err(ChannelError::Undeliverable(_))));
}

#[test]
fn a_page_of_a_proxy_is_neither_a_sent_message_nor_nothing_new() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let base = server.keys()["homeserver"].clone();
    let base = base.as_str().unwrap();
    let send = || channel.send(&to_chat("!r:h"), &text_part("hi"), "k");
    for body in [json!("<html>Please log in</html>"), json!({})] {
        server.fail_next([(200, body)]);
        let failed = send();
        assert!(
            matches!(&failed, Err(ChannelError::Unavailable(cause)) if cause.contains(base)),
            "{failed:?}"
        );
    }
    send().unwrap();
    assert_eq!(server.answers("!r:h").len(), 1);
    let mut reader = Reader::after_first_look(&*channel);
    for text in 0..60 {
        server.write("!r:h", "@ann:h", &text.to_string());
    }
    // The list of messages before those of the synchronisation.
    server.fail_history_next([(200, json!("<html>Please log in</html>"))]);
    assert_eq!(reader.failure(), 69);
    assert_eq!(reader.texts().len(), 60);
}

#[test]
fn a_rejected_token_is_not_tried_again() {
    let server = MatrixServer::start();
    let mut keys = server.keys();
    keys["accessToken"] = json!("wrong");
    let channel = open("matrix", &keys).unwrap();
    let mut reader = Reader { channel: &*channel, cursor: None };
    assert_eq!(reader.failure(), 77);
    assert_eq!(server.http.requests().len(), 1);
    assert_eq!(open_failure("matrix", &json!({})), 78);
    keys["homeserver"] = json!("http://matrix.example.org");
    assert_eq!(open_failure("matrix", &keys), 78);
}

#[test]
fn a_wait_ends_with_the_first_message() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.http.wait_for_requests(2);
            server.write("!r:h", "@ann:h", "hello");
        });
        let messages = reader.poll_for(Duration::from_secs(600)).unwrap();
        assert_eq!(messages[0].text.as_str(), "hello");
    });
}

#[test]
fn files_go_both_ways() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "buy milk").unwrap();
    let part = Part { file: Some(file), ..Part::default() };
    channel.send(&to_chat("!r:h"), &part, "k").unwrap();
    let message = server.answers("!r:h").remove(0);
    assert_eq!((&message["msgtype"], &message["url"]), (&json!("m.file"), &json!("mxc://h/0")));
    let mut reader = Reader::after_first_look(&*channel);
    server.push("!r:h", "m.room.message", "@ann:h", message);
    let received = reader.poll().remove(0).files.remove(0);
    assert_eq!((received.name.as_str(), received.kind), ("notes.txt", AttachmentKind::File));
    assert_eq!(received.size_bytes, Some(8));
    for (limit, content, is_complete) in [(8, "buy milk", true), (3, "buy", false)] {
        let mut into = Vec::new();
        assert_eq!(channel.fetch(&received, &mut into, limit).unwrap(), is_complete);
        assert_eq!(into, content.as_bytes());
    }
}

#[test]
fn a_poll_answers_allowed_users_in_both_forms() {
    let server = MatrixServer::start();
    let story = story_of(&server, 1).script([says("**Hi** Ann")]);
    server.write("!r0:h", "@ann:h", "hello");
    server.write("!r0:h", "@eve:h", "me too");
    story.run(["channel", "poll"]);
    let answers = server.answers("!r0:h");
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(answers[0]["formatted_body"], "<p><b>Hi</b> Ann</p>");
    assert_eq!(answers[0]["body"], "Hi Ann");
}

/// The status is that of the channel that is broken.
#[test]
fn a_broken_channel_does_not_hold_the_others_up() {
    let check = |status: i32, break_it: &dyn Fn(&TelegramServer)| {
        let server = MatrixServer::start();
        server.add_room("!r:h", 2);
        let (story, telegram) = telegram_story();
        let story = story.set("channels.matrix", server.keys()).script([says("Yes.")]);
        story.run(["channel", "poll"]);
        server.write("!r:h", "@ann:h", "hello");
        break_it(&telegram);
        story.run(["channel", "poll"]).status(status).stderr_has("channel telegram");
        assert_eq!(server.answers("!r:h").len(), 1, "{status}");
    };
    let error = |code: u16| json!({ "ok": false, "error_code": code, "description": "no" });
    check(77, &|it| it.fail("getUpdates", 401, error(401)));
    check(69, &|it| {
        (0..3).for_each(|_| it.fail("getUpdates", 502, error(502)));
    });
}

/// With a pairing, an invitation to a direct chat is accepted, and the sender gets a code there.
#[test]
fn unknown_senders_are_paired_in_direct_chats() {
    let server = MatrixServer::start();
    let story = Story::new()
        .set("channels", json!({ "matrix": server.keys() }))
        .set("channels.matrix.allowFrom", json!([]));
    story.run(["channel", "poll"]);
    server.invite("!r:h", "@eve:h");
    story.run(["channel", "poll"]);
    server.write("!r:h", "@eve:h", "hello");
    story.run(["channel", "poll"]);
    let answers = server.answers("!r:h");
    assert_eq!(answers.len(), 1, "{answers:?}");
    let text = answers[0]["body"].as_str().unwrap();
    assert!(text.contains("Your pairing code is"), "{text}");
    assert!(story.server().requests().is_empty());
}

/// Unknown users cannot make us join more rooms than there can be codes, and their servers cannot end a poll.
#[test]
fn unknown_senders_are_joined_as_often_as_there_are_codes() {
    let server = MatrixServer::start();
    let story = Story::new()
        .set("channels", json!({ "matrix": server.keys() }))
        .set("channels.matrix.allowFrom", json!([]));
    story.run(["channel", "poll"]);
    server.invite("!a:h", "@eve:h");
    server.invite("!b:h", "@eve:h");
    story.run(["channel", "poll"]);
    assert_eq!(server.requests_with("/join/").len(), 1, "one for each user");
    let down = || (502, json!({ "errcode": "M_UNKNOWN" }));
    server.fail_join_next([down(), down(), down()]);
    server.invite("!c:h", "@mal:h");
    story.run(["channel", "poll"]);
    assert_eq!(server.requests_with("/join/%21c").len(), 3);
    for number in 0..5 {
        let (room_id, user) = (format!("!d{number}:h"), format!("@u{number}:h"));
        server.invite(&room_id, &user);
        story.run(["channel", "poll"]);
    }
    assert_eq!(server.requests_with("/join/%21d").len(), 1);
    // Later there is room for others.
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-02T03:15:00Z");
    let before = server.requests_with("/join/").len();
    story.run(["channel", "poll"]);
    assert_eq!(server.requests_with("/join/").len(), before + 3);
}

#[test]
fn a_new_name_of_the_bot_hides_no_message() {
    let server = MatrixServer::start();
    server.add_room("!r:h", 2);
    let channel = connect(&server);
    let mut reader = Reader::after_first_look(&*channel);
    server.write("!r:h", "@ann:h", "before");
    let member = json!({ "membership": "join", "displayname": "Bot" });
    server.push_member("!r:h", BOT, member, &json!({ "membership": "join" }));
    server.write("!r:h", "@ann:h", "after");
    assert_eq!(reader.texts(), ["before", "after"]);
}

/// A user at a real homeserver.
struct RealUser {
    http: Http,
    base: String,
    headers: Vec<(String, String)>,
}

impl RealUser {
    /// Logs in; the password is the name.
    fn login(base: &str, name: &str) -> (Self, String) {
        let timeouts = HttpTimeouts {
            connect: Duration::ZERO,
            first_byte: Duration::ZERO,
            idle: Duration::ZERO,
            total: Duration::ZERO,
        };
        let mut user = Self {
            http: Http::new(timeouts, true, &Network::default()),
            base: format!("{base}/_matrix/client/v3/"),
            headers: Vec::new(),
        };
        let identifier = json!({ "type": "m.id.user", "user": name });
        let login =
            json!({ "type": "m.login.password", "identifier": identifier, "password": name });
        let token = user.post("login", &login)["access_token"].as_str().unwrap().to_owned();
        user.headers = vec![("authorization".to_owned(), format!("Bearer {token}"))];
        (user, token)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.base);
        let body = body.to_string();
        let method = HttpMethod::Post("application/json", body.as_bytes());
        read(self.http.request(&url, &self.headers, method))
    }

    fn put(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.base);
        let body = body.to_string();
        let method = HttpMethod::Put("application/json", body.as_bytes());
        read(self.http.request(&url, &self.headers, method))
    }

    fn get(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.base);
        read(self.http.request(&url, &self.headers, HttpMethod::Get))
    }

    fn create_room(&self, options: &Value) -> String {
        self.post("createRoom", options)["room_id"].as_str().unwrap().to_owned()
    }

    /// The contents of the bot's messages in a room, the newest first.
    fn answers(&self, room_id: &str) -> Vec<Value> {
        let page = self.get(&format!("rooms/{room_id}/messages?dir=b&limit=200"));
        let events = page["chunk"].as_array().unwrap().iter();
        let is_answer = |event: &&Value| {
            event["sender"] == "@bot:localhost" && event["type"] == "m.room.message"
        };
        events.filter(is_answer).map(|event| event["content"].clone()).collect()
    }
}

fn read(response: anyhow::Result<nanobot_net::http::Response>) -> Value {
    let mut response = response.unwrap();
    let mut body = String::new();
    response.body.read_to_string(&mut body).unwrap();
    assert_eq!(response.status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[test]
#[ignore = "needs Synapse: tests/real/synapse"]
fn real_synapse() {
    let base = std::env::var("NANOBOT_REAL_MATRIX").expect("tests/real/synapse sets it");
    let (ann, _) = RealUser::login(&base, "ann");
    let (_, token) = RealUser::login(&base, "bot");
    let mut keys =
        json!({ "homeserver": base, "accessToken": token, "allowFrom": ["@ann:localhost"] });
    let channel = open("matrix", &keys).unwrap();
    assert_eq!(channel.identity().unwrap().id, "@bot:localhost");
    let mut reader = Reader { channel: &*channel, cursor: None };
    let texts = |reader: &mut Reader<'_>| -> Vec<String> {
        let messages = reader.poll_as("@bot:localhost", Duration::ZERO).unwrap();
        messages.into_iter().map(|it| it.text.as_str().to_owned()).collect()
    };
    assert_eq!(texts(&mut reader), [""; 0]);

    let room_id = ann.create_room(&json!({ "invite": ["@bot:localhost"], "is_direct": true }));
    let write = |room_id: &str, text: &str| {
        let content = json!({ "msgtype": "m.text", "body": text });
        ann.put(&format!("rooms/{room_id}/send/m.room.message/{text}"), &content);
    };
    write(&room_id, "hello");
    // The invitation is accepted in one look, and the room is read in the next one.
    let mut read = texts(&mut reader);
    read.extend(texts(&mut reader));
    assert_eq!(read, ["hello"]);
    assert_eq!(texts(&mut reader), [""; 0]);

    // Of these, 380 are in four pages between the last look and the synchronisation.
    let numbers: Vec<String> = (0..430).map(|number| number.to_string()).collect();
    numbers.iter().for_each(|text| write(&room_id, text));
    assert_eq!(texts(&mut reader), numbers);

    let send = |key: &str| channel.send(&to_chat(&room_id), &text_part("hi"), key).unwrap();
    channel.show_typing(&to_chat(&room_id));
    assert_eq!(send("k1"), send("k1"));
    assert_eq!(ann.answers(&room_id).len(), 1);
    assert_ne!(send("k1"), send("k2"));
    assert_eq!(ann.answers(&room_id).len(), 2);
    let large = format!("\"{}", "\"".repeat(20_000));
    let part = Part { markup: large.clone(), plain: large, ..Part::default() };
    channel.send(&to_chat(&room_id), &part, "k3").unwrap();
    assert!(ann.answers(&room_id)[0]["formatted_body"].is_null());

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "buy milk").unwrap();
    let part = Part { file: Some(file), ..Part::default() };
    channel.send(&to_chat(&room_id), &part, "k4").unwrap();
    let message = ann.answers(&room_id).remove(0);
    ann.put(&format!("rooms/{room_id}/send/m.room.message/file"), &message);
    let received = reader.poll_as("@bot:localhost", Duration::ZERO).unwrap();
    let mut into = Vec::new();
    assert!(channel.fetch(&received[0].files[0], &mut into, 100).unwrap());
    assert_eq!(into, b"buy milk");

    let encryption = json!({ "algorithm": "m.megolm.v1.aes-sha2" });
    ann.put(&format!("rooms/{room_id}/state/m.room.encryption/"), &encryption);
    let before = ann.answers(&room_id).len();
    for number in 0..2 {
        let content = json!({ "algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x" });
        ann.put(&format!("rooms/{room_id}/send/m.room.encrypted/e{number}"), &content);
        assert_eq!(texts(&mut reader), [""; 0]);
    }
    assert_eq!(ann.answers(&room_id).len(), before + 1);
    keys["accessToken"] = json!("wrong");
    let channel = open("matrix", &keys).unwrap();
    assert_eq!(Reader { channel: &*channel, cursor: None }.failure(), 77);
}
