//! Receives the redirect of a browser at the end of a login: a listener on loopback that answers one kind of request.

use nanobot_base::error::Stop;
use nanobot_os::signal::{self, Deadline};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

/// The path of the redirect.
const PATH: &str = "/callback";
/// Maximum length of a request's head in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time that a connection has to send its request. Browsers open connections that they do not use.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The page that the browser shows.
const PAGE: &str = "You can close this page and return to the terminal.\n";

/// A listener on loopback.
pub struct RedirectListener {
    listener: TcpListener,
    url: String,
}

impl RedirectListener {
    /// Listens on a port that the system chooses.
    ///
    /// # Errors
    /// The system allows no listener.
    pub fn open() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, url: format!("http://127.0.0.1:{port}{PATH}") })
    }

    /// The address that the browser is to be redirected to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the redirect, and returns its query. `None` if `deadline` expired.
    ///
    /// # Errors
    /// A signal arrived.
    pub fn wait(&self, deadline: &mut Deadline) -> Result<Option<String>, Stop> {
        loop {
            if !signal::wait_readable(&self.listener, deadline)? {
                return Ok(None);
            }
            // A connection that breaks off is not the redirect.
            let query = self.listener.accept().and_then(|(stream, _)| answer(stream));
            if let Ok(Some(query)) = query {
                return Ok(Some(query));
            }
        }
    }
}

/// Answers a request, and returns its query if it is the redirect.
fn answer(mut stream: TcpStream) -> io::Result<Option<String>> {
    let end = signal::now() + REQUEST_TIMEOUT;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
        let left = end.saturating_sub(signal::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            count => head.extend_from_slice(&buffer[..count]),
        }
    }
    let query = redirect_query(&String::from_utf8_lossy(&head));
    let (status, page) = match query {
        Some(_) => ("200 OK", PAGE),
        None => ("404 Not Found", "There is no such page.\n"),
    };
    let length = page.len();
    let sent = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{page}"
    );
    // A browser that is gone has brought the query all the same.
    if query.is_none() {
        sent?;
    }
    Ok(query)
}

/// The query of the redirect in the head of a request.
fn redirect_query(head: &str) -> Option<String> {
    let target = head.lines().next()?.strip_prefix("GET ")?;
    let (target, _) = target.split_once(' ')?;
    let (path, query) = target.split_once('?')?;
    (path == PATH).then(|| query.to_owned())
}

#[cfg(test)]
mod tests {
    use super::redirect_query;

    #[test]
    fn only_the_redirect_counts() {
        let check = |head: &str, expect: Option<&str>| {
            assert_eq!(redirect_query(head).as_deref(), expect, "{head}");
        };
        check("GET /callback?code=1&state=2 HTTP/1.1\r\n", Some("code=1&state=2"));
        check("GET /callback HTTP/1.1\r\n", None);
        check("GET /favicon.ico?x HTTP/1.1\r\n", None);
        check("POST /callback?code=1 HTTP/1.1\r\n", None);
        check("GET /callback?code=1", None);
        check("", None);
    }
}
