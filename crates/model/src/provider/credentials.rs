//! Resolves API keys on first use: from the config, a file, a command, a service manager credential, an environment
//! variable, a login or the files of a cloud's own tools. Keys are read once per run; a login's token is checked before each
//! request, because it expires. What a command prints may expire too: it runs again when the server rejects that.

use super::cloud::aws::AwsSource;
use super::cloud::google;
use super::login::{self, LoginEndpoints, RequestCredentials};
use super::registry::{KeyLabel, KeySource};
use anyhow::{Context, Result};
use nanobot_net::http::Http;
use nanobot_os::clock::Clock;
use nanobot_os::env::Env;
use nanobot_os::secret::{self, Secret};
use nanobot_sandbox::stored_secret::{self, SecretSource};
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

/// A key that is resolved on first use.
pub struct LazyCredentials {
    source: Option<KeySource>,
    /// The source of the key, for the message when the key is rejected.
    pub source_label: KeyLabel,
    /// The environment of a command, and that in which a cloud's keys are looked for.
    env: Env,
    logins: LoginStore,
    /// The key of the last request.
    used_token: Mutex<Option<Secret>>,
}

/// Access to stored logins, and the means to renew them.
pub struct LoginStore {
    pub folder: PathBuf,
    pub clock: Clock,
    pub endpoints: LoginEndpoints,
}

/// A number that tells the account of a key from others; `None` if the key cannot be read. A login counts by its name and a command by
/// its text, since both give new tokens for the same account.
pub fn account_number(source: &KeySource) -> Option<u64> {
    let mut hash = DefaultHasher::new();
    match source {
        KeySource::Secret(key) => key.resolve().ok()?.expose().hash(&mut hash),
        // This keeps the key for the request: a pipe can be read only once.
        KeySource::File(path) => {
            let source = SecretSource::File(path.clone());
            stored_secret::read(&source, &[], "the key").ok()?.expose().hash(&mut hash);
        }
        KeySource::Command(command) => command.hash(&mut hash),
        KeySource::Login(name) => name.hash(&mut hash),
        KeySource::Aws(source) => source.hash(&mut hash),
        KeySource::Google(path) => path.hash(&mut hash),
    }
    Some(hash.finish())
}

impl LazyCredentials {
    /// A key from `source`; nothing is read yet.
    pub fn new(
        source: Option<KeySource>,
        source_label: KeyLabel,
        env: Env,
        logins: LoginStore,
    ) -> Self {
        Self { source, source_label, env, logins, used_token: Mutex::default() }
    }

    /// True if a key is configured.
    pub fn is_configured(&self) -> bool {
        self.source.is_some()
    }

    /// The credentials for a request; `None` if none are needed, or if [`Self::sign`] has them.
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
            KeySource::Google(path) => {
                let LoginStore { clock, endpoints, .. } = &self.logins;
                let token_url = format!("{}/token", endpoints.google);
                let credentials = google::credentials(path, http, clock, &token_url)?;
                *self.used_token.lock() = Some(credentials.token.clone());
                return Ok(Some(credentials));
            }
            KeySource::Aws(source) => {
                return source.resolve(&self.env, &self.logins.clock).map(|_| None);
            }
            KeySource::Secret(key) => key.resolve()?.clone(),
            KeySource::File(path) => self.read(&SecretSource::File(path.clone()))?,
            KeySource::Command(command) => self.read(&SecretSource::Command(command.clone()))?,
        };
        secret::register(&token);
        *self.used_token.lock() = Some(token.clone());
        Ok(Some(RequestCredentials { token, base_url: None, headers: Vec::new() }))
    }

    /// The source of keys that sign requests, if they do.
    pub(super) fn signer(&self) -> Option<&AwsSource> {
        match &self.source {
            Some(KeySource::Aws(source)) => Some(source),
            _ => None,
        }
    }

    /// The headers that sign a request; none unless the key is of a kind that signs.
    ///
    /// # Errors
    /// Status 78 without a key.
    pub(super) fn sign(
        &self,
        method: &str,
        url: &str,
        body: &[u8],
    ) -> Result<Vec<(String, String)>> {
        let Some(source) = self.signer() else {
            return Ok(Vec::new());
        };
        let keys = source.resolve(&self.env, &self.logins.clock)?;
        *self.used_token.lock() = Some(keys.secret_access_key.clone());
        source.sign(&keys, method, url, body, self.logins.clock.timestamp())
    }

    /// Gets a new key in place of the one that the server has rejected. Returns true if there is another one.
    ///
    /// # Errors
    /// The errors of [`Self::resolve`].
    pub(super) fn renew(&self, http: &Http) -> Result<bool> {
        let (Some(source), Some(rejected)) = (&self.source, self.used_token.lock().clone()) else {
            return Ok(false);
        };
        let renewed = match source {
            KeySource::Command(command) => {
                stored_secret::forget(&SecretSource::Command(command.clone()), &rejected);
                self.resolve(http)?.map(|credentials| credentials.token)
            }
            KeySource::Google(path) => {
                google::forget_token(path);
                self.resolve(http)?.map(|credentials| credentials.token)
            }
            KeySource::Aws(source) => {
                source.forget(&self.env)?;
                Some(source.resolve(&self.env, &self.logins.clock)?.secret_access_key)
            }
            KeySource::Secret(_) | KeySource::File(_) | KeySource::Login(_) => None,
        };
        Ok(renewed.is_some_and(|renewed| renewed.expose() != rejected.expose()))
    }

    fn read(&self, source: &SecretSource) -> Result<Secret> {
        let label = &self.source_label;
        let env: Vec<_> =
            self.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        stored_secret::read(source, &env, &label.to_string())
            .with_context(|| format!("read the key from {label}"))
    }
}

#[cfg(test)]
mod tests {
    use super::account_number;
    use crate::provider::registry::KeySource;
    use nanobot_sandbox::stored_secret::{self, SecretSource};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    #[test]
    fn the_key_in_a_pipe_is_kept_for_the_request() {
        let key = "key-of-the-pipe-4711";
        let (reader, mut writer) = std::io::pipe().unwrap();
        writeln!(writer, "{key}").unwrap();
        drop(writer);
        let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        let from_pipe = account_number(&KeySource::File(path.clone()));
        assert!(from_pipe.is_some());
        let secret = stored_secret::read(&SecretSource::File(path), &[], "the key").unwrap();
        assert_eq!(secret.expose(), key);

        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            account_number(&KeySource::File(path))
        };
        assert_eq!(file("same", key), from_pipe);
        assert_ne!(file("other", "key-of-another-account"), from_pipe);
        assert_eq!(account_number(&KeySource::File(folder.path().join("none"))), None);
    }
}
