//! `nanobot session`: operations on sessions.

use crate::options::value::{Since, age, path, since};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum SessionCommand {
    /// List sessions, newest first
    #[command(visible_alias = "ls")]
    List(SessionListArgs),
    /// Print a session with its usage
    Show(SessionShowArgs),
    /// Search all sessions and the memory, newest first
    ///
    /// Prints `KEY:NUMBER TIME role: line` for each matching line; NUMBER is the message's, from 1. The exit status is
    /// 0 if something matches, and 1 if nothing does.
    Search(SessionSearchArgs),
    /// Write a session as one document
    Export(SessionExportArgs),
    /// Copy a session, or its beginning, to a new session
    Fork {
        /// Session key, from `session list`
        key: String,
        /// Key of the copy
        new: String,
        /// Copy only messages 1 to N, as numbered by `session show`
        #[arg(long, value_name = "N")]
        at: Option<usize>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make a session of a file: of nanobot, Claude Code or Codex
    ///
    /// A session file of nanobot (`session show --raw` prints it), a transcript of Claude Code (~/.claude/projects/…/ID.jsonl), or a rollout
    /// of Codex (~/.codex/sessions/…/rollout-….jsonl). Texts, tool calls and results are imported; images and reasoning are not. The
    /// session counts as one that has read content of others. No session is overwritten.
    Import {
        /// The file; `-` is standard input
        #[arg(value_name = "FILE", value_parser = path())]
        file: PathBuf,
        /// Key of the new session [default: import:NAME, from the name of the file]
        new: Option<String>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the parts of a session that would be sent
    ///
    /// Prints each part with its tokens and the reason.
    Context {
        /// Session key, from `session list`
        #[arg(default_value = "cli:direct")]
        key: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Summarise a session, so that less of it is sent
    ///
    /// The session file keeps everything.
    Compact {
        /// Session key, from `session list`
        key: String,
        /// Instructions for the summary
        instructions: Vec<String>,
    },
    /// Change the key of a session
    Rename {
        /// Session key, from `session list`
        key: String,
        /// New key
        new: String,
    },
    /// Give a session a title, or print the one it has
    ///
    /// Lists show the title in place of the first words.
    Title {
        /// Session key, from `session list`
        key: String,
        /// The title; empty removes it
        title: Option<String>,
        /// One JSON object
        #[arg(long, conflicts_with = "title")]
        json: bool,
        // Set by `agent`, which starts this command after its answer.
        #[arg(long, hide = true, conflicts_with_all = ["title", "json"])]
        detached: bool,
    },
    /// Move sessions to the trash
    #[command(visible_alias = "rm", alias = "delete")]
    Remove {
        /// Session keys, from `session list`
        #[arg(required = true)]
        keys: Vec<String>,
        /// Delete them permanently instead, from the trash as well
        #[arg(long)]
        for_good: bool,
    },
    /// Restore a session from the trash, or list the trash
    ///
    /// Without a key, lists the trash.
    Restore {
        /// Key of the deleted session
        key: Option<String>,
        /// One JSON object per session
        #[arg(long)]
        json: bool,
    },
    /// Move sessions that were not used lately to the trash
    ///
    /// Lists them and asks for confirmation; without a terminal it needs `--yes`. Skips sessions in use. Deletes
    /// sessions that have been in the trash for 30 days (`retention.trash` of the config). `retention.sessions` does this once a day.
    Prune(PruneArgs),
    /// Check and repair session files
    ///
    /// Repairs only what needs no rewriting of the file.
    ///
    /// Moves an incomplete last line to a side file, corrects wrong counts by appending a line, and makes the files
    /// readable by their owner only. Never changes messages. An unreadable line in the middle stays: runs skip it, and the status is 1.
    Repair {
        /// Session keys, from `session list`
        #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
        keys: Vec<String>,
        /// Check all sessions
        #[arg(long)]
        all: bool,
        /// Report only; repair nothing
        #[arg(long)]
        dry_run: bool,
        /// One JSON object per problem
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Clone, Debug)]
pub struct SessionListArgs {
    /// Only sessions whose key matches: a pattern with `*` and `?`, or part of the key
    pub pattern: Option<String>,
    /// List those of filters (`pipe:…`) and before a /rewind (`rewind:…`) too, as `--json` and a pattern do
    #[arg(short, long)]
    pub all: bool,
    /// Sort order
    #[arg(long, value_name = "ORDER", default_value = "newest")]
    pub sort: SessionSort,
    /// List at most N sessions
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only sessions used since WHEN
    ///
    /// A date such as `2026-11-01`, `7d`, `12h`, `30m`, `today`, or `month`.
    #[arg(long, value_name = "WHEN", value_parser = since)]
    pub since: Option<Since>,
    /// One JSON object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SessionSort {
    Newest,
    Oldest,
    Messages,
    Tokens,
    Cost,
    Key,
}

#[derive(Args, Clone, Debug)]
pub struct SessionShowArgs {
    /// Session key, from `session list`
    #[arg(default_value = "cli:direct")]
    pub key: String,
    /// Only the last N messages
    #[arg(short = 'n', long, value_name = "N")]
    pub last: Option<usize>,
    /// Only the messages of this turn, as `cron logs --run` names it
    #[arg(long, value_name = "ID", conflicts_with_all = ["last", "raw"])]
    pub turn: Option<String>,
    /// Print tool calls and results in full
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    pub full: bool,
    /// One JSON object per message
    #[arg(long)]
    pub json: bool,
    /// Print the session file unchanged
    #[arg(long, conflicts_with_all = ["json", "last"])]
    pub raw: bool,
}

#[derive(Args, Clone, Debug)]
pub struct SessionSearchArgs {
    /// Regular expression, or with `--meaning` any text
    ///
    /// Matched against each line of the messages and tool results.
    pub pattern: String,
    /// Print the ten messages that are closest in meaning, the closest first
    ///
    /// The messages of people and models, up to the last 5,000, are sent to the model of `memory.embeddings` of the config once, and the
    /// pattern each time.
    #[arg(long, conflicts_with_all = ["ignore_case", "fixed_strings", "context", "list"])]
    pub meaning: bool,
    /// Search only this session
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// Ignore case
    #[arg(short, long)]
    pub ignore_case: bool,
    /// Match the pattern as plain text
    #[arg(short = 'F', long)]
    pub fixed_strings: bool,
    /// Print N lines of context before and after
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0)]
    pub context: usize,
    /// Print only session keys and names of memory files
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub list: bool,
    /// One JSON object per matching line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct SessionExportArgs {
    /// Session key, from `session list`
    pub key: String,
    /// Output format; else by the extension of FILE, else markdown
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<DocumentFormat>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", value_parser = path())]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    #[value(alias = "md")]
    Markdown,
    Json,
    /// One self-contained page for a browser
    Html,
}

#[derive(Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("which").args(["older_than", "empty"]).required(true).multiple(true)))]
pub struct PruneArgs {
    /// Only sessions whose key matches: a pattern with `*` and `?`, or part of the key
    pub pattern: Option<String>,
    /// Sessions not used for TIME, such as `30d`, `12h`, `8w`
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub older_than: Option<Duration>,
    /// Sessions without messages; with `--older-than`, both must apply
    #[arg(long)]
    pub empty: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// List them only; move nothing
    #[arg(long)]
    pub dry_run: bool,
    /// List them as one JSON object per line, as `session list` does
    #[arg(long)]
    pub json: bool,
}
