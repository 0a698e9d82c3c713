//! What is left to do when the answer is out: memory of what is old. It is never in anybody's way: whoever waits for the
//! answer has it, and whoever reads it has seen its end.

use crate::World;
use crate::cli::Agent as Arguments;
use crate::command::asker::Chosen;
use crate::command::memory::Later;
use crate::command::scribe;
use crate::error::Exit;
use crate::report::Level;
use crate::session::Session;
use crate::settings::{Consolidate, Settings};
use crate::sys::process;
use anyhow::{Context, Result};
use std::time::Duration;

/// What is to be done, and where.
pub(super) struct Afterwards {
    later: Later,
    mode: Consolidate,
}

/// What is to be done after a turn of `session`, which `chosen` answered, where somebody did. It costs no more than is left
/// of what the turn might cost.
pub(super) fn due(
    arguments: &Arguments,
    settings: &Settings,
    session: &Session,
    chosen: Option<&Chosen>,
) -> Option<Afterwards> {
    let is_rehearsal = arguments.replay.is_some() || arguments.dry_run.is_some();
    // Without a network only who has just answered is known to be there.
    let is_out_of_reach =
        arguments.offline && (chosen.is_none() || settings.memory.model.is_some());
    let mode = settings.memory.consolidate;
    if mode == Consolidate::Manual || is_rehearsal || is_out_of_reach {
        return None;
    }
    let context = chosen.map(|chosen| chosen.context);
    let terms = scribe::terms(settings, context.unwrap_or(settings.context_window));
    let (max_cost, max_tokens) = match chosen {
        Some(chosen) => chosen.run.left()?,
        None => (arguments.max_cost, arguments.max_total_tokens),
    };
    session.is_due(&terms).then(|| Afterwards {
        later: Later {
            key: session.key().to_owned(),
            model: settings
                .memory
                .model
                .clone()
                .or_else(|| arguments.model.clone()),
            offline: arguments.offline,
            no_stream: arguments.no_stream,
            context,
            max_cost,
            max_tokens,
        },
        mode,
    })
}

impl Afterwards {
    /// Do it, after a run that ended with `exit`, which stays what it is.
    pub(super) fn run(&self, world: &World, exit: Exit, verbose: bool) {
        if !matches!(exit, Exit::Answered | Exit::Denied) {
            return;
        }
        let is_detached = match self.mode {
            Consolidate::Detached => true,
            Consolidate::Auto => process::has_terminal(),
            Consolidate::Inline | Consolidate::Manual => false,
        };
        let done = match is_detached {
            true => process::detach(&self.later.arguments(world)).context("start a process"),
            false => self.inline(world, verbose),
        };
        if let (Err(error), true) = (done, verbose) {
            world
                .terminal
                .complain(&format!("nanobot: no memory was made: {error:#}"));
        }
    }

    fn inline(&self, world: &World, verbose: bool) -> Result<()> {
        world.terminal.hang_up(verbose)?;
        let level = if verbose { Level::Lines } else { Level::Quiet };
        self.later.make(world, Duration::ZERO, level)
    }
}
