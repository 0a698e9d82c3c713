//! `nanobot metrics`: prints the metrics for Prometheus.

use crate::ops::context::Context;
use crate::ops::metrics;
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `nanobot metrics`.
pub fn run(ctx: &Context) -> Result<Exit> {
    ctx.terminal.print(&metrics::collect(ctx)?)?;
    Ok(Exit::Answered)
}
