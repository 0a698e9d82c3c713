//! The HTTP+SSE transport of older servers: one event stream, whose first event holds the address for posting messages.
//! Messages wait until that address is known.

use super::connection::{Outgoing, Transport};
use super::http_exchange::{ExchangeThreads, HttpClient, StreamEnd, parse_event, read_events};
use super::inbox::Inbox;
use crate::protocol::McpError;
use nanobot_net::http::HttpMethod;
use nanobot_net::sse::SseEvent;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use url::Url;

/// An event stream, and the address for posting.
pub(super) struct SseTransport {
    client: HttpClient,
    base: Url,
    inbox: Arc<Inbox>,
    threads: Arc<ExchangeThreads>,
    endpoint: Mutex<PostAddress>,
}

/// The address for posting.
enum PostAddress {
    /// Not known yet; the messages wait for it.
    Unknown(Vec<Outgoing>),
    Ready(String),
    /// The event stream has ended.
    Closed,
}

/// Resolves the address for posting. It must have the same origin as the stream, because our headers are sent to it.
fn resolve_endpoint(base: &Url, reference: &str) -> Result<Url, McpError> {
    let url = base.join(reference.trim());
    let url = url.map_err(|_| McpError::Broken("it sent an invalid endpoint URL".into()))?;
    if url.origin() == base.origin() && url.username().is_empty() {
        Ok(url)
    } else {
        Err(McpError::Broken("its endpoint URL has another origin".into()))
    }
}

impl Transport for SseTransport {
    fn send(self: Arc<Self>, message: Outgoing) {
        match &mut *self.endpoint.lock() {
            PostAddress::Unknown(waiting) => waiting.push(message),
            PostAddress::Ready(url) => self.post(url.clone(), message),
            PostAddress::Closed => (message.on_sent)(Err(closed_error())),
        }
    }

    fn close(&self) -> Option<Receiver<()>> {
        self.threads.close();
        None
    }
}

impl SseTransport {
    /// Opens the event stream at `url`.
    ///
    /// # Errors
    /// No thread is available.
    pub(super) fn open(
        client: HttpClient,
        url: &str,
        inbox: &Arc<Inbox>,
    ) -> Result<Arc<Self>, McpError> {
        let base = Url::parse(url);
        let base = base.map_err(|error| McpError::Unusable(format!("invalid URL: {error}")))?;
        let transport = Arc::new(Self {
            client,
            base,
            inbox: Arc::clone(inbox),
            threads: Arc::default(),
            endpoint: Mutex::new(PostAddress::Unknown(Vec::new())),
        });
        let listener = Arc::clone(&transport);
        let url = url.to_owned();
        let listen = move || {
            let error = listener.listen(&url);
            listener.inbox.state.end(error);
            let endpoint = std::mem::replace(&mut *listener.endpoint.lock(), PostAddress::Closed);
            if let PostAddress::Unknown(waiting) = endpoint {
                for message in waiting {
                    (message.on_sent)(Err(closed_error()));
                }
            }
        };
        transport.threads.spawn(None, listen)?;
        Ok(transport)
    }

    /// Passes on the messages of the event stream. Returns the cause of its end.
    fn listen(self: &Arc<Self>, url: &str) -> McpError {
        let events = match self.client.open_events(url) {
            Ok(events) => events,
            Err(error) => return error,
        };
        let transport: Arc<dyn Transport> = Arc::<Self>::clone(self);
        let mut invalid_endpoint = None;
        let end = read_events(events, &mut |event| {
            if !matches!(*self.endpoint.lock(), PostAddress::Unknown(_)) {
                let message = parse_event(&event);
                return message.is_none_or(|message| self.inbox.receive(message, &transport));
            }
            invalid_endpoint = self.set_endpoint(event).err();
            invalid_endpoint.is_none()
        });
        match (end, invalid_endpoint, &*self.endpoint.lock()) {
            (_, Some(error), _) | (StreamEnd::TooLarge(error), ..) => error,
            (_, None, PostAddress::Unknown(_)) => {
                McpError::Broken("its event stream ended before the endpoint event".into())
            }
            _ => closed_error(),
        }
    }

    /// Takes the address for posting from `event`, if it has it, and posts the waiting messages.
    fn set_endpoint(self: &Arc<Self>, event: SseEvent) -> Result<(), McpError> {
        if event.event.as_deref() != Some("endpoint") {
            return Ok(());
        }
        let url = String::from(resolve_endpoint(&self.base, &event.data.unwrap_or_default())?);
        let mut endpoint = self.endpoint.lock();
        let previous = std::mem::replace(&mut *endpoint, PostAddress::Ready(url.clone()));
        if let PostAddress::Unknown(waiting) = previous {
            for message in waiting {
                self.post(url.clone(), message);
            }
        }
        Ok(())
    }

    /// Posts a message to `url` on a new thread.
    fn post(self: &Arc<Self>, url: String, message: Outgoing) {
        let Outgoing { body, kind, on_sent } = message;
        let transport = Arc::clone(self);
        let post = move || {
            let method = HttpMethod::Post("application/json", &body);
            let response = transport.client.exchange(&url, method, Vec::new());
            on_sent(response.and_then(|response| response.require_success()));
        };
        if let Err(error) = self.threads.spawn(None, post)
            && let Some(id) = kind.reply_id()
        {
            self.inbox.state.set_sent(id, Err(error));
        }
    }
}

fn closed_error() -> McpError {
    McpError::Broken("its event stream ended".into())
}

#[cfg(test)]
mod tests {
    use super::resolve_endpoint;
    use url::Url;

    #[test]
    fn the_endpoint_must_have_the_origin_of_the_stream() {
        let base = Url::parse("https://a.example:8443/x/sse").unwrap();
        let check = |reference: &str, expect: Option<&str>| {
            let actual = resolve_endpoint(&base, reference).ok();
            assert_eq!(actual.as_ref().map(Url::as_str), expect, "{reference}");
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
