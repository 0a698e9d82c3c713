//! A stand-in for the Telegram Bot API on loopback. It keeps the rules of the real one: updates stay until an offset
//! confirms them, a second `getUpdates` ends the first with 409, a message's text has at most 4096 UTF-16 units. Calls are
//! validated against `tests/schemas/telegram.json`. `tests/real/telegram` tests this server with python-telegram-bot.

use crate::attach::png_image;
use crate::call_schemas::form_fields;
use crate::json_schema::Validator;
use crate::listener::Listener;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Duration;

/// The fixed time of a story, 2026-01-02T03:04:05Z.
const STORY_TIME: i64 = 1_767_323_045;
/// The id of a file whose text has a NUL.
pub(crate) const NUL_FILE: &str = "nul";
/// The id of a picture.
pub(crate) const PHOTO_FILE: &str = "photo";
pub(crate) const TOKEN: &str = "4242:token-of-the-story";

/// One call: the method, and the JSON body or the fields of a form. `raw` is the text of either.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) body: Value,
    pub(crate) raw: String,
}

/// An answer that replaces the usual one: status and body. `None` stalls until the server ends.
type Failure = Option<(u16, Value)>;

#[derive(Default)]
struct State {
    updates: Vec<Value>,
    /// The last message of a user.
    last_message: Value,
    next_update: i64,
    next_message: i64,
    calls: Vec<Call>,
    /// Failures by method, used up in order.
    failures: Vec<(String, VecDeque<Failure>)>,
    /// Number of the latest `getUpdates`.
    poll_number: usize,
    /// All markup is refused.
    rejects_markup: bool,
    /// Calls that the Bot API does not describe.
    violations: Vec<String>,
}

impl State {
    /// The message that a call of a send method makes.
    fn send(&mut self, body: &Value) -> Value {
        self.next_message += 1;
        json!({
            "message_id": self.next_message, "date": STORY_TIME, "text": body["text"],
            "chat": { "id": body["chat_id"], "type": "private" },
            "from": { "id": 4242, "is_bot": true, "first_name": "Story" },
        })
    }
}

pub(crate) struct TelegramServer {
    pub(crate) port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
    _listener: Listener,
}

