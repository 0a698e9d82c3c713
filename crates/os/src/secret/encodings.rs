//! Finds known keys in the encodings in which they may appear: unchanged, JSON, hexadecimal, percent-encoded, base64,
//! reversed, and split by line breaks, as encoding tools produce. No I/O.

use super::key::{MIN_KEY_BYTES, REDACTED, Secret};
use super::replacement::KeyMatch;
use super::search_set::SearchSet;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use std::borrow::Cow;
use std::collections::HashMap;

/// All encodings of `secrets`, without line breaks.
pub(super) fn all_encodings(secrets: &[Secret]) -> SearchSet {
    let encodings = secrets
        .iter()
        .flat_map(|secret| key_encodings(secret.expose()))
        .map(|encoding| match memchr::memchr2(b'\n', b'\r', encoding.as_bytes()) {
            Some(_) => strip_line_breaks(&encoding).0.into_owned(),
            None => encoding,
        })
        .filter(|encoding| encoding.len() >= MIN_KEY_BYTES);
    SearchSet::new(encodings.collect())
}

fn key_encodings(key: &str) -> Vec<String> {
    let bytes = key.as_bytes();
    let json = serde_json::Value::from(key).to_string();
    let json = json[1..json.len() - 1].to_owned();
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encodings =
        vec![key.to_owned(), key.chars().rev().collect(), json.replace('/', "\\/"), json];
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        encodings.push(encode_bytes(bytes, "", digits, |_| false));
        encodings.push(encode_bytes(bytes, "%", digits, is_unreserved));
        encodings.push(encode_bytes(bytes, "%", digits, |_| false));
    }
    // The base64 letters of a key depend on its position in a group of three bytes.
    for offset in 0..3 {
        encodings.push(stable_base64(&STANDARD_NO_PAD, bytes, offset));
        encodings.push(stable_base64(&URL_SAFE_NO_PAD, bytes, offset));
    }
    encodings
}

/// Writes `bytes` in hexadecimal `digits`, each after `prefix`, except the literal ones.
fn encode_bytes(
    bytes: &[u8],
    prefix: &str,
    digits: &[u8; 16],
    is_literal: fn(u8) -> bool,
) -> String {
    let mut text = String::with_capacity(bytes.len() * (prefix.len() + 2));
    for byte in bytes {
        if is_literal(*byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(prefix);
            text.push(char::from(digits[usize::from(byte >> 4)]));
            text.push(char::from(digits[usize::from(byte & 15)]));
        }
    }
    text
}

/// The base64 letters that depend on `bytes` alone, after `offset` other bytes.
fn stable_base64(engine: &impl Engine, bytes: &[u8], offset: usize) -> String {
    let mut padded = vec![0; offset];
    padded.extend_from_slice(bytes);
    let text = engine.encode(&padded);
    // A letter holds six bits: those that share bits with a neighbouring byte are left out.
    let (start, end) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
    text[start..end].to_owned()
}

/// Finds all occurrences of the encodings in `text`.
pub(super) fn find_encodings(text: &str, encoding_set: &SearchSet) -> Vec<KeyMatch> {
    if encoding_set.strings().is_empty() || text.len() < MIN_KEY_BYTES {
        return Vec::new();
    }
    let (unbroken, breaks) = strip_line_breaks(text);
    let mut matches = Vec::new();
    // An occurrence that overlaps another one of the same encoding is none.
    let mut ends: HashMap<usize, usize> = HashMap::new();
    for (start, index) in encoding_set.find(unbroken.as_bytes()) {
        let end = ends.entry(index).or_default();
        if start >= *end {
            *end = start + encoding_set.strings()[index].len();
            matches.push(KeyMatch {
                range: original_position(start, &breaks)..original_position(*end - 1, &breaks) + 1,
                replacement: REDACTED.into(),
            });
        }
    }
    matches
}

/// The fewest letters and digits of an encoding that is found however it is spelled.
const MIN_RESPELLED_BYTES: usize = 12;

