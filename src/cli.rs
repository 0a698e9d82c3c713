//! The command line as typed: clap types and nothing else. The doc comments are the help and the man page.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use value::{Since, dollars, since, temperature, time, trimmed, turn};

pub mod completions;
pub mod cron;
pub mod heartbeat;
pub mod mcp;
pub mod memory;
pub mod pages;
pub mod policy;
pub mod session;
pub mod skill;
pub mod value;

/// A personal AI agent that behaves like a Unix program
///
/// One invocation is one turn: nanobot reads what it was given, asks a model, runs its tools, asks again, prints the
/// answer on standard output and exits with a status that tells the cause.
#[derive(Debug, Parser)]
#[command(
    name = "nanobot",
    version,
    propagate_version = true,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub shared: Shared,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command understands
#[derive(Args, Clone, Debug, Default)]
pub struct Shared {
    /// Use this config file
    #[arg(
        short,
        long,
        value_name = "FILE",
        global = true,
        help_heading = "Global options"
    )]
    pub config: Option<PathBuf>,
    /// Use this workspace instead of the configured one
    #[arg(
        short,
        long,
        value_name = "DIR",
        global = true,
        help_heading = "Global options"
    )]
    pub workspace: Option<PathBuf>,
    /// When to use colour
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        global = true,
        help_heading = "Global options"
    )]
    pub color: When,
    /// Say nothing on standard error but failures
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum Command {
    // The first lines stand here for the list of commands, and at the arguments for their own help: these are built only
    // when they are needed.
    /// Run one turn and print the answer
    #[command(visible_alias = "a")]
    Agent(Box<Agent>),
    /// Talk with the agent, line by line
    Repl(Box<Repl>),
    /// Write a config and a workspace; what is there is kept
    Onboard(Onboard),
    /// See and change the config
    Config {
        #[command(subcommand)]
        command: Config,
    },
    /// See, find, copy, mend and remove conversations
    Session {
        #[command(subcommand)]
        command: session::Session,
    },
    /// See what is remembered, add to it, and take changes back
    Memory {
        #[command(subcommand)]
        command: memory::Memory,
    },
    /// See the models that can be asked, and what they cost
    Model {
        #[command(subcommand)]
        command: Model,
    },
    /// See the providers; log in to those with accounts, and out again
    Provider {
        #[command(subcommand)]
        command: Provider,
    },
    /// Run jobs at their times: the system's cron starts each
    Cron {
        #[command(subcommand)]
        command: cron::Cron,
    },
    /// Look once whether HEARTBEAT.md has something to do, and do it
    Heartbeat(heartbeat::Heartbeat),
    /// Take back what a turn changed with its file tools
    Undo(Undo),
    /// Tell what is configured, and whether it works
    Status(Status),
    /// See what a run may do, and try whether that holds
    Policy {
        #[command(subcommand)]
        command: policy::Policy,
    },
    /// Use the agent's tools by hand, under the same policy
    Tool {
        #[command(subcommand)]
        command: policy::Tool,
    },
    /// Add servers of further tools (MCP), see and call what they offer
    Mcp {
        #[command(subcommand)]
        command: mcp::Mcp,
    },
    /// See what the agent can be taught; add to it, and take it away
    Skill {
        #[command(subcommand)]
        command: skill::Skill,
    },
    /// Let a directory's notes and skills tell the agent how to work
    Trust(policy::Trust),
    /// See what was spent: tokens, money and runs
    Usage(Usage),
    /// Print a script that lets a shell complete commands and names
    Completions(completions::Completions),
    /// (in the Python program: a server; here cron and pipes do its work)
    #[command(hide = true)]
    Gateway {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
}

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

    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: Option<String>,
    /// Limit of one reply, in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model", hide_short_help = true)]
    pub max_tokens: Option<u32>,
    /// How freely the model answers, 0 to 2
    #[arg(long, value_name = "N", value_parser = temperature, help_heading = "Model", hide_short_help = true)]
    pub temperature: Option<f64>,
    /// How much a reasoning model thinks: low, medium, high or what else it takes
    #[arg(
        long,
        value_name = "LEVEL",
        help_heading = "Model",
        hide_short_help = true
    )]
    pub reasoning_effort: Option<String>,
    /// How often the model may be asked in this turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model", hide_short_help = true)]
    pub max_iterations: Option<u32>,
    /// Stop when the turn has cost so many US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, help_heading = "Model")]
    pub max_cost: Option<f64>,
    /// Stop when the turn has used so many tokens, input and output together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Model",
          hide_short_help = true)]
    pub max_total_tokens: Option<u64>,
    /// Answer as JSON that satisfies this schema
    ///
    /// A file, a JSON schema, or fields as `name, age int, tags str[]`.
    #[arg(long, value_name = "SCHEMA", help_heading = "Output")]
    pub schema: Option<String>,
    /// Ask for the reply in one piece, for servers that cannot stream
    #[arg(long, help_heading = "Model", hide_short_help = true)]
    pub no_stream: bool,

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

