//! Parses cron expressions: items, their portable form, and error messages.

use super::{Days, Expression, Weekdays, days_around, set_bits};
use jiff::civil::Date;
use std::ops::RangeInclusive;

/// A field's name and its values.
struct CronField {
    name: &'static str,
    values: RangeInclusive<u32>,
    names: &'static [&'static str],
}

const DAY_FIELD: usize = 2;
const WEEKDAY_FIELD: usize = 4;

const FIELDS: [CronField; 5] = [
    CronField { name: "minute", values: 0..=59, names: &[] },
    CronField { name: "hour", values: 0..=23, names: &[] },
    CronField { name: "day of the month", values: 1..=31, names: &[] },
    CronField {
        name: "month",
        values: 1..=12,
        names: &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
    },
    // 7 is Sunday too.
    CronField {
        name: "weekday",
        values: 0..=6,
        names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    },
];

const ALIASES: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// The last part of every error message.
const SYNTAX_HINT: &str = "minute, hour, day of the month, month and weekday, as in `0 8 * * 1-5`";
/// Maximum characters of a field's plain form before it is rewritten; cron limits the length of lines.
const MAX_FIELD_CHARS: usize = 100;
/// Maximum length of an expression.
const MAX_EXPRESSION_CHARS: usize = 200;

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// A message that explains the mistake and shows a correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(format!("a cron expression has five fields: {SYNTAX_HINT}"));
        }
        if text.len() > MAX_EXPRESSION_CHARS {
            return Err(format!(
                "a cron expression has at most {MAX_EXPRESSION_CHARS} characters: {SYNTAX_HINT}"
            ));
        }
        if !text.is_ascii()
            || text.contains(|letter: char| letter.is_ascii_control() && letter != '\t')
        {
            return Err(format!(
                "`{}` has characters that are invalid in a cron expression: {SYNTAX_HINT}",
                text.escape_debug()
            ));
        }
        let plain = if text.starts_with('@') { expand_alias(text)? } else { text };
        let fields: Vec<&str> = plain.split_ascii_whitespace().collect();
        let fields: [&str; 5] =
            fields.try_into().map_err(|fields: Vec<&str>| field_count_error(text, &fields))?;

        let mut parsed = fields.map(|_| ParsedField::default());
        for (index, (field, parsed_field)) in fields.iter().zip(&mut parsed).enumerate() {
            *parsed_field = ParsedField::parse_list(index, field)
                .map_err(|cause| format!("`{text}`: {cause}"))?;
        }
        let has_star = |parsed_field: &ParsedField| parsed_field.plain_cron.starts_with('*');
        let [minute, hour, day, month, weekday] = &parsed;
        let expression = Self {
            needs_both_days: has_star(day) || has_star(weekday),
            is_time_of_day: !has_star(minute) && !has_star(hour),
            is_exact: parsed.iter().all(|parsed_field| parsed_field.is_exact),
            minutes: minute.plain,
            hours: hour.plain,
            months: month.plain,
            days: Days { plain: day.plain, ..day.days.clone() },
            weekdays: Weekdays { plain: weekday.plain, ..weekday.weekdays.clone() },
            plain_cron: Box::new(parsed.map(|parsed_field| parsed_field.plain_cron)),
            text: text.into(),
        };
        // The calendar repeats, so any start will do.
        let start = Date::constant(2000, 1, 1).at(0, 0, 0, 0);
        match expression.first_from(start) {
            Some(_) => Ok(expression),
            None => Err(format!("`{text}` never matches: none of its months has such a day")),
        }
    }
}

/// The result of parsing a field, or one item of its list.
#[derive(Default)]
struct ParsedField {
    plain: u64,
    days: Days,
    weekdays: Weekdays,
    plain_cron: String,
    /// The values that the plain form matches.
    plain_cron_values: u64,
    is_exact: bool,
}

