//! The `edit_file` tool: replaces one text with another. It looks for an exact match first, then ignores differences in
//! line endings, in white space around lines, and in characters that look alike. It never guesses between several matches.

use super::files::Files;
use super::function_tool::FunctionTool;
use super::masked_text::edit_masked;
use super::{CallEffect, ToolError, ToolOutput};
use nanobot_base::diff::Diff;
use nanobot_base::line_search::{
    IgnoredForms, IgnoredSpace, IndentationMap, describe_closest, describe_difference, find_lines,
    find_similar, fold, respell, strip_line_numbers, with_content_of, without_line_number,
};
use nanobot_base::message::{ToolSpec, without_blanks};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

/// Builds the `edit_file` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["path", "old_text", "new_text"], "properties": {
            "path": { "type": "string" },
            "old_text": { "type": "string", "minLength": 1 },
            "new_text": { "type": "string" },
            "replace_all": { "type": "boolean" }
        } }"#,
        )
    };
    let description = "Replace a text in a file; old_text must occur once";
    let spec = ToolSpec::new("edit_file", description, parameters);
    FunctionTool::new(spec, CallEffect::Writes, move |arguments| edit_in_file(&files, arguments))
}

fn edit_in_file(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let (old, new) = (text("old_text"), text("new_text"));
    let replace_all = arguments["replace_all"] == true;
    let mut note = None;
    let (path, before, after) = files.edit(text("path"), |before| {
        let edit = edit_with_keys(before, old, new, replace_all)?;
        if edit.text == before {
            let note = edit.note.map(|note| format!(" ({note})")).unwrap_or_default();
            return Err(format!("old_text and new_text are the same{note}; nothing was changed"));
        }
        note = edit.note;
        Ok(edit.text)
    })?;
    let diff = Diff::new(&before, &after).unified(2);
    let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
    let text = format!("edited {}{note}\n{}", path.display(), diff.trim_end());
    Ok(ToolOutput { diff: Some(diff), ..files.add_instructions(text, &path).into() })
}

/// A text in which another was replaced.
#[derive(Debug)]
pub struct TextEdit {
    pub text: String,
    /// A note for the model on a match that was not exact.
    pub note: Option<String>,
}

/// A comparison by which a text is found in a file, from the strictest to the loosest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Exact,
    /// Any part of the text, apart from ignored differences.
    Part(IgnoredForms),
    /// Whole lines, without the white space around them.
    Lines,
    /// Like [`Self::Lines`], and apart from characters that look alike.
    SimilarLines,
}

impl Comparison {
    const STEPS: [Self; 5] = [
        Self::Exact,
        Self::Part(IgnoredForms::LineEnds),
        Self::Lines,
        Self::Part(IgnoredForms::LookAlikes),
        Self::SimilarLines,
    ];

    /// The ranges of `text` that match `old`; they do not overlap.
    fn find(self, text: &str, old: &str) -> Vec<Range<usize>> {
        match self {
            Self::Exact => {
                text.match_indices(old).map(|(start, part)| start..start + part.len()).collect()
            }
            Self::Part(ignored) => find_similar(text, old, ignored),
            Self::Lines => find_loosely(text, old, IgnoredForms::LineEnds),
            Self::SimilarLines => find_loosely(text, old, IgnoredForms::LookAlikes),
        }
    }

    /// Adapts `new` to replace `original`, which is `old` as the file `text` has it at `range`.
    ///
    /// # Errors
    /// Text for the model: the indentation of a line is unclear.
    fn adapt(
        self,
        new: &str,
        old: &str,
        text: &str,
        range: &Range<usize>,
    ) -> Result<String, String> {
        let original = &text[range.clone()];
        match self {
            Self::Exact => Ok(match_line_endings(new, text, range.start)),
            Self::Part(ignored) => {
                Ok(match_line_endings(&respell(new, old, original, ignored), text, range.start))
            }
            Self::Lines => fit_replacement(new, old, original),
            Self::SimilarLines => {
                let old = old.trim_matches(['\n', '\r']);
                let pairs = old.lines().zip(original.lines());
                let old_in_file: Vec<String> =
                    pairs.map(|(line, original)| with_content_of(line, original)).collect();
                let old_in_file = old_in_file.join("\n");
                let new = respell(new, old, &old_in_file, IgnoredForms::LookAlikes);
                fit_replacement(&new, &old_in_file, original)
            }
        }
    }
}

