//! `serve webhook`: webhook requests of WhatsApp and Slack on standard input, under CGI, and their refusals.

use crate::graph_server::{
    ADA, APP_SECRET, GraphServer, STORY_TIME, text_message, user_message, webhook,
};
use crate::push_servers::PushServer;
use crate::requirements::require;
use crate::server::{Response, says, sends};
use crate::slack_server::{ANN, SlackServer};
use crate::story::{RunResult, Story};
use crate::wait::{until, until_exists};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};

pub(crate) const SIGNING_SECRET: &str = "signing-secret";

pub(crate) fn sign(key: &str, message: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let tag = hmac::sign(&key, message);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn post(headers: &[(&str, &str)], body: &str) -> String {
    let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!(
        "POST /hook HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{body}",
        headers.collect::<String>(),
        body.len()
    )
}

/// A request of WhatsApp with a valid signature.
pub(crate) fn signed_request(body: &str) -> String {
    let signature = format!("sha256={}", sign(APP_SECRET, body.as_bytes()));
    post(&[("X-Hub-Signature-256", &signature)], body)
}

/// A request of Slack with a valid signature, sent at a time.
pub(crate) fn slack_request(at: i64, body: &str) -> String {
    let signature = sign(SIGNING_SECRET, format!("v0:{at}:{body}").as_bytes());
    let (at, signature) = (at.to_string(), format!("v0={signature}"));
    let headers = [("X-Slack-Request-Timestamp", at.as_str()), ("X-Slack-Signature", &signature)];
    post(&headers, body)
}

/// Sends a signed request to `serve webhook whatsapp`.
fn deliver<'s>(story: &'s mut Option<Story>, body: &str) -> RunResult<'s> {
    let request = signed_request(body);
    *story = story.take().map(|story| story.stdin(request));
    story.as_ref().unwrap().run(["serve", "webhook", "whatsapp"])
}

