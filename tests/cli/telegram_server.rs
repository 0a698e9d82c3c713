//! A stand-in for the Telegram Bot API on loopback. It keeps the rules of the real one: updates stay until an offset
//! confirms them, a second `getUpdates` ends the first with 409, a message's text has at most 4096 UTF-16 units.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub(crate) const TOKEN: &str = "4242:token-of-the-story";

/// One call: the method, and the JSON body; a form's text for an upload.
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
    next_update: i64,
    next_message: i64,
    calls: Vec<Call>,
    /// Failures by method, used up in order.
    failures: Vec<(String, VecDeque<Failure>)>,
    /// Number of the latest `getUpdates`.
    poll_number: usize,
}

pub(crate) struct TelegramServer {
    pub(crate) port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl TelegramServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        state.0.lock().unwrap().next_update = 100;
        state.0.lock().unwrap().next_message = 1000;
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Self { port, state }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A message in a private chat, whose id is the sender's.
    pub(crate) fn message(&self, from: i64, text: &str) {
        self.add(json!({
            "from": { "id": from, "username": format!("user{from}"), "is_bot": false },
            "chat": { "id": from, "type": "private" }, "text": text,
        }));
    }

    /// Adds an update with this message; ids and date are filled in.
    pub(crate) fn add(&self, mut message: Value) {
        let mut state = self.state.0.lock().unwrap();
        state.next_update += 1;
        message["message_id"] = (state.next_update - 100).into();
        if message["date"].is_null() {
            // The fixed time of a story, 2026-01-02T03:04:05Z.
            message["date"] = 1_767_323_045.into();
        }
        let update = json!({ "update_id": state.next_update, "message": message });
        state.updates.push(update);
        drop(state);
        self.state.1.notify_all();
    }

    /// The next call of `method` fails.
    pub(crate) fn fail(&self, method: &str, status: u16, body: Value) {
        self.push_failure(method, Some((status, body)));
    }

    /// The next call of `method` gets no answer.
    pub(crate) fn stall(&self, method: &str) {
        self.push_failure(method, None);
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
        let Some((status, body)) = answer(&path, &raw, shared) else {
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

fn answer(path: &str, raw: &[u8], shared: &(Mutex<State>, Condvar)) -> Option<(u16, Vec<u8>)> {
    let error = |status: u16, text: &str| {
        let body = json!({ "ok": false, "error_code": status, "description": text });
        Some((status, body.to_string().into_bytes()))
    };
    if path.starts_with(&format!("/file/bot{TOKEN}/")) {
        return Some((200, b"the content of the file".to_vec()));
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
    let call = Call {
        method: method.to_owned(),
        body: serde_json::from_slice(raw).unwrap_or_default(),
        raw: String::from_utf8_lossy(raw).into_owned(),
    };
    let mut state = shared.0.lock().unwrap();
    state.calls.push(call.clone());
    shared.1.notify_all();
    let failures = state.failures.iter_mut().find(|(name, _)| name == method);
    if let Some(failure) = failures.and_then(|(_, queue)| queue.pop_front()) {
        let (status, body) = failure?;
        return Some((status, body.to_string().into_bytes()));
    }
    let result = match method {
        "getMe" => json!({ "id": 4242, "is_bot": true, "username": "story_bot" }),
        "getUpdates" => {
            state.poll_number += 1;
            let number = state.poll_number;
            shared.1.notify_all();
            let offset = call.body["offset"].as_i64().unwrap();
            state
                .updates
                .retain(|update| update["update_id"].as_i64().unwrap() >= offset);
            let timeout = Duration::from_secs(call.body["timeout"].as_u64().unwrap());
            let is_idle =
                |state: &mut State| state.updates.is_empty() && state.poll_number == number;
            state = shared
                .1
                .wait_timeout_while(state, timeout, is_idle)
                .unwrap()
                .0;
            if state.poll_number != number {
                return error(409, "Conflict: terminated by other getUpdates request");
            }
            Value::from(state.updates.iter().take(100).cloned().collect::<Vec<_>>())
        }
        "sendMessage" => {
            let text = call.body["text"].as_str().unwrap_or_default();
            assert!(call.body["chat_id"].is_number(), "{call:?}");
            if text.trim().is_empty() || text.encode_utf16().count() > 4096 {
                return error(400, "Bad Request: message is too long");
            }
            if call.body["parse_mode"] == "HTML" && text.contains("REJECT") {
                return error(400, "Bad Request: can't parse entities: unclosed tag");
            }
            state.next_message += 1;
            json!({ "message_id": state.next_message })
        }
        "sendPhoto" | "sendDocument" | "sendVoice" => {
            state.next_message += 1;
            json!({ "message_id": state.next_message })
        }
        "getFile" => json!({ "file_path": "documents/file_1" }),
        "sendChatAction" | "setMessageReaction" | "setMyCommands" => true.into(),
        other => return error(404, &format!("Not Found: {other}")),
    };
    let body = json!({ "ok": true, "result": result });
    Some((200, body.to_string().into_bytes()))
}
