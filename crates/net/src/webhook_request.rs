//! One HTTP request on standard input (inetd, a socket unit with `Accept=yes`) or from CGI (RFC 3875), and its response on
//! standard output.

use crate::content_digest::from_hex;
use ::http::StatusCode;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::env::Env;
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::Terminal;
use ring::hmac;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::time::Duration;

/// Time in which a request must be complete.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of the head and of the body of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_HEADERS: usize = 100;

/// An HTTP request that a service has sent to the webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookRequest {
    /// `GET` or `POST`.
    pub method: String,
    /// The pairs of the query, decoded.
    pub query: Vec<(String, String)>,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The failure to read a request.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The request cannot be used; the status of the response to it.
    #[error("unusable request: {0}")]
    Unusable(StatusCode),
    /// The run was cancelled, or standard input cannot be read.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// The HTTP response to a webhook request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookResponse {
    pub status: u16,
    /// Plain text.
    pub body: String,
}

impl WebhookResponse {
    /// A response without content.
    pub fn empty(status: u16) -> Self {
        Self { status, body: String::new() }
    }
}

impl WebhookRequest {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        value_of(&self.headers, name)
    }

    /// The value of a pair of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        value_of(&self.query, name)
    }

    /// Reads the request of this process.
    ///
    /// # Errors
    /// The request is unusable, the run was cancelled, or standard input cannot be read. Status 78 if standard input is a
    /// socket that takes connections.
    pub fn read(env: &Env) -> Result<Self, WebhookError> {
        let mut input =
            RequestInput { received: Vec::new(), deadline: Deadline::after(REQUEST_TIMEOUT) };
        match env.get("GATEWAY_INTERFACE") {
            Some(_) => read_cgi(env, &mut input),
            None if is_listening_socket() => Err(fail(
                Exit::Config,
                "standard input is a socket that takes connections, not a connection",
            )
            .with_hint("`Accept=yes` in the socket unit")
            .into()),
            None => read_http(&mut input),
        }
    }
}

fn value_of<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find_map(|(key, value)| (key == name).then_some(value.as_str()))
}

fn is_listening_socket() -> bool {
    rustix::net::sockopt::socket_acceptconn(rustix::stdio::stdin()).unwrap_or(false)
}

