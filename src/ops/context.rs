//! State that exists once per process: environment, paths, clock, terminal, the global options, and connections that are kept between
//! turns.

use anyhow::Result;
use nanobot_agent::report::trace::AgentTrace;
use nanobot_base::error::{Exit, Stop, WithHint, exit_for, fail, hint_for};
use nanobot_config::settings::terminal::TerminalSettings;
use nanobot_config::settings::{Config, ConsolidationMode, FlagOverrides, SessionSync, Settings};
use nanobot_mcp::shared_catalog::SharedCatalog;
use nanobot_net::http::ConnectionPool;
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::env::{self, Env};
use nanobot_os::paths::Paths;
use nanobot_os::terminal::{Terminal, theme};
use nanobot_store::session::{self, MessageWindow, SessionStore};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The options that every command takes.
#[derive(Clone, Debug, Default)]
pub struct GlobalOptions {
    /// The config file (`--config`).
    pub config: Option<PathBuf>,
    /// The workspace (`--workspace`).
    pub workspace: Option<PathBuf>,
    /// Print no notices (`--quiet`).
    pub quiet: bool,
}

/// The context of a process, passed by reference to every use case. It is cheap to clone when one field has to change.
#[derive(Clone)]
pub struct Context {
    /// The config file that `--config` or its variable names.
    pub config: Option<PathBuf>,
    /// The workspace that `--workspace` names.
    pub workspace: Option<PathBuf>,
    /// Print no notices.
    pub quiet: bool,
    pub env: Env,
    pub paths: Paths,
    pub clock: Clock,
    pub terminal: Terminal,
    /// Connections to providers, kept for the life of the process.
    pub connections: ConnectionPool,
    /// Running MCP servers, kept for the life of the process.
    pub servers: SharedCatalog,
    /// The notices that are shown once per process.
    pub(crate) single_notices: SingleNotices,
    /// The trace of the turn or sub-agent; `None` if its spans are not exported.
    pub(crate) trace: Option<Arc<AgentTrace>>,
}

/// The texts of the notices that were already shown.
#[derive(Clone, Default)]
pub(crate) struct SingleNotices(Arc<Mutex<BTreeSet<String>>>);

impl SingleNotices {
    /// True if `text` was not shown yet. It is then recorded as shown.
    pub(crate) fn is_new(&self, text: &str) -> bool {
        self.0.lock().insert(text.to_owned())
    }
}

impl Context {
    /// Creates the context of a process.
    ///
    /// # Errors
    /// The home directory is unknown, the test clock is not valid, or the variable for the session is not UTF-8.
    pub fn new(options: GlobalOptions, env: Env, terminal: Terminal) -> Result<Self> {
        let GlobalOptions { config, workspace, quiet } = options;
        let config = config.or_else(|| env.path(env::CONFIG));
        // Without it, a run would join the session of all others.
        env.check_text(env::SESSION)?;
        Ok(Self {
            paths: Paths::resolve(&env, config.as_deref())?,
            clock: Clock::from_env(&env)?,
            config,
            workspace,
            quiet,
            env,
            terminal,
            connections: ConnectionPool::default(),
            servers: SharedCatalog::default(),
            single_notices: SingleNotices::default(),
            trace: None,
        })
    }

    /// The context of an agent whose work is in `trace`. What it starts continues the trace.
    pub(crate) fn with_trace(&self, trace: Arc<AgentTrace>) -> Self {
        let env = self.env.with(env::TRACEPARENT, trace.context().to_string());
        Self { env, trace: Some(trace), ..self.clone() }
    }

    /// The context of turns that run beside others of this process. Their MCP servers are their own: those of another turn have other
    /// sandboxes, and end with it.
    pub(crate) fn beside_others(&self) -> Self {
        Self { servers: SharedCatalog::default(), ..self.clone() }
    }

    /// Reads the config file. A missing one is an empty config, unless `--config` names it.
    ///
    /// # Errors
    /// Status 66 if the named file does not exist, 74 if it cannot be read, 78 if it is not a valid config.
    pub(crate) fn load_config(&self) -> Result<Config> {
        let config = Config::load(&self.paths)?;
        if self.config.is_some() && !config.exists() {
            let path = config.path().display();
            return Err(fail(Exit::NoInput, format!("there is no config file `{path}`"))
                .with_hint("`nanobot onboard` or `nanobot config set` with the same `--config`, which create it"));
        }
        Ok(config)
    }

