//! Recognises keys by their format. Pure.
//!
//! Only formats that nothing else has are included, because text that is mistaken for a key becomes unusable. For the
//! same reason, entropy is not considered.

use super::key::REDACTED;
use super::replacement::Found;
use memchr::memmem;
use std::ops::Range;

/// A key format recognised by its prefix.
struct Format {
    /// The prefix. It is kept, so that a reader knows what kind of key it was.
    start: &'static str,
    /// True for the bytes that may follow the prefix.
    takes: fn(u8) -> bool,
    /// The permitted number of those bytes.
    count: Range<usize>,
}

const fn format(start: &'static str, takes: fn(u8) -> bool, least: usize) -> Format {
    let count = least..usize::MAX;
    Format {
        start,
        takes,
        count,
    }
}

const fn exactly(start: &'static str, takes: fn(u8) -> bool, length: usize) -> Format {
    let count = length..length + 1;
    Format {
        start,
        takes,
        count,
    }
}

const FORMATS: [Format; 38] = [
    format("sk-ant-", dashed, 20),
    format("sk-proj-", dashed, 20),
    format("sk-svcacct-", dashed, 20),
    format("sk-admin-", dashed, 20),
    format("sk-or-", dashed, 20),
    format("sk-", plain, 20),
    format("sk_live_", plain, 16),
    format("rk_live_", plain, 16),
    format("gsk_", plain, 40),
    format("xai-", plain, 40),
    format("hf_", plain, 30),
    format("npm_", plain, 36),
    format("ghp_", plain, 36),
    format("gho_", plain, 36),
    format("ghu_", plain, 36),
    format("ghs_", plain, 36),
    format("ghr_", plain, 36),
    format("github_pat_", dashed, 22),
    format("glpat-", dashed, 20),
    exactly("AKIA", capital, 16),
    exactly("ASIA", capital, 16),
    format("xoxa-", dashed, 20),
    format("xoxb-", dashed, 20),
    format("xoxe-", dashed, 20),
    format("xoxp-", dashed, 20),
    format("xoxr-", dashed, 20),
    format("xoxs-", dashed, 20),
    format("xapp-", dashed, 20),
    format("AIza", dashed, 35),
    format("Bearer ", signs, 20),
    format("bearer ", signs, 20),
    format("?api_key=", signs, 16),
    format("&api_key=", signs, 16),
    format("?apikey=", signs, 16),
    format("&apikey=", signs, 16),
    format("?access_token=", signs, 16),
    format("&access_token=", signs, 16),
    // JSON web tokens, which have three parts.
    format("eyJ", dotted, 32),
];

