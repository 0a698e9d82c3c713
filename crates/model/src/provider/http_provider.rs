//! One HTTP exchange with a model's server. The translation of the request and of the response is left to a
//! [`WireFormat`].

use super::base_address::BaseAddress;
use super::credentials::LazyCredentials;
use super::error_response;
use super::failure_kind::{self, ErrorResponse};
use super::rate_limit;
use super::request_body::BodyWriter;
use super::response::ResponseReader;
use super::tool_call_repair;
use super::wire_format::{ReplyError, WireFormat};
use super::written_calls;
use super::{Delta, DeltaSink, FailureKind, Provider, ProviderError, Request};
use nanobot_base::error::{HintedError, Stop};
use nanobot_base::message::{Reply, Usage};
use nanobot_net::http::{self, Http, HttpMethod, HttpTimeouts, Response, shown_message};
use nanobot_net::web_url;
use nanobot_os::clock::Clock;
use nanobot_os::signal;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// Maximum number of bytes read of a response. A runaway reply is truncated here.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Maximum number of bytes read of a response with an error status.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// Maximum number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// The time for the rest of a response after its reply is complete. Servers send it at once; some proxies never do.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Shortest wait for which the message says when it ends. A shorter one is counted down.
const MIN_REPORTED_DELAY: Duration = Duration::from_secs(60);

/// Maximum number of pages read of a list of models.
const MAX_MODEL_PAGES: usize = 100;

/// A model server, and how to reach it.
pub struct HttpProvider {
    pub format: Box<dyn WireFormat>,
    /// The base URL, such as `https://api.openai.com/v1`.
    pub address: BaseAddress,
    /// True if the address comes from the user's config. A login does not override it then.
    pub is_base_configured: bool,
    pub key: LazyCredentials,
    /// The header for the key, if it differs from the format's default.
    pub key_header: &'static str,
    pub headers: Vec<(String, String)>,
    /// Extra fields of every request body.
    pub extra_body: Map<String, Value>,
    pub query: Vec<(String, String)>,
    /// True if replies are requested as a stream.
    pub stream: bool,
    /// True if the server is known to support JSON schemas. Others get the schema only as text in the prompt.
    pub supports_schemas: bool,
    /// True if a call that the model wrote as text is taken as one: the server is the user's own.
    pub accepts_written_calls: bool,
    pub http: Http,
    pub clock: Clock,
}

/// The content of a request.
#[derive(Clone, Copy)]
struct RequestContent<'a> {
    /// The body as JSON; a request without one is a GET.
    body: Option<&'a [u8]>,
    /// The model of the request, if it has one.
    model: Option<&'a str>,
}

impl Provider for HttpProvider {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        let body = self.body(request);
        let started = Instant::now();
        let place = self.display_url();
        let (size, count) = (body.len(), request.messages.len());
        log::info!(target: "http", "post to {place}: {size} bytes, {count} messages, {} tools", request.tools.len());
        let content = RequestContent { body: Some(&body), model: Some(request.model) };
        let mut notice = |text: &str| on_delta(Delta::Notice(text)).map_err(ProviderError::Aborted);
        let reply = self
            .send_to_server(self.format.path(), content, &mut notice)
            .and_then(|(_, answer)| self.read_reply(answer, request, on_delta));
        let total = started.elapsed().as_millis();
        match &reply {
            Ok(reply) => {
                let Usage { input, cached, output, .. } = reply.usage;
                log::info!(target: "http", "reply complete after {total} ms: {input} tokens in, {cached} of them cached, {output} out");
            }
            Err(error) => log::info!(target: "http", "no reply after {total} ms: {error}"),
        }
        reply
    }
}

impl HttpProvider {
    /// Lists the models of the server, in its order.
    ///
    /// # Errors
    /// Those of a request. A server without a list of models is reported as unusable.
    pub fn list_models(&self, notice: &mut dyn FnMut(&str)) -> Result<Vec<String>, ProviderError> {
        let mut say = |text: &str| {
            notice(text);
            Ok(())
        };
        let content = RequestContent { body: None, model: None };
        let (first, mut answer) =
            self.send_to_server(self.format.models_path(), content, &mut say)?;
        let mut found = Vec::new();
        for _ in 0..MAX_MODEL_PAGES {
            let read = answer.read_body(MAX_RESPONSE_BYTES as u64, None);
            let text = read.map_err(|error| {
                let cause = if error.is::<Stop>() {
                    ReplyError::Cancelled(error)
                } else {
                    ReplyError::Truncated(error.to_string())
                };
                self.parse_error(cause, None)
            })?;
            let Some((ids, next)) =
                serde_json::from_slice(&text).ok().and_then(|list| parse_model_list(&list))
            else {
                return Err(
                    self.parse_error(ReplyError::Malformed("not a list of models".into()), None)
                );
            };
            found.extend(ids);
            let Some(next) = next else {
                break;
            };
            let mark = if first.contains('?') { '&' } else { '?' };
            let url = format!("{first}{mark}after_id={}", web_url::percent_encode(&next));
            let (_, headers) = self.base_and_headers()?;
            answer = self.send_successfully(&url, &headers, content)?;
        }
        Ok(found)
    }

