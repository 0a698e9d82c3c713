//! A model server on loopback that responds by a script and records its requests.

use crate::formats::{self, build_response};
use crate::listener::Listener;
use crate::wait::DEADLINE;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, unparsed.
    pub(crate) raw: String,
    pub(crate) body: Value,
    /// The number of the connection, counted from 0.
    pub(crate) connection: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The messages of the request; for OpenAI's responses, its input items.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let list = self.body["messages"].as_array().or(self.body["input"].as_array());
        list.cloned().unwrap_or_default()
    }

    /// The content of the last message, as text.
    pub(crate) fn last_content(&self) -> String {
        let messages = self.messages();
        let last = messages.last().cloned().unwrap_or_default();
        match &last["content"] {
            Value::Null => to_text(&last["output"]),
            content => to_text(content),
        }
    }

    /// The content of each tool result, in order.
    pub(crate) fn tool_results(&self) -> Vec<String> {
        let messages = self.messages();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        results.map(|message| to_text(&message["content"])).collect()
    }

    pub(crate) fn tool_names(&self) -> Vec<String> {
        tool_names(&self.body)
    }
}

/// A string as it is, another value as JSON.
fn to_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The names of the tools that the body of a request offers.
pub(crate) fn tool_names(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Produces the response to one request.
pub(crate) type Responder = Box<dyn Fn(&Request) -> Response + Send + Sync>;

/// The response to send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Sent one by one, each in its own chunk if the transfer is chunked.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// Further chunks, sent as they arrive until all senders are dropped.
    pub(crate) stream: Option<Arc<Mutex<Receiver<Vec<u8>>>>>,
    pub(crate) ending: Ending,
    /// Takes over the connection after a response that changes the protocol.
    pub(crate) upgrade: Option<Upgrade>,
}

/// The program of a connection that has changed its protocol.
#[derive(Clone)]
pub(crate) struct Upgrade(pub(crate) Arc<dyn Fn(TcpStream) + Send + Sync>);

impl std::fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upgrade")
    }
}

/// The end of the response after its last chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The body is complete.
    #[default]
    Complete,
    /// The connection is closed within the body.
    Disconnect,
    /// Nothing more is sent until the client disconnects.
    Stall,
}

impl Response {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::text(status, "application/json", &body.to_string())
    }

    pub(crate) fn text(status: u16, kind: &str, body: &str) -> Self {
        let headers = vec![("content-type".into(), kind.into())];
        Self { status, headers, chunks: vec![body.as_bytes().to_vec()], ..Self::default() }
    }

    /// Server-sent events, unchanged, one chunk each.
    pub(crate) fn events<S: AsRef<[u8]>>(events: impl IntoIterator<Item = S>) -> Self {
        let headers = vec![("content-type".into(), "text/event-stream".into())];
        let chunks = events.into_iter().map(|event| event.as_ref().to_vec()).collect();
        Self { status: 200, headers, chunks, ..Self::default() }
    }

    /// Like [`Self::events`], with events that the test sends later.
    pub(crate) fn streaming() -> (Sender<Vec<u8>>, Self) {
        let (sender, receiver) = channel();
        let response =
            Self { stream: Some(Arc::new(Mutex::new(receiver))), ..Self::events::<&[u8]>([]) };
        (sender, response)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }
}

/// A text reply, in the format of the request.
pub(crate) fn says(text: &str) -> Responder {
    let message = json!({ "role": "assistant", "content": text });
    replies(message, "stop")
}

/// A reply that calls one tool.
pub(crate) fn calls(name: &str, arguments: Value) -> Responder {
    calls_all([(name, arguments)])
}

