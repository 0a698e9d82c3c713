//! A Matrix homeserver on loopback: rooms, synchronisation, transaction ids, history and media, as the client-server API
//! describes them.

use crate::server::{Request, Response, Server};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub(crate) const BOT: &str = "@bot:h";
/// Events of a room in one synchronisation.
const TIMELINE_EVENTS: usize = 50;

pub(crate) struct MatrixServer {
    pub(crate) http: Server,
    shared: Arc<(Mutex<Homeserver>, Condvar)>,
}

#[derive(Default)]
struct Homeserver {
    /// All events in order, each with its room.
    events: Vec<(String, Value)>,
    /// Joined members of each room.
    members: BTreeMap<String, usize>,
    /// Users that each room is waiting for.
    invited: BTreeMap<String, usize>,
    /// Open invitations: room and inviter.
    invitations: BTreeMap<String, String>,
    /// Event ids by room and transaction id.
    transactions: BTreeMap<(String, String), String>,
    /// Responses to the next requests that send an event.
    failures: VecDeque<(u16, Value)>,
    /// Responses to the next requests for the history of a room.
    history_failures: VecDeque<(u16, Value)>,
    /// Responses to the next requests to join a room.
    join_failures: VecDeque<(u16, Value)>,
    media: Vec<String>,
}

impl MatrixServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let shared: Arc<(Mutex<Homeserver>, Condvar)> = Arc::default();
        let server_state = Arc::clone(&shared);
        http.always(Box::new(move |request| respond(&server_state, request)));
        Self { http, shared }
    }

    pub(crate) fn keys(&self) -> Value {
        json!({ "homeserver": format!("http://127.0.0.1:{}", self.http.port), "accessToken": "tok",
            "allowFrom": ["@ann:h"], "enabled": true })
    }

    /// Adds a room with this number of members.
    pub(crate) fn add_room(&self, room_id: &str, members: usize) {
        let mut server = self.shared.0.lock().unwrap();
        server.members.insert(room_id.to_owned(), members);
    }

    /// Adds other users to those that are invited to a room.
    pub(crate) fn invite_others(&self, room_id: &str, count: usize) {
        *self.shared.0.lock().unwrap().invited.entry(room_id.to_owned()).or_default() += count;
    }

    pub(crate) fn invite(&self, room_id: &str, inviter: &str) {
        let mut server = self.shared.0.lock().unwrap();
        server.invitations.insert(room_id.to_owned(), inviter.to_owned());
        let invitation = json!({ "membership": "invite" });
        server.push(room_id, "m.room.member", inviter, Some(BOT), invitation);
    }

    pub(crate) fn write(&self, room_id: &str, sender: &str, text: &str) {
        self.push(room_id, "m.room.message", sender, json!({ "msgtype": "m.text", "body": text }));
    }

    pub(crate) fn push(&self, room_id: &str, kind: &str, sender: &str, content: Value) {
        let (server, arrived) = &*self.shared;
        server.lock().unwrap().push(room_id, kind, sender, None, content);
        arrived.notify_all();
    }

    /// Makes the next requests that send an event fail.
    pub(crate) fn fail_next(&self, failures: impl IntoIterator<Item = (u16, Value)>) {
        self.shared.0.lock().unwrap().failures.extend(failures);
    }

    /// Makes the next requests for the history of a room fail.
    pub(crate) fn fail_history_next(&self, failures: impl IntoIterator<Item = (u16, Value)>) {
        let mut server = self.shared.0.lock().unwrap();
        server.history_failures.extend(failures);
    }

    /// Makes the next requests to join a room fail.
    pub(crate) fn fail_join_next(&self, failures: impl IntoIterator<Item = (u16, Value)>) {
        self.shared.0.lock().unwrap().join_failures.extend(failures);
    }

    /// Adds a change of a membership, with the membership before it.
    pub(crate) fn push_member(&self, room_id: &str, user: &str, content: Value, before: &Value) {
        let mut server = self.shared.0.lock().unwrap();
        server.push(room_id, "m.room.member", user, Some(user), content);
        let (_, event) = server.events.last_mut().unwrap();
        event["unsigned"] = json!({ "prev_content": before });
    }

    /// The user changes the last message of a room.
    pub(crate) fn edit_last(&self, room_id: &str, sender: &str, text: &str) {
        let server = self.shared.0.lock().unwrap();
        let mut events = server.events.iter().rev();
        let last =
            events.find(|(event_room, event)| event_room == room_id && event["sender"] == sender);
        let relation = json!({ "rel_type": "m.replace", "event_id": last.unwrap().1["event_id"] });
        drop(server);
        let content = json!({ "msgtype": "m.text", "body": format!("* {text}"), "m.relates_to": relation,
            "m.new_content": { "msgtype": "m.text", "body": text } });
        self.push(room_id, "m.room.message", sender, content);
    }

    /// The contents of our events in a room.
    pub(crate) fn answers(&self, room_id: &str) -> Vec<Value> {
        let server = self.shared.0.lock().unwrap();
        let bot_messages = server.events.iter().filter(|(event_room, event)| {
            event_room == room_id && event["sender"] == BOT && event["type"] == "m.room.message"
        });
        bot_messages.map(|(_, event)| event["content"].clone()).collect()
    }

    /// A user reacts to an event.
    pub(crate) fn react(&self, room_id: &str, sender: &str, event_id: &str, key: &str) {
        let relation = json!({ "rel_type": "m.annotation", "event_id": event_id, "key": key });
        self.push(room_id, "m.reaction", sender, json!({ "m.relates_to": relation }));
    }

    /// The id of our newest message in a room.
    pub(crate) fn last_answer_id(&self, room_id: &str) -> String {
        let server = self.shared.0.lock().unwrap();
        let mut events = server.events.iter().rev();
        let answer = events.find(|(event_room, event)| {
            event_room == room_id && event["sender"] == BOT && event["type"] == "m.room.message"
        });
        answer.unwrap().1["event_id"].as_str().unwrap().to_owned()
    }

    /// Our reactions in a room.
    pub(crate) fn reactions(&self, room_id: &str) -> Vec<Value> {
        let server = self.shared.0.lock().unwrap();
        let reactions = server.events.iter().filter(|(event_room, event)| {
            event_room == room_id && event["sender"] == BOT && event["type"] == "m.reaction"
        });
        reactions.map(|(_, event)| event["content"]["m.relates_to"].clone()).collect()
    }

    /// Paths of the requests whose path contains `part`.
    pub(crate) fn requests_with(&self, part: &str) -> Vec<String> {
        let requests = self.http.requests().into_iter();
        requests.map(|request| request.path).filter(|path| path.contains(part)).collect()
    }
}

