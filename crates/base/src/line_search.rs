//! Finds lines in a text although the white space at their ends may differ. No I/O.

use crate::diff::Diff;

mod look_alikes;

pub use look_alikes::{
    IgnoredForms, describe_difference, find_similar, fold, respell, with_content_of,
};

/// Maximum lines of a text that are compared to find the closest match; more would take too long.
const MAX_COMPARED_LINES: usize = 4_000;

/// Maximum characters of the diff in a description of the closest match.
const MAX_DIFF_CHARS: usize = 3_000;
/// Maximum characters of a line that are compared to find the closest match.
const MAX_COMPARED_CHARS: usize = 200;

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
pub fn find_lines<T: AsRef<str>>(lines: &[T], wanted: &[T], ignored: IgnoredSpace) -> Vec<usize> {
    let is_same =
        |(line, wanted): (&T, &T)| ignored.strip(line.as_ref()) == ignored.strip(wanted.as_ref());
    let starts = lines.windows(wanted.len().max(1)).enumerate();
    starts
        .filter(|(_, window)| window.iter().zip(wanted).all(is_same))
        .map(|(start, _)| start)
        .collect()
}

/// Gives lines that a model wrote the indentation of the file. It is derived from pairs of lines that match but for their indentation.
pub struct IndentationMap<'a> {
    /// The matched lines that are not blank.
    lines: Vec<MatchedLine<'a>>,
}

/// A line as a model wrote it, and its indentation in the file.
struct MatchedLine<'a> {
    wanted: &'a str,
    indentation: &'a str,
}

/// An indentation of the model and that of the file for the same line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IndentationPair<'a> {
    wanted: &'a str,
    in_file: &'a str,
}

impl<'a> IndentationMap<'a> {
    /// Builds the map from lines of the model and the lines of the file that they match, one by one.
    pub fn new(wanted: &[&'a str], file_lines: &[&'a str]) -> Self {
        let pairs = wanted.iter().zip(file_lines);
        let lines = pairs
            .filter(|(wanted, _)| !wanted.trim().is_empty())
            .map(|(wanted, file_line)| MatchedLine {
                wanted: wanted.trim_end(),
                indentation: indentation(file_line),
            })
            .collect();
        Self { lines }
    }

    /// Indents `line`, which the model wrote, as the file does.
    ///
    /// # Errors
    /// The matched lines do not determine the indentation. The error is a text for the model.
    pub fn reindent(&self, line: &str) -> Result<String, String> {
        self.try_reindent(line).ok_or_else(|| {
            format!(
                "these lines are indented differently in the file, and {line:?} cannot be indented like them; use the \
                 indentation of the file"
            )
        })
    }

    fn try_reindent(&self, line: &str) -> Option<String> {
        let is_same = |line: &MatchedLine<'_>| indentation(line.wanted) == line.indentation;
        if line.trim().is_empty() || self.lines.iter().all(is_same) {
            return Some(line.to_owned());
        }
        let wanted = indentation(line);
        let mut candidates = self.indentations_of(|other| other == line.trim_end());
        if candidates.is_empty() {
            candidates = self.indentations_of(|other| indentation(other) == wanted);
        }
        let file_indentation = match candidates[..] {
            [] => self.derive(wanted)?,
            [candidate] => candidate.to_owned(),
            _ => return None,
        };
        Some(file_indentation + &line[wanted.len()..])
    }

    /// The different indentations in the file of those lines of the model that the predicate accepts.
    fn indentations_of(&self, accepts: impl Fn(&str) -> bool) -> Vec<&'a str> {
        let lines = self.lines.iter().filter(|line| accepts(line.wanted));
        let mut indentations: Vec<&str> = lines.map(|line| line.indentation).collect();
        indentations.sort_unstable();
        indentations.dedup();
        indentations
    }

    /// Derives the indentation in the file for `wanted`, which no matched line has, from the nearest ones.
    fn derive(&self, wanted: &str) -> Option<String> {
        let pair = |line: &MatchedLine<'a>| IndentationPair {
            wanted: indentation(line.wanted),
            in_file: line.indentation,
        };
        let mut pairs: Vec<IndentationPair<'_>> = self.lines.iter().map(pair).collect();
        pairs.sort_unstable();
        pairs.dedup();
        if pairs.windows(2).any(|window| window[0].wanted == window[1].wanted) {
            return None;
        }
        let first = *pairs.first()?;
        if !is_uniform(&[first.wanted, first.in_file]) {
            // Tabs against spaces: no indentation is the same in both.
            pairs.insert(0, IndentationPair { wanted: "", in_file: "" });
        } else if wanted.is_empty() && first.in_file.len() <= first.wanted.len() {
            return Some(String::new());
        }
        // The order puts a prefix before the indentations that begin with it.
        let base_index = pairs.iter().rposition(|pair| wanted.starts_with(pair.wanted))?;
        let base = pairs[base_index];
        let rest = &wanted[base.wanted.len()..];
        if rest.is_empty() {
            return Some(base.in_file.to_owned());
        }
        let inner = (base_index + 1).min(pairs.len() - 1);
        let rest_in_file = match inner.checked_sub(1) {
            Some(outer) => {
                let level = pairs[inner].wanted.strip_prefix(pairs[outer].wanted)?;
                convert(rest, level, pairs[inner].in_file.strip_prefix(pairs[outer].in_file)?)?
            }
            // One indentation tells how far lines were moved, not how wide a level is.
            None => is_uniform(&[base.in_file, rest]).then(|| rest.to_owned())?,
        };
        Some(format!("{}{rest_in_file}", base.in_file))
    }
}

