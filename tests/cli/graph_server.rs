//! The Graph API of WhatsApp on loopback: messages, media, and the number; and webhook requests as the service makes them.
//! Both are validated against `tests/schemas/whatsapp.json`.

use crate::call_schemas::{CallCheck, CallGuard, form_fields};
use crate::server::{Request, Response, Server};
use crate::story::Story;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const SCHEMAS: &str = include_str!("../schemas/whatsapp.json");
pub(crate) const TOKEN: &str = "graph-token";
pub(crate) const APP_SECRET: &str = "app-secret";
pub(crate) const VERIFY_TOKEN: &str = "v3rify";
pub(crate) const NUMBER: &str = "100";
pub(crate) const ADA: &str = "491701234567";
/// A number that takes no message.
pub(crate) const SILENT: &str = "1";
/// The fixed time of a story, 2026-01-02T03:04:05Z.
pub(crate) const STORY_TIME: i64 = 1_767_323_045;
/// Characters of a text.
const MAX_TEXT_CHARS: usize = 4096;

pub(crate) struct GraphServer {
    pub(crate) http: Server,
    pub(crate) checked: CallCheck,
    state: Arc<Mutex<State>>,
    _guard: CallGuard,
}

#[derive(Default)]
struct State {
    base: String,
    /// The bodies of messages.
    sent: Vec<Value>,
    /// Files with their media types.
    media: Vec<(String, String)>,
}

impl GraphServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let state = State { base: format!("http://127.0.0.1:{}", http.port), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let checked = CallCheck::new(SCHEMAS);
        let (server_state, check) = (Arc::clone(&state), checked.clone());
        http.always(Box::new(move |request| {
            if request.path.starts_with("/v") {
                check.check(request, &request.path);
            }
            respond(&mut server_state.lock().unwrap(), request)
        }));
        Self { http, _guard: checked.guard(), checked, state }
    }

    pub(crate) fn story(&self) -> Story {
        Story::new().set(
            "channels",
            json!({ "whatsapp": { "enabled": true, "phoneNumberId": NUMBER, "accessToken": TOKEN,
                "appSecret": APP_SECRET, "verifyToken": VERIFY_TOKEN, "allowFrom": [format!("+{ADA}")],
                "apiBase": self.state.lock().unwrap().base.clone() + "/v23.0" } }),
        )
    }

    pub(crate) fn sent(&self) -> Vec<Value> {
        self.state.lock().unwrap().sent.clone()
    }

    /// The texts that were sent; empty for other messages.
    pub(crate) fn texts(&self) -> Vec<String> {
        let messages = self.sent().into_iter();
        messages.map(|it| it["text"]["body"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The files that were uploaded, with their media types.
    pub(crate) fn media(&self) -> Vec<(String, String)> {
        self.state.lock().unwrap().media.clone()
    }
}

impl State {
    fn send(&mut self, body: &Value) -> Response {
        let text = body["text"]["body"].as_str();
        if text.is_some_and(|text| text.is_empty() || text.chars().count() > MAX_TEXT_CHARS) {
            return error(
                400,
                100,
                "(#100) Param text['body'] must be at most 4096 characters long",
            );
        }
        if body["to"] == SILENT {
            return error(400, 131_047, "Re-engagement message");
        }
        self.sent.push(body.clone());
        let id = format!("wamid.out{}", self.sent.len());
        let mut contact = json!({ "input": body["to"], "wa_id": body["to"] });
        if body["recipient"].is_string() {
            contact = json!({ "input": body["recipient"], "user_id": body["recipient"] });
        }
        Response::json(
            200,
            &json!({ "messaging_product": "whatsapp", "messages": [{ "id": id }], "contacts": [contact] }),
        )
    }
}

fn error(status: u16, code: u64, message: &str) -> Response {
    let error =
        json!({ "message": message, "type": "OAuthException", "code": code, "fbtrace_id": "t" });
    Response::json(status, &json!({ "error": error }))
}

fn respond(state: &mut State, request: &Request) -> Response {
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return error(401, 190, "Invalid OAuth access token");
    }
    let path = request.path.split('?').next().unwrap();
    let path: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let media = |id: &str, url: String| {
        Response::json(
            200,
            &json!({ "messaging_product": "whatsapp", "url": url, "mime_type": "text/plain",
                "sha256": "0", "file_size": 8, "id": id }),
        )
    };
    match path.as_slice() {
        [_, NUMBER, "messages"] if request.body["status"] == "read" => {
            Response::json(200, &json!({ "success": true }))
        }
        [_, NUMBER, "messages"] => state.send(&request.body),
        [_, NUMBER, "media"] => {
            let kind = request.header("content-type").unwrap_or_default();
            let fields = form_fields(kind, &request.raw).unwrap();
            let value = |name: &str| {
                let field = fields.iter().find(|field| field.name == name);
                field.map_or_else(String::new, |field| field.value.clone())
            };
            state.media.push((value("type"), value("file")));
            Response::json(200, &json!({ "id": "m9" }))
        }
        [_, NUMBER] => Response::json(
            200,
            &json!({ "display_phone_number": "+49 170 1", "verified_name": "Story", "id": NUMBER,
                "quality_rating": "GREEN" }),
        ),
        [_, "m1"] => media("m1", state.base.clone() + "/media/1"),
        [_, "m2"] => media("m2", "https://fbsbx.com.example.org/1".to_owned()),
        ["media", "1"] => Response::text(200, "text/plain", "buy milk"),
        _ => error(404, 803, "Some of the aliases you requested do not exist"),
    }
}

/// The body of a webhook request with these messages.
pub(crate) fn webhook(messages: &Value) -> String {
    let senders = messages.as_array().into_iter().flatten();
    let contacts = senders.map(|it| {
        let mut contact = json!({ "profile": { "name": "Ada" }, "user_id": it["from_user_id"] });
        if it["from"].is_string() {
            contact["wa_id"] = it["from"].clone();
        }
        contact
    });
    let value = json!({ "messaging_product": "whatsapp",
        "metadata": { "display_phone_number": "491701", "phone_number_id": NUMBER },
        "contacts": contacts.collect::<Vec<_>>(), "messages": messages });
    let body = json!({ "object": "whatsapp_business_account",
        "entry": [{ "id": "1", "changes": [{ "field": "messages", "value": value }] }] });
    let request = Request {
        method: "POST".to_owned(),
        path: "/whatsapp/webhooks".to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        raw: body.to_string(),
        body: Value::Null,
        connection: 0,
    };
    let check = CallCheck::new(SCHEMAS);
    let _guard = check.guard();
    check.check(&request, &request.path);
    request.raw
}

/// A message of a user.
pub(crate) fn text_message(id: &str, from: &str, text: &str) -> Value {
    user_message(id, from, "text", json!({ "body": text }))
}

/// A message of a user with this content.
pub(crate) fn user_message(id: &str, from: &str, kind: &str, content: Value) -> Value {
    let mut message = json!({ "id": id, "from": from, "from_user_id": format!("DE.{from}"),
        "timestamp": STORY_TIME.to_string(), "type": kind });
    message[kind] = content;
    message
}
