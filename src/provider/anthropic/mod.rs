//! The Anthropic messages format: [`request`] builds requests, [`reply_builder`] reads responses. Both are pure.
//! Source: <https://docs.anthropic.com/en/api/messages>, version 2023-06-01.

use super::quirks::Quirks;

mod body;
mod draft;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const WIRE: &str = "anthropic";

/// The format, configured for one server and model.
pub struct Anthropic {
    pub quirks: Quirks,
    /// The model's output limit in tokens, if known.
    pub most: Option<u32>,
}