/// Starts `serve webhook whatsapp` with a signed request that has this message.
fn start(story: &Story, message: &Value) -> Child {
    let body = webhook(&json!([message]));
    let mut command = story.command(["serve", "webhook", "whatsapp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = signed_request(&body);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(request.as_bytes()).unwrap();
    child
}

pub(crate) const ACCEPTED: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const REFUSED: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[test]
fn a_signed_message_is_answered_once() {
    let graph = GraphServer::start();
    let mut story = Some(graph.story().script([says("**Hello** Ada.")]));
    let body = webhook(&json!([text_message("wamid.1", ADA, "hi")]));
    deliver(&mut story, &body).stdout(ACCEPTED);
    let messages = graph.sent();
    let expect = json!({ "messaging_product": "whatsapp", "recipient_type": "individual", "to": ADA,
        "type": "text", "text": { "preview_url": false, "body": "*Hello* Ada." } });
    assert_eq!(messages, [expect]);
    // The service repeats a request whose response it has not seen.
    deliver(&mut story, &body).stdout(ACCEPTED);
    let story = story.unwrap();
    assert_eq!(graph.texts().len(), 1);
    assert_eq!(story.requests().len(), 1);
    story.session(&format!("whatsapp_{ADA}.jsonl"));
    story.run(["channel", "check", "whatsapp"]).stdout("+49 170 1 (100)\n");
    story.run(["channel", "poll"]);
}

#[test]
fn requests_without_a_valid_signature_are_refused() {
    let graph = GraphServer::start();
    let body = webhook(&json!([text_message("wamid.1", ADA, "hi")]));
    let valid = format!("sha256={}", sign(APP_SECRET, body.as_bytes()));
    let check = |request: &str, status: i32, first: &str| {
        let story = graph.story().stdin(request);
        let result = story.run(["serve", "webhook", "whatsapp"]).status(status);
        result.error_text();
        let text = result.text();
        assert!(text.starts_with(first), "{request}: {text}");
        assert!(story.requests().is_empty());
        assert!(!story.home().join(".nanobot/channels/whatsapp/inbox.jsonl").exists());
    };
    check(&post(&[], &body), 77, REFUSED);
    check(&post(&[("X-Hub-Signature-256", "sha256=")], &body), 77, REFUSED);
    let altered = body.replace("hi", "ho");
    check(&post(&[("X-Hub-Signature-256", &valid)], &altered), 77, REFUSED);
    let wrong = format!("sha256={}", sign("other", body.as_bytes()));
    check(&post(&[("X-Hub-Signature-256", &wrong)], &body), 77, REFUSED);
    check("hello\r\n\r\n", 65, "HTTP/1.1 400");
    check("DELETE / HTTP/1.1\r\n\r\n", 65, "HTTP/1.1 405");
    check("POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", 65, "HTTP/1.1 413");
    check("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab", 65, "HTTP/1.1 408");
    let valid = format!("sha256={}", sign(APP_SECRET, b"{"));
    check(&post(&[("X-Hub-Signature-256", &valid)], "{"), 0, "HTTP/1.1 400");
}

#[test]
fn a_webhook_is_set_up_with_the_verify_token() {
    let graph = GraphServer::start();
    let check = |query: &str, status: i32, expect: &str| {
        let story = graph.story().stdin(format!("GET /hook?{query} HTTP/1.1\r\nHost: x\r\n\r\n"));
        let result = story.run(["serve", "webhook", "whatsapp"]).status(status);
        result.error_text();
        assert!(result.text().ends_with(expect), "{query}");
    };
    let query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    check(&format!("{query}v3rify"), 0, "\r\n\r\n1158201444");
    check(&format!("{query}other"), 77, "\r\n\r\n");
    check("hub.mode=subscribe&hub.challenge=%3Cb%3E&hub.verify_token=v3rify", 77, "\r\n\r\n");
}

#[test]
fn strangers_get_a_code_and_others_are_left() {
    let graph = GraphServer::start();
    let mut story = Some(graph.story());
    let body = webhook(&json!([text_message("wamid.1", "4915", "hi")]));
    deliver(&mut story, &body).stdout(ACCEPTED);
    assert!(graph.texts().is_empty());
    let mut story = Some(graph.story().set("channels.whatsapp.allowFrom", json!([])));
    deliver(&mut story, &body).stdout(ACCEPTED);
    assert!(graph.texts()[0].contains("pairing code"), "{:?}", graph.texts());
    assert!(story.unwrap().requests().is_empty());
}

#[test]
fn media_go_both_ways_and_refusals_have_their_statuses() {
    let graph = GraphServer::start();
    let mut story =
        Some(graph.story().script([says("A list."), says("No.")]).file("report.txt", "the report"));
    let document = |id: &str, media: &str| {
        let content = json!({ "id": media, "filename": "list.txt", "mime_type": "text/plain", "sha256": "0",
            "caption": "what is it?" });
        user_message(id, ADA, "document", content)
    };
    deliver(&mut story, &webhook(&json!([document("wamid.1", "m1")]))).stdout(ACCEPTED);
    // An address at another host does not get the token.
    deliver(&mut story, &webhook(&json!([document("wamid.2", "m2")]))).stdout(ACCEPTED);
    let story = story.unwrap();
    let body = story.requests()[0].body.to_string();
    assert!(body.contains("buy milk") && body.contains("what is it?"), "{body}");
    assert!(story.requests()[1].last_content().contains("download failed"));
    story
        .run(["channel", "send", "whatsapp", ADA, "see", "-a", "report.txt"])
        .stdout("wamid.out3\nwamid.out4\n");
    let message = graph.sent()[3].clone();
    assert_eq!(message["document"], json!({ "id": "m9", "filename": "report.txt" }));
    let uploaded = ("text/plain".to_owned(), "the report".to_owned());
    assert_eq!(graph.media(), [uploaded]);
    story
        .run(["channel", "send", "whatsapp", "1", "x"])
        .status(77)
        .stderr_has("Re-engagement message");
    let story = story.set("channels.whatsapp.accessToken", json!("wrong"));
    story.run(["channel", "send", "whatsapp", ADA, "x"]).status(77).error_text();
}

#[test]
fn a_user_without_a_number_is_answered_by_id() {
    let graph = GraphServer::start();
    let user = "DE.13491208655302741918";
    let mut message = text_message("wamid.1", ADA, "hi");
    message.as_object_mut().unwrap().remove("from");
    message["from_user_id"] = json!(user);
    let body = webhook(&json!([message]));
    // The number of this user is in the list, but the service does not tell it.
    let mut story = Some(graph.story().script([says("Hello.")]));
    deliver(&mut story, &body).stdout(ACCEPTED);
    assert!(graph.sent().is_empty());
    let story = story.unwrap();
    story.run(["channel", "show", "whatsapp"]).stdout_has(&format!("refused sender {user}"));
    message["id"] = json!("wamid.2");
    let body = webhook(&json!([message]));
    let mut story = Some(story.set("channels.whatsapp.allowFrom", json!([user])));
    deliver(&mut story, &body).stdout(ACCEPTED);
    let messages = graph.sent();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["recipient"], user);
    assert_eq!(messages[0].get("to"), None);
    story.unwrap().session(&format!("whatsapp_{user}.jsonl"));
}

#[test]
fn a_request_under_cgi() {
    let graph = GraphServer::start();
    let body = webhook(&json!([text_message("wamid.1", ADA, "hi")]));
    let story = graph
        .story()
        .script([says("Hello.")])
        .env("GATEWAY_INTERFACE", "CGI/1.1")
        .env("REQUEST_METHOD", "POST")
        .env("CONTENT_LENGTH", &body.len().to_string())
        .env("HTTP_X_HUB_SIGNATURE_256", &format!("sha256={}", sign(APP_SECRET, body.as_bytes())))
        // A header of the request is no proxy.
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .stdin(body);
    story.run(["serve", "webhook", "whatsapp"]).stdout_has("Status: 200 OK\r\n");
    assert_eq!(graph.texts(), ["Hello."]);
}

/// systemd's own program does what a socket unit with `Accept=yes` does.
#[test]
fn a_request_from_a_socket_unit() {
    if !require("systemd-socket-activate") {
        return;
    }
    let graph = GraphServer::start();
    let story = graph.story().script([says("Hello.")]);
    let socket = story.dir().join("hook.sock");
    let command = story.command(["serve", "webhook", "whatsapp"]);
    let mut unit = story.program("systemd-socket-activate");
    unit.args(["--accept", "--inetd", "--listen"]).arg(&socket);
    for (name, _) in command.get_envs() {
        unit.arg("-E").arg(name);
    }
    unit.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        unit.env(name, value.unwrap());
    }
    let mut unit = unit.stderr(Stdio::null()).spawn().unwrap();
    until_exists(&socket);
    let exchange = |signed: &str| {
        let body = webhook(&json!([text_message("wamid.1", ADA, "hi")]));
        let signature = format!("sha256={}", sign(APP_SECRET, signed.as_bytes()));
        let mut stream = UnixStream::connect(&socket).unwrap();
        let request = post(&[("X-Hub-Signature-256", &signature)], &body);
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        (response, body)
    };
    let (refused, body) = exchange("another body");
    assert_eq!(refused, REFUSED);
    assert_eq!(exchange(&body).0, ACCEPTED);
    // The connection ends before the turn.
    until("the answer is sent", || graph.texts() == ["Hello."]);
    unit.kill().unwrap();
    unit.wait().unwrap();
}

