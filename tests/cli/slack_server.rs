//! Slack's Web API on loopback: histories and threads with pages, messages with metadata, uploads, and Socket Mode. It
//! takes arguments as JSON, as a form, or in the query. Calls are validated against `tests/schemas/slack.json`.
//! `tests/real/chat` tests it with slack_sdk.

use crate::call_schemas::{CallCheck, CallGuard};
use crate::server::{Request, Response, Server};
use crate::socket_server::Sockets;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

pub(crate) const BOT: &str = "UBOT";
pub(crate) const ANN: &str = "UANN";
pub(crate) const TOKEN: &str = "xoxb-story";
pub(crate) const APP_TOKEN: &str = "xapp-story";
/// The fixed time of a story, 2026-01-02T03:04:05Z.
const STORY_TIME: u64 = 1_767_323_045;

pub(crate) struct SlackServer {
    pub(crate) http: Server,
    pub(crate) sockets: Sockets,
    pub(crate) checked: CallCheck,
    state: Arc<Mutex<State>>,
    _guard: CallGuard,
}

#[derive(Default)]
struct State {
    base: String,
    /// All messages in order.
    messages: Vec<Value>,
    channels: Vec<String>,
    files: Vec<String>,
    /// Calls of methods with their arguments.
    calls: Vec<(String, Value)>,
    /// Responses to the next calls of methods.
    failures: BTreeMap<String, VecDeque<Response>>,
}

impl SlackServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let state = State {
            base: format!("http://127.0.0.1:{}", http.port),
            channels: vec!["D1".into(), "C1".into()],
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let sockets = Sockets::new(Box::new(|message| match message {
            Value::Null => vec![json!({ "type": "hello", "num_connections": 1 })],
            _ => Vec::new(),
        }));
        let (server_state, accepting) = (Arc::clone(&state), sockets.clone());
        let checked = CallCheck::new(include_str!("../schemas/slack.json"));
        let check = checked.clone();
        http.always(Box::new(move |request| {
            if let Some(path) = request.path.strip_prefix("/api") {
                check.check(request, path);
            }
            if request.path.starts_with("/socket") {
                accepting.accept(request)
            } else {
                respond(&mut server_state.lock().unwrap(), request)
            }
        }));
        Self { http, sockets, _guard: checked.guard(), checked, state }
    }

    pub(crate) fn base(&self) -> String {
        self.state.lock().unwrap().base.clone() + "/api"
    }

    pub(crate) fn keys(&self) -> Value {
        json!({ "apiBase": self.base(), "botToken": TOKEN, "allowFrom": [ANN], "enabled": true })
    }

    pub(crate) fn add_channel(&self, id: &str) {
        let mut state = self.state.lock().unwrap();
        if !state.channels.iter().any(|other| other == id) {
            state.channels.push(id.to_owned());
        }
    }

    /// Adds a message of a user, and tells of it; returns its time stamp.
    pub(crate) fn write(&self, channel: &str, user: &str, text: &str) -> String {
        self.add(json!({ "channel": channel, "user": user, "text": text }))
    }

    pub(crate) fn add(&self, message: Value) -> String {
        let mut state = self.state.lock().unwrap();
        let stamp = state.add(message);
        let mut event = state.messages.last().unwrap().clone();
        event["type"] = json!("message");
        let is_direct = event["channel"].as_str().unwrap().starts_with('D');
        event["channel_type"] = json!(if is_direct { "im" } else { "channel" });
        drop(state);
        self.sockets.send(&json!({ "type": "events_api", "envelope_id": format!("e{stamp}"),
            "accepts_response_payload": false, "payload": { "type": "event_callback", "event": event } }));
        stamp
    }

    /// The user changes the last message (Slack, "message_changed").
    pub(crate) fn edit_last(&self, text: &str) {
        let mut message = self.state.lock().unwrap().messages.last().unwrap().clone();
        message["text"] = json!(text);
        let event = json!({ "type": "message", "subtype": "message_changed", "hidden": true,
            "channel": message["channel"], "message": message });
        self.sockets.send(&json!({ "type": "events_api", "envelope_id": "edit",
            "accepts_response_payload": false, "payload": { "type": "event_callback", "event": event } }));
    }

    /// The author of the last message with `text` in a channel changes it.
    pub(crate) fn edit(&self, channel: &str, text: &str, new_text: &str) {
        let mut state = self.state.lock().unwrap();
        let mut messages = state.messages.iter_mut().rev();
        let message = messages.find(|it| it["channel"] == channel && it["text"] == text);
        let message = message.expect("there is such a message");
        message["text"] = json!(new_text);
        message["edited"] = json!({ "user": message["user"], "ts": format!("{STORY_TIME}.9") });
    }

    /// The payload of a press of the button with this answer below our last message in a channel (Slack, "`block_actions` payload").
    pub(crate) fn press_payload(&self, channel: &str, user: &str, answer: &str) -> Value {
        let question = self.answers(channel).pop().unwrap();
        let buttons = question["blocks"][1]["elements"].as_array().unwrap();
        let button = buttons.iter().find(|it| it["action_id"] == answer).unwrap();
        let stamp = format!("{STORY_TIME}.9");
        json!({
            "type": "block_actions", "api_app_id": "A1", "trigger_id": "t", "token": "old",
            "user": { "id": user, "username": "ann", "team_id": "T1" }, "team": { "id": "T1" },
            "container": { "type": "message", "message_ts": question["ts"], "channel_id": channel, "is_ephemeral": false },
            "channel": { "id": channel, "name": "directmessage" }, "message": question,
            "actions": [{ "type": "button", "action_id": answer, "block_id": "b", "value": button["value"],
                "text": button["text"], "action_ts": stamp }],
        })
    }

    /// Tells of a press over Socket Mode, once a connection is open. Its envelope is `press`.
    pub(crate) fn press(&self, payload: &Value) {
        self.sockets.wait_for_connections(1);
        self.sockets.send(&json!({ "type": "interactive", "envelope_id": "press",
            "accepts_response_payload": true, "payload": payload }));
    }

    /// Adds a file; returns its description for a message.
    pub(crate) fn add_file(&self, name: &str, content: &str) -> Value {
        let mut state = self.state.lock().unwrap();
        state.files.push(content.to_owned());
        let url = format!("{}/files/{}", state.base, state.files.len() - 1);
        json!({ "id": "F1", "name": name, "mimetype": "text/plain", "size": content.len(),
            "url_private_download": url, "url_private": url })
    }

    pub(crate) fn fail_next(&self, method: &str, response: Response) {
        let mut state = self.state.lock().unwrap();
        let failures = state.failures.entry(method.to_owned()).or_default();
        failures.push_back(response);
    }

    /// Our messages in a channel.
    pub(crate) fn answers(&self, channel: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let messages = state.messages.iter();
        messages.filter(|it| it["channel"] == channel && it["user"] == BOT).cloned().collect()
    }

    pub(crate) fn answer_texts(&self, channel: &str) -> Vec<String> {
        let answers = self.answers(channel).into_iter();
        answers.map(|it| it["text"].as_str().unwrap().to_owned()).collect()
    }

    /// The arguments of the calls of a method.
    pub(crate) fn calls(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.iter().filter(|(name, _)| name == method);
        calls.map(|(_, arguments)| arguments.clone()).collect()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        self.state.lock().unwrap().files.clone()
    }
}

