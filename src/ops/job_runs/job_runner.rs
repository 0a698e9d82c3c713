//! A job's run: its `--when` condition, its turn or its command, the delivery of the answer, and the record. `notification`
//! has the reports to the user, `job_update` the changes of the job file and the crontab, and `scheduled_run` what concerns slots: interrupted,
//! skipped and busy ones.
//!
//! The order of writes makes crashes detectable. The run state says that a run has started before anything is paid for,
//! the record is written before the run state says that the run has ended, and the job file is updated last. The next
//! start detects a crash at any point in between.

use crate::ops::agent_turn::{self, TurnOutcome, source::JobTurn};
use crate::ops::channel::persona::Persona;
use crate::ops::context::Context;
use crate::ops::hooks::{HookContainment, HookedRun, Hooks};
use crate::ops::jobs::delivery::{self, DeliveryResult, RunAnswer};
use crate::ops::jobs::heartbeat::{self, HeartbeatDecision};
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::jobs::job_status::JOB_TAMPERED;
use crate::ops::jobs::ping::{PING_TIMEOUT, PingEvent, RunPing};
use crate::ops::jobs::retry;
use crate::ops::jobs::time_format;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::ops::jobs::unseen_answers;
use crate::ops::jobs::workspace_jobs;
use crate::ops::notices::FailedPart;
use crate::ops::turn_setup::containment_of_job;
use crate::options::model::{CacheTime, ModelOptions};
use crate::options::turn::{
    DEFAULT_MAX_ROUNDS, PromptOptions, RecordingOptions, TurnInput, TurnLimits, TurnOptions,
    UntilOptions,
};
use crate::options::value::ModelNames;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_agent::prompt;
use nanobot_base::error::{Exit, Stop, WithHint as _, exit_for, fail};
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::{OthersContent, UserText};
use nanobot_channel::{MessageSource, SourceJob};
use nanobot_config::policy::Policy;
use nanobot_config::settings::Settings;
use nanobot_config::settings::hooks::HookEvent;
use nanobot_cron::job::{AnswerDestination, Job, JobKind, JobOptions};
use nanobot_cron::job_chain::find_loop;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::{
    JobDir, PendingRetry, RunOutcome, RunRecord, RunState, RunUsage, StartedRun, Trigger,
};
use nanobot_os::durable_file;
use nanobot_os::env::INSIDE_JOB;
use nanobot_os::host;
use nanobot_os::input;
use nanobot_os::secret::{self, random_hex};
use nanobot_os::semaphore::Permit;
use nanobot_os::signal;
use nanobot_sandbox::process::{self, CommandResult, CommandSpec};
use nanobot_store::session as sessions;
use nanobot_tool::message::ChatTarget;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The last line of an answer that has nothing to report.
pub(crate) const NOTHING_TO_REPORT: &str = "NOTHING_TO_REPORT";
/// The last line of a heartbeat's answer that says the same. The Python program asks models for it.
const HEARTBEAT_OK: &str = "HEARTBEAT_OK";
/// A whole answer of a heartbeat that says the same.
const ALL_CLEAR: &str = "all clear";
/// Size of a job's own session above which its next run begins a new one: some thousand short runs.
const MAX_SESSION_BYTES: u64 = 2 << 20;
/// Maximum length of an error text in a record and in the job file, in characters.
const MAX_ERROR_CHARS: usize = 500;
/// Maximum length of a job's name in the prompt, in characters.
const MAX_NAME_CHARS: usize = 80;
/// Bytes of the output of `--when` or `--command` that are kept, from its beginning and from its end.
const COMMAND_OUTPUT_LIMIT_BYTES: usize = 256 << 10;
/// Maximum size of the answer of the job before, as of piped text.
const MAX_ANSWER_BYTES: u64 = input::MAX_STDIN_BYTES as u64;
/// The suffix of the stored output of `--when`, which is the input of the run.
const INPUT_SUFFIX: &str = "-input";
/// The suffix of the stored answer of the job before, which is the input of the run too.
const ANSWER_SUFFIX: &str = "-answer";
/// Exit statuses of a shell for a program that it cannot execute, or cannot find (POSIX, `sh`).
const NOT_EXECUTABLE_STATUS: i32 = 126;
const NOT_FOUND_STATUS: i32 = 127;

/// Runs a job of a store.
#[derive(Clone)]
pub(crate) struct JobRunner<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a JobStore,
    pub(crate) job: &'a Job,
    /// The job's directory, with its records and its run state.
    pub(crate) job_dir: JobDir,
    /// True if the job is in the store; false for a temporary job.
    pub(crate) is_stored: bool,
    /// True if an answer without another destination is printed.
    pub(crate) prints_answer: bool,
    /// A replay file used instead of the model.
    pub(crate) replay: Option<&'a Path>,
    /// An earlier run, whose input this one gets.
    pub(crate) rerun: Option<&'a RunRecord>,
}

