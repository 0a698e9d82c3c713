//! The age at which stored data is removed, as the config says it.

use nanobot_base::format::{parse_time_span, smallest_unit};
use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The time since the last change after which data is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    Never,
    /// Above zero.
    After(Duration),
}

/// The units in which an age is written, with their seconds.
const UNITS: [(u64, char); 5] =
    [(365 * 86_400, 'y'), (86_400, 'd'), (3600, 'h'), (60, 'm'), (1, 's')];

impl Age {
    /// Creates an age of so many days, or [`Age::Never`] for 0.
    pub const fn from_days(days: u64) -> Self {
        if days == 0 { Self::Never } else { Self::After(Duration::from_secs(days * 86_400)) }
    }

    /// Parses `never`, or numbers with units such as `12h`, `30d` or `2y`. `None` for other text, and for zero.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "never" {
            return Some(Self::Never);
        }
        smallest_unit(text)?;
        parse_time_span(text).filter(|span| !span.is_zero()).map(Self::After)
    }

    /// Returns the time before which data is too old at `now`; `None` if no data is.
    pub fn limit(self, now: SystemTime) -> Option<SystemTime> {
        match self {
            Self::Never => None,
            Self::After(span) => now.checked_sub(span),
        }
    }
}

impl fmt::Display for Age {
    /// Writes the age in its largest unit without a remainder, as [`Age::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::After(span) = self else {
            return f.write_str("never");
        };
        let seconds = span.as_secs();
        let (unit, letter) = UNITS
            .into_iter()
            .find(|(unit, _)| seconds.is_multiple_of(*unit))
            .expect("every number is a multiple of the last unit");
        write!(f, "{}{letter}", seconds / unit)
    }
}

/// True if the entry at `path` was last changed before `limit`. A link is an entry of its own. An entry that cannot be examined, or
/// whose time is in the future, is not older.
pub fn is_older(path: &Path, limit: SystemTime) -> bool {
    std::fs::symlink_metadata(path)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|modified| modified < limit)
}

#[cfg(test)]
mod tests {
    use super::Age;
    use std::time::{Duration, SystemTime};

    #[test]
    fn ages_are_parsed_and_written() {
        let check = |text: &str, expect: Option<&str>| {
            let age = Age::parse(text);
            assert_eq!(age.map(|age| age.to_string()).as_deref(), expect, "{text}");
            assert!(age.is_none_or(|age| Age::parse(&age.to_string()) == Some(age)), "{text}");
        };
        check("never", Some("never"));
        check("30d", Some("30d"));
        check("4 weeks", Some("28d"));
        check("24h", Some("1d"));
        check("1d12h", Some("36h"));
        check("730d", Some("2y"));
        check("90s", Some("90s"));
        for text in
            ["", "0", "0d", "0h 0m", "30", "-5d", "d", "Never", "1.5d", "soon", "9999999999999999y"]
        {
            check(text, None);
        }
        assert_eq!(Age::from_days(0), Age::Never);
        assert_eq!(Age::from_days(30).to_string(), "30d");
    }

    #[test]
    fn only_an_age_has_a_limit() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400);
        let limit = |text: &str| Age::parse(text).unwrap().limit(now);
        assert_eq!(limit("1d"), Some(SystemTime::UNIX_EPOCH));
        assert_eq!(limit("never"), None);
        assert_eq!(limit("500000000000y"), None);
    }
}
