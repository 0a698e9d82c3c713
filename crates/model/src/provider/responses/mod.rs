//! The OpenAI responses format: [`request`] builds requests, [`reply_builder`] reads responses. Neither does I/O. The server stores
//! nothing: reasoning is returned encrypted, stored with the reply, and sent back. Source:
//! <https://platform.openai.com/docs/api-reference/responses>.

use super::quirks::Quirks;
use super::reply_source::ReplySource;

mod reply_builder;
mod request;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const FORMAT_NAME: &str = "responses";
/// The key of a message in a reply's opaque data that holds the length of its text, in bytes of UTF-8. A request takes the text
/// of each message from the text of the reply, which is thus stored once.
const TEXT_BYTES_KEY: &str = "length";

/// The format, configured for one server and model.
pub struct ResponsesFormat {
    pub quirks: Quirks,
    /// The base URL, without secrets: opaque data of a reply goes back to its own server only.
    pub server: String,
    /// The model's output limit in tokens, if known.
    pub max_output_tokens: Option<u32>,
    /// True if the model reasons. Encrypted reasoning may be requested only then.
    pub is_reasoning_model: bool,
}

impl ResponsesFormat {
    /// The source of the replies of `model`.
    fn reply_source(&self, model: &str) -> ReplySource {
        ReplySource { format: FORMAT_NAME, server: self.server.clone(), model: model.to_owned() }
    }
}
