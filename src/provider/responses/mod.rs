//! OpenAI responses: [`body`] for what is sent and [`draft`] for what comes back. Both are pure. Nothing is stored at the
//! server: reasoning comes back encrypted, is kept with the reply, and is sent again. The format is the one of
//! <https://platform.openai.com/docs/api-reference/responses>.

use super::Request;
use super::quirks::Quirks;
use super::reading;
use super::wire::Dialect;
use serde_json::{Map, Value};

mod body;
mod draft;

/// What opaque pieces of this format are marked with.
const WIRE: &str = "responses";

/// The format, as one server and model want it.
pub struct Responses {
    pub quirks: Quirks,
    /// The most tokens that the model puts out, where it is known.
    pub most: Option<u32>,
    /// The model reasons: only then its encrypted reasoning may be asked for.
    pub reasons: bool,
}

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
