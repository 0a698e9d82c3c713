//! Rate limits, shared between runs: if a server names a delay, its end is stored in a file, and concurrent runs wait
//! too instead of sending requests in vain.

use super::{Provider, ProviderError, Request, Tell};
use crate::message::Reply;
use crate::sys::clock::Clock;
use crate::sys::secret::random_hex;
use crate::sys::store;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Upper bound on a stored delay. After it, one run tries again, because keys and clocks change.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// Forwards requests to `inner`, unless its server's rate limit is in effect.
pub struct Pace<P> {
    pub inner: P,
    /// The file that holds the end of the delay, in Unix milliseconds. It usually does not exist.
    pub path: PathBuf,
    pub clock: Clock,
    /// The end of the delay that this run has already waited for, in Unix milliseconds.
    pub known: AtomicI64,
}

impl<P: Provider> Provider for Pace<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        if let Some((until, wait)) = self.wait()
            && self.known.swap(until, Ordering::Relaxed) != until
        {
            let message = format!(
                "`{}` is rate-limited, as reported to another run",
                request.model
            );
            return Err(ProviderError::Busy {
                message,
                wait: Some(wait + noise()),
            });
        }
        let answer = self.inner.reply(request, on_delta);
        if let Err(ProviderError::Busy {
            wait: Some(wait), ..
        }) = &answer
        {
            self.note(*wait);
        }
        answer
    }
}

impl<P> Pace<P> {
    fn now(&self) -> i64 {
        self.clock.timestamp().as_millisecond()
    }

    /// The end of the current delay in Unix milliseconds, and the time until then.
    fn wait(&self) -> Option<(i64, Duration)> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let until: i64 = text.trim().parse().ok()?;
        let wait = Duration::from_millis(u64::try_from(until.checked_sub(self.now())?).ok()?);
        (!wait.is_zero() && wait <= LONGEST).then_some((until, wait))
    }

    /// Stores a delay. Best effort: a run that misses it gets the same answer from the server.
    fn note(&self, wait: Duration) {
        let wait = wait.min(LONGEST);
        let until = self
            .now()
            .saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        self.known.store(until, Ordering::Relaxed);
        if self.wait().is_some_and(|(other, _)| other >= until) {
            return;
        }
        let folder = self.path.parent();
        drop(folder.map(store::create_dir));
        drop(store::replace(&self.path, format!("{until}\n").as_bytes()));
    }
}

/// Random jitter of up to a quarter of a second, to spread runs that wait for the same time.
fn noise() -> Duration {
    let byte = u8::from_str_radix(&random_hex(1), 16).unwrap_or_default();
    Duration::from_millis(u64::from(byte))
}
