//! Logins to MCP servers, as they are stored: one file per server.

use super::discovery::AuthorizationServer;
use super::token_request::{OAuthClient, TokenResponse};
use nanobot_base::shell_quote::quote;
use nanobot_net::auth::login_server::LoginServer;
use nanobot_net::auth::token_file::{LoginSecret, TokenFile};
use nanobot_net::http::Http;
use nanobot_os::clock::Clock;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A login to a server, as it is stored.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ServerLogin {
    /// The address of the server. The tokens are sent to no other address.
    pub url: String,
    pub token_endpoint: String,
    /// The resource that tokens are for.
    pub resource: String,
    pub client_id: String,
    /// The secret of the client, or its private key in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<LoginSecret>,
    /// The way in which the client authenticates at the token endpoint.
    pub(crate) token_auth_method: String,
    /// The authorization server's name for itself.
    #[serde(default)]
    pub issuer: String,
    /// True if the login is the client's own (client credentials), so that it can ask for new tokens at any time.
    #[serde(default)]
    pub is_client_login: bool,
    pub access_token: LoginSecret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<LoginSecret>,
    /// The end of the access token in Unix seconds, if the server states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl ServerLogin {
    /// The login of `client` to the MCP server at `url`, with the `tokens` that `server` issued.
    pub(super) fn new(
        url: &str,
        server: &AuthorizationServer,
        client: OAuthClient,
        tokens: TokenResponse,
        clock: &Clock,
    ) -> Self {
        let now = clock.timestamp().as_second();
        Self {
            url: url.to_owned(),
            token_endpoint: server.token_endpoint.clone(),
            resource: server.resource.clone(),
            client_id: client.id,
            client_secret: client.secret,
            token_auth_method: client.auth_method,
            issuer: client.issuer,
            is_client_login: false,
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            expires_at: tokens.expires_in.map(|seconds| now.saturating_add(seconds)),
            scope: tokens.scope,
        }
    }

    /// The login with new tokens. Values that the server does not send remain unchanged, except the time at which the access token
    /// expires, which was that of the old one.
    pub(super) fn with_tokens(&self, tokens: TokenResponse, clock: &Clock) -> Self {
        let now = clock.timestamp().as_second();
        Self {
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token.or_else(|| self.refresh_token.clone()),
            expires_at: tokens.expires_in.map(|seconds| now.saturating_add(seconds)),
            scope: tokens.scope.or_else(|| self.scope.clone()),
            ..self.clone()
        }
    }

    /// True if new tokens can be requested without a person.
    pub(super) fn is_renewable(&self) -> bool {
        self.is_client_login || self.refresh_token.is_some()
    }
}

/// The file of the login to the server called `server`, in `auth_dir`, the directory of logins.
pub fn login_file(auth_dir: &Path, server: &str) -> TokenFile<ServerLogin> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name = if server.chars().all(is_plain) {
        server.to_owned()
    } else {
        nanobot_os::digest::digest(server.as_bytes())
    };
    let login_command = format!("nanobot mcp login {}", quote(server));
    TokenFile::new(auth_dir, &format!("mcp-{name}"), &format!("`{server}`"), login_command)
}

/// The authorization server of a login. `login_command` is the command that logs in anew.
pub fn login_server<'a>(http: &'a Http, clock: &'a Clock, login_command: &str) -> LoginServer<'a> {
    let login_command = login_command.to_owned();
    LoginServer { http, clock, label: "the authorization server", login_command }
}

#[cfg(test)]
mod tests {
    use super::login_file;
    use std::path::Path;

    #[test]
    fn the_command_that_logs_in_can_be_pasted() {
        let command = |server: &str| login_file(Path::new("/"), server).login_command().to_owned();
        assert_eq!(command("far"), "nanobot mcp login far");
        assert_eq!(command("my server"), "nanobot mcp login 'my server'");
    }
}
