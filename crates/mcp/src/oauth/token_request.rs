//! Requests to the token endpoint and the registration endpoint.

use super::client_assertion;
use super::discovery::AuthorizationServer;
use anyhow::Result;
use base64::Engine;
use nanobot_base::error::{Exit, fail};
use nanobot_net::auth::login_server::{LoginServer, RequestBody};
use nanobot_net::auth::token_file::LoginSecret;
use nanobot_net::web_url::percent_encode;
use nanobot_os::clock::Clock;
use nanobot_os::secret::{self, Secret};
use serde_json::Value;

/// The authentication of a client by assertions that it signs (RFC 7523).
const PRIVATE_KEY_METHOD: &str = "private_key_jwt";

/// The client, as the authorization server knows it.
#[derive(Clone, Debug)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    /// The secret, or the private key in PEM.
    pub(super) secret: Option<LoginSecret>,
    /// `none`, `client_secret_post`, `client_secret_basic` or `private_key_jwt`.
    pub(super) auth_method: String,
    /// The authorization server's name for itself.
    pub(super) issuer: String,
}

/// A client that the user has registered with the authorization server.
#[derive(Clone, Debug)]
pub struct RegisteredClient {
    pub id: String,
    pub secret: Option<ClientSecret>,
}

/// The proof of a client's identity.
#[derive(Clone, Debug)]
pub enum ClientSecret {
    Password(String),
    /// In PEM.
    PrivateKey(String),
}

impl RegisteredClient {
    pub(super) fn into_client(self, server: &AuthorizationServer) -> OAuthClient {
        let supported_methods = &server.token_auth_methods;
        let (secret, auth_method) = match self.secret {
            None => (None, default_method(false, supported_methods)),
            Some(ClientSecret::Password(secret)) => {
                (Some(secret.into()), default_method(true, supported_methods))
            }
            Some(ClientSecret::PrivateKey(pem)) => {
                (Some(pem.into()), PRIVATE_KEY_METHOD.to_owned())
            }
        };
        OAuthClient { id: self.id, secret, auth_method, issuer: server.issuer.clone() }
    }
}

pub(super) struct TokenResponse {
    pub(super) access_token: LoginSecret,
    pub(super) refresh_token: Option<LoginSecret>,
    /// Seconds.
    pub(super) expires_in: Option<i64>,
    pub(super) scope: Option<String>,
}

/// Asks for tokens with this `grant`, the fields of the request without the client's.
///
/// # Errors
/// Status 77 if the server refuses, 69 if it does not answer.
pub(super) fn request_token(
    server: &LoginServer<'_>,
    endpoint: &str,
    client: &OAuthClient,
    grant: &[(&str, &str)],
) -> Result<TokenResponse> {
    let proof = prove_identity(client, server.clock)?;
    let own_fields = proof.fields.iter().map(|(name, value)| (*name, value.as_str()));
    let fields: Vec<(&str, &str)> = grant.iter().copied().chain(own_fields).collect();
    let authorization = proof.authorization.as_deref().map(|value| ("authorization", value));
    let response = server.send(endpoint, authorization.as_slice(), RequestBody::Form(&fields))?;
    let response = response.require_success("issue a token")?;
    let token_type = response.optional_text("token_type");
    let is_bearer = token_type.is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    match response.optional_text("access_token") {
        Some(access_token) if is_bearer && !access_token.is_empty() => Ok(TokenResponse {
            access_token: access_token.into(),
            refresh_token: response.optional_text("refresh_token").map(LoginSecret::from),
            expires_in: response.number("expires_in"),
            scope: response.optional_text("scope").map(str::to_owned),
        }),
        _ => Err(fail(Exit::Refused, format!("`{endpoint}` returned no bearer token"))),
    }
}

/// The proof to a token endpoint that a request is the client's.
struct ClientProof {
    /// Fields of the form.
    fields: Vec<(&'static str, String)>,
    /// The value of the header.
    authorization: Option<String>,
}

fn prove_identity(client: &OAuthClient, clock: &Clock) -> Result<ClientProof> {
    let id = || ("client_id", client.id.clone());
    let mut authorization = None;
    let fields = match (client.auth_method.as_str(), &client.secret) {
        ("client_secret_basic", Some(password)) => {
            let password = percent_encode(password.expose());
            let credentials = format!("{}:{password}", percent_encode(&client.id));
            let credentials = base64::engine::general_purpose::STANDARD.encode(credentials);
            secret::register(&Secret::new(credentials.as_str()));
            authorization = Some(format!("Basic {credentials}"));
            Vec::new()
        }
        ("client_secret_post", Some(password)) => {
            vec![id(), ("client_secret", password.expose().to_owned())]
        }
        (PRIVATE_KEY_METHOD, Some(key)) => {
            let now = clock.timestamp().as_second();
            let assertion = client_assertion::sign(key.expose(), &client.id, &client.issuer, now)?;
            let kind = ("client_assertion_type", client_assertion::TYPE.to_owned());
            vec![id(), kind, ("client_assertion", assertion)]
        }
        _ => vec![id()],
    };
    Ok(ClientProof { fields, authorization })
}

/// Registers this program as a client (RFC 7591).
///
/// # Errors
/// The errors of [`request_token`].
pub(super) fn register_client(
    server: &LoginServer<'_>,
    issuer: &str,
    endpoint: &str,
    metadata: &Value,
) -> Result<OAuthClient> {
    let response = server.send(endpoint, &[], RequestBody::Json(metadata))?;
    let response = response.require_success("register this program")?;
    let text = |name| response.optional_text(name).filter(|text| !text.is_empty());
    let id = text("client_id")
        .ok_or_else(|| fail(Exit::Refused, format!("`{endpoint}` returned no client id")))?;
    let secret = text("client_secret").map(LoginSecret::from);
    let auth_method = text("token_endpoint_auth_method").map(str::to_owned);
    let auth_method = auth_method.unwrap_or_else(|| default_method(secret.is_some(), &[]));
    Ok(OAuthClient { id: id.to_owned(), secret, auth_method, issuer: issuer.to_owned() })
}

/// The authentication method of a client with or without a secret, out of those that the server supports. An empty list means that
/// the server does not say.
pub(super) fn default_method(has_secret: bool, supported_methods: &[String]) -> String {
    let is_basic_supported = supported_methods.is_empty()
        || supported_methods.iter().any(|method| method == "client_secret_basic");
    let method = if !has_secret {
        "none"
    } else if is_basic_supported {
        "client_secret_basic"
    } else {
        "client_secret_post"
    };
    method.to_owned()
}
