//! `nanobot session`: what is done with conversations.

use super::value::{Since, age, since};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, Subcommand)]
pub enum Session {
    /// List the conversations, newest first
    List(List),
    /// Print a conversation, and what it came to
    Show(Show),
    /// Find text in all conversations and in the memory, newest first
    ///
    /// Prints `KEY:NUMBER TIME role: line` for each line that matches, where NUMBER is the message's, from 1. The status is
    /// 0 when something was found, and 1 when nothing was.
    Search(Search),
    /// Write a conversation as one document, to keep or to pass on
    Export(Export),
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
    /// Tell what would be sent of a conversation, part by part
    ///
    /// Each part, its tokens, and why.
    Context {
        /// Its key, as `session list` prints it
        #[arg(default_value = "cli:direct")]
        key: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Sum a conversation up, so that less of it is sent
    ///
    /// The log keeps everything.
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
    /// Bring a conversation back from the trash, or list what is there
    ///
    /// Without a key it lists.
    Restore {
        /// The key it had
        key: Option<String>,
    },
    /// Move conversations that were not used for long to the trash
    ///
    /// Says which, and asks; off a terminal it takes `--yes`. Conversations in use are left alone. What has been in the
    /// trash for 30 days is removed.
    Prune(Prune),
    /// Tell what is odd about conversations, and mend them
    ///
    /// Mended is what can be without rewriting them.
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
pub struct List {
    /// Only those whose key matches: a pattern with `*` and `?`, or a part of the key
    pub pattern: Option<String>,
    /// The order
    #[arg(long, value_name = "ORDER", default_value = "newest")]
    pub sort: Sort,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Only those used since then
    ///
    /// A date as `2026-11-01`, `7d`, `12h`, `today`, or `month`.
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
pub struct Show {
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
pub struct Search {
    /// A regular expression
    ///
    /// It is matched against each line of what was said and of what tools gave.
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
    /// Print only keys, and names of the memory's files
    #[arg(short = 'l', long, conflicts_with = "json")]
    pub list: bool,
    /// One JSON object per line that matches
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Export {
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
pub struct Prune {
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