impl ParsedField {
    /// Parses the list `text` of the field with this index.
    fn parse_list(field_index: usize, text: &str) -> Result<Self, String> {
        let mut whole = Self { is_exact: true, ..Self::default() };
        for item in text.split(',') {
            let item = Self::parse_item(field_index, item, item == text)?;
            whole.plain |= item.plain;
            whole.days.last |= item.days.last;
            whole.days.last_working |= item.days.last_working;
            whole.days.nearest |= item.days.nearest;
            whole.weekdays.last |= item.weekdays.last;
            for (weekdays, item_weekdays) in
                whole.weekdays.numbered.iter_mut().zip(item.weekdays.numbered)
            {
                *weekdays |= item_weekdays;
            }
            whole.is_exact &= item.is_exact;
            whole.plain_cron_values |= item.plain_cron_values;
            if !whole.plain_cron.is_empty() {
                whole.plain_cron.push(',');
            }
            whole.plain_cron.push_str(&item.plain_cron);
        }
        // Expanded wrap-around ranges may repeat many times.
        if whole.plain_cron.len() > MAX_FIELD_CHARS {
            let first = whole.plain_cron.split(',').next().unwrap_or_default();
            whole.plain_cron = if first.starts_with('*') {
                format!("{first},{}", format_values(set_bits(whole.plain_cron_values)))
            } else {
                format_values(set_bits(whole.plain_cron_values))
            };
        }
        Ok(whole)
    }

    /// Parses one item of a list; `is_only` if the list has no other items.
    fn parse_item(field_index: usize, text: &str, is_only: bool) -> Result<Self, String> {
        let field = &FIELDS[field_index];
        let upper = text.to_ascii_uppercase();
        let (low, high) = field.values.clone().into_inner();
        if text == "?" {
            return if is_only && (field_index == DAY_FIELD || field_index == WEEKDAY_FIELD) {
                Ok(Self::from_values(low..=high, "*".into()))
            } else {
                Err("`?` must stand alone, as the day of the month or the weekday".into())
            };
        }
        let extension = match field_index {
            DAY_FIELD => Self::parse_day(&upper)?,
            WEEKDAY_FIELD => Self::parse_weekday(&upper)?,
            _ => None,
        };
        if let Some(parsed_field) = extension {
            return Ok(parsed_field);
        }
        if matches!(upper.split(['(', '/']).next(), Some("H" | "R")) {
            return Err(format!(
                "`{text}` is a random {}, which is not supported; give one from {low} to {high}",
                field.name
            ));
        }
        let (range, step) = match upper.split_once('/') {
            Some((range, step)) => (range, Some(field.parse_step(step, range)?)),
            None => (&*upper, None),
        };
        let step_size = step.unwrap_or(1) as usize;
        if range == "*" {
            return Ok(Self::from_values((low..=high).step_by(step_size), text.into()));
        }
        let (first, last) = match range.split_once('-') {
            Some((first, "L")) if field_index == DAY_FIELD => (field.parse_value(first)?, 31),
            Some((first, last)) => (field.parse_value(first)?, field.parse_value(last)?),
            None if step.is_some() => {
                // `5/15` means from 5 to the end of the field.
                let first = normalize_sunday(field_index, field.parse_value(range)?);
                let spelling = format!("{first}-{high}/{step_size}");
                return Ok(Self::from_values((first..=high).step_by(step_size), spelling));
            }
            None => {
                let value = field.parse_value(range)?;
                return Ok(Self::from_values([normalize_sunday(field_index, value)], text.into()));
            }
        };
        let is_plain = first <= last && last <= high && !range.ends_with('L');
        // Sunday is 7 at the end of a range and 0 at its start.
        let (first, last) = match (first, last) {
            (7, 7) if field_index == WEEKDAY_FIELD => (0, 0),
            (0, 7) if field_index == WEEKDAY_FIELD => (0, 6),
            (first, last) => {
                (normalize_sunday(field_index, first), normalize_sunday(field_index, last))
            }
        };
        // A range from a day to itself is that one day, as in cron; croniter takes it for all days.
        let values: Vec<u32> = if first <= last {
            (first..=last).step_by(step_size).collect()
        } else {
            (first..=high).chain(low..=last).step_by(step_size).collect()
        };
        let spelling = if is_plain { text.into() } else { format_values(values.iter().copied()) };
        Ok(Self::from_values(values, spelling))
    }

    fn from_values(values: impl IntoIterator<Item = u32>, plain_cron: String) -> Self {
        let plain = values.into_iter().fold(0, |all, value| all | 1 << value);
        Self { plain, plain_cron_values: plain, plain_cron, is_exact: true, ..Self::default() }
    }

