//! `--since`: the start of a period to report on. No I/O.

use crate::options::value::Since;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

/// The start of a period: a local date, or an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SinceFilter {
    Day(Date),
    Time(Timestamp),
}

impl SinceFilter {
    /// The period that `since` describes at the time `now`.
    pub(crate) fn new(since: Since, now: &Zoned) -> Self {
        match since {
            Since::Date(date) => Self::Day(date),
            Since::Days(count) => {
                // The current day is one of them.
                let earlier_days = (i32::from(count) - 1).days();
                Self::Day(now.date().saturating_sub(earlier_days))
            }
            Since::Month => Self::Day(now.date().first_of_month()),
            Since::Ago(span) => {
                let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
                Self::Time(now.timestamp().checked_sub(span).unwrap_or(Timestamp::MIN))
            }
        }
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
    use super::{Since, SinceFilter};
    use std::time::Duration;

    #[test]
    fn days_start_at_midnight() {
        let now = "2026-03-01T10:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let check = |since: Since, expect: &str| {
            assert_eq!(SinceFilter::new(since, &now).to_string(), expect, "{since:?}");
        };
        check(Since::Days(1), "2026-03-01");
        check(Since::Days(7), "2026-02-23");
        check(Since::Month, "2026-03-01");
        let ago = |seconds: u64| Since::Ago(Duration::from_secs(seconds));
        check(ago(60), "2026-03-01T08:59:00Z");
        check(ago(12 * 3600), "2026-02-28T21:00:00Z");
        check(ago(u64::MAX), &jiff::Timestamp::MIN.to_string());
    }
}
