//! The WeChat channel through the whole program, against a stand-in for iLink on loopback.

use crate::screen::Key;
use crate::server::{Request, Response, Server, says};
use crate::story::{Story, write};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const TOKEN: &str = "bot-token-of-the-story";

/// iLink: positions are the numbers of messages; a message of the bot with a known id is not shown again.
pub(crate) struct WeixinServer {
    pub(crate) http: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    messages: Vec<Value>,
    /// Answers as user, text and context, with their ids.
    answers: Vec<(String, String, String, String)>,
    /// The states of a code, in the order in which they are asked for.
    scans: Vec<Value>,
    /// The code with which the next message of the bot is refused.
    refusal: Option<i64>,
}

impl WeixinServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let state: Arc<Mutex<State>> = Arc::default();
        let server_state = Arc::clone(&state);
        http.always(Box::new(move |request| respond(&mut server_state.lock().unwrap(), request)));
        Self { http, state }
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.http.port)
    }

    pub(crate) fn keys(&self) -> Value {
        json!({ "enabled": true, "baseUrl": self.base(), "cdnBaseUrl": self.base() + "/c2c", "token": TOKEN,
            "allowFrom": ["ann@im.wechat"] })
    }

    fn story(&self) -> Story {
        Story::new()
            .set("channels", json!({ "weixin": self.keys() }))
            .set("memory", json!({ "consolidate": "manual" }))
    }

    pub(crate) fn write(&self, from: &str, items: &Value) {
        let mut state = self.state.lock().unwrap();
        let number = state.messages.len() + 1;
        state.messages.push(json!({ "message_id": 1000 + number, "from_user_id": from, "message_type": 1,
            "create_time_ms": 1_767_323_040_000_u64, "context_token": format!("context{number}"), "item_list": items }));
    }

    fn write_text(&self, text: &str) {
        self.write("ann@im.wechat", &json!([{ "type": 1, "text_item": { "text": text } }]));
    }

    fn texts(&self) -> Vec<String> {
        self.texts_to("ann@im.wechat")
    }

    /// The texts that a user got.
    pub(crate) fn texts_to(&self, user: &str) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let answers = state.answers.iter().filter(|(to, ..)| to == user);
        answers.map(|(_, text, ..)| text.clone()).collect()
    }
}

fn respond(state: &mut State, request: &Request) -> Response {
    let accept = |mut body: Value| {
        body["ret"] = json!(0);
        Response::json(200, &body)
    };
    let refuse = |code: i64| {
        Response::json(200, &json!({ "ret": code, "errcode": code, "errmsg": "refused" }))
    };
    let path = request.path.split('?').next().unwrap();
    let is_file = path.starts_with("/c2c/");
    assert!(
        is_file
            || request.header("x-wechat-uin").is_some()
                && request.header("ilink-app-id") == Some("bot")
    );
    match path {
        "/ilink/bot/get_bot_qrcode" => {
            return accept(
                json!({ "qrcode": "code1", "qrcode_img_content": "https://example.org/scan?c=1" }),
            );
        }
        "/c2c/download" => {
            assert!(request.path.ends_with("?encrypted_query_param=p%2B1"));
            // Encrypted by openssl, with the key 00 01 02 … 0f.
            return Response {
                status: 200,
                chunks: vec![crate::push_servers::bytes("d8268c6eb0d0302e2b6fc6fb05326d6e")],
                ..Response::default()
            };
        }
        "/ilink/bot/get_qrcode_status" => return accept(state.scans.remove(0)),
        _ => {}
    }
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return refuse(-14);
    }
    let body = &request.body;
    assert_eq!(body["base_info"]["channel_version"], "2.4.6");
    match path {
        "/ilink/bot/getupdates" => {
            let after: usize = body["get_updates_buf"].as_str().unwrap().parse().unwrap_or(0);
            let new = &state.messages[after.min(state.messages.len())..];
            accept(json!({ "msgs": new, "get_updates_buf": state.messages.len().to_string(),
                "longpolling_timeout_ms": 35_000 }))
        }
        "/ilink/bot/sendmessage" => {
            if let Some(code) = state.refusal.take() {
                return refuse(code);
            }
            let message = &body["msg"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let id = text(&message["client_id"]);
            if state.answers.iter().all(|(.., other)| *other != id) {
                state.answers.push((
                    text(&message["to_user_id"]),
                    text(&message["item_list"][0]["text_item"]["text"]),
                    text(&message["context_token"]),
                    id,
                ));
            }
            accept(json!({}))
        }
        "/ilink/bot/getconfig" => {
            accept(json!({ "typing_ticket": "ticket", "context_token": "younger" }))
        }
        "/ilink/bot/sendtyping" | "/ilink/bot/msg/notifystart" => accept(json!({})),
        _ => Response::text(404, "text/plain", "no such page"),
    }
}

