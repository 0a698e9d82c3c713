//! The client of the server.

use crate::ops::context::Context;
use crate::ops::rpc_connection::RpcConnection;
use crate::ops::turn_setup::TurnSetup;
use crate::options::turn::TurnOptions;
use nanobot_os::cancel::CancelToken;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The client, and the state of its connection.
pub(super) struct ServedClient<'a> {
    pub(super) ctx: &'a Context,
    pub(super) options: &'a TurnOptions,
    pub(super) connection: RpcConnection,
    /// True once the client has introduced itself.
    pub(super) is_initialized: AtomicBool,
    pub(super) setup: TurnSetup,
    /// The names of the tools that are offered.
    pub(super) tools: Vec<String>,
    /// Calls that only read share this lock; a call that makes changes holds it alone.
    pub(super) writing: RwLock<()>,
    /// The tokens of running calls, by the id of their request as JSON.
    pub(super) running: Mutex<HashMap<String, Arc<CancelToken>>>,
}
