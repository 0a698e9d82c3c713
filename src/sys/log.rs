//! Logs for people: what the program does and why, a line each on standard error, for `-v` and `NANOBOT_LOG`.
//!
//! They are written with the macros of the crate `log`, with a topic of [`TOPICS`] as their target. What libraries log is
//! shown only where it is asked for by name, and never so much of it that it holds the bytes that are sent: a key in
//! these, cut in pieces, is one that no mask finds.

use super::env;
use super::signal;
use super::terminal::{Row, Terminal};
use crate::error::{Exit, fail_hint};
use anyhow::Result;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::sync::OnceLock;

/// What we log about.
pub const TOPICS: &[&str] = &[
    "config", "cron", "http", "mcp", "memory", "model", "policy", "sandbox", "session", "tool",
];

/// Libraries that log too.
const LIBRARIES: &[&str] = &["ureq", "rustls"];

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Which lines are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    /// Of ours, unless the topic has a level of its own.
    all: LevelFilter,
    topics: Vec<(&'static str, LevelFilter)>,
}

struct Logger {
    terminal: Terminal,
    filter: Filter,
}

/// Whether the value of the variable is the name of a file for events, and no filter.
pub fn is_file(value: &str) -> bool {
    value.contains('/')
}

/// From now on lines are shown as `value`, the variable, wants them; without it those that `-v` shows, where that was said.
///
/// # Errors
/// Status 78 for what is neither a filter nor a path.
pub fn start(terminal: Terminal, verbose: bool, value: Option<&str>) -> Result<()> {
    let filter = match value.filter(|value| !is_file(value)) {
        Some(value) => Filter::parse(value)?,
        None if verbose => Filter::of(LevelFilter::Info),
        None => return Ok(()),
    };
    let most = filter.most();
    let logger = LOGGER.get_or_init(|| Logger { terminal, filter });
    // Times are counted from here on.
    signal::now();
    if log::set_logger(logger).is_ok() {
        log::set_max_level(most);
    }
    Ok(())
}

impl Filter {
    fn of(all: LevelFilter) -> Self {
        Self {
            all,
            topics: Vec::new(),
        }
    }

    /// `debug`, `http`, `http=debug,policy=info`, and all of that together.
    fn parse(value: &str) -> Result<Self> {
        let wrong = |what: String| {
            let topics = TOPICS.join(", ");
            fail_hint(
                Exit::Config,
                format!("`{}` is `{value}`: {what}", env::LOG),
                format!(
                    "a level (off, error, warn, info, debug, trace), or TOPIC=LEVEL with one of {topics}; for a file of events, \
                     a path with a `/` in it"
                ),
            )
        };
        let level = |name: &str| {
            let parsed = name.parse::<LevelFilter>();
            parsed.map_err(|_| wrong(format!("there is no level `{name}`")))
        };
        let topic = |name: &str| {
            let mut known = TOPICS.iter().chain(LIBRARIES);
            let found = known.find(|topic| **topic == name);
            found
                .copied()
                .ok_or_else(|| wrong(format!("there is no topic `{name}`")))
        };
        let mut filter = Self::of(LevelFilter::Off);
        for part in value.split(',').map(str::trim) {
            match part.split_once('=') {
                _ if part.is_empty() => {}
                Some((name, of)) => {
                    let (name, of) = (topic(name.trim())?, level(of.trim())?);
                    filter.topics.push((name, of));
                }
                None => match part.parse() {
                    Ok(all) => filter.all = all,
                    Err(_) => filter.topics.push((topic(part)?, LevelFilter::Debug)),
                },
            }
        }
        Ok(filter)
    }

    /// The most that anything is shown of.
    fn most(&self) -> LevelFilter {
        let each = self.topics.iter().map(|(_, level)| *level);
        each.chain([self.all]).max().unwrap_or(LevelFilter::Off)
    }

    /// Up to which level lines of `target` are shown.
    fn level(&self, target: &str) -> LevelFilter {
        let named = |name: &str| {
            let mut named = self.topics.iter().rev().filter(|(topic, _)| *topic == name);
            named.next().map(|(_, level)| *level)
        };
        match TOPICS.contains(&target) {
            true => named(target).unwrap_or(self.all),
            false => {
                let library = target.split("::").next().unwrap_or_default();
                let level = named(library).unwrap_or(LevelFilter::Off);
                level.min(LevelFilter::Debug)
            }
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
        let words = record.args();
        let line = match record.level() {
            Level::Error | Level::Warn => {
                let level = record.level().as_str().to_lowercase();
                format!("{level}: {words}")
            }
            _ => words.to_string(),
        };
        let row = Row::default().dim(format!("{millis:>6} ms  {topic}: {line}"));
        self.terminal.complain_whole(&row);
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::Filter;
    use log::LevelFilter::{Debug, Info, Off, Trace};

    #[test]
    fn filters() {
        let check = |value: &str, expect: &[(&str, log::LevelFilter)]| {
            let filter = Filter::parse(value).unwrap();
            for (target, level) in expect {
                assert_eq!(filter.level(target), *level, "{value}: {target}");
            }
        };
        check("debug", &[("http", Debug), ("ureq::pool", Off)]);
        check(
            "http=debug,policy=info",
            &[("http", Debug), ("policy", Info), ("tool", Off)],
        );
        check("info,http=trace", &[("http", Trace), ("tool", Info)]);
        check("http", &[("http", Debug), ("tool", Off)]);
        check("INFO , http = off", &[("http", Off), ("tool", Info)]);
        check("off", &[("http", Off)]);
        // The last word counts.
        check("http=off,http=info", &[("http", Info)]);
        // Libraries by name, never with the bytes that they send; and nothing else that logs.
        check("ureq=trace", &[("ureq::run", Debug), ("http", Off)]);
        check(
            "trace",
            &[
                ("ureq_proto::util", Off),
                ("rustls::conn", Off),
                ("http", Trace),
            ],
        );
        check("rustls=info", &[("rustls::conn", Info), ("ureq", Off)]);
    }

    #[test]
    fn what_is_no_filter_is_told() {
        let check = |value: &str, words: &str| {
            let error = Filter::parse(value).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        check("loud", "no topic `loud`");
        check("http=loud", "no level `loud`");
        check("htp=debug", "no topic `htp`");
        check("events.jsonl", "no topic `events.jsonl`");
    }
}
