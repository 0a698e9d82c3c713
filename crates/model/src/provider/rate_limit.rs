//! One pace for all runs of an account: the limits of the config, and those that the server reports, hold for them together. What they need
//! to know of each other is in one small file for each provider, which only exists while there are limits; see [`limiter_state`].

use super::budget::estimate_usage;
use super::{Delta, DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request};
use anyhow::Context;
use jiff::Timestamp;
use limiter_state::{Admission, LimiterState, ReportedLimit, WaitReason};
use nanobot_base::limits::AccountLimits;
use nanobot_base::message::Reply;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::semaphore::Permit;
use nanobot_os::signal;
use report::LimitReport;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

mod limiter_state;
pub(super) mod report;

/// The longest delay of a server that is waited for. A longer one ends the request: another model may be available.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(60);
/// Maximum size of the file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Number of attempts to get a place after which a wait is reported.
const ATTEMPTS_BEFORE_REPORT: u32 = 2;

/// Queues of the file: for its content, to be the next to send a request within the limits of a minute, and for the requests in progress.
const CONTENT_QUEUE: u8 = 0;
const RATE_QUEUE: u8 = 1;
const PROGRESS_QUEUE: u8 = 2;
/// The first of the queues to be the next to send a request to a model. Models that share one only wait longer.
const MODEL_QUEUES: u8 = 3;

/// Forwards requests to `inner`, each when its turn has come.
pub struct RateLimitedProvider<P> {
    pub inner: P,
    pub limiter: Arc<RateLimiter>,
    /// True if another model is used instead when a wait for other requests takes too long.
    pub has_fallback: bool,
}

/// The limits of a provider's account, shared with other processes.
pub struct RateLimiter {
    /// The provider's name.
    pub provider: String,
    pub limits: AccountLimits,
    /// Tells the account of the key from others at the same address, which have their own limits.
    pub account: AccountNumber,
    /// The file of the account. Without limits it does not exist.
    pub path: PathBuf,
    pub clock: Clock,
    /// True if the file has a limit that the server has reported for the model.
    pub has_reported_limit: AtomicBool,
}

/// A number that is computed when it is first needed, since that may read the key; `None` without a key.
pub type AccountNumber = LazyLock<Option<u64>, Box<dyn FnOnce() -> Option<u64> + Send>>;

/// Permission to send a request, which ends when it is dropped.
#[derive(Debug, Default)]
struct RequestPermit {
    /// Counts the request as one in progress.
    progress: Option<Permit>,
    /// Keeps other requests back until the server has answered this one.
    next: Option<Permit>,
    /// The estimated tokens of the request, which are counted already.
    tokens: u64,
}

impl<P: Provider> Provider for RateLimitedProvider<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let mut permit = self.limiter.wait_for_turn(request, self.has_fallback, on_delta)?;
        let reply = self.inner.reply(request, &mut |delta| {
            permit.next = None;
            on_delta(delta)
        });
        self.limiter.record_reply(request.model, permit.tokens, &reply);
        drop(permit.progress);
        reply
    }
}

impl RateLimiter {
    /// Waits until the request may be sent, and counts it. The wait for other requests is limited if there is a fallback.
    ///
    /// # Errors
    /// [`FailureKind::Busy`] if the wait would be too long, or longer than the time that is left.
    fn wait_for_turn(
        &self,
        request: &Request<'_>,
        has_fallback: bool,
        on_delta: &mut DeltaSink<'_>,
    ) -> ProviderResult<RequestPermit> {
        let AccountLimits { max_concurrent, requests_per_minute, tokens_per_minute } = self.limits;
        let deadline = has_fallback.then(queue_deadline);
        let progress = max_concurrent.map(|limit| {
            let cause = format!("`{}` is at its limit of requests at once, {limit}", self.provider);
            self.enter(PROGRESS_QUEUE, limit, &cause, deadline, on_delta)
        });
        let progress = progress.transpose()?;
        let has_rate = requests_per_minute.or(tokens_per_minute).is_some();
        if !has_rate && !self.has_usable_state() {
            return Ok(RequestPermit { progress, ..RequestPermit::default() });
        }
        let model = request.model;
        let cause = format!("other requests for `{model}` come first");
        let next = self.enter(self.model_queue(model), 1, &cause, deadline, on_delta)?;
        let tokens = match tokens_per_minute {
            Some(_) => estimate_usage(request, 0).input,
            None => 0,
        };
        let is_probe = self.wait_for_admission(model, tokens, deadline, on_delta)?;
        Ok(RequestPermit { progress, next: is_probe.then_some(next), tokens })
    }

    /// True if there is a state that can be changed. What the server has reported is best effort.
    fn has_usable_state(&self) -> bool {
        // Opening a FIFO would wait for a reader.
        std::fs::metadata(&self.path).is_ok_and(|file| file.is_file() && file.len() > 0)
            && File::options().write(true).open(&self.path).is_ok()
    }

