//! `nanobot serve mcp`: the agent and its tools as an MCP server over standard input and output
//! (<https://modelcontextprotocol.io/specification/2025-11-25>). One process serves one client, until its input ends.
//!
//! The main thread reads; each call runs on a thread of its own, under a token that a cancellation of the client cancels. Texts of the
//! client are the text of a program, not of the user. Content that its calls have read limits later calls, as in a turn.

mod calls;
mod resources;
mod served_client;

use crate::ops::context::Context;
use crate::ops::rpc_connection::RpcConnection;
use crate::ops::turn_setup;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use calls::ServedCall;
use nanobot_base::error::Exit;
use nanobot_base::json_rpc::{ErrorObject, RpcMessage};
use nanobot_base::message::Origin;
use nanobot_os::cancel::CancelToken;
use nanobot_os::signal;
use parking_lot::{Mutex, RwLock};
use serde_json::{Map, Value, json};
use served_client::ServedClient;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The versions of the protocol that are spoken, the newest first. Revision 2025-03-26 is left out: it requires batches.
const PROTOCOL_VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2024-11-05"];

/// Instructions for the client's model.
const INSTRUCTIONS: &str = "`ask` lets nanobot, an agent with its own memory and tools, answer a question or do a task; pass the `session` of an \
    answer to go on with that conversation. The other tools work on files under the user's policy: a denial is final.";

/// Serves the client on standard input and output until the input ends. `options` apply to the turns of `ask`, and their
/// grants to all tools.
///
/// # Errors
/// The config cannot be used, standard input or output fails, or a signal arrived.
pub(crate) fn serve(ctx: &Context, options: &TurnOptions) -> Result<Exit> {
    signal::install(None).context("wait for signals")?;
    let offline = options.limits.offline;
    let setup =
        turn_setup::build_without_turn(ctx, &options.grants, offline, false, Vec::new(), None)?;
    let shared = &setup.shared;
    shared.files.keep_git_history(ctx.paths.git_objects());
    shared.provenance.raise(Origin::Project, "text of a program");
    let client = ServedClient {
        ctx,
        connection: RpcConnection::new(ctx.terminal),
        is_initialized: AtomicBool::new(false),
        options,
        tools: calls::offered_tools(&setup, &options.grants),
        setup,
        writing: RwLock::default(),
        running: Mutex::default(),
    };
    let result = thread::scope(|scope| {
        let result = client.connection.read_all(&mut |message| client.accept(scope, message));
        // The client is gone: no program waits for the calls that still run.
        for token in client.running.lock().values() {
            token.cancel();
        }
        result
    });
    ctx.servers.shut_down();
    result.map(|()| Exit::Answered)
}

impl ServedClient<'_> {
    /// Handles a message of the client.
    fn accept<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        message: RpcMessage,
    ) -> Result<()> {
        match message {
            RpcMessage::Notification { method, params } if method == "notifications/cancelled" => {
                self.cancel(&params);
                Ok(())
            }
            // No request is sent to the client, so it has nothing to respond to.
            RpcMessage::Notification { .. } | RpcMessage::Response { .. } => Ok(()),
            RpcMessage::Request { id, method, params } => match method.as_str() {
                "tools/call" if self.is_initialized() => self.start_call(scope, id, params),
                _ => self.connection.respond(&id, self.answer(&method, &params)),
            },
        }
    }

    fn is_initialized(&self) -> bool {
        self.is_initialized.load(Ordering::SeqCst)
    }

    /// The answer to a request that takes no time.
    fn answer(&self, method: &str, params: &Map<String, Value>) -> Result<Value, ErrorObject> {
        match method {
            "initialize" => {
                self.is_initialized.store(true, Ordering::SeqCst);
                Ok(initialize(params))
            }
            "ping" => Ok(json!({})),
            _ if !self.is_initialized() => {
                Err(ErrorObject::invalid_request("the first request is `initialize`"))
            }
            "tools/list" => Ok(json!({ "tools": calls::list(self) })),
            "resources/list" => Ok(json!({ "resources": resources::list(self)? })),
            "resources/templates/list" => {
                Ok(json!({ "resourceTemplates": resources::templates() }))
            }
            "resources/read" => resources::read(self, params),
            other => Err(ErrorObject::method_not_found(format!("there is no method `{other}`"))),
        }
    }

    /// Runs a call on a thread of its own.
    fn start_call<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        id: Value,
        params: Map<String, Value>,
    ) -> Result<()> {
        let token = CancelToken::new().context("start a call")?;
        let key = id.to_string();
        let mut running = self.running.lock();
        if running.contains_key(&key) {
            drop(running);
            let error = ErrorObject::invalid_request("a request with this id is still running");
            return self.connection.respond(&id, Err(error));
        }
        running.insert(key.clone(), Arc::clone(&token));
        drop(running);
        scope.spawn(move || {
            let result = nanobot_os::cancel::scope(Some(Arc::clone(&token)), || {
                calls::call(self, &id, &params)
            });
            self.running.lock().remove(&key);
            let (result, turn) = match result {
                Ok(ServedCall { value, turn }) => (Ok(value), turn),
                Err(error) => (Err(error), None),
            };
            // A cancelled request has no answer. If the answer cannot be written, the client is gone, and the reader notices it.
            if !token.is_cancelled() {
                drop(self.connection.respond(&id, result));
            }
            if let Some(turn) = turn {
                turn.finish();
            }
        });
        Ok(())
    }

    /// Cancels the call that the client names.
    fn cancel(&self, params: &Map<String, Value>) {
        let id = params.get("requestId").map(Value::to_string);
        let running = self.running.lock();
        if let Some(token) = id.and_then(|id| running.get(&id)) {
            token.cancel();
        }
    }
}

/// The answer to `initialize`: the client's version of the protocol if it is spoken here, else the newest one.
fn initialize(params: &Map<String, Value>) -> Value {
    let client_version = params.get("protocolVersion").and_then(Value::as_str);
    let version = PROTOCOL_VERSIONS
        .into_iter()
        .find(|version| Some(*version) == client_version)
        .unwrap_or(PROTOCOL_VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {}, "resources": {} },
        "serverInfo": { "name": "nanobot", "title": "nanobot", "version": env!("CARGO_PKG_VERSION") },
        "instructions": INSTRUCTIONS,
    })
}

#[cfg(test)]
mod tests {
    use super::initialize;
    use serde_json::json;

    #[test]
    fn the_version_is_the_clients_if_it_is_known() {
        let check = |wanted: serde_json::Value, expect: &str| {
            let params = json!({ "protocolVersion": wanted });
            let answer = initialize(params.as_object().unwrap());
            assert_eq!(answer["protocolVersion"], expect);
        };
        check(json!("2025-11-25"), "2025-11-25");
        check(json!("2024-11-05"), "2024-11-05");
        check(json!("2025-03-26"), "2025-11-25");
        check(json!("3000-01-01"), "2025-11-25");
        check(json!(null), "2025-11-25");
    }
}
