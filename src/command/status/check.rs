//! `status --check`: whether what is configured works. Each check is a row of a table, a function from what is there to what
//! it found; all are asked, whatever the others say.

use super::cron;
use crate::World;
use crate::cron::job::Job;
use crate::cron::store::Store;
use crate::error::{Exit, hint_of};
use crate::settings::Settings;
use crate::sys::terminal::harmless;
use anyhow::Result;
use serde_json::json;

/// What looks, and says what it found.
type Check = fn(&Look) -> Vec<Finding>;

/// The checks, in the order in which they are made: the first causes first.
const CHECKS: &[(&str, Check)] = &[
    ("places", cron::places),
    ("jobs", cron::jobs),
    ("schedules", cron::schedules),
    ("crontab", cron::crontab),
    ("lines", cron::lines),
    ("program", cron::program),
    ("cron", cron::daemon),
    ("variables", cron::variables),
    ("keys", cron::keys),
    ("runs", cron::runs),
    ("delivery", cron::delivery),
    ("probe", cron::probe),
];

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    Warn,
    Failed,
}

/// What a check found.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) words: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
    /// The jobs that it is about.
    pub(super) jobs: Vec<String>,
}

impl Finding {
    pub(super) fn new(level: Level, words: impl Into<String>) -> Self {
        Self {
            level,
            words: words.into(),
            hint: None,
            jobs: Vec::new(),
        }
    }

    pub(super) fn ok(words: impl Into<String>) -> Self {
        Self::new(Level::Ok, words)
    }

    pub(super) fn warn(words: impl Into<String>) -> Self {
        Self::new(Level::Warn, words)
    }

    pub(super) fn failed(words: impl Into<String>) -> Self {
        Self::new(Level::Failed, words)
    }

    /// As a failure tells of itself.
    pub(super) fn of_error(level: Level, error: &anyhow::Error) -> Self {
        Self {
            hint: hint_of(error).map(str::to_owned),
            ..Self::new(level, format!("{error:#}"))
        }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub(super) fn about<'a>(self, jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        Self {
            jobs: jobs.into_iter().map(|job| job.id.clone()).collect(),
            ..self
        }
    }
}

/// What the checks look at.
pub(super) struct Look<'a> {
    pub(super) world: &'a World,
    pub(super) settings: &'a Settings,
    pub(super) store: &'a Store,
    pub(super) jobs: Result<Vec<Job>>,
    /// The lines of our block in the crontab.
    pub(super) lines: Result<Vec<String>>,
}

pub(super) fn run(world: &World, as_json: bool) -> Result<Exit> {
    let mut exit = Exit::Answered;
    let mut tell = |name: &str, findings: Vec<Finding>| -> Result<()> {
        for finding in findings {
            if finding.level == Level::Failed {
                exit = Exit::Failed;
            }
            match as_json {
                true => world.terminal.print_json(&line(name, &finding))?,
                false => world.terminal.print(&text(name, &finding))?,
            }
        }
        Ok(())
    };
    match cron::look(world) {
        Ok((settings, store)) => {
            let config = match world.paths.config.exists() {
                true => Finding::ok(world.paths.display(&world.paths.config)),
                false => Finding::warn("there is none: everything is as it comes")
                    .hint("`nanobot onboard`"),
            };
            tell("config", vec![config])?;
            let look = Look {
                world,
                settings: &settings,
                store: &store,
                jobs: store.jobs(),
                lines: cron::block(world, &settings),
            };
            for (name, check) in CHECKS {
                tell(name, check(&look))?;
            }
        }
        // Without it there is nothing else to look at.
        Err(error) => tell("config", vec![Finding::of_error(Level::Failed, &error)])?,
    }
    Ok(exit)
}

fn text(name: &str, finding: &Finding) -> String {
    let level = match finding.level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Failed => "FAILED",
    };
    let one_line = |text: &str| harmless(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut text = format!("{level:<6}  {name:<9}  {}\n", one_line(&finding.words));
    if let Some(hint) = &finding.hint {
        text += &format!("{:19}try: {}\n", "", one_line(hint));
    }
    text
}

fn line(name: &str, finding: &Finding) -> serde_json::Value {
    let level = match finding.level {
        Level::Ok => "ok",
        Level::Warn => "warn",
        Level::Failed => "failed",
    };
    json!({
        "check": name, "level": level, "words": finding.words, "try": finding.hint, "jobs": finding.jobs,
    })
}
