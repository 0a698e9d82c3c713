//! The config file as written, and [`Settings`] as used: each value resolved once from flags, environment variables,
//! file and defaults.
//!
//! `keys` is the table that everything else is derived from; `config_file` holds the text of a file; `layers` applies the
//! variables to both files; `resolve` builds the settings. `resolve` only expands and checks what a run needs, so an error in
//! an unused part does not stop it; `check` covers the whole config.

pub mod bindings;
pub mod channels;
pub mod check;
pub mod config;
pub mod config_file;
mod config_hosts;
pub mod expand;
pub mod hooks;
pub mod key_node;
pub mod key_spelling;
pub mod key_type;
pub mod keys;
pub mod layers;
pub mod model_keys;
pub mod models;
pub mod own_keys;
mod resolve;
pub mod retention;
pub mod schema;
mod secret_form;
pub mod secrets;
pub mod servers;
mod system_file;
pub mod terminal;
mod typed_reader;
pub mod validation;

pub use config::Config;
pub use layers::{LayeredConfig, SettingOrigin};
pub use models::ModelSettings;
pub use system_file::Locks;

use anyhow::Result;
use key_spelling::is_same_provider;
use nanobot_base::error::{Exit, fail};
use nanobot_base::limits::{AccountLimits, BudgetLimits};
use nanobot_net::http::Network;
use nanobot_net::ip_ranges::IpRange;
use nanobot_os::secret::LazySecret;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The settings of one run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The primary model, followed by its fallbacks. Never empty.
    pub models: Vec<ModelSettings>,
    /// The config's metadata about models, by name.
    pub model_overrides: BTreeMap<String, models::ModelOverrides>,
    pub budget: BudgetLimits,
    /// The keys that users cannot set.
    pub locks: Locks,
    /// Keys of the config that no release knows.
    pub unknown_keys: Vec<String>,
    /// A warning, as a phrase, about a file of the config that other users can change; `None` if there is no such file.
    pub config_exposure: Option<String>,
    /// Provider settings by name in snake_case.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// The absolute path of the agent's own directory.
    pub workspace: PathBuf,
    pub directory: DefaultDirectory,
    pub session: DefaultSession,
    /// True if all chats of a workspace are one conversation.
    pub unified_session: bool,
    /// Maximum requests per turn. The default is enough for real work, and ends a loop before it becomes expensive.
    pub max_tool_iterations: u32,
    /// The time zone of the time that the model receives; `None` for the system's.
    pub timezone: Option<String>,
    pub prompt_files: PromptFileSettings,
    /// Maximum concurrent sub-agents; `None` leaves the limit to `--max-parallel`.
    pub max_subagents: Option<usize>,
    /// Number of earlier session messages that are sent again.
    pub memory_window: usize,
    /// Context window in tokens, input and output, of a model for which no other source gives a size.
    pub context_window: u32,
    pub compaction: CompactionSettings,
    pub skills: SkillSettings,
    /// The profile used if a run names none.
    pub profile: String,
    pub tools: ToolSettings,
    pub exec: ExecSettings,
    pub web: WebSettings,
    /// The hooks, or the mistake in them, which matters only to runs.
    pub hooks: Result<hooks::HookSettings, String>,
    /// The MCP servers.
    pub servers: Vec<servers::McpServer>,
    pub restrict_to_workspace: bool,
    /// Characters of a tool result that the session keeps. Four characters are about one token.
    pub max_tool_result_chars: usize,
    pub session_sync: SessionSync,
    /// The model or preset that gives new sessions their titles; `None` for no titles.
    pub title_model: Option<String>,
    pub job_starter: JobStarter,
    /// Maximum number of jobs that run at once.
    pub max_running_jobs: Option<u32>,
    /// The address that is asked when a run of a job starts and ends.
    pub job_ping: Option<String>,
    /// The place for what needs a person, as written; `None` for standard error.
    pub notify_target: Option<String>,
    /// The ages at which stored data is removed.
    pub retention: retention::Retention,
    pub memory: MemorySettings,
    pub timeouts: ProviderTimeouts,
    /// The proxy and the CA certificates.
    pub network: Network,
    /// The names of the enabled chat channels, in the order of lists.
    pub channels: Vec<&'static str>,
    /// The file to which each turn appends its events.
    pub event_log: Option<PathBuf>,
    /// The export of spans; `None` if there is none.
    pub telemetry: Option<TelemetrySettings>,
}

/// The export of the spans of each turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySettings {
    pub target: OtlpTarget,
    /// True if spans have the texts of messages, and the arguments and results of tools.
    pub has_content: bool,
}

