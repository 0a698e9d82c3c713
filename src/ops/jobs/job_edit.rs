//! Creates and edits jobs.

use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, CrontabChange, JobFilter};
use crate::ops::jobs::job_grants::stored_grants;
use crate::ops::jobs::job_notices::{
    consequence_notices, replaced_grants_notice, unknown_price_notice,
};
use crate::ops::jobs::job_options::apply_flags;
use crate::ops::jobs::{time_format, time_zone, timing, workspace_jobs};
use crate::options::job::{JobSettings, ScheduleFlags};
use anyhow::{Context as _, Result};
use jiff::{Timestamp, Zoned};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_config::settings::Settings;
use nanobot_cron::expression::Expression;
use nanobot_cron::job::{Delivery, Job, JobKind, JobOptions, JobState, Predecessor};
use nanobot_cron::job_chain::check_chain;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::schedule::{self, CatchUpPolicy, Schedule};
use nanobot_os::input::{self, StdinMode};
use nanobot_os::signal;

/// Maximum length, in characters, of a name taken from the message.
const MAX_DEFAULT_NAME_CHARS: usize = 30;

/// A job that was created or changed.
pub(crate) struct SavedJob {
    pub(crate) job: Job,
    pub(crate) change: JobChange,
    /// Notices for the user.
    pub(crate) notices: Vec<String>,
    /// The current time in the user's zone.
    pub(crate) now: Zoned,
    /// The crontab change. The job is saved even if this failed.
    pub(crate) crontab: Result<CrontabChange>,
}

/// The change made to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobChange {
    Added,
    Changed,
    /// The job already was as requested.
    Unchanged,
}

impl SavedJob {
    /// Updates the crontab with `job`, which is already in the store.
    pub(crate) fn new(
        ctx: &Context,
        settings: &Settings,
        store: &JobStore,
        job: Job,
        change: JobChange,
        mut notices: Vec<String>,
    ) -> Self {
        let crontab = crontab_sync::write_crontab(ctx, settings, store, JobFilter::Managed);
        let change_of_lines = crontab.as_ref().ok();
        notices.extend(change_of_lines.and_then(|change| change.other_jobs_notice(&job.id)));
        Self { job, change, notices, now: time_zone::now(ctx, settings), crontab }
    }
}

/// A job as flags describe it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobDraft<'a> {
    pub(crate) name: Option<&'a str>,
    /// The message; `-` is standard input. A job that runs a command has none.
    pub(crate) message: Option<&'a str>,
    pub(crate) settings: &'a JobSettings,
    /// True if it is enabled; `None` leaves an existing job unchanged.
    pub(crate) enabled: Option<bool>,
}

/// A job that was checked and is not stored yet.
pub(crate) struct PlannedJob {
    pub(crate) job: Job,
    pub(crate) change: JobChange,
    /// Notices for the user.
    pub(crate) notices: Vec<String>,
}

/// Creates a job. With `replace`, a job of that name gets the state of a new job instead; its id, its records and its enabled state stay.
///
/// # Errors
/// Status 2 if a job has the given name and `replace` is not set: the name would no longer identify one job.
pub(crate) fn add(ctx: &Context, draft: &JobDraft<'_>, replace: bool) -> Result<SavedJob> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let jobs = store.jobs()?;
    let planned = plan(ctx, &settings, &store, &jobs, draft, replace)?;
    check_chain(&jobs, &planned.job)?;
    if planned.change != JobChange::Unchanged {
        require_known_file(ctx, &settings, &store)?;
        store.save(&[&planned.job], &[], ctx.clock.timestamp())?;
    }
    let PlannedJob { job, change, notices } = planned;
    Ok(SavedJob::new(ctx, &settings, &store, job, change, notices))
}

