//! The command line as typed: clap types and nothing else. The doc comments are the help and the man page.

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Write a config and a workspace; run again, it keeps what is there
    Onboard(Onboard),
    /// See and change the config
    Config {
        #[command(subcommand)]
        command: Config,
    },
    /// See, find, copy, mend and remove conversations
    Session {
        #[command(subcommand)]
        command: Session,
    },
    /// See what is remembered, make memory of conversations, and take changes back
    Memory {
        #[command(subcommand)]
        command: Memory,
    },
    /// See the models that can be asked, and what they cost
    Model {
        #[command(subcommand)]
        command: Model,
    },
    /// See the providers; log in to those that have accounts instead of keys, and out again
    Provider {
        #[command(subcommand)]
        command: Provider,
    },
    /// Run jobs at their times: the system's cron starts each
    Cron {
        #[command(subcommand)]
        command: Cron,
    },
    /// Look once whether HEARTBEAT.md has something to do, and do it
    Heartbeat(Heartbeat),
    /// Take back what a turn changed with its file tools
    Undo(Undo),
    /// Tell what is configured, and how the memory is
    Status(Status),
    /// See what a run may do, and try whether that holds
    Policy {
        #[command(subcommand)]
        command: Policy,
    },
    /// Use the agent's tools by hand, under the same policy
    Tool {
        #[command(subcommand)]
        command: Tool,
    },
    /// Let a directory's AGENTS.md and skills/ tell the agent how to work
    Trust(Trust),
    /// See what was spent: tokens, money and runs
    Usage(Usage),
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
    /// Attach a text, an image (PNG, JPEG, GIF, WebP), a PDF, a directory, a page (`https://…`), or standard input (`-`);
    /// may be given again
    #[arg(short, long, value_name = "FILE|URL", action = ArgAction::Append)]
    pub attach: Vec<OsString>,

    /// The conversation to go on with [default: cli:direct, or a fresh one for piped input]
    #[arg(short, long, value_name = "KEY", help_heading = "Session")]
    pub session: Option<String>,
    /// Start the conversation afresh: what was said before is kept, but not sent
    #[arg(long, help_heading = "Session", conflicts_with_all = ["resume", "fork"])]
    pub new: bool,
    /// Go on with a turn that was interrupted; no message is needed
    #[arg(long, help_heading = "Session", conflicts_with = "fork")]
    pub resume: bool,
    /// Copy the conversation KEY first, and go on with the copy
    #[arg(long, value_name = "KEY", help_heading = "Session")]
    pub fork: Option<String>,
    /// Keep nothing of this turn
    #[arg(long, help_heading = "Session", conflicts_with = "resume")]
    pub ephemeral: bool,
    /// Wait so many seconds for a conversation that another run is using
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        help_heading = "Session"
    )]
    pub wait: u64,

    /// What to print: the answer, one JSON object, or one JSON event per line
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output"
    )]
    pub output_format: OutputFormat,
    /// Short for `--output-format json`
    #[arg(long, help_heading = "Output", conflicts_with = "output_format")]
    pub json: bool,
    /// Tell on standard error what is going on, also off a terminal
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
    /// Render markdown on a terminal (accepted; the answer is printed as the model wrote it)
    #[arg(long, overrides_with = "no_markdown", hide = true)]
    pub markdown: bool,
    /// Print the answer as the model wrote it
    #[arg(long, overrides_with = "markdown", hide = true)]
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
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model")]
    pub max_tokens: Option<u32>,
    /// How freely the model answers, 0 to 2
    #[arg(long, value_name = "N", value_parser = temperature, help_heading = "Model")]
    pub temperature: Option<f64>,
    /// How much a reasoning model thinks: low, medium, high or what else it takes
    #[arg(long, value_name = "LEVEL", help_heading = "Model")]
    pub reasoning_effort: Option<String>,
    /// How often the model may be asked in this turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Model")]
    pub max_iterations: Option<u32>,
    /// Stop when the turn has cost so much, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars, help_heading = "Model")]
    pub max_cost: Option<f64>,
    /// Stop when the turn has used so many tokens, input and output together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Model")]
    pub max_total_tokens: Option<u64>,
    /// Answer as JSON that satisfies this schema: a file, a JSON schema, or fields as `name, age int, tags str[]`
    #[arg(long, value_name = "SCHEMA", help_heading = "Output")]
    pub schema: Option<String>,
    /// Ask for the reply in one piece, for servers that cannot stream
    #[arg(long, help_heading = "Model")]
    pub no_stream: bool,

    #[command(flatten)]
    pub grants: Grants,
    /// How many reading tools, and how many sub-agents, may run side by side
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64),
          help_heading = "What the agent may do")]
    pub max_parallel: u32,
    /// Reach no address but loopback
    #[arg(long, help_heading = "What the agent may do")]
    pub offline: bool,
    /// End with status 5 when something the agent asked for was denied
    #[arg(long, help_heading = "What the agent may do")]
    pub strict: bool,
    /// End the turn, and all it started, after so long: seconds, or as `90s`, `5m`, `1h30m`
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "What the agent may do")]
    pub timeout: Option<Duration>,

    /// Read standard input even where it is a socket or a device
    #[arg(long, overrides_with = "no_stdin", help_heading = "Input")]
    pub stdin: bool,
    /// Leave standard input unread
    #[arg(long, overrides_with = "stdin", help_heading = "Input")]
    pub no_stdin: bool,

    /// Print the first request instead of sending it, as JSON or as a curl command; or what it is made of, as a table
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "json",
          help_heading = "Record and replay", conflicts_with_all = ["record", "replay"])]
    pub dry_run: Option<DryRun>,
    /// Write every exchange with the model to FILE
    #[arg(long, value_name = "FILE", help_heading = "Record and replay")]
    pub record: Option<PathBuf>,
    /// Answer from FILE instead of a model; `demo` is built in
    #[arg(long, value_name = "FILE", help_heading = "Record and replay")]
    pub replay: Option<PathBuf>,
}

