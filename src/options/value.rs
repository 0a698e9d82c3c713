//! Values in the form that users type: times, ages, amounts of money.

use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser};
use nanobot_base::format::{parse_time_span, smallest_unit};
use nanobot_base::message::user_text::UserText;
use nanobot_os::home::expand_argument;
use serde_json::Value;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The start of a period, in the form that users type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Date(jiff::civil::Date),
    /// This number of days; the last one is today.
    Days(u16),
    /// This long before now.
    Ago(Duration),
    /// The first day of this month.
    Month,
}

const SECONDS_PER_DAY: u64 = 86_400;

/// A field of the request's body.
#[derive(Clone, Debug, PartialEq)]
pub struct BodyField {
    pub(crate) name: String,
    pub(crate) value: Value,
}

/// The fields of a request's body that the program sets, each with the flag that changes it. Which ones depends on the
/// provider.
const FIELDS_OF_FLAGS: [(&str, &str); 21] = [
    ("model", "--model"),
    ("messages", "--message"),
    ("input", "--message"),
    ("system", "--system"),
    ("instructions", "--system"),
    ("tools", "--tools"),
    ("tool_choice", "--tools"),
    ("stream", "--no-stream"),
    ("stream_options", "--no-stream"),
    ("max_tokens", "--max-tokens"),
    ("max_completion_tokens", "--max-tokens"),
    ("max_output_tokens", "--max-tokens"),
    ("temperature", "--temperature"),
    ("reasoning_effort", "--reasoning-effort"),
    ("reasoning", "--reasoning-effort"),
    ("thinking", "--reasoning-effort"),
    ("enable_thinking", "--reasoning-effort"),
    ("output_config", "--reasoning-effort"),
    ("verbosity", "--verbosity"),
    ("text", "--schema"),
    ("response_format", "--schema"),
];

/// The names of models in one flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelNames(pub(crate) Vec<String>);

impl ModelNames {
    /// The names in all flags, in their order.
    pub(crate) fn join(flags: &[Self]) -> Vec<String> {
        flags.iter().flat_map(|names| names.0.iter().cloned()).collect()
    }
}

const EXPECTED_TIME: &str = "expected seconds, or a duration such as `90s`, `5m`, `1h30m`, `2d`";

/// `KEY=VALUE`, of which the value is JSON or a string.
pub(crate) fn body_field(text: &str) -> Result<BodyField, String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("expected KEY=VALUE, such as `top_p=0.9`")?;
    if let Some((_, flag)) = FIELDS_OF_FLAGS.iter().find(|(field, _)| *field == name) {
        return Err(format!("`{name}` is set by `{flag}`"));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Ok(BodyField { name: name.to_owned(), value })
}

/// A text that the user types.
pub(crate) fn typed_text(text: &str) -> Result<UserText, Infallible> {
    Ok(UserText::typed(text))
}

/// Names of models with commas between them; an empty text is no name.
pub(crate) fn model_names(text: &str) -> Result<ModelNames, String> {
    if text.trim().is_empty() {
        return Ok(ModelNames::default());
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err("expected names with a comma between two of them".into());
    }
    Ok(ModelNames(names))
}

/// An item of a list with commas, without the blanks around it.
pub(crate) fn trimmed(text: &str) -> Result<String, Infallible> {
    Ok(text.trim().to_owned())
}

/// A path. A leading `~` is the home directory, also where a shell does not expand it, as in `--read=~/notes`.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| expand_argument(&path))
}

/// A path, or another text that does not begin with `~/`.
pub(crate) fn path_or_other() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new()
        .try_map(|text| expand_argument(Path::new(&text)).map(PathBuf::into_os_string))
}

/// A name that can be a file name.
pub(crate) fn file_name(text: &str) -> Result<String, String> {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let is_name =
        (1..=64).contains(&text.len()) && !text.starts_with('.') && text.chars().all(is_plain);
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        "expected up to 64 letters, digits, `.`, `_` and `-`, not beginning with `.`".into()
    })
}

/// A duration above zero: seconds, or numbers with units.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match time_or_zero(text) {
        Ok(Duration::ZERO) => Err(EXPECTED_TIME.into()),
        result => result,
    }
}

/// A duration, which may be zero.
pub(crate) fn time_or_zero(text: &str) -> Result<Duration, String> {
    let fraction = || {
        let seconds: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    parse_time_span(text)
        .or_else(fraction)
        .or_else(|| text.parse::<jiff::SignedDuration>().ok()?.try_into().ok())
        .ok_or_else(|| EXPECTED_TIME.into())
}

/// A duration whose units are written out.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|character: char| character.is_ascii_alphabetic());
    let span = if has_unit { parse_time_span(text) } else { None };
    span.ok_or_else(|| "expected a number and a unit, such as `30m`, `12h`, `30d`, `8w`".into())
}