/// Computes what [`add`] would do, and changes nothing.
///
/// # Errors
/// As [`add`].
pub(crate) fn preview(ctx: &Context, draft: &JobDraft<'_>, replace: bool) -> Result<SavedJob> {
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let jobs = store.jobs()?;
    let planned = plan(ctx, &settings, &store, &jobs, draft, replace)?;
    check_chain(&jobs, &planned.job)?;
    let PlannedJob { job, change, notices } = planned;
    let other_jobs = jobs.into_iter().filter(|old| old.id != job.id);
    let crontab = crontab_sync::preview(
        ctx,
        &settings,
        &store,
        &other_jobs.chain([job.clone()]).collect::<Vec<_>>(),
        JobFilter::Managed,
    );
    Ok(SavedJob { job, change, notices, now: time_zone::now(ctx, &settings), crontab })
}

/// Checks `draft`, and computes the change of the store. `jobs` are all jobs of the store. With `replace`, it changes the job
/// of its name.
pub(super) fn plan(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
    jobs: &[Job],
    draft: &JobDraft<'_>,
    replace: bool,
) -> Result<PlannedJob> {
    let JobSettings { schedule, grants, .. } = draft.settings;
    let now = ctx.clock.timestamp();
    let mut notices = Vec::new();
    let new_schedule = resolve_schedule(ctx, schedule, settings, jobs, None, now, &mut notices)?
        .ok_or_else(missing_schedule_error)?;
    let message = draft.message.map(read_message).transpose()?.unwrap_or_default();
    let name = draft.name.map(time_format::to_one_line).filter(|name| !name.is_empty());
    let is_named = name.is_some();
    // The name is in the job file, which others can read, and a command may contain keys.
    if !is_named && draft.message.is_none() {
        let cause = "a job that runs a command needs a name";
        return Err(fail(Exit::Usage, cause).with_hint("`--name NAME`"));
    }
    let name = name.unwrap_or_else(|| {
        time_format::to_one_line(&message).chars().take(MAX_DEFAULT_NAME_CHARS).collect()
    });
    let predecessor = find_predecessor(jobs, &new_schedule);
    let is_caught_up = is_caught_up_by_default(&new_schedule);
    let mut job = Job {
        id: workspace_jobs::unused_id(store, jobs)?,
        name,
        enabled: draft.enabled.unwrap_or(true),
        delete_after_run: is_removed_after_run(&new_schedule, predecessor),
        predecessor: predecessor.map(Predecessor::new),
        schedule: Ok(new_schedule),
        message,
        delivery: Delivery::default(),
        session: None,
        created: timing::truncate_to_millis(now),
        state: JobState::default(),
        options: Some(JobOptions::default()),
    };
    let catch_up = schedule.catch_up.or(is_caught_up.then_some(CatchUpPolicy::Once));
    let resolved = apply_flags(ctx, &mut job, draft.settings, catch_up)?;
    // A name that was taken from the message need not be unique.
    let old = if replace || is_named {
        workspace_jobs::find_named(store, jobs, &job.name)?
    } else {
        None
    };
    let change = match &old {
        Some(old) if workspace_jobs::is_heartbeat(old) => {
            let cause = format!("`{}` is the heartbeat, which is not in the job file", old.name);
            let hint = "`nanobot cron heartbeat enable` to change it, or another `--name`";
            return Err(fail(Exit::Usage, cause).with_hint(hint));
        }
        Some(old) if !replace => {
            let hint = "`--replace` to change that job, or another `--name`";
            return Err(duplicate_name_error(old, hint));
        }
        Some(old) => inherit(old, &mut job, draft.enabled, now)?,
        None => JobChange::Added,
    };
    timing::update_next_run(ctx, &mut job, now);
    if change != JobChange::Unchanged {
        notices.extend(unknown_price_notice(ctx, &job, &resolved));
        let is_new = change == JobChange::Added;
        notices.extend(consequence_notices(ctx, &job, grants, &resolved, is_new));
    }
    Ok(PlannedJob { job, change, notices })
}

