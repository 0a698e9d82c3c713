//! The content of an account's file: what the server has reported of its limits, and the requests of the last minute. Times are those of the
//! system's clock; none of them can be in the future for long, so a clock that was set back delays requests by a minute at most.

use nanobot_base::limits::AccountLimits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The period of the limits of the config.
const WINDOW_SECS: i64 = 60;
/// Upper bound on a delay that the server asks for. After it, one run tries again, because keys and clocks change.
const MAX_DELAY_MS: i64 = 10 * 60_000;
/// Time after the end of a reported limit in which one request is sent before the others.
const PROBE_PERIOD_MS: i64 = 60_000;

/// The state of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct LimiterState {
    /// The last limit that the server has reported for each model and key.
    pub(super) models: BTreeMap<String, ReportedLimit>,
    /// The requests of the last minute, oldest first.
    seconds: Vec<SecondTotals>,
}

/// A limit that the server has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReportedLimit {
    /// The number of requests that may still be sent until its end.
    remaining: u64,
    /// Its end in Unix milliseconds.
    until_ms: i64,
}

/// The requests that were sent in one second, and their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct SecondTotals {
    /// Unix time in seconds.
    second: i64,
    requests: u64,
    tokens: u64,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may be sent, and is counted. With `is_probe`, its response shows if a limit has ended.
    Now { is_probe: bool },
    /// It must wait until this time, in Unix milliseconds.
    At { time_ms: i64, reason: WaitReason },
}

/// The limit for which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// Reported by the server.
    Reported,
    Requests,
    Tokens,
}

impl ReportedLimit {
    /// A limit that ends `delay` after `now_ms`.
    pub(super) fn after(now_ms: i64, remaining: u64, delay: Duration) -> Self {
        let delay =
            i64::try_from(delay.as_millis()).map_or(MAX_DELAY_MS, |ms| ms.min(MAX_DELAY_MS));
        Self { remaining, until_ms: now_ms.saturating_add(delay) }
    }
}

impl LimiterState {
    /// Removes what has no effect at `now_ms` any more. Times in the future, which are left by a clock that was ahead, become the current
    /// one, and delays that are too long end.
    pub(super) fn forget_past(&mut self, now_ms: i64) {
        self.models.retain(|_, limit| {
            let left = limit.until_ms.saturating_sub(now_ms);
            let needs_probe = limit.remaining == 0 && left >= -PROBE_PERIOD_MS;
            left <= MAX_DELAY_MS && (left > 0 || needs_probe)
        });
        let now = now_ms.div_euclid(1000);
        self.seconds.iter_mut().for_each(|totals| totals.second = totals.second.min(now));
        self.seconds.retain(|totals| totals.second >= now - WINDOW_SECS);
    }

    /// Decides about a request of about so many tokens.
    pub(super) fn admit(
        &mut self,
        limits: AccountLimits,
        model: &str,
        tokens: u64,
        now_ms: i64,
    ) -> Admission {
        let reported = self.models.get(model).filter(|limit| limit.remaining == 0);
        let waits = [
            (reported.map(|limit| limit.until_ms), WaitReason::Reported),
            (
                self.end_of_wait(limits.requests_per_minute, 1, |totals| totals.requests),
                WaitReason::Requests,
            ),
            (
                self.end_of_wait(limits.tokens_per_minute, tokens, |totals| totals.tokens),
                WaitReason::Tokens,
            ),
        ];
        let waits = waits.into_iter().filter_map(|(time_ms, reason)| Some((time_ms?, reason)));
        if let Some((time_ms, reason)) = waits.max_by_key(|(time_ms, _)| *time_ms)
            && time_ms > now_ms
        {
            return Admission::At { time_ms, reason };
        }
        let is_probe = reported.is_some();
        if let Some(limit) = self.models.get_mut(model) {
            limit.remaining = limit.remaining.saturating_sub(1);
        }
        if limits.requests_per_minute.is_some() || limits.tokens_per_minute.is_some() {
            self.add(now_ms, 1, tokens);
        }
        Admission::Now { is_probe }
    }

    /// The time in Unix milliseconds at which `amount` fits into `limit`; `None` if it fits now. An amount beyond the limit fits when nothing
    /// else is counted.
    fn end_of_wait(
        &self,
        limit: Option<u64>,
        amount: u64,
        value: fn(&SecondTotals) -> u64,
    ) -> Option<i64> {
        let limit = limit?;
        let mut used: u64 = self.seconds.iter().map(value).fold(0, u64::saturating_add);
        let mut end = None;
        for totals in &self.seconds {
            if used == 0 || used.saturating_add(amount) <= limit {
                break;
            }
            used = used.saturating_sub(value(totals));
            // The requests of a second may be as late as its end.
            end = Some((totals.second + WINDOW_SECS + 1) * 1000);
        }
        end
    }

    /// Counts requests and tokens.
    pub(super) fn add(&mut self, now_ms: i64, requests: u64, tokens: u64) {
        let second = now_ms.div_euclid(1000);
        match self.seconds.last_mut().filter(|totals| totals.second >= second) {
            Some(totals) => {
                totals.requests = totals.requests.saturating_add(requests);
                totals.tokens = totals.tokens.saturating_add(tokens);
            }
            None if requests == 0 && tokens == 0 => {}
            None => self.seconds.push(SecondTotals { second, requests, tokens }),
        }
    }