/// The receiver of spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtlpTarget {
    /// Each turn appends a line of OTLP/JSON.
    File(PathBuf),
    /// The URL of traces of a collector that speaks OTLP over HTTP.
    Url(String),
}

/// Settings for the list of skills in the prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// Names of skills to leave out.
    pub disabled: Vec<String>,
    /// Tokens that the list may take in each request. The default holds about 30 skills in full, or 100 as one line each.
    pub budget_tokens: u64,
    /// Further folders of skills, as written.
    pub directories: Vec<String>,
}

/// Settings for compaction of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// Size of the request, in tokens, that triggers compaction; 0 for never, `None` for the model's default.
    pub threshold: Option<u64>,
    /// Notifies the model once when half of the threshold is used.
    pub is_warning_enabled: bool,
}

impl CompactionSettings {
    /// Default upper bound in tokens, even for models with larger windows: every request pays for all of it, and
    /// models lose track of distant content.
    const MAX_DEFAULT_THRESHOLD_TOKENS: u64 = 200_000;

    /// Returns the threshold for a context window of `context` tokens with up to `output` tokens of answer: four
    /// fifths of the remainder, because our token count is an estimate. `None` for never.
    pub fn threshold_for(&self, context: u32, output: u32) -> Option<u64> {
        let input = u64::from(context.saturating_sub(output).max(context / 2));
        let threshold =
            self.threshold.unwrap_or_else(|| Self::MAX_DEFAULT_THRESHOLD_TOKENS.min(input / 5 * 4));
        (threshold > 0).then_some(threshold)
    }
}

/// The default working directory, unless a flag sets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultDirectory {
    /// The current directory.
    Cwd,
    Workspace,
}

/// The session of a run that names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultSession {
    /// This session.
    Key(String),
    /// A session that only this run uses.
    Fresh,
    /// A session for each directory.
    Directory,
}

impl DefaultSession {
    /// Converts the value of `agents.defaults.session` or of its variable.
    pub fn parse(text: String) -> Self {
        match text.as_str() {
            "none" => Self::Fresh,
            "directory" => Self::Directory,
            _ => Self::Key(text),
        }
    }
}

/// Paths, as written, of files that replace built-in prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptFileSettings {
    pub system: Option<String>,
    pub compaction: Option<String>,
    pub consolidation: Option<String>,
}

/// Settings for consolidation of conversations into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    pub consolidate: ConsolidationMode,
    /// The model or preset used for consolidation; `None` for the turn's model.
    pub model: Option<String>,
    /// Tokens of MEMORY.md, which is sent with every request. The default is about three pages.
    pub budget_tokens: usize,
    pub embeddings: EmbeddingSettings,
}

/// The model that computes embeddings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingSettings {
    /// The name of the provider, or `auto`.
    pub provider: String,
    /// `None` if nothing is searched by meaning.
    pub model: Option<String>,
}

/// The moment and the process of a consolidation that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsolidationMode {
    /// Detached if there is a controlling terminal, inline otherwise.
    Auto,
    /// After the answer, in a separate process.
    Detached,
    /// After the answer, in the same process.
    Inline,
    /// Only on request.
    Manual,
}

/// The time at which a session is synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSync {
    /// At the end of each turn.
    Turn,
    /// Never; the kernel writes it back at its own pace.
    None,
}

/// The scheduler that starts the jobs of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStarter {
    /// The lines in the user's crontab.
    Crontab,
    /// A scheduler that the user has set up, such as systemd's timers; the crontab is not used.
    Other,
}

/// The config of a provider.
#[derive(Clone, Debug, Default)]
pub struct ProviderSettings {
    pub api_key: Option<LazySecret>,
    /// Path of a file that contains the API key.
    pub api_key_file: Option<String>,
    /// Command whose output is the API key.
    pub api_key_command: Option<String>,
    pub api_base: Option<String>,
    /// The wire format as written in the config.
    pub api_type: Option<String>,
    pub thinking_style: Option<String>,
    pub proxy: Option<LazySecret>,
    pub extra_headers: Vec<(String, LazySecret)>,
    pub extra_body: Map<String, Value>,
    pub extra_query: Vec<(String, String)>,
    /// The region of a cloud.
    pub region: Option<String>,
    /// The profile of a cloud's own tools that has the credentials.
    pub profile: Option<String>,
    pub limits: AccountLimits,
    /// The reason why the block cannot be used, such as an unset variable. It only matters once the provider is
    /// chosen.
    pub unusable_reason: Option<String>,
}

