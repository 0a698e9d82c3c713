//! The occurrences of a text or of identifiers in the content of a file, as ranges of bytes. No I/O.
//!
//! A text is looked for in all forms that it can be written in. Only in files of a JSON format is it asked what a string is for:
//! keys, numbers and the members that other lines depend on stay there. In JSON within a string nothing is a format.

use nanobot_base::written_text::{JsonToken, SearchText, TokenKind, WrittenText};
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
/// Members with JSON whose outermost keys others depend on: the arguments of a call, and the line of an answer.
const NESTED_FORMATS: &[&str] = &["arguments", ANSWER_LINE];
/// The answer of a named pipe, as it was printed.
const ANSWER_LINE: &str = "plain";
/// Members whose value a line is about: with one of them, all texts of a line belong to its session.
const WHOLE_LINE_MEMBERS: &[&str] = &["message", "parts", "sender", "request", "cursor"];
/// Maximum characters of an excerpt before and after the text.
const EXCERPT_CHARS: usize = 24;
/// The bytes that replace a text, and a digit of a number in JSON.
pub(super) const TEXT_FILLER: u8 = b'*';
pub(super) const DIGIT_FILLER: u8 = b'1';

/// The object of a search.
#[derive(Clone, Debug)]
pub(super) enum Query {
    /// A text, wherever it occurs.
    Text(SearchText),
    /// Members with these values, and the texts of their lines.
    Members(Vec<Member>),
}

/// A member of a JSON object with a value.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The key of the object around it; `None` for any.
    pub(super) parent: Option<&'static str>,
    pub(super) key: &'static str,
    pub(super) value: String,
}

/// A part of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    pub(super) bytes: &'a [u8],
    /// The position of its first byte in the file.
    pub(super) offset: usize,
    /// The number of bytes at its start that are the end of the chunk before.
    pub(super) repeated: usize,
    /// True for a line or a document of a JSON format.
    pub(super) may_be_json: bool,
}

/// The occurrences in a file.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Ranges of bytes to overwrite.
    pub(super) ranges: Vec<Range<usize>>,
    /// Ranges whose digits are to be replaced: numbers in JSON that stays valid.
    pub(super) numbers: Vec<Range<usize>>,
    /// The number of occurrences in them.
    pub(super) count: usize,
    /// The first one, with the text around it.
    pub(super) excerpt: String,
    /// The number of occurrences in keys, identifiers and numbers of the format, which cannot be overwritten.
    pub(super) format_count: usize,
    /// Files with the answers of the runs in the lines found.
    pub(super) outputs: Vec<String>,
}

impl Query {
    /// Adds the occurrences in `chunk` to `scan`.
    pub(super) fn scan(&self, chunk: Chunk<'_>, scan: &mut Scan) {
        let text = WrittenText::new(chunk.bytes);
        let is_json = chunk.may_be_json && text.is_json();
        match self {
            Self::Text(search) if is_json => scan.add_text_of_json(chunk.offset, &text, search),
            Self::Text(search) => {
                let TextOccurrences { mut ranges, excerpt } = find(&text, search, TEXT_FILLER);
                ranges.retain(|range| range.end > chunk.repeated);
                scan.add(chunk.offset, TextOccurrences { ranges, excerpt });
            }
            Self::Members(members) if is_json => scan.add_members(chunk.offset, &text, members),
            Self::Members(_) => {}
        }
    }
}

/// The occurrences of a text, as ranges of the source.
#[derive(Default)]
struct TextOccurrences {
    ranges: Vec<Range<usize>>,
    /// The first one, with the text around it.
    excerpt: String,
}

/// Finds a text as it is and below any number of escapes. What was overwritten with `filler` is none.
fn find(text: &WrittenText<'_>, search: &SearchText, filler: u8) -> TextOccurrences {
    let mut occurrences = TextOccurrences::default();
    let mut add = |form: &WrittenText<'_>| {
        let bytes = form.bytes();
        let is_filler = |byte: &u8| *byte == filler || byte.is_ascii_whitespace();
        for range in search.find(bytes) {
            if bytes[range.clone()].iter().all(is_filler) {
                continue;
            }
            if occurrences.excerpt.is_empty() {
                occurrences.excerpt = excerpt(bytes, &range);
            }
            occurrences.ranges.push(form.source_range(&range));
        }
    };
    add(text);
    let mut form = text.unescaped();
    while let Some(unescaped) = form {
        add(&unescaped);
        form = unescaped.unescaped();
    }
    let ranges = &mut occurrences.ranges;
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let overlaps = next.start < range.end;
        if overlaps {
            range.end = range.end.max(next.end);
        }
        overlaps
    });
    occurrences
}

