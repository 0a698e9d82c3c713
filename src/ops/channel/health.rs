//! The health of a channel, for `channel list`, `status check`, `cron check` and `status metrics`.
//!
//! A failure is a file in the channel's directory, which exists from the first failure of an activity to its next success.
//! So polls that start each minute report a failure once, and its end once.

use crate::ops::channel::open_channel::{ChannelFiles, OpenChannel};
use crate::ops::context::Context;
use crate::ops::notices;
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use nanobot_base::error::exit_for;
use nanobot_channel::inbox::{ChannelInbox, InboxState, OutboundEntry};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::table::CHANNELS;
use nanobot_os::durable_file;
use nanobot_os::secret::redact_all;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Maximum age of the last poll, and maximum time for which a message waits, of a channel without a problem.
pub(crate) const MAX_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Minimum duration of a failure whose end is reported. Cron polls once a minute, so a failure of one poll is longer.
const MIN_REPORTED_DURATION: SignedDuration = SignedDuration::from_secs(30);

/// An activity of a channel that can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelActivity {
    /// Polls look for messages.
    Poll,
    /// Messages are answered.
    Answer,
    /// Messages are sent, by any process.
    Send,
}

impl ChannelActivity {
    const ALL: [Self; 3] = [Self::Poll, Self::Answer, Self::Send];

    /// The name in files, in JSON and in labels of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Answer => "answer",
            Self::Send => "send",
        }
    }

    /// The subject of notices about this activity of a channel.
    pub(crate) fn notice_subject(self, channel: &str) -> String {
        format!("channel {channel} {}", self.name())
    }

    fn path(self, directory: &Path) -> PathBuf {
        directory.join(format!("failure-{}.json", self.name()))
    }
}

/// A failure that has not ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelFailure {
    /// The time of the first failed attempt, in milliseconds since 1970.
    since: i64,
    /// The exit status of the last failed attempt.
    status: u8,
    /// The error of the last failed attempt.
    pub(crate) error: String,
}

impl ChannelFailure {
    fn read(directory: &Path, activity: ChannelActivity) -> Result<Option<Self>> {
        let text = durable_file::read(&activity.path(directory))?;
        // A damaged file is not a failure of the service.
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    pub(crate) fn since(&self) -> Timestamp {
        Timestamp::from_millisecond(self.since).unwrap_or_default()
    }
}

/// Records a failure. Returns true if it is new: there was none, or one with another status.
///
/// # Errors
/// Status 74.
pub(crate) fn record_failure(
    ctx: &Context,
    directory: &Path,
    activity: ChannelActivity,
    error: &anyhow::Error,
) -> Result<bool> {
    let status = exit_for(error).code();
    let earlier = ChannelFailure::read(directory, activity)?;
    let now = ctx.clock.timestamp().as_millisecond();
    let failure = ChannelFailure {
        since: earlier.as_ref().map_or(now, |earlier| earlier.since),
        status,
        error: redact_all(&format!("{error:#}")).into_owned(),
    };
    durable_file::create_dir(directory)?;
    let text = serde_json::to_string(&failure)? + "\n";
    durable_file::replace(&activity.path(directory), text.as_bytes())?;
    Ok(earlier.is_none_or(|earlier| earlier.status != status))
}

/// The end of a failure.
pub(crate) struct FailureEnd {
    /// A message about it; `None` if a notice for `notify.target` was made, or the failure was short.
    pub(crate) message: Option<String>,
}

/// Records a success. Returns the end of the failure before it, if there was one.
///
/// # Errors
/// Status 74.
pub(crate) fn record_success(
    ctx: &Context,
    directory: &Path,
    name: &str,
    activity: ChannelActivity,
) -> Result<Option<FailureEnd>> {
    let path = activity.path(directory);
    if !path.exists() {
        return Ok(None);
    }
    let description = format!("channel {name}: {}", activity.name());
    // Before the file is removed, so that a kill loses no notice.
    let has_notice = notices::record_success(ctx, &activity.notice_subject(name), &description)?;
    let earlier = ChannelFailure::read(directory, activity)?;
    match std::fs::remove_file(&path) {
        // Another process was faster, and reports it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        result => result.with_context(|| format!("remove `{}`", path.display()))?,
    }
    let now = ctx.clock.timestamp();
    let has_lasted =
        |earlier: &ChannelFailure| now.duration_since(earlier.since()) >= MIN_REPORTED_DURATION;
    let message = earlier
        .filter(|earlier| !has_notice && has_lasted(earlier))
        .map(|earlier| format!("{description} works again; it failed since {}", earlier.since()));
    Ok(Some(FailureEnd { message }))
}

/// Records that a message of a channel was sent, or the error. If that cannot be recorded, a warning is logged, so that the result of
/// the delivery is still reported.
pub(crate) fn record_delivery(ctx: &Context, channel: &OpenChannel, error: Option<&anyhow::Error>) {
    let (directory, name) = (&channel.files.directory, channel.name());
    let result = match error {
        Some(error) => record_failure(ctx, directory, ChannelActivity::Send, error).map(drop),
        None => record_success(ctx, directory, name, ChannelActivity::Send).map(|end| {
            let message = end.and_then(|end| end.message);
            message.iter().for_each(|message| ctx.notice(message));
        }),
    };
    if let Err(error) = result {
        log::warn!(target: "channel", "{name}: {error:#}");
    }
}

pub(crate) struct ChannelHealth {
    pub(crate) name: &'static str,
    pub(crate) is_enabled: bool,
    /// True if the channel is enabled, or was used.
    pub(crate) is_configured: bool,
    /// The time of the last successful poll.
    pub(crate) last_poll: Option<Timestamp>,
    pub(crate) failures: Vec<(ChannelActivity, ChannelFailure)>,
    /// Number of messages that wait for an answer or a delivery, and the time since which the oldest one waits.
    pub(crate) waiting: usize,
    pub(crate) oldest_waiting: Option<Timestamp>,
    /// Number of messages that were given up, and neither sent again nor dismissed.
    pub(crate) given_up: usize,
    receives: bool,
}

/// A problem of a channel.
pub(crate) enum ChannelProblem<'h> {
    Failing(ChannelActivity, &'h ChannelFailure),
    /// Messages wait since this time.
    Waiting(usize, Timestamp),
    /// It was polled last at this time.
    NotPolled(Timestamp),
}

/// The health of all channels. Sends no request to a service.
///
/// # Errors
/// The config or a journal cannot be read.
pub(crate) fn list(ctx: &Context) -> Result<Vec<ChannelHealth>> {
    CHANNELS.iter().map(|kind| ChannelHealth::read(&ChannelFiles::load(ctx, kind.name)?)).collect()
}

impl ChannelHealth {
    /// Reads the health of a channel.
    ///
    /// # Errors
    /// The errors of [`list`].
    pub(crate) fn read(files: &ChannelFiles) -> Result<Self> {
        let state = ChannelInbox::read(&files.directory)?;
        let is_enabled = files.is_enabled();
        let mut failures = Vec::new();
        for activity in ChannelActivity::ALL {
            // A disabled channel is sent to, but not polled.
            if is_enabled || activity == ChannelActivity::Send {
                let failure = ChannelFailure::read(&files.directory, activity)?;
                failures.extend(failure.map(|failure| (activity, failure)));
            }
        }
        let last_poll = files.last_poll()?.and_then(|time| Timestamp::from_millisecond(time).ok());
        let waiting = state.waiting();
        let is_given_up = |entry: &&OutboundEntry| entry.settlement == Some(Settlement::GivenUp);
        Ok(Self {
            name: files.kind.name,
            is_enabled,
            is_configured: is_enabled || waiting > 0 || last_poll.is_some() || !failures.is_empty(),
            last_poll,
            failures,
            waiting,
            oldest_waiting: oldest_waiting(&state),
            given_up: state.outbound.iter().filter(is_given_up).count(),
            receives: files.kind.receives,
        })
    }

