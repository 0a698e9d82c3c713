//! The HTTP+SSE transport of older servers: one event stream, whose first event holds the address for posting messages.

use super::http::{Far, Incoming, listen, post};
use super::message;
use super::watch::Watch;
use crate::mcp::offer::Failed;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::sync::Arc;
use url::Url;

/// An event stream, and the address for posting.
pub(super) struct Stream {
    far: Far,
    post_to: String,
    events: Option<Incoming>,
    watch: Arc<Watch>,
}

/// Resolves the address for posting. It must have the same origin as the stream, because our headers are sent to it.
fn endpoint(base: &Url, said: &str) -> Result<Url, Failed> {
    let found = base.join(said.trim());
    let found = found.map_err(|_| Failed::Broken("it sent an invalid endpoint URL".into()))?;
    match found.origin() == base.origin() && found.username().is_empty() {
        true => Ok(found),
        false => Err(Failed::Broken("its endpoint URL has another origin".into())),
    }
}

impl Stream {
    /// Opens the event stream at `url`.
    ///
    /// # Errors
    /// There is no such stream at `url`.
    pub(super) async fn open(far: Far, url: &str, watch: &Arc<Watch>) -> Result<Self, Failed> {
        let base = Url::parse(url);
        let base = base.map_err(|error| Failed::Unusable(format!("invalid URL: {error}")))?;
        let mut events = listen(&far, url).await?;
        loop {
            let Some(Ok(event)) = events.next().await else {
                let words = "its event stream ended before the endpoint event";
                return Err(Failed::Broken(words.into()));
            };
            if event.event.as_deref() == Some("endpoint") {
                let said = event.data.unwrap_or_default();
                return Ok(Self {
                    post_to: endpoint(&base, &said)?.into(),
                    far,
                    events: Some(events),
                    watch: Arc::clone(watch),
                });
            }
        }
    }
}

impl Transport<RoleClient> for Stream {
    type Error = Failed;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Failed>> + Send + 'static {
        let (far, url) = (self.far.clone(), self.post_to.clone());
        async move {
            let body = serde_json::to_vec(&item);
            let body =
                body.map_err(|error| Failed::Unusable(format!("serialize the message: {error}")))?;
            post(&far, &url, body).await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let Some(Ok(event)) = self.events.as_mut()?.next().await else {
                self.watch
                    .over(Failed::Broken("its event stream ended".into()));
                return None;
            };
            if !matches!(event.event.as_deref(), None | Some("" | "message")) {
                continue;
            }
            match message::read(event.data.unwrap_or_default().as_bytes()) {
                Some(message) => return Some(message),
                None => log::debug!(target: "mcp", "ignored an event that is not an MCP message"),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Failed> {
        self.events = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::endpoint;
    use url::Url;

    #[test]
    fn messages_go_where_the_stream_comes_from() {
        let base = Url::parse("https://a.example:8443/x/sse").unwrap();
        let check = |said: &str, expect: Option<&str>| {
            let found = endpoint(&base, said).ok();
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
