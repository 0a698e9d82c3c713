//! `--since`: the start of a period to report on. Pure.

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use std::time::Duration;

/// The start of a period: a local date, or a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SinceFilter {
    Day(Date),
    Time(Timestamp),
}

impl SinceFilter {
    /// The last `count` days, today included.
    pub(crate) fn last_days(count: u16, now: &Zoned) -> Self {
        let before = (i32::from(count) - 1).days();
        Self::Day(now.date().saturating_sub(before))
    }

    /// The current month, from its first day.
    pub(crate) fn this_month(now: &Zoned) -> Self {
        Self::Day(now.date().first_of_month())
    }

    /// So long before `now`.
    pub(crate) fn ago(span: Duration, now: &Zoned) -> Self {
        let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
        let moment = now.timestamp().checked_sub(span);
        Self::Time(moment.unwrap_or(Timestamp::MIN))
    }

    /// True if the period includes `time`, whose local date is `day`.
    pub(crate) fn includes(self, time: Timestamp, day: Date) -> bool {
        match self {
            Self::Day(start) => day >= start,
            Self::Time(start) => time >= start,
        }
    }
}

impl std::fmt::Display for SinceFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Day(day) => day.fmt(f),
            Self::Time(time) => time.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SinceFilter;
    use std::time::Duration;

    #[test]
    fn days_start_at_midnight() {
        let now = "2026-03-01T10:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let check = |filter: SinceFilter, expect: &str| {
            assert_eq!(filter.to_string(), expect, "{filter:?}");
        };
        check(SinceFilter::last_days(1, &now), "2026-03-01");
        check(SinceFilter::last_days(7, &now), "2026-02-23");
        check(SinceFilter::this_month(&now), "2026-03-01");
        let ago = |seconds: u64| SinceFilter::ago(Duration::from_secs(seconds), &now);
        check(ago(60), "2026-03-01T08:59:00Z");
        check(ago(12 * 3600), "2026-02-28T21:00:00Z");
        check(ago(u64::MAX), &jiff::Timestamp::MIN.to_string());
    }
}
