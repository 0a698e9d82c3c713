//! OpenAI chat completions, and everything that speaks like it: one HTTP exchange between two pure translations,
//! [`body`] for what is sent and [`reading`] for what comes back.

use super::{Provider, ProviderError, Request, Tell};
use crate::error::{Hinted, Stop};
use crate::message::Reply;
use crate::sys::http::{self, Answer, Http};
use crate::sys::secret::Secret;
use crate::sys::signal;
use reading::{Reading, Trouble};
use serde_json::Value;
use std::io::Read;
use std::time::Duration;

mod body;
mod draft;
mod failure;
mod reading;

pub use body::Quirks;

/// The most that is read of an answer. A model that talks on and on is cut off here.
const ANSWER_LIMIT: usize = 64 << 20;

/// A server, and how to speak with it.
pub struct OpenAiChat {
    /// As `https://api.openai.com/v1`, without the slash at the end.
    pub base: String,
    pub key: Option<Secret>,
    /// Where the key comes from, for the message when it is rejected.
    pub key_source: String,
    pub headers: Vec<(String, String)>,
    pub quirks: Quirks,
    /// Ask for the reply as a stream.
    pub stream: bool,
    pub http: Http,
}

impl Provider for OpenAiChat {
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError> {
        let body =
            serde_json::to_vec(&self.body(request)).expect("a JSON value can be written to memory");
        let mut headers = self.headers.clone();
        if let Some(key) = &self.key {
            headers.push(("authorization".into(), format!("Bearer {}", key.expose())));
        }
        let answer =
            self.http
                .post_json(&self.url(), &headers, &body)
                .map_err(|error| match error.is::<Hinted>() || error.is::<Stop>() {
                    true => ProviderError::Aborted(error),
                    false => ProviderError::Unavailable(format!("ask {}: {error}", self.base)),
                })?;
        match answer.status {
            200..=299 => self.read(answer, request, tell),
            _ => Err(self.refusal(answer)),
        }
    }
}

impl OpenAiChat {
    pub fn url(&self) -> String {
        format!("{}/chat/completions", self.base)
    }

    /// The request as it is sent.
    pub fn body(&self, request: &Request<'_>) -> Value {
        body::of(request, &self.quirks, self.stream)
    }

    /// The request as a command that sends it. The key is a variable, to be set by whoever runs it.
    pub fn curl(&self, request: &Request<'_>) -> String {
        let mut command = format!(
            "curl -sS {} \\\n  -H 'content-type: application/json' \\\n",
            quote(&self.url())
        );
        if self.key.is_some() {
            let variable = Some(self.key_source.trim_start_matches('$'))
                .filter(|_| self.key_source.starts_with('$'));
            command.push_str(&format!(
                "  -H \"authorization: Bearer ${}\" \\\n",
                variable.unwrap_or("API_KEY")
            ));
        }
        for (name, _) in &self.headers {
            command.push_str(&format!("  -H {} \\\n", quote(&format!("{name}: ***"))));
        }
        command.push_str(&format!(
            "  -d {}\n",
            quote(&self.body(request).to_string())
        ));
        command
    }

    /// Read the answer, as a stream of events or in one piece, whichever it turns out to be.
    fn read(
        &self,
        answer: Answer,
        request: &Request<'_>,
        tell: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        let events = answer
            .header("content-type")
            .is_some_and(|kind| kind.contains("event-stream"));
        let mut reading = Reading::new(request, events);
        let mut body = answer.body;
        let mut chunk = vec![0; 16 << 10];
        let mut total = 0;
        loop {
            let count = match body.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // What came was whole: how the connection ended does not matter.
                Err(_) if reading.is_done() => 0,
                Err(error) => {
                    signal::check().map_err(|stop| ProviderError::Aborted(stop.into()))?;
                    return Err(self.trouble(Trouble::Cut(http::read_failure(&error))));
                }
            };
            total += count;
            if total > ANSWER_LIMIT {
                return Err(ProviderError::Refused(format!(
                    "the answer is longer than {} MiB",
                    ANSWER_LIMIT >> 20
                )));
            }
            let told = match count {
                0 => reading.finish(tell),
                _ => reading.feed(&chunk[..count], tell),
            };
            told.map_err(|trouble| self.trouble(trouble))?;
            if count == 0 {
                return reading.reply().map_err(|trouble| self.trouble(trouble));
            }
        }
    }

    fn trouble(&self, trouble: Trouble) -> ProviderError {
        match trouble {
            Trouble::Listener(error) => ProviderError::Aborted(error),
            Trouble::Cut(cause) => {
                ProviderError::Unavailable(format!("{} answered in part: {cause}", self.base))
            }
            Trouble::Nonsense(cause) => {
                ProviderError::Unavailable(self.clean(&format!("{}: {cause}", self.base)))
            }
            Trouble::Server(error) => {
                let status = failure::status_within(&error).unwrap_or(500);
                self.failed(status, &failure::message(&error.to_string()), None)
            }
        }
    }

    /// What an answer with a failing status means.
    fn refusal(&self, answer: Answer) -> ProviderError {
        let wait = failure::wait(&answer);
        let place = answer.header("location").map(str::to_owned);
        let status = answer.status;
        let mut text = Vec::new();
        // A body that breaks off still tells what it told.
        drop(answer.body.take(64 << 10).read_to_end(&mut text));
        let mut message = failure::message(&String::from_utf8_lossy(&text));
        if let (300..=399, Some(place)) = (status, place) {
            message = format!(
                "it has moved to {place}, where the key is not sent unasked; set that address"
            );
        }
        self.failed(status, &message, wait)
    }

    fn failed(&self, status: u16, message: &str, wait: Option<Duration>) -> ProviderError {
        let message = self.clean(message);
        let said = if message.is_empty() {
            format!("status {status}")
        } else {
            format!("{message} (status {status})")
        };
        let told = format!("{}: {said}", self.base);
        if failure::says_too_long(status, &message) {
            return ProviderError::TooLong(told);
        }
        if matches!(status, 401..=403) || failure::says_no_credit(&message) {
            return ProviderError::KeyRejected(format!(
                "{told}; the key is from {}",
                self.key_source
            ));
        }
        match status {
            404 => ProviderError::NotFound(told),
            429 => ProviderError::Busy {
                message: told,
                wait,
            },
            503 | 529 if wait.is_some() => ProviderError::Busy {
                message: told,
                wait,
            },
            408 | 409 | 425 | 500..=599 => ProviderError::Unavailable(told),
            _ => ProviderError::Refused(told),
        }
    }

    /// What a server said, fit to be shown: short, on one line, without our keys.
    fn clean(&self, text: &str) -> String {
        let line: String = text
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(500)
            .collect();
        self.key
            .iter()
            .fold(line, |line, key| key.mask(line))
            .trim()
            .to_owned()
    }
}

/// `text` as one word of a shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
