//! The notifications about the end of a run: errors, which cron mails or which go to `notify.target` of the config, and the commands of
//! `--on-failure` and `--on-success`.

use super::job_runner::JobRunner;
use crate::ops::channel::health::ChannelActivity;
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::delivery::{DelayedDelivery, run_command, shell_spec};
use crate::ops::jobs::job_context::job_context;
use crate::ops::jobs::job_grants::{as_flags, stored_grants};
use crate::ops::jobs::time_format::{self, to_one_line};
use crate::ops::jobs::time_zone;
use crate::ops::notices::{self, FailedPart, Failure};
use crate::ops::notify;
use crate::ops::notify_target;
use anyhow::{Context as _, Result};
use nanobot_base::error::{
    Exit, HintPart, NextStep, Stop, exit_for, fail_with_parts, hint_for, next_step,
};
use nanobot_cron::job::{Job, NotifyPolicy};
use nanobot_cron::run_record::{RunOutcome, RunRecord, Trigger};
use nanobot_os::secret;

/// The result of a run that the user is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotifiedResult {
    Success,
    Failure,
}

impl NotifiedResult {
    /// The result of a run with this outcome; `None` if nothing ran.
    fn new(outcome: RunOutcome) -> Option<Self> {
        match outcome {
            RunOutcome::Ok | RunOutcome::Nothing => Some(Self::Success),
            outcome if outcome.is_failure() => Some(Self::Failure),
            _ => None,
        }
    }
}

