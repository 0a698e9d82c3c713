//! Finds lines in a text although the white space at their ends may differ. Pure.

use crate::diff::Diff;

/// Maximum lines of a text that are compared to find the closest match; more would take too long.
const MAX_COMPARED_LINES: usize = 4_000;

/// The white space of a line that a comparison ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredSpace {
    None,
    /// At the end of the line.
    Trailing,
    /// At both ends of the line.
    Surrounding,
}

impl IgnoredSpace {
    /// All comparisons, the strictest first.
    pub const STEPS: [Self; 3] = [Self::None, Self::Trailing, Self::Surrounding];

    fn strip(self, line: &str) -> &str {
        match self {
            Self::None => line,
            Self::Trailing => line.trim_end(),
            Self::Surrounding => line.trim(),
        }
    }
}

/// The indices at which `wanted` occurs in `lines`, in ascending order. Occurrences may overlap.
pub fn find_lines(lines: &[&str], wanted: &[&str], ignored: IgnoredSpace) -> Vec<usize> {
    let is_same = |(line, wanted): (&&str, &&str)| ignored.strip(line) == ignored.strip(wanted);
    let starts = lines.windows(wanted.len().max(1)).enumerate();
    starts
        .filter(|(_, window)| window.iter().zip(wanted).all(is_same))
        .map(|(start, _)| start)
        .collect()
}

/// The indentation of the first line that is not blank.
pub fn indentation<'a>(lines: &[&'a str]) -> &'a str {
    let line = lines.iter().find(|line| !line.trim().is_empty());
    line.map_or("", |line| &line[..line.len() - line.trim_start().len()])
}

/// Replaces the indentation `from` at the start of `line` by `to`. Blank lines, and lines that are indented differently,
/// are unchanged.
pub fn reindent(line: &str, from: &str, to: &str) -> String {
    match line.strip_prefix(from) {
        Some(rest) if !line.trim().is_empty() => format!("{to}{rest}"),
        _ => line.to_owned(),
    }
}

/// Describes the part of `text` that is most similar to `wanted`, which is called `name`; `None` if nothing is similar.
pub fn describe_closest(text: &str, wanted: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(MAX_COMPARED_LINES).collect();
    let height = wanted.lines().count().max(1);
    let first = wanted
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim();
    let offset = wanted
        .lines()
        .position(|line| line.trim() == first)
        .unwrap_or(0);
    let likeness =
        |line: &&str| strsim::normalized_levenshtein(line_start(line.trim()), line_start(first));
    let best = lines
        .iter()
        .map(likeness)
        .enumerate()
        .max_by(|one, other| one.1.total_cmp(&other.1));
    let (index, _) = best.filter(|(_, likeness)| *likeness > 0.5)?;
    let start = index.saturating_sub(offset);
    let found = lines[start..(start + height).min(lines.len())].join("\n");
    let diff = Diff::new(wanted.trim_end(), &found);
    let percent = (diff.similarity() * 100.0).round();
    let changes = diff.unified_with_header(1, name, "the file");
    Some(format!(
        "The closest match is line {} ({percent}% similar):\n{}",
        start + 1,
        changes.trim_end().chars().take(3_000).collect::<String>()
    ))
}

/// The start of a line, long enough to compare it by.
fn line_start(line: &str) -> &str {
    &line[..line
        .char_indices()
        .nth(200)
        .map_or(line.len(), |(at, _)| at)]
}

#[cfg(test)]
mod tests {
    use super::{IgnoredSpace, find_lines, indentation, reindent};

    #[test]
    fn lines_are_found() {
        let check = |lines: &str, wanted: &str, ignored: IgnoredSpace, expect: &[usize]| {
            let lines: Vec<&str> = lines.split('\n').collect();
            let wanted: Vec<&str> = wanted.split('\n').collect();
            let found = find_lines(&lines, &wanted, ignored);
            assert_eq!(found, expect, "{lines:?} {wanted:?} {ignored:?}");
        };
        use IgnoredSpace::{None, Surrounding, Trailing};
        check("a\nb\na", "a", None, &[0, 2]);
        check("a\nb\na", "a\nb", None, &[0]);
        check("a\na\na", "a\na", None, &[0, 1]);
        check("a", "a\nb", None, &[]);
        check("a \n a", "a", None, &[]);
        check("a \n a", "a", Trailing, &[0]);
        check("a \n a", "a\t", Surrounding, &[0, 1]);
    }

    #[test]
    fn indentation_is_replaced() {
        assert_eq!(indentation(&["", "\t x", "y"]), "\t ");
        assert_eq!(indentation(&["", " "]), "");
        assert_eq!(reindent("  x", "  ", "\t"), "\tx");
        assert_eq!(reindent("x", "  ", "\t"), "x");
        assert_eq!(reindent("  ", "  ", "\t"), "  ");
    }
}
