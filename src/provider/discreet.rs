//! A wrapper that masks our keys in the model's text and reasoning, both streamed and in the final reply. Requests and
//! the arguments of tool calls pass unchanged.

use super::{Delta, Provider, ProviderError, Request, Tell};
use crate::message::Reply;
use crate::sys::secret::{Stream, mask};
use std::borrow::Cow;

/// Forwards requests to `inner` and masks keys in its replies.
pub struct Discreet<P> {
    pub inner: P,
}

impl<P: Provider> Provider for Discreet<P> {
    fn reply(
        &self,
        request: &Request<'_>,
        on_delta: &mut Tell<'_>,
    ) -> Result<Reply, ProviderError> {
        let (mut text_stream, mut reasoning_stream) = (Stream::masking(), Stream::masking());
        let answer = self.inner.reply(request, &mut |delta| match delta {
            Delta::Text(text) => {
                tell_text(&reasoning_stream.rest(), Delta::Reasoning, on_delta)?;
                tell_text(&text_stream.pass(text), Delta::Text, on_delta)
            }
            Delta::Reasoning(text) => {
                tell_text(&reasoning_stream.pass(text), Delta::Reasoning, on_delta)
            }
            other => on_delta(other),
        });
        if let Err(ProviderError::Aborted(_)) = answer {
            return answer;
        }
        // If the reply broke off, the text held back so far is emitted too.
        tell_text(&reasoning_stream.rest(), Delta::Reasoning, on_delta)
            .and_then(|()| tell_text(&text_stream.rest(), Delta::Text, on_delta))
            .map_err(ProviderError::Aborted)
            .and(answer)
            .map(masked)
    }
}

fn tell_text<'t>(
    text: &'t str,
    delta: fn(&'t str) -> Delta<'t>,
    on_delta: &mut Tell<'_>,
) -> anyhow::Result<()> {
    match text.is_empty() {
        true => Ok(()),
        false => on_delta(delta(text)),
    }
}

fn masked(mut reply: Reply) -> Reply {
    for text in [&mut reply.text, &mut reply.reasoning] {
        if let Cow::Owned(clean) = mask(text) {
            *text = clean;
        }
    }
    reply
}
