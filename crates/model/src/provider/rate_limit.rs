//! One pace for all runs of an account: the limits of the config, and those that the server reports, hold for them together. What they need
//! to know of each other is in one small file for each provider, which only exists while there are limits; see [`limiter_state`].

use super::budget::estimate_usage;
use super::{Delta, DeltaSink, FailureKind, Provider, ProviderError, Request};
use jiff::Timestamp;
use limiter_state::{AccountLimits, Admission, LimiterState, ReportedLimit, WaitReason};
use nanobot_base::message::Reply;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::semaphore::Permit;
use nanobot_os::signal;
use report::LimitReport;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub mod limiter_state;
pub(super) mod report;

/// The longest delay of a server that is waited for. A longer one ends the request: another model may be available.
const MAX_SERVER_DELAY: Duration = Duration::from_secs(60);
/// Maximum size of the file in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Number of attempts to get a place after which a wait is reported.
const ATTEMPTS_BEFORE_REPORT: u32 = 2;

/// Queues of the file: for its content, to be the next to send a request, and for the requests in progress.
const CONTENT_QUEUE: u8 = 0;
const NEXT_QUEUE: u8 = 1;
const PROGRESS_QUEUE: u8 = 2;

/// Forwards requests to `inner`, each when its turn has come.
pub struct RateLimitedProvider<P> {
    pub inner: P,
    pub limiter: Arc<RateLimiter>,
}

/// The limits of a provider's account, shared with other processes.
pub struct RateLimiter {
    /// The provider's name.
    pub provider: String,
    pub limits: AccountLimits,
    /// The file of the account. Without limits it does not exist.
    pub path: PathBuf,
    pub clock: Clock,
    /// True if the file has a limit that the server has reported for the model.
    pub has_reported_limit: AtomicBool,
}

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
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        let mut permit = self.limiter.wait_for_turn(request, on_delta)?;
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
    /// Waits until the request may be sent, and counts it.
    ///
    /// # Errors
    /// [`FailureKind::Busy`] if the wait would be too long, or longer than the time that is left.
    fn wait_for_turn(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<RequestPermit, ProviderError> {
        let AccountLimits { max_concurrent, requests_per_minute, tokens_per_minute } = self.limits;
        let progress = max_concurrent.map(|limit| {
            let cause = format!("`{}` is at its limit of requests at once, {limit}", self.provider);
            self.enter(PROGRESS_QUEUE, limit, &cause, on_delta)
        });
        let progress = progress.transpose()?;
        let has_rate = requests_per_minute.or(tokens_per_minute).is_some();
        let has_state = || std::fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() > 0);
        if !has_rate && !has_state() {
            return Ok(RequestPermit { progress, ..RequestPermit::default() });
        }
        let cause = format!("other requests to `{}` come first", self.provider);
        let next = self.enter(NEXT_QUEUE, 1, &cause, on_delta)?;
        let tokens = match tokens_per_minute {
            Some(_) => estimate_usage(request, 0).input,
            None => 0,
        };
        let is_probe = self.wait_for_admission(request.model, tokens, on_delta)?;
        Ok(RequestPermit { progress, next: is_probe.then_some(next), tokens })
    }

    /// Waits in a queue of the file.
    fn enter(
        &self,
        queue: u8,
        limit: u32,
        cause: &str,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Permit, ProviderError> {
        self.create_folder().map_err(ProviderError::Aborted)?;
        let mut attempts = 0;
        let mut on_wait = || {
            attempts += 1;
            if attempts == ATTEMPTS_BEFORE_REPORT {
                on_delta(Delta::Wait { wait: None, cause })?;
            }
            // The run must end before its time does, to say why.
            if is_beyond_time_left(Permit::MAX_DELAY * 2) {
                return Err(busy_error(cause, Permit::MAX_DELAY).into());
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
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<bool, ProviderError> {
        let mut now_ms = self.now_ms();
        loop {
            let mut has_reported_limit = false;
            let mut is_renewed = false;
            let admission = self
                .change_state(now_ms, &mut is_renewed, |state| {
                    has_reported_limit = state.models.contains_key(model);
                    state.admit(self.limits, model, tokens, now_ms)
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
            self.clock.sleep(wait).map_err(|stop| ProviderError::Aborted(stop.into()))?;
            // The clock may have been set back.
            now_ms = self.now_ms().max(time_ms);
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
                self.update(now_ms, |state| state.set_limit(model, Some(limit), now_ms));
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
        self.update(now_ms, |state| state.set_limit(model, limit, now_ms));
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
        } else if !self.has_limits() {
            std::fs::remove_file(&self.path)?;
            return Ok(output);
        }
        if changed != bytes {
            // Not synced: after a crash of the machine, a damaged file is begun anew.
            permit.file().write_all_at(&changed, 0)?;
            permit.file().set_len(changed.len() as u64)?;
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