/// Finds all occurrences of the encodings in `text` in any case, and with other ASCII characters between their letters
/// and digits. Encodings without a letter or without a digit are left out: they could occur in a sentence.
pub(super) fn find_respelled(text: &str, encoding_set: &SearchSet) -> Vec<KeyMatch> {
    let is_distinctive = |encoding: &Vec<u8>| {
        encoding.len() >= MIN_RESPELLED_BYTES
            && encoding.is_ascii()
            && encoding.iter().any(u8::is_ascii_digit)
            && encoding.iter().any(u8::is_ascii_alphabetic)
    };
    if encoding_set.strings().is_empty() || text.len() < MIN_RESPELLED_BYTES {
        return Vec::new();
    }
    let bytes = text.as_bytes();
    let letters = alphanumerics(bytes);
    let mut positions = Vec::new();
    let mut matches = Vec::new();
    let strings = encoding_set.strings().iter();
    let encodings = strings.map(|encoding| alphanumerics(encoding.as_bytes()));
    for encoding in encodings.filter(is_distinctive) {
        for start in memmem::find_iter(&letters, &encoding) {
            if positions.is_empty() {
                let is_letter = |position: &usize| is_alphanumeric(bytes[*position]);
                positions = (0..bytes.len()).filter(is_letter).collect();
            }
            matches.push(KeyMatch {
                range: positions[start]..positions[start + encoding.len() - 1] + 1,
                replacement: REDACTED.into(),
            });
        }
    }
    matches
}

/// Returns the start of the longest suffix of `text` that may be the prefix of an encoding; the length of `text` if there
/// is none.
pub(super) fn pending_start(text: &str, encoding_set: &SearchSet) -> usize {
    let (unbroken, breaks) = strip_line_breaks(text);
    match encoding_set.pending_start(unbroken.as_bytes()) {
        start if start < unbroken.len() => original_position(start, &breaks),
        _ => text.len(),
    }
}

/// True if any of `secrets` can be read out of `text`.
pub(super) fn contains_any(text: &str, secrets: &[Secret]) -> bool {
    if secrets.is_empty() {
        return false;
    }
    // Double percent-encoding is detected too.
    let once = percent_decode(text.as_bytes());
    let twice = percent_decode(&once);
    let decodings: [&[u8]; 3] = [text.as_bytes(), &once, &twice];
    // A key of few letters and digits is found only as a whole: those alone could occur in innocent text.
    let is_verbatim = |key: &str| {
        key.len() >= MIN_KEY_BYTES
            && decodings.iter().any(|bytes| memmem::find(bytes, key.as_bytes()).is_some())
    };
    if secrets.iter().any(|secret| is_verbatim(secret.expose())) {
        return true;
    }
    let texts = decodings.map(alphanumerics);
    secrets
        .iter()
        .flat_map(|secret| key_encodings(secret.expose()))
        .map(|encoding| alphanumerics(encoding.as_bytes()))
        .filter(|encoding| encoding.len() >= MIN_KEY_BYTES)
        .any(|encoding| texts.iter().any(|text| memmem::find(text, &encoding).is_some()))
}

/// The letters and digits of `text`, in lower case.
fn alphanumerics(text: &[u8]) -> Vec<u8> {
    let letters = text.iter().filter(|byte| is_alphanumeric(**byte));
    letters.map(u8::to_ascii_lowercase).collect()
}

/// True for letters and digits, and for the bytes of characters that are not ASCII: a single byte does not tell whether
/// its character is a letter of another script, which may be part of a key, or punctuation.
fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// `text`, percent-decoded once.
fn percent_decode(text: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        let pair = match after {
            [one, two, ..] if *byte == b'%' => digit(*one).zip(digit(*two)),
            _ => None,
        };
        match pair {
            Some((one, two)) => {
                out.push(one << 4 | two);
                rest = &after[2..];
            }
            None => out.push(*byte),
        }
    }
    out
}

/// `text` without line breaks, and their positions in the result.
fn strip_line_breaks(text: &str) -> (Cow<'_, str>, Vec<usize>) {
    let mut breaks = Vec::new();
    let mut positions = memchr::memchr2_iter(b'\n', b'\r', text.as_bytes()).peekable();
    if positions.peek().is_none() {
        return (Cow::Borrowed(text), breaks);
    }
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for position in positions {
        out.push_str(&text[end..position]);
        breaks.push(out.len());
        end = position + 1;
    }
    out.push_str(&text[end..]);
    (Cow::Owned(out), breaks)
}

/// Maps a `position` in the text without line breaks to the original text.
fn original_position(position: usize, breaks: &[usize]) -> usize {
    position + breaks.partition_point(|at| *at <= position)
}

