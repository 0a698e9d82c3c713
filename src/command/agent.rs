//! `nanobot agent`: runs one turn from the command line.

use super::{arguments, repl};
use crate::cli::agent::{AgentArgs as Arguments, OutputFormat};
use crate::error::Exit;
use crate::ops::agent_turn;
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::unseen_answers;
use crate::ops::turn_options::TurnOptions;
use crate::ops::worktree::Worktree;
use crate::report::ReportFormat;
use crate::sys::terminal::Terminal;
use anyhow::Result;

/// Runs `nanobot agent`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    if is_conversation(arguments) {
        repl::run_as_agent(ctx, arguments)
    } else {
        Ok(run_with(ctx, arguments, arguments::turn_options(arguments)))
    }
}

/// Runs a turn with these flags, whose options may have been changed.
pub(super) fn run_with(ctx: &Context, arguments: &Arguments, mut options: TurnOptions) -> Exit {
    let form = match (arguments.json, arguments.output_format) {
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
    let is_plain = !arguments.json
        && arguments.output_format == OutputFormat::Text
        && arguments.schema.is_none()
        && arguments.dry_run.is_none()
        && arguments.record.is_none()
        && arguments.timeout.is_none()
        && arguments.worktree.is_none()
        && !arguments.resume
        && !arguments.ephemeral;
    let says_nothing = arguments.message.is_none()
        && arguments.prompt_file.is_none()
        && arguments.attach.is_empty();
    is_plain && says_nothing && !arguments.stdin && Terminal::is_interactive()
}
