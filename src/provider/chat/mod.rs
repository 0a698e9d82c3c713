//! OpenAI chat completions, and everything that speaks like it: [`body`] for what is sent and [`draft`] for what comes
//! back. Both are pure.

use super::quirks::Quirks;

mod body;
mod draft;
mod wire_format;

/// What opaque pieces of this format are marked with.
const WIRE: &str = "chat";

/// The format, as one server and model want it.
pub struct Chat {
    pub quirks: Quirks,
    /// The most tokens that the model puts out, where it is known.
    pub most: Option<u32>,
}
