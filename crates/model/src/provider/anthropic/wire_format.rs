//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{AnthropicFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::request_body::BodyWriter;
use crate::provider::wire_format::{ReplyBuilder, WireFormat};

impl WireFormat for AnthropicFormat {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn models_path(&self) -> &'static str {
        "/v1/models?limit=1000"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn key_header(&self) -> &'static str {
        "x-api-key"
    }

    fn body(&self, request: &Request<'_>, stream: bool, body: BodyWriter<'_>) -> Vec<u8> {
        request::write_body(request, self, stream, body)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn ReplyBuilder> {
        Box::new(reply_builder::AnthropicReplyBuilder::new(
            request,
            self.reply_source(request.model),
        ))
    }
}