/// Talk with the agent, line by line
///
/// Each line is a turn of one conversation. The agent may ask before it does what its flags do not grant, and Ctrl-C stops a
/// turn without ending the conversation. `/help` tells the commands. `nanobot agent` without a message does the same on a
/// terminal.
#[derive(Args, Clone, Debug, Default)]
pub struct Repl {
    /// The conversation to go on with
    ///
    /// Without it that is `cli:direct`.
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// Copy the conversation KEY first, and go on with the copy
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub fork: Option<String>,
    /// Start the conversation afresh
    ///
    /// What was said before is kept, but not sent.
    #[arg(long, conflicts_with = "fork")]
    pub new: bool,
    /// Tell more of what is going on
    #[arg(short, long)]
    pub verbose: bool,
    /// Render markdown, which is the default
    #[arg(long, overrides_with = "no_markdown", hide = true)]
    pub markdown: bool,
    /// Print answers as the model wrote them
    #[arg(long, overrides_with = "markdown")]
    pub no_markdown: bool,

    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub model: Option<String>,
    /// How freely the model answers, 0 to 2
    #[arg(long, value_name = "N", value_parser = temperature, help_heading = "Model", hide_short_help = true)]
    pub temperature: Option<f64>,
    /// Limit of one reply, in tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model", hide_short_help = true)]
    pub max_tokens: Option<u32>,
    /// How much a reasoning model thinks: low, medium, high or what else it takes
    #[arg(
        long,
        value_name = "LEVEL",
        help_heading = "Model",
        hide_short_help = true
    )]
    pub reasoning_effort: Option<String>,
    /// How often the model may be asked in a turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model", hide_short_help = true)]
    pub max_iterations: Option<u32>,
    /// Stop a turn when it has cost so many US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, help_heading = "Model")]
    pub max_cost: Option<f64>,
    /// Ask for replies in one piece, for servers that cannot stream
    #[arg(long, help_heading = "Model", hide_short_help = true)]
    pub no_stream: bool,
    /// Answer from FILE, not a model; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    pub replay: Option<PathBuf>,

    #[command(flatten)]
    pub grants: Grants,
    /// Reach no address but loopback
    #[arg(long, help_heading = "What the agent may do", hide_short_help = true)]
    pub offline: bool,
}

