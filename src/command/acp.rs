//! `nanobot serve acp`: reads the flags that apply to every turn.

use crate::cli::acp::AcpArgs;
use crate::ops::acp;
use crate::ops::context::Context;
use crate::options::turn::{OutputOptions, TurnOptions};
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `nanobot serve acp`.
pub fn run(ctx: &Context, arguments: &AcpArgs) -> Result<Exit> {
    let options = TurnOptions {
        grants: arguments.grants.clone(),
        output: OutputOptions { verbose: arguments.verbose, ..OutputOptions::default() },
        model: arguments.model.clone(),
        ..TurnOptions::default()
    };
    acp::serve(ctx, &options)
}
