//! DingTalk, QQ, WeCom, Feishu and the bridge of WhatsApp on loopback: services that send their messages over a WebSocket.
//! `tests/real/push` tests them with the clients of the vendors.

use crate::server::{Request, Response, Server};
use crate::socket_server::{Codec, Sockets};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use tungstenite::Message;

pub(crate) const ID: &str = "app-of-the-story";
pub(crate) const SECRET: &str = "secret-of-the-story";
const TOKEN: &str = "token-of-the-story";
/// The fixed time of a story in milliseconds, 2026-01-02T03:04:05Z.
const STORY_MILLIS: u64 = 1_767_323_045_000;

/// A message of a user.
#[derive(Clone, Copy)]
pub(crate) struct UserMessage<'s> {
    pub(crate) id: &'s str,
    /// The group; `None` for a direct message.
    pub(crate) group: Option<&'s str>,
    pub(crate) from: &'s str,
    pub(crate) text: &'s str,
    /// Does it mention the bot? Direct messages do not.
    pub(crate) mentions: bool,
}

/// A stand-in.
pub(crate) struct PushServer {
    pub(crate) name: &'static str,
    pub(crate) http: Server,
    pub(crate) sockets: Sockets,
    state: Arc<Mutex<State>>,
    written: Cell<usize>,
    /// The frame of a message.
    frame_of: fn(&UserMessage<'_>) -> Value,
}

#[derive(Default)]
struct State {
    base: String,
    /// Frames that were not acknowledged, in order.
    pending: Vec<(String, Value)>,
    /// Answers as chat and text, in order, each with the key by which the service recognises it.
    answers: Vec<(String, String, String)>,
    /// The paths and bodies of requests.
    calls: Vec<(String, Value)>,
    failures: BTreeMap<String, VecDeque<Response>>,
    /// The number of the last event of QQ.
    sequence: u64,
    /// The frames of QQ since the start of its session.
    replayed: Vec<Value>,
}

type StateRef = Arc<Mutex<State>>;

impl PushServer {
    /// Starts a stand-in whose HTTP part is `respond` and whose socket part is `talk`.
    fn start(
        name: &'static str,
        respond: fn(&mut State, &Request) -> Response,
        talk: fn(&mut State, &Value) -> Vec<Value>,
        frame_of: fn(&UserMessage<'_>) -> Value,
        codec: Option<Codec>,
    ) -> Self {
        let http = Server::start();
        let state: StateRef = Arc::default();
        state.lock().unwrap().base = format!("127.0.0.1:{}", http.port);
        let server_state = Arc::clone(&state);
        let talk =
            Box::new(move |message: &Value| talk(&mut server_state.lock().unwrap(), message));
        let sockets = match codec {
            Some(codec) => Sockets::with_codec(talk, codec),
            None => Sockets::new(talk),
        };
        let (server_state, accepting) = (Arc::clone(&state), sockets.clone());
        http.always(Box::new(move |request| {
            if request.header("upgrade").is_some() {
                return accepting.accept(request);
            }
            let mut state = server_state.lock().unwrap();
            let path = request.path.clone();
            state.calls.push((path.clone(), request.body.clone()));
            let path = path.split('?').next().unwrap().to_owned();
            let failures = state.failures.get_mut(&path);
            match failures.and_then(VecDeque::pop_front) {
                Some(response) => response,
                None => respond(&mut state, request),
            }
        }));
        Self { name, http, sockets, state, written: Cell::new(0), frame_of }
    }

    pub(crate) fn by_name(name: &str) -> Self {
        match name {
            "dingtalk" => Self::start("dingtalk", dingtalk, talk_dingtalk, dingtalk_frame, None),
            "wecom" => Self::start("wecom", wecom_file, talk_wecom, wecom_frame, None),
            "whatsapp" => Self::start("whatsapp", not_found, talk_bridge, bridge_frame, None),
            "qq" => Self::start("qq", qq, talk_qq, qq_frame, None),
            _ => Self::start("feishu", feishu, talk_feishu, feishu_frame, Some(FEISHU_CODEC)),
        }
    }

    pub(crate) fn keys(&self) -> Value {
        let base = format!("http://{}", self.state.lock().unwrap().base);
        let socket = base.replacen("http", "ws", 1);
        let mut keys = match self.name {
            "dingtalk" => {
                json!({ "apiBase": base, "uploadBase": base, "clientId": ID, "clientSecret": SECRET })
            }
            "wecom" => json!({ "wsUrl": socket, "botId": ID, "secret": SECRET }),
            "whatsapp" => json!({ "bridgeUrl": socket, "bridgeToken": SECRET }),
            "qq" => {
                json!({ "apiBase": base, "tokenUrl": base + "/app/getAppAccessToken", "appId": ID, "secret": SECRET })
            }
            _ => json!({ "apiBase": base, "appId": ID, "appSecret": SECRET }),
        };
        keys["enabled"] = json!(true);
        keys["allowFrom"] = json!(["ann"]);
        keys
    }

    /// Sends a message of a user. It is sent again at each connection, until it is acknowledged; the bridge and WeCom know no
    /// acknowledgements, and send it once.
    pub(crate) fn send_message(&self, user_message: &UserMessage<'_>) {
        self.send_changed(user_message, &|_| ());
    }

    /// Sends a message whose content is changed before: the data of DingTalk, or the event of Feishu.
    pub(crate) fn send_changed(&self, user_message: &UserMessage<'_>, change: &dyn Fn(&mut Value)) {
        let mut frame = (self.frame_of)(user_message);
        for member in ["data", "payload"] {
            if let Some(text) = frame[member].as_str() {
                let mut content: Value = serde_json::from_str(text).unwrap();
                change(if member == "data" { &mut content } else { &mut content["event"] });
                frame[member] = content.to_string().into();
            }
            if frame["body"].is_object() {
                change(&mut frame["body"]);
            }
        }
        let mut state = self.state.lock().unwrap();
        if self.name == "qq" {
            state.sequence += 1;
            frame["s"] = state.sequence.into();
            state.replayed.push(frame.clone());
        } else {
            state.pending.push((user_message.id.to_owned(), frame.clone()));
        }
        drop(state);
        self.sockets.send(&frame);
    }

    pub(crate) fn write(&self, id: &str, from: &str, text: &str) {
        self.send_message(&UserMessage { id, group: None, from, text, mentions: false });
    }

    /// An id that no message of [`Self::next_id`] had.
    pub(crate) fn next_id(&self) -> String {
        self.written.set(self.written.get() + 1);
        format!("next{}", self.written.get())
    }

    /// Responds to the next request of a path in this way.
    pub(crate) fn fail_next(&self, path: &str, response: Response) {
        let mut state = self.state.lock().unwrap();
        let failures = state.failures.entry(path.to_owned()).or_default();
        failures.push_back(response);
    }

    /// The answers that users see, as chat and text: one that is recognised as repeated is not shown again.
    pub(crate) fn answers(&self) -> Vec<(String, String)> {
        let state = self.state.lock().unwrap();
        let answers = state.answers.iter();
        answers.map(|(chat, text, _)| (chat.clone(), text.clone())).collect()
    }

    /// The bodies of the requests of a path.
    pub(crate) fn calls(&self, path: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.iter().filter(|(called, _)| called.contains(path));
        calls.map(|(_, body)| body.clone()).collect()
    }

    pub(crate) fn pending(&self) -> usize {
        self.state.lock().unwrap().pending.len()
    }
}

impl State {
    fn answer(&mut self, chat: &Value, text: &Value, key: &str) {
        let (chat, text) = (chat.as_str().unwrap(), text.as_str().unwrap());
        if key.is_empty() || self.answers.iter().all(|(.., other)| other != key) {
            let answer = (chat.to_owned(), text.to_owned(), key.to_owned());
            self.answers.push(answer);
        }
    }

