//! A connection to one server: the handshake, and requests that block their callers until the answer. The transport
//! sends, and its threads pass received messages to the [`Inbox`](super::inbox::Inbox).

use super::connection_state::{ConnectionState, one_line};
use super::decode;
use super::reply::{self, Received, RequestError, RequestResult, Wait};
use super::sampling::{self, Sampler, SamplingQueue};
use crate::protocol::{McpError, ServerAnswer, ServerFeatures};
use nanobot_base::json_rpc;
use nanobot_config::settings::servers::{McpServer, ServerTransport};
use nanobot_os::signal;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The newest version of the protocol that we know. Servers may choose another one: all of them have the features that we use.
const PROTOCOL_VERSION: &str = "2025-11-25";
/// Maximum wait for a cancellation notice to be sent. An answer that arrives meanwhile is still used.
const LATE_RESULT_GRACE: Duration = Duration::from_millis(300);

/// Number and interval of the checks whether a connection is about to end. A program that exits closes its standard input
/// slightly before its output.
const CLOSE_POLLS: usize = 30;
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Sends messages to a server. Its threads pass received messages to the inbox.
pub(super) trait Transport: Send + Sync {
    /// Sends `message` without waiting.
    fn send(self: Arc<Self>, message: Outgoing);

    /// Closes the connection, as the protocol requires. If that takes time, a thread does it, and drops the other end of the returned
    /// channel when it is done.
    fn close(&self) -> Option<Receiver<()>>;
}

/// A message to a server.
pub(super) struct Outgoing {
    pub(super) body: Vec<u8>,
    pub(super) kind: OutgoingKind,
    /// Called with the outcome of sending.
    pub(super) on_sent: Box<dyn FnOnce(Result<(), McpError>) + Send>,
}

/// The kind of a message, for the transport. Numbers are ids of requests or notices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutgoingKind {
    /// The first request of the handshake.
    Initialize(u64),
    /// The notice that ends the handshake; its caller waits until it is sent.
    Initialized(u64),
    Request(u64),
    /// The notice that a request is cancelled.
    Cancellation(u64),
    /// The answer to a request of the server.
    Answer,
}

impl OutgoingKind {
    /// Returns the id under which a caller waits for the outcome.
    pub(super) fn reply_id(self) -> Option<u64> {
        match self {
            Self::Initialize(id) | Self::Initialized(id) | Self::Request(id) => Some(id),
            Self::Cancellation(_) | Self::Answer => None,
        }
    }
}

/// A request of the program.
pub(super) enum ServerRequest<'a> {
    Call {
        tool: String,
        arguments: Map<String, Value>,
        /// The call is made only if these are still the newest features of the server.
        features: Arc<ServerFeatures>,
        /// Answers the server's requests for the model during the call. `None` if the server may make none.
        sampler: Option<&'a dyn Sampler>,
    },
    Read(String),
    Prompt(String, Map<String, Value>),
}

/// The reason why there is no answer.
pub(super) enum RequestFailure {
    /// The server received nothing of the request.
    NotSent(McpError),
    Failed(McpError),
}

/// The server's description of itself in the handshake.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeResult {
    pub(super) protocol_version: String,
    pub(super) capabilities: Capabilities,
    pub(super) server_info: ServerInfo,
    pub(super) instructions: Option<String>,
}

/// The lists that the server offers.
#[derive(Deserialize)]
pub(super) struct Capabilities {
    pub(super) tools: Option<Map<String, Value>>,
    pub(super) resources: Option<Map<String, Value>>,
    pub(super) prompts: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
pub(super) struct ServerInfo {
    pub(super) name: String,
    pub(super) version: String,
}

/// A connection, which is closed on drop.
pub(super) struct Connection {
    /// The name of the server.
    server: String,
    transport: Arc<dyn Transport>,
    pub(super) state: Arc<ConnectionState>,
    /// True for a local program: a message that was not fully written to it was not received.
    is_program: bool,
    info: OnceLock<InitializeResult>,
}

/// Removes a request whose caller no longer waits for the answer, even after a panic.
struct PendingGuard<'a> {
    state: &'a ConnectionState,
    id: u64,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.state.forget_request(self.id);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.transport.close());
    }
}

