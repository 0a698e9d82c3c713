//! `nanobot serve pipe`: reads the flags that apply to every message.

use crate::cli::pipe::PipeArgs;
use crate::ops::context::Context;
use crate::ops::pipe::{self, PipeOptions};
use crate::options::turn::DEFAULT_LOCK_TIMEOUT;
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `nanobot serve pipe`.
pub fn run(ctx: &Context, arguments: &PipeArgs) -> Result<Exit> {
    let PipeArgs { jobs, name, any_session, approvals, turns } = arguments;
    let mut turn_options = turns.to_turn_options();
    if turn_options.grants.directory.is_none() {
        turn_options.grants.directory = Some(ctx.settings()?.workspace);
    }
    turn_options.session.lock_timeout = DEFAULT_LOCK_TIMEOUT;
    let pipe_options = PipeOptions {
        jobs: *jobs as usize,
        name: name.clone(),
        any_session: *any_session,
        has_approvals: *approvals,
    };
    pipe::run(ctx, &turn_options, &pipe_options)
}
