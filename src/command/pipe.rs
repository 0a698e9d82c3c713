//! `nanobot pipe`: reads the flags that apply to every message.

use crate::cli::pipe::PipeArgs as Arguments;
use crate::ops::context::Context;
use crate::ops::pipe::{self, PipeOptions};
use crate::options::turn::{DEFAULT_LOCK_TIMEOUT, OutputOptions, SessionChoice, TurnOptions};
use anyhow::Result;
use nanobot_base::error::Exit;

/// Runs `nanobot pipe`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let Arguments { jobs, name, any_session, verbose, model, grants } = arguments;
    let mut grants = grants.clone();
    if grants.directory.is_none() {
        grants.directory = Some(ctx.settings()?.workspace);
    }
    let options = TurnOptions {
        grants,
        session: SessionChoice { lock_timeout: DEFAULT_LOCK_TIMEOUT, ..SessionChoice::default() },
        output: OutputOptions { verbose: *verbose, ..OutputOptions::default() },
        model: model.clone(),
        ..TurnOptions::default()
    };
    let (jobs, any_session) = (*jobs as usize, *any_session);
    pipe::run(ctx, &options, &PipeOptions { jobs, name: name.clone(), any_session })
}