/// Settings that apply to all tools; paths and rules are stored as written.
#[derive(Clone, Debug, Default)]
pub struct ToolSettings {
    /// True if the tools that read and change files are available.
    pub files: bool,
    /// `always`, `ask` or `never` per tool.
    pub permissions: Vec<(String, String)>,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    /// The programs in `~/.nanobot/tools` that are tools, by name; `*` for all.
    pub programs: Vec<String>,
    /// Maximum tokens of the tools of MCP servers in each request.
    pub mcp_budget_tokens: u64,
    pub read: Vec<String>,
    pub write: Vec<String>,
    /// Allowed hosts.
    pub net: Vec<String>,
    /// True if commands must not run without a sandbox.
    pub needs_sandbox: bool,
    /// Regular expressions matched against commands.
    pub allow_patterns: Vec<String>,
    pub deny_patterns: Vec<String>,
    /// The maker of pictures; `None` if it is not enabled.
    pub images: Option<ImageGenerationSettings>,
}

/// The settings of the tool that makes pictures.
#[derive(Clone, Debug)]
pub struct ImageGenerationSettings {
    /// A command of the shell that reads a prompt, and prints a picture.
    pub command: Option<String>,
    /// The provider's name in snake_case.
    pub provider: String,
    pub model: String,
    /// Such as `16:9`.
    pub aspect_ratio: String,
    /// `1K`, `2K`, `4K`, or a width and a height in pixels.
    pub size: String,
    /// Maximum number of pictures of a turn.
    pub max_images: u32,
}

/// The settings of the tool that runs commands.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    pub enabled: bool,
    /// The default is short; a call that needs longer should request it explicitly.
    pub timeout: Duration,
    /// The memory of a command, in bytes; `None` for no limit.
    pub memory_bytes: Option<u64>,
    /// Directories separated by colons, or empty.
    pub path_append: String,
    /// Directories separated by colons, or empty.
    pub path_prepend: String,
    /// Environment variables passed to commands in addition to the usual ones.
    pub allowed_env_keys: Vec<String>,
}

/// The settings of the web tools.
#[derive(Clone, Debug)]
pub struct WebSettings {
    pub enabled: bool,
    pub proxy: Option<LazySecret>,
    pub user_agent: Option<String>,
    /// The search engine as written; `None` if not configured.
    pub search_engine: Option<String>,
    pub search_api_key: Option<LazySecret>,
    pub search_base_url: Option<String>,
    /// The user's own engine at Google.
    pub search_engine_id: Option<String>,
    /// The engines to query if that one fails, as written.
    pub search_fallback: Vec<String>,
    /// True if the provider's search may be used whatever the conversation contains.
    pub is_native_search_always_allowed: bool,
    /// Results per search. The default is enough to see whether there is anything relevant.
    pub max_results: usize,
    /// Timeout of a search.
    pub search_timeout: Duration,
    /// The reader service for pages: `jina`, or a base URL.
    pub reader: Option<String>,
    /// Non-public address ranges that may be reached.
    pub allowed_ranges: Vec<IpRange>,
    /// Hosts that the config names anywhere.
    pub config_hosts: BTreeSet<String>,
}

/// Timeouts for a provider. Zero means no timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// The default is short, because a reachable host answers at once.
    pub connect: Duration,
    /// Also for the first data of a stream. The default is long, because a reasoning model may be silent for minutes.
    pub first_byte: Duration,
    /// A stream that has started and is then silent for this time is dead, even if the server sends comments.
    pub stream_idle: Duration,
    /// For one complete response, however slowly its data arrives.
    pub total: Duration,
}

/// Values from command-line flags; they take precedence over every other source.
#[derive(Clone, Debug, Default)]
pub struct FlagOverrides {
    pub model: Option<String>,
    /// The fallback models, in place of those of the config.
    pub fallbacks: Option<Vec<String>>,
    pub max_tokens: Option<u32>,
    pub temperature: Option<f64>,
    pub reasoning_effort: Option<String>,
    pub verbosity: Option<String>,
    /// Fields of the request's body, in addition to those of the config.
    pub body_fields: Map<String, Value>,
    pub max_iterations: Option<u32>,
    pub workspace: Option<PathBuf>,
}

impl Settings {
    /// The default of `context_window`. The Python program writes its defaults into every config, so this value is treated as not
    /// configured.
    pub const DEFAULT_CONTEXT_WINDOW: u32 = 200_000;

    /// Returns the config of the provider `name`, in any spelling.
    ///
    /// # Errors
    /// Status 78 if that block cannot be used.
    pub fn provider(&self, name: &str) -> Result<Option<&ProviderSettings>> {
        let mut providers = self.providers.iter();
        match providers.find(|(other, _)| is_same_provider(other, name)) {
            Some((_, ProviderSettings { unusable_reason: Some(reason), .. })) => {
                Err(fail(Exit::Config, reason.clone()))
            }
            provider => Ok(provider.map(|(_, settings)| settings)),
        }
    }
}