/// What a run may do, from flags
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[command(next_help_heading = "What the agent may do")]
pub struct Grants {
    /// What it may do, by name: default, plan (reads only), accept-edits, auto-approve (edits, and consents to what would be
    /// asked; no web tools unless `--net`), full (no sandbox), or one of your own in ~/.nanobot/profiles. `explore` is for
    /// sub-agents alone (the tool `spawn`)
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Let the agent change files in the directory, or beneath PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = ".",
          action = ArgAction::Append)]
    pub write: Vec<PathBuf>,
    /// Let the agent read PATH too; may be given again
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    pub read: Vec<PathBuf>,
    /// Let it reach the internet, commands included; or only these HOSTS (`example.org,*.example.org`), commands not
    /// included. An address that is typed here is reached even where it is not public (`127.0.0.1:8000`); a name never is
    #[arg(long, value_name = "HOSTS", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub net: Option<Vec<String>>,
    /// Let it use a tool that would have to ask: `TOOL`, or `TOOL(glob)` for some arguments; may be given again
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub allow: Vec<String>,
    /// Forbid `TOOL`, or `TOOL(glob)` for some arguments; stronger than anything else. About commands a glob is a tripwire:
    /// `exec(git *)` does not hold for `/usr/bin/git`
    #[arg(long, value_name = "RULE", action = ArgAction::Append)]
    pub deny: Vec<String>,
    /// Offer only these tools, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = trimmed)]
    pub tools: Option<Vec<String>>,
    /// Offer no tools
    #[arg(long, conflicts_with = "tools")]
    pub no_tools: bool,
    /// Work in this directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Contain commands: where the kernel has no sandbox, `auto` refuses them, `strict` ends with status 126 at once, `off`
    /// runs them uncontained
    #[arg(long, value_name = "WHEN")]
    pub sandbox: Option<Sandbox>,
}

