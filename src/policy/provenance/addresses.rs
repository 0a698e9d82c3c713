//! Finds addresses and host names in text, and compares them.

use std::collections::BTreeSet;
use url::Url;

/// Top-level domains that are also common file extensions. Such a word counts as a host only within an address.
const FILE_EXTENSIONS: &[&str] = &[
    "cc", "java", "md", "mov", "pl", "ps", "py", "rs", "sh", "so", "st", "zip",
];

/// Parses `text` as an address, bare or in the quotes or brackets that models put around one.
pub(super) fn parse_address(text: &str) -> Option<Url> {
    Url::parse(strip_delimiters(text)).ok()
}

/// `text` without surrounding white space, quotes and angle brackets.
pub fn strip_delimiters(text: &str) -> &str {
    text.trim_matches(|letter: char| letter.is_whitespace() || "<>\"'`".contains(letter))
}

/// True if `line` is an address and nothing else.
pub(super) fn is_bare_address(line: &str) -> bool {
    ["http://", "https://"]
        .iter()
        .any(|start| line.starts_with(start))
        && !line.contains(char::is_whitespace)
}

/// Normalizes `text` to find an address in it however it was rewritten: lower case, without scheme, slashes and white
/// space, with percent-encoding decoded and `+` removed.
pub(super) fn normalize(text: &str) -> String {
    let (bytes, mut plain) = (text.as_bytes(), Vec::with_capacity(text.len()));
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    let text = String::from_utf8_lossy(&plain).to_lowercase();
    let bare = text
        .strip_prefix("https://")
        .or(text.strip_prefix("http://"));
    let is_significant = |letter: &char| !letter.is_whitespace() && !"+/".contains(*letter);
    bare.unwrap_or(&text)
        .chars()
        .filter(is_significant)
        .collect()
}

/// The form in which addresses are compared: as the URL parser writes them, without the fragment, which is never sent.
pub(super) fn comparison_key(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.into()
}

/// The addresses in `text`. Each is yielded once for every plausible end of it.
pub(super) fn find_addresses(text: &str) -> impl Iterator<Item = Url> {
    let found = text.match_indices("://").filter_map(move |(at, _)| {
        let before = &text.as_bytes()[..at];
        let length = [&b"https"[..], b"http"].iter().find_map(|scheme| {
            let start = at.checked_sub(scheme.len())?;
            before[start..]
                .eq_ignore_ascii_case(scheme)
                .then_some(scheme.len())
        })?;
        Some(&text[at - length..])
    });
    found.flat_map(|rest| {
        let ends = |letter: char| {
            letter.is_whitespace() || letter.is_control() || "<>\"`\\|".contains(letter)
        };
        let whole = &rest[..rest.find(ends).unwrap_or(rest.len())];
        let linked = whole.split_once("](").map_or(whole, |(before, _)| before);
        let ways = [whole, trim_punctuation(whole), trim_punctuation(linked)];
        let written = ways.map(str::to_owned);
        let unescaped = trim_punctuation(whole).replace("&amp;", "&");
        let mut all: Vec<String> = written.into_iter().chain([unescaped]).collect();
        all.dedup();
        all.into_iter().filter_map(|way| Url::parse(&way).ok())
    })
}

/// `address` without the trailing punctuation of the surrounding sentence.
pub(super) fn trim_punctuation(address: &str) -> &str {
    let mut rest = address;
    loop {
        let unmatched = |open: char, close: char| {
            rest.ends_with(close) && rest.matches(close).count() > rest.matches(open).count()
        };
        let closes = unmatched('(', ')') || unmatched('[', ']') || unmatched('{', '}');
        if closes || rest.ends_with(['.', ',', ';', ':', '!', '?', '\'', '*', '_', '…', '’', '”'])
        {
            let last = rest.chars().next_back().map_or(0, char::len_utf8);
            rest = &rest[..rest.len() - last];
        } else {
            return rest;
        }
    }
}

/// The hosts of the addresses in `text`.
pub fn find_linked_hosts(text: &str) -> impl Iterator<Item = String> {
    find_addresses(text).filter_map(|url| url.host_str().map(str::to_owned))
}

/// The hosts that `text` names, within addresses or alone.
pub(super) fn find_hosts(text: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = find_linked_hosts(text).collect();
    let in_name = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '.';
    for word in text.split(|letter: char| !in_name(letter)) {
        let word = word.trim_matches(['.', '-']);
        let Some((before, end)) = word.rsplit_once('.') else {
            continue;
        };
        let end = end.to_lowercase();
        let is_end = end.chars().count() >= 2 && end.chars().all(char::is_alphabetic);
        if !is_end || before.is_empty() || FILE_EXTENSIONS.contains(&end.as_str()) {
            continue;
        }
        let url = Url::parse(&format!("https://{word}/")).ok();
        found.extend(url.and_then(|url| url.host_str().map(str::to_owned)));
    }
    found
}

/// True if `host` is one of `hosts`, with or without a leading `www.`.
pub(super) fn contains_host(hosts: &BTreeSet<String>, host: &str) -> bool {
    let shorter = host.strip_prefix("www.");
    hosts.contains(host)
        || shorter.is_some_and(|shorter| hosts.contains(shorter))
        || hosts.contains(&format!("www.{host}"))
}

#[cfg(test)]
mod tests {
    use super::{find_addresses, find_hosts, normalize};

    #[test]
    fn addresses_in_text() {
        let check = |text: &str, expect: &[&str]| {
            let mut found: Vec<String> = find_addresses(text).map(String::from).collect();
            found.dedup();
            for wanted in expect {
                assert!(found.iter().any(|url| url == wanted), "{text}: {found:?}");
            }
            assert_eq!(found.is_empty(), expect.is_empty(), "{text}: {found:?}");
        };
        check("", &[]);
        check("ftp://a/ ://b http:c", &[]);
        check("(see https://a.example/b).", &["https://a.example/b"]);
        check("HTTP://A.example", &["http://a.example/"]);
        check(
            "[x](https://a.example/b_(c)) y",
            &["https://a.example/b_(c)"],
        );
        check(
            "[https://a.example/](https://b.example/)",
            &["https://a.example/", "https://b.example/"],
        );
        check(
            "<a href=\"https://a.example/?b=1&amp;c=2\">",
            &["https://a.example/?b=1&c=2"],
        );
        check("\"https://a.example/b\",", &["https://a.example/b"]);
        check("ähttps://a.example/ä", &["https://a.example/%C3%A4"]);
    }

    #[test]
    fn hosts_in_text() {
        let check = |text: &str, expect: &[&str]| {
            let found: Vec<String> = find_hosts(text).into_iter().collect();
            assert_eq!(found, expect, "{text}");
        };
        check(
            "look at Example.org, docs.example.",
            &["docs.example", "example.org"],
        );
        check("fix main.rs and README.md, e.g. v1.2, a.b", &[]);
        check("read https://main.rs/x", &["main.rs"]);
        check("mail ada@example.org", &["example.org"]);
        check("bücher.example", &["xn--bcher-kva.example"]);
        check("10.0.0.1 is no name", &[]);
    }

    #[test]
    fn an_address_in_other_spellings() {
        let check = |text: &str, expect: &str| assert_eq!(normalize(text), expect, "{text}");
        check(
            "https://A.example/b%20c+d/",
            "a.exampleb cd".replace(' ', "").as_str(),
        );
        check("a.example/b c D", "a.examplebcd");
        check("%E4%zz%", "\u{fffd}%zz%");
    }
}