/// Replaces `old` with `new` in `text`. Both may have masks in place of keys.
///
/// # Errors
/// Text for the model: `old` does not occur, or more than once without `replace_all`, or a key cannot be put back.
pub fn edit_with_keys(
    text: &str,
    old: &str,
    new: &str,
    replace_all: bool,
) -> Result<TextEdit, String> {
    let note = RefCell::new(None);
    let text = edit_masked(text, |text| {
        let edit = edit(text, old, new, replace_all)?;
        note.replace(edit.note);
        Ok(edit.text)
    })?;
    Ok(TextEdit { text, note: note.into_inner() })
}

/// Replaces `old` with `new` in `text`. Line numbers of `read_file` before the lines of `old` are left out if `old` does not
/// occur with them.
///
/// # Errors
/// Text for the model: `old` does not occur, or more than once without `replace_all`.
fn edit(text: &str, old: &str, new: &str, replace_all: bool) -> Result<TextEdit, String> {
    let find = |old: &str| {
        let mut attempts = Comparison::STEPS.iter().map(|step| (*step, step.find(text, old)));
        attempts.find(|(_, ranges)| !ranges.is_empty())
    };
    if let Some((comparison, ranges)) = find(old) {
        return replace(text, old, new, replace_all, comparison, &ranges);
    }
    let Some(old) = strip_line_numbers(old) else {
        return Err(describe_nearest(text, old));
    };
    let Some((comparison, ranges)) = find(&old) else {
        return Err(describe_nearest(text, &old));
    };
    let new: String = new.split_inclusive('\n').map(without_line_number).collect();
    let mut edit = replace(text, &old, &new, replace_all, comparison, &ranges)?;
    let note = "without the line numbers of read_file, which are not in the file";
    edit.note = Some(edit.note.map_or(note.to_owned(), |other| format!("{note}; {other}")));
    Ok(edit)
}

/// Replaces `old` at `ranges`.
fn replace(
    text: &str,
    old: &str,
    new: &str,
    replace_all: bool,
    comparison: Comparison,
    ranges: &[Range<usize>],
) -> Result<TextEdit, String> {
    let line_number = |range: &Range<usize>| text[..range.start].matches('\n').count() + 1;
    let is_similar =
        matches!(comparison, Comparison::SimilarLines | Comparison::Part(IgnoredForms::LookAlikes));
    if ranges.len() > 1 && !replace_all {
        let lines: Vec<String> =
            ranges.iter().take(10).map(|range| line_number(range).to_string()).collect();
        let exception = if is_similar { " apart from characters that look alike" } else { "" };
        return Err(format!(
            "old_text occurs {} times{exception}, at lines {}; include more surrounding text, or set replace_all",
            ranges.len(),
            lines.join(", ")
        ));
    }
    let mut out = String::with_capacity(text.len() + new.len());
    let mut end = 0;
    for range in ranges {
        out.push_str(&text[end..range.start]);
        out.push_str(&comparison.adapt(new, old, text, range)?);
        end = range.end;
    }
    out.push_str(&text[end..]);
    let changed_range = if is_similar { ranges.first() } else { None };
    let note = changed_range.and_then(|range| {
        let before = text[..range.start].rsplit('\n').next().unwrap_or_default();
        let columns = std::iter::once(before.chars().count()).chain(std::iter::repeat(0));
        let old_lines = old.trim_start_matches(['\n', '\r']).lines().zip(columns);
        let pairs = text[range.clone()].lines().zip(old_lines);
        (line_number(range)..).zip(pairs).find_map(|(number, (line, (old_line, columns)))| {
            let difference = describe_difference(line, old_line, "old_text", columns)?;
            Some(format!(
                "line {number} {difference}; the file keeps its characters outside of the change"
            ))
        })
    });
    Ok(TextEdit { text: out, note })
}

