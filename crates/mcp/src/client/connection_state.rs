//! The state of a connection, which its callers and the threads of its transport share: the pending requests in both
//! directions, and the reason of its end.

use super::reply::{ReplySender, RequestError, RequestResult};
use super::sampling::{self, SamplingAnswer, SamplingJob, SamplingQueue};
use super::sandbox_refusal;
use crate::protocol::McpError;
use nanobot_base::json_rpc::{ErrorObject, RpcMessage};
use nanobot_os::cancel::CancelToken;
use nanobot_os::secret;
use nanobot_os::terminal::sanitize;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The id of the request that begins the handshake.
pub(super) const FIRST_REQUEST_ID: u64 = 1;
/// Maximum of open requests of a server; each takes memory until the server has read the response.
const MAX_OPEN_REQUESTS: usize = 64;
/// Maximum of notifications in a row without a response in between. Legitimate servers send a few thousand progress
/// messages.
const MAX_NOTIFICATIONS_IN_A_ROW: usize = 100_000;
/// The longest line of a server's text that is shown, in characters.
const MAX_LINE_CHARS: usize = 300;

#[derive(Default)]
pub(super) struct ConnectionState {
    /// The handshake is complete. Before that, the server may only answer and ping.
    pub(super) is_ready: AtomicBool,
    /// The server announced a change since its lists were read.
    pub(super) is_stale: AtomicBool,
    /// Number of the server's requests that the user or the model is answering.
    open_answers: AtomicUsize,
    /// The server's standard error has been read to the end.
    pub(super) is_log_read: AtomicBool,
    /// The reason why the connection ended, as first reported.
    end_reason: Mutex<Option<McpError>>,
    /// The last line of the server's standard error.
    last_line: Mutex<String>,
    /// The path that the server's sandbox refused last, according to its standard error.
    refused_path: Mutex<Option<String>>,
    notifications_in_a_row: AtomicUsize,
    pending: Mutex<PendingRequests>,
    /// The server's requests to us that were not answered yet, by their id as JSON text. The token cancels the work on
    /// the answer.
    open_requests: Mutex<HashMap<String, Option<Arc<CancelToken>>>>,
}

/// Our requests that have no answer yet.
#[derive(Default)]
struct PendingRequests {
    is_closed: bool,
    /// Number of requests so far.
    count: u64,
    by_id: HashMap<u64, PendingRequest>,
}

struct PendingRequest {
    reply: ReplySender,
    sampling: Option<SamplingQueue>,
    /// The transport has sent the request as a whole.
    is_sent: bool,
}

/// Counts a request of the server that is being answered. This pauses the timeouts of our requests to it.
pub(super) struct OpenAnswer(Arc<ConnectionState>);

impl OpenAnswer {
    pub(super) fn new(state: &Arc<ConnectionState>) -> Self {
        state.open_answers.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(state))
    }
}

