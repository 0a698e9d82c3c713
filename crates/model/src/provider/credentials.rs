//! Resolves API keys on first use: from the config, a file, a command, a service manager credential, an environment
//! variable or a login. Keys are read once per run; a login's token is checked before each request, because it expires.

use super::login::{self, LoginEndpoints, RequestCredentials};
use super::registry::{KeyLabel, KeySource};
use anyhow::{Context, Result};
use nanobot_net::http::Http;
use nanobot_os::clock::Clock;
use nanobot_os::secret::{self, Secret};
use nanobot_sandbox::stored_secret::{self, SecretSource};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// A key that is resolved on first use.
pub struct LazyCredentials {
    source: Option<KeySource>,
    /// The source of the key, for the message when the key is rejected.
    pub source_label: KeyLabel,
    /// The environment of the command.
    env: Vec<(String, String)>,
    logins: LoginStore,
}

/// Access to stored logins, and the means to renew them.
pub struct LoginStore {
    pub folder: PathBuf,
    pub clock: Clock,
    pub endpoints: LoginEndpoints,
}

/// A number that tells the account of a key from others; `None` if the key cannot be read. The tokens that a login or a command gives
/// change, and not the account.
pub fn account_number(source: &KeySource) -> Option<u64> {
    let mut hash = DefaultHasher::new();
    match source {
        KeySource::Secret(key) => key.resolve().ok()?.expose().hash(&mut hash),
        KeySource::File(path) => std::fs::read(path).ok()?.hash(&mut hash),
        KeySource::Command(command) => command.hash(&mut hash),
        KeySource::Login(name) => name.hash(&mut hash),
    }
    Some(hash.finish())
}

impl LazyCredentials {
    /// A key from `source`; nothing is read yet.
    pub fn new(
        source: Option<KeySource>,
        source_label: KeyLabel,
        env: Vec<(String, String)>,
        logins: LoginStore,
    ) -> Self {
        Self { source, source_label, env, logins }
    }

    /// True if a key is configured.
    pub fn is_configured(&self) -> bool {
        self.source.is_some()
    }

    /// The credentials for a request; `None` if none are needed.
    ///
    /// # Errors
    /// Status 78 if a file or a command yields no key, or there is no login; 77 if the login is refused.
    pub fn resolve(&self, http: &Http) -> Result<Option<RequestCredentials>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let token = match source {
            KeySource::Login(name) => {
                let LoginStore { folder, clock, endpoints } = &self.logins;
                return login::credentials(name, folder, http, clock, endpoints).map(Some);
            }
            KeySource::Secret(key) => key.resolve()?.clone(),
            KeySource::File(path) => self.read(&SecretSource::File(path.clone()))?,
            KeySource::Command(command) => self.read(&SecretSource::Command(command.clone()))?,
        };
        secret::register(&token);
        Ok(Some(RequestCredentials { token, base_url: None, headers: Vec::new() }))
    }

    fn read(&self, source: &SecretSource) -> Result<Secret> {
        let label = &self.source_label;
        stored_secret::read(source, &self.env, &label.to_string())
            .with_context(|| format!("read the key from {label}"))
    }
}