/// The start of a period. Days and weeks are whole days; other spans end now.
pub(crate) fn since(text: &str) -> Result<Since, String> {
    let date = || if text.len() == 10 { text.parse().ok() } else { None };
    let span = || {
        let span = age(text).ok().filter(|span| !span.is_zero())?;
        match smallest_unit(text) {
            Some(unit) if unit.as_secs() >= SECONDS_PER_DAY => {
                u16::try_from(span.as_secs() / SECONDS_PER_DAY).ok().map(Since::Days)
            }
            _ => Some(Since::Ago(span)),
        }
    };
    match text {
        "today" => Some(Since::Days(1)),
        "month" => Some(Since::Month),
        _ => span().or_else(|| date().map(Since::Date)),
    }
    .ok_or_else(|| {
        "expected a date such as `2026-11-01`, or `7d`, `12h`, `30m`, `today`, `month`".into()
    })
}

/// A tool's name or a pattern of names, without the argument that a rule may have.
pub(crate) fn tool_name(text: &str) -> Result<String, String> {
    match text.trim() {
        name if name.contains('(') => {
            Err(format!("`{name}` is a rule, which `--deny` takes; expected the name of a tool"))
        }
        name => Ok(name.to_owned()),
    }
}

pub(crate) fn prompt_file(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => Err("standard input is read without it, or with `-m -`; expected a file".into()),
        path => expand_argument(Path::new(path)).map_err(|error| error.to_string()),
    }
}

pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    match text.trim_start_matches('$').parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        Ok(0.0) => {
            Err("no request is possible for 0; expected an amount in US dollars, such as `0.50`"
                .into())
        }
        _ => Err("expected an amount in US dollars, such as `0.50`".into()),
    }
}

pub(crate) fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=2.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 2".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Since, age, body_field, dollars, file_name, since, time, time_or_zero};
    use std::time::Duration;

    #[test]
    fn spans_have_the_same_units_everywhere() {
        let check = |text: &str, seconds: u64| {
            let span = Duration::from_secs(seconds);
            assert_eq!(age(text), Ok(span), "{text}");
            assert_eq!(time(text), Ok(span), "{text}");
        };
        check("90s", 90);
        check("1m", 60);
        check("1h30m", 5400);
        check("2d", 172_800);
        check("8w", 8 * 604_800);
        check("1y", 365 * 86_400);
        assert_eq!(time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        assert!(age("90").is_err() && age("").is_err() && age("1mo").is_err());
        for text in ["0", "0s", "-5m", "inf", "1e30", ""] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["0", "0s", "0 h", "0.0"] {
            assert_eq!(time_or_zero(text), Ok(Duration::ZERO), "{text}");
        }
        assert!(time_or_zero("").is_err() && time_or_zero("-5m").is_err());
    }

    #[test]
    fn a_field_that_a_flag_sets_is_refused() {
        for field in ["text", "verbosity", "reasoning", "thinking", "output_config"] {
            assert!(body_field(&format!("{field}={{}}")).is_err_and(|error| error.contains("--")));
        }
        for field in ["top_p", "seed", "service_tier", "store", "metadata", "include"] {
            assert!(body_field(&format!("{field}=1")).is_ok(), "{field}");
        }
    }

    #[test]
    fn a_name_does_not_begin_with_a_dot() {
        assert!(file_name(".x").is_err_and(|error| error.contains("not beginning with `.`")));
        assert_eq!(file_name("x.y-1_z"), Ok("x.y-1_z".to_owned()));
    }

    #[test]
    fn periods_start_at_a_day_or_a_moment() {
        let check = |text: &str, expect: Since| assert_eq!(since(text), Ok(expect), "{text}");
        check("7d", Since::Days(7));
        check("2w", Since::Days(14));
        check("1w1d", Since::Days(8));
        check("7D", Since::Days(7));
        check("7 days", Since::Days(7));
        check("2 Weeks 1 day", Since::Days(15));
        check("1d 0h", Since::Ago(Duration::from_secs(24 * 3600)));
        check("12h", Since::Ago(Duration::from_secs(12 * 3600)));
        check("1m", Since::Ago(Duration::from_secs(60)));
        check("1d12h", Since::Ago(Duration::from_secs(36 * 3600)));
        check("today", Since::Days(1));
        check("month", Since::Month);
        check("2026-11-01", Since::Date(jiff::civil::date(2026, 11, 1)));
        for text in ["0d", "0h", "7", "soon", "99999999d", "2026-13-01"] {
            assert!(since(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_money_is_no_limit_of_a_run() {
        assert_eq!(dollars("$0.50"), Ok(0.5));
        assert!(dollars("0").is_err_and(|error| error.starts_with("no request is possible")));
        assert!(dollars("x").is_err_and(|error| error.starts_with("expected an amount")));
    }
}