    /// Sends a request to `path` of the server, and returns its URL and the successful response. If there is no such
    /// address, and the configured one may lack its `/v1`, the request is sent to that one. The address that answers is
    /// kept for later requests and runs.
    fn send_to_server(
        &self,
        path: &str,
        content: RequestContent<'_>,
        notice: &mut dyn FnMut(&str) -> Result<(), ProviderError>,
    ) -> Result<(String, Response), ProviderError> {
        let (base, headers) = self.base_and_headers()?;
        let send = |base: &str| {
            let url = self.url(base, path);
            let answer = self.send_successfully(&url, &headers, content)?;
            Ok((url, answer))
        };
        let first = send(&base);
        let is_no_address = |sent: &Result<(String, Response), ProviderError>| {
            let kind = sent.as_ref().err().and_then(ProviderError::kind);
            kind == Some(FailureKind::NoSuchAddress)
        };
        if !is_no_address(&first) || !self.is_base_configured || path.starts_with("/v1") {
            return first;
        }
        for other in self.address.others() {
            self.address.set_current(other.clone());
            match send(&other) {
                sent if is_no_address(&sent) => {}
                Err(error) => return Err(error),
                Ok(answer) => {
                    self.address.store();
                    let (given, found) = (web_url::redact_url(&base), self.display_url());
                    notice(&format!("there is no API at {given}; {found} is used instead"))?;
                    return Ok(answer);
                }
            }
        }
        self.address.set_current(base);
        first
    }

    /// Sends a request and returns the response, if it is successful.
    fn send_successfully(
        &self,
        url: &str,
        headers: &[(String, String)],
        content: RequestContent<'_>,
    ) -> Result<Response, ProviderError> {
        let started = Instant::now();
        let answer = self.send(url.to_owned(), headers, content.body)?;
        let (status, first) = (answer.status, started.elapsed().as_millis());
        log::info!(target: "http", "status {status}, first byte after {first} ms");
        match status {
            200..=299 => Ok(answer),
            _ => Err(self.status_error(answer, content.model)),
        }
    }

    /// Sends a request with `body` as JSON, or a GET request without one. Redirects that keep the method are followed
    /// within the origin of `url`: the key is for that server only.
    fn send(
        &self,
        mut url: String,
        headers: &[(String, String)],
        body: Option<&[u8]>,
    ) -> Result<Response, ProviderError> {
        let method =
            body.map_or(HttpMethod::Get, |body| HttpMethod::Post("application/json", body));
        for _ in 0..MAX_REDIRECTS {
            let answer = self.http.request(&url, headers, method);
            let answer = answer.map_err(|error| self.connect_error(error))?;
            let location = answer.header("location");
            let next = location
                .filter(|_| matches!(answer.status, 307 | 308))
                .and_then(|location| web_url::redirect_within_origin(&url, location));
            match next {
                None => return Ok(answer),
                Some(next) => url = next,
            }
        }
        let place = self.display_url();
        let cause = format!("{place}: more than {MAX_REDIRECTS} redirects");
        Err(ProviderError::new(FailureKind::Refused, cause))
    }

    /// The base URL and the headers of a request, including credentials.
    pub fn base_and_headers(&self) -> Result<(String, Vec<(String, String)>), ProviderError> {
        let fixed = self.format.headers().iter();
        let fixed = fixed.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let own = |(name, _): &(String, String)| {
            let is_set = |(other, _): &(String, String)| other.eq_ignore_ascii_case(name);
            !self.headers.iter().any(is_set)
        };
        let mut headers: Vec<(String, String)> = fixed.filter(own).collect();
        headers.extend(self.headers.iter().cloned());
        let mut base = self.address.current();
        if let Some(access) = self.key.resolve(&self.http).map_err(ProviderError::Aborted)? {
            let key = self.key_value(access.token.expose());
            headers.push((self.key_header().into(), key));
            headers.extend(access.headers);
            // A login can determine the address, unless the user configured one.
            base = access.base_url.filter(|_| !self.is_base_configured).unwrap_or(base);
        }
        Ok((base, headers))
    }

