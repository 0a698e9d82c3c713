//! Removal of old data, as `retention.*` of the config says. Without such a key, old data is removed where more of its kind is stored,
//! and nothing here runs. With one, all of it is examined at most once a day, after a turn or at the first poll of a day. What is in use
//! stays, and whatever a process leaves that is killed meanwhile is removed by a later one.

use crate::ops::channel::{attachments, outbox};
use crate::ops::context::Context;
use crate::ops::jobs::{run_log, workspace_jobs};
use anyhow::{Context as _, Result};
use nanobot_base::error::Stop;
use nanobot_channel::inbox::{ChannelInbox, InboxState};
use nanobot_config::settings::Settings;
use nanobot_config::settings::retention::Retention;
use nanobot_cron::job_store::JobStore;
use nanobot_cron::run_record::JobDir;
use nanobot_model::ledger::Ledger;
use nanobot_model::ledger::tool_usage::ToolUsageLog;
use nanobot_os::durable_file;
use nanobot_os::file_lock::{FileLock, LockAttempt};
use nanobot_store::session::{self, SessionStore, TemporaryAges};
use nanobot_tool::undo::UndoStore;
use serde_json::{Value, json};
use std::path::Path;
use std::time::SystemTime;

/// The time between two examinations, in milliseconds.
const INTERVAL_MILLIS: i64 = 24 * 3_600_000;

/// An examination of all data that is due.
pub(crate) struct RetentionSweep {
    ages: Retention,
    sessions: SessionStore,
    jobs: JobStore,
}

/// The ages of temporary sessions.
pub(crate) fn temporary_ages(settings: &Settings) -> TemporaryAges {
    let Retention { pipe_sessions, trash, .. } = settings.retention;
    TemporaryAges { filter: pipe_sessions, rewound: trash }
}

impl RetentionSweep {
    /// Plans the examination; `None` if the config has no ages, or if it was done in the last day.
    pub(crate) fn plan(
        ctx: &Context,
        settings: &Settings,
        sessions: &SessionStore,
    ) -> Option<Self> {
        if !settings.retention.is_configured {
            return None;
        }
        // A file that cannot be read cannot be replaced either, which is reported then.
        let text = durable_file::read(&ctx.paths.last_retention()).ok().flatten();
        let text = text.unwrap_or_default();
        let last: Value = serde_json::from_slice(&text).unwrap_or_default();
        let now = ctx.clock.timestamp().as_millisecond();
        // A time in the future was recorded while the clock was ahead.
        let is_recent = |last: i64| (0..INTERVAL_MILLIS).contains(&now.saturating_sub(last));
        if last["at"].as_i64().is_some_and(is_recent) {
            return None;
        }
        let jobs = workspace_jobs::open(ctx, settings);
        Some(Self { ages: settings.retention, sessions: sessions.clone(), jobs })
    }

    /// Removes what is too old. A kind that cannot be removed is named in a notice, and does not affect the others.
    pub(crate) fn run(&self, ctx: &Context) {
        let now = ctx.clock.timestamp();
        let record = json!({ "at": now.as_millisecond() }).to_string() + "\n";
        // If a removal does not end, or fails, the next one is tomorrow.
        let path = ctx.paths.last_retention();
        if let Err(error) = durable_file::replace(&path, record.as_bytes()) {
            ctx.notice(&format!("old data was not removed: {error:#}"));
            return;
        }
        let now = SystemTime::from(now);
        let Retention { sessions, pipe_sessions, trash, runs, .. } = self.ages;
        let kinds: [(&str, &dyn Fn() -> Result<()>); 7] = [
            ("inbox", &|| self.compact_inboxes(ctx)),
            ("media", &|| self.remove_media(ctx, now)),
            ("sessions", &|| session::trash_old_sessions(&self.sessions, sessions).map(drop)),
            ("trash", &|| {
                let ages = TemporaryAges { filter: pipe_sessions, rewound: trash };
                session::prune_temporary_sessions(&self.sessions, ages)?;
                session::remove_expired_trash(&self.sessions, trash).map(drop)
            }),
            ("runs", &|| match runs.limit(now) {
                Some(limit) => self.remove_runs(limit),
                None => Ok(()),
            }),
            ("ledger", &|| self.remove_ledger_lines(ctx)),
            ("undo", &|| UndoStore::new(ctx.paths.undo(), self.ages.undo).remove_old_turns(now)),
        ];
        for (kind, remove) in kinds {
            match remove() {
                Err(error) if error.is::<Stop>() => return,
                Err(error) => ctx.notice(&format!("`retention.{kind}`: {error:#}")),
                Ok(()) => {}
            }
        }
    }

    /// Compacts the journals that no process has open.
    fn compact_inboxes(&self, ctx: &Context) -> Result<()> {
        let now = ctx.clock.timestamp().as_millisecond();
        let age = self.ages.inbox;
        let journals = [(ctx.paths.channels(), false), (ctx.paths.pipes(), true)];
        for (directory, keeps_answers) in journals {
            for entry in durable_file::list_dir(&directory)? {
                let directory = entry.path();
                if !ChannelInbox::read(&directory)?.has_expired(now, age) {
                    continue;
                }
                let channel_lock = try_lock(ctx, &directory.join("lock"))?;
                let outbox_lock = try_lock(ctx, &directory.join(outbox::LOCK_NAME))?;
                if channel_lock.is_some() && outbox_lock.is_some() {
                    ChannelInbox::open(&directory)?.compact_if_due(now, age, keeps_answers)?;
                }
            }
        }
        Ok(())
    }

    fn remove_media(&self, ctx: &Context, now: SystemTime) -> Result<()> {
        for entry in durable_file::list_dir(&ctx.paths.media())? {
            let inbox = read_inbox(&ctx.paths.channels().join(entry.file_name()))?;
            attachments::remove_old(&entry.path(), self.ages.media, now, &inbox);
        }
        Ok(())
    }

    fn remove_runs(&self, limit: SystemTime) -> Result<()> {
        let jobs = self.jobs.jobs()?;
        let mut result = Ok(());
        for id in run_log::all_ids(&self.jobs)? {
            let is_job = self.jobs.has_options(&id)? || jobs.iter().any(|job| job.id == id);
            let job_dir = JobDir::new(self.jobs.job_dir(&id)?);
            result = result.and(job_dir.remove_old_runs(limit, is_job));
        }
        result
    }

    fn remove_ledger_lines(&self, ctx: &Context) -> Result<()> {
        let ledger = Ledger::new(&ctx.paths.root, &ctx.clock);
        let Some(limit) = ledger.age_limit(self.ages.ledger) else {
            return Ok(());
        };
        ledger.remove_before(limit)?;
        ToolUsageLog::new(&ctx.paths.root, &ctx.clock).remove_before(limit).map(drop)
    }
}

/// Reads the journal in the directory of a channel; an empty one if there is none.
fn read_inbox(directory: &Path) -> Result<InboxState> {
    ChannelInbox::read(directory).with_context(|| format!("read `{}`", directory.display()))
}

/// Takes a lock if it is free.
fn try_lock(ctx: &Context, path: &Path) -> Result<Option<FileLock>> {
    Ok(match FileLock::try_acquire(path, Some(&ctx.clock.local_timestamp()))? {
        LockAttempt::Acquired(lock) => Some(lock),
        LockAttempt::Busy(_) => None,
    })
}
