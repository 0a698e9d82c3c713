//! `pairing.json`: senders that were approved by a code. The format is that of the Python program from 0.3 on; members
//! that we do not know are kept.

use crate::json_file;
use anyhow::Result;
use nanobot_os::secret::random_bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Seconds for which a code is pending.
pub(crate) const CODE_LIFETIME_SECS: i64 = 600;
/// Maximum number of pending codes of one channel: more would let unknown senders fill the file.
pub(crate) const MAX_PENDING_CODES: usize = 3;
/// Length of a code without its hyphen.
const CODE_CHARS: usize = 8;

/// The content of `pairing.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PairingFile {
    /// The ids of the approved senders, by channel.
    approved: BTreeMap<String, Vec<Value>>,
    /// The pairings that wait for approval, and expired ones, by code.
    pending: Map<String, Value>,
    #[serde(flatten)]
    unknown_members: Map<String, Value>,
}

/// A code that waits for approval.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingPairing {
    pub code: String,
    pub channel: String,
    pub sender_id: String,
    /// Seconds since 1970.
    pub expires_at: i64,
}

impl PairingFile {
    /// Reads the file; a missing one is empty.
    ///
    /// # Errors
    /// Status 78 if it is damaged: an empty one would shut out every paired sender.
    pub fn load(path: &Path) -> Result<Self> {
        json_file::load(path, "repair the file, or remove it: every sender must then pair again")
    }

    /// Reads, changes and replaces the file, while no other process changes it.
    ///
    /// # Errors
    /// As [`Self::load`], and status 74.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut Self) -> T) -> Result<T> {
        json_file::change(path, "the pairing file", Self::load, change)
    }

    /// The ids that are approved for `channel`.
    pub fn approved(&self, channel: &str) -> BTreeSet<String> {
        let ids = self.approved.get(channel).into_iter().flatten().filter_map(id_text);
        // The Python program adds the user name to some ids: `7|ann`.
        ids.map(|id| id.split('|').next().unwrap_or_default().to_owned()).collect()
    }

    /// The codes that are pending at `now`, in seconds since 1970.
    pub fn pending(&self, now: i64) -> Vec<PendingPairing> {
        let parse = |(code, entry): (&String, &Value)| {
            Some(PendingPairing {
                code: code.clone(),
                channel: entry["channel"].as_str()?.to_owned(),
                sender_id: id_text(&entry["sender_id"])?,
                expires_at: whole_seconds(&entry["expires_at"])?,
            })
        };
        let pairings = self.pending.iter().filter_map(parse);
        pairings.filter(|entry| entry.expires_at > now).collect()
    }

    /// The pending code of a sender, which is created if there is none. `None` if the channel has too many.
    pub fn code_for(&mut self, channel: &str, sender_id: &str, now: i64) -> Option<String> {
        let pending = self.pending(now);
        let of_channel = || pending.iter().filter(|entry| entry.channel == channel);
        if let Some(entry) = of_channel().find(|entry| entry.sender_id == sender_id) {
            return Some(entry.code.clone());
        }
        if of_channel().count() >= MAX_PENDING_CODES {
            return None;
        }
        let codes: BTreeSet<&str> = pending.iter().map(|entry| entry.code.as_str()).collect();
        let mut code = random_code();
        while codes.contains(code.as_str()) {
            code = random_code();
        }
        let entry = json!({
            "channel": channel,
            "sender_id": sender_id,
            "created_at": now,
            "expires_at": now + CODE_LIFETIME_SECS,
        });
        self.pending.retain(|code, _| codes.contains(code.as_str()));
        self.pending.insert(code.clone(), entry);
        Some(code)
    }

    /// Removes a sender, with the code that is pending. False if there is none.
    pub fn remove_sender(&mut self, channel: &str, sender_id: &str) -> bool {
        let is_sender = |id: &Value| {
            let id = id_text(id).unwrap_or_default();
            id.split('|').next() == Some(sender_id)
        };
        let before = self.clone();
        if let Some(ids) = self.approved.get_mut(channel) {
            ids.retain(|id| !is_sender(id));
        }
        let is_pending =
            |entry: &Value| entry["channel"] == channel && is_sender(&entry["sender_id"]);
        self.pending.retain(|_, entry| !is_pending(entry));
        *self != before
    }

    /// Approves the sender of a pending code. `None` if there is no such code.
    pub fn approve(&mut self, code: &str, now: i64) -> Option<PendingPairing> {
        let code = code.trim().to_uppercase();
        let pairing = self.pending(now).into_iter().find(|pairing| pairing.code == code)?;
        self.pending.remove(&code);
        let ids = self.approved.entry(pairing.channel.clone()).or_default();
        if !ids.iter().any(|id| id_text(id).as_ref() == Some(&pairing.sender_id)) {
            ids.push(pairing.sender_id.clone().into());
        }
        Some(pairing)
    }
}