    /// Represents days that a crontab cannot express. Their plain form is `range`, which contains them.
    fn from_range(range: RangeInclusive<u32>, days: Days, weekdays: Weekdays) -> Self {
        Self {
            plain_cron: format!("{}-{}", range.start(), range.end()),
            plain_cron_values: range.fold(0, |all, value| all | 1 << value),
            days,
            weekdays,
            ..Self::default()
        }
    }

    /// Parses `L`, `LW` and `15W`.
    fn parse_day(text: &str) -> Result<Option<Self>, String> {
        let days = Days::default();
        let (range, days) = match text {
            "L" => (28..=31, Days { last: true, ..days }),
            "LW" | "WL" => (26..=31, Days { last_working: true, ..days }),
            _ => {
                let Some(day) = text.strip_suffix('W').or(text.strip_prefix('W')) else {
                    return Ok(None);
                };
                let day = FIELDS[DAY_FIELD].parse_value(day)?;
                (days_around(day), Days { nearest: 1 << day, ..days })
            }
        };
        Ok(Some(Self::from_range(range, days, Weekdays::default())))
    }

    /// Parses `5#2`, `L5` and `5L`.
    fn parse_weekday(text: &str) -> Result<Option<Self>, String> {
        let field = &FIELDS[WEEKDAY_FIELD];
        let parse_value =
            |text| field.parse_value(text).map(|value| normalize_sunday(WEEKDAY_FIELD, value));
        let mut weekdays = Weekdays::default();
        let day = if let Some((day, number)) = text.split_once('#') {
            let day = parse_value(day)?;
            match number.parse::<usize>() {
                Ok(number @ 1..=5) => weekdays.numbered[number] = 1 << day,
                _ => {
                    return Err(format!(
                        "`{text}` is invalid: `#` is followed by a number from 1 to 5, as in `5#2`, the second Friday"
                    ));
                }
            }
            day
        } else if text == "L" {
            return Err("`L` needs a weekday, as in `L5`, the last Friday of the month".into());
        } else if let Some(day) = text.strip_prefix('L').or(text.strip_suffix('L')) {
            let day = parse_value(day)?;
            weekdays.last = 1 << day;
            day
        } else {
            return Ok(None);
        };
        let parsed_field = Self::from_range(day..=day, Days::default(), weekdays);
        Ok(Some(Self { plain_cron: day.to_string(), ..parsed_field }))
    }
}

impl CronField {
    fn parse_value(&self, text: &str) -> Result<u32, String> {
        let (low, high) = self.values.clone().into_inner();
        if let Some(index) = self.names.iter().position(|name| *name == text) {
            return Ok(low + index as u32);
        }
        // The weekday 7 is Sunday, as is 0.
        let high = if self.names.len() == 7 { 7 } else { high };
        let names = match (self.names.first(), self.names.last()) {
            (Some(first), Some(last)) => format!(", or `{first}` to `{last}`"),
            _ => String::new(),
        };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(value) if is_number && (low..=high).contains(&value) => Ok(value),
            _ => Err(format!("`{text}` is not a valid {}: {low} to {high}{names}", self.name)),
        }
    }

    fn parse_step(&self, text: &str, range: &str) -> Result<u32, String> {
        let (low, high) = self.values.clone().into_inner();
        let max_step = high - low + 1;
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(step) if is_number && (1..=max_step).contains(&step) => Ok(step),
            Ok(step)
                if is_number && step > max_step && range == "*" && low == 0 && max_step > 7 =>
            {
                let unit = if max_step == 60 { "m" } else { "h" };
                Err(format!(
                    "`*/{step}` restarts whenever the {} is 0; use `--every {step}{unit}` instead of a cron expression",
                    self.name
                ))
            }
            _ => Err(format!(
                "`{text}` is not a valid step for a {}: 1 to {max_step}, as in `*/{}`",
                self.name,
                max_step.min(5)
            )),
        }
    }
}

/// Maps weekday 7 to 0; both are Sunday.
fn normalize_sunday(field_index: usize, value: u32) -> u32 {
    if field_index == WEEKDAY_FIELD { value % 7 } else { value }
}

