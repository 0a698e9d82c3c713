//! A job's run: its condition, its turn, where its answer goes, and what stays of it.
//!
//! The order is that of a promise: the stamp is on the disk before anything is paid for, the record before the stamp is
//! taken back, and the job file is told last. Whatever dies in between is found by whoever comes next.

use crate::cron::job::{AfterCrash, Job, Kind, Terms};
use crate::cron::record::{Folder, Outcome, Record, Spent, Stamps, Started, Trigger};
use crate::cron::schedule::{CatchUp, Verdict};
use crate::cron::store::Store;
use crate::error::{Exit, exit_of, fail, fail_hint, hint_of};
use crate::ops::agent_turn::{self, TurnOutcome, origin::JobTurn};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::delivery::{self, Given};
use crate::ops::jobs::heartbeat::{self, Looked};
use crate::ops::jobs::job_options::grants_of;
use crate::ops::jobs::job_store;
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use crate::ops::turn_options::TurnOptions;
use crate::policy::Policy;
use crate::settings::Settings;
use crate::sys::process::{self, Spec};
use crate::sys::{secret, signal};
use anyhow::{Context as _, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use std::path::Path;
use std::time::Duration;

/// An answer whose last line is this has nothing to tell.
pub(crate) const NOTHING: &str = "NOTHING_TO_REPORT";
/// What is told of a job that is not what its terms were given for.
pub(crate) const JOB_TAMPERED: &str = "another program changed what the job is told";
/// Bytes of what `--when` prints that are kept, from its beginning and from its end.
const WHEN_KEEP: usize = 256 << 10;
/// Among so many of the last records it is looked whether a time was skipped already.
const BUSY: usize = 100;
/// How long a job that runs once is tried again.
const TRY_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How old a time may be that is run again after a crash.
const AGAIN: SignedDuration = SignedDuration::from_hours(24);
/// Characters of a job's name that the model is told.
const NAME: usize = 80;
/// A failure's words in a record and in the job file, in characters.
const WORDS: usize = 500;

/// A job's run, and what it works with.
pub(crate) struct Work<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) folder: &'a Folder,
    /// The job is in the store, and not one that was made up for this run.
    pub(crate) is_kept: bool,
    /// What stands for the model.
    pub(crate) replay: Option<&'a Path>,
}

/// Whether a time of a job has been run.
pub(crate) enum Ran {
    Not,
    /// By us: a clock that was set back and forth comes by twice.
    Here,
    /// By another program, as the job file says.
    Elsewhere,
}

/// What came of the work of a run.
#[derive(Default)]
struct Came {
    outcome: Option<Outcome>,
    text: String,
    error: Option<anyhow::Error>,
    exit: Option<Exit>,
    spent: Spent,
    gone: Option<TurnOutcome>,
}

