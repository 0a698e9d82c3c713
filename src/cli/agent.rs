//! `nanobot agent`: one turn.

use super::grants::Grants;
use super::model_flags::ModelFlags;
use super::value::time;
use clap::{ArgAction, Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Run one turn and print the answer
///
/// The message is `-m`, or what is piped in, or both: then the piped text follows the message in a marked block.
/// Standard output carries the answer and nothing else.
#[derive(Args, Clone, Debug, Default)]
pub struct Agent {
    /// The message; `-` reads it from standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: Option<String>,
    /// Attach a text, picture, PDF, directory or page
    ///
    /// A text, an image (PNG, JPEG, GIF, WebP), a PDF, a directory, a page (`https://…`), or standard input (`-`); may be
    /// given again.
    #[arg(short, long, value_name = "FILE|URL", action = ArgAction::Append)]
    pub attach: Vec<OsString>,

    /// The conversation to go on with
    ///
    /// Without it that is `cli:direct`, or a fresh one for piped input.
    #[arg(short, long, value_name = "KEY", help_heading = "Session")]
    pub session: Option<String>,
    /// Start the conversation afresh
    ///
    /// What was said before is kept, but not sent.
    #[arg(long, help_heading = "Session", conflicts_with_all = ["resume", "fork"])]
    pub new: bool,
    /// Go on with an interrupted turn, without a message
    #[arg(long, help_heading = "Session", conflicts_with = "fork")]
    pub resume: bool,
    /// Copy the conversation KEY first, and go on with the copy
    #[arg(
        long,
        value_name = "KEY",
        help_heading = "Session",
        hide_short_help = true
    )]
    pub fork: Option<String>,
    /// Keep nothing of this turn
    #[arg(
        long,
        help_heading = "Session",
        conflicts_with = "resume",
        hide_short_help = true
    )]
    pub ephemeral: bool,
    /// Wait so many seconds for a conversation that another run is using
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        help_heading = "Session",
        hide_short_help = true
    )]
    pub wait: u64,

    /// What to print: the answer, one JSON object, or one JSON event per line
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
    /// Tell on standard error what is going on
    ///
    /// Also where that is no terminal.
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Render markdown on a terminal, which is the default
    #[arg(
        long,
        overrides_with = "no_markdown",
        help_heading = "Output",
        hide_short_help = true
    )]
    pub markdown: bool,
    /// Print the answer as the model wrote it, on a terminal too
    #[arg(
        long,
        overrides_with = "markdown",
        help_heading = "Output",
        hide_short_help = true
    )]
    pub no_markdown: bool,
    /// Same as `--verbose`
    #[arg(long, overrides_with = "no_logs", hide = true)]
    pub logs: bool,
    /// Undo `--logs`
    #[arg(long, overrides_with = "logs", hide = true)]
    pub no_logs: bool,

    #[command(flatten)]
    pub asking: ModelFlags,
    /// Stop when the turn has used so many tokens, input and output together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Model",
          hide_short_help = true)]
    pub max_total_tokens: Option<u64>,
    /// Answer as JSON that satisfies this schema
    ///
    /// A file, a JSON schema, or fields as `name, age int, tags str[]`.
    #[arg(long, value_name = "SCHEMA", help_heading = "Output")]
    pub schema: Option<String>,

    #[command(flatten)]
    pub grants: Grants,
    /// How many reading tools, and how many sub-agents, may run side by side
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64),
          help_heading = "What the agent may do", hide_short_help = true)]
    pub max_parallel: u32,
    /// Reach no address but loopback
    #[arg(long, help_heading = "What the agent may do", hide_short_help = true)]
    pub offline: bool,
    /// End with status 5 when something the agent asked for was denied
    #[arg(long, help_heading = "What the agent may do", hide_short_help = true)]
    pub strict: bool,
    /// End the turn, and all it started, after so long
    ///
    /// Seconds, or as `90s`, `5m`, `1h30m`.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "What the agent may do")]
    pub timeout: Option<Duration>,

    /// Read standard input even where it is a socket or a device
    #[arg(
        long,
        overrides_with = "no_stdin",
        help_heading = "Input",
        hide_short_help = true
    )]
    pub stdin: bool,
    /// Leave standard input unread
    #[arg(
        long,
        overrides_with = "stdin",
        help_heading = "Input",
        hide_short_help = true
    )]
    pub no_stdin: bool,

    /// Print the first request instead of sending it
    ///
    /// As JSON or as a curl command; or what it is made of, as a table.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "json",
          help_heading = "Record and replay", conflicts_with_all = ["record", "replay"], hide_short_help = true)]
    pub dry_run: Option<DryRun>,
    /// Write every exchange with the model to FILE
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Record and replay",
        hide_short_help = true
    )]
    pub record: Option<PathBuf>,
    /// Answer from FILE, not a model; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Record and replay")]
    pub replay: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Text,
    Json,
    StreamJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    Json,
    Curl,
    Table,
    TableJson,
}