    fn frames(&self) -> Vec<Value> {
        self.pending.iter().map(|(_, frame)| frame.clone()).collect()
    }

    /// Frames that are sent once, whether they arrive or not.
    fn take_frames(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.pending).into_iter().map(|(_, frame)| frame).collect()
    }
}

fn not_found(_: &mut State, _: &Request) -> Response {
    Response::text(404, "text/plain", "no such page")
}

/// The bytes of hexadecimal digits.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}

/// A file that openssl has encrypted, with the key 00 01 02 … 1f.
fn wecom_file(_: &mut State, _: &Request) -> Response {
    Response {
        status: 200,
        chunks: vec![bytes("3a5e79b8d12fd46caaa89c2f9ff5ff6d6067e8068fb5129934c208c91ba794d4")],
        ..Response::default()
    }
}

fn has_header(request: &Request, name: &str, value: &str) -> bool {
    request.header(name) == Some(value)
}

fn dingtalk(state: &mut State, request: &Request) -> Response {
    let body = &request.body;
    let refuse = |status: u16, code: &str| {
        Response::json(
            status,
            &json!({ "requestid": "1", "code": code, "message": "refused by the story" }),
        )
    };
    let path = request.path.split('?').next().unwrap();
    match path {
        "/v1.0/gateway/connections/open" => {
            let topic = &body["subscriptions"][0]["topic"];
            let is_known = body["clientId"] == ID
                && body["clientSecret"] == SECRET
                && topic == "/v1.0/im/bot/messages/get";
            if is_known {
                let endpoint = format!("ws://{}/connect", state.base);
                Response::json(200, &json!({ "endpoint": endpoint, "ticket": "a+b=" }))
            } else {
                refuse(401, "authFailed")
            }
        }
        "/v1.0/oauth2/accessToken" => {
            if body["appKey"] == ID && body["appSecret"] == SECRET {
                Response::json(200, &json!({ "accessToken": TOKEN, "expireIn": 7200 }))
            } else {
                refuse(400, "invalidClientIdOrSecret")
            }
        }
        path if path.starts_with("/file/") => Response::text(200, "text/plain", "the report"),
        "/media/upload" => {
            assert!(request.path.contains(TOKEN));
            Response::json(200, &json!({ "errcode": 0, "media_id": "@media" }))
        }
        _ if !has_header(request, "x-acs-dingtalk-access-token", TOKEN) => {
            refuse(401, "InvalidAuthentication")
        }
        "/v1.0/robot/messageFiles/download" => {
            let url =
                format!("http://{}/file/{}", state.base, body["downloadCode"].as_str().unwrap());
            Response::json(200, &json!({ "downloadUrl": url }))
        }
        "/v1.0/robot/oToMessages/batchSend" | "/v1.0/robot/groupMessages/send" => {
            assert_eq!(body["robotCode"], ID);
            let chat = if body["userIds"][0].is_string() {
                body["userIds"][0].clone()
            } else {
                format!("group:{}", body["openConversationId"].as_str().unwrap()).into()
            };
            if chat == "unknown" {
                return Response::json(
                    200,
                    &json!({ "processQueryKey": "1", "invalidStaffIdList": ["unknown"] }),
                );
            }
            let content: Value = serde_json::from_str(body["msgParam"].as_str().unwrap()).unwrap();
            let text = match content["text"].as_str() {
                Some(text) => text.replace("  \n", "\n").trim_end().to_owned(),
                None => content.to_string(),
            };
            state.answer(&chat, &text.into(), "");
            Response::json(200, &json!({ "processQueryKey": format!("q{}", state.answers.len()) }))
        }
        _ => refuse(404, "unknown"),
    }
}

fn talk_dingtalk(state: &mut State, message: &Value) -> Vec<Value> {
    if message.is_null() {
        let ping = json!({ "specVersion": "1.0", "type": "SYSTEM", "data": "{\"opaque\":\"x\"}",
            "headers": { "topic": "ping", "messageId": "ping", "contentType": "application/json" } });
        return [vec![ping], state.frames()].concat();
    }
    assert_eq!(message["code"], 200, "{message}");
    let id = message["headers"]["messageId"].as_str().unwrap();
    state.pending.retain(|(pending, _)| pending != id);
    Vec::new()
}

fn dingtalk_frame(user_message: &UserMessage<'_>) -> Value {
    let data = json!({
        "msgId": user_message.id, "msgtype": "text", "text": { "content": format!(" {}", user_message.text) },
        "conversationType": if user_message.group.is_some() { "2" } else { "1" },
        "conversationId": user_message.group.unwrap_or("cid-direct"), "senderStaffId": user_message.from, "senderNick": "Ann",
        "isInAtList": user_message.mentions, "createAt": STORY_MILLIS, "robotCode": ID,
        "sessionWebhook": "https://oapi.dingtalk.com/robot/sendBySession?session=1",
    });
    json!({ "specVersion": "1.0", "type": "CALLBACK", "data": data.to_string(),
        "headers": { "topic": "/v1.0/im/bot/messages/get", "messageId": user_message.id, "contentType": "application/json",
            "appId": "1", "connectionId": "1", "time": "1" } })
}

fn talk_wecom(state: &mut State, message: &Value) -> Vec<Value> {
    let id = &message["headers"]["req_id"];
    let respond = |code: u64, cause: &str| json!({ "headers": { "req_id": id }, "errcode": code, "errmsg": cause });
    let body = &message["body"];
    match message["cmd"].as_str() {
        Some("aibot_subscribe") => {
            if body["bot_id"] == ID && body["secret"] == SECRET {
                [vec![respond(0, "ok")], state.take_frames()].concat()
            } else {
                vec![respond(853_000, "invalid secret")]
            }
        }
        Some("aibot_respond_msg") if id == "r-closed" => vec![respond(846_605, "invalid req_id")],
        Some("aibot_respond_msg") => {
            assert_eq!(body["stream"]["finish"], true, "{body}");
            let (chat, key) =
                (id.as_str().unwrap().trim_start_matches("r-"), &body["stream"]["id"]);
            let key = key.as_str().unwrap().to_owned();
            state.answer(&chat.into(), &body["stream"]["content"], &key);
            vec![respond(0, "ok")]
        }
        Some("aibot_send_msg") if body["chatid"] == "unknown" => {
            vec![respond(93_006, "invalid chatid")]
        }
        Some("aibot_send_msg") => {
            let text = body["markdown"]["content"].clone();
            state.answer(&body["chatid"], &text, "");
            vec![respond(0, "ok")]
        }
        Some("ping") => vec![respond(0, "ok")],
        _ => Vec::new(),
    }
}

fn wecom_frame(user_message: &UserMessage<'_>) -> Value {
    let text = match user_message.group {
        Some(_) => format!("@Robot {}", user_message.text),
        None => user_message.text.to_owned(),
    };
    let mut body = json!({ "msgid": user_message.id, "aibotid": ID, "chattype": "single", "from": { "userid": user_message.from },
        "msgtype": "text", "text": { "content": text } });
    if let Some(group) = user_message.group {
        (body["chattype"], body["chatid"]) = (json!("group"), json!(group));
    }
    let chat = if user_message.text == "a closed question" {
        "closed"
    } else {
        user_message.group.unwrap_or(user_message.from)
    };
    json!({ "cmd": "aibot_msg_callback", "headers": { "req_id": format!("r-{chat}") }, "body": body })
}

fn talk_bridge(state: &mut State, message: &Value) -> Vec<Value> {
    match message["type"].as_str() {
        Some("auth") if message["token"] == SECRET => {
            [vec![json!({ "type": "status", "status": "connected" })], state.take_frames()].concat()
        }
        Some("auth") => vec![json!({ "close": 4003 })],
        Some("send") if message["to"] == "0@s.whatsapp.net" => {
            vec![json!({ "type": "error", "error": "Error: Not connected" })]
        }
        Some("send") => {
            state.answer(&message["to"], &message["text"], "");
            vec![json!({ "type": "sent", "to": message["to"] })]
        }
        _ => Vec::new(),
    }
}

fn bridge_frame(user_message: &UserMessage<'_>) -> Value {
    let chat = match user_message.group {
        Some(group) => format!("{group}@g.us"),
        None => format!("{}@s.whatsapp.net", user_message.from),
    };
    json!({ "type": "message", "id": user_message.id, "sender": chat, "pn": "", "content": user_message.text,
        "timestamp": STORY_MILLIS / 1000, "isGroup": user_message.group.is_some() })
}

fn qq(state: &mut State, request: &Request) -> Response {
    let body = &request.body;
    let path = request.path.as_str();
    if path == "/app/getAppAccessToken" {
        return if body["appId"] == ID && body["clientSecret"] == SECRET {
            Response::json(200, &json!({ "access_token": TOKEN, "expires_in": "7200" }))
        } else {
            Response::json(200, &json!({ "code": 100_016, "message": "invalid appid or secret" }))
        };
    }
    if !has_header(request, "authorization", &format!("QQBot {TOKEN}")) {
        return Response::json(
            401,
            &json!({ "code": 11_244, "message": "token not exist or expire" }),
        );
    }
    let url = format!("ws://{}/websocket", state.base);
    match path {
        "/gateway" => return Response::json(200, &json!({ "url": url })),
        "/gateway/bot" => {
            let limit = json!({ "total": 1000, "remaining": 999, "reset_after": 1000, "max_concurrency": 1 });
            return Response::json(
                200,
                &json!({ "url": url, "shards": 1, "session_start_limit": limit }),
            );
        }
        "/users/@me" => {
            return Response::json(200, &json!({ "id": "1234", "username": "Robot" }));
        }
        _ => {}
    }
    let mut parts = path.split('/').skip(2);
    let (_, chat, what) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
    match what {
        Some("files") => {
            Response::json(200, &json!({ "file_uuid": "u", "file_info": "info", "ttl": 0 }))
        }
        Some("messages") => {
            let key = format!("{chat} {} {}", body["msg_id"], body["msg_seq"]);
            if state.answers.iter().any(|(.., other)| *other == key) {
                let body = json!({ "code": 40_054_005, "message": "消息被去重，请检查请求msgseq" });
                return Response::json(400, &body);
            }
            let text = match body["msg_type"].as_u64() {
                Some(0) => body["content"].clone(),
                Some(2) => body["markdown"]["content"].clone(),
                _ => body["media"].to_string().into(),
            };
            state.answer(&chat.into(), &text, &key);
            Response::json(
                200,
                &json!({ "id": format!("ROBOT{}", state.answers.len()), "timestamp": 1 }),
            )
        }
        _ => Response::json(404, &json!({ "code": 404, "message": "no such path" })),
    }
}

fn talk_qq(state: &mut State, message: &Value) -> Vec<Value> {
    let token = format!("QQBot {TOKEN}");
    match message["op"].as_u64() {
        None => vec![json!({ "op": 10, "d": { "heartbeat_interval": 41_250 } })],
        Some(1) => vec![json!({ "op": 11 })],
        Some(2 | 6) if message["d"]["token"] != token.as_str() => vec![json!({ "close": 4004 })],
        Some(2) => {
            let ready = json!({ "op": 0, "s": 0, "t": "READY", "d": { "version": 1, "session_id": "s1", "shard": [0, 1],
                "user": { "id": "1234", "username": "Robot", "bot": true } } });
            [vec![ready], state.replayed.clone()].concat()
        }
        Some(6) if message["d"]["session_id"] != "s1" => vec![json!({ "op": 9, "d": false })],
        Some(6) => {
            let sequence_number = message["d"]["seq"].as_u64().unwrap_or(0);
            let is_new = |frame: &&Value| frame["s"].as_u64().unwrap() > sequence_number;
            let mut frames: Vec<Value> = state.replayed.iter().filter(is_new).cloned().collect();
            frames.push(json!({ "op": 0, "s": state.sequence, "t": "RESUMED", "d": "" }));
            frames
        }
        _ => Vec::new(),
    }
}

fn qq_frame(user_message: &UserMessage<'_>) -> Value {
    let time = "2026-01-02T11:04:05+08:00";
    let mut data =
        json!({ "id": user_message.id, "content": user_message.text, "timestamp": time });
    let kind = match user_message.group {
        Some(group) => {
            data["group_openid"] = group.into();
            data["author"] = json!({ "id": user_message.from, "member_openid": user_message.from });
            "GROUP_AT_MESSAGE_CREATE"
        }
        None => {
            data["author"] = json!({ "id": user_message.from, "user_openid": user_message.from });
            "C2C_MESSAGE_CREATE"
        }
    };
    json!({ "op": 0, "id": "event", "t": kind, "d": data })
}

fn feishu(state: &mut State, request: &Request) -> Response {
    let body = &request.body;
    let accept =
        |data: Value| Response::json(200, &json!({ "code": 0, "msg": "success", "data": data }));
    let refuse = |status: u16, code: u64| {
        Response::json(status, &json!({ "code": code, "msg": "refused by the story" }))
    };
    let path = request.path.split('?').next().unwrap();
    match path {
        "/callback/ws/endpoint" => {
            let is_known = body["AppID"] == ID && body["AppSecret"] == SECRET;
            let url = format!("ws://{}/ws/v2?device_id=d1&service_id=7", state.base);
            let config = json!({ "ReconnectCount": -1, "ReconnectInterval": 120, "ReconnectNonce": 0, "PingInterval": 120 });
            return if is_known {
                accept(json!({ "URL": url, "ClientConfig": config }))
            } else {
                refuse(200, 514)
            };
        }
        "/open-apis/auth/v3/tenant_access_token/internal" => {
            return if body["app_id"] == ID && body["app_secret"] == SECRET {
                Response::json(
                    200,
                    &json!({ "code": 0, "msg": "ok", "tenant_access_token": TOKEN, "expire": 7200 }),
                )
            } else {
                refuse(200, 10_014)
            };
        }
        _ => {}
    }
    if !has_header(request, "authorization", &format!("Bearer {TOKEN}")) {
        return refuse(400, 99_991_663);
    }
    if path == "/open-apis/bot/v3/info" {
        let bot = json!({ "open_id": "ou_bot", "app_name": "Robot", "activate_status": 2 });
        return Response::json(200, &json!({ "code": 0, "msg": "ok", "bot": bot }));
    }
    if path == "/open-apis/im/v1/images" {
        return accept(json!({ "image_key": "img" }));
    }
    if path == "/open-apis/im/v1/files" {
        return accept(json!({ "file_key": "file" }));
    }
    let rest = path.strip_prefix("/open-apis/im/v1/messages").unwrap_or_default();
    let parts: Vec<&str> = rest.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        [_, "resources", _] => Response::text(200, "application/octet-stream", "the report"),
        [_, "reactions"] => accept(json!({ "reaction_id": "1" })),
        [""] | [_, "reply"] => {
            let content: Value = serde_json::from_str(body["content"].as_str().unwrap()).unwrap();
            let text = match body["msg_type"].as_str() {
                Some("text") => content["text"].clone(),
                Some("interactive") => {
                    assert_eq!(content["schema"], "2.0");
                    content["body"]["elements"][0]["content"].clone()
                }
                _ => content.to_string().into(),
            };
            let chat = match parts.as_slice() {
                [""] => body["receive_id"].clone(),
                _ => format!("reply to {}", parts[0]).into(),
            };
            if chat == "unknown" {
                return refuse(400, 230_013);
            }
            let key = body["uuid"].as_str().unwrap_or_default().to_owned();
            assert!(key.len() <= 50);
            state.answer(&chat, &text, &key);
            accept(json!({ "message_id": format!("om_{}", state.answers.len()), "chat_id": "oc" }))
        }
        [id] if request.method == "PATCH" => {
            let content: Value = serde_json::from_str(body["content"].as_str().unwrap()).unwrap();
            let index: usize = id.strip_prefix("om_").unwrap().parse().unwrap();
            state.answers[index - 1].1 =
                content["body"]["elements"][0]["content"].as_str().unwrap().to_owned();
            accept(json!({}))
        }
        [id] => {
            let content = json!({ "text": format!("text of {id}") }).to_string();
            accept(
                json!({ "items": [{ "message_id": id, "msg_type": "text", "body": { "content": content } }] }),
            )
        }
        _ => refuse(404, 404),
    }
}