impl Work<'_> {
    /// Whether `slot` has been run.
    pub(crate) fn has_run(&self, job: &Job, slot: Timestamp) -> Result<Ran> {
        let records = self.folder.records(usize::MAX)?;
        let at = slot.to_string();
        let is_it = |record: &Record| {
            let is_again = job.is_once() && is_for_a_while(record.status);
            record.outcome.is_run() && record.slot.as_deref() == Some(&at) && !is_again
        };
        if records.iter().any(is_it) {
            return Ok(Ran::Here);
        }
        let now = self.ctx.clock.timestamp();
        let Some(last) = job
            .state
            .last_run
            .filter(|last| slot <= *last && *last <= now)
        else {
            return Ok(Ran::Not);
        };
        // What we have a record of was somebody who asked for it, and no run of this time.
        let last = last.to_string();
        let is_ours = records.iter().any(|record| record.start == last);
        Ok(if is_ours { Ran::Not } else { Ran::Elsewhere })
    }

    /// What is left of a time once it was run. One that comes but once is tried again, where the cause may pass, for an hour. A
    /// time that fell due meanwhile is skipped, unless what is missed is caught up.
    pub(crate) fn leave(
        &self,
        job: &Job,
        slot: Timestamp,
        exit: Exit,
        before: Option<i64>,
    ) -> Result<()> {
        let mut stamps = self.folder.stamps()?;
        if self.is_tried_again(job, slot, exit.code()) {
            stamps.handled_ms = before;
            return self.folder.stamp(&stamps);
        }
        if job.catch_up() == CatchUp::Once || stamps.handled_ms != Some(slot.as_millisecond()) {
            return Ok(());
        }
        if let Verdict::Due { slot } | Verdict::Missed { slot } =
            timing::due_state(self.ctx, job, &stamps)?
        {
            stamps.handled_ms = Some(slot.as_millisecond());
            self.folder.stamp(&stamps)?;
        }
        Ok(())
    }

    /// Whether the run of a job that comes but once is to be tried again.
    fn is_tried_again(&self, job: &Job, slot: Timestamp, status: u8) -> bool {
        let since = self.ctx.clock.timestamp().duration_since(slot);
        job.is_once() && is_for_a_while(status) && since < TRY_FOR
    }

    /// Run the job, whose lock is held, and leave a record.
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
        let mut came = self.work(job, &terms, slot).unwrap_or_else(|error| Came {
            error: Some(error),
            ..Came::default()
        });
        let exit = came.exit.unwrap_or_else(|| {
            let failed = came.error.as_ref();
            failed.map_or(Exit::Answered, exit_of)
        });
        if came.error.is_some() {
            signal::last_words();
        }
        let text = came.text.trim_end().to_owned();
        let is_given = !text.is_empty()
            && matches!(
                exit,
                Exit::Answered | Exit::Denied | Exit::Limit | Exit::Budget
            );
        let outcome = came.outcome.unwrap_or(match (&came.error, silent(&text)) {
            (Some(_), _) => Outcome::Failed,
            (None, true) => Outcome::Nothing,
            (None, false) => Outcome::Ok,
        });
        let mut record = self.record(job, trigger, slot, outcome, start);
        record.spent = std::mem::take(&mut came.spent);
        let speaks = is_given && !silent(&text);
        let given = match speaks {
            true => delivery::give(ctx, self.settings, job, &terms, &text),
            false => Given::default(),
        };
        record.delivered = given.to;
        let mut errors: Vec<anyhow::Error> = Vec::new();
        // Nobody who reads any more is no failure.
        let is_failure = |error: &anyhow::Error| exit_of(error) != Exit::Answered;
        errors.extend(given.error.filter(is_failure));
        errors.extend(came.error.take());
        if !text.is_empty() {
            // The answer is out: a disk that is full is told, and ends nothing.
            match self.folder.keep(start, &text) {
                Ok(path) => record.output = Some(path),
                Err(error) => errors.push(error.context("the answer is not kept")),
            }
        }
        // What went wrong around the run is the cause only where the run itself went well.
        let exit = match (exit, errors.first()) {
            (Exit::Answered, Some(error)) => exit_of(error),
            (exit, _) => exit,
        };
        if exit == Exit::Timeout || !errors.is_empty() {
            signal::last_words();
        }
        if !errors.is_empty() {
            record.outcome = Outcome::Failed;
            let words: Vec<String> = errors.iter().map(|error| format!("{error:#}")).collect();
            record.error = Some(shortened(&words.join("; ")));
        }
        record.status = exit.code();
        record.cause = exit.name().to_owned();
        record.end = ctx.clock.timestamp().to_string();
        stamps.started = None;
        let recorded = self.folder.record(&record);
        // Without a record the stamp stays, so that whoever comes next knows that there was a run.
        let stamped = recorded.and_then(|()| self.folder.stamp(&stamps));
        errors.extend(stamped.err());
        errors.extend(self.settle(job, &record, start, trigger).err());
        for error in &errors {
            self.complain(job, error);
        }
        if record.outcome == Outcome::Failed {
            if exit == Exit::Timeout {
                signal::overtime(delivery::LIMIT);
            }
            delivery::tell_failure(ctx, self.settings, job, &terms, &record);
        }
        let exit = match (exit, errors.first()) {
            (Exit::Answered, Some(error)) => exit_of(error),
            (exit, _) => exit,
        };
        if let Some(gone) = &came.gone {
            gone.finish(ctx);
        }
        // Whoever asked for it and sees no answer is told why; cron, which is no terminal, would mail that.
        let silence = match record.outcome {
            Outcome::Nothing => Some("nothing to report"),
            Outcome::No => Some("`--when` said no"),
            _ => None,
        };
        if let (Trigger::Hand, true, Some(words)) = (trigger, ctx.terminal.err, silence) {
            ctx.notice(words);
        }
        Ok(exit)
    }

    /// What the run is for: the condition, the turn.
    fn work(&self, job: &Job, terms: &Terms, slot: Option<Timestamp>) -> Result<Came> {
        if job.is_altered() {
            return Err(fail_hint(
                Exit::Config,
                JOB_TAMPERED,
                format!("`nanobot cron edit {}` takes it over as it is now", job.id),
            ));
        }
        if job.terms.is_some() && terms.kind == Kind::Turn && terms.policy.is_none() {
            return Err(fail_hint(
                Exit::Config,
                "nothing says what the job may do at most",
                format!("`nanobot cron edit {}`, which fixes it anew", job.id),
            ));
        }
        let mut ctx = self.ctx.clone();
        // What is not a failure is no reason for a mail.
        ctx.quiet |= !ctx.terminal.err;
        let input = match &terms.when {
            None => None,
            Some(command) => match self.when(job, command, slot)? {
                When::Yes(output) => (!output.trim_ascii().is_empty()).then_some(output),
                When::No => {
                    return Ok(Came {
                        outcome: Some(Outcome::No),
                        ..Came::default()
                    });
                }
            },
        };
        let mut arguments = self.arguments(job, terms)?;
        let mut before = None;
        if terms.kind == Kind::Heartbeat {
            let Looked { spent, tasks } = heartbeat::look(&ctx, self.settings, job, &arguments)?;
            let (message, left) = match tasks {
                Ok(Some(tasks)) => tasks,
                Ok(None) => {
                    return Ok(Came {
                        outcome: Some(Outcome::Nothing),
                        spent,
                        ..Came::default()
                    });
                }
                Err(error) => {
                    return Ok(Came {
                        error: Some(error),
                        spent,
                        ..Came::default()
                    });
                }
            };
            (arguments.message, arguments.max_cost) = (Some(message), left);
            before = Some(spent);
        }
        let bound = terms.policy.as_ref().map(Policy::restored).transpose();
        let bound = bound.map_err(|words| {
            fail_hint(
                Exit::Config,
                format!("what the job may do cannot be read: {words}"),
                format!("`nanobot cron edit {}`, which fixes it anew", job.id),
            )
        })?;
        let (session, is_own) = job.conversation();
        let gone = agent_turn::run_job_turn(
            &ctx,
            &TurnOptions {
                session: Some(session.clone()),
                ..arguments
            },
            JobTurn {
                id: &job.id,
                job_prompt: &self.briefing(job, terms),
                policy_limit: bound.as_ref(),
                input,
                last_turn_only: is_own,
                untrusted_reason: job.terms.is_none().then_some("a job of another program"),
            },
        );
        let mut came = came(session, gone);
        if let Some(before) = before {
            came.spent.add(&before);
        }
        Ok(came)
    }

    /// What `nanobot agent` would have been told.
    fn arguments(&self, job: &Job, terms: &Terms) -> Result<TurnOptions> {
        let mut grants = grants_of(terms)?;
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

    /// What the model is told of the run: the same in each.
    fn briefing(&self, job: &Job, terms: &Terms) -> String {
        let when = timing::describe_schedule(self.ctx, job);
        let goes = delivery::words(terms);
        format!(
            "This run is the job `{}` (id {}), started by the clock: {when}. No person reads along, and nobody can answer. Your \
             answer {goes}. Of its earlier runs you see the last one at most. When there is nothing worth telling, answer \
             with {NOTHING} alone: then nobody is disturbed.",
            called(&job.name),
            job.id
        )
    }

    /// Ask the job's condition.
    fn when(&self, job: &Job, command: &str, slot: Option<Timestamp>) -> Result<When> {
        let spec = Spec {
            keep: WHEN_KEEP,
            ..delivery::shell(self.ctx, self.settings, job, slot, command, None)
        };
        let finished = process::run(&spec, &mut |_| {}).context("run `--when`")?;
        if let Some(stop) = finished.stopped {
            return Err(stop.into());
        }
        let said = || shortened(String::from_utf8_lossy(&finished.head).trim());
        let failed = |how: String| {
            let said = said();
            let colon = if said.is_empty() { "" } else { ": " };
            fail(Exit::Failed, format!("`--when` {how}{colon}{said}"))
        };
        match finished.status.and_then(|status| status.code()) {
            Some(0) => {
                let mut output = finished.head;
                if finished.left_out > 0 {
                    let gap = format!("\n[… {} bytes left out …]\n", finished.left_out);
                    output.extend(gap.as_bytes());
                }
                output.extend(finished.tail);
                Ok(When::Yes(output))
            }
            Some(code @ (126 | 127)) => Err(failed(format!("cannot be run (status {code})"))),
            Some(_) => Ok(When::No),
            None => match finished.signal() {
                Some(number) => Err(failed(format!("was ended by signal {number}"))),
                None => Err(failed("took too long".into())),
            },
        }
    }

    /// Look for a run that began and did not end. The time that it was for, where it is to be run again.
    pub(crate) fn find_crash(&self, job: &Job, stamps: &mut Stamps) -> Result<Option<Timestamp>> {
        let Some(started) = stamps.started.take() else {
            return Ok(None);
        };
        let time = |at: i64| Timestamp::from_millisecond(at).unwrap_or_default();
        let slot = started.slot_ms.map(time);
        let trigger = match slot {
            Some(_) => Trigger::Schedule,
            None => Trigger::Hand,
        };
        // Its record may be there: then only the stamp was not taken back.
        let start = time(started.at_ms).to_string();
        let records = self.folder.records(usize::MAX)?;
        if records
            .iter()
            .any(|record| record.start == start && record.outcome != Outcome::Busy)
        {
            self.folder.stamp(stamps)?;
            return Ok(None);
        }
        let mut record = self.record(job, trigger, slot, Outcome::Unknown, time(started.at_ms));
        let words = format!(
            "it began at {start} as process {} and nobody knows how it ended; it may have done its work, or a part",
            started.pid
        );
        record.error = Some(words.clone());
        (record.status, record.cause) = (Exit::Failed.code(), Exit::Failed.name().to_owned());
        self.folder.record(&record)?;
        self.folder.stamp(stamps)?;
        self.complain(job, &anyhow!("the last run was cut off: {words}"));
        let terms = job.terms.clone().unwrap_or_default();
        // What dies each time is not begun for ever.
        let is_first = |slot: Timestamp| {
            let slot = Some(slot.to_string());
            let was_cut = |other: &Record| other.outcome == Outcome::Unknown && other.slot == slot;
            !records.iter().any(was_cut)
        };
        let is_fresh = |slot: &Timestamp| {
            self.ctx.clock.timestamp().duration_since(*slot) < AGAIN && is_first(*slot)
        };
        let again = slot.filter(is_fresh);
        let again = again.filter(|_| terms.after_crash == AfterCrash::Again);
        if again.is_none() {
            delivery::tell_failure(self.ctx, self.settings, job, &terms, &record);
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.state.last_status = Some("error".into());
                job.state.last_error = Some(words.clone());
                false
            })?;
        }
        Ok(again)
    }

    /// Note that a time was not run.
    pub(crate) fn passed_over(
        &self,
        job: &Job,
        slot: Timestamp,
        outcome: Outcome,
        stamps: Stamps,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let record = self.record(job, Trigger::Schedule, Some(slot), outcome, now);
        self.folder.record(&record)?;
        self.folder.stamp(&stamps)?;
        if job.is_once() {
            self.retire(job, Some(outcome))?;
        }
        Ok(Exit::Answered)
    }

    /// The job is running already. That is told and noted once for each time that is skipped by it; what was started for no time
    /// of its own is told it each time.
    pub(crate) fn skipped(
        &self,
        job: &Job,
        slot: Option<Timestamp>,
        error: anyhow::Error,
    ) -> Result<Exit> {
        let now = self.ctx.clock.timestamp();
        let mut record = self.record(job, Trigger::Schedule, slot, Outcome::Busy, now);
        if slot.is_some() {
            let is_told =
                |other: &Record| other.outcome == Outcome::Busy && other.slot == record.slot;
            if self.folder.records(BUSY)?.iter().any(is_told) {
                return Ok(Exit::Answered);
            }
        }
        let exit = exit_of(&error);
        record.error = Some(format!("{error:#}"));
        (record.status, record.cause) = (exit.code(), exit.name().to_owned());
        Err(match self.folder.record(&record) {
            Ok(()) => error,
            Err(other) => error.context(format!("no record is left: {other:#}")),
        })
    }

    fn record(
        &self,
        job: &Job,
        trigger: Trigger,
        slot: Option<Timestamp>,
        outcome: Outcome,
        start: Timestamp,
    ) -> Record {
        Record {
            version: Record::VERSION,
            job: job.id.clone(),
            name: job.name.clone(),
            trigger,
            slot: slot.map(|slot| slot.to_string()),
            start: Timestamp::from_millisecond(start.as_millisecond())
                .unwrap_or(start)
                .to_string(),
            end: self.ctx.clock.timestamp().to_string(),
            outcome,
            status: Exit::Answered.code(),
            cause: Exit::Answered.name().to_owned(),
            error: None,
            spent: Spent::default(),
            output: None,
            delivered: None,
        }
    }

    /// Tell the job file how it went, as the Python program does; a job that runs once has run.
    fn settle(&self, job: &Job, record: &Record, start: Timestamp, trigger: Trigger) -> Result<()> {
        let now = self.ctx.clock.timestamp();
        if !self.is_kept {
            return Ok(());
        }
        let mut is_same = false;
        let found = self.store.update(&job.id, now, |there| {
            is_same = there.schedule == job.schedule;
            there.state.last_run = Timestamp::from_millisecond(start.as_millisecond()).ok();
            there.state.last_status = Some(match record.outcome {
                Outcome::Failed => "error".into(),
                _ => "ok".into(),
            });
            there.state.last_error.clone_from(&record.error);
            timing::note_next(self.ctx, there, now);
            false
        })?;
        if !found {
            // Who removes it with our own command leaves no terms; then nothing of it stays. Another program's copy of the file
            // may only be older than the job.
            if job.terms.is_none() || self.store.has_terms(&job.id)? {
                return Ok(());
            }
            self.store.remove_folder(&job.id)?;
            return lifecycle::forget_conversation(self.ctx, self.settings, job);
        }
        let slot = record.slot.as_deref().and_then(|slot| slot.parse().ok());
        let again = slot.is_some_and(|slot| self.is_tried_again(job, slot, record.status));
        match is_same && job.is_once() && trigger == Trigger::Schedule && !again {
            true => self.retire(job, Some(record.outcome)),
            false => Ok(()),
        }
    }

    /// A job that runs once has had its time: it goes, and its record stays; or it is kept, but not run again.
    pub(crate) fn retire(&self, job: &Job, outcome: Option<Outcome>) -> Result<()> {
        let is_done = matches!(outcome, Some(Outcome::Ok | Outcome::Nothing | Outcome::No));
        if is_done && job.delete_after_run {
            self.store.remove(&job.id)?;
        } else {
            let now = self.ctx.clock.timestamp();
            self.store.update(&job.id, now, |job| {
                job.enabled = false;
                job.state.next_run = None;
                false
            })?;
        }
        crontab_sync::project(self.ctx, self.settings, self.store, JobFilter::Known)
            .map(drop)
            .context("its line stays in the crontab")
    }

    /// One clear line for whoever gets cron's mail.
    fn complain(&self, job: &Job, error: &anyhow::Error) {
        let cause = format!("the job `{}` ({}): {error:#}", job.name, job.id);
        // Cron mails it, and what a command printed may hold anything.
        let cause = secret::hide(&cause).into_owned();
        let exit = exit_of(error);
        let told = match hint_of(error) {
            Some(hint) => fail_hint(exit, cause, of_jobs(hint, exit, &job.id)),
            None => fail(exit, cause),
        };
        crate::ops::context::report_error(&told, self.ctx.terminal);
    }
}

