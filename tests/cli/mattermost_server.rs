//! A Mattermost server on loopback: channels, posts with `since` and pages, pending ids, files and reactions, as its REST
//! API describes them. Calls are validated against `tests/schemas/mattermost.json`. `tests/real/chat` tests it with
//! mattermostdriver.

use crate::call_schemas::{CallCheck, CallGuard};
use crate::server::{Request, Response, Server};
use crate::socket_server::Sockets;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

pub(crate) const BOT: &str = "botid";
pub(crate) const ANN: &str = "annid";
pub(crate) const TOKEN: &str = "mattermost-token";
/// The fixed time of a story, 2026-01-02T03:04:05Z, in milliseconds.
const STORY_MILLIS: u64 = 1_767_323_045_000;
/// Posts of one response to `since`.
const MAX_SINCE: usize = 1000;
const MAX_MESSAGE_CHARS: usize = 16_383;

pub(crate) struct MattermostServer {
    pub(crate) http: Server,
    pub(crate) sockets: Sockets,
    pub(crate) checked: CallCheck,
    state: Arc<Mutex<State>>,
    _guard: CallGuard,
}

#[derive(Default)]
struct State {
    /// All posts in order, and the time between two of them.
    posts: Vec<Value>,
    post_millis: u64,
    /// Type and team of each channel.
    channels: BTreeMap<String, (String, String)>,
    /// Contents of files.
    files: Vec<String>,
    /// Post ids by pending id.
    pending: BTreeMap<String, String>,
    forgets_pending: bool,
    reactions: Vec<Value>,
    /// Responses to the next requests whose path begins so.
    failures: VecDeque<(String, Response)>,
}

impl MattermostServer {
    pub(crate) fn start() -> Self {
        let http = Server::start();
        let state: Arc<Mutex<State>> = Arc::default();
        state.lock().unwrap().post_millis = 1;
        let server_state = Arc::clone(&state);
        let sockets = Sockets::new(Box::new(|message| match &message["seq"] {
            Value::Null => vec![json!({ "event": "hello", "data": {}, "broadcast": {}, "seq": 0 })],
            seq => vec![json!({ "status": "OK", "seq_reply": seq })],
        }));
        let accepting = sockets.clone();
        let checked = CallCheck::new(include_str!("../schemas/mattermost.json"));
        let check = checked.clone();
        http.always(Box::new(move |request| {
            if request.path.starts_with("/api/v4/websocket") {
                accepting.accept(request)
            } else {
                check.check(request, &request.path);
                respond(&mut server_state.lock().unwrap(), request)
            }
        }));
        let server = Self { http, sockets, _guard: checked.guard(), checked, state };
        server.add_channel("direct", "D", "");
        server.add_channel("town", "O", "team");
        server
    }

    pub(crate) fn keys(&self) -> Value {
        json!({ "serverUrl": format!("http://127.0.0.1:{}/", self.http.port), "token": TOKEN,
            "allowFrom": [ANN], "enabled": true })
    }

    pub(crate) fn add_channel(&self, id: &str, kind: &str, team: &str) {
        let mut state = self.state.lock().unwrap();
        let channel = (kind.to_owned(), team.to_owned());
        state.channels.insert(id.to_owned(), channel);
    }

    /// Adds a post; returns its id.
    pub(crate) fn write(&self, channel: &str, user: &str, text: &str) -> String {
        self.add(json!({ "channel_id": channel, "user_id": user, "message": text }))
    }

    pub(crate) fn add(&self, post: Value) -> String {
        let mut state = self.state.lock().unwrap();
        let id = state.add(post);
        let post = state.posts.last().unwrap();
        let channel = post["channel_id"].as_str().unwrap().to_owned();
        let (kind, team) = state.channels.get(&channel).cloned().unwrap_or_default();
        let data = json!({ "post": post.to_string(), "channel_type": kind, "team_id": team });
        drop(state);
        self.sockets.send(&json!({ "event": "posted", "data": data, "broadcast": { "channel_id": channel }, "seq": 1 }));
        id
    }

    /// Adds a post that was created before the last one, and became visible later.
    pub(crate) fn write_late(&self, channel: &str, user: &str, text: &str) {
        self.write(channel, user, text);
        let mut state = self.state.lock().unwrap();
        let post = state.posts.last_mut().unwrap();
        let time = post["create_at"].as_u64().unwrap() - 3;
        post["create_at"] = json!(time);
    }

