//! A job: the data of the job file, which is shared with the Python program, and the options that only this program
//! stores.

use super::schedule::{CatchUpPolicy, Schedule, Timetable};
use clap::ValueEnum;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use nanobot_base::error::Exit;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The id of the job that checks HEARTBEAT.md.
pub const HEARTBEAT_ID: &str = "heartbeat";
/// Default deadline of a run in seconds.
const DEFAULT_DEADLINE_SECS: u64 = 3600;
/// Default number of retries of a job that runs only once: with the default delay, an hour.
const ONCE_RETRIES: u32 = 6;
/// Default time before a retry.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_mins(10);

/// A scheduled job: its schedule, its message, and the delivery of its answer.
#[derive(Clone, Debug)]
pub struct Job {
    /// Eight hexadecimal digits by default. A chosen id has at most 64 letters, digits, `_` and `-`.
    pub id: String,
    pub name: String,
    pub enabled: bool,
    /// The schedule, or a message that says why the job never runs.
    pub schedule: Result<Schedule, String>,
    pub message: String,
    /// The delivery of the answer as stored in the job file.
    pub delivery: Delivery,
    /// The session, if it is not `cron:ID`.
    pub session: Option<String>,
    pub created: Timestamp,
    /// State after the last run, by this program or another.
    pub state: JobState,
    /// True if the job is removed after its run.
    pub delete_after_run: bool,
    /// `None` for a job created by another program.
    pub options: Option<JobOptions>,
    /// The job that it runs after.
    pub predecessor: Option<Predecessor>,
}

/// The job that another one runs after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    pub id: String,
    /// The name; `None` if the job was removed.
    pub name: Option<String>,
    pub enabled: bool,
    /// The end of its last run that gave an answer.
    pub last_end: Option<Timestamp>,
}

impl Predecessor {
    /// Describes the job as a predecessor, without its runs.
    pub fn new(job: &Job) -> Self {
        Self {
            id: job.id.clone(),
            name: Some(job.name.clone()),
            enabled: job.enabled,
            last_end: None,
        }
    }

    /// Returns its name, or else its id.
    pub fn label(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.id)
    }
}

/// The delivery of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    pub deliver: bool,
    pub channel: Option<String>,
    pub to: Option<String>,
}

/// The run state in the job file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    pub next_run: Option<Timestamp>,
    pub last_run: Option<Timestamp>,
    /// `ok` or `error`.
    pub last_status: Option<String>,
    pub last_error: Option<String>,
}

/// The job data that only this program stores. It is kept outside the job file for two reasons: the Python program
/// drops keys that it does not know, and commands to run must not come from a file that other programs write.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobOptions {
    /// The version of the format.
    pub v: u32,
    /// The permissions granted, in the form of the `cron add` flags; paths are absolute.
    pub grants: Value,
    /// The permissions of the job's creator, in the form of `nanobot_config::policy::snapshot`: an upper bound for the job.
    pub policy: Option<Value>,
    /// True if a run created the job, and not a person.
    pub by_model: bool,
    /// The chat or the sender, as `CHANNEL:ID`, whose binding in the config limits the runs, if one of its turns created the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    /// True if `cron apply` created the job from a file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub applied: bool,
    pub model: Option<String>,
    /// The config file, if it is not the default one.
    pub config: Option<PathBuf>,
    /// A command that decides whether there is anything to do.
    pub when: Option<String>,
    /// True if the output of that command decides, and not its exit status.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub when_output: bool,
    /// The command of a job of the kind [`JobKind::Command`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The fallback models, in place of those of the config.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<Vec<String>>,
    /// True if the provider keeps the prompts of the runs for an hour.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hour_cache: bool,
    /// Names and directories of the skills that a run has from the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    /// A command that decides when the task is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Maximum number of answers, with `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// Seconds; 0 for no timeout.
    pub timeout: Option<u64>,
    pub max_cost: Option<f64>,
    pub catch_up: CatchUpPolicy,
    pub after_crash: CrashPolicy,
    /// Maximum number of retries of a failure that is retried; `None` for the default of the schedule.
    pub retry: Option<u32>,
    /// Exit statuses that are retried besides those of temporary failures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retry_on: Vec<u8>,
    /// Seconds before a retry.
    pub retry_delay: Option<u64>,
    /// Maximum delay of a start in seconds.
    pub jitter: Option<u64>,
    /// A command that is notified of failures.
    pub on_failure: Option<String>,
    /// A command that is notified of successes.
    pub on_success: Option<String>,
    /// The address to which the start and the end of each run are reported; `none` for no address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<String>,
    /// The runs that are reported to the user.
    pub notify: NotifyPolicy,
    /// True if the answer is not printed.
    pub quiet: bool,
    /// The destination of the answer that the user chose; the options on disk call it a sink.
    #[serde(rename = "sink")]
    pub destination: Option<AnswerDestination>,
    /// The kind of run.
    pub kind: JobKind,
    /// The message and the session that these options apply to, recorded when a person or a run last set them: other
    /// programs write the job file too.
    pub message: Option<String>,
    pub session: Option<String>,
    /// Milliseconds between two runs, for a job that is not in a job file.
    pub every_ms: Option<i64>,
    /// The earliest time of a slot, in milliseconds since 1970; 0 for the job's creation.
    pub since_ms: i64,
    /// The time at which a person or a list of jobs last changed the job, in milliseconds since 1970; 0 if none did.
    #[serde(skip_serializing_if = "is_zero")]
    pub changed_ms: i64,
    /// The id of the job that it runs after. The answer of that job becomes its input, so the id is not in the job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl JobOptions {
    /// The version of this format.
    pub const FORMAT_VERSION: u32 = 1;
}

