//! The command line as typed: clap types and nothing else. The doc comments are the help and the man page.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

pub mod agent;
pub mod completions;
pub mod config;
pub mod cron;
pub mod grants;
pub mod heartbeat;
pub mod mcp;
pub mod memory;
pub mod model;
pub mod model_flags;
pub mod onboard;
pub mod pages;
pub mod policy;
pub mod provider;
pub mod repl;
pub mod session;
pub mod skill;
pub mod status;
pub mod undo;
pub mod usage;
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
    Agent(Box<agent::Agent>),
    /// Talk with the agent, line by line
    Repl(Box<repl::Repl>),
    /// Write a config and a workspace; what is there is kept
    Onboard(onboard::Onboard),
    /// See and change the config
    Config {
        #[command(subcommand)]
        command: config::Config,
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
        command: model::Model,
    },
    /// See the providers; log in to those with accounts, and out again
    Provider {
        #[command(subcommand)]
        command: provider::Provider,
    },
    /// Run jobs at their times: the system's cron starts each
    Cron {
        #[command(subcommand)]
        command: cron::Cron,
    },
    /// Look once whether HEARTBEAT.md has something to do, and do it
    Heartbeat(heartbeat::Heartbeat),
    /// Take back what a turn changed with its file tools
    Undo(undo::Undo),
    /// Tell what is configured, and whether it works
    Status(status::Status),
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
    Usage(usage::Usage),
    /// Print a script that lets a shell complete commands and names
    Completions(completions::Completions),
    /// (in the Python program: a server; here cron and pipes do its work)
    #[command(hide = true)]
    Gateway {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    #[default]
    Auto,
    Always,
    Never,
}
