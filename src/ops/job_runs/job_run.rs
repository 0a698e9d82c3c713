//! A job's run: its condition, its turn, the delivery of the answer, and the record.
//!
//! The order makes crashes detectable: the stamp is on disk before anything is paid for, the record is written before
//! the stamp is removed, and the job file is updated last. The next start detects a crash at any point in between.

use crate::ops::agent_turn::{self, TurnOutcome, origin::JobTurn};
use crate::ops::hooks::{HookContainment, HookedRun, Hooks};
use crate::ops::job_runs::job_runner::{JobRunner, redact_and_shorten};
use crate::ops::job_runs::run_condition::ConditionResult;
use crate::ops::jobs::delivery::{self, DeliveryResult};
use crate::ops::jobs::heartbeat::{self, HeartbeatCheck};
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::jobs::job_status::JOB_TAMPERED;
use crate::ops::jobs::retry;
use crate::ops::jobs::time_format;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::ops::jobs::unseen_answers;
use crate::ops::jobs::workspace_jobs;
use crate::ops::turn_setup::containment_of_job;
use crate::options::model::ModelOptions;
use crate::options::turn::{RecordingOptions, TurnInput, TurnLimits, TurnOptions};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_base::error::{Exit, exit_for, fail_with_hint};
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_channel::MessageSource;
use nanobot_config::policy::Policy;
use nanobot_config::settings::hooks::HookEvent;
use nanobot_cron::job::{AnswerSink, Job, JobKind, JobOptions};
use nanobot_cron::run_record::{
    PendingRetry, RunOutcome, RunRecord, RunState, RunUsage, StartedRun, Trigger,
};
use nanobot_os::signal;
use nanobot_store::session as sessions;
use nanobot_tool::message::ChatTarget;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// The last line of an answer that has nothing to report.
pub(crate) const NOTHING_TO_REPORT: &str = "NOTHING_TO_REPORT";
/// The last line, and the whole answer, of a heartbeat that says the same.
const HEARTBEAT_OK: &str = "HEARTBEAT_OK";
const ALL_CLEAR: &str = "all clear";
/// Size of a job's own session above which its next run begins a new one: some thousand short runs.
const MAX_SESSION_BYTES: u64 = 2 << 20;
/// Maximum length of a job's name in the prompt, in characters.
const MAX_NAME_CHARS: usize = 80;

/// The result of a run's work.
#[derive(Default)]
struct RunResult {
    /// The outcome, if it does not follow from the text and the error.
    outcome: Option<RunOutcome>,
    text: String,
    error: Option<anyhow::Error>,
    exit: Option<Exit>,
    spent: RunUsage,
    turn: Option<TurnOutcome>,
    kind: JobKind,
    /// The origin of what the turn has read.
    origin: Option<Origin>,
}

impl RunResult {
    fn from_turn(session: String, mut turn: TurnOutcome) -> Self {
        let tally = &turn.ending.stats;
        let spent = RunUsage {
            session,
            turn: turn.turn_id.clone(),
            model: tally.model.clone(),
            iterations: tally.iterations,
            input_tokens: tally.usage.input,
            output_tokens: tally.usage.output,
            cost_usd: tally.cost,
            denied: tally.denials.iter().map(|denial| denial.tool_name.clone()).collect(),
        };
        Self {
            outcome: None,
            kind: JobKind::default(),
            text: turn.ending.text.clone(),
            error: turn.ending.error.take(),
            exit: Some(turn.exit),
            spent,
            origin: turn.run_metadata.origin,
            turn: Some(turn),
        }
    }

    fn exit(&self) -> Exit {
        self.exit.unwrap_or_else(|| self.error.as_ref().map_or(Exit::Answered, exit_for))
    }

    fn outcome(&self) -> RunOutcome {
        let is_silent = || has_nothing_to_report(&self.text, self.kind);
        self.outcome.unwrap_or_else(|| match self.error {
            Some(_) => RunOutcome::Failed,
            None if is_silent() => RunOutcome::Nothing,
            None => RunOutcome::Ok,
        })
    }
}

