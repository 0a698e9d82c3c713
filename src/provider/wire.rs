//! One HTTP exchange with a model's server. The translation of the request and of the response is left to a
//! [`WireFormat`].

use super::failure;
use super::keys::Key;
use super::reading::{Draft, Reading, Trouble};
use super::{Provider, ProviderError, Request, Tell};
use crate::error::{Hinted, Stop};
use crate::message::{Reply, Usage};
use crate::sys::http::{self, Http, Response};
use crate::sys::secret;
use crate::sys::signal;
use crate::sys::web_url;
use serde_json::{Map, Value};
use std::io::Read;
use std::time::{Duration, Instant};

/// A wire format, configured for one server and model. Pure.
pub trait Dialect: Send + Sync {
    /// The path of the endpoint, appended to the base URL.
    fn path(&self) -> &'static str;
    /// The path of the list of models, appended to the base URL.
    fn models(&self) -> &'static str {
        "/models"
    }
    /// Headers that the format requires.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The default header for the key.
    fn key_header(&self) -> &'static str {
        "authorization"
    }
    /// Builds the request body. Its last key is the one that grows during a conversation.
    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value>;
    /// An empty draft for the reply to `request`.
    fn draft(&self, request: &Request<'_>) -> Box<dyn Draft>;
}

/// Maximum number of bytes read of a response. A runaway reply is truncated here.
const ANSWER_LIMIT: usize = 64 << 20;

/// Maximum number of pages read of a list of models.
const LISTS: usize = 100;

/// A model server, and how to reach it.
pub struct Wire {
    pub dialect: Box<dyn Dialect>,
    /// The base URL without a trailing slash, such as `https://api.openai.com/v1`.
    pub base: String,
    /// True if the address comes from the user's config. A login does not override it then.
    pub base_given: bool,
    pub key: Key,
    /// The header for the key, if it differs from the format's default.
    pub key_header: &'static str,
    pub headers: Vec<(String, String)>,
    /// Extra fields of every request body.
    pub extra: Map<String, Value>,
    pub query: Vec<(String, String)>,
    /// True if replies are requested as a stream.
    pub stream: bool,
    /// True if the server is known to support JSON schemas. Others get the schema only as text in the prompt.
    pub takes_schemas: bool,
    pub http: Http,
}

impl Provider for Wire {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        let body = serde_json::to_vec(&self.body(request)).expect("a JSON value can be serialized");
        let (base, headers) = self.let_in()?;
        let started = Instant::now();
        let place = self.place();
        let (size, count) = (body.len(), request.messages.len());
        log::info!(target: "http", "post to {place}: {size} bytes, {count} messages, {} tools", request.tools.len());
        let answer = self
            .http
            .post_json(&self.url(&base, self.dialect.path()), &headers, &body)
            .map_err(|error| self.unsent(error))?;
        let (status, first) = (answer.status, started.elapsed().as_millis());
        log::info!(target: "http", "status {status}, first byte after {first} ms");
        let reply = match status {
            200..=299 => self.read(answer, request, on_delta),
            _ => Err(self.refusal(answer)),
        };
        let total = started.elapsed().as_millis();
        match &reply {
            Ok(reply) => {
                let Usage {
                    input,
                    cached,
                    output,
                    ..
                } = reply.usage;
                log::info!(target: "http", "reply complete after {total} ms: {input} tokens in, {cached} of them cached, {output} out");
            }
            Err(error) => log::info!(target: "http", "no reply after {total} ms: {error}"),
        }
        reply
    }
}

impl Wire {
    /// Lists the models of the server, in its order.
    ///
    /// # Errors
    /// Those of a request. A server without a list of models is reported as unusable.
    pub fn models(&self) -> Result<Vec<String>, ProviderError> {
        let (base, headers) = self.let_in()?;
        let first = self.url(&base, self.dialect.models());
        let mut found = Vec::new();
        let mut url = first.clone();
        for _ in 0..LISTS {
            let answer = self
                .http
                .send(&url, &headers, None)
                .map_err(|error| self.unsent(error))?;
            if !(200..=299).contains(&answer.status) {
                return Err(self.refusal(answer));
            }
            let mut text = Vec::new();
            let read = answer.body.take(ANSWER_LIMIT as u64).read_to_end(&mut text);
            if let Err(error) = read {
                signal::check().map_err(|stop| ProviderError::Aborted(stop.into()))?;
                return Err(self.trouble(Trouble::Cut(http::read_failure(&error))));
            }
            let Some((ids, next)) = serde_json::from_slice(&text)
                .ok()
                .and_then(|list| ids(&list))
            else {
                return Err(self.trouble(Trouble::Nonsense("not a list of models".into())));
            };
            found.extend(ids);
            let Some(next) = next else {
                break;
            };
            let mark = if first.contains('?') { '&' } else { '?' };
            url = format!("{first}{mark}after_id={}", web_url::percent_encoded(&next));
        }
        Ok(found)
    }