/// What a run may do, from flags
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[command(next_help_heading = "What the agent may do")]
pub struct Grants {
    /// What it may do, by name: plan, accept-edits, …
    ///
    /// default, plan (reads only), accept-edits, auto-approve (edits, and consents to what would be asked; no web tools
    /// unless `--net`), full (no sandbox), or one of your own in ~/.nanobot/profiles. `explore` is for sub-agents alone (the
    /// tool `spawn`).
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Let it change files in the directory, or in PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = ".",
          action = ArgAction::Append)]
    pub write: Vec<PathBuf>,
    /// Let it read PATH too; may be given again
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    pub read: Vec<PathBuf>,
    /// Let it reach the internet, or only HOSTS
    ///
    /// All of it, commands included; or only these HOSTS (`example.org,*.example.org`), commands not included. An address
    /// that is typed here is reached even where it is not public (`127.0.0.1:8000`); a name never is.
    #[arg(long, value_name = "HOSTS", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub net: Option<Vec<String>>,
    /// Let it use a tool that would have to ask
    ///
    /// `TOOL`, or `TOOL(glob)` for some arguments; may be given again.
    #[arg(long, value_name = "RULE", action = ArgAction::Append, hide_short_help = true)]
    pub allow: Vec<String>,
    /// Forbid a tool; stronger than anything else
    ///
    /// `TOOL`, or `TOOL(glob)` for some arguments; may be given again. About commands a glob is a tripwire: `exec(git *)`
    /// does not hold for `/usr/bin/git`.
    #[arg(long, value_name = "RULE", action = ArgAction::Append, hide_short_help = true)]
    pub deny: Vec<String>,
    /// Offer only these tools, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = trimmed, hide_short_help = true)]
    pub tools: Option<Vec<String>>,
    /// Offer no tools
    #[arg(long, conflicts_with = "tools", hide_short_help = true)]
    pub no_tools: bool,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR", hide_short_help = true)]
    pub directory: Option<PathBuf>,
    /// Whether commands are contained
    ///
    /// Where the kernel has no sandbox, `auto` refuses them, and `strict` ends with status 126 at once; `off` runs them
    /// uncontained.
    #[arg(long, value_name = "WHEN", hide_short_help = true)]
    pub sandbox: Option<Sandbox>,
}

