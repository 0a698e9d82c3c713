//! `nanobot agent`: runs one turn from the command line.

use super::repl;
use crate::cli::agent::AgentArgs as Arguments;
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
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    if is_conversation(arguments) {
        repl::start(ctx, turn_options(arguments))
    } else {
        Ok(run_with(ctx, arguments, turn_options(arguments)))
    }
}

/// The options of the turn.
pub(super) fn turn_options(arguments: &Arguments) -> TurnOptions {
    let Arguments {
        input,
        session,
        output,
        model,
        schema,
        grants,
        worktree: _,
        remove_worktree: _,
        limits,
        stdin,
        recording,
    } = arguments.clone();
    TurnOptions {
        input,
        stdin,
        session,
        output,
        model,
        grants,
        limits,
        recording,
        schema,
        servers: Vec::new(),
    }
}

/// Runs a turn with these flags, whose options may have been changed.
pub(super) fn run_with(ctx: &Context, arguments: &Arguments, mut options: TurnOptions) -> Exit {
    let form = match (arguments.output.json, arguments.output.output_format) {
        (true, _) | (_, OutputFormat::Json) => ReportFormat::Json,
        (_, OutputFormat::StreamJson) => ReportFormat::StreamJson,
        (_, OutputFormat::Text) => ReportFormat::Text,
    };
    let name = arguments.worktree.as_deref();
    let opened = name.map(|name| Worktree::open(ctx, &options.grants, name));
    let worktree = match opened.transpose() {
        Ok(worktree) => worktree,
        Err(error) => return report_error(&error, ctx.terminal),
    };
    worktree.iter().for_each(|it| it.grant(&mut options.grants));
    let exit = agent_turn::run(ctx, &options, form);
    if form == ReportFormat::Text {
        unseen_answers::report(ctx);
    }
    if let Some(worktree) = worktree.filter(|_| arguments.remove_worktree) {
        worktree.remove(ctx);
    }
    exit
}

/// True if there is no input and the terminal is interactive: then `agent` is the REPL.
fn is_conversation(arguments: &Arguments) -> bool {
    let is_plain = !arguments.output.json
        && arguments.output.output_format == OutputFormat::Text
        && arguments.schema.is_none()
        && arguments.recording.dry_run.is_none()
        && arguments.recording.record.is_none()
        && arguments.limits.timeout.is_none()
        && arguments.worktree.is_none()
        && !arguments.session.resume
        && !arguments.session.ephemeral;
    let says_nothing = arguments.input.message.is_none()
        && arguments.input.prompt_file.is_none()
        && arguments.input.attach.is_empty();
    is_plain && says_nothing && !arguments.stdin.stdin && Terminal::is_interactive()
}
