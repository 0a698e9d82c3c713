//! `cron add`, and what it shares with `cron edit` and `heartbeat enable`: when a job runs, and what is answered.

use crate::cli::cron as cli;
use crate::command::arguments::{self, grants as from_flags, job_flags};
use crate::cron::expression::Expression;
use crate::cron::job::{Delivery, Job, State, Terms};
use crate::cron::schedule::CatchUp;
use crate::cron::schedule::{self, Schedule};
use crate::cron::store::Store;
use crate::error::{Exit, fail, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::job_options::{self, Given};
use crate::ops::jobs::job_store;
use crate::ops::jobs::time_format;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::ops::model;
use crate::ops::permissions::Grants;
use crate::settings::Settings;
use crate::sys::input::{self, Reading};
use crate::sys::signal;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use std::path::PathBuf;

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

pub(super) fn run(ctx: &Context, add: &cli::Add) -> Result<Exit> {
    let cli::Add {
        name,
        message,
        flags,
    } = add;
    let cli::Flags {
        schedule,
        terms,
        grants,
        config: _,
    } = flags;
    let grants = &at_home(ctx, &from_flags(grants));
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    check_place(terms, None)?;
    let now = ctx.clock.timestamp();
    let mut notices = Vec::new();
    let when = when(ctx, schedule, None, now, &mut notices)?.ok_or_else(without_schedule)?;
    let message = message_of(message)?;
    let name = match name.as_deref().map(time_format::one_line) {
        Some(name) if !name.is_empty() => name,
        _ => time_format::one_line(&message).chars().take(NAME).collect(),
    };
    let mut job = Job {
        id: job_store::unused_id(&store)?,
        name,
        enabled: true,
        delete_after_run: matches!(when, Schedule::At(_)),
        schedule: Ok(when),
        message,
        delivery: Delivery::default(),
        session: None,
        created: timing::to_the_millisecond(now),
        state: State::default(),
        terms: Some(Terms::default()),
    };
    let catch_up = arguments::catch_up(schedule.catch_up).or(default_catch_up(&job));
    let given = job_options::put(ctx, &mut job, &job_flags(terms), catch_up, grants)?;
    notices.extend(unpriced(ctx, &job, &given));
    timing::note_next(ctx, &mut job, now);
    // A new file would say of all others that they are gone. Where nobody can read the crontab, no line is lost either.
    if let (false, Ok(lines)) = (store.file().exists(), crontab_sync::lines(ctx, &settings)) {
        crontab_sync::insist_on_file(&store, &lines)?;
    }
    store.add(&job, now, None)?;
    notices.extend(job_options::consequences(ctx, &job, grants, &given));
    answer(
        ctx,
        &settings,
        &store,
        &job,
        &format!("✓ Added job '{}' ({})", job.name, job.id),
        notices,
    )
}

/// `grants` with `~` for the home, where a shell has left it as it was typed.
pub(super) fn at_home(ctx: &Context, grants: &Grants) -> Grants {
    let expand = |path: &PathBuf| match path.to_str() {
        Some(text) if text == "~" || text.starts_with("~/") => ctx.paths.expand(text),
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
pub(super) fn unpriced(ctx: &Context, job: &Job, given: &Given) -> Option<String> {
    let terms = job
        .terms
        .as_ref()
        .filter(|terms| terms.max_cost.is_some())?;
    let ctx = job_options::with_config(ctx, terms);
    // Where nobody can be asked at all, that is told by itself.
    let way = model::resolve_endpoint(&ctx, &given.settings, &given.settings.asked[0], false, true)
        .ok()?;
    let model = &way.choice.model;
    way.choice.prices.is_none().then(|| {
        format!(
            "the price of `{model}` is not known, so `--max-cost` cannot be kept, and every run fails; a `price` for it in \
             `models` of the config mends that"
        )
    })
}

/// What becomes of a missed time, unless it is said: one that comes but once is caught up.
pub(super) fn default_catch_up(job: &Job) -> Option<CatchUp> {
    matches!(job.schedule, Ok(Schedule::At(_))).then_some(CatchUp::Once)
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
    ctx: &Context,
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
        Some(name) => Some(Some(time_zone::known(name)?)),
        None => None,
    };
    if let Some(text) = cron {
        let expression = Expression::parse(text).map_err(|words| wrong("--cron", words))?;
        let zone = match (typed, before) {
            (Some(zone), _) => zone,
            (None, Some(Schedule::Cron { zone, .. })) => zone.clone(),
            (None, _) => time_zone::of_shell(ctx, now, notices),
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
            schedule::at(text, &time_zone::local(ctx), now).map_err(|words| wrong("--at", words))?
        }
        (_, Some(text)) => schedule::after(text, now).map_err(|words| wrong("--in", words))?,
        _ => return Ok(None),
    };
    Ok(Some(Schedule::At(timing::to_the_millisecond(time))))
}

/// Bring the crontab up to date, and say what was done and when the job runs.
pub(crate) fn answer(
    ctx: &Context,
    settings: &Settings,
    store: &Store,
    job: &Job,
    done: &str,
    notices: Vec<String>,
) -> Result<Exit> {
    let projected = crontab_sync::project(ctx, settings, store, JobFilter::Known);
    let others = projected.as_ref().ok();
    let others = others.and_then(|projected| projected.others(&job.id));
    let now = time_zone::now(ctx);
    let mut lines = vec![
        time_format::one_line(done),
        timing::describe_schedule(ctx, job),
    ];
    let times = timing::upcoming_runs(ctx, job, now.timestamp(), AHEAD);
    if job.enabled && !times.is_empty() {
        lines.push(format!("next: {}", time_format::moments(&times, &now)));
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    ctx.terminal.print(&text)?;
    for text in notices.into_iter().chain(others) {
        ctx.notice(&text);
    }
    Ok(crontab_sync::tell(
        ctx,
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
