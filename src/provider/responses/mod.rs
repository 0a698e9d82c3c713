//! The OpenAI responses format: [`request`] builds requests, [`reply_builder`] reads responses. Both are pure. The
//! server stores nothing: reasoning is returned encrypted, stored with the reply, and sent back. Source:
//! <https://platform.openai.com/docs/api-reference/responses>.

use super::quirks::Quirks;

mod reply_builder;
mod request;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const WIRE_NAME: &str = "responses";

/// The format, configured for one server and model.
pub struct ResponsesFormat {
    pub quirks: Quirks,
    /// The model's output limit in tokens, if known.
    pub max_output_tokens: Option<u32>,
    /// True if the model reasons. Encrypted reasoning may be requested only then.
    pub is_reasoning_model: bool,
}
