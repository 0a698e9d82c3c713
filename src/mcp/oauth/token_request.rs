//! Requests to the token endpoint and the registration endpoint. What is sent is masked in errors, since servers echo it.

use crate::error::{Exit, fail};
use crate::sys::http::Http;
use crate::sys::secret::{self, Secret, redact_all};
use crate::sys::web_url::percent_encode;
use anyhow::Result;
use base64::Engine;
use serde_json::Value;
use std::io::Read;

/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: u64 = 256 << 10;
/// Maximum characters quoted of a server's message.
const MAX_MESSAGE_CHARS: usize = 200;

/// The client, as the authorization server knows it.
#[derive(Clone, Debug)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    /// `none`, `client_secret_post` or `client_secret_basic`.
    pub(super) auth_method: String,
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
    endpoint: &str,
    client: &OAuthClient,
    grant: &[(&str, &str)],
) -> Result<TokenResponse> {
    let mut fields: Vec<(&str, &str)> = grant.to_vec();
    let mut headers = Vec::new();
    match (client.auth_method.as_str(), &client.secret) {
        ("client_secret_basic", Some(secret)) => {
            let pair = format!("{}:{}", percent_encode(&client.id), percent_encode(secret));
            let pair = base64::engine::general_purpose::STANDARD.encode(pair);
            headers.push(("authorization".to_owned(), format!("Basic {pair}")));
        }
        ("client_secret_post", Some(secret)) => {
            fields.extend([
                ("client_id", client.id.as_str()),
                ("client_secret", secret.as_str()),
            ]);
        }
        _ => fields.push(("client_id", client.id.as_str())),
    }
    for (name, value) in &fields {
        if ["code", "code_verifier", "refresh_token", "client_secret"].contains(name) {
            secret::register(&Secret::new(*value));
        }
    }
    let body: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", percent_encode(value)))
        .collect();
    let answer = post(
        http,
        endpoint,
        headers,
        "application/x-www-form-urlencoded",
        &body.join("&"),
    )?;
    let text = |key: &str| answer[key].as_str().map(str::to_owned);
    let is_bearer = answer["token_type"]
        .as_str()
        .is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    match text("access_token") {
        Some(access_token) if is_bearer && !access_token.is_empty() => Ok(TokenResponse {
            access_token,
            refresh_token: text("refresh_token"),
            expires_in: answer["expires_in"].as_i64(),
            scope: text("scope"),
        }),
        _ => Err(fail(
            Exit::Refused,
            format!("`{endpoint}` gave no bearer token"),
        )),
    }
}

/// Registers this program as a client (RFC 7591).
///
/// # Errors
/// As [`request_token`].
pub(super) fn register_client(
    http: &Http,
    endpoint: &str,
    metadata: &Value,
) -> Result<OAuthClient> {
    let answer = post(
        http,
        endpoint,
        Vec::new(),
        "application/json",
        &metadata.to_string(),
    )?;
    let text = |key: &str| {
        answer[key]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let id = text("client_id")
        .ok_or_else(|| fail(Exit::Refused, format!("`{endpoint}` gave no client id")))?;
    let secret = text("client_secret");
    let auth_method =
        text("token_endpoint_auth_method").unwrap_or_else(|| default_method(secret.is_some(), &[]));
    Ok(OAuthClient {
        id,
        secret,
        auth_method,
    })
}

/// The way in which a client authenticates that has a secret or none, among those that the server supports.
pub(super) fn default_method(has_secret: bool, supported: &[String]) -> String {
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
    let read = response
        .body
        .take(MAX_RESPONSE_BYTES)
        .read_to_end(&mut bytes);
    read.map_err(|error| {
        fail(
            Exit::Unavailable,
            format!("read the answer of `{url}`: {error}"),
        )
    })?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if (200..300).contains(&status) && answer.is_object() {
        return Ok(answer);
    }
    let words = [&answer["error_description"], &answer["error"]];
    let words = words
        .iter()
        .find_map(|value| value.as_str())
        .unwrap_or("no reason");
    let words: String = words
        .chars()
        .filter(|letter| !letter.is_control())
        .take(MAX_MESSAGE_CHARS)
        .collect();
    let exit = match status {
        429 | 500.. => Exit::Unavailable,
        _ => Exit::Refused,
    };
    Err(fail(
        exit,
        format!("`{url}` refused (status {status}): {}", redact_all(&words)),
    ))
}
