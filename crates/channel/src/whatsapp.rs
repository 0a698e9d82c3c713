//! WhatsApp, through the Cloud API (<https://developers.facebook.com/docs/whatsapp/cloud-api>).
//!
//! Messages come by webhooks only, which `serve webhook` takes: they are signed with the app's secret. Answers are free
//! text, which a user gets within a day after the last message. A user may hide the phone number; then the service's own id of the user
//! replaces it (Cloud API, "Business-scoped user IDs").

use super::service_client::{ServiceClient, ServiceRequest};
use super::setup::ChannelSetup;
use super::upload::UploadFile;
use super::whatsapp_bridge;
use super::{
    AttachmentKind, Channel, ChannelError, ChannelResult, Chat, Destination, Identity,
    InboundMessage, Part, QuotedText, RateLimit, RemoteFile, Sender, WebhookReceipt, location_text,
};
use anyhow::Result;
use nanobot_base::json_text::items;
use nanobot_base::message::user_text::UserText;
use nanobot_net::web_url::percent_encode;
use nanobot_net::webhook_request::{WebhookRequest, WebhookResponse, is_same_secret, is_signed};
use nanobot_os::secret::Secret;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Hosts of media, to which the token is sent.
const FILE_HOSTS: &[&str] = &["fbsbx.com"];
/// Largest upload: documents may have 100 MB.
const MAX_UPLOAD_BYTES: u64 = 50_000_000;
/// Longest challenge that the service sends when a webhook is set up.
const MAX_CHALLENGE_CHARS: usize = 200;
/// The wait after a rate limit. The service names none.
const RATE_LIMIT_DELAY: Duration = Duration::from_secs(120);

struct WhatsApp {
    client: ServiceClient,
    phone_number: String,
    app_secret: Secret,
    verify_token: Option<Secret>,
}

/// Creates the channel. Without a phone number of the Cloud API, it is the channel of the bridge.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub(super) fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    let config = &setup.config;
    if config.text("phoneNumberId").is_none() {
        return whatsapp_bridge::open(setup);
    }
    let phone_number = config.required_text("phoneNumberId", "ID")?;
    let token = config.required_secret("accessToken")?;
    let app_secret = config.required_secret("appSecret")?.clone();
    let client = ServiceClient::new(setup, "apiBase", "accessToken")?;
    Ok(Box::new(WhatsApp {
        client: client.with_bearer(token).with_hosts(FILE_HOSTS),
        phone_number,
        app_secret,
        verify_token: config.secret("verifyToken")?.cloned(),
    }))
}

impl Channel for WhatsApp {
    fn receive(&self, request: &WebhookRequest) -> Result<WebhookReceipt> {
        if request.method == "GET" {
            return Ok(WebhookReceipt::without_messages(self.verify(request)));
        }
        let signature = request.header("x-hub-signature-256").unwrap_or_default();
        let signature = signature.strip_prefix("sha256=").unwrap_or_default();
        if !is_signed(self.app_secret.expose(), &request.body, signature) {
            return Ok(WebhookReceipt::empty(401));
        }
        let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
            return Ok(WebhookReceipt::empty(400));
        };
        let messages = to_messages(&body, &self.phone_number);
        Ok(WebhookReceipt { messages, ..WebhookReceipt::empty(200) })
    }

    fn send(&self, destination: &Destination, part: &Part, _key: &str) -> ChannelResult<String> {
        let mut body = json!({ "messaging_product": "whatsapp", "recipient_type": "individual" });
        let recipient = &destination.chat.id;
        body[recipient_key(recipient)] = recipient.as_str().into();
        match &part.file {
            Some(path) => {
                let (kind, media) = self.upload(path)?;
                body["type"] = kind.into();
                body[kind] = media;
            }
            None => {
                body["type"] = "text".into();
                body["text"] = json!({ "preview_url": false, "body": part.markup });
            }
        }
        let request = self.path("messages");
        let response = self.exchange(&ServiceRequest::post(&request).json(&body).once())?;
        self.client.text_of(&response["messages"][0]["id"])
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let path = format!("/{}", percent_encode(&file.id));
        let media = self.exchange(&ServiceRequest::get(&path))?;
        let url = media["url"].as_str().unwrap_or_default();
        self.client.download_own("WhatsApp", url, writer, limit_bytes)
    }

    /// Shows the typing indicator, which also marks the message as read.
    fn show_typing(&self, destination: &Destination) {
        if let Some(id) = destination.reply_facts["message_id"].as_str() {
            let body = json!({ "messaging_product": "whatsapp", "status": "read", "message_id": id,
                "typing_indicator": { "type": "text" } });
            self.client.notify(&self.path("messages"), &body);
        }
    }

    fn identity(&self) -> Result<Identity> {
        let path = format!("/{}?fields=display_phone_number", percent_encode(&self.phone_number));
        let number = self.exchange(&ServiceRequest::get(&path))?;
        let name = number["display_phone_number"].as_str();
        Ok(Identity { id: self.phone_number.clone(), name: name.unwrap_or_default().to_owned() })
    }
}

