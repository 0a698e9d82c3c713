//! The resources of the server: the memory and the sessions, to be read.

use super::served_client::ServedClient;
use crate::ops::session_library::StoredSessions;
use nanobot_base::json_rpc::ErrorObject;
use nanobot_base::message::Origin;
use nanobot_os::durable_file;
use nanobot_os::secret::redact_all;
use nanobot_store::session::{self, REWOUND_PREFIX};
use nanobot_tool::sessions::SessionLibrary;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// The protocol's error code for a resource that does not exist.
const RESOURCE_NOT_FOUND: i64 = -32002;
/// Maximum number of sessions in a list.
const MAX_SESSIONS: usize = 100;
/// Beginning of the address of a session.
const SESSION_PREFIX: &str = "nanobot://session/";
/// Beginning of the address of a file of the memory.
const MEMORY_PREFIX: &str = "nanobot://memory/";
const MEMORY_FILES: [(&str, &str); 2] =
    [("MEMORY.md", "lasting facts"), ("HISTORY.md", "what happened, by date")];

/// The memory's files that exist, and the newest sessions.
///
/// # Errors
/// The sessions cannot be read.
pub(super) fn list(client: &ServedClient<'_>) -> Result<Vec<Value>, ErrorObject> {
    let files = MEMORY_FILES.iter().filter(|(name, _)| memory_path(client, name).is_file());
    let files = files.map(|(name, description)| {
        json!({
            "uri": format!("{MEMORY_PREFIX}{name}"), "name": name, "description": description, "mimeType": "text/markdown",
        })
    });
    let store = open_store(client)?;
    let sessions = session::list(&store).map_err(|error| failure(&error))?.sessions;
    let sessions = sessions.iter().filter(|summary| !summary.key.starts_with(REWOUND_PREFIX));
    let sessions = sessions.take(MAX_SESSIONS).map(|summary| {
        let title = summary.title.as_ref().unwrap_or(&summary.first_words);
        json!({
            "uri": format!("{SESSION_PREFIX}{}", encode(&summary.key)), "name": summary.key,
            "description": redact_all(title), "mimeType": "text/plain",
        })
    });
    Ok(files.chain(sessions).collect())
}

/// The form of the addresses of sessions.
pub(super) fn templates() -> Value {
    json!([{
        "uriTemplate": format!("{SESSION_PREFIX}{{key}}"), "name": "session", "description": "the messages of a conversation",
        "mimeType": "text/plain",
    }])
}

/// Reads the resource that `params` name.
///
/// # Errors
/// There is no such resource, or it cannot be read.
pub(super) fn read(
    client: &ServedClient<'_>,
    params: &Map<String, Value>,
) -> Result<Value, ErrorObject> {
    let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default();
    let missing = || not_found(format!("there is no resource `{uri}`"));
    let (media_type, text) = if let Some(name) = uri.strip_prefix(MEMORY_PREFIX) {
        let mut files = MEMORY_FILES.iter();
        let (name, _) = files.find(|(file, _)| *file == name).ok_or_else(missing)?;
        let bytes =
            durable_file::read(&memory_path(client, name)).map_err(|error| failure(&error))?;
        let bytes = bytes.ok_or_else(missing)?;
        ("text/markdown", String::from_utf8_lossy(&bytes).into_owned())
    } else {
        let key = uri.strip_prefix(SESSION_PREFIX).and_then(decode).ok_or_else(missing)?;
        let library = StoredSessions::new(open_store(client)?, "");
        let session_text = library
            .read(&key, Some(1), usize::MAX)
            .map_err(|cause| not_found(format!("`{uri}`: {cause}")))?;
        let provenance = &client.setup.shared.provenance;
        provenance.raise(session_text.origin, "another conversation");
        ("text/plain", session_text.text)
    };
    let text = redact_all(&text);
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": media_type, "text": text }] }))
}

/// The origin of the session `key`.
///
/// # Errors
/// The session cannot be read.
pub(super) fn origin_of_session(
    client: &ServedClient<'_>,
    key: &str,
) -> Result<Origin, ErrorObject> {
    StoredSessions::new(open_store(client)?, "").origin_of(key).map_err(|error| failure(&error))
}

fn memory_path(client: &ServedClient<'_>, name: &str) -> PathBuf {
    let workspace = &client.setup.policy.file_scope.workspace;
    workspace.join("memory").join(name)
}

fn open_store(client: &ServedClient<'_>) -> Result<session::SessionStore, ErrorObject> {
    let settings = client.ctx.settings().map_err(|error| failure(&error))?;
    client.ctx.session_store(&settings).map_err(|error| failure(&error))
}

/// Percent-encodes the characters that an address cannot contain.
fn encode(key: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(byte);
    let parts = key.bytes().map(|byte| {
        if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    parts.collect()
}

/// Decodes the result of [`encode`]; `None` for other text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok().filter(|key| !key.is_empty())
}

fn failure(error: &anyhow::Error) -> ErrorObject {
    ErrorObject::failure(format!("{error:#}"))
}

fn not_found(message: String) -> ErrorObject {
    ErrorObject { code: RESOURCE_NOT_FOUND, message }
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn keys_come_back() {
        for key in ["cli:direct", "a b/ü", "100%"] {
            assert_eq!(decode(&encode(key)).as_deref(), Some(key));
        }
        assert_eq!(encode("a b"), "a%20b");
        for text in ["", "%", "%4", "%zz", "%ff"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
