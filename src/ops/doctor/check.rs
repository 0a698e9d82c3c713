//! `status --check`: whether what is configured works. Each check is a row of a table, a function from what is there to what
//! it found; all are asked, whatever the others say. The provider is asked beside them, since it takes the longest.

use super::{cron, run_checks as works};
use crate::cli::status::Status as Arguments;
use crate::cron::job::Job;
use crate::cron::store::Store;
use crate::error::{Exit, exit_of, hint_of};
use crate::ops::context::Context;
use crate::report::columns::hanging_indent;
use crate::settings::Settings;
use crate::sys::signal;
use crate::sys::terminal::{Page, harmless};
use anyhow::{Context as _, Result};
use console::Style;
use serde_json::{Value, json};

/// What looks, and says what it found.
type Check = fn(&Look) -> Vec<Finding>;

/// Columns before what was found.
const INDENT: usize = 19;

/// The checks, in the order in which they are told: the first causes first.
const CHECKS: &[(&str, Check)] = &[
    ("config", works::config),
    ("places", cron::places),
    ("others", works::others),
    ("sessions", works::sessions),
    ("memory", works::memory),
    ("trust", works::trust),
    ("skills", works::skills),
    ("sandbox", works::sandbox),
    ("provider", works::provider),
    ("servers", works::servers),
    ("completions", works::completions),
    ("gateway", works::gateway),
    ("jobs", cron::jobs),
    ("schedules", cron::schedules),
];

/// Those of the crontab and of what it starts.
const OF_CRONTAB: &[(&str, Check)] = &[
    ("crontab", cron::crontab),
    ("lines", cron::lines),
    ("program", cron::program),
    ("cron", cron::daemon),
    ("variables", cron::variables),
    ("keys", cron::keys),
    ("probe", cron::probe),
];

/// And how it went so far.
const AFTERWARDS: &[(&str, Check)] = &[("runs", cron::runs), ("delivery", cron::delivery)];

/// The one that waits for a server.
const SLOW: &str = "provider";

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Ok,
    Warn,
    Failed,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Failed => "no",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => Style::new().green(),
            Self::Warn => Style::new().yellow(),
            Self::Failed => Style::new().red().bold(),
        }
    }
}

/// What a check found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) words: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
    /// The jobs that it is about.
    pub(crate) jobs: Vec<String>,
    /// What a run would end with for it.
    pub(crate) exit: Exit,
}

impl Finding {
    pub(crate) fn new(level: Level, words: impl Into<String>) -> Self {
        Self {
            level,
            words: words.into(),
            hint: None,
            jobs: Vec::new(),
            exit: Exit::Failed,
        }
    }

    pub(crate) fn ok(words: impl Into<String>) -> Self {
        Self::new(Level::Ok, words)
    }

    pub(crate) fn warn(words: impl Into<String>) -> Self {
        Self::new(Level::Warn, words)
    }

    pub(crate) fn failed(words: impl Into<String>) -> Self {
        Self::new(Level::Failed, words)
    }

    /// As a failure tells of itself.
    pub(crate) fn of_error(level: Level, error: &anyhow::Error) -> Self {
        Self {
            hint: hint_of(error).map(str::to_owned),
            exit: exit_of(error),
            ..Self::new(level, format!("{error:#}"))
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub(crate) fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn about<'a>(self, jobs: impl IntoIterator<Item = &'a Job>) -> Self {
        Self {
            jobs: jobs.into_iter().map(|job| job.id.clone()).collect(),
            ..self
        }
    }
}

/// What the checks look at.
pub(crate) struct Look<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: &'a Settings,
    pub(crate) store: &'a Store,
    pub(crate) jobs: Result<Vec<Job>>,
    /// The lines of our block in the crontab.
    pub(crate) lines: Result<Vec<String>>,
    /// No provider is asked.
    pub(crate) offline: bool,
}

pub(crate) fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let Arguments {
        check: _,
        offline,
        no_crontab,
        json,
    } = *arguments;
    signal::arm(None).context("wait for signals")?;
    let mut told = Told {
        ctx,
        json,
        exit: Exit::Answered,
        rows: Vec::new(),
    };
    match cron::look(ctx) {
        Ok((settings, store)) => {
            let look = Look {
                ctx,
                settings: &settings,
                store: &store,
                jobs: store.jobs(),
                lines: cron::block(ctx, &settings),
                offline,
            };
            let of_crontab = if no_crontab { &[] } else { OF_CRONTAB };
            std::thread::scope(|scope| {
                let mut slow = Some(scope.spawn(|| works::provider(&look)));
                for (name, check) in [CHECKS, of_crontab, AFTERWARDS].concat() {
                    let waited = slow.take_if(|_| name == SLOW);
                    let findings = match waited {
                        Some(thread) => thread.join().expect("a check does not panic"),
                        None => check(&look),
                    };
                    signal::check()?;
                    told.tell(name, findings)?;
                }
                anyhow::Ok(())
            })?;
            if no_crontab {
                let words = "left out, with what it starts (--no-crontab)";
                told.tell("crontab", vec![Finding::ok(words)])?;
            }
        }
        // Without it there is nothing else to look at.
        Err(error) => told.tell("config", vec![Finding::of_error(Level::Failed, &error)])?,
    }
    told.end()
}

/// What is told, and how it ends.
struct Told<'a> {
    ctx: &'a Context,
    json: bool,
    /// That of the first failure.
    exit: Exit,
    rows: Vec<Value>,
}

impl Told<'_> {
    fn tell(&mut self, name: &str, findings: Vec<Finding>) -> Result<()> {
        for finding in findings {
            if finding.level == Level::Failed && self.exit == Exit::Answered {
                self.exit = finding.exit;
            }
            match self.json {
                true => self.rows.push(row(name, &finding)),
                false => self.print(name, &finding)?,
            }
        }
        Ok(())
    }

    fn print(&self, name: &str, finding: &Finding) -> Result<()> {
        let one_line =
            |text: &str| harmless(&text.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut page = Page::on(self.ctx.terminal);
        let level = finding.level.word();
        page.paint(level, &finding.level.style())?;
        let name = format!("{:<gap$}  {name:<11}  ", "", gap = 4 - level.len());
        // What was painted takes room too.
        let room = self.ctx.terminal.width();
        let row = hanging_indent(&format!("{level}{name}"), &one_line(&finding.words), room);
        page.put(&format!("{}\n", &row[level.len()..]))?;
        if let Some(hint) = &finding.hint {
            let head = format!("{:INDENT$}try: ", "");
            page.put(&format!(
                "{}\n",
                hanging_indent(&head, &one_line(hint), room)
            ))?;
        }
        page.end()
    }

    fn end(self) -> Result<Exit> {
        if self.json {
            self.ctx.terminal.print_json(&Value::Array(self.rows))?;
        }
        Ok(self.exit)
    }
}

fn row(name: &str, finding: &Finding) -> Value {
    let Finding {
        level,
        words,
        hint,
        jobs,
        exit,
    } = finding;
    let is_failed = *level == Level::Failed;
    json!({
        "name": name, "ok": !is_failed, "level": level.word(), "detail": words, "try": hint, "jobs": jobs,
        "status": is_failed.then_some(exit.code()),
    })
}
