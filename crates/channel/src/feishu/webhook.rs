//! Requests with events, which Feishu sends to an address of ours if the app has no long connection. They are encrypted and signed
//! with the app's `encryptKey`, or carry its `verificationToken` (<https://open.feishu.cn/document/server-docs/event-subscription-guide>).

use crate::encrypted_file::decrypt_cbc;
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nanobot_base::error::{Exit, fail};
use nanobot_net::content_digest::sha256_hex;
use nanobot_net::webhook_request::{WebhookRequest, WebhookResponse, is_same_secret};
use nanobot_os::secret::Secret;
use ring::digest::SHA256;
use serde_json::{Value, json};

/// The age after which a request is rejected as a repeated one. The service signs each attempt anew.
const MAX_REQUEST_AGE_SECS: i64 = 600;
/// Bytes of the initialization vector, with which the encrypted content begins.
const INITIALIZATION_VECTOR_BYTES: usize = 16;

/// The secrets by which requests are verified.
pub(super) struct WebhookSecrets {
    pub(super) encrypt_key: Option<Secret>,
    pub(super) verification_token: Option<Secret>,
}

/// The content of a request.
#[derive(Debug, PartialEq)]
pub(super) enum WebhookContent {
    /// An event, as a long connection would have brought it.
    Event(Value),
    /// The response to a request without an event.
    Response(WebhookResponse),
}

impl WebhookSecrets {
    /// Checks a request at the time `now`, in seconds since 1970, and reads it.
    ///
    /// # Errors
    /// Status 78 if no secret is set.
    pub(super) fn read(&self, request: &WebhookRequest, now: i64) -> Result<WebhookContent> {
        if self.encrypt_key.is_none() && self.verification_token.is_none() {
            let cause = "neither `channels.feishu.encryptKey` nor `channels.feishu.verificationToken` is set";
            return Err(fail(Exit::Config, cause));
        }
        let refused = || Ok(WebhookContent::Response(WebhookResponse::empty(401)));
        let received: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let body = match &self.encrypt_key {
            Some(key) => {
                let content = decrypt(key.expose(), &received);
                content.and_then(|content| serde_json::from_slice(&content).ok())
            }
            None => Some(received),
        };
        let Some(body) = body else {
            return refused();
        };
        let token = body["header"]["token"].as_str().or(body["token"].as_str());
        let has_token =
            |expected: &Secret| is_same_secret(expected.expose(), token.unwrap_or_default());
        if !self.verification_token.as_ref().is_none_or(has_token) {
            return refused();
        }
        if body["type"] == "url_verification" {
            // Its proof is the encryption or the token: the service does not sign this request.
            let body = json!({ "challenge": body["challenge"] }).to_string();
            let response = WebhookResponse { status: 200, body };
            return Ok(WebhookContent::Response(response));
        }
        let is_signed = |key: &Secret| is_signed(key.expose(), request, now);
        if self.encrypt_key.as_ref().is_none_or(is_signed) {
            Ok(WebhookContent::Event(body))
        } else {
            refused()
        }
    }
}

/// True if the signature is that of the time, the nonce, the key and the body, and the time is not long ago.
fn is_signed(key: &str, request: &WebhookRequest, now: i64) -> bool {
    let header = |name: &str| request.header(name).unwrap_or_default();
    let (sent_at, nonce) = (header("x-lark-request-timestamp"), header("x-lark-request-nonce"));
    let parts = [sent_at.as_bytes(), nonce.as_bytes(), key.as_bytes(), &request.body];
    let digits = sha256_hex(&parts.concat());
    let is_recent = sent_at
        .parse::<i64>()
        .is_ok_and(|sent_at| now.abs_diff(sent_at) <= MAX_REQUEST_AGE_SECS.unsigned_abs());
    is_same_secret(&digits, header("x-lark-signature")) && is_recent
}

/// The content of an encrypted body. `None` if it is not encrypted with `key`.
fn decrypt(key: &str, body: &Value) -> Option<Vec<u8>> {
    let mut content = STANDARD.decode(body["encrypt"].as_str()?).ok()?;
    let vector: Vec<u8> = content.drain(..INITIALIZATION_VECTOR_BYTES.min(content.len())).collect();
    let key = ring::digest::digest(&SHA256, key.as_bytes());
    decrypt_cbc(key.as_ref(), &vector, &mut content)?;
    Some(content)
}

#[cfg(test)]
mod tests {
    use super::decrypt;
    use serde_json::json;

    /// The example of the service's documentation .
    #[test]
    fn bodies_are_decrypted() {
        let example = json!({ "encrypt": "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=" });
        assert_eq!(decrypt("test key", &example).unwrap(), b"hello world");
        assert_eq!(decrypt("other key", &example), None);
        for given in [
            json!({}),
            json!({ "encrypt": "" }),
            json!({ "encrypt": "AAAA" }),
            json!({ "encrypt": "!" }),
        ] {
            assert_eq!(decrypt("test key", &given), None, "{given}");
        }
    }
}
