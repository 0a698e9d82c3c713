//! `nanobot agent`: runs one turn from the command line.

use super::repl;
use crate::cli::agent::AgentArgs;
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
    let mut options = arguments.turn.clone();
    // `-p` alone only says that this is not a conversation.
    let printed = arguments.print.clone().filter(|text| !text.as_str().is_empty());
    options.input.message = options.input.message.or(arguments.text.clone()).or(printed);
    if options.prompt.bare {
        options.make_bare();
    }
    if arguments.print.is_none() && is_conversation(&options) {
        repl::start(ctx, options)
    } else {
        Ok(run_turn(ctx, options))
    }
}

/// Runs one turn.
pub(super) fn run_turn(ctx: &Context, mut options: TurnOptions) -> Exit {
    let format = match (options.output.json, options.output.output_format) {
        (true, _) | (_, OutputFormat::Json) => ReportFormat::Json,
        (_, OutputFormat::StreamJson) => ReportFormat::StreamJson,
        (_, OutputFormat::Text) => ReportFormat::Text,
    };
    let name = options.worktree.as_deref();
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
    if options.remove_worktree
        && let Some(worktree) = worktree
    {
        worktree.remove(ctx);
    }
    exit
}

/// True if there is no input, no flag of a single turn, and an interactive terminal: then `agent` is the REPL.
fn is_conversation(options: &TurnOptions) -> bool {
    let has_no_turn_flags = !options.output.json
        && options.output.output_format == OutputFormat::Text
        && options.schema.is_none()
        && options.recording.dry_run.is_none()
        && options.recording.record.is_none()
        && options.limits.timeout.is_none()
        && options.until.command.is_none()
        && options.worktree.is_none()
        && !options.propose
        && options.output.extract.is_none()
        && !options.prompt.bare
        && !options.session.resume
        && !options.session.ephemeral;
    let has_no_message = options.input.message.is_none()
        && options.input.prompt_file.is_none()
        && options.input.attach.is_empty();
    has_no_turn_flags && has_no_message && !options.stdin.stdin && Terminal::is_interactive()
}
