//! `cron add`, and what it shares with `cron edit` and `heartbeat enable`: when a job runs, and what is answered.

use super::sync::{self, Which};
use super::terms::{self, Given};
use super::{store, words, zones};
use crate::World;
use crate::cli::Grants;
use crate::cli::cron as cli;
use crate::command::asker;
use crate::cron::expression::Expression;
use crate::cron::job::{Delivery, Job, State, Terms};
use crate::cron::schedule::{self, Schedule};
use crate::cron::store::Store;
use crate::error::{Exit, fail, fail_hint};
use crate::settings::Settings;
use crate::sys::input::{self, Reading};
use crate::sys::secret::random_hex;
use crate::sys::signal;
use anyhow::{Context, Result};
use jiff::Timestamp;
use std::path::PathBuf;
use std::time::Duration;

/// Letters of the message that name a job without a name.
const NAME: usize = 30;
/// The channels that answers can go to, here or by the Python program.
const CHANNELS: &[&str] = &[
    "", "file", "command", "cli", "telegram", "discord", "slack", "whatsapp", "email", "feishu",
    "dingtalk", "qq", "matrix", "mochat",
];
/// How alike a word has to be to a channel's name to be that one, mistyped.
const LIKE: f64 = 0.8;
/// How many runs are told ahead.
const AHEAD: usize = 3;

pub(super) fn run(world: &World, arguments: &cli::Add) -> Result<Exit> {
    let cli::Add {
        name,
        message,
        flags,
    } = arguments;
    let cli::Flags {
        schedule,
        terms,
        grants,
        config: _,
    } = flags;
    let grants = &at_home(world, grants);
    let settings = super::settings(world)?;
    let store = store(world, &settings);
    check_place(terms, None)?;
    let now = world.clock.timestamp();
    let mut notices = Vec::new();
    let when = when(world, schedule, None, now, &mut notices)?.ok_or_else(without_schedule)?;
    let message = message_of(message)?;
    let name = match name.as_deref().map(words::one_line) {
        Some(name) if !name.is_empty() => name,
        _ => words::one_line(&message).chars().take(NAME).collect(),
    };
    let mut job = Job {
        id: fresh_id(&store)?,
        name,
        enabled: true,
        delete_after_run: matches!(when, Schedule::At(_)),
        schedule: Ok(when),
        message,
        delivery: Delivery::default(),
        session: None,
        created: to_the_millisecond(now),
        state: State::default(),
        terms: Some(Terms::default()),
    };
    let catch_up = schedule.catch_up.or(default_catch_up(&job));
    let given = terms::put(world, &mut job, terms, catch_up, grants)?;
    notices.extend(unpriced(world, &job, &given));
    note_next(world, &mut job, now);
    // A new file would say of all others that they are gone. Where nobody can read the crontab, no line is lost either.
    if let (false, Ok(lines)) = (store.file().exists(), sync::lines(world, &settings)) {
        sync::insist_on_file(&store, &lines)?;
    }
    store.add(&job, now, None)?;
    notices.extend(terms::consequences(world, &job, grants, &given));
    answer(
        world,
        &settings,
        &store,
        &job,
        &format!("✓ Added job '{}' ({})", job.name, job.id),
        notices,
    )
}

/// `grants` with `~` for the home, where a shell has left it as it was typed.
pub(super) fn at_home(world: &World, grants: &Grants) -> Grants {
    let expand = |path: &PathBuf| match path.to_str() {
        Some(text) if text == "~" || text.starts_with("~/") => world.paths.expand(text),
        _ => path.clone(),
    };
    let mut grants = grants.clone();
    grants.write = grants.write.iter().map(expand).collect();
    grants.read = grants.read.iter().map(expand).collect();
    grants.directory = grants.directory.as_ref().map(expand);
    grants
}