impl State {
    fn add(&mut self, mut message: Value) -> String {
        let stamp = format!("{STORY_TIME}.{:06}", self.messages.len() + 1);
        message["ts"] = json!(stamp);
        message["type"] = json!("message");
        if let Some(root) = message["thread_ts"].as_str().map(str::to_owned) {
            let mut parents = self.messages.iter_mut();
            let parent = parents.find(|it| it["ts"] == root.as_str());
            let parent = parent.expect("a thread has a root");
            parent["thread_ts"] = json!(root);
            parent["latest_reply"] = json!(stamp);
            parent["reply_count"] = json!(parent["reply_count"].as_u64().unwrap_or(0) + 1);
        }
        self.messages.push(message);
        stamp
    }

    fn post(&mut self, arguments: &Value) -> Response {
        let channel = arguments["channel"].as_str().unwrap_or_default();
        let text = |name: &str| arguments[name].as_str().unwrap_or_default();
        let (markdown, plain) = (text("markdown_text"), text("text"));
        let root = arguments["thread_ts"].as_str();
        let is_root = |it: &Value| it["channel"] == channel && it["ts"] == root.unwrap_or_default();
        if !self.channels.iter().any(|other| other == channel) {
            return refuse("channel_not_found");
        }
        if root.is_some() && !self.messages.iter().any(is_root) {
            return refuse("thread_not_found");
        }
        if !markdown.is_empty() && !plain.is_empty() {
            return refuse("markdown_text_conflict");
        }
        if markdown.is_empty() && plain.is_empty() {
            return refuse("no_text");
        }
        if markdown.chars().count() > 12_000 || plain.chars().count() > 40_000 {
            return refuse("msg_too_long");
        }
        let mut message = json!({ "channel": channel, "user": BOT, "bot_id": "B1",
            "text": if markdown.is_empty() { plain } else { markdown }, "metadata": arguments["metadata"] });
        if arguments["blocks"].is_array() {
            message["blocks"] = arguments["blocks"].clone();
        }
        if let Some(root) = root {
            message["thread_ts"] = json!(root);
        }
        let stamp = self.add(message);
        accept(json!({ "channel": channel, "ts": stamp, "message": self.messages.last().unwrap() }))
    }

    /// A page of a list.
    fn page(member: &str, all: &[Value], arguments: &Value) -> Response {
        let number = |name: &str| match &arguments[name] {
            Value::String(text) => text.parse().ok(),
            value => value.as_u64().map(|number| usize::try_from(number).unwrap()),
        };
        let start = number("cursor").unwrap_or(0).min(all.len());
        let end = (start + number("limit").unwrap_or(100)).min(all.len());
        let next = if end < all.len() { end.to_string() } else { String::new() };
        accept(json!({ member: all[start..end], "has_more": end < all.len(),
            "response_metadata": { "next_cursor": next } }))
    }
}

