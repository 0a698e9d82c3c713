//! Line-by-line unified diffs of two texts. Pure.

use imara_diff::{Algorithm, InternedInput, Token};

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
        let (old, new) = (&self.input.before, &self.input.after);
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
            let lead = first.before.start.min(context_lines);
            let end = (last.before.end + context_lines).min(old.len() as u32);
            let trail = end - last.before.end;
            let range = |start: u32, end: u32| {
                // By convention an empty range names the line before it.
                let line = start - lead + u32::from(end + trail > start - lead);
                match end + trail - (start - lead) {
                    1 => line.to_string(),
                    lines => format!("{line},{lines}"),
                }
            };
            text.push_str(&format!(
                "@@ -{} +{} @@\n",
                range(first.before.start, last.before.end),
                range(first.after.start, last.after.end),
            ));
            let mut at = first.before.start - lead;
            for hunk in &group {
                self.push_lines(
                    &mut text,
                    ' ',
                    &old[at as usize..hunk.before.start as usize],
                );
                self.push_lines(
                    &mut text,
                    '-',
                    &old[hunk.before.start as usize..hunk.before.end as usize],
                );
                self.push_lines(
                    &mut text,
                    '+',
                    &new[hunk.after.start as usize..hunk.after.end as usize],
                );
                at = hunk.before.end;
            }
            self.push_lines(&mut text, ' ', &old[at as usize..end as usize]);
        }
        text
    }

    fn push_lines(&self, text: &mut String, mark: char, lines: &[Token]) {
        for line in lines {
            let line = self.input.interner[*line];
            text.push(mark);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push('\n');
            }
        }
    }

    /// Formats the same diff below `---` and `+++` header lines.
    pub fn unified_with_header(&self, context_lines: u32, old: &str, new: &str) -> String {
        match self.unified(context_lines) {
            text if text.is_empty() => text,
            text => format!("--- {old}\n+++ {new}\n{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Diff;

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
        check(
            "1\n2\n3\n4\n",
            "1\n2\nx\n4\n",
            "--- a\n+++ b\n@@ -2,3 +2,3 @@\n 2\n-3\n+x\n 4\n",
        );
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
            assert!(
                (Diff::new(old, new).similarity() - expect).abs() < 1e-9,
                "{old:?} {new:?}"
            );
        };
        check("", "", 1.0);
        check("1\n2\n", "1\n2\n", 1.0);
        check("1\n2\n", "1\n3\n", 0.5);
        check("1\n", "2\n", 0.0);
    }
}