impl JobRunner<'_> {
    /// True if the run in `record` is reported at the place that the config names.
    pub(super) fn has_target(&self, record: &RunRecord) -> bool {
        record.trigger == Trigger::Schedule && notify_target::find(self.settings).is_some()
    }

    /// Reports the errors of the run in `record`: on standard error, or at the place that the config names.
    pub(super) fn report_errors(
        &self,
        record: &RunRecord,
        errors: &[anyhow::Error],
        part: FailedPart,
    ) {
        if !self.has_target(record) {
            errors.iter().for_each(|error| self.report_error(error));
        } else if !errors.is_empty() {
            self.record_notice(record, errors, part);
        }
    }

    /// Records for the place that the config names how the run in `record` ended, before the record is stored: a kill loses no notice.
    pub(super) fn record_notice(
        &self,
        record: &RunRecord,
        errors: &[anyhow::Error],
        part: FailedPart,
    ) {
        let job = self.job;
        if self.settings.notify_target.is_none() {
            return;
        }
        let (ctx, subject) = (self.ctx, notices::job_subject(&job.id));
        // A run that was stopped from outside needs no notice.
        let is_silent = |error: &anyhow::Error| {
            error.downcast_ref::<Stop>().is_some_and(|stop| stop.is_silent())
        };
        let errors = errors.iter().filter(|error| !is_silent(error));
        let repetition = self.describe_repetition(Some(record));
        let lines = errors.map(|error| describe_for_target(job, error, &repetition));
        let text = lines.collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            if NotifiedResult::new(record.outcome) == Some(NotifiedResult::Success)
                && let description = format!("job `{}` ({})", job.name, job.id)
                && let Err(error) = notices::record_success(ctx, &subject, &description)
            {
                self.report_error(&error);
            }
        } else if !self.has_target(record) {
            // A person has started it, and sees its errors.
        } else if self.runs_again() {
            notify::record_failure(ctx, Failure { subject: &subject, status: part.status(), text });
        } else {
            notify::record_event(ctx, &text);
        }
    }

    /// True if the job runs again after this run: otherwise its failure has no end.
    fn runs_again(&self) -> bool {
        // A job file that cannot be read is another failure.
        !self.job.is_over_after_run() && self.store.job(&self.job.id).ok().flatten().is_some()
    }

    /// Reports that the answer in `record` waits. At the place that the config names, only the first of a failure is reported.
    pub(super) fn report_waiting(&self, record: &RunRecord, delayed_delivery: &DelayedDelivery) {
        let DelayedDelivery { error, channel } = delayed_delivery;
        let name = to_one_line(&self.job.name);
        let cause = format!("the answer of `{name}` is not delivered yet: {error:#}");
        let cause = cause.replace('\n', " ");
        if !self.has_target(record) || !notify_target::covers_channel(self.settings, channel) {
            self.ctx.terminal.eprint_failure(&cause);
            return;
        }
        let subject = &ChannelActivity::Send.notice_subject(channel);
        let (status, text) = (exit_for(error).code(), secret::redact_all(&cause).into_owned());
        notify::record_failure(self.ctx, Failure { subject, status, text });
    }

    /// Prints an error on standard error, which cron mails.
    pub(super) fn report_error(&self, error: &anyhow::Error) {
        let repetition = self.describe_repetition(None);
        report_error(&describe_error(self.job, error, &repetition), self.ctx.terminal);
    }

    /// The number of failures in a row and the time of the first, as text; empty before the second failure. `record` counts, also if it is
    /// not stored yet.
    fn describe_repetition(&self, record: Option<&RunRecord>) -> String {
        // Unreadable records do not hide the error.
        let history = self.job_dir.history().unwrap_or_default();
        let last_start = history.last.as_ref().map(|last| &last.start);
        let is_new = record.is_some_and(|record| Some(&record.start) != last_start);
        let failures = history.failures + usize::from(is_new);
        match (failures, history.failing_since) {
            (2.., Some(since)) => {
                let since =
                    time_format::format_time(since, &time_zone::now(self.ctx, self.settings));
                format!(", failed {failures} times since {since}")
            }
            _ => String::new(),
        }
    }

    /// True if the user is notified of the run in `record`, which need not be stored yet. With `--notify change`, its
    /// result differs from that of the slot before.
    pub(super) fn is_notified(&self, record: &RunRecord) -> Result<bool> {
        let options = &self.options();
        let Some(result) = NotifiedResult::new(record.outcome) else {
            return Ok(false);
        };
        if options.notify == NotifyPolicy::Always {
            return Ok(true);
        }
        let was_failing = !self.earlier_failures(record)?.is_empty();
        Ok(was_failing == (result == NotifiedResult::Success))
    }

    /// The records of the failures in a row before the slot of `record`, the last one first.
    fn earlier_failures(&self, record: &RunRecord) -> Result<Vec<RunRecord>> {
        let is_same_slot = |other: &RunRecord| {
            other.start == record.start || record.slot.is_some() && other.slot == record.slot
        };
        let records = self.job_dir.last_records(usize::MAX)?.into_iter().rev();
        let ended = records
            .filter(|other| !is_same_slot(other) && NotifiedResult::new(other.outcome).is_some());
        Ok(ended.take_while(|other| other.outcome.is_failure()).collect())
    }

    /// Runs the user's command for the result in `record`, if there is one: with the error or `answer` on standard input.
    /// Its output is printed and stored.
    pub(super) fn notify(&self, record: &RunRecord, answer: &str) {
        let options = &self.options();
        let job = self.job;
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
        if let Err(error) = self.run_notification(record, flag, command, input) {
            let error = error.context(format!("`--{flag}` of job `{}` ({})", job.name, job.id));
            report_error(&error, self.ctx.terminal);
        }
    }

    fn run_notification(
        &self,
        record: &RunRecord,
        flag: &str,
        command: &str,
        input: &str,
    ) -> Result<()> {
        let slot = record.slot.as_deref().and_then(|slot| slot.parse().ok());
        let mut spec = shell_spec(self.ctx, self.settings, self.job, slot, command, Some(input));
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
        let output = format!("{output}\n");
        self.job_dir.store_output(start, &format!("-{flag}"), output.as_bytes()).map(drop)
    }
}

/// Reports that a job could not be started by its schedule, at the place that the config names. Returns the status.
///
/// # Errors
/// `error`, if the config names no place, or the job is being stopped.
pub(super) fn report_start_error(
    ctx: &Context,
    job: &Job,
    error: anyhow::Error,
    sends_notices: bool,
) -> Result<Exit> {
    let Ok((ctx, settings)) = ctx.settings().and_then(|settings| job_context(ctx, settings, job))
    else {
        return Err(error);
    };
    if settings.notify_target.is_none() || error.is::<Stop>() {
        return Err(error);
    }
    let exit = exit_for(&error);
    let text = describe_for_target(job, &error, "");
    if exit == Exit::TryAgain {
        // The job is still running: this is said once for each run.
        notify::record_event(&ctx, &text);
    } else {
        notify::record_failure(
            &ctx,
            Failure { subject: &notices::job_subject(&job.id), status: 0, text },
        );
    }
    if sends_notices {
        notify::send_waiting(&ctx, &settings);
    }
    Ok(exit)
}

