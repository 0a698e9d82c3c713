//! What a login says over HTTP: a form or an object out, an object back, and the waiting of a device flow (RFC 8628).
//!
//! Servers repeat what they were sent, so nothing of that comes into an error of ours.

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

/// The servers of a vendor, and how they are reached.
pub(super) struct Server<'a> {
    pub(super) vendor: Vendor,
    pub(super) clock: &'a Clock,
    pub(super) endpoints: &'a Endpoints,
    http: &'a Http,
}

/// What is sent.
#[derive(Clone, Copy)]
pub(super) enum Sent<'a> {
    /// Nothing: what is there is asked for, with a token in the form that GitHub has for it.
    Get(&'a Secret),
    Form(&'a [(&'a str, &'a str)]),
    Json(&'a [(&'a str, &'a str)]),
}

/// What came back.
pub(super) struct Told {
    vendor: Vendor,
    pub(super) status: u16,
    /// Null for what is no JSON.
    body: Value,
    /// All that the server may repeat.
    secrets: Vec<Secret>,
}

/// What a server says when it is asked whether the code has been entered.
pub(super) enum Word<T> {
    Yes(T),
    NotYet,
    /// Not yet, and asked too often: wait so long between two questions, where it says how long.
    Slower(Option<Duration>),
}

/// The most that is read of an answer: one is a few thousand bytes long.
const ANSWER_LIMIT: u64 = 1 << 20;
/// The most that is repeated of a server's words, in characters.
const WORDS_LIMIT: usize = 300;
/// What is waited longer from one question to the next, when the server asks for that.
const SLOWER: Duration = Duration::from_secs(5);

impl<'a> Server<'a> {
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

    /// One exchange. Any status comes back.
    ///
    /// # Errors
    /// Status 69 when there is no whole answer.
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
            let cause = format!("ask {} at {url}: {cause}", self.vendor.label());
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

    /// Tell a person what to do, and ask until it is done, `interval` from one question to the next. Time is counted in
    /// waits, so that it passes for a fixed clock too.
    ///
    /// # Errors
    /// Those of `ask`; status 75 when the code has run out. A server that cannot be reached is asked again.
    pub(super) fn wait<T>(
        &self,
        prompt: Prompt<'_>,
        mut interval: Duration,
        tell: &mut dyn FnMut(Prompt<'_>),
        ask: &mut dyn FnMut() -> Result<Word<T>>,
    ) -> Result<T> {
        tell(prompt);
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
    pub(super) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A text of the answer.
    ///
    /// # Errors
    /// Status 69 when it has none of that name.
    pub(super) fn text(&self, name: &str) -> Result<&str> {
        let text = self.maybe_text(name).filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            let cause = format!("{} answered without `{name}`", self.vendor.label());
            fail(Exit::Unavailable, cause)
        })
    }

    pub(super) fn maybe_text(&self, name: &str) -> Option<&str> {
        self.at(name)?.as_str()
    }

    /// A number of the answer, which some servers write as a text.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.at(name)? {
            Value::String(text) => text.trim().parse().ok(),
            other => other.as_i64(),
        }
    }

    /// Seconds of the answer, at least one.
    pub(super) fn seconds(&self, name: &str) -> Option<Duration> {
        let seconds = u64::try_from(self.number(name)?).ok()?;
        Some(Duration::from_secs(seconds.max(1)))
    }

    /// `name` as a key, or as keys with slashes between them.
    fn at(&self, name: &str) -> Option<&Value> {
        self.body.pointer(&format!("/{name}"))
    }

    /// The failure by its name, as OAuth writes it or within an object.
    pub(super) fn failure(&self) -> Option<&str> {
        let places = ["error", "error/code"];
        places.iter().find_map(|place| self.maybe_text(place))
    }

    /// What a failure means while the code is waited for (RFC 8628, 3.5).
    ///
    /// # Errors
    /// It has come to an end.
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

    /// The answer as a failure of what was being done.
    pub(super) fn refusal(&self, doing: &str) -> anyhow::Error {
        let mut cause = format!("{} refused to {doing}", self.vendor.label());
        match self.words() {
            Some(words) => cause.push_str(&format!(": {words}")),
            None => cause.push_str(&format!(" with status {}", self.status)),
        }
        match self.status {
            429 => fail_hint(Exit::TryAgain, cause, "the same again later"),
            300..=399 | 500.. => fail_hint(Exit::Unavailable, cause, "the same again later"),
            _ => fail_hint(Exit::Refused, cause, self.vendor.hint()),
        }
    }

    /// What the server says for people, without what we sent.
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
    let cause = "the code ran out before it was entered";
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

/// Pairs as a browser sends a form. Their names are plain.
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
            "refused to renew the login: Bad credentials: ***",
        );
        check(
            400,
            json!({ "error": "invalid_grant", "error_description": "it was used" }),
            Exit::Refused,
            "refused to renew the login: it was used",
        );
        check(
            403,
            json!({ "error_details": { "message": "no subscription" } }),
            Exit::Refused,
            "refused to renew the login: no subscription",
        );
        check(
            400,
            json!({ "error": "invalid_grant" }),
            Exit::Refused,
            "refused to renew the login: invalid_grant",
        );
        check(
            429,
            Value::Null,
            Exit::TryAgain,
            "refused to renew the login with status 429",
        );
        check(
            502,
            Value::Null,
            Exit::Unavailable,
            "refused to renew the login with status 502",
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