/// Writes the indentation `rest` of the model as the file would, which has `file_step` where the model has `step`.
fn convert(rest: &str, step: &str, file_step: &str) -> Option<String> {
    if step == file_step {
        return Some(rest.to_owned());
    }
    // A tab is one level.
    let tabs = |text: &str| text.bytes().all(|byte| byte == b'\t').then_some(text.len());
    let levels = tabs(step).or(tabs(file_step)).unwrap_or(1);
    let (width, file_width) = (step.len().checked_div(levels)?, file_step.len() / levels);
    let is_whole = width > 0
        && file_width > 0
        && step.len().is_multiple_of(levels)
        && file_step.len().is_multiple_of(levels)
        && rest.len().is_multiple_of(width);
    if !is_whole || !is_uniform(&[rest, step]) || !is_uniform(&[file_step]) {
        return None;
    }
    Some(file_step.get(..file_width)?.repeat(rest.len() / width))
}

/// True if the white space in `parts` consists of the same character only.
fn is_uniform(parts: &[&str]) -> bool {
    let mut characters = parts.iter().flat_map(|part| part.chars());
    characters.next().is_none_or(|first| characters.all(|character| character == first))
}

/// The white space at the start of a line.
fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// `text` without the line numbers that `read_file` puts before each line, if a model copied them: all lines have one, and
/// they count up.
pub fn strip_line_numbers(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let numbers = lines.iter().map(|line| split_line_number(line).map(|(number, _)| number));
    let numbers = numbers.collect::<Option<Vec<u64>>>()?;
    let counts_up = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if !counts_up || lines.is_empty() {
        return None;
    }
    Some(lines.iter().map(|line| without_line_number(line)).collect())
}

/// `line` without a line number that `read_file` put before it.
pub fn without_line_number(line: &str) -> &str {
    split_line_number(line).map_or(line, |(_, rest)| rest)
}

/// The number and the rest of a line like `2| two`.
pub(crate) fn split_line_number(line: &str) -> Option<(u64, &str)> {
    let (number, rest) = line.split_once('|')?;
    // The parser would accept a sign.
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let rest = match rest.strip_prefix(' ') {
        Some(rest) => rest,
        None if rest.trim().is_empty() => rest,
        None => return None,
    };
    Some((number.parse().ok()?, rest))
}

/// Describes the part of `text` that is most similar to `wanted`, which is called `name`; `None` if nothing is similar.
pub fn describe_closest(text: &str, wanted: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(MAX_COMPARED_LINES).collect();
    let wanted_lines: Vec<&str> = wanted.lines().collect();
    let offset = wanted_lines.iter().position(|line| !line.trim().is_empty()).unwrap_or(0);
    let first = wanted_lines.get(offset).copied().unwrap_or_default();
    let first_likeness = |line: &&str| likeness(line, first);
    let likenesses = lines.iter().map(first_likeness).enumerate();
    let best = likenesses.max_by(|(_, one), (_, other)| one.total_cmp(other));
    let (index, _) = best.filter(|(_, likeness)| *likeness > 0.5)?;
    let start = index.saturating_sub(offset);
    let closest = &lines[start..(start + wanted_lines.len().max(1)).min(lines.len())];
    let pairs = || closest.iter().zip(&wanted_lines);
    let closest_text = closest.join("\n");
    let diff = Diff::new(wanted.trim_end(), &closest_text);
    // The diff finds moved lines; the pairs find lines with small changes.
    let total: f64 = pairs().map(|(line, wanted)| likeness(line, wanted)).sum();
    let average = total / closest.len().max(wanted_lines.len()).max(1) as f64;
    let percent = (diff.similarity().max(average) * 100.0).floor();
    let changes = diff.unified_with_header(1, name, "the file");
    let changes: String = changes.trim_end().chars().take(MAX_DIFF_CHARS).collect();
    let mut description =
        format!("The closest match is line {} ({percent}% similar):\n{changes}", start + 1);
    // A diff does not show these.
    for (number, (line, wanted)) in (start + 1..).zip(pairs()) {
        if let Some(difference) = describe_difference(line, wanted, name, 0) {
            description.push_str(&format!("\nLine {number} {difference}."));
        }
    }
    Some(description)
}

/// Likeness of two lines from 0 to 1, without regard to white space around them and to characters that look alike.
fn likeness(line: &str, other: &str) -> f64 {
    let line = fold(line.trim(), IgnoredForms::LookAlikes);
    let other = fold(other.trim(), IgnoredForms::LookAlikes);
    strsim::normalized_levenshtein(line_start(&line), line_start(&other))
}