impl Drop for OpenAnswer {
    fn drop(&mut self) {
        self.0.open_answers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ConnectionState {
    /// Ends the connection because of `error`, unless it has already ended. Requests that were sent fail at once, and others
    /// when it is known whether they were sent.
    pub(super) fn end(&self, error: McpError) {
        self.end_reason.lock().get_or_insert(error);
        let mut pending = self.pending.lock();
        pending.is_closed = true;
        // The caller notices that the sender is gone.
        pending.by_id.retain(|_, request| !request.is_sent);
        drop(pending);
        for token in self.open_requests.lock().values().flatten() {
            token.cancel();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pending.lock().is_closed
    }

    pub(super) fn end_reason(&self) -> Option<McpError> {
        self.end_reason.lock().clone()
    }

    pub(super) fn set_last_line(&self, line: &str) {
        *self.last_line.lock() = one_line(line);
    }

    /// Records the path that a line of a sandboxed server's standard error reports as refused.
    pub(super) fn note_refusal(&self, line: &str) {
        if let Some(path) = sandbox_refusal::refused_path(line) {
            *self.refused_path.lock() = Some(one_line(path));
        }
    }

    /// Returns the path that the server's sandbox refused since this was last called.
    pub(super) fn take_refused_path(&self) -> Option<String> {
        self.refused_path.lock().take()
    }

    /// Returns the last line of the server's standard error, and the path that its sandbox refused, worded as the end of a
    /// sentence.
    pub(super) fn stderr_suffix(&self) -> String {
        let mut suffix = match self.last_line.lock().as_str() {
            "" => String::new(),
            line => format!("; last line of standard error: {line}"),
        };
        if let Some(path) = &*self.refused_path.lock() {
            suffix.push_str(&format!(
                "; its sandbox refused `{path}`: `write` or `read` of its entry grants it"
            ));
        }
        suffix
    }

    /// True while the user or the model is answering a request of the server.
    pub(super) fn is_answering(&self) -> bool {
        self.open_answers.load(Ordering::SeqCst) > 0
    }

    /// Adds a request and returns its id; `None` if the connection has ended. `sampling` answers requests of the server for
    /// the model until the request is removed.
    pub(super) fn add_request(
        &self,
        reply: ReplySender,
        sampling: Option<SamplingQueue>,
    ) -> Option<u64> {
        let mut pending = self.pending.lock();
        if pending.is_closed {
            return None;
        }
        let id = FIRST_REQUEST_ID + pending.count;
        pending.count += 1;
        pending.by_id.insert(id, PendingRequest { reply, sampling, is_sent: false });
        Some(id)
    }

    /// Records the outcome of sending the request `id`.
    pub(super) fn set_sent(&self, id: u64, outcome: Result<(), McpError>) {
        let mut pending = self.pending.lock();
        let is_closed = pending.is_closed;
        let error = match (outcome, pending.by_id.get_mut(&id)) {
            (_, None) => return,
            (Ok(()), Some(request)) if !is_closed => return request.is_sent = true,
            (Ok(()), _) => RequestError::Closed,
            (Err(error), _) => RequestError::SendFailed(error),
        };
        drop(pending);
        self.complete(id, Err(error));
    }

    /// True if the request `id` waits for its answer.
    pub(super) fn is_pending(&self, id: u64) -> bool {
        self.pending.lock().by_id.contains_key(&id)
    }

    /// Passes the result of the request `id` on to its caller, if the caller still waits.
    pub(super) fn complete(&self, id: u64, result: RequestResult) {
        if let Some(request) = self.remove_request(id) {
            request.reply.send(result);
        }
    }

    /// Removes a request whose answer is no longer wanted.
    pub(super) fn forget_request(&self, id: u64) {
        drop(self.remove_request(id));
    }

    fn remove_request(&self, id: u64) -> Option<PendingRequest> {
        self.pending.lock().by_id.remove(&id)
    }

    pub(super) fn report_progress(&self, id: u64, message: String) {
        if let Some(request) = self.pending.lock().by_id.get(&id) {
            request.reply.send_progress(message);
        }
    }

    /// Passes a request of the server on to the sampler of the call in progress. There is at most one such call.
    ///
    /// # Errors
    /// No call in progress accepts the request. The error has the sender of the answer, and the error to send.
    pub(super) fn queue_sampling(
        &self,
        job: SamplingJob,
    ) -> Result<(), (SamplingAnswer, ErrorObject)> {
        let mut pending = self.pending.lock();
        let mut requests = pending.by_id.values_mut();
        let sampled_call =
            requests.find_map(|request| Some((request.sampling.as_mut()?, &request.reply)));
        let Some((queue, reply)) = sampled_call else {
            let message = "the model answers only while a call of a tool is in progress";
            return Err((job.answer, sampling::rejected(message)));
        };
        let number = queue.push(job)?;
        reply.send_progress(format!("request {number} to the model"));
        Ok(())
    }

    /// Counts `message`.
    ///
    /// # Errors
    /// The server exceeds a limit with this message.
    pub(super) fn check_limits(&self, message: &RpcMessage) -> Result<(), String> {
        match message {
            RpcMessage::Response { .. } => self.notifications_in_a_row.store(0, Ordering::SeqCst),
            RpcMessage::Notification { .. } => {
                let count = self.notifications_in_a_row.fetch_add(1, Ordering::SeqCst);
                if count >= MAX_NOTIFICATIONS_IN_A_ROW {
                    return Err(format!(
                        "it sent more than {MAX_NOTIFICATIONS_IN_A_ROW} notifications in a row"
                    ));
                }
            }
            RpcMessage::Request { id, .. } => {
                let mut open = self.open_requests.lock();
                open.entry(id.to_string()).or_default();
                if open.len() > MAX_OPEN_REQUESTS {
                    return Err(format!(
                        "it sent more than {MAX_OPEN_REQUESTS} requests without reading a response"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Sets the token that cancels the work on the answer to the server's request `id`.
    pub(super) fn set_cancel_token(&self, id: &Value, token: Arc<CancelToken>) {
        drop(self.open_requests.lock().insert(id.to_string(), Some(token)));
    }

    /// Cancels the work on the answer to the server's request `id`.
    pub(super) fn cancel_open_request(&self, id: &Value) {
        if let Some(Some(token)) = self.open_requests.lock().get(&id.to_string()) {
            token.cancel();
        }
    }

    /// Removes the server's request `id`, which was answered or cancelled.
    pub(super) fn close_open_request(&self, id: &Value) {
        drop(self.open_requests.lock().remove(&id.to_string()));
    }
}

/// Converts a text of a server to one short, printable line without secrets.
pub(super) fn one_line(text: &str) -> String {
    // More than the limit is scanned, so that no secret is cut in two before it is redacted.
    let start: String = text.chars().take(MAX_LINE_CHARS * 4).collect();
    let parts: Vec<&str> = start.split_whitespace().collect();
    let clean = sanitize(&secret::redact_all(&parts.join(" ")));
    match clean.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionState, FIRST_REQUEST_ID};
    use crate::client::reply::{RequestError, channel};
    use crate::protocol::McpError;
    use nanobot_base::json_rpc::parse;

    /// The outcome of a request that is sent with `outcome` before or after the connection ends.
    fn failed_request(outcome: Result<(), McpError>, ends_first: bool) -> Option<RequestError> {
        let state = ConnectionState::default();
        let (sender, mut receiver) = channel().unwrap();
        let id = state.add_request(sender, None).unwrap();
        assert_eq!(id, FIRST_REQUEST_ID);
        let end = || state.end(McpError::Broken("over".into()));
        if ends_first {
            end();
            assert!(state.is_pending(id), "it may not have been sent");
        }
        state.set_sent(id, outcome);
        if !ends_first {
            end();
        }
        assert!(!state.is_pending(id));
        assert!(state.add_request(channel().unwrap().0, None).is_none());
        receiver.try_receive().map(Result::unwrap_err)
    }

    #[test]
    fn a_request_fails_once_it_is_known_whether_it_was_sent() {
        let unsent = || Err(McpError::Broken("no".into()));
        // The sender is gone, which means the same as `Closed`.
        assert!(failed_request(Ok(()), false).is_none());
        assert!(matches!(failed_request(Ok(()), true), Some(RequestError::Closed)));
        for ends_first in [true, false] {
            assert!(matches!(
                failed_request(unsent(), ends_first),
                Some(RequestError::SendFailed(_))
            ));
        }
    }

    #[test]
    fn floods_exceed_the_limits() {
        let check = |text: &dyn Fn(usize) -> String, most: usize| {
            let state = ConnectionState::default();
            let mut fits = (0..).map(|number| {
                let message = parse(text(number).as_bytes()).unwrap();
                state.check_limits(&message).is_ok()
            });
            assert_eq!(fits.position(|fits| !fits), Some(most));
        };
        check(
            &|number| format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#),
            super::MAX_OPEN_REQUESTS,
        );
        check(&|_| r#"{"jsonrpc":"2.0","method":"x"}"#.into(), super::MAX_NOTIFICATIONS_IN_A_ROW);
    }
}