fn talk_feishu(state: &mut State, message: &Value) -> Vec<Value> {
    let kind = message["headers"]["type"].as_str();
    match (message["method"].as_u64(), kind) {
        (None, _) => state.frames(),
        (Some(0), Some("ping")) => {
            let pong = json!({ "PingInterval": 120, "ReconnectCount": -1, "ReconnectInterval": 120, "ReconnectNonce": 0 });
            vec![
                json!({ "SeqID": 0, "LogID": 0, "service": 7, "method": 0, "headers": { "type": "pong" },
                "payload": pong.to_string() }),
            ]
        }
        (Some(1), _) => {
            let id = message["headers"]["message_id"].as_str().unwrap();
            let answer: Value = serde_json::from_str(message["payload"].as_str().unwrap()).unwrap();
            assert_eq!(answer["code"], 200);
            state.pending.retain(|(pending, _)| pending != id);
            Vec::new()
        }
        other => panic!("{other:?}"),
    }
}

fn feishu_frame(user_message: &UserMessage<'_>) -> Value {
    let text = if user_message.mentions {
        format!("@_user_1 {}", user_message.text)
    } else {
        user_message.text.to_owned()
    };
    let mention = json!([{ "key": "@_user_1", "id": { "open_id": "ou_bot" }, "name": "Robot" }]);
    let mut message = json!({
        "message_id": format!("om_{}", user_message.id), "create_time": STORY_MILLIS.to_string(),
        "chat_id": user_message.group.unwrap_or("oc_direct"), "chat_type": if user_message.group.is_some() { "group" } else { "p2p" },
        "message_type": "text", "content": json!({ "text": text }).to_string(),
    });
    if user_message.mentions {
        message["mentions"] = mention;
    }
    let event = json!({
        "schema": "2.0",
        "header": { "event_id": user_message.id, "event_type": "im.message.receive_v1", "create_time": "1", "token": "",
            "app_id": ID, "tenant_key": "t" },
        "event": { "sender": { "sender_id": { "open_id": user_message.from }, "sender_type": "user", "tenant_key": "t" },
            "message": message },
    });
    json!({ "SeqID": 1, "LogID": 2, "service": 7, "method": 1, "payload": event.to_string(),
        "headers": { "type": "event", "message_id": user_message.id, "sum": "2", "seq": "0", "trace_id": "t" } })
}

