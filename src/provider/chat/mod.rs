//! The OpenAI chat completions format, used by all compatible servers: [`request`] builds requests, [`reply_builder`]
//! reads responses. Both are pure.

use super::quirks::Quirks;

mod reply_builder;
mod request;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const WIRE_NAME: &str = "chat";

/// The format, configured for one server and model.
pub struct ChatFormat {
    pub quirks: Quirks,
    /// The model's output limit in tokens, if known.
    pub max_output_tokens: Option<u32>,
}
