//! The state of one run of `channel poll` or `serve webhook`, which its threads share.

use crate::ops::channel::health::{self, ChannelActivity, FailureEnd};
use crate::ops::channel::open_channel::OpenChannel;
use crate::ops::context::{Context, report_error};
use crate::ops::inbound::work_queue::WorkQueue;
use crate::ops::notices::Failure;
use crate::ops::notify;
use crate::ops::notify_target;
use nanobot_base::error::{Exit, Stop, exit_for, hint_for};
use nanobot_channel::inbox::ChannelInbox;
use nanobot_channel::{Chat, RateLimit};
use nanobot_config::settings::Settings;
use nanobot_os::file_lock::FileLock;
use nanobot_os::secret::redact_all;
use nanobot_os::signal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum duration of a step of a channel's thread, which is stuck otherwise: turns end after 10 minutes.
const STEP_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// One run of `channel poll`, or a webhook request of `serve webhook`.
pub(crate) struct ChannelRun<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) settings: Settings,
    /// Each is filled by its own thread, once its lock is held.
    pub(crate) channels: Vec<OnceLock<LockedChannel>>,
    pub(crate) queue: WorkQueue,
    /// True if the run waits for messages until a signal.
    pub(crate) follows: bool,
    /// True if messages are only stored, for a process that answers them.
    pub(crate) only_stores: bool,
    /// Messages that were sent before are not answered, in seconds since 1970.
    pub(crate) since: Option<i64>,
    exits: Mutex<Vec<Exit>>,
    /// The time of each channel's last step, on the clock of `signal::now`; `None` if its thread has ended, or has not begun.
    last_steps: Mutex<Vec<Option<Duration>>>,
}

/// A channel with the lock under which this process writes its journal: that of the channel in a poll, that of the outbox in
/// `serve webhook`. A poll may write the journal at the same time as `serve webhook`.
pub(crate) struct LockedChannel {
    /// Held until the run ends: workers send after the thread of the channel has ended.
    _lock: FileLock,
    pub(crate) open: OpenChannel,
    pub(crate) inbox: Mutex<ChannelInbox>,
    /// True once the service has rejected the token: no more requests are sent.
    is_rejected: AtomicBool,
    /// The chats with a rate limit of the service, and its end on the clock of `signal::now`.
    rate_limits: Mutex<HashMap<Chat, Duration>>,
}

impl<'a> ChannelRun<'a> {
    /// Creates the state for `count` channels.
    pub(crate) fn new(
        ctx: &'a Context,
        settings: Settings,
        count: usize,
        max_parallel: usize,
    ) -> Self {
        Self {
            ctx,
            settings,
            channels: std::iter::repeat_with(OnceLock::new).take(count).collect(),
            queue: WorkQueue::new(max_parallel),
            follows: false,
            only_stores: false,
            since: None,
            exits: Mutex::default(),
            last_steps: Mutex::new(vec![None; count]),
        }
    }

    /// The channel with this index. Work was queued for it.
    pub(crate) fn channel(&self, channel_index: usize) -> &LockedChannel {
        let channel = self.channels[channel_index].get();
        channel.expect("work is queued for channels that are open")
    }

    /// Reports a failure that may last like [`Self::report_lasting_failure`], and adds its status to those of the run.
    pub(crate) fn report_failure(
        &self,
        channel: &str,
        activity: ChannelActivity,
        error: anyhow::Error,
    ) {
        self.add_status(exit_for(&error));
        self.report_lasting_failure(channel, activity, error);
    }

    /// Reports a failure that may last, unless it was reported before: a poll may start each minute, and cron mails what it
    /// prints. On a terminal it is reported each time.
    pub(crate) fn report_lasting_failure(
        &self,
        channel: &str,
        activity: ChannelActivity,
        error: anyhow::Error,
    ) {
        let directory = self.ctx.paths.channels().join(channel);
        let is_new = health::record_failure(self.ctx, &directory, activity, &error);
        let status = exit_for(&error).code();
        let error = error.context(format!("channel {channel}"));
        if self.has_target(channel) {
            let subject = &activity.notice_subject(channel);
            let text = describe_for_target(&error);
            notify::record_failure(self.ctx, Failure { subject, status, text });
            self.send_notices_if_following();
        } else if is_new.unwrap_or(true) || self.is_watched() {
            // If the failure cannot be recorded, it may be new.
            report_error(&error, self.ctx.terminal);
        } else {
            log::warn!(target: "channel", "{error:#}");
        }
    }

    /// True if a person sees what is printed.
    fn is_watched(&self) -> bool {
        let terminal = self.ctx.terminal;
        terminal.stderr_is_tty || terminal.stderr_is_plain_tty
    }

    /// True if failures of `channel` go to the place that the config names.
    fn has_target(&self, channel: &str) -> bool {
        !self.is_watched() && notify_target::covers_channel(&self.settings, channel)
    }

    /// Sends the notices about the channels, at the end of the run.
    pub(crate) fn send_notices(&self) {
        notify::send_waiting(self.ctx, &self.settings);
    }

    /// Sends the notices at once if the run goes on until a signal.
    fn send_notices_if_following(&self) {
        if self.follows {
            self.send_notices();
        }
    }