/// Feishu's frames; an event is cut in two.
const FEISHU_CODEC: Codec = Codec {
    encode: |frame| {
        let payload = frame["payload"].as_str().unwrap_or_default().as_bytes();
        if frame["headers"]["sum"] != "2" {
            return vec![Message::binary(feishu_bytes(frame, payload))];
        }
        let (first, second) = payload.split_at(payload.len() / 2);
        let mut other = frame.clone();
        other["headers"]["seq"] = json!("1");
        vec![
            Message::binary(feishu_bytes(frame, first)),
            Message::binary(feishu_bytes(&other, second)),
        ]
    },
    decode: |message| match message {
        Message::Binary(bytes) => Some(read_feishu(&bytes)),
        _ => None,
    },
};

fn feishu_bytes(frame: &Value, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (field, name) in [(1_u8, "SeqID"), (2, "LogID"), (3, "service"), (4, "method")] {
        bytes.push(field << 3);
        bytes.push(u8::try_from(frame[name].as_u64().unwrap()).unwrap());
    }
    for (key, value) in frame["headers"].as_object().unwrap() {
        let mut header = Vec::new();
        add_bytes(&mut header, 1, key.as_bytes());
        add_bytes(&mut header, 2, value.as_str().unwrap().as_bytes());
        add_bytes(&mut bytes, 5, &header);
    }
    add_bytes(&mut bytes, 8, payload);
    bytes
}

