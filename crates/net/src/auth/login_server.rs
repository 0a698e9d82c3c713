//! Requests to a login server: a form or JSON out, JSON in.
//!
//! Servers echo what they were sent, and error messages must not leak it: the secrets that are sent are masked in all output
//! from then on.

use crate::http::{Http, HttpMethod, JsonResponse};
use crate::web_url;
use anyhow::Result;
use nanobot_base::error::{Exit, HintedError, Stop, UserAction, WithHint, fail, fail_with_parts};
use nanobot_os::clock::Clock;
use nanobot_os::secret::{self, Secret};
use serde_json::Value;
use std::time::Duration;

/// Maximum number of bytes read of a response. Typical responses have a few thousand.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// The fields of requests that are secrets.
const SECRET_FIELDS: [&str; 8] = [
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "device_auth_id",
    "device_code",
    "refresh_token",
];

/// A login server, and the means to reach it.
pub struct LoginServer<'a> {
    pub http: &'a Http,
    pub clock: &'a Clock,
    /// Its name in messages, such as `GitHub Copilot`.
    pub label: &'a str,
    /// The command that logs in anew.
    pub login_command: String,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub enum RequestBody<'a> {
    /// No body: a GET request.
    None,
    Form(&'a [(&'a str, &'a str)]),
    Json(&'a Value),
}

/// A parsed response.
#[derive(Clone)]
pub struct LoginResponse<'a> {
    pub(super) label: &'a str,
    pub(super) login_command: &'a str,
    response: JsonResponse,
}

impl LoginServer<'_> {
    /// Sends one request. Responses with any status are returned.
    ///
    /// # Errors
    /// Status 69 without a complete response.
    pub fn send(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: RequestBody<'_>,
    ) -> Result<LoginResponse<'_>> {
        let headers = headers.iter().chain(&[("accept", "application/json")]);
        let headers: Vec<(String, String)> =
            headers.map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let (media_type, text) = match body {
            RequestBody::None => (None, String::new()),
            RequestBody::Form(fields) => {
                for (name, value) in fields {
                    mask_field(name, value);
                }
                (Some("application/x-www-form-urlencoded"), encode_form(fields))
            }
            RequestBody::Json(value) => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    mask_field(name, value.as_str().unwrap_or_default());
                }
                (Some("application/json"), value.to_string())
            }
        };
        let method = match media_type {
            Some(media_type) => HttpMethod::Post(media_type, text.as_bytes()),
            None => HttpMethod::Get,
        };
        let response = self.http.exchange_json(url, &headers, method, MAX_RESPONSE_BYTES);
        let response = response.map_err(|error| {
            if error.is::<HintedError>() || error.is::<Stop>() {
                error
            } else {
                let cause = format!("contact {} at {url}: {error}", self.label);
                fail(Exit::Unavailable, cause)
            }
        })?;
        Ok(LoginResponse { label: self.label, login_command: &self.login_command, response })
    }
}

impl LoginResponse<'_> {
    /// The HTTP status code.
    pub fn status(&self) -> u16 {
        self.response.status
    }

    /// True for a status of 2xx.
    pub fn is_success(&self) -> bool {
        self.response.is_success()
    }

    /// The response, if it is successful.
    ///
    /// # Errors
    /// [`Self::to_error`] of `action` for another status.
    pub fn require_success(self, action: &str) -> Result<Self> {
        if self.is_success() { Ok(self) } else { Err(self.to_error(action)) }
    }

    /// A required string field of the response.
    ///
    /// # Errors
    /// Status 69 if the field is missing or empty.
    pub fn required_text(&self, name: &str) -> Result<&str> {
        let text = self.optional_text(name).filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            let cause = format!("{} sent a response without `{name}`", self.label);
            fail(Exit::Unavailable, cause)
        })
    }

    /// An optional string field of the response.
    pub fn optional_text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_str()
    }

    /// A number field of the response. Some servers send numbers as strings.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.field(name)? {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_i64(),
        }
    }

    /// A duration field in seconds, at least one second.
    pub fn seconds(&self, name: &str) -> Option<Duration> {
        let seconds = u64::try_from(self.number(name)?).ok()?;
        Some(Duration::from_secs(seconds.max(1)))
    }

    /// The field `name`: a key, or keys separated by slashes.
    fn field(&self, name: &str) -> Option<&Value> {
        self.response.body.pointer(&format!("/{name}"))
    }

    /// The error code, as a string like OAuth's or within an object.
    pub fn error_code(&self) -> Option<&str> {
        ["error", "error/code"].iter().find_map(|name| self.optional_text(name))
    }

    /// Converts the response to an error of `action`, with the server's message.
    pub fn to_error(&self, action: &str) -> anyhow::Error {
        let message = self.response.error_message();
        let message = message.or_else(|| self.error_code().map(str::to_owned));
        let mut cause = format!("{} rejected the request to {action}", self.label);
        match message {
            Some(message) => cause.push_str(&format!(": {message}")),
            None => cause.push_str(&format!(" with status {}", self.status())),
        }
        match self.status() {
            429 => fail_with_parts(Exit::TryAgain, cause, [UserAction::RepeatLater.into()]),
            300..=399 | 500.. => {
                fail_with_parts(Exit::Unavailable, cause, [UserAction::RepeatLater.into()])
            }
            _ => fail(Exit::Refused, cause).with_hint(self.login_command),
        }
    }
}

