//! The HTTP side of a login: sends a form or an object, parses the JSON response, and polls in a device flow (RFC
//! 8628).
//!
//! Servers echo what they were sent, and error messages must not leak it: everything sent is masked in them.

use super::vendor::{DevicePrompt, LoginEndpoints, Vendor};
use crate::error::{Exit, HintedError, Stop, exit_for, fail, fail_with_hint};
use crate::sys::clock::Clock;
use crate::sys::http::{self, Http};
use crate::sys::secret::Secret;
use crate::sys::signal::{self, Deadline};
use crate::sys::web_url;
use anyhow::Result;
use serde_json::{Map, Value};
use std::io::Read;
use std::time::Duration;

/// A vendor's login servers, and the means to reach them.
pub(super) struct LoginServer<'a> {
    pub(super) vendor: Vendor,
    pub(super) clock: &'a Clock,
    pub(super) endpoints: &'a LoginEndpoints,
    http: &'a Http,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) enum RequestBody<'a> {
    /// No body: a GET request with a token in GitHub's authorization header format.
    Get(&'a Secret),
    Form(&'a [(&'a str, &'a str)]),
    Json(&'a [(&'a str, &'a str)]),
}

/// A parsed response.
pub(super) struct LoginResponse {
    vendor: Vendor,
    pub(super) status: u16,
    /// Null if the body is not JSON.
    body: Value,
    /// Secrets that were sent; masked if the server echoes them.
    secrets: Vec<Secret>,
}

/// The result of a poll: has the person entered the code?
pub(super) enum PollResult<T> {
    Granted(T),
    Pending,
    /// Not yet, and polled too often: use this interval between polls, if the server names one.
    SlowDown(Option<Duration>),
}

/// Maximum number of bytes read of a response. Typical responses have a few thousand.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Maximum number of characters quoted from a server's message.
const MAX_MESSAGE_CHARS: usize = 300;
/// Added to the poll interval when the server asks to slow down.
const SLOW_DOWN_DELAY: Duration = Duration::from_secs(5);

impl<'a> LoginServer<'a> {
    /// Combines a vendor and its server addresses with an HTTP client and a clock.
    pub(super) fn new(
        vendor: Vendor,
        http: &'a Http,
        clock: &'a Clock,
        endpoints: &'a LoginEndpoints,
    ) -> Self {
        Self { vendor, clock, endpoints, http }
    }

    /// Sends one request. Responses with any status are returned.
    ///
    /// # Errors
    /// Status 69 without a complete response.
    pub(super) fn send(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: RequestBody<'_>,
    ) -> Result<LoginResponse> {
        let mut headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        headers.push(("accept".into(), "application/json".into()));
        let (body, secrets) = match body {
            RequestBody::Get(token) => {
                headers.push(("authorization".into(), format!("token {}", token.expose())));
                (None, vec![token.clone()])
            }
            RequestBody::Form(pairs) => {
                let body = Some(("application/x-www-form-urlencoded", encode_form(pairs)));
                (body, secrets_from_pairs(pairs))
            }
            RequestBody::Json(pairs) => {
                (Some(("application/json", encode_json(pairs))), secrets_from_pairs(pairs))
            }
        };
        let body = body.as_ref().map(|(kind, body)| (*kind, body.as_bytes()));
        let unreachable = |cause: &str| {
            let cause = format!("contact {} at {url}: {cause}", self.vendor.label());
            fail(Exit::Unavailable, cause)
        };
        let answer = self.http.send(url, &headers, body).map_err(|error| {
            if error.is::<HintedError>() || error.is::<Stop>() {
                error
            } else {
                unreachable(&error.to_string())
            }
        })?;
        let mut bytes = Vec::new();
        if let Err(error) = answer.body.take(MAX_RESPONSE_BYTES).read_to_end(&mut bytes) {
            signal::check()?;
            return Err(unreachable(&http::body_error_message(&error)));
        }
        Ok(LoginResponse {
            vendor: self.vendor,
            status: answer.status,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            secrets,
        })
    }

    /// Prompts a person, and polls every `interval` until the code is entered. Time is measured as the sum of the
    /// waits, which works with a fixed clock too.
    ///
    /// # Errors
    /// Those of `ask`; status 75 when the code has expired. An unreachable server is polled again, at longer intervals.
    pub(super) fn poll<T>(
        &self,
        prompt: DevicePrompt<'_>,
        mut interval: Duration,
        on_prompt: &mut dyn FnMut(DevicePrompt<'_>),
        poll_once: &mut dyn FnMut() -> Result<PollResult<T>>,
    ) -> Result<T> {
        on_prompt(prompt);
        let mut patience = Deadline::after(prompt.lifetime);
        loop {
            self.clock.sleep(interval)?;
            patience.subtract(interval);
            let last = match poll_once() {
                Ok(PollResult::Granted(done)) => return Ok(done),
                Ok(PollResult::Pending) => code_expired_error(self.vendor),
                Ok(PollResult::SlowDown(named)) => {
                    let longer = interval.saturating_add(SLOW_DOWN_DELAY);
                    interval = named.map_or(longer, |named| named.max(interval));
                    code_expired_error(self.vendor)
                }
                Err(error) if exit_for(&error) == Exit::Unavailable => {
                    interval = interval.saturating_add(SLOW_DOWN_DELAY);
                    error
                }
                Err(error) => return Err(error),
            };
            if patience.is_expired() {
                return Err(last);
            }
        }
    }
}

impl LoginResponse {
    /// True for a status of 2xx.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A required string field of the response.
    ///
    /// # Errors
    /// Status 69 if the field is missing or empty.
    pub(super) fn required_text(&self, name: &str) -> Result<&str> {
        let text = self.optional_text(name).filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            let cause = format!("{} sent a response without `{name}`", self.vendor.label());
            fail(Exit::Unavailable, cause)
        })
    }

    /// An optional string field of the response.
    pub(super) fn optional_text(&self, name: &str) -> Option<&str> {
        self.field(name)?.as_str()
    }

    /// A number field of the response. Some servers send numbers as strings.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.field(name)? {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_i64(),
        }
    }

    /// A duration field in seconds, at least one second.
    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        let seconds = u64::try_from(self.number(name)?).ok()?;
        Some(Duration::from_secs(seconds.max(1)))
    }

    /// The field `name`: a key, or keys separated by slashes.
    fn field(&self, name: &str) -> Option<&Value> {
        self.body.pointer(&format!("/{name}"))
    }

    /// The error code, as a string like OAuth's or within an object.
    pub(super) fn error_code(&self) -> Option<&str> {
        let places = ["error", "error/code"];
        places.iter().find_map(|place| self.optional_text(place))
    }

    /// Interprets an error during polling (RFC 8628, section 3.5).
    ///
    /// # Errors
    /// Errors that end the flow.
    pub(super) fn poll_result<T>(&self, action: &str) -> Result<PollResult<T>> {
        match self.error_code() {
            Some("authorization_pending") => Ok(PollResult::Pending),
            Some("slow_down") => Ok(PollResult::SlowDown(self.seconds("interval"))),
            Some("expired_token") => Err(code_expired_error(self.vendor)),
            Some("access_denied") => {
                let cause = format!("the login to {} was denied", self.vendor.label());
                Err(fail_with_hint(Exit::Refused, cause, self.vendor.login_command()))
            }
            _ => Err(self.to_error(action)),
        }
    }

    /// Converts the response to an error of the action `doing`.
    pub(super) fn to_error(&self, action: &str) -> anyhow::Error {
        let mut cause = format!("{} rejected the request to {action}", self.vendor.label());
        match self.error_message() {
            Some(words) => cause.push_str(&format!(": {words}")),
            None => cause.push_str(&format!(" with status {}", self.status)),
        }
        match self.status {
            429 => fail_with_hint(Exit::TryAgain, cause, "the same command again later"),
            300..=399 | 500.. => {
                fail_with_hint(Exit::Unavailable, cause, "the same command again later")
            }
            _ => fail_with_hint(Exit::Refused, cause, self.vendor.login_command()),
        }
    }

    /// The server's message for people, with the secrets that we sent masked.
    fn error_message(&self) -> Option<String> {
        let places = ["error_description", "error/message", "error_details/message", "message"];
        let words = places.iter().find_map(|place| self.optional_text(place));
        let words = words.or_else(|| self.error_code())?.trim();
        let masked =
            self.secrets.iter().fold(words.to_owned(), |words, secret| secret.redact_in(words));
        Some(masked.chars().take(MAX_MESSAGE_CHARS).collect())
            .filter(|words: &String| !words.is_empty())
    }
}