    /// Deletes a post: of later lists, only those of updates have it.
    pub(crate) fn delete(&self, id: &str) {
        let mut state = self.state.lock().unwrap();
        let time = state.posts.last().unwrap()["create_at"].clone();
        let post = state.posts.iter_mut().find(|post| post["id"] == id).unwrap();
        (post["update_at"], post["delete_at"]) = (time.clone(), time);
    }

    /// Adds a file; returns its description for a post.
    pub(crate) fn add_file(&self, name: &str, media_type: &str, content: &str) -> Value {
        let mut state = self.state.lock().unwrap();
        state.files.push(content.to_owned());
        json!({ "id": format!("file{}", state.files.len() - 1), "name": name, "size": content.len(),
            "mime_type": media_type })
    }

    /// Sets the time between two posts.
    pub(crate) fn set_post_interval(&self, millis: u64) {
        self.state.lock().unwrap().post_millis = millis;
    }

    /// Lets posts that are sent again be taken again, as half a minute later.
    pub(crate) fn forget_pending_ids(&self) {
        self.state.lock().unwrap().forgets_pending = true;
    }

    pub(crate) fn fail_next(&self, path: &str, response: Response) {
        let mut state = self.state.lock().unwrap();
        state.failures.push_back((path.to_owned(), response));
    }

    /// Our posts in a channel.
    pub(crate) fn answers(&self, channel: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let posts = state.posts.iter();
        posts
            .filter(|post| post["channel_id"] == channel && post["user_id"] == BOT)
            .cloned()
            .collect()
    }

