//! The jobs that a model schedules: the actions of the tool `cron`, with the same effect as `cron add` and `cron remove`.

use crate::ops::context::Context;
use crate::ops::jobs::crontab_sync::{self, JobFilter};
use crate::ops::jobs::job_edit;
use crate::ops::jobs::lifecycle;
use crate::ops::jobs::time_format;
use crate::ops::jobs::time_zone;
use crate::ops::jobs::timing;
use crate::ops::jobs::workspace_jobs;
use anyhow::Result;
use jiff::tz::TimeZone;
use nanobot_config::settings::Settings;
use nanobot_cron::expression::Expression;
use nanobot_cron::job::{Delivery, Job, JobOptions, JobState};
use nanobot_cron::job_store::{AddResult, JobStore};
use nanobot_cron::schedule::{self, CatchUpPolicy, Schedule};
use nanobot_os::clock;
use nanobot_tool::ToolError;
use nanobot_tool::cron::{
    CreatedJob, JobRequest, JobScheduler, ListedJob, MAX_MODEL_JOBS, RequestedChange,
    RequestedSchedule, job_limit_error,
};
use nanobot_tool::message::ChatTarget;
use std::sync::Arc;
use std::time::Duration;

/// Stores the jobs that a run's model schedules.
pub(crate) struct StoreScheduler {
    ctx: Context,
    settings: Arc<Settings>,
    /// True if the run prints no notices.
    is_quiet: bool,
    /// The chat or sender whose binding limits the run, as `CHANNEL:ID`.
    binding: Option<String>,
}

impl StoreScheduler {
    /// Creates a scheduler for this workspace. The binding of the chat or sender `binding`, as `CHANNEL:ID`, limits the jobs.
    pub(crate) fn new(ctx: &Context, settings: &Arc<Settings>, binding: Option<String>) -> Self {
        Self {
            binding,
            settings: Arc::clone(settings),
            // The tool reports the result, so the steps print no notices.
            ctx: Context { quiet: true, ..ctx.clone() },
            is_quiet: ctx.quiet,
        }
    }

    fn store(&self) -> JobStore {
        workspace_jobs::open(&self.ctx, &self.settings)
    }

    fn local_zone(&self) -> TimeZone {
        time_zone::local_zone(&self.ctx, &self.settings)
    }

    fn parse_schedule(&self, schedule: &RequestedSchedule<'_>) -> Result<Schedule, ToolError> {
        Ok(match schedule {
            RequestedSchedule::Every(seconds) => Schedule::Every(Duration::from_secs(*seconds)),
            RequestedSchedule::Cron { expression, zone } => {
                let parsed = Expression::parse(expression)
                    .map_err(|error| format!("`cron_expr`: {error}"))?;
                let zone = match zone {
                    Some(name) => Some(
                        time_zone::validate_zone(name)
                            .map_err(|error| format!("`tz`: {error:#}"))?,
                    ),
                    None => time_zone::default_zone(
                        &self.ctx,
                        &self.settings,
                        self.ctx.clock.timestamp(),
                        &mut Vec::new(),
                    ),
                };
                Schedule::Cron { expression: parsed, zone }
            }
            RequestedSchedule::At(text) => {
                let now = self.ctx.clock.timestamp();
                let time = schedule::parse_time(text, &self.local_zone(), now)
                    .map_err(|error| format!("`at`: {error}"))?;
                Schedule::At(timing::truncate_to_millis(time))
            }
        })
    }

    /// Reports a new job to the user, because it remains after the conversation.
    fn report_new_job(&self, job: &Job) {
        let schedule = timing::describe_schedule(&self.ctx, job, &self.local_zone());
        let ctx = Context { quiet: self.is_quiet, ..self.ctx.clone() };
        ctx.notice(&format!(
            "the agent added the job `{}` ({schedule}); `nanobot cron remove {}` removes it",
            job.name, job.id
        ));
    }

    /// The next run of a job that was stored, for people, with the problem of the crontab if there is one.
    fn next_run_text(&self, job: &Job) -> String {
        let times = timing::upcoming_runs(&self.ctx, job, self.ctx.clock.timestamp(), 1);
        let now_here = time_zone::now(&self.ctx, &self.settings);
        let mut next = time_format::format_times(&times, &now_here);
        if !times.is_empty() {
            next.push_str(&format!(", {} time", clock::zone_name(&now_here)));
        }
        if let Some(error) = self.update_crontab() {
            next.push_str(&format!(
                "; but nothing starts it: {error}. Tell the user to run `nanobot cron run --due` once a minute"
            ));
        }
        next
    }

    /// Updates the crontab. Returns the problem, if any, for the model to report.
    fn update_crontab(&self) -> Option<String> {
        let store = self.store();
        crontab_sync::write_crontab(&self.ctx, &self.settings, &store, JobFilter::Managed)
            .err()
            .map(|error| format!("{error:#}"))
    }
}