/// Formats values as a list; three or more consecutive values become a range.
fn format_values(values: impl Iterator<Item = u32>) -> String {
    let values: Vec<u32> = values.collect();
    let runs = values.chunk_by(|value, next| value + 1 == *next);
    let items: Vec<String> = runs
        .flat_map(|run| match run {
            [first, _, .., last] => vec![format!("{first}-{last}")],
            few => few.iter().map(u32::to_string).collect(),
        })
        .collect();
    items.join(",")
}

/// Returns the expression of an alias.
fn expand_alias(text: &str) -> Result<&'static str, String> {
    let alias = ALIASES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    if let Some((_, expression)) = alias {
        return Ok(expression);
    }
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    Err(match &*word.to_ascii_lowercase() {
        "@reboot" => {
            "`@reboot` is not supported: jobs run at set times; to run a command at boot, add a line to your own crontab".into()
        }
        "@every" => format!(
            "`{text}` is not a cron expression: use `--every {}`",
            text[word.len()..].trim()
        ),
        _ => {
            let names: Vec<&str> = ALIASES.iter().map(|(name, _)| *name).collect();
            format!("`{text}` is not a known alias: {}", names.join(", "))
        }
    })
}

/// Explains an expression that does not have five fields.
fn field_count_error(text: &str, fields: &[&str]) -> String {
    let count = match fields.len() {
        1 => "one field",
        2 => "two fields",
        3 => "three fields",
        4 => "four fields",
        6 => "six fields",
        7 => "seven fields",
        _ => "too many fields",
    };
    if fields.len() < 5 {
        return format!("`{text}` has {count}; cron has five: {SYNTAX_HINT}");
    }
    // Some programs put seconds first, others last; a year comes last.
    let middle = &fields[1..fields.len().min(6)];
    let candidates = match fields {
        [_, _, _, _, _, "0" | "00"] if !matches!(fields[0], "0" | "00") => [&fields[..5], middle],
        _ => [middle, &fields[..5]],
    };
    let suggestion = candidates
        .iter()
        .filter(|fields| fields.len() == 5)
        .map(|fields| fields.join(" "))
        .find(|text| Expression::parse(text).is_ok());
    let years = if fields.len() == 7 { " and no years" } else { "" };
    format!(
        "`{text}` has {count}; cron has five, and no seconds{years}: `{}`",
        suggestion.as_deref().unwrap_or("0 8 * * 1-5")
    )
}

#[cfg(test)]
mod tests {
    use crate::expression::Expression;

