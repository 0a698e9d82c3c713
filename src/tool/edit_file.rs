//! The `edit_file` tool: replaces one text with another. It looks for an exact match first, then ignores differences in
//! line endings and in white space around lines. It never guesses between several matches.

use super::files::Files;
use super::function_tool::FunctionTool;
use super::masked_text::edit_masked;
use super::{CallEffect, ToolError, ToolOutput};
use crate::diff::Diff;
use crate::line_search::{IgnoredSpace, IndentationMap, describe_closest, find_lines};
use crate::message::{ToolSpec, without_blanks};
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;

/// Builds the `edit_file` tool.
pub fn tool(files: Arc<Files>) -> FunctionTool {
    let spec = ToolSpec {
        name: "edit_file".into(),
        description: "Replace a text in a file; old_text must occur once".into(),
        parameters: const { &without_blanks(br#"{ "type": "object", "required": ["path", "old_text", "new_text"], "properties": {
            "path": { "type": "string", "minLength": 1 },
            "old_text": { "type": "string", "minLength": 1 },
            "new_text": { "type": "string" },
            "replace_all": { "type": "boolean" }
        } }"#) }.into(),
    };
    FunctionTool::new(spec, CallEffect::Writes, move |arguments| edit_in_file(&files, arguments))
}

fn edit_in_file(files: &Files, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let text = |key: &str| arguments[key].as_str().unwrap_or_default();
    let (old, new) = (text("old_text"), text("new_text"));
    let all = arguments["replace_all"] == true;
    let (place, before, after) =
        files.edit(text("path"), |before| match edit_with_keys(before, old, new, all)? {
            after if after == before => {
                Err("old_text and new_text are the same; nothing was changed".into())
            }
            after => Ok(after),
        })?;
    let diff = Diff::new(&before, &after).unified(2);
    let text = format!("edited {}\n{}", place.display(), diff.trim_end());
    Ok(ToolOutput { diff: Some(diff), ..files.add_instructions(text, &place).into() })
}

/// Replaces `old` with `new` in `text`. Both may have masks in place of keys.
///
/// # Errors
/// Text for the model: `old` does not occur, or more than once and not `all` is true, or a key cannot be put back.
pub(crate) fn edit_with_keys(
    text: &str,
    old: &str,
    new: &str,
    all: bool,
) -> Result<String, String> {
    edit_masked(text, |text| edit(text, old, new, all))
}

/// Replaces `old` with `new` in `text`.
fn edit(text: &str, old: &str, new: &str, all: bool) -> Result<String, String> {
    let exact: Vec<Range<usize>> =
        text.match_indices(old).map(|(at, found)| at..at + found.len()).collect();
    let is_exact = !exact.is_empty();
    let places = if is_exact { exact } else { find_loosely(text, old) };
    match places.len() {
        0 => return Err(describe_nearest(text, old)),
        1 => {}
        _ if all => {}
        count => {
            let line =
                |place: &Range<usize>| (text[..place.start].matches('\n').count() + 1).to_string();
            let lines: Vec<String> = places.iter().take(10).map(line).collect();
            return Err(format!(
                "old_text occurs {count} times, at lines {}; include more surrounding text, or set replace_all",
                lines.join(", ")
            ));
        }
    }
    let mut out = String::with_capacity(text.len() + new.len());
    let mut end = 0;
    for place in places {
        out.push_str(&text[end..place.start]);
        out.push_str(&match is_exact {
            true => match_line_endings(new, text),
            false => fit_replacement(new, old, &text[place.clone()])?,
        });
        end = place.end;
    }
    out.push_str(&text[end..]);
    Ok(out)
}

/// Converts the line endings of `new` to those of `text`, if `text` uses only one kind.
fn match_line_endings(new: &str, text: &str) -> String {
    let count = |ends: &str| text.matches(ends).count();
    match count("\r\n") {
        0 => new.to_owned(),
        windows if windows == count("\n") => new.replace("\r\n", "\n").replace('\n', "\r\n"),
        _ => new.to_owned(),
    }
}

/// Finds `old` in `text` line by line, ignoring white space around each line. The matches do not overlap.
fn find_loosely(text: &str, old: &str) -> Vec<Range<usize>> {
    let wanted: Vec<&str> = old.trim_matches(['\n', '\r']).lines().collect();
    if wanted.iter().all(|line| line.trim().is_empty()) {
        return Vec::new();
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        ranges.push(at..at + line.trim_end_matches(['\n', '\r']).len());
        at += line.len();
    }
    let lines: Vec<&str> = ranges.iter().map(|range| &text[range.clone()]).collect();
    let mut found: Vec<Range<usize>> = Vec::new();
    for first in find_lines(&lines, &wanted, IgnoredSpace::Surrounding) {
        let start = ranges[first].start;
        if found.last().is_none_or(|last| last.end <= start) {
            found.push(start..ranges[first + wanted.len() - 1].end);
        }
    }
    found
}

/// Adapts `new` to replace `found`, which matched `old` loosely: takes over the line endings of `found`, and its
/// indentation if the model left it out or used a different one.
///
/// # Errors
/// Text for the model: the indentation of a line is unclear.
fn fit_replacement(new: &str, old: &str, found: &str) -> Result<String, String> {
    let wanted: Vec<&str> = old.trim_matches(['\n', '\r']).lines().collect();
    let lines: Vec<&str> = found.lines().collect();
    let indentations = IndentationMap::new(&wanted, &lines);
    let new = new.trim_end_matches(['\n', '\r']);
    let moved = new.lines().map(|line| indentations.reindent(line));
    let moved = moved.collect::<Result<Vec<_>, _>>();
    let end = if found.contains("\r\n") { "\r\n" } else { "\n" };
    let moved = moved.map_err(|error| format!("old_text: {error}\n{found}"))?;
    Ok(moved.join(end))
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
            assert_eq!(edit(text, old, new, false).as_deref(), Ok(expect), "{text:?} {old:?}");
        };
        check("one two three", "two", "2", "one 2 three");
        check("a\nb\nc\n", "b\n", "", "a\nc\n");
        // The file's line endings are kept.
        check("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n");
        check("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n");
        check("a\r\nb\n", "b", "x\ny", "a\r\nx\ny\n");
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
        assert_eq!(edit("a b a", "a", "x", true).unwrap(), "x b x");
        assert_eq!(edit("aaa", "aa", "b", true).unwrap(), "ba");
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
        check("", "a", &["nothing is similar"]);
    }
}
