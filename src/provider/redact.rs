//! A wrapper that masks our keys in the model's text and reasoning, both streamed and in the final reply. Requests and
//! the arguments of tool calls pass unchanged.

use super::{Delta, DeltaSink, Provider, ProviderError, Request};
use crate::message::Reply;
use crate::sys::secret::{StreamRedactor, redact_known};
use std::borrow::Cow;

/// Forwards requests to `inner` and masks keys in its replies.
pub struct RedactingProvider<P> {
    pub inner: P,
}

impl<P: Provider> Provider for RedactingProvider<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut DeltaSink<'_>,
    ) -> Result<Reply, ProviderError> {
        let (mut text_stream, mut reasoning_stream) =
            (StreamRedactor::for_known_keys(), StreamRedactor::for_known_keys());
        let answer = self.inner.reply(request, &mut |delta| match delta {
            Delta::Text(text) => {
                emit_text(&reasoning_stream.finish(), Delta::Reasoning, on_delta)?;
                emit_text(&text_stream.feed(text), Delta::Text, on_delta)
            }
            Delta::Reasoning(text) => {
                emit_text(&reasoning_stream.feed(text), Delta::Reasoning, on_delta)
            }
            other => {
                if matches!(other, Delta::Retry { .. } | Delta::Fallback { .. }) {
                    // The text held back belongs to the attempt that failed.
                    text_stream = StreamRedactor::for_known_keys();
                    reasoning_stream = StreamRedactor::for_known_keys();
                }
                on_delta(other)
            }
        });
        if let Err(ProviderError::Aborted(_)) = answer {
            return answer;
        }
        // If the reply broke off, the text held back so far is emitted too.
        emit_text(&reasoning_stream.finish(), Delta::Reasoning, on_delta)
            .and_then(|()| emit_text(&text_stream.finish(), Delta::Text, on_delta))
            .map_err(ProviderError::Aborted)
            .and(answer)
            .map(mask_reply)
    }
}

fn emit_text<'t>(
    text: &'t str,
    delta: fn(&'t str) -> Delta<'t>,
    on_delta: &mut DeltaSink<'_>,
) -> anyhow::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => on_delta(delta(text)),
    }
}

fn mask_reply(mut reply: Reply) -> Reply {
    for text in [&mut reply.text, &mut reply.reasoning] {
        if let Cow::Owned(clean) = redact_known(text) {
            *text = clean;
        }
    }
    reply
}
