//! Numbers, paths, lists and time spans as text. No I/O.

use std::path::Path;
use std::time::Duration;

/// Formats a path on one line: control characters, such as a line break in a name, are escaped.
pub fn on_one_line(path: &Path) -> String {
    let text = path.display().to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// The first `max` of `items` as a list, and the number of the others: `a, b and 2 more`.
pub fn list_first(items: &[String], max: usize) -> String {
    let (first, others) = items.split_at(items.len().min(max));
    let first = first.join(", ");
    match others.len() {
        0 => first,
        count => format!("{first} and {count} more"),
    }
}

/// Formats an amount of US dollars with two decimals; four below $0.995, six below $0.001.
pub fn format_dollars(usd: f64) -> String {
    match usd {
        usd if usd == 0.0 || usd >= 0.995 => format!("{usd:.2}"),
        usd if usd >= 0.001 => format!("{usd:.4}"),
        usd => format!("{usd:.6}"),
    }
}

/// Parses a time span: numbers with the units `s`, `m`, `h`, `d`, `w` and `y`, such as `1h30m`; a number alone is in seconds.
/// `None` for other text, and for a number that is too large.
pub fn parse_time_span(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let mut seconds = 0_u64;
    for (number, unit) in parse_parts(text)? {
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
    }
    Some(Duration::from_secs(seconds))
}

/// The smallest unit in a time span, such as an hour for `1d12h`. `None` for other text, and for a number alone.
pub fn smallest_unit(text: &str) -> Option<Duration> {
    let units = parse_parts(text.trim())?.into_iter().map(|(_, unit)| unit);
    units.min().map(Duration::from_secs)
}

/// The numbers of a time span, each with its unit in seconds.
fn parse_parts(text: &str) -> Option<Vec<(u64, u64)>> {
    let mut rest = text;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let unit_length = tail.find(|character: char| !character.is_ascii_alphabetic());
        let (unit, tail) = tail.split_at(unit_length.unwrap_or(tail.len()));
        let unit: u64 = match &*unit.to_ascii_lowercase() {
            "s" | "sec" | "secs" | "second" | "seconds" => 1,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 604_800,
            "y" | "year" | "years" => 365 * 86_400,
            _ => return None,
        };
        parts.push((number.parse().ok()?, unit));
        rest = tail.trim_start();
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::parse_time_span;
    use std::time::Duration;

    #[test]
    fn time_spans() {
        let check = |text: &str, seconds: Option<u64>| {
            assert_eq!(parse_time_span(text), seconds.map(Duration::from_secs), "{text}");
        };
        check("90", Some(90));
        check("1m", Some(60));
        check("1h30m", Some(5400));
        check(" 1h 30 min ", Some(5400));
        check("2 Days", Some(172_800));
        check("8w", Some(8 * 604_800));
        check("2y", Some(730 * 86_400));
        check("0d", Some(0));
        for text in ["", "m", "1h30", "-5m", "1.5h", "5 fortnights", "1M5", "99999999999999999w"] {
            check(text, None);
        }
    }
}
