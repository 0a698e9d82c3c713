//! A server that is not available to a run: the reason, and the notice or the error that it becomes.

use super::offer::Failed;
use super::words;
use crate::error::{Exit, fail_hint};
use crate::settings::servers::Server;
use anyhow::Result;

/// The reason why a server is missing.
pub(super) struct MissingServer {
    words: String,
    exit: Exit,
    hint: &'static str,
}

impl MissingServer {
    pub(super) fn unusable(words: &str) -> Self {
        Self {
            words: format!("invalid config: {words}"),
            exit: Exit::Config,
            hint: "show",
        }
    }

    pub(super) fn now(words: String, failed: &Failed) -> Self {
        let exit = match failed {
            Failed::Unusable(_) | Failed::Login(_) => Exit::Config,
            _ => Exit::Unavailable,
        };
        Self {
            words,
            exit,
            hint: "test",
        }
    }

    pub(super) fn seen(words: &str, ago: i64) -> Self {
        let ago = match ago {
            0..90 => format!("{ago} s"),
            _ => format!("{} min", (ago + 30) / 60),
        };
        Self {
            words: format!("{words} (tried {ago} ago)"),
            exit: Exit::Unavailable,
            hint: "test",
        }
    }

    pub(super) fn unknown() -> Self {
        Self {
            words: "its tools are not known yet".into(),
            exit: Exit::Unavailable,
            hint: "test",
        }
    }

    /// Reports the missing server as a notice.
    ///
    /// # Errors
    /// The server is required.
    pub(super) fn tell(self, server: &Server, notice: &mut dyn FnMut(&str)) -> Result<()> {
        let Self { words, exit, hint } = self;
        let name = words::line(&server.name, 80);
        let hint = format!("nanobot mcp {hint} {name}");
        if server.required {
            let cause = format!("MCP server `{name}` is required but not available: {words}");
            return Err(fail_hint(exit, cause, hint));
        }
        notice(&format!(
            "MCP server `{name}` is not available: {words}; `{hint}`"
        ));
        Ok(())
    }
}
