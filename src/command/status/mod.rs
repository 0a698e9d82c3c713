//! `nanobot status`: prints an overview on one screen; `status check` tests whether the configuration works, and `status metrics`
//! prints the metrics for Prometheus.

use crate::cli::status::{StatusArgs, StatusCommand};
use crate::ops::context::Context;
use crate::ops::doctor::overview::Overview;
use crate::ops::metrics;
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
    match arguments.command {
        Some(StatusCommand::Check(arguments)) => return check::run(ctx, arguments),
        Some(StatusCommand::Metrics) => {
            ctx.terminal.print(&metrics::collect(ctx)?)?;
            return Ok(Exit::Answered);
        }
        None => {}
    }
    let overview = Overview::collect(ctx, options)?;
    if arguments.json {
        ctx.terminal.print_json(&json::overview_json(ctx, &overview))?;
    } else {
        rows::print(ctx, &overview)?;
    }
    Ok(Exit::Answered)
}
