//! What a process has once: its environment, paths, clock and terminal, the options that every command shares, and the
//! connections that outlast a turn.

use crate::error::{Exit, Stop, exit_of, hint_of};
use crate::mcp::servers::Servers;
use crate::session::{self, Place};
use crate::settings::{Config, Overrides, SessionSync, Settings};
use crate::sys::clock::Clock;
use crate::sys::env::Env;
use crate::sys::http::Connections;
use crate::sys::paths::Paths;
use crate::sys::terminal::Terminal;
use anyhow::Result;
use std::path::PathBuf;

/// The options that every command takes.
#[derive(Clone, Debug, Default)]
pub struct GlobalOptions {
    pub config: Option<PathBuf>,
    pub workspace: Option<PathBuf>,
    pub quiet: bool,
}

/// Passed by reference to every use case. Cloning is cheap enough for one changed field.
#[derive(Clone)]
pub struct Context {
    /// The config file that `--config` names.
    pub config: Option<PathBuf>,
    /// The workspace that `--workspace` names.
    pub workspace: Option<PathBuf>,
    /// Print no notices.
    pub quiet: bool,
    pub env: Env,
    pub paths: Paths,
    pub clock: Clock,
    pub terminal: Terminal,
    /// Connections to providers, kept for as long as the process.
    pub connections: Connections,
    /// Running MCP servers, kept for as long.
    pub servers: Servers,
}

impl Context {
    /// The context of a process.
    ///
    /// # Errors
    /// The home directory, or the clock that tests set, is not known.
    pub fn new(options: GlobalOptions, env: Env, terminal: Terminal) -> Result<Self> {
        let GlobalOptions {
            config,
            workspace,
            quiet,
        } = options;
        Ok(Self {
            paths: Paths::resolve(&env, config.as_deref())?,
            clock: Clock::from_env(&env)?,
            config,
            workspace,
            quiet,
            env,
            terminal,
            connections: Connections::default(),
            servers: Servers::default(),
        })
    }

    /// The settings that flags common to all commands, variables and the config file give.
    ///
    /// # Errors
    /// The config file cannot be read, or a value in it cannot be used: status 78.
    pub fn settings(&self) -> Result<Settings> {
        self.settings_with(Overrides::default())
    }

    /// As [`Context::settings`], with flags of one command on top.
    ///
    /// # Errors
    /// As [`Context::settings`].
    pub fn settings_with(&self, overrides: Overrides) -> Result<Settings> {
        let config = Config::load(&self.paths.config)?;
        let overrides = Overrides {
            workspace: overrides.workspace.or_else(|| self.workspace.clone()),
            ..overrides
        };
        Settings::resolve(&config, &self.env, &overrides, &self.paths)
    }

    /// Where the sessions of `settings` are stored.
    ///
    /// # Errors
    /// A directory of sessions cannot be read.
    pub fn session_place(&self, settings: &Settings) -> Result<Place> {
        let sync = match settings.session_sync {
            SessionSync::Turn => session::Sync::Turn,
            SessionSync::None => session::Sync::None,
        };
        Place::new(
            &settings.workspace,
            &self.paths,
            sync,
            settings.memory_window,
            settings.max_tool_result_chars,
            &self.clock,
        )
    }

    /// Prints one line on standard error, unless `--quiet` was given.
    pub fn notice(&self, text: &str) {
        if !self.quiet {
            let line = text.replace('\n', " ");
            self.terminal.complain(&format!("nanobot: {line}"));
        }
    }
}

/// Prints an error and its hint on standard error. Returns its exit status.
pub fn report_error(error: &anyhow::Error, terminal: Terminal) -> Exit {
    report_error_with_hint(error, hint_of(error), terminal)
}

/// As [`report_error`], with another hint.
pub(crate) fn report_error_with_hint(
    error: &anyhow::Error,
    hint: Option<&str>,
    terminal: Terminal,
) -> Exit {
    if !error
        .downcast_ref::<Stop>()
        .is_some_and(|stop| stop.is_known())
    {
        // A model's words or a file's name may contain a line break, which would begin a line that looks like ours.
        terminal.fail(&format!("{error:#}").replace('\n', "\n  | "));
        if let Some(hint) = hint {
            terminal.complain(&format!("  try: {}", hint.replace(['\n', '\r'], "␊")));
        }
    }
    exit_of(error)
}
