//! One HTTP exchange with a model's server. The translation of the request and of the response is left to a
//! [`WireFormat`].

use super::base_address::BaseAddress;
use super::credentials::LazyCredentials;
use super::error_response;
use super::failure_kind::{self, ErrorResponse};
use super::rate_limit::report::LimitReport;
use super::rate_limit::{self, RateLimiter};
use super::request_body::BodyWriter;
use super::response::ResponseReader;
use super::tool_call_repair;
use super::wire_format::{ReplyError, WireFormat};
use super::written_calls;
use super::{Delta, DeltaSink, FailureKind, Provider, ProviderError, ProviderResult, Request};
use jiff::SignedDuration;
use nanobot_base::error::{HintedError, Stop};
use nanobot_base::message::{Reply, Usage};
use nanobot_net::http::{self, Http, HttpMethod, HttpTimeouts, Response, shown_message};
use nanobot_net::web_url;
use nanobot_os::clock::Clock;
use nanobot_os::signal;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes read of a response. A runaway reply is truncated here.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Maximum number of bytes read of a response with an error status.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// Maximum number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// The time for the rest of a response after its reply is complete. Servers send it at once; some proxies never do.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// From this wait on, the message says when it ends. A shorter wait is counted down.
const MIN_REPORTED_DELAY: Duration = Duration::from_secs(60);

/// The time by which the clock of a server may differ, within which it accepts signatures.
const MAX_CLOCK_GAP: SignedDuration = SignedDuration::from_mins(5);

/// Maximum number of pages read of a list of models.
const MAX_MODEL_PAGES: usize = 100;

/// The header for the key of a resource of Azure.
const AZURE_KEY_HEADER: &str = "api-key";

/// The start of each JWT: `{"` in Base64.
const JWT_START: &str = "eyJ";

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
    /// True if a call that the model wrote as text is accepted as a call: the server is the user's own.
    pub accepts_written_calls: bool,
    pub http: Http,
    pub clock: Clock,
    /// The limits of the account.
    pub limiter: Arc<RateLimiter>,
}

#[derive(Clone, Copy)]
struct RequestContent<'a> {
    /// The body as JSON; a request without one is a GET.
    body: Option<&'a [u8]>,
    /// The model of the request, if it has one.
    model: Option<&'a str>,
}

impl Provider for HttpProvider {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let body = self.body(request);
        let started = Instant::now();
        let url = self.display_url();
        let size = body.len();
        let count = request.messages.len();
        log::info!(target: "http", "post to {url}: {size} bytes, {count} messages, {} tools", request.tools.len());
        let content = RequestContent { body: Some(&body), model: Some(request.model) };
        let mut on_notice =
            |text: &str| on_delta(Delta::Notice(text)).map_err(ProviderError::Aborted);
        let reply = self
            .send_to_server(self.format.path(), content, &mut on_notice)
            .and_then(|(_, response)| self.read_reply(response, request, on_delta));
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
    /// The errors of a request. A server without a list of models is reported as unavailable.
    pub fn list_models(&self, on_notice: &mut dyn FnMut(&str)) -> ProviderResult<Vec<String>> {
        let mut on_notice = |text: &str| {
            on_notice(text);
            Ok(())
        };
        let content = RequestContent { body: None, model: None };
        let (first_url, mut response) =
            self.send_to_server(self.format.models_path(), content, &mut on_notice)?;
        let mut models = Vec::new();
        for _ in 0..MAX_MODEL_PAGES {
            let body = response.read_body(MAX_RESPONSE_BYTES as u64, None).map_err(|error| {
                let cause = if error.is::<Stop>() {
                    ReplyError::Cancelled(error)
                } else {
                    ReplyError::Truncated(error.to_string())
                };
                self.parse_error(cause, None)
            })?;
            let Some((ids, next)) =
                serde_json::from_slice(&body).ok().and_then(|list| parse_model_list(&list))
            else {
                return Err(
                    self.parse_error(ReplyError::Malformed("not a list of models".into()), None)
                );
            };
            models.extend(ids);
            let Some(next) = next else {
                break;
            };
            let separator = if first_url.contains('?') { '&' } else { '?' };
            let url = format!("{first_url}{separator}after_id={}", web_url::percent_encode(&next));
            let (_, headers) = self.base_and_headers()?;
            response = self.send_successfully(&url, &headers, content)?;
        }
        Ok(models)
    }

