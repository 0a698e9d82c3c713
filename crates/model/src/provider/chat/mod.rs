//! The OpenAI chat completions format, used by all compatible servers: [`request`] builds requests, [`reply_builder`]
//! reads responses, [`reasoning`] says where reasoning belongs. None of them does I/O.

use super::quirks::Quirks;
use super::reply_source::ReplySource;

mod reasoning;
mod reply_builder;
mod request;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const FORMAT_NAME: &str = "chat";

/// The format, configured for one server and model.
pub struct ChatFormat {
    pub quirks: Quirks,
    /// The base URL, without secrets: opaque data of a reply goes back to its own server only.
    pub server: String,
    /// The model's output limit in tokens, if known.
    pub max_output_tokens: Option<u32>,
}

impl ChatFormat {
    /// The source of the replies of `model`.
    fn reply_source(&self, model: &str) -> ReplySource {
        ReplySource { format: FORMAT_NAME, server: self.server.clone(), model: model.to_owned() }
    }
}
