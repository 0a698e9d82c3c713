//! Cleans the texts of servers for models and people: short, only visible characters, and attributed to the server. No I/O.

use nanobot_os::hidden_chars::strip;
use std::borrow::Cow;

/// Maximum of characters of a description; some providers accept no more.
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// Builds the description of a tool of `server` for the model, from the server's own text.
pub fn tool_description(server: &str, title: Option<&str>, text: &str) -> String {
    let text = match (clean(text).trim(), title) {
        ("", Some(title)) => clean(title).trim().to_owned(),
        (text, _) => text.to_owned(),
    };
    let origin = format!("[server {}]", truncate(server, 64));
    truncate(format!("{origin} {text}").trim_end(), MAX_DESCRIPTION_CHARS)
}

/// Removes escape sequences and invisible characters from `text`.
pub fn clean(text: &str) -> String {
    let plain = if text.contains(['\u{1b}', '\u{9b}']) {
        console::strip_ansi_codes(text)
    } else {
        Cow::Borrowed(text)
    };
    strip(&plain).0.into_owned()
}

/// Does the same as [`clean`], on one line and cut to `max_chars` characters.
pub fn single_line(text: &str, max_chars: usize) -> String {
    let clean = clean(text);
    let parts: Vec<&str> = clean.split_whitespace().collect();
    truncate(&parts.join(" "), max_chars)
}

/// Cuts `text` to `max_chars` characters; if it is cut, the last of them is `…`.
pub fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().nth(max_chars).is_none() {
        return text.to_owned();
    }
    text.chars().take(max_chars.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::{clean, single_line, tool_description, truncate};

    #[test]
    fn descriptions_name_the_server_and_have_no_hidden_text() {
        let check = |title: Option<&str>, text: &str, expect: &str| {
            assert_eq!(tool_description("git", title, text), expect);
        };
        check(None, "Show the log.", "[server git] Show the log.");
        check(Some("Log"), " \n", "[server git] Log");
        check(Some("Log"), "Show it.", "[server git] Show it.");
        check(None, "", "[server git]");
        check(None, "a\u{1b}[31mb\u{1b}[0m", "[server git] ab");
        check(None, "a\u{200b}\u{e0041}\u{202e}b\0", "[server git] ab");
        let long = tool_description("git", None, &"é".repeat(5_000));
        assert_eq!(long.chars().count(), 1024);
        assert!(long.ends_with("é…"));
        assert!(tool_description(&"x".repeat(500), None, "y").chars().count() < 100);
    }

    #[test]
    fn lines() {
        assert_eq!(single_line("a\r\nb\t\u{1b}[2Jc  d", 20), "a b c d");
        assert_eq!(single_line("abcdef", 4), "abc…");
        assert_eq!(truncate("abcd", 4), "abcd");
        assert_eq!(truncate("abcd", 0), "…");
    }

    #[test]
    fn fuzz_nothing_hidden_is_left() {
        let seeds: &[&[u8]] = &[
            "a\u{1b}[31mb\u{1b}]0;x\u{7}\u{e0041}\u{202e}".as_bytes(),
            b"\x1b[\x1b[1;31m\x1b]8;;x\x1b\\",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let cleaned = clean(&nanobot_base::fuzz::lossy_text(input));
            assert!(!cleaned.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\0', '\u{9b}']));
            assert!(!cleaned.contains(|letter| ('\u{e0000}'..='\u{e0fff}').contains(&letter)));
        });
    }
}
