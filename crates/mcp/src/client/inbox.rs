//! Receives the messages of a server. A server may answer, ping, report progress, announce changed lists, request user
//! input if a user is present, and request replies of the model if its config says so. It learns nothing about our files
//! (roots).

use super::config::ElicitationHandler;
use super::connection::{Outgoing, OutgoingKind, Transport};
use super::connection_state::{ConnectionState, FIRST_REQUEST_ID, OpenAnswer, one_line};
use super::elicitation::Question;
use super::reply::RequestError;
use super::sampling::{SamplingJob, SamplingRequest};
use super::{decode, elicitation};
use crate::protocol::McpError;
use nanobot_base::json_rpc::{self, ErrorObject, RpcMessage};
use nanobot_os::cancel::CancelToken;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The receiver of a server's messages, which the transport calls from its threads.
pub(super) struct Inbox {
    /// The name of the server.
    pub(super) server: String,
    pub(super) state: Arc<ConnectionState>,
    pub(super) elicitation: Option<Arc<dyn ElicitationHandler>>,
    /// True if the server may request replies of the model.
    pub(super) allows_sampling: bool,
}

impl Inbox {
    /// Acts on `message`, and answers through `transport`. Returns false if the connection has ended, possibly because
    /// of this message.
    pub(super) fn receive(
        self: &Arc<Self>,
        message: RpcMessage,
        transport: &Arc<dyn Transport>,
    ) -> bool {
        if let Err(cause) = self.state.check_limits(&message) {
            self.state.end(McpError::Broken(cause));
        }
        if self.state.is_closed() {
            return false;
        }
        match message {
            RpcMessage::Response { id, result } => return self.take_response(&id, result),
            RpcMessage::Notification { method, params } => self.take_notification(&method, &params),
            RpcMessage::Request { id, method, params } => {
                self.take_request(id, &method, params, transport);
            }
        }
        true
    }

    fn take_response(&self, id: &Value, result: Result<Value, ErrorObject>) -> bool {
        let is_ready = self.state.is_ready.load(Ordering::SeqCst);
        // The server could not read the id, but only the first request can be meant.
        let handshake_id = (!is_ready && id.is_null()).then_some(FIRST_REQUEST_ID);
        match json_rpc::own_id(id).or(handshake_id) {
            Some(id) if self.state.is_pending(id) => {
                self.state.complete(id, result.map_err(RequestError::Refused));
            }
            _ if is_ready => log::debug!(target: "mcp", "{}: late or unknown answer", self.server),
            _ => {
                let cause = "unexpected response to the MCP handshake";
                self.state.end(McpError::Broken(cause.into()));
                return false;
            }
        }
        true
    }

    fn take_notification(&self, method: &str, params: &Map<String, Value>) {
        match method {
            "notifications/message" => {
                let text = match params.get("data") {
                    Some(Value::String(text)) => one_line(text),
                    other => one_line(&other.unwrap_or(&Value::Null).to_string()),
                };
                log::debug!(target: "mcp", "{}: {text}", self.server);
            }
            "notifications/progress" => {
                let id = params.get("progressToken").and_then(json_rpc::own_id);
                if let (Some(id), Some(message)) = (id, decode::progress(params)) {
                    self.state.report_progress(id, one_line(&message));
                }
            }
            "notifications/cancelled" => {
                let id = params.get("requestId").unwrap_or(&Value::Null);
                self.state.cancel_open_request(id);
            }
            "notifications/tools/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/prompts/list_changed" => {
                self.state.is_stale.store(true, Ordering::SeqCst);
            }
            _ => {}
        }
    }

    fn take_request(
        self: &Arc<Self>,
        id: Value,
        method: &str,
        params: Map<String, Value>,
        transport: &Arc<dyn Transport>,
    ) {
        let answer = match method {
            "ping" => Ok(json!({})),
            // Before the handshake is complete, a server may only ping (MCP, Lifecycle). It gets no answer to anything else.
            _ if !self.state.is_ready.load(Ordering::SeqCst) => {
                return self.state.close_open_request(&id);
            }
            "elicitation/create" => {
                let question = Question { server: self.server.clone(), id: id.clone(), params };
                let inbox = Arc::clone(self);
                let transport = Arc::clone(transport);
                let answer = move |result| inbox.answer(id, result, &transport);
                return elicitation::answer(
                    question,
                    &self.state,
                    self.elicitation.as_ref(),
                    answer,
                );
            }
            "roots/list" => Ok(json!({ "roots": [] })),
            "sampling/createMessage" if self.allows_sampling => {
                return self.queue_sampling(id, &params, transport);
            }
            "sampling/createMessage" => {
                log::debug!(target: "mcp", "{}: sampling request denied", self.server);
                let message = "servers may not use the model of this client";
                Err(ErrorObject::method_not_found(message))
            }
            other => Err(ErrorObject::method_not_found(other)),
        };
        self.answer(id, answer, transport);
    }

    /// Passes a request for a reply of the model on to the call in progress.
    fn queue_sampling(
        self: &Arc<Self>,
        id: Value,
        params: &Map<String, Value>,
        transport: &Arc<dyn Transport>,
    ) {
        let request = match SamplingRequest::parse(params) {
            Ok(request) => request,
            Err(error) => {
                return self.answer(id, Err(ErrorObject::invalid_params(error)), transport);
            }
        };
        let Ok(token) = CancelToken::new() else {
            let error = ErrorObject::failure("no file descriptor is left");
            return self.answer(id, Err(error), transport);
        };
        self.state.set_cancel_token(&id, Arc::clone(&token));
        let inbox = Arc::clone(self);
        let transport = Arc::clone(transport);
        let pause = OpenAnswer::new(&self.state);
        let answer = move |result| {
            drop(pause);
            match result {
                Some(result) => inbox.answer(id, result, &transport),
                None => inbox.state.close_open_request(&id),
            }
        };
        let job = SamplingJob { request, token, answer: Box::new(answer) };
        if let Err((answer, error)) = self.state.queue_sampling(job) {
            answer(Some(Err(error)));
        }
    }

    /// Sends the answer to the server's request `id`.
    pub(super) fn answer(
        &self,
        id: Value,
        result: Result<Value, ErrorObject>,
        transport: &Arc<dyn Transport>,
    ) {
        let state = Arc::clone(&self.state);
        Arc::clone(transport).send(Outgoing {
            body: json_rpc::response(&id, result),
            kind: OutgoingKind::Answer,
            on_sent: Box::new(move |_| state.close_open_request(&id)),
        });
    }
}
