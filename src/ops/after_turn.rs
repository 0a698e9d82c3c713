//! Deferred work after the answer is printed: consolidation of old messages into the memory. It never delays the answer
//! or its end-of-file.

use crate::error::Exit;
use crate::ops::consolidation::consolidator;
use crate::ops::consolidation::deferred::DeferredConsolidation;
use crate::ops::context::Context;
use crate::ops::model::ModelHandle;
use crate::ops::turn_options::TurnOptions;
use crate::report::Level;
use crate::session::Session;
use crate::settings::{Consolidate, Settings};
use crate::sys::process;
use anyhow::{Context as _, Result};
use std::time::Duration;

/// The deferred work of a turn.
pub(crate) struct PostTurnWork {
    consolidation: DeferredConsolidation,
    mode: Consolidate,
}

/// Plans the work that follows a turn of `session`, answered by `model`; `None` if there is no work. The work may
/// cost at most what is left of the turn's budget.
pub(crate) fn plan(
    arguments: &TurnOptions,
    settings: &Settings,
    session: &Session,
    chosen: Option<&ModelHandle>,
) -> Option<PostTurnWork> {
    let is_dry_run_or_replay = arguments.is_dry_run_or_replay();
    // Offline, only the model that has just answered is known to be reachable.
    let is_out_of_reach =
        arguments.offline && (chosen.is_none() || settings.memory.model.is_some());
    let mode = settings.memory.consolidate;
    if mode == Consolidate::Manual || is_dry_run_or_replay || is_out_of_reach {
        return None;
    }
    let context = chosen.map(|chosen| chosen.context);
    let terms = consolidator::terms(settings, context.unwrap_or(settings.context_window));
    let (max_cost, max_tokens) = match chosen {
        Some(chosen) => chosen.run.left()?,
        None => (arguments.max_cost, arguments.max_total_tokens),
    };
    session.is_due(&terms).then(|| PostTurnWork {
        consolidation: DeferredConsolidation {
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

impl PostTurnWork {
    /// Does the work after a run that ended with `exit`. It does not change that status.
    pub(crate) fn run(&self, ctx: &Context, exit: Exit, verbose: bool) {
        if !matches!(exit, Exit::Answered | Exit::Denied) {
            return;
        }
        let is_detached = match self.mode {
            Consolidate::Detached => true,
            Consolidate::Auto => process::has_terminal(),
            Consolidate::Inline | Consolidate::Manual => false,
        };
        let done = match is_detached {
            true => process::detach(&self.consolidation.arguments(ctx))
                .context("start the consolidation process"),
            false => self.inline(ctx, verbose),
        };
        if let (Err(error), true) = (done, verbose) {
            ctx.terminal
                .complain(&format!("nanobot: consolidation failed: {error:#}"));
        }
    }

    fn inline(&self, ctx: &Context, verbose: bool) -> Result<()> {
        ctx.terminal.hang_up(verbose)?;
        let level = if verbose { Level::Lines } else { Level::Quiet };
        self.consolidation.run(ctx, Duration::ZERO, level)
    }
}