#[test]
fn a_message_is_answered_once_with_its_context() {
    let server = WeixinServer::start();
    let story = server.story().script([says("**Hello** Ann.")]);
    let quoted =
        json!({ "title": "", "message_item": { "text_item": { "text": "an earlier word" } } });
    server.write(
        "ann@im.wechat",
        &json!([{ "type": 1, "text_item": { "text": "hi" }, "ref_msg": quoted },
        { "type": 4, "file_item": { "file_name": "a.txt", "media": { "encrypt_query_param": "p+1",
            "aes_key": "MDAwMTAyMDMwNDA1MDYwNzA4MDkwYTBiMGMwZDBlMGY=" } } }, { "type": 5, "video_item": {} }]),
    );
    server.write("eve@im.wechat", &json!([{ "type": 1, "text_item": { "text": "let me in" } }]));
    story.run(["channel", "poll"]);
    story.run(["channel", "poll"]);
    let answers = server.state.lock().unwrap().answers.clone();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(
        (answers[0].0.as_str(), answers[0].1.as_str(), answers[0].2.as_str()),
        ("ann@im.wechat", "Hello Ann.", "context1")
    );
    let content = story.requests()[0].last_content();
    assert!(
        ["an earlier word", "the report", "cannot be read"]
            .iter()
            .all(|part| content.contains(part)),
        "{content}"
    );
    story.run(["channel", "show", "weixin"]).stdout_has("refused sender eve@im.wechat");
    // A message out of the blue has the context of the last one.
    story.run(["channel", "send", "weixin", "ann@im.wechat", "Done"]).text();
    assert_eq!(server.texts()[1], "Done");
    story
        .run(["channel", "send", "weixin", "eve@im.wechat", "x"])
        .status(77)
        .stderr_has("only after one of the user");
}

#[test]
fn an_aged_context_is_renewed_and_long_answers_are_split() {
    let server = WeixinServer::start();
    let story = server.story().script([says(&"word ".repeat(700))]);
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-02T03:10:05Z");
    server.write_text("hi");
    story.run(["channel", "poll"]);
    let answers = server.state.lock().unwrap().answers.clone();
    assert_eq!(answers.len(), 2);
    assert!(
        answers.iter().all(|(_, text, context, _)| text.len() <= 1800 && context == "younger"),
        "{answers:?}"
    );
}

#[test]
fn failures_of_ilink_have_their_statuses() {
    let server = WeixinServer::start();
    let story = server.story().script([says("Hello.")]);
    server.write_text("hi");
    server.state.lock().unwrap().refusal = Some(-2);
    story.run(["channel", "poll"]).status(75).stderr_has("waits to be sent");
    story.run(["channel", "poll"]);
    assert_eq!(server.texts(), ["Hello."]);
    let story = story.set("channels.weixin.token", json!("an-expired-token"));
    story.run(["channel", "poll"]).status(77).stderr_has("channel login weixin");
    let story = story.set("channels.weixin.token", json!(""));
    story.run(["channel", "poll"]).status(78).stderr_has("channel login weixin");
}

#[test]
fn a_scanned_code_gives_the_token() {
    let server = WeixinServer::start();
    let story = server.story().set("channels.weixin.token", json!("")).script([says("Hello.")]);
    let confirmed = json!({ "status": "confirmed", "bot_token": TOKEN, "baseurl": server.base(), "ilink_bot_id": "b" });
    server.state.lock().unwrap().scans = vec![
        json!({ "status": "wait" }),
        json!({ "status": "expired" }),
        json!({ "status": "need_verifycode" }),
        confirmed,
    ];
    story.run(["channel", "login", "weixin"]).status(66).stderr_has("needs a terminal");
    let mut screen = story.screen(50, 100).args(["channel", "login", "weixin"]);
    screen.until("https://example.org/scan?c=1");
    screen.until("█");
    screen.until("Number that WeChat shows:").type_("42").press(Key::Enter);
    screen.until("the account is linked");
    assert_eq!(screen.code(), 0);
    server.write_text("hi");
    story.run(["channel", "poll"]);
    assert_eq!(server.texts(), ["Hello."]);
}

#[test]
fn the_account_of_the_python_program_is_taken_over() {
    let server = WeixinServer::start();
    let story = server.story().set("channels.weixin.token", json!("")).script([says("New.")]);
    let account_json = json!({ "token": TOKEN, "get_updates_buf": "1", "base_url": server.base(), "context_tokens": {} });
    write(&story.home().join(".nanobot/weixin/account.json"), account_json.to_string().as_bytes());
    server.write_text("seen there");
    server.write_text("not yet");
    story.run(["channel", "poll"]);
    assert_eq!(server.texts(), ["New."]);
    assert!(!story.requests()[0].last_content().contains("seen there"));
}
