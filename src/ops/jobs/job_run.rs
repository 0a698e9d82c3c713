//! A job's run: its condition, its turn, the delivery of the answer, and the record.
//!
//! The order makes crashes detectable: the stamp is on disk before anything is paid for, the record is written before
//! the stamp is removed, and the job file is updated last. The next start detects a crash at any point in between.

use crate::cron::job::{Job, Kind, Terms};
use crate::cron::record::{Outcome, Record, Spent, Stamps, Started, Trigger};
use crate::error::{Exit, exit_of, fail_hint};
use crate::ops::agent_turn::{self, TurnOutcome, origin::JobTurn};
use crate::ops::jobs::delivery::{self, DeliveryResult};
use crate::ops::jobs::heartbeat::{self, HeartbeatCheck};
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::jobs::job_runner::{JobRunner, shortened};
use crate::ops::jobs::job_store;
use crate::ops::jobs::run_condition::Condition;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use crate::ops::turn_options::TurnOptions;
use crate::policy::Policy;
use crate::sys::signal;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

/// The last line of an answer that has nothing to report.
pub(crate) const NOTHING: &str = "NOTHING_TO_REPORT";
/// The reason why a job does not run after another program changed its message.
pub(crate) const JOB_TAMPERED: &str = "another program changed the job's message";
/// Maximum length of a job's name in the prompt, in characters.
const MAX_NAME_CHARS: usize = 80;

/// The result of a run's work.
#[derive(Default)]
struct RunResult {
    /// The outcome, if it does not follow from the text and the error.
    outcome: Option<Outcome>,
    text: String,
    error: Option<anyhow::Error>,
    exit: Option<Exit>,
    spent: Spent,
    turn: Option<TurnOutcome>,
}

impl RunResult {
    fn from_turn(session: String, mut turn: TurnOutcome) -> Self {
        let tally = &turn.ending.tally;
        let spent = Spent {
            session,
            turn: turn.turn.clone(),
            model: tally.model.clone(),
            iterations: tally.iterations,
            input_tokens: tally.usage.input,
            output_tokens: tally.usage.output,
            cost_usd: tally.cost,
            denied: tally
                .denials
                .iter()
                .map(|denial| denial.tool.clone())
                .collect(),
        };
        Self {
            outcome: None,
            text: turn.ending.text.clone(),
            error: turn.ending.error.take(),
            exit: Some(turn.exit),
            spent,
            turn: Some(turn),
        }
    }

    fn exit(&self) -> Exit {
        self.exit
            .unwrap_or_else(|| self.error.as_ref().map_or(Exit::Answered, exit_of))
    }

