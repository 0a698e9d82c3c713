//! Stores logins: one file per provider, readable by its owner only, replaced atomically and under a lock.

use super::token::Login;
use super::vendor::Vendor;
use crate::error::{Exit, exit_for, fail_with_hint};
use crate::sys::clock::Clock;
use crate::sys::durable_file;
use crate::sys::file_lock::FileLock;
use crate::sys::secret::{self, Secret};
use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A login as it is stored.
#[derive(Deserialize, Serialize)]
struct StoredLogin {
    token: String,
    expires: String,
    renewal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
}

/// Timeout for another process that renews the login, which takes one exchange with a server.
const LOCK_TIMEOUT: Duration = Duration::from_secs(90);

/// Creates the folder if it is missing.
pub(super) fn create_dir(folder: &Path) -> Result<()> {
    durable_file::create_dir(folder)
}

/// Reads the stored login; `None` if there is none.
///
/// # Errors
/// Status 78 if the file is not a login. The error does not quote its content.
pub(super) fn read(vendor: Vendor, folder: &Path) -> Result<Option<Login>> {
    let path = path(vendor, folder);
    let Some(bytes) = durable_file::read(&path)? else {
        return Ok(None);
    };
    let unusable = |cause: &str| {
        let cause = format!("the login in `{}` cannot be used: {cause}", path.display());
        fail_with_hint(Exit::Config, cause, vendor.login_command())
    };
    let StoredLogin { token, expires, renewal, account, base } = serde_json::from_slice(&bytes)
        .map_err(|error| unusable(&format!("line {} is invalid", error.line())))?;
    let expires: Timestamp =
        expires.parse().map_err(|_| unusable("`expires` is not a timestamp"))?;
    let (token, renewal) = (Secret::new(token), Secret::new(renewal));
    [&token, &renewal].into_iter().for_each(secret::register);
    Ok(Some(Login { token, expires_at: expires, refresh_token: renewal, account, base_url: base }))
}

/// Stores `login`, replacing the previous one. The caller holds the lock.
pub(super) fn write(vendor: Vendor, folder: &Path, login: &Login) -> Result<()> {
    let Login { token, expires_at: expires, refresh_token: renewal, account, base_url: base } =
        login;
    let written = StoredLogin {
        token: token.expose().into(),
        expires: expires.to_string(),
        renewal: renewal.expose().into(),
        account: account.clone(),
        base: base.clone(),
    };
    let mut bytes = serde_json::to_vec_pretty(&written).expect("strings can be serialized");
    bytes.push(b'\n');
    durable_file::replace(&path(vendor, folder), &bytes)
}

/// Removes the login and its lock file. Returns true if there was a login.
pub(super) fn remove(vendor: Vendor, folder: &Path, clock: &Clock) -> Result<bool> {
    let path = path(vendor, folder);
    if !path.exists() {
        return Ok(false);
    }
    // A concurrent renewal would write the file again.
    let lock = lock(vendor, folder, clock)?;
    let there = path.exists();
    if there {
        std::fs::remove_file(&path).with_context(|| format!("remove `{}`", path.display()))?;
        durable_file::sync_dir(folder)?;
    }
    lock.remove()?;
    Ok(there)
}

/// Locks the login against changes, waiting for other holders.
///
/// # Errors
/// Status 75 if the lock is not released in time.
pub(super) fn lock(vendor: Vendor, folder: &Path, clock: &Clock) -> Result<FileLock> {
    let path = folder.join(format!("{}.json.lock", vendor.file_name()));
    let what = format!("the login to {}", vendor.label());
    let taken =
        FileLock::acquire(&path, &what, &clock.local_timestamp(), LOCK_TIMEOUT, &mut |_| {});
    taken.map_err(|error| match exit_for(&error) {
        // The lock's own hint names a flag that this command does not have.
        Exit::TryAgain => {
            fail_with_hint(Exit::TryAgain, error.to_string(), "the same command again later")
        }
        _ => error,
    })
}

fn path(vendor: Vendor, folder: &Path) -> PathBuf {
    folder.join(format!("{}.json", vendor.file_name()))
}

#[cfg(test)]
mod tests {
    use super::{path, read, write};
    use crate::provider::login::token::Login;
    use crate::provider::login::vendor::Vendor;
    use crate::sys::secret::Secret;

    #[test]
    fn logins_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let login = Login {
            token: Secret::new("token"),
            expires_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            refresh_token: Secret::new("renewal"),
            account: Some("account".into()),
            base_url: None,
        };
        let vendor = Vendor::OpenAiCodex;
        assert_eq!(read(vendor, dir.path()).unwrap(), None);
        write(vendor, dir.path(), &login).unwrap();
        assert_eq!(read(vendor, dir.path()).unwrap(), Some(login));
        assert_eq!(read(Vendor::GitHubCopilot, dir.path()).unwrap(), None);
    }

    #[test]
    fn an_invalid_file_is_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let vendor = Vendor::OpenAiCodex;
        for text in [
            "",
            "{",
            "\"secret\"",
            r#"{"token": "secret", "expires": 1}"#,
            r#"{"token": "secret", "expires": "secret", "renewal": "secret"}"#,
        ] {
            std::fs::write(path(vendor, dir.path()), text).unwrap();
            let error = read(vendor, dir.path()).unwrap_err();
            assert!(!format!("{error:#}").contains("secret"), "{error:#}");
        }
    }
}
