//! Anthropic messages: [`body`] for what is sent and [`draft`] for what comes back. Both are pure. The format is the one
//! of <https://docs.anthropic.com/en/api/messages>, version 2023-06-01.

use super::Request;
use super::quirks::Quirks;
use super::reading;
use super::wire::Dialect;
use serde_json::{Map, Value};

mod body;
mod draft;

/// What opaque pieces of this format are marked with.
const WIRE: &str = "anthropic";

/// The format, as one server and model want it.
pub struct Anthropic {
    pub quirks: Quirks,
    /// The most tokens that the model puts out, where it is known.
    pub most: Option<u32>,
}

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