    /// The queue of the model, so that a limit of one model does not keep requests to others back.
    fn model_queue(&self, model: &str) -> u8 {
        let mut hash = DefaultHasher::new();
        self.model_key(model).hash(&mut hash);
        let count = u64::from(Permit::QUEUES - MODEL_QUEUES);
        MODEL_QUEUES + u8::try_from(hash.finish() % count).expect("there are fewer queues")
    }

    /// The name of `model` in the state.
    fn model_key(&self, model: &str) -> String {
        match *self.account {
            Some(number) => format!("{model} {number:x}"),
            None => model.to_owned(),
        }
    }

    /// Waits in a queue of the file, until `deadline` at most.
    fn enter(
        &self,
        queue: u8,
        limit: u32,
        cause: &str,
        deadline: Option<Duration>,
        on_delta: &mut DeltaSink<'_>,
    ) -> ProviderResult<Permit> {
        self.create_folder().map_err(ProviderError::Aborted)?;
        let mut attempts = 0;
        let mut on_wait = || {
            attempts += 1;
            if attempts == ATTEMPTS_BEFORE_REPORT {
                on_delta(Delta::Wait { wait: None, cause })?;
            }
            // The run must end before its time does, to say why.
            if is_beyond_time_left(Permit::MAX_DELAY * 2) {
                return Err(busy_error(cause, Permit::MAX_DELAY * 2).into());
            }
            if deadline.is_some_and(|deadline| signal::now() >= deadline) {
                // The next attempt would have to wait again.
                let (kind, retry_after) = (FailureKind::Busy, Some(Duration::MAX));
                let message = format!("{cause}, for too long");
                return Err(ProviderError::Failed { kind, message, retry_after }.into());
            }
            Ok(())
        };
        Permit::acquire(&self.path, queue, limit, &mut on_wait).map_err(to_provider_error)
    }

    /// Waits until the request is within the limits, and counts it. Returns true if no other may be sent before the server has answered it.
    fn wait_for_admission(
        &self,
        model: &str,
        tokens: u64,
        deadline: Option<Duration>,
        on_delta: &mut DeltaSink<'_>,
    ) -> ProviderResult<bool> {
        let AccountLimits { requests_per_minute, tokens_per_minute, .. } = self.limits;
        let has_rate = requests_per_minute.or(tokens_per_minute).is_some();
        let model_key = self.model_key(model);
        let mut rate_permit = None;
        let mut earliest_ms = i64::MIN;
        loop {
            if has_rate && rate_permit.is_none() {
                let cause = format!("other requests to `{}` come first", self.provider);
                rate_permit = Some(self.enter(RATE_QUEUE, 1, &cause, deadline, on_delta)?);
            }
            // The clock may have been set back.
            let now_ms = self.now_ms().max(earliest_ms);
            let mut has_reported_limit = false;
            let mut is_renewed = false;
            let admission = self
                .change_state(now_ms, &mut is_renewed, |state| {
                    has_reported_limit = state.models.contains_key(&model_key);
                    state.admit(self.limits, &model_key, tokens, now_ms)
                })
                .map_err(to_provider_error)?;
            self.has_reported_limit.store(has_reported_limit, Ordering::Relaxed);
            if is_renewed {
                let path = self.path.display();
                let notice = format!("`{path}` was damaged, and was begun anew");
                on_delta(Delta::Notice(&notice)).map_err(ProviderError::Aborted)?;
            }
            let (time_ms, reason) = match admission {
                Admission::Now { is_probe } => return Ok(is_probe),
                Admission::At { time_ms, reason } => (time_ms, reason),
            };
            let wait = Duration::from_millis(u64::try_from(time_ms - now_ms).unwrap_or_default());
            let cause = self.describe_wait(reason, model, time_ms);
            let is_too_long = reason == WaitReason::Reported && wait > MAX_SERVER_DELAY;
            if is_too_long || is_beyond_time_left(wait) {
                return Err(busy_error(&cause, wait));
            }
            log::info!(target: "model", "{cause}; waiting {} ms", wait.as_millis());
            on_delta(Delta::Wait { wait: Some(wait), cause: &cause })
                .map_err(ProviderError::Aborted)?;
            if reason == WaitReason::Reported {
                // Requests to other models need not wait for it.
                rate_permit = None;
            }
            self.clock.sleep(wait).map_err(|stop| ProviderError::Aborted(stop.into()))?;
            earliest_ms = time_ms;
        }
    }

    fn describe_wait(&self, reason: WaitReason, model: &str, time_ms: i64) -> String {
        let AccountLimits { requests_per_minute, tokens_per_minute, .. } = self.limits;
        let (limit, unit) = match reason {
            WaitReason::Reported => {
                let end = format_end(Timestamp::from_millisecond(time_ms).unwrap_or_default());
                return format!(
                    "`{model}` is rate-limited until {end}, as reported to another run"
                );
            }
            WaitReason::Requests => (requests_per_minute, "requests"),
            WaitReason::Tokens => (tokens_per_minute, "tokens"),
        };
        let limit = limit.unwrap_or_default();
        format!("`{}` is at its limit of {unit} in a minute, {limit}", self.provider)
    }