fn add_bytes(bytes: &mut Vec<u8>, field: u8, text: &[u8]) {
    bytes.push(field << 3 | 2);
    let mut length = text.len();
    while length >= 128 {
        bytes.push(u8::try_from(length % 128).unwrap() | 128);
        length /= 128;
    }
    bytes.push(u8::try_from(length).unwrap());
    bytes.extend_from_slice(text);
}

fn read_feishu(mut bytes: &[u8]) -> Value {
    fn number(bytes: &mut &[u8]) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = usize::from(bytes[0]);
            *bytes = &bytes[1..];
            value |= (byte % 128) << shift;
            shift += 7;
            if byte < 128 {
                return value;
            }
        }
    }
    fn text(bytes: &mut &[u8]) -> String {
        let length = number(bytes);
        let (text, rest) = bytes.split_at(length);
        *bytes = rest;
        String::from_utf8_lossy(text).into_owned()
    }
    let mut frame = json!({ "headers": {} });
    while !bytes.is_empty() {
        let tag = number(&mut bytes);
        match tag >> 3 {
            field @ 1..=4 => {
                let name = ["SeqID", "LogID", "service", "method"][field - 1];
                frame[name] = number(&mut bytes).into();
            }
            5 => {
                let length = number(&mut bytes);
                let (mut header, rest) = bytes.split_at(length);
                bytes = rest;
                number(&mut header);
                let key = text(&mut header);
                number(&mut header);
                frame["headers"][key] = text(&mut header).into();
            }
            8 => frame["payload"] = text(&mut bytes).into(),
            _ => drop(text(&mut bytes)),
        }
    }
    frame
}