    /// The base URL and the headers of a request, including credentials.
    fn let_in(&self) -> Result<(String, Vec<(String, String)>), ProviderError> {
        let fixed = self.dialect.headers().iter();
        let fixed = fixed.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let own = |(name, _): &(String, String)| {
            let is_set = |(other, _): &(String, String)| other.eq_ignore_ascii_case(name);
            !self.headers.iter().any(is_set)
        };
        let mut headers: Vec<(String, String)> = fixed.filter(own).collect();
        headers.extend(self.headers.iter().cloned());
        let mut base = self.base.clone();
        if let Some(access) = self
            .key
            .access(&self.http)
            .map_err(ProviderError::Aborted)?
        {
            let key = self.key_value(access.token.expose());
            headers.push((self.key_header().into(), key));
            headers.extend(access.headers);
            // A login can determine the address, unless the user configured one.
            base = access.base.filter(|_| !self.base_given).unwrap_or(base);
        }
        Ok((base, headers))
    }

    /// Converts a failure to send a request.
    fn unsent(&self, error: anyhow::Error) -> ProviderError {
        match error.is::<Hinted>() || error.is::<Stop>() {
            true => ProviderError::Aborted(error),
            false => ProviderError::Unavailable(
                self.clean(&format!("send request to {}: {error}", self.place())),
            ),
        }
    }

    fn url(&self, base: &str, path: &str) -> String {
        let mut url = format!("{base}{path}");
        for (number, (name, value)) in self.query.iter().enumerate() {
            let mark = if number == 0 && !url.contains('?') {
                '?'
            } else {
                '&'
            };
            url.push_str(&format!(
                "{mark}{}={}",
                web_url::percent_encoded(name),
                web_url::percent_encoded(value)
            ));
        }
        url
    }

    /// The complete request body. The user's extra fields come before the key that grows, to keep the prompt prefix
    /// unchanged.
    pub fn body(&self, request: &Request<'_>) -> Value {
        // Servers require an object schema. Any other schema is described in the prompt only.
        let is_object = |schema: &&Value| schema["type"] == "object";
        let schema = request
            .schema
            .filter(|_| self.takes_schemas)
            .filter(is_object);
        let request = &Request { schema, ..*request };
        let mut body = self.dialect.body(request, self.stream);
        if self.extra.is_empty() {
            return body.into();
        }
        let grows = body
            .iter()
            .next_back()
            .map(|(key, value)| (key.clone(), value.clone()));
        if let Some((key, value)) = grows {
            body.remove(&key);
            body.extend(self.extra.clone());
            body.insert(key, value);
        }
        body.into()
    }

