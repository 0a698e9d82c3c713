//! DingTalk, QQ, WeCom, Feishu and the bridge of WhatsApp through the whole program, against stand-ins on loopback.

use crate::channel::send_signal;
use crate::push_servers::{PushServer, UserMessage};
use crate::server::{Response, says};
use crate::story::Story;
use crate::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

const NAMES: [&str; 5] = ["dingtalk", "qq", "wecom", "feishu", "whatsapp"];

fn start(name: &str) -> (Story, PushServer) {
    let server = PushServer::by_name(name);
    let story = Story::new()
        .set("channels", json!({ name: server.keys() }))
        .set("memory", json!({ "consolidate": "manual" }));
    (story, server)
}

fn texts(server: &PushServer) -> Vec<String> {
    server.answers().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn an_event_that_comes_again_is_answered_once() {
    for name in NAMES {
        let (story, server) = start(name);
        let story = story.script([says("Hello.")]);
        for _ in 0..2 {
            server.write("m1", "ann", "hi");
            story.run(["channel", "poll"]);
        }
        assert_eq!(texts(&server), ["Hello."], "{name}");
        let acknowledges = matches!(name, "dingtalk" | "feishu");
        assert!(!acknowledges || server.pending() == 0, "{name}");
    }
}

#[test]
fn groups_are_answered_by_the_policies() {
    for name in NAMES {
        let (story, server) = start(name);
        let story = story.script([says("Yes?")]);
        // The bridge names the group as the sender.
        let story = match name {
            "whatsapp" => story.set("channels.whatsapp.allowFrom", json!(["G"])),
            _ => story,
        };
        let message = |id, from, mentions| UserMessage {
            id,
            group: Some("G"),
            from,
            text: "are you there?",
            mentions,
        };
        if name == "feishu" {
            server.send_message(&message("m1", "ann", false));
        }
        if name != "whatsapp" {
            server.send_message(&message("m2", "eve", true));
        }
        server.send_message(&message("m3", "ann", true));
        story.run(["channel", "poll"]);
        let chat = match name {
            "dingtalk" => "group:G",
            "whatsapp" => "G@g.us",
            "feishu" => "reply to om_m3",
            _ => "G",
        };
        assert_eq!(server.answers(), [(chat.to_owned(), "Yes?".to_owned())], "{name}");
        let content = story.requests()[0].last_content();
        assert!(content.starts_with("are you there?\n"), "{content}");
        if name != "whatsapp" {
            story.run(["channel", "show", name]).stdout_has("refused sender eve");
        }
    }
}

#[test]
fn a_service_that_is_down_is_tried_again() {
    for (name, path) in [
        ("dingtalk", "/v1.0/gateway/connections/open"),
        ("qq", "/gateway"),
        ("feishu", "/callback/ws/endpoint"),
    ] {
        let (story, server) = start(name);
        let story = story.script([says("Hello.")]);
        server.write("m1", "ann", "hi");
        let down = || Response::text(503, "text/plain", "busy");
        for _ in 0..3 {
            server.fail_next(path, down());
        }
        story.run(["channel", "poll"]).status(69).stderr_has("503");
        story.run(["channel", "poll"]);
        assert_eq!(texts(&server), ["Hello."], "{name}");
    }
}

/// The silence that ends a poll begins when the connection is open.
#[test]
fn a_poll_that_does_not_wait_gets_messages_over_a_slow_connection() {
    let (story, server) = start("dingtalk");
    let story = story.script([says("Hello.")]);
    let message = UserMessage { id: "m1", group: None, from: "ann", text: "hi", mentions: false };
    server.send_changed(&message, &|data| data["createAt"] = json!(0));
    let down = Response::text(503, "text/plain", "busy");
    server.fail_next("/v1.0/gateway/connections/open", down);
    // By the real clock, the second attempt to connect follows the first one after a second.
    let mut poll = story.command(["channel", "poll"]);
    poll.env_remove("NANOBOT_TEST_TIME");
    story.wait(poll.spawn().unwrap());
    assert_eq!(texts(&server), ["Hello."]);
}

#[test]
fn answers_that_cannot_be_sent_wait_or_are_given_up() {
    let (story, server) = start("dingtalk");
    let story = story.script([says("Hello.")]);
    let limit = json!({ "code": "Throttling.Api", "message": "slow down", "requestid": "1" });
    server.fail_next("/v1.0/robot/oToMessages/batchSend", Response::json(403, &limit));
    server.write("m1", "ann", "hi");
    story.run(["channel", "poll"]).status(75).stderr_has("slow down");
    story.run(["channel", "poll"]);
    assert_eq!(texts(&server), ["Hello."]);
    let error = json!({ "code": "Forbidden.AccessDenied.AccessTokenPermissionDenied", "message": "qyapi_robot_sendmsg" });
    server.fail_next("/v1.0/robot/groupMessages/send", Response::json(403, &error));
    story
        .run(["channel", "send", "dingtalk", "group:G", "x"])
        .status(78)
        .stderr_has("qyapi_robot_sendmsg");
    // Messages out of the blue, and recipients that take none.
    for (name, expect, unknown) in [
        ("dingtalk", "group:G", "unknown"),
        ("wecom", "G", "unknown"),
        ("feishu", "oc_1", "unknown"),
        ("whatsapp", "+49170", "0"),
    ] {
        let (story, server) = start(name);
        story.run(["channel", "send", name, expect, "Done"]).text();
        assert_eq!(texts(&server), ["Done"], "{name}");
        let status = match name {
            "feishu" => 77,
            "whatsapp" => 69,
            _ => 65,
        };
        story.run(["channel", "send", name, unknown, "x"]).status(status).error_text();
    }
    let (story, server) = start("qq");
    story.run(["channel", "send", "qq", "ann", "x"]).status(77).stderr_has("only answers");
    assert!(server.answers().is_empty());
}

#[test]
fn files_are_sent() {
    for (name, chat) in [("dingtalk", "ann"), ("feishu", "oc_1")] {
        let (story, server) = start(name);
        let story = story.file("report.txt", "all well").file("a.png", "no picture");
        for file in ["report.txt", "a.png"] {
            story.run(["channel", "send", name, chat, "-a", file]).text();
        }
        let text = texts(&server).concat();
        let expect = match name {
            "dingtalk" => ["@media\",\"fileName\":\"report.txt", "photoURL"],
            _ => ["{\"file_key\":\"file\"}", "{\"image_key\":\"img\"}"],
        };
        assert!(expect.iter().all(|part| text.contains(part)), "{text}");
    }
}

/// An event with further content, in the data of DingTalk or the message of Feishu.
fn with_content(server: &PushServer, id: &str, change: &dyn Fn(&mut Value)) {
    server.send_changed(
        &UserMessage { id, group: None, from: "ann", text: "look", mentions: false },
        change,
    );
}

#[test]
fn attachments_and_quotes_are_read() {
    let (story, server) = start("dingtalk");
    let story = story.script([says("I see.")]);
    with_content(&server, "m1", &|data| {
        data["msgtype"] = json!("file");
        data["content"] = json!({ "downloadCode": "code", "fileName": "report.txt" });
    });
    story.run(["channel", "poll"]);
    let content = story.requests()[0].last_content();
    assert!(content.contains("the report"), "{content}");
    let (story, server) = start("feishu");
    let story = story.set("channels.feishu.doneEmoji", json!("DONE")).script([says("I see.")]);
    with_content(&server, "m1", &|event| {
        event["message"]["message_type"] = json!("file");
        event["message"]["content"] = json!(r#"{"file_key":"key","file_name":"report.txt"}"#);
        event["message"]["parent_id"] = json!("om_0");
    });
    story.run(["channel", "poll"]);
    let content = story.requests()[0].last_content();
    assert!(content.contains("the report") && content.contains("text of om_0"), "{content}");
    let reaction = json!({ "reaction_type": { "emoji_type": "DONE" } });
    assert_eq!(server.calls("om_m1/reactions").last(), Some(&reaction));
    let (story, server) = start("wecom");
    let story = story.script([says("I see.")]);
    let url = server.keys()["wsUrl"].as_str().unwrap().replacen("ws", "http", 1);
    with_content(&server, "m1", &|body| {
        body["msgtype"] = json!("file");
        body["file"] = json!({ "name": "a.txt", "aeskey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
            "url": format!("{url}/file") });
        body["quote"] = json!({ "msgtype": "text", "text": { "content": "an earlier word" } });
    });
    story.run(["channel", "poll"]);
    let content = story.requests()[0].last_content();
    assert!(content.contains("the report") && content.contains("an earlier word"), "{content}");
}

#[test]
fn a_poll_that_waits_stays_connected() {
    for name in NAMES {
        let (story, server) = start(name);
        let story = story.script([says("One."), says("Two.")]);
        let mut poll = story.command(["channel", "poll", "--follow"]).spawn().unwrap();
        server.sockets.wait_for_connections(1);
        server.write("m1", "ann", "hi");
        until("the first answer", || server.answers().len() == 1);
        // The service ends the connection, and the next one is opened at once.
        server.sockets.close(1001);
        server.sockets.wait_for_connections(2);
        server.write("m2", "ann", "hi again");
        until("the second answer", || server.answers().len() == 2);
        send_signal(&poll, Signal::TERM);
        poll.wait().unwrap();
        assert_eq!(texts(&server), ["One.", "Two."], "{name}");
    }
}

#[test]
fn another_connection_of_the_bot_is_named() {
    let (story, server) = start("wecom");
    let poll = story.command(["channel", "poll", "--wait", "30"]).spawn().unwrap();
    server.sockets.wait_for_message(|message| message["cmd"] == "aibot_subscribe");
    server.sockets.send(&json!({ "cmd": "aibot_event_callback", "headers": { "req_id": "1" },
        "body": { "msgtype": "event", "event": { "eventtype": "disconnected_event" } } }));
    let result = story.wait(poll).status(75);
    result.stderr_has("has replaced ours");
    let (story, server) = start("wecom");
    let story = story.script([says("Late, but here.")]);
    server.write("m1", "ann", "a closed question");
    story.run(["channel", "poll"]);
    assert_eq!(server.answers(), [("ann".to_owned(), "Late, but here.".to_owned())]);
}

#[test]
fn a_scanned_code_creates_an_app_of_feishu() {
    let server = PushServer::by_name("feishu");
    let keys = json!({ "apiBase": server.keys()["apiBase"], "accountsBase": server.keys()["apiBase"], "allowFrom": ["ann"] });
    let story = Story::new().set("channels", json!({ "feishu": keys })).script([says("Hello.")]);
    story.run(["channel", "poll", "feishu"]).status(78).error_text();
    story.run(["channel", "check", "feishu"]).status(78).stderr_has("channel login feishu");
    let registration = "/oauth/v1/app/registration";
    let begun = json!({ "device_code": "d1", "interval": 1, "expires_in": 60,
        "verification_uri_complete": "https://open.feishu.cn/page/launcher?user_code=ABCD" });
    server.fail_next(registration, Response::json(200, &begun));
    server
        .fail_next(registration, Response::json(400, &json!({ "error": "authorization_pending" })));
    let done = json!({ "client_id": crate::push_servers::ID, "client_secret": crate::push_servers::SECRET,
        "user_info": { "tenant_brand": "feishu" } });
    server.fail_next(registration, Response::json(200, &done));
    let mut screen = story.screen(50, 100).args(["channel", "login", "feishu"]);
    screen.until("https://open.feishu.cn/page/cli?user_code=ABCD");
    screen.until("was created");
    assert_eq!(screen.code(), 0);
    server.write("m1", "ann", "hi");
    story.run(["channel", "poll"]);
    assert_eq!(texts(&server), ["Hello."]);
    story.run(["channel", "login", "feishu"]).stdout("Robot (ou_bot)\n");
}

/// The service of Feishu does not give the secret of such an app.
#[test]
fn a_code_that_is_scanned_with_lark_creates_an_app_of_lark() {
    let server = PushServer::by_name("feishu");
    let keys = json!({ "apiBase": server.keys()["apiBase"], "accountsBase": server.keys()["apiBase"], "allowFrom": ["ann"] });
    let story = Story::new().set("channels", json!({ "feishu": keys }));
    let created = json!({ "client_id": crate::push_servers::ID, "client_secret": crate::push_servers::SECRET });
    let responses = [
        json!({ "device_code": "d1", "interval": 1,
            "verification_uri_complete": "https://open.feishu.cn/page/launcher?user_code=ABCD" }),
        // A page of a proxy.
        json!([]),
        json!({ "error": "authorization_pending", "user_info": { "tenant_brand": "lark" } }),
        created,
    ];
    for response in responses {
        server.fail_next("/oauth/v1/app/registration", Response::json(200, &response));
    }
    let mut screen = story.screen(50, 100).args(["channel", "login", "feishu"]);
    screen.until("was created");
    assert_eq!(screen.code(), 0);
    assert_eq!(story.config_value()["channels"]["feishu"]["domain"], "lark");
}

#[test]
fn a_registration_that_the_service_ends_is_an_error_with_its_words() {
    let server = PushServer::by_name("feishu");
    let keys = json!({ "apiBase": server.keys()["apiBase"], "accountsBase": server.keys()["apiBase"], "allowFrom": ["ann"] });
    let story = Story::new().set("channels", json!({ "feishu": keys }));
    let responses = [
        json!({ "device_code": "d1", "interval": 1, "verification_uri_complete": "https://a/b" }),
        json!({ "error": "invalid_grant", "error_description": "no such code" }),
    ];
    for response in responses {
        server.fail_next("/oauth/v1/app/registration", Response::json(200, &response));
    }
    let mut screen = story.screen(50, 100).args(["channel", "login", "feishu"]);
    screen.until("no such code");
    assert_eq!(screen.code(), 69);
}
