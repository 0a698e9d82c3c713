//! `nanobot acp`: reads the flags that apply to every turn.

use crate::cli::acp::AcpArgs;
use crate::cli::agent::DEFAULT_MAX_PARALLEL;
use crate::command::arguments::model_options;
use crate::error::Exit;
use crate::ops::acp;
use crate::ops::context::Context;
use crate::ops::turn_options::TurnOptions;
use anyhow::Result;

/// Runs `nanobot acp`.
pub fn run(ctx: &Context, arguments: &AcpArgs) -> Result<Exit> {
    let options = TurnOptions {
        grants: arguments.grants.clone(),
        max_parallel: DEFAULT_MAX_PARALLEL as usize,
        verbose: arguments.verbose,
        ..model_options(arguments.model.clone())
    };
    acp::serve(ctx, &options)
}
