//! What is known of a connection while it lives, by all who have to do with it; and the transport that keeps the books:
//! it counts what goes out, and ends a server that floods.

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

/// So many questions a server may have open; each holds memory until it has read the answer.
const QUESTIONS: usize = 64;
/// So many notifications in a row without an answer among them are a flood. A diligent server tells of its progress a
/// few thousand times.
const FLOOD: usize = 100_000;
/// The longest line of a server's that is shown.
const LINE: usize = 300;

/// What is known of a connection.
#[derive(Default)]
pub(super) struct Watch {
    /// The highest number of a request that was handed to the transport; numbers are given in their order.
    sent: AtomicI64,
    /// What the server offers has changed since it was listed.
    pub(super) is_stale: AtomicBool,
    /// So many questions of the server's are before a person.
    pub(super) asking: AtomicUsize,
    /// Why it ended, as whoever noticed first has it.
    why: Mutex<Option<Failed>>,
    /// The last line that it wrote on its standard error.
    last_line: Mutex<String>,
    /// Who wants to know of the progress of which request.
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

    /// It is over, because of `why`, unless that is known better already.
    pub(super) fn over(&self, why: Failed) {
        locked(&self.why).get_or_insert(why);
    }

    pub(super) fn why(&self) -> Option<Failed> {
        locked(&self.why).clone()
    }

    pub(super) fn note_line(&self, line: &str) {
        *locked(&self.last_line) = one_line(line);
    }

    /// What it said last on its standard error, as the end of a sentence.
    pub(super) fn last_words(&self) -> String {
        match locked(&self.last_line).as_str() {
            "" => String::new(),
            line => format!("; its last words: {line}"),
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

/// What a server says, as one short line without keys that can be shown.
pub(super) fn one_line(text: &str) -> String {
    // What is cut away is not looked at, but a key must not be cut in two before it is hidden.
    let start: String = text.chars().take(LINE * 4).collect();
    let plain: Vec<&str> = start.split_whitespace().collect();
    let clean = harmless(&secret::hide(&plain.join(" ")));
    match clean.char_indices().nth(LINE) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

/// A transport, with books.
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

    /// Whether the server may go on.
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
                        "it asks more than {QUESTIONS} questions without reading an answer"
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
