//! Converts an expression to systemd's calendar format.

use super::{Expression, days_around, has_bit, set_bits};
use std::ops::RangeInclusive;

const EVERY_DAY: u64 = 0xffff_fffe;
const EVERY_WEEKDAY: u64 = 0x7f;
/// Monday to Friday as bits; Sunday is bit 0.
const WORKING_DAYS: u64 = 0b011_1110;

/// A set of days, limited by day of the month and by weekday.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DayFilter {
    days: MonthDays,
    weekdays: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MonthDays {
    /// One bit per day.
    Plain(u64),
    /// The last days of the month, by count.
    Last(u32),
}

impl Expression {
    /// Returns lines for systemd's `OnCalendar`, without a time zone, that cover all minutes of the expression.
    /// Together they may cover more: days that systemd cannot express, and minutes that a clock shows twice.
    pub(crate) fn to_systemd_calendar(&self) -> Vec<String> {
        let time = format!(
            "{}:{}:00",
            format_values(self.hours, 0..=23),
            format_values(self.minutes, 0..=59)
        );
        let months = format_values(self.months, 1..=12);
        let days = self.days.day_filters();
        let weekdays = self.weekdays.day_filters();
        let mut day_filters: Vec<DayFilter> = if self.needs_both_days {
            days.iter()
                .flat_map(|day| weekdays.iter().filter_map(|weekday| day.intersect(*weekday)))
                .collect()
        } else {
            days.into_iter().chain(weekdays).collect()
        };
        let all = DayFilter { days: MonthDays::Plain(EVERY_DAY), weekdays: EVERY_WEEKDAY };
        if day_filters.contains(&all) {
            day_filters = vec![all];
        }
        let mut lines: Vec<String> = Vec::new();
        for DayFilter { days, weekdays } in day_filters {
            let days = match days {
                MonthDays::Plain(days) => format!("-{}", format_values(days, 1..=31)),
                MonthDays::Last(1) => "~01".into(),
                MonthDays::Last(days) => format!("~{days:02}/1"),
            };
            let weekdays = match weekdays {
                EVERY_WEEKDAY => String::new(),
                weekdays => format!("{} ", format_weekdays(weekdays)),
            };
            let line = format!("{weekdays}*-{months}{days} {time}");
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

impl super::Days {
    fn day_filters(&self) -> Vec<DayFilter> {
        let Self { plain, last, last_working, nearest } = self;
        let mut day_filters = Vec::new();
        let mut add = |days, weekdays| day_filters.push(DayFilter { days, weekdays });
        if *plain != 0 {
            add(MonthDays::Plain(*plain), EVERY_WEEKDAY);
        }
        if *last {
            add(MonthDays::Last(1), EVERY_WEEKDAY);
        }
        if *last_working {
            // The last working day is one of the last three days.
            add(MonthDays::Last(3), WORKING_DAYS);
        }
        for day in set_bits(*nearest) {
            add(MonthDays::Plain(bits_in(days_around(day))), WORKING_DAYS);
        }
        day_filters
    }
}

impl super::Weekdays {
    fn day_filters(&self) -> Vec<DayFilter> {
        let Self { plain, numbered, last } = self;
        let mut day_filters = Vec::new();
        let mut add = |days, weekdays| {
            if weekdays != 0 {
                day_filters.push(DayFilter { days, weekdays });
            }
        };
        add(MonthDays::Plain(EVERY_DAY), *plain);
        for (number, weekdays) in (1..).zip(&numbered[1..]) {
            let week = number * 7 - 6..=(number * 7).min(31);
            add(MonthDays::Plain(bits_in(week)), *weekdays);
        }
        add(MonthDays::Last(7), *last);
        day_filters
    }
}

impl DayFilter {
    /// Returns the intersection; `None` if it is empty.
    fn intersect(self, other: Self) -> Option<Self> {
        let days = match (self.days, other.days) {
            (MonthDays::Plain(days), MonthDays::Plain(others)) => MonthDays::Plain(days & others),
            (MonthDays::Last(days), MonthDays::Last(others)) => MonthDays::Last(days.min(others)),
            (MonthDays::Plain(EVERY_DAY), last @ MonthDays::Last(_))
            | (last @ MonthDays::Last(_), MonthDays::Plain(EVERY_DAY)) => last,
            // No line can express both, so this uses all days that can be the last ones in some month.
            (MonthDays::Plain(days), MonthDays::Last(last))
            | (MonthDays::Last(last), MonthDays::Plain(days)) => {
                MonthDays::Plain(days & bits_in(29 - last..=31))
            }
        };
        let weekdays = self.weekdays & other.weekdays;
        (days != MonthDays::Plain(0) && weekdays != 0).then_some(Self { days, weekdays })
    }
}

fn bits_in(range: RangeInclusive<u32>) -> u64 {
    range.fold(0, |all, bit| all | 1 << bit)
}

/// Formats the values of a field, as in `*`, `00..45/15`, `09..17`, `01,15`.
pub(crate) fn format_values(set: u64, range: RangeInclusive<u32>) -> String {
    if set_bits(set).eq(range.clone()) {
        return "*".into();
    }
    let values: Vec<u32> = set_bits(set).filter(|bit| range.contains(bit)).collect();
    if let [first, second, .., last] = values[..] {
        let step = second - first;
        let is_even = values.windows(2).all(|pair| pair[1] - pair[0] == step);
        // Without an end, `00/9` also covers hour 27, and systemd's search fails there when a clock is changed.
        if is_even && step > 1 {
            return format!("{first:02}..{last:02}/{step}");
        }
    }
    format_runs(&values, |value| format!("{value:02}"))
}

fn format_weekdays(weekdays: u64) -> String {
    const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    let days: Vec<u32> = (0..7).filter(|day| has_bit(weekdays, (day + 1) % 7)).collect();
    format_runs(&days, |day| NAMES[day as usize].into())
}

/// Formats ascending values; three or more consecutive values become a range.
fn format_runs(values: &[u32], name: impl Fn(u32) -> String) -> String {
    let runs = values.chunk_by(|value, next| value + 1 == *next);
    let items = runs.map(|run| match run {
        [first, _, .., last] if run.len() > 2 => format!("{}..{}", name(*first), name(*last)),
        _ => run.iter().map(|value| name(*value)).collect::<Vec<_>>().join(","),
    });
    items.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::Expression;

    #[test]
    fn expressions_convert_to_systemd_calendar() {
        let check = |text: &str, expect: &[&str]| {
            assert_eq!(Expression::parse(text).unwrap().to_systemd_calendar(), expect, "{text}");
        };
        check("0 8 * * 1-5", &["Mon..Fri *-*-* 08:00:00"]);
        check("*/15 * * * *", &["*-*-* *:00..45/15:00"]);
        check("* * * * *", &["*-*-* *:*:00"]);
        check("5,35 9-17 * jan,JUL 0,6", &["Sat,Sun *-01,07-* 09..17:05,35:00"]);
        check("7-52/9 */2 1-7,15 * *", &["*-*-01..07,15 00..22/2:07..52/9:00"]);
        check("1-40/9 * * * *", &["*-*-* *:01..37/9:00"]);
        check("@weekly", &["Sun *-*-* 00:00:00"]);
        // Either field suffices if both are restricted; both must match if one begins with a star.
        check("0 9 13 * 5", &["*-*-13 09:00:00", "Fri *-*-* 09:00:00"]);
        check("0 9 */2 * 1", &["Mon *-*-01..31/2 09:00:00"]);
        check("0 9 1-31 * 1", &["*-*-* 09:00:00"]);
        check("0 9 ? * 1-7", &["*-*-* 09:00:00"]);
        // Days that cron itself cannot express.
        check("0 0 L * *", &["*-*~01 00:00:00"]);
        check("0 0 1,L 2 *", &["*-02-01 00:00:00", "*-02~01 00:00:00"]);
        check("0 0 LW * *", &["Mon..Fri *-*~03/1 00:00:00"]);
        check("0 0 15W * *", &["Mon..Fri *-*-13..17 00:00:00"]);
        check("0 0 1W,31W * *", &["Mon..Fri *-*-01..03 00:00:00", "Mon..Fri *-*-26..31 00:00:00"]);
        check("0 9 * * 5#2", &["Fri *-*-08..14 09:00:00"]);
        check("0 9 * * 1#5,L5", &["Mon *-*-29..31 09:00:00", "Fri *-*~07/1 09:00:00"]);
        check("0 9 */9,L * 5L", &["Fri *-*-28 09:00:00", "Fri *-*~01 09:00:00"]);
        check("0 9 L * L5", &["*-*~01 09:00:00", "Fri *-*~07/1 09:00:00"]);
    }
}
