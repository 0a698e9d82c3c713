//! OpenAI chat completions, and everything that speaks like it: [`body`] for what is sent and [`draft`] for what comes
//! back. Both are pure.

use super::Request;
use super::quirks::Quirks;
use super::reading;
use super::wire::Dialect;
use serde_json::{Map, Value};

mod body;
mod draft;

/// What opaque pieces of this format are marked with.
const WIRE: &str = "chat";

/// The format, as one server and model want it.
pub struct Chat {
    pub quirks: Quirks,
    /// The most tokens that the model puts out, where it is known.
    pub most: Option<u32>,
}

impl Dialect for Chat {
    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn body(&self, request: &Request<'_>, stream: bool) -> Map<String, Value> {
        body::of(request, self, stream)
    }

    fn draft(&self, request: &Request<'_>) -> Box<dyn reading::Draft> {
        Box::new(draft::Draft::new(request, self.quirks.tells_cost))
    }
}
