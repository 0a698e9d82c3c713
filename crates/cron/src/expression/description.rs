//! Describes expressions in words.

use super::{Days, Expression, Weekdays, has_bit, set_bits};
use std::ops::RangeInclusive;

impl Expression {
    /// Describes the expression for users; returns the expression itself if words would be too long.
    pub fn describe(&self) -> String {
        match (self.describe_times(), self.describe_days()) {
            (Some(times), Some(days)) => format!("{times}{days}"),
            _ => self.text.clone(),
        }
    }

    /// Describes the times, as in `at 08:00` or `every 15 minutes`.
    fn describe_times(&self) -> Option<String> {
        let [minute, hour, ..] = &*self.plain_cron;
        let step = |field: &str, count: u32| {
            let step: u32 = match field {
                "*" => 1,
                _ => field.strip_prefix("*/")?.parse().ok()?,
            };
            (count.is_multiple_of(step) && step < count).then_some(step)
        };
        let each = |step, unit: &str| match step {
            1 => format!("every {unit}"),
            _ => format!("every {step} {unit}s"),
        };
        let (minutes, hours) = (set_bits(self.minutes), set_bits(self.hours));
        if self.minutes.count_ones() * self.hours.count_ones() <= 4 {
            let times = hours.flat_map(|hour| {
                set_bits(self.minutes).map(move |minute| format!("{hour:02}:{minute:02}"))
            });
            return Some(format!("at {}", join_with_and(times)));
        }
        if hour == "*" {
            if let Some(step) = step(minute, 60) {
                return Some(each(step, "minute"));
            }
            return match self.minutes.count_ones() {
                1 if has_bit(self.minutes, 0) => Some(each(1, "hour")),
                1 => Some(format!("every hour at minute {}", self.minutes.trailing_zeros())),
                2..=4 => Some(format!(
                    "every hour at minutes {}",
                    join_with_and(minutes.map(|minute| minute.to_string()))
                )),
                _ => None,
            };
        }
        if let (Some(step), 1) = (step(hour, 24), self.minutes.count_ones()) {
            let minute = self.minutes.trailing_zeros();
            return Some(format!("{} from 00:{minute:02} on", each(step, "hour")));
        }
        let hours = contiguous_range(self.hours)?;
        let (first_hour, last_hour) = (hours.start(), hours.end());
        let last_minute = 63 - self.minutes.leading_zeros();
        let first_minute = self.minutes.trailing_zeros();
        let every = match step(minute, 60) {
            Some(step) => each(step, "minute"),
            None if self.minutes.count_ones() == 1 => each(1, "hour"),
            None => return None,
        };
        Some(format!(
            "{every} from {first_hour:02}:{first_minute:02} to {last_hour:02}:{last_minute:02}"
        ))
    }

    /// Describes the days, as in ` on Monday to Friday` or ` on day 1 of each month`.
    fn describe_days(&self) -> Option<String> {
        let [_, _, day, month, weekday] = &*self.plain_cron;
        let months = match &**month {
            "*" => None,
            _ => Some(list_names(self.months, &MONTHS)),
        };
        let month_names = months.as_deref().unwrap_or("each month");
        let each_day = || match (&months, self.describe_times()?.starts_with("at")) {
            (Some(months), true) => Some(format!(" each day in {months}")),
            (Some(months), false) => Some(format!(" in {months}")),
            (None, true) => Some(" each day".into()),
            (None, false) => Some(String::new()),
        };
        match (&**day, &**weekday) {
            ("*", "*") => each_day(),
            (_, "*") => Some(format!(" on {} of {month_names}", self.days.describe()?)),
            ("*", _) => {
                let weekdays = self.weekdays.describe()?;
                match (&months, self.weekdays.plain) {
                    (None, 1..) => Some(format!(" on {weekdays}")),
                    (Some(months), 1..) => Some(format!(" on {weekdays} in {months}")),
                    (_, 0) => Some(format!(" on {weekdays} of {month_names}")),
                }
            }
            _ if self.needs_both_days => None,
            _ if months.is_some() => None,
            _ => {
                let (days, weekdays) = (self.days.describe()?, self.weekdays.describe()?);
                let month = if self.weekdays.plain == 0 { " of each month" } else { "" };
                Some(format!(" on {days} of each month, and on {weekdays}{month}"))
            }
        }
    }
}

