//! The state of a connection that all its users share, and a transport wrapper that maintains it: the wrapper counts
//! outgoing requests and ends the connection to a server that floods.

use super::thread::Say;
use crate::mcp::offer::Failed;
use crate::sys::secret;
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::harmless;
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
const QUESTIONS: usize = 64;
/// Maximum of notifications in a row without a response in between. Legitimate servers send a few thousand progress
/// messages.
const FLOOD: usize = 100_000;
/// The longest line of a server's text that is shown, in characters.
const LINE: usize = 300;

/// The state of a connection.
#[derive(Default)]
pub(super) struct Watch {
    /// The highest request id handed to the transport; ids are assigned in ascending order.
    sent: AtomicI64,
    /// The server announced a change since its lists were read.
    pub(super) is_stale: AtomicBool,
    /// Number of the server's questions that the user is answering.
    pub(super) asking: AtomicUsize,
    /// The reason why the connection ended, as first reported.
    why: Mutex<Option<Failed>>,
    /// The last line of the server's standard error.
    last_line: Mutex<String>,
    /// The server's standard error has been read to the end.
    pub(super) is_log_read: AtomicBool,
    /// The receivers of progress messages, by request.
    sayers: Mutex<HashMap<ProgressToken, Say>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

impl Watch {
    pub(super) fn was_sent(&self, id: &RequestId) -> bool {
        match id {
            RequestId::Number(id) => *id <= self.sent.load(Ordering::SeqCst),
            RequestId::String(_) => true,
        }
    }

    /// Marks the connection as ended because of `reason`, unless a reason is already set.
    pub(super) fn over(&self, why: Failed) {
        locked(&self.why).get_or_insert(why);
    }

    pub(super) fn why(&self) -> Option<Failed> {
        locked(&self.why).clone()
    }

    pub(super) fn note_line(&self, line: &str) {
        *locked(&self.last_line) = one_line(line);
    }

    /// Returns the last line of the server's standard error, worded as the end of a sentence.
    pub(super) fn last_words(&self) -> String {
        match locked(&self.last_line).as_str() {
            "" => String::new(),
            line => format!("; last line of standard error: {line}"),
        }
    }

    pub(super) fn listen(&self, token: ProgressToken, say: Say) {
        locked(&self.sayers).insert(token, say);
    }

    pub(super) fn unlisten(&self, token: &ProgressToken) -> Option<Say> {
        locked(&self.sayers).remove(token)
    }

    pub(super) fn progress(&self, token: &ProgressToken, words: String) {
        if let Some(say) = locked(&self.sayers).get(token) {
            say(words);
        }
    }
}

/// Converts a text of a server to one short, printable line without secrets.
pub(super) fn one_line(text: &str) -> String {
    // Text beyond the limit is not scanned, but the margin keeps a secret from being cut in two before it is hidden.
    let start: String = text.chars().take(LINE * 4).collect();
    let plain: Vec<&str> = start.split_whitespace().collect();
    let clean = harmless(&secret::hide(&plain.join(" ")));
    match clean.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

/// A transport that maintains the [`Watch`] of its connection.
pub(super) struct Watched<T> {
    inner: T,
    watch: Arc<Watch>,
    open: Arc<Mutex<HashSet<RequestId>>>,
    in_a_row: usize,
}

impl<T> Watched<T> {
    pub(super) fn new(inner: T, watch: &Arc<Watch>) -> Self {
        Self {
            inner,
            watch: Arc::clone(watch),
            open: Arc::default(),
            in_a_row: 0,
        }
    }

    /// Fails if the server exceeds a limit with this message.
    fn judge(&mut self, message: &ServerJsonRpcMessage) -> Result<(), String> {
        match message {
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => self.in_a_row = 0,
            JsonRpcMessage::Notification(_) => {
                self.in_a_row += 1;
                if self.in_a_row > FLOOD {
                    return Err(format!("it sent more than {FLOOD} notifications in a row"));
                }
            }
            JsonRpcMessage::Request(request) => {
                let mut open = locked(&self.open);
                open.insert(request.id.clone());
                if open.len() > QUESTIONS {
                    return Err(format!(
                        "it sent more than {QUESTIONS} requests without reading a response"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
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
            self.watch.sent.fetch_max(*id, Ordering::SeqCst);
        }
        let answered = match &item {
            ClientJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ClientJsonRpcMessage::Error(error) => error.id.clone(),
            _ => None,
        };
        let open = Arc::clone(&self.open);
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            if let Some(id) = answered {
                locked(&open).remove(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        match self.judge(&message) {
            Ok(()) => Some(message),
            Err(words) => {
                self.watch.over(Failed::Broken(words));
                None
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