#[test]
fn a_socket_unit_without_accept_is_explained() {
    let story = GraphServer::start().story();
    let listener = UnixListener::bind(story.dir().join("hook.sock")).unwrap();
    let mut command = story.command(["serve", "webhook", "whatsapp"]);
    let child = command.stdin(OwnedFd::from(listener)).spawn().unwrap();
    story.wait(child).status(78).stderr_has("try: `Accept=yes` in the socket unit");
}

#[test]
fn requests_at_the_same_time_are_each_answered_once() {
    let graph = GraphServer::start();
    let story = graph.story().set("channels.whatsapp.allowFrom", json!(["*"]));
    story.server().always(says("Hello."));
    // The service sends each message twice.
    let children: Vec<Child> = (0..16)
        .map(|number| number / 2)
        .map(|number| {
            let (id, from) = (format!("wamid.{number}"), format!("49{number}"));
            start(&story, &text_message(&id, &from, "hi"))
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), ACCEPTED);
    }
    assert_eq!(graph.texts().len(), 8);
    assert_eq!(story.requests().len(), 8);
}

#[test]
fn a_turn_of_another_process_can_be_stopped() {
    let graph = GraphServer::start();
    let (model, stalled) = Response::streaming();
    let story = graph.story().script([sends(stalled)]);
    let busy = start(&story, &text_message("wamid.1", ADA, "think for long"));
    story.server().wait_for_requests(1);
    let stopping = start(&story, &text_message("wamid.2", ADA, "/stop"));
    for child in [busy, stopping] {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), ACCEPTED);
    }
    drop(model);
    assert_eq!(graph.texts(), ["Stopped 1 task."]);
}