impl JobRunner<'_> {
    /// Runs the job, whose lock is held, and writes a record.
    pub(crate) fn run(
        &self,
        job: &Job,
        trigger: Trigger,
        slot: Option<Timestamp>,
        mut stamps: RunState,
    ) -> Result<Exit> {
        let ctx = self.ctx;
        let start = ctx.clock.timestamp();
        let terms = job.options.clone().unwrap_or_default();
        let limit = job.deadline_secs();
        signal::install((limit > 0).then(|| Duration::from_secs(limit)))
            .context("wait for signals")?;
        stamps.started = Some(StartedRun {
            at_ms: start.as_millisecond(),
            slot_ms: slot.map(Timestamp::as_millisecond),
            pid: std::process::id(),
        });
        let retry_before = stamps.retry;
        if trigger == Trigger::Schedule {
            stamps.retry = None;
        }
        self.job_dir.write_state(&stamps)?;
        let mut result = self
            .execute(job, &terms, slot)
            .unwrap_or_else(|error| RunResult { error: Some(error), ..RunResult::default() });
        if result.error.is_some() {
            signal::begin_shutdown();
        }
        let mut record = self.new_record(job, trigger, slot, result.outcome(), start);
        let is_retry_of = |retry: &PendingRetry| Some(retry.slot()) == slot;
        record.retry = retry_before.filter(is_retry_of).map_or(0, |retry| retry.number);
        record.usage = std::mem::take(&mut result.spent);
        let exit = result.exit();
        let mut errors = self.deliver(job, &terms, start, &mut result, &mut record);
        let exit = combined_exit(exit, &errors);
        if exit == Exit::Timeout || !errors.is_empty() {
            signal::begin_shutdown();
        }
        set_end(&mut record, exit, &errors);
        record.end = ctx.clock.timestamp().to_string();
        stamps.started = None;
        stamps.retry = match trigger {
            Trigger::Schedule => retry::plan(ctx, job, &record),
            Trigger::Manual => stamps.retry.filter(|_| record.outcome.is_failure()),
        };
        let is_retried = trigger == Trigger::Schedule && stamps.retry.is_some();
        let has_answer = record.outcome == RunOutcome::Ok;
        if has_answer && self.is_stored {
            let remembered = unseen_answers::remember(ctx, self.settings, job, &record);
            errors.extend(remembered.err());
        }
        let recorded = self.job_dir.append_record(&record);
        // If the record cannot be written, the stamp stays, so the next start detects that there was a run.
        let stamped = recorded.and_then(|()| self.job_dir.write_state(&stamps));
        errors.extend(stamped.err());
        errors.extend(self.update_job_file(job, &record, start, is_retried).err());
        if retry_before != stamps.retry {
            errors.extend(self.update_retry_line(job).err());
        }
        // A failure that is retried is only recorded.
        if !is_retried || ctx.terminal.stderr_is_tty {
            self.report_end(job, &terms, &record, &errors, result.text.trim_end());
        }
        if let Some(turn) = &result.turn {
            turn.finish(ctx);
        }
        if let Err(error) = self.run_end_hooks(job, &record, result.text.trim_end()) {
            self.report_error(job, &error);
            errors.push(error);
        }
        self.explain_silence(trigger, record.outcome);
        Ok(combined_exit(exit, &errors))
    }

    /// Runs the hooks for the end of a job. A hook that fails is reported; it does not change how the job ended.
    fn run_end_hooks(&self, job: &Job, record: &RunRecord, answer: &str) -> Result<()> {
        let terms = job.options.clone().unwrap_or_default();
        let containment = || {
            self.hook_containment(job, &terms).unwrap_or_else(|error| {
                log::warn!(target: "hook", "the permissions of {}: {error:#}", job.id);
                let written = stored_grants(&terms).map_or_else(|_| Vec::new(), |it| it.write);
                let workspace = self.settings.workspace.clone();
                HookContainment::of_unknown_run(written.into_iter().chain([workspace]).collect())
            })
        };
        let run = || HookedRun {
            session_key: record.usage.session.clone(),
            directory: workspace_jobs::job_directory(self.settings, &terms),
            ..HookedRun::default()
        };
        let Some(hooks) = Hooks::for_run(self.ctx, self.settings, containment, run)? else {
            return Ok(());
        };
        if hooks.has(HookEvent::JobEnd) && record.status == Exit::Timeout.code() {
            signal::grant_extra_time(delivery::COMMAND_TIMEOUT);
        }
        hooks.after_job(&json!({
            "job_id": job.id, "job_name": job.name, "job_outcome": record.outcome, "status": record.status,
            "cause": record.cause, "error": record.error, "answer": answer, "slot": record.slot,
            "started_at": record.start, "ended_at": record.end, "model": record.usage.model,
            "cost_usd": record.usage.cost_usd,
        }));
        for notice in hooks.take_notices() {
            self.ctx.notice(&notice);
        }
        Ok(())
    }

    /// Builds the containment of the hooks at the end of the job.
    fn hook_containment(&self, job: &Job, terms: &JobOptions) -> Result<HookContainment> {
        let mut grants = stored_grants(terms)?;
        grants.directory = Some(workspace_jobs::job_directory(self.settings, terms));
        let limit = policy_limit(job, terms)?;
        containment_of_job(self.ctx, self.settings, &grants, limit.as_ref())
    }

    /// Notifies the user of a run that has ended: of its errors on standard error, and with the user's commands.
    fn report_end(
        &self,
        job: &Job,
        terms: &JobOptions,
        record: &RunRecord,
        errors: &[anyhow::Error],
        answer: &str,
    ) {
        let is_notified = self.is_notified(terms, record).unwrap_or_else(|error| {
            self.report_error(job, &error);
            true
        });
        // A run by hand tells its errors in any case.
        if is_notified || record.trigger == Trigger::Manual {
            for error in errors {
                self.report_error(job, error);
            }
        }
        if is_notified {
            if record.status == Exit::Timeout.code() {
                signal::grant_extra_time(delivery::COMMAND_TIMEOUT);
            }
            self.notify(job, terms, record, answer);
        }
    }

    /// Delivers the answer and stores a copy. Returns the errors, including that of the run.
    fn deliver(
        &self,
        job: &Job,
        terms: &JobOptions,
        start: Timestamp,
        result: &mut RunResult,
        record: &mut RunRecord,
    ) -> Vec<anyhow::Error> {
        let text = result.text.trim_end();
        let is_answered = result.turn.as_ref().is_some_and(|turn| turn.ending.is_delivered);
        let is_answer = !text.is_empty()
            && !is_answered
            && matches!(result.exit(), Exit::Answered | Exit::Denied | Exit::Limit | Exit::Budget);
        let delivered = match is_answer && !has_nothing_to_report(text, terms.kind) {
            true if self.prints_answer || terms.sink.is_some() => {
                let source = MessageSource {
                    name: match terms.kind {
                        JobKind::Heartbeat => "the heartbeat".to_owned(),
                        JobKind::Turn => format!("job `{}`", sanitized_name(&job.name)),
                    },
                    // Of a run that failed before its answer, it is unknown what it has read.
                    origin: result.origin.unwrap_or(Origin::External),
                };
                delivery::deliver(self.ctx, self.settings, job, terms, text, source)
            }
            true => DeliveryResult::default(),
            false => DeliveryResult::default(),
        };
        record.delivered = delivered.destination;
        let mut errors: Vec<anyhow::Error> = Vec::new();
        // A closed pipe is no failure.
        let is_failure = |error: &anyhow::Error| exit_for(error) != Exit::Answered;
        errors.extend(delivered.error.filter(is_failure));
        errors.extend(result.error.take());
        if !text.is_empty() {
            // The answer is delivered already: a full disk is reported, but does not stop the run.
            match self.job_dir.store_output(start, "", text) {
                Ok(path) => record.output = Some(path),
                Err(error) => errors.push(error.context("the answer was not stored")),
            }
        }
        errors
    }

    /// Tells a user who started the run by hand why there is no answer. Not printed under cron, which would mail it.
    fn explain_silence(&self, trigger: Trigger, outcome: RunOutcome) {
        let reason = match outcome {
            RunOutcome::Nothing => "nothing to report",
            RunOutcome::NotNeeded => "the `--when` condition is not met",
            _ => return,
        };
        if trigger == Trigger::Manual && self.ctx.terminal.stderr_is_tty {
            self.ctx.notice(reason);
        }
    }

    /// Does the work of the run: the condition, the check of HEARTBEAT.md, the turn.
    fn execute(&self, job: &Job, terms: &JobOptions, slot: Option<Timestamp>) -> Result<RunResult> {
        check_runnable(job, terms)?;
        let mut ctx = self.ctx.clone();
        // Without a terminal, cron would mail every notice, so only failures are printed.
        ctx.quiet |= !ctx.terminal.stderr_is_tty;
        let input = match &terms.when {
            None => None,
            Some(command) => match self.check_condition(job, command, slot)? {
                ConditionResult::Met(output) => (!output.trim_ascii().is_empty()).then_some(output),
                ConditionResult::NotMet => {
                    return Ok(RunResult {
                        outcome: Some(RunOutcome::NotNeeded),
                        ..RunResult::default()
                    });
                }
            },
        };
        let mut options = self.turn_options(job, terms)?;
        let mut check_cost = None;
        if terms.kind == JobKind::Heartbeat {
            let HeartbeatCheck { spent, tasks } =
                heartbeat::check(&ctx, self.settings, job, &options)?;
            let without_turn =
                |spent, outcome, error| RunResult { outcome, error, spent, ..RunResult::default() };
            match tasks {
                Ok(Some((message, left))) => {
                    options.input.set_typed_message(&message);
                    options.model.max_cost = left;
                }
                Ok(None) => return Ok(without_turn(spent, Some(RunOutcome::Nothing), None)),
                Err(error) => return Ok(without_turn(spent, None, Some(error))),
            }
            check_cost = Some(spent);
        }
        let policy_limit = policy_limit(job, terms)?;
        let (session, is_own) = job.session_key();
        if is_own && let Err(error) = self.begin_session_anew_if_large(&session) {
            // What is left of it does not concern this run.
            ctx.notice(&format!("the session `{session}` stays large: {error:#}"));
        }
        options.session.key = Some(session.clone());
        let turn = agent_turn::run_job_turn(
            &ctx,
            &options,
            JobTurn {
                id: &job.id,
                job_prompt: &self.job_prompt(job, terms),
                policy_limit: policy_limit.as_ref(),
                input,
                last_turn_only: is_own,
                answer_chat: match delivery::find_sink(&ctx, job) {
                    Some(AnswerSink::Chat { channel, to }) => {
                        Some(ChatTarget { channel, recipient: to })
                    }
                    _ => None,
                },
            },
        );
        let mut result = RunResult { kind: terms.kind, ..RunResult::from_turn(session, turn) };
        if let Some(spent) = check_cost {
            result.spent.add(&spent);
        }
        Ok(result)
    }

    /// Moves a large session of the job to the trash, which keeps it for a while: only the last run is sent again.
    fn begin_session_anew_if_large(&self, key: &str) -> Result<()> {
        let store = self.ctx.session_store(self.settings)?;
        if sessions::move_to_trash_if_larger(&store, key, MAX_SESSION_BYTES)? {
            sessions::empty_trash(&store)?;
        }
        Ok(())
    }

    /// The options of the turn.
    fn turn_options(&self, job: &Job, terms: &JobOptions) -> Result<TurnOptions> {
        let mut grants = stored_grants(terms)?;
        grants.directory = Some(workspace_jobs::job_directory(self.settings, terms));
        let text = job.message.as_str();
        let message = match job.options {
            Some(_) => UserText::typed(text),
            None => {
                let content = OthersContent::new(Origin::Project, "a job of another program");
                UserText::of_others(text, content)
            }
        };
        Ok(TurnOptions {
            input: TurnInput { message: Some(message), ..TurnInput::default() },
            model: ModelOptions {
                name: terms.model.clone(),
                max_cost: terms.max_cost,
                ..ModelOptions::default()
            },
            grants,
            limits: TurnLimits { strict: true, ..TurnLimits::default() },
            recording: RecordingOptions {
                replay: self.replay.map(Path::to_owned),
                ..RecordingOptions::default()
            },
            ..TurnOptions::default()
        })
    }

    /// The section of the system prompt about the job. It is the same in each run.
    fn job_prompt(&self, job: &Job, terms: &JobOptions) -> String {
        let local = time_zone::local_zone(self.ctx, self.settings);
        let when = timing::describe_schedule(self.ctx, job, &local);
        let destination = delivery::describe_destination(terms);
        format!(
            "This run is the scheduled job `{}` (id {}): {when}. It is unattended, and you cannot ask questions. Your answer \
             {destination}. You see at most the last of its earlier runs. If there is nothing worth reporting, answer with \
             {NOTHING_TO_REPORT} only; no answer is then delivered.",
            sanitized_name(&job.name),
            job.id
        )
    }
}