    /// Sets the limit that the server has reported for `model`; `None` if a successful response names none. A report does not know of the
    /// requests in progress, so it extends a limit that is in force and does not ease it.
    pub(super) fn set_limit(&mut self, model: &str, limit: Option<ReportedLimit>, now_ms: i64) {
        let current = self.models.get(model).copied().filter(|current| current.until_ms > now_ms);
        let limit = match (current, limit) {
            (Some(current), Some(limit)) => Some(ReportedLimit {
                remaining: current.remaining.min(limit.remaining),
                until_ms: current.until_ms.max(limit.until_ms),
            }),
            (current, limit) => limit.or(current),
        };
        match limit {
            Some(limit) => drop(self.models.insert(model.to_owned(), limit)),
            None => drop(self.models.remove(model)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AccountLimits, Admission, LimiterState, ReportedLimit, WaitReason};
    use std::time::Duration;

    /// Some time, in Unix milliseconds.
    const NOW: i64 = 1_767_323_045_000;

    /// The seconds that a request for the model `m` waits after `NOW`, and the reason.
    fn admit(
        state: &mut LimiterState,
        limits: AccountLimits,
        tokens: u64,
        after: i64,
    ) -> Admission {
        let now_ms = NOW + after * 1000;
        state.forget_past(now_ms);
        state.admit(limits, "m", tokens, now_ms)
    }

    const ADMITTED: Admission = Admission::Now { is_probe: false };
    const PROBE: Admission = Admission::Now { is_probe: true };

    fn at(after: i64, reason: WaitReason) -> Admission {
        Admission::At { time_ms: NOW + after * 1000, reason }
    }

    #[test]
    fn a_minute_has_at_most_so_many_requests_and_tokens() {
        let limits = AccountLimits { requests_per_minute: Some(2), ..AccountLimits::default() };
        let mut state = LimiterState::default();
        assert_eq!(admit(&mut state, limits, 0, 0), ADMITTED);
        assert_eq!(admit(&mut state, limits, 0, 10), ADMITTED);
        assert_eq!(admit(&mut state, limits, 0, 11), at(61, WaitReason::Requests));
        assert_eq!(admit(&mut state, limits, 0, 61), ADMITTED);
        assert_eq!(admit(&mut state, limits, 0, 61), at(71, WaitReason::Requests));
        let limits = AccountLimits { tokens_per_minute: Some(100), ..AccountLimits::default() };
        let mut state = LimiterState::default();
        // One request may exceed the limit, if nothing else is counted.
        assert_eq!(admit(&mut state, limits, 500, 0), ADMITTED);
        assert_eq!(admit(&mut state, limits, 1, 60), at(61, WaitReason::Tokens));
        assert_eq!(admit(&mut state, limits, 60, 61), ADMITTED);
        assert_eq!(admit(&mut state, limits, 40, 62), ADMITTED);
        state.add(NOW + 62_000, 0, 30);
        assert_eq!(admit(&mut state, limits, 30, 62), at(122, WaitReason::Tokens));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_by_a_minute_at_most() {
        let limits = AccountLimits { requests_per_minute: Some(1), ..AccountLimits::default() };
        let mut state = LimiterState::default();
        assert_eq!(admit(&mut state, limits, 0, 7200), ADMITTED);
        state.set_limit("m", Some(ReportedLimit::after(NOW + 7_200_000, 0, Duration::MAX)), NOW);
        assert_eq!(admit(&mut state, limits, 0, 0), at(61, WaitReason::Requests));
        assert_eq!(admit(&mut state, limits, 0, 61), ADMITTED);
        // Set forward, it ends all waits.
        assert_eq!(admit(&mut state, limits, 0, 9000), ADMITTED);
    }

    #[test]
    fn a_reported_limit_is_waited_for_and_one_request_tries_if_it_has_ended() {
        let limits = AccountLimits::default();
        let mut state = LimiterState::default();
        let report = |remaining, after: i64, seconds| {
            Some(ReportedLimit::after(NOW + after * 1000, remaining, Duration::from_secs(seconds)))
        };
        state.set_limit("m", report(0, 0, 10), NOW);
        assert_eq!(admit(&mut state, limits, 0, 1), at(10, WaitReason::Reported));
        // A response to an earlier request does not ease it.
        state.set_limit("m", report(5, 0, 10), NOW);
        state.set_limit("m", None, NOW);
        assert_eq!(admit(&mut state, limits, 0, 1), at(10, WaitReason::Reported));
        assert_eq!(admit(&mut state, limits, 0, 10), PROBE);
        // It succeeds, and two more are possible.
        state.set_limit("m", report(2, 10, 20), NOW + 10_000);
        assert_eq!(admit(&mut state, limits, 0, 11), ADMITTED);
        assert_eq!(admit(&mut state, limits, 0, 11), ADMITTED);
        assert_eq!(admit(&mut state, limits, 0, 12), at(30, WaitReason::Reported));
        assert_eq!(admit(&mut state, limits, 0, 30), PROBE);
        // Its response names no limit.
        state.set_limit("m", None, NOW + 30_000);
        assert_eq!(state, LimiterState::default());
        // A reported limit ends at its time, or as soon as a reply has requests left.
        state.set_limit("m", report(0, 0, 10), NOW);
        state.set_limit("n", report(3, 0, 10), NOW);
        state.forget_past(NOW + 71_000);
        assert_eq!(state, LimiterState::default());
    }
}
