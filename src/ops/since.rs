//! `--since`: from when on something counts. Pure.

use crate::cli::value::Since;
use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};

/// From a day on, as the clock on the wall had it, or from a moment on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    Day(Date),
    Moment(Timestamp),
}

impl Start {
    pub(crate) fn of(since: Since, now: &Zoned) -> Self {
        match since {
            Since::Date(date) => Self::Day(date),
            Since::Days(count) => {
                let before = (i32::from(count) - 1).days();
                Self::Day(now.date().saturating_sub(before))
            }
            Since::Month => Self::Day(now.date().first_of_month()),
            Since::Hours(count) => {
                let length = SignedDuration::from_hours(count.into());
                let moment = now.timestamp().checked_sub(length);
                Self::Moment(moment.unwrap_or(Timestamp::MIN))
            }
        }
    }

    /// Whether it is not later than `time`, which was on `day`.
    pub(crate) fn reaches(self, time: Timestamp, day: Date) -> bool {
        match self {
            Self::Day(start) => day >= start,
            Self::Moment(start) => time >= start,
        }
    }
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Day(day) => day.fmt(f),
            Self::Moment(time) => time.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Start;
    use crate::cli::value::Since;

    #[test]
    fn days_begin_at_midnight_and_hours_do_not() {
        let now = "2026-03-01T10:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let check = |since, expect: &str| {
            assert_eq!(Start::of(since, &now).to_string(), expect, "{since:?}");
        };
        check(Since::Days(1), "2026-03-01");
        check(Since::Days(7), "2026-02-23");
        check(Since::Month, "2026-03-01");
        check(Since::Hours(12), "2026-02-28T21:00:00Z");
        check(Since::Date("2026-01-05".parse().unwrap()), "2026-01-05");
        check(Since::Hours(u16::MAX), "2018-09-08T18:00:00Z");
    }
}
