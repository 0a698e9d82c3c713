//! The state of a channel as monitors see it: `channel list`, `status --check`, `cron check` and `metrics` read this record.
//!
//! A failure is a file in the channel's directory, which exists from the first failure of an activity to its next success.
//! A poll that starts each minute so tells of a failure once, and of its end once.

use crate::ops::channel::open_channel::{ChannelFiles, OpenChannel};
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use nanobot_base::error::exit_for;
use nanobot_channel::inbox::{ChannelInbox, InboxState};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::table::CHANNELS;
use nanobot_os::durable_file;
use nanobot_os::secret::redact_all;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Age of the last poll above which a channel counts as not polled, and time for which a message may wait.
pub(crate) const MAX_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The least duration of a failure whose end is reported: two polls of cron.
const MIN_TOLD: SignedDuration = SignedDuration::from_secs(30);

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

    fn path(self, directory: &Path) -> PathBuf {
        directory.join(format!("failure-{}.json", self.name()))
    }
}

/// A failure that lasts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelFailure {
    /// The time of the first one, in milliseconds since 1970.
    since: i64,
    /// The exit status of the last one.
    status: u8,
    /// The error of the last one.
    pub(crate) error: String,
}

impl ChannelFailure {
    fn read(directory: &Path, activity: ChannelActivity) -> Result<Option<Self>> {
        let text = durable_file::read(&activity.path(directory))?;
        // A damaged file is no failure of the service.
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    pub(crate) fn since(&self) -> Timestamp {
        Timestamp::from_millisecond(self.since).unwrap_or_default()
    }
}

/// Notes a failure. True if it is news: there was none, or one with another status.
///
/// # Errors
/// Status 74.
pub(crate) fn note_failure(
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

/// Notes a success, and tells of the end of the failure before it.
///
/// # Errors
/// Status 74.
pub(crate) fn note_success(
    ctx: &Context,
    directory: &Path,
    name: &str,
    activity: ChannelActivity,
) -> Result<()> {
    let path = activity.path(directory);
    if !path.exists() {
        return Ok(());
    }
    let earlier = ChannelFailure::read(directory, activity)?;
    match std::fs::remove_file(&path) {
        // Another process was faster, and tells.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        removed => removed.with_context(|| format!("remove `{}`", path.display()))?,
    }
    let now = ctx.clock.timestamp();
    let has_lasted = |earlier: &ChannelFailure| now.duration_since(earlier.since()) >= MIN_TOLD;
    if let Some(earlier) = earlier.filter(has_lasted) {
        let (activity, since) = (activity.name(), earlier.since());
        ctx.notice(&format!("channel {name}: {activity} works again; it failed since {since}"));
    }
    Ok(())
}

/// Notes whether the messages of a channel can be sent. A failure to note it must not hide the result.
pub(crate) fn note_delivery(ctx: &Context, open: &OpenChannel, failure: Option<&anyhow::Error>) {
    let (directory, name) = (&open.files.directory, open.name());
    let noted = match failure {
        Some(error) => note_failure(ctx, directory, ChannelActivity::Send, error).map(drop),
        None => note_success(ctx, directory, name, ChannelActivity::Send),
    };
    if let Err(error) = noted {
        log::warn!(target: "channel", "{name}: {error:#}");
    }
}

/// The state of a channel.
pub(crate) struct ChannelHealth {
    pub(crate) name: &'static str,
    pub(crate) is_enabled: bool,
    /// True if the channel is enabled, or was used.
    pub(crate) is_configured: bool,
    /// The time of the last successful look.
    pub(crate) last_poll: Option<Timestamp>,
    pub(crate) failures: Vec<(ChannelActivity, ChannelFailure)>,
    /// Number of messages that wait for an answer or a delivery, and the time since which the oldest one waits.
    pub(crate) waiting: usize,
    pub(crate) oldest_waiting: Option<Timestamp>,
    /// Number of messages that were given up, and neither sent again nor dismissed.
    pub(crate) given_up: usize,
    receives: bool,
}

/// The reason why a channel does not do what it should.
pub(crate) enum ChannelProblem<'h> {
    Failing(ChannelActivity, &'h ChannelFailure),
    /// Messages wait since this time.
    Waiting(usize, Timestamp),
    /// It was polled last at this time.
    NotPolled(Timestamp),
}

/// The state of all channels. No service is asked.
///
/// # Errors
/// The config or a journal cannot be read.
pub(crate) fn list(ctx: &Context) -> Result<Vec<ChannelHealth>> {
    CHANNELS.iter().map(|kind| ChannelHealth::read(&ChannelFiles::load(ctx, kind.name)?)).collect()
}

impl ChannelHealth {
    /// Reads the state of a channel.
    ///
    /// # Errors
    /// As [`list`].
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
        let last_poll = files.last_poll()?.and_then(|at| Timestamp::from_millisecond(at).ok());
        let waiting = state.waiting();
        let is_given_up = |result: Option<Settlement>| result == Some(Settlement::GivenUp);
        Ok(Self {
            name: files.kind.name,
            is_enabled,
            is_configured: is_enabled || waiting > 0 || last_poll.is_some() || !failures.is_empty(),
            last_poll,
            failures,
            waiting,
            oldest_waiting: oldest_waiting(&state),
            given_up: state.outbound.iter().filter(|it| is_given_up(it.settlement)).count(),
            receives: files.kind.receives,
        })
    }

    /// The reasons why the channel does not do what it should; none if it does.
    pub(crate) fn problems(&self, now: Timestamp) -> Vec<ChannelProblem<'_>> {
        let is_old = |time: &Timestamp| now.duration_since(*time) > MAX_AGE;
        let failing = self.failures.iter();
        let failing =
            failing.map(|(activity, failure)| ChannelProblem::Failing(*activity, failure));
        let mut problems: Vec<_> = failing.collect();
        // A failure says more than what it causes.
        if !problems.is_empty() {
            return problems;
        }
        let oldest = self.oldest_waiting.filter(is_old);
        problems.extend(oldest.map(|since| ChannelProblem::Waiting(self.waiting, since)));
        let is_polled = self.is_enabled && self.receives;
        let last = self.last_poll.filter(|last| is_polled && is_old(last));
        problems.extend(last.map(ChannelProblem::NotPolled));
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