/// Converts the line endings of `new` to those of `text`; if `text` has both kinds, to that of the line at `position`.
fn match_line_endings(new: &str, text: &str, position: usize) -> String {
    let count = |ends: &str| text.matches(ends).count();
    let is_windows = match count("\r\n") {
        0 => false,
        windows if windows == count("\n") => true,
        _ if new.contains("\r\n") => false,
        _ => match text[position..].find('\n') {
            Some(end) => text[..position + end].ends_with('\r'),
            None => {
                text[..position].trim_end_matches(|character| character != '\n').ends_with("\r\n")
            }
        },
    };
    if is_windows { new.replace("\r\n", "\n").replace('\n', "\r\n") } else { new.to_owned() }
}

/// Finds `old` in `text` line by line, apart from white space around each line and `ignored` differences. The matches do not
/// overlap.
fn find_loosely(text: &str, old: &str, ignored: IgnoredForms) -> Vec<Range<usize>> {
    let old = fold(old, ignored);
    let old_lines: Vec<&str> = old.trim_matches(['\n', '\r']).lines().collect();
    if old_lines.iter().all(|line| line.trim().is_empty()) {
        return Vec::new();
    }
    let mut ranges = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        ranges.push(offset..offset + line.trim_end_matches(['\n', '\r']).len());
        offset += line.len();
    }
    let lines: Vec<Cow<'_, str>> =
        ranges.iter().map(|range| fold(&text[range.clone()], ignored)).collect();
    let lines: Vec<&str> = lines.iter().map(|line| &**line).collect();
    let mut matches: Vec<Range<usize>> = Vec::new();
    for first in find_lines(&lines, &old_lines, IgnoredSpace::Surrounding) {
        let start = ranges[first].start;
        if matches.last().is_none_or(|last| last.end <= start) {
            matches.push(start..ranges[first + old_lines.len() - 1].end);
        }
    }
    matches
}

/// Adapts `new` to replace `original`, which matched `old` loosely: takes over the line endings of `original`, and its
/// indentation if the model left it out or used a different one.
///
/// # Errors
/// Text for the model: the indentation of a line is unclear.
fn fit_replacement(new: &str, old: &str, original: &str) -> Result<String, String> {
    let old_lines: Vec<&str> = old.trim_matches(['\n', '\r']).lines().collect();
    let lines: Vec<&str> = original.lines().collect();
    let indentations = IndentationMap::new(&old_lines, &lines);
    let new = new.trim_end_matches(['\n', '\r']);
    let reindented = new.lines().map(|line| indentations.reindent(line));
    let reindented = reindented.collect::<Result<Vec<_>, _>>();
    let line_end = if original.contains("\r\n") { "\r\n" } else { "\n" };
    let reindented = reindented.map_err(|error| format!("old_text: {error}\n{original}"))?;
    Ok(reindented.join(line_end))
}

