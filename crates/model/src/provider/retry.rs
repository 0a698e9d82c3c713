//! Retries with backoff: a wrapper around any provider. Where pieces of a reply are shown as they arrive, a request is
//! retried only before the first one, because displayed text cannot be retracted.

use super::rate_limit::is_beyond_time_left;
use super::{Delta, DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request};
use nanobot_base::error::Stop;
use nanobot_base::message::Reply;
use nanobot_os::clock::Clock;
use std::time::Duration;

/// Maximum number of attempts.
const MAX_ATTEMPTS: u32 = 4;
/// Limit on the sum of all waits. If a server asks for more, the error is returned, and the caller can try later.
const MAX_TOTAL_DELAY: Duration = Duration::from_secs(60);
/// A shorter delay that a server asks for stands for none: servers round down, and clocks differ.
const MIN_REQUESTED_DELAY: Duration = Duration::from_secs(1);

/// Forwards requests to `inner`, and retries transient failures.
pub struct RetryProvider<P> {
    pub inner: P,
    pub clock: Clock,
    /// True if the pieces of a reply are shown as they arrive.
    pub shows_pieces: bool,
}

impl<P: Provider> Provider for RetryProvider<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let mut waited = Duration::ZERO;
        let mut last_failure = None;
        for attempt in 1.. {
            let mut emitted = false;
            let error = match self.inner.reply(request, &mut |delta| {
                emitted |= self.shows_pieces && delta.is_piece();
                on_delta(delta)
            }) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let requested_delay = match &error {
                ProviderError::Failed {
                    kind:
                        FailureKind::Busy
                        | FailureKind::Unavailable
                        | FailureKind::ServerFailed
                        | FailureKind::Interrupted,
                    retry_after,
                    ..
                } => *retry_after,
                _ => return Err(explain_abort(error, last_failure)),
            };
            let usable_delay = requested_delay.filter(|delay| *delay >= MIN_REQUESTED_DELAY);
            let wait = usable_delay.unwrap_or_else(|| backoff(attempt));
            let is_too_late = requested_delay.is_some() && is_beyond_time_left(wait);
            // A delay may be as long as the type allows.
            waited = waited.saturating_add(wait);
            if emitted || is_too_late || attempt == MAX_ATTEMPTS || waited > MAX_TOTAL_DELAY {
                return Err(error);
            }
            log::info!(target: "model", "attempt {attempt} of {MAX_ATTEMPTS} failed; next attempt in {} ms", wait.as_millis());
            let cause = error.to_string();
            on_delta(Delta::Retry { attempt, wait, cause: &cause })
                .map_err(ProviderError::Aborted)?;
            last_failure = Some(format!("attempt {attempt} of {MAX_ATTEMPTS} failed ({cause})"));
            if let Err(stop) = self.clock.sleep(wait) {
                return Err(explain_abort(ProviderError::Aborted(stop.into()), last_failure));
            }
        }
        unreachable!("the last attempt returns");
    }
}

/// Adds the failure that a retry followed to the error of a request that was stopped.
fn explain_abort(error: ProviderError, last_failure: Option<String>) -> ProviderError {
    match (error, last_failure) {
        (ProviderError::Aborted(stop), Some(failure)) if stop.is::<Stop>() => {
            ProviderError::Aborted(stop.context(failure))
        }
        (error, _) => error,
    }
}

/// The exponential backoff: 1, 2, 4 seconds, each with up to 25 % jitter to spread runs that failed together.
fn backoff(attempt: u32) -> Duration {
    let base = Duration::from_secs(1 << (attempt - 1).min(6));
    let noise = u8::from_str_radix(&nanobot_os::secret::random_hex(1), 16).unwrap_or_default();
    base + base.mul_f64(f64::from(noise) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::RetryProvider;
    use crate::provider::response::test_support::REQUEST;
    use crate::provider::{
        Delta, DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request,
    };
    use nanobot_base::message::Reply;
    use nanobot_os::clock::Clock;
    use parking_lot::Mutex;
    use std::time::Duration;

    type ScriptedOutcome = Box<dyn Fn(&mut DeltaSink<'_>) -> ProviderResult<Reply> + Send>;

    struct ScriptedProvider(Mutex<Vec<ScriptedOutcome>>);

    impl Provider for ScriptedProvider {
        fn reply(&self, _: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
            let step = self.0.lock().remove(0);
            step(on_delta)
        }
    }

    fn down() -> ScriptedOutcome {
        Box::new(|_| Err(ProviderError::new(FailureKind::Unavailable, "down")))
    }

    fn busy(seconds: u64) -> ScriptedOutcome {
        Box::new(move |_| {
            Err(ProviderError::Failed {
                kind: FailureKind::Busy,
                message: "busy".into(),
                retry_after: Some(Duration::from_secs(seconds)),
            })
        })
    }

    fn fine() -> ScriptedOutcome {
        Box::new(|_| Ok(Reply { text: "fine".into(), ..Reply::default() }))
    }

    /// Checks success, the number of attempts, and the number of reported retries.
    fn check(steps: Vec<ScriptedOutcome>, expect: (bool, usize, usize)) {
        check_shown(true, steps, expect);
    }

    fn check_shown(shows_pieces: bool, steps: Vec<ScriptedOutcome>, expect: (bool, usize, usize)) {
        let count = steps.len();
        let clock = Clock::Fixed("2026-01-02T03:04:05Z".parse().unwrap());
        let retry =
            RetryProvider { inner: ScriptedProvider(Mutex::new(steps)), clock, shows_pieces };
        let mut waits = 0;
        let result = retry.reply(&REQUEST, &mut |delta| {
            waits += usize::from(matches!(delta, Delta::Retry { .. }));
            Ok(())
        });
        let left = retry.inner.0.lock().len();
        assert_eq!((result.is_ok(), count - left, waits), expect);
    }

    #[test]
    fn makes_four_attempts_within_a_minute_before_any_output() {
        check(vec![fine()], (true, 1, 0));
        check(vec![down(), fine()], (true, 2, 1));
        check(vec![down(), down(), down(), fine()], (true, 4, 3));
        check(vec![down(), down(), down(), down(), fine()], (false, 4, 3));
        check(vec![busy(50), fine()], (true, 2, 1));
        check(vec![busy(61), fine()], (false, 1, 0));
        check(vec![busy(0), busy(0), busy(0), fine()], (true, 4, 3));
        check(vec![busy(40), busy(40), fine()], (false, 2, 1));
        check(vec![down(), busy(u64::MAX), fine()], (false, 2, 1));
        check(
            vec![Box::new(|_| Err(ProviderError::new(FailureKind::Refused, "no"))), fine()],
            (false, 1, 0),
        );
        let half = || -> ScriptedOutcome {
            Box::new(|on_delta: &mut DeltaSink<'_>| {
                on_delta(Delta::Text("half")).map_err(ProviderError::Aborted)?;
                Err(ProviderError::new(FailureKind::Unavailable, "cut"))
            })
        };
        check(vec![half(), fine()], (false, 1, 0));
        check_shown(false, vec![half(), fine()], (true, 2, 1));
    }
}
