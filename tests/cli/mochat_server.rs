//! Mochat on loopback: sessions with positions, and panels of a group. `tests/real/push` tests it with the channel of the
//! Python program.

use crate::server::{Request, Response, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const AGENT: &str = "agent1";
const TOKEN: &str = "claw-of-the-story";

pub(crate) struct MochatServer {
    pub(crate) http: Server,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The events of each session.
    sessions: BTreeMap<String, Vec<Value>>,
    /// The messages of each panel, the oldest first.
    panels: BTreeMap<String, Vec<Value>>,
    /// Answers as chat and text.
    answers: Vec<(String, String)>,
    calls: Vec<(String, Value)>,
}

impl MochatServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let state: Arc<Mutex<State>> = Arc::default();
        let server_state = Arc::clone(&state);
        http.always(Box::new(move |request| respond(&server_state, request)));
        Self { http, state }
    }

    pub(crate) fn keys(&self) -> Value {
        json!({ "enabled": true, "baseUrl": format!("http://127.0.0.1:{}", self.http.port), "clawToken": TOKEN,
            "agentUserId": AGENT, "sessions": ["*"], "panels": ["*"], "allowFrom": ["ann"] })
    }

    /// Adds a message to a session, which begins with `session_`, or to a panel.
    pub(crate) fn write(&self, chat: &str, id: &str, author: &str, content: &str) {
        let mut state = self.state.lock().unwrap();
        let message = json!({ "messageId": id, "author": author, "content": content, "authorInfo": { "nickname": author },
            "meta": {} });
        if chat.starts_with("session_") {
            let events = state.sessions.entry(chat.to_owned()).or_default();
            let number = events.len() + 1;
            events.push(
                json!({ "seq": number, "type": "message.add", "timestamp": "2026-01-02T03:04:05Z",
                "payload": message }),
            );
        } else {
            let mut message = message;
            message["createdAt"] = json!("2026-01-02T03:04:05Z");
            state.panels.entry(chat.to_owned()).or_default().push(message);
        }
    }

    /// The number of messages in sessions.
    pub(crate) fn message_count(&self) -> usize {
        self.state.lock().unwrap().sessions.values().map(Vec::len).sum()
    }

    pub(crate) fn answers(&self) -> Vec<(String, String)> {
        self.state.lock().unwrap().answers.clone()
    }

    pub(crate) fn calls(&self, path: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.iter().filter(|(called, _)| called == path);
        calls.map(|(_, body)| body.clone()).collect()
    }
}

fn accept(data: &Value) -> Response {
    Response::json(200, &json!({ "code": 200, "data": data }))
}

fn respond(state: &Arc<Mutex<State>>, request: &Request) -> Response {
    let body = &request.body;
    state.lock().unwrap().calls.push((request.path.clone(), body.clone()));
    if request.header("x-claw-token") != Some(TOKEN) {
        return Response::json(200, &json!({ "code": 401, "message": "invalid claw token" }));
    }
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    match request.path.as_str() {
        "/api/claw/sessions/list" => {
            let state = state.lock().unwrap();
            let sessions = state.sessions.keys();
            let sessions: Vec<Value> = sessions
                .map(|id| json!({ "sessionId": id, "converseId": format!("c_{id}") }))
                .collect();
            accept(&json!({ "sessions": sessions }))
        }
        "/api/claw/sessions/watch" => {
            let end =
                Instant::now() + Duration::from_millis(body["timeoutMs"].as_u64().unwrap_or(0));
            let after = usize::try_from(body["cursor"].as_u64().unwrap()).unwrap();
            if !state.lock().unwrap().sessions.contains_key(&text("sessionId")) {
                return Response::json(
                    200,
                    &json!({ "code": 404, "message": "session not found" }),
                );
            }
            loop {
                let events = state.lock().unwrap().sessions.get(&text("sessionId")).cloned();
                let events = events.unwrap_or_default();
                if events.len() > after || Instant::now() >= end {
                    let new = &events[after.min(events.len())..];
                    return accept(
                        &json!({ "sessionId": text("sessionId"), "cursor": events.len(), "events": new }),
                    );
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        "/api/claw/groups/get" => {
            let state = state.lock().unwrap();
            let panels: Vec<Value> =
                state.panels.keys().map(|id| json!({ "id": id, "type": 0 })).collect();
            accept(&json!({ "groupId": "g1", "panels": panels }))
        }
        "/api/claw/groups/panels/messages" => {
            let state = state.lock().unwrap();
            let messages = state.panels.get(&text("panelId")).cloned().unwrap_or_default();
            let limit = usize::try_from(body["limit"].as_u64().unwrap()).unwrap();
            let newest: Vec<Value> = messages.into_iter().rev().take(limit).collect();
            accept(&json!({ "groupId": "g1", "messages": newest }))
        }
        "/api/claw/sessions/send" => {
            let mut state = state.lock().unwrap();
            let (session, content) = (text("sessionId"), text("content"));
            if !state.sessions.contains_key(&session) {
                return Response::json(
                    200,
                    &json!({ "code": 404, "message": "session not found" }),
                );
            }
            // Our own messages are events too.
            let number = state.sessions[&session].len() + 1;
            let payload =
                json!({ "messageId": format!("own{number}"), "author": AGENT, "content": content });
            let event = json!({ "seq": number, "type": "message.add", "payload": payload });
            state.sessions.get_mut(&session).unwrap().push(event);
            state.answers.push((session, content));
            accept(&json!({ "messageId": format!("own{number}") }))
        }
        "/api/claw/groups/panels/send" => {
            let mut state = state.lock().unwrap();
            state.answers.push((text("panelId"), text("content")));
            accept(&json!({ "messageId": format!("own{}", state.answers.len()) }))
        }
        _ => Response::text(404, "text/plain", "no such page"),
    }
}
