//! Resolves API keys on first use: from the config, a file, a command, a service manager credential, an environment
//! variable or a login. Keys are read once per run; a login's token is checked before each request, because it expires.

use super::login::{self, LoginEndpoints, RequestCredentials};
use super::registry::{KeyLabel, KeySource};
use crate::sys::clock::Clock;
use crate::sys::http::Http;
use crate::sys::secret::{self, Secret};
use crate::sys::stored_secret::{self, SecretPlace};
use crate::sys::sync::IgnorePoison;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::sync::Mutex;

/// A key that is resolved on first use.
pub struct LazyCredentials {
    source: Option<KeySource>,
    /// The source of the key, for the message when the key is rejected.
    pub source_label: KeyLabel,
    /// The environment of the command.
    env: Vec<(String, String)>,
    logins: LoginStore,
    /// The resolved key.
    cached_key: Mutex<Option<Secret>>,
}

/// Access to stored logins, and the means to renew them.
pub struct LoginStore {
    pub folder: PathBuf,
    pub clock: Clock,
    pub endpoints: LoginEndpoints,
}

impl LazyCredentials {
    /// A key from `source`; nothing is read yet.
    pub fn new(
        source: Option<KeySource>,
        source_label: KeyLabel,
        env: Vec<(String, String)>,
        logins: LoginStore,
    ) -> Self {
        Self { source, source_label, env, logins, cached_key: Mutex::default() }
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
        let known = self.cached_key.lock().ignore_poison().clone();
        let key = match (source, known) {
            (KeySource::Login(name), _) => {
                let LoginStore { folder, clock, endpoints } = &self.logins;
                let access = login::credentials(name, folder, http, clock, endpoints)?;
                self.cache_key(&access.token);
                return Ok(Some(access));
            }
            (_, Some(key)) => key,
            (KeySource::Secret(key), None) => key.resolve()?.clone(),
            (KeySource::File(path), None) => self.read(&SecretPlace::File(path.clone()))?,
            (KeySource::Command(command), None) => {
                self.read(&SecretPlace::Command(command.clone()))?
            }
        };
        self.cache_key(&key);
        Ok(Some(RequestCredentials { token: key, base_url: None, headers: Vec::new() }))
    }

    fn read(&self, place: &SecretPlace) -> Result<Secret> {
        let label = &self.source_label;
        stored_secret::read(place, &self.env, &label.to_string())
            .with_context(|| format!("read the key from {label}"))
    }

    fn cache_key(&self, key: &Secret) {
        secret::register(key);
        *self.cached_key.lock().ignore_poison() = Some(key.clone());
    }
}
