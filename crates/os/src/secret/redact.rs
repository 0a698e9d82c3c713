//! The known keys, and the functions that redact them.

use super::key::{MIN_KEY_BYTES, REDACTED, Secret};
use super::replacement::{KeyMatch, replace_matches};
use super::search_set::SearchSet;
use super::{encodings, key_patterns};
use crate::durable_file;
use parking_lot::RwLock;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The minimum number of distinct characters of a key to search for. This excludes a line of dashes, for example.
const MIN_DISTINCT_CHARS: usize = 4;
static KNOWN_KEYS: RwLock<KnownKeys> = RwLock::new(KnownKeys {
    secrets: Vec::new(),
    files: Vec::new(),
    encodings: None,
    long_encodings: None,
});
/// The minimum length of a key that is masked in a request, in characters: a shorter one could be a word that the user
/// means.
const MIN_MASKED_CHARS: usize = 16;
/// Words of placeholder values, which are in a config because a program requires a value.
const PLACEHOLDER_WORDS: [&str; 9] =
    ["your", "placeholder", "changeme", "change", "example", "dummy", "needed", "required", "none"];
/// Maximum length of a file of a key, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 10;
/// True once a key was masked in a request of this process.
static HAS_MASKED_REQUEST: AtomicBool = AtomicBool::new(false);

/// A function that redacts a text.
type Redact<'f> = dyn Fn(&str) -> Cow<'_, str> + 'f;

/// The registered keys.
struct KnownKeys {
    secrets: Vec<Secret>,
    /// Files that contain a key each, read at the first search in a request.
    files: Vec<PathBuf>,
    /// The encodings of all keys, computed at the first search.
    encodings: Option<Arc<SearchSet>>,
    /// The encodings of those that are masked in requests.
    long_encodings: Option<Arc<SearchSet>>,
}

/// Registers `secret` as a known key, unless it could occur in innocent text because it is short or repetitive.
pub fn register(secret: &Secret) {
    let is_registered = |keys: &KnownKeys| keys.secrets.contains(secret);
    let distinct_chars: BTreeSet<char> = secret.expose().chars().collect();
    if secret.expose().len() < MIN_KEY_BYTES
        || distinct_chars.len() < MIN_DISTINCT_CHARS
        || is_registered(&KNOWN_KEYS.read())
    {
        return;
    }
    let mut keys = KNOWN_KEYS.write();
    if !is_registered(&keys) {
        keys.secrets.push(secret.clone());
        (keys.encodings, keys.long_encodings) = (None, None);
    }
}

/// Registers the key in the file at `path`, which is read when a request is searched for keys.
pub fn register_file(path: &Path) {
    let mut keys = KNOWN_KEYS.write();
    if !keys.files.iter().any(|file| file == path) {
        keys.files.push(path.to_owned());
        keys.long_encodings = None;
    }
}

/// Registers the keys in the files of `folder`, as [`register_file`] does.
pub fn register_files_of(folder: &Path) {
    // A directory that cannot be listed has no keys that could be read.
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.flatten().for_each(|entry| register_file(&entry.path()));
}

/// The key in the file at `path`: its first line. A file that cannot be read holds no key that could be sent.
fn read_key_file(path: &Path) -> Option<Secret> {
    let file = durable_file::open_existing(path).ok()??;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    let line = text.trim_start_matches('\u{feff}').trim().lines().next()?;
    Some(Secret::new(line.trim()))
}

/// True if `key` is masked in requests: it is long, no placeholder, and not the path of a file.
fn is_masked_in_requests(key: &str) -> bool {
    key.chars().count() >= MIN_MASKED_CHARS
        && !is_placeholder(key)
        && !(key.starts_with('/') && Path::new(key).exists())
}

/// True if `key` consists of words, and one of them says that it is no key: `your-api-key-here`.
fn is_placeholder(key: &str) -> bool {
    let key = key.to_lowercase();
    let mut parts = key.split(|character: char| !character.is_alphanumeric());
    parts.clone().all(|part| part.chars().all(char::is_alphabetic))
        && parts.any(|part| PLACEHOLDER_WORDS.contains(&part))
}

/// The encodings of the known keys that are masked in requests.
fn long_encodings() -> Arc<SearchSet> {
    let keys = KNOWN_KEYS.read();
    if let Some(encodings) = &keys.long_encodings {
        return Arc::clone(encodings);
    }
    let files = keys.files.clone();
    drop(keys);
    files.iter().filter_map(|path| read_key_file(path)).for_each(|secret| register(&secret));
    let mut keys = KNOWN_KEYS.write();
    let is_masked = |secret: &&Secret| is_masked_in_requests(secret.expose());
    let secrets: Vec<Secret> = keys.secrets.iter().filter(is_masked).cloned().collect();
    let encodings: Arc<SearchSet> = Arc::new(encodings::all_encodings(&secrets));
    keys.long_encodings = Some(Arc::clone(&encodings));
    encodings
}

