//! Search patterns: a regular expression for message text, and a filter for the raw bytes of a session file. No I/O.

use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use regex::{Regex, RegexBuilder, bytes};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;
use regex_syntax::hir::literal::{ExtractKind, Extractor};
use std::ops::Range;

/// A search pattern, matched against single lines.
#[derive(Clone, Debug)]
pub struct SearchPattern {
    regex: Regex,
    /// Byte filter for a line of a session file: if it finds nothing there, `regex` cannot match the message in that
    /// line.
    byte_filter: Option<bytes::Regex>,
}

/// A matching line of a text, or a context line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchLine {
    /// Its index: the number of lines before it.
    pub index: usize,
    pub text: String,
    /// Byte range of the first match; `None` for a context line.
    pub matched: Option<Range<usize>>,
}

impl SearchPattern {
    /// Compiles `pattern`; `is_fixed` makes it a literal text.
    ///
    /// # Errors
    /// Status 2 if `pattern` is not a valid regular expression.
    pub fn new(pattern: &str, is_fixed: bool, ignores_case: bool) -> Result<Self> {
        let source = if is_fixed { regex::escape(pattern) } else { pattern.to_owned() };
        let regex = RegexBuilder::new(&source).case_insensitive(ignores_case).build();
        let regex = regex.map_err(|error| {
            // The first lines of the message draw the position, which does not fit into a one-line message.
            let message = error.to_string();
            let reason = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
            let cause = format!("`{pattern}` is not a valid regular expression: {reason}");
            fail(Exit::Usage, cause).with_hint("`-F` to search for literal text")
        })?;
        let parsed = ParserBuilder::new().case_insensitive(ignores_case).build().parse(&source);
        let byte_filter = parsed.ok().and_then(|parsed| build_byte_filter(&parsed));
        Ok(Self { regex, byte_filter })
    }

    /// True if a line of `text` matches.
    pub(super) fn is_match(&self, text: &str) -> bool {
        text.lines().any(|line| self.regex.is_match(line))
    }

    /// Returns the lines of `text` that match, with `context` lines before and after each.
    pub fn matching_lines(&self, text: &str, context: usize) -> Vec<MatchLine> {
        let lines: Vec<&str> = text.lines().collect();
        let mut matches: Vec<MatchLine> = Vec::new();
        let context_line =
            |index: usize| MatchLine { index, text: lines[index].to_owned(), matched: None };
        for (index, line) in lines.iter().enumerate() {
            let Some(matched) = self.regex.find(line) else {
                continue;
            };
            let matched = Some(matched.range());
            // Do not repeat context lines of the previous match; such a line may itself match.
            let next = matches.last().map_or(0, |last| last.index + 1);
            matches.extend((next.max(index.saturating_sub(context))..index).map(context_line));
            match matches.iter_mut().rfind(|line| line.index == index) {
                Some(existing) => existing.matched = matched,
                None => matches.push(MatchLine { matched, ..context_line(index) }),
            }
            let last = matches.last().map_or(index, |last| last.index);
            let end = index.saturating_add(context).min(lines.len() - 1);
            matches.extend((last + 1..=end).map(context_line));
        }
        matches
    }

    /// The offset of the next candidate at or after `start`: a position within a line of a session file that may match.
    pub(super) fn next_candidate(&self, bytes: &[u8], start: usize) -> Option<usize> {
        match &self.byte_filter {
            Some(filter) => Some(filter.find_at(bytes, start)?.start()),
            None => (start < bytes.len()).then_some(start),
        }
    }
}

/// Builds a filter of literals. At least one of them occurs in the raw bytes of every matching line. Literals are cut to
/// characters that JSON never escapes.
fn build_byte_filter(parsed: &Hir) -> Option<bytes::Regex> {
    let extract = |kind: ExtractKind| -> Option<Vec<String>> {
        let mut extractor = Extractor::new();
        let sequence = extractor.kind(kind).extract(parsed);
        let literals = sequence.literals()?.iter();
        literals.map(|literal| longest_unescaped_part(literal.as_bytes())).collect()
    };
    // The set whose shortest literal is longest has the fewest accidental hits.
    let shortest = |literals: &Vec<String>| literals.iter().map(String::len).min();
    let best = [ExtractKind::Prefix, ExtractKind::Suffix]
        .into_iter()
        .filter_map(extract)
        .filter(|literals| !literals.is_empty())
        .max_by_key(shortest)?;
    let alternatives: Vec<String> = best.iter().map(|literal| regex::escape(literal)).collect();
    bytes::RegexBuilder::new(&alternatives.join("|")).unicode(false).build().ok()
}

