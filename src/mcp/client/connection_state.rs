//! The state of a connection that all its users share, and a transport wrapper that maintains it: the wrapper counts
//! outgoing requests and ends the connection to a server that floods.

use super::runtime::OnProgress;
use crate::mcp::protocol::McpError;
use crate::sys::secret;
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::sanitize;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, ProgressToken, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Maximum of open requests of a server; each takes memory until the server has read the response.
const MAX_OPEN_REQUESTS: usize = 64;
/// Maximum of notifications in a row without a response in between. Legitimate servers send a few thousand progress
/// messages.
const MAX_NOTIFICATIONS_IN_A_ROW: usize = 100_000;
/// The longest line of a server's text that is shown, in characters.
const MAX_LINE_CHARS: usize = 300;

/// The state of a connection.
#[derive(Default)]
pub(super) struct ConnectionState {
    /// The highest request id handed to the transport; ids are assigned in ascending order.
    last_sent_id: AtomicI64,
    /// The server announced a change since its lists were read.
    pub(super) is_stale: AtomicBool,
    /// Number of the server's questions that the user is answering.
    pub(super) open_questions: AtomicUsize,
    /// The reason why the connection ended, as first reported.
    end_reason: Mutex<Option<McpError>>,
    /// The last line of the server's standard error.
    last_line: Mutex<String>,
    /// The server's standard error has been read to the end.
    pub(super) is_log_read: AtomicBool,
    /// The receivers of progress messages, by request.
    progress_callbacks: Mutex<HashMap<ProgressToken, OnProgress>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl ConnectionState {
    pub(super) fn was_sent(&self, id: &RequestId) -> bool {
        match id {
            RequestId::Number(id) => *id <= self.last_sent_id.load(Ordering::SeqCst),
            RequestId::String(_) => true,
        }
    }

    /// Marks the connection as ended because of `reason`, unless a reason is already set.
    pub(super) fn set_end_reason(&self, reason: McpError) {
        lock(&self.end_reason).get_or_insert(reason);
    }

    pub(super) fn end_reason(&self) -> Option<McpError> {
        lock(&self.end_reason).clone()
    }

    pub(super) fn set_last_line(&self, line: &str) {
        *lock(&self.last_line) = one_line(line);
    }

    /// Returns the last line of the server's standard error, worded as the end of a sentence.
    pub(super) fn stderr_suffix(&self) -> String {
        match lock(&self.last_line).as_str() {
            "" => String::new(),
            line => format!("; last line of standard error: {line}"),
        }
    }

    pub(super) fn subscribe(&self, token: ProgressToken, on_progress: OnProgress) {
        lock(&self.progress_callbacks).insert(token, on_progress);
    }

    pub(super) fn unsubscribe(&self, token: &ProgressToken) -> Option<OnProgress> {
        lock(&self.progress_callbacks).remove(token)
    }

    pub(super) fn report_progress(&self, token: &ProgressToken, message: String) {
        if let Some(say) = lock(&self.progress_callbacks).get(token) {
            say(message);
        }
    }
}

/// Converts a text of a server to one short, printable line without secrets.
pub(super) fn one_line(text: &str) -> String {
    // Text beyond the limit is not scanned, but the margin keeps a secret from being cut in two before it is hidden.
    let start: String = text.chars().take(MAX_LINE_CHARS * 4).collect();
    let plain: Vec<&str> = start.split_whitespace().collect();
    let clean = sanitize(&secret::redact_all(&plain.join(" ")));
    match clean.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

/// A transport that maintains the [`ConnectionState`] of its connection.
pub(super) struct InstrumentedTransport<T> {
    inner: T,
    state: Arc<ConnectionState>,
    open_requests: Arc<Mutex<HashSet<RequestId>>>,
    notifications_in_a_row: usize,
}

impl<T> InstrumentedTransport<T> {
    pub(super) fn new(inner: T, state: &Arc<ConnectionState>) -> Self {
        Self {
            inner,
            state: Arc::clone(state),
            open_requests: Arc::default(),
            notifications_in_a_row: 0,
        }
    }

    /// Fails if the server exceeds a limit with this message.
    fn check_limits(&mut self, message: &ServerJsonRpcMessage) -> Result<(), String> {
        match message {
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                self.notifications_in_a_row = 0;
            }
            JsonRpcMessage::Notification(_) => {
                self.notifications_in_a_row += 1;
                if self.notifications_in_a_row > MAX_NOTIFICATIONS_IN_A_ROW {
                    return Err(format!(
                        "it sent more than {MAX_NOTIFICATIONS_IN_A_ROW} notifications in a row"
                    ));
                }
            }
            JsonRpcMessage::Request(request) => {
                let mut open = lock(&self.open_requests);
                open.insert(request.id.clone());
                if open.len() > MAX_OPEN_REQUESTS {
                    return Err(format!(
                        "it sent more than {MAX_OPEN_REQUESTS} requests without reading a response"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for InstrumentedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &item
            && let RequestId::Number(id) = &request.id
        {
            self.state.last_sent_id.fetch_max(*id, Ordering::SeqCst);
        }
        let answered = match &item {
            ClientJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ClientJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let open = Arc::clone(&self.open_requests);
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                lock(&open).remove(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        match self.check_limits(&message) {
            Ok(()) => Some(message),
            Err(words) => {
                self.state.set_end_reason(McpError::Broken(words));
                None
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