/// A reply that calls several tools.
pub(crate) fn calls_all<'a>(list: impl IntoIterator<Item = (&'a str, Value)>) -> Responder {
    let list: Vec<(String, Value)> =
        list.into_iter().map(|(name, arguments)| (name.to_owned(), arguments)).collect();
    Box::new(move |request| {
        let number = request.messages().len();
        let calls: Vec<Value> = list
            .iter()
            .enumerate()
            .map(|(index, (name, arguments))| {
                json!({ "id": format!("call_{number}_{index}"), "type": "function",
                        "function": { "name": name, "arguments": arguments.to_string() } })
            })
            .collect();
        build_response(
            &json!({ "role": "assistant", "content": null, "tool_calls": calls }),
            "tool_calls",
            request,
        )
    })
}

/// A reply with this message and finish reason, in the terms of chat completions.
pub(crate) fn replies(message: Value, finish: &str) -> Responder {
    let finish = finish.to_owned();
    Box::new(move |request| build_response(&message, &finish, request))
}

/// Exactly this response.
pub(crate) fn sends(response: Response) -> Responder {
    Box::new(move |_| response.clone())
}

/// An error with this status and message.
pub(crate) fn fails(status: u16, message: &str) -> Responder {
    sends(Response::json(status, &json!({ "error": { "message": message } })))
}

/// The server.
pub(crate) struct Server {
    pub(crate) port: u16,
    shared: Arc<SharedState>,
    _listener: Listener,
}

#[derive(Default)]
struct SharedState {
    state: Mutex<ServerState>,
    /// Notified when a request arrives.
    request_arrived: Condvar,
}

#[derive(Default)]
struct ServerState {
    script: VecDeque<Responder>,
    /// Used when the script has run out.
    always: Option<Arc<Responder>>,
    requests: Vec<Request>,
    /// Keys that requests may have besides those of the vendor's types.
    extra_keys: Vec<String>,
    /// Validation errors of requests.
    invalid_requests: Vec<String>,
    connections: usize,
    model_answers: Vec<(String, Value)>,
    model_questions: Vec<String>,
}

impl ServerState {
    /// The answer to `request`, if it asks for the model's context window. The list of models is part of that only
    /// after the questions before it.
    fn answer_model_question(&mut self, request: &Request) -> Option<Response> {
        let path = request.path.as_str();
        let count = |end: &str| {
            let questions = self.model_questions.iter();
            questions.filter(|question| question.ends_with(end)).count()
        };
        let is_list = path.ends_with("/models") && count("/api/show") > count("/models");
        if !is_list && !matches!(path, "/props" | "/api/show") {
            return None;
        }
        self.model_questions.push(path.to_owned());
        let answer = self.model_answers.iter().find(|(other, _)| other == path);
        Some(match answer {
            Some((_, answer)) => Response::json(200, answer),
            None => Response::text(404, "text/plain", "not found"),
        })
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(SharedState::default());
        let server_state = Arc::clone(&shared);
        let listener = Listener::start(move |stream| serve(stream, &server_state));
        Self { port: listener.port, shared, _listener: listener }
    }

    pub(crate) fn script(&self, responders: impl IntoIterator<Item = Responder>) {
        self.shared.state.lock().unwrap().script.extend(responders);
    }

    /// Sets the answer to a question about the model's context window. Others are answered with 404.
    pub(crate) fn describe_model(&self, path: &str, answer: Value) {
        let mut state = self.shared.state.lock().unwrap();
        state.model_answers = vec![(path.to_owned(), answer)];
    }

    /// Paths of the questions about the model's context window. They are not part of the script.
    pub(crate) fn model_questions(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().model_questions.clone()
    }

    /// Sets the responder for requests beyond the script.
    pub(crate) fn always(&self, responder: Responder) {
        self.shared.state.lock().unwrap().always = Some(Arc::new(responder));
    }

    /// Allows requests to have these keys, which are not in the vendor's types.
    pub(crate) fn allow_extra_keys(&self, keys: &[&str]) {
        let keys = keys.iter().map(|key| (*key).to_owned());
        self.shared.state.lock().unwrap().extra_keys.extend(keys);
    }