/// Checks that the job may run at all.
///
/// # Errors
/// Status 78.
fn check_runnable(job: &Job, terms: &JobOptions) -> Result<()> {
    if job.is_altered() {
        return Err(fail_with_hint(
            Exit::Config,
            JOB_TAMPERED,
            format!("`nanobot cron edit {}` accepts it as it is now", job.id),
        ));
    }
    if job.options.is_some() && terms.kind == JobKind::Turn && terms.policy.is_none() {
        return Err(fail_with_hint(
            Exit::Config,
            "the job has no stored permissions",
            format!("`nanobot cron edit {}`, which stores them", job.id),
        ));
    }
    Ok(())
}

/// The permissions of the job's creator, which are the upper bound for the job.
fn policy_limit(job: &Job, terms: &JobOptions) -> Result<Option<Policy>> {
    let limit = terms.policy.as_ref().map(Policy::from_snapshot).transpose();
    limit.map_err(|words| {
        fail_with_hint(
            Exit::Config,
            format!("cannot parse the job's permissions: {words}"),
            format!("`nanobot cron edit {}`, which stores them again", job.id),
        )
    })
}

/// The exit status of a run. Errors around the run matter only if the run itself succeeded.
fn combined_exit(exit: Exit, errors: &[anyhow::Error]) -> Exit {
    match (exit, errors.first()) {
        (Exit::Answered, Some(error)) => exit_for(error),
        (exit, _) => exit,
    }
}