impl Connection {
    /// Performs the handshake with `server` over `transport`. It states our `capabilities`.
    ///
    /// # Errors
    /// The server does not complete it.
    pub(super) fn open(
        transport: Arc<dyn Transport>,
        state: &Arc<ConnectionState>,
        server: &McpServer,
        capabilities: &Value,
        wait: &mut Wait<'_>,
    ) -> Result<Self, McpError> {
        let connection = Self {
            transport,
            server: server.name.clone(),
            state: Arc::clone(state),
            is_program: matches!(server.transport, ServerTransport::Program { .. }),
            info: OnceLock::new(),
        };
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": capabilities,
            "clientInfo": { "name": "nanobot", "version": env!("CARGO_PKG_VERSION") },
        });
        let result = connection.exchange(None, wait, |id| {
            let body = json_rpc::request(id, "initialize", &params);
            (OutgoingKind::Initialize(id), body)
        });
        let result = result.map_err(|error| connection.to_handshake_error(error))?;
        let info: InitializeResult = serde_json::from_value(result).map_err(|error| {
            let cause = one_line(&error.to_string());
            McpError::Broken(format!("unexpected response to the MCP handshake: {cause}"))
        })?;
        connection.info.get_or_init(|| info);
        state.is_ready.store(true, Ordering::SeqCst);
        let result = connection.exchange(None, wait, |id| {
            let body = json_rpc::notification("notifications/initialized", &Value::Null);
            (OutgoingKind::Initialized(id), body)
        });
        result.map_err(|error| connection.to_handshake_error(error))?;
        Ok(connection)
    }

    /// Returns the server's description of itself.
    pub(super) fn info(&self) -> &InitializeResult {
        self.info.get().expect("`open` returns after the handshake")
    }

    /// Ends the connection because the servers are shut down; see [`Transport::close`].
    pub(super) fn close(&self) -> Option<Receiver<()>> {
        self.state.end(McpError::Broken("the servers were shut down".into()));
        self.transport.close()
    }

    /// Sends a request and waits for its answer.
    pub(super) fn call(
        &self,
        request: &ServerRequest<'_>,
        wait: &mut Wait<'_>,
    ) -> Result<ServerAnswer, RequestFailure> {
        let (method, params, parse): (_, _, fn(&Value) -> ServerAnswer) = match request {
            ServerRequest::Call { tool, arguments, .. } => {
                ("tools/call", json!({ "name": tool, "arguments": arguments }), decode::tool_result)
            }
            ServerRequest::Read(uri) => {
                ("resources/read", json!({ "uri": uri }), decode::resource_contents)
            }
            ServerRequest::Prompt(name, arguments) => (
                "prompts/get",
                json!({ "name": name, "arguments": arguments }),
                decode::prompt_messages,
            ),
        };
        let result = match request {
            ServerRequest::Call { sampler: Some(sampler), .. } => {
                sampling::with_sampler(*sampler, &self.server, |queue| {
                    self.request_with(method, params, Some(queue), wait)
                })
            }
            _ => self.request(method, params, wait),
        };
        match result {
            Ok(result) => Ok(parse(&result)),
            Err(RequestError::NotSent(error)) => Err(RequestFailure::NotSent(error)),
            Err(RequestError::SendFailed(error)) if self.is_program && self.closes_soon() => {
                Err(RequestFailure::NotSent(error))
            }
            Err(RequestError::SendFailed(_)) if !self.is_program && self.state.is_closed() => {
                Err(RequestFailure::Failed(self.interrupted_error()))
            }
            Err(RequestError::Closed) => Err(RequestFailure::Failed(self.interrupted_error())),
            Err(error) => Err(RequestFailure::Failed(self.to_error(error))),
        }
    }

    /// Sends a request and waits for its result.
    pub(super) fn request(
        &self,
        method: &str,
        params: Value,
        wait: &mut Wait<'_>,
    ) -> RequestResult {
        self.request_with(method, params, None, wait)
    }

    /// Does the same as [`Self::request`], with the queue of a sampler.
    fn request_with(
        &self,
        method: &str,
        mut params: Value,
        sampling: Option<SamplingQueue>,
        wait: &mut Wait<'_>,
    ) -> RequestResult {
        self.exchange(sampling, wait, |id| {
            params["_meta"] = json!({ "progressToken": id });
            let body = json_rpc::request(id, method, &params);
            (OutgoingKind::Request(id), body)
        })
    }

    /// Sends the message that `write` returns for a new id, and waits for the result; for a notification, until it is
    /// sent.
    fn exchange(
        &self,
        sampling: Option<SamplingQueue>,
        wait: &mut Wait<'_>,
        write: impl FnOnce(u64) -> (OutgoingKind, Vec<u8>),
    ) -> RequestResult {
        let (sender, mut receiver) = reply::channel().map_err(|error| {
            let message = format!("start a request: {error}");
            RequestError::NotSent(McpError::Unreachable(message))
        })?;
        let Some(id) = self.state.add_request(sender, sampling) else {
            return Err(RequestError::NotSent(self.to_error(RequestError::Closed)));
        };
        let _pending = PendingGuard { state: &self.state, id };
        let (kind, body) = write(id);
        let state = Arc::clone(&self.state);
        self.send(body, kind, move |outcome| match (kind, outcome) {
            (OutgoingKind::Initialized(_), Ok(())) => state.complete(id, Ok(Value::Null)),
            (_, outcome) => state.set_sent(id, outcome),
        });
        let cancelled = "the user cancelled the request";
        let received = receiver.receive(wait, &|| self.state.is_answering());
        let (reason, error) = match received {
            Received::Result(result) => match (result, signal::check()) {
                // The signal ended the exchange before this thread noticed the signal.
                (Err(RequestError::SendFailed(_) | RequestError::Closed), Err(stop)) => {
                    (cancelled, RequestError::Stopped(stop))
                }
                (result, _) => return result,
            },
            Received::Disconnected => return Err(RequestError::Closed),
            Received::TimedOut => ("the request timed out", RequestError::TimedOut),
            Received::Stopped(stop) => (cancelled, RequestError::Stopped(stop)),
        };
        if matches!(kind, OutgoingKind::Request(_)) {
            self.cancel(id, reason);
        }
        self.state.forget_request(id);
        match (receiver.try_receive(), error) {
            // The answer arrived at the last moment.
            (Some(Ok(result)), RequestError::TimedOut) => Ok(result),
            (_, error) => Err(error),
        }
    }

    /// Tells the server that the result of a request is no longer wanted.
    fn cancel(&self, id: u64, reason: &str) {
        let params = json!({ "requestId": id, "reason": reason });
        let body = json_rpc::notification("notifications/cancelled", &params);
        let (sender, is_sent) = mpsc::channel();
        self.send(body, OutgoingKind::Cancellation(id), move |_| {
            sender.send(()).ok();
        });
        // The request is abandoned, so the outcome does not matter.
        is_sent.recv_timeout(LATE_RESULT_GRACE).ok();
    }

    fn send(
        &self,
        body: Vec<u8>,
        kind: OutgoingKind,
        on_sent: impl FnOnce(Result<(), McpError>) + Send + 'static,
    ) {
        Arc::clone(&self.transport).send(Outgoing { body, kind, on_sent: Box::new(on_sent) });
    }

    /// True if the connection has ended, or ends in a moment.
    fn closes_soon(&self) -> bool {
        for _ in 0..CLOSE_POLLS {
            if self.state.is_closed() || signal::sleep(CLOSE_POLL_INTERVAL).is_err() {
                break;
            }
        }
        self.state.is_closed()
    }

    /// The error for a connection that ended while an answer was pending.
    fn interrupted_error(&self) -> McpError {
        let message = match self.state.end_reason() {
            Some(McpError::Broken(message)) => message,
            Some(error) => return error,
            None => "the response was incomplete".into(),
        };
        McpError::Broken(format!("{message}; the request may have taken effect"))
    }

    pub(super) fn to_error(&self, error: RequestError) -> McpError {
        match error {
            RequestError::Refused(error) => McpError::Refused(describe(&error)),
            RequestError::NotSent(error) | RequestError::SendFailed(error) => error,
            RequestError::Closed => match self.state.end_reason() {
                Some(error) => error,
                None => McpError::Broken("the connection ended".into()),
            },
            RequestError::TimedOut => McpError::TimedOut("the request timed out".into()),
            RequestError::Stopped(stop) => McpError::Stopped(stop),
        }
    }

    fn to_handshake_error(&self, error: RequestError) -> McpError {
        match (error, self.state.end_reason()) {
            (RequestError::Refused(error), _) => {
                McpError::Unreachable(format!("MCP handshake failed: {}", describe(&error)))
            }
            (RequestError::SendFailed(_), Some(end_reason)) => end_reason,
            (RequestError::Closed, Some(McpError::Broken(message))) => {
                McpError::Unreachable(message)
            }
            (RequestError::Closed, None) => {
                McpError::Unreachable("it exited before the MCP handshake".into())
            }
            (error, _) => self.to_error(error),
        }
    }
}

/// The message of a server that refused a request, on one line; its code if there is none.
fn describe(error: &json_rpc::ErrorObject) -> String {
    match one_line(&error.message) {
        message if message.is_empty() => format!("error {}", error.code),
        message => message,
    }
}