    /// Converts a failure to send a request.
    fn connect_error(&self, error: anyhow::Error) -> ProviderError {
        if error.is::<HintedError>() || error.is::<Stop>() {
            ProviderError::Aborted(error)
        } else {
            let question = if web_url::is_local_cleartext(&self.address.current()) {
                "; is the server running?"
            } else {
                ""
            };
            let place = self.display_url();
            let cause = shown_message(&format!("send request to {place}: {error}{question}"));
            ProviderError::new(FailureKind::Unavailable, cause)
        }
    }

    fn url(&self, base: &str, path: &str) -> String {
        let mut url = format!("{base}{path}");
        for (number, (name, value)) in self.query.iter().enumerate() {
            let mark = if number == 0 && !url.contains('?') { '?' } else { '&' };
            url.push_str(&format!(
                "{mark}{}={}",
                web_url::percent_encode(name),
                web_url::percent_encode(value)
            ));
        }
        url
    }

    /// The complete request body, as JSON.
    pub fn body(&self, request: &Request<'_>) -> Vec<u8> {
        // Servers require an object schema. Any other schema is described in the prompt only.
        let is_object = |schema: &&Value| schema["type"] == "object";
        let schema = request.schema.filter(|_| self.supports_schemas).filter(is_object);
        let request = &Request { schema, ..*request };
        let body = BodyWriter::new(&self.extra_body);
        self.format.body(request, self.stream, body)
    }

