//! A conversation with an editor, and the permissions that its user has granted in it.

use crate::ops::agent_turn::CHAT_LOCK_TIMEOUT;
use crate::ops::context::Context;
use crate::options::turn::TurnOptions;
use nanobot_config::settings::servers::McpServer;
use nanobot_os::cancel::CancelToken;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// A conversation with an editor.
pub(super) struct EditorSession {
    /// The context of its turns, with MCP servers of its own. They end with the session.
    pub(super) ctx: Context,
    /// The key of the session, which is also its id for the editor.
    pub(super) key: String,
    /// The working directory.
    pub(super) directory: PathBuf,
    /// The MCP servers that the editor adds to those of the config.
    servers: Vec<McpServer>,
    state: Mutex<SessionState>,
}

/// The part of a session that changes.
pub(super) struct SessionState {
    /// The profile of its turns.
    pub(super) profile: String,
    /// Cancels the turn under way.
    pub(super) running: Option<Arc<CancelToken>>,
    /// Pairs of a tool and a missing permission that the user granted for the session.
    pub(super) granted: BTreeSet<(String, String)>,
}

impl EditorSession {
    pub(super) fn new(
        ctx: Context,
        key: String,
        directory: PathBuf,
        servers: Vec<McpServer>,
        profile: String,
    ) -> Self {
        Self {
            ctx,
            key,
            directory,
            servers,
            state: Mutex::new(SessionState { profile, running: None, granted: BTreeSet::new() }),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock()
    }

    /// The options of a turn of the session: the `options` of the command line, with the values of the session.
    pub(super) fn turn_options(&self, options: &TurnOptions) -> TurnOptions {
        let mut options = options.clone();
        options.session.key = Some(self.key.clone());
        // Another program may use the session, and a turn that was cancelled needs a moment to end.
        options.session.lock_timeout = CHAT_LOCK_TIMEOUT;
        options.servers.clone_from(&self.servers);
        options.grants.directory = Some(self.directory.clone());
        options.grants.profile = Some(self.state().profile.clone());
        options
    }

    /// Cancels the turn under way, if there is one.
    pub(super) fn cancel(&self) {
        if let Some(token) = &self.state().running {
            token.cancel();
        }
    }
}
