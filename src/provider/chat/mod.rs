//! The OpenAI chat completions format, used by all compatible servers: [`request`] builds requests, [`reply_builder`]
//! reads responses. Both are pure.

use super::quirks::Quirks;

mod body;
mod draft;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const WIRE: &str = "chat";

/// The format, configured for one server and model.
pub struct Chat {
    pub quirks: Quirks,
    /// The model's output limit in tokens, if known.
    pub most: Option<u32>,
}
