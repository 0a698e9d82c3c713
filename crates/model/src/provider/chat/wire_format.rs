//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{ChatFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::request_body::BodyWriter;
use crate::provider::wire_format::{ReplyBuilder, WireFormat};

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
