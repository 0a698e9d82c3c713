//! Implements [`WireFormat`]: paths, headers, the request and the reply.

use super::{Responses, body, draft};
use crate::provider::Request;
use crate::provider::reading;
use crate::provider::wire::Dialect;
use serde_json::{Map, Value};

impl Dialect for Responses {
    fn path(&self) -> &'static str {
        "/responses"
    }

    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value> {
        body::of(request, self, stream)
    }

    fn draft(&self, request: &Request<'_>) -> Box<dyn reading::Draft> {
        Box::new(draft::Draft::new(request))
    }
}
