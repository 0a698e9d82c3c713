//! The ntfy channel against a server on loopback, which keeps messages and streams them as ntfy does.

use crate::channel_adapter::{Reader, open, open_failure, text_part, to_chat};
use crate::server::{Response, Server, sends};
use crate::story::Story;
use nanobot_channel::table;
use nanobot_channel::{AttachmentKind, ChannelError};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) struct NtfyServer {
    pub(crate) http: Server,
    /// The messages of all topics.
    messages: Arc<Mutex<Vec<Value>>>,
}

impl NtfyServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let messages: Arc<Mutex<Vec<Value>>> = Arc::default();
        let server_messages = Arc::clone(&messages);
        http.always(Box::new(move |request| {
            if request.header("authorization") != Some("Bearer tok") {
                return Response::json(401, &json!({ "code": 40101, "error": "unauthorized" }));
            }
            let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
            let mut messages = server_messages.lock().unwrap();
            let Some(topic) = path.trim_start_matches('/').strip_suffix("/json") else {
                let tags = request.header("x-tags").map(|tag| json!([tag]));
                let sent = add(&mut messages, path.trim_start_matches('/'), &request.raw);
                sent["tags"] = tags.unwrap_or_default();
                return Response::json(200, sent);
            };
            let since = query.rsplit('=').next().unwrap();
            let newer = |message: &&Value| match since {
                "none" => false,
                "all" => true,
                id => message["number"].as_u64() > id[1..].parse().ok(),
            };
            let in_topic = messages.iter().filter(|message| message["topic"] == topic);
            let lines = in_topic.filter(newer).map(|message| format!("{message}\n"));
            let open = format!("{}\n", json!({ "id": "o", "event": "open", "topic": topic }));
            Response::events(std::iter::once(open).chain(lines))
        }));
        Self { http, messages }
    }

    pub(crate) fn keys(&self) -> Value {
        json!({ "server": format!("http://127.0.0.1:{}", self.http.port), "topic": "in", "token": "tok",
            "allowFrom": ["*"], "enabled": true })
    }

    /// The texts in a topic.
    pub(crate) fn texts(&self, topic: &str) -> Vec<String> {
        let messages = self.messages.lock().unwrap();
        let of_topic = messages.iter().filter(|message| message["topic"] == topic);
        of_topic.map(|message| message["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn publish(&self, topic: &str, text: &str) {
        add(&mut self.messages.lock().unwrap(), topic, text);
    }
}

fn add<'m>(messages: &'m mut Vec<Value>, topic: &str, text: &str) -> &'m mut Value {
    let number = messages.len() + 1;
    messages.push(json!({ "id": format!("m{number}"), "number": number, "time": 1_772_366_400,
        "event": "message", "topic": topic, "message": text }));
    messages.last_mut().unwrap()
}

#[test]
fn messages_after_the_first_look_come_once() {
    let server = NtfyServer::start();
    server.publish("in", "before");
    let channel = open("ntfy", &server.keys()).unwrap();
    let mut reader = Reader::after_first_look(&*channel);
    server.publish("in", "one");
    server.publish("other", "x");
    server.publish("in", "two");
    let messages = reader.poll();
    assert_eq!(messages[0].text.as_str(), "one");
    assert_eq!(messages[1].id, "m4");
    assert_eq!(table::find("ntfy").unwrap().session_key(&messages[0].chat), "ntfy:in");
    assert_eq!(reader.cursor, Some(json!({ "since": "m4" })));
    assert_eq!(reader.texts(), [""; 0]);
    assert_eq!(channel.identity().unwrap().name, "in");
}

#[test]
fn an_empty_topic_loses_no_message() {
    let server = NtfyServer::start();
    let channel = open("ntfy", &server.keys()).unwrap();
    let mut reader = Reader::after_first_look(&*channel);
    server.publish("in", "one");
    assert_eq!(reader.texts(), ["one"]);
}

#[test]
fn answers_are_not_read_as_messages() {
    let server = NtfyServer::start();
    let channel = open("ntfy", &server.keys()).unwrap();
    let mut reader = Reader::after_first_look(&*channel);
    assert_eq!(channel.send(&to_chat("in"), &text_part("answer"), "k").unwrap(), "m1");
    assert_eq!(reader.texts(), [""; 0]);
    let mut keys = server.keys();
    keys["answerTopic"] = json!("out");
    let channel = open("ntfy", &keys).unwrap();
    channel.send(&to_chat("in"), &text_part("answer"), "k").unwrap();
    assert_eq!(server.messages.lock().unwrap()[1]["topic"], "out");
    let bad = channel.send(&to_chat("a/b"), &text_part("x"), "k");
    assert!(matches!(bad, Err(ChannelError::Undeliverable(_))));
}

#[test]
fn every_sender_must_be_allowed_and_a_token_set() {
    let server = NtfyServer::start();
    for (key, value) in [
        ("allowFrom", json!([])),
        ("allowFrom", json!(["in"])),
        ("token", json!("")),
        ("topic", json!("")),
        ("topic", json!("a/b")),
        ("server", json!("http://ntfy.example.org")),
    ] {
        let mut keys = server.keys();
        keys[key] = value;
        assert_eq!(open_failure("ntfy", &keys), 78, "{key}");
    }
    assert_eq!(server.http.requests().len(), 0);
}

