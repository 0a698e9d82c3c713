//! `nanobot serve acp`: reads the flags that apply to every turn.

use crate::cli::acp::AcpArgs;
use crate::ops::acp;
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `nanobot serve acp`.
pub fn run(ctx: &Context, arguments: &AcpArgs) -> Result<Exit> {
    acp::serve(ctx, &arguments.turns.to_turn_options())
}
