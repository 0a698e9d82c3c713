//! A job: what the job file has of it, which the Python program shares, and the terms that only this program knows.

use super::schedule::{CatchUp, Schedule, Timetable};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The id of the job that looks at HEARTBEAT.md.
pub const HEARTBEAT: &str = "heartbeat";
/// How long a run may take that says nothing of it, in seconds.
const DEADLINE: u64 = 3600;

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Eight hexadecimal digits, unless somebody chose it: letters, digits, `_` and `-`, 64 at most.
    pub id: String,
    pub name: String,
    pub enabled: bool,
    /// Or in words, why it never runs.
    pub schedule: Result<Schedule, String>,
    pub message: String,
    /// Where the answer goes, as the job file has it.
    pub delivery: Delivery,
    /// The session, where it is another than `cron:ID`.
    pub session: Option<String>,
    pub created: Timestamp,
    /// As of the last run, whoever did it.
    pub state: State,
    /// It is removed once it has run.
    pub delete_after_run: bool,
    /// `None` for a job that another program made.
    pub terms: Option<Terms>,
}

/// Where an answer is to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    pub deliver: bool,
    pub channel: Option<String>,
    pub to: Option<String>,
}

/// What the job file says of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub next_run: Option<Timestamp>,
    pub last_run: Option<Timestamp>,
    /// `ok` or `error`.
    pub last_status: Option<String>,
    pub last_error: Option<String>,
}

/// What only this program knows of a job. It lies beside the job file and not in it, since the Python program drops what it
/// does not know; and since what runs commands of the user's must not come from a file that others write.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terms {
    /// The version of the layout.
    pub v: u32,
    /// What it is granted, as the flags of `cron add` write themselves; paths absolute.
    pub grants: Value,
    /// What its creator might do, as [`crate::policy::snapshot`] has it: it never may more.
    pub policy: Option<Value>,
    /// A run made it and not a person.
    pub by_model: bool,
    pub model: Option<String>,
    /// The config file, where it is not the usual one.
    pub config: Option<PathBuf>,
    /// A command that says whether there is anything to do.
    pub when: Option<String>,
    /// Seconds; 0 for none.
    pub timeout: Option<u64>,
    pub max_cost: Option<f64>,
    pub catch_up: CatchUp,
    pub after_crash: AfterCrash,
    /// A command that is told of failures.
    pub on_failure: Option<String>,
    /// The answer is not printed.
    pub quiet: bool,
    /// Where the answer goes on this machine.
    pub sink: Option<Sink>,
    /// What the run does.
    pub kind: Kind,
    /// The message and the session that all of this is for, as the job had them when a person, or a run, said so: the job file
    /// is written by others too.
    pub message: Option<String>,
    pub session: Option<String>,
    /// Milliseconds between two runs, for a job that stands in no job file.
    pub every_ms: Option<i64>,
    /// From when on times count, in milliseconds since 1970; 0 for since it was made.
    pub since_ms: i64,
}

impl Terms {
    /// The version of this layout.
    pub const V: u32 = 1;
}

/// What a run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A turn with the job's message.
    #[default]
    Turn,
    /// A look at HEARTBEAT.md.
    Heartbeat,
}

/// How often HEARTBEAT.md is looked at where nobody said: half an hour, as in the Python program.
pub const PERIOD: Duration = Duration::from_secs(1800);

impl Job {
    /// The job that looks at HEARTBEAT.md, as nobody has changed it yet.
    pub fn heartbeat(made: Timestamp) -> Self {
        Self {
            id: HEARTBEAT.into(),
            name: HEARTBEAT.into(),
            enabled: true,
            schedule: Ok(Schedule::Every(PERIOD)),
            message: String::new(),
            delivery: Delivery::default(),
            session: Some(HEARTBEAT.into()),
            created: made,
            state: State::default(),
            delete_after_run: false,
            terms: Some(Terms {
                kind: Kind::Heartbeat,
                ..Terms::default()
            }),
        }
    }

    /// The conversation of its runs, and whether it is its own: then only the last run is sent again.
    pub fn conversation(&self) -> (String, bool) {
        match &self.session {
            Some(key) => (key.clone(), key == HEARTBEAT),
            None => (format!("cron:{}", self.id), true),
        }
    }

    /// Let its terms hold for what it is told now.
    pub fn bind(&mut self) {
        if let Some(terms) = &mut self.terms {
            terms.message = Some(self.message.clone());
            terms.session.clone_from(&self.session);
        }
    }

    /// Whether another program changed what it is told, after its terms were given. When it runs is anybody's to say.
    pub fn is_altered(&self) -> bool {
        let terms = self.terms.iter();
        let mut turns = terms.filter(|terms| terms.kind == Kind::Turn);
        turns.any(|terms| {
            terms.message.as_ref() != Some(&self.message) || terms.session != self.session
        })
    }

    /// Whether it has but one time.
    pub fn is_once(&self) -> bool {
        matches!(self.schedule, Ok(Schedule::At(_)))
    }

    /// How long a run may take, in seconds; 0 for no limit.
    pub fn deadline(&self) -> u64 {
        let said = self.terms.as_ref().and_then(|terms| terms.timeout);
        said.unwrap_or(DEADLINE)
    }

    /// From when on times count.
    pub fn since(&self) -> Timestamp {
        let since = self.terms.as_ref().map_or(0, |terms| terms.since_ms);
        let since = Timestamp::from_millisecond(since).unwrap_or_default();
        since.max(self.created)
    }

    /// Its times by `schedule` in `zone`.
    pub fn timetable<'a>(&self, schedule: &'a Schedule, zone: &'a TimeZone) -> Timetable<'a> {
        Timetable {
            schedule,
            catch_up: self.catch_up(),
            created: self.created,
            since: self.since(),
            zone,
        }
    }

    /// What becomes of a missed time: of one that comes but once, nobody would want to hear nothing.
    pub fn catch_up(&self) -> CatchUp {
        match (&self.terms, &self.schedule) {
            (Some(terms), _) => terms.catch_up,
            (None, Ok(Schedule::At(_))) => CatchUp::Once,
            (None, _) => CatchUp::None,
        }
    }
}

/// What becomes of a run of which nobody knows how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterCrash {
    /// It is not run again.
    #[default]
    Skip,
    Again,
}

/// Where an answer goes on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sink {
    /// It is appended to this file.
    File(PathBuf),
    /// A shell runs this, with the answer as its input.
    Command(String),
}
