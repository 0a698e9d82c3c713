//! Recognises keys by their format. No I/O.
//!
//! Only formats that no other text has are included, because text that is mistaken for a key becomes unusable. For the
//! same reason, entropy is not considered.

use super::key::REDACTED;
use super::replacement::KeyMatch;
use super::search_set::SearchSet;
use memchr::memmem::{self, Finder, FinderRev};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

/// A key format recognised by its prefix.
struct SecretPattern {
    /// The prefix. It is kept, so that a reader knows what kind of key it was.
    prefix: &'static str,
    /// True for the bytes that may follow the prefix.
    is_key_byte: fn(u8) -> bool,
    /// The permitted number of those bytes.
    length_range: Range<usize>,
}

const fn at_least(
    prefix: &'static str,
    is_key_byte: fn(u8) -> bool,
    min_length: usize,
) -> SecretPattern {
    SecretPattern { prefix, is_key_byte, length_range: min_length..usize::MAX }
}

const fn exactly(
    prefix: &'static str,
    is_key_byte: fn(u8) -> bool,
    length: usize,
) -> SecretPattern {
    SecretPattern { prefix, is_key_byte, length_range: length..length + 1 }
}

const KEY_PATTERNS: [SecretPattern; 38] = [
    at_least("sk-ant-", is_base64url, 20),
    at_least("sk-proj-", is_base64url, 20),
    at_least("sk-svcacct-", is_base64url, 20),
    at_least("sk-admin-", is_base64url, 20),
    at_least("sk-or-", is_base64url, 20),
    at_least("sk-", is_alphanumeric, 20),
    at_least("sk_live_", is_alphanumeric, 16),
    at_least("rk_live_", is_alphanumeric, 16),
    at_least("gsk_", is_alphanumeric, 40),
    at_least("xai-", is_alphanumeric, 40),
    at_least("hf_", is_alphanumeric, 30),
    at_least("npm_", is_alphanumeric, 36),
    at_least("ghp_", is_alphanumeric, 36),
    at_least("gho_", is_alphanumeric, 36),
    at_least("ghu_", is_alphanumeric, 36),
    at_least("ghs_", is_alphanumeric, 36),
    at_least("ghr_", is_alphanumeric, 36),
    at_least("github_pat_", is_base64url, 22),
    at_least("glpat-", is_base64url, 20),
    exactly("AKIA", is_upper_or_digit, 16),
    exactly("ASIA", is_upper_or_digit, 16),
    at_least("xoxa-", is_base64url, 20),
    at_least("xoxb-", is_base64url, 20),
    at_least("xoxe-", is_base64url, 20),
    at_least("xoxp-", is_base64url, 20),
    at_least("xoxr-", is_base64url, 20),
    at_least("xoxs-", is_base64url, 20),
    at_least("xapp-", is_base64url, 20),
    at_least("AIza", is_base64url, 35),
    at_least("Bearer ", is_bearer_byte, 20),
    at_least("bearer ", is_bearer_byte, 20),
    at_least("?api_key=", is_bearer_byte, 16),
    at_least("&api_key=", is_bearer_byte, 16),
    at_least("?apikey=", is_bearer_byte, 16),
    at_least("&apikey=", is_bearer_byte, 16),
    at_least("?access_token=", is_bearer_byte, 16),
    at_least("&access_token=", is_bearer_byte, 16),
    // JSON web tokens, which have three parts.
    at_least("eyJ", is_base64url_or_dot, 32),
];

/// The beginnings of the first and the last line of a private key in PEM format (RFC 7468), and the end of both.
const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
const PEM_DASHES: &[u8] = b"-----";
/// The beginning of the authority of a URL.
const AUTHORITY: &str = "://";
/// The prefixes of [`KEY_PATTERNS`].
static PREFIXES: LazyLock<SearchSet> =
    LazyLock::new(|| SearchSet::new(prefixes().map(str::to_owned).collect()));