#[test]
fn failures_have_their_causes() {
    let server = NtfyServer::start();
    let channel = open("ntfy", &server.keys()).unwrap();
    let fails = |status: u16| sends(Response::json(status, &json!({ "error": "no" })));
    let send = || channel.send(&to_chat("in"), &text_part("x"), "k");
    server.http.script([fails(429), fails(503)]);
    send().unwrap();
    server.http.script([fails(413)]);
    assert!(matches!(send(), Err(ChannelError::Undeliverable(_))));
    server.http.script([fails(500), fails(500), fails(500)]);
    assert!(matches!(send(), Err(ChannelError::Unavailable(_))));
    let mut reader = Reader { channel: &*channel, cursor: None };
    server.http.script([fails(403)]);
    assert_eq!(reader.failure(), 77);
    server.http.script([fails(502), fails(502), fails(502)]);
    assert_eq!(reader.failure(), 69);
    // A rate limit that does not end is waited for a minute.
    server.http.script((0..13).map(|_| fails(429)));
    assert_eq!(reader.failure(), 75);
    let before = server.http.requests().len();
    server.http.script([fails(401)]);
    assert_eq!(reader.failure(), 77);
    assert_eq!(server.http.requests().len(), before + 1);
}

#[test]
fn a_page_of_a_proxy_is_neither_a_sent_message_nor_nothing_new() {
    let server = NtfyServer::start();
    let channel = open("ntfy", &server.keys()).unwrap();
    let page = || sends(Response::text(200, "text/html", "<html>Please log in</html>"));
    server.http.script([page()]);
    let failed = channel.send(&to_chat("in"), &text_part("x"), "k");
    let base = server.keys()["server"].clone();
    assert!(
        matches!(&failed, Err(ChannelError::Unavailable(cause)) if cause.contains(base.as_str().unwrap())),
        "{failed:?}"
    );
    server.publish("in", "before");
    let mut reader = Reader { channel: &*channel, cursor: None };
    server.http.script([page()]);
    assert_eq!(reader.failure(), 69);
    assert_eq!(reader.texts(), [""; 0]);
    server.publish("in", "new");
    server.http.script([page()]);
    assert_eq!(reader.failure(), 69);
    assert_eq!(reader.texts(), ["new"]);
}

#[test]
fn a_wait_reads_the_stream() {
    let server = NtfyServer::start();
    let channel = open("ntfy", &server.keys()).unwrap();
    let mut reader = Reader::after_first_look(&*channel);
    let (sender, stream) = Response::streaming();
    server.http.script([sends(Response::text(200, "text/plain", "")), sends(stream)]);
    let line =
        json!({ "id": "m7", "time": 7, "event": "message", "topic": "in", "message": "hello" });
    let line = format!("{}\n{line}\n", json!({ "id": "o", "event": "keepalive" }));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.http.wait_for_requests(3);
            let (first, second) = line.as_bytes().split_at(60);
            sender.send(first.to_vec()).unwrap();
            sender.send(second.to_vec()).unwrap();
            drop(sender);
        });
        let messages = reader.poll_for(Duration::from_secs(600)).unwrap();
        assert_eq!(messages[0].text.as_str(), "hello");
        assert_eq!(reader.cursor, Some(json!({ "since": "m7" })));
    });
}

#[test]
fn attachments_come_from_the_server_only() {
    let server = NtfyServer::start();
    let channel = open("ntfy", &server.keys()).unwrap();
    let mut reader = Reader::after_first_look(&*channel);
    for base in
        ["https://evil.example".to_owned(), format!("http://127.0.0.1:{}", server.http.port)]
    {
        let attachment = json!({ "name": "a.png", "type": "image/png", "size": 4, "url": format!("{base}/file/x") });
        server.publish("in", "see");
        server.messages.lock().unwrap().last_mut().unwrap()["attachment"] = attachment;
    }
    let files: Vec<_> = reader.poll().into_iter().flat_map(|message| message.files).collect();
    assert_eq!((files[0].name.as_str(), files[0].kind), ("a.png", AttachmentKind::Image));
    let mut into = Vec::new();
    assert!(channel.fetch(&files[0], &mut into, 100).is_err());
    server.http.script([sends(Response::text(200, "image/png", "data"))]);
    assert!(channel.fetch(&files[1], &mut into, 100).unwrap());
    assert_eq!(into, b"data");
}

#[test]
fn a_message_is_sent_to_the_topic_that_is_named() {
    let server = NtfyServer::start();
    let story = Story::new()
        .set("channels", json!({ "ntfy": server.keys() }))
        .set("channels.ntfy.answerTopic", json!("out"));
    story.run(["channel", "send", "ntfy", "alarm", "Disk *full*"]).stdout_has("m");
    assert_eq!(server.texts("alarm"), ["Disk full"]);
}