fn code_expired_error(vendor: Vendor) -> anyhow::Error {
    let cause = "the code expired before it was entered";
    fail_with_hint(Exit::TryAgain, cause, vendor.login_command())
}

fn secrets_from_pairs(pairs: &[(&str, &str)]) -> Vec<Secret> {
    pairs.iter().map(|(_, value)| Secret::new(*value)).collect()
}

fn encode_json(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    Value::Object(pairs.collect::<Map<_, _>>()).to_string()
}

/// Encodes pairs as `application/x-www-form-urlencoded`. Names are not escaped.
fn encode_form(pairs: &[(&str, &str)]) -> String {
    let pairs =
        pairs.iter().map(|(name, value)| format!("{name}={}", web_url::percent_encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::{LoginResponse, encode_form};
    use crate::error::{Exit, exit_for};
    use crate::provider::login::Vendor;
    use crate::sys::secret::Secret;
    use serde_json::{Value, json};

    fn login_response(status: u16, body: Value) -> LoginResponse {
        LoginResponse {
            vendor: Vendor::GitHubCopilot,
            status,
            body,
            secrets: vec![Secret::new("gho_0123456789")],
        }
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
        let check = |status, body, exit, expect: &str| {
            let error = login_response(status, body).to_error("renew the login");
            assert_eq!(error.to_string(), format!("GitHub Copilot {expect}"));
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
        let told = login_response(200, json!({ "a": 5, "b": " 5 ", "c": -5, "d": "x", "e": 0 }));
        let seconds = |name| told.seconds(name).map(|length| length.as_secs());
        assert_eq!(seconds("a"), Some(5));
        assert_eq!(seconds("b"), Some(5));
        assert_eq!(seconds("e"), Some(1));
        for name in ["c", "d", "f"] {
            assert_eq!(seconds(name), None, "{name}");
        }
    }
}
