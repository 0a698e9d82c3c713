//! The occurrences of a text or of identifiers in the content of a file, as ranges of bytes. No I/O.

use nanobot_base::json_string::{
    JsonString, WrittenChar, byte_range, find_text, text_of, visit_strings, written_chars,
};
use serde::de::IgnoredAny;
use std::ops::Range;

/// Members of our files whose values other lines or programs depend on. They stay as they are; what they contain is counted
/// as a part of the format.
const FORMAT_MEMBERS: &[&str] = &[
    "_type",
    "type",
    "v",
    "version",
    "role",
    "finish_reason",
    "ending",
    "source",
    "origin",
    "level",
    "purpose",
    "kind",
    "status",
    "outcome",
    "result",
    "cause",
    "trigger",
    "time",
    "timestamp",
    "created_at",
    "updated_at",
    "day",
    "start",
    "end",
    "slot",
    "stamp",
    "turn",
    "id",
    "ids",
    "rejected",
    "failing",
    "key",
    "fork_of",
    "answers",
    "through",
    "later",
    "tool_call_id",
    "call",
    "session",
    "session_key",
    "provider",
    "model",
    "job",
    "digest",
    "hash",
    "output",
    "release",
    "directory",
    "from",
    "path",
    "temp",
];
/// Objects whose `id` is that of a person or a chat.
const PEOPLE: &[&str] = &["from", "sender", "chat"];
/// A message may hold its content once more, as its provider wants it back, often signed. It is ignored under another key.
const PROVIDER_DATA: &str = "opaque";
/// Members whose value a line is about: with one of them, all texts of a line belong to its session.
const WHOLE_LINE_MEMBERS: &[&str] = &["message", "parts", "sender", "request", "cursor"];
/// Maximum characters of an excerpt before and after the text.
const EXCERPT_CHARS: usize = 24;

/// The object of a search.
#[derive(Clone, Debug)]
pub(super) enum Query {
    /// A text, wherever it occurs.
    Text(String),
    /// Members with these values, and the texts of their lines.
    Members(Vec<Member>),
}

/// A member of a JSON object with a value.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The key of the object around it; any if empty.
    pub(super) parent: &'static str,
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// The occurrences in a file.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Ranges of bytes to overwrite.
    pub(super) ranges: Vec<Range<usize>>,
    /// The number of occurrences in them.
    pub(super) count: usize,
    /// The first one, with the text around it.
    pub(super) excerpt: String,
    /// The number of occurrences in keys and identifiers, which cannot be overwritten.
    pub(super) format_count: usize,
    /// Files with the answers of the runs in the lines found.
    pub(super) outputs: Vec<String>,
}

impl Query {
    /// The occurrences in `bytes`, the content of a file.
    pub(super) fn scan(&self, bytes: &[u8]) -> Scan {
        let mut scan = Scan::default();
        let is_json = |text: &[u8]| {
            text.trim_ascii_start().starts_with(b"{")
                && serde_json::from_slice::<IgnoredAny>(text).is_ok()
        };
        let lines = || bytes.split_inclusive(|byte| *byte == b'\n');
        let is_document = !lines().next().is_some_and(is_json) && is_json(bytes);
        let is_log = !is_document && lines().any(is_json);
        let lines: Vec<&[u8]> = if is_document { vec![bytes] } else { lines().collect() };
        let mut offset = 0;
        for line in lines {
            let chars = written_chars(line);
            match self {
                Self::Text(text) if is_document || is_log => {
                    scan.add_text_of_json(offset, &chars, text);
                }
                Self::Text(text) => {
                    for occurrence in find_text(&chars, text) {
                        scan.add(offset, &chars, occurrence);
                    }
                }
                Self::Members(members) if is_document || is_log => {
                    scan.add_members(offset, &chars, members);
                }
                Self::Members(_) => {}
            }
            offset += line.len();
        }
        scan
    }
}

