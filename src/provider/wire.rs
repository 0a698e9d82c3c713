//! One HTTP exchange with a model's server, between two pure translations that a [`Dialect`] makes: of what is sent, and
//! of what comes back.

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

/// A wire format, as one server and model want it. Pure.
pub trait Dialect: Send + Sync {
    /// What stands behind the server's base address.
    fn path(&self) -> &'static str;
    /// Where the server lists its models, behind the base address too.
    fn models(&self) -> &'static str {
        "/models"
    }
    /// Headers of the format itself.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The header that a key goes in, where the server has no other.
    fn key_header(&self) -> &'static str {
        "authorization"
    }
    /// What is sent. The last key is the one that grows.
    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value>;
    /// What is to become the reply.
    fn draft(&self, request: &Request<'_>) -> Box<dyn Draft>;
}

/// The most that is read of an answer. A model that talks on and on is cut off here.
const ANSWER_LIMIT: usize = 64 << 20;

/// The most pages that a list of models is read in.
const LISTS: usize = 100;

/// A server, and how to speak with it.
pub struct Wire {
    pub dialect: Box<dyn Dialect>,
    /// As `https://api.openai.com/v1`, without the slash at the end.
    pub base: String,
    /// The address is the user's own, and no login changes it.
    pub base_given: bool,
    pub key: Key,
    /// The header that it goes in, where that is not the format's own.
    pub key_header: &'static str,
    pub headers: Vec<(String, String)>,
    /// Fields that every request has as well.
    pub extra: Map<String, Value>,
    pub query: Vec<(String, String)>,
    /// Ask for the reply as a stream.
    pub stream: bool,
    /// The server is known to hold an answer to a schema; of others it is asked in words alone.
    pub takes_schemas: bool,
    pub http: Http,
}

impl Provider for Wire {
    fn reply(&self, request: &Request<'_>, tell: &mut Tell<'_>) -> Result<Reply, ProviderError> {
        let body =
            serde_json::to_vec(&self.body(request)).expect("a JSON value can be written to memory");
        let (base, headers) = self.let_in()?;
        let started = Instant::now();
        let place = self.place();
        let (size, count) = (body.len(), request.messages.len());
        log::info!(target: "http", "ask {place}: {size} bytes, {count} messages, {} tools", request.tools.len());
        let answer = self
            .http
            .post_json(&self.url(&base, self.dialect.path()), &headers, &body)
            .map_err(|error| self.unsent(error))?;
        let (status, first) = (answer.status, started.elapsed().as_millis());
        log::info!(target: "http", "status {status}, first byte after {first} ms");
        let reply = match status {
            200..=299 => self.read(answer, request, tell),
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
                log::info!(target: "http", "reply whole after {total} ms: {input} tokens in, {cached} of them cached, {output} out");
            }
            Err(error) => log::info!(target: "http", "no reply after {total} ms: {error}"),
        }
        reply
    }
}

impl Wire {
    /// The models that the server says it has, in its order.
    ///
    /// # Errors
    /// As for a request; a server without such a list is one that cannot be used.
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
                return Err(self.trouble(Trouble::Nonsense("no list of models".into())));
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

    /// Where to ask, and the headers that let a request in.
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
            // A login can decide where to ask, unless the user does.
            base = access.base.filter(|_| !self.base_given).unwrap_or(base);
        }
        Ok((base, headers))
    }

    /// Why a request got no answer.
    fn unsent(&self, error: anyhow::Error) -> ProviderError {
        match error.is::<Hinted>() || error.is::<Stop>() {
            true => ProviderError::Aborted(error),
            false => {
                ProviderError::Unavailable(self.clean(&format!("ask {}: {error}", self.place())))
            }
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

    /// The request as it is sent. What a user adds stands before that which grows, so that the beginning stays the same.
    pub fn body(&self, request: &Request<'_>) -> Value {
        // They want an object; anything else is asked for in words.
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

    /// The request as a command that sends it. The key is a variable, to be set by whoever runs it.
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

    /// Read the answer, as a stream of events or in one piece, whichever it turns out to be.
    fn read(
        &self,
        answer: Response,
        request: &Request<'_>,
        tell: &mut Tell<'_>,
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
            Trouble::Cut(cause) => ProviderError::Broken(
                self.clean(&format!("{} answered in part: {cause}", self.place())),
            ),
            Trouble::Nonsense(cause) => {
                ProviderError::Unavailable(self.clean(&format!("{}: {cause}", self.place())))
            }
            Trouble::Server(error) => {
                let status = failure::status_within(&error).unwrap_or(500);
                self.failed(status, &failure::message(&error.to_string()), None)
            }
        }
    }

    /// What an answer with a failing status means.
    fn refusal(&self, answer: Response) -> ProviderError {
        let named = failure::wait(&answer);
        let place = answer.header("location").map(str::to_owned);
        let status = answer.status;
        let mut text = Vec::new();
        // A body that breaks off still tells what it told.
        drop(answer.body.take(64 << 10).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        let wait = named.or_else(|| failure::wait_within(&text));
        let mut message = failure::message(&text);
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
        let told = format!("{}: {said}", self.place());
        if failure::says_too_long(status, &message) {
            return ProviderError::TooLong(told);
        }
        // Some speak of the quota, and of billing, at every rate limit: one that says when to come back is just that.
        let is_limit = status == 429 && wait.is_some();
        if matches!(status, 401..=403) || !is_limit && failure::says_no_credit(&message) {
            return ProviderError::KeyRejected(format!(
                "{told}; the key is from {}",
                self.key.place
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

    /// The address, without a password in it.
    fn place(&self) -> String {
        web_url::redacted(&self.base)
    }

    /// What a server said, fit to be shown: short, on one line, without our keys. These go first: half a key is one too.
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

/// The models of a list, and the one after which the next page begins. Servers call them by `id` or by `name`, and some
/// send the bare list.
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

/// `text` as one word of a shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
