//! One HTTP request on standard input (inetd, a socket unit with `Accept=yes`) or from CGI (RFC 3875), and its response on
//! standard output.

use anyhow::Result;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_os::env::Env;
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::Terminal;
use ring::hmac;
use rustix::net::Shutdown;
use std::time::Duration;

/// Time in which a request must be complete.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of the head and of the body of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_HEADERS: usize = 100;

/// A request.
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

/// A response.
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
        let mut headers = self.headers.iter();
        let found = headers.find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a pair of the query.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.iter();
        let found = pairs.find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Reads the request of this process. An unusable one is the status of its refusal.
    ///
    /// # Errors
    /// The run was cancelled, or standard input cannot be read. Status 78 if it is a socket that takes connections.
    pub fn read(env: &Env) -> Result<std::result::Result<Self, u16>> {
        let mut input =
            RequestInput { received: Vec::new(), deadline: Deadline::after(REQUEST_TIMEOUT) };
        match env.get("GATEWAY_INTERFACE") {
            Some(_) => read_cgi(env, &mut input),
            None if is_listening_socket() => Err(fail_with_hint(
                Exit::Config,
                "standard input is a socket that takes connections, not a connection",
                "`Accept=yes` in the socket unit",
            )),
            None => read_http(&mut input),
        }
    }
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
    let reason = match status {
        200 => "OK",
        401 => "Unauthorized",
        405 => "Method Not Allowed",
        500.. => "Unavailable",
        _ => "Bad Request",
    };
    let first = match env.get("GATEWAY_INTERFACE") {
        Some(_) => "Status:",
        None => "HTTP/1.1",
    };
    terminal.print(&format!(
        "{first} {status} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))?;
    // Under inetd, standard input and standard error are the same socket. A pipe has no such end.
    let _: Result<_, _> = rustix::net::shutdown(rustix::stdio::stdout(), Shutdown::Both);
    terminal.close_output(true)
}

/// True if `signature` is the HMAC with SHA-256 of a message, in hexadecimal digits. Compares in constant time.
pub fn is_signed(key: &str, message: &[u8], signature: &str) -> bool {
    let digits = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    };
    let bytes: Option<Vec<u8>> = signature.as_bytes().chunks(2).map(digits).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    bytes.is_some_and(|bytes| hmac::verify(&key, message, &bytes).is_ok())
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
    /// Reads more. False at the end, or when the time is over.
    fn read_more(&mut self) -> Result<bool> {
        let stdin = rustix::stdio::stdin();
        if !signal::wait_readable(stdin, &mut self.deadline)? {
            return Ok(false);
        }
        let mut buffer = [0; 8192];
        let count = rustix::io::read(stdin, &mut buffer).map_err(std::io::Error::from)?;
        self.received.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }

    /// The next `length` bytes; `None` if they do not come.
    fn take(&mut self, length: usize) -> Result<Option<Vec<u8>>> {
        while self.received.len() < length {
            if !self.read_more()? {
                return Ok(None);
            }
        }
        Ok(Some(self.received.drain(..length).collect()))
    }
}

fn read_http(input: &mut RequestInput) -> Result<std::result::Result<WebhookRequest, u16>> {
    let (mut request, length, head_bytes) = loop {
        match parse_head(&input.received) {
            Ok(Some(parsed)) => break parsed,
            Ok(None) if input.received.len() > MAX_HEAD_BYTES => return Ok(Err(431)),
            Ok(None) if input.read_more()? => {}
            Ok(None) => return Ok(Err(408)),
            Err(status) => return Ok(Err(status)),
        }
    };
    input.received.drain(..head_bytes);
    Ok(match input.take(length)? {
        Some(body) => {
            request.body = body;
            Ok(request)
        }
        None => Err(408),
    })
}

/// Parses a head. Returns the request without its body, the length of the body, and that of the head; `None` if more is
/// to come. An unusable head is the status of its refusal.
fn parse_head(bytes: &[u8]) -> std::result::Result<Option<(WebhookRequest, usize, usize)>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_bytes = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(400),
    };
    let target = parsed.path.unwrap_or_default();
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let mut request = new_request(parsed.method.unwrap_or_default(), query)?;
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| 400_u16)?;
        let name = header.name.to_ascii_lowercase();
        let is_ambiguous = name == "content-length" && request.header(&name).is_some();
        if is_ambiguous || name == "transfer-encoding" {
            return Err(411);
        }
        request.headers.push((name, value.trim().to_owned()));
    }
    let length = body_length(request.header("content-length"))?;
    Ok(Some((request, length, head_bytes)))
}

fn read_cgi(
    env: &Env,
    input: &mut RequestInput,
) -> Result<std::result::Result<WebhookRequest, u16>> {
    let method = env.get("REQUEST_METHOD").unwrap_or_default();
    let query = env.get("QUERY_STRING").unwrap_or_default();
    let length = body_length(env.get("CONTENT_LENGTH"));
    let (mut request, length) = match (new_request(method, query), length) {
        (Ok(request), Ok(length)) => (request, length),
        (Err(status), _) | (_, Err(status)) => return Ok(Err(status)),
    };
    for (name, value) in env.iter() {
        if let Some(name) = name.strip_prefix("HTTP_") {
            let name = name.to_ascii_lowercase().replace('_', "-");
            request.headers.push((name, value.to_owned()));
        }
    }
    Ok(match input.take(length)? {
        Some(body) => {
            request.body = body;
            Ok(request)
        }
        None => Err(408),
    })
}

fn new_request(method: &str, query: &str) -> std::result::Result<WebhookRequest, u16> {
    if !matches!(method, "GET" | "POST") {
        return Err(405);
    }
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    Ok(WebhookRequest {
        method: method.to_owned(),
        query: pairs.into_owned().collect(),
        ..WebhookRequest::default()
    })
}

fn body_length(text: Option<&str>) -> std::result::Result<usize, u16> {
    let text = text.unwrap_or("0");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(400);
    }
    match text.parse::<usize>() {
        Ok(length) if length <= MAX_BODY_BYTES => Ok(length),
        _ => Err(413),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_same_secret, is_signed, parse_head};

    #[test]
    fn heads_are_parsed_or_refused() {
        let check = |head: &str, expect: Result<Option<usize>, u16>| {
            let parsed = parse_head(head.as_bytes());
            let found = parsed.map(|parsed| parsed.map(|(_, length, _)| length));
            assert_eq!(found, expect, "{head}");
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
        let (request, _, length) = parse_head(head.as_bytes()).unwrap().unwrap();
        assert_eq!(request.parameter("b"), Some("c d"));
        assert_eq!((request.header("x-a"), length), (Some("b"), head.len()));
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
