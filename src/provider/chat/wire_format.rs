//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{ChatFormat, reply_builder, request};
use crate::provider::Request;
use crate::provider::http_provider::WireFormat;
use crate::provider::response;
use serde_json::{Map, Value};

impl WireFormat for ChatFormat {
    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value> {
        request::build_body(request, self, stream)
    }

    fn reply_builder(&self, request: &Request<'_>) -> Box<dyn response::ReplyBuilder> {
        Box::new(reply_builder::ChatReplyBuilder::new(
            request,
            self.quirks.reports_cost,
        ))
    }
}
