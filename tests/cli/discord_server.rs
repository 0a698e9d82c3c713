//! Discord's REST API and gateway on loopback: histories by snowflake, nonces, forms with files, sessions that resume.
//! Calls are validated against `tests/schemas/discord.json`. `tests/real/chat` tests it with discord.py.

use crate::call_schemas::{CallCheck, CallGuard, form_fields};
use crate::server::{Request, Response, Server};
use crate::socket_server::Sockets;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const BOT: &str = "500000000000000001";
pub(crate) const ANN: &str = "500000000000000007";
pub(crate) const EVE: &str = "500000000000000008";
pub(crate) const TOKEN: &str = "discord-token";
pub(crate) const DIRECT: &str = "600000000000000001";
pub(crate) const TOWN: &str = "600000000000000002";
/// A thread in [`TOWN`].
pub(crate) const THREAD: &str = "600000000000000003";
const HIDDEN: &str = "600000000000000004";
const SERVER: &str = "700000000000000001";
/// The snowflake of a story's fixed time, 2026-01-02T03:04:05Z.
const STORY_ID: u64 = (1_767_323_045_000 - 1_420_070_400_000) << 22;
/// Characters of a message, counted in units of UTF-16.
const MAX_CONTENT: usize = 2000;

pub(crate) struct DiscordServer {
    pub(crate) http: Server,
    pub(crate) sockets: Sockets,
    pub(crate) checked: CallCheck,
    state: Arc<Mutex<State>>,
    _guard: CallGuard,
}

#[derive(Default)]
struct State {
    base: String,
    messages: Vec<Value>,
    /// Direct channels by user.
    direct: BTreeMap<String, String>,
    /// Message ids by nonce.
    nonces: BTreeMap<String, String>,
    reactions: Vec<String>,
    /// The numbers of events and sessions.
    events: u64,
    sessions: u64,
    heartbeat_millis: u64,
    /// The time until which no message is taken after one, if messages are limited, and when that is over.
    message_interval: Option<Duration>,
    next_message_at: Option<Instant>,
    /// Responses to the next messages.
    message_failures: VecDeque<Response>,
    /// Requests that came too early.
    early_requests: usize,
    /// Responses to the next requests whose path begins so.
    failures: VecDeque<(String, Response)>,
}

