//! Resolves API keys on first use: from the config, a file, a command, a service manager credential, an environment
//! variable or a login. Keys are read once per run; a login's token is checked before each request, because it expires.

use super::login::{self, Access, Endpoints};
use super::registry::KeySource;
use crate::error::{Exit, fail, fail_hint};
use crate::sys::clock::Clock;
use crate::sys::http::Http;
use crate::sys::input;
use crate::sys::process::{self, Spec};
use crate::sys::secret::{self, Secret};
use crate::sys::sync::IgnorePoison;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// Timeout of a command that prints the key. Generous, because a person may have to touch a hardware token.
const COMMAND: Duration = Duration::from_secs(60);
/// Maximum length of a key in bytes. A longer one indicates the wrong file.
const LONGEST: usize = 16 << 10;

/// A key that is resolved on first use.
pub struct Key {
    source: Option<KeySource>,
    /// The source of the key, as a phrase for the message when the key is rejected.
    pub place: String,
    /// The environment of the command.
    env: Vec<(String, String)>,
    logins: Logins,
    /// The resolved key.
    had: Mutex<Option<Secret>>,
}

/// Access to stored logins, and the means to renew them.
pub struct Logins {
    pub folder: PathBuf,
    pub clock: Clock,
    pub endpoints: Endpoints,
}

impl Key {
    /// A key from `source`; nothing is read yet.
    pub fn new(
        source: Option<KeySource>,
        place: String,
        env: Vec<(String, String)>,
        logins: Logins,
    ) -> Self {
        Self {
            source,
            place,
            env,
            logins,
            had: Mutex::default(),
        }
    }

    /// True if a key is configured.
    pub fn is_some(&self) -> bool {
        self.source.is_some()
    }

    /// The credentials for a request; `None` if none are needed.
    ///
    /// # Errors
    /// Status 78 if a file or a command yields no key, or there is no login; 77 if the login is refused.
    pub fn access(&self, http: &Http) -> Result<Option<Access>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let known = self.had.lock().ignore_poison().clone();
        let key = match (source, known) {
            (KeySource::Login(name), _) => {
                let Logins {
                    folder,
                    clock,
                    endpoints,
                } = &self.logins;
                let access = login::access(name, folder, http, clock, endpoints)?;
                self.keep(&access.token);
                return Ok(Some(access));
            }
            (_, Some(key)) => key,
            (KeySource::Text(key), None) => key.clone(),
            (KeySource::File(path), None) => self.told(from_file(path))?,
            (KeySource::Command(command), None) => self.told(from_command(command, &self.env))?,
        };
        self.keep(&key);
        Ok(Some(Access {
            token: key,
            base: None,
            headers: Vec::new(),
        }))
    }

    fn told(&self, key: Result<Secret>) -> Result<Secret> {
        key.with_context(|| format!("read the key from {}", self.place))
    }

    fn keep(&self, key: &Secret) {
        secret::remember(key);
        *self.had.lock().ignore_poison() = Some(key.clone());
    }
}

fn from_file(path: &Path) -> Result<Secret> {
    let bytes = input::read_file(path, &path.display().to_string(), LONGEST)
        .map_err(|error| fail(Exit::Config, format!("{error:#}")))?;
    first_line(&bytes).ok_or_else(|| fail(Exit::Config, format!("`{}` is empty", path.display())))
}

fn from_command(command: &str, env: &[(String, String)]) -> Result<Secret> {
    let spec = Spec {
        program: PathBuf::from("/bin/sh"),
        // Standard error is discarded, because it must not be mistaken for the key.
        arguments: vec!["-c".into(), format!("{{ {command}\n}} 2>/dev/null")],
        directory: PathBuf::from("/"),
        env: env.to_vec(),
        timeout: COMMAND,
        keep: LONGEST,
        fence: None,
        input: None,
    };
    let finished = process::run(&spec, &mut |_| ())?;
    if let Some(stop) = finished.stopped {
        return Err(stop.into());
    }
    let hint = "run the command by hand to see its output";
    match finished.status {
        None => Err(fail_hint(
            Exit::Config,
            "the command timed out after 60 s",
            hint,
        )),
        Some(status) if !status.success() => Err(fail_hint(
            Exit::Config,
            format!("the command failed: {status}"),
            hint,
        )),
        Some(_) => first_line(&finished.head)
            .ok_or_else(|| fail_hint(Exit::Config, "the command printed nothing", hint)),
    }
}

fn first_line(bytes: &[u8]) -> Option<Secret> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_start_matches('\u{feff}').trim().lines().next()?;
    Some(Secret::new(line.trim()))
}
