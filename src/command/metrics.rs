//! `nanobot metrics`: prints the metrics for Prometheus.

use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::metrics;
use anyhow::Result;

/// Runs `nanobot metrics`.
pub fn run(ctx: &Context) -> Result<Exit> {
    ctx.terminal.print(&metrics::collect(ctx)?)?;
    Ok(Exit::Answered)
}
