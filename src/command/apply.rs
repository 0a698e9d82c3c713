//! `nanobot apply`: applies a patch.

use crate::cli::apply::ApplyArgs;
use crate::ops::apply::{self, AppliedPatch};
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize_line;
use nanobot_tool::git_patch::apply::AppliedChange;
use std::path::Path;

/// Runs `nanobot apply`.
pub fn run(ctx: &Context, arguments: &ApplyArgs) -> Result<Exit> {
    let ApplyArgs { file, directory, allow } = arguments;
    let AppliedPatch { changes, stop } = apply::apply(ctx, file, directory.as_deref(), allow)?;
    let display = |path: &Path| sanitize_line(&path.display().to_string());
    let line = |change: &AppliedChange| match change {
        AppliedChange::Created(path) => format!("created {}\n", display(path)),
        AppliedChange::Changed(path) => format!("changed {}\n", display(path)),
        AppliedChange::Removed(path) => format!("removed {}\n", display(path)),
        AppliedChange::Renamed { from, to } => {
            format!("renamed {} to {}\n", display(from), display(to))
        }
    };
    ctx.terminal.print(&changes.iter().map(line).collect::<String>())?;
    stop.map_or(Ok(Exit::Answered), |stop| Err(stop.into()))
}