impl Homeserver {
    fn push(
        &mut self,
        room_id: &str,
        kind: &str,
        sender: &str,
        state: Option<&str>,
        content: Value,
    ) -> String {
        let id = format!("${}", self.events.len());
        // The fixed time of a story, 2026-01-02T03:04:05Z.
        let mut event = json!({ "type": kind, "event_id": id, "sender": sender,
            "origin_server_ts": 1_767_323_045_000_i64 });
        event["content"] = content;
        if let Some(state) = state {
            event["state_key"] = json!(state);
        }
        self.events.push((room_id.to_owned(), event));
        id
    }

    fn is_joined(&self, room_id: &str) -> bool {
        self.members.contains_key(room_id)
    }

    fn sync(&self, since: usize) -> Value {
        let mut joined = json!({});
        for room_id in self.members.keys() {
            // The newest events; a room that was just joined has older ones too.
            let newest: Vec<usize> =
                (0..self.events.len()).filter(|at| self.events[*at].0 == *room_id).collect();
            let is_new = |at: &usize| *at >= since;
            let count = newest.iter().filter(|at| is_new(at)).count();
            let has_joined = newest
                .iter()
                .any(|at| is_new(at) && self.events[*at].1["content"]["membership"] == "join");
            if count == 0 {
                continue;
            }
            let event_count = if has_joined { newest.len() } else { count }.min(TIMELINE_EVENTS);
            let newest_events = &newest[newest.len() - event_count..];
            let events: Vec<&Value> = newest_events.iter().map(|at| &self.events[*at].1).collect();
            joined[room_id] = json!({ "timeline": { "events": events, "limited": newest_events[0] > since && count > TIMELINE_EVENTS,
                "prev_batch": format!("t{}", newest_events[0]) } });
        }
        let invited: serde_json::Map<String, Value> = self
            .invitations
            .iter()
            .map(|(room_id, inviter)| {
                let event = json!({ "type": "m.room.member", "state_key": BOT, "sender": inviter,
                "content": { "membership": "invite", "is_direct": true } });
                (room_id.clone(), json!({ "invite_state": { "events": [event] } }))
            })
            .collect();
        json!({ "next_batch": format!("s{}", self.events.len()), "rooms": { "join": joined, "invite": invited } })
    }

