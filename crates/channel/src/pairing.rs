//! `pairing.json`: senders that were approved by a code. The format is that of the Python program from 0.3 on; members
//! that we do not know are kept.

use anyhow::Result;
use nanobot_base::error::{Exit, fail_with_hint};
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Seconds for which a code is valid.
pub(crate) const CODE_LIFETIME_SECS: i64 = 600;
/// Maximum number of valid codes of one channel: more would let unknown senders fill the file.
pub(crate) const MAX_OPEN_CODES: usize = 3;
/// Length of a code without its hyphen.
const CODE_CHARS: usize = 8;

/// The content of `pairing.json`.
#[derive(Clone, Debug)]
pub struct PairingFile(Map<String, Value>);

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
        let Some(text) = durable_file::read(path)? else {
            return Ok(Self(Map::new()));
        };
        match serde_json::from_slice(&text) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            _ => Err(fail_with_hint(
                Exit::Config,
                format!("`{}` is damaged: it is not a JSON object", path.display()),
                "a repaired file, or none: then every sender has to pair again",
            )),
        }
    }

    /// Reads, changes and replaces the file, while no other process changes it.
    ///
    /// # Errors
    /// As [`Self::load`], those of `change`, and status 74.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let lock = durable_file::lock_for_change(path, "the pairing file")?;
        let mut file = Self::load(path)?;
        let original = file.0.clone();
        let result = change(&mut file)?;
        if file.0 != original {
            let text = serde_json::to_string_pretty(&file.0)? + "\n";
            durable_file::replace(path, text.as_bytes())?;
        }
        drop(lock);
        Ok(result)
    }

    /// The ids that are approved for `channel`.
    pub fn approved(&self, channel: &str) -> BTreeSet<String> {
        let ids = self.0.get("approved").and_then(|all| all.get(channel));
        let ids = ids.and_then(Value::as_array).into_iter().flatten();
        let ids = ids.filter_map(id_text);
        ids.map(|id| id.split('|').next().unwrap_or_default().to_owned()).collect()
    }

    /// The codes that are valid at `now`, in seconds since 1970.
    pub fn pending(&self, now: i64) -> Vec<PendingPairing> {
        let pending = self.0.get("pending").and_then(Value::as_object);
        let parse = |(code, entry): (&String, &Value)| {
            Some(PendingPairing {
                code: code.clone(),
                channel: entry["channel"].as_str()?.to_owned(),
                sender_id: id_text(&entry["sender_id"])?,
                expires_at: whole_seconds(&entry["expires_at"])?,
            })
        };
        let pairings = pending.into_iter().flatten().filter_map(parse);
        pairings.filter(|entry| entry.expires_at > now).collect()
    }

    /// The valid code of a sender, which is created if there is none. `None` if the channel has too many.
    pub fn code_for(&mut self, channel: &str, sender_id: &str, now: i64) -> Option<String> {
        let pending = self.pending(now);
        let of_channel = || pending.iter().filter(|entry| entry.channel == channel);
        if let Some(entry) = of_channel().find(|entry| entry.sender_id == sender_id) {
            return Some(entry.code.clone());
        }
        if of_channel().count() >= MAX_OPEN_CODES {
            return None;
        }
        let valid: BTreeSet<&str> = pending.iter().map(|entry| entry.code.as_str()).collect();
        let code = std::iter::repeat_with(random_code).find(|code| !valid.contains(&**code))?;
        let entry = json!({
            "channel": channel,
            "sender_id": sender_id,
            "created_at": now,
            "expires_at": now + CODE_LIFETIME_SECS,
        });
        let members = self.section("pending");
        members.retain(|code, _| valid.contains(code.as_str()));
        members.insert(code.clone(), entry);
        Some(code)
    }

    /// Approves the sender of a valid code. `None` if there is no such code.
    pub fn approve(&mut self, code: &str, now: i64) -> Option<PendingPairing> {
        let code = code.trim().to_uppercase();
        let pairing = self.pending(now).into_iter().find(|pairing| pairing.code == code)?;
        self.section("pending").remove(&code);
        let approved = self.section("approved");
        let ids = approved.entry(&pairing.channel).or_insert_with(|| json!([]));
        if let Value::Array(ids) = ids
            && !ids.iter().any(|id| id_text(id).as_ref() == Some(&pairing.sender_id))
        {
            ids.push(pairing.sender_id.clone().into());
        }
        Some(pairing)
    }

    /// An object in the file, created if it is missing.
    fn section(&mut self, name: &str) -> &mut Map<String, Value> {
        let section = self.0.entry(name).or_insert_with(|| json!({}));
        if !section.is_object() {
            *section = json!({});
        }
        section.as_object_mut().expect("it was just made an object")
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
fn random_code() -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut code = String::new();
    while code.len() < CODE_CHARS {
        let bytes = random_hex(CODE_CHARS);
        let pairs = bytes.as_bytes().chunks_exact(2);
        let bytes = pairs.filter_map(|pair| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        });
        // Bytes above the last multiple of 36 would make some letters more frequent.
        let fair = bytes.filter(|byte| *byte < 252);
        code.extend(fair.map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])));
    }
    format!("{}-{}", &code[..4], &code[4..CODE_CHARS])
}

#[cfg(test)]
mod tests {
    use super::{PairingFile, random_code};
    use serde_json::{Map, json};

    #[test]
    fn a_code_approves_its_sender_once_and_for_ten_minutes() {
        let mut file = PairingFile(Map::new());
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
        let mut file = PairingFile(value.as_object().unwrap().clone());
        let ids: Vec<String> = file.approved("telegram").into_iter().collect();
        assert_eq!(ids, ["7", "8"]);
        assert!(file.approve("abcd-efgh", 1100).is_some());
        assert_eq!(file.0["other"], 1);
        assert_eq!(file.0["approved"]["telegram"], json!(["7|ann", 8, "9"]));
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