    fn key_header(&self) -> &'static str {
        match self.key_header {
            "authorization" => self.format.key_header(),
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
            shell_quote(&web_url::redact_url(
                &self.url(&self.address.current(), self.format.path())
            ))
        );
        if self.key.is_configured() {
            let variable = self.key.source_label.variable().unwrap_or("API_KEY");
            let value = self.key_value(&format!("${variable}"));
            command.push_str(&format!("  -H \"{}: {value}\" \\\n", self.key_header()));
        }
        for (name, value) in self.format.headers() {
            command.push_str(&format!("  -H {} \\\n", shell_quote(&format!("{name}: {value}"))));
        }
        for (name, _) in &self.headers {
            command.push_str(&format!("  -H {} \\\n", shell_quote(&format!("{name}: ***"))));
        }
        command.push_str(&format!(
            "  -d {}\n",
            shell_quote(&String::from_utf8_lossy(&self.body(request)))
        ));
        command
    }

    /// Reads the response, as a stream of events or in one piece, according to its content. The end of the reply counts,
    /// not the end of the connection.
    fn read_reply(
        &self,
        mut answer: Response,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        let events =
            answer.header("content-type").is_some_and(|kind| kind.contains("event-stream"));
        let model = Some(request.model);
        let mut reading = ResponseReader::new(self.format.reply_builder(request), events);
        let mut chunk = vec![0; 4 << 10];
        let mut total = 0;
        let mut is_ended = false;
        // Only data counts: comments keep the connection open, but not the wait for an answer.
        let HttpTimeouts { first_byte, idle, .. } = self.http.timeouts();
        let end_of = |limit: Duration| (!limit.is_zero()).then(|| signal::now() + limit);
        let mut data_due = end_of(first_byte);
        while !is_ended && !reading.is_done() {
            let count = match answer.read(&mut chunk, data_due) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    signal::check().map_err(|stop| ProviderError::Aborted(stop.into()))?;
                    let cause = ReplyError::Truncated(http::body_error_message(&error));
                    return Err(self.parse_error(cause, model));
                }
            };
            is_ended = count == 0;
            total += count;
            if total > MAX_RESPONSE_BYTES {
                let cause = format!("the response is larger than {} MiB", MAX_RESPONSE_BYTES >> 20);
                return Err(ProviderError::new(FailureKind::Refused, cause));
            }
            reading
                .feed(&chunk[..count], on_delta)
                .map_err(|trouble| self.parse_error(trouble, model))?;
            if reading.take_progress() {
                data_due = end_of(idle);
            }
        }
        reading.finish(on_delta).map_err(|trouble| self.parse_error(trouble, model))?;
        if !is_ended {
            answer.drain(DRAIN_TIMEOUT);
        }
        let mut reply = reading.into_reply().map_err(|trouble| self.parse_error(trouble, model))?;
        tool_call_repair::repair_calls(&mut reply, request.tools);
        written_calls::settle_written_call(&mut reply, request, self.accepts_written_calls);
        Ok(reply)
    }

    fn parse_error(&self, error: ReplyError, model: Option<&str>) -> ProviderError {
        match error {
            ReplyError::Cancelled(error) => ProviderError::Aborted(error),
            ReplyError::Truncated(cause) => {
                let place = self.display_url();
                let cause = format!("{place} sent an incomplete response: {cause}");
                ProviderError::new(FailureKind::Interrupted, shown_message(&cause))
            }
            ReplyError::Malformed(cause) => {
                let cause = format!("{}: {cause}", self.display_url());
                ProviderError::new(FailureKind::Unavailable, shown_message(&cause))
            }
            ReplyError::Server(error) => {
                let status = error_response::embedded_status(&error).unwrap_or(500);
                let body = error.to_string();
                let message = http::error_message(&body);
                let wait = error_response::retry_after_in_body(&body);
                let response = ErrorResponse {
                    status,
                    body: &body,
                    message: &message,
                    names_delay: wait.is_some(),
                    model,
                };
                self.to_provider_error(&response, &status.to_string(), wait)
            }
        }
    }

    /// Converts a response with an error status.
    fn status_error(&self, mut answer: Response, model: Option<&str>) -> ProviderError {
        let named = error_response::retry_after(&answer, self.clock.timestamp());
        let place = answer.header("location").map(str::to_owned);
        let status = answer.status;
        // The name under which the provider's support finds the request.
        let request = answer.header("x-request-id").or(answer.header("request-id"));
        let shown = request
            .map_or(status.to_string(), |id| format!("{status}, request {}", shown_message(id)));
        let mut text = Vec::new();
        // The part of the body that arrived is used even if the rest is missing.
        drop(answer.read_more(&mut text, MAX_ERROR_BYTES, None));
        let text = String::from_utf8_lossy(&text);
        let wait = named.or_else(|| error_response::retry_after_in_body(&text));
        let mut message = http::error_message(&text);
        if let (300..=399, Some(place)) = (status, place) {
            message = format!(
                "redirected to {place}; the key is not sent there without your consent: set that base URL"
            );
        }
        let response = ErrorResponse {
            status,
            body: &text,
            message: &message,
            names_delay: wait.is_some(),
            model,
        };
        self.to_provider_error(&response, &shown, wait)
    }

    /// Converts an error response. `shown_status` is the status as users see it.
    fn to_provider_error(
        &self,
        response: &ErrorResponse<'_>,
        shown_status: &str,
        retry_after: Option<Duration>,
    ) -> ProviderError {
        let message = shown_message(response.message);
        let detail = if message.is_empty() {
            format!("status {shown_status}")
        } else {
            format!("{message} (status {shown_status})")
        };
        let description = format!("{}: {detail}", self.display_url());
        let kind = failure_kind::classify(response);
        let message = match kind {
            FailureKind::KeyRejected if response.status == 407 => {
                format!("{description}; the proxy asks for a login")
            }
            FailureKind::KeyRejected | FailureKind::Forbidden if self.key.is_configured() => {
                format!("{description}; the key is from {}", self.key.source_label)
            }
            FailureKind::KeyRejected | FailureKind::Forbidden => {
                format!("{description}; no API key is configured")
            }
            FailureKind::Busy => match retry_after
                .filter(|wait| *wait >= MIN_REPORTED_DELAY)
                .and_then(|wait| self.clock.timestamp().checked_add(wait).ok())
            {
                Some(end) => format!("{description}, until {}", rate_limit::format_end(end)),
                None => description,
            },
            _ => description,
        };
        let retry_after = retry_after.filter(|_| kind == FailureKind::Busy);
        ProviderError::Failed { kind, message, retry_after }
    }

    /// The base URL, without a password.
    fn display_url(&self) -> String {
        web_url::redact_url(&self.address.current())
    }
}

/// Parses a page of the list of models: the names, and the name after which the next page starts. Servers use `id` or
/// `name`, and some send the bare list.
fn parse_model_list(list: &Value) -> Option<(Vec<String>, Option<String>)> {
    let items = [&list["data"], &list["models"], list];
    let items = items.into_iter().find_map(Value::as_array)?;
    let id = |item: &Value| {
        let id = [&item["id"], &item["name"], item];
        id.into_iter().find_map(Value::as_str).map(str::to_owned)
    };
    let more = list["has_more"] == true && !items.is_empty();
    let next = list["last_id"].as_str().filter(|_| more);
    Some((items.iter().filter_map(id).collect(), next.map(str::to_owned)))
}

/// Quotes `text` as one shell word.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
