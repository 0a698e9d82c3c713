//! Anthropic messages: [`body`] for what is sent and [`draft`] for what comes back. Both are pure. The format is the one
//! of <https://docs.anthropic.com/en/api/messages>, version 2023-06-01.

use super::quirks::Quirks;

mod body;
mod draft;
mod wire_format;

/// What opaque pieces of this format are marked with.
const WIRE: &str = "anthropic";

/// The format, as one server and model want it.
pub struct Anthropic {
    pub quirks: Quirks,
    /// The most tokens that the model puts out, where it is known.
    pub most: Option<u32>,
}