/// The part of `text` that is most similar to `old`, so that the model can see its mistake.
fn describe_nearest(text: &str, old: &str) -> String {
    match describe_closest(text, old, "old_text") {
        Some(closest) => format!("old_text was not found. {closest}"),
        None => "old_text was not found, and nothing is similar; read the file again".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::edit;

    #[test]
    fn edits() {
        let check = |text: &str, old: &str, new: &str, expect: &str| {
            let edited = edit(text, old, new, false).map(|edit| edit.text);
            assert_eq!(edited.as_deref(), Ok(expect), "{text:?} {old:?}");
        };
        check("one two three", "two", "2", "one 2 three");
        check("a\nb\nc\n", "b\n", "", "a\nc\n");
        // The file's line endings are kept.
        check("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n");
        check("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n");
        check("a\r\nb\n", "b", "x\ny", "a\r\nx\ny\n");
        check("a\r\nb\n", "a", "x\ny", "x\r\ny\r\nb\n");
        check("a\r\nb\nc\r\nd", "d", "x\ny", "a\r\nb\nc\r\nx\r\ny");
        check("one two\r\nthree four\r\n", "two\nthree", "2\n3", "one 2\r\n3 four\r\n");
        check("a\r\nb\r\nc\r\n", "b\n", "", "a\r\nc\r\n");
        check("a\0b\n", "b", "c", "a\0c\n");
        // White space around lines is ignored, and the file's indentation is carried over.
        check(
            "    if x:\n        y()\n",
            "if x:\n    y()",
            "if z:\n    y()",
            "    if z:\n        y()\n",
        );
        check("fn a() {  \n}\n", "fn a() {\n}", "fn b() {\n}", "fn b() {\n}\n");
        check("\tone\n\ttwo\n", "\none\ntwo\n", "one\n2\n", "\tone\n\t2\n");
        check(
            "def f():\n\tif x:\n\t\ty = 1\n\t\tz = 2\n",
            "    if x:\n        y = 1\n",
            "    if x:\n        if z:\n            y = 10\n",
            "def f():\n\tif x:\n\t\tif z:\n\t\t\ty = 10\n\t\tz = 2\n",
        );
        check("\u{feff}a b", "a", "x", "\u{feff}x b");
        check("no newline", "line", "end", "no newend");
    }

    #[test]
    fn replace_all() {
        assert_eq!(edit("a b a", "a", "x", true).unwrap().text, "x b x");
        assert_eq!(edit("aaa", "aa", "b", true).unwrap().text, "ba");
        let edited = edit("a\u{a0}b. a\u{202f}b.", "a b", "a c", true).unwrap();
        assert_eq!(edited.text, "a\u{a0}c. a\u{202f}c.");
    }

    #[test]
    fn characters_that_look_alike() {
        let check = |text: &str, old: &str, new: &str, expect: &str, note: &str| {
            let edited = edit(text, old, new, false).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(edited.text, expect, "{text:?} {old:?}");
            let actual = edited.note.unwrap_or_default();
            assert!(actual.contains(note) && actual.is_empty() == note.is_empty(), "{actual}");
        };
        check(
            "x\n10\u{a0}km \u{2014} \u{201c}far\u{201d}\n",
            "10 km - \"far\"",
            "12 km - \"far\"",
            "x\n12\u{a0}km \u{2014} \u{201c}far\u{201d}\n",
            "line 2 differs in U+00A0 at column 3",
        );
        // With another indentation, and with CRLF.
        check(
            "\tif a:\r\n\t\tsay(\u{2018}b\u{2019})\r\n",
            "if a:\n    say('b')",
            "if a:\n    say('b', 1)",
            "\tif a:\r\n\t\tsay(\u{2018}b\u{2019}, 1)\r\n",
            "line 2 differs in U+2018",
        );
        check(
            "cafe\u{301} au lait",
            "caf\u{e9} au",
            "caf\u{e9} ou",
            "cafe\u{301} ou lait",
            "U+0301",
        );
        check("a\u{200b}b c", "ab c", "ab d", "a\u{200b}b d", "U+200B");
        // An exact match comes first.
        check("a\u{a0}b, a b", "a b", "c", "a\u{a0}b, c", "");
        check("a\u{a0}b, a b", "a\u{a0}b", "a b", "a b, a b", "");
        // Line numbers of read_file.
        let numbers = "line numbers of read_file";
        check("one\n  two\n", "2|   two", "2|   2", "one\n  2\n", numbers);
        check("one\ntwo\nthree\n", "2| two\n3| three\n", "2\n3| 3\n", "one\n2\n3\n", numbers);
        check("one\n2| two\n", "2| two", "2| 2", "one\n2| 2\n", "");
    }

    #[test]
    fn errors_show_the_mismatch() {
        let check = |text: &str, old: &str, words: &[&str]| {
            let error = edit(text, old, "  new", false).unwrap_err();
            for word in words {
                assert!(error.contains(word), "no {word:?} in {error}");
            }
        };
        check("a\nb\na\n", "a", &["occurs 2 times, at lines 1, 3", "replace_all"]);
        check(
            "let value = 10;\n",
            "let value = 12;",
            &["The closest match is line 1", "-let value = 12;", "+let value = 10;"],
        );
        check(
            "\tif x:\n\t\ty\n",
            "if x:\n    y",
            &["indented differently in the file, and \"  new\" cannot", "\n\tif x:\n\t\ty"],
        );
        check("something else\n", "zzz qqq", &["nothing is similar"]);
        check(
            "a\u{a0}b\na\u{a0}b\n",
            "a b",
            &["occurs 2 times apart from characters that look alike, at lines 1, 2"],
        );
        check(
            "one\u{a0}two\nthree\n",
            "one two\nfour",
            &["The closest match is line 1", "Line 1 differs in U+00A0 at column 4"],
        );
        check("one\ntwo\n", "2| twa", &["The closest match is line 2", "-twa", "+two"]);
        check("", "a", &["nothing is similar"]);
    }
}
