//! The failures that were told at `notify.target` of the config, and what is still to be told there.
//!
//! They are one file, which is written before anything is sent. So each failure makes one notice, and its end another, although many
//! processes meet them. A kill loses nothing: the next run of a job or poll sends what is left.

use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_base::error::Exit;
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum number of failures without an end. The oldest are dropped: those of jobs that another program removed.
const MAX_FAILURES: usize = 1000;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct NoticeFile {
    /// Failures that have not ended, the oldest first.
    failures: Vec<OpenFailure>,
    /// Texts that were not sent, the oldest first.
    notices: Vec<Notice>,
}

/// A failure that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OpenFailure {
    /// A job, or an activity of a channel.
    subject: String,
    /// The exit statuses of which a notice was made.
    statuses: Vec<u8>,
    /// The time of the first notice, in milliseconds since 1970.
    since: i64,
}

/// A text to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// The config file whose target gets it: that of the job.
    config: PathBuf,
    pub(crate) text: String,
    /// The key of the message, once a process has begun to send it. A chat service that gets it twice shows it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

/// A failure, which makes one notice.
pub(crate) struct Failure<'a> {
    /// A job, or an activity of a channel.
    pub(crate) subject: &'a str,
    /// The exit status. Another one of the same subject makes another notice; 0 if all causes are one.
    pub(crate) status: u8,
    pub(crate) text: String,
}

/// The part of a job's run that failed. Of a failure that lasts, each part is reported once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailedPart {
    Run,
    /// The record, or another file that the run must write.
    Writing,
}

impl FailedPart {
    /// Tells the parts apart among the statuses of an open failure. Zero is a run, whatever its status was.
    pub(crate) fn status(self) -> u8 {
        match self {
            Self::Run => 0,
            Self::Writing => Exit::Io.code(),
        }
    }
}

/// The subject of the job `id`.
pub(crate) fn job_subject(id: &str) -> String {
    format!("job {id}")
}

/// Records a failure. Makes a notice of it unless there was one.
///
/// # Errors
/// Status 74.
pub(crate) fn record_failure(ctx: &Context, failure: Failure<'_>) -> Result<()> {
    let Failure { subject, status, text } = failure;
    change(ctx, |file| {
        match file.failures.iter_mut().find(|open| open.subject == subject) {
            Some(open) if open.statuses.contains(&status) => return,
            Some(open) => open.statuses.push(status),
            None => {
                let since = ctx.clock.timestamp().as_millisecond();
                let subject = subject.to_owned();
                file.failures.push(OpenFailure { subject, statuses: vec![status], since });
                let excess_count = file.failures.len().saturating_sub(MAX_FAILURES);
                file.failures.drain(..excess_count);
            }
        }
        file.notices.push(Notice::new(ctx, text));
    })
}

/// Records that `subject`, described by `description`, works. Makes a notice of the end of its failure. Returns true if there was one.
///
/// # Errors
/// Status 74.
pub(crate) fn record_success(ctx: &Context, subject: &str, description: &str) -> Result<bool> {
    let is_subject = |open: &OpenFailure| open.subject == subject;
    if !read(ctx)?.failures.iter().any(is_subject) {
        return Ok(false);
    }
    let mut has_ended = false;
    change(ctx, |file| {
        let Some(index) = file.failures.iter().position(is_subject) else {
            return;
        };
        let since = file.failures.remove(index).since;
        let since = Timestamp::from_millisecond(since).unwrap_or_default();
        let text = format!("{description} works again; it failed since {since}");
        file.notices.push(Notice::new(ctx, text));
        has_ended = true;
    })?;
    Ok(has_ended)
}

/// Makes a notice of what happens once, and has no end.
///
/// # Errors
/// Status 74.
pub(crate) fn record_event(ctx: &Context, text: String) -> Result<()> {
    change(ctx, |file| file.notices.push(Notice::new(ctx, text)))
}

/// Forgets the failure of a subject that no longer exists.
///
/// # Errors
/// Status 74.
pub(crate) fn forget(ctx: &Context, subject: &str) -> Result<()> {
    if read(ctx)?.failures.iter().any(|open| open.subject == subject) {
        change(ctx, |file| file.failures.retain(|open| open.subject != subject))?;
    }
    Ok(())
}

/// True if there are notices for the target of this process.
///
/// # Errors
/// Status 74.
pub(crate) fn are_waiting(ctx: &Context) -> Result<bool> {
    Ok(read(ctx)?.notices.iter().any(|notice| notice.config == ctx.paths.config))
}

/// Returns the next notice for the target of this process: one that another process began to send, or all that wait, joined to one. It
/// stays in the file.
///
/// # Errors
/// Status 74.
pub(crate) fn next(ctx: &Context) -> Result<Option<Notice>> {
    let mut next = None;
    change(ctx, |file| {
        let is_ours = |notice: &Notice| notice.config == ctx.paths.config;
        next = file.notices.iter().find(|it| is_ours(it) && it.key.is_some()).cloned();
        if next.is_none() && file.notices.iter().any(is_ours) {
            let waiting: Vec<Notice> = file.notices.extract_if(.., |it| is_ours(it)).collect();
            let texts: Vec<String> = waiting.into_iter().map(|notice| notice.text).collect();
            let key = Some(format!("notice-{}", random_hex(4)));
            let joined = Notice { key, ..Notice::new(ctx, texts.join("\n")) };
            file.notices.push(joined.clone());
            next = Some(joined);
        }
    })?;
    Ok(next)
}

/// Removes a notice that was sent.
///
/// # Errors
/// Status 74.
pub(crate) fn remove(ctx: &Context, notice: &Notice) -> Result<()> {
    change(ctx, |file| file.notices.retain(|it| it.key != notice.key))
}

impl Notice {
    fn new(ctx: &Context, text: String) -> Self {
        Self { config: ctx.paths.config.clone(), text, key: None }
    }
}

fn read(ctx: &Context) -> Result<NoticeFile> {
    let bytes = durable_file::read(&ctx.paths.notices())?;
    // Of a damaged file nothing is left to tell.
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}

fn change(ctx: &Context, change: impl FnOnce(&mut NoticeFile)) -> Result<()> {
    let path = ctx.paths.notices();
    let _lock = durable_file::lock_for_change(&path, "the list of notices")?;
    let mut file = read(ctx)?;
    let earlier = file.clone();
    change(&mut file);
    if file == earlier {
        return Ok(());
    }
    let text = serde_json::to_string(&file).context("encode the notices")? + "\n";
    durable_file::replace(&path, text.as_bytes())
}