/// Writes the response, and ends the connection.
///
/// # Errors
/// Standard output cannot be written.
pub fn respond(env: &Env, terminal: Terminal, response: &WebhookResponse) -> Result<()> {
    let WebhookResponse { status, body } = response;
    let reason = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
    let reason = reason.unwrap_or_default();
    let prefix = match env.get("GATEWAY_INTERFACE") {
        Some(_) => "Status:",
        None => "HTTP/1.1",
    };
    terminal.print(&format!(
        "{prefix} {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))?;
    // Under inetd, standard input and standard error are the same socket. A pipe has no such end.
    let _: Result<_, _> = rustix::net::shutdown(rustix::stdio::stdout(), Shutdown::Both);
    terminal.close_output(true)
}

/// True if `signature` is the HMAC with SHA-256 of a message, in hexadecimal digits. Compares in constant time.
pub fn is_signed(key: &str, message: &[u8], signature: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    from_hex(signature).is_some_and(|bytes| hmac::verify(&key, message, &bytes).is_ok())
}

/// True if two secrets are the same. Compares in constant time.
pub fn is_same_secret(left: &str, right: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, left.as_bytes());
    let tag = hmac::sign(&key, right.as_bytes());
    // Tags under the same key are equal for equal messages only.
    hmac::verify(&key, left.as_bytes(), tag.as_ref()).is_ok()
}

/// Standard input, for a limited time.
struct RequestInput {
    received: Vec<u8>,
    deadline: Deadline,
}

impl RequestInput {
    /// Reads more bytes. Returns false at the end, or when the time is over.
    fn read_more(&mut self) -> Result<bool> {
        let stdin = rustix::stdio::stdin();
        if !signal::wait_readable(stdin, &mut self.deadline)? {
            return Ok(false);
        }
        let mut buffer = [0; 8192];
        match rustix::io::read(stdin, &mut buffer) {
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(count > 0)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(true),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    /// The next `length` bytes.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, WebhookError> {
        while self.received.len() < length {
            if !self.read_more()? {
                return Err(WebhookError::Unusable(StatusCode::REQUEST_TIMEOUT));
            }
        }
        Ok(self.received.drain(..length).collect())
    }
}

struct RequestHead {
    /// The request without its body.
    request: WebhookRequest,
    body_bytes: usize,
    head_bytes: usize,
}

fn read_http(input: &mut RequestInput) -> Result<WebhookRequest, WebhookError> {
    let RequestHead { request, body_bytes, head_bytes } = loop {
        if let Some(head) = parse_head(&input.received).map_err(WebhookError::Unusable)? {
            break head;
        }
        if input.received.len() > MAX_HEAD_BYTES {
            return Err(WebhookError::Unusable(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        if !input.read_more()? {
            return Err(WebhookError::Unusable(StatusCode::REQUEST_TIMEOUT));
        }
    };
    input.received.drain(..head_bytes);
    Ok(WebhookRequest { body: input.take(body_bytes)?, ..request })
}

/// Parses a head; `None` if more is to come.
///
/// # Errors
/// The status of the response to an unusable head.
fn parse_head(bytes: &[u8]) -> Result<Option<RequestHead>, StatusCode> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_bytes = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(StatusCode::BAD_REQUEST),
    };
    let target = parsed.path.unwrap_or_default();
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let mut request = new_request(parsed.method.unwrap_or_default(), query)?;
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| StatusCode::BAD_REQUEST)?;
        let name = header.name.to_ascii_lowercase();
        let is_ambiguous = name == "content-length" && request.header(&name).is_some();
        if is_ambiguous || name == "transfer-encoding" {
            return Err(StatusCode::LENGTH_REQUIRED);
        }
        request.headers.push((name, value.trim().to_owned()));
    }
    let body_bytes = body_length(request.header("content-length"))?;
    Ok(Some(RequestHead { request, body_bytes, head_bytes }))
}

fn read_cgi(env: &Env, input: &mut RequestInput) -> Result<WebhookRequest, WebhookError> {
    let method = env.get("REQUEST_METHOD").unwrap_or_default();
    let query = env.get("QUERY_STRING").unwrap_or_default();
    let mut request = new_request(method, query).map_err(WebhookError::Unusable)?;
    let length = body_length(env.get("CONTENT_LENGTH")).map_err(WebhookError::Unusable)?;
    for (name, value) in env.iter() {
        if let Some(name) = name.strip_prefix("HTTP_") {
            let name = name.to_ascii_lowercase().replace('_', "-");
            request.headers.push((name, value.to_owned()));
        }
    }
    request.body = input.take(length)?;
    Ok(request)
}

fn new_request(method: &str, query: &str) -> Result<WebhookRequest, StatusCode> {
    if !matches!(method, "GET" | "POST") {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    Ok(WebhookRequest {
        method: method.to_owned(),
        query: pairs.into_owned().collect(),
        ..WebhookRequest::default()
    })
}

fn body_length(text: Option<&str>) -> Result<usize, StatusCode> {
    let text = text.unwrap_or("0");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(StatusCode::BAD_REQUEST);
    }
    match text.parse::<usize>() {
        Ok(length) if length <= MAX_BODY_BYTES => Ok(length),
        _ => Err(StatusCode::PAYLOAD_TOO_LARGE),
    }
}

#[cfg(test)]
mod tests {
    use super::{RequestHead, is_same_secret, is_signed, parse_head};

    #[test]
    fn heads_are_parsed_or_refused() {
        let check = |head: &str, expect: Result<Option<usize>, u16>| {
            let body_bytes = match parse_head(head.as_bytes()) {
                Ok(head) => Ok(head.map(|head| head.body_bytes)),
                Err(status) => Err(status.as_u16()),
            };
            assert_eq!(body_bytes, expect, "{head}");
        };
        check("POST /a?b=c%20d HTTP/1.1\r\nContent-Length: 7\r\n\r\n", Ok(Some(7)));
        check("GET / HTTP/1.1\r\n\r\n", Ok(Some(0)));
        check("GET / HTTP/1.1\r\nHost", Ok(None));
        check("PUT / HTTP/1.1\r\n\r\n", Err(405));
        check("x\0y\r\n\r\n", Err(400));
        check("POST / HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", Err(413));
        check("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", Err(400));
        check("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", Err(411));
        check("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Err(411));
        let head = "GET /x?a=1&b=c%20d HTTP/1.1\r\nX-A:  b \r\n\r\n";
        let RequestHead { request, head_bytes, .. } = parse_head(head.as_bytes()).unwrap().unwrap();
        assert_eq!(request.parameter("b"), Some("c d"));
        assert_eq!((request.header("x-a"), head_bytes), (Some("b"), head.len()));
    }

    #[test]
    fn signatures_and_secrets_are_compared_whole() {
        // RFC 4231, test case 2.
        let signature = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let message = b"what do ya want for nothing?";
        assert!(is_signed("Jefe", message, signature));
        assert!(!is_signed("Jefe", message, &signature[2..]));
        assert!(!is_signed("Jefe", message, "é"));
        assert!(!is_signed("Jefe", message, ""));
        assert!(!is_signed("jefe", message, signature));
        assert!(is_same_secret("abc", "abc") && !is_same_secret("abc", "abd"));
        assert!(!is_same_secret("abc", "") && !is_same_secret("abc", "abc\0"));
    }
}