    /// Validation errors of requests, by the vendors' own types.
    pub(crate) fn invalid_requests(&self) -> Vec<String> {
        self.shared.state.lock().unwrap().invalid_requests.clone()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    /// Forgets the requests so far, of which a test that lasts has many.
    pub(crate) fn forget_requests(&self) {
        self.shared.state.lock().unwrap().requests.clear();
    }

    /// Waits until `count` requests have arrived.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, count: usize) {
        let SharedState { state, request_arrived } = &*self.shared;
        let is_less = |state: &mut ServerState| state.requests.len() < count;
        let guard = state.lock().unwrap();
        let (guard, timeout) =
            request_arrived.wait_timeout_while(guard, DEADLINE, is_less).unwrap();
        let request_count = guard.requests.len();
        drop(guard);
        assert!(!timeout.timed_out(), "{request_count} of {count} requests came");
    }

    /// Number of scripted replies that were not used.
    pub(crate) fn unused_replies(&self) -> usize {
        self.shared.state.lock().unwrap().script.len()
    }
}

/// Serves the requests of one connection until it closes.
fn serve(stream: &TcpStream, SharedState { state, request_arrived }: &SharedState) {
    let connection = {
        let mut state = state.lock().unwrap();
        state.connections += 1;
        state.connections - 1
    };
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader, connection) {
        // Validated and answered without the lock: a slow response must not block other requests.
        let response = state.lock().unwrap().answer_model_question(&request);
        if let Some(response) = response {
            if !send(stream, &mut reader, &response) {
                return;
            }
            continue;
        }
        let extra_keys = state.lock().unwrap().extra_keys.clone();
        let violations = formats::validate_request(&request, &extra_keys);
        let responder = {
            let mut state = state.lock().unwrap();
            state.invalid_requests.extend(violations);
            state.requests.push(request.clone());
            request_arrived.notify_all();
            let scripted = state.script.pop_front().map(Arc::new);
            scripted.or_else(|| state.always.clone())
        };
        let response = match responder {
            Some(responder) => responder(&request),
            None => Response::text(500, "text/plain", "the script has run out"),
        };
        if !send(stream, &mut reader, &response) {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<&TcpStream>, connection: usize) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
    let mut parts = line.split(' ');
    let method = parts.next()?.to_owned();
    let path = parts.next()?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let raw = String::from_utf8(body).expect("requests are UTF-8");
    let body = serde_json::from_str(&raw).unwrap_or(Value::Null);
    Some(Request { method, path, headers, raw, body, connection })
}

/// Sends `response`; returns true if the connection can be reused.
fn send(mut writer: &TcpStream, reader: &mut BufReader<&TcpStream>, response: &Response) -> bool {
    if let Some(Upgrade(run)) = &response.upgrade {
        let headers = response.headers.iter();
        let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = format!("HTTP/1.1 101 Upgrade\r\n{}\r\n", headers.collect::<String>());
        if writer.write_all(head.as_bytes()).is_ok() {
            run(writer.try_clone().expect("a socket can be cloned"));
        }
        return false;
    }
    let mut head =
        format!("HTTP/1.1 {} Scripted\r\ntransfer-encoding: chunked\r\n", response.status);
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut is_ok = writer.write_all(head.as_bytes()).is_ok();
    let receiver = response.stream.as_ref().map(|stream| stream.lock().unwrap());
    let later_chunks = receiver.iter().flat_map(|receiver| receiver.iter());
    let chunks = response.chunks.iter().cloned().chain(later_chunks);
    for chunk in chunks.filter(|chunk| !chunk.is_empty()) {
        is_ok = is_ok && write!(writer, "{:x}\r\n", chunk.len()).is_ok();
        is_ok = is_ok && writer.write_all(&chunk).and_then(|()| writer.write_all(b"\r\n")).is_ok();
    }
    match response.ending {
        Ending::Complete => is_ok && writer.write_all(b"0\r\n\r\n").is_ok(),
        Ending::Disconnect => false,
        Ending::Stall => {
            // Ends when the client closes its side.
            drop(std::io::copy(reader, &mut std::io::sink()));
            false
        }
    }
}