/// The line around `range`, as far as it is near.
fn excerpt(bytes: &[u8], range: &Range<usize>) -> String {
    // A character has at most four bytes.
    let first = range.start.saturating_sub(4 * EXCERPT_CHARS);
    let last = bytes.len().min(range.end + 4 * EXCERPT_CHARS);
    let before = String::from_utf8_lossy(&bytes[first..range.start]);
    let before = before.rsplit('\n').next().unwrap_or_default();
    let skipped = before.chars().count().saturating_sub(EXCERPT_CHARS);
    let before: String = before.chars().skip(skipped).collect();
    let after = String::from_utf8_lossy(&bytes[range.end..last]);
    let after = after.split('\n').next().unwrap_or_default();
    let after: String = after.chars().take(EXCERPT_CHARS).collect();
    let text = format!("{before}{}{after}", String::from_utf8_lossy(&bytes[range.clone()]));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Scan {
    fn add(&mut self, offset: usize, occurrences: TextOccurrences) {
        let TextOccurrences { ranges, excerpt } = occurrences;
        if self.excerpt.is_empty() && !ranges.is_empty() {
            self.excerpt = excerpt;
        }
        self.count += ranges.len();
        self.ranges.extend(ranges.into_iter().map(|range| shift(range, offset)));
    }

    fn add_text_of_json(&mut self, offset: usize, text: &WrittenText<'_>, search: &SearchText) {
        let mut provider_data = None;
        let count_before = self.count;
        text.visit_json(&mut |token| {
            let is_member = token.kind == TokenKind::Key && token.keys.len() == 1;
            if is_member && token.text.bytes() == PROVIDER_DATA.as_bytes() {
                provider_data = Some(whole(token));
            }
            let is_number = token.kind == TokenKind::Number;
            let filler = if is_number { DIGIT_FILLER } else { TEXT_FILLER };
            let occurrences = find(token.text, search, filler);
            match token.kind {
                TokenKind::Number if token.depth == 0 => {
                    self.format_count += usize::from(occurrences.ranges == [whole(token)]);
                }
                TokenKind::Number => {
                    self.count += occurrences.ranges.len();
                    let ranges = occurrences.ranges.into_iter();
                    self.numbers.extend(ranges.map(|range| shift(range, offset)));
                }
                _ if is_format(token) => self.format_count += occurrences.ranges.len(),
                _ => self.add(offset, occurrences),
            }
        });
        if let Some(key) = provider_data.filter(|_| self.count > count_before) {
            self.ranges.push(shift(key, offset));
        }
    }

    fn add_members(&mut self, offset: usize, text: &WrittenText<'_>, members: &[Member]) {
        let is_sought = |token: &JsonToken<'_>| {
            let (parent, key) = token.member();
            token.kind == TokenKind::String
                && token.depth == 0
                && members.iter().any(|member| {
                    member.key == key
                        && member.parent.is_none_or(|expected| expected == parent)
                        && token.text.bytes() == member.value.as_bytes()
                })
        };
        let (mut is_found, mut is_whole_line) = (false, false);
        text.visit_json(&mut |token| {
            is_found |= is_sought(token);
            let is_member = token.kind == TokenKind::Key && token.keys.len() == 1;
            is_whole_line |= is_member
                && WHOLE_LINE_MEMBERS.iter().any(|key| key.as_bytes() == token.text.bytes());
        });
        if !is_found {
            return;
        }
        text.visit_json(&mut |token| {
            let (_, key) = token.member();
            let range = shift(whole(token), offset);
            if is_sought(token) {
                self.count += 1;
                self.ranges.push(range);
            } else if !is_format(token) && (is_whole_line || key == "error") {
                let is_number = token.kind == TokenKind::Number;
                if is_number { &mut self.numbers } else { &mut self.ranges }.push(range);
            } else if key == "output" && token.kind == TokenKind::String {
                self.outputs.push(String::from_utf8_lossy(token.text.bytes()).into_owned());
            }
        });
    }
}

/// The bytes of the source that the token is written with.
fn whole(token: &JsonToken<'_>) -> Range<usize> {
    token.text.source_range(&(0..token.text.bytes().len()))
}

fn shift(range: Range<usize>, offset: usize) -> Range<usize> {
    range.start + offset..range.end + offset
}

