//! An outbound webhook: each part is posted as JSON to one address. It receives nothing.

use super::service_client::{ServiceClient, ServiceRequest};
use super::setup::ChannelSetup;
use super::{Channel, ChannelError, ChannelResult, Destination, Identity, Part};
use anyhow::Result;
use nanobot_net::web_url::origin;
use nanobot_os::secret::{Secret, register};
use serde_json::json;

struct Webhook {
    client: ServiceClient,
    /// The host, for messages: a program that knows the address can post there.
    name: String,
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if the address is missing or unusable.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let url = setup.config.required_secret("url")?.expose().trim();
    // Errors of connections name the address.
    let path = url.strip_prefix(&*origin(url)).unwrap_or(url);
    register(&Secret::new(path));
    register(&Secret::new(path.split('?').next().unwrap_or_default()));
    let mut client = ServiceClient::at(setup, url, "url", "secret")?.with_secret_address();
    if let Some(secret) = setup.config.secret("secret")? {
        client = client.with_bearer(secret);
    }
    let name = origin(url);
    Ok(Box::new(Webhook { client, name }))
}

impl Channel for Webhook {
    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        if part.file.is_some() {
            return Err(ChannelError::Undeliverable("a webhook does not accept files".into()));
        }
        let body = json!({ "v": 1, "id": key, "to": destination.chat.id, "text": part.markup });
        // A receiver recognises a repeated part by this key.
        let request = ServiceRequest::post("").json(&body).header("idempotency-key", key);
        let response = self.client.request(&request)?;
        match response.status {
            200..300 => Ok(key.to_owned()),
            403 => Err(ChannelError::TokenRejected(response.describe())),
            _ => Err(ChannelError::Undeliverable(response.describe())),
        }
    }

    /// The host as the identity. Nothing is sent there.
    fn identity(&self) -> Result<Identity> {
        Ok(Identity { id: self.name.clone(), name: self.name.clone() })
    }
}
