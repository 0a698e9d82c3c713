//! `nanobot status`: prints an overview on one screen; `status check` tests whether the configuration works.

use crate::cli::status::{StatusArgs, StatusCommand};
use crate::ops::context::Context;
use crate::ops::doctor::overview::Overview;
use crate::options::turn::TurnOptions;
use anyhow::Result;
use nanobot_base::error::Exit;

mod check;
mod json;
mod rows;

/// Runs `nanobot status`.
pub fn run(ctx: &Context, arguments: &StatusArgs) -> Result<Exit> {
    run_for_turns(ctx, arguments, &TurnOptions::default())
}

/// Like [`run`], for turns with these options.
pub(super) fn run_for_turns(
    ctx: &Context,
    arguments: &StatusArgs,
    options: &TurnOptions,
) -> Result<Exit> {
    if let Some(StatusCommand::Check(arguments)) = arguments.command {
        return check::run(ctx, arguments);
    }
    let overview = Overview::collect(ctx, options)?;
    if arguments.json {
        ctx.terminal.print_json(&json::overview_json(ctx, &overview))?;
    } else {
        rows::print(ctx, &overview)?;
    }
    Ok(Exit::Answered)
}
