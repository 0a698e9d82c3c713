//! Notification of the ends of runs, with the commands of `--on-failure` and `--on-success`.

use crate::ops::context::report_error;
use crate::ops::job_runs::job_runner::JobRunner;
use crate::ops::jobs::delivery::{run_command, shell_spec};
use anyhow::{Context as _, Result};
use nanobot_cron::job::{Job, JobOptions, NotifyPolicy};
use nanobot_cron::run_record::{RunOutcome, RunRecord};

/// The result of a run that the user is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotifiedResult {
    Success,
    Failure,
}

impl NotifiedResult {
    /// The result that `outcome` stands for; `None` if nothing ran.
    fn new(outcome: RunOutcome) -> Option<Self> {
        match outcome {
            RunOutcome::Ok | RunOutcome::Nothing => Some(Self::Success),
            outcome if outcome.is_failure() => Some(Self::Failure),
            _ => None,
        }
    }
}

impl JobRunner<'_> {
    /// True if the user is notified of the run in `record`, which need not be stored yet. With `--notify change`, its
    /// result differs from that of the slot before.
    pub(super) fn is_notified(&self, options: &JobOptions, record: &RunRecord) -> Result<bool> {
        let Some(result) = NotifiedResult::new(record.outcome) else {
            return Ok(false);
        };
        if options.notify == NotifyPolicy::Always {
            return Ok(true);
        }
        let records = self.job_dir.last_records(usize::MAX)?;
        let is_same_slot = |other: &RunRecord| {
            other.start == record.start || record.slot.is_some() && other.slot == record.slot
        };
        let mut before = records.iter().rev().filter(|other| !is_same_slot(other));
        let before = before.find_map(|other| NotifiedResult::new(other.outcome));
        Ok(before.unwrap_or(NotifiedResult::Success) != result)
    }

    /// Runs the user's command for the result in `record`, if there is one: with the error or `answer` on standard input.
    /// Its output is printed and stored.
    pub(super) fn notify(&self, job: &Job, options: &JobOptions, record: &RunRecord, answer: &str) {
        let (flag, command, input) = match NotifiedResult::new(record.outcome) {
            Some(NotifiedResult::Failure) => {
                let error = record.error.as_deref().unwrap_or_default();
                ("on-failure", &options.on_failure, error)
            }
            Some(NotifiedResult::Success) => ("on-success", &options.on_success, answer),
            None => return,
        };
        let Some(command) = command else {
            return;
        };
        if let Err(error) = self.run_notification(job, record, (flag, command), input) {
            let error = error.context(format!("`--{flag}` of job `{}` ({})", job.name, job.id));
            report_error(&error, self.ctx.terminal);
        }
    }

    fn run_notification(
        &self,
        job: &Job,
        record: &RunRecord,
        (flag, command): (&str, &str),
        input: &str,
    ) -> Result<()> {
        let slot = record.slot.as_deref().and_then(|slot| slot.parse().ok());
        let input = Some(format!("{input}\n").into_bytes());
        let mut spec = shell_spec(self.ctx, self.settings, job, slot, command, input);
        spec.env.extend([
            ("NANOBOT_STATUS".to_owned(), record.status.to_string()),
            ("NANOBOT_CAUSE".to_owned(), record.cause.clone()),
        ]);
        let output = run_command(&spec)?;
        if output.is_empty() {
            return Ok(());
        }
        self.ctx.terminal.eprint(&output);
        let start = record.start.parse().context("read the start of the run")?;
        self.job_dir.store_output(start, &format!("-{flag}"), &format!("{output}\n")).map(drop)
    }
}