/// Write a config and a workspace; run again, it keeps what is there
///
/// On a terminal it asks; with flags, or off a terminal, it does not.
#[derive(Args, Clone, Debug, Default)]
pub struct Onboard {
    /// The provider to use
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The variable that holds its key; the config names it, and never the key itself
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
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
        /// The value; JSON for lists and maps, `null` to remove the key, `-` to read it from standard input
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

#[derive(Clone, Debug, Subcommand)]
pub enum Session {
    /// List the conversations, newest first
    List(SessionList),
    /// Print a conversation, and what it came to
    Show(SessionShow),
    /// Find text in all conversations and in the memory, newest first
    ///
    /// Prints `KEY:NUMBER TIME role: line` for each line that matches, where NUMBER is the message's, from 1. The status is
    /// 0 when something was found, and 1 when nothing was.
    Search(SessionSearch),
    /// Write a conversation as one document, to keep or to pass on
    Export(SessionExport),
    /// Copy a conversation, or its beginning, as a new one
    Fork {
        /// Its key, as `session list` prints it
        key: String,
        /// The key of the copy
        new: String,
        /// Copy only the messages up to the N-th, as `session show` numbers them
        #[arg(long, value_name = "N")]
        at: Option<usize>,
    },
    /// Tell what would be sent of a conversation: each part, its tokens, and why
    Context {
        /// Its key, as `session list` prints it
        #[arg(default_value = "cli:direct")]
        key: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sum a conversation up, so that less of it is sent; the log keeps everything
    Compact {
        /// Its key, as `session list` prints it
        key: String,
        /// What the summary is to heed
        instructions: Vec<String>,
    },
    /// Give a conversation another key, in the place where it lies
    Rename {
        /// Its key, as `session list` prints it
        key: String,
        /// The key it gets
        new: String,
    },
    /// Move conversations to the trash
    Rm {
        /// Their keys, as `session list` prints them
        #[arg(required = true)]
        keys: Vec<String>,
        /// Remove them instead, and what the trash has of them
        #[arg(long)]
        for_good: bool,
    },
    /// Bring a conversation back from the trash; without a key, list what is there
    Restore {
        /// The key it had
        key: Option<String>,
    },
    /// Move conversations that were not used for long to the trash
    ///
    /// Says which, and asks; off a terminal it takes `--yes`. Conversations in use are left alone. What has been in the
    /// trash for 30 days is removed.
    Prune(SessionPrune),
    /// Tell what is odd about conversations, and mend what can be mended without rewriting them
    ///
    /// A torn last line is kept aside, wrong counts are corrected by a further line, and the files are made readable by
    /// their owner only. Messages are never changed.
    Repair {
        /// Their keys, as `session list` prints them
        #[arg(
            value_name = "KEY",
            required_unless_present = "all",
            conflicts_with = "all"
        )]
        keys: Vec<String>,
        /// Look at all of them
        #[arg(long)]
        all: bool,
        /// Only tell
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Args, Clone, Debug)]
pub struct SessionList {
    /// Only those whose key matches: a pattern with `*` and `?`, or a part of the key
    pub pattern: Option<String>,
    /// The order
    #[arg(long, value_name = "ORDER", default_value = "newest")]
    pub sort: Sort,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only those used since then: a date as `2026-11-01`, `7d`, `12h`, `today`, or `month`
    #[arg(long, value_name = "WHEN", value_parser = since)]
    pub since: Option<Since>,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Newest,
    Oldest,
    Messages,
    Tokens,
    Cost,
    Key,
}

#[derive(Args, Clone, Debug)]
pub struct SessionShow {
    /// Its key, as `session list` prints it
    #[arg(default_value = "cli:direct")]
    pub key: String,
    /// Only the last N messages
    #[arg(short = 'n', long, value_name = "N")]
    pub last: Option<usize>,
    /// Print the calls of tools and their results whole
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    pub full: bool,
    /// One JSON object per message
    #[arg(long)]
    pub json: bool,
    /// The file as it is
    #[arg(long, conflicts_with_all = ["json", "last"])]
    pub raw: bool,
}