    #[test]
    fn plain_cron_of_expressions() {
        let check = |text: &str, expect: &str| {
            let read = Expression::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read.as_plain_cron().join(" "), expect, "{text}");
            assert_eq!(read.text(), text.trim());
        };
        // Unchanged wherever cron accepts the spelling.
        check("*/15 9-17 * jan,JUL Mon-fri", "*/15 9-17 * jan,JUL Mon-fri");
        check(" 05  8\t1,15 */3 7 ", "05 8 1,15 */3 7");
        check("1-59/2 * * * *", "1-59/2 * * * *");
        check("@daily", "0 0 * * *");
        check("@Weekly", "0 0 * * 0");
        // Wrap-around ranges, Sunday at the end of a week, and steps from a start without an end.
        check("0 22-2 * * *", "0 22,23,0-2 * * *");
        check("0 22-3/2 * * *", "0 22,0,2 * * *");
        check("0 0 * 11-2 FRI-MON", "0 0 * 11,12,1,2 5,6,0,1");
        check("0 0 * * 5-7", "0 0 * * 5,6,0");
        check("0 0 * * 0-7", "0 0 * * 0-6");
        check("0 0 * * 1-7/2", "0 0 * * 1,3,5,0");
        let wrapped = ["22-2"; 15].join(",");
        check(&format!("0 {wrapped} * * *"), "0 0-2,22,23 * * *");
        let steps = ["*/30", &["50-10"; 15].join(",")].join(",");
        check(&format!("{steps} * * * *"), "*/30,0-10,30,50-59 * * * *");
        check("5/15 3/7 20/5 * 4/2", "5-59/15 3-23/7 20-31/5 * 4-6/2");
        check("0 0 ? * ?", "0 0 * * *");
        // Days that cron cannot express become the range that contains them.
        check("0 0 L * *", "0 0 28-31 * *");
        check("0 0 1,L * *", "0 0 1,28-31 * *");
        check("0 0 */9,L * 1", "0 0 */9,28-31 * 1");
        check("0 0 LW * *", "0 0 26-31 * *");
        check("0 0 15W * *", "0 0 13-17 * *");
        check("0 0 1w * *", "0 0 1-3 * *");
        check("0 0 w30 * *", "0 0 26-31 * *");
        check("0 0 * * 5#2,L1,fri#4,0L", "0 0 * * 5,1,5,0");
    }

    #[test]
    fn errors_show_the_correct_form() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Expression::parse(text).unwrap_err(), expect, "{text}");
        };
        check(
            "0 0 8 * * 1-5",
            "`0 0 8 * * 1-5` has six fields; cron has five, and no seconds: `0 8 * * 1-5`",
        );
        check(
            "30 8 * * 1-5 0",
            "`30 8 * * 1-5 0` has six fields; cron has five, and no seconds: `30 8 * * 1-5`",
        );
        check(
            "0 0 8 * * ? 2030",
            "`0 0 8 * * ? 2030` has seven fields; cron has five, and no seconds and no years: `0 8 * * ?`",
        );
        check(
            "0 8 * *",
            "`0 8 * *` has four fields; cron has five: minute, hour, day of the month, month and weekday, as in `0 8 * * 1-5`",
        );
        check(
            "",
            "a cron expression has five fields: minute, hour, day of the month, month and weekday, as in `0 8 * * 1-5`",
        );
        check("60 * * * *", "`60 * * * *`: `60` is not a valid minute: 0 to 59");
        check("0 24 * * *", "`0 24 * * *`: `24` is not a valid hour: 0 to 23");
        check("0 0 0 * *", "`0 0 0 * *`: `0` is not a valid day of the month: 1 to 31");
        check("0 0 * 13 *", "`0 0 * 13 *`: `13` is not a valid month: 1 to 12, or `JAN` to `DEC`");
        check("0 0 * * 8", "`0 0 * * 8`: `8` is not a valid weekday: 0 to 7, or `SUN` to `SAT`");
        check(
            "0 0 * * monday",
            "`0 0 * * monday`: `MONDAY` is not a valid weekday: 0 to 7, or `SUN` to `SAT`",
        );
        check("+1 * * * *", "`+1 * * * *`: `+1` is not a valid minute: 0 to 59");
        check("1,,2 * * * *", "`1,,2 * * * *`: `` is not a valid minute: 0 to 59");
        check(
            "*/0 * * * *",
            "`*/0 * * * *`: `0` is not a valid step for a minute: 1 to 60, as in `*/5`",
        );
        check(
            "*/90 * * * *",
            "`*/90 * * * *`: `*/90` restarts whenever the minute is 0; use `--every 90m` instead of a cron expression",
        );
        check("0 0 31 2 *", "`0 0 31 2 *` never matches: none of its months has such a day");
        check(
            "0 0 30,31 2 */2",
            "`0 0 30,31 2 */2` never matches: none of its months has such a day",
        );
        check(
            "R * * * *",
            "`R * * * *`: `R` is a random minute, which is not supported; give one from 0 to 59",
        );
        check(
            "0 H(1-3) * * *",
            "`0 H(1-3) * * *`: `H(1-3)` is a random hour, which is not supported; give one from 0 to 23",
        );
        check(
            "? * * * *",
            "`? * * * *`: `?` must stand alone, as the day of the month or the weekday",
        );
        check(
            "0 0 * * L",
            "`0 0 * * L`: `L` needs a weekday, as in `L5`, the last Friday of the month",
        );
        check(
            "0 0 * * 5#6",
            "`0 0 * * 5#6`: `5#6` is invalid: `#` is followed by a number from 1 to 5, as in `5#2`, the second Friday",
        );
        check(
            "@reboot",
            "`@reboot` is not supported: jobs run at set times; to run a command at boot, add a line to your own crontab",
        );
        check("@every 90m", "`@every 90m` is not a cron expression: use `--every 90m`");
        check(
            "@noon",
            "`@noon` is not a known alias: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually",
        );
    }
}