/// The answer of the job that another one runs after.
struct PredecessorAnswer {
    text: String,
    /// The origin of what that job has read, but at least that of piped text.
    origin: Origin,
}

impl PredecessorAnswer {
    /// `origin` is that of the run whose answer it is, or of a run that has read it.
    fn new(bytes: &[u8], origin: Option<Origin>) -> Self {
        Self {
            text: String::from_utf8_lossy(bytes).into_owned(),
            origin: origin.unwrap_or(Origin::External).max(Origin::Project),
        }
    }
}

/// The result of a run's work.
#[derive(Default)]
struct RunResult {
    /// The outcome, if it does not follow from the text and the error.
    outcome: Option<RunOutcome>,
    text: String,
    error: Option<anyhow::Error>,
    exit: Option<Exit>,
    usage: RunUsage,
    turn: Option<TurnOutcome>,
    kind: JobKind,
    /// The origin of what the turn has read.
    origin: Option<Origin>,
}

impl RunResult {
    fn from_turn(session: String, mut turn: TurnOutcome) -> Self {
        let stats = &turn.ending.stats;
        let usage = RunUsage {
            session,
            turn: turn.turn_id.clone(),
            model: stats.model.clone(),
            iterations: stats.iterations,
            input_tokens: stats.usage.input,
            output_tokens: stats.usage.output,
            cost_usd: stats.cost,
            denied: stats.denials.iter().map(|denial| denial.tool_name.clone()).collect(),
        };
        Self {
            outcome: turn.ending.is_unneeded.then_some(RunOutcome::NotNeeded),
            kind: JobKind::default(),
            text: turn.ending.text.clone(),
            error: turn.ending.error.take(),
            exit: Some(turn.exit),
            usage,
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

impl<'a> JobRunner<'a> {
    /// A run of a stored job, which prints its answer.
    ///
    /// # Errors
    /// The id of the job is not valid.
    pub(crate) fn new(
        ctx: &'a Context,
        settings: &'a Settings,
        store: &'a JobStore,
        job: &'a Job,
    ) -> Result<Self> {
        let job_dir = JobDir::new(store.job_dir(&job.id)?);
        Ok(Self {
            ctx,
            settings,
            store,
            job,
            job_dir,
            is_stored: true,
            prints_answer: true,
            replay: None,
            rerun: None,
        })
    }

    /// The options of the job; those of a job of another program are the defaults.
    pub(super) fn options(&self) -> JobOptions {
        self.job.options.clone().unwrap_or_default()
    }

    /// Runs the job, whose lock is held, and writes a record.
    pub(crate) fn run(
        &self,
        trigger: Trigger,
        slot: Option<Timestamp>,
        mut state: RunState,
    ) -> Result<Exit> {
        let job = self.job;
        let ctx = self.ctx;
        let start = ctx.clock.timestamp();
        let deadline_secs = job.deadline_secs();
        signal::install((deadline_secs > 0).then(|| Duration::from_secs(deadline_secs)))
            .context("wait for signals")?;
        let started = StartedRun {
            at_ms: start.as_millisecond(),
            slot_ms: slot.filter(|_| trigger == Trigger::Schedule).map(Timestamp::as_millisecond),
            pid: std::process::id(),
            is_waiting: false,
        };
        let permit = self.wait_for_permit(trigger, RunState { started: Some(started), ..state });
        // Nothing was done yet, so the next start runs the slot, as after a crash.
        if let Err(error) = &permit
            && trigger == Trigger::Schedule
            && error.is::<Stop>()
        {
            return permit.map(|_| Exit::Answered);
        }
        state.started = Some(started);
        let earlier_retry = state.retry;
        if trigger == Trigger::Schedule {
            state.retry = None;
        }
        self.job_dir.write_state(&state)?;
        let ping = RunPing::new(ctx, self.settings, job, trigger);
        if let Some(ping) = &ping {
            ping.send(PingEvent::Start);
        }
        // The permit is given back before the answer is delivered.
        let mut has_input = None;
        let mut result = permit
            .and_then(|_permit| self.execute(slot, start, &mut has_input))
            .unwrap_or_else(|error| RunResult { error: Some(error), ..RunResult::default() });
        if result.error.is_some() {
            signal::begin_shutdown_if_stopped();
        }
        let mut record = self.new_record(trigger, slot, result.outcome(), start);
        let is_retry_of = |retry: &PendingRetry| Some(retry.slot()) == slot;
        record.retry = earlier_retry.filter(is_retry_of).map_or(0, |retry| retry.number);
        record.usage = std::mem::take(&mut result.usage);
        record.origin = result.origin;
        record.has_input = has_input;
        let turn_exit = result.exit();
        let mut errors = Vec::new();
        errors.extend(self.deliver_answer(&result, &mut record));
        errors.extend(result.error.take());
        // The answer is delivered already: a full disk is reported, but does not stop the run.
        match self.store_answer(start, &result) {
            Ok(path) => record.output = path,
            Err(error) => errors.push(error),
        }
        let exit = combined_exit(turn_exit, &errors);
        if exit == Exit::Timeout || !errors.is_empty() {
            signal::begin_shutdown_if_stopped();
        }
        set_end(&mut record, exit, &errors);
        record.end = ctx.clock.timestamp().to_string();
        state.started = None;
        state.retry = match trigger {
            Trigger::Schedule => retry::plan(ctx, job, &record),
            Trigger::Manual if record.outcome.is_failure() => state.retry,
            // A repeated run says nothing about another slot.
            Trigger::Manual => {
                state.retry.filter(|retry| self.rerun.is_some() && !is_retry_of(retry))
            }
        };
        let is_retried = trigger == Trigger::Schedule && state.retry.is_some();
        // The retry reports how the slot ended.
        if let Some(ping) = ping.filter(|_| !is_retried) {
            if is_out_of_time() {
                signal::grant_extra_time(PING_TIMEOUT);
            }
            let is_failure = record.outcome.is_failure();
            ping.send(if is_failure { PingEvent::Failure } else { PingEvent::Success });
        }
        // With `notify.target`, the errors of a scheduled run become a notice: those of the run here, before the record is on disk, and
        // those of the writes below. Without it, `report_end` prints all of them.
        if !is_retried {
            self.record_notice(&record, &errors, FailedPart::Run);
        }
        let mut write_errors = Vec::new();
        if record.outcome == RunOutcome::Ok && self.is_stored {
            write_errors.extend(unseen_answers::remember(ctx, self.settings, job, &record).err());
        }
        // If the record cannot be written, the run state is not updated, so the next start detects that there was a run.
        let record_result =
            self.job_dir.append_record(&record).and_then(|()| self.job_dir.write_state(&state));
        write_errors.extend(record_result.err());
        write_errors.extend(self.update_job_file(&record, start, is_retried).err());
        if earlier_retry != state.retry {
            write_errors.extend(self.update_retry_line().err());
        }
        // A failure that is retried is only recorded. What could not be written is reported: the retry may depend on it.
        let is_only_recorded = is_retried && !ctx.terminal.stderr_is_tty;
        if is_only_recorded || self.has_target(&record) {
            self.report_errors(&record, &write_errors, FailedPart::Writing);
        }
        errors.extend(write_errors);
        if !is_only_recorded {
            self.report_end(&record, &errors, result.text.trim_end());
        }
        if let Err(error) = self.run_end_hooks(&record, result.text.trim_end()) {
            self.report_error(&error);
            errors.push(error);
        }
        // A turn that was not needed has said so.
        if result.turn.is_none() || record.outcome != RunOutcome::NotNeeded {
            self.explain_silence(trigger, record.outcome);
        }
        if let Some(turn) = &result.turn {
            turn.finish(ctx);
        }
        Ok(combined_exit(exit, &errors))
    }

    /// Waits until fewer jobs run than the config allows at once; `None` without such a limit, or if a command of another run started
    /// this one. While the run waits, `state` is stored
    /// and says so.
    fn wait_for_permit(&self, trigger: Trigger, mut state: RunState) -> Result<Option<Permit>> {
        // A run that a command of another one starts would wait for the place of that one, which waits for its command.
        let is_nested = self.ctx.env.get(INSIDE_JOB).is_some();
        let Some(limit) = self.settings.max_running_jobs.filter(|_| !is_nested) else {
            return Ok(None);
        };
        let path = self.ctx.paths.running_jobs();
        let mut has_waited = false;
        let permit = Permit::acquire(&path, 0, limit, &mut || {
            if !std::mem::replace(&mut has_waited, true) {
                if let Some(started) = &mut state.started {
                    started.is_waiting = true;
                }
                self.job_dir.write_state(&state)?;
                let text = "waiting for other jobs to end: as many run as `cron.maxRunning` allows";
                match trigger {
                    Trigger::Manual => self.ctx.notice(text),
                    Trigger::Schedule => log::info!(target: "cron", "{text}"),
                }
            }
            Ok(())
        });
        match permit {
            Err(error) if error.downcast_ref() == Some(&Stop(Exit::Timeout)) => {
                let cause = "other jobs ran for the whole time of this one: as many run at once as `cron.maxRunning` allows";
                Err(fail(Exit::TryAgain, cause)
                    .with_hint("`cron.maxRunning` with a higher number, or a longer `--timeout`"))
            }
            permit => permit.map(Some).context("wait for other jobs to end (`cron.maxRunning`)"),
        }
    }

    /// Runs the hooks for the end of a job. A hook that fails is reported; it does not change how the job ended.
    fn run_end_hooks(&self, record: &RunRecord, answer: &str) -> Result<()> {
        let job = self.job;
        let options = &self.options();
        let containment = || {
            self.hook_containment().unwrap_or_else(|error| {
                log::warn!(target: "hook", "the permissions of {}: {error:#}", job.id);
                let mut writable = stored_grants(options).unwrap_or_default().write;
                writable.push(self.settings.workspace.clone());
                HookContainment::of_unknown_run(writable)
            })
        };
        let run = || HookedRun {
            session_key: record.usage.session.clone(),
            directory: workspace_jobs::job_directory(self.settings, options),
            ..HookedRun::default()
        };
        let Some(hooks) = Hooks::for_run(self.ctx, self.settings, containment, run)? else {
            return Ok(());
        };
        if hooks.has(HookEvent::JobEnd) && is_out_of_time() {
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
    fn hook_containment(&self) -> Result<HookContainment> {
        let options = &self.options();
        let mut grants = stored_grants(options)?;
        grants.directory = Some(workspace_jobs::job_directory(self.settings, options));
        let limit = resolve_policy_limit(self.job, options)?;
        containment_of_job(self.ctx, self.settings, &grants, limit.as_ref())
    }

    /// Notifies the user of the end of a run: prints its errors on standard error, and runs the user's commands.
    fn report_end(&self, record: &RunRecord, errors: &[anyhow::Error], answer: &str) {
        let is_notified = self.is_notified(record).unwrap_or_else(|error| {
            self.report_error(&error);
            true
        });
        // The errors of a run by hand are reported in any case. The place that the config names was told of the others.
        if (is_notified || record.trigger == Trigger::Manual) && !self.has_target(record) {
            self.report_errors(record, errors, FailedPart::Run);
        }
        if is_notified {
            if is_out_of_time() {
                signal::grant_extra_time(delivery::COMMAND_TIMEOUT);
            }
            self.notify(record, answer);
        }
    }

    /// Delivers the answer, if there is one and it has a destination, which goes to `record`. Returns the error of the
    /// delivery.
    fn deliver_answer(&self, result: &RunResult, record: &mut RunRecord) -> Option<anyhow::Error> {
        let options = &self.options();
        let job = self.job;
        let text = result.text.trim_end();
        let is_delivered = result.turn.as_ref().is_some_and(|turn| turn.ending.is_delivered);
        let is_answer = !text.is_empty()
            && !is_delivered
            && matches!(result.exit(), Exit::Answered | Exit::Denied | Exit::Limit | Exit::Budget);
        let has_destination = self.prints_answer || options.destination.is_some();
        if !is_answer || has_nothing_to_report(text, options.kind) || !has_destination {
            return None;
        }
        let source = MessageSource {
            name: match options.kind {
                JobKind::Heartbeat => "the heartbeat".to_owned(),
                JobKind::Turn | JobKind::Command => format!("job `{}`", sanitized_name(&job.name)),
            },
            // If the run failed before its answer, it is unknown what it has read.
            origin: result.origin.unwrap_or(Origin::External),
            job: (options.kind != JobKind::Heartbeat).then(|| SourceJob {
                id: job.id.clone(),
                text: job.repeatable_text().filter(|_| job.is_over_after_run()),
            }),
        };
        let DeliveryResult { destination, waiting, error } = delivery::deliver(
            self.ctx,
            self.settings,
            job,
            options,
            RunAnswer { text, trigger: record.trigger, source },
        );
        record.delivered = destination;
        if let Some(waiting) = waiting {
            self.report_waiting(record, &waiting);
        }
        // A closed pipe is not a failure.
        error.filter(|error| exit_for(error) != Exit::Answered)
    }

    /// Stores a copy of the answer. Returns its path; `None` if there is no answer.
    fn store_answer(&self, start: Timestamp, result: &RunResult) -> Result<Option<PathBuf>> {
        let text = result.text.trim_end();
        if text.is_empty() {
            return Ok(None);
        }
        let stored = self.job_dir.store_output(start, "", text.as_bytes());
        stored.map(Some).context("the answer was not stored")
    }

    /// Notifies a user who started the run by hand of the reason why there is no answer. Under cron nothing is printed,
    /// because cron would mail it.
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

    /// Checks the condition, checks HEARTBEAT.md, and runs the turn.
    fn execute(
        &self,
        slot: Option<Timestamp>,
        start: Timestamp,
        has_input: &mut Option<bool>,
    ) -> Result<RunResult> {
        let options = &self.options();
        let job = self.job;
        check_runnable(job, options)?;
        self.check_chain()?;
        let mut ctx = self.ctx.clone();
        // Without a terminal, cron would mail every notice, so only failures are printed.
        ctx.quiet |= !ctx.terminal.stderr_is_tty;
        if self.settings.max_running_jobs.is_some() {
            ctx.env = ctx.env.with(INSIDE_JOB, job.id.clone());
        }
        let runner = &JobRunner { ctx: &ctx, ..self.clone() };
        let output = match (self.repeated_condition()?, &options.when) {
            (None, Some(command)) => runner.check_condition(command, options.when_output, slot)?,
            (repeated, _) => Some(repeated.unwrap_or_default()),
        };
        let Some(output) = output else {
            return Ok(RunResult { outcome: Some(RunOutcome::NotNeeded), ..RunResult::default() });
        };
        let extra_input = Some(output).filter(|output| !output.trim_ascii().is_empty());
        *has_input =
            Some(extra_input.is_some()).filter(|is_some| *is_some || options.when.is_some());
        if let Some(input) = &extra_input {
            let stored = self.job_dir.store_output(start, INPUT_SUFFIX, input);
            stored.context("the output of the condition was not stored")?;
        }
        // Before anything is paid for.
        if self.prints_answer || options.destination.is_some() {
            delivery::check_chat_service(&ctx, job).context("the answer could not be sent")?;
        }
        let predecessor_answer = self.predecessor_answer(slot)?;
        if let Some(answer) = &predecessor_answer {
            let stored = self.job_dir.store_output(start, ANSWER_SUFFIX, answer.text.as_bytes());
            stored.context("the answer of the job before was not stored")?;
        }
        if let Some(command) = &options.command {
            let answer = predecessor_answer.as_ref().map(|answer| answer.text.as_bytes());
            let input = extra_input.as_deref().or(answer);
            return runner.run_command(command, slot, input);
        }
        let mut turn_options = self.turn_options()?;
        if let Some(address) = &options.binding {
            Persona::of_address(&ctx, self.settings, address)?.limit(&mut turn_options)?;
        }
        if let Some(answer) = predecessor_answer {
            turn_options.input.message = turn_options.input.message.map(|message| {
                let mut message = prompt::with_piped(Some(message), Some(&answer.text));
                let content = OthersContent::new(answer.origin, "the answer of another job");
                message.push(&UserText::of_model("", content));
                message
            });
        }
        let mut check_usage = None;
        if options.kind == JobKind::Heartbeat {
            let check = heartbeat::check(&ctx, self.settings, job, &turn_options)?;
            match check.decision {
                HeartbeatDecision::Run { tasks, max_cost } => {
                    turn_options.input.set_typed_message(&tasks);
                    turn_options.model.max_cost = max_cost;
                    check_usage = Some(check.usage);
                }
                HeartbeatDecision::Skip => {
                    return Ok(RunResult {
                        outcome: Some(RunOutcome::Nothing),
                        usage: check.usage,
                        ..RunResult::default()
                    });
                }
                HeartbeatDecision::OverBudget(error) => {
                    return Ok(RunResult {
                        error: Some(error),
                        usage: check.usage,
                        ..RunResult::default()
                    });
                }
            }
        }
        let policy_limit = resolve_policy_limit(job, options)?;
        let session = job.session_key();
        if job.has_own_session()
            && let Err(error) = self.begin_session_anew_if_large(&session)
        {
            // A large session costs more, but the run can still use it.
            ctx.notice(&format!("the session `{session}` stays large: {error:#}"));
        }
        turn_options.session.key = Some(session.clone());
        let turn = agent_turn::run_job_turn(
            &ctx,
            &turn_options,
            JobTurn {
                job_id: &job.id,
                job_prompt: &self.job_prompt(),
                policy_limit: policy_limit.as_ref(),
                extra_input,
                last_turn_only: job.has_own_session(),
                answer_chat: match delivery::find_destination(&ctx, job) {
                    Some(AnswerDestination::Chat { channel, to }) => {
                        Some(ChatTarget { channel, recipient: to })
                    }
                    _ => None,
                },
                binding: options.binding.as_deref(),
            },
        );
        let mut result = RunResult { kind: options.kind, ..RunResult::from_turn(session, turn) };
        if let Some(check_usage) = check_usage {
            result.usage.add(&check_usage);
        }
        Ok(result)
    }

    /// Reads the answer of the job that `job` runs after: of the run that ended at `slot`, or of the last one. A repeated run gets the one
    /// that it had.
    ///
    /// # Errors
    /// Status 66 if the answer of the slot is no longer stored.
    fn predecessor_answer(&self, slot: Option<Timestamp>) -> Result<Option<PredecessorAnswer>> {
        let job = self.job;
        let Some(predecessor) = &job.predecessor else {
            return Ok(None);
        };
        if let Some(rerun) = self.rerun {
            let path = self.job_dir.output_path(rerun.start.parse()?, ANSWER_SUFFIX);
            if let Some(bytes) = durable_file::read_limited(&path, MAX_ANSWER_BYTES)? {
                return Ok(Some(PredecessorAnswer::new(&bytes, rerun.origin)));
            }
        }
        let job_dir = JobDir::new(self.store.job_dir(&predecessor.id)?);
        let until = self.rerun.and_then(|run| run.start.parse().ok()).unwrap_or(Timestamp::MAX);
        let record = job_dir.last_answered(slot.unwrap_or(until))?;
        let Some(end) = slot.or_else(|| record.as_ref()?.slot_of_followers()) else {
            return Ok(None);
        };
        let record = record.filter(|record| record.slot_of_followers() == Some(end));
        let path = record.as_ref().and_then(|record| record.output.as_ref());
        let bytes =
            path.map(|path| durable_file::read_limited(path, MAX_ANSWER_BYTES)).transpose()?;
        let Some((bytes, record)) = bytes.flatten().zip(record.as_ref()) else {
            let cause =
                format!("the answer of `{}` at {end} is no longer stored", predecessor.label());
            return Err(match predecessor.name {
                Some(_) => {
                    let hint = format!("`nanobot cron run {}`", predecessor.id);
                    fail(Exit::NoInput, cause).with_hint(hint)
                }
                None => fail(Exit::NoInput, format!("{cause}: the job was removed")),
            });
        };
        Ok(Some(PredecessorAnswer::new(&bytes, record.origin)))
    }

    /// The output of the condition of the run that is repeated; `None` if there is none, or if it has not come to that.
    ///
    /// # Errors
    /// Status 66 if its output is no longer stored.
    fn repeated_condition(&self) -> Result<Option<Vec<u8>>> {
        let Some(record) = self.rerun else {
            return Ok(None);
        };
        let path = self.job_dir.output_path(record.start.parse()?, INPUT_SUFFIX);
        let stored = durable_file::read_limited(&path, MAX_ANSWER_BYTES)?;
        match (stored, record.has_input) {
            (Some(output), _) => Ok(Some(output)),
            (None, Some(false)) => Ok(Some(Vec::new())),
            (None, None) => Ok(None),
            (None, Some(true)) => {
                let cause = format!("the input of the run `{}` is no longer stored", record.id);
                Err(fail(Exit::NoInput, cause)
                    .with_hint(format!("`nanobot cron run {}`", self.job.id)))
            }
        }
    }

    /// Checks that the job does not run after itself, as after a change of the files by hand.
    ///
    /// # Errors
    /// Status 78.
    fn check_chain(&self) -> Result<()> {
        let job = self.job;
        if job.follows().is_none() {
            return Ok(());
        }
        match find_loop(&self.store.jobs()?, job) {
            None => Ok(()),
            Some(names) => {
                Err(fail(Exit::Config, format!("{names} would run after itself")).with_hint(
                    format!("`nanobot cron edit {} --after JOB`, with another job", job.id),
                ))
            }
        }
    }

    /// Runs the command of the condition. With `output_decides`, its standard output decides; else its exit status does, and the
    /// input of the run is the output of both streams. Returns the input; `None` if the condition is not met.
    fn check_condition(
        &self,
        command: &str,
        output_decides: bool,
        slot: Option<Timestamp>,
    ) -> Result<Option<Vec<u8>>> {
        let spec = CommandSpec {
            capture_bytes: COMMAND_OUTPUT_LIMIT_BYTES,
            ..delivery::shell_spec(self.ctx, self.settings, self.job, slot, command, None)
        };
        let (flag, finished) = if output_decides {
            ("--when-output", process::run_split_stderr(&spec))
        } else {
            let finished = process::run(&spec, &mut |_| {});
            ("--when", finished.map(|finished| (finished, Vec::new())))
        };
        let (result, stderr) = finished.with_context(|| format!("run `{flag}`"))?;
        let has_output = !captured_output(&result).trim_ascii().is_empty();
        let is_met = match result.status.and_then(|status| status.code()) {
            Some(NOT_EXECUTABLE_STATUS | NOT_FOUND_STATUS) | None => None,
            Some(code) if !output_decides => Some(code == 0),
            Some(code) => {
                (has_output || code == 0 || stderr.trim_ascii().is_empty()).then_some(has_output)
            }
        };
        match is_met {
            Some(is_met) => Ok(is_met.then(|| captured_output(&result))),
            None => Err(command_error(flag, &result, &stderr)),
        }
    }

    /// Runs the command of a job without a model, with `input` as its standard input.
    fn run_command(
        &self,
        command: &str,
        slot: Option<Timestamp>,
        input: Option<&[u8]>,
    ) -> Result<RunResult> {
        let job = self.job;
        let spec = CommandSpec {
            capture_bytes: COMMAND_OUTPUT_LIMIT_BYTES,
            // The run has a time limit of its own.
            timeout: Duration::MAX,
            input: input.map(|text| [text.trim_ascii_end(), b"\n"].concat()),
            ..delivery::shell_spec(self.ctx, self.settings, job, slot, command, None)
        };
        let (result, stderr) = process::run_split_stderr(&spec).context("run `--command`")?;
        if !result.status.is_some_and(|status| status.success()) {
            return Err(command_error("--command", &result, &stderr));
        }
        let output = captured_output(&result);
        let text = secret::redact_all(&String::from_utf8_lossy(&output)).into_owned();
        let is_silent = text.trim().is_empty();
        Ok(RunResult {
            outcome: Some(if is_silent { RunOutcome::Nothing } else { RunOutcome::Ok }),
            text,
            kind: JobKind::Command,
            origin: Some(Origin::Project),
            ..RunResult::default()
        })
    }

    /// Moves a large session of the job to the trash, which keeps it for a while: only the last run is sent again.
    fn begin_session_anew_if_large(&self, key: &str) -> Result<()> {
        let store = self.ctx.session_store(self.settings)?;
        if sessions::move_to_trash_if_larger(&store, key, MAX_SESSION_BYTES)? {
            sessions::remove_expired_trash(&store, self.settings.retention.trash)?;
        }
        Ok(())
    }

    /// The options of the turn.
    fn turn_options(&self) -> Result<TurnOptions> {
        let options = &self.options();
        let mut grants = stored_grants(options)?;
        grants.directory = Some(workspace_jobs::job_directory(self.settings, options));
        let text = self.job.message.as_str();
        let message = match self.job.options {
            Some(_) => UserText::typed(text),
            None => {
                let content = OthersContent::new(Origin::Project, "a job of another program");
                UserText::of_others(text, content)
            }
        };
        Ok(TurnOptions {
            input: TurnInput { message: Some(message), ..TurnInput::default() },
            model: ModelOptions {
                name: options.model.clone(),
                fallbacks: options.fallbacks.clone().map(|names| vec![ModelNames(names)]),
                cache: options.hour_cache.then_some(CacheTime::Hour),
                max_cost: options.max_cost,
                ..ModelOptions::default()
            },
            grants,
            prompt: PromptOptions { skills: options.skills.clone(), ..PromptOptions::default() },
            until: UntilOptions {
                command: options.until.clone(),
                max_rounds: options.max_rounds.unwrap_or(DEFAULT_MAX_ROUNDS),
                force: false,
            },
            limits: TurnLimits { strict: true, ..TurnLimits::default() },
            recording: RecordingOptions {
                replay: self.replay.map(Path::to_owned),
                ..RecordingOptions::default()
            },
            ..TurnOptions::default()
        })
    }

    /// The section of the system prompt about the job. It is the same in each run.
    fn job_prompt(&self) -> String {
        let options = &self.options();
        let job = self.job;
        let local = time_zone::local_zone(self.ctx, self.settings);
        let schedule = timing::describe_schedule_for_model(self.ctx, job, &local);
        let destination = delivery::describe_destination(options);
        format!(
            "This run is the scheduled job `{}` (id {}): {schedule}. It is unattended, and you cannot ask questions. Your answer \
             {destination}. You see at most the last of its earlier runs. If there is nothing worth reporting, answer with \
             {NOTHING_TO_REPORT} only; no answer is then delivered.",
            sanitized_name(&job.name),
            job.id
        )
    }

    /// A new record of a run that is not over yet.
    pub(super) fn new_record(
        &self,
        trigger: Trigger,
        slot: Option<Timestamp>,
        outcome: RunOutcome,
        start: Timestamp,
    ) -> RunRecord {
        RunRecord {
            version: RunRecord::FORMAT_VERSION,
            id: random_hex(4),
            job_id: self.job.id.clone(),
            name: self.job.name.clone(),
            host: host::name(),
            release: env!("CARGO_PKG_VERSION").into(),
            trigger,
            slot: slot.map(|slot| slot.to_string()),
            retry: 0,
            start: Timestamp::from_millisecond(start.as_millisecond()).unwrap_or(start).to_string(),
            end: self.ctx.clock.timestamp().to_string(),
            outcome,
            status: Exit::Answered.code(),
            cause: Exit::Answered.name().to_owned(),
            error: None,
            usage: RunUsage::default(),
            has_input: None,
            output: None,
            delivered: None,
            origin: None,
        }
    }
}

/// The output of a command, with a mark where bytes are left out.
fn captured_output(result: &CommandResult) -> Vec<u8> {
    let mut output = result.head.clone();
    if result.omitted_bytes > 0 {
        let mark = format!("\n[… {} bytes left out …]\n", result.omitted_bytes);
        output.extend(mark.as_bytes());
    }
    output.extend(&result.tail);
    output
}

/// The error of the command of `flag`, which has failed or was stopped: the reason, and what it has printed.
fn command_error(flag: &str, result: &CommandResult, stderr: &[u8]) -> anyhow::Error {
    if let Some(stop) = result.stop {
        return stop.into();
    }
    let reason = match (result.status.and_then(|status| status.code()), result.signal()) {
        (Some(code @ (NOT_EXECUTABLE_STATUS | NOT_FOUND_STATUS)), _) => {
            format!("cannot be run (exit status {code})")
        }
        (Some(code), _) => format!("failed with exit status {code}"),
        (None, Some(number)) => format!("was killed by signal {number}"),
        (None, None) => "timed out".into(),
    };
    let output = if stderr.is_empty() { &result.head } else { stderr };
    let output = redact_and_shorten(String::from_utf8_lossy(output).trim());
    let colon = if output.is_empty() { "" } else { ": " };
    fail(Exit::Failed, format!("`{flag}` {reason}{colon}{output}"))
}

/// True if the time of the run is over. Its end is reported all the same.
fn is_out_of_time() -> bool {
    signal::timeout_left().is_some_and(|left| left.is_zero())
}

/// Checks that the job may run at all.
///
/// # Errors
/// Status 78.
fn check_runnable(job: &Job, options: &JobOptions) -> Result<()> {
    if job.is_altered() {
        return Err(fail(Exit::Config, JOB_TAMPERED)
            .with_hint(format!("`nanobot cron edit {}` accepts it as it is now", job.id)));
    }
    if job.options.is_some() && options.kind == JobKind::Turn && options.policy.is_none() {
        return Err(fail(Exit::Config, "the job has no stored permissions")
            .with_hint(format!("`nanobot cron edit {}`, which stores them", job.id)));
    }
    Ok(())
}

/// The permissions of the job's creator, which are the upper bound for the job.
fn resolve_policy_limit(job: &Job, options: &JobOptions) -> Result<Option<Policy>> {
    options.policy.as_ref().map(Policy::from_snapshot).transpose().map_err(|error| {
        fail(Exit::Config, format!("cannot parse the job's permissions: {error}"))
            .with_hint(format!("`nanobot cron edit {}`, which stores them again", job.id))
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
        let messages: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
        record.error = Some(redact_and_shorten(&messages.join("; ")));
    }
    record.status = exit.code();
    record.cause = exit.name().to_owned();
}

/// Shortens `text` and hides keys in it, because other programs can read the files in which it is stored.
fn redact_and_shorten(text: &str) -> String {
    let text = &*secret::redact_all(text);
    match text.char_indices().nth(MAX_ERROR_CHARS) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// The job's name as it appears in the prompt: other programs write the job file too, so control characters are
/// removed.
fn sanitized_name(name: &str) -> String {
    let name = name.replace(char::is_control, " ");
    time_format::to_one_line(&name).chars().take(MAX_NAME_CHARS).collect()
}

/// True if the last line of an answer says that there is nothing to report. The answer of a heartbeat may also use the
/// phrases that models know from other programs.
fn has_nothing_to_report(text: &str, kind: JobKind) -> bool {
    let last = without_markup(text.trim_end().lines().next_back().unwrap_or_default());
    last == NOTHING_TO_REPORT
        || kind == JobKind::Heartbeat
            && (last == HEARTBEAT_OK || without_markup(text).eq_ignore_ascii_case(ALL_CLEAR))
}

/// `text` without the Markdown and punctuation around it.
fn without_markup(text: &str) -> &str {
    text.trim_matches(|letter: char| letter.is_whitespace() || "`*_.!\"'".contains(letter))
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