/// The error with the job's name and a hint, as lines of a notice.
fn describe_for_target(job: &Job, error: &anyhow::Error, repetition: &str) -> String {
    let error = describe_error(job, error, repetition);
    let hint = hint_for(&error).map(|hint| format!("\n  try: {hint}"));
    format!("{error:#}{}", hint.unwrap_or_default())
}

/// The error with the job's name, without keys. `repetition` is the text about earlier failures.
fn describe_error(job: &Job, error: &anyhow::Error, repetition: &str) -> anyhow::Error {
    let cause = format!("job `{}` ({}){repetition}: {error:#}", job.name, job.id);
    // Cron mails this text, and the output of a command may contain keys.
    let cause = secret::redact_all(&cause).into_owned();
    let exit = exit_for(error);
    let grants = job.options.as_ref().and_then(|options| stored_grants(options).ok());
    let flags = grants.map(|grants| as_flags(&grants)).unwrap_or_default();
    fail_with_parts(exit, cause, adapt_hint(error, exit, &job.id, &flags).map(HintPart::from))
}

/// The hint of `error` for the job `id`, which has its limits from its own settings and cannot be resumed. `flags` are its permissions,
/// which an edit replaces.
fn adapt_hint(error: &anyhow::Error, exit: Exit, id: &str, flags: &str) -> Option<String> {
    const STARTS_ANEW: &str = "nothing: the next run starts from the beginning";
    match (exit, next_step(error), hint_for(error)) {
        (Exit::Timeout, ..) => {
            Some(format!("`nanobot cron edit {id} --timeout …` with a higher limit"))
        }
        (_, Some(NextStep::RaiseBudget(_)), _) => {
            Some(format!("`nanobot cron edit {id} --max-cost …` with a higher limit"))
        }
        (_, Some(NextStep::GrantFlag(flag)), _) => {
            let flags = if flags.is_empty() { flag.clone() } else { format!("{flags} {flag}") };
            Some(format!("`nanobot cron edit {id} {flags}`"))
        }
        (_, Some(NextStep::ShortenInput), _) | (Exit::Unavailable, _, None) => {
            Some(STARTS_ANEW.into())
        }
        (_, _, hint) => hint.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::adapt_hint;
    use nanobot_base::error::{Exit, NextStep, Stop, WithHint, exit_for, fail, fail_with_step};

    #[test]
    fn adapts_turn_hints_to_jobs() {
        let check = |error: anyhow::Error, expect: Option<&str>| {
            let exit = exit_for(&error);
            let hint = adapt_hint(&error, exit, "x", "--read=/inbox");
            assert_eq!(hint.as_deref(), expect, "{error:?}");
        };
        let cost = Some("`nanobot cron edit x --max-cost …` with a higher limit");
        check(fail_with_step(Exit::Budget, "", NextStep::RaiseBudget("--max-cost")), cost);
        let usage = Some("`nanobot usage` to see the costs");
        check(fail(Exit::Budget, "").with_hint("`nanobot usage` to see the costs"), usage);
        let time = Some("`nanobot cron edit x --timeout …` with a higher limit");
        check(Stop(Exit::Timeout).into(), time);
        let nothing = Some("nothing: the next run starts from the beginning");
        check(fail(Exit::Unavailable, ""), nothing);
        check(fail_with_step(Exit::BadInput, "", NextStep::ShortenInput), nothing);
        let login = fail(Exit::Refused, "").with_hint("nanobot login");
        check(login, Some("nanobot login"));
        let grant = NextStep::GrantFlag("--write=/etc/motd".into());
        let edit = Some("`nanobot cron edit x --read=/inbox --write=/etc/motd`");
        check(fail_with_step(Exit::Denied, "", grant), edit);
        check(fail(Exit::Failed, ""), None);
    }
}