    /// Sends a request to `path` of the server, and returns its URL and the successful response. If there is no such
    /// address, and the configured one may lack its `/v1`, the request is sent to the address with it. The one that answers
    /// is used for later requests and stored for later runs.
    fn send_to_server(
        &self,
        path: &str,
        content: RequestContent<'_>,
        on_notice: &mut dyn FnMut(&str) -> ProviderResult<()>,
    ) -> ProviderResult<(String, Response)> {
        let (base, mut headers) = self.base_and_headers()?;
        let send = |base: &str, headers: &[(String, String)]| {
            let url = self.url(base, path);
            let response = self.send_successfully(&url, headers, content)?;
            Ok((url, response))
        };
        let mut first = send(&base, &headers);
        let is_rejected = |error: &ProviderError| error.kind() == Some(FailureKind::KeyRejected);
        if first.as_ref().is_err_and(is_rejected)
            && self.key.renew(&self.http).map_err(ProviderError::Aborted)?
        {
            log::info!(target: "http", "the key has changed: once more");
            (_, headers) = self.base_and_headers()?;
            first = send(&base, &headers);
        }
        let is_no_address =
            |error: &ProviderError| error.kind() == Some(FailureKind::NoSuchAddress);
        if !first.as_ref().is_err_and(is_no_address)
            || !self.is_base_configured
            || path.starts_with("/v1")
        {
            return first;
        }
        for other in self.address.others() {
            self.address.set_current(other.clone());
            match send(&other, &headers) {
                Err(error) if is_no_address(&error) => {}
                Err(error) => return Err(error),
                Ok(exchange) => {
                    self.address.store();
                    let (configured, current) = (web_url::redact_url(&base), self.display_url());
                    on_notice(&format!(
                        "there is no API at {configured}; {current} is used instead"
                    ))?;
                    return Ok(exchange);
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
    ) -> ProviderResult<Response> {
        let started = Instant::now();
        let response = self.send(url.to_owned(), headers, content.body)?;
        let status = response.status;
        let first_byte_after = started.elapsed().as_millis();
        log::info!(target: "http", "status {status}, first byte after {first_byte_after} ms");
        match status {
            200..=299 => {
                if let Some(model) = content.model {
                    self.limiter.record_report(model, self.limit_report(&response));
                }
                Ok(response)
            }
            _ => Err(self.status_error(response, content.model)),
        }
    }

    fn limit_report(&self, response: &Response) -> Option<LimitReport> {
        LimitReport::read(|name| response.header(name), || self.clock.timestamp())
    }

    /// Sends a request with `body` as JSON, or a GET request without one. Redirects that keep the method are followed
    /// within the origin of `url`: the key is for that server only.
    fn send(
        &self,
        mut url: String,
        headers: &[(String, String)],
        body: Option<&[u8]>,
    ) -> ProviderResult<Response> {
        let method =
            body.map_or(HttpMethod::Get, |body| HttpMethod::Post("application/json", body));
        for _ in 0..MAX_REDIRECTS {
            let name = if body.is_some() { "POST" } else { "GET" };
            let signature = self.key.sign(name, &url, body.unwrap_or_default());
            let signature = signature.map_err(ProviderError::Aborted)?;
            let headers = [headers, &signature].concat();
            let response = self.http.request(&url, &headers, method);
            let response = response.map_err(|error| self.connect_error(error))?;
            // Only these two keep the method and the body (RFC 9110).
            if !matches!(response.status, 307 | 308) {
                return Ok(response);
            }
            let location = response.header("location");
            match location.and_then(|location| web_url::redirect_within_origin(&url, location)) {
                None => return Ok(response),
                Some(next) => url = next,
            }
        }
        let url = self.display_url();
        let cause = format!("{url}: more than {MAX_REDIRECTS} redirects");
        Err(ProviderError::new(FailureKind::Refused, cause))
    }

    /// The base URL and the headers of a request, including credentials.
    pub fn base_and_headers(&self) -> ProviderResult<(String, Vec<(String, String)>)> {
        let mut headers = Vec::new();
        for (name, value) in self.format.headers() {
            // The user's headers replace those of the format.
            if !self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
                headers.push(((*name).to_owned(), (*value).to_owned()));
            }
        }
        headers.extend(self.headers.iter().cloned());
        let mut base = self.address.current();
        if let Some(credentials) = self.key.resolve(&self.http).map_err(ProviderError::Aborted)? {
            headers.push(self.key_header(credentials.token.expose()));
            headers.extend(credentials.headers);
            // A login can determine the address, unless the user configured one.
            if !self.is_base_configured
                && let Some(base_url) = credentials.base_url
            {
                base = base_url;
            }
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
            let url = self.display_url();
            let cause = shown_message(&format!("send request to {url}: {error}{question}"));
            ProviderError::new(FailureKind::Unavailable, cause)
        }
    }

    fn url(&self, base: &str, path: &str) -> String {
        let mut url = format!("{base}{path}");
        for (number, (name, value)) in self.query.iter().enumerate() {
            let separator = if number == 0 && !url.contains('?') { '?' } else { '&' };
            url.push_str(&format!(
                "{separator}{}={}",
                web_url::percent_encode(name),
                web_url::percent_encode(value)
            ));
        }
        url
    }

    /// The complete request body, as JSON.
    pub fn body(&self, request: &Request<'_>) -> Vec<u8> {
        // Servers require an object schema. Any other schema is described in the prompt only.
        let is_supported = |schema: &&Value| self.supports_schemas && schema["type"] == "object";
        let schema = request.schema.filter(is_supported);
        let request = &Request { schema, ..*request };
        let body = BodyWriter::new(&self.extra_body);
        self.format.body(request, self.stream, body)
    }

    /// The header that has `key`. Azure tells keys of a resource from tokens of Entra by the header; the latter are JWTs.
    fn key_header(&self, key: &str) -> (String, String) {
        let name = match (self.key_header, self.format.key_header()) {
            (AZURE_KEY_HEADER, _) if key.starts_with(JWT_START) => "authorization",
            (AZURE_KEY_HEADER, "authorization") => AZURE_KEY_HEADER,
            (_, header) => header,
        };
        let value = match name {
            "authorization" => format!("Bearer {key}"),
            _ => key.to_owned(),
        };
        (name.to_owned(), value)
    }

    /// A curl command that sends the request. It reads the key from an environment variable that the user must set.
    pub fn curl(&self, request: &Request<'_>) -> String {
        let mut command = format!(
            "curl -sS {} \\\n  -H 'content-type: application/json' \\\n",
            shell_quote(&web_url::redact_url(
                &self.url(&self.address.current(), self.format.path())
            ))
        );
        if let Some(source) = self.key.signer() {
            command.push_str(&source.curl_options(&self.address.current()));
        } else if self.key.is_configured() {
            let variable = self.key.source_label.variable().unwrap_or("API_KEY");
            let (name, value) = self.key_header(&format!("${variable}"));
            command.push_str(&format!("  -H \"{name}: {value}\" \\\n"));
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

    /// Reads the response, as a stream of events or in one piece, according to its content. Reading ends with the reply,
    /// not with the connection.
    fn read_reply(
        &self,
        mut response: Response,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> ProviderResult<Reply> {
        let is_event_stream =
            response.header("content-type").is_some_and(|kind| kind.contains("event-stream"));
        let model = Some(request.model);
        let mut reader = ResponseReader::new(self.format.reply_builder(request), is_event_stream);
        let mut chunk = vec![0; 4 << 10];
        let mut total = 0;
        let mut is_ended = false;
        // Only data extends the deadline: a server can send comments for ever without answering.
        let HttpTimeouts { first_byte, idle, .. } = self.http.timeouts();
        let deadline_after = |limit: Duration| (!limit.is_zero()).then(|| signal::now() + limit);
        let mut deadline = deadline_after(first_byte);
        while !is_ended && !reader.is_done() {
            let count = match response.read(&mut chunk, deadline) {
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
            reader
                .feed(&chunk[..count], on_delta)
                .map_err(|error| self.parse_error(error, model))?;
            if reader.take_progress() {
                deadline = deadline_after(idle);
            }
        }
        reader.finish(on_delta).map_err(|error| self.parse_error(error, model))?;
        if !is_ended {
            response.drain(DRAIN_TIMEOUT);
        }
        let mut reply = reader.into_reply().map_err(|error| self.parse_error(error, model))?;
        tool_call_repair::repair_calls(&mut reply, request.tools);
        written_calls::settle_written_call(&mut reply, request, self.accepts_written_calls);
        Ok(reply)
    }

    fn parse_error(&self, error: ReplyError, model: Option<&str>) -> ProviderError {
        match error {
            ReplyError::Cancelled(error) => ProviderError::Aborted(error),
            ReplyError::Truncated(cause) => {
                let url = self.display_url();
                let cause = format!("{url} sent an incomplete response: {cause}");
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
                let retry_after = error_response::retry_after_in_body(&body);
                let response = ErrorResponse {
                    status,
                    body: &body,
                    message: &message,
                    names_delay: retry_after.is_some(),
                    model,
                };
                self.to_provider_error(&response, &status.to_string(), retry_after)
            }
        }
    }

    /// Converts a response with an error status.
    fn status_error(&self, mut response: Response, model: Option<&str>) -> ProviderError {
        let retry_after = error_response::retry_after(&response, self.clock.timestamp());
        let location = response.header("location").map(str::to_owned);
        let status = response.status;
        let clock_remark = self.clock_remark(&response);
        let report = if status == 429 { self.limit_report(&response) } else { None };
        // The provider's support finds the request by this id.
        let request_ids = ["x-request-id", "request-id", "x-amzn-requestid"];
        let request_id = request_ids.iter().find_map(|name| response.header(name));
        let shown_status = request_id
            .map_or(status.to_string(), |id| format!("{status}, request {}", shown_message(id)));
        let mut body = Vec::new();
        // The received part of the body is used even if the rest is missing.
        drop(response.read_more(&mut body, MAX_ERROR_BYTES, None));
        let body = String::from_utf8_lossy(&body);
        let reset_after = report.filter(|report| report.remaining == 0);
        let retry_after = retry_after.or_else(|| error_response::retry_after_in_body(&body));
        let mut message = http::error_message(&body);
        if let (300..=399, Some(location)) = (status, location) {
            message = format!(
                "redirected to {location}; the key is not sent there without your consent: set that base URL"
            );
        }
        message.push_str(&clock_remark.unwrap_or_default());
        let error = ErrorResponse {
            status,
            body: &body,
            message: &message,
            names_delay: retry_after.is_some(),
            model,
        };
        let retry_after = retry_after.or(reset_after.map(|report| report.reset_after));
        self.to_provider_error(&error, &shown_status, retry_after)
    }

    /// A remark about a clock that is off, if that may be why a server refuses a signature.
    fn clock_remark(&self, response: &Response) -> Option<String> {
        self.key.signer()?;
        let date = jiff::fmt::rfc2822::parse(response.header("date")?).ok()?.timestamp();
        let now = self.clock.timestamp();
        let is_off = date.duration_since(now).abs() > MAX_CLOCK_GAP;
        (is_off && matches!(response.status, 400..=403))
            .then(|| format!("; the server's clock says {date}, and this machine's {now}"))
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
        let retry_after = if kind == FailureKind::Busy { retry_after } else { None };
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
    let has_more = list["has_more"] == true && !items.is_empty();
    let next = if has_more { list["last_id"].as_str() } else { None };
    Some((items.iter().filter_map(id).collect(), next.map(str::to_owned)))
}

/// Quotes `text` as one word for any shell: some, such as dash, do not read the form `$'…'` of [`nanobot_base::shell_quote`].
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