/// Refuses to create a job file while the crontab has lines of jobs: all of them would look obsolete. If the crontab
/// cannot be read, it cannot be changed either, so no line is lost.
pub(super) fn require_known_file(
    ctx: &Context,
    settings: &Settings,
    store: &JobStore,
) -> Result<()> {
    if !store.job_file().exists()
        && let Ok(lines) = crontab_sync::read_lines(ctx, settings)
    {
        crontab_sync::require_job_file(store, &lines)?;
    }
    Ok(())
}

fn duplicate_name_error(old: &Job, hint: &str) -> anyhow::Error {
    let (name, id) = (&old.name, &old.id);
    fail(Exit::Usage, format!("there is a job `{name}` already: {id}")).with_hint(hint)
}

/// Copies to `job` the data that it keeps from `old`, the job that it replaces.
fn inherit(old: &Job, job: &mut Job, enabled: Option<bool>, now: Timestamp) -> Result<JobChange> {
    (job.id, job.created) = (old.id.clone(), old.created);
    job.enabled = enabled.unwrap_or(old.enabled);
    let is_enabled_again = job.enabled && !old.enabled;
    let has_same_schedule = old.schedule == job.schedule;
    if let Some(options) = &mut job.options {
        // Slots before the change are not caught up.
        options.since_ms = match &old.options {
            Some(old_options) if has_same_schedule && !is_enabled_again => old_options.since_ms,
            _ => now.as_millisecond(),
        };
        options.changed_ms = now.as_millisecond();
    }
    job.bind_options();
    let is_same = old.enabled == job.enabled && comparable_text(old)? == comparable_text(job)?;
    Ok(if is_same { JobChange::Unchanged } else { JobChange::Changed })
}

/// Changes the job that `name_or_id` names. Options that are not given stay unchanged.
pub(crate) fn edit(
    ctx: &Context,
    name_or_id: &str,
    name: Option<&str>,
    message: Option<&str>,
    job_settings: &JobSettings,
) -> Result<SavedJob> {
    let JobSettings { schedule, flags, grants, .. } = job_settings;
    let settings = ctx.settings()?;
    let store = workspace_jobs::open(ctx, &settings);
    let mut job = workspace_jobs::find_usable(&store, name_or_id)?;
    let old_text = comparable_text(&job)?;
    let now = ctx.clock.timestamp();
    let mut notices = Vec::new();
    let has_other_times = schedule.has_times() && schedule.every.is_none();
    if workspace_jobs::is_heartbeat(&job)
        && (name.is_some() || message.is_some() || schedule.tz.is_some() || has_other_times)
    {
        let cause = "the heartbeat has no name or message, and its only schedule flag is `--every`";
        return Err(fail(Exit::Usage, cause).with_hint("`nanobot cron add` for a separate job"));
    }
    let mut catch_up = schedule.catch_up;
    let old_schedule = job.schedule.as_ref().ok();
    let jobs = store.jobs()?;
    if let Some(new_schedule) =
        resolve_schedule(ctx, schedule, &settings, &jobs, old_schedule, now, &mut notices)?
    {
        let predecessor = find_predecessor(&jobs, &new_schedule);
        catch_up = catch_up.or(set_schedule(&mut job, new_schedule, predecessor, now));
        check_chain(&jobs, &job)?;
    }
    if let Some(name) = name.map(time_format::to_one_line) {
        if name.is_empty() {
            return Err(fail(Exit::Usage, "the name is empty").with_hint("`--name NAME`"));
        }
        if name != job.name
            && let Some(other) = workspace_jobs::find_named(&store, &store.jobs()?, &name)?
        {
            return Err(duplicate_name_error(&other, "another `--name`"));
        }
        job.name = name;
    }
    if let Some(message) = message {
        if job.kind() == JobKind::Command {
            let cause = "the job runs a command, and has no message";
            return Err(fail(Exit::Usage, cause).with_hint("`--command CMD`"));
        }
        job.message = read_message(message)?;
    }
    let old_grants = job.options.as_ref().map(stored_grants).transpose()?;
    let resolved = apply_flags(ctx, &mut job, job_settings, catch_up)?;
    if flags.max_cost.is_some() || flags.model.is_some() {
        notices.extend(unknown_price_notice(ctx, &job, &resolved));
    }
    if comparable_text(&job)? == old_text {
        notices.push(
            "nothing else changed: the job's permissions are fixed again from the current config"
                .into(),
        );
    }
    if let Some(options) = &mut job.options {
        options.changed_ms = now.as_millisecond();
    }
    timing::update_next_run(ctx, &mut job, now);
    if !store.update(&job.id, now, |stored| {
        stored.apply_edit(&job);
        true
    })? {
        return Err(workspace_jobs::unknown_job_error(&[], name_or_id));
    }
    if let Some(old_grants) = old_grants {
        notices.extend(replaced_grants_notice(&old_grants, grants, &resolved)?);
    }
    notices.extend(consequence_notices(ctx, &job, grants, &resolved, false));
    Ok(SavedJob::new(ctx, &settings, &store, job, JobChange::Changed, notices))
}

