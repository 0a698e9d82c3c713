//! The file of a login: readable by its owner only, replaced atomically and under a lock.
//!
//! Concurrent runs share one login, and some servers accept each refresh token only once and treat a second use as theft. A
//! login is therefore renewed under the lock, and read again once the lock is acquired.

use anyhow::{Context, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::clock::Clock;
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use nanobot_os::secret::{self, Secret};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for another process that renews the login, which takes one exchange with a server.
const LOCK_TIMEOUT: Duration = Duration::from_secs(90);

/// A token, or another secret of a login. It is masked in all output from the time it is read or received.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub struct LoginSecret(Secret);

impl LoginSecret {
    /// The secret.
    pub fn secret(&self) -> &Secret {
        &self.0
    }

    /// Its text.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl From<String> for LoginSecret {
    fn from(text: String) -> Self {
        let secret = Secret::new(text);
        secret::register(&secret);
        Self(secret)
    }
}

impl From<&str> for LoginSecret {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<LoginSecret> for String {
    fn from(secret: LoginSecret) -> Self {
        secret.expose().to_owned()
    }
}

/// The file of a login of type `T`.
#[derive(Clone, Debug)]
pub struct TokenFile<T> {
    path: PathBuf,
    label: String,
    login_command: String,
    login: PhantomData<T>,
}

impl<T: DeserializeOwned + Serialize> TokenFile<T> {
    /// The login in `folder` under the name `name`. `label` names the server in messages; `login_command` logs in anew.
    pub fn new(folder: &Path, name: &str, label: &str, login_command: String) -> Self {
        Self {
            path: folder.join(format!("{name}.json")),
            label: label.to_owned(),
            login_command,
            login: PhantomData,
        }
    }

    /// The command that logs in anew.
    pub fn login_command(&self) -> &str {
        &self.login_command
    }

    /// Reads the login; `None` if there is none.
    ///
    /// # Errors
    /// Status 78 if the file is not a login. The error does not quote its content.
    pub fn read(&self) -> Result<Option<T>> {
        let Some(bytes) = durable_file::read(&self.path)? else {
            return Ok(None);
        };
        let login = serde_json::from_slice(&bytes).map_err(|error| {
            let (path, line) = (self.path.display(), error.line());
            self.unusable(&format!("the login in `{path}` cannot be used: line {line} is invalid"))
        })?;
        Ok(Some(login))
    }

    /// Reads the login.
    ///
    /// # Errors
    /// Status 78 if there is no login, and the errors of [`Self::read`].
    pub fn require(&self) -> Result<T> {
        let missing = || self.unusable(&format!("not logged in to {}", self.label));
        self.read()?.ok_or_else(missing)
    }

    /// Stores `login`, replacing the previous one.
    ///
    /// # Errors
    /// The file cannot be written; status 75 if its lock is not released in time.
    pub fn write(&self, login: &T, clock: &Clock) -> Result<()> {
        self.with_lock(clock, || self.replace(login))
    }

    /// Replaces the login by the one that `renew` returns, and returns that. `renew` gets the login as it is after the lock is acquired,
    /// and returns `None` if another process has renewed it by then.
    ///
    /// # Errors
    /// The errors of `renew`, of [`Self::require`] and of [`Self::write`].
    pub fn renew(&self, clock: &Clock, renew: impl FnOnce(&T) -> Result<Option<T>>) -> Result<T> {
        self.with_lock(clock, || {
            let login = self.require()?;
            match renew(&login)? {
                Some(renewed) => self.replace(&renewed).map(|()| renewed),
                None => Ok(login),
            }
        })
    }

    /// Removes the login. Returns true if there was one.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, clock: &Clock) -> Result<bool> {
        if !self.path.exists() {
            return Ok(false);
        }
        // A concurrent renewal would write the file again.
        self.with_lock(clock, || {
            let is_removed = durable_file::remove(&self.path)?;
            self.path.parent().map_or(Ok(()), durable_file::sync_dir)?;
            Ok(is_removed)
        })
    }

    /// The error of a login that cannot be used.
    pub fn unusable(&self, cause: &str) -> anyhow::Error {
        fail(Exit::Config, cause).with_hint(&self.login_command)
    }

    fn replace(&self, login: &T) -> Result<()> {
        let mut bytes = serde_json::to_vec_pretty(login).context("serialize the login")?;
        bytes.push(b'\n');
        durable_file::replace(&self.path, &bytes)
    }

    /// Runs `work` while the login is locked against changes of other processes.
    fn with_lock<R>(&self, clock: &Clock, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.path.parent().map_or(Ok(()), durable_file::create_dir)?;
        let path = self.path.with_extension("json.lock");
        let subject = format!("the login to {}", self.label);
        let now = clock.local_timestamp();
        let lock = FileLock::acquire(&path, &subject, Some(&now), LOCK_TIMEOUT, &mut |_| {})?;
        let result = work();
        lock.remove()?;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{LoginSecret, TokenFile};
    use nanobot_os::clock::Clock;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Deserialize, Serialize)]
    struct TestLogin {
        token: LoginSecret,
    }

    fn file_in(folder: &std::path::Path) -> TokenFile<TestLogin> {
        TokenFile::new(folder, "a", "the server", "log in".into())
    }

    #[test]
    fn logins_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::Fixed("2026-01-02T03:04:05Z".parse().unwrap());
        let file = file_in(&dir.path().join("auth"));
        assert_eq!(file.read().unwrap(), None);
        let login = TestLogin { token: "token".into() };
        file.write(&login, &clock).unwrap();
        assert_eq!(file.read().unwrap(), Some(login));
        assert!(file.remove(&clock).unwrap());
        assert!(!file.remove(&clock).unwrap());
    }

    #[test]
    fn an_invalid_file_is_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let file = file_in(dir.path());
        for text in ["", "{", "\"secret\"", r#"{"token": 1, "x": "secret"}"#] {
            std::fs::write(dir.path().join("a.json"), text).unwrap();
            let error = file.read().unwrap_err();
            assert!(!format!("{error:#}").contains("secret"), "{error:#}");
        }
    }
}
