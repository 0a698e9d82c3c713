//! The config file as written, and [`Settings`] as used: every value resolved once, from flag, variable, file and default.
//!
//! `keys` is the table that all else is read from; `file` keeps the text; `layers` lays the variables over it; `resolve` makes
//! the settings of it. Only what a run needs is expanded and checked there, so a mistake in a part that is not used stops nobody; `check` looks
//! at everything.

pub mod check;
pub mod expand;
pub mod file;
mod hosts;
pub mod keys;
pub mod kind;
pub mod layers;
pub mod models;
mod resolve;
pub mod rules;
pub mod schema;
pub mod secrets;
pub mod servers;
mod values;

pub use file::Config;
pub use layers::{Layers, Origin};
pub use models::Asked;

use crate::error::{Exit, fail};
use crate::sys::address::Range;
use crate::sys::env::{Env, FIRST_BYTE, STREAM_IDLE};
use crate::sys::secret::Secret;
use anyhow::Result;
use keys::snake_case;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model to ask, and after it those that stand in for it. Never empty.
    pub asked: Vec<Asked>,
    pub budget: Budget,
    /// What is configured about providers, by name in snake_case.
    pub providers: BTreeMap<String, Block>,
    /// The agent's own directory, absolute.
    pub workspace: PathBuf,
    pub directory: Directory,
    /// Requests in one turn: 40 are enough for real work and end a loop before it is expensive.
    pub max_tool_iterations: u32,
    /// Sub-agents that run at the same time; `None` for as many as `--max-parallel` lets.
    pub max_subagents: Option<usize>,
    /// Messages of the session that are sent again.
    pub memory_window: usize,
    /// Tokens that a model takes in and gives out, where nobody knows better.
    pub context_window: u32,
    pub compaction: Compaction,
    pub skills: Skills,
    /// The profile of a run that names none.
    pub profile: String,
    pub tools: Tools,
    pub exec: Exec,
    pub web: Web,
    /// The MCP servers.
    pub servers: Vec<servers::Server>,
    pub restrict_to_workspace: bool,
    /// Characters of a tool's result that the session keeps: 16,000 are some 4,000 tokens.
    pub max_tool_result_chars: usize,
    pub session_sync: SessionSync,
    pub memory: Memory,
    pub timeouts: Timeouts,
}

/// What the model is told of skills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    /// Names that are left out.
    pub disabled: Vec<String>,
    /// Tokens that their list may take of each request: 2,000 hold some 30 skills in full, and each of 100 in a line.
    pub budget: u64,
}

/// What may be spent, in US dollars. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Of a day, as the system's time zone has it.
    pub daily: Option<f64>,
    pub monthly: Option<f64>,
    pub per_session: Option<f64>,
}

/// When a conversation is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Tokens of what is sent at which it is; 0 for never, `None` for what the model suggests.
    pub threshold: Option<u64>,
    /// The model is told once that half of them are used.
    pub warns: bool,
}

impl Compaction {
    /// The most that is sent unless the config says otherwise, however much the model takes: all of it is paid for with
    /// each request, and models lose sight of what lies far back.
    const MOST: u64 = 200_000;

    /// The threshold for a model that takes `context` tokens, of which its answer may have `output`: four fifths of the
    /// rest, since our count of tokens is an estimate. `None` for never.
    pub fn at(&self, context: u32, output: u32) -> Option<u64> {
        let room = u64::from(context.saturating_sub(output).max(context / 2));
        let threshold = self
            .threshold
            .unwrap_or_else(|| Self::MOST.min(room / 5 * 4));
        (threshold > 0).then_some(threshold)
    }
}

/// Where the work is, unless a flag says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// The current directory.
    Cwd,
    Workspace,
}

/// How conversations become memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    pub consolidate: Consolidate,
    /// The model or preset that is asked; `None` for the one of the turn.
    pub model: Option<String>,
    /// Tokens of MEMORY.md, which is sent with every request: 4000 are some three pages.
    pub budget: usize,
}