/// True for a key or a number, and for the value of a member that other lines or programs depend on. In JSON within a string, only
/// what others read there is a format.
fn is_format(token: &JsonToken<'_>) -> bool {
    let is_nested_format = |parent| token.depth == 1 && NESTED_FORMATS.contains(&parent);
    match token.kind {
        TokenKind::Key => token.depth == 0 || is_nested_format(token.parent_of_key()),
        TokenKind::Number => token.depth == 0,
        TokenKind::String => match token.member() {
            (parent, _) if token.depth > 0 && !(token.depth == 1 && parent == ANSWER_LINE) => false,
            (parent, "id") => !PEOPLE.contains(&parent),
            // The name of a tool in a call, which later requests repeat.
            ("function", "name") => true,
            (_, key) => FORMAT_MEMBERS.contains(&key),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunk, DIGIT_FILLER, Member, Query, Scan, TEXT_FILLER};
    use nanobot_base::written_text::SearchText;

    /// `content` after the ranges that `query` finds are overwritten, and the occurrences that stay.
    fn overwrite(query: &Query, content: &str, may_be_json: bool) -> (String, usize) {
        let mut bytes = content.as_bytes().to_vec();
        let mut scan = Scan::default();
        let mut offset = 0;
        for line in content.split_inclusive('\n') {
            let chunk = Chunk { bytes: line.as_bytes(), offset, repeated: 0, may_be_json };
            query.scan(chunk, &mut scan);
            offset += line.len();
        }
        for range in scan.ranges {
            bytes[range].fill(TEXT_FILLER);
        }
        for range in scan.numbers {
            bytes[range]
                .iter_mut()
                .filter(|byte| byte.is_ascii_digit())
                .for_each(|byte| *byte = DIGIT_FILLER);
        }
        (String::from_utf8(bytes).unwrap(), scan.format_count)
    }

    fn text(text: &str) -> Query {
        Query::Text(SearchText::new(text))
    }

    #[test]
    fn texts_are_overwritten_and_the_format_stays() {
        let check = |content: &str, expect: &str, kept: usize| {
            assert_eq!(overwrite(&text("Anna"), content, true), (expect.to_owned(), kept));
        };
        check("- anna is here, \"Anna\".\n", "- **** is here, \"****\".\n", 0);
        // A line that is JSON says nothing about the others.
        check("- anna\n{\"indent\": 2}\nAnna", "- ****\n{\"indent\": 2}\n****", 0);
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
            "{\"id\": \"anna\",  \"from\": {\"id\": \"anna\"}}\n",
            "{\"id\": \"anna\",  \"from\": {\"id\": \"****\"}}\n",
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
        // In JSON within a string, keys are a text too; those of arguments are the tool's.
        check(
            r#"{"content": "{\"Anna\": {\"anna\": 1}}", "arguments": "{\"anna\": {\"Anna\": 2}}"}"#,
            r#"{"content": "{\"****\": {\"****\": 1}}", "arguments": "{\"anna\": {\"****\": 2}}"}"#,
            1,
        );
        // Lines and words around JSON.
        check(
            r#"{"content": "1| {\"a\": \"\\u0041nna\"}\nx: {\"\\u0061nn\\u0061\": 1}"}"#,
            r#"{"content": "1| {\"a\": \"**********\"}\nx: {\"****************\": 1}"}"#,
            0,
        );
    }

    #[test]
    fn a_text_has_no_format() {
        let check = |content: &str, expect: &str| {
            assert_eq!(overwrite(&text("Anna"), content, false), (expect.to_owned(), 0));
        };
        check("{\"Anna\": \"anna\"}\n", "{\"****\": \"****\"}\n");
        check(
            "{\"role\": \"user\", \"content\": \"\\u0041nna and",
            "{\"role\": \"user\", \"content\": \"********* and",
        );
    }

    #[test]
    fn numbers_are_overwritten_where_they_are_a_text() {
        let check = |content: &str, expect: &str, kept: usize| {
            assert_eq!(overwrite(&text("4711"), content, true), (expect.to_owned(), kept));
        };
        check(
            r#"{"content": "{\"pin\": 4711, \"x\": -4711.5}"}"#,
            r#"{"content": "{\"pin\": 1111, \"x\": -1111.5}"}"#,
            0,
        );
        check(r#"{"content": "pin 4711"}"#, r#"{"content": "pin ****"}"#, 0);
        check(r#"{"at": 4711, "to": 47110}"#, r#"{"at": 4711, "to": 47110}"#, 1);
        // An overwritten text is not found again.
        let stars = r#"{"content": "**** {\"pin\": 1111}"}"#;
        assert_eq!(overwrite(&text("****"), stars, true), (stars.to_owned(), 0));
        let ones = r#"{"content": "{\"pin\": 1111}"}"#;
        assert_eq!(overwrite(&text("1111"), ones, true), (ones.to_owned(), 0));
    }

    #[test]
    fn lines_of_a_session_lose_their_texts() {
        let members = vec![Member { parent: None, key: "session", value: "t:1".into() }];
        let check = |content: &str, expect: &str| {
            assert_eq!(overwrite(&Query::Members(members.clone()), content, true).0, expect);
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
        check(
            r#"{"message":{"text":"{\"pin\": 4711}"},"session":"t:1"}"#,
            r#"{"message":{"text":"{\"***\": 1111}"},"session":"***"}"#,
        );
    }
}
