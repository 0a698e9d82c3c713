//! The work after a turn, when the answer is printed: the export of its spans, and consolidation of old messages into the memory. It
//! never delays the answer, nor the end-of-file of a process that prints nothing more.

use crate::ops::agent_turn::span_export::SpanExport;
use crate::ops::consolidation::consolidator;
use crate::ops::consolidation::deferred::DeferredConsolidation;
use crate::ops::context::Context;
use crate::ops::model::ModelHandle;
use crate::options::turn::TurnOptions;
use anyhow::{Context as _, Result};
use nanobot_agent::report::ProgressLevel;
use nanobot_base::error::Exit;
use nanobot_config::settings::{ConsolidationMode, Settings};
use nanobot_model::provider::budget::RemainingBudget;
use nanobot_sandbox::process;
use nanobot_store::memory::Memory;
use nanobot_store::session::Session;
use std::time::Duration;

/// The post-turn work of a turn.
#[derive(Default)]
pub(crate) struct PostTurnWork {
    pub(super) span_export: Option<SpanExport>,
    pub(super) consolidation: Option<PlannedConsolidation>,
}

/// The consolidation that follows a turn.
pub(crate) struct PlannedConsolidation {
    memory: Memory,
    consolidation: DeferredConsolidation,
    mode: ConsolidationMode,
}

/// Plans the consolidation that follows a turn of `session`, answered by `model`; `None` if none is due. `model` is
/// `None` for `/new`, which asks none. It may cost at most the rest of the turn's budget.
pub(crate) fn plan_consolidation(
    ctx: &Context,
    options: &TurnOptions,
    settings: &Settings,
    session: &Session,
    model: Option<&ModelHandle>,
) -> Option<PlannedConsolidation> {
    // Offline, only the model that has just answered is certainly reachable.
    let is_out_of_reach =
        options.limits.offline && (model.is_none() || settings.memory.model.is_some());
    let mode = settings.memory.consolidate;
    if mode == ConsolidationMode::Manual
        || options.recording.is_dry_run_or_replay()
        || is_out_of_reach
    {
        return None;
    }
    let context_tokens = model.map(|model| model.context_tokens);
    let thresholds = consolidator::consolidation_thresholds(
        settings,
        context_tokens.unwrap_or(settings.context_window),
    );
    let RemainingBudget { max_cost, max_tokens } = match model {
        Some(model) => model.budget.remaining()?,
        None => RemainingBudget {
            max_cost: options.model.max_cost,
            max_tokens: options.limits.max_total_tokens,
        },
    };
    session.is_due(&thresholds).then(|| PlannedConsolidation {
        memory: Memory::new(&settings.workspace, &ctx.clock),
        consolidation: DeferredConsolidation {
            key: session.key().to_owned(),
            model: settings.memory.model.clone().or_else(|| options.model.name.clone()),
            offline: options.limits.offline,
            no_stream: options.model.no_stream,
            context_tokens,
            max_cost,
            max_tokens,
        },
        mode,
    })
}

/// The use of the output streams after the post-turn work.
#[derive(Clone, Copy)]
pub(crate) enum OutputUse {
    /// More is printed, by this thread or another.
    GoesOn,
    /// Nothing more is printed but errors, if this is true.
    Ended { keeps_errors: bool },
}

impl PostTurnWork {
    /// Does the work after a run that ended with `exit`. It does not change that status.
    pub(crate) fn run(&self, ctx: &Context, exit: Exit, output_use: OutputUse) {
        if let Some(export) = &self.span_export {
            export.run(ctx, matches!(output_use, OutputUse::Ended { .. }));
        }
        if let Some(consolidation) = &self.consolidation {
            consolidation.run(ctx, exit, output_use);
        }
    }
}

impl PlannedConsolidation {
    /// Does the work after a run that ended with `exit`, in a separate process or in this one. It does not change that status, and
    /// its failures are notices. If nothing more is printed, work in this process closes the output first, so that its readers
    /// need not wait.
    fn run(&self, ctx: &Context, exit: Exit, output_use: OutputUse) {
        if !matches!(exit, Exit::Answered | Exit::Denied) {
            return;
        }
        if let Err(error) = self.memory.check_writable() {
            ctx.notice(&format!("the memory cannot be updated: {error:#}"));
            return;
        }
        let is_detached = match self.mode {
            ConsolidationMode::Detached => true,
            ConsolidationMode::Auto => process::has_terminal(),
            ConsolidationMode::Inline | ConsolidationMode::Manual => false,
        };
        let result = if is_detached {
            process::spawn_detached(&self.consolidation.arguments(ctx))
                .context("start the consolidation process")
        } else {
            self.run_here(ctx, output_use)
        };
        if let Err(error) = result {
            ctx.notice(&format!("consolidation failed: {error:#}"));
        }
    }

    fn run_here(&self, ctx: &Context, output_use: OutputUse) -> Result<()> {
        let mut level = ProgressLevel::Quiet;
        if let OutputUse::Ended { keeps_errors } = output_use {
            ctx.terminal.close_output(keeps_errors)?;
            if keeps_errors {
                level = ProgressLevel::Lines;
            }
        }
        self.consolidation.run(ctx, Duration::ZERO, level)
    }
}