/// The kind of run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// A turn with the job's message.
    #[default]
    Turn,
    /// A check of HEARTBEAT.md.
    Heartbeat,
    /// A command of the user's, whose output is the answer. No model is asked.
    Command,
}

/// Default interval of HEARTBEAT.md checks: half an hour, as in the Python program.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1800);

impl Job {
    /// Returns an enabled job without a message, whose name is its id.
    pub fn new(id: &str, schedule: Result<Schedule, String>, created: Timestamp) -> Self {
        Self {
            id: id.to_owned(),
            name: id.to_owned(),
            enabled: true,
            schedule,
            message: String::new(),
            delivery: Delivery::default(),
            session: None,
            created,
            state: JobState::default(),
            delete_after_run: false,
            options: None,
            predecessor: None,
        }
    }

    /// Returns the heartbeat job with its default settings.
    pub fn heartbeat(created: Timestamp) -> Self {
        Self {
            session: Some(HEARTBEAT_ID.into()),
            options: Some(JobOptions { kind: JobKind::Heartbeat, ..JobOptions::default() }),
            ..Self::new(HEARTBEAT_ID, Ok(Schedule::Every(HEARTBEAT_INTERVAL)), created)
        }
    }

    /// Creates the stand-in for a job that is no longer in the job file and has left data.
    pub fn removed(id: &str, now: Timestamp) -> Self {
        Self { enabled: false, ..Self::new(id, Ok(Schedule::Every(HEARTBEAT_INTERVAL)), now) }
    }

    /// Returns the session of the job's runs.
    pub fn session_key(&self) -> String {
        self.session.clone().unwrap_or_else(|| format!("cron:{}", self.id))
    }

    /// True if only this job uses its session. Then only the last run is sent to the model again.
    pub fn has_own_session(&self) -> bool {
        self.session.as_ref().is_none_or(|key| key == HEARTBEAT_ID)
    }

    /// Binds the options to the job's current message, session and predecessor.
    pub fn bind_options(&mut self) {
        let after = self.follows().map(str::to_owned);
        if let Some(options) = &mut self.options {
            options.after = after;
            options.message = Some(self.message.clone());
            options.session.clone_from(&self.session);
        }
    }

    /// Sets the properties that commands can change to those of `edited_job`.
    pub fn apply_edit(&mut self, edited_job: &Self) {
        let next_run = edited_job.state.next_run;
        *self = Self {
            id: std::mem::take(&mut self.id),
            created: self.created,
            state: JobState { next_run, ..std::mem::take(&mut self.state) },
            ..edited_job.clone()
        };
        self.bind_options();
    }

    /// True if another program changed the message or the session after the options were set. Other programs may change
    /// the schedule.
    pub fn is_altered(&self) -> bool {
        self.options.as_ref().is_some_and(|options| {
            options.kind == JobKind::Turn
                && (options.message.as_ref() != Some(&self.message)
                    || options.session != self.session)
        })
    }

    /// Returns the message that its runs get, as this program has stored it; `None` if its runs have none, or another program has changed it.
    pub fn repeatable_text(&self) -> Option<String> {
        let is_own = self.options.is_some() && self.kind() == JobKind::Turn && !self.is_altered();
        is_own.then(|| self.message.clone())
    }

