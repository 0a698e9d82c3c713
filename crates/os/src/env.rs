//! The environment variables, read once at start. No other module reads a variable.

use super::home::{expand_home, user_home};
use nanobot_base::error::{Exit, fail};
use nanobot_base::trace_context::TraceContext;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
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
/// The config file, as `--config` names it.
pub const CONFIG: &str = "NANOBOT_CONFIG";
/// `never` leaves standard input unread, as `--no-stdin` does.
pub const STDIN: &str = "NANOBOT_STDIN";
/// Maximum silence of standard input, in seconds.
pub const STDIN_TIMEOUT: &str = "NANOBOT_STDIN_TIMEOUT_S";
/// The session of a run without `-s`, like `agents.defaults.session`.
pub const SESSION: &str = "NANOBOT_SESSION";
/// If it contains a `/`: a file to which every event is appended; otherwise a log filter.
pub const LOG: &str = "NANOBOT_LOG";
/// Set for every command in the sandbox. A `nanobot` that finds it refuses to run and names the alternative.
pub const INSIDE_SANDBOX: &str = "NANOBOT_INSIDE";
/// Set for every hook, to the event's name. A `nanobot` that finds it runs no hooks.
pub const INSIDE_HOOK: &str = "NANOBOT_HOOK";
/// Set for the commands of a job's run while it has one of the places of `cron.maxRunning`. A `nanobot` that finds it runs jobs without
/// a place of their own: that run waits for it.
pub const INSIDE_JOB: &str = "NANOBOT_INSIDE_JOB";
/// Set for commands that git may sign in: the socket of the run, and with it this program signs in the place of gpg.
pub const SIGNING_SOCKET: &str = "NANOBOT_SIGNING";
/// The trace that a run continues, as [`TraceContext`] reads it. Commands, hooks and local servers continue it.
pub const TRACEPARENT: &str = "TRACEPARENT";
/// Data of tracing systems about the trace in [`TRACEPARENT`]; passed on unread.
pub const TRACESTATE: &str = "TRACESTATE";
/// The API key of the Brave search engine.
pub const BRAVE_API_KEY: &str = "BRAVE_API_KEY";
/// Directory of systemd credentials.
pub const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";
/// The socket on which systemd waits for messages of a service.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// Microseconds without a message after which systemd restarts a service.
pub const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
/// Timeout for the first byte of an answer, in seconds.
pub const FIRST_BYTE_TIMEOUT: &str = "NANOBOT_LLM_TIMEOUT_S";
/// Maximum silence of a stream, in seconds.
pub const STREAM_IDLE_TIMEOUT: &str = "NANOBOT_STREAM_IDLE_TIMEOUT_S";

/// The colours of the terminal, as some terminals set it.
pub const COLORFGBG: &str = "COLORFGBG";

