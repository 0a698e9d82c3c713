//! The work after a turn, when the answer is printed: the export of its spans, a title for a new session, consolidation of old messages
//! into the memory, and, once a day, removal of old data. It never delays the answer, nor the end-of-file of a process that prints nothing more.

use crate::ops::agent_turn::source::TurnSource;
use crate::ops::agent_turn::span_export::SpanExport;
use crate::ops::consolidation::consolidator;
use crate::ops::consolidation::deferred::DeferredConsolidation;
use crate::ops::context::Context;
use crate::ops::default_session::is_begun_by_a_person;
use crate::ops::model::ModelHandle;
use crate::ops::retention::RetentionSweep;
use crate::ops::session_title::DeferredTitle;
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
    pub(super) title: Option<DeferredTitle>,
    pub(super) consolidation: Option<PlannedConsolidation>,
    pub(super) sweep: Option<RetentionSweep>,
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

/// Plans the title of a new session that a person has begun, after its first turn, which `model` has answered; `None` if it gets none.
pub(crate) fn plan_title(
    options: &TurnOptions,
    settings: &Settings,
    source: &TurnSource<'_>,
    session: &Session,
    model: &ModelHandle,
) -> Option<DeferredTitle> {
    settings.title_model.as_ref()?;
    let is_of_person =
        source.job().is_none() && source.chat().is_none() && is_begun_by_a_person(session.key());
    let answers = session.messages().iter().filter(|message| message.answer_text().is_some());
    let is_first = session.history_window().start == 0 && answers.count() == 1;
    if !is_of_person
        || !is_first
        || !session.is_stored()
        || options.limits.offline
        || options.recording.is_dry_run_or_replay()
    {
        return None;
    }
    let RemainingBudget { max_cost, max_tokens } = model.budget.remaining()?;
    let is_plain = max_cost.is_none() && max_tokens.is_none() && !options.model.no_stream;
    Some(DeferredTitle {
        key: session.key().to_owned(),
        no_stream: options.model.no_stream,
        max_cost,
        max_tokens,
        is_detached: is_plain && runs_detached(settings.memory.consolidate),
    })
}

/// The use of the output streams after the post-turn work.
#[derive(Clone, Copy)]
pub(crate) enum OutputUse {
    /// More is printed, by this thread or another.
    GoesOn,
    /// Nothing more is printed, so standard output is closed before slow work. Standard error stays open if `keeps_errors` is set.
    Ended { keeps_errors: bool },
}

impl PostTurnWork {
    /// Does the work after a run that ended with `exit`. It does not change that status.
    pub(crate) fn run(&self, ctx: &Context, exit: Exit, output_use: OutputUse) {
        if let Some(export) = &self.span_export {
            export.run(ctx, matches!(output_use, OutputUse::Ended { .. }));
        }
        if matches!(exit, Exit::Answered | Exit::Denied) {
            self.run_model_work(ctx, output_use);
        }
        if let Some(sweep) = &self.sweep {
            match output_use.close_ended(ctx) {
                Ok(()) => sweep.run(ctx),
                Err(error) => ctx.notice(&format!("old data was not removed: {error:#}")),
            }
        }
    }

    /// Does the work that needs the model.
    fn run_model_work(&self, ctx: &Context, output_use: OutputUse) {
        if let Some(title) = &self.title
            && let Err(error) = run_title(ctx, title, output_use)
        {
            let text = format!("`{}` got no title: {error:#}", title.key);
            match output_use {
                OutputUse::Ended { keeps_errors: true } => ctx.notice(&text),
                _ => log::info!(target: "session", "{text}"),
            }
        }
        if let Some(consolidation) = &self.consolidation {
            consolidation.run(ctx, output_use);
        }
    }
}

/// Gives the session a title, in a separate process or in this one.
fn run_title(ctx: &Context, title: &DeferredTitle, output_use: OutputUse) -> Result<()> {
    if title.is_detached {
        return title.start_process(ctx);
    }
    output_use.close_ended(ctx)?;
    title.run(ctx)
}

/// True if work after the answer is for a separate process.
fn runs_detached(mode: ConsolidationMode) -> bool {
    match mode {
        ConsolidationMode::Detached => true,
        ConsolidationMode::Inline => false,
        ConsolidationMode::Auto | ConsolidationMode::Manual => process::has_terminal(),
    }
}

impl OutputUse {
    /// Closes the output if nothing more is printed, so that its readers need not wait.
    fn close_ended(self, ctx: &Context) -> Result<()> {
        match self {
            Self::GoesOn => Ok(()),
            Self::Ended { keeps_errors } => ctx.terminal.close_output(keeps_errors),
        }
    }
}

impl PlannedConsolidation {
    /// Does the work in a separate process or in this one. Its failures are notices. If nothing more is printed, work in this process
    /// closes the output first.
    fn run(&self, ctx: &Context, output_use: OutputUse) {
        if let Err(error) = self.memory.check_writable() {
            ctx.notice(&format!("the memory cannot be updated: {error:#}"));
            return;
        }
        let result = if runs_detached(self.mode) {
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
        output_use.close_ended(ctx)?;
        let level = match output_use {
            OutputUse::Ended { keeps_errors: true } => ProgressLevel::Lines,
            _ => ProgressLevel::Quiet,
        };
        self.consolidation.run(ctx, Duration::ZERO, level)
    }
}