#[cfg(test)]
mod tests {
    use super::{all_encodings, contains_any, find_encodings, find_respelled, key_encodings};
    use crate::secret::Secret;
    use crate::secret::replacement::replace_matches;
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    const KEY: &str = "k?y/wi+h \"si~ns>>>";

    fn masked(text: &str) -> String {
        let forms = all_encodings(&[Secret::new(KEY)]);
        replace_matches(text, find_encodings(text, &forms)).into_owned()
    }

    #[test]
    fn a_key_is_found_in_its_encodings() {
        let check = |text: &str, expect: &str| assert_eq!(masked(text), expect, "{text}");
        check(&format!("a {KEY} b {KEY}"), "a *** b ***");
        check(&serde_json::json!([KEY]).to_string(), "[\"***\"]");
        check(">>>sn~is\" h+iw/y?k", "***");
        check("6b3f792f77692b68202273697e6e733e3e3e", "***");
        check("6B3F792F77692B68202273697E6E733E3E3E.", "***.");
        check("k%3Fy%2Fwi%2Bh%20%22si~ns%3E%3E%3E", "***");
        check("k?y/wi+h\n \"si~\r\nns>>>\n", "***\n");
        check("k?y/wi+h \"si~ns>>", "k?y/wi+h \"si~ns>>");
        check("", "");
    }

    #[test]
    fn a_key_is_found_however_it_is_spelled() {
        let forms = all_encodings(&[
            Secret::new("sk-AbCdEfGh01234567"),
            Secret::new("correct horse battery"),
        ]);
        let check = |text: &str, expect: &str| {
            let redacted = replace_matches(text, find_respelled(text, &forms)).into_owned();
            assert_eq!(redacted, expect, "{text}");
        };
        check("a SK-ABCDEFGH01234567 b", "a *** b");
        check("é s k - A b C d E f G h 0 1 2 3 4 5 6 7.", "é ***.");
        check("S_K/A\nB:C d e\tf g…h", "S_K/A\nB:C d e\tf g…h");
        check("s.k.a.b.c.d.e.f.g.h\n01234567, sk-abcdefgh01234567", "***, ***");
        check("7-6-5-4-3-2-1-0-h-g-f-e-d-c-b-a-k-s", "***");
        check("sk-AbCdEfGh0123456", "sk-AbCdEfGh0123456");
        check("Correct! Horse, battery.", "Correct! Horse, battery.");
    }

    #[test]
    fn base64_is_found_at_any_offset() {
        for engine in [&STANDARD, &URL_SAFE] {
            for before in 0..7 {
                for after in 0..4 {
                    let text = format!("{}{KEY}{}", "é".repeat(before), "x".repeat(after));
                    let text = engine.encode(text);
                    let redacted = masked(&text);
                    assert!(redacted.contains("***"), "{text} {redacted}");
                    assert!(redacted.len() < text.len() - 18, "{text} {redacted}");
                    // Wrapped, as the `base64` program does.
                    let mut lines = text.clone();
                    lines.insert(text.len() / 2, '\n');
                    assert_eq!(masked(&lines), redacted);
                }
            }
        }
    }

    #[test]
    fn a_key_is_detected_in_any_encoding() {
        let secrets = [Secret::new(KEY), Secret::new("AbCdEfGh01234567")];
        let check =
            |text: &str, expect: bool| assert_eq!(contains_any(text, &secrets), expect, "{text}");
        for secret in &secrets {
            for form in key_encodings(secret.expose()) {
                check(&format!("https://x.example/?q={form}&r=1"), true);
            }
        }
        check("https://x.example/%41bCd%2545fGh01234567", true);
        check("https://abcdefgh.01234567.x.example/", true);
        check("https://x.example/Ab/Cd/Ef/Gh/01-23-45-67", true);
        check("https://x.example/AbCdEfGh0123456", false);
        check("https://x.example/%4", false);
        assert!(!contains_any("anything", &[]));
        let few_letters = [Secret::new("p@$$-w0rd!!")];
        assert!(contains_any("https://x.example/?q=p@$$-w0rd!!&r=1", &few_letters));
        assert!(contains_any("https://x.example/?q=p@%24$-w0rd!%2521", &few_letters));
        assert!(!contains_any("https://x.example/?q=p-w0rd", &few_letters));
    }
}