impl WhatsApp {
    /// The path of a collection of our number.
    fn path(&self, name: &str) -> String {
        format!("/{}/{name}", percent_encode(&self.phone_number))
    }

    /// The response to the request that sets up a webhook.
    fn verify(&self, request: &WebhookRequest) -> WebhookResponse {
        let parameter = |name| request.parameter(name).unwrap_or_default();
        let token = parameter("hub.verify_token");
        let challenge = parameter("hub.challenge");
        let has_token = |expected: &Secret| is_same_secret(expected.expose(), token);
        let is_verified = self.verify_token.as_ref().is_some_and(has_token);
        let is_plain = challenge.len() <= MAX_CHALLENGE_CHARS
            && challenge.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_verified && is_plain && parameter("hub.mode") == "subscribe" {
            WebhookResponse { status: 200, body: challenge.to_owned() }
        } else {
            WebhookResponse::empty(401)
        }
    }

    /// Sends a request, and returns the JSON of its response.
    fn exchange(&self, request: &ServiceRequest<'_>) -> ChannelResult<Value> {
        let response = self.client.request(request)?;
        if response.is_success() {
            return self.client.read_success(&response);
        }
        let cause = response.describe();
        // Cloud API, "Error codes".
        Err(match response.json()["error"]["code"].as_u64() {
            // Too many: calls of the app, calls of the account, messages of the number, messages reported as spam, messages
            // to this user.
            Some(4 | 80_007 | 130_429 | 131_048 | 131_056) => {
                ChannelError::RateLimited(RateLimit(RATE_LIMIT_DELAY), cause)
            }
            // No login, no permission, an expired token.
            Some(0 | 10 | 190) => self.client.token_rejected(&cause),
            // The user is unreachable, not on the list of a test number, silent for a day, or has opted out.
            Some(131_026 | 131_030 | 131_047 | 131_050) => ChannelError::RecipientRefused(cause),
            _ => ChannelError::Undeliverable(cause),
        })
    }

    /// Uploads a file; returns the type and the content of its message.
    fn upload(&self, path: &Path) -> ChannelResult<(&'static str, Value)> {
        let file = UploadFile::read(path, MAX_UPLOAD_BYTES)?;
        let (kind, media_type) = file.media_type();
        let fields = [("messaging_product", "whatsapp"), ("type", media_type)];
        let (form_type, form) = file.to_form(&fields, "file");
        let path = self.path("media");
        let response = self.exchange(&ServiceRequest::post(&path).body(&form_type, form))?;
        let id = self.client.text_of(&response["id"])?;
        Ok(match kind {
            AttachmentKind::Image if media_type != "image/gif" => ("image", json!({ "id": id })),
            AttachmentKind::Voice | AttachmentKind::Audio => ("audio", json!({ "id": id })),
            AttachmentKind::Video => ("video", json!({ "id": id })),
            AttachmentKind::Image | AttachmentKind::File => {
                ("document", json!({ "id": id, "filename": file.name }))
            }
        })
    }
}

