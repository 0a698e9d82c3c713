//! `cron list`: the jobs, when each runs next, and how it last went.

use super::add::{coming, schedule_words};
use super::stand::{Stand, Stands};
use super::{terms, words, zones};
use crate::World;
use crate::cli::CronList;
use crate::command::columns::{Side, aligned, clipped};
use crate::cron::job::Job;
use crate::cron::record::{Folder, Outcome, Record, Stamps};
use crate::cron::schedule::{self, Schedule, Verdict};
use crate::cron::store::Store;
use crate::error::Exit;
use crate::ledger::dollars;
use crate::sys::secret;
use crate::sys::terminal::harmless;
use anyhow::Result;
use jiff::{Timestamp, Zoned};
use serde_json::{Value, json};

/// Columns that names and schedules take at most, and what went wrong.
const WIDEST: usize = 40;
/// Runs ahead, for programs.
const AHEAD: usize = 5;

/// A job with all that is known of it.
pub(super) struct Known {
    pub(super) job: Job,
    pub(super) stand: Stand,
    pub(super) last: Option<Record>,
    pub(super) stamps: Stamps,
    /// The time that it should have run by now.
    pub(super) due: Option<Timestamp>,
    pub(super) next: Vec<Timestamp>,
}

impl Known {
    pub(super) fn of(world: &World, store: &Store, stands: &Stands, job: Job) -> Result<Self> {
        let (mut last, mut stamps) = (None, Stamps::default());
        if let Ok(folder) = store.folder(&job.id).map(Folder::new) {
            last = folder.records(1)?.pop();
            // Of one job nothing is known then; of the others all the same.
            match folder.stamps() {
                Ok(found) => stamps = found,
                Err(error) => super::notice(world, &format!("{error:#}")),
            }
        }
        let now = world.clock.timestamp();
        let (mut due, mut next) = (None, Vec::new());
        if let (true, Ok((schedule, zone))) = (job.enabled, zones::plan(world, &job)) {
            let (since, handled) = (job.since(), stamps.handled());
            let verdict = schedule::due(
                schedule,
                job.catch_up(),
                handled,
                since,
                job.created,
                now,
                &zone,
            );
            if let (Verdict::Due { slot }, true) = (verdict, job.terms.is_some()) {
                due = Some(slot);
            }
            next = coming(world, &job, now, AHEAD);
        }
        Ok(Self {
            stand: stands.of_job(world, &job),
            last,
            stamps,
            due,
            next,
            job,
        })
    }
}

pub(super) fn run(world: &World, arguments: &CronList) -> Result<Exit> {
    let CronList { all, json } = arguments;
    let settings = super::settings(world)?;
    let store = super::store(world, &settings);
    let stands = Stands::of(world, &settings);
    let jobs = store.jobs()?.into_iter();
    let known = jobs.map(|job| Known::of(world, &store, &stands, job));
    let mut known: Vec<Known> = known.collect::<Result<_>>()?;
    let trouble = stands.trouble(&known);
    let hidden = match all {
        true => 0,
        false => known.extract_if(.., |known| !known.job.enabled).count(),
    };
    // What never runs comes last.
    known.sort_by_key(|known| {
        let next = known.due.or(known.next.first().copied());
        next.unwrap_or(Timestamp::MAX)
    });
    if *json {
        for known in &known {
            world.terminal.print_json(&line(world, known))?;
        }
        return Ok(Exit::Answered);
    }
    if known.is_empty() {
        world.terminal.print("No scheduled jobs.\n")?;
    } else {
        let now = zones::now(world);
        world.terminal.print(&table(world, &known, &now))?;
    }
    if hidden > 0 {
        let (jobs, show) = match hidden {
            1 => ("1 job is", "shows it"),
            _ => ("some jobs are", "shows them"),
        };
        super::notice(world, &format!("{jobs} disabled; `--all` {show}"));
    }
    trouble.iter().for_each(|words| super::notice(world, words));
    for known in &known {
        let told = [altered(&known.job), terms::undelivered(&known.job)];
        for words in told.into_iter().flatten() {
            super::notice(world, &words);
        }
    }
    Ok(Exit::Answered)
}

/// What to say of a job that is not run any more, since it is told something else now.
pub(in crate::command) fn altered(job: &Job) -> Option<String> {
    job.is_altered().then(|| {
        format!(
            "`{}` does not run: {}; `nanobot cron edit {}` takes it over as it is now",
            words::one_line(&job.name),
            super::run::ALTERED,
            job.id
        )
    })
}