/// Replaces by `***` each known key in a text that is sent to a model or stored in a session. Text that only looks like a
/// key stays, since the user may mean it.
pub fn mask_for_request(text: &str) -> Cow<'_, str> {
    if text.len() < MIN_MASKED_CHARS {
        return Cow::Borrowed(text);
    }
    let masked = replace_matches(text, encodings::find_encodings(text, &long_encodings()));
    if matches!(masked, Cow::Owned(_)) {
        HAS_MASKED_REQUEST.store(true, Ordering::Relaxed);
    }
    masked
}

/// True if a key was masked in a request of this process: `***` in the model's text may then mean that key.
pub fn has_masked_request() -> bool {
    HAS_MASKED_REQUEST.load(Ordering::Relaxed)
}

/// All encodings of all known keys.
pub(super) fn known_encodings() -> Arc<SearchSet> {
    let keys = KNOWN_KEYS.read();
    if let Some(encodings) = &keys.encodings {
        return Arc::clone(encodings);
    }
    drop(keys);
    let mut keys = KNOWN_KEYS.write();
    let encodings: Arc<SearchSet> = Arc::new(encodings::all_encodings(&keys.secrets));
    keys.encodings = Some(Arc::clone(&encodings));
    encodings
}

/// Replaces each known key in `text` by `***`, even if line breaks split it.
pub fn redact_known(text: &str) -> Cow<'_, str> {
    // No encoding of a key is shorter than a key. Most chunks of a streamed answer are shorter.
    if text.len() < MIN_KEY_BYTES {
        return Cow::Borrowed(text);
    }
    replace_matches(text, encodings::find_encodings(text, &known_encodings()))
}

/// Redacts as [`redact_known`] does, and also text with the format of any key. The prefix of such a key stays:
/// `sk-ant-***`.
pub fn redact_all(text: &str) -> Cow<'_, str> {
    replace_matches(text, find_all(text, &known_encodings(), None))
}

/// Redacts as [`redact_all`] does, and known keys however they are spelled. For complete texts: at the end of a
/// chunk, a stream cannot know whether such a key has begun.
pub fn redact_all_spellings(text: &str) -> Cow<'_, str> {
    let encoding_set = known_encodings();
    let mut matches = find_all(text, &encoding_set, None);
    matches.extend(encodings::find_respelled(text, &encoding_set));
    replace_matches(text, matches)
}

/// The keys that [`redact_all`] redacts in a text that follows the byte `previous`.
pub(super) fn find_all(
    text: &str,
    encoding_set: &SearchSet,
    previous: Option<u8>,
) -> Vec<KeyMatch> {
    let mut matches = encodings::find_encodings(text, encoding_set);
    key_patterns::find_keys(text, previous, &mut matches);
    matches
}

/// Applies [`redact_known`] to every string within `value`.
pub fn redact_known_json(value: &Value) -> Cow<'_, Value> {
    redact_json(value, &|text| redact_known(text))
}

/// Applies [`redact_known`] to every string in JSON text, names of members included. The text may be a part of a document
/// that begins and ends outside of its strings. Numbers stay, so that the text remains valid.
pub fn redact_known_json_text(text: &str) -> Cow<'_, str> {
    redact_json_text(text, &|text| redact_known(text))
}

/// Applies [`redact_all`] to every string in JSON text, as [`redact_known_json_text`] does.
pub fn redact_all_json_text(text: &str) -> Cow<'_, str> {
    redact_json_text(text, &|text| redact_all(text))
}

fn redact_json_text<'t>(text: &'t str, redact: &Redact<'_>) -> Cow<'t, str> {
    let mut out = String::new();
    let mut copied = 0;
    for range in string_literals(text) {
        if let Some(literal) = redact_literal(&text[range.clone()], redact) {
            out.push_str(&text[copied..range.start]);
            out.push_str(&literal);
            copied = range.end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The ranges of the strings in JSON text, with their quotation marks.
fn string_literals(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = position + memchr::memchr(b'"', &bytes[position..])?;
        position = start + 1;
        while let Some(offset) = memchr::memchr2(b'"', b'\\', &bytes[position..]) {
            position += offset;
            if bytes[position] == b'"' {
                position += 1;
                return Some(start..position);
            }
            position = (position + 2).min(bytes.len());
        }
        position = bytes.len();
        Some(start..position)
    })
}

/// Redacts a string of JSON text; `None` if it stays.
fn redact_literal(literal: &str, redact: &Redact<'_>) -> Option<String> {
    // No encoding of a key is shorter than a key.
    if literal.len() < MIN_KEY_BYTES {
        return None;
    }
    let owned = |text: Cow<'_, str>| matches!(text, Cow::Owned(_)).then(|| text.into_owned());
    match serde_json::from_str::<String>(literal) {
        Ok(value) => owned(redact(&value)).map(|value| Value::String(value).to_string()),
        // The text is not JSON, or has half of a surrogate pair.
        Err(_) => owned(redact(literal)),
    }
}

/// Applies [`redact_all`] to every string within `value`.
pub fn redact_all_json(value: &Value) -> Cow<'_, Value> {
    redact_json(value, &|text| redact_all(text))
}

