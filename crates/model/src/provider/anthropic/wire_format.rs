//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{AnthropicFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::reply_draft::ReplyDraft;
use crate::provider::request_body::BodyWriter;
use crate::provider::wire_format::{ReplyBuilder, WireFormat};

impl WireFormat for AnthropicFormat {
    fn path(&self) -> &str {
        if self.is_at_vertex() { &self.vertex_path } else { "/v1/messages" }
    }

    fn models_path(&self) -> &'static str {
        "/v1/models?limit=1000"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        if self.is_at_vertex() { &[] } else { &[("anthropic-version", "2023-06-01")] }
    }

    fn key_header(&self) -> &'static str {
        if self.is_at_vertex() { "authorization" } else { "x-api-key" }
    }

    fn body(&self, request: &Request<'_>, stream: bool, body: BodyWriter<'_>) -> Vec<u8> {
        request::write_body(request, self, stream, body)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn ReplyBuilder> {
        let draft = ReplyDraft::new(request, self.reply_source(request.model));
        Box::new(reply_builder::AnthropicReplyBuilder::new(draft))
    }
}
