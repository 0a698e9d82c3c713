//! Finds addresses and host names in text, and compares them.

use std::collections::BTreeSet;
use std::ops::Range;
use url::Url;

/// Top-level domains that are also common file extensions. Such a word is a host only within an address.
const FILE_EXTENSIONS: &[&str] =
    &["cc", "java", "md", "mov", "pl", "ps", "py", "rs", "sh", "so", "st", "zip"];

/// The starts of a path that is not only a name.
const PATH_STARTS: &[&str] = &["/", "./", "../", "~/"];

/// Maximum bytes of an address; servers accept no more.
const MAX_ADDRESS_BYTES: usize = 8 << 10;

/// The mark of a cut within a line.
const CUT_MARK: &str = "…";
/// The starts and ends of all marks of cuts. The ones with dots are in sessions of the Python program.
const CUT_STARTS: &[&str] = &[CUT_MARK, "\n[…", "\n... ("];
const CUT_ENDS: &[&str] = &[CUT_MARK, "…]\n", ") ...\n"];

/// `text` without surrounding white space, quotes and angle brackets.
pub fn strip_delimiters(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || "<>\"'`".contains(character))
}

/// True if `line` is an address and nothing else.
pub fn is_bare_address(line: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| line.starts_with(scheme))
        && !line.contains(char::is_whitespace)
}

/// Normalizes `text` to find an address in it however it was rewritten: lower case, without scheme, slashes and white
/// space, with percent-encoding decoded and `+` removed.
pub fn normalize(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = if bytes[at] == b'%' { text.get(at + 1..at + 3) } else { None };
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    let text = String::from_utf8_lossy(&decoded).to_lowercase();
    let without_scheme = text.strip_prefix("https://").or(text.strip_prefix("http://"));
    let is_significant =
        |character: &char| !character.is_whitespace() && !"+/".contains(*character);
    without_scheme.unwrap_or(&text).chars().filter(is_significant).collect()
}

/// The form in which addresses are compared: as the URL parser writes them, without the fragment, which is never sent.
pub fn comparison_key(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.into()
}

/// The addresses in `text`. Each is returned once for every plausible end of it.
pub(crate) fn find_addresses(text: &str) -> impl Iterator<Item = Url> {
    find_words(text).flat_map(|(word, _)| parse_word(word))
}

/// Like [`find_addresses`], without those that touch a cut: the model may have chosen the position of the cut, and with it the
/// address. Each function that shortens a text leaves a mark of the cut.
pub fn find_whole_addresses(text: &str) -> impl Iterator<Item = Url> {
    let is_whole = |at: usize, word: &str| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !word.contains(CUT_MARK)
            && !CUT_ENDS.iter().any(|end| before.ends_with(end))
            && !CUT_STARTS.iter().any(|start| after.starts_with(start))
    };
    find_words(text)
        .filter(move |(word, at)| is_whole(*at, word))
        .flat_map(|(word, _)| parse_word(word))
}

/// The web addresses in `text`, without the punctuation that follows, and their positions.
pub fn find_web_addresses(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut end = 0;
    find_words(text).filter_map(move |(word, at)| {
        let address = trim_punctuation(word);
        // An address may contain another one.
        if at < end || Url::parse(address).is_err() {
            return None;
        }
        end = at + address.len();
        Some((at, address))
    })
}

/// The parts of `text` that begin like an address, each up to a character that cannot be in one, and their positions. They may
/// overlap, so a hostile text could have very many long ones: those that are longer than an address are left out.
fn find_words(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let ends_address = |character: char| {
        character.is_whitespace() || character.is_control() || "<>\"`\\|".contains(character)
    };
    let mut end = 0;
    text.match_indices("://").filter_map(move |(at, _)| {
        let before = &text.as_bytes()[..at];
        let start = [&b"https"[..], b"http"].iter().find_map(|scheme| {
            let start = at.checked_sub(scheme.len())?;
            before[start..].eq_ignore_ascii_case(scheme).then_some(start)
        })?;
        if start >= end {
            end = text[start..].find(ends_address).map_or(text.len(), |length| start + length);
        }
        (end - start <= MAX_ADDRESS_BYTES).then(|| (&text[start..end], start))
    })
}

/// The addresses that `word` may be, one for every plausible end of it.
fn parse_word(word: &str) -> impl Iterator<Item = Url> {
    let linked = word.split_once("](").map_or(word, |(before, _)| before);
    let mut candidates = vec![
        word.to_owned(),
        trim_punctuation(word).to_owned(),
        trim_punctuation(linked).to_owned(),
        trim_punctuation(word).replace("&amp;", "&"),
    ];
    candidates.dedup();
    candidates.into_iter().filter_map(|candidate| Url::parse(&candidate).ok())
}

