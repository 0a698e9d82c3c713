//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{ResponsesFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::http_provider::WireFormat;
use crate::provider::request_body::BodyWriter;
use crate::provider::response;

impl WireFormat for ResponsesFormat {
    fn path(&self) -> &'static str {
        "/responses"
    }

    fn body(&self, request: &Request<'_>, stream: bool, body: BodyWriter<'_>) -> Vec<u8> {
        request::write_body(request, self, stream, body)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn response::ReplyBuilder> {
        Box::new(reply_builder::ResponsesReplyBuilder::new(request, self.origin(request.model)))
    }
}