/// True if a known key can be read out of `text`: in any form, in any case, percent-encoded, or split by other
/// characters. Checked for data that is about to be sent.
pub fn contains_key(text: &str) -> bool {
    let keys = KNOWN_KEYS.read();
    encodings::contains_any(text, &keys.secrets)
}

/// True if `new`, written over `old`, would replace a key by `***`: the author of `new` saw `old` with its keys redacted.
pub fn is_redacted_copy(old: &str, new: &str) -> bool {
    if !new.contains(REDACTED) {
        return false;
    }
    let is_redacted = |line: &&str| line.contains(REDACTED) && !old.contains(line);
    redact_all(old).lines().map(str::trim).filter(is_redacted).any(|line| new.contains(line))
}

fn redact_json<'v>(value: &'v Value, redact: &Redact<'_>) -> Cow<'v, Value> {
    match map_strings(value, redact) {
        Some(value) => Cow::Owned(value),
        None => Cow::Borrowed(value),
    }
}

/// Applies `redact` to every string within `value`; `None` if none of them changes.
fn map_strings(value: &Value, redact: &Redact<'_>) -> Option<Value> {
    match value {
        Value::String(text) => match redact(text) {
            Cow::Owned(text) => Some(Value::String(text)),
            Cow::Borrowed(_) => None,
        },
        Value::Array(items) => {
            let mut copy = None;
            for (index, item) in items.iter().enumerate() {
                if let Some(item) = map_strings(item, redact) {
                    copy.get_or_insert_with(|| items.clone())[index] = item;
                }
            }
            copy.map(Value::Array)
        }
        Value::Object(members) => {
            let mut copy = None;
            for (name, member) in members {
                if let Some(member) = map_strings(member, redact) {
                    copy.get_or_insert_with(|| members.clone()).insert(name.clone(), member);
                }
            }
            copy.map(Value::Object)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_masked_in_requests, read_key_file, redact_known_json_text, register};
    use crate::secret::Secret;
    use std::borrow::Cow;

    #[test]
    fn keys_in_the_text_of_json_are_redacted() {
        register(&Secret::new("n/key of \"JSON\" text"));
        register(&Secret::new("9182736455463728"));
        let check = |text: &str, expect: &str| {
            assert_eq!(redact_known_json_text(text), expect, "{text}");
        };
        check(
            r#"{"a":"x n/key of \"JSON\" text","b":["9182736455463728"]}"#,
            r#"{"a":"x ***","b":["***"]}"#,
        );
        check(r#"{"9182736455463728":1}"#, r#"{"***":1}"#);
        // A number is no string, and an escape sequence stays whole.
        check("{\"a\":9182736455463728}\n", "{\"a\":9182736455463728}\n");
        check(
            r#"["x\n/key of \"JSON\" text","\nn/key of\n \"JSON\" text"]"#,
            r#"["x\n/key of \"JSON\" text","\n***"]"#,
        );
        // A part of a document, and text that is not JSON.
        check(r#","messages":["9182736455463728""#, r#","messages":["***""#);
        check(r#"["\ud800 9182736455463728"] "9182736455463728"#, r#"["\ud800 ***"] "***"#);
        assert!(matches!(redact_known_json_text(r#"{"a":"\\"}"#), Cow::Borrowed(_)));
    }

    #[test]
    fn a_named_pipe_is_no_file_of_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        assert!(read_key_file(&path).is_none());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "\u{feff}a-key \nmore").unwrap();
        assert_eq!(read_key_file(&path), Some(Secret::new("a-key")));
    }

    #[test]
    fn which_keys_are_masked_in_requests() {
        let check =
            |key: &str, expect: bool| assert_eq!(is_masked_in_requests(key), expect, "{key}");
        check("sk-Quince7Medlar3", true);
        check("correct horse battery", true);
        check("/4qZ0+not/a/file=", true);
        check("hunter22-hunter", false);
        check("ollama", false);
        check("your-api-key-here", false);
        check("NO_API_KEY_REQUIRED", false);
        check("/proc/self/status", false);
    }
}
