//! The client of the server, and how messages are written to it.

use crate::json_rpc::{self, ErrorObject};
use crate::ops::context::Context;
use crate::ops::turn_setup::TurnSetup;
use crate::options::turn::TurnOptions;
use crate::sys::cancel::CancelToken;
use anyhow::Result;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

/// A client, and what it is served with.
pub(super) struct ServedClient<'a> {
    pub(super) ctx: &'a Context,
    pub(super) options: &'a TurnOptions,
    pub(super) setup: TurnSetup,
    /// The names of the tools that are offered.
    pub(super) tools: Vec<String>,
    /// Held by a call that changes something, shared by those that only read.
    pub(super) writing: RwLock<()>,
    /// The tokens of running calls, by the id of their request as JSON.
    pub(super) running: Mutex<HashMap<String, Arc<CancelToken>>>,
}

impl ServedClient<'_> {
    /// Answers the request `id`.
    pub(super) fn respond(&self, id: &Value, result: Result<Value, ErrorObject>) -> Result<()> {
        self.write(json_rpc::response(id, result))
    }

    /// Sends a notification.
    pub(super) fn notify(&self, method: &str, params: &Value) -> Result<()> {
        self.write(json_rpc::notification(method, params))
    }

    /// Writes a message as one line.
    fn write(&self, mut message: Vec<u8>) -> Result<()> {
        message.push(b'\n');
        self.ctx.terminal.print_json_text(&String::from_utf8_lossy(&message))
    }
}
