//! The options of one turn, as plain data. Commands fill them from flags; the REPL and jobs set them directly.

use crate::message::user_text::UserText;
use crate::options::grants::Grants;
use crate::settings::FlagOverrides;
use crate::settings::servers::McpServer;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The options of a turn. The defaults are those of a turn without flags, except that it does not wait for a locked
/// session.
#[derive(Clone, Debug)]
pub struct TurnOptions {
    /// The user's message. `-` reads it from standard input.
    pub message: Option<UserText>,
    /// A file with the message, or with the rest of it.
    pub prompt_file: Option<PathBuf>,
    /// Files and URLs to attach. `-` is standard input.
    pub attach: Vec<OsString>,
    /// The session's key. `None` means a fresh session for piped input, and `cli:direct` otherwise.
    pub session: Option<String>,
    /// Reset the session before the turn.
    pub new: bool,
    /// Resume an interrupted turn.
    pub resume: bool,
    /// Copy this session first, and run in the copy.
    pub fork: Option<String>,
    /// Store nothing.
    pub ephemeral: bool,
    /// Timeout for the lock of the session.
    pub lock_timeout: Duration,
    /// Report progress on standard error, even if it is not a terminal.
    pub verbose: bool,
    /// Print the answer without rendering its Markdown.
    pub no_markdown: bool,
    pub model: Option<String>,
    /// Limit of one reply, in tokens.
    pub max_tokens: Option<u32>,
    /// Sampling temperature, 0 to 2.
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<String>,
    /// Maximum number of requests to the model.
    pub max_iterations: Option<u32>,
    /// Limit in US dollars.
    pub max_cost: Option<f64>,
    /// Limit in tokens, input and output together.
    pub max_total_tokens: Option<u64>,
    /// A JSON schema for the answer: a file or the schema itself.
    pub schema: Option<String>,
    /// Do not stream replies.
    pub no_stream: bool,
    /// Send known keys that the message contains.
    pub send_keys: bool,
    pub grants: Grants,
    /// MCP servers in addition to those of the config, which take precedence.
    pub servers: Vec<McpServer>,
    /// Maximum number of tools, and of sub-agents, that run concurrently.
    pub max_parallel: usize,
    /// Connect to loopback addresses only.
    pub offline: bool,
    /// Fail when a tool call was denied.
    pub strict: bool,
    /// Time limit of the turn and everything that it started.
    pub timeout: Option<Duration>,
    /// Read standard input even if it is a silent socket or a device.
    pub stdin: bool,
    /// Leave standard input unread.
    pub no_stdin: bool,
    /// Fail if standard input is empty or not read.
    pub require_input: bool,
    /// Show the first request instead of sending it.
    pub dry_run: Option<DryRunForm>,
    /// Record every exchange with the model in this file.
    pub record: Option<PathBuf>,
    /// Replay this recording instead of asking a model.
    pub replay: Option<PathBuf>,
    /// A request that differs from the recorded one is an error.
    pub replay_strict: bool,
}

/// The output form of a dry run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRunForm {
    /// The request body, as JSON.
    Json,
    /// A curl command.
    Curl,
    /// The composition of the request, as a table.
    Table,
    /// The composition of the request, as JSON.
    TableJson,
}

impl TurnOptions {
    /// Sets a message that the user typed.
    pub(crate) fn set_typed_message(&mut self, text: &str) {
        self.message = Some(UserText::typed(text));
    }

    /// The flags that take precedence over the settings of the config.
    pub(crate) fn overrides(&self) -> FlagOverrides {
        FlagOverrides {
            model: self.model.clone(),
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            reasoning_effort: self.reasoning_effort.clone(),
            max_iterations: self.max_iterations,
            workspace: None,
        }
    }
}

impl Default for TurnOptions {
    fn default() -> Self {
        Self {
            message: None,
            prompt_file: None,
            attach: Vec::new(),
            session: None,
            new: false,
            resume: false,
            fork: None,
            ephemeral: false,
            lock_timeout: Duration::ZERO,
            verbose: false,
            no_markdown: false,
            model: None,
            max_tokens: None,
            temperature: None,
            reasoning_effort: None,
            max_iterations: None,
            max_cost: None,
            max_total_tokens: None,
            schema: None,
            no_stream: false,
            send_keys: false,
            grants: Grants::default(),
            servers: Vec::new(),
            max_parallel: 8,
            offline: false,
            strict: false,
            timeout: None,
            stdin: false,
            no_stdin: false,
            require_input: false,
            dry_run: None,
            record: None,
            replay: None,
            replay_strict: false,
        }
    }
}

impl TurnOptions {
    /// True if the turn stores nothing and costs nothing: a dry run or a replay.
    pub(crate) fn is_dry_run_or_replay(&self) -> bool {
        self.replay.is_some() || self.dry_run.is_some()
    }
}