    /// Records that an activity of a channel works, and reports the end of a failure.
    pub(crate) fn record_success(&self, channel: &str, activity: ChannelActivity) {
        let directory = self.ctx.paths.channels().join(channel);
        match health::record_success(self.ctx, &directory, channel, activity) {
            Ok(Some(FailureEnd { message })) => {
                match message {
                    Some(message) if self.has_target(channel) => {
                        notify::record_event(self.ctx, &message);
                    }
                    Some(message) => self.ctx.notice(&message),
                    None => {}
                }
                self.send_notices_if_following();
            }
            Ok(None) => {}
            Err(error) => self.report(channel, error),
        }
    }

    /// Reports an error, and adds its status to those of the run.
    pub(crate) fn report(&self, channel: &str, error: anyhow::Error) {
        self.add_status(exit_for(&error));
        let error = error.context(format!("channel {channel}"));
        if self.has_target(channel) && !error.is::<Stop>() {
            notify::record_event(self.ctx, &describe_for_target(&error));
            self.send_notices_if_following();
        } else {
            report_error(&error, self.ctx.terminal);
        }
    }

    /// Records that the thread of a channel has gone on.
    pub(crate) fn record_activity(&self, channel_index: usize) {
        self.record_pause(channel_index, Duration::ZERO);
    }

    /// Records that the thread of a channel goes on after `pause`: a service may demand hours.
    pub(crate) fn record_pause(&self, channel_index: usize, pause: Duration) {
        self.last_steps.lock()[channel_index] = Some(signal::now().saturating_add(pause));
    }

    /// Records that the thread of a channel has ended.
    pub(crate) fn end_activity(&self, channel_index: usize) {
        self.last_steps.lock()[channel_index] = None;
    }

    /// True if the thread of a channel does not go on. No request or turn that it waits for takes that long.
    pub(crate) fn is_stuck(&self) -> bool {
        has_stuck_step(&self.last_steps.lock(), signal::now())
    }

    /// Adds a status to those of the run.
    pub(crate) fn add_status(&self, exit: Exit) {
        self.exits.lock().push(exit);
    }

    /// The status of the run.
    pub(crate) fn status(&self) -> Exit {
        combine_statuses(&self.exits.lock())
    }
}

impl LockedChannel {
    /// Wraps an open channel with its journal.
    pub(crate) fn new(lock: FileLock, open: OpenChannel, inbox: ChannelInbox) -> Self {
        Self {
            _lock: lock,
            open,
            inbox: Mutex::new(inbox),
            is_rejected: AtomicBool::new(false),
            rate_limits: Mutex::default(),
        }
    }

    /// Sends nothing to a chat until the end of a rate limit. Other chats are not affected.
    pub(crate) fn limit(&self, chat: &Chat, limit: RateLimit) {
        let end = signal::now().saturating_add(limit.0);
        self.rate_limits.lock().insert(chat.clone(), end);
    }

    /// True if nothing may be sent to the chat now.
    pub(crate) fn is_closed_for(&self, chat: &Chat) -> bool {
        let limits = self.rate_limits.lock();
        let end = limits.get(chat).copied();
        self.is_rejected() || end.is_some_and(|end| signal::now() < end)
    }

    /// Records that the service has rejected the token.
    pub(crate) fn reject(&self) {
        self.is_rejected.store(true, Ordering::SeqCst);
    }

    /// Allows requests to the service again.
    pub(crate) fn reset_rejection(&self) {
        self.is_rejected.store(false, Ordering::SeqCst);
    }

    /// True if the service has rejected the token.
    pub(crate) fn is_rejected(&self) -> bool {
        self.is_rejected.load(Ordering::SeqCst)
    }
}

/// An error with its hint, without keys.
fn describe_for_target(error: &anyhow::Error) -> String {
    let hint = hint_for(error).map(|hint| format!("\n  try: {hint}"));
    redact_all(&format!("{error:#}{}", hint.unwrap_or_default())).into_owned()
}

/// The status of a run that has several.
fn combine_statuses(exits: &[Exit]) -> Exit {
    Exit::most_important(exits).or(exits.first().copied()).unwrap_or(Exit::Answered)
}

fn has_stuck_step(last_steps: &[Option<Duration>], now: Duration) -> bool {
    last_steps.iter().flatten().any(|step| now.saturating_sub(*step) > STEP_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::{STEP_TIMEOUT, combine_statuses, has_stuck_step};
    use nanobot_base::error::Exit;
    use std::time::Duration;

    #[test]
    fn a_channel_is_stuck_after_the_end_of_its_pause() {
        let hours = |count: u64| Duration::from_secs(count * 3600);
        let paused_until = [None, Some(hours(3))];
        assert!(!has_stuck_step(&paused_until, hours(1)));
        assert!(!has_stuck_step(&paused_until, hours(3) + STEP_TIMEOUT));
        assert!(has_stuck_step(&paused_until, hours(4)));
        assert!(has_stuck_step(&[Some(hours(1)), Some(hours(3))], hours(2)));
    }

    #[test]
    fn the_first_status_in_the_order_counts() {
        assert_eq!(combine_statuses(&[]), Exit::Answered);
        assert_eq!(combine_statuses(&[Exit::Failed, Exit::Unavailable]), Exit::Unavailable);
        assert_eq!(combine_statuses(&[Exit::Refused, Exit::Io, Exit::Config]), Exit::Io);
        assert_eq!(combine_statuses(&[Exit::Limit]), Exit::Limit);
    }
}