/// The beginnings of all that is searched for.
static BEGINNINGS: LazyLock<SearchSet> = LazyLock::new(|| {
    SearchSet::new(prefixes().chain([PEM_BEGIN, AUTHORITY]).map(str::to_owned).collect())
});
static PEM_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(PEM_BEGIN));
static LAST_PEM_FINDER: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new(PEM_BEGIN));
static AUTHORITY_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(AUTHORITY));
/// The longest title of a PEM block, in bytes, such as `RSA PRIVATE KEY` with the dashes after it.
const MAX_PEM_TITLE_BYTES: usize = 64;
/// The shortest line of a PEM block whose end is missing, in bytes: shorter ones may be words of a text.
const MIN_PEM_LINE_BYTES: usize = 40;
/// Maximum number of bytes between two lines of a PEM block: a line break, escaped or with the indentation of its context.
const MAX_PEM_GAP_BYTES: usize = 16;
/// The longest private key, line breaks included, in bytes.
const MAX_PEM_BYTES: usize = 16 << 10;
/// The longest other key, or URL with one, in bytes.
const MAX_KEY_BYTES: usize = 8 << 10;

fn prefixes() -> impl Iterator<Item = &'static str> {
    KEY_PATTERNS.iter().map(|pattern| pattern.prefix)
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_upper_or_digit(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

fn is_base64url_or_dot(byte: u8) -> bool {
    is_base64url(byte) || byte == b'.'
}

fn is_bearer_byte(byte: u8) -> bool {
    is_base64url_or_dot(byte) || b"~+/=%".contains(&byte)
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// True for bytes that end a word that may contain a key.
fn is_delimiter(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`<>".contains(&byte)
}

/// Adds the parts of `text` that look like a key. `previous` is the byte before the text.
pub(super) fn find_keys(text: &str, previous: Option<u8>, matches: &mut Vec<KeyMatch>) {
    let bytes = text.as_bytes();
    // The end of the range scanned last for a pattern, and its last digit: a word that contains the prefix many times is scanned once.
    let mut scanned: HashMap<&str, (usize, Option<usize>)> = HashMap::new();
    for (start, index) in PREFIXES.find(bytes) {
        let Some(pattern) = pattern_of(&PREFIXES.strings()[index]) else {
            continue;
        };
        let previous = if start == 0 { previous } else { Some(bytes[start - 1]) };
        // The other prefixes could be the end of a longer word.
        let is_query = matches!(pattern.prefix.as_bytes()[0], b'?' | b'&');
        if !is_query && previous.is_some_and(|byte| is_alphanumeric(byte) || byte == b'_') {
            continue;
        }
        let from = start + pattern.prefix.len();
        let (end, digit) = scanned.entry(pattern.prefix).or_default();
        if from >= *end {
            *end = from + run_length(&bytes[from..], pattern.is_key_byte);
            *digit = bytes[from..*end].iter().rposition(u8::is_ascii_digit).map(|at| from + at);
        }
        // Names made of words have no digits; a key without any is rare.
        let is_key = pattern.length_range.contains(&(*end - from))
            && digit.is_some_and(|digit| digit >= from)
            && (pattern.prefix != "eyJ" || is_jwt(&bytes[from..*end]));
        if is_key {
            matches.push(KeyMatch {
                range: start..*end,
                replacement: format!("{}{REDACTED}", pattern.prefix).into(),
            });
        }
    }
    let pem_keys = PEM_FINDER.find_iter(bytes).filter_map(|start| find_pem(text, start));
    matches.extend(pem_keys);
    let passwords = AUTHORITY_FINDER.find_iter(bytes);
    let passwords = passwords.filter_map(|at| find_password(bytes, at + AUTHORITY.len()));
    matches.extend(passwords.map(|range| KeyMatch { range, replacement: REDACTED.into() }));
}

fn pattern_of(prefix: &str) -> Option<&'static SecretPattern> {
    KEY_PATTERNS.iter().find(|pattern| pattern.prefix == prefix)
}

/// The number of leading bytes that match `is_key_byte`.
fn run_length(bytes: &[u8], is_key_byte: fn(u8) -> bool) -> usize {
    let end = bytes.iter().position(|byte| !is_key_byte(*byte));
    end.unwrap_or(bytes.len())
}

/// True if `token`, which follows `eyJ`, the base64 form of the beginning of a JSON object, is the rest of a signed token
/// (RFC 7519): its second part must be an object too.
fn is_jwt(token: &[u8]) -> bool {
    let token = &token[..token.len().min(MAX_KEY_BYTES)];
    let mut parts = token.split(|byte| *byte == b'.');
    let mut next = || parts.next().unwrap_or_default();
    let (head, claims, signature) = (next(), next(), next());
    head.len() >= 10 && claims.starts_with(b"eyJ") && claims.len() >= 10 && signature.len() >= 16
}

/// The private key in PEM format that begins at `start`. If its end is missing, only lines that must belong to it are
/// included.
fn find_pem(text: &str, start: usize) -> Option<KeyMatch> {
    let bytes = text.as_bytes();
    let title = start + PEM_BEGIN.len();
    let title_limit = (title + MAX_PEM_TITLE_BYTES).min(bytes.len());
    let head = title + memmem::find(&bytes[title..title_limit], PEM_DASHES)? + PEM_DASHES.len();
    memmem::find(&bytes[title..head], b"PRIVATE KEY")?;
    let body = &bytes[head..(head + MAX_PEM_BYTES).min(bytes.len())];
    let is_body = |body: &[u8]| {
        memmem::find(body, PEM_DASHES).is_none()
            && body.split(|byte| !is_base64(*byte)).any(|word| word.len() >= 16)
    };
    let end = match memmem::find(body, PEM_END.as_bytes()) {
        Some(at) if is_body(&body[..at]) => {
            let rest = &body[at + PEM_END.len()..];
            let dashes = memmem::find(&rest[..rest.len().min(MAX_PEM_TITLE_BYTES)], PEM_DASHES);
            at + PEM_END.len() + dashes.map_or(0, |at| at + PEM_DASHES.len())
        }
        _ => base64_lines_end(body)?,
    };
    Some(KeyMatch {
        range: start..head + end,
        replacement: format!("{} {REDACTED}", &text[start..head]).into(),
    })
}

/// The end of the long lines that `body` begins with.
fn base64_lines_end(body: &[u8]) -> Option<usize> {
    // The letters of an escaped line break can also begin a line; at worst they become part of the gap.
    let is_gap = |byte: u8| byte.is_ascii_whitespace() || b"\\nr\"'+,|>".contains(&byte);
    let mut end = 0;
    loop {
        let gap = run_length(&body[end..], is_gap).min(MAX_PEM_GAP_BYTES);
        let length = run_length(&body[end + gap..], is_base64);
        if length < MIN_PEM_LINE_BYTES {
            return (end > 0).then_some(end);
        }
        end += gap + length;
    }
}

/// The range of the password in a URL whose authority begins at `from`.
fn find_password(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let rest = &bytes[from..(from + MAX_KEY_BYTES).min(bytes.len())];
    let end = rest.iter().position(|byte| is_delimiter(*byte) || b"/?#@".contains(byte))?;
    let colon = rest[..end].iter().position(|byte| *byte == b':')? + 1;
    let password = &rest[colon..end];
    let is_host = |byte: &u8| is_alphanumeric(*byte) || *byte == b'[';
    // A placeholder is not a password.
    let is_password = rest[end] == b'@'
        && rest.get(end + 1).is_some_and(is_host)
        && password.first().is_some_and(|first| !b"$*{[(".contains(first));
    is_password.then_some(from + colon..from + end)
}

/// Returns the start of the suffix of `text` that may be part of a key not yet complete; the length of `text` if there is
/// none.
pub(super) fn pending_start(text: &str) -> usize {
    let bytes = text.as_bytes();
    let tail = bytes.len().saturating_sub(MAX_KEY_BYTES);
    // The last word, and the one before it if the two are one pattern: `Bearer KEY`.
    let word = bytes[tail..].iter().rposition(|byte| is_delimiter(*byte));
    let word = word.map_or(tail, |at| tail + at + 1);
    let mut from = text.len();
    if BEGINNINGS.find(&bytes[word..]).next().is_some() {
        from = word;
    }
    let bearer = word.saturating_sub("bearer ".len());
    if bytes[bearer..word].ends_with(b"earer ") {
        from = from.min(bearer);
    }
    from = from.min(BEGINNINGS.pending_start(bytes));
    // The beginning of the URL, and anything directly before a key, is buffered with it.
    if from < text.len() {
        from = from.min(word.max(tail));
    }
    if let Some(at) = LAST_PEM_FINDER.rfind(bytes)
        && bytes.len() - at < MAX_PEM_BYTES
        && is_pem_open(&bytes[at..])
    {
        from = from.min(at);
    }
    while !text.is_char_boundary(from) {
        from -= 1;
    }
    from
}

/// True if a PEM block, which may be a private key, has no end yet.
fn is_pem_open(block: &[u8]) -> bool {
    let title = &block[PEM_BEGIN.len()..];
    match memmem::find(title, PEM_DASHES) {
        None => title.len() < MAX_PEM_TITLE_BYTES,
        Some(at) if memmem::find(&title[..at], b"PRIVATE KEY").is_none() => false,
        Some(at) => {
            let body = &title[at..];
            let end = memmem::find(body, PEM_END.as_bytes()).map(|at| &body[at + PEM_END.len()..]);
            end.is_none_or(|rest| {
                rest.len() < MAX_PEM_TITLE_BYTES && memmem::find(rest, PEM_DASHES).is_none()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::find_keys;
    use crate::secret::replacement::replace_matches;

    fn hidden(text: &str) -> String {
        let mut matches = Vec::new();
        find_keys(text, None, &mut matches);
        replace_matches(text, matches).into_owned()
    }

    /// Text that looks like a key, generated so that no scanner reports this file.
    fn noise(length: usize) -> String {
        "0aB1cD2eF3gH4iJ5kL6mN7".chars().cycle().take(length).collect()
    }

    #[test]
    fn keys_are_recognised_by_format() {
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
        check(&format!("Authorization: Bearer {key}"), "Authorization: Bearer ***");
        check("Bearer of-the-good-news-and-more", "Bearer of-the-good-news-and-more");
        check("sk-a-name-in-many-words-2-read", "sk-a-name-in-many-words-2-read");
        check(&format!("https://h/?a=1&api_key={key}&b=2"), "https://h/?a=1&api_key=***&b=2");
    }

    #[test]
    fn tokens_are_recognised_by_their_parts() {
        let check = |text: &str, expect: &str| assert_eq!(hidden(text), expect, "{text}");
        let part = noise(24);
        check(&format!("t: eyJ{part}.eyJ{part}.{part}"), "t: eyJ***");
        check(&format!("eyJ{part}.{part}.{part}"), &format!("eyJ{part}.{part}.{part}"));
        check(&format!("eyJ{part}"), &format!("eyJ{part}"));
    }

    #[test]
    fn passwords_in_urls_are_redacted() {
        let check = |text: &str, expect: &str| assert_eq!(hidden(text), expect, "{text}");
        check("postgres://app:p4ss%20w@db:5432/x", "postgres://app:***@db:5432/x");
        check("(https://:token@host)", "(https://:***@host)");
        check("https://user@host/a:b@c", "https://user@host/a:b@c");
        check("https://host:8080/@x", "https://host:8080/@x");
        check(
            "https://u:${PASS}@host https://u:***@host",
            "https://u:${PASS}@host https://u:***@host",
        );
        check("see http://a.example: mail me@b.example", "see http://a.example: mail me@b.example");
    }

    #[test]
    fn private_keys_are_redacted_but_not_code_about_them() {
        let check = |text: &str, expect: &str| {
            assert_eq!(hidden(text), expect, "{text}");
            assert_eq!(hidden(expect), expect, "what is hidden stays so");
        };
        let line = noise(64);
        let (begin, end) = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----");
        check(
            &format!("a\n{begin}\n{line}\n{line}\nab==\n{end}\nb"),
            &format!("a\n{begin} ***\nb"),
        );
        check(&format!("\"{begin}\\n{line}\\n{end}\\n\""), &format!("\"{begin} ***\\n\""));
        check(
            &format!("{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{line}\n{end}"),
            &format!("{begin} ***"),
        );
        check(&format!("{begin}\n{line}\n{line}\nthe rest."), &format!("{begin} ***\nthe rest."));
        for fine in [
            format!("const BEGIN: &str = \"{begin}\";\nconst END: &str = \"{end}\";\n"),
            format!("if text.contains(\"{begin}\") {{ return true; }}"),
            format!("-----BEGIN CERTIFICATE-----\n{line}\n-----END CERTIFICATE-----"),
        ] {
            check(&fine, &fine);
        }
    }
}
