//! The source of a reply. Data that a provider wants back unchanged (signatures, structured reasoning) goes only to the
//! server and the model that it came from: others cannot read it, and strict ones refuse fields that they do not know.

use nanobot_base::message::Reply;
use serde_json::{Value, json};

/// The source of a reply, or the target of a request.
#[derive(Default)]
pub(super) struct ReplySource {
    /// The name of the wire format.
    pub(super) format: &'static str,
    /// The base URL, without secrets.
    pub(super) server: String,
    /// The model as requested.
    pub(super) model: String,
}

impl ReplySource {
    /// The provider data of a reply from this source: `opaque`, and the only target that it may be sent back to.
    pub(super) fn wrap(&self, opaque: Value) -> Value {
        let mut data = json!({ "wire": self.format, "server": self.server, "model": self.model });
        data["keep"] = opaque;
        data
    }

    /// The opaque part of the provider data of `reply`, if the reply came from this source.
    pub(super) fn unwrap<'a>(&self, reply: &'a Reply) -> Option<&'a Value> {
        let data = reply.provider_data.as_ref()?;
        let is_same = data["wire"] == self.format
            && data["server"] == self.server
            && data["model"] == self.model;
        is_same.then(|| &data["keep"])
    }
}