/// What a condition said.
enum When {
    Yes(Vec<u8>),
    No,
}

/// What came of a turn.
fn came(session: String, mut gone: TurnOutcome) -> Came {
    let tally = &gone.ending.tally;
    let spent = Spent {
        session,
        turn: gone.turn.clone(),
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
    Came {
        outcome: None,
        text: gone.ending.text.clone(),
        error: gone.ending.error.take(),
        exit: Some(gone.exit),
        spent,
        gone: Some(gone),
    }
}

/// Whether a run that ended with this status may do better in a while.
fn is_for_a_while(status: u8) -> bool {
    [Exit::Unavailable, Exit::TryAgain]
        .iter()
        .any(|exit| exit.code() == status)
}

/// How a job is called in the text that the model heeds: others write the job file too.
fn called(name: &str) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    let name: String = name.chars().map(plain).collect();
    time_format::one_line(&name).chars().take(NAME).collect()
}

/// Whether an answer says that it has nothing to say: its last line is the mark.
fn silent(text: &str) -> bool {
    let last = text.trim_end().lines().next_back().unwrap_or_default();
    let bare =
        last.trim_matches(|letter: char| letter.is_whitespace() || "`*_.\"'".contains(letter));
    bare == NOTHING
}

/// `hint` as it makes sense for a job, which goes on with nothing.
fn of_jobs(hint: &str, exit: Exit, id: &str) -> String {
    match exit {
        _ if !hint.contains("--resume") && !hint.contains("--new") => hint.to_owned(),
        Exit::Timeout => format!("`nanobot cron edit {id} --timeout …`, with more"),
        Exit::Budget => format!("`nanobot cron edit {id} --max-cost …`, with more"),
        _ => "nothing: the next run begins anew".into(),
    }
}

/// The beginning of what is too long, without keys: it is kept where others read it.
fn shortened(text: &str) -> String {
    let text = &*secret::hide(text);
    match text.char_indices().nth(WORDS) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{of_jobs, silent};
    use crate::error::Exit;

    #[test]
    fn hints_of_turns_are_none_of_jobs() {
        let check =
            |hint: &str, exit: Exit, expect: &str| assert_eq!(of_jobs(hint, exit, "x"), expect);
        let more = "a higher `--max-cost`; `--resume` goes on where this stopped";
        check(
            more,
            Exit::Budget,
            "`nanobot cron edit x --max-cost …`, with more",
        );
        check(
            more,
            Exit::Timeout,
            "`nanobot cron edit x --timeout …`, with more",
        );
        check(more, Exit::Unavailable, "nothing: the next run begins anew");
        check("nanobot login", Exit::Refused, "nanobot login");
    }

    #[test]
    fn the_mark_of_silence() {
        let check = |text: &str, expect: bool| assert_eq!(silent(text), expect, "{text:?}");
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
