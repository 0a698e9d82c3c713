//! Line-by-line unified diffs of two texts. No I/O.

use imara_diff::{Algorithm, InternedInput, Token};
use std::ops::Range;
use unicode_normalization::char::is_combining_mark;

/// The differences between two texts.
pub struct Diff<'a> {
    input: InternedInput<&'a str>,
    diff: imara_diff::Diff,
}

impl<'a> Diff<'a> {
    /// Compares two texts line by line.
    pub fn new(old: &'a str, new: &'a str) -> Self {
        let input = InternedInput::new(old, new);
        let mut diff = imara_diff::Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        Self { input, diff }
    }

    /// Similarity from 0 to 1; 1 if the texts are equal.
    pub fn similarity(&self) -> f64 {
        let lines = self.input.before.len() + self.input.after.len();
        let changed = self.diff.count_removals() + self.diff.count_additions();
        match lines {
            0 => 1.0,
            lines => 1.0 - f64::from(changed) / lines as f64,
        }
    }

    /// Formats a unified diff with `context_lines` lines of context; empty if the texts are equal. Adds a missing final
    /// newline.
    pub fn unified(&self, context_lines: u32) -> String {
        self.format_hunks(context_lines, "\n")
    }

    /// Formats the hunks of a patch, from which both texts can be restored byte for byte: a marker stands for a missing final newline.
    pub fn patch_hunks(&self, context_lines: u32) -> String {
        self.format_hunks(context_lines, "\n\\ No newline at end of file\n")
    }

    /// Formats the hunks. `line_end` is added to a line without a newline.
    fn format_hunks(&self, context_lines: u32, line_end: &str) -> String {
        let (old, new) = (&self.input.before, &self.input.after);
        let push_lines = |text: &mut String, mark: char, lines: &[Token]| {
            for line in lines {
                let line = self.input.interner[*line];
                text.push(mark);
                text.push_str(line);
                if !line.ends_with('\n') {
                    text.push_str(line_end);
                }
            }
        };
        let mut text = String::new();
        let mut hunks = self.diff.hunks().peekable();
        while let Some(first) = hunks.next() {
            let mut group = vec![first];
            while let Some(next) = hunks.next_if(|next| {
                let last = &group[group.len() - 1];
                next.before.start - last.before.end <= 2 * context_lines
            }) {
                group.push(next);
            }
            let (first, last) = (&group[0], &group[group.len() - 1]);
            let leading = first.before.start.min(context_lines);
            let end = (last.before.end + context_lines).min(old.len() as u32);
            let trailing = end - last.before.end;
            let range = |start: u32, end: u32| {
                // By convention an empty range names the line before it.
                let line = start - leading + u32::from(end + trailing > start - leading);
                match end + trailing - (start - leading) {
                    1 => line.to_string(),
                    lines => format!("{line},{lines}"),
                }
            };
            text.push_str(&format!(
                "@@ -{} +{} @@\n",
                range(first.before.start, last.before.end),
                range(first.after.start, last.after.end),
            ));
            let mut at = first.before.start - leading;
            for hunk in &group {
                push_lines(&mut text, ' ', &old[at as usize..hunk.before.start as usize]);
                let removed = hunk.before.start as usize..hunk.before.end as usize;
                push_lines(&mut text, '-', &old[removed]);
                let added = hunk.after.start as usize..hunk.after.end as usize;
                push_lines(&mut text, '+', &new[added]);
                at = hunk.before.end;
            }
            push_lines(&mut text, ' ', &old[at as usize..end as usize]);
        }
        text
    }

    /// Formats the same diff below `---` and `+++` header lines.
    pub fn unified_with_header(&self, context_lines: u32, old: &str, new: &str) -> String {
        let text = self.unified(context_lines);
        if text.is_empty() { text } else { format!("--- {old}\n+++ {new}\n{text}") }
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
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let mut diff = imara_diff::Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    let mut common = Vec::new();
    let (mut old_start, mut new_start) = (0, 0);
    let changes = diff.hunks().map(|hunk| (hunk.before, hunk.after));
    let end = (old.len() as u32..old.len() as u32, new.len() as u32..new.len() as u32);
    for (before, after) in changes.chain([end]) {
        if before.start as usize > old_start {
            common.push((old_start..before.start as usize, new_start..after.start as usize));
        }
        (old_start, new_start) = (before.end as usize, after.end as usize);
    }
    common
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
