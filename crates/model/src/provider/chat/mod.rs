//! The OpenAI chat completions format, used by all compatible servers: [`request`] builds requests, [`reply_builder`]
//! reads responses, [`reasoning`] says where reasoning belongs. None of them does I/O.

use super::Request;
use super::quirks::Quirks;
use super::reply_source::ReplySource;
use super::request_body::BodyWriter;
use super::wire_format::{ReplyBuilder, WireFormat};

mod reasoning;
mod reply_builder;
mod request;

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

impl WireFormat for ChatFormat {
    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn body(&self, request: &Request<'_>, stream: bool, body: BodyWriter<'_>) -> Vec<u8> {
        request::write_body(request, self, stream, body)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn ReplyBuilder> {
        Box::new(reply_builder::ChatReplyBuilder::new(request, self))
    }
}
