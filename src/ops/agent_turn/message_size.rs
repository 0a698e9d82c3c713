//! Refuses a message that no model of the run can take, before anything is sent.

use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::token_estimate;
use nanobot_base::message::{MessagePart, UserMessage};
use nanobot_os::durable_file::format_size;

/// Checks that the text of `message` is not far beyond the context window, in tokens. The window is the one of the models if it is known,
/// else the configured one. The tokens are an estimate, so the server decides about a message of up to one and a half windows.
///
/// # Errors
/// Status 65, with the size that would fit.
pub(super) fn check(
    message: Option<&UserMessage>,
    known_window: Option<u32>,
    configured_window: u32,
) -> Result<()> {
    let Some(message) = message else {
        return Ok(());
    };
    let window = known_window.unwrap_or(configured_window);
    let texts = message.parts.iter().filter_map(|part| match part {
        MessagePart::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let mut bytes = 0;
    let mut tokens = 0;
    for text in texts {
        bytes += text.len() as u64;
        tokens += token_estimate::for_text(text);
    }
    let window = u64::from(window);
    if tokens <= window + window / 2 {
        return Ok(());
    }
    // The answer needs space too.
    let fitting_bytes = bytes.saturating_mul(window / 2) / tokens;
    let (limit, alternative) = match known_window {
        Some(_) => ("the model takes at most", "a model with a larger context window"),
        None => (
            "`agents.defaults.contextWindowTokens` is",
            "a larger `contextWindowTokens` if the model has that",
        ),
    };
    let cause = format!(
        "the message has {}, about {tokens} tokens, and {limit} {window}",
        format_size(bytes)
    );
    let hint = format!("at most {} of such text, or {alternative}", format_size(fitting_bytes));
    Err(fail(Exit::BadInput, cause).with_hint(hint))
}
