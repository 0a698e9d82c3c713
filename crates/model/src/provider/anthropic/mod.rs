//! The Anthropic messages format: [`request`] builds requests, [`reply_builder`] reads responses. Neither does I/O. Source:
//! <https://docs.anthropic.com/en/api/messages>, version 2023-06-01.

use super::quirks::Quirks;
use super::reply_source::ReplySource;
use nanobot_net::web_url;

mod reply_builder;
mod request;
mod wire_format;

/// Identifies this format in a reply's opaque data.
const FORMAT_NAME: &str = "anthropic";

/// The format, configured for one server and model.
pub struct AnthropicFormat {
    pub quirks: Quirks,
    /// The base URL, without secrets: opaque data of a reply goes back to its own server only.
    pub server: String,
    /// The model's output limit in tokens, if known.
    pub max_output_tokens: Option<u32>,
    /// The path of the endpoint; empty for the vendor's own. Google's has the model in it, and no field for that.
    pub vertex_path: String,
}

impl AnthropicFormat {
    /// The path of `model` at Google's Vertex AI.
    pub fn vertex_path(model: &str, stream: bool) -> String {
        let method = if stream { "streamRawPredict" } else { "rawPredict" };
        // The sign before the version of a model is as legal in a path as it is in the name.
        let model = web_url::percent_encode(model).replace("%40", "@");
        format!("/models/{model}:{method}")
    }

    fn is_at_vertex(&self) -> bool {
        !self.vertex_path.is_empty()
    }

    /// The source of the replies of `model`.
    fn reply_source(&self, model: &str) -> ReplySource {
        ReplySource { format: FORMAT_NAME, server: self.server.clone(), model: model.to_owned() }
    }
}