/// Whether the flags name a place for answers, together with the channel that the job has.
pub(super) fn check_place(flags: &cli::Terms, channel: Option<&str>) -> Result<()> {
    let typed = flags.channel.as_deref();
    if let (Some(to), None) = (flags.to.as_deref(), typed.or(channel)) {
        return Err(fail_hint(
            Exit::Usage,
            format!("`--to {to}` does not say what that is"),
            "`--channel file` or `--channel command` with it",
        ));
    }
    let Some(typed) = typed.filter(|typed| !CHANNELS.contains(typed)) else {
        return Ok(());
    };
    let likeness = |channel: &str| strsim::jaro_winkler(&typed.to_lowercase(), channel);
    let near = CHANNELS.iter().map(|channel| (likeness(channel), channel));
    let near = near.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match near {
        Some((likeness, channel)) if likeness > LIKE => Err(fail_hint(
            Exit::Usage,
            format!("there is no channel `{typed}`; did you mean `{channel}`?"),
            format!("`--channel {channel}`"),
        )),
        _ => Ok(()),
    }
}

/// What to say of a limit of dollars where no price is known.
pub(super) fn unpriced(world: &World, job: &Job, given: &Given) -> Option<String> {
    let terms = job
        .terms
        .as_ref()
        .filter(|terms| terms.max_cost.is_some())?;
    let world = terms::with_config(world, terms);
    // Where nobody can be asked at all, that is told by itself.
    let way = asker::way(
        &world,
        &given.settings,
        &given.settings.asked[0],
        false,
        true,
    )
    .ok()?;
    let model = &way.choice.model;
    way.choice.prices.is_none().then(|| {
        format!(
            "the price of `{model}` is not known, so `--max-cost` cannot be kept, and every run fails; a `price` for it in \
             `models` of the config mends that"
        )
    })
}

/// An id that no job has, nor had: a record may be left of it. A file that cannot be read is told here, before anything is
/// written.
pub(super) fn fresh_id(store: &Store) -> Result<String> {
    let jobs = store.jobs()?;
    loop {
        let id = random_hex(4);
        if jobs.iter().all(|job| job.id != id) && !store.folder(&id)?.exists() {
            return Ok(id);
        }
    }
}

/// What becomes of a missed time, unless it is said: one that comes but once is caught up.
pub(super) fn default_catch_up(job: &Job) -> Option<cli::CatchUp> {
    matches!(job.schedule, Ok(Schedule::At(_))).then_some(cli::CatchUp::Once)
}