/// Stores in `record` how the run ended.
fn set_end(record: &mut RunRecord, exit: Exit, errors: &[anyhow::Error]) {
    if !errors.is_empty() {
        record.outcome = RunOutcome::Failed;
        let words: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
        record.error = Some(redact_and_shorten(&words.join("; ")));
    }
    record.status = exit.code();
    record.cause = exit.name().to_owned();
}

/// The job's name as it appears in the prompt: other programs write the job file too, so control characters are
/// removed.
fn sanitized_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let name: String = name.chars().map(plain).collect();
    time_format::to_one_line(&name).chars().take(MAX_NAME_CHARS).collect()
}

/// True if the last line of an answer says that there is nothing to report. That of a heartbeat may say so in the words
/// that models know from other programs.
fn has_nothing_to_report(text: &str, kind: JobKind) -> bool {
    let bare = |line: &str| {
        let is_mark = |letter: char| letter.is_whitespace() || "`*_.!\"'".contains(letter);
        line.trim_matches(is_mark).to_owned()
    };
    let last = bare(text.trim_end().lines().next_back().unwrap_or_default());
    let is_heartbeat = kind == JobKind::Heartbeat;
    last == NOTHING_TO_REPORT
        || is_heartbeat && (last == HEARTBEAT_OK || bare(text).eq_ignore_ascii_case(ALL_CLEAR))
}

