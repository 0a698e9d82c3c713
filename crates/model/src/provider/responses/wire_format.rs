//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{ResponsesFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::reply_draft::ReplyDraft;
use crate::provider::request_body::BodyWriter;
use crate::provider::wire_format::{ReplyBuilder, WireFormat};

impl WireFormat for ResponsesFormat {
    fn path(&self) -> &'static str {
        "/responses"
    }

    fn body(&self, request: &Request<'_>, stream: bool, body: BodyWriter<'_>) -> Vec<u8> {
        request::write_body(request, self, stream, body)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn ReplyBuilder> {
        let draft = ReplyDraft::new(request, self.reply_source(request.model));
        Box::new(reply_builder::ResponsesReplyBuilder::new(draft))
    }
}
