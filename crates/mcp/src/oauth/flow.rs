//! The login of a person: the authorization code flow with PKCE (RFC 7636). The browser comes back to a listener on loopback, or
//! the person types the address that it was sent to.

use super::discovery::AuthorizationServer;
use super::token_request::{
    OAuthClient, RegisteredClient, default_method, register_client, request_token,
};
use super::token_store::ServerLogin;
use anyhow::{Context, Result};
use base64::Engine;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_net::auth::login_server::{LoginServer, encode_form};
use nanobot_net::http::shown_message;
use nanobot_os::secret::random_hex;
use serde_json::json;
use url::{Url, form_urlencoded};

/// A login that waits for the person.
pub struct PendingLogin {
    server: AuthorizationServer,
    client: OAuthClient,
    redirect_url: String,
    verifier: String,
    state: String,
    scope: Option<String>,
}

impl PendingLogin {
    /// Begins a login: registers this program unless there is a `client`. `scope` replaces the scope that the server names.
    ///
    /// # Errors
    /// Status 78 if the server registers no clients, 77 if it refuses.
    pub fn begin(
        login_server: &LoginServer<'_>,
        server: AuthorizationServer,
        client: Option<RegisteredClient>,
        scope: Option<String>,
        redirect_url: &str,
    ) -> Result<Self> {
        server.browser_endpoint()?;
        let scope = scope.or_else(|| server.scope.clone());
        let client = match (client, &server.registration_endpoint) {
            (Some(client), _) => client.into_client(&server),
            (None, Some(endpoint)) => {
                let methods = &server.token_auth_methods;
                // An empty list means that the server does not say.
                let needs_secret =
                    !methods.is_empty() && methods.iter().all(|method| method != "none");
                let method = default_method(needs_secret, methods);
                let metadata = json!({
                    "client_name": "nanobot", "redirect_uris": [redirect_url], "token_endpoint_auth_method": method,
                    "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
                    "scope": scope,
                });
                register_client(login_server, &server.issuer, endpoint, &without_nulls(metadata))?
            }
            (None, None) => {
                return Err(fail(
                    Exit::Config,
                    format!("the authorization server `{}` registers no clients", server.issuer),
                )
                .with_hint("`--client-id`, with a client that you register there"));
            }
        };
        Ok(Self {
            server,
            client,
            scope,
            redirect_url: redirect_url.to_owned(),
            verifier: random_hex(32),
            state: random_hex(16),
        })
    }

    /// The address that the person opens.
    ///
    /// # Errors
    /// The server's address is invalid.
    pub fn authorization_url(&self) -> Result<String> {
        let mut url = Url::parse(self.server.browser_endpoint()?)
            .context("parse the authorization endpoint")?;
        let challenge = ring::digest::digest(&ring::digest::SHA256, self.verifier.as_bytes());
        let challenge = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(challenge);
        let mut fields = vec![
            ("response_type", "code"),
            ("client_id", &self.client.id),
            ("redirect_uri", &self.redirect_url),
            ("state", &self.state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("resource", &self.server.resource),
        ];
        fields.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        let own_query = url.query().map(|query| format!("{query}&")).unwrap_or_default();
        url.set_query(Some(&format!("{own_query}{}", encode_form(&fields))));
        Ok(url.into())
    }

    /// Ends the login with `redirect`: the address that the browser was sent to, or only its query. `url` is the address of the
    /// MCP server.
    ///
    /// # Errors
    /// Status 77 if the person or the server refused, or the redirect is not the answer to this login.
    pub fn finish(
        self,
        login_server: &LoginServer<'_>,
        url: &str,
        redirect: &str,
    ) -> Result<ServerLogin> {
        let field = |name: &str| redirect_field(redirect, name);
        let refused = |cause: &str| fail(Exit::Refused, format!("the login failed: {cause}"));
        if field("state").as_deref() != Some(self.state.as_str()) {
            return Err(refused("the redirect does not belong to it"));
        }
        // Another authorization server could have sent the browser here (RFC 9207).
        let issuer = field("iss");
        let is_other = issuer.as_ref().is_some_and(|issuer| *issuer != self.server.issuer);
        if is_other || (self.server.names_itself && issuer.is_none()) {
            return Err(refused("the redirect is from another authorization server"));
        }
        if let Some(error) = field("error") {
            let cause = field("error_description").unwrap_or(error);
            return Err(refused(&shown_message(&cause)));
        }
        let code = field("code").ok_or_else(|| refused("the redirect has no code"))?;
        let grant = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &self.redirect_url),
            ("code_verifier", &self.verifier),
            ("resource", &self.server.resource),
        ];
        let endpoint = &self.server.token_endpoint;
        let tokens = request_token(login_server, endpoint, &self.client, &grant)?;
        Ok(ServerLogin {
            scope: tokens.scope.clone().or(self.scope),
            ..ServerLogin::new(url, &self.server, self.client, tokens, login_server.clock)
        })
    }
}

/// The value of the field `name` in `redirect`, an address or only its query.
fn redirect_field(redirect: &str, name: &str) -> Option<String> {
    let query = redirect.split_once('?').map_or(redirect, |(_, query)| query);
    let query = query.split_once('#').map_or(query, |(query, _)| query);
    let mut fields = form_urlencoded::parse(query.trim().as_bytes());
    fields.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn without_nulls(mut value: serde_json::Value) -> serde_json::Value {
    if let Some(members) = value.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::redirect_field;

    #[test]
    fn fields_of_a_redirect() {
        let check = |redirect: &str, expect: Option<&str>| {
            assert_eq!(redirect_field(redirect, "state").as_deref(), expect, "{redirect}");
        };
        check("code=a&state=b%20c", Some("b c"));
        check(" http://127.0.0.1:1/callback?code=a&state=b\n", Some("b"));
        check("http://127.0.0.1:1/callback?code=a&state=b#_=_", Some("b"));
        check("http://127.0.0.1:1/callback?code=a#state=b", None);
        check("", None);
    }
}
