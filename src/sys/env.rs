//! The environment variables, read once at start. No other module reads a variable.

use crate::error::{Exit, fail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

/// A variable that this program reads, as documented in help and README.
pub struct Variable {
    /// One or more names, separated by commas.
    pub name: &'static str,
    /// The description for help and README.
    pub meaning: &'static str,
}

/// The directory of all data, instead of `~/.nanobot`.
pub const HOME_DIR: &str = "NANOBOT_HOME";
/// `never` leaves standard input unread, as `--no-stdin` does.
pub const STDIN: &str = "NANOBOT_STDIN";
/// Maximum silence of standard input, in seconds.
pub const STDIN_SILENCE: &str = "NANOBOT_STDIN_TIMEOUT_S";
/// If it contains a `/`: a file to which every event is appended; otherwise a log filter.
pub const LOG: &str = "NANOBOT_LOG";
/// Set for every command in the sandbox. A `nanobot` that finds it refuses to run and names the alternative.
pub const INSIDE: &str = "NANOBOT_INSIDE";
/// The API key of the Brave search engine.
pub const BRAVE_API_KEY: &str = "BRAVE_API_KEY";
/// Timeout for the first byte of an answer, in seconds.
pub const FIRST_BYTE: &str = "NANOBOT_LLM_TIMEOUT_S";
/// Maximum silence of a stream, in seconds.
pub const STREAM_IDLE: &str = "NANOBOT_STREAM_IDLE_TIMEOUT_S";

/// All documented variables, in the order in which they are printed. Variables for config keys follow a naming rule
/// instead.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: HOME_DIR,
        meaning: "where config, workspace and sessions live, instead of `~/.nanobot`",
    },
    Variable {
        name: STDIN,
        meaning: "`never`: leave standard input unread, for loops and supervisors",
    },
    Variable {
        name: STDIN_SILENCE,
        meaning: "seconds that standard input may stay silent (600; 0 for no limit)",
    },
    Variable {
        name: LOG,
        meaning: "which logs are shown on standard error: a level (off, error, warn, info, debug, trace), TOPIC=LEVEL, or several of both with commas, as `http=debug,policy=info`; a value with a `/` is a file that each turn appends its events to, as JSON lines, for jobs that run unseen",
    },
    Variable {
        name: FIRST_BYTE,
        meaning: "seconds to wait for the first byte of an answer (300; 0 for no limit)",
    },
    Variable {
        name: STREAM_IDLE,
        meaning: "seconds that a stream may stay silent (90; at most 3600)",
    },
    Variable {
        name: INSIDE,
        meaning: "set for the commands of an agent: any `nanobot` that finds it ends with status 77",
    },
    Variable {
        name: "NANOBOT_A__B",
        meaning: "any key of the config, as `NANOBOT_AGENTS__DEFAULTS__MODEL`; stronger than the file, weaker than a flag",
    },
    Variable {
        name: "VISUAL, EDITOR",
        meaning: "the editor that `nanobot memory edit` opens",
    },
    Variable {
        name: "NO_COLOR",
        meaning: "no colour",
    },
    Variable {
        name: "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY",
        meaning: "the proxy for requests; loopback never goes through one",
    },
    Variable {
        name: "OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, …",
        meaning: "the key of that provider, where the config has none; `nanobot provider list` names them all",
    },
    Variable {
        name: BRAVE_API_KEY,
        meaning: "the key of the search engine Brave, where the config has none",
    },
    Variable {
        name: "CREDENTIALS_DIRECTORY",
        meaning: "where systemd puts credentials; one that is named as a key's variable is that key",
    },
];

/// A snapshot of the environment.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
}

impl Env {
    /// Reads the environment of this process.
    pub fn from_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
        }
    }

    /// Returns the value of a variable; `None` if it is unset, empty or not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(std::ffi::OsStr::new(name))?.to_str()?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns the duration in a variable, from 0 to `most` seconds; `default` seconds if it is unset. Zero means no
    /// limit.
    ///
    /// # Errors
    /// Status 78 for any other value.
    pub fn seconds(&self, name: &str, default: u64, most: u64) -> anyhow::Result<Duration> {
        let Some(text) = self.get(name) else {
            return Ok(Duration::from_secs(default));
        };
        match text.trim().parse::<f64>() {
            Ok(number) if number >= 0.0 && number <= most as f64 => {
                Ok(Duration::from_secs_f64(number))
            }
            _ => {
                let cause = format!("`{name}` is `{text}`, expected seconds from 0 to {most}");
                Err(fail(Exit::Config, cause))
            }
        }
    }

    /// Iterates over all variables whose name and value are UTF-8.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self {
            variables: pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }
}