impl DiscordServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let state = State {
            base: format!("http://127.0.0.1:{}", http.port),
            direct: [(ANN.to_owned(), DIRECT.to_owned())].into(),
            heartbeat_millis: 200,
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let gateway = Arc::clone(&state);
        let sockets =
            Sockets::new(Box::new(move |message| gateway.lock().unwrap().answer_gateway(message)));
        let (server_state, accepting) = (Arc::clone(&state), sockets.clone());
        let checked = CallCheck::new(include_str!("../schemas/discord.json"));
        let check = checked.clone();
        http.always(Box::new(move |request| match request.header("upgrade") {
            Some(_) => accepting.accept(request),
            None => {
                if let Some(path) = request.path.strip_prefix("/api/v10") {
                    check.check(request, path);
                }
                respond(&mut server_state.lock().unwrap(), request)
            }
        }));
        Self { http, sockets, _guard: checked.guard(), checked, state }
    }

    pub(crate) fn keys(&self) -> Value {
        let base = self.state.lock().unwrap().base.clone();
        json!({ "apiBase": format!("{base}/api/v10"), "token": TOKEN, "allowFrom": [ANN], "enabled": true,
            "gatewayUrl": base.replacen("http", "ws", 1) + "/gateway/?v=10&encoding=json" })
    }

    /// Adds a message of a user, and tells of it; returns its id.
    pub(crate) fn write(&self, channel: &str, user: &str, text: &str) -> String {
        self.add(json!({ "channel_id": channel, "author": { "id": user }, "content": text }))
    }

    pub(crate) fn add(&self, message: Value) -> String {
        let mut state = self.state.lock().unwrap();
        let id = state.add(message);
        let mut data = state.messages.last().unwrap().clone();
        if !state.direct.values().any(|direct| data["channel_id"] == direct.as_str()) {
            data["guild_id"] = json!(SERVER);
        }
        state.events += 1;
        let event = json!({ "op": 0, "t": "MESSAGE_CREATE", "s": state.events, "d": data });
        drop(state);
        self.sockets.send(&event);
        id
    }

    /// The user changes the last message (Discord, "Message Update").
    pub(crate) fn edit_last(&self, text: &str) {
        let mut state = self.state.lock().unwrap();
        let mut data = state.messages.last().unwrap().clone();
        data["content"] = json!(text);
        state.events += 1;
        let event = json!({ "op": 0, "t": "MESSAGE_UPDATE", "s": state.events, "d": data });
        drop(state);
        self.sockets.send(&event);
    }

    /// Tells of a press of the button with this label below our last message in a channel (Discord, "Interaction Object"), once a
    /// session is open.
    pub(crate) fn press(&self, channel: &str, user: &str, label: &str) {
        let question = self.answers(channel).pop().unwrap();
        let buttons = question["components"][0]["components"].as_array().unwrap();
        let button = buttons.iter().find(|it| it["label"] == label).unwrap();
        let user = json!({ "id": user, "username": "ann", "discriminator": "0", "avatar": null });
        let mut state = self.state.lock().unwrap();
        state.events += 1;
        let id = (STORY_ID + 1_000_000 + state.events).to_string();
        let mut data = json!({
            "id": id, "application_id": BOT, "type": 3, "token": format!("t{id}"), "version": 1,
            "channel_id": channel, "message": question,
            "data": { "component_type": 2, "custom_id": button["custom_id"] },
        });
        if state.direct.values().any(|direct| direct == channel) {
            data["user"] = user;
        } else {
            (data["guild_id"], data["member"]) =
                (json!(SERVER), json!({ "user": user, "roles": [] }));
        }
        let event = json!({ "op": 0, "t": "INTERACTION_CREATE", "s": state.events, "d": data });
        drop(state);
        self.sockets.wait_for_message(|message| matches!(message["op"].as_u64(), Some(2 | 6)));
        self.sockets.send(&event);
    }

    /// Adds a direct channel with a user.
    pub(crate) fn add_direct(&self, user: &str, channel: &str) {
        let mut state = self.state.lock().unwrap();
        state.direct.insert(user.to_owned(), channel.to_owned());
    }

    pub(crate) fn fail_next(&self, path: &str, response: Response) {
        let mut state = self.state.lock().unwrap();
        state.failures.push_back((format!("/api/v10{path}"), response));
    }

    /// The address of a file for a message.
    pub(crate) fn file_url(&self) -> String {
        self.state.lock().unwrap().base.clone() + "/attachments/1"
    }

    /// Our messages in a channel.
    pub(crate) fn answers(&self, channel: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let messages = state.messages.iter();
        messages
            .filter(|it| it["channel_id"] == channel && it["author"]["id"] == BOT)
            .cloned()
            .collect()
    }

    pub(crate) fn answer_texts(&self, channel: &str) -> Vec<String> {
        let answers = self.answers(channel).into_iter();
        answers.map(|it| it["content"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn reactions(&self) -> Vec<String> {
        self.state.lock().unwrap().reactions.clone()
    }

    pub(crate) fn fail_next_message(&self, response: Response) {
        self.state.lock().unwrap().message_failures.push_back(response);
    }

    /// The interval of the heartbeats that the gateway asks for from now on.
    pub(crate) fn set_heartbeat_interval(&self, millis: u64) {
        self.state.lock().unwrap().heartbeat_millis = millis;
    }

    /// Takes one message in `interval`, and says so in the headers of its responses.
    pub(crate) fn limit_messages(&self, interval: Duration) {
        self.state.lock().unwrap().message_interval = Some(interval);
    }

    /// Number of messages that were refused since they came too early.
    pub(crate) fn early_requests(&self) -> usize {
        self.state.lock().unwrap().early_requests
    }

    /// Number of sessions that were begun.
    pub(crate) fn sessions(&self) -> u64 {
        self.state.lock().unwrap().sessions
    }
}

impl State {
    fn add(&mut self, mut message: Value) -> String {
        let id = (STORY_ID + self.messages.len() as u64 + 1).to_string();
        message["id"] = json!(id);
        for (key, value) in [
            ("type", json!(0)),
            ("mentions", json!([])),
            ("mention_roles", json!([])),
            ("attachments", json!([])),
            ("embeds", json!([])),
            ("timestamp", json!("2026-01-02T03:04:05+00:00")),
            ("edited_timestamp", Value::Null),
            ("tts", json!(false)),
            ("pinned", json!(false)),
            ("mention_everyone", json!(false)),
        ] {
            if message.get(key).is_none() {
                message[key] = value;
            }
        }
        let user = &mut message["author"];
        if user.get("username").is_none() {
            let name = format!("name-of-{}", user["id"].as_str().unwrap());
            user["username"] = json!(name);
            user["discriminator"] = json!("0");
            user["avatar"] = Value::Null;
        }
        self.messages.push(message);
        id
    }

    fn last_id(&self, channel: &str) -> Value {
        let all = self.messages.iter().rev();
        let mut all = all.filter(|it| it["channel_id"] == channel);
        all.next().map_or(Value::Null, |last| last["id"].clone())
    }

    fn answer_gateway(&mut self, message: &Value) -> Vec<Value> {
        let url = self.base.replacen("http", "ws", 1) + "/gateway";
        let user = json!({ "id": BOT, "username": "bot", "discriminator": "0", "avatar": null, "bot": true });
        match message["op"].as_u64() {
            None => {
                let interval = json!({ "heartbeat_interval": self.heartbeat_millis });
                vec![json!({ "op": 10, "d": interval, "s": null, "t": null })]
            }
            Some(1) => vec![json!({ "op": 11, "d": null, "s": null, "t": null })],
            Some(2) if message["d"]["token"] == TOKEN => {
                self.sessions += 1;
                self.events += 1;
                let ready = json!({ "v": 10, "session_id": format!("s{}", self.sessions), "user": user,
                    "resume_gateway_url": url, "guilds": [], "application": { "id": BOT, "flags": 0 } });
                vec![json!({ "op": 0, "t": "READY", "s": self.events, "d": ready })]
            }
            Some(6) if message["d"]["session_id"] == format!("s{}", self.sessions).as_str() => {
                self.events += 1;
                vec![json!({ "op": 0, "t": "RESUMED", "s": self.events, "d": {} })]
            }
            _ => vec![json!({ "op": 9, "d": false, "s": null, "t": null })],
        }
    }

    /// Takes a message within the limit of messages.
    fn post_limited(&mut self, channel: &str, body: &Value) -> Response {
        if let Some(response) = self.message_failures.pop_front() {
            return response;
        }
        let Some(interval) = self.message_interval else {
            return self.post(channel, body);
        };
        let now = Instant::now();
        let delay = self.next_message_at.map(|at| at.saturating_duration_since(now));
        let delay = delay.unwrap_or_default();
        if !delay.is_zero() {
            self.early_requests += 1;
            let seconds = delay.as_secs_f64();
            let body = json!({ "message": "You are being rate limited.", "retry_after": seconds, "global": false });
            return Response::json(429, &body).header("x-ratelimit-remaining", "0");
        }
        self.next_message_at = Some(now + interval);
        let response = self.post(channel, body);
        response
            .header("x-ratelimit-limit", "1")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset-after", &interval.as_secs_f64().to_string())
            .header("x-ratelimit-bucket", "b1")
    }

    fn post(&mut self, channel: &str, body: &Value) -> Response {
        let text = body["content"].as_str().unwrap_or_default();
        let has_files = body["files"].is_array();
        if text.encode_utf16().count() > MAX_CONTENT || text.is_empty() && !has_files {
            return error(400, 50035, "Invalid Form Body");
        }
        let nonce = body["nonce"].as_str().unwrap_or_default();
        if nonce.len() > 25 {
            return error(400, 50035, "Invalid Form Body");
        }
        if body["enforce_nonce"] == true
            && let Some(id) = self.nonces.get(nonce)
        {
            let mut messages = self.messages.iter();
            let message = messages.find(|it| it["id"] == id.as_str());
            return Response::json(200, message.unwrap());
        }
        let mut message = body.clone();
        message["channel_id"] = json!(channel);
        message["author"] = json!({ "id": BOT, "bot": true });
        let files = body["files"].as_array().into_iter().flatten();
        let url = self.base.clone() + "/attachments/1";
        let attachments = files.map(|file| {
            json!({ "id": "1", "filename": "a.txt", "url": url, "proxy_url": url,
                "size": file.as_str().unwrap().len() })
        });
        message["attachments"] = attachments.collect();
        let id = self.add(message);
        self.nonces.insert(nonce.to_owned(), id);
        Response::json(200, self.messages.last().unwrap())
    }
}

fn error(status: u16, code: u64, message: &str) -> Response {
    Response::json(status, &json!({ "code": code, "message": message }))
}

/// The JSON of a message, with the files of a form.
fn message_body(request: &Request) -> Value {
    let kind = request.header("content-type").unwrap_or_default();
    let Some(fields) = form_fields(kind, &request.raw) else {
        return request.body.clone();
    };
    let mut body = json!({});
    let mut files = Vec::new();
    for field in fields {
        match field.file_name {
            None => body = serde_json::from_str(&field.value).unwrap(),
            Some(name) => files.push(format!("{name}: {}", field.value)),
        }
    }
    body["files"] = json!(files);
    body
}

fn respond(state: &mut State, request: &Request) -> Response {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    if path == "/attachments/1" {
        assert_eq!(request.header("authorization"), None);
        return Response::text(200, "text/plain", "buy milk");
    }
    if request.header("authorization") != Some(&format!("Bot {TOKEN}")) {
        return error(401, 0, "401: Unauthorized");
    }
    assert!(request.header("user-agent").unwrap().starts_with("DiscordBot ("));
    let failure = state.failures.iter().position(|(start, _)| path.starts_with(start.as_str()));
    if let Some((_, response)) = failure.and_then(|at| state.failures.remove(at)) {
        return response;
    }
    let path = path.trim_start_matches("/api/v10/").replace("%40", "@");
    let parts: Vec<&str> = path.split('/').collect();
    let channel = |state: &State, id: &str, kind: u64, parent: Value| {
        json!({ "id": id, "type": kind, "name": "c", "parent_id": parent, "guild_id": SERVER,
            "last_message_id": state.last_id(id) })
    };
    let exists = |state: &State, id: &str| {
        [TOWN, THREAD].contains(&id) || state.direct.values().any(|direct| direct == id)
    };
    let body = match parts.as_slice() {
        ["users", "@me"] => {
            json!({ "id": BOT, "username": "bot", "discriminator": "0", "avatar": null, "bot": true })
        }
        ["oauth2", "applications", "@me"] => {
            json!({ "id": BOT, "name": "bot", "icon": null, "description": "",
            "bot_public": true, "bot_require_code_grant": false, "verify_key": "", "flags": 0,
            "owner": { "id": ANN, "username": "ann", "discriminator": "0", "avatar": null } })
        }
        ["users", "@me", "guilds"] => json!([{ "id": SERVER, "name": "server" }]),
        ["users", "@me", "channels"] => {
            let user = match &request.body["recipient_id"] {
                Value::String(user) => user.clone(),
                other => other.to_string(),
            };
            match state.direct.get(&user) {
                Some(id) => json!({ "id": id, "type": 1, "last_message_id": state.last_id(id),
                    "recipients": [{ "id": user, "username": "x", "discriminator": "0", "avatar": null }] }),
                None => return error(400, 50033, "Invalid Recipient(s)"),
            }
        }
        ["guilds", _, "channels"] => json!([
            channel(state, TOWN, 0, Value::Null),
            channel(state, HIDDEN, 0, Value::Null),
            channel(state, "600000000000000009", 4, Value::Null),
        ]),
        ["guilds", _, "threads", "active"] => {
            json!({ "threads": [channel(state, THREAD, 11, json!(TOWN))], "members": [] })
        }
        ["channels", id] => channel(state, id, if *id == THREAD { 11 } else { 0 }, json!(TOWN)),
        ["channels", HIDDEN, ..] => return error(403, 50001, "Missing Access"),
        ["channels", id, ..] if !exists(state, id) => return error(404, 10003, "Unknown Channel"),
        ["channels", _, "typing"] => json!({}),
        ["channels", id, "messages"] if request.method == "GET" => {
            let query = |name: &str| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            let after: u64 = query("after").map_or(0, |text| text.parse().unwrap());
            let limit = query("limit").map_or(50, |text| text.parse().unwrap());
            let all = state.messages.iter().filter(|it| it["channel_id"] == *id);
            let newer = all.filter(|it| it["id"].as_str().unwrap().parse::<u64>().unwrap() > after);
            let page: Vec<&Value> = newer.take(limit).collect();
            page.into_iter().rev().cloned().collect()
        }
        ["interactions", _, _, "callback"] => json!({}),
        ["channels", _, "messages", id] if request.method == "PATCH" => {
            let mut messages = state.messages.iter_mut();
            let Some(message) = messages.find(|it| it["id"] == **id) else {
                return error(404, 10008, "Unknown Message");
            };
            for (name, value) in request.body.as_object().unwrap() {
                message[name] = value.clone();
            }
            message.clone()
        }
        ["channels", id, "messages"] => return state.post_limited(id, &message_body(request)),
        ["channels", _, "messages", _, "reactions", emoji, "@me"] => {
            state.reactions.push((*emoji).to_owned());
            json!({})
        }
        _ => return error(404, 0, "404: Not Found"),
    };
    Response::json(200, &body)
}
