//! Diagnostic logs: what the program does and why, one line each on standard error, for `-v` and `NANOBOT_LOG`.
//!
//! They are written with the macros of the crate `log`, with one of [`TOPICS`] as target. Libraries' logs are shown
//! only if requested by name, and never at a level that contains the transmitted bytes: redaction cannot find an API
//! key that is split there.

use super::env::{self, Env};
use super::signal;
use super::terminal::{StyledLine, Terminal};
use anyhow::Result;
use log::{Level, LevelFilter, Log, Metadata, Record};
use nanobot_base::error::{Exit, WithHint, fail};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The topics of this program's log lines.
pub const TOPICS: &[&str] = &[
    "acp", "channel", "config", "cron", "git", "hook", "http", "mcp", "model", "policy", "run",
    "sandbox", "session", "tool",
];

/// Libraries whose logs can be requested.
const LIBRARIES: &[&str] = &["ureq", "rustls"];

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Determines which lines are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TopicFilter {
    /// The level of this program's topics without a level of their own.
    default_level: LevelFilter,
    topics: Vec<(&'static str, LevelFilter)>,
}

struct Logger {
    terminal: Terminal,
    filter: TopicFilter,
}

/// Returns the event file that the variable names, if its value is not a filter.
pub fn event_file(env: &Env) -> Option<PathBuf> {
    env.get(env::LOG).filter(|value| is_file(value)).and_then(|_| env.path(env::LOG))
}

fn is_file(value: &str) -> bool {
    value.contains('/')
}

/// Starts logging with the filter in `value`, the variable; without one, at level `info` if `verbose`.
///
/// # Errors
/// Status 78 if the value is neither a filter nor a path.
pub fn start(terminal: Terminal, verbose: bool, value: Option<&str>) -> Result<()> {
    let filter = match value.filter(|value| !is_file(value)) {
        Some(value) => TopicFilter::parse(value)?,
        None if verbose => TopicFilter::new(LevelFilter::Info),
        None => return Ok(()),
    };
    let max_level = filter.max_level();
    let logger = LOGGER.get_or_init(|| Logger { terminal, filter });
    // Time stamps in the log start here.
    signal::now();
    if log::set_logger(logger).is_ok() {
        log::set_max_level(max_level);
    }
    Ok(())
}

impl TopicFilter {
    fn new(default_level: LevelFilter) -> Self {
        Self { default_level, topics: Vec::new() }
    }

    /// Parses `debug`, `http`, `http=debug,policy=info`, or a combination.
    fn parse(value: &str) -> Result<Self> {
        let filter_error = |cause: String| {
            let topics = TOPICS.join(", ");
            fail(Exit::Config, format!("`{}` is `{value}`: {cause}", env::LOG)).with_hint(format!(
                    "a level (off, error, warn, info, debug, trace), or TOPIC=LEVEL with one of {topics}; for an event file, \
                     a path that contains `/`"
                ))
        };
        let parse_level = |name: &str| {
            let level = name.parse::<LevelFilter>();
            level.map_err(|_| filter_error(format!("unknown level `{name}`")))
        };
        let parse_topic = |name: &str| {
            let topic = TOPICS.iter().chain(LIBRARIES).find(|topic| **topic == name);
            topic.copied().ok_or_else(|| filter_error(format!("unknown topic `{name}`")))
        };
        let mut filter = Self::new(LevelFilter::Off);
        for part in value.split(',').map(str::trim) {
            match part.split_once('=') {
                _ if part.is_empty() => {}
                Some((topic, level)) => {
                    let topic = parse_topic(topic.trim())?;
                    let level = parse_level(level.trim())?;
                    filter.topics.push((topic, level));
                }
                None => match part.parse() {
                    Ok(level) => filter.default_level = level,
                    Err(_) => filter.topics.push((parse_topic(part)?, LevelFilter::Debug)),
                },
            }
        }
        Ok(filter)
    }

    /// Returns the highest level of any topic.
    fn max_level(&self) -> LevelFilter {
        let levels = self.topics.iter().map(|(_, level)| *level);
        levels.fold(self.default_level, Ord::max)
    }

    /// Returns the highest level that is shown for `target`.
    fn level(&self, target: &str) -> LevelFilter {
        let level_of = |name: &str| {
            let last = self.topics.iter().rfind(|(topic, _)| *topic == name);
            last.map(|(_, level)| *level)
        };
        if TOPICS.contains(&target) {
            level_of(target).unwrap_or(self.default_level)
        } else {
            let library = target.split("::").next().unwrap_or_default();
            let level = level_of(library).unwrap_or(LevelFilter::Off);
            level.min(LevelFilter::Debug)
        }
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= self.filter.level(metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let millis = signal::now().as_millis();
        let topic = record.target();
        let message = record.args();
        let line = match record.level() {
            Level::Error | Level::Warn => {
                let level = record.level().as_str().to_lowercase();
                format!("{level}: {message}")
            }
            _ => message.to_string(),
        };
        let line = StyledLine::default().dim(format!("{millis:>6} ms  {topic}: {line}"));
        self.terminal.eprint_log(&line);
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::TopicFilter;
    use log::LevelFilter::{Debug, Info, Off, Trace};

    #[test]
    fn filters() {
        let check = |value: &str, expect: &[(&str, log::LevelFilter)]| {
            let filter = TopicFilter::parse(value).unwrap();
            for (target, level) in expect {
                assert_eq!(filter.level(target), *level, "{value}: {target}");
            }
        };
        check("debug", &[("http", Debug), ("ureq::pool", Off)]);
        check("http=debug,policy=info", &[("http", Debug), ("policy", Info), ("tool", Off)]);
        check("info,http=trace", &[("http", Trace), ("tool", Info)]);
        check("http", &[("http", Debug), ("tool", Off)]);
        check("INFO , http = off", &[("http", Off), ("tool", Info)]);
        check("off", &[("http", Off)]);
        // The last entry wins.
        check("http=off,http=info", &[("http", Info)]);
        // Libraries by name, never at trace level, which has the transmitted bytes; no other targets.
        check("ureq=trace", &[("ureq::run", Debug), ("http", Off)]);
        check("trace", &[("ureq_proto::util", Off), ("rustls::conn", Off), ("http", Trace)]);
        check("rustls=info", &[("rustls::conn", Info), ("ureq", Off)]);
    }

    #[test]
    fn invalid_filters_are_reported() {
        let check = |value: &str, message: &str| {
            let error = TopicFilter::parse(value).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        check("loud", "unknown topic `loud`");
        check("http=loud", "unknown level `loud`");
        check("htp=debug", "unknown topic `htp`");
        check("events.jsonl", "unknown topic `events.jsonl`");
    }
}