/// `address` without the trailing punctuation of the surrounding sentence.
pub fn trim_punctuation(address: &str) -> &str {
    const BRACKETS: [[char; 2]; 3] = [['(', ')'], ['[', ']'], ['{', '}']];
    // The number of closing brackets that no opening one belongs to.
    let mut unmatched = BRACKETS.map(|[open, close]| {
        address.matches(close).count().saturating_sub(address.matches(open).count())
    });
    address.trim_end_matches(|last: char| {
        match BRACKETS.iter().position(|[_, close]| *close == last) {
            Some(index) => {
                let is_unmatched = unmatched[index] > 0;
                unmatched[index] -= usize::from(is_unmatched);
                is_unmatched
            }
            None => ".,;:!?'*_…’”".contains(last),
        }
    })
}

/// The hosts of the addresses in `text`.
pub fn find_linked_hosts(text: &str) -> impl Iterator<Item = String> {
    find_addresses(text).filter_map(|url| url.host_str().map(str::to_owned))
}

/// The hosts that `text` names, within addresses or alone.
pub fn find_hosts(text: &str) -> BTreeSet<String> {
    // Somebody other than the sender may have chosen the names of files: the text after a slash, and all of a path that may have blanks.
    let text = without_quoted_paths(text).replace("\\ ", "/");
    let mut hosts: BTreeSet<String> = find_linked_hosts(&text).collect();
    for word in find_host_words(&text) {
        let url = Url::parse(&format!("https://{}/", &text[word])).ok();
        hosts.extend(url.and_then(|url| url.host_str().map(str::to_owned)));
    }
    hosts
}

/// The ranges of the words in `text` that have the form of a host.
pub(super) fn find_host_words(text: &str) -> Vec<Range<usize>> {
    let ends_path = |character: char| !character.is_alphanumeric() && !"-./".contains(character);
    let mut ranges = Vec::new();
    let mut start = 0;
    for segment in text.split_inclusive(ends_path) {
        let path_start = start;
        start += segment.len();
        let path = segment.trim_end_matches(ends_path);
        let rest = path.strip_prefix("//").unwrap_or(path);
        let host = rest.split('/').next().unwrap_or_default();
        let word = host.trim_matches(['.', '-']);
        let Some((name, top_level)) = word.rsplit_once('.') else {
            continue;
        };
        let top_level = top_level.to_lowercase();
        let is_domain =
            top_level.chars().count() >= 2 && top_level.chars().all(char::is_alphabetic);
        let is_host =
            is_domain && !name.is_empty() && !FILE_EXTENSIONS.contains(&top_level.as_str());
        if is_host && !is_in_user_name(text, path_start) {
            let skipped = path.len() - rest.len() + host.find(word).unwrap_or_default();
            ranges.push(path_start + skipped..path_start + skipped + word.len());
        }
    }
    ranges
}

/// True if the word at `position` belongs to the name of a user, such as `@name` or `@name:server`, which others choose.
fn is_in_user_name(text: &str, position: usize) -> bool {
    let before = &text[..position];
    let blank = before.char_indices().rfind(|(_, character)| character.is_whitespace());
    let start = blank.map_or(0, |(at, character)| at + character.len_utf8());
    before[start..].trim_start_matches(['(', '[', '{', '<']).starts_with('@')
}

/// Removes the paths in quotes or backticks: those that begin as a path does, and those that a message mentions by `@"…"`.
fn without_quoted_paths(text: &str) -> String {
    let mut remaining = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['`', '"', '\'']) {
        let (before, quoted) = rest.split_at(at);
        let (quote, after) = quoted.split_at(1);
        let begins_word = !before.ends_with(char::is_alphanumeric);
        let is_path =
            before.ends_with('@') || PATH_STARTS.iter().any(|start| after.starts_with(start));
        remaining += before;
        remaining += quote;
        rest = match after.find(quote) {
            Some(end) if begins_word && is_path => &after[end..][1..],
            _ => after,
        };
    }
    remaining + rest
}

