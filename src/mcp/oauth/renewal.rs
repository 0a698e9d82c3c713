//! The access token of a server for each request, renewed before its end and when the server refuses it.

use super::client_credentials::client_grant;
use super::token_request::{OAuthClient, request_token};
use super::token_store::{LoginFile, ServerLogin};
use crate::error::{Exit, exit_for, fail_with_hint};
use crate::sys::clock::Clock;
use crate::sys::http::Http;
use crate::sys::sync::IgnorePoison;
use anyhow::Result;
use std::sync::Mutex;

/// Seconds before its end at which a token is renewed.
const RENEWAL_MARGIN_SECS: i64 = 60;

/// The login to a server that a run uses.
pub struct ServerTokens {
    file: LoginFile,
    /// The address of the server.
    url: String,
    clock: Clock,
    current: Mutex<Option<ServerLogin>>,
}

impl ServerTokens {
    /// Uses the login in `file` for the server at `url`.
    pub fn new(file: LoginFile, url: &str, clock: &Clock) -> Self {
        Self { file, url: url.to_owned(), clock: clock.clone(), current: Mutex::default() }
    }

    /// The token for a request.
    ///
    /// # Errors
    /// Status 78 if there is no login, or it has ended for good; the errors of the renewal.
    pub fn token(&self, http: &Http) -> Result<String> {
        let mut current = self.current.lock().ignore_poison();
        if current.is_none() {
            *current = Some(self.read()?);
        }
        let login = current.take().ok_or_else(|| self.missing("there is no login"))?;
        let login = if self.is_ending(&login) && login.is_renewable() {
            self.renew(http, &login.access_token)?
        } else {
            login
        };
        let token = login.access_token.clone();
        *current = Some(login);
        Ok(token)
    }

    /// Renews the login after the server refused `token`.
    ///
    /// # Errors
    /// As [`Self::token`].
    pub fn renew_refused(&self, http: &Http, token: &str) -> Result<()> {
        let login = self.renew(http, token)?;
        *self.current.lock().ignore_poison() = Some(login);
        Ok(())
    }

    /// The command that logs in anew.
    pub fn login_command(&self) -> String {
        self.file.login_command()
    }

    fn read(&self) -> Result<ServerLogin> {
        let login = self.file.read()?.ok_or_else(|| self.missing("there is no login"))?;
        // A token never goes to another address than the one that it was made for.
        if login.url == self.url {
            Ok(login)
        } else {
            Err(self.missing("the login is for another address"))
        }
    }

    fn is_ending(&self, login: &ServerLogin) -> bool {
        let now = self.clock.timestamp().as_second();
        login.expires_at.is_some_and(|end| end <= now + RENEWAL_MARGIN_SECS)
    }

    /// Renews the login, unless another process has replaced `token` meanwhile.
    fn renew(&self, http: &Http, token: &str) -> Result<ServerLogin> {
        let lock = self.file.lock(&self.clock)?;
        let renewed = self.renew_locked(http, token);
        lock.remove()?;
        renewed
    }

    fn renew_locked(&self, http: &Http, token: &str) -> Result<ServerLogin> {
        let mut login = self.read()?;
        if login.access_token != token && !self.is_ending(&login) {
            return Ok(login);
        }
        if !login.is_renewable() {
            return Err(self.missing("the login has ended"));
        }
        let client = OAuthClient {
            id: login.client_id.clone(),
            secret: login.client_secret.clone(),
            auth_method: login.token_auth_method.clone(),
            issuer: login.issuer.clone(),
        };
        let asked = match &login.refresh_token {
            Some(refresh_token) if !login.is_client_login => {
                let grant = [
                    ("grant_type", "refresh_token"),
                    ("refresh_token", refresh_token),
                    ("resource", &login.resource),
                ];
                request_token(http, &self.clock, &login.token_endpoint, &client, &grant)
            }
            _ => {
                let grant = client_grant(&login.resource, login.scope.as_deref());
                request_token(http, &self.clock, &login.token_endpoint, &client, &grant)
            }
        };
        let tokens = asked.map_err(|error| match exit_for(&error) {
            Exit::Refused => self.missing("the login has ended"),
            _ => error,
        })?;
        login.set_tokens(tokens, &self.clock);
        self.file.write(&login)?;
        Ok(login)
    }

    fn missing(&self, cause: &str) -> anyhow::Error {
        fail_with_hint(Exit::Config, cause, self.file.login_command())
    }
}