/// The job of `jobs` after which a job with this schedule runs.
fn find_predecessor<'a>(jobs: &'a [Job], schedule: &Schedule) -> Option<&'a Job> {
    let Schedule::After(id) = schedule else {
        return None;
    };
    jobs.iter().find(|job| job.id == *id)
}

/// True if missed slots of a new job with this schedule are caught up, unless flags say otherwise: there may be no later slot, or it
/// is known when the job before ended.
fn is_caught_up_by_default(schedule: &Schedule) -> bool {
    matches!(schedule, Schedule::At(_) | Schedule::After(_))
}

/// True if a job with this schedule is removed after its last run: it runs once, or after a job that does.
fn is_removed_after_run(schedule: &Schedule, predecessor_job: Option<&Job>) -> bool {
    matches!(schedule, Schedule::At(_)) || predecessor_job.is_some_and(|job| job.delete_after_run)
}

/// Sets the schedule of `job`, which may be after `predecessor_job`. Returns the new default for missed slots if it changes.
pub(super) fn set_schedule(
    job: &mut Job,
    schedule: Schedule,
    predecessor_job: Option<&Job>,
    now: Timestamp,
) -> Option<CatchUpPolicy> {
    let is_caught_up = is_caught_up_by_default(&schedule);
    let catch_up = (job.schedule.as_ref().is_ok_and(is_caught_up_by_default) != is_caught_up)
        .then_some(if is_caught_up { CatchUpPolicy::Once } else { CatchUpPolicy::None });
    // The Python program has one-time jobs that are not removed.
    if !(job.is_once() && matches!(schedule, Schedule::At(_))) {
        job.delete_after_run = is_removed_after_run(&schedule, predecessor_job);
    }
    job.predecessor = predecessor_job.map(Predecessor::new);
    match schedule {
        Schedule::Every(period) if workspace_jobs::is_heartbeat(job) => {
            timing::start_period(job, period, now);
        }
        schedule => {
            if let Some(options) = &mut job.options {
                options.since_ms = now.as_millisecond();
            }
            job.schedule = Ok(schedule);
        }
    }
    catch_up
}

/// The fields of a job that flags can set, as text, to detect changes.
fn comparable_text(job: &Job) -> Result<String> {
    let mut options = serde_json::to_value(&job.options).context("serialize the job")?;
    if let Some(options) = options.as_object_mut() {
        options.remove("policy");
        options.remove("changedMs");
    }
    let Job { name, schedule, message, delivery, session, .. } = job;
    Ok(format!("{name:?} {schedule:?} {message:?} {delivery:?} {session:?} {options}"))
}

