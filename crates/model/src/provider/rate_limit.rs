//! Rate limits, shared between runs: if a server names a delay, its end is stored in a file, and concurrent runs wait too instead of
//! sending requests that would fail.

use super::{DeltaSink, FailureKind, Provider, ProviderError, Request};
use jiff::Timestamp;
use nanobot_base::message::Reply;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Upper bound on a stored delay. After it, one run tries again, because keys and clocks change.
const MAX_DELAY: Duration = Duration::from_secs(10 * 60);

/// Forwards requests to `inner`, unless its server's rate limit is in effect.
pub struct RateLimitedProvider<P> {
    pub inner: P,
    /// The file that holds the end of the delay, in Unix milliseconds. It usually does not exist.
    pub path: PathBuf,
    pub clock: Clock,
    /// The end of the delay that this run has already waited for, in Unix milliseconds.
    pub waited_until: AtomicI64,
}

/// A delay that the server has requested.
struct RateLimitDelay {
    /// Its end in Unix milliseconds.
    until: i64,
    /// The time until then.
    wait: Duration,
}

impl<P: Provider> Provider for RateLimitedProvider<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        if let Some(RateLimitDelay { until, wait }) = self.current_delay()
            && self.waited_until.swap(until, Ordering::Relaxed) != until
        {
            let message = format!(
                "`{}` is rate-limited until {}, as reported to another run",
                request.model,
                format_end(Timestamp::from_millisecond(until).unwrap_or_default())
            );
            let retry_after = Some(wait + random_jitter());
            return Err(ProviderError::Failed { kind: FailureKind::Busy, message, retry_after });
        }
        let reply = self.inner.reply(request, on_delta);
        if let Err(ProviderError::Failed { retry_after: Some(wait), .. }) = &reply {
            self.store_delay(*wait);
        }
        reply
    }
}

impl<P> RateLimitedProvider<P> {
    fn now_millis(&self) -> i64 {
        self.clock.timestamp().as_millisecond()
    }

    fn current_delay(&self) -> Option<RateLimitDelay> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let until: i64 = text.trim().parse().ok()?;
        let wait =
            Duration::from_millis(u64::try_from(until.checked_sub(self.now_millis())?).ok()?);
        (!wait.is_zero() && wait <= MAX_DELAY).then_some(RateLimitDelay { until, wait })
    }

    /// Stores a delay. Best effort: a run that misses it gets the same response from the server.
    fn store_delay(&self, delay: Duration) {
        let wait = delay.min(MAX_DELAY);
        let until =
            self.now_millis().saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        self.waited_until.store(until, Ordering::Relaxed);
        if self.current_delay().is_some_and(|delay| delay.until >= until) {
            return;
        }
        let folder = self.path.parent();
        drop(folder.map(durable_file::create_dir));
        drop(durable_file::replace(&self.path, format!("{until}\n").as_bytes()));
    }
}

/// Formats the end of a rate limit in UTC, rounded up to a second.
pub(super) fn format_end(end: Timestamp) -> String {
    let second = end.as_second() + i64::from(end.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(end).to_string()
}

/// Random jitter of up to a quarter of a second, to spread runs that wait for the same time.
fn random_jitter() -> Duration {
    let byte = u8::from_str_radix(&random_hex(1), 16).unwrap_or_default();
    Duration::from_millis(u64::from(byte))
}