/// A time as the job file can keep it.
pub(super) fn to_the_millisecond(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

fn without_schedule() -> anyhow::Error {
    fail_hint(
        Exit::Usage,
        "nothing says when the job runs",
        "`--cron '0 8 * * 1-5'`, `--every 90m`, `--at 2026-12-24T18:00`, or `--in 2h`",
    )
}

/// The message, which `-` reads from standard input.
pub(super) fn message_of(message: &str) -> Result<String> {
    let text = match message {
        "-" => {
            signal::arm(None).context("wait for signals")?;
            let bytes = input::read(Reading::Always, input::GIVE_UP_AFTER, &mut |_| {})?;
            String::from_utf8(bytes.unwrap_or_default())
                .map_err(|_| fail(Exit::BadInput, "standard input is not UTF-8"))?
                .trim_end()
                .to_owned()
        }
        message => message.to_owned(),
    };
    match text.trim().is_empty() {
        true => Err(fail_hint(
            Exit::Usage,
            "the message is empty",
            "`-m 'what the agent is to do'`",
        )),
        false => Ok(text),
    }
}

/// When a job runs, as the flags say; `None` where they do not. What they leave open is as `before`.
pub(super) fn when(
    world: &World,
    flags: &cli::Schedule,
    before: Option<&Schedule>,
    now: Timestamp,
    notices: &mut Vec<String>,
) -> Result<Option<Schedule>> {
    let cli::Schedule {
        cron,
        tz,
        every,
        at,
        r#in,
        catch_up: _,
    } = flags;
    let wrong = |flag: &str, words: String| fail(Exit::Usage, format!("`{flag}`: {words}"));
    let typed = match tz.as_deref() {
        Some("") => Some(None),
        Some(name) => Some(Some(zones::known(name)?)),
        None => None,
    };
    if let Some(text) = cron {
        let expression = Expression::parse(text).map_err(|words| wrong("--cron", words))?;
        let zone = match (typed, before) {
            (Some(zone), _) => zone,
            (None, Some(Schedule::Cron { zone, .. })) => zone.clone(),
            (None, _) => zones::of_shell(world, now, notices),
        };
        return Ok(Some(Schedule::Cron { expression, zone }));
    }
    match (typed, before) {
        (Some(zone), Some(Schedule::Cron { expression, .. })) if !is_given(flags) => {
            let expression = expression.clone();
            return Ok(Some(Schedule::Cron { expression, zone }));
        }
        (Some(_), _) if before.is_some() || is_given(flags) => {
            return Err(fail_hint(
                Exit::Usage,
                "`--tz` can only be used with `--cron`",
                "an offset in the time itself: `--at 2026-12-24T18:00+02:00`",
            ));
        }
        _ => {}
    }
    if let Some(text) = every {
        let period = schedule::every(text).map_err(|words| wrong("--every", words))?;
        return Ok(Some(Schedule::Every(period)));
    }
    let time = match (at, r#in) {
        (Some(text), _) => {
            schedule::at(text, &zones::local(world), now).map_err(|words| wrong("--at", words))?
        }
        (_, Some(text)) => schedule::after(text, now).map_err(|words| wrong("--in", words))?,
        _ => return Ok(None),
    };
    Ok(Some(Schedule::At(to_the_millisecond(time))))
}

/// Keep for the other program when the job runs next.
pub(super) fn note_next(world: &World, job: &mut Job, now: Timestamp) {
    job.state.next_run = match job.enabled {
        true => coming(world, job, now, 1).first().copied(),
        false => None,
    };
}

/// The next times at which `job` runs, so many at most.
pub(in crate::command) fn coming(
    world: &World,
    job: &Job,
    now: Timestamp,
    count: usize,
) -> Vec<Timestamp> {
    let Ok((schedule, zone)) = zones::plan(world, job) else {
        return Vec::new();
    };
    let first = schedule.next(now.max(job.since()), job.created, &zone);
    let follow = |time: &Timestamp| schedule.next(*time, job.created, &zone);
    std::iter::successors(first, follow).take(count).collect()
}

/// When `job` runs, in words.
pub(in crate::command) fn schedule_words(world: &World, job: &Job) -> String {
    match zones::plan(world, job) {
        // A moment is told by the clock of whoever asks.
        Ok((schedule @ Schedule::At(_), _)) => schedule.words(&zones::local(world)),
        Ok((schedule, zone)) => schedule.words(&zone),
        Err(words) => format!("never: {words}"),
    }
}

/// Let the heartbeat beat each time `period` has passed, from `now` on.
pub(in crate::command) fn begin_every(job: &mut Job, period: Duration, now: Timestamp) {
    let now = to_the_millisecond(now);
    job.created = now;
    job.schedule = Ok(Schedule::Every(period));
    if let Some(terms) = &mut job.terms {
        terms.since_ms = now.as_millisecond();
        terms.every_ms = Some(i64::try_from(period.as_millis()).unwrap_or(i64::MAX));
    }
}

/// Bring the crontab up to date, and say what was done and when the job runs.
pub(in crate::command) fn answer(
    world: &World,
    settings: &Settings,
    store: &Store,
    job: &Job,
    done: &str,
    notices: Vec<String>,
) -> Result<Exit> {
    let projected = sync::project(world, settings, store, Which::Known);
    let others = projected.as_ref().ok();
    let others = others.and_then(|projected| projected.others(&job.id));
    let now = zones::now(world);
    let mut lines = vec![words::one_line(done), schedule_words(world, job)];
    let times = coming(world, job, now.timestamp(), AHEAD);
    if job.enabled && !times.is_empty() {
        lines.push(format!("next: {}", words::moments(&times, &now)));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    world.terminal.print(&text)?;
    for text in notices.into_iter().chain(others) {
        super::notice(world, &text);
    }
    Ok(sync::tell(
        world,
        projected,
        "the job is kept all the same, but cron does not start it",
    ))
}

/// Whether anything says when a job runs.
pub(super) fn is_given(flags: &cli::Schedule) -> bool {
    let cli::Schedule {
        cron,
        tz: _,
        every,
        at,
        r#in,
        catch_up: _,
    } = flags;
    [cron, every, at, r#in].iter().any(|flag| flag.is_some())
}
