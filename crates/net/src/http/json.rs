//! Responses that are read whole, JSON in them, and the server's message for an error status.

use super::client::{Http, HttpMethod, Response};
use super::error::body_error_message;
use super::transport::with_read_end;
use nanobot_os::secret::redact_all;
use nanobot_os::signal;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;

/// Maximum characters shown of a server's message.
const MAX_MESSAGE_CHARS: usize = 500;

/// JSON pointers to the error message in responses of servers of all kinds. Text for people comes before codes.
const MESSAGE_POINTERS: [&str; 10] = [
    // OAuth (RFC 6749, section 5.2)
    "/error_description",
    "/error/message",
    "/error_details/message",
    "/description",
    "/message",
    "/detail",
    "/error",
    "/0/error/message",
    "/error/msg",
    "/msg",
];

/// A response that was read whole.
#[derive(Clone, Debug)]
pub struct JsonResponse {
    /// The HTTP status code.
    pub status: u16,
    /// Null if the body is not JSON.
    pub body: Value,
}

impl Http {
    /// Sends a request, and reads at most `limit_bytes` of its response as JSON. Every status is returned as a response.
    ///
    /// # Errors
    /// The errors of [`Http::request`], also for a response that breaks off.
    pub fn exchange_json(
        &self,
        url: &str,
        headers: &[(String, String)],
        method: HttpMethod<'_>,
        limit_bytes: u64,
    ) -> anyhow::Result<JsonResponse> {
        let response = self.request(url, headers, method)?;
        let status = response.status;
        let body = response.read_body(limit_bytes, None)?;
        Ok(JsonResponse { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

impl Response {
    /// Reads the rest of the body, at most `limit_bytes` of it. With `end`, on the clock of [`signal::now`], it must be
    /// complete at that time.
    ///
    /// # Errors
    /// A message for the user if the body breaks off. A `Stop` error on cancellation.
    pub fn read_body(mut self, limit_bytes: u64, end: Option<Duration>) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        self.read_more(&mut body, limit_bytes, end)?;
        Ok(body)
    }

    /// Continues to read the body, until `body` has `limit_bytes` or all of it; see [`Self::read_body`].
    ///
    /// # Errors
    /// The errors of [`Self::read_body`]. The received part is in `body`.
    pub fn read_more(
        &mut self,
        body: &mut Vec<u8>,
        limit_bytes: u64,
        end: Option<Duration>,
    ) -> anyhow::Result<()> {
        let mut rest = (&mut self.body).take(limit_bytes.saturating_sub(body.len() as u64));
        if let Err(error) = with_read_end(end, || rest.read_to_end(body)) {
            signal::check()?;
            return Err(anyhow::Error::msg(body_error_message(&error)));
        }
        Ok(())
    }
}

impl JsonResponse {
    /// True for a status of 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The server's message about an error, fit to show.
    pub fn error_message(&self) -> Option<String> {
        let message = shown_message(message_in(&self.body)?);
        (!message.is_empty()).then_some(message)
    }
}

/// The message in the body of an error response: that of JSON, the title of an HTML page, or else the text.
pub fn error_message(body: &str) -> String {
    let body = body.trim();
    if let Ok(value) = serde_json::from_str::<Value>(body) {
        return message_in(&value).unwrap_or(body).to_owned();
    }
    if body.starts_with('<') {
        let title = html_title(body).unwrap_or("without a title").trim();
        return format!("the server sent a web page instead of a reply: {title}");
    }
    body.to_owned()
}

fn html_title(page: &str) -> Option<&str> {
    let lower = page.to_ascii_lowercase();
    let start = lower.find("<title>")?;
    let end = start + lower[start..].find("</title>")?;
    page.get(start + "<title>".len()..end)
}

fn message_in(body: &Value) -> Option<&str> {
    MESSAGE_POINTERS.iter().find_map(|pointer| body.pointer(pointer)?.as_str())
}

/// Makes a server's message fit to show: masked, on one line, short. Masking comes first, because a truncated key is still
/// a secret.
pub fn shown_message(message: &str) -> String {
    let masked = redact_all(message);
    let line: String = masked
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(MAX_MESSAGE_CHARS)
        .collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::error_message;

    #[test]
    fn messages_in_their_forms() {
        let check = |body: &str, expect: &str| assert_eq!(error_message(body), expect);
        check(r#"{"error": {"message": "no", "code": 1}}"#, "no");
        check(r#"{"error": "no"}"#, "no");
        check(r#"{"error": "invalid_grant", "error_description": "no"}"#, "no");
        check(r#"{"message": "no"}"#, "no");
        check(r#"{"detail": "no"}"#, "no");
        check(r#"[{"error": {"message": "no"}}]"#, "no");
        check(r#"{"odd": 1}"#, r#"{"odd": 1}"#);
        check(" plain ", "plain");
        check("", "");
        check(
            "<html><TITLE>502 Bad</TITLE>",
            "the server sent a web page instead of a reply: 502 Bad",
        );
        check("<html>", "the server sent a web page instead of a reply: without a title");
    }
}