#[test]
fn a_signed_event_of_slack_starts_a_poll() {
    let server = SlackServer::start();
    let mut keys = server.keys();
    keys["signingSecret"] = json!(SIGNING_SECRET);
    let story = Story::new().set("channels", json!({ "slack": keys })).script([says("Hello.")]);
    story.run(["channel", "poll"]);
    server.write("D1", ANN, "hi");
    let body = json!({ "type": "event_callback", "event": { "type": "message", "channel": "D1" } })
        .to_string();
    let story = story.stdin(slack_request(STORY_TIME - 301, &body));
    story.run(["serve", "webhook", "slack"]).status(77).stdout(REFUSED).error_text();
    assert!(server.answers("D1").is_empty());
    let story = story.stdin(slack_request(STORY_TIME + 9, &body));
    story.run(["serve", "webhook", "slack"]).stdout(ACCEPTED);
    assert_eq!(server.answer_texts("D1"), ["Hello."]);
    let setup = json!({ "type": "url_verification", "challenge": "c4" }).to_string();
    let story = story.stdin(slack_request(STORY_TIME, &setup));
    let text = story.run(["serve", "webhook", "slack"]).text();
    assert!(text.ends_with("\r\n\r\nc4"), "{text}");
    let story = story.set("channels.slack.signingSecret", json!(""));
    let result = story.run(["serve", "webhook", "slack"]).status(78);
    assert!(result.text().starts_with("HTTP/1.1 503"));
    result.stderr_has("`channels.slack.signingSecret` is not set");
}