fn accept(mut body: Value) -> Response {
    body["ok"] = json!(true);
    Response::json(200, &body)
}

pub(crate) fn refuse(error: &str) -> Response {
    Response::json(200, &json!({ "ok": false, "error": error, "needed": "channels:history" }))
}

/// The arguments of a call.
fn arguments(request: &Request) -> Value {
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    let is_form =
        request.header("content-type").is_some_and(|kind| kind.contains("x-www-form-urlencoded"));
    let form = if is_form { request.raw.as_str() } else { "" };
    let pairs = [query, form];
    let pairs = pairs.iter().flat_map(|text| url::form_urlencoded::parse(text.as_bytes()));
    let mut all: Map<String, Value> = pairs
        .map(|(name, value)| {
            let is_nested = value.starts_with(['[', '{']);
            let parsed = serde_json::from_str(&value).ok().filter(|_| is_nested);
            (name.into_owned(), parsed.unwrap_or_else(|| json!(value)))
        })
        .collect();
    all.extend(request.body.as_object().cloned().unwrap_or_default());
    all.into()
}

fn respond(state: &mut State, request: &Request) -> Response {
    let path = request.path.split('?').next().unwrap();
    if let Some(number) = path.strip_prefix("/files/") {
        if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return Response::text(200, "text/html", "<!DOCTYPE html><title>Login</title>");
        }
        return Response::text(200, "text/plain", &state.files[number.parse::<usize>().unwrap()]);
    }
    if path.starts_with("/upload/") {
        state.files.push(request.raw.clone());
        return Response::text(200, "text/plain", "OK");
    }
    let Some(method) = path.strip_prefix("/api/") else {
        return Response::text(404, "text/html", "no page");
    };
    let arguments = arguments(request);
    state.calls.push((method.to_owned(), arguments.clone()));
    let token = match method {
        "apps.connections.open" => APP_TOKEN,
        _ => TOKEN,
    };
    if request.header("authorization") != Some(&format!("Bearer {token}")) {
        return refuse("invalid_auth");
    }
    let failures = state.failures.get_mut(method);
    if let Some(response) = failures.and_then(VecDeque::pop_front) {
        return response;
    }
    let channel = arguments["channel"].as_str().unwrap_or_default();
    let in_channel = || {
        let all = state.messages.iter();
        all.filter(|it| it["channel"] == channel)
    };
    let stamp = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    let is_between = |it: &&Value| {
        let at = it["ts"].as_str().unwrap();
        let (oldest, latest) = (stamp("oldest"), stamp("latest"));
        at > oldest.as_str() && (latest.is_empty() || at < latest.as_str())
    };
    if method.starts_with("conversations.")
        && method != "conversations.open"
        && !state.channels.iter().any(|other| other == channel)
    {
        return refuse("channel_not_found");
    }
    match method {
        "auth.test" => {
            accept(json!({ "user_id": BOT, "user": "bot", "bot_id": "B1", "team_id": "T1" }))
        }
        "users.conversations" => {
            let channels = state.channels.iter();
            let channels = channels.map(|id| json!({ "id": id, "is_im": id.starts_with('D') }));
            State::page("channels", &channels.collect::<Vec<_>>(), &arguments)
        }
        "conversations.history" => {
            let is_top = |it: &&Value| it["thread_ts"].is_null() || it["thread_ts"] == it["ts"];
            let newest = in_channel().rev().filter(is_top).filter(is_between);
            State::page("messages", &newest.cloned().collect::<Vec<_>>(), &arguments)
        }
        "conversations.replies" => {
            let root = stamp("ts");
            let thread = in_channel().filter(|it| {
                it["ts"] == root.as_str() || it["thread_ts"] == root.as_str() && is_between(it)
            });
            State::page("messages", &thread.cloned().collect::<Vec<_>>(), &arguments)
        }
        "conversations.open" => match arguments["users"].as_str() {
            Some(ANN) => accept(json!({ "channel": { "id": "D1" } })),
            _ => refuse("user_not_found"),
        },
        "chat.postMessage" => state.post(&arguments),
        "chat.update" => {
            let mut messages = state.messages.iter_mut();
            let is_meant = |it: &&mut Value| {
                it["channel"] == arguments["channel"] && it["ts"] == arguments["ts"]
            };
            let Some(message) = messages.find(is_meant) else {
                return refuse("message_not_found");
            };
            (message["text"], message["blocks"]) =
                (arguments["text"].clone(), arguments["blocks"].clone());
            accept(json!({ "channel": arguments["channel"], "ts": arguments["ts"] }))
        }
        "reactions.add" | "reactions.remove" => accept(json!({})),
        "files.getUploadURLExternal" => {
            let url = format!("{}/upload/{}", state.base, state.files.len());
            accept(json!({ "upload_url": url, "file_id": "F9" }))
        }
        "files.completeUploadExternal" => accept(json!({ "files": [{ "id": "F9" }] })),
        "apps.connections.open" => {
            accept(json!({ "url": state.base.replacen("http", "ws", 1) + "/socket?ticket=t" }))
        }
        _ => refuse("unknown_method"),
    }
}