    fn outcome(&self) -> Outcome {
        let is_silent = || has_nothing_to_report(&self.text);
        self.outcome.unwrap_or_else(|| match self.error {
            Some(_) => Outcome::Failed,
            None if is_silent() => Outcome::Nothing,
            None => Outcome::Ok,
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
        mut stamps: Stamps,
    ) -> Result<Exit> {
        let ctx = self.ctx;
        let start = ctx.clock.timestamp();
        let terms = job.terms.clone().unwrap_or_default();
        let limit = job.deadline();
        signal::arm((limit > 0).then(|| Duration::from_secs(limit))).context("wait for signals")?;
        stamps.started = Some(Started {
            at_ms: start.as_millisecond(),
            slot_ms: slot.map(Timestamp::as_millisecond),
            pid: std::process::id(),
        });
        self.folder.stamp(&stamps)?;
        let mut result = self
            .work(job, &terms, slot)
            .unwrap_or_else(|error| RunResult {
                error: Some(error),
                ..RunResult::default()
            });
        if result.error.is_some() {
            signal::last_words();
        }
        let mut record = self.record(job, trigger, slot, result.outcome(), start);
        record.spent = std::mem::take(&mut result.spent);
        let exit = result.exit();
        let mut errors = self.deliver(job, &terms, start, &mut result, &mut record);
        let exit = exit_with(exit, &errors);
        if exit == Exit::Timeout || !errors.is_empty() {
            signal::last_words();
        }
        note_end(&mut record, exit, &errors);
        record.end = ctx.clock.timestamp().to_string();
        stamps.started = None;
        let recorded = self.folder.record(&record);
        // If the record cannot be written, the stamp stays, so the next start detects that there was a run.
        let stamped = recorded.and_then(|()| self.folder.stamp(&stamps));
        errors.extend(stamped.err());
        errors.extend(self.update_job_file(job, &record, start, trigger).err());
        for error in &errors {
            self.report_error(job, error);
        }
        if record.outcome == Outcome::Failed {
            if exit == Exit::Timeout {
                signal::overtime(delivery::LIMIT);
            }
            delivery::tell_failure(ctx, self.settings, job, &terms, &record);
        }
        if let Some(turn) = &result.turn {
            turn.finish(ctx);
        }
        self.explain_silence(trigger, record.outcome);
        Ok(exit_with(exit, &errors))
    }

    /// Delivers the answer and stores a copy. Returns the errors, including that of the run.
    fn deliver(
        &self,
        job: &Job,
        terms: &Terms,
        start: Timestamp,
        result: &mut RunResult,
        record: &mut Record,
    ) -> Vec<anyhow::Error> {
        let text = result.text.trim_end();
        let is_answer = !text.is_empty()
            && matches!(
                result.exit(),
                Exit::Answered | Exit::Denied | Exit::Limit | Exit::Budget
            );
        let delivered = match is_answer && !has_nothing_to_report(text) {
            true => delivery::deliver(self.ctx, self.settings, job, terms, text),
            false => DeliveryResult::default(),
        };
        record.delivered = delivered.to;
        let mut errors: Vec<anyhow::Error> = Vec::new();
        // A closed pipe is no failure.
        let is_failure = |error: &anyhow::Error| exit_of(error) != Exit::Answered;
        errors.extend(delivered.error.filter(is_failure));
        errors.extend(result.error.take());
        if !text.is_empty() {
            // The answer is delivered already: a full disk is reported, but does not stop the run.
            match self.folder.keep(start, text) {
                Ok(path) => record.output = Some(path),
                Err(error) => errors.push(error.context("the answer was not stored")),
            }
        }
        errors
    }

    /// Tells a user who started the run by hand why there is no answer. Not printed under cron, which would mail it.
    fn explain_silence(&self, trigger: Trigger, outcome: Outcome) {
        let reason = match outcome {
            Outcome::Nothing => "nothing to report",
            Outcome::No => "the `--when` condition is not met",
            _ => return,
        };
        if trigger == Trigger::Hand && self.ctx.terminal.err {
            self.ctx.notice(reason);
        }
    }

    /// Does the work of the run: the condition, the check of HEARTBEAT.md, the turn.
    fn work(&self, job: &Job, terms: &Terms, slot: Option<Timestamp>) -> Result<RunResult> {
        check_runnable(job, terms)?;
        let mut ctx = self.ctx.clone();
        // Without a terminal, cron would mail every notice, so only failures are printed.
        ctx.quiet |= !ctx.terminal.err;
        let input = match &terms.when {
            None => None,
            Some(command) => match self.check_condition(job, command, slot)? {
                Condition::Met(output) => (!output.trim_ascii().is_empty()).then_some(output),
                Condition::NotMet => {
                    return Ok(RunResult {
                        outcome: Some(Outcome::No),
                        ..RunResult::default()
                    });
                }
            },
        };
        let mut options = self.turn_options(job, terms)?;
        let mut check_cost = None;
        if terms.kind == Kind::Heartbeat {
            let HeartbeatCheck { spent, tasks } =
                heartbeat::check(&ctx, self.settings, job, &options)?;
            let without_turn = |spent, outcome, error| RunResult {
                outcome,
                error,
                spent,
                ..RunResult::default()
            };
            match tasks {
                Ok(Some((message, left))) => {
                    (options.message, options.max_cost) = (Some(message), left);
                }
                Ok(None) => return Ok(without_turn(spent, Some(Outcome::Nothing), None)),
                Err(error) => return Ok(without_turn(spent, None, Some(error))),
            }
            check_cost = Some(spent);
        }
        let policy_limit = policy_limit(job, terms)?;
        let (session, is_own) = job.conversation();
        options.session = Some(session.clone());
        let turn = agent_turn::run_job_turn(
            &ctx,
            &options,
            JobTurn {
                id: &job.id,
                job_prompt: &self.job_prompt(job, terms),
                policy_limit: policy_limit.as_ref(),
                input,
                last_turn_only: is_own,
                untrusted_reason: job.terms.is_none().then_some("a job of another program"),
            },
        );
        let mut result = RunResult::from_turn(session, turn);
        if let Some(spent) = check_cost {
            result.spent.add(&spent);
        }
        Ok(result)
    }

    /// The options of the turn.
    fn turn_options(&self, job: &Job, terms: &Terms) -> Result<TurnOptions> {
        let mut grants = stored_grants(terms)?;
        grants.directory = Some(job_store::job_directory(self.settings, terms));
        Ok(TurnOptions {
            message: Some(job.message.clone()),
            model: terms.model.clone(),
            replay: self.replay.map(Path::to_owned),
            max_cost: terms.max_cost,
            grants,
            max_parallel: 8,
            strict: true,
            ..TurnOptions::default()
        })
    }

    /// The section of the system prompt about the job. It is the same in each run.
    fn job_prompt(&self, job: &Job, terms: &Terms) -> String {
        let when = timing::describe_schedule(self.ctx, job);
        let destination = delivery::describe_destination(terms);
        format!(
            "This run is the scheduled job `{}` (id {}): {when}. It is unattended, and you cannot ask questions. Your answer \
             {destination}. You see at most the last of its earlier runs. If there is nothing worth reporting, answer with \
             {NOTHING} only; no answer is then delivered.",
            sanitized_name(&job.name),
            job.id
        )
    }
}

/// Checks that the job may run at all.
///
/// # Errors
/// Status 78.
fn check_runnable(job: &Job, terms: &Terms) -> Result<()> {
    if job.is_altered() {
        return Err(fail_hint(
            Exit::Config,
            JOB_TAMPERED,
            format!("`nanobot cron edit {}` accepts it as it is now", job.id),
        ));
    }
    if job.terms.is_some() && terms.kind == Kind::Turn && terms.policy.is_none() {
        return Err(fail_hint(
            Exit::Config,
            "the job has no stored permissions",
            format!("`nanobot cron edit {}`, which stores them", job.id),
        ));
    }
    Ok(())
}

/// The permissions of the job's creator, which are the upper bound for the job.
fn policy_limit(job: &Job, terms: &Terms) -> Result<Option<Policy>> {
    let limit = terms.policy.as_ref().map(Policy::restored).transpose();
    limit.map_err(|words| {
        fail_hint(
            Exit::Config,
            format!("cannot parse the job's permissions: {words}"),
            format!("`nanobot cron edit {}`, which stores them again", job.id),
        )
    })
}

/// The exit status of a run. Errors around the run matter only if the run itself succeeded.
fn exit_with(exit: Exit, errors: &[anyhow::Error]) -> Exit {
    match (exit, errors.first()) {
        (Exit::Answered, Some(error)) => exit_of(error),
        (exit, _) => exit,
    }
}

/// Stores in `record` how the run ended.
fn note_end(record: &mut Record, exit: Exit, errors: &[anyhow::Error]) {
    if !errors.is_empty() {
        record.outcome = Outcome::Failed;
        let words: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
        record.error = Some(shortened(&words.join("; ")));
    }
    record.status = exit.code();
    record.cause = exit.name().to_owned();
}

/// The job's name as it appears in the prompt: other programs write the job file too, so control characters are
/// removed.
fn sanitized_name(name: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let name: String = name.chars().map(plain).collect();
    time_format::one_line(&name)
        .chars()
        .take(MAX_NAME_CHARS)
        .collect()
}

/// True if the last line of an answer says that there is nothing to report.
fn has_nothing_to_report(text: &str) -> bool {
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let bare =
        last.trim_matches(|letter: char| letter.is_whitespace() || "`*_.\"'".contains(letter));
    bare == NOTHING
}

#[cfg(test)]
mod tests {
    use super::has_nothing_to_report;

    #[test]
    fn the_mark_of_silence() {
        let check =
            |text: &str, expect: bool| assert_eq!(has_nothing_to_report(text), expect, "{text:?}");
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