/// An id as text; some programs write numbers.
fn id_text(id: &Value) -> Option<String> {
    match id {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A time in seconds; the Python program writes fractions.
fn whole_seconds(time: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a time in seconds fits")]
    time.as_i64().or_else(|| time.as_f64().map(|secs| secs as i64))
}

/// A random code: eight letters and digits, as `ABCD-EFGH`.
pub(crate) fn random_code() -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    // The other values of a byte would make the first letters more frequent.
    const FAIR_VALUES: usize = 256 - 256 % ALPHABET.len();
    let mut code = String::new();
    while code.len() < CODE_CHARS {
        let bytes = random_bytes(CODE_CHARS).into_iter().map(usize::from);
        let fair = bytes.filter(|byte| *byte < FAIR_VALUES);
        code.extend(fair.map(|byte| char::from(ALPHABET[byte % ALPHABET.len()])));
    }
    let (left, right) = code[..CODE_CHARS].split_at(CODE_CHARS / 2);
    format!("{left}-{right}")
}

#[cfg(test)]
mod tests {
    use super::{PairingFile, random_code};
    use nanobot_base::error::{Exit, exit_for};
    use serde_json::json;

    #[test]
    fn a_code_approves_its_sender_once_and_for_ten_minutes() {
        let mut file = PairingFile::default();
        let code = file.code_for("telegram", "7", 1000).unwrap();
        assert_eq!(file.code_for("telegram", "7", 1500).as_ref(), Some(&code), "one at a time");
        assert!(file.approve("AAAA-AAA", 1001).is_none());
        assert!(file.clone().approve(&code, 1600).is_none(), "expired");
        let approved = file.approve(&code.to_lowercase(), 1599).unwrap();
        assert_eq!((&*approved.channel, &*approved.sender_id), ("telegram", "7"));
        assert!(file.approve(&code, 1599).is_none());
        assert_eq!(file.approved("telegram").into_iter().collect::<Vec<_>>(), ["7"]);
        assert!(file.approved("matrix").is_empty());
        for sender in ["a", "b", "c"] {
            assert!(file.code_for("telegram", sender, 2000).is_some());
        }
        assert_eq!(file.code_for("telegram", "d", 2000), None, "three are open");
        assert!(file.code_for("matrix", "d", 2000).is_some());
        assert!(file.code_for("telegram", "d", 2601).is_some());
    }

    #[test]
    fn files_of_the_python_program_are_read() {
        let value = json!({
            "approved": { "telegram": ["7|ann", 8] },
            "pending": { "ABCD-EFGH": { "channel": "telegram", "sender_id": "9",
                "created_at": 1000.5, "expires_at": 1600.5 } },
            "other": 1,
        });
        let mut file = serde_json::from_value::<PairingFile>(value).unwrap();
        let ids: Vec<String> = file.approved("telegram").into_iter().collect();
        assert_eq!(ids, ["7", "8"]);
        assert!(file.approve("abcd-efgh", 1100).is_some());
        let value = serde_json::to_value(&file).unwrap();
        assert_eq!(value["other"], 1);
        assert_eq!(value["approved"]["telegram"], json!(["7|ann", 8, "9"]));
    }

    #[test]
    fn a_damaged_file_is_refused_and_keeps_its_codes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pairing.json");
        let pending = r#"{ "A-B": { "channel": "telegram", "sender_id": "9", "expires_at": 9 } }"#;
        for (approved, pending) in [("{\"telegram\":1}", pending), ("1", pending), ("{}", "1")] {
            let text = format!("{{\"approved\":{approved},\"pending\":{pending}}}");
            std::fs::write(&path, &text).unwrap();
            let error = PairingFile::change(&path, |file| file.approve("A-B", 1)).unwrap_err();
            assert_eq!(exit_for(&error), Exit::Config);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn codes_have_their_form() {
        let code = random_code();
        let (left, right) = code.split_once('-').unwrap();
        let is_part = |part: &str| {
            part.len() == 4
                && part.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        };
        assert!(is_part(left) && is_part(right), "{code}");
    }
}