    /// The problems of the channel; empty if it works.
    pub(crate) fn problems(&self, now: Timestamp) -> Vec<ChannelProblem<'_>> {
        let is_old = |time: &Timestamp| now.duration_since(*time) > MAX_AGE;
        // A failure explains waiting messages and missing polls.
        if !self.failures.is_empty() {
            let failures = self.failures.iter();
            return failures
                .map(|(activity, failure)| ChannelProblem::Failing(*activity, failure))
                .collect();
        }
        let mut problems = Vec::new();
        if let Some(since) = self.oldest_waiting.filter(is_old) {
            problems.push(ChannelProblem::Waiting(self.waiting, since));
        }
        if let Some(last_poll) = self.last_poll.filter(is_old)
            && self.is_enabled
            && self.receives
        {
            problems.push(ChannelProblem::NotPolled(last_poll));
        }
        problems
    }
}

fn oldest_waiting(state: &InboxState) -> Option<Timestamp> {
    let inbound = state.unanswered().map(|entry| entry.received_at);
    let outbound = state.undelivered().map(|entry| entry.message.at);
    let oldest = inbound.chain(outbound).min()?;
    Timestamp::from_millisecond(oldest).ok()
}

impl ChannelProblem<'_> {
    /// The name in JSON.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Failing(..) => "failing",
            Self::Waiting(..) => "waiting",
            Self::NotPolled(_) => "not_polled",
        }
    }

    pub(crate) fn since(&self) -> Timestamp {
        match self {
            Self::Failing(_, failure) => failure.since(),
            Self::Waiting(_, since) | Self::NotPolled(since) => *since,
        }
    }

    /// The problem as text, to follow the channel's name. `since` is [`Self::since`] as text.
    pub(crate) fn describe(&self, since: &str) -> String {
        match self {
            Self::Failing(activity, failure) => {
                let error = failure.error.replace('\n', " ");
                format!("{} fails since {since}: {error}", activity.name())
            }
            Self::Waiting(1, _) => format!("1 message waits since {since}"),
            Self::Waiting(count, _) => format!("{count} messages wait, the oldest since {since}"),
            Self::NotPolled(_) => format!("the last poll was at {since}"),
        }
    }
}
