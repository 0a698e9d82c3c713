//! `nanobot agent`: runs one turn from the command line.

use super::repl;
use crate::cli::agent::{AgentArgs, TurnArgs};
use crate::ops::agent_turn;
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::unseen_answers;
use crate::ops::worktree::Worktree;
use crate::options::turn::{OutputFormat, TurnOptions};
use anyhow::Result;
use nanobot_agent::report::ReportFormat;
use nanobot_base::error::Exit;
use nanobot_os::terminal::Terminal;

/// Runs `nanobot agent`.
pub fn run(ctx: &Context, arguments: &AgentArgs) -> Result<Exit> {
    let mut options = turn_options(&arguments.turn);
    // `-p` alone only says that this is not a conversation.
    let printed = arguments.print.clone().filter(|text| !text.as_str().is_empty());
    options.input.message = options.input.message.or(arguments.text.clone()).or(printed);
    if options.prompt.bare {
        options.make_bare();
    }
    if arguments.print.is_none() && is_conversation(&arguments.turn, &options) {
        repl::start(ctx, options)
    } else {
        Ok(run_turn(ctx, &arguments.turn, options))
    }
}

pub(super) fn turn_options(arguments: &TurnArgs) -> TurnOptions {
    let TurnArgs {
        input,
        session,
        output,
        prompt,
        model,
        schema,
        grants,
        server_files,
        worktree: _,
        remove_worktree: _,
        propose,
        limits,
        until,
        stdin,
        recording,
    } = arguments.clone();
    TurnOptions {
        input,
        stdin,
        session,
        output,
        prompt,
        model,
        grants,
        limits,
        until,
        propose,
        recording,
        schema,
        server_files,
        servers: Vec::new(),
    }
}

/// Runs one turn with `options`. Only the form of the output and the worktree are taken from `arguments`, since `nanobot run`
/// changes the options of its flags.
pub(super) fn run_turn(ctx: &Context, arguments: &TurnArgs, mut options: TurnOptions) -> Exit {
    let format = match (arguments.output.json, arguments.output.output_format) {
        (true, _) | (_, OutputFormat::Json) => ReportFormat::Json,
        (_, OutputFormat::StreamJson) => ReportFormat::StreamJson,
        (_, OutputFormat::Text) => ReportFormat::Text,
    };
    let name = arguments.worktree.as_deref();
    let worktree = match name.map(|name| Worktree::open(ctx, &options.grants, name)).transpose() {
        Ok(worktree) => worktree,
        Err(error) => return report_error(&error, ctx.terminal),
    };
    if let Some(worktree) = &worktree {
        worktree.grant(&mut options.grants);
    }
    let exit = agent_turn::run(ctx, &options, format);
    if format == ReportFormat::Text {
        unseen_answers::report(ctx);
    }
    if arguments.remove_worktree
        && let Some(worktree) = worktree
    {
        worktree.remove(ctx);
    }
    exit
}

/// True if there is no input, no flag of a single turn, and an interactive terminal: then `agent` is the REPL.
fn is_conversation(arguments: &TurnArgs, options: &TurnOptions) -> bool {
    let has_no_turn_flags = !arguments.output.json
        && arguments.output.output_format == OutputFormat::Text
        && arguments.schema.is_none()
        && arguments.recording.dry_run.is_none()
        && arguments.recording.record.is_none()
        && arguments.limits.timeout.is_none()
        && arguments.until.command.is_none()
        && arguments.worktree.is_none()
        && !arguments.propose
        && arguments.output.extract.is_none()
        && !arguments.prompt.bare
        && !arguments.session.resume
        && !arguments.session.ephemeral;
    let has_no_message = options.input.message.is_none()
        && arguments.input.prompt_file.is_none()
        && arguments.input.attach.is_empty();
    has_no_turn_flags && has_no_message && !arguments.stdin.stdin && Terminal::is_interactive()
}