    /// Records what a reply says of the limits. Best effort: a run that misses it gets the same response from the server.
    fn record_reply(&self, model: &str, counted_tokens: u64, reply: &Result<Reply, ProviderError>) {
        let now_ms = self.now_ms();
        match reply {
            Err(ProviderError::Failed { retry_after: Some(delay), .. }) => {
                let limit = ReportedLimit::after(now_ms, 0, *delay);
                let key = self.model_key(model);
                self.update(now_ms, |state| state.set_limit(&key, Some(limit), now_ms));
            }
            Ok(reply) if self.limits.tokens_per_minute.is_some() => {
                let tokens = reply.usage.input + reply.usage.output;
                let tokens = tokens.saturating_sub(counted_tokens);
                self.update(now_ms, |state| state.add(now_ms, 0, tokens));
            }
            _ => {}
        }
    }

    /// Records what a successful response says of the limits of `model`, if the server has reported that one is reached, now or before.
    pub(super) fn record_report(&self, model: &str, report: Option<LimitReport>) {
        let is_reached = report.is_some_and(|report| report.remaining == 0);
        if !is_reached && !self.has_reported_limit.load(Ordering::Relaxed) {
            return;
        }
        let now_ms = self.now_ms();
        let limit =
            report.map(|report| ReportedLimit::after(now_ms, report.remaining, report.reset_after));
        let key = self.model_key(model);
        self.update(now_ms, |state| state.set_limit(&key, limit, now_ms));
    }

    fn update(&self, now_ms: i64, change: impl FnOnce(&mut LimiterState)) {
        if let Err(error) = self.change_state(now_ms, &mut false, change) {
            log::warn!(target: "model", "{error:#}");
        }
    }

    /// Reads the state, changes it, and writes it, while no other process does. Sets `is_renewed` if it could not be read.
    fn change_state<T>(
        &self,
        now_ms: i64,
        is_renewed: &mut bool,
        change: impl FnOnce(&mut LimiterState) -> T,
    ) -> anyhow::Result<T> {
        self.create_folder()?;
        let permit = Permit::acquire(&self.path, CONTENT_QUEUE, 1, &mut || Ok(()))?;
        let mut bytes = Vec::new();
        permit.file().take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        let mut state: LimiterState = match serde_json::from_slice(&bytes) {
            Ok(state) => state,
            Err(_) => {
                *is_renewed = !bytes.is_empty();
                LimiterState::default()
            }
        };
        state.forget_past(now_ms);
        let output = change(&mut state);
        let mut changed = Vec::new();
        if state != LimiterState::default() {
            serde_json::to_writer(&mut changed, &state)?;
        } else if !self.has_limits() && !permit.is_shared()? {
            durable_file::remove(&self.path)?;
            return Ok(output);
        }
        if changed != bytes {
            // Not synced: after a crash of the machine, a damaged file is begun anew.
            let written = permit.file().write_all_at(&changed, 0);
            let written = written.and_then(|()| permit.file().set_len(changed.len() as u64));
            written.with_context(|| format!("write `{}`", self.path.display()))?;
        }
        Ok(output)
    }

    fn create_folder(&self) -> anyhow::Result<()> {
        self.path.parent().map_or(Ok(()), durable_file::create_dir)
    }

    fn has_limits(&self) -> bool {
        self.limits != AccountLimits::default()
    }

    fn now_ms(&self) -> i64 {
        self.clock.timestamp().as_millisecond()
    }
}

/// The time on the clock of [`signal::now`] until which a request waits for others if there is a fallback, which needs time too.
fn queue_deadline() -> Duration {
    let half_time = signal::timeout_left().map(|left| left / 2);
    signal::now() + half_time.map_or(MAX_SERVER_DELAY, |half| half.min(MAX_SERVER_DELAY))
}

/// True if the run ends before `wait` is over.
pub(super) fn is_beyond_time_left(wait: Duration) -> bool {
    signal::timeout_left().is_some_and(|left| left < wait)
}

/// The failure of a request that is not sent because of `cause`, which lasts for at least `wait`.
fn busy_error(cause: &str, wait: Duration) -> ProviderError {
    let message = match signal::timeout_left() {
        Some(left) if left < MAX_SERVER_DELAY => {
            format!("{cause}, and the run has only {} s left", left.as_secs())
        }
        _ => cause.to_owned(),
    };
    ProviderError::Failed { kind: FailureKind::Busy, message, retry_after: Some(wait) }
}

fn to_provider_error(error: anyhow::Error) -> ProviderError {
    error.downcast().unwrap_or_else(ProviderError::Aborted)
}

/// Formats the end of a rate limit in UTC, rounded up to a second.
pub(super) fn format_end(end: Timestamp) -> String {
    let second = end.as_second() + i64::from(end.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(end).to_string()
}
