//! `cron enable`, `disable` and `remove`, each for several jobs.

use crate::cron::job::{Job, Kind};
use crate::cron::record::Folder;
use crate::cron::schedule::Schedule;
use crate::cron::store::Store;
use crate::error::{Exit, exit_of, fail_hint};
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::job_store;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use crate::session as sessions;
use crate::settings::Settings;
use anyhow::Result;

/// Enables or disables jobs. `on_done` is called for each.
pub(crate) fn set_enabled(
    ctx: &Context,
    names: &[String],
    enabled: bool,
    done: &mut dyn FnMut(&Job) -> Result<()>,
) -> Result<Exit> {
    let saved_message = match enabled {
        true => "the jobs are enabled, but cron does not start them",
        false => "the jobs are disabled: crontab lines that are left start nothing",
    };
    each(ctx, names, saved_message, &mut |_, store, job| {
        if is_heartbeat(job) {
            let verb = if enabled { "enable" } else { "disable" };
            return Err(fail_hint(
                Exit::Usage,
                "the heartbeat is not a job in the job file",
                format!("`nanobot heartbeat {verb}`"),
            ));
        }
        let now = ctx.clock.timestamp();
        let found = store.update(&job.id, now, |job| {
            job.enabled = enabled;
            // Slots missed while disabled are not caught up.
            if let (true, Some(terms)) = (enabled, &mut job.terms) {
                terms.since_ms = now.as_millisecond();
            }
            timing::note_next(ctx, job, now);
            enabled && job.terms.is_some()
        })?;
        if !found {
            return Err(job_store::unknown_job(&[], &job.id));
        }
        if let (true, Ok(Schedule::At(time))) = (enabled, &job.schedule)
            && *time <= now
        {
            ctx.notice(&format!(
                "the time of `{}` has passed; set another with `nanobot cron edit {} --at …`",
                job.name, job.id
            ));
        }
        done(job)
    })
}

/// Removes jobs with all their data. `on_done` is called for each.
pub(crate) fn remove(
    ctx: &Context,
    names: &[String],
    done: &mut dyn FnMut(&Job) -> Result<()>,
) -> Result<Exit> {
    each(
        ctx,
        names,
        "the jobs are removed: crontab lines that are left start nothing",
        &mut |settings, store, job| {
            if !store.remove(&job.id)? && !store.folder(&job.id)?.is_dir() {
                return Err(job_store::unknown_job(&[], &job.id));
            }
            clear(ctx, settings, store, job)?;
            done(job)
        },
    )
}

/// Removes the data of a job that is no longer in the job file: its folder, and its own session.
pub(crate) fn clear(ctx: &Context, settings: &Settings, store: &Store, job: &Job) -> Result<()> {
    if !crate::cron::store::is_plain(&job.id) {
        return Ok(());
    }
    let folder = store.folder(&job.id)?;
    if folder.exists() {
        match Folder::new(folder).lock(&job.name, &ctx.clock.stamp()) {
            Ok(lock) => {
                store.remove_folder(&job.id)?;
                drop(lock);
            }
            // The run in progress finds the job gone at its end, and removes the data itself.
            Err(error) if exit_of(&error) == Exit::TryAgain => {
                ctx.notice(&format!(
                    "`{}` is running: the current run continues to its end",
                    job.name
                ));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    forget_conversation(ctx, settings, job)
}

/// Moves the session of a removed job to the trash, if the session belongs to the job alone.
pub(crate) fn forget_conversation(ctx: &Context, settings: &Settings, job: &Job) -> Result<()> {
    let (key, is_own) = job.conversation();
    // The other program uses the heartbeat's session under the same name.
    if !is_own || is_heartbeat(job) {
        return Ok(());
    }
    let place = ctx.session_place(settings)?;
    match sessions::discard(&place, &key, &|_| true) {
        Ok(true) => ctx.notice(&format!(
                "moved the session of `{}` to the trash; restore it with `nanobot session restore {key}`",
                time_format::one_line(&job.name)
            ),
        ),
        Ok(false) => {}
        Err(error) if exit_of(&error) == Exit::NoInput => {}
        Err(error) if exit_of(&error) == Exit::TryAgain => {
            ctx.notice(&format!("its session `{key}` was not removed: {error:#}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn is_heartbeat(job: &Job) -> bool {
    job.terms
        .as_ref()
        .is_some_and(|terms| terms.kind == Kind::Heartbeat)
}

/// A removed job of which data is left: the records of a one-time job, or the rest of an interrupted `cron remove`.
fn left_of(ctx: &Context, store: &Store, id: &str) -> Option<Job> {
    let is_there = store.folder(id).is_ok_and(|folder| folder.is_dir());
    is_there.then(|| Job {
        id: id.to_owned(),
        name: id.to_owned(),
        enabled: false,
        session: None,
        terms: None,
        ..Job::heartbeat(ctx.clock.timestamp())
    })
}

/// Applies `action` to each of the jobs in `names`, and then updates the crontab. A missing job does not affect the
/// others.
fn each(
    ctx: &Context,
    names: &[String],
    saved_message: &str,
    act: &mut dyn FnMut(&Settings, &Store, &Job) -> Result<()>,
) -> Result<Exit> {
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let mut exit = Exit::Answered;
    let mut has_changed = false;
    for name in names {
        let found = job_store::find(&store, name).or_else(|error| {
            let left = left_of(ctx, &store, name);
            left.ok_or(error)
        });
        let acted = found.and_then(|job| {
            // Set even if `action` fails: it may have changed something before it failed.
            has_changed = true;
            act(&settings, &store, &job)
        });
        if let Err(error) = acted {
            let failed = report_error(&error, ctx.terminal);
            if exit == Exit::Answered {
                exit = failed;
            }
        }
    }
    if has_changed {
        let change = crontab_sync::write_crontab(ctx, &settings, &store, JobFilter::Known);
        let crontab_exit = crontab_sync::report_change(ctx, change, saved_message);
        if exit == Exit::Answered {
            exit = crontab_exit;
        }
    }
    Ok(exit)
}