impl JobScheduler for StoreScheduler {
    fn add(&self, request: &JobRequest<'_>) -> Result<CreatedJob, ToolError> {
        let schedule = self.parse_schedule(&request.schedule)?;
        let now = self.ctx.clock.timestamp();
        let is_once = matches!(schedule, Schedule::At(_));
        let store = self.store();
        let id = store
            .jobs()
            .and_then(|jobs| workspace_jobs::unused_id(&store, &jobs))
            .map_err(|error| to_failure(&error))?;
        let mut job = Job {
            id,
            name: request.name.clone(),
            enabled: true,
            schedule: Ok(schedule),
            message: request.message.to_owned(),
            delivery: request.chat.map_or_else(Delivery::default, |chat| Delivery {
                deliver: true,
                channel: Some(chat.channel.clone()),
                to: Some(chat.recipient.clone()),
            }),
            session: None,
            created: timing::truncate_to_millis(now),
            state: JobState::default(),
            delete_after_run: is_once,
            predecessor: None,
            options: Some(JobOptions {
                v: JobOptions::FORMAT_VERSION,
                policy: Some(request.policy.clone()),
                by_model: true,
                binding: self.binding.clone(),
                catch_up: if is_once { CatchUpPolicy::Once } else { CatchUpPolicy::None },
                config: self.ctx.config.as_deref().map(crate::ops::permissions::absolute),
                ..JobOptions::default()
            }),
        };
        timing::update_next_run(&self.ctx, &mut job, now);
        match store.add(&job, now, Some(MAX_MODEL_JOBS)).map_err(|error| to_failure(&error))? {
            AddResult::Added => {}
            AddResult::LimitReached => return Err(job_limit_error()),
        }
        let next = self.next_run_text(&job);
        self.report_new_job(&job);
        Ok(CreatedJob { id: job.id, next })
    }

    fn list(&self) -> Result<Vec<ListedJob>, ToolError> {
        let now = self.ctx.clock.timestamp();
        let jobs = self.store().jobs().map_err(|error| to_failure(&error))?;
        let mut jobs: Vec<_> = jobs
            .into_iter()
            .filter(|job| job.enabled)
            .map(|job| (timing::upcoming_runs(&self.ctx, &job, now, 1).pop(), job))
            .collect();
        jobs.sort_by_key(|(next, _)| (next.is_none(), *next));
        let now_here = time_zone::now(&self.ctx, &self.settings);
        let listed = jobs.into_iter().map(|(next, job)| ListedJob {
            schedule: match &job.schedule {
                Ok(_) => timing::describe_schedule_for_model(&self.ctx, &job, now_here.time_zone()),
                // The reason would quote the job file.
                Err(_) => "never".into(),
            },
            next: next.map(|next| {
                let time = time_format::format_time(next, &now_here);
                format!("{time}, {} time", clock::zone_name(&now_here))
            }),
            by_model: job.options.as_ref().is_some_and(|options| options.by_model),
            chat: match (&job.delivery.channel, &job.delivery.to) {
                (Some(channel), Some(to)) if job.delivery.deliver => {
                    Some(ChatTarget { channel: channel.clone(), recipient: to.clone() })
                }
                _ => None,
            },
            message: job.repeatable_text(),
            created_at: job.created.as_millisecond(),
            name: job.options.is_some().then(|| job.name.clone()),
            id: job.id,
        });
        Ok(listed.collect())
    }

    fn remove(&self, id: &str) -> Result<bool, ToolError> {
        let store = self.store();
        let Some(job) = store.job(id).map_err(|error| to_failure(&error))? else {
            return Ok(false);
        };
        if !store.remove(id).map_err(|error| to_failure(&error))? {
            return Ok(false);
        }
        lifecycle::remove_data(&self.ctx, &self.settings, &store, &job)
            .map_err(|error| to_failure(&error))?;
        match self.update_crontab() {
            None => Ok(true),
            Some(error) => {
                Err(format!("the job was removed, but its line remains in the crontab: {error}")
                    .into())
            }
        }
    }

    fn disable(&self, id: &str) -> Result<bool, ToolError> {
        let disable = |job: &mut Job| {
            (job.enabled, job.state.next_run) = (false, None);
            false
        };
        let now = self.ctx.clock.timestamp();
        let is_stored =
            self.store().update(id, now, disable).map_err(|error| to_failure(&error))?;
        // A line that remains starts nothing.
        if let Some(error) = self.update_crontab() {
            log::warn!(target: "cron", "a line remains in the crontab: {error}");
        }
        Ok(is_stored)
    }

    fn change(&self, change: &RequestedChange<'_>) -> Result<String, ToolError> {
        let schedule =
            change.schedule.map(|schedule| self.parse_schedule(&schedule)).transpose()?;
        let (store, now) = (self.store(), self.ctx.clock.timestamp());
        let mut job = store
            .job(change.id)
            .map_err(|error| to_failure(&error))?
            .ok_or("the job was removed")?;
        // A change would accept the text of the other program.
        if job.is_altered() {
            return Err(
                "another program has changed this job; the user can run `nanobot cron edit`".into(),
            );
        }
        // It would be removed after its run.
        if matches!(schedule, Some(Schedule::At(_))) && !job.is_once() {
            return Err("the job repeats; `snooze` runs it once at another time".into());
        }
        let catch_up =
            schedule.and_then(|schedule| job_edit::set_schedule(&mut job, schedule, None, now));
        if let Some(message) = change.message {
            job.message = message.to_owned();
        }
        if let Some(options) = &mut job.options {
            options.catch_up = catch_up.unwrap_or(options.catch_up);
            options.changed_ms = now.as_millisecond();
            if change.message.is_some() {
                options.policy = Some(change.policy.clone());
                options.binding.clone_from(&self.binding);
            }
        }
        timing::update_next_run(&self.ctx, &mut job, now);
        let apply = |stored: &mut Job| {
            stored.apply_edit(&job);
            true
        };
        if !store.update(&job.id, now, apply).map_err(|error| to_failure(&error))? {
            return Err("the job was removed".into());
        }
        Ok(self.next_run_text(&job))
    }
}

/// Converts an error into a failure, without text that comes from files.
fn to_failure(error: &anyhow::Error) -> ToolError {
    let message = error.to_string();
    format!("cannot access the jobs: {}", message.lines().next().unwrap_or_default()).into()
}