    pub(crate) fn answer_texts(&self, channel: &str) -> Vec<String> {
        let answers = self.answers(channel).into_iter();
        answers.map(|post| post["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn reactions(&self) -> Vec<Value> {
        self.state.lock().unwrap().reactions.clone()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        self.state.lock().unwrap().files.clone()
    }

    /// Paths of the requests, without those that begin with `except`.
    pub(crate) fn paths(&self, with: &str) -> Vec<String> {
        let requests = self.http.requests().into_iter().map(|it| it.path);
        requests.filter(|path| path.contains(with)).collect()
    }
}

impl State {
    fn add(&mut self, mut post: Value) -> String {
        let id = format!("post{}", self.posts.len());
        post["id"] = json!(id);
        post["create_at"] = json!(STORY_MILLIS + self.posts.len() as u64 * self.post_millis);
        post["update_at"] = post["create_at"].clone();
        post["delete_at"] = json!(0);
        self.posts.push(post);
        id
    }

    fn in_channel<'s>(&'s self, channel: &'s str) -> impl DoubleEndedIterator<Item = &'s Value> {
        self.posts.iter().filter(move |post| post["channel_id"] == channel)
    }

    fn last_post_at(&self, channel: &str) -> u64 {
        let last = self.in_channel(channel).next_back();
        last.map_or(0, |post| post["create_at"].as_u64().unwrap())
    }

    fn create_post(&mut self, body: &Value) -> Response {
        let channel = body["channel_id"].as_str().unwrap();
        let text = body["message"].as_str().unwrap_or_default();
        let root = body["root_id"].as_str().unwrap_or_default();
        let pending = body["pending_post_id"].as_str().unwrap_or_default();
        if let Some(id) = self.pending.get(pending) {
            let posts = self.posts.iter();
            let mut stored_post = posts.filter(|post| post["id"] == id.as_str());
            return Response::json(201, stored_post.next_back().unwrap());
        }
        if !self.channels.contains_key(channel) {
            return error(403, "You do not have the appropriate permissions.");
        }
        let is_root = |post: &&Value| {
            post["id"] == root && post["root_id"].as_str().unwrap_or_default().is_empty()
        };
        if !root.is_empty() && !self.in_channel(channel).any(|post| is_root(&post)) {
            return error(400, "Invalid RootId parameter.");
        }
        let has_files = body["file_ids"].as_array().is_some_and(|ids| !ids.is_empty());
        if text.chars().count() > MAX_MESSAGE_CHARS || text.is_empty() && !has_files {
            return error(400, "Invalid message.");
        }
        let mut post = body.clone();
        post["user_id"] = json!(BOT);
        let id = self.add(post);
        if !pending.is_empty() && !self.forgets_pending {
            self.pending.insert(pending.to_owned(), id);
        }
        Response::json(201, self.posts.last().unwrap())
    }
}

fn error(status: u16, message: &str) -> Response {
    Response::json(status, &json!({ "id": "api.error", "message": message, "status_code": status }))
}

/// A list of posts, as the server writes it: the newest first.
fn list<'p>(posts: impl DoubleEndedIterator<Item = &'p Value>) -> Value {
    let posts: Vec<&Value> = posts.rev().collect();
    let order: Vec<&Value> = posts.iter().map(|post| &post["id"]).collect();
    let all: serde_json::Map<String, Value> = posts
        .iter()
        .map(|post| (post["id"].as_str().unwrap().to_owned(), (*post).clone()))
        .collect();
    json!({ "order": order, "posts": all })
}

fn is_visible(post: &&Value) -> bool {
    post["delete_at"] == 0
}

/// The id of the first post of the thread of a post.
fn root_of(post: &Value) -> &Value {
    let root = &post["root_id"];
    if root.as_str().unwrap_or_default().is_empty() { &post["id"] } else { root }
}

/// A list of posts of a channel, with the other posts of their threads outside of its order.
fn list_with_threads(posts: &[&Value], channel: &[&Value]) -> Value {
    let mut page = list(posts.iter().copied());
    let roots: BTreeSet<&str> = posts.iter().map(|post| root_of(post).as_str().unwrap()).collect();
    for post in channel.iter().filter(|post| is_visible(post)) {
        if roots.contains(root_of(post).as_str().unwrap()) {
            page["posts"][post["id"].as_str().unwrap()] = (*post).clone();
        }
    }
    page
}

fn respond(state: &mut State, request: &Request) -> Response {
    if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return error(401, "Invalid or expired session, please login again.");
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let failure = state.failures.iter().position(|(start, _)| path.starts_with(start.as_str()));
    if let Some((_, response)) = failure.and_then(|at| state.failures.remove(at)) {
        return response;
    }
    let query = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let parts: Vec<&str> = path.trim_start_matches("/api/v4/").split('/').collect();
    let body = match parts.as_slice() {
        ["users", "me"] => json!({ "id": BOT, "username": "bot" }),
        ["users", "me", "channels"] => {
            let channels = state.channels.iter().map(|(id, (kind, team))| {
                json!({ "id": id, "type": kind, "team_id": team, "last_post_at": state.last_post_at(id) })
            });
            channels.collect()
        }
        ["users", "me", "typing"] => json!({ "status": "OK" }),
        ["users", "ids"] => {
            let ids = request.body.as_array().unwrap().iter();
            ids.map(|id| json!({ "id": id, "username": format!("{}-name", id.as_str().unwrap()) }))
                .collect()
        }
        ["users", "username", "ann"] => json!({ "id": ANN, "username": "ann" }),
        ["channels", "direct"] if request.body[1] == ANN => json!({ "id": "direct" }),
        ["channels", "direct"] => return error(404, "Unable to find the user."),
        ["channels", channel, "posts"] if state.channels.contains_key(*channel) => {
            let channel: Vec<&Value> = state.in_channel(channel).collect();
            let all = channel.iter().copied();
            let (posts, count): (Vec<&Value>, usize) = match query("since") {
                Some(since) => {
                    let since: u64 = since.parse().unwrap();
                    let is_newer = |post: &&Value| post["update_at"].as_u64().unwrap() > since;
                    (all.filter(is_newer).collect(), MAX_SINCE)
                }
                None => {
                    let count = query("per_page").map_or(60, |count| count.parse().unwrap());
                    let end = query("before");
                    let older = all.take_while(|post| end.is_none_or(|end| post["id"] != end));
                    (older.filter(is_visible).collect(), count)
                }
            };
            list_with_threads(&posts[posts.len().saturating_sub(count)..], &channel)
        }
        ["channels", _, "posts"] => {
            return error(403, "You do not have the appropriate permissions.");
        }
        ["posts"] => return state.create_post(&request.body),
        ["posts", id, "patch"] => {
            let mut posts = state.posts.iter_mut();
            let Some(post) = posts.find(|post| post["id"] == **id) else {
                return error(404, "Unable to get the post.");
            };
            post["message"] = request.body["message"].clone();
            post.clone()
        }
        ["posts", root, "thread"] => {
            let thread = state.posts.iter();
            list(thread.filter(|post| post["id"] == *root || post["root_id"] == *root))
        }
        ["reactions"] => {
            state.reactions.push(request.body.clone());
            json!({})
        }
        ["files"] => {
            state.files.push(request.raw.clone());
            json!({ "file_infos": [{ "id": format!("file{}", state.files.len() - 1) }] })
        }
        ["files", id] => {
            let number: usize = id.trim_start_matches("file").parse().unwrap();
            return Response::text(200, "text/plain", &state.files[number]);
        }
        _ => return error(404, "Sorry, we could not find the page."),
    };
    Response::json(200, &body)
}
