//! The environment, read once at start. Nothing else in the program asks for a variable.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// A variable that this program reads, for help and README.
pub struct Variable {
    pub name: &'static str,
    pub meaning: &'static str,
}

/// Where everything lives, instead of `~/.nanobot`.
pub const HOME_DIR: &str = "NANOBOT_HOME";
/// `never` keeps standard input unread, as `--no-stdin` does.
pub const STDIN: &str = "NANOBOT_STDIN";
/// The time that every clock shows, as `2026-01-02T03:04:05Z`; waits then take no time. For tests.
pub const TEST_TIME: &str = "NANOBOT_TEST_TIME";
/// Seconds to wait for the first byte of an answer.
pub const FIRST_BYTE: &str = "NANOBOT_LLM_TIMEOUT_S";
/// Seconds that a stream may stay silent.
pub const STREAM_IDLE: &str = "NANOBOT_STREAM_IDLE_TIMEOUT_S";

/// The variables of ours, in the order in which they are printed. Those of the config's keys follow a rule instead.
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
        name: FIRST_BYTE,
        meaning: "seconds to wait for the first byte of an answer (300; 0 for no limit)",
    },
    Variable {
        name: STREAM_IDLE,
        meaning: "seconds that a stream may stay silent (90; at most 3600)",
    },
    Variable {
        name: "NANOBOT_A__B",
        meaning: "any key of the config, as `NANOBOT_AGENTS__DEFAULTS__MODEL`; stronger than the file, weaker than a flag",
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
        name: "OPENAI_API_KEY, OPENROUTER_API_KEY",
        meaning: "the key of that provider, where the config has none",
    },
];

/// A snapshot of the environment.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
}

impl Env {
    pub fn from_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
        }
    }

    /// The variable's text; `None` when it is unset, empty or not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(std::ffi::OsStr::new(name))?.to_str()?;
        (!value.is_empty()).then_some(value)
    }

    /// All variables whose names and values are text.
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
