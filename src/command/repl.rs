//! `nanobot repl`, and the program commands that its slash commands run.

use super::{arguments, mcp, memory, session, skill, tool, undo, usage};
use crate::cli::{self, Cli};
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use crate::repl::{self, program_commands::ProgramCommands};
use anyhow::Result;
use clap::Parser;

/// Runs `nanobot repl`.
pub fn run(ctx: &Context, arguments: &cli::repl::Repl) -> Result<Exit> {
    repl::run(ctx, arguments::repl_turn_options(arguments), &Commands)
}

/// Runs the REPL for `nanobot agent` without a message.
pub fn run_as_agent(ctx: &Context, arguments: &cli::agent::Agent) -> Result<Exit> {
    repl::run(ctx, arguments::turn_options(arguments), &Commands)
}

struct Commands;

impl ProgramCommands for Commands {
    fn run(&self, ctx: &Context, words: &[&str], options: &TurnOptions) -> Result<()> {
        let words = std::iter::once("nanobot").chain(words.iter().copied());
        let parsed = match Cli::try_parse_from(words) {
            Ok(parsed) => parsed,
            Err(error) => {
                ctx.terminal.complain(error.render().to_string().trim_end());
                return Ok(());
            }
        };
        match parsed.command {
            cli::Command::Session { command } => session::run(ctx, &command),
            cli::Command::Memory { command } => memory::run(ctx, &command),
            cli::Command::Mcp { command } => mcp::within(ctx, &command),
            cli::Command::Undo(arguments) => {
                undo::within(ctx, &arguments, options.session.as_deref())
            }
            cli::Command::Usage(arguments) => usage::run(ctx, &arguments),
            other => unreachable!("no slash command stands for {other:?}"),
        }
        .map(drop)
    }

    fn list_tools(&self, ctx: &Context, options: &TurnOptions) -> Result<()> {
        tool::list(ctx, &options.grants, false).map(drop)
    }

    fn show_skills(&self, ctx: &Context, name: &str, options: &TurnOptions) -> Result<()> {
        skill::show_in_repl(ctx, name, options)
    }
}
