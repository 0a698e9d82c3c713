//! `channel poll`: fetches the messages of channels, and answers them.
//!
//! Each channel has a thread that fetches, and each session that has work has a thread that answers. The first signal ends
//! the fetching. Turns in progress may end within a grace period, and the next poll does the rest.

use crate::ops::channel::attachments;
use crate::ops::channel::bindings;
use crate::ops::channel::health::ChannelActivity;
use crate::ops::channel::open_channel::{ChannelFiles, find_named};
use crate::ops::context::Context;
use crate::ops::inbound::answer;
use crate::ops::inbound::channel_run::{ChannelRun, LockedChannel};
use crate::ops::inbound::intake::{self, QueuedItem};
use crate::ops::inbound::work_queue::WorkItem;
use crate::ops::retention::{RetentionSweep, inbox_ages};
use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use nanobot_base::error::{Exit, Stop, WithHint, exit_for, fail};
use nanobot_channel::table::{ChannelKind, find};
use nanobot_channel::{Batch, Identity, PollRequest, RateLimit};
use nanobot_config::settings::channels::ChannelSettings;
use nanobot_config::settings::{FlagOverrides, LayeredConfig};
use nanobot_os::cancel::{self, CancelToken};
use nanobot_os::durable_file;
use nanobot_os::service_manager::ServiceManager;
use nanobot_os::signal::{self, Deadline};
use std::collections::HashSet;
use std::io::{PipeReader, PipeWriter};
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

/// Number of messages that wait for an answer above which no more are fetched. The service keeps them until then.
const MAX_PENDING_MESSAGES: usize = 100;
/// Maximum duration of one wait at a service.
const MAX_WAIT_WINDOW: Duration = Duration::from_secs(50);
/// Interval at which the inbox is read for new messages of `serve webhook`.
const INBOX_INTERVAL: Duration = Duration::from_millis(500);
/// First and longest delay after a failure of a service.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Longest delay after a failure that ended the fetching, such as a rejected token. Discord resets the token of a bot that
/// logs in more than a thousand times a day.
const MAX_REJECTION_DELAY: Duration = Duration::from_secs(300);

/// Interval at which a poll stores the time of its last success.
const POLL_RECORD_INTERVAL: Duration = Duration::from_secs(60);
/// Age of the last successful poll above which the process that holds the lock is stuck: the turns that it waits for end
/// after 10 minutes.
const STUCK_POLL_AGE: SignedDuration = SignedDuration::from_mins(20);

/// The options of `channel poll`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollOptions {
    /// Names of channels; empty for all that are enabled.
    pub(crate) names: Vec<String>,
    /// Wait for messages until this time after the start of the process.
    pub(crate) wait: Option<Duration>,
    /// Wait for messages until a signal.
    pub(crate) follow: bool,
    /// Time for turns in progress, after a signal.
    pub(crate) grace: Duration,
    /// Do not answer messages that were sent before this time, in seconds since 1970.
    pub(crate) since: Option<i64>,
}

