//! The access token of a server for each request, renewed before its end and when the server refuses it.

use super::client_credentials::client_grant;
use super::token_request::{OAuthClient, request_token};
use super::token_store::{ServerLogin, login_server};
use anyhow::Result;
use nanobot_base::error::{Exit, exit_for};
use nanobot_net::auth::token_file::TokenFile;
use nanobot_net::http::Http;
use nanobot_os::clock::Clock;
use parking_lot::Mutex;

/// Seconds before its end at which a token is renewed.
const RENEWAL_MARGIN_SECS: i64 = 60;

/// The login to a server that a run uses.
pub struct ServerTokens {
    file: TokenFile<ServerLogin>,
    /// The address of the server.
    url: String,
    clock: Clock,
    current: Mutex<Option<ServerLogin>>,
}

impl ServerTokens {
    /// Uses the login in `file` for the server at `url`.
    pub fn new(file: TokenFile<ServerLogin>, url: &str, clock: &Clock) -> Self {
        Self { file, url: url.to_owned(), clock: clock.clone(), current: Mutex::default() }
    }

    /// The token for a request.
    ///
    /// # Errors
    /// Status 78 if there is no login, or it has ended for good; the errors of the renewal.
    pub fn token(&self, http: &Http) -> Result<String> {
        let mut current = self.current.lock();
        let mut login = match current.take() {
            Some(login) => login,
            None => {
                let login = self.file.require()?;
                self.check_address(&login)?;
                login
            }
        };
        if self.is_ending(&login) && login.is_renewable() {
            login = self.renew(http, login.access_token.expose())?;
        }
        let token = login.access_token.expose().to_owned();
        *current = Some(login);
        Ok(token)
    }

    /// Renews the login after the server refused `token`.
    ///
    /// # Errors
    /// The errors of [`Self::token`].
    pub(crate) fn renew_refused(&self, http: &Http, token: &str) -> Result<()> {
        let login = self.renew(http, token)?;
        *self.current.lock() = Some(login);
        Ok(())
    }

    /// The command that logs in anew.
    pub fn login_command(&self) -> &str {
        self.file.login_command()
    }

    /// A token is only sent to the address that it was issued for.
    fn check_address(&self, login: &ServerLogin) -> Result<()> {
        if login.url == self.url {
            Ok(())
        } else {
            Err(self.file.unusable("the login is for another address"))
        }
    }

    fn is_ending(&self, login: &ServerLogin) -> bool {
        let now = self.clock.timestamp().as_second();
        login.expires_at.is_some_and(|end| end <= now + RENEWAL_MARGIN_SECS)
    }

    /// Renews the login, unless another process has replaced `token` meanwhile.
    fn renew(&self, http: &Http, token: &str) -> Result<ServerLogin> {
        self.file.renew(&self.clock, |login| {
            self.check_address(login)?;
            if login.access_token.expose() != token && !self.is_ending(login) {
                return Ok(None);
            }
            if !login.is_renewable() {
                return Err(self.file.unusable("the login has ended"));
            }
            let grant = match &login.refresh_token {
                Some(refresh_token) if !login.is_client_login => vec![
                    ("grant_type", "refresh_token"),
                    ("refresh_token", refresh_token.expose()),
                    ("resource", &login.resource),
                ],
                _ => client_grant(&login.resource, login.scope.as_deref()),
            };
            let client = OAuthClient {
                id: login.client_id.clone(),
                secret: login.client_secret.clone(),
                auth_method: login.token_auth_method.clone(),
                issuer: login.issuer.clone(),
            };
            let server = login_server(http, &self.clock, self.file.login_command());
            let tokens = request_token(&server, &login.token_endpoint, &client, &grant);
            let tokens = tokens.map_err(|error| match exit_for(&error) {
                Exit::Refused => self.file.unusable("the login has ended"),
                _ => error,
            })?;
            Ok(Some(login.with_tokens(tokens, &self.clock)))
        })
    }
}
