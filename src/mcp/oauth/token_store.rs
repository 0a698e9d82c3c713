//! Stores the logins to MCP servers: one file per server, readable by its owner only, replaced atomically and under a lock.

use super::discovery::AuthorizationServer;
use super::token_request::{OAuthClient, TokenResponse};
use crate::error::{Exit, fail_with_hint};
use crate::sys::clock::Clock;
use crate::sys::durable_file;
use crate::sys::file_lock::FileLock;
use crate::sys::secret::{self, Secret};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout for another process that renews the login, which takes one exchange with a server.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// A login to a server, as it is stored.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ServerLogin {
    /// The address of the server. The tokens go to no other one.
    pub url: String,
    pub token_endpoint: String,
    /// The resource that tokens are for.
    pub resource: String,
    pub client_id: String,
    /// The secret of the client, or its private key in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The way in which the client authenticates at the token endpoint.
    pub token_auth_method: String,
    /// The authorization server's name for itself.
    #[serde(default)]
    pub issuer: String,
    /// True if the login is the client's own (client credentials), so that it can ask for new tokens at any time.
    #[serde(default)]
    pub is_client_login: bool,
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// The end of the access token in Unix seconds, if the server told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl ServerLogin {
    /// The login of `client` to the MCP server at `url`, with the `tokens` that `server` gave.
    pub(super) fn new(
        url: &str,
        server: &AuthorizationServer,
        client: OAuthClient,
        tokens: TokenResponse,
        clock: &Clock,
    ) -> Self {
        let mut login = Self {
            url: url.to_owned(),
            token_endpoint: server.token_endpoint.clone(),
            resource: server.resource.clone(),
            client_id: client.id,
            client_secret: client.secret,
            token_auth_method: client.auth_method,
            issuer: client.issuer,
            is_client_login: false,
            access_token: String::new(),
            refresh_token: None,
            expires_at: None,
            scope: None,
        };
        login.set_tokens(tokens, clock);
        login
    }

    /// Replaces the tokens. What the server does not name stays as it is.
    pub(super) fn set_tokens(&mut self, tokens: TokenResponse, clock: &Clock) {
        for text in
            [Some(&tokens.access_token), tokens.refresh_token.as_ref()].into_iter().flatten()
        {
            secret::register(&Secret::new(text.as_str()));
        }
        let now = clock.timestamp().as_second();
        self.access_token = tokens.access_token;
        self.refresh_token = tokens.refresh_token.or_else(|| self.refresh_token.take());
        self.expires_at = tokens.expires_in.map(|seconds| now.saturating_add(seconds));
        self.scope = tokens.scope.or_else(|| self.scope.take());
    }

    /// True if there is a way to new tokens.
    pub(super) fn is_renewable(&self) -> bool {
        self.is_client_login || self.refresh_token.is_some()
    }
}

/// The place of one server's login.
#[derive(Clone, Debug)]
pub struct LoginFile {
    path: PathBuf,
    server: String,
}

impl LoginFile {
    /// The login of the server called `server` in `auth_dir`, the directory of logins.
    pub fn new(auth_dir: &Path, server: &str) -> Self {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let name = if server.chars().all(is_plain) {
            server.to_owned()
        } else {
            crate::sys::digest::digest(server.as_bytes())
        };
        Self { path: auth_dir.join(format!("mcp-{name}.json")), server: server.to_owned() }
    }

    /// The command that logs in.
    pub fn login_command(&self) -> String {
        format!("nanobot mcp login {}", self.server)
    }

    /// Reads the login; `None` if there is none.
    ///
    /// # Errors
    /// Status 78 if the file is no login. The error does not quote its content.
    pub fn read(&self) -> Result<Option<ServerLogin>> {
        let Some(bytes) = durable_file::read(&self.path)? else {
            return Ok(None);
        };
        let login: ServerLogin = serde_json::from_slice(&bytes).map_err(|error| {
            let cause = format!(
                "the login in `{}` cannot be used: line {}",
                self.path.display(),
                error.line()
            );
            fail_with_hint(Exit::Config, cause, self.login_command())
        })?;
        let secrets =
            [Some(&login.access_token), login.refresh_token.as_ref(), login.client_secret.as_ref()];
        for text in secrets.into_iter().flatten() {
            secret::register(&Secret::new(text.as_str()));
        }
        Ok(Some(login))
    }

    /// Stores `login`. The caller holds the lock.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, login: &ServerLogin) -> Result<()> {
        let mut bytes = serde_json::to_vec_pretty(login).context("serialize the login")?;
        bytes.push(b'\n');
        durable_file::replace(&self.path, &bytes)
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
        let lock = self.lock(clock)?;
        let there = self.path.exists();
        if there {
            std::fs::remove_file(&self.path)
                .with_context(|| format!("remove `{}`", self.path.display()))?;
        }
        lock.remove()?;
        Ok(there)
    }

    /// Locks the login against changes, waiting for other holders.
    ///
    /// # Errors
    /// Status 75 if the lock is not released in time.
    pub fn lock(&self, clock: &Clock) -> Result<FileLock> {
        let dir = self.path.parent().context("the login has no directory")?;
        durable_file::create_dir(dir)?;
        let path = self.path.with_extension("json.lock");
        let subject = format!("the login to `{}`", self.server);
        FileLock::acquire(&path, &subject, &clock.local_timestamp(), LOCK_TIMEOUT, &mut |_| {})
    }
}
