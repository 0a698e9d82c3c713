//! `cron edit`: what is given changes, all else stays.

use super::add;
use crate::cli::cron as cli;
use crate::command::arguments::{self, grants as from_flags, job_flags};
use crate::cron::job::{Job, Kind};
use crate::cron::schedule::CatchUp;
use crate::cron::schedule::Schedule;
use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::jobs::job_options;
use crate::ops::jobs::job_store;
use crate::ops::jobs::time_format;
use crate::ops::jobs::timing;
use anyhow::{Context as _, Result};

pub(super) fn run(ctx: &Context, edit: &cli::Edit) -> Result<Exit> {
    let cli::Edit {
        job: word,
        name,
        message,
        flags,
    } = edit;
    let cli::Flags {
        schedule,
        terms,
        grants,
        config: _,
    } = flags;
    let grants = &add::at_home(ctx, &from_flags(grants));
    let settings = ctx.settings()?;
    let store = job_store::open(ctx, &settings);
    let mut job = job_store::find(&store, word)?;
    // What only this program knows of it would have no place.
    store.folder(&job.id)?;
    add::check_place(terms, job.delivery.channel.as_deref())?;
    let before_all = kept(&job)?;
    let now = ctx.clock.timestamp();
    let mut notices = Vec::new();
    let is_heartbeat = job
        .terms
        .as_ref()
        .is_some_and(|terms| terms.kind == Kind::Heartbeat);
    if is_heartbeat
        && (name.is_some()
            || message.is_some()
            || schedule.tz.is_some()
            || add::is_given(schedule) && schedule.every.is_none())
    {
        return Err(fail_hint(
            Exit::Usage,
            "the heartbeat has no name, no message and no times but `--every`",
            "`nanobot cron add` for a job of its own",
        ));
    }
    let mut catch_up = arguments::catch_up(schedule.catch_up);
    if let Some(when) = add::when(ctx, schedule, job.schedule.as_ref().ok(), now, &mut notices)? {
        let was_once = matches!(job.schedule, Ok(Schedule::At(_)));
        let is_once = matches!(when, Schedule::At(_));
        if was_once != is_once {
            catch_up = catch_up.or(Some(match is_once {
                true => CatchUp::Once,
                false => CatchUp::None,
            }));
            job.delete_after_run = is_once;
        }
        match when {
            Schedule::Every(period) if is_heartbeat => timing::begin_every(&mut job, period, now),
            when => {
                if let Some(terms) = &mut job.terms {
                    terms.since_ms = now.as_millisecond();
                }
                job.schedule = Ok(when);
            }
        }
    }
    if let Some(text) = name.as_deref().map(time_format::one_line) {
        if text.is_empty() {
            return Err(fail_hint(
                Exit::Usage,
                "a job cannot be without a name",
                "`--name` with what it is called",
            ));
        }
        job.name = text;
    }
    if let Some(text) = message {
        job.message = add::message_of(text)?;
    }
    let before = job.terms.as_ref().map(job_options::grants_of).transpose()?;
    let given = job_options::put(ctx, &mut job, &job_flags(terms), catch_up, grants)?;
    if terms.max_cost.is_some() || terms.model.is_some() {
        notices.extend(add::unpriced(ctx, &job, &given));
    }
    if kept(&job)? == before_all {
        notices
            .push("nothing else is different: what the job may do is fixed anew, as of now".into());
    }
    timing::note_next(ctx, &mut job, now);
    let edited = job.clone();
    let is_there = store.update(&job.id, now, |found| {
        let Job {
            name,
            schedule,
            message,
            delivery,
            session,
            delete_after_run,
            terms,
            ..
        } = edited.clone();
        *found = Job {
            name,
            schedule,
            message,
            delivery,
            session,
            delete_after_run,
            terms,
            ..found.clone()
        };
        found.bind();
        found.state.next_run = edited.state.next_run;
        true
    })?;
    if !is_there {
        return Err(job_store::unknown_job(&[], word));
    }
    if let Some(before) = before {
        notices.extend(job_options::replaced(&before, grants, &given)?);
    }
    notices.extend(job_options::consequences(ctx, &job, grants, &given));
    let done = format!("✓ Changed job '{}' ({})", job.name, job.id);
    add::answer(ctx, &settings, &store, &job, &done, notices)
}

/// All of a job that flags say, for telling whether they said anything new.
fn kept(job: &Job) -> Result<String> {
    let mut terms = serde_json::to_value(&job.terms).context("write the job down")?;
    if let Some(terms) = terms.as_object_mut() {
        terms.remove("policy");
    }
    let Job {
        name,
        schedule,
        message,
        delivery,
        session,
        ..
    } = job;
    Ok(format!(
        "{name:?} {schedule:?} {message:?} {delivery:?} {session:?} {terms}"
    ))
}
