//! The command line as typed: clap types and nothing else. The doc comments are the help and the man page.

use crate::options::value::path;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

pub mod agent;
pub mod apply;
pub mod channel;
pub mod completions;
pub mod config;
pub mod cron;
pub mod forget;
pub mod grammar;
pub mod json_table;
pub mod mcp;
pub mod memory;
pub mod model;
pub mod onboard;
pub mod page_table;
pub mod pages;
pub mod policy;
pub mod repl;
pub mod run;
pub mod serve;
pub mod session;
pub mod skill;
pub mod state_files;
pub mod status;
pub mod topics;
pub mod undo;
pub mod uninstall;
pub mod usage;

/// A personal AI agent that behaves like a Unix program
///
/// One invocation is one turn: nanobot reads its input, asks a model, runs the tools the model calls until it is done,
/// prints the answer on standard output and exits with a status that says why.
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
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Options of every command
#[derive(Args, Clone, Debug, Default)]
pub struct GlobalArgs {
    /// Use this config file
    #[arg(short, long, value_name = "FILE", global = true, help_heading = "Global options", value_parser = path())]
    pub config: Option<PathBuf>,
    /// Use this workspace instead of the configured one
    #[arg(short, long, value_name = "DIR", global = true, help_heading = "Global options", value_parser = path())]
    pub workspace: Option<PathBuf>,
    /// When to use colour
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        global = true,
        help_heading = "Global options"
    )]
    pub color: ColorWhen,
    /// Print without colours, and change nothing that was printed
    ///
    /// For screen readers: no markdown, no status lines; each line of input is read by the terminal itself.
    #[arg(long, global = true, hide_short_help = true, help_heading = "Global options")]
    pub plain: bool,
    /// Print only errors on standard error
    #[arg(short, long, global = true, help_heading = "Global options")]
    pub quiet: bool,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum CliCommand {
    // These first lines are for the list of commands. The argument types repeat them for their own help, which is built only
    // when it is needed.
    /// Run one turn and print the answer
    #[command(visible_alias = "a")]
    Agent(Box<agent::AgentArgs>),
    /// Run a prompt file as a program
    Run(Box<run::RunArgs>),
    /// Chat with the agent at the terminal, as `nanobot` alone does
    Repl(Box<repl::ReplArgs>),
    /// Create a config and a workspace; existing files are kept
    Onboard(onboard::OnboardArgs),
    /// Show, check and change the config
    Config {
        #[command(subcommand)]
        command: config::ConfigCommand,
    },
    /// List, search, copy, repair and remove sessions
    Session {
        #[command(subcommand)]
        command: session::SessionCommand,
    },
    /// Show and edit the agent's memory, and undo changes to it
    Memory {
        #[command(subcommand)]
        command: memory::MemoryCommand,
    },
    /// List models and providers, choose one, and log in
    Model {
        #[command(subcommand)]
        command: model::ModelCommand,
    },
    /// Manage scheduled jobs, which the system's cron starts
    Cron {
        #[command(subcommand)]
        command: cron::CronCommand,
    },
    /// Answer messages of chat services
    #[command(alias = "channels")]
    Channel {
        #[command(subcommand)]
        command: channel::ChannelCommand,
    },
    /// Answer programs, editors, MCP clients and webhooks
    Serve {
        #[command(subcommand)]
        command: serve::ServeCommand,
    },
    /// Apply a patch to the current directory
    Apply(apply::ApplyArgs),
    /// Undo the file changes of a turn
    Undo(undo::UndoArgs),
    /// Remove a text, a session or a sender from all that nanobot keeps
    Forget(forget::ForgetArgs),
    /// Show the configuration, and check whether it works
    Status(status::StatusArgs),
    /// Show what a run may do, and check the sandbox
    Policy {
        #[command(subcommand)]
        command: policy::PolicyCommand,
    },
    /// List the agent's tools, and run them by hand
    Tool {
        #[command(subcommand)]
        command: policy::ToolCommand,
    },
    /// Add and check MCP servers, and accept their tools
    Mcp {
        #[command(subcommand)]
        command: mcp::McpCommand,
    },
    /// List, install, check and remove skills
    Skill {
        #[command(subcommand)]
        command: skill::SkillCommand,
    },
    /// Trust a directory's instructions, skills and tools
    Trust(policy::TrustArgs),
    /// Show usage: tokens, cost and runs
    Usage(usage::UsageArgs),
    /// Remove nanobot's crontab lines and files
    Uninstall(uninstall::UninstallArgs),
    /// Print a shell completion script
    Completions(completions::CompletionsArgs),
    /// Print a topic
    #[command(hide = true)]
    Topic {
        #[arg(value_parser = topics::find_topic)]
        topic: &'static topics::HelpTopic,
    },
    /// (a server in the Python program; replaced by cron and pipes)
    #[command(hide = true)]
    Gateway {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        rest: Vec<String>,
    },
}

impl CliCommand {
    /// True if a flag asks for log lines.
    pub fn asks_for_logs(&self) -> bool {
        match self {
            Self::Agent(agent) => agent.turn.output.is_verbose(),
            Self::Run(run) => run.turn.output.is_verbose(),
            Self::Repl(repl) => repl.verbose,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    #[default]
    Auto,
    Always,
    Never,
}

impl ColorWhen {
    /// True or false if colours are forced on or off; `None` if the output decides.
    pub fn forced(self) -> Option<bool> {
        match self {
            Self::Auto => None,
            Self::Always => Some(true),
            Self::Never => Some(false),
        }
    }
}
