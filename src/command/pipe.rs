//! `nanobot pipe`: reads the flags that apply to every message.

use crate::cli::agent::DEFAULT_MAX_PARALLEL;
use crate::cli::pipe::PipeArgs as Arguments;
use crate::command::arguments::model_options;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::ops::pipe::{self, PipeOptions};
use crate::ops::turn_options::TurnOptions;
use anyhow::Result;
use std::time::Duration;

/// Time for which a message waits for a session that another run uses.
const SESSION_LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Runs `nanobot pipe`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let Arguments { jobs, name, any_session, verbose, model, grants } = arguments;
    let mut grants = grants.clone();
    if grants.directory.is_none() {
        grants.directory = Some(ctx.settings()?.workspace);
    }
    let options = TurnOptions {
        grants,
        lock_timeout: SESSION_LOCK_TIMEOUT,
        max_parallel: DEFAULT_MAX_PARALLEL as usize,
        verbose: *verbose,
        ..model_options(model.clone())
    };
    let (jobs, any_session) = (*jobs as usize, *any_session);
    pipe::run(ctx, &options, &PipeOptions { jobs, name: name.clone(), any_session })
}