/// The key of a recipient: a phone number, or the service's id of a user, such as `US.13491208655302741918`.
fn recipient_key(recipient: &str) -> &'static str {
    if recipient.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        "recipient"
    } else {
        "to"
    }
}

/// The messages to our number in the body of a webhook.
fn to_messages(body: &Value, phone_number: &str) -> Vec<InboundMessage> {
    let changes = items(&body["entry"]).flat_map(|entry| items(&entry["changes"]));
    let values = changes.map(|change| &change["value"]);
    let own_values = values.filter(|value| value["metadata"]["phone_number_id"] == phone_number);
    own_values.flat_map(|value| items(&value["messages"])).filter_map(to_message).collect()
}

/// Maximum characters of a location or of contacts.
const MAX_SHARED_CHARS: usize = 4000;
/// Kinds of content that cannot be represented.
const UNREADABLE_KINDS: [&str; 3] = ["order", "sticker", "unsupported"];

/// The name of a location, or contacts: text that the sender has not typed.
fn shared_text(kind: &str, content: &Value) -> Option<QuotedText> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines: Vec<String> = match kind {
        "location" => vec![text(&content["name"]), text(&content["address"])],
        "contacts" => {
            let line = |contact: &Value| {
                let phones = items(&contact["phones"]);
                let phones = phones.map(|phone| format!(", {}", text(&phone["phone"])));
                text(&contact["name"]["formatted_name"]) + &phones.collect::<String>()
            };
            items(content).map(line).collect()
        }
        _ => return None,
    };
    let lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then(|| QuotedText::cut(kind, &lines.join("\n"), MAX_SHARED_CHARS))
}

fn to_message(message: &Value) -> Option<InboundMessage> {
    let (id, number) = (message["id"].as_str()?, message["from"].as_str());
    let number = number.filter(|number| !number.is_empty());
    let sender = number.or(message["from_user_id"].as_str())?;
    let kind = message["type"].as_str()?;
    let content = &message[kind];
    let is_forward = message["context"]["forwarded"] == true
        || message["context"]["frequently_forwarded"] == true;
    let typed = match kind {
        "text" => content["body"].as_str(),
        _ => content["caption"].as_str(),
    };
    // The sender has chosen one of our texts.
    let chosen = if kind == "button" { content["text"].as_str() } else { None };
    let chosen = chosen.or(content["button_reply"]["title"].as_str());
    let chosen = chosen.or(content["list_reply"]["title"].as_str()).map(str::to_owned);
    let written = match typed {
        Some(typed) => UserText::typed(typed),
        None => UserText::label(chosen.or_else(|| location_text(content)).unwrap_or_default()),
    };
    let file = to_file(kind, content, is_forward);
    let mut quotes = if is_forward && !written.is_empty() {
        vec![QuotedText::cut("forwarded message", &written, written.len())]
    } else {
        Vec::new()
    };
    quotes.extend(shared_text(kind, content));
    let text = if is_forward { UserText::default() } else { written };
    let is_empty = text.is_empty() && quotes.is_empty() && file.is_none();
    let is_unreadable = is_empty && UNREADABLE_KINDS.contains(&kind);
    if is_empty && !is_unreadable {
        return None;
    }
    // The service gives only the id of the message.
    let replied = message["context"]["id"].as_str();
    quotes.extend(replied.map(|id| QuotedText::replied("", 0, Some(id), false)));
    let sent_at = message["timestamp"].as_str().unwrap_or_default();
    Some(InboundMessage {
        id: id.to_owned(),
        chat: Chat::new(sender, None, true),
        from: Sender::new(sender, None, false),
        text,
        quotes,
        mentions_us: true,
        files: file.into_iter().collect(),
        is_unreadable,
        sent_at: sent_at.parse().unwrap_or_default(),
        reply_facts: json!({ "message_id": id }),
        ..InboundMessage::default()
    })
}