/// The variables that name a proxy, in the order of their precedence.
pub const PROXY_VARIABLES: &[&str] =
    &["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
/// The variables that list hosts to reach without the proxy.
pub const NO_PROXY_VARIABLES: &[&str] = &["NO_PROXY", "no_proxy"];

const fn variable(name: &'static str, meaning: &'static str) -> Variable {
    Variable { name, meaning }
}

// One row per line keeps the table readable.
#[rustfmt::skip]
/// All documented variables, in the order in which they are printed. Variables for config keys follow a naming rule
/// instead.
pub const VARIABLES: &[Variable] = &[
    variable(HOME_DIR, "directory of config, workspace and sessions, instead of `~/.nanobot`"),
    variable(CONFIG, "config file, as `--config`"),
    variable(STDIN, "`never`: do not read standard input, for loops and supervisors"),
    variable(SESSION, "session of a run without `-s`, as `agents.defaults.session`: a key, `none` or `directory`"),
    variable(STDIN_TIMEOUT, "timeout for silent standard input, in seconds (default 600; 0 for none)"),
    variable(LOG, "log filter for standard error: a level (off, error, warn, info, debug, trace), TOPIC=LEVEL, or a comma-separated list of both, such as `http=debug,policy=info`; a value with a `/` is a file to which each turn appends its events as JSON lines (default: `log.events` of the config)"),
    variable(FIRST_BYTE_TIMEOUT, "timeout for the first byte of a response, in seconds (default: `http.firstByteTimeout` of the config, 300; 0 for none)"),
    variable(STREAM_IDLE_TIMEOUT, "idle timeout of a stream, in seconds (default: `http.streamIdleTimeout` of the config, 90; at most 3600)"),
    variable(INSIDE_SANDBOX, "set for commands that the agent runs: with it, `nanobot` exits with status 77"),
    variable("TRACEPARENT, TRACESTATE", "trace (W3C Trace Context) that commands, hooks and local MCP servers of a run continue; its spans are exported if `telemetry.otlp` of the config is set"),
    variable("NANOBOT_A__B", "any config key, such as `NANOBOT_AGENTS__DEFAULTS__MODEL`; overrides the config file, and flags override it"),
    variable("PAGER", "program for a help topic that does not fit the screen; default: `less`"),
    variable("VISUAL, EDITOR", "editor for `nanobot memory edit`"),
    variable(INSIDE_HOOK, "set for hooks, to the name of the event; a `nanobot` that a hook starts runs no hooks"),
    variable(INSIDE_JOB, "set for the commands and hooks of a job that counts for `cron.maxRunning`; a `nanobot` that they start runs jobs without a wait"),
    variable("NO_COLOR", "disables colours"),
    variable(COLORFGBG, "colours of the terminal, such as `0;15`; the last number is the background, unless `terminal.background` of the config is set"),
    variable("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "proxy for HTTP requests; not used for loopback addresses; default: `http.proxy` and `http.noProxy` of the config"),
    variable("SSL_CERT_FILE, SSL_CERT_DIR", "CA certificates, instead of the system's; default: `http.caFile` of the config"),
    variable("OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY, …", "API key of that provider if the config has none; `nanobot model provider list` shows all of them"),
    variable("AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, …", "keys, profile and region of AWS, as its own tools read them, for the provider bedrock"),
    variable("GOOGLE_APPLICATION_CREDENTIALS, CLOUDSDK_CONFIG", "file with credentials of Google Cloud, and directory of `gcloud`, for the provider vertex"),
    variable(BRAVE_API_KEY, "API key of the Brave search engine if the config has none; the other engines have such variables too (`TAVILY_API_KEY`, …)"),
    variable("NOTIFY_SOCKET, WATCHDOG_USEC", "set by systemd for a service: `nanobot channel poll --follow` says on that socket that it is ready, alive and stopping"),
    variable(CREDENTIALS_DIRECTORY, "directory of systemd credentials; one named like an API key variable is used as that key"),
];

/// The path in a variable of this process, in the few places that are reached before anything else is read.
pub fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// A snapshot of the environment.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
}

impl Env {
    /// Reads the environment of this process. Under CGI, `HTTP_PROXY` is a header of the request, and no proxy. A trace that is
    /// invalid is ignored, as the W3C demands.
    pub fn from_process() -> Self {
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        if variables.contains_key(std::ffi::OsStr::new("GATEWAY_INTERFACE")) {
            variables.remove(std::ffi::OsStr::new("HTTP_PROXY"));
        }
        let is_invalid = |value: &OsString| value.to_str().and_then(TraceContext::parse).is_none();
        if variables.get(std::ffi::OsStr::new(TRACEPARENT)).is_none_or(is_invalid) {
            variables.remove(std::ffi::OsStr::new(TRACEPARENT));
            variables.remove(std::ffi::OsStr::new(TRACESTATE));
        }
        Self { variables }
    }

    /// Returns the same environment with another value of one variable.
    pub fn with(&self, name: &str, value: String) -> Self {
        let mut variables = self.variables.clone();
        variables.insert(name.into(), value.into());
        Self { variables }
    }

    /// Returns the value of a variable; `None` if it is unset, empty or not UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(std::ffi::OsStr::new(name))?.to_str()?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value of `TZ` without the colon that may precede it. An empty value is UTC, as in the C library. `None` if it is
    /// unset or not UTF-8.
    pub fn time_zone(&self) -> Option<&str> {
        let name = self.variables.get(std::ffi::OsStr::new("TZ"))?.to_str()?;
        let name = name.trim_start_matches(':');
        Some(if name.is_empty() { "UTC" } else { name })
    }

    /// Checks that the value of a variable, if it is set, is UTF-8.
    ///
    /// # Errors
    /// Status 2 if it is not.
    pub fn check_text(&self, name: &str) -> anyhow::Result<()> {
        match self.variables.get(std::ffi::OsStr::new(name)).map(|value| value.to_str()) {
            Some(None) => Err(fail(Exit::Usage, format!("the value of `{name}` is not UTF-8"))),
            _ => Ok(()),
        }
    }

    /// Returns the path in a variable, with a leading `~` as the home directory; `None` as for [`Self::get`].
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let path = Path::new(self.get(name)?);
        Some(expand_home(path, self.home()).unwrap_or_else(|_| path.to_owned()))
    }

    /// Returns the user's home directory: `HOME`, or else the entry in the system's table of users.
    pub fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from).or_else(user_home)
    }

    /// Returns the duration in a variable, from 0 to `max_secs` seconds; `default` if it is unset. Zero means no limit.
    ///
    /// # Errors
    /// Status 78 for any other value.
    pub fn duration(
        &self,
        name: &str,
        default: Duration,
        max_secs: u64,
    ) -> anyhow::Result<Duration> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        match text.trim().parse::<f64>() {
            Ok(number) if number >= 0.0 && number <= max_secs as f64 => {
                Ok(Duration::from_secs_f64(number))
            }
            _ => {
                let cause = format!("`{name}` is `{text}`, expected seconds from 0 to {max_secs}");
                Err(fail(Exit::Config, cause))
            }
        }
    }

    /// Iterates over all variables whose name and value are UTF-8.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self {
            variables: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }
}