impl Scan {
    /// Adds the occurrence `occurrence` of a text in `chars`.
    fn add(&mut self, offset: usize, chars: &[WrittenChar], occurrence: Range<usize>) {
        let start = occurrence.start.saturating_sub(EXCERPT_CHARS);
        let end = (occurrence.end + EXCERPT_CHARS).min(chars.len());
        if self.excerpt.is_empty() {
            let text = text_of(&chars[start..end]);
            self.excerpt = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        self.count += 1;
        self.overwrite(offset, &chars[occurrence]);
    }

    fn overwrite(&mut self, offset: usize, chars: &[WrittenChar]) {
        let range = byte_range(chars).map(|range| range.start + offset..range.end + offset);
        self.ranges.extend(range);
    }

    fn add_text_of_json(&mut self, offset: usize, chars: &[WrittenChar], text: &str) {
        let mut provider_data = None;
        let count_before = self.count;
        visit_strings(chars, &mut |string| {
            if string.is_key && string.keys.len() == 1 && text_of(string.chars) == PROVIDER_DATA {
                provider_data = Some(string.chars.to_vec());
            }
            for occurrence in find_text(string.chars, text) {
                if is_format(string) {
                    self.format_count += 1;
                } else {
                    self.add(offset, string.chars, occurrence);
                }
            }
        });
        if let Some(key) = provider_data.filter(|_| self.count > count_before) {
            self.overwrite(offset, &key);
        }
    }

    fn add_members(&mut self, offset: usize, chars: &[WrittenChar], members: &[Member]) {
        let is_sought = |string: &JsonString<'_>| {
            let (parent, key) = string.member();
            !string.is_key
                && !string.is_nested
                && members.iter().any(|member| {
                    member.key == key
                        && (member.parent.is_empty() || member.parent == parent)
                        && text_of(string.chars) == member.value
                })
        };
        let (mut is_found, mut is_whole_line) = (false, false);
        visit_strings(chars, &mut |string| {
            is_found |= is_sought(string);
            let is_member = string.is_key && string.keys.len() == 1;
            is_whole_line |= is_member && WHOLE_LINE_MEMBERS.contains(&&*text_of(string.chars));
        });
        if !is_found {
            return;
        }
        visit_strings(chars, &mut |string| {
            let (_, key) = string.member();
            if is_sought(string) {
                self.add(offset, string.chars, 0..string.chars.len());
            } else if !is_format(string) && (is_whole_line || key == "error") {
                self.overwrite(offset, string.chars);
            } else if key == "output" && !string.is_key {
                self.outputs.push(text_of(string.chars));
            }
        });
    }
}

/// True for a key, and for the value of a member that other lines or programs depend on.
fn is_format(string: &JsonString<'_>) -> bool {
    if string.is_key {
        return true;
    }
    match string.member() {
        _ if string.is_nested => false,
        (parent, "id") => !PEOPLE.contains(&parent),
        // The name of a tool in a call, which later requests repeat.
        ("function", "name") => true,
        (_, key) => FORMAT_MEMBERS.contains(&key),
    }
}

#[cfg(test)]
mod tests {
    use super::{Member, Query};

    /// `content` after the ranges that `query` finds are overwritten, and the occurrences that stay.
    fn overwrite(query: &Query, content: &str) -> (String, usize) {
        let mut bytes = content.as_bytes().to_vec();
        let scan = query.scan(&bytes);
        for range in scan.ranges {
            bytes[range].fill(b'*');
        }
        (String::from_utf8(bytes).unwrap(), scan.format_count)
    }

    #[test]
    fn texts_are_overwritten_and_the_format_stays() {
        let check = |content: &str, expect: &str, kept: usize| {
            assert_eq!(overwrite(&Query::Text("Anna".into()), content), (expect.to_owned(), kept));
        };
        check("- anna is here, \"Anna\".\n", "- **** is here, \"****\".\n", 0);
        check(
            "{\"role\": \"user\", \"content\": \"Anna\"}\n{\"rol",
            "{\"role\": \"user\", \"content\": \"****\"}\n{\"rol",
            0,
        );
        check(
            "{\"_type\": \"metadata\", \"key\": \"t:anna\"}\n",
            "{\"_type\": \"metadata\", \"key\": \"t:anna\"}\n",
            1,
        );
        check(
            "{\n  \"id\": \"anna\",\n  \"from\": {\"id\": \"anna\"}\n}\n",
            "{\n  \"id\": \"anna\",\n  \"from\": {\"id\": \"****\"}\n}\n",
            1,
        );
        // The data that the provider signed is ignored from then on.
        check(
            "{\"content\": \"Anna\", \"opaque\": {\"x\": \"y\"}}\n",
            "{\"content\": \"****\", \"******\": {\"x\": \"y\"}}\n",
            0,
        );
        check(
            "{\"content\": \"Ada\", \"opaque\": {\"x\": \"y\"}}\n",
            "{\"content\": \"Ada\", \"opaque\": {\"x\": \"y\"}}\n",
            0,
        );
    }

    #[test]
    fn lines_of_a_session_lose_their_texts() {
        let members = vec![Member { parent: "", key: "session", value: "t:1".into() }];
        let check = |content: &str, expect: &str| {
            assert_eq!(overwrite(&Query::Members(members.clone()), content).0, expect);
        };
        let others = "{\"session\":\"t:12\",\"error\":\"x\"}\n";
        check(others, others);
        check(
            "{\"session\":\"t:1\",\"model\":\"m\",\"usd\":1}\n",
            "{\"session\":\"***\",\"model\":\"m\",\"usd\":1}\n",
        );
        check(
            "{\"session\":\"t:1\",\"name\":\"n\",\"error\":\"x\"}\n",
            "{\"session\":\"***\",\"name\":\"n\",\"error\":\"*\"}\n",
        );
        check(
            "{\"type\":\"in\",\"message\":{\"id\":\"7\",\"from\":{\"id\":\"9\"},\"text\":\"hi\"},\"session\":\"t:1\"}\n",
            "{\"type\":\"in\",\"message\":{\"id\":\"7\",\"from\":{\"id\":\"*\"},\"text\":\"**\"},\"session\":\"***\"}\n",
        );
    }
}
