//! `nanobot serve pipe`: reads the flags that apply to every message.

use crate::cli::pipe::PipeArgs;
use crate::ops::context::Context;
use crate::ops::pipe::{self, PipeOptions};
use crate::options::turn::{DEFAULT_LOCK_TIMEOUT, OutputOptions, SessionChoice, TurnOptions};
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `nanobot serve pipe`.
pub fn run(ctx: &Context, arguments: &PipeArgs) -> Result<Exit> {
    let PipeArgs { jobs, name, any_session, verbose, model, grants } = arguments;
    let mut grants = grants.clone();
    if grants.directory.is_none() {
        grants.directory = Some(ctx.settings()?.workspace);
    }
    let turn_options = TurnOptions {
        grants,
        session: SessionChoice { lock_timeout: DEFAULT_LOCK_TIMEOUT, ..SessionChoice::default() },
        output: OutputOptions { verbose: *verbose, ..OutputOptions::default() },
        model: model.clone(),
        ..TurnOptions::default()
    };
    let pipe_options =
        PipeOptions { jobs: *jobs as usize, name: name.clone(), any_session: *any_session };
    pipe::run(ctx, &turn_options, &pipe_options)
}