/// Polls channels. Returns the first status of the run by the order of [`ChannelRun::status`].
///
/// # Errors
/// Status 2 or 78 before anything is polled: an unknown channel, an unusable config.
pub(crate) fn poll(ctx: &Context, options: &PollOptions) -> Result<Exit> {
    let config = ctx.load_config()?;
    let settings = ctx.resolve(&config, FlagOverrides::default())?;
    let kinds: Vec<&ChannelKind> = match options.names.as_slice() {
        [] => settings.channels.iter().filter_map(|name| find(name)).collect(),
        names => names.iter().map(|name| find_named(name)).collect::<Result<_>>()?,
    };
    if kinds.is_empty() {
        return Err(fail(Exit::Config, "no channel is enabled").with_hint(
            "`nanobot channel login telegram`, or another of `nanobot channel list --all`",
        ));
    }
    let channels = ChannelSettings::read(&LayeredConfig::new(&config, &ctx.env))?;
    let mut run = ChannelRun::new(ctx, settings, kinds.len(), channels.max_parallel);
    (run.follows, run.since) = (options.follow, options.since);
    let (done_rx, done_tx) = std::io::pipe().context("poll")?;
    let worker_token = CancelToken::shielded().context("poll")?;
    let result = std::thread::scope(|scope| -> Result<()> {
        for (channel_index, kind) in kinds.into_iter().enumerate() {
            let files = match ChannelFiles::from_config(ctx, kind, &config) {
                Ok(files) => files,
                Err(error) => {
                    run.report_failure(kind.name, ChannelActivity::Poll, error);
                    continue;
                }
            };
            let channel_thread = ChannelThread {
                run: &run,
                scope,
                channel_index,
                name: kind.name,
                options,
                worker_token: Arc::clone(&worker_token),
                is_done: done_tx.try_clone().context("poll")?,
            };
            scope.spawn(move || channel_thread.run_and_report(files));
        }
        drop(done_tx);
        let service_manager = if options.follow {
            ServiceManager::from_env(&ctx.env)
        } else {
            ServiceManager::default()
        };
        wait_for_end(&run, &done_rx, &worker_token, options.grace, &service_manager)
    });
    run.send_notices();
    result?;
    Ok(run.status())
}

/// Waits until all threads have closed the other end of `done_rx`. A signal ends the fetching. Turns in progress may end
/// within `grace`, and are cancelled after it. `service_manager` gets a sign of life until a channel is stuck.
fn wait_for_end(
    run: &ChannelRun<'_>,
    done_rx: &PipeReader,
    worker_token: &Arc<CancelToken>,
    grace: Duration,
    service_manager: &ServiceManager,
) -> Result<()> {
    service_manager.send("READY=1");
    let stop = loop {
        let interval = service_manager.watchdog_interval();
        let mut deadline = interval.map_or_else(Deadline::never, Deadline::after);
        match signal::wait_readable(done_rx, &mut deadline) {
            Ok(true) => return Ok(()),
            Ok(false) if run.is_stuck() => {}
            Ok(false) => service_manager.send("WATCHDOG=1"),
            Err(stop) => break stop,
        }
    };
    service_manager.send("STOPPING=1");
    run.queue.close();
    let wait_result = cancel::scope(Some(Arc::clone(worker_token)), || {
        signal::wait_readable(done_rx, &mut Deadline::after(grace))
    });
    if !matches!(wait_result, Ok(true)) {
        run.queue.cancel_all();
        worker_token.cancel();
    }
    Err(stop.into())
}

/// The thread of a channel.
struct ChannelThread<'scope, 'env> {
    run: &'scope ChannelRun<'scope>,
    scope: &'scope Scope<'scope, 'env>,
    channel_index: usize,
    name: &'static str,
    options: &'scope PollOptions,
    /// The token of the workers: a signal does not end them.
    worker_token: Arc<CancelToken>,
    /// Closed when this thread and all workers that it started have ended.
    is_done: PipeWriter,
}