/// Masks the value of a field in all output from now on, if it is secret.
fn mask_field(name: &str, value: &str) {
    if SECRET_FIELDS.contains(&name) {
        secret::register(&Secret::new(value));
    }
}

/// Encodes pairs as `application/x-www-form-urlencoded`. Names are not escaped.
pub fn encode_form(pairs: &[(&str, &str)]) -> String {
    let pairs =
        pairs.iter().map(|(name, value)| format!("{name}={}", web_url::percent_encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::{LoginResponse, encode_form};
    use crate::http::JsonResponse;
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_os::secret::{self, Secret};
    use serde_json::{Value, json};

    fn login_response(status: u16, body: Value) -> LoginResponse<'static> {
        let response = JsonResponse { status, body };
        LoginResponse { label: "the server", login_command: "log in", response }
    }

    #[test]
    fn forms_are_escaped() {
        let check = |value: &str, expect: &str| {
            assert_eq!(encode_form(&[("a", value), ("b", "c")]), format!("a={expect}&b=c"));
        };
        check("plain-1.0_~", "plain-1.0_~");
        check("read:user x", "read%3Auser%20x");
        check("a+b/c=&", "a%2Bb%2Fc%3D%26");
        check("ö", "%C3%B6");
    }

    #[test]
    fn errors_quote_the_server_without_secrets() {
        secret::register(&Secret::new("gho_0123456789"));
        let check = |status, body, exit, expect: &str| {
            let error = login_response(status, body).to_error("renew the login");
            assert_eq!(error.to_string(), format!("the server {expect}"));
            assert_eq!(exit_for(&error), exit, "{expect}");
        };
        check(
            401,
            json!({ "message": "Bad credentials: gho_0123456789" }),
            Exit::Refused,
            "rejected the request to renew the login: Bad credentials: ***",
        );
        check(
            400,
            json!({ "error": "invalid_grant", "error_description": "it was used" }),
            Exit::Refused,
            "rejected the request to renew the login: it was used",
        );
        check(
            403,
            json!({ "error_details": { "message": "no subscription" } }),
            Exit::Refused,
            "rejected the request to renew the login: no subscription",
        );
        check(
            400,
            json!({ "error": "invalid_grant" }),
            Exit::Refused,
            "rejected the request to renew the login: invalid_grant",
        );
        check(
            429,
            Value::Null,
            Exit::TryAgain,
            "rejected the request to renew the login with status 429",
        );
        check(
            502,
            Value::Null,
            Exit::Unavailable,
            "rejected the request to renew the login with status 502",
        );
    }

    #[test]
    fn numbers_may_be_strings() {
        let response =
            login_response(200, json!({ "a": 5, "b": " 5 ", "c": -5, "d": "x", "e": 0 }));
        let seconds = |name| response.seconds(name).map(|length| length.as_secs());
        assert_eq!(seconds("a"), Some(5));
        assert_eq!(seconds("b"), Some(5));
        assert_eq!(seconds("e"), Some(1));
        for name in ["c", "d", "f"] {
            assert_eq!(seconds(name), None, "{name}");
        }
    }
}
