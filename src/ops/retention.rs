//! Removal of old data, as `retention.*` of the config says. Without such a key, old data is removed where more of its kind is stored,
//! and nothing here runs. With one, all of it is examined at most once a day, after a turn or at the first poll of a day. What is in use
//! stays, and whatever a process leaves that is killed meanwhile is removed by a later one.

use crate::ops::channel::{attachments, outbox};
use crate::ops::context::Context;
use crate::ops::jobs::{run_log, workspace_jobs};
use anyhow::{Context as _, Result};
use nanobot_base::error::Stop;
use nanobot_channel::inbox::{ChannelInbox, InboxAges};
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
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// The time between two examinations, in milliseconds.
const INTERVAL_MILLIS: i64 = 24 * 3_600_000;

/// An examination of all data that is due.
pub(crate) struct RetentionSweep {
    ages: Retention,
    /// The workspace, whose sessions are examined.
    workspace: String,
    /// The times of the last examinations of workspaces, in milliseconds since 1970.
    last_times: BTreeMap<String, i64>,
    sessions: SessionStore,
    jobs: JobStore,
}

/// Removes some old temporary sessions, of which a turn or `/rewind` has just made one.
///
/// # Errors
/// The directory of the sessions cannot be read.
pub(crate) fn prune_temporary_sessions(store: &SessionStore, retention: &Retention) -> Result<()> {
    let ages = temporary_ages(retention);
    session::prune_temporary_sessions(store, ages, session::MAX_PRUNED_SESSIONS)
}

fn temporary_ages(retention: &Retention) -> TemporaryAges {
    TemporaryAges { filter: retention.pipe_sessions, rewound: retention.trash }
}

/// The ages of settled messages. A message that its conversation has not got yet is a part of it.
pub(crate) fn inbox_ages(retention: &Retention) -> InboxAges {
    InboxAges { settled: retention.inbox, unread: retention.sessions }
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
        let last_times: BTreeMap<String, i64> =
            serde_json::from_slice(&text.unwrap_or_default()).unwrap_or_default();
        let workspace = settings.workspace.to_string_lossy().into_owned();
        let now = ctx.clock.timestamp().as_millisecond();
        if last_times.get(&workspace).is_some_and(|last| is_recent(*last, now)) {
            return None;
        }
        let jobs = workspace_jobs::open(ctx, settings);
        let (ages, sessions) = (settings.retention, sessions.clone());
        Some(Self { ages, workspace, last_times, sessions, jobs })
    }

    /// Removes what is too old. A kind that cannot be removed is named in a notice, and does not affect the others; nor does a
    /// directory the others of its kind.
    pub(crate) fn run(&self, ctx: &Context) {
        // If a removal does not end, or fails, the next one is tomorrow.
        let now = ctx.clock.timestamp();
        if let Err(error) = self.record_time(ctx, now.as_millisecond()) {
            ctx.notice(&format!("old data was not removed: {error:#}"));
            return;
        }
        let now = SystemTime::from(now);
        let Retention { sessions, trash, runs, .. } = self.ages;
        let kinds: [(&str, &dyn Fn() -> Result<()>); 7] = [
            ("inbox", &|| self.compact_inboxes(ctx)),
            ("media", &|| self.remove_media(ctx, now)),
            ("sessions", &|| session::trash_old_sessions(&self.sessions, sessions).map(drop)),
            ("trash", &|| {
                let ages = temporary_ages(&self.ages);
                session::prune_temporary_sessions(&self.sessions, ages, usize::MAX)?;
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

    fn record_time(&self, ctx: &Context, now: i64) -> Result<()> {
        let mut times = self.last_times.clone();
        times.retain(|_, last| is_recent(*last, now));
        times.insert(self.workspace.clone(), now);
        let text = serde_json::to_string(&times).context("encode the times")? + "\n";
        durable_file::replace(&ctx.paths.last_retention(), text.as_bytes())
    }

    /// Compacts the journals that no process has open.
    fn compact_inboxes(&self, ctx: &Context) -> Result<()> {
        let mut result = Ok(());
        for entry in durable_file::list_dir(&ctx.paths.channels())? {
            let lock_names = ["lock", outbox::LOCK_NAME];
            result = result.and(self.compact_inbox(ctx, &entry.path(), &lock_names, false));
        }
        for entry in durable_file::list_dir(&ctx.paths.pipes())? {
            result = result.and(self.compact_inbox(ctx, &entry.path(), &["lock"], true));
        }
        result
    }

    /// Compacts the journal in `directory`, if it is due and the locks of those who write it are free.
    fn compact_inbox(
        &self,
        ctx: &Context,
        directory: &Path,
        lock_names: &[&str],
        keeps_answers: bool,
    ) -> Result<()> {
        let now = ctx.clock.timestamp().as_millisecond();
        let ages = inbox_ages(&self.ages);
        if !ChannelInbox::read(directory)?.has_expired(now, ages) {
            return Ok(());
        }
        let mut locks = Vec::new();
        for name in lock_names {
            let time = ctx.clock.local_timestamp();
            match FileLock::try_acquire(&directory.join(name), Some(&time))? {
                LockAttempt::Acquired(lock) => locks.push(lock),
                LockAttempt::Busy(_) => return Ok(()),
            }
        }
        ChannelInbox::open(directory)?.compact_if_due(now, ages, keeps_answers)
    }

    /// Removes attachments, also those of channels that are no longer used.
    fn remove_media(&self, ctx: &Context, now: SystemTime) -> Result<()> {
        let mut result = Ok(());
        for entry in durable_file::list_dir(&ctx.paths.media())? {
            // A link leads to files of others.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let inbox = ChannelInbox::read(&ctx.paths.channels().join(entry.file_name()));
                result = result.and(inbox.map(|inbox| {
                    attachments::remove_old(&entry.path(), self.ages.media, now, &inbox);
                }));
            }
        }
        result
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

/// True if `last` is a time of the last day. A time in the future was recorded while the clock was ahead.
fn is_recent(last: i64, now: i64) -> bool {
    (0..INTERVAL_MILLIS).contains(&now.saturating_sub(last))
}
