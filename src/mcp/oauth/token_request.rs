//! Requests to the token endpoint and the registration endpoint. What is sent is masked in errors, since servers echo it.

use super::client_assertion;
use super::discovery::AuthorizationServer;
use crate::error::{Exit, fail};
use crate::sys::clock::Clock;
use crate::sys::http::Http;
use crate::sys::secret::{self, Secret, redact_all};
use crate::sys::web_url::percent_encode;
use anyhow::Result;
use base64::Engine;
use serde_json::Value;
use std::io::Read;

/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: u64 = 256 << 10;
/// The fields of a request that are secrets.
const SECRET_FIELDS: [&str; 5] =
    ["code", "code_verifier", "refresh_token", "client_secret", "client_assertion"];
/// The authentication of a client by assertions that it signs (RFC 7523).
const PRIVATE_KEY_METHOD: &str = "private_key_jwt";
/// Maximum characters quoted of a server's message.
const MAX_MESSAGE_CHARS: usize = 200;

/// The client, as the authorization server knows it.
#[derive(Clone, Debug)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    /// The secret, or the private key in PEM.
    pub(super) secret: Option<String>,
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
        let supported = &server.token_auth_methods;
        let (secret, auth_method) = match self.secret {
            None => (None, default_method(false, supported)),
            Some(ClientSecret::Password(secret)) => (Some(secret), default_method(true, supported)),
            Some(ClientSecret::PrivateKey(pem)) => (Some(pem), PRIVATE_KEY_METHOD.to_owned()),
        };
        OAuthClient { id: self.id, secret, auth_method, issuer: server.issuer.clone() }
    }
}

/// The tokens of a response.
pub(super) struct TokenResponse {
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    /// Seconds.
    pub(super) expires_in: Option<i64>,
    pub(super) scope: Option<String>,
}

/// Asks for tokens with this `grant`, the fields of the request without the client's.
///
/// # Errors
/// Status 77 if the server refuses, 69 if it does not answer.
pub(super) fn request_token(
    http: &Http,
    clock: &Clock,
    endpoint: &str,
    client: &OAuthClient,
    grant: &[(&str, &str)],
) -> Result<TokenResponse> {
    let (own_fields, header) = credentials(client, clock)?;
    let mut fields: Vec<(&str, &str)> = grant.to_vec();
    fields.extend(own_fields.iter().map(|(name, value)| (*name, value.as_str())));
    for (name, value) in &fields {
        if SECRET_FIELDS.contains(name) {
            secret::register(&Secret::new(*value));
        }
    }
    let body: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", percent_encode(value))).collect();
    let answer = post(
        http,
        endpoint,
        header.into_iter().collect(),
        "application/x-www-form-urlencoded",
        &body.join("&"),
    )?;
    let text = |key: &str| answer[key].as_str().map(str::to_owned);
    let is_bearer =
        answer["token_type"].as_str().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    match text("access_token") {
        Some(access_token) if is_bearer && !access_token.is_empty() => Ok(TokenResponse {
            access_token,
            refresh_token: text("refresh_token"),
            expires_in: answer["expires_in"].as_i64(),
            scope: text("scope"),
        }),
        _ => Err(fail(Exit::Refused, format!("`{endpoint}` gave no bearer token"))),
    }
}

/// Fields of a form.
type Fields = Vec<(&'static str, String)>;
/// A header and its value.
type Header = (String, String);

/// Proves to the token endpoint that a request is the client's, by fields of the form and a header.
fn credentials(client: &OAuthClient, clock: &Clock) -> Result<(Fields, Option<Header>)> {
    let id = || ("client_id", client.id.clone());
    let (fields, header) = match (client.auth_method.as_str(), &client.secret) {
        ("client_secret_basic", Some(password)) => {
            let pair = format!("{}:{}", percent_encode(&client.id), percent_encode(password));
            let pair = base64::engine::general_purpose::STANDARD.encode(pair);
            for text in [password, &pair] {
                secret::register(&Secret::new(text.as_str()));
            }
            let header = ("authorization".to_owned(), format!("Basic {pair}"));
            (Vec::new(), Some(header))
        }
        ("client_secret_post", Some(password)) => {
            (vec![id(), ("client_secret", password.clone())], None)
        }
        (PRIVATE_KEY_METHOD, Some(key)) => {
            let now = clock.timestamp().as_second();
            let assertion = client_assertion::sign(key, &client.id, &client.issuer, now)?;
            let kind = ("client_assertion_type", client_assertion::TYPE.to_owned());
            (vec![id(), kind, ("client_assertion", assertion)], None)
        }
        _ => (vec![id()], None),
    };
    Ok((fields, header))
}

/// Registers this program as a client (RFC 7591).
///
/// # Errors
/// As [`request_token`].
pub(super) fn register_client(
    http: &Http,
    issuer: &str,
    endpoint: &str,
    metadata: &Value,
) -> Result<OAuthClient> {
    let answer = post(http, endpoint, Vec::new(), "application/json", &metadata.to_string())?;
    let text = |key: &str| answer[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let id = text("client_id")
        .ok_or_else(|| fail(Exit::Refused, format!("`{endpoint}` gave no client id")))?;
    let secret = text("client_secret");
    let auth_method =
        text("token_endpoint_auth_method").unwrap_or_else(|| default_method(secret.is_some(), &[]));
    Ok(OAuthClient { id, secret, auth_method, issuer: issuer.to_owned() })
}

/// The way in which a client authenticates that has a secret or none, among those that the server supports.
fn default_method(has_secret: bool, supported: &[String]) -> String {
    let is_supported =
        |method: &str| supported.is_empty() || supported.iter().any(|it| it == method);
    match has_secret {
        false => "none",
        true if is_supported("client_secret_basic") => "client_secret_basic",
        true => "client_secret_post",
    }
    .to_owned()
}

/// Posts `body`, and returns the object of a successful answer.
fn post(
    http: &Http,
    url: &str,
    mut headers: Vec<(String, String)>,
    media_type: &str,
    body: &str,
) -> Result<Value> {
    headers.push(("accept".into(), "application/json".into()));
    let response = http.send(url, &headers, Some((media_type, body.as_bytes())))?;
    let status = response.status;
    let mut bytes = Vec::new();
    let read = response.body.take(MAX_RESPONSE_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| fail(Exit::Unavailable, format!("read the answer of `{url}`: {error}")))?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if (200..300).contains(&status) && answer.is_object() {
        return Ok(answer);
    }
    let words = [&answer["error_description"], &answer["error"]];
    let words = words.iter().find_map(|value| value.as_str()).unwrap_or("no reason");
    let words: String =
        words.chars().filter(|letter| !letter.is_control()).take(MAX_MESSAGE_CHARS).collect();
    let exit = match status {
        429 | 500.. => Exit::Unavailable,
        _ => Exit::Refused,
    };
    Err(fail(exit, format!("`{url}` refused (status {status}): {}", redact_all(&words))))
}