fn to_file(kind: &str, content: &Value, is_forward: bool) -> Option<RemoteFile> {
    let kind = match kind {
        "image" | "sticker" => AttachmentKind::Image,
        "audio" if content["voice"] == true && !is_forward => AttachmentKind::Voice,
        "audio" => AttachmentKind::Audio,
        "video" => AttachmentKind::Video,
        "document" => AttachmentKind::File,
        _ => return None,
    };
    let name = content["filename"].as_str().map(str::to_owned);
    let media_type = content["mime_type"].as_str().unwrap_or_default();
    let extension = media_type.split(['/', ';']).nth(1).unwrap_or_default();
    Some(RemoteFile {
        id: content["id"].as_str()?.to_owned(),
        name: name.unwrap_or_else(|| format!("file.{extension}")),
        kind,
        ..RemoteFile::default()
    })
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub(super) fn decode(value: &Value) -> Option<InboundMessage> {
    to_message(value)
}

#[cfg(test)]
mod tests {
    use super::to_message;
    use serde_json::{Value, json};

    #[test]
    fn what_a_user_sends_is_read_or_said() {
        // The text, the quotes, the number of files, and if it cannot be read.
        let check = |members: Value, expect: Option<(&str, &[&str], usize, bool)>| {
            let mut message = members;
            (message["id"], message["from"]) = (json!("m1"), json!("491"));
            let actual = to_message(&message);
            let actual = actual.as_ref().map(|message| {
                let quotes: Vec<&str> =
                    message.quotes.iter().map(|quote| quote.text.as_str()).collect();
                (message.text.as_str(), quotes, message.files.len(), message.is_unreadable)
            });
            let expect = expect.map(|(text, quotes, files, unreadable)| {
                (text, quotes.to_vec(), files, unreadable)
            });
            assert_eq!(actual, expect);
        };
        let text = json!({ "body": "hi" });
        check(json!({ "type": "text", "text": text }), Some(("hi", &[], 0, false)));
        // Of the message that is replied to, only the id is known.
        let reply = json!({ "type": "text", "text": text, "context": { "id": "m0" } });
        check(reply.clone(), Some(("hi", &[""], 0, false)));
        let mut reply = reply;
        (reply["id"], reply["from"]) = (json!("m1"), json!("491"));
        let replied = to_message(&reply).unwrap().quotes.remove(0).replied.unwrap();
        assert_eq!((replied.id.as_deref(), replied.is_ours), (Some("m0"), false));
        check(
            json!({ "type": "text", "text": text, "context": { "forwarded": true } }),
            Some(("", &["hi"], 0, false)),
        );
        let place =
            json!({ "latitude": 1.5, "longitude": 2.0, "name": "Mill", "address": "Lane 1" });
        check(
            json!({ "type": "location", "location": place }),
            Some(("[location: latitude 1.5, longitude 2]", &["Mill\nLane 1"], 0, false)),
        );
        let contacts = json!([{ "name": { "formatted_name": "Bob" }, "phones": [{ "phone": "+49 1" }] },
            { "name": { "formatted_name": "Eve" } }]);
        check(
            json!({ "type": "contacts", "contacts": contacts }),
            Some(("", &["Bob, +49 1\nEve"], 0, false)),
        );
        let button = json!({ "button_reply": { "title": "Yes" } });
        check(
            json!({ "type": "interactive", "interactive": button }),
            Some(("Yes", &[], 0, false)),
        );
        check(json!({ "type": "sticker", "sticker": { "id": "s" } }), Some(("", &[], 1, false)));
        check(json!({ "type": "sticker", "sticker": {} }), Some(("", &[], 0, true)));
        check(json!({ "type": "order", "order": {} }), Some(("", &[], 0, true)));
        check(json!({ "type": "unsupported", "errors": [] }), Some(("", &[], 0, true)));
        check(json!({ "type": "reaction", "reaction": { "emoji": "x" } }), None);
    }
}