/// The longest part of `literal` that JSON does not escape; `None` if there is none.
fn longest_unescaped_part(literal: &[u8]) -> Option<String> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    let parts = literal.split(|byte| !is_plain(byte));
    let part = parts.max_by_key(|part| part.len()).filter(|part| !part.is_empty())?;
    String::from_utf8(part.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::SearchPattern;

    #[test]
    fn a_matching_line_is_a_candidate_in_any_encoding() {
        let check = |pattern: &str, ignores_case: bool, text: &str| {
            let search_pattern = SearchPattern::new(pattern, false, ignores_case).unwrap();
            assert!(!search_pattern.matching_lines(text, 0).is_empty(), "{pattern} {text}");
            let plain = serde_json::to_string(text).unwrap();
            let escape = |letter: char| {
                if letter.is_ascii() {
                    letter.to_string()
                } else {
                    letter
                        .encode_utf16(&mut [0; 2])
                        .iter()
                        .map(|unit| format!("\\u{unit:04x}"))
                        .collect()
                }
            };
            let escaped: String = plain.chars().map(escape).collect();
            for text in [plain, escaped] {
                assert!(
                    search_pattern.next_candidate(text.as_bytes(), 0).is_some(),
                    "{pattern} {text}"
                );
            }
        };
        check("needle", false, "hay needle hay");
        check("needle", true, "hay NEEDLE hay");
        check("kelvin", true, "\u{212a}elvin");
        check("\u{17f}mall", false, "\u{17f}mall");
        check("small", true, "\u{17f}MALL");
        check("caf\u{e9}", false, "a caf\u{e9}");
        check("CAF\u{c9}", true, "a caf\u{e9}");
        check("say \"hi\"", false, "they say \"hi\"");
        check("a\\\\b", false, "a\\b");
        check("\\d+ errors?", false, "found 12 error");
        check("^x$", false, "a\nx\nb");
        check("(foo|bar)baz", false, "barbaz");
        check("a\tb", false, "a\tb");
        check(".", false, "\u{1f642}");
        check("", false, "x");
        check("日本", false, "日本語");
        check("x*", false, "y");
    }

    #[test]
    fn literals_are_searched_in_the_raw_bytes() {
        let check = |pattern: &str, bytes: &str, expect: bool| {
            let search_pattern = SearchPattern::new(pattern, false, false).unwrap();
            assert_eq!(
                search_pattern.next_candidate(bytes.as_bytes(), 0).is_some(),
                expect,
                "{pattern}"
            );
        };
        check("needle", "hay", false);
        check("need.*hay", "hay", false);
        check("[0-9]+ errors", "12 warnings", false);
        check("say \"hi\"", "they say \\\"hi", true);
        check("say \"hi\"", "they do", false);
        check(".*", "", false);
    }

    #[test]
    fn context_lines_are_not_repeated() {
        let text = "0\n1 x\n2\n3 x\n4\n5\n6\n7 x";
        let check = |context: usize, expect: &[(usize, bool)]| {
            let pattern = SearchPattern::new("x", true, false).unwrap();
            let lines = pattern.matching_lines(text, context);
            let actual: Vec<(usize, bool)> =
                lines.iter().map(|line| (line.index, line.matched.is_some())).collect();
            assert_eq!(actual, expect, "{context}");
        };
        check(0, &[(1, true), (3, true), (7, true)]);
        let near = |indexes: std::ops::Range<usize>| -> Vec<(usize, bool)> {
            indexes.map(|index| (index, [1, 3, 7].contains(&index))).collect()
        };
        check(1, &[near(0..5), near(6..8)].concat());
        check(2, &near(0..8));
        check(usize::MAX, &near(0..8));
    }

    #[test]
    fn an_invalid_pattern_gives_a_one_line_error() {
        let error = SearchPattern::new("a(b", false, false).unwrap_err().to_string();
        assert_eq!(error, "`a(b` is not a valid regular expression: unclosed group");
        assert!(SearchPattern::new("a(b", true, false).is_ok());
    }
}
