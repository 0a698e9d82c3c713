//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{Anthropic, body, draft};
use crate::provider::Request;
use crate::provider::reading;
use crate::provider::wire::Dialect;
use serde_json::{Map, Value};

impl Dialect for Anthropic {
    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn models(&self) -> &'static str {
        "/v1/models?limit=1000"
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn key_header(&self) -> &'static str {
        "x-api-key"
    }

    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value> {
        body::of(request, self, stream)
    }

    fn draft(&self, request: &Request<'_>) -> Box<dyn reading::Draft> {
        Box::new(draft::Draft::new(request))
    }
}