impl Days {
    /// Describes the days, as in `day 1` or `the last day`.
    fn describe(&self) -> Option<String> {
        let Self { plain, last, last_working, nearest } = self;
        match (plain, last, last_working, nearest.count_ones()) {
            (0, true, false, 0) => Some("the last day".into()),
            (0, false, true, 0) => Some("the last day from Monday to Friday".into()),
            (0, false, false, 1) => Some(format!(
                "the day from Monday to Friday that is nearest to day {}",
                nearest.trailing_zeros()
            )),
            (days, last, false, 0) => {
                let description = match (days.count_ones(), contiguous_range(*days)) {
                    (1, _) => format!("day {}", days.trailing_zeros()),
                    (_, Some(range)) if range.end() - range.start() > 1 => {
                        format!("days {} to {}", range.start(), range.end())
                    }
                    (2..=6, _) => {
                        format!(
                            "days {}",
                            join_with_and(set_bits(*days).map(|day| day.to_string()))
                        )
                    }
                    _ => return None,
                };
                Some(if *last { format!("{description} and the last day") } else { description })
            }
            _ => None,
        }
    }
}

impl Weekdays {
    /// Describes the weekdays, as in `Monday to Friday` or `the second Friday`.
    fn describe(&self) -> Option<String> {
        const ORDINALS: [&str; 6] = ["", "first", "second", "third", "fourth", "fifth"];
        let numbered: Vec<(usize, u64)> =
            (self.numbered.iter().copied().enumerate()).filter(|(_, days)| *days != 0).collect();
        let weekday = |days| list_names(days, &WEEKDAYS);
        match (self.plain, &*numbered, self.last) {
            (days, [], 0) => Some(weekday(days)),
            (0, [(number, days)], 0) if days.count_ones() == 1 => {
                Some(format!("the {} {}", ORDINALS[*number], weekday(*days)))
            }
            (0, [], days) if days.count_ones() == 1 => Some(format!("the last {}", weekday(days))),
            _ => None,
        }
    }
}

const MONTHS: [&str; 13] = [
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Lists the names of the set bits, as in `Monday to Friday` or `January and July`.
fn list_names(bits: u64, names: &[&str]) -> String {
    match contiguous_range(bits) {
        Some(range) if range.end() - range.start() > 1 => {
            format!("{} to {}", names[*range.start() as usize], names[*range.end() as usize])
        }
        _ => join_with_and(set_bits(bits).map(|bit| names[bit as usize].to_owned())),
    }
}

/// Returns the range of the set bits, if they are contiguous.
fn contiguous_range(bits: u64) -> Option<RangeInclusive<u32>> {
    let (first, last) = (bits.trailing_zeros(), 63 - bits.leading_zeros());
    (bits.count_ones() == last - first + 1).then_some(first..=last)
}

/// Joins phrases as `a, b and c`.
fn join_with_and(phrases: impl Iterator<Item = String>) -> String {
    let mut phrases: Vec<String> = phrases.collect();
    match phrases.pop() {
        Some(last) if phrases.is_empty() => last,
        Some(last) => format!("{} and {last}", phrases.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::Expression;

    #[test]
    fn descriptions() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Expression::parse(text).unwrap().describe(), expect, "{text}");
        };
        check("0 8 * * 1-5", "at 08:00 on Monday to Friday");
        check("*/15 * * * *", "every 15 minutes");
        check("* * * * *", "every minute");
        check("30 2 1 * *", "at 02:30 on day 1 of each month");
        check("@hourly", "every hour");
        check("@daily", "at 00:00 each day");
        check("@weekly", "at 00:00 on Sunday");
        check("@yearly", "at 00:00 on day 1 of January");
        check("5 * * * *", "every hour at minute 5");
        check("5,35 * * * 6,0", "every hour at minutes 5 and 35 on Sunday and Saturday");
        check("0,30 8,17 * * *", "at 08:00, 08:30, 17:00 and 17:30 each day");
        check("15 */2 * * *", "every 2 hours from 00:15 on");
        check("*/10 9-17 * * MON-FRI", "every 10 minutes from 09:00 to 17:50 on Monday to Friday");
        check("0 9-17 * 1 *", "every hour from 09:00 to 17:00 in January");
        check("0 0 1,15 6-8 *", "at 00:00 on days 1 and 15 of June to August");
        check("0 0 L * *", "at 00:00 on the last day of each month");
        check("0 0 LW * *", "at 00:00 on the last day from Monday to Friday of each month");
        check(
            "0 0 15W * *",
            "at 00:00 on the day from Monday to Friday that is nearest to day 15 of each month",
        );
        check("0 9 * * 5#2", "at 09:00 on the second Friday of each month");
        check("0 9 * 3 L5", "at 09:00 on the last Friday of March");
        check("0 9 13 * 5", "at 09:00 on day 13 of each month, and on Friday");
        check("0 9 24 12 *", "at 09:00 on day 24 of December");
        // The expression itself, if words would be wrong or too long.
        check("7-52/9 * * * *", "7-52/9 * * * *");
        check("*/7 * * * *", "*/7 * * * *");
        check("0 9 */2 * 1", "0 9 */2 * 1");
        check("0 1,4,9,16,22 * * *", "0 1,4,9,16,22 * * *");
        check("0 9 13 2 5", "0 9 13 2 5");
    }
}