#[derive(Args, Clone, Debug)]
pub struct SessionSearch {
    /// A regular expression, matched against each line of what was said and of what tools gave
    pub pattern: String,
    /// Only in this conversation
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// Take capital and small letters for the same
    #[arg(short, long)]
    pub ignore_case: bool,
    /// The pattern is a text and no expression
    #[arg(short = 'F', long)]
    pub fixed_strings: bool,
    /// Print N lines before and after as well
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0)]
    pub context: usize,
    /// Print only the keys of the conversations, and the names of the memory's files
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub list: bool,
    /// One JSON object per line that matches
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct SessionExport {
    /// Its key, as `session list` prints it
    pub key: String,
    /// As what
    #[arg(long, value_name = "FORMAT", default_value = "markdown")]
    pub format: Document,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Document {
    Markdown,
    Json,
}

#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").args(["older_than", "empty"]).required(true).multiple(true)))]
pub struct SessionPrune {
    /// Only those whose key matches: a pattern with `*` and `?`, or a part of the key
    pub pattern: Option<String>,
    /// Those not used for so long, as `30d`, `12h`, `8w`
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Those without a message; with `--older-than`, both must hold
    #[arg(long)]
    pub empty: bool,
    /// Ask nothing
    #[arg(short, long)]
    pub yes: bool,
    /// Only tell
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Memory {
    // The arguments stand apart, since they are many, and what is said of them: here it would hide that.
    Consolidate(Consolidate),
    /// Print what is remembered
    Show,
    /// Find a regular expression in the memory and its history; status 1 when it is nowhere
    Search {
        /// The regular expression; `(?i)` before it takes upper and lower case alike
        pattern: String,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Change the memory with your editor (`VISUAL`, else `EDITOR`)
    Edit,
    /// List the versions of the memory, newest first
    Log {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print what changed: by the last change, since version A, or from A to B
    Diff {
        /// The number of a version
        #[arg(value_name = "A")]
        from: Option<u64>,
        /// The number of a version
        #[arg(value_name = "B")]
        to: Option<u64>,
    },
    /// Bring the version before back, byte for byte; again, and the one before that
    ///
    /// This is about MEMORY.md alone: the history keeps its paragraphs, and what was consolidated is not consolidated again.
    Undo {
        /// The number of the version to bring back instead
        id: Option<u64>,
    },
}

/// Make memory of what is old in conversations
///
/// The old part of a conversation goes to the model with the memory as it is, and comes back as a paragraph of
/// HISTORY.md and a new MEMORY.md. Without `-s` and `--all` this is done where it is due: what `--new` put behind, and
/// conversations that have outgrown their window. Done again, it does nothing.
#[derive(Args, Clone, Debug, Default)]
pub struct Consolidate {
    /// The conversation to do it for, due or not; its newest messages stay
    #[arg(short, long, value_name = "KEY", conflicts_with = "all")]
    pub session: Option<String>,
    /// Every conversation, due or not
    #[arg(long)]
    pub all: bool,
    /// Tell what would be done; ask no model and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Wait so many seconds for another run that is changing the memory
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub wait: u64,
    /// Reach no address but loopback
    #[arg(long)]
    pub offline: bool,
    /// Ask for the reply in one piece, for servers that cannot stream
    #[arg(long)]
    pub no_stream: bool,
    // What `agent` starts when its answer is out.
    #[arg(long, hide = true, requires = "session", conflicts_with = "dry_run")]
    pub detached: bool,
    // What the turn's model takes in and gives out, and what is left of the turn's limits.
    #[arg(long, hide = true, requires = "detached")]
    pub context: Option<u32>,
    #[arg(long, hide = true, requires = "detached", value_parser = dollars)]
    pub max_cost: Option<f64>,
    #[arg(long, hide = true, requires = "detached")]
    pub max_total_tokens: Option<u64>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Cron {
    // The arguments stand apart, since they are many, and what is said of them: here it would hide that.
    Add(Box<CronAdd>),
    List(CronList),
    /// Print all that is known of a job
    Show {
        /// Its id or name, as `cron list` prints them
        job: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    #[command(alias = "update")]
    Edit(Box<CronEdit>),
    Run(CronRun),
    /// Let jobs run at their times again
    #[command(alias = "resume")]
    Enable {
        /// Their ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
        /// Let them not run any more, as `cron disable` does
        #[arg(long)]
        disable: bool,
    },
    /// Keep jobs and let them not run any more
    #[command(alias = "pause")]
    Disable {
        /// Their ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
    },
    /// Remove jobs with their lines, records and conversations
    #[command(visible_alias = "rm", alias = "delete")]
    Remove {
        /// Their ids or names
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<String>,
    },
    /// Make the crontab say again what the job file says
    Sync {
        /// Only tell what would change
        #[arg(long)]
        dry_run: bool,
    },
    /// Print what came of the last runs
    Logs {
        /// The id or name of one job [default: all]
        job: Option<String>,
        /// Go on printing what comes
        #[arg(short, long)]
        follow: bool,
        /// Print so many of the last runs
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        lines: usize,
        /// Print what the last run said
        #[arg(long, requires = "job", conflicts_with_all = ["follow", "json"])]
        output: bool,
        /// One JSON object per run
        #[arg(long)]
        json: bool,
    },
    Export(CronExport),
}

/// Make a job
///
/// The job goes to the job file, and a line for it to your crontab; the system's cron does the waiting, and starts
/// nanobot when it is time. The line holds only the job's id.
///
/// The answer is printed, and cron mails what is printed; it is delivered instead with `--channel` and `--to`, and with
/// `--quiet` it is only kept, for `cron logs JOB --output`. An answer whose last line is NOTHING_TO_REPORT has nothing to tell,
/// and is only kept too; each run is told so. Failures are always printed.
///
/// A job that runs once is removed when it has succeeded. Where it failed, it is disabled and kept; where nobody could be
/// asked, or the conversation was in use, it is tried again every ten minutes for an hour.
#[derive(Args, Clone, Debug, Default)]
pub struct CronAdd {
    /// What it is called
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// What the agent is told
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: String,
    #[command(flatten)]
    pub schedule: CronSchedule,
    #[command(flatten)]
    pub terms: CronTerms,
    #[command(flatten)]
    pub grants: Grants,
    // In place of the global one, whose short form is `--cron` here, as in the Python program.
    /// Use this config file
    #[arg(long, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
}

/// When a job runs
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "When")]
pub struct CronSchedule {
    /// At the minutes of a cron expression: minute, hour, day of the month, month, day of the week
    #[arg(short, long, value_name = "EXPR", conflicts_with_all = ["every", "at", "in"])]
    pub cron: Option<String>,
    /// The minutes of `--cron` by the clock of this zone, as `Europe/Paris` [default: the system's]
    #[arg(long, value_name = "ZONE")]
    pub tz: Option<String>,
    /// Each time this much has passed: `90m`, `2h`, `1d`; a bare number is seconds
    #[arg(short, long, value_name = "TIME", conflicts_with_all = ["at", "in"])]
    pub every: Option<String>,
    /// Once, at this time: `2026-12-24T18:00`, with `Z` or an offset for another zone than the system's
    #[arg(long, value_name = "TIME", conflicts_with = "in")]
    pub at: Option<String>,
    /// Once, after this much time: `2h`
    #[arg(long, value_name = "TIME")]
    pub r#in: Option<String>,
    /// What becomes of a time that was missed because the machine was off or asleep: it is run later, once, or not at
    /// all [default: once for `--at` and `--in`, else none]
    #[arg(long, value_name = "WHAT")]
    pub catch_up: Option<CatchUp>,
}

/// How a job runs, and where its answer goes
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How")]
pub struct CronTerms {
    /// The conversation to go on with [default: one of its own, of which the last run is sent]
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// The model to ask, or a preset of the config
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Run only when this command ends with status 0; its output goes to the model. Another status means no; 126, 127 and
    /// a signal are failures. It runs as you: outside the sandbox, in your home directory, with all of the environment
    #[arg(long, value_name = "CMD")]
    pub when: Option<String>,
    /// End a run after so long: seconds, or as `90s`, `5m`, `1h30m` [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Stop a run when it has cost so much, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub max_cost: Option<f64>,
    /// What becomes of a run of which nobody knows how it ended, since the machine died: it is not run again, or it is
    /// [default: skip]
    #[arg(long, value_name = "WHAT")]
    pub after_crash: Option<AfterCrash>,
    /// Send the answer where `--channel` and `--to` say, instead of printing it
    #[arg(short, long, overrides_with = "no_deliver")]
    pub deliver: bool,
    #[arg(long, hide = true)]
    pub no_deliver: bool,
    /// `file` appends it to the file `--to`, `command` pipes it into the command `--to`; others are kept, but this version
    /// does not deliver to them
    #[arg(long, value_name = "NAME")]
    pub channel: Option<String>,
    /// The file, the command, which runs as that of `--when` does, or who gets it
    #[arg(long, value_name = "WHERE")]
    pub to: Option<String>,
    /// Run this command when a run fails, as that of `--when` is run; what went wrong is its input, and NANOBOT_JOB,
    /// NANOBOT_JOB_NAME, NANOBOT_SLOT, NANOBOT_STATUS and NANOBOT_CAUSE are in its environment
    #[arg(long, value_name = "CMD")]
    pub on_failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CatchUp {
    Once,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AfterCrash {
    Skip,
    Again,
}

/// List the jobs: when each runs next, and how it last went
#[derive(Args, Clone, Debug, Default)]
pub struct CronList {
    /// Also those that are disabled
    #[arg(short, long)]
    pub all: bool,
    /// One JSON object per job
    #[arg(long)]
    pub json: bool,
}

/// Change a job: what is not given stays, and what it may do is fixed anew as of now
///
/// An empty text takes a setting away: `--when ''`. What it may do is given as a whole: any flag of that kind replaces all
/// that it had.
#[derive(Args, Clone, Debug, Default)]
pub struct CronEdit {
    /// Its id or name, as `cron list` prints them
    pub job: String,
    /// What it is called
    #[arg(short, long, value_name = "NAME")]
    pub name: Option<String>,
    /// What the agent is told
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: Option<String>,
    #[command(flatten)]
    pub schedule: CronSchedule,
    #[command(flatten)]
    pub terms: CronTerms,
    #[command(flatten)]
    pub grants: Grants,
    /// Use this config file
    #[arg(long, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
}

/// Run a job now
///
/// What it may do, its conversation, its limits and where its answer goes are as when cron starts it. The status tells how
/// it went; 75 when it is running already.
#[derive(Args, Clone, Debug, Default)]
pub struct CronRun {
    /// Its id or name, as `cron list` prints them
    #[arg(required_unless_present = "due")]
    pub job: Option<String>,
    /// Run it with cron's small environment, as its line in the crontab would
    #[arg(long, conflicts_with = "scheduled")]
    pub as_cron: bool,
    /// Run it only when it is due: what the crontab says
    #[arg(long)]
    pub scheduled: bool,
    /// Run all jobs that are due, one after the other: for other schedulers than cron, which call this once a minute
    #[arg(long, conflicts_with_all = ["job", "as_cron", "scheduled"])]
    pub due: bool,
    /// Run a throw-away job of that name with the built-in demo, and tell what a real one would find (for `status --check`)
    #[arg(long, hide = true, conflicts_with_all = ["as_cron", "scheduled"])]
    pub probe: bool,
    /// Also a job that is disabled (accepted; a job that is named runs in any case)
    #[arg(short, long, hide = true)]
    pub force: bool,
}

/// Hand the jobs to another scheduler
#[derive(Args, Clone, Debug)]
pub struct CronExport {
    /// The ids or names of the jobs [default: all that are enabled]
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// As what
    #[arg(long, value_name = "FORMAT")]
    pub format: Fleet,
    /// Write one file for each unit or manifest into this directory instead of all to standard output
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// The image of the containers, for Kubernetes
    #[arg(long, value_name = "IMAGE", default_value = "nanobot:latest")]
    pub image: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fleet {
    Systemd,
    Kubernetes,
    Crontab,
}

/// Look once whether HEARTBEAT.md has something to do, and do it
///
/// Where the file has no tasks, no model is asked. Else it is asked whether there is something to do now; if so, it is done,
/// and the answer printed or delivered.
#[derive(Args, Clone, Debug, Default)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Heartbeat {
    #[command(subcommand)]
    pub command: Option<HeartbeatCommand>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum HeartbeatCommand {
    /// Let cron look, again and again; given again, it changes what is given
    Enable(Box<HeartbeatEnable>),
    /// Let cron not look any more
    Disable,
}

/// Let cron look, again and again; given again, it changes what is given
#[derive(Args, Clone, Debug, Default)]
pub struct HeartbeatEnable {
    /// How often: `30m`, `2h`; a bare number is seconds [default: 30m]
    #[arg(short, long, value_name = "TIME")]
    pub every: Option<String>,
    #[command(flatten)]
    pub terms: CronTerms,
    #[command(flatten)]
    pub grants: Grants,
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
    /// List the models that are known, with their limits and prices in US dollars for a million tokens
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

/// Tell what is configured, how the memory is, and what cron does next
#[derive(Args, Clone, Debug, Default)]
pub struct Status {
    /// Try whether it works: the jobs, their lines in the crontab, and a probe job in cron's small environment
    ///
    /// Each line is `ok`, `warn` or `FAILED`, with what to do about it below. The status is 1 when anything failed. Nothing is
    /// changed, and no model is asked.
    #[arg(long)]
    pub check: bool,
    /// One JSON object; with `--check`, one per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Policy {
    /// Tell what a run with these flags may do; with a tool, what is decided about a call of it, and by which rule
    ///
    /// With a tool the status is 0 when the call is allowed, and 77 when it is refused.
    Explain(Box<PolicyExplain>),
    /// Try it: write outside, read what is closed, open a socket, as a command of the agent would
    ///
    /// Each line is `ok` or `FAILED`. The status is 0 when everything held, 126 when the system has no sandbox, and 1 when
    /// something did not hold.
    Test {
        #[command(flatten)]
        grants: Box<Grants>,
        /// One JSON object per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Clone, Debug)]
pub struct PolicyExplain {
    /// A tool, as `tool list` prints it
    pub tool: Option<String>,
    /// Its arguments as JSON; or, where the tool has one that matters, its text: a command, a path, an address
    #[arg(default_value = "{}", hide_default_value = true)]
    pub arguments: String,
    #[command(flatten)]
    pub grants: Grants,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Tool {
    /// List the tools of a run with these flags
    List {
        #[command(flatten)]
        grants: Box<Grants>,
        /// One JSON object per line, with the schema of the arguments
        #[arg(long)]
        json: bool,
    },
    /// Run a tool, and print what the model would get
    ///
    /// The status is 0 when it did what it was asked for, 1 when it could not, 2 when the call makes no sense, and 77 when the
    /// policy refuses it.
    Run {
        /// The tool, as `tool list` prints it
        name: String,
        /// Its arguments, as a JSON object; `-` reads them from standard input
        #[arg(default_value = "{}", hide_default_value = true)]
        arguments: String,
        #[command(flatten)]
        grants: Box<Grants>,
        /// Reach no address but loopback
        #[arg(long)]
        offline: bool,
    },
}

/// Let a directory's AGENTS.md and skills/ tell the agent how to work
///
/// Before that they are ignored, since whoever wrote them would else be in command. Read them first. The list is kept in
/// ~/.nanobot/trust.json, by real path; a directory that was replaced since is not trusted any more.
#[derive(Args, Clone, Debug)]
pub struct Trust {
    /// The directory [default: the current one]
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// List the trusted directories
    #[arg(long, conflicts_with_all = ["directory", "revoke"])]
    pub list: bool,
    /// Trust it no more
    #[arg(long)]
    pub revoke: bool,
    /// One JSON object per line, with `--list`
    #[arg(long, requires = "list")]
    pub json: bool,
}

/// See what was spent: tokens, money and runs
///
/// Every call of a model is a line of the ledger, and counts when it was made. A run is a turn, however many calls it took.
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
}

/// Since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Date(jiff::civil::Date),
    /// So many days, of which today is the last.
    Days(u16),
    Hours(u16),
    /// The first day of this month.
    Month,
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

/// The number of a turn.
fn turn(text: &str) -> Result<u64, String> {
    let number = text.parse().ok();
    number.ok_or("no such turn; `nanobot undo --list` has their numbers".into())
}

/// One of several between commas, which may have blanks around them.
fn trimmed(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_owned())
}

/// A time of more than nothing: seconds, or numbers with units.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds: &f64| seconds.is_finite());
    let time = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|time| Duration::try_from(time).ok()),
    };
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| "expected seconds, or a time as `90s`, `5m`, `1h30m`".into())
}

/// A number of hours, days or weeks.
fn age(text: &str) -> Result<Duration, String> {
    let hours = |unit: char| match unit {
        'h' => Some(1),
        'd' => Some(24),
        'w' => Some(7 * 24),
        _ => None,
    };
    let split = text.len().saturating_sub(1);
    let parts = text.split_at_checked(split);
    parts
        .and_then(|(count, unit)| {
            let hours: u64 = hours(unit.chars().next()?)?;
            let count: u64 = count.parse().ok()?;
            count.checked_mul(hours)?.checked_mul(3600)
        })
        .map(Duration::from_secs)
        .ok_or_else(|| "expected hours, days or weeks, as `12h`, `30d`, `8w`".into())
}

fn since(text: &str) -> Result<Since, String> {
    let count = |unit: char| -> Option<u16> {
        let count = text.strip_suffix(unit)?.parse().ok();
        count.filter(|count| *count > 0)
    };
    let date = || text.parse().ok().filter(|_| text.len() == 10);
    match text {
        "today" => Some(Since::Days(1)),
        "month" => Some(Since::Month),
        _ => count('d')
            .map(Since::Days)
            .or_else(|| count('h').map(Since::Hours))
            .or_else(|| date().map(Since::Date)),
    }
    .ok_or_else(|| "expected a date as `2026-11-01`, or `7d`, `12h`, `today`, `month`".into())
}

fn dollars(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected an amount in US dollars, as `0.50`".into()),
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=2.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 2".into()),
    }
}
