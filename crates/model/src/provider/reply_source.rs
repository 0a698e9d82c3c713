//! The source of a reply. Data that a provider wants back unchanged (signatures, structured reasoning) goes only to the
//! server and the model that it came from: others cannot read it, and strict ones refuse fields that they do not know.

use nanobot_base::message::Reply;
use serde_json::{Value, json};

/// The source of a reply, or the target of a request.
pub(super) struct ReplySource {
    /// The name of the wire format.
    pub(super) wire: &'static str,
    /// The base URL, without secrets.
    pub(super) server: String,
    /// The model as requested.
    pub(super) model: String,
}

impl ReplySource {
    /// The opaque data of a reply from here: `keep`, and where it may go back to.
    pub(super) fn wrap(&self, keep: Value) -> Value {
        let Self { wire, server, model } = self;
        let mut data = json!({ "wire": wire, "server": server, "model": model });
        data["keep"] = keep;
        data
    }

    /// The content of the opaque data of `reply`, if the reply came from here.
    pub(super) fn unwrap<'a>(&self, reply: &'a Reply) -> Option<&'a Value> {
        let data = reply.provider_data.as_ref()?;
        let is_ours = data["wire"] == self.wire
            && data["server"] == self.server
            && data["model"] == self.model;
        is_ours.then(|| &data["keep"])
    }
}
