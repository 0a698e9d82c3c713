//! The editor's side of the connection: updates and requests to the editor, and the requests that it has not answered yet.

use crate::ops::rpc_connection::RpcConnection;
use anyhow::Result;
use nanobot_base::json_rpc::{self, ErrorObject};
use nanobot_os::signal;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};

/// The editor that started this process.
pub(super) struct EditorClient {
    pub(super) connection: RpcConnection,
    last_id: AtomicU64,
    pending: Mutex<HashMap<u64, EditorQuestion>>,
}

/// A request to the editor that has no answer yet.
struct EditorQuestion {
    session: String,
    result_tx: Sender<Value>,
}

impl EditorClient {
    pub(super) fn new(connection: RpcConnection) -> Self {
        Self { connection, last_id: AtomicU64::new(0), pending: Mutex::default() }
    }

    /// Sends an update about a session.
    ///
    /// # Errors
    /// Standard output fails.
    pub(super) fn update(&self, session: &str, update: &Value) -> Result<()> {
        let params = json!({ "sessionId": session, "update": update });
        self.connection.notify("session/update", &params)
    }

    /// Sends a request about `session`, and waits for its result. `None` if the editor refuses, if the turn of the session is
    /// cancelled, or if the connection ends.
    pub(super) fn ask(&self, session: &str, method: &str, params: &Value) -> Option<Value> {
        let id = self.last_id.fetch_add(1, Ordering::SeqCst) + 1;
        let (result_tx, result_rx) = mpsc::channel();
        // The request is pending before it is sent, so that no answer comes too early. Removing it ends the wait below.
        let question = EditorQuestion { session: session.to_owned(), result_tx };
        self.pending.lock().insert(id, question);
        let is_sent = self.connection.request(id, method, params).is_ok();
        // After a cancellation, an editor need not answer.
        if !is_sent || signal::check().is_err() {
            self.pending.lock().remove(&id);
        }
        result_rx.recv().ok()
    }

    /// Passes on the answer to a request that was sent to the editor. An answer to no pending request is ignored.
    pub(super) fn accept_answer(&self, id: &Value, result: Result<Value, ErrorObject>) {
        let id = json_rpc::own_id(id).unwrap_or_default();
        let question = self.pending.lock().remove(&id);
        if let (Some(question), Ok(result)) = (question, result) {
            // The waiting thread may have ended.
            drop(question.result_tx.send(result));
        }
    }

    /// Stops waiting for answers about `session`, or about all sessions.
    pub(super) fn stop_waiting(&self, session: Option<&str>) {
        let mut pending = self.pending.lock();
        pending.retain(|_, question| session.is_some_and(|session| question.session != session));
    }
}