fn table(world: &World, known: &[Known], now: &Zoned) -> String {
    let columns = [
        ("ID", Side::Left),
        ("NAME", Side::Left),
        ("SCHEDULE", Side::Left),
        ("NEXT", Side::Left),
        ("LAST", Side::Left),
        ("COST", Side::Right),
    ];
    let row = |known: &Known| {
        let cost = known.last.as_ref().and_then(|last| last.spent.cost_usd);
        let cost = cost.map(|cost| format!("${}", dollars(cost)));
        vec![
            cell(&known.job.id),
            clipped(&cell(&known.job.name), Some(WIDEST)),
            clipped(&cell(&schedule_words(world, &known.job)), Some(WIDEST)),
            cell(&next(known, now)),
            clipped(&cell(&last(known, now)), Some(WIDEST)),
            cost.unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = known.iter().map(row).collect();
    aligned(&columns, &rows)
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Text on one line that a terminal can show.
pub(super) fn cell(text: &str) -> String {
    harmless(&words::one_line(text))
}

/// When it runs next, in words.
pub(super) fn next(known: &Known, now: &Zoned) -> String {
    let Known {
        job,
        stand,
        due,
        next,
        ..
    } = known;
    match (due.or(next.first().copied()), &job.schedule) {
        _ if !job.enabled => "disabled".into(),
        _ if *stand == Stand::Foreign => "not in the crontab".into(),
        _ if due.is_some() => "now".into(),
        (Some(time), _) => words::moment(time, now),
        (None, Ok(Schedule::At(_))) => "past".into(),
        (None, _) => "never".into(),
    }
}

/// How it last went, in words.
pub(super) fn last(known: &Known, now: &Zoned) -> String {
    let at = |text: &str| match text.parse::<Timestamp>() {
        Ok(time) => words::moment(time, now),
        Err(_) => text.to_owned(),
    };
    if let Some(started) = known.stamps.started
        && let Ok(time) = Timestamp::from_millisecond(started.at_ms)
    {
        return format!("begun, {}", words::moment(time, now));
    }
    let state = &known.job.state;
    match &known.last {
        Some(record) => format!("{}, {}", outcome(record), at(&record.start)),
        None => match (&state.last_status, state.last_run) {
            (Some(status), Some(time)) => {
                format!("{status} elsewhere, {}", words::moment(time, now))
            }
            _ => String::new(),
        },
    }
}

/// What came of a run, with the cause where it failed.
pub(super) fn outcome(record: &Record) -> String {
    match record.outcome {
        Outcome::Failed => {
            let cause = record.error.as_deref().unwrap_or(&record.cause);
            format!("failed ({}: {})", record.status, words::one_line(cause))
        }
        outcome => outcome.words().to_owned(),
    }
}

/// All of it, for programs.
pub(super) fn line(world: &World, known: &Known) -> Value {
    let Known {
        job,
        stand,
        last,
        stamps,
        due,
        next,
    } = known;
    let (session, is_own) = job.conversation();
    let schedule = match &job.schedule {
        Ok(Schedule::Cron { expression, zone }) => {
            json!({ "kind": "cron", "expr": expression.text(), "tz": zone })
        }
        Ok(Schedule::Every(period)) => json!({ "kind": "every", "seconds": period.as_secs() }),
        Ok(Schedule::At(time)) => json!({ "kind": "at", "time": time.to_string() }),
        Err(words) => json!({ "kind": null, "error": words }),
    };
    let times: Vec<String> = next.iter().map(Timestamp::to_string).collect();
    let state = &job.state;
    let mut line = json!({
        "id": job.id, "name": job.name, "enabled": job.enabled, "schedule": schedule,
        "words": schedule_words(world, job), "due": due.map(|time| time.to_string()), "next": times.first(), "coming": times, "message": job.message,
        "session": session, "own_session": is_own, "created": job.created.to_string(),
        "delete_after_run": job.delete_after_run,
        "delivery": {
            "deliver": job.delivery.deliver, "channel": job.delivery.channel, "to": job.delivery.to,
            "supported": terms::undelivered(job).is_none(),
        },
        "foreign": job.terms.is_none(), "altered": job.is_altered(), "crontab": stand.name(),
        "last": last,
        "cost_usd": last.as_ref().and_then(|last| last.spent.cost_usd),
        "elsewhere": {
            "last_run": state.last_run.map(|time| time.to_string()), "last_status": state.last_status,
            "last_error": state.last_error,
        },
        "begun": stamps.started.and_then(|started| Timestamp::from_millisecond(started.at_ms).ok()).map(|time| time.to_string()),
    });
    line["terms"] = match &job.terms {
        Some(terms) => json!({
            "grants": terms.grants, "by_model": terms.by_model, "model": terms.model, "when": terms.when,
            "timeout_s": terms.timeout, "max_cost_usd": terms.max_cost, "catch_up": job.catch_up(),
            "after_crash": terms.after_crash, "on_failure": terms.on_failure, "quiet": terms.quiet, "sink": terms.sink,
            "config": terms.config, "kind": terms.kind,
        }),
        None => Value::Null,
    };
    // Commands may hold keys, and what is printed goes on to others.
    line["terms"] = secret::hide_json(&line["terms"]).into_owned();
    line
}