    fn key_header(&self) -> &'static str {
        match self.key_header {
            "authorization" => self.dialect.key_header(),
            other => other,
        }
    }

    fn key_value(&self, key: &str) -> String {
        match self.key_header() {
            "authorization" => format!("Bearer {key}"),
            _ => key.to_owned(),
        }
    }

    /// A curl command that sends the request. It reads the key from an environment variable that the user must set.
    pub fn curl(&self, request: &Request<'_>) -> String {
        let mut command = format!(
            "curl -sS {} \\\n  -H 'content-type: application/json' \\\n",
            quote(&web_url::redacted(
                &self.url(&self.base, self.dialect.path())
            ))
        );
        if self.key.is_some() {
            let variable = self.key.place.strip_prefix('$').unwrap_or("API_KEY");
            let value = self.key_value(&format!("${variable}"));
            command.push_str(&format!("  -H \"{}: {value}\" \\\n", self.key_header()));
        }
        for (name, value) in self.dialect.headers() {
            command.push_str(&format!("  -H {} \\\n", quote(&format!("{name}: {value}"))));
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

    /// Reads the response, as a stream of events or in one piece, according to its content.
    fn read(
        &self,
        answer: Response,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        let events = answer
            .header("content-type")
            .is_some_and(|kind| kind.contains("event-stream"));
        let mut reading = Reading::new(self.dialect.draft(request), events);
        let mut body = answer.body;
        let mut chunk = vec![0; 16 << 10];
        let mut total = 0;
        loop {
            let count = match body.read(&mut chunk) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // The response is complete, so the way in which the connection ended does not matter.
                Err(_) if reading.is_done() => 0,
                Err(error) => {
                    signal::check().map_err(|stop| ProviderError::Aborted(stop.into()))?;
                    return Err(self.trouble(Trouble::Cut(http::read_failure(&error))));
                }
            };
            total += count;
            if total > ANSWER_LIMIT {
                return Err(ProviderError::Refused(format!(
                    "the response is larger than {} MiB",
                    ANSWER_LIMIT >> 20
                )));
            }
            let result = match count {
                0 => reading.finish(on_delta),
                _ => reading.feed(&chunk[..count], on_delta),
            };
            result.map_err(|trouble| self.trouble(trouble))?;
            if count == 0 {
                return reading.reply().map_err(|trouble| self.trouble(trouble));
            }
        }
    }

    fn trouble(&self, trouble: Trouble) -> ProviderError {
        match trouble {
            Trouble::Listener(error) => ProviderError::Aborted(error),
            Trouble::Cut(cause) => ProviderError::Broken(self.clean(&format!(
                "{} sent an incomplete response: {cause}",
                self.place()
            ))),
            Trouble::Nonsense(cause) => {
                ProviderError::Unavailable(self.clean(&format!("{}: {cause}", self.place())))
            }
            Trouble::Server(error) => {
                let status = failure::status_within(&error).unwrap_or(500);
                self.failed(status, &failure::message(&error.to_string()), None)
            }
        }
    }

    /// Converts a response with an error status.
    fn refusal(&self, answer: Response) -> ProviderError {
        let named = failure::wait(&answer);
        let place = answer.header("location").map(str::to_owned);
        let status = answer.status;
        let mut text = Vec::new();
        // The part of the body that arrived is used even if the rest is missing.
        drop(answer.body.take(64 << 10).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let wait = named.or_else(|| failure::wait_within(&text));
        let mut message = failure::message(&text);
        if let (300..=399, Some(place)) = (status, place) {
            message = format!(
                "redirected to {place}; the key is not sent there without your consent: set that base URL"
            );
        }
        self.failed(status, &message, wait)
    }

    fn failed(&self, status: u16, message: &str, wait: Option<Duration>) -> ProviderError {
        let message = self.clean(message);
        let detail = if message.is_empty() {
            format!("status {status}")
        } else {
            format!("{message} (status {status})")
        };
        let description = format!("{}: {detail}", self.place());
        if failure::says_too_long(status, &message) {
            return ProviderError::TooLong(description);
        }
        // Some servers mention quota or billing at every rate limit. If the error names a delay, it is a rate limit.
        let is_limit = status == 429 && wait.is_some();
        if matches!(status, 401..=403) || !is_limit && failure::says_no_credit(&message) {
            let source = match self.key.is_some() {
                true => format!("the key is from {}", self.key.place),
                false => "no API key is configured".into(),
            };
            return ProviderError::KeyRejected(format!("{description}; {source}"));
        }
        match status {
            404 => ProviderError::NotFound(description),
            429 => ProviderError::Busy {
                message: description,
                wait,
            },
            503 | 529 if wait.is_some() => ProviderError::Busy {
                message: description,
                wait,
            },
            408 | 409 | 425 | 500..=599 => ProviderError::Unavailable(description),
            _ => ProviderError::Refused(description),
        }
    }

    /// The base URL, without a password.
    fn place(&self) -> String {
        web_url::redacted(&self.base)
    }

    /// Makes a server's message fit to display: masked, on one line, short. Masking comes first, because a truncated
    /// key is still a secret.
    fn clean(&self, text: &str) -> String {
        let masked = secret::hide(text);
        let line: String = masked
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(500)
            .collect();
        line.trim().to_owned()
    }
}

/// Parses a page of the list of models: the names, and the name after which the next page starts. Servers use `id` or
/// `name`, and some send the bare list.
fn ids(list: &Value) -> Option<(Vec<String>, Option<String>)> {
    let items = [&list["data"], &list["models"], list];
    let items = items.into_iter().find_map(Value::as_array)?;
    let id = |item: &Value| {
        let id = [&item["id"], &item["name"], item];
        id.into_iter().find_map(Value::as_str).map(str::to_owned)
    };
    let more = list["has_more"] == true && !items.is_empty();
    let next = list["last_id"].as_str().filter(|_| more);
    Some((
        items.iter().filter_map(id).collect(),
        next.map(str::to_owned),
    ))
}

/// Quotes `text` as one shell word.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