    /// Events of a room before `from`, the newest first.
    fn history(&self, room_id: &str, from: usize, to: usize, limit: usize) -> Value {
        let older = (to..from).rev().filter(|at| self.events[*at].0 == room_id);
        let indexes: Vec<usize> = older.take(limit).collect();
        let chunk: Vec<&Value> = indexes.iter().map(|at| &self.events[*at].1).collect();
        match indexes.last() {
            Some(last) if chunk.len() == limit => {
                json!({ "chunk": chunk, "end": format!("t{last}") })
            }
            _ => json!({ "chunk": chunk }),
        }
    }

    fn send(&mut self, room_id: &str, kind: &str, transaction: &str, content: &Value) -> Response {
        let key = (room_id.to_owned(), transaction.to_owned());
        if let Some((status, body)) = self.failures.pop_front() {
            return Response::json(status, &body);
        }
        let id = match self.transactions.get(&key) {
            Some(id) => id.clone(),
            None => self.push(room_id, kind, BOT, None, content.clone()),
        };
        self.transactions.insert(key, id.clone());
        Response::json(200, &json!({ "event_id": id }))
    }
}

fn respond((server, arrived): &(Mutex<Homeserver>, Condvar), request: &Request) -> Response {
    if request.header("authorization") != Some("Bearer tok") {
        let error = json!({ "errcode": "M_UNKNOWN_TOKEN", "error": "Invalid access token" });
        return Response::json(401, &error);
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let query = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    };
    let position = |name: &str| query(name).and_then(|text| text[1..].parse::<usize>().ok());
    let path = path.replace("%21", "!").replace("%3A", ":").replace("%40", "@");
    let parts: Vec<&str> = path.trim_start_matches("/_matrix/").split('/').collect();
    let mut server = server.lock().unwrap();
    let body = match parts.as_slice() {
        [_, _, "account", "whoami"] => json!({ "user_id": BOT, "device_id": "D" }),
        [_, _, "sync"] => {
            let since = position("since");
            let wait = query("timeout").and_then(|text| text.parse().ok()).unwrap_or(0);
            let is_quiet =
                |server: &mut Homeserver| since.is_some_and(|since| server.events.len() <= since);
            let wait = Duration::from_millis(wait);
            server = arrived.wait_timeout_while(server, wait, is_quiet).unwrap().0;
            server.sync(since.unwrap_or(0))
        }
        [_, _, "join", room_id] => {
            if let Some((status, body)) = server.join_failures.pop_front() {
                return Response::json(status, &body);
            }
            server.invitations.remove(*room_id);
            server.members.insert((*room_id).to_owned(), 2);
            server.push(room_id, "m.room.member", BOT, Some(BOT), json!({ "membership": "join" }));
            json!({})
        }
        [_, _, "rooms", room_id, ..] if !server.is_joined(room_id) => {
            return Response::json(
                403,
                &json!({ "errcode": "M_FORBIDDEN", "error": "not in room" }),
            );
        }
        [_, _, "rooms", room_id, "messages"] => {
            if let Some((status, body)) = server.history_failures.pop_front() {
                return Response::json(status, &body);
            }
            let limit = query("limit").and_then(|text| text.parse().ok()).unwrap_or(10);
            server.history(room_id, position("from").unwrap(), position("to").unwrap_or(0), limit)
        }
        [_, _, "rooms", room_id, "joined_members"] => {
            let members = 0..server.members[*room_id];
            let joined: serde_json::Map<String, Value> =
                members.map(|number| (number.to_string(), json!({}))).collect();
            json!({ "joined": joined })
        }
        [_, _, "rooms", room_id, "members"] => {
            assert_eq!(query("membership"), Some("invite"));
            let count = server.invited.get(*room_id).copied().unwrap_or_default();
            json!({ "chunk": vec![json!({ "type": "m.room.member" }); count] })
        }
        [_, _, "rooms", room_id, "send", kind @ ("m.room.message" | "m.reaction"), transaction] => {
            return server.send(room_id, kind, transaction, &request.body);
        }
        [_, _, "rooms", _, "typing", _] => json!({}),
        ["media", _, "upload"] => {
            server.media.push(request.raw.clone());
            json!({ "content_uri": format!("mxc://h/{}", server.media.len() - 1) })
        }
        [_, "v1", "media", "download", "h", id] => {
            let media = server.media[id.parse::<usize>().unwrap()].clone();
            return Response::text(200, "text/plain", &media);
        }
        _ => return Response::json(404, &json!({ "errcode": "M_UNRECOGNIZED" })),
    };
    Response::json(200, &body)
}