/// Write a config and a workspace; what is there is kept
///
/// On a terminal it asks; with flags, or off a terminal, it does not.
#[derive(Args, Clone, Debug, Default)]
pub struct Onboard {
    /// The provider to use
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The variable that holds its key
    ///
    /// The config names it, and never has the key itself.
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// Read its key from standard input, and keep it in the config
    #[arg(long, conflicts_with = "api_key_env")]
    pub api_key_stdin: bool,
    /// Its address, where it is not the usual one
    #[arg(long, value_name = "URL")]
    pub api_base: Option<String>,
    /// The model to ask
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Where the agent works: the current directory, or always the workspace
    #[arg(long, value_name = "WHERE")]
    pub directory: Option<Directory>,
    /// Ask nothing and take the defaults
    #[arg(short, long)]
    pub yes: bool,
    /// Ask the model to say hello, and tell what that took and cost; a failure is the status
    #[arg(long)]
    pub test: bool,
    /// Write completions to where the shell that `SHELL` names looks for them
    #[arg(long)]
    pub completions: bool,
    /// Let cron look at HEARTBEAT.md every 30 minutes
    #[arg(long)]
    pub heartbeat: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Config {
    /// Print where the config file is
    Path,
    /// Print what is in force, for one key or for all
    Get {
        /// A key, as `agents.defaults.model`
        key: Option<String>,
        /// Tell also where the value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Change one key in the file, keeping comments and all else
    Set {
        /// A key, as `agents.defaults.model`
        key: String,
        /// The value
        ///
        /// JSON for lists and maps, `null` to remove the key, `-` to read it from standard input.
        #[arg(required_unless_present = "unset", allow_hyphen_values = true)]
        value: Option<String>,
        /// Remove the key
        #[arg(long, conflicts_with = "value")]
        unset: bool,
    },
    /// Report everything that is odd about the config, with line and column
    Check,
    /// Print the JSON schema of the config file
    Schema {
        /// Of the events and the result of `agent`, instead of the config
        #[arg(long)]
        events: bool,
    },
}

/// Take back what a turn changed with its file tools
///
/// Files are again what they were before the turn, byte for byte and with their modes; what it made is removed, what it
/// deleted is there again. Without TURN it is the last turn that was run in the current directory or worked on it, and
/// was not taken back yet; given again, the turn before that. Nothing is asked. Where somebody else has changed one of the
/// files since, nothing is done at all, with status 1.
///
/// Only what `write_file`, `edit_file` and `delete_file` change is kept: not what commands change, which the agent runs
/// with `exec`. It is kept for the last 100 turns of 7 days, 1 GiB at most.
#[derive(Args, Clone, Debug, Default)]
pub struct Undo {
    /// The number of the turn, as `--list` prints it
    #[arg(value_parser = turn)]
    pub turn: Option<u64>,
    /// List the turns that changed files, newest first, of all directories
    #[arg(long, conflicts_with_all = ["turn", "redo", "dry_run", "force"])]
    pub list: bool,
    /// One JSON object per turn
    #[arg(long, requires = "list")]
    pub json: bool,
    /// Tell what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do again what was taken back, the last undo first
    #[arg(long)]
    pub redo: bool,
    /// Also where somebody else has changed a file since; `--redo` brings that back
    #[arg(long)]
    pub force: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Model {
    /// List the models that are known, with their limits and prices
    ///
    /// The prices are in US dollars for a million tokens.
    List {
        /// Only those of this provider
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        /// Ask the provider which models it has; without `--provider`, the one that is configured
        #[arg(long)]
        remote: bool,
    },
    /// Tell who would be asked for a model, and what is known of it
    Show {
        /// A model or a preset, as `agent --model` takes it
        name: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum Provider {
    /// List the providers, and where the key of each comes from
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Log in, by entering a code in a browser on any machine
    ///
    /// The code and the address stand on standard error. The login is kept, and renewed when it runs out.
    Login {
        /// openai-codex or github-copilot
        name: String,
    },
    /// Forget a login; the provider itself is told nothing
    Logout {
        /// openai-codex or github-copilot
        name: String,
    },
}

/// Tell what is configured, and whether it works
#[derive(Args, Clone, Debug, Default)]
pub struct Status {
    /// Try whether it works as it will at run time, also in cron's small environment
    ///
    /// The config, the places and who can read them, sessions, memory, the sandbox, the jobs and their lines in the crontab;
    /// the model is asked to say hello, which costs some 60 tokens, and a made-up job is run as cron runs one. Each line is
    /// `ok`, `warn` or `no`, with what to do about it below. The status is that of the first `no`. Nothing is changed but the
    /// ledger, which has what the hello cost.
    #[arg(long)]
    pub check: bool,
    /// Ask no provider
    #[arg(long, requires = "check")]
    pub offline: bool,
    /// Leave the crontab out, where something else runs `nanobot cron run --due`
    #[arg(long, requires = "check")]
    pub no_crontab: bool,
    /// One JSON object; with `--check`, one array
    #[arg(long)]
    pub json: bool,
}

/// See what was spent: tokens, money and runs
///
/// Every call of a model is a line of the ledger, and counts when it was made. A run is a turn, however many calls it took.
///
/// By tool, server and skill it is told what was used, and what it took to tell the model of it: what is offered and never used
/// costs tokens with each request.
#[derive(Args, Clone, Debug)]
pub struct Usage {
    /// What a row is
    #[arg(long, value_name = "WHAT", default_value = "day")]
    pub by: By,
    /// From when on: a date as `2026-11-01`, `7d` for the last seven days, `12h`, `today`, or `month` for this one
    #[arg(long, value_name = "WHEN", default_value = "30d", value_parser = since)]
    pub since: Since,
    /// One JSON object per row and line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    Day,
    Model,
    Session,
    Job,
    /// Calls of each tool
    Tool,
    /// Calls of each MCP server, and the tokens that told of its tools
    Server,
    /// Runs that read each skill
    Skill,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sandbox {
    Auto,
    Off,
    Strict,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Directory {
    Cwd,
    Workspace,
}