/// When a conversation that is due becomes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consolidate {
    /// Detached with a controlling terminal, else inline.
    Auto,
    /// After the answer, in a process of its own.
    Detached,
    /// After the answer, with standard output closed.
    Inline,
    /// When it is told to.
    Manual,
}

/// When a session is forced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSync {
    /// At the end of each turn.
    Turn,
    /// Never; the kernel writes it when it likes.
    None,
}

/// What the config says about a provider.
#[derive(Clone, Debug, Default)]
pub struct Block {
    pub api_key: Option<Secret>,
    /// A file that holds the key.
    pub api_key_file: Option<String>,
    /// A command whose output is the key.
    pub api_key_command: Option<String>,
    pub api_base: Option<String>,
    /// The wire format, as written.
    pub api_type: Option<String>,
    pub thinking_style: Option<String>,
    pub proxy: Option<Secret>,
    pub extra_headers: Vec<(String, Secret)>,
    pub extra_body: Map<String, Value>,
    pub extra_query: Vec<(String, String)>,
    /// Why the block cannot be used, such as a variable that is not set. Of no matter until the provider is chosen.
    pub unusable: Option<String>,
}

/// What the config says of all tools; places and rules as written.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The tools that read and change files are offered.
    pub files: bool,
    /// `always`, `ask` or `never`, by tool.
    pub permissions: Vec<(String, String)>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// Hosts.
    pub net: Vec<String>,
    /// Nothing runs without a sandbox.
    pub needs_sandbox: bool,
    /// Expressions about commands.
    pub allow_patterns: Vec<String>,
    pub deny_patterns: Vec<String>,
}

/// The settings of the tool that runs commands.
#[derive(Clone, Debug)]
pub struct Exec {
    pub enabled: bool,
    /// 60 s: what takes longer should be said so.
    pub timeout: Duration,
    /// Directories joined by colons, or empty.
    pub path_append: String,
    /// Directories joined by colons, or empty.
    pub path_prepend: String,
    /// Variables that commands see besides the usual ones.
    pub allowed_env_keys: Vec<String>,
}

/// The settings of the web tools.
#[derive(Clone, Debug)]
pub struct Web {
    pub enabled: bool,
    pub proxy: Option<Secret>,
    pub user_agent: Option<String>,
    /// Who searches, as written; `None` where nobody says.
    pub engine: Option<String>,
    pub key: Option<Secret>,
    pub base: Option<String>,
    /// Results of a search: 5 say whether there is anything.
    pub results: usize,
    /// 30 s for a search.
    pub timeout: Duration,
    /// Addresses that may be reached though they are not public.
    pub spared: Vec<Range>,
    /// Those that the config names anywhere.
    pub hosts: BTreeSet<String>,
}

/// How long to wait for a provider. A zero waits without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// 10 s: a host that is there answers at once.
    pub connect: Duration,
    /// 300 s: a model that thinks may be silent for minutes.
    pub first_byte: Duration,
    /// 90 s: once it has begun, a stream that falls silent is dead.
    pub stream_idle: Duration,
    /// 1800 s for one answer, all in all.
    pub total: Duration,
}

/// What the command line says; it is stronger than anything else.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub model: Option<String>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<String>,
    pub max_iterations: Option<u32>,
    pub workspace: Option<PathBuf>,
}

impl Settings {
    /// What is configured about the provider `name`, in any spelling. Fails with 78 where that cannot be used.
    pub fn block(&self, name: &str) -> Result<Option<&Block>> {
        match self.providers.get(&snake_case(name)) {
            Some(Block {
                unusable: Some(cause),
                ..
            }) => Err(fail(Exit::Config, cause.clone())),
            block => Ok(block),
        }
    }
}

impl Timeouts {
    /// The limits, two of which can be set by variable.
    pub fn from_env(env: &Env) -> Result<Self> {
        Ok(Self {
            connect: Duration::from_secs(10),
            first_byte: env.seconds(FIRST_BYTE, 300, 86_400)?,
            stream_idle: env.seconds(STREAM_IDLE, 90, 3600)?,
            total: Duration::from_secs(1800),
        })
    }
}
