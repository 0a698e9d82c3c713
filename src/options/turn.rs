//! The options of a turn, in groups: a function takes the group that it needs.

use super::grants::Grants;
use super::model::ModelOptions;
use super::value::{path, path_or_other, prompt_file, time, typed_text};
use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use nanobot_agent::report::CodeSelection;
use nanobot_agent::turn::agent::UntilCommand;
use nanobot_base::message::user_text::UserText;
use nanobot_config::settings::servers::McpServer;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The default of `--wait`.
pub const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(600);
/// The default of `--max-parallel`.
const DEFAULT_MAX_PARALLEL: u32 = 8;
/// The default of `--max-rounds`.
pub(crate) const DEFAULT_MAX_ROUNDS: u32 = 10;

/// The options of a turn, in the order of the help
// The defaults are those of a turn without flags, except that it does not wait for a locked session.
#[derive(Args, Clone, Debug, Default)]
pub struct TurnOptions {
    #[command(flatten)]
    pub input: TurnInput,
    #[command(flatten)]
    pub session: SessionChoice,
    #[command(flatten)]
    pub output: OutputOptions,
    #[command(flatten)]
    pub prompt: PromptOptions,
    #[command(flatten)]
    pub model: ModelOptions,
    /// Answer as JSON that matches this schema
    ///
    /// A file, a JSON schema, or a list of fields such as `name, age int, tags str[]`.
    #[arg(long, aliases = ["json-schema", "output-schema"], value_name = "SCHEMA", help_heading = "Output", conflicts_with = "extract")]
    pub schema: Option<String>,
    #[command(flatten)]
    pub grants: Grants,
    #[command(flatten)]
    pub server_files: ServerFiles,
    /// Leave the directory as it is: print the changes as a patch
    ///
    /// File tools and commands work on a private copy of the directory and its repository, without what git ignores. What MCP servers do
    /// and changes of the agent's notes are not part of it, and last; it can make no jobs. Standard
    /// output is a patch for `nanobot apply` or `git apply`, with `--json` the field `patch`; the answer is on standard error. Without
    /// changes, nothing is printed. At most 50,000 files and 512 MiB are copied, to `$TMPDIR` or /tmp.
    #[arg(long, help_heading = "Permissions", hide_short_help = true,
          conflicts_with_all = ["write", "worktree", "schema", "extract", "resume"])]
    pub propose: bool,
    /// Work in a git worktree, on a branch of that name
    ///
    /// In ~/.nanobot/worktrees, beside your own files. The branch begins at the current commit, or is continued.
    #[arg(long, value_name = "BRANCH", help_heading = "Permissions", hide_short_help = true)]
    pub worktree: Option<String>,
    /// Remove the worktree after the run
    ///
    /// Its branch stays if it has commits. A worktree with changes that are not committed stays too.
    #[arg(long, requires = "worktree", help_heading = "Permissions", hide_short_help = true)]
    pub remove_worktree: bool,
    #[command(flatten)]
    pub limits: TurnLimits,
    #[command(flatten)]
    pub until: UntilOptions,
    #[command(flatten)]
    pub stdin: StdinOptions,
    #[command(flatten)]
    pub recording: RecordingOptions,
    /// MCP servers in addition to those of the config, which take precedence.
    #[arg(skip)]
    pub servers: Vec<McpServer>,
}

impl TurnOptions {
    /// Makes the turn a bare one: it stores nothing, and has no tools but those that are named.
    pub(crate) fn make_bare(&mut self) {
        self.prompt.bare = true;
        self.session.ephemeral = true;
        self.grants.no_tools |= self.grants.tools.is_none();
    }
}

/// Message and attachments
#[derive(Args, Clone, Debug, Default)]
pub struct TurnInput {
    /// The message; `-` reads it from standard input
    ///
    /// A message that is only `/new`, `/compact`, `/help` or `/stop` is a command, and one that begins with `/NAME` of a skill or with
    /// `/SERVER:NAME` of a prompt of an MCP server uses that. The model gets any other text that begins with `/`; the other commands of `/help` are those of the REPL.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true, value_parser = typed_text)]
    pub message: Option<UserText>,
    /// Read the message from FILE
    ///
    /// With `-m`, the text of FILE follows that message. Piped text follows both, in its block.
    #[arg(long, value_name = "FILE", value_parser = prompt_file, hide_short_help = true)]
    pub prompt_file: Option<PathBuf>,
    /// Attach a text, image, PDF, directory or web page
    ///
    /// A text file, an image (PNG, JPEG, GIF, WebP), a recording (MP3, WAV, OGG, M4A, FLAC), a PDF, an office document, a directory, a web page (`https://…`), a resource of an
    /// MCP server (`mcp:SERVER:URI`), or standard input (`-`); may be repeated.
    #[arg(short, long, aliases = ["attachment", "file", "image"], value_name = "FILE|URL", action = ArgAction::Append, value_parser = path_or_other())]
    pub attach: Vec<OsString>,
}

