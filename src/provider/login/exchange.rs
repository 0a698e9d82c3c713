//! The HTTP side of a login: sends a form or an object, parses the JSON response, and polls in a device flow (RFC
//! 8628).
//!
//! Servers echo what they were sent, and error messages must not leak it: everything sent is masked in them.

use super::vendor::{Endpoints, Prompt, Vendor};
use crate::error::{Exit, Hinted, Stop, exit_of, fail, fail_hint};
use crate::sys::clock::Clock;
use crate::sys::http::{self, Http};
use crate::sys::secret::Secret;
use crate::sys::signal::{self, Patience};
use crate::sys::web_url;
use anyhow::Result;
use serde_json::{Map, Value};
use std::io::Read;
use std::time::Duration;

/// A vendor's login servers, and the means to reach them.
pub(super) struct Server<'a> {
    pub(super) vendor: Vendor,
    pub(super) clock: &'a Clock,
    pub(super) endpoints: &'a Endpoints,
    http: &'a Http,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) enum Sent<'a> {
    /// No body: a GET request with a token in GitHub's authorization header format.
    Get(&'a Secret),
    Form(&'a [(&'a str, &'a str)]),
    Json(&'a [(&'a str, &'a str)]),
}

/// A parsed response.
pub(super) struct Told {
    vendor: Vendor,
    pub(super) status: u16,
    /// Null if the body is not JSON.
    body: Value,
    /// Secrets that were sent; masked if the server echoes them.
    secrets: Vec<Secret>,
}

/// The result of a poll: has the person entered the code?
pub(super) enum Word<T> {
    Yes(T),
    NotYet,
    /// Not yet, and polled too often: use this interval between polls, if the server names one.
    Slower(Option<Duration>),
}

/// Maximum number of bytes read of a response. Typical responses have a few thousand.
const ANSWER_LIMIT: u64 = 1 << 20;
/// Maximum number of characters quoted from a server's message.
const WORDS_LIMIT: usize = 300;
/// Added to the poll interval when the server asks to slow down.
const SLOWER: Duration = Duration::from_secs(5);

impl<'a> Server<'a> {
    /// Combines a vendor and its server addresses with an HTTP client and a clock.
    pub(super) fn new(
        vendor: Vendor,
        http: &'a Http,
        clock: &'a Clock,
        endpoints: &'a Endpoints,
    ) -> Self {
        Self {
            vendor,
            clock,
            endpoints,
            http,
        }
    }

    /// Sends one request. Responses with any status are returned.
    ///
    /// # Errors
    /// Status 69 without a complete response.
    pub(super) fn ask(&self, url: &str, headers: &[(&str, &str)], sent: Sent<'_>) -> Result<Told> {
        let mut headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        headers.push(("accept".into(), "application/json".into()));
        let (body, secrets) = match sent {
            Sent::Get(token) => {
                headers.push(("authorization".into(), format!("token {}", token.expose())));
                (None, vec![token.clone()])
            }
            Sent::Form(pairs) => {
                let body = Some(("application/x-www-form-urlencoded", form(pairs)));
                (body, values(pairs))
            }
            Sent::Json(pairs) => (Some(("application/json", object(pairs))), values(pairs)),
        };
        let body = body.as_ref().map(|(kind, body)| (*kind, body.as_bytes()));
        let unreachable = |cause: &str| {
            let cause = format!("contact {} at {url}: {cause}", self.vendor.label());
            fail(Exit::Unavailable, cause)
        };
        let answer = self.http.send(url, &headers, body).map_err(|error| {
            match error.is::<Hinted>() || error.is::<Stop>() {
                true => error,
                false => unreachable(&error.to_string()),
            }
        })?;
        let mut bytes = Vec::new();
        if let Err(error) = answer.body.take(ANSWER_LIMIT).read_to_end(&mut bytes) {
            signal::check()?;
            return Err(unreachable(&http::read_failure(&error)));
        }
        Ok(Told {
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
    pub(super) fn wait<T>(
        &self,
        prompt: Prompt<'_>,
        mut interval: Duration,
        on_prompt: &mut dyn FnMut(Prompt<'_>),
        ask: &mut dyn FnMut() -> Result<Word<T>>,
    ) -> Result<T> {
        on_prompt(prompt);
        let mut patience = Patience::of(prompt.valid);
        loop {
            self.clock.sleep(interval)?;
            patience.spend(interval);
            let last = match ask() {
                Ok(Word::Yes(done)) => return Ok(done),
                Ok(Word::NotYet) => ran_out(self.vendor),
                Ok(Word::Slower(named)) => {
                    let longer = interval.saturating_add(SLOWER);
                    interval = named.map_or(longer, |named| named.max(interval));
                    ran_out(self.vendor)
                }
                Err(error) if exit_of(&error) == Exit::Unavailable => {
                    interval = interval.saturating_add(SLOWER);
                    error
                }
                Err(error) => return Err(error),
            };
            if patience.is_over() {
                return Err(last);
            }
        }
    }
}

impl Told {
    /// True for a status of 2xx.
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A required string field of the response.
    ///
    /// # Errors
    /// Status 69 if the field is missing or empty.
    pub(super) fn text(&self, name: &str) -> Result<&str> {
        let text = self.maybe_text(name).filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            let cause = format!("{} sent a response without `{name}`", self.vendor.label());
            fail(Exit::Unavailable, cause)
        })
    }

    /// An optional string field of the response.
    pub(super) fn maybe_text(&self, name: &str) -> Option<&str> {
        self.at(name)?.as_str()
    }

    /// A number field of the response. Some servers send numbers as strings.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.at(name)? {
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
    fn at(&self, name: &str) -> Option<&Value> {
        self.body.pointer(&format!("/{name}"))
    }

    /// The error code, as a string like OAuth's or within an object.
    pub(super) fn failure(&self) -> Option<&str> {
        let places = ["error", "error/code"];
        places.iter().find_map(|place| self.maybe_text(place))
    }

    /// Interprets an error during polling (RFC 8628, section 3.5).
    ///
    /// # Errors
    /// Errors that end the flow.
    pub(super) fn word<T>(&self, doing: &str) -> Result<Word<T>> {
        match self.failure() {
            Some("authorization_pending") => Ok(Word::NotYet),
            Some("slow_down") => Ok(Word::Slower(self.seconds("interval"))),
            Some("expired_token") => Err(ran_out(self.vendor)),
            Some("access_denied") => {
                let cause = format!("the login to {} was denied", self.vendor.label());
                Err(fail_hint(Exit::Refused, cause, self.vendor.hint()))
            }
            _ => Err(self.refusal(doing)),
        }
    }

    /// Converts the response to an error of the action `doing`.
    pub(super) fn refusal(&self, doing: &str) -> anyhow::Error {
        let mut cause = format!("{} rejected the request to {doing}", self.vendor.label());
        match self.words() {
            Some(words) => cause.push_str(&format!(": {words}")),
            None => cause.push_str(&format!(" with status {}", self.status)),
        }
        match self.status {
            429 => fail_hint(Exit::TryAgain, cause, "the same command again later"),
            300..=399 | 500.. => {
                fail_hint(Exit::Unavailable, cause, "the same command again later")
            }
            _ => fail_hint(Exit::Refused, cause, self.vendor.hint()),
        }
    }

    /// The server's message for people, with the secrets that we sent masked.
    fn words(&self) -> Option<String> {
        let places = [
            "error_description",
            "error/message",
            "error_details/message",
            "message",
        ];
        let words = places.iter().find_map(|place| self.maybe_text(place));
        let words = words.or_else(|| self.failure())?.trim();
        let masked = self
            .secrets
            .iter()
            .fold(words.to_owned(), |words, secret| secret.mask(words));
        Some(masked.chars().take(WORDS_LIMIT).collect()).filter(|words: &String| !words.is_empty())
    }
}

fn ran_out(vendor: Vendor) -> anyhow::Error {
    let cause = "the code expired before it was entered";
    fail_hint(Exit::TryAgain, cause, vendor.hint())
}

fn values(pairs: &[(&str, &str)]) -> Vec<Secret> {
    pairs.iter().map(|(_, value)| Secret::new(*value)).collect()
}

fn object(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    Value::Object(pairs.collect::<Map<_, _>>()).to_string()
}

/// Encodes pairs as `application/x-www-form-urlencoded`. Names are not escaped.
fn form(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", web_url::percent_encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::{Told, form};
    use crate::error::{Exit, exit_of};
    use crate::provider::login::Vendor;
    use crate::sys::secret::Secret;
    use serde_json::{Value, json};

    fn told(status: u16, body: Value) -> Told {
        Told {
            vendor: Vendor::GitHubCopilot,
            status,
            body,
            secrets: vec![Secret::new("gho_0123456789")],
        }
    }

    #[test]
    fn forms_are_escaped() {
        let check = |value: &str, expect: &str| {
            assert_eq!(form(&[("a", value), ("b", "c")]), format!("a={expect}&b=c"));
        };
        check("plain-1.0_~", "plain-1.0_~");
        check("read:user x", "read%3Auser%20x");
        check("a+b/c=&", "a%2Bb%2Fc%3D%26");
        check("ö", "%C3%B6");
    }

    #[test]
    fn failures_are_told_in_the_servers_words_without_secrets() {
        let check = |status, body, exit, expect: &str| {
            let error = told(status, body).refusal("renew the login");
            assert_eq!(error.to_string(), format!("GitHub Copilot {expect}"));
            assert_eq!(exit_of(&error), exit, "{expect}");
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
    fn numbers_may_be_texts() {
        let told = told(
            200,
            json!({ "a": 5, "b": " 5 ", "c": -5, "d": "x", "e": 0 }),
        );
        let seconds = |name| told.seconds(name).map(|length| length.as_secs());
        assert_eq!(seconds("a"), Some(5));
        assert_eq!(seconds("b"), Some(5));
        assert_eq!(seconds("e"), Some(1));
        for name in ["c", "d", "f"] {
            assert_eq!(seconds(name), None, "{name}");
        }
    }
}