impl<'scope> ChannelThread<'scope, '_> {
    fn run_and_report(&self, files: ChannelFiles) {
        match self.run_rounds(files) {
            Err(error) if error.is::<Stop>() => {}
            Err(error) => self.run.report_failure(self.name, ChannelActivity::Poll, error),
            Ok(()) => {}
        }
        self.run.end_activity(self.channel_index);
    }

    /// Takes the channel's lock, and does rounds until the wait is over. With `--follow`, a round that fails is followed by
    /// another one.
    fn run_rounds(&self, files: ChannelFiles) -> Result<()> {
        let ctx = self.run.ctx;
        if !files.is_enabled() {
            return Err(fail(Exit::Config, "it is not enabled")
                .with_hint(format!("`nanobot config set channels.{}.enabled true`", self.name)));
        }
        if files.kind.receives && !files.access_rules(ctx)?.admits_any_sender() {
            let cause = "no sender is allowed: `allowFrom` is empty, and pairing is off";
            let hint = format!("your id in `channels.{}.allowFrom`", self.name);
            return Err(fail(Exit::Config, cause).with_hint(hint));
        }
        durable_file::create_dir(&files.directory)
            .map_err(|error| fail(Exit::Io, format!("{error:#}")))?;
        let lock = match files.lock(self.wait_left()) {
            Ok(lock) => lock,
            Err(error) if exit_for(&error) == Exit::TryAgain => {
                if let Some(age) = self.age_of_stuck_poll(&files)? {
                    let minutes = age.as_secs() / 60;
                    return Err(error.context(format!(
                        "the poll that is at work has fetched nothing for {minutes} min"
                    )));
                }
                // A crontab line that starts a poll each minute stays quiet.
                self.run.add_status(Exit::TryAgain);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let inbox = files.open_inbox()?;
        let open = files.open(ctx, self.run.settings.network.clone())?;
        let channel = self.run.channels[self.channel_index]
            .get_or_init(|| LockedChannel::new(lock, open, inbox));
        self.compact(channel)?;
        let mut delay = MIN_RETRY_DELAY;
        loop {
            self.run.record_activity(self.channel_index);
            let start = signal::now();
            let round_result = self.poll_round(channel);
            let continues = self.options.follow && !self.run.queue.is_closed();
            // The process serves other channels too, so its supervisor cannot restart this one.
            let failure = match round_result {
                Err(error) if continues && !error.is::<Stop>() => Some(error),
                // The worker has reported the error.
                Ok(()) if continues && channel.is_rejected() => None,
                round_result => return round_result,
            };
            if signal::now() - start > MAX_RETRY_DELAY {
                delay = MIN_RETRY_DELAY;
            }
            let mut pause = delay;
            if let Some(error) = failure {
                pause = pause_after(delay, &error);
                self.run.report_lasting_failure(self.name, ChannelActivity::Poll, error);
            }
            self.sleep(pause)?;
            delay = (delay * 2).min(MAX_REJECTION_DELAY);
            channel.reset_rejection();
        }
    }

    /// Does the work that the last poll left, and waits for messages.
    fn poll_round(&self, channel: &LockedChannel) -> Result<()> {
        let mut records = PollRecords::default();
        if !channel.open.files.kind.receives {
            self.enqueue(unfinished_work(channel));
            return self.record_poll(channel, &mut records);
        }
        if channel.open.files.is_pushed() {
            return self.watch_inbox(channel, &mut records);
        }
        let identity = channel.open.identity()?;
        self.enqueue(unfinished_work(channel));
        self.poll_service(channel, &identity, &mut records)
    }

    /// The time since the last success of the poll that holds the lock, if that poll is stuck.
    fn age_of_stuck_poll(&self, files: &ChannelFiles) -> Result<Option<SignedDuration>> {
        let now = self.run.ctx.clock.timestamp();
        let last_poll = files.last_poll()?.and_then(|time| Timestamp::from_millisecond(time).ok());
        let wait = SignedDuration::try_from(self.options.wait.unwrap_or_default())?;
        let age = last_poll.map(|last_poll| now.duration_since(last_poll));
        Ok(age.filter(|age| *age > STUCK_POLL_AGE.saturating_add(wait)))
    }

    /// Rewrites a journal that is large, or has old entries, without these, unless another process may append to it.
    fn compact(&self, channel: &LockedChannel) -> Result<()> {
        let now = channel.open.files.now();
        let ages = inbox_ages(&self.run.settings.retention);
        if !channel.inbox.lock().is_due(now, ages) {
            return Ok(());
        }
        let lock = answer::try_lock_outbox(channel)?;
        if lock.is_some() {
            let mut inbox = channel.inbox.lock();
            inbox.refresh()?;
            inbox.compact_if_due(now, ages, false)?;
        }
        Ok(())
    }

    fn poll_service(
        &self,
        channel: &LockedChannel,
        identity: &Identity,
        records: &mut PollRecords,
    ) -> Result<()> {
        let files = &channel.open.files;
        let mut cursor = files.read_cursor(identity)?;
        let mut delay = MIN_RETRY_DELAY;
        loop {
            self.run.record_activity(self.channel_index);
            let window = self.time_left().min(MAX_WAIT_WINDOW);
            let old_cursor = cursor.clone();
            let mut store_batch = |batch: Batch| {
                let work = intake::store_batch(self.run, self.channel_index, identity, &batch)?;
                cursor = Some(batch.cursor);
                self.enqueue(work);
                self.run.queue.wait_below(MAX_PENDING_MESSAGES);
                Ok(())
            };
            let poll_result = channel.open.service.poll(PollRequest {
                identity,
                cursor: old_cursor.as_ref(),
                wait: window,
                store_batch: &mut store_batch,
                report: &|text| self.run.ctx.notice(&format!("channel {}: {text}", self.name)),
                move_chat: &|moved| {
                    bindings::carry_over(self.run.ctx, channel.open.files.kind, moved)
                },
            });
            match poll_result {
                Ok(()) => {
                    delay = MIN_RETRY_DELAY;
                    self.record_poll(channel, records)?;
                    if self.run.follows {
                        self.compact(channel)?;
                        // Not while work is in progress, so that no work is done twice.
                        if self.run.queue.is_idle() {
                            self.enqueue(unfinished_work(channel));
                        }
                    }
                }
                Err(error) => {
                    if exit_for(&error) == Exit::Refused {
                        channel.reject();
                    }
                    let pause = pause_after(delay, &error);
                    if !self.may_retry_after(pause, &error) {
                        return Err(error);
                    }
                    log::warn!(target: "channel", "{}: {error:#}; next attempt in {} s", self.name, pause.as_secs());
                    if delay == MAX_RETRY_DELAY {
                        self.run.report_lasting_failure(self.name, ChannelActivity::Poll, error);
                    }
                    self.sleep(pause)?;
                    delay = (delay * 2).min(MAX_RETRY_DELAY);
                    continue;
                }
            }
            if self.is_over() || channel.is_rejected() {
                return Ok(());
            }
        }
    }

    /// Answers the messages that `serve webhook` stores, as long as this poll waits or has something to do.
    fn watch_inbox(&self, channel: &LockedChannel, records: &mut PollRecords) -> Result<()> {
        let mut started_ids = HashSet::new();
        let mut retry_at = signal::now() + MAX_RETRY_DELAY;
        loop {
            self.run.record_activity(self.channel_index);
            // An answer that a worker is about to send is not sent twice.
            let is_idle = self.run.queue.is_idle();
            if is_idle && signal::now() >= retry_at {
                started_ids.clear();
                retry_at = signal::now() + MAX_RETRY_DELAY;
            }
            channel.inbox.lock().refresh()?;
            self.record_poll(channel, records)?;
            if self.run.follows {
                self.compact(channel)?;
            }
            let mut work = unfinished_work(channel);
            work.retain(|(_, item)| {
                let is_new = is_idle || matches!(item, WorkItem::Message { .. });
                is_new && started_ids.insert(item.id().to_owned())
            });
            self.enqueue(intake::answer_stops(self.run, self.channel_index, work)?);
            let is_done = self.time_left().is_zero() && self.run.queue.is_idle();
            if is_done || self.run.queue.is_closed() || channel.is_rejected() {
                return Ok(());
            }
            signal::sleep(INBOX_INTERVAL)?;
        }
    }

    /// Stores the time of a success, the first of this poll and then one a minute. The first one of a day removes old
    /// files.
    fn record_poll(&self, channel: &LockedChannel, records: &mut PollRecords) -> Result<()> {
        const DAY_MILLIS: i64 = 24 * 3_600_000;
        if records.next_at.is_some_and(|next_at| signal::now() < next_at) {
            return Ok(());
        }
        records.next_at = Some(signal::now() + POLL_RECORD_INTERVAL);
        let ctx = self.run.ctx;
        let files = &channel.open.files;
        let now = ctx.clock.timestamp();
        let day_of = |millis: i64| millis.div_euclid(DAY_MILLIS);
        let last_poll = files.last_poll()?.unwrap_or_default();
        if day_of(last_poll) != day_of(now.as_millisecond()) {
            self.remove_old_data(channel)?;
        }
        files.write_last_poll(now.as_millisecond())?;
        self.run.record_success(self.name, ChannelActivity::Poll);
        Ok(())
    }

    fn remove_old_data(&self, channel: &LockedChannel) -> Result<()> {
        let (ctx, settings) = (self.run.ctx, &self.run.settings);
        let now = ctx.clock.timestamp().into();
        let media = &channel.open.files.media;
        attachments::remove_old(media, settings.retention.media, now, channel.inbox.lock().state());
        let sweep = RetentionSweep::plan(ctx, settings, &ctx.session_store(settings)?);
        if let Some(sweep) = sweep {
            sweep.run(ctx);
        }
        Ok(())
    }

    /// The rest of `--wait`.
    fn wait_left(&self) -> Duration {
        let wait = self.options.wait.unwrap_or_default();
        wait.saturating_sub(signal::now())
    }

    /// The time left to wait for messages.
    fn time_left(&self) -> Duration {
        if self.options.follow { Duration::MAX } else { self.wait_left() }
    }

    fn is_over(&self) -> bool {
        self.run.queue.is_closed() || self.time_left().is_zero()
    }

    /// True if the service may be back after `pause`, while this poll still waits.
    fn may_retry_after(&self, pause: Duration, error: &anyhow::Error) -> bool {
        let is_transient = if self.options.follow {
            exit_for(error).is_temporary()
        } else {
            exit_for(error) == Exit::Unavailable || error.is::<RateLimit>()
        };
        is_transient && pause < self.time_left() && !self.run.queue.is_closed()
    }

    /// Waits for `pause`. Meanwhile the channel is not stuck.
    fn sleep(&self, pause: Duration) -> Result<(), Stop> {
        self.run.record_pause(self.channel_index, pause);
        signal::sleep(pause)
    }

    fn enqueue(&self, work: Vec<QueuedItem>) {
        for _ in 0..self.run.queue.push_all(self.channel_index, work) {
            let run = self.run;
            // Without a descriptor, `wait_for_end` does not wait for this worker; the scope still joins it.
            let is_done = self.is_done.try_clone().ok();
            let worker_token = Arc::clone(&self.worker_token);
            self.scope.spawn(move || {
                cancel::scope(Some(worker_token), || answer::answer_all(run));
                drop(is_done);
            });
        }
    }
}

/// The time until the next attempt after `error`: `delay`, or longer if the service demands it.
fn pause_after(delay: Duration, error: &anyhow::Error) -> Duration {
    error.downcast_ref::<RateLimit>().map_or(delay, |limit| delay.max(limit.0))
}

/// The records of successes that a poll writes.
#[derive(Default)]
struct PollRecords {
    /// The time of the next record, on the clock of [`signal::now`].
    next_at: Option<Duration>,
}

/// Messages and answers that an earlier poll did not finish, in their order: answers first, because they are older.
fn unfinished_work(channel: &LockedChannel) -> Vec<QueuedItem> {
    let kind = channel.open.files.kind;
    let inbox = channel.inbox.lock();
    let state = inbox.state();
    let mut work = Vec::new();
    for entry in state.undelivered() {
        let item = WorkItem::Deliver(entry.message.key.clone());
        work.push((entry.message.session.clone(), item));
    }
    let mut joined_ids = HashSet::new();
    for entry in state.unanswered() {
        if joined_ids.contains(&entry.message.id) {
            continue;
        }
        let mut item = intake::message_item(&entry.message, kind.is_mail);
        // The messages of a turn that was begun are answered with the first of them, and without others.
        if let Some(turn) = entry.turns.last() {
            joined_ids.extend(turn.ids.iter().cloned());
            item = item.alone();
        }
        work.push((entry.session.clone(), item));
    }
    work
}
