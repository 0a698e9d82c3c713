//! Rate limits, shared between runs: when a server names the time that it wants to be left alone, that time is written
//! down, and whatever runs beside waits too instead of hammering.

use super::{Provider, ProviderError, Request, Tell};
use crate::message::Reply;
use crate::sys::clock::Clock;
use crate::sys::secret::random_hex;
use crate::sys::store;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// What is believed without asking. After that one run asks again: keys change, and clocks are set.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// Asks `inner`, unless its server is to be left alone.
pub struct Pace<P> {
    pub inner: P,
    /// Holds the time until which to wait, in milliseconds since 1970; missing for most.
    pub path: PathBuf,
    pub clock: Clock,
    /// The time that this run has already waited for.
    pub known: AtomicI64,
}

impl<P: Provider> Provider for Pace<P> {
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError> {
        if let Some((until, wait)) = self.wait()
            && self.known.swap(until, Ordering::Relaxed) != until
        {
            let message = format!(
                "`{}` is at its rate limit, as another run was told",
                request.model
            );
            return Err(ProviderError::Busy {
                message,
                wait: Some(wait + noise()),
            });
        }
        let answer = self.inner.reply(request, tell);
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

    /// Until when to wait, and how long that is.
    fn wait(&self) -> Option<(i64, Duration)> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        let until: i64 = text.trim().parse().ok()?;
        let wait = Duration::from_millis(u64::try_from(until.checked_sub(self.now())?).ok()?);
        (!wait.is_zero() && wait <= LONGEST).then_some((until, wait))
    }

    /// Best effort: whoever cannot be told will be told by the server.
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

/// Up to a quarter of a second, so that those who wait for the same time do not come back together.
fn noise() -> Duration {
    let byte = u8::from_str_radix(&random_hex(1), 16).unwrap_or_default();
    Duration::from_millis(u64::from(byte))
}
