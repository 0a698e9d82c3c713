//! The login of a program without a person: the client credentials grant (RFC 6749, section 4.4), for clients that the user has
//! registered with the authorization server.

use super::discovery::AuthorizationServer;
use super::token_request::{RegisteredClient, request_token};
use super::token_store::ServerLogin;
use anyhow::Result;
use nanobot_net::auth::login_server::LoginServer;

/// Logs in as `client`. `scope` replaces the scope that the server names; `url` is the address of the MCP server.
///
/// # Errors
/// Status 77 if the authorization server refuses, 69 if it does not answer.
pub fn log_in(
    login_server: &LoginServer<'_>,
    server: &AuthorizationServer,
    client: RegisteredClient,
    scope: Option<String>,
    url: &str,
) -> Result<ServerLogin> {
    let client = client.into_client(server);
    let scope = scope.or_else(|| server.scope.clone());
    let grant = client_grant(&server.resource, scope.as_deref());
    let tokens = request_token(login_server, &server.token_endpoint, &client, &grant)?;
    let login = ServerLogin::new(url, server, client, tokens, login_server.clock);
    Ok(ServerLogin { scope: login.scope.clone().or(scope), is_client_login: true, ..login })
}

/// The fields of the grant for tokens that are for `resource`.
pub(super) fn client_grant<'a>(
    resource: &'a str,
    scope: Option<&'a str>,
) -> Vec<(&'static str, &'a str)> {
    let mut fields = vec![("grant_type", "client_credentials"), ("resource", resource)];
    fields.extend(scope.map(|scope| ("scope", scope)));
    fields
}
