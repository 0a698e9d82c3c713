//! The HTTP+SSE transport of older servers: one event stream, whose first event holds the address for posting messages.

use super::connection_state::ConnectionState;
use super::http::{EventReceiver, HttpTransport, open_event_stream, post};
use super::message;
use crate::mcp::protocol::McpError;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use url::Url;

/// An event stream, and the address for posting.
pub(super) struct SseTransport {
    http: HttpTransport,
    post_to: String,
    events: Option<EventReceiver>,
    state: Arc<ConnectionState>,
}

/// Resolves the address for posting. It must have the same origin as the stream, because our headers are sent to it.
fn resolve_endpoint(base: &Url, reference: &str) -> Result<Url, McpError> {
    let found = base.join(reference.trim());
    let found = found.map_err(|_| McpError::Broken("it sent an invalid endpoint URL".into()))?;
    match found.origin() == base.origin() && found.username().is_empty() {
        true => Ok(found),
        false => Err(McpError::Broken(
            "its endpoint URL has another origin".into(),
        )),
    }
}

impl SseTransport {
    /// Opens the event stream at `url`.
    ///
    /// # Errors
    /// There is no such stream at `url`.
    pub(super) async fn open(
        http: HttpTransport,
        url: &str,
        state: &Arc<ConnectionState>,
    ) -> Result<Self, McpError> {
        let base = Url::parse(url);
        let base = base.map_err(|error| McpError::Unusable(format!("invalid URL: {error}")))?;
        let mut events = open_event_stream(&http, url).await?;
        loop {
            let Some(Ok(event)) = events.next().await else {
                let words = "its event stream ended before the endpoint event";
                return Err(McpError::Broken(words.into()));
            };
            if event.event.as_deref() == Some("endpoint") {
                let said = event.data.unwrap_or_default();
                return Ok(Self {
                    post_to: resolve_endpoint(&base, &said)?.into(),
                    http,
                    events: Some(events),
                    state: Arc::clone(state),
                });
            }
        }
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = McpError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), McpError>> + Send + 'static {
        let (far, url) = (self.http.clone(), self.post_to.clone());
        async move {
            let body = serde_json::to_vec(&item);
            let body = body
                .map_err(|error| McpError::Unusable(format!("serialize the message: {error}")))?;
            post(&far, &url, body).await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let Some(Ok(event)) = self.events.as_mut()?.next().await else {
                self.state
                    .set_end_reason(McpError::Broken("its event stream ended".into()));
                return None;
            };
            if !matches!(event.event.as_deref(), None | Some("" | "message")) {
                continue;
            }
            match message::parse(event.data.unwrap_or_default().as_bytes()) {
                Some(message) => return Some(message),
                None => log::debug!(target: "mcp", "ignored an event that is not an MCP message"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), McpError> {
        self.events = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::resolve_endpoint;
    use url::Url;

    #[test]
    fn the_endpoint_must_have_the_origin_of_the_stream() {
        let base = Url::parse("https://a.example:8443/x/sse").unwrap();
        let check = |said: &str, expect: Option<&str>| {
            let found = resolve_endpoint(&base, said).ok();
            assert_eq!(found.as_ref().map(Url::as_str), expect, "{said}");
        };
        check("/m?s=1", Some("https://a.example:8443/m?s=1"));
        check("m", Some("https://a.example:8443/x/m"));
        check("https://a.example:8443/m", Some("https://a.example:8443/m"));
        check("https://a.example/m", None);
        check("http://a.example:8443/m", None);
        check("//b.example/m", None);
        check("https://a.example:8443@b.example/m", None);
        check("https://u@a.example:8443/m", None);
        check("file:///etc/passwd", None);
        check("data:x", None);
    }
}