    /// Resolves the settings from global flags, environment variables and the config file.
    ///
    /// # Errors
    /// The errors of [`Context::load_config`]; status 78 if a value in the file is invalid.
    pub fn settings(&self) -> Result<Settings> {
        self.settings_with(FlagOverrides::default())
    }

    /// Like [`Context::settings`], with the flags of one command on top.
    ///
    /// # Errors
    /// The errors of [`Context::settings`].
    pub fn settings_with(&self, overrides: FlagOverrides) -> Result<Settings> {
        self.resolve(&self.load_config()?, overrides)
    }

    /// Like [`Context::settings_with`], from a config that is loaded.
    ///
    /// # Errors
    /// Status 78 if a value in the file is invalid.
    pub(crate) fn resolve(&self, config: &Config, overrides: FlagOverrides) -> Result<Settings> {
        if self.workspace.is_some() {
            config.check_flag("agents.defaults.workspace", "--workspace")?;
        }
        let overrides = FlagOverrides {
            workspace: overrides.workspace.or_else(|| self.workspace.clone()),
            ..overrides
        };
        Settings::resolve(config, &self.env, &overrides, &self.paths)
    }

    /// Resolves the settings of the terminal.
    ///
    /// # Errors
    /// The errors of [`Context::settings`].
    pub fn terminal_settings(&self) -> Result<TerminalSettings> {
        TerminalSettings::resolve(&self.load_config()?, &self.env)
    }

    /// Adapts colours to the background of the terminal, which is queried when the first colour is needed.
    pub fn set_theme_source(&self) {
        if self.terminal.stdout_is_tty || self.terminal.stderr_is_tty {
            let ctx = self.clone();
            // A command that needs the config reports its errors.
            theme::set_source(move || ctx.terminal_settings().ok()?.background);
        }
    }

    /// The directories in which the sessions of `settings` are stored.
    ///
    /// # Errors
    /// A session directory cannot be read.
    pub fn session_store(&self, settings: &Settings) -> Result<SessionStore> {
        let sync = match settings.session_sync {
            SessionSync::Turn => session::SyncMode::EachTurn,
            SessionSync::None => session::SyncMode::Never,
        };
        let size = settings.memory_window;
        let window = match settings.memory.consolidate {
            ConsolidationMode::Manual => MessageWindow::of_size(size),
            _ => MessageWindow::until_consolidated(size),
        };
        let store = SessionStore::new(
            &settings.workspace,
            &self.paths,
            sync,
            window,
            settings.max_tool_result_chars,
            &self.clock,
        )?;
        Ok(if self.workspace.is_some() { store.without_old_sessions() } else { store })
    }

    /// Prints on a terminal why there is no output. A script gets no notice.
    pub fn explain_empty(&self, text: &str) {
        if self.terminal.stderr_is_tty {
            self.notice(text);
        }
    }

    /// Prints one line on standard error, unless `--quiet` was given.
    pub fn notice(&self, text: &str) {
        if !self.quiet {
            let line = text.replace('\n', " ");
            self.terminal.eprint(&format!("nanobot: {line}"));
        }
    }

    /// Prints one line like [`Self::notice`], unless an earlier run has printed it: it left the file at `marker`.
    pub(crate) fn notice_once(&self, marker: &Path, text: &str) {
        if self.quiet || marker.exists() {
            return;
        }
        self.notice(text);
        let directory = marker.parent().unwrap_or(Path::new("/"));
        let result =
            durable_file::create_dir(directory).and_then(|()| durable_file::create_marker(marker));
        if let Err(error) = result {
            log::warn!(target: "run", "the notice will be shown again: {error:#}");
        }
    }
}

/// Prints an error and its hint on standard error. Returns its exit status.
pub fn report_error(error: &anyhow::Error, terminal: Terminal) -> Exit {
    report_error_with_hint(error, hint_for(error), terminal)
}

/// Like [`report_error`], with another hint.
pub(crate) fn report_error_with_hint(
    error: &anyhow::Error,
    hint: Option<&str>,
    terminal: Terminal,
) -> Exit {
    if !error.downcast_ref::<Stop>().is_some_and(|stop| stop.is_silent()) {
        // A line break in a model's text or a file name could forge a line that looks like one of ours.
        terminal.eprint_failure(&format!("{error:#}").replace('\n', "\n  | "));
        if let Some(hint) = hint {
            terminal.eprint(&format!("  try: {}", hint.replace(['\n', '\r'], "␊")));
        }
    }
    exit_for(error)
}