    /// Returns the kind of its runs.
    pub fn kind(&self) -> JobKind {
        self.options.as_ref().map_or(JobKind::Turn, |options| options.kind)
    }

    /// True if the job runs only once.
    pub fn is_once(&self) -> bool {
        matches!(self.schedule, Ok(Schedule::At(_)))
    }

    /// Returns the id of the job that this one runs after.
    pub fn follows(&self) -> Option<&str> {
        match &self.schedule {
            Ok(Schedule::After(id)) => Some(id),
            _ => None,
        }
    }

    /// True if nothing starts the job again after its run: it runs once, or after a job that was removed.
    pub fn is_over_after_run(&self) -> bool {
        self.is_once() || self.predecessor.as_ref().is_some_and(|job| job.name.is_none())
    }

    /// Returns the reason why the job that this one runs after does not run; `None` if it does.
    pub fn predecessor_problem(&self) -> Option<String> {
        let predecessor = self.predecessor.as_ref()?;
        let state = match (&predecessor.name, predecessor.enabled) {
            (None, _) => "was removed",
            (Some(_), false) => "is disabled",
            (Some(_), true) => return None,
        };
        Some(format!("`{}`, which it runs after, {state}", predecessor.label()))
    }

    /// Maximum duration of a run in seconds; 0 for no limit.
    pub fn deadline_secs(&self) -> u64 {
        let timeout = self.options.as_ref().and_then(|options| options.timeout);
        timeout.unwrap_or(DEFAULT_DEADLINE_SECS)
    }

    /// Returns the rule for retries. A job that runs only once is retried by default, because it has no next slot.
    pub fn retry_policy(&self) -> RetryPolicy {
        let options = self.options.as_ref();
        let default_limit = if self.is_once() { ONCE_RETRIES } else { 0 };
        RetryPolicy {
            limit: options.and_then(|options| options.retry).unwrap_or(default_limit),
            delay: options
                .and_then(|options| options.retry_delay)
                .map_or(DEFAULT_RETRY_DELAY, Duration::from_secs),
        }
    }

    /// True if a run that failed with `exit` is tried again: the failure is temporary, or the user chose its status.
    pub fn retries(&self, exit: Exit) -> bool {
        let statuses = self.options.as_ref().map_or(&[][..], |options| &options.retry_on);
        exit.is_temporary() || statuses.contains(&exit.code())
    }

    /// Returns the maximum delay of a start.
    pub fn jitter(&self) -> Duration {
        let jitter = self.options.as_ref().and_then(|options| options.jitter);
        Duration::from_secs(jitter.unwrap_or(0))
    }

    /// Returns the earliest time of a slot.
    pub fn earliest_slot(&self) -> Timestamp {
        let since_ms = self.options.as_ref().map_or(0, |options| options.since_ms);
        Timestamp::from_millisecond(since_ms).unwrap_or_default().max(self.created)
    }

    /// Returns the job's timetable for `schedule` in `zone`, whose starts come `delay` after each slot.
    pub fn timetable<'a>(
        &self,
        schedule: &'a Schedule,
        zone: &'a TimeZone,
        delay: Duration,
    ) -> Timetable<'a> {
        Timetable {
            schedule,
            delay,
            max_delay: self.jitter(),
            predecessor_end: self.predecessor.as_ref().and_then(|job| job.last_end),
            catch_up: self.catch_up(),
            created: self.created,
            earliest_slot: self.earliest_slot(),
            zone,
        }
    }

    /// Returns the policy for missed slots. A job that runs only once is caught up by default, because it would
    /// otherwise be lost silently.
    pub fn catch_up(&self) -> CatchUpPolicy {
        match (&self.options, &self.schedule) {
            (Some(options), _) => options.catch_up,
            (None, Ok(Schedule::At(_))) => CatchUpPolicy::Once,
            (None, _) => CatchUpPolicy::None,
        }
    }
}

/// The rule for retries of a failed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of retries.
    pub limit: u32,
    /// Time between the end of a failed run and its retry.
    pub delay: Duration,
}

/// The runs that are reported to the user: all, or the first failure after a success and the first success after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotifyPolicy {
    #[default]
    Always,
    Change,
}

/// The policy for a run with an unknown outcome: its slot is not run again, or it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrashPolicy {
    #[default]
    Skip,
    Again,
}

/// The destination of an answer, as the user chose it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerDestination {
    /// Appends the answer to this file.
    File(PathBuf),
    /// Runs this shell command with the answer as its standard input.
    Command(String),
    /// Sends the answer to a chat.
    Chat { channel: String, to: String },
}