fn missing_schedule_error() -> anyhow::Error {
    let hint = "`--cron '0 8 * * 1-5'`, `--every 90m`, `--at 2026-12-24T18:00`, `--in 2h`, or `--after JOB`";
    fail(Exit::Usage, "the job has no schedule").with_hint(hint)
}

/// The message, read from standard input if it is `-`.
fn read_message(message: &str) -> Result<String> {
    let text = match message {
        "-" => {
            signal::install(None).context("wait for signals")?;
            let bytes =
                input::read_stdin(StdinMode::Always, input::DEFAULT_IDLE_TIMEOUT, &mut |_| {})?;
            String::from_utf8(bytes.unwrap_or_default())
                .map_err(|_| fail(Exit::BadInput, "standard input is not UTF-8"))?
                .trim_end()
                .to_owned()
        }
        message => message.to_owned(),
    };
    if text.trim().is_empty() {
        Err(fail(Exit::Usage, "the message is empty")
            .with_hint("`-m 'instructions for the agent'`"))
    } else {
        Ok(text)
    }
}

/// The schedule that the flags describe; `None` if they describe none. Unset parts are taken from `before`, and `--after` names one
/// of `jobs`.
///
/// # Errors
/// Status 2 for a text that is not a valid time; status 66 if there is no such job.
fn resolve_schedule(
    ctx: &Context,
    flags: &ScheduleFlags,
    settings: &Settings,
    jobs: &[Job],
    before: Option<&Schedule>,
    now: Timestamp,
    notices: &mut Vec<String>,
) -> Result<Option<Schedule>> {
    let ScheduleFlags { cron, tz, every, at, delay, after, catch_up: _, jitter: _ } = flags;
    let flag_error = |flag: &str, error: String| fail(Exit::Usage, format!("`{flag}`: {error}"));
    // An empty `--tz` means the system's zone.
    let flag_zone = match tz.as_deref() {
        Some("") => Some(None),
        Some(name) => Some(Some(time_zone::validate_zone(name)?)),
        None => None,
    };
    if let Some(text) = cron {
        let expression = Expression::parse(text).map_err(|error| flag_error("--cron", error))?;
        let zone = match (flag_zone, before) {
            (Some(zone), _) => zone,
            (None, Some(Schedule::Cron { zone, .. })) => zone.clone(),
            (None, _) => time_zone::default_zone(ctx, settings, now, notices),
        };
        return Ok(Some(Schedule::Cron { expression, zone }));
    }
    match (flag_zone, before) {
        (Some(zone), Some(Schedule::Cron { expression, .. })) if !flags.has_times() => {
            let expression = expression.clone();
            return Ok(Some(Schedule::Cron { expression, zone }));
        }
        (Some(_), _) => {
            let hint = match (at, flags.has_times()) {
                (Some(_), _) => "an offset in the time: `--at 2026-12-24T18:00+02:00`",
                (None, true) => "the same without `--tz`",
                (None, false) => "`--cron` with it, such as `--cron '30 7 * * *'`",
            };
            return Err(fail(Exit::Usage, "`--tz` can only be used with `--cron`").with_hint(hint));
        }
        (None, _) => {}
    }
    if let Some(text) = every {
        let period = schedule::parse_period(text).map_err(|error| flag_error("--every", error))?;
        return Ok(Some(Schedule::Every(period)));
    }
    if let Some(name_or_id) = after {
        return Ok(Some(Schedule::After(workspace_jobs::find_among(jobs, name_or_id)?.id)));
    }
    let time = match (at, delay) {
        (Some(text), _) => schedule::parse_time(text, &time_zone::local_zone(ctx, settings), now)
            .map_err(|error| flag_error("--at", error))?,
        (_, Some(text)) => {
            schedule::parse_delay(text, now).map_err(|error| flag_error("--in", error))?
        }
        _ => return Ok(None),
    };
    Ok(Some(Schedule::At(timing::truncate_to_millis(time))))
}