impl TurnInput {
    /// Sets a message that the user typed.
    pub(crate) fn set_typed_message(&mut self, text: &str) {
        self.message = Some(UserText::typed(text));
    }
}

/// Use of standard input
#[derive(Args, Clone, Debug, Default)]
pub struct StdinOptions {
    /// Read standard input even if it is a silent socket or a device
    #[arg(long, overrides_with = "no_stdin", help_heading = "Input", hide_short_help = true)]
    pub stdin: bool,
    /// Do not read standard input
    #[arg(long, overrides_with = "stdin", help_heading = "Input", hide_short_help = true)]
    pub no_stdin: bool,
    /// Fail with status 66 if standard input is empty or not read
    #[arg(long, conflicts_with = "no_stdin", help_heading = "Input", hide_short_help = true)]
    pub require_input: bool,
}

/// Session of a turn
#[derive(Args, Clone, Debug, Default)]
pub struct SessionChoice {
    /// Session to continue
    ///
    /// Default: `cli:direct`, or a new one for piped input.
    #[arg(
        id = "session",
        short = 's',
        long = "session",
        value_name = "KEY",
        help_heading = "Session",
        overrides_with = "session"
    )]
    pub key: Option<String>,
    /// Start the session over
    ///
    /// Earlier messages are kept but not sent.
    #[arg(long, help_heading = "Session", conflicts_with_all = ["resume", "fork"])]
    pub new: bool,
    /// Continue an interrupted turn, without a message
    #[arg(long, help_heading = "Session", conflicts_with = "fork")]
    pub resume: bool,
    /// Continue the session that was used last
    ///
    /// Of those that a person began: not of jobs, chats and filters.
    #[arg(id = "continue", long = "continue", help_heading = "Session", hide_short_help = true,
          conflicts_with_all = ["session", "fork", "ephemeral"])]
    pub last: bool,
    /// Copy session KEY first, and continue the copy
    #[arg(long, value_name = "KEY", help_heading = "Session", hide_short_help = true)]
    pub fork: Option<String>,
    /// Give the session this title
    ///
    /// Lists show it in place of the first words; `nanobot session title` changes it.
    #[arg(long, value_name = "TEXT", help_heading = "Session", hide_short_help = true,
          conflicts_with_all = ["bare", "ephemeral"])]
    pub title: Option<String>,
    /// Do not save this turn
    #[arg(long, help_heading = "Session", conflicts_with = "resume", hide_short_help = true)]
    pub ephemeral: bool,
    /// Seconds to wait for a session that another run is using
    #[arg(
        id = "wait",
        long = "wait",
        value_name = "SECONDS",
        default_value = "600",
        value_parser = clap::value_parser!(u64).map(Duration::from_secs),
        help_heading = "Session",
        hide_short_help = true, overrides_with = "wait"
    )]
    pub lock_timeout: Duration,
}

