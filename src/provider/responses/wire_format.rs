//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{ResponsesFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::http_provider::WireFormat;
use crate::provider::response;
use serde_json::{Map, Value};

impl WireFormat for ResponsesFormat {
    fn path(&self) -> &'static str {
        "/responses"
    }

    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value> {
        request::build_body(request, self, stream)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn response::ReplyBuilder> {
        Box::new(reply_builder::ResponsesReplyBuilder::new(request))
    }
}
