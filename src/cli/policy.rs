//! `nanobot policy`, `tool` and `trust`: what a run may do, seen from outside.

use super::grants::Grants;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub enum Policy {
    /// Tell what a run with these flags may do
    ///
    /// With a tool: what is decided about a call of it, and by which rule. The status is then 0 when the
    /// call is allowed, and 77 when it is refused.
    Explain(Box<Explain>),
    /// Try whether the sandbox holds
    ///
    /// Write outside, read what is closed, open a socket, as a command of the agent would.
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
pub struct Explain {
    /// A tool, as `tool list` prints it
    pub tool: Option<String>,
    /// Its arguments as JSON, or the one that matters as text
    ///
    /// A command, a path, an address.
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

/// Let a directory's notes and skills tell the agent how to work
///
/// They are its AGENTS.md and its skills: skills/, .agents/skills/ and .claude/skills/. Before that they are ignored, since
/// whoever wrote them would else be in command. Read them first. The list is kept in ~/.nanobot/trust.json, by real path; a directory that was replaced since is not trusted any more.
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