/// System prompt of a turn
#[derive(Args, Clone, Debug, Default)]
pub struct PromptOptions {
    /// Send nothing private: a clean filter
    ///
    /// No memory, notes, skills, project files, MCP servers of the config, nor hooks that are not strict; no time, user, host or path;
    /// a fresh session that is not stored; no tools but those of `--tools`. Rules, limits and budgets hold as without it.
    #[arg(long, help_heading = "Prompt", hide_short_help = true,
          conflicts_with_all = ["session", "continue", "new", "resume", "fork"])]
    pub bare: bool,
    /// Use this text in place of the system prompt's identity and working rules
    ///
    /// `@FILE` reads it from a file. The permissions of the run follow it.
    #[arg(
        long,
        alias = "system-prompt",
        value_name = "TEXT|@FILE",
        help_heading = "Prompt",
        hide_short_help = true
    )]
    pub system: Option<String>,
    /// Add this text at the end of the system prompt
    ///
    /// `@FILE` reads it from a file.
    #[arg(
        long,
        alias = "append-system-prompt",
        value_name = "TEXT|@FILE",
        help_heading = "Prompt",
        hide_short_help = true
    )]
    pub append_system: Option<String>,
    /// Load a skill at the start, as if the model had read it; may be repeated
    ///
    /// The name of a skill (`nanobot skill list`), or with a slash a directory that has a SKILL.md. Text of such a directory counts as
    /// that of a project's file, unless `nanobot trust` has pinned its SKILL.md.
    #[arg(
        id = "skill",
        long = "skill",
        value_name = "NAME|DIR",
        help_heading = "Prompt",
        action = ArgAction::Append,
        hide_short_help = true
    )]
    pub skills: Vec<String>,
}

/// Files with MCP servers
#[derive(Args, Clone, Debug, Default)]
pub struct ServerFiles {
    /// Use the MCP servers of FILE too; may be repeated
    ///
    /// An `.mcp.json`, or a file with `tools.mcpServers` as in the config. They are servers as those of the config, and take the place of
    /// those that have their names; with `--bare` they are the only ones. `nanobot trust FILE` pins the file first.
    #[arg(
        id = "mcp",
        long = "mcp",
        alias = "mcp-config",
        value_name = "FILE",
        help_heading = "Permissions",
        action = ArgAction::Append,
        hide_short_help = true,
        value_parser = path()
    )]
    pub paths: Vec<PathBuf>,
}

/// Output of a turn
#[derive(Args, Clone, Debug, Default)]
pub struct OutputOptions {
    /// Output format: the answer, one JSON object, or one JSON event per line
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output",
        hide_short_help = true
    )]
    pub output_format: OutputFormat,
    /// Print one JSON object: `--output-format json`
    #[arg(long, help_heading = "Output", conflicts_with = "output_format")]
    pub json: bool,
    /// Print only the first code block of the answer, or the first one of LANG
    ///
    /// Byte for byte. If there is none, the answer is printed on standard error, and the exit status is 65.
    #[arg(short = 'x', long, value_name = "LANG", num_args = 0..=1, require_equals = true, default_missing_value = "",
          help_heading = "Output", hide_short_help = true)]
    pub extract: Option<String>,
    /// Print progress on standard error
    ///
    /// Even if it is not a terminal.
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Render markdown on a terminal (default)
    #[arg(long, overrides_with = "no_markdown", help_heading = "Output", hide_short_help = true)]
    pub markdown: bool,
    /// Print raw markdown on a terminal too
    #[arg(long, overrides_with = "markdown", help_heading = "Output", hide_short_help = true)]
    pub no_markdown: bool,
    /// Same as `--verbose`
    #[arg(long, overrides_with = "no_logs", hide = true)]
    pub logs: bool,
    /// Undo `--logs`
    #[arg(long, overrides_with = "logs", hide = true)]
    pub no_logs: bool,
}

impl OutputOptions {
    /// The code that is printed in place of the answer.
    pub(crate) fn code_selection(&self) -> Option<CodeSelection> {
        let language = self.extract.clone()?;
        Some(CodeSelection { language: Some(language).filter(|language| !language.is_empty()) })
    }

    /// True if progress is printed even if standard error is not a terminal.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose || self.logs
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
    #[value(aliases = ["jsonl", "ndjson"])]
    StreamJson,
}

/// Options of the turns that a program starts, of which it gets the answers
#[derive(Args, Clone, Debug, Default)]
pub struct ServedTurnOptions {
    /// Print progress to standard error
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub model: ModelOptions,
    #[command(flatten)]
    pub grants: Grants,
    /// Connect to loopback addresses only
    #[arg(long, hide_short_help = true)]
    pub offline: bool,
}

impl ServedTurnOptions {
    /// The options of each of these turns.
    pub(crate) fn to_turn_options(&self) -> TurnOptions {
        TurnOptions {
            grants: self.grants.clone(),
            output: OutputOptions { verbose: self.verbose, ..OutputOptions::default() },
            model: self.model.clone(),
            limits: TurnLimits { offline: self.offline, ..TurnLimits::default() },
            ..TurnOptions::default()
        }
    }
}

