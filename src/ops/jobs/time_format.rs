//! Times and durations as readable text. No I/O.

use jiff::{SignedDuration, Timestamp, Zoned};

/// A local time to the minute: `Mon 23 Nov 08:00`, with the year if it is not the current one.
pub(crate) fn format_time(time: Timestamp, now: &Zoned) -> String {
    let local = time.to_zoned(now.time_zone().clone());
    let format = if local.year() == now.year() { "%a %-d %b %H:%M" } else { "%a %-d %b %Y %H:%M" };
    local.strftime(format).to_string()
}

/// A list of times, with the duration until the first.
pub(crate) fn format_times(times: &[Timestamp], now: &Zoned) -> String {
    let mut texts: Vec<String> = times.iter().map(|time| format_time(*time, now)).collect();
    if let (Some(text), Some(time)) = (texts.first_mut(), times.first()) {
        text.push_str(&format!(" ({})", format_time_until(*time, now.timestamp())));
    }
    texts.join(", ")
}

/// The duration until a time, to the minute like cron: `in 1 day 12 h`.
pub(crate) fn format_time_until(time: Timestamp, now: Timestamp) -> String {
    match time.duration_since(now).as_secs() {
        ..=0 => "now".into(),
        seconds @ 1..60 => format!("in {seconds} s"),
        seconds => format!("in {}", format_duration(SignedDuration::from_mins(seconds / 60))),
    }
}

/// A duration in its two largest units: `1 day 12 h`.
pub(crate) fn format_duration(time: SignedDuration) -> String {
    let seconds = time.as_secs();
    if seconds < 1 {
        return "less than 1 s".into();
    }
    let days = seconds / 86_400;
    let parts = [
        (days, if days == 1 { "day" } else { "days" }),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let texts = parts
        .iter()
        .skip_while(|(count, _)| *count == 0)
        .take(2)
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count} {unit}"));
    texts.collect::<Vec<_>>().join(" ")
}

/// A number of jobs as text: `1 job`, `2 jobs`.
pub(crate) fn count_jobs(jobs: usize) -> String {
    match jobs {
        1 => "1 job".into(),
        jobs => format!("{jobs} jobs"),
    }
}

/// `text` on one line.
pub(crate) fn to_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{format_duration, format_time_until, format_times, to_one_line};
    use jiff::{SignedDuration, Timestamp, Zoned};

    #[test]
    fn durations_have_at_most_two_units() {
        let check = |seconds: i64, expect: &str| {
            assert_eq!(format_duration(SignedDuration::from_secs(seconds)), expect);
        };
        check(0, "less than 1 s");
        check(59, "59 s");
        check(60, "1 min");
        check(90, "1 min 30 s");
        check(3600, "1 h");
        check(5400, "1 h 30 min");
        check(86_400, "1 day");
        check(86_400 + 12 * 3600 + 59, "1 day 12 h");
        check(86_400 + 60, "1 day");
        check(40 * 86_400 + 3600, "40 days 1 h");
    }

    #[test]
    fn formats_local_times() {
        let now: Zoned = "2026-11-21T20:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        let times = [time("2026-11-23T07:00:00Z"), time("2027-01-01T00:00:05Z")];
        assert_eq!(
            format_times(&times, &now),
            "Mon 23 Nov 08:00 (in 1 day 12 h), Fri 1 Jan 2027 01:00"
        );
        let before = |seconds: i64| now.timestamp() - SignedDuration::from_secs(seconds);
        let check = |seconds: i64, expect: &str| {
            assert_eq!(format_time_until(now.timestamp(), before(seconds)), expect, "{seconds}");
        };
        check(0, "now");
        check(59, "in 59 s");
        check(119, "in 1 min");
        check(3659, "in 1 h");
        assert_eq!(to_one_line(" a\n\tb "), "a b");
    }
}