/// True if `host` is one of `hosts`, with or without a leading `www.`.
pub fn contains_host(hosts: &BTreeSet<String>, host: &str) -> bool {
    let shorter = host.strip_prefix("www.");
    hosts.contains(host)
        || shorter.is_some_and(|shorter| hosts.contains(shorter))
        || hosts.contains(&format!("www.{host}"))
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_ADDRESS_BYTES, find_addresses, find_hosts, find_web_addresses, find_whole_addresses,
        normalize, trim_punctuation,
    };

    #[test]
    fn addresses_in_text() {
        let check = |text: &str, expect: &[&str]| {
            let mut addresses: Vec<String> = find_addresses(text).map(String::from).collect();
            addresses.dedup();
            for wanted in expect {
                assert!(addresses.iter().any(|url| url == wanted), "{text}: {addresses:?}");
            }
            assert_eq!(addresses.is_empty(), expect.is_empty(), "{text}: {addresses:?}");
        };
        check("", &[]);
        check("ftp://a/ ://b http:c", &[]);
        check("(see https://a.example/b).", &["https://a.example/b"]);
        check("HTTP://A.example", &["http://a.example/"]);
        check("[x](https://a.example/b_(c)) y", &["https://a.example/b_(c)"]);
        check(
            "[https://a.example/](https://b.example/)",
            &["https://a.example/", "https://b.example/"],
        );
        check("<a href=\"https://a.example/?b=1&amp;c=2\">", &["https://a.example/?b=1&c=2"]);
        check("\"https://a.example/b\",", &["https://a.example/b"]);
        check("ähttps://a.example/ä", &["https://a.example/%C3%A4"]);
        check(
            "http://a.example/?http://b.example",
            &["http://a.example/?http://b.example", "http://b.example/"],
        );
        check(&format!("http://a.example/{}", "x".repeat(MAX_ADDRESS_BYTES)), &[]);
    }

    #[test]
    fn punctuation_after_an_address() {
        let check = |address: &str, expect: &str| {
            assert_eq!(trim_punctuation(address), expect, "{address}");
        };
        check("", "");
        check("a", "a");
        check("a.)’…", "a");
        check("a_(b)", "a_(b)");
        check("(a)))].}", "(a)");
        check("a[0]).", "a[0]");
        check(")", "");
    }

    #[test]
    fn a_hostile_text_has_few_long_addresses() {
        let text = "http://".repeat(5 * MAX_ADDRESS_BYTES);
        let count = find_web_addresses(&text).count() + find_addresses(&text).count();
        assert!(count <= MAX_ADDRESS_BYTES, "{count}");
    }

    #[test]
    fn addresses_at_a_cut() {
        let check = |text: &str, expect: bool| {
            assert_eq!(find_whole_addresses(text).count() > 0, expect, "{text}");
        };
        check("https://a.example/b", true);
        check("https://a.example/b …", true);
        check("https://a.example/b…", false);
        check("https://a.example/b).… (20 more bytes)", false);
        check("…https://a.example/b", false);
        check("https://a.example/b\n[… 9 characters left out …]\nc", false);
        check("b\n[… 9 characters left out …]\nhttps://a.example/b", false);
        check("https://a.example/b\n... (truncated)", false);
        check("c\nhttps://a.example/b\nc\n[… 9 characters left out …]", true);
        check("[c …]\n\nhttps://a.example/b", true);
    }

    #[test]
    fn hosts_in_text() {
        let check = |text: &str, expect: &[&str]| {
            let hosts: Vec<String> = find_hosts(text).into_iter().collect();
            assert_eq!(hosts, expect, "{text}");
        };
        check("look at Example.org, docs.example.", &["docs.example", "example.org"]);
        check("fix main.rs and README.md, e.g. v1.2, a.b", &[]);
        check("read https://main.rs/x", &["main.rs"]);
        check("mail ada@example.org", &["example.org"]);
        check(
            "ask @evil.example, (@evil.net) and @eve:evil.org about docs.example",
            &["docs.example"],
        );
        check("bücher.example", &["xn--bcher-kva.example"]);
        check("10.0.0.1 is no name", &[]);
        check("see docs.example/a.html", &["docs.example"]);
        check("see //docs.example/a", &["docs.example"]);
        check("look at ./evil.example, /home/a/evil.example and ~/evil.example", &[]);
        check("file:///home/a/evil.example", &[]);
        check(
            "see `/home/a/see evil.example`, `docs.example` and x.example",
            &["docs.example", "x.example"],
        );
        check(
            "it's in './my evil.example', \"~/see evil.example\", `../a b.example` or @\"my evil.example\"",
            &[],
        );
        check("see /home/a/my\\ evil.example and my\\ evil.example", &[]);
        check(
            "it's \"docs.example\", 'x.example' and a\"/b c.example\"",
            &["c.example", "docs.example", "x.example"],
        );
        check("a ` of `/home/a/see evil.example`", &[]);
    }

    #[test]
    fn an_address_in_other_spellings() {
        let check = |text: &str, expect: &str| assert_eq!(normalize(text), expect, "{text}");
        check("https://A.example/b%20c+d/", "a.exampleb cd".replace(' ', "").as_str());
        check("a.example/b c D", "a.examplebcd");
        check("%E4%zz%", "\u{fffd}%zz%");
    }
}
