//! Line-by-line unified diffs of two texts. No I/O.

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};
use std::ops::Range;
use unicode_normalization::char::is_combining_mark;

/// The differences between two texts.
pub struct Diff<'a> {
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    operations: Vec<DiffOp>,
}

impl<'a> Diff<'a> {
    /// Compares two texts line by line.
    pub fn new(old: &'a str, new: &'a str) -> Self {
        let [old, new] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
        let operations = capture_diff_slices(Algorithm::Histogram, &old, &new);
        Self { old, new, operations }
    }

    /// Similarity from 0 to 1; 1 if the texts are equal.
    pub fn similarity(&self) -> f64 {
        let lines = self.old.len() + self.new.len();
        let unchanged: usize = common_ranges(&self.operations).map(|(old, _)| old.len()).sum();
        match lines {
            0 => 1.0,
            lines => (2 * unchanged) as f64 / lines as f64,
        }
    }

    /// Formats a unified diff with `context_lines` lines of context; empty if the texts are equal. Adds a missing final
    /// newline.
    pub fn unified(&self, context_lines: usize) -> String {
        self.format_hunks(context_lines, "\n")
    }

    /// Formats the hunks of a patch, from which both texts can be restored byte for byte: a marker stands for a missing final newline.
    pub fn patch_hunks(&self, context_lines: usize) -> String {
        self.format_hunks(context_lines, "\n\\ No newline at end of file\n")
    }

    /// Formats the hunks. `line_end` is added to a line without a newline.
    fn format_hunks(&self, context_lines: usize, line_end: &str) -> String {
        let push_lines = |text: &mut String, mark: char, lines: &[&str]| {
            for line in lines {
                text.push(mark);
                text.push_str(line);
                if !line.ends_with('\n') {
                    text.push_str(line_end);
                }
            }
        };
        let mut text = String::new();
        for hunk in group_diff_ops(self.operations.clone(), context_lines) {
            let (first, last) = (&hunk[0], &hunk[hunk.len() - 1]);
            text.push_str(&format!(
                "@@ -{} +{} @@\n",
                format_range(first.old_range().start..last.old_range().end),
                format_range(first.new_range().start..last.new_range().end),
            ));
            for operation in hunk {
                let (tag, old, new) = operation.as_tag_tuple();
                if tag == DiffTag::Equal {
                    push_lines(&mut text, ' ', &self.old[old]);
                } else {
                    push_lines(&mut text, '-', &self.old[old]);
                    push_lines(&mut text, '+', &self.new[new]);
                }
            }
        }
        text
    }

    /// Formats the same diff below `---` and `+++` header lines.
    pub fn unified_with_header(&self, context_lines: usize, old: &str, new: &str) -> String {
        let text = self.unified(context_lines);
        if text.is_empty() { text } else { format!("--- {old}\n+++ {new}\n{text}") }
    }
}

fn format_range(lines: Range<usize>) -> String {
    match lines.len() {
        // By convention an empty range names the line before it.
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// The words, blanks and signs that `old` and `new` have in common: ranges of both, in order.
pub(crate) fn common_words(old: &str, new: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let (old_words, new_words) = (split_words(old), split_words(new));
    let old_texts: Vec<&str> = old_words.iter().map(|range| &old[range.clone()]).collect();
    let new_texts: Vec<&str> = new_words.iter().map(|range| &new[range.clone()]).collect();
    let byte_range = |ranges: &[Range<usize>], run: Range<usize>| {
        ranges[run.start].start..ranges[run.end - 1].end
    };
    common_tokens(&old_texts, &new_texts)
        .into_iter()
        .map(|(old_run, new_run)| {
            (byte_range(&old_words, old_run), byte_range(&new_words, new_run))
        })
        .collect()
}

/// The runs of tokens that `old` and `new` have in common: ranges of the indices in both, in order.
pub fn common_tokens(old: &[&str], new: &[&str]) -> Vec<(Range<usize>, Range<usize>)> {
    common_ranges(&capture_diff_slices(Algorithm::Myers, old, new)).collect()
}

fn common_ranges(operations: &[DiffOp]) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let unchanged = operations.iter().filter(|operation| operation.tag() == DiffTag::Equal);
    unchanged.map(|operation| (operation.old_range(), operation.new_range()))
}

/// The words of `text`, and each other character alone.
fn split_words(text: &str) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut is_word = false;
    for (at, character) in text.char_indices() {
        let end = at + character.len_utf8();
        let continues = character.is_alphanumeric() || is_combining_mark(character);
        match ranges.last_mut() {
            Some(last) if is_word && continues => last.end = end,
            _ => ranges.push(at..end),
        }
        is_word = continues;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::{Diff, common_words};

    #[test]
    fn words_in_common() {
        let check = |old: &str, new: &str, expect: &[(&str, &str)]| {
            let common = common_words(old, new);
            let texts: Vec<(&str, &str)> =
                common.into_iter().map(|(one, other)| (&old[one], &new[other])).collect();
            assert_eq!(texts, expect, "{old:?} {new:?}");
        };
        check("", "", &[]);
        check("a b", "a b", &[("a b", "a b")]);
        check("a b", "", &[]);
        check("a \"b\" c", "a \"x\" c!", &[("a \"", "a \""), ("\" c", "\" c")]);
        check("one two", "ones two", &[(" two", " two")]);
    }

    #[test]
    fn hunks_have_context_lines() {
        let check = |old: &str, new: &str, expect: &str| {
            assert_eq!(
                Diff::new(old, new).unified_with_header(1, "a", "b"),
                expect,
                "{old:?} {new:?}"
            );
        };
        check("x\n", "x\n", "");
        check("1\n2\n3\n4\n", "1\n2\nx\n4\n", "--- a\n+++ b\n@@ -2,3 +2,3 @@\n 2\n-3\n+x\n 4\n");
        check("", "1\n", "--- a\n+++ b\n@@ -0,0 +1 @@\n+1\n");
        check(
            "1\n2\n3\n4\n5\n6\n7\n",
            "2\n3\n4\n5\n6\n7\n8\n",
            "--- a\n+++ b\n@@ -1,2 +1 @@\n-1\n 2\n@@ -7 +6,2 @@\n 7\n+8\n",
        );
        check("1", "1\n2", "--- a\n+++ b\n@@ -1 +1,2 @@\n-1\n+1\n+2\n");
    }

    #[test]
    fn similarity_is_symmetric() {
        let check = |old: &str, new: &str, expect: f64| {
            assert!((Diff::new(old, new).similarity() - expect).abs() < 1e-9, "{old:?} {new:?}");
        };
        check("", "", 1.0);
        check("1\n2\n", "1\n2\n", 1.0);
        check("1\n2\n", "1\n3\n", 0.5);
        check("1\n", "2\n", 0.0);
    }
}