#[cfg(test)]
mod tests {
    use super::has_nothing_to_report;
    use nanobot_cron::job::JobKind;

    #[test]
    fn recognizes_nothing_to_report() {
        let check = |text: &str, expect: bool| {
            assert_eq!(has_nothing_to_report(text, JobKind::Turn), expect, "{text:?}");
        };
        let check_heartbeat = |text: &str, expect: bool| {
            assert_eq!(has_nothing_to_report(text, JobKind::Heartbeat), expect, "{text:?}");
        };
        check_heartbeat("HEARTBEAT_OK", true);
        check_heartbeat("I looked.\n\n**HEARTBEAT_OK**", true);
        check_heartbeat("All clear.", true);
        check_heartbeat("The disk is full. All clear otherwise.", false);
        check_heartbeat("NOTHING_TO_REPORT", true);
        check("All clear.", false);
        check("HEARTBEAT_OK", false);
        check("NOTHING_TO_REPORT", true);
        check("  NOTHING_TO_REPORT.\n", true);
        check("`NOTHING_TO_REPORT`", true);
        check("**NOTHING_TO_REPORT**", true);
        check("I looked: all is well.\n\nNOTHING_TO_REPORT", true);
        check("NOTHING_TO_REPORT\nbut the disk is full", false);
        check("say NOTHING_TO_REPORT", false);
        check("nothing to report", false);
        check("", false);
    }
}