/// Encrypts a body as Feishu does: the first block, then the text as a chain of blocks, in Base64.
fn encrypt(key: &str, body: &str) -> String {
    let digits =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let first = [7; 16];
    let key = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    let mut command = std::process::Command::new("openssl");
    command.args(["enc", "-aes-256-cbc", "-K", &digits(key.as_ref()), "-iv", &digits(&first)]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
    let encrypted = child.wait_with_output().unwrap().stdout;
    let encoded = STANDARD.encode([&first[..], &encrypted].concat());
    json!({ "encrypt": encoded }).to_string()
}

/// A request of Feishu that is signed with `key`, sent at a time.
fn feishu_request(key: &str, at: i64, body: &str) -> String {
    let signed = format!("{at}n1{key}{body}");
    let hash = ring::digest::digest(&ring::digest::SHA256, signed.as_bytes());
    let signature: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let at = at.to_string();
    let headers = [
        ("X-Lark-Request-Timestamp", at.as_str()),
        ("X-Lark-Request-Nonce", "n1"),
        ("X-Lark-Signature", &signature),
    ];
    post(&headers, body)
}

#[test]
fn an_encrypted_event_of_feishu_is_answered_once() {
    if !require("openssl") {
        return;
    }
    let server = PushServer::by_name("feishu");
    let mut keys = server.keys();
    keys["longConnection"] = json!(false);
    keys["encryptKey"] = json!("the key");
    keys["verificationToken"] = json!("the token");
    let story =
        Story::new().set("channels", json!({ "feishu": keys })).script([says("Hello Ann.")]);
    let event = |token: &str| {
        json!({
            "schema": "2.0", "header": { "event_id": "e1", "event_type": "im.message.receive_v1", "token": token },
            "event": { "sender": { "sender_id": { "open_id": "ann" }, "sender_type": "user" }, "message": {
                "message_id": "om_1", "create_time": (STORY_TIME * 1000).to_string(), "chat_id": "oc_direct",
                "chat_type": "p2p", "message_type": "text", "content": r#"{"text":"hi"}"# } },
        })
        .to_string()
    };
    let listen = |story: Story, request: String| {
        let story = story.stdin(request);
        let outcome = {
            let result = story.run(["serve", "webhook", "feishu"]);
            drop(result.error_text());
            (result.code(), result.text())
        };
        (story, outcome)
    };
    let body = encrypt("the key", &event("the token"));
    let wrong_key = encrypt("another key", &event("the token"));
    let wrong_token = encrypt("the key", &event("another token"));
    let mut story = story;
    for request in [
        feishu_request("another key", STORY_TIME, &body),
        feishu_request("the key", STORY_TIME - 601, &body),
        feishu_request("the key", STORY_TIME, &wrong_key),
        feishu_request("the key", STORY_TIME, &wrong_token),
        feishu_request("the key", STORY_TIME, &event("the token")),
        post(&[], &body),
    ] {
        let refused;
        (story, refused) = listen(story, request.clone());
        assert_eq!(refused, (77, REFUSED.to_owned()), "{request}");
    }
    assert!(server.answers().is_empty());
    for _ in 0..2 {
        let taken;
        (story, taken) = listen(story, feishu_request("the key", STORY_TIME + 9, &body));
        assert_eq!(taken, (0, ACCEPTED.to_owned()));
    }
    let texts: Vec<String> = server.answers().into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["Hello Ann."]);
    let setup = json!({ "type": "url_verification", "token": "the token", "challenge": "c4" });
    let setup = post(&[], &encrypt("the key", &setup.to_string()));
    let (story, (_, text)) = listen(story, setup);
    assert!(text.ends_with("\r\n\r\n{\"challenge\":\"c4\"}"), "{text}");
    let story = story
        .set("channels.feishu.encryptKey", json!(""))
        .set("channels.feishu.verificationToken", json!(""));
    let (_, (status, text)) = listen(story, post(&[], "{}"));
    assert!(status == 78 && text.starts_with("HTTP/1.1 503"), "{status} {text}");
}

#[test]
fn other_channels_take_no_webhooks() {
    let story = Story::new().set(
        "channels",
        json!({ "ntfy": { "enabled": true, "topic": "in", "token": "t", "allowFrom": ["*"] } }),
    );
    let story = story.stdin("GET / HTTP/1.1\r\n\r\n");
    let result = story.run(["serve", "webhook", "ntfy"]).status(78);
    result.text();
    result.stderr_has("does not receive webhooks");
}

#[test]
fn a_request_that_trickles_is_ended_at_its_deadline() {
    let graph = GraphServer::start();
    let story = graph.story();
    let (mut our_end, program_end) = UnixStream::pair().unwrap();
    let mut command = story.command(["serve", "webhook", "whatsapp"]);
    command
        .stdin(OwnedFd::from(program_end.try_clone().unwrap()))
        .stdout(OwnedFd::from(program_end));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut bytes = post(&[], &"x".repeat(9000)).into_bytes().into_iter();
    // A byte now and then, which must not extend the time for the whole request.
    while child.try_wait().unwrap().is_none() {
        let byte = bytes.next().expect("the request is refused before all of it has come");
        // The other end may be closed by now.
        drop(our_end.write_all(&[byte]));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut response = String::new();
    our_end.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert_eq!(child.wait().unwrap().code(), Some(65));
}
