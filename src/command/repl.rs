//! `nanobot repl`, and the program commands that its slash commands run.

use super::{
    config, mcp, memory, model, onboard, parse, session, skill, status, tool, trust, undo, usage,
    usage_error,
};
use crate::cli::repl::ReplArgs;
use crate::cli::{Cli, CliCommand};
use crate::ops::agent_turn;
use crate::ops::context::Context;
use crate::ops::jobs::unseen_answers;
use crate::options::grants::Grants;
use crate::options::turn::{
    DEFAULT_LOCK_TIMEOUT, OutputOptions, RecordingOptions, SessionChoice, TurnLimits, TurnOptions,
};
use crate::repl::{self, program_commands::ProgramCommands};
use anyhow::Result;
use clap::Parser;
use nanobot_base::error::Exit;
use nanobot_os::terminal::Terminal;
use std::ffi::OsString;

/// Runs `nanobot repl`.
pub fn run(ctx: &Context, arguments: &ReplArgs) -> Result<Exit> {
    start(ctx, turn_options(arguments))
}

fn turn_options(arguments: &ReplArgs) -> TurnOptions {
    let ReplArgs {
        session,
        last,
        fork,
        new,
        verbose,
        markdown: _,
        no_markdown,
        model,
        grants,
        offline,
        replay,
    } = arguments.clone();
    TurnOptions {
        session: SessionChoice {
            key: session,
            last,
            fork,
            new,
            lock_timeout: DEFAULT_LOCK_TIMEOUT,
            ..SessionChoice::default()
        },
        output: OutputOptions { verbose, no_markdown, ..OutputOptions::default() },
        model,
        grants,
        limits: TurnLimits { offline, ..TurnLimits::default() },
        recording: RecordingOptions { replay, ..RecordingOptions::default() },
        ..TurnOptions::default()
    }
}

/// Runs the REPL. Where nothing is configured yet, onboarding comes first.
pub(super) fn start(ctx: &Context, options: TurnOptions) -> Result<Exit> {
    let is_first_run = Terminal::is_interactive()
        && options.recording.replay.is_none()
        && ctx.config.is_none()
        && !ctx.paths.config.exists()
        && agent_turn::select_provider(ctx, &options).is_err();
    if is_first_run {
        let (exit, _) = onboard::ask_and_write(ctx)?;
        if exit != Exit::Answered {
            return Ok(exit);
        }
    }
    unseen_answers::report(ctx);
    repl::run(ctx, options, &ReplProgramCommands)
}

struct ReplProgramCommands;

impl ProgramCommands for ReplProgramCommands {
    fn run(&self, ctx: &Context, arguments: &[&str], options: &TurnOptions) -> Result<()> {
        let line = std::iter::once("nanobot").chain(arguments.iter().copied());
        let mut line = line.map(OsString::from).collect();
        parse::replace_names(&mut line);
        let cli = match Cli::try_parse_from(line) {
            Ok(cli) => cli,
            Err(error) if error.use_stderr() => return Err(usage_error::to_error(&error)),
            Err(help) => return ctx.terminal.print(&help.render().to_string()),
        };
        match cli.command {
            CliCommand::Session { command } => session::run(ctx, &command),
            CliCommand::Memory { command } => memory::run(ctx, &command),
            CliCommand::Mcp { command } => mcp::dispatch(ctx, &command),
            CliCommand::Undo(arguments) => {
                // A session that is not saved has no turns that it could name.
                let session = options.session.key.as_deref().unwrap_or_default();
                undo::run(ctx, &arguments, Some(session))
            }
            CliCommand::Usage(arguments) => usage::run(ctx, &arguments),
            CliCommand::Status(arguments) => status::run_for_turns(ctx, &arguments, options),
            CliCommand::Model { command } => model::run(ctx, &command),
            CliCommand::Config { command } => config::run(ctx, &command),
            CliCommand::Trust(mut arguments) => {
                // As elsewhere in the conversation, a path is relative to the directory of its turns.
                if let Some(directory) = &options.grants.directory {
                    arguments.path = Some(directory.join(arguments.path.unwrap_or_default()));
                }
                trust::run(ctx, &arguments)
            }
            other => unreachable!("no slash command runs {other:?}"),
        }
        .map(drop)
    }

    fn list_tools(&self, ctx: &Context, grants: &Grants) -> Result<()> {
        tool::list_repl_tools(ctx, grants)
    }

    fn show_cost(&self, ctx: &Context, session: &str) -> Result<()> {
        usage::print_conversation(ctx, session)
    }

    fn show_diff(&self, ctx: &Context, session: &str, of_all_turns: bool) -> Result<()> {
        undo::print_diff(ctx, session, of_all_turns)
    }

    fn show_skills(&self, ctx: &Context, name: &str, options: &TurnOptions) -> Result<()> {
        skill::show_in_repl(ctx, name, options)
    }
}
