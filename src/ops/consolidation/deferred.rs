//! Consolidation of a session after a turn, in this process or in a separate one.

use super::consolidator::{ConsolidationCost, Consolidator, StepResult, progress_reporter};
use super::memory_edit::open_memory;
use crate::ops::context::Context;
use crate::options::model::ModelOptions;
use crate::options::turn::{TurnLimits, TurnOptions};
use anyhow::Result;
use nanobot_agent::report::ProgressLevel;
use nanobot_base::error::{Exit, Stop, exit_for, fail};
use std::ffi::OsString;
use std::time::Duration;

/// A session to consolidate once the answer of a turn is out.
pub(crate) struct DeferredConsolidation {
    /// The session's key.
    pub(crate) key: String,
    /// The model to ask; `None` for the configured one.
    pub(crate) model: Option<String>,
    pub(crate) offline: bool,
    pub(crate) no_stream: bool,
    /// The context window of the turn's model, in tokens, input and output together. It decides which messages are due.
    pub(crate) context_tokens: Option<u32>,
    /// Cost limit in US dollars.
    pub(crate) max_cost: Option<f64>,
    /// Token limit.
    pub(crate) max_tokens: Option<u64>,
}

impl DeferredConsolidation {
    /// The arguments that start a separate process for this work.
    pub(crate) fn arguments(&self, ctx: &Context) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            ["memory", "consolidate", "--detached"].map(OsString::from).into();
        let mut add = |flag: &str, value: &std::ffi::OsStr| {
            let mut argument = OsString::from(flag);
            argument.push(value);
            arguments.push(argument);
        };
        add("--session=", self.key.as_ref());
        if let Some(model) = &self.model {
            add("--model=", model.as_ref());
        }
        let limits = [
            ("--context=", self.context_tokens.map(|limit| limit.to_string())),
            ("--max-cost=", self.max_cost.map(|limit| limit.to_string())),
            ("--max-total-tokens=", self.max_tokens.map(|limit| limit.to_string())),
        ];
        for (flag, limit) in limits {
            limit.iter().for_each(|limit| add(flag, limit.as_ref()));
        }
        if let Some(config) = &ctx.config {
            add("--config=", config.as_os_str());
        }
        if let Some(workspace) = &ctx.workspace {
            add("--workspace=", workspace.as_os_str());
        }
        arguments.extend(self.offline.then(|| "--offline".into()));
        arguments.extend(self.no_stream.then(|| "--no-stream".into()));
        arguments
    }

    /// Consolidates one chunk, and records a failure in the memory. A memory that another run has locked is no failure:
    /// the session is due again next time.
    ///
    /// # Errors
    /// The consolidation fails. The failure is also recorded.
    pub(crate) fn run(&self, ctx: &Context, wait: Duration, level: ProgressLevel) -> Result<()> {
        let result = self.try_run(ctx, wait, level);
        if let Err(error) = &result
            && !error.is::<Stop>()
            && let Ok(memory) = open_memory(ctx)
        {
            // If this write fails too, the failure cannot be recorded.
            drop(memory.record_error(&format!("{}: {error:#}", self.key)));
        }
        result
    }

    fn try_run(&self, ctx: &Context, wait: Duration, level: ProgressLevel) -> Result<()> {
        let options = TurnOptions {
            model: ModelOptions {
                no_stream: self.no_stream,
                max_cost: self.max_cost,
                ..ModelOptions::default()
            },
            limits: TurnLimits {
                offline: self.offline,
                max_total_tokens: self.max_tokens,
                ..TurnLimits::default()
            },
            ..TurnOptions::default()
        };
        let consolidator =
            Consolidator::new(ctx, self.model.as_deref(), options, self.context_tokens)?;
        let mut advance = consolidator.advance_callback();
        let locked_memory = match consolidator.memory.lock(wait, &mut || {}, &mut advance) {
            Err(error) if exit_for(&error) == Exit::TryAgain => return Ok(()),
            locked_memory => locked_memory?,
        };
        let mut reporter = progress_reporter(ctx, level);
        match consolidator.step(
            &locked_memory,
            &self.key,
            false,
            &mut ConsolidationCost::default(),
            &mut reporter,
        )? {
            StepResult::Failed(reason) => Err(fail(Exit::Failed, reason)),
            StepResult::Idle | StepResult::Consolidated(_) => Ok(()),
        }
    }
}
