//! A wrapper that masks our keys in requests, and in the model's text and reasoning, both streamed and in the final reply.
//! The arguments of tool calls pass unchanged.

use super::{Delta, DeltaSink, Provider, ProviderError, ProviderResult, Request};
use nanobot_base::message::{Message, Reply};
use nanobot_os::secret::{StreamRedactor, mask_for_request, redact_known};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// Forwards requests to `inner`, and masks keys in them and in the replies.
pub struct RedactingProvider<P> {
    pub inner: P,
    /// Keys are sent unmasked, because the user has asked for it.
    pub sends_keys: bool,
}

/// True once the notice about a masked key was given.
static IS_MASK_ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// The notice about a masked key, given once per process.
const MASK_NOTICE: &str =
    "a known key is masked as `***` in what is sent and stored; `--send-keys` sends it";

impl<P: Provider> Provider for RedactingProvider<P> {
    fn reply(&self, request: &Request<'_>, on_delta: &mut DeltaSink<'_>) -> ProviderResult<Reply> {
        let masked = if self.sends_keys { None } else { MaskedRequest::new(request) };
        if masked.is_some() && !IS_MASK_ANNOUNCED.swap(true, Ordering::Relaxed) {
            on_delta(Delta::Notice(MASK_NOTICE)).map_err(ProviderError::Aborted)?;
        }
        let request = &masked.as_ref().map_or(*request, |masked| masked.apply(request));
        let (mut text_stream, mut reasoning_stream) =
            (StreamRedactor::for_known_keys(), StreamRedactor::for_known_keys());
        let reply = self.inner.reply(request, &mut |delta| match delta {
            Delta::Text(text) => {
                emit_text(&reasoning_stream.finish(), Delta::Reasoning, on_delta)?;
                emit_text(&text_stream.feed(text), Delta::Text, on_delta)
            }
            Delta::Reasoning(text) => {
                emit_text(&reasoning_stream.feed(text), Delta::Reasoning, on_delta)
            }
            other => {
                if matches!(other, Delta::Retry { .. } | Delta::Fallback { .. }) {
                    // The buffered text belongs to the attempt that failed.
                    text_stream = StreamRedactor::for_known_keys();
                    reasoning_stream = StreamRedactor::for_known_keys();
                }
                on_delta(other)
            }
        });
        if let Err(ProviderError::Aborted(_)) = reply {
            return reply;
        }
        // If the reply broke off, the buffered text is emitted too.
        emit_text(&reasoning_stream.finish(), Delta::Reasoning, on_delta)
            .and_then(|()| emit_text(&text_stream.finish(), Delta::Text, on_delta))
            .map_err(ProviderError::Aborted)
            .and(reply)
            .map(mask_reply)
    }
}

/// The parts of a request without keys.
struct MaskedRequest {
    system: Option<String>,
    messages: Option<Vec<Message>>,
}

impl MaskedRequest {
    /// Masks the keys in `request`; `None` if there are none.
    fn new(request: &Request<'_>) -> Option<Self> {
        let system = match mask_for_request(request.system) {
            Cow::Owned(system) => Some(system),
            Cow::Borrowed(_) => None,
        };
        let mut messages = None;
        for (index, message) in request.messages.iter().enumerate() {
            // A model's own text was masked when it arrived.
            if let Some(masked) = message.map_texts(mask_for_request) {
                messages.get_or_insert_with(|| request.messages.to_vec())[index] = masked;
            }
        }
        (system.is_some() || messages.is_some()).then_some(Self { system, messages })
    }

    fn apply<'a>(&'a self, request: &Request<'a>) -> Request<'a> {
        Request {
            system: self.system.as_deref().unwrap_or(request.system),
            messages: self.messages.as_deref().unwrap_or(request.messages),
            ..*request
        }
    }
}

fn emit_text<'t>(
    text: &'t str,
    delta: fn(&'t str) -> Delta<'t>,
    on_delta: &mut DeltaSink<'_>,
) -> anyhow::Result<()> {
    if text.is_empty() { Ok(()) } else { on_delta(delta(text)) }
}

fn mask_reply(mut reply: Reply) -> Reply {
    for text in [&mut reply.text, &mut reply.reasoning] {
        if let Cow::Owned(clean) = redact_known(text) {
            *text = clean;
        }
    }
    reply
}
