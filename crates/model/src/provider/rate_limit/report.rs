//! The headers in which servers report their limits.
//!
//! OpenAI, Azure and Groq send durations (`6m0s`), Anthropic times, and gateways a number of seconds or a Unix time ("Rate limits" in the
//! documentation of each).

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// A limit as a response reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) struct LimitReport {
    /// The number of requests that are left; 0 also if no tokens are left.
    pub(in crate::provider) remaining: u64,
    /// The time until the limit is complete again, or until a request should be tried: it may be possible long before.
    pub(in crate::provider) reset_after: Duration,
}

/// Upper bound of a reported time.
const MAX_RESET_DELAY: Duration = Duration::from_secs(60);

/// Pairs of headers: what is left, and when the limit is complete again.
const HEADERS: [(&str, &str); 7] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
];

/// Numbers from this on are Unix times, in seconds or in milliseconds.
const MIN_UNIX_SECS: f64 = 1e9;
const MIN_UNIX_MILLIS: f64 = 1e12;

impl LimitReport {
    /// The strictest limit in the headers of a response; `None` if they have none. `now` returns the time.
    pub(in crate::provider) fn read<'a>(
        header: impl Fn(&str) -> Option<&'a str>,
        now: impl Fn() -> Timestamp,
    ) -> Option<Self> {
        let reports = HEADERS.iter().filter_map(|(remaining_header, reset_header)| {
            let remaining = header(remaining_header)?.trim().parse().ok()?;
            // The number of tokens that are left says nothing about requests.
            if remaining > 0 && remaining_header.contains("tokens") {
                return None;
            }
            let reset_after = parse_reset(header(reset_header)?.trim(), now())?;
            Some(Self { remaining, reset_after: reset_after.min(MAX_RESET_DELAY) })
        });
        reports.min_by_key(|report| (report.remaining, std::cmp::Reverse(report.reset_after)))
    }
}

/// The time from `now` to a reset: a duration, a time, or a number.
fn parse_reset(text: &str, now: Timestamp) -> Option<Duration> {
    let until = |time: Timestamp| Duration::try_from(time.duration_since(now)).unwrap_or_default();
    if let Ok(number) = text.parse::<f64>() {
        let unix_secs = if number >= MIN_UNIX_MILLIS { number / 1000.0 } else { number };
        let seconds = Duration::try_from_secs_f64(unix_secs).ok()?;
        if number < MIN_UNIX_SECS {
            return Some(seconds);
        }
        let time = Timestamp::from_second(seconds.as_secs().try_into().ok()?).ok()?;
        return Some(until(time));
    }
    if let Ok(time) = text.parse() {
        return Some(until(time));
    }
    Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::LimitReport;
    use std::time::Duration;

    #[test]
    fn the_strictest_limit_counts() {
        let check = |headers: &[(&str, &str)], expect: Option<(u64, f64)>| {
            let find = |name: &str| headers.iter().find(|(other, _)| *other == name);
            let report = LimitReport::read(
                |name| find(name).map(|(_, value)| *value),
                || "2026-01-02T03:04:05Z".parse().unwrap(),
            );
            let expect = expect.map(|(remaining, seconds)| LimitReport {
                remaining,
                reset_after: Duration::from_secs_f64(seconds),
            });
            assert_eq!(report, expect, "{headers:?}");
        };
        check(&[], None);
        let requests = |left, reset| {
            [("x-ratelimit-remaining-requests", left), ("x-ratelimit-reset-requests", reset)]
        };
        check(&requests("59", "1s"), Some((59, 1.0)));
        check(&requests("0", "6m0s"), Some((0, 60.0)));
        check(&requests("0", "20ms"), Some((0, 0.02)));
        check(&requests("0", "0m9.56s"), Some((0, 9.56)));
        check(&requests("0", "12"), Some((0, 12.0)));
        check(&requests("0", "1767323055"), Some((0, 10.0)));
        check(&requests("0", "1767323055000"), Some((0, 10.0)));
        check(&requests("0", "1767323000"), Some((0, 0.0)));
        check(&requests("0", "soon"), None);
        check(&requests("-1", "1s"), None);
        check(&requests("many", "1s"), None);
        check(&requests("0", "1e300"), None);
        let tokens = |left, reset| {
            [
                ("anthropic-ratelimit-input-tokens-remaining", left),
                ("anthropic-ratelimit-input-tokens-reset", reset),
                ("anthropic-ratelimit-requests-remaining", "3"),
                ("anthropic-ratelimit-requests-reset", "2026-01-02T03:04:06Z"),
            ]
        };
        check(&tokens("0", "2026-01-02T03:04:35Z"), Some((0, 30.0)));
        check(&tokens("70000", "2026-01-02T03:04:35Z"), Some((3, 1.0)));
    }
}