impl TelegramServer {
    pub(crate) fn start() -> Self {
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        state.0.lock().unwrap().next_update = 100;
        state.0.lock().unwrap().next_message = 1000;
        let shared = state.clone();
        let listener = Listener::start(move |stream| serve(stream, &shared));
        Self { port: listener.port, state, _listener: listener }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A message in a private chat, whose id is the sender's.
    pub(crate) fn message(&self, from: i64, text: &str) {
        self.add(json!({
            "from": { "id": from, "username": format!("user{from}"), "first_name": "A", "is_bot": false },
            "chat": { "id": from, "type": "private" }, "text": text,
        }));
    }

    /// Adds an update with this message; ids and date are filled in.
    pub(crate) fn add(&self, mut message: Value) {
        let mut state = self.state.0.lock().unwrap();
        state.next_update += 1;
        message["message_id"] = (state.next_update - 100).into();
        if message["date"].is_null() {
            message["date"] = STORY_TIME.into();
        }
        state.last_message = message.clone();
        let update = json!({ "update_id": state.next_update, "message": message });
        state.updates.push(update);
        drop(state);
        self.state.1.notify_all();
    }

    /// Adds an update with another text of the last message.
    pub(crate) fn edit_last(&self, from: i64, text: &str) {
        let mut message = self.state.0.lock().unwrap().last_message.clone();
        message["from"]["id"] = from.into();
        (message["text"], message["edit_date"]) = (text.into(), STORY_TIME.into());
        self.edit(&message);
    }

    /// Adds an update with an edited message.
    pub(crate) fn edit(&self, message: &Value) {
        self.push_update("edited_message", message);
    }

    /// Adds an update with the press of a button: a `CallbackQuery` with its id.
    pub(crate) fn press(&self, query: &Value) {
        self.push_update("callback_query", query);
    }

    fn push_update(&self, kind: &str, content: &Value) {
        let mut state = self.state.0.lock().unwrap();
        state.next_update += 1;
        let update = json!({ "update_id": state.next_update, kind: content });
        state.updates.push(update);
        drop(state);
        self.state.1.notify_all();
    }

    /// The number of our last message with buttons, and what its buttons give back.
    pub(crate) fn last_buttons(&self) -> (i64, Vec<String>) {
        let calls = self.calls("sendMessage");
        let index = calls.iter().rposition(|call| call.body["reply_markup"].is_object()).unwrap();
        let row = calls[index].body["reply_markup"]["inline_keyboard"][0].as_array().unwrap();
        let payloads = row.iter().map(|it| it["callback_data"].as_str().unwrap().to_owned());
        // The first message is number 1001.
        (1001 + i64::try_from(index).unwrap(), payloads.collect())
    }

    /// The next call of `method` fails.
    pub(crate) fn fail(&self, method: &str, status: u16, body: Value) {
        self.push_failure(method, Some((status, body)));
    }

    /// The next call of `method` gets no answer.
    pub(crate) fn stall(&self, method: &str) {
        self.push_failure(method, None);
    }

    /// From now on no markup can be parsed.
    pub(crate) fn reject_markup(&self) {
        self.state.0.lock().unwrap().rejects_markup = true;
    }

    fn push_failure(&self, method: &str, failure: Failure) {
        let mut state = self.state.0.lock().unwrap();
        match state.failures.iter_mut().find(|(name, _)| name == method) {
            Some((_, queue)) => queue.push_back(failure),
            None => state.failures.push((method.into(), [failure].into())),
        }
    }

    pub(crate) fn calls(&self, method: &str) -> Vec<Call> {
        let state = self.state.0.lock().unwrap();
        let calls = state.calls.iter().filter(|call| call.method == method);
        calls.cloned().collect()
    }

    /// The texts of `sendMessage`, in order.
    pub(crate) fn sent(&self) -> Vec<String> {
        let calls = self.calls("sendMessage").into_iter();
        let text = |call: Call| call.body["text"].as_str().unwrap_or_default().to_owned();
        calls.map(text).collect()
    }

    /// Waits until `method` was called `count` times.
    pub(crate) fn wait_for_calls(&self, method: &str, count: usize) {
        let state = self.state.0.lock().unwrap();
        let is_enough = |state: &mut State| {
            let calls = state.calls.iter().filter(|call| call.method == method);
            calls.count() < count
        };
        let limit = Duration::from_secs(60);
        let waited = self.state.1.wait_timeout_while(state, limit, is_enough);
        let (state, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "{method}: {:?}", state.calls);
    }
}

impl Drop for TelegramServer {
    fn drop(&mut self) {
        let state = self.state.0.lock().unwrap();
        if !std::thread::panicking() {
            assert_eq!(state.violations, Vec::<String>::new());
        }
    }
}

fn serve(stream: &TcpStream, shared: &(Mutex<State>, Condvar)) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
            head.push(std::mem::take(&mut line));
        }
        let Some(first) = head.first() else { return };
        let path = first.split(' ').nth(1).unwrap().to_owned();
        let length = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().unwrap())
        });
        let mut raw = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut raw).is_err() {
            return;
        }
        let media_type = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-type").then(|| value.trim())
        });
        let body = to_json(media_type.unwrap_or_default(), &raw);
        let Some((status, body)) = answer(&path, body, &raw, shared) else {
            // Held open: the client waits until it is killed or gives up.
            drop(reader.read(&mut [0; 1]));
            return;
        };
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = stream;
        if stream.write_all(head.as_bytes()).is_err() || stream.write_all(&body).is_err() {
            return;
        }
    }
}

/// The JSON of a body; of a form, its fields without the files.
fn to_json(media_type: &str, raw: &[u8]) -> Value {
    let Some(fields) = form_fields(media_type, &String::from_utf8_lossy(raw)) else {
        return serde_json::from_slice(raw).unwrap_or_else(|_| json!({}));
    };
    let texts = fields.iter().filter(|it| it.file_name.is_none());
    let texts = texts.map(|it| (it.name.clone(), field(&it.value)));
    texts.collect::<Map<String, Value>>().into()
}