/// The start of a line, long enough to compare it by.
fn line_start(line: &str) -> &str {
    &line[..line.char_indices().nth(MAX_COMPARED_CHARS).map_or(line.len(), |(at, _)| at)]
}

#[cfg(test)]
mod tests {
    use super::{IgnoredSpace, IndentationMap, describe_closest, find_lines, strip_line_numbers};

    #[test]
    fn line_numbers_are_recognised() {
        let check = |text: &str, expect: Option<&str>| {
            assert_eq!(strip_line_numbers(text).as_deref(), expect, "{text:?}");
        };
        check("2| two", Some("two"));
        check("9| a\n10|   b\n11|\n", Some("a\n  b\n\n"));
        check("2| two\r\n3| \r\n", Some("two\r\n\r\n"));
        check("2| two\n2| three", None);
        check("2| two\nthree", None);
        check("2|two", None);
        check("| two", None);
        check("+2| two", None);
        check("", None);
    }

    #[test]
    fn the_closest_lines_are_described() {
        let check = |text: &str, wanted: &str, parts: &[&str]| {
            let description = describe_closest(text, wanted, "old_text").unwrap();
            for part in parts {
                assert!(description.contains(part), "no {part:?} in {description}");
            }
        };
        check("x\nlet a = 10;\n", "let a = 12;", &["line 2 (90% similar)"]);
        check(
            "one\u{a0}two\nthree\n",
            "one two\nfour",
            &["line 1 (", "Line 1 differs in U+00A0 at column 4; old_text has U+0020 there."],
        );
        check("a b\n", "a\u{a0}b c", &["line 1 (60% similar)"]);
    }

    #[test]
    fn lines_are_found() {
        let check = |lines: &str, wanted: &str, ignored: IgnoredSpace, expect: &[usize]| {
            let lines: Vec<&str> = lines.split('\n').collect();
            let wanted: Vec<&str> = wanted.split('\n').collect();
            let indices = find_lines(&lines, &wanted, ignored);
            assert_eq!(indices, expect, "{lines:?} {wanted:?} {ignored:?}");
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
    fn indentation_is_carried_over() {
        // The lines as the model wrote them, those of the file, and pairs of a new line and what it becomes.
        let check = |wanted: &[&str], file_lines: &[&str], lines: &[(&str, Option<&str>)]| {
            let map = IndentationMap::new(wanted, file_lines);
            for (line, expect) in lines {
                let reindented = map.try_reindent(line);
                assert_eq!(reindented.as_deref(), *expect, "{line:?} {wanted:?} {file_lines:?}");
            }
        };
        // Line by line, and deeper levels by the width of a level.
        let levels = [
            ("    x", Some("\tx")),
            ("        x", Some("\t\tx")),
            ("            x", Some("\t\t\tx")),
            ("                x", Some("\t\t\t\tx")),
            ("x", Some("x")),
            ("  ", Some("  ")),
            ("      x", None),
            ("\tx", None),
        ];
        check(&["    a", "        b"], &["\ta", "\t\tb"], &levels);
        check(&["    a"], &["\ta"], &levels);
        check(&["        a"], &["\t\ta"], &levels);
        check(&["a", "", "    b"], &["a", "\t", "\tb"], &levels);
        let narrow = [("  x", Some("    x")), ("      x", Some("            x")), ("\tx", None)];
        check(&["a", "  b"], &["a", "    b"], &narrow);
        let wide = [("\tx", Some("  x")), ("\t\t\tx", Some("      x"))];
        check(&["a", "\tb"], &["a", "  b"], &wide);
        check(&["\ta"], &["  a"], &wide);
        // The first line, or all lines, are moved to the left or to the right.
        let moved = [
            ("x", Some("\tx")),
            ("        x", Some("\t\tx")),
            ("                x", Some("\t\t\tx")),
            ("            x", None),
        ];
        check(&["a", "        b"], &["\ta", "\t\tb"], &moved);
        check(&["a"], &["\ta"], &[("\tx", Some("\t\tx")), ("  x", None)]);
        let left = [
            ("     x", Some("    x")),
            ("         x", Some("        x")),
            ("x", Some("x")),
            ("  x", None),
        ];
        check(&["     a"], &["    a"], &left);
        check(
            &["  a", "    b"],
            &["    a", "      b"],
            &[("      x", Some("        x")), ("x", None)],
        );
        // The same indentation of lines with different ones in the file is unclear, but for lines that are kept.
        let unclear = [("a", Some("a")), ("b", Some("  b")), ("x", None), ("  x", None)];
        check(&["a", "b"], &["a", "  b"], &unclear);
        check(&["}", "}"], &["}", "  }"], &[("}", None)]);
        // Other differences of white space change nothing.
        check(&["  a "], &["  a"], &[("    x ", Some("    x ")), ("\tx", Some("\tx"))]);
    }
}