/// The beginning of a private key in PEM format. The end follows.
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
/// The longest private key, line breaks included, in bytes.
const LONGEST_BLOCK: usize = 16 << 10;
/// The longest other key, or URL with one, in bytes.
const LONGEST: usize = 8 << 10;

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn capital(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn dashed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

fn dotted(byte: u8) -> bool {
    dashed(byte) || byte == b'.'
}

fn signs(byte: u8) -> bool {
    dotted(byte) || b"~+/=%".contains(&byte)
}

fn base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// True for bytes that end a word that may contain a key.
fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`<>".contains(&byte)
}

/// Adds what looks like a key in `text`, which follows the byte `previous`.
pub(super) fn find(text: &str, before: Option<u8>, found: &mut Vec<Found>) {
    let bytes = text.as_bytes();
    for format in &FORMATS {
        // The end of the range scanned last and its last digit, so that many prefixes in one word do not cause as many
        // scans.
        let (mut end, mut digit) = (0, None);
        for start in memmem::find_iter(bytes, format.start) {
            let previous = match start {
                0 => before,
                _ => Some(bytes[start - 1]),
            };
            let is_sign = matches!(format.start.as_bytes()[0], b'?' | b'&');
            if !is_sign && previous.is_some_and(|byte| plain(byte) || byte == b'_') {
                continue;
            }
            let from = start + format.start.len();
            if from >= end {
                end = from + run(&bytes[from..], format.takes);
                digit = bytes[from..end].iter().rposition(u8::is_ascii_digit);
                digit = digit.map(|at| from + at);
            }
            // Names made of words have no digits; a key without any is rare.
            let is_key = format.count.contains(&(end - from))
                && digit.is_some_and(|digit| digit >= from)
                && (format.start != "eyJ" || is_token(&bytes[from..end]));
            if is_key {
                found.push(Found {
                    range: start..end,
                    mark: format!("{}{REDACTED}", format.start).into(),
                });
            }
        }
    }
    let blocks = memmem::find_iter(bytes, BEGIN).filter_map(|start| block(text, start));
    found.extend(blocks);
    let passwords = memmem::find_iter(bytes, "://").filter_map(|at| password(bytes, at + 3));
    found.extend(passwords.map(|range| Found {
        range,
        mark: REDACTED.into(),
    }));
}

/// The number of leading bytes that match `is_key_byte`.
fn run(bytes: &[u8], takes: fn(u8) -> bool) -> usize {
    let end = bytes.iter().position(|byte| !takes(*byte));
    end.unwrap_or(bytes.len())
}

/// True if these letters after `eyJ`, the base64 form of the beginning of a JSON object, are a signed token: the second
/// part must be an object too.
fn is_token(letters: &[u8]) -> bool {
    let letters = &letters[..letters.len().min(LONGEST)];
    let mut parts = letters.split(|byte| *byte == b'.');
    let mut next = || parts.next().unwrap_or_default();
    let (head, claims, signature) = (next(), next(), next());
    head.len() >= 10 && claims.starts_with(b"eyJ") && claims.len() >= 10 && signature.len() >= 16
}

/// The private key in PEM format that begins at `start`. If its end is missing, only lines that must belong to it are
/// included.
fn block(text: &str, start: usize) -> Option<Found> {
    let bytes = text.as_bytes();
    let title = start + BEGIN.len();
    let head = title + memmem::find(&bytes[title..(title + 64).min(bytes.len())], b"-----")? + 5;
    memmem::find(&bytes[title..head], b"PRIVATE KEY")?;
    let body = &bytes[head..(head + LONGEST_BLOCK).min(bytes.len())];
    let is_body = |body: &[u8]| {
        memmem::find(body, b"-----").is_none()
            && body
                .split(|byte| !base64(*byte))
                .any(|word| word.len() >= 16)
    };
    let end = match memmem::find(body, END.as_bytes()) {
        Some(at) if is_body(&body[..at]) => {
            let rest = &body[at + END.len()..];
            let length = memmem::find(&rest[..rest.len().min(64)], b"-----").map_or(0, |at| at + 5);
            at + END.len() + length
        }
        _ => lines(body)?,
    };
    Some(Found {
        range: start..head + end,
        mark: format!("{} {REDACTED}", &text[start..head]).into(),
    })
}

/// The end of the long lines that `body` begins with.
fn lines(body: &[u8]) -> Option<usize> {
    let (mut at, mut end) = (0, None);
    loop {
        let gap = |byte: u8| byte.is_ascii_whitespace() || b"\\nr\"'+,|>".contains(&byte);
        // The letters of an escaped line break can also begin a line; at worst they count as part of the gap.
        let skipped = run(&body[at..], gap).min(16);
        let length = run(&body[at + skipped..], base64);
        if length < 40 {
            return end;
        }
        at += skipped + length;
        end = Some(at);
    }
}

/// The range of the password in a URL whose authority begins at `from`.
fn password(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = &bytes[from..(from + LONGEST).min(bytes.len())];
    let end = rest
        .iter()
        .position(|byte| ends_word(*byte) || b"/?#@".contains(byte))?;
    let colon = rest[..end].iter().position(|byte| *byte == b':')? + 1;
    let word = &rest[colon..end];
    let is_host = |byte: &u8| plain(*byte) || *byte == b'[';
    // A placeholder is not a password.
    let is_password = rest[end] == b'@'
        && rest.get(end + 1).is_some_and(is_host)
        && word.first().is_some_and(|first| !b"$*{[(".contains(first));
    is_password.then_some(from + colon..from + end)
}

/// The start of the end of `text` that may be part of a key not yet complete; the length of `text` if there is none.
pub(super) fn pending(text: &str) -> usize {
    let bytes = text.as_bytes();
    let starts = || FORMATS.iter().map(|format| format.start);
    let tail = bytes.len().saturating_sub(LONGEST);
    // The last word, and the one before it if the two are one format.
    let word = bytes[tail..].iter().rposition(|byte| ends_word(*byte));
    let word = word.map_or(tail, |at| tail + at + 1);
    let is_risky = |text: &[u8]| {
        starts()
            .chain([BEGIN, "://"])
            .any(|start| memmem::find(text, start.as_bytes()).is_some())
    };
    let mut from = text.len();
    if is_risky(&bytes[word..]) {
        from = word;
    }
    let bearer = word.saturating_sub("bearer ".len());
    if bytes[bearer..word].ends_with(b"earer ") {
        from = from.min(bearer);
    }
    for start in starts().chain([BEGIN, "://"]) {
        let part = (1..start.len())
            .rev()
            .find(|count| bytes.ends_with(&start.as_bytes()[..*count]));
        if let Some(count) = part {
            from = from.min(bytes.len() - count);
        }
    }
    // The beginning of the URL, and anything directly before a key, is held back with it.
    if from < text.len() {
        from = from.min(word.max(tail));
    }
    if let Some(at) = memmem::rfind(bytes, BEGIN.as_bytes())
        && bytes.len() - at < LONGEST_BLOCK
        && is_open(&bytes[at..])
    {
        from = from.min(at);
    }
    while !text.is_char_boundary(from) {
        from -= 1;
    }
    from
}

/// True if a PEM block, which may be a private key, has no end yet.
fn is_open(block: &[u8]) -> bool {
    let title = &block[BEGIN.len()..];
    match memmem::find(title, b"-----") {
        None => title.len() < 64,
        Some(at) if memmem::find(&title[..at], b"PRIVATE KEY").is_none() => false,
        Some(at) => {
            let body = &title[at..];
            let end = memmem::find(body, END.as_bytes()).map(|at| &body[at + END.len()..]);
            end.is_none_or(|rest| rest.len() < 64 && memmem::find(rest, b"-----").is_none())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::find;
    use crate::sys::secret::replacement::replaced;

    fn hidden(text: &str) -> String {
        let mut found = Vec::new();
        find(text, None, &mut found);
        replaced(text, found).into_owned()
    }

    /// Text that looks like a key, generated so that no scanner reports this file.
    fn noise(length: usize) -> String {
        "0aB1cD2eF3gH4iJ5kL6mN7"
            .chars()
            .cycle()
            .take(length)
            .collect()
    }

    #[test]
    fn keys_are_told_by_their_format() {
        let check = |text: &str, expect: &str| {
            assert_eq!(hidden(text), expect, "{text}");
            assert_eq!(hidden(expect), expect, "what is hidden stays so");
        };
        let key = noise(36);
        for start in [
            "sk-ant-",
            "sk-proj-",
            "sk-or-",
            "sk-",
            "ghp_",
            "gho_",
            "github_pat_",
            "xoxb-",
            "xoxp-",
            "glpat-",
            "AIza",
        ] {
            check(&format!("x={start}{key};"), &format!("x={start}***;"));
            check(&format!("{start}short1"), &format!("{start}short1"));
            check(&format!("a{start}{key}"), &format!("a{start}{key}"));
        }
        let id = "ABCDEFGHIJ012345";
        check(&format!("AKIA{id} ASIA{id}"), "AKIA*** ASIA***");
        check(&format!("AKIA{id}6"), &format!("AKIA{id}6"));
        check(
            &format!("Authorization: Bearer {key}"),
            "Authorization: Bearer ***",
        );
        check(
            "Bearer of-the-good-news-and-more",
            "Bearer of-the-good-news-and-more",
        );
        check(
            "sk-a-name-in-many-words-2-read",
            "sk-a-name-in-many-words-2-read",
        );
        check(
            &format!("https://h/?a=1&api_key={key}&b=2"),
            "https://h/?a=1&api_key=***&b=2",
        );
    }

    #[test]
    fn tokens_are_told_by_their_parts() {
        let check = |text: &str, expect: &str| assert_eq!(hidden(text), expect, "{text}");
        let part = noise(24);
        check(&format!("t: eyJ{part}.eyJ{part}.{part}"), "t: eyJ***");
        check(
            &format!("eyJ{part}.{part}.{part}"),
            &format!("eyJ{part}.{part}.{part}"),
        );
        check(&format!("eyJ{part}"), &format!("eyJ{part}"));
    }

    #[test]
    fn passwords_of_addresses_are_hidden() {
        let check = |text: &str, expect: &str| assert_eq!(hidden(text), expect, "{text}");
        check(
            "postgres://app:p4ss%20w@db:5432/x",
            "postgres://app:***@db:5432/x",
        );
        check("(https://:token@host)", "(https://:***@host)");
        check("https://user@host/a:b@c", "https://user@host/a:b@c");
        check("https://host:8080/@x", "https://host:8080/@x");
        check(
            "https://u:${PASS}@host https://u:***@host",
            "https://u:${PASS}@host https://u:***@host",
        );
        check(
            "see http://a.example: mail me@b.example",
            "see http://a.example: mail me@b.example",
        );
    }

    #[test]
    fn private_keys_are_hidden_and_code_about_them_is_not() {
        let check = |text: &str, expect: &str| {
            assert_eq!(hidden(text), expect, "{text}");
            assert_eq!(hidden(expect), expect, "what is hidden stays so");
        };
        let line = noise(64);
        let (begin, end) = (
            "-----BEGIN RSA PRIVATE KEY-----",
            "-----END RSA PRIVATE KEY-----",
        );
        check(
            &format!("a\n{begin}\n{line}\n{line}\nab==\n{end}\nb"),
            &format!("a\n{begin} ***\nb"),
        );
        check(
            &format!("\"{begin}\\n{line}\\n{end}\\n\""),
            &format!("\"{begin} ***\\n\""),
        );
        check(
            &format!("{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{line}\n{end}"),
            &format!("{begin} ***"),
        );
        check(
            &format!("{begin}\n{line}\n{line}\nthe rest."),
            &format!("{begin} ***\nthe rest."),
        );
        for fine in [
            format!("const BEGIN: &str = \"{begin}\";\nconst END: &str = \"{end}\";\n"),
            format!("if text.contains(\"{begin}\") {{ return true; }}"),
            format!("-----BEGIN CERTIFICATE-----\n{line}\n-----END CERTIFICATE-----"),
        ] {
            check(&fine, &fine);
        }
    }
}
