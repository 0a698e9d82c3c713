//! OpenAI responses: [`body`] for what is sent and [`draft`] for what comes back. Both are pure. Nothing is stored at the
//! server: reasoning comes back encrypted, is kept with the reply, and is sent again. The format is the one of
//! <https://platform.openai.com/docs/api-reference/responses>.

use super::quirks::Quirks;

mod body;
mod draft;
mod wire_format;

/// What opaque pieces of this format are marked with.
const WIRE: &str = "responses";

/// The format, as one server and model want it.
pub struct Responses {
    pub quirks: Quirks,
    /// The most tokens that the model puts out, where it is known.
    pub most: Option<u32>,
    /// The model reasons: only then its encrypted reasoning may be asked for.
    pub reasons: bool,
}