/// Limits of a turn, besides those of its cost
#[derive(Args, Clone, Debug)]
pub struct TurnLimits {
    /// Stop after N tokens in this turn, input and output together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Model",
          hide_short_help = true, overrides_with = "max_total_tokens"
    )]
    pub max_total_tokens: Option<u64>,
    /// Maximum number of read-only tools, and of sub-agents, that run in parallel
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_PARALLEL, value_parser = clap::value_parser!(u32).range(1..=64),
          help_heading = "Permissions", hide_short_help = true, overrides_with = "max_parallel"
    )]
    pub max_parallel: u32,
    /// Connect to loopback addresses only
    #[arg(long, help_heading = "Permissions", hide_short_help = true)]
    pub offline: bool,
    /// Exit with status 5 if a tool call was denied
    ///
    /// Or if a command failed because the sandbox refused it a write or the network.
    #[arg(long, help_heading = "Permissions", hide_short_help = true)]
    pub strict: bool,
    /// End the turn after TIME
    ///
    /// Seconds, or a duration such as `90s`, `5m`, `1h30m`. Ends the processes it started as well.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Permissions", overrides_with = "timeout")]
    pub timeout: Option<Duration>,
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            max_total_tokens: None,
            max_parallel: DEFAULT_MAX_PARALLEL,
            offline: false,
            strict: false,
            timeout: None,
        }
    }
}

/// Command that decides when the task of a turn is done
#[derive(Args, Clone, Debug)]
pub struct UntilOptions {
    /// Continue until this command succeeds
    ///
    /// It runs after each answer, as a command of the run: in the same directory and sandbox, with the same permissions and time limit.
    /// While it fails, its output is the next message. The last answer is printed. If it succeeds before the first request, or
    /// begins with a program that does not exist, nothing is sent.
    #[arg(id = "until", long = "until", value_name = "CMD", value_parser = NonEmptyStringValueParser::new(),
          help_heading = "Rounds")]
    pub command: Option<String>,
    /// Stop after N answers with status 3, if the command of `--until` still fails
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_ROUNDS, value_parser = clap::value_parser!(u32).range(1..),
          help_heading = "Rounds", requires = "until", hide_short_help = true)]
    pub max_rounds: u32,
    /// Send the message even if the command of `--until` succeeds already, or its program does not exist
    #[arg(long, help_heading = "Rounds", requires = "until", hide_short_help = true)]
    pub force: bool,
}

impl Default for UntilOptions {
    fn default() -> Self {
        Self { command: None, max_rounds: DEFAULT_MAX_ROUNDS, force: false }
    }
}

impl UntilOptions {
    /// The command with its limit.
    pub(crate) fn to_command(&self) -> Option<UntilCommand> {
        let command = self.command.clone()?;
        Some(UntilCommand { command, max_rounds: self.max_rounds, is_forced: self.force })
    }
}

/// Exchanges that are shown, recorded or replayed
#[derive(Args, Clone, Debug, Default)]
pub struct RecordingOptions {
    /// Print the first request instead of sending it
    ///
    /// As JSON, as a curl command, or as a table of its parts and their tokens.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "json",
          help_heading = "Record and replay", conflicts_with_all = ["record", "replay", "worktree", "propose"], hide_short_help = true)]
    pub dry_run: Option<DryRunForm>,
    /// Record every exchange with the model in FILE
    #[arg(long, value_name = "FILE", help_heading = "Record and replay", hide_short_help = true, value_parser = path())]
    pub record: Option<PathBuf>,
    /// Replay answers from FILE; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Record and replay", value_parser = path())]
    pub replay: Option<PathBuf>,
    /// Fail with status 65 if a request differs from the recorded one
    ///
    /// The error shows the difference. The paths of the workspace, the working directory and the home directory do not
    /// count.
    #[arg(long, requires = "replay", help_heading = "Record and replay", hide_short_help = true)]
    pub replay_strict: bool,
}

impl RecordingOptions {
    /// True if the turn stores nothing and costs nothing.
    pub(crate) fn is_dry_run_or_replay(&self) -> bool {
        self.replay.is_some() || self.dry_run.is_some()
    }
}

/// The form of a request that is shown: its body, a curl command, or a table of its parts, for a person or as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRunForm {
    Json,
    Curl,
    Table,
    TableJson,
}
