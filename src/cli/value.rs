//! Values as they are typed: times, ages, amounts of money.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

/// Since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Date(jiff::civil::Date),
    /// So many days, of which today is the last.
    Days(u16),
    Hours(u16),
    /// The first day of this month.
    Month,
}

/// The number of a turn.
pub(super) fn turn(text: &str) -> Result<u64, String> {
    let number = text.parse().ok();
    number.ok_or("no such turn; run `nanobot undo --list` for the numbers".into())
}

/// One of several between commas, which may have blanks around them.
pub(super) fn trimmed(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_owned())
}

/// A name that is a part of a path.
pub(super) fn file_name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let is_name =
        (1..=64).contains(&text.len()) && !text.starts_with('.') && text.chars().all(is_plain);
    is_name
        .then(|| text.to_owned())
        .ok_or_else(|| "expected up to 64 letters, digits, `.`, `_` and `-`".into())
}

/// A time of more than nothing: seconds, or numbers with units.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds: &f64| seconds.is_finite());
    let time = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|time| Duration::try_from(time).ok()),
    };
    time.filter(|time| !time.is_zero())
        .ok_or_else(|| "expected seconds, or a duration such as `90s`, `5m`, `1h30m`".into())
}

/// A time, which may be nothing.
pub(super) fn time_or_zero(text: &str) -> Result<Duration, String> {
    match text {
        "0" => Ok(Duration::ZERO),
        text => time(text),
    }
}

/// A number of hours, days or weeks.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let hours = |unit: char| match unit {
        'h' => Some(1),
        'd' => Some(24),
        'w' => Some(7 * 24),
        _ => None,
    };
    let split = text.len().saturating_sub(1);
    let parts = text.split_at_checked(split);
    parts
        .and_then(|(count, unit)| {
            let hours: u64 = hours(unit.chars().next()?)?;
            let count: u64 = count.parse().ok()?;
            count.checked_mul(hours)?.checked_mul(3600)
        })
        .map(Duration::from_secs)
        .ok_or_else(|| "expected hours, days or weeks, such as `12h`, `30d`, `8w`".into())
}

pub(super) fn since(text: &str) -> Result<Since, String> {
    let count = |unit: char| -> Option<u16> {
        let count = text.strip_suffix(unit)?.parse().ok();
        count.filter(|count| *count > 0)
    };
    let date = || text.parse().ok().filter(|_| text.len() == 10);
    match text {
        "today" => Some(Since::Days(1)),
        "month" => Some(Since::Month),
        _ => count('d')
            .map(Since::Days)
            .or_else(|| count('h').map(Since::Hours))
            .or_else(|| date().map(Since::Date)),
    }
    .ok_or_else(|| "expected a date such as `2026-11-01`, or `7d`, `12h`, `today`, `month`".into())
}

/// A tool's name or a pattern of names, without the argument that a rule may have.
pub(super) fn tool_name(text: &str) -> Result<String, String> {
    match text.trim() {
        name if name.contains('(') => Err(format!(
            "`{name}` is a rule, which `--deny` takes; expected the name of a tool"
        )),
        name => Ok(name.to_owned()),
    }
}

pub(super) fn prompt_file(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => Err("standard input is read without it, or with `-m -`; expected a file".into()),
        path => Ok(path.into()),
    }
}

pub(super) fn dollars(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("expected an amount in US dollars, such as `0.50`".into()),
    }
}

pub(super) fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=2.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 2".into()),
    }
}