/// The value of a form's field: JSON, or else a text.
fn field(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Validates the body of a call against the types of the Bot API.
fn validate(method: &str, body: &Value) -> Result<(), String> {
    static VALIDATORS: LazyLock<BTreeMap<String, Validator>> = LazyLock::new(|| {
        let source = include_str!("../schemas/telegram.json");
        let mut schema: Value = serde_json::from_str(source).unwrap();
        let names = schema["$defs"].as_object().unwrap().keys();
        let names: Vec<String> = names.cloned().collect();
        let validators = names.into_iter().map(|name| {
            schema["$ref"] = format!("#/$defs/{name}").into();
            let validator = Validator::new(&schema);
            (name, validator)
        });
        validators.collect()
    });
    let validator = VALIDATORS.get(method).ok_or("no such method")?;
    validator.validate(body)
}

fn answer(
    path: &str,
    body: Value,
    raw: &[u8],
    shared: &(Mutex<State>, Condvar),
) -> Option<(u16, Vec<u8>)> {
    let error = |status: u16, text: &str| {
        let body = json!({ "ok": false, "error_code": status, "description": text });
        Some((status, body.to_string().into_bytes()))
    };
    // Some clients escape the colon of the token.
    let path = &path.replace("%3A", ":");
    if path.starts_with(&format!("/file/bot{TOKEN}/")) {
        return Some((
            200,
            if path.ends_with(NUL_FILE) {
                b"text\0with a NUL".to_vec()
            } else if path.ends_with(PHOTO_FILE) {
                png_image(2, 2)
            } else {
                b"the content of the file".to_vec()
            },
        ));
    }
    let Some(method) = path.strip_prefix(&format!("/bot{TOKEN}/")) else {
        let mut state = shared.0.lock().unwrap();
        state.calls.push(Call {
            method: "unauthorized".into(),
            body: Value::Null,
            raw: String::new(),
        });
        return error(401, "Unauthorized");
    };
    let call =
        Call { method: method.to_owned(), body, raw: String::from_utf8_lossy(raw).into_owned() };
    let mut state = shared.0.lock().unwrap();
    if let Err(error) = validate(method, &call.body) {
        state.violations.push(format!("{method}: {error}"));
    }
    state.calls.push(call.clone());
    shared.1.notify_all();
    let failures = state.failures.iter_mut().find(|(name, _)| name == method);
    if let Some(failure) = failures.and_then(|(_, queue)| queue.pop_front()) {
        let (status, body) = failure?;
        return Some((status, body.to_string().into_bytes()));
    }
    let result = match method {
        "getMe" => {
            json!({ "id": 4242, "is_bot": true, "username": "story_bot", "first_name": "Story" })
        }
        "getUpdates" => {
            state.poll_number += 1;
            let number = state.poll_number;
            shared.1.notify_all();
            let offset = call.body["offset"].as_i64().unwrap_or(0);
            state.updates.retain(|update| update["update_id"].as_i64().unwrap() >= offset);
            let timeout = Duration::from_secs(call.body["timeout"].as_u64().unwrap_or(0));
            let is_idle =
                |state: &mut State| state.updates.is_empty() && state.poll_number == number;
            state = shared.1.wait_timeout_while(state, timeout, is_idle).unwrap().0;
            if state.poll_number != number {
                return error(409, "Conflict: terminated by other getUpdates request");
            }
            Value::from(state.updates.iter().take(100).cloned().collect::<Vec<_>>())
        }
        "editMessageText" => {
            json!({ "message_id": call.body["message_id"], "text": call.body["text"], "date": STORY_TIME,
                "chat": { "id": call.body["chat_id"], "type": "private" } })
        }
        "sendMessage" => {
            let text = call.body["text"].as_str().unwrap_or_default();
            if text.trim().is_empty() || text.encode_utf16().count() > 4096 {
                return error(400, "Bad Request: message is too long");
            }
            if state.rejects_markup && call.body["parse_mode"] == "HTML" {
                return error(400, "Bad Request: can't parse entities: unclosed tag");
            }
            state.send(&call.body)
        }
        "sendAudio" | "sendDocument" | "sendPhoto" | "sendVideo" | "sendVoice" => {
            state.send(&call.body)
        }
        "getFile" => {
            let id = call.body["file_id"].as_str().unwrap_or_default();
            let name = if [NUL_FILE, PHOTO_FILE].contains(&id) { id } else { "file_1" };
            json!({ "file_id": "f1", "file_unique_id": "u1", "file_path": format!("documents/{name}") })
        }
        "answerCallbackQuery" | "sendChatAction" | "setMessageReaction" | "setMyCommands" => {
            true.into()
        }
        other => return error(404, &format!("Not Found: {other}")),
    };
    let body = json!({ "ok": true, "result": result });
    Some((200, body.to_string().into_bytes()))
}
