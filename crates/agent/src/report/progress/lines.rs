//! Text below a line of progress, wrapped to the window and limited in length.

use crate::report::short_text::group_thousands;
use console::{Style, measure_text_width};
use nanobot_os::terminal::{StyledLine, theme};

/// Prefix of each line.
const INDENT: &str = "    ";
/// Lines of a diff that are shown by default.
const MAX_DIFF_LINES: usize = 20;
/// Lines of a diff that are shown with details.
const MAX_DETAILED_DIFF_LINES: usize = 2000;

/// Formats a diff in colour; `is_detailed` raises the limit on its length.
pub(super) fn diff_rows(diff: &str, is_detailed: bool) -> Vec<StyledLine> {
    let max_lines = if is_detailed { MAX_DETAILED_DIFF_LINES } else { MAX_DIFF_LINES };
    let count = diff.lines().count();
    let shown_count = shown_line_count(count, max_lines);
    let row = |line: &str| {
        let style = match line.as_bytes().first() {
            Some(b'+') => Style::new().green(),
            Some(b'-') => Style::new().red(),
            Some(b'@') => Style::new().fg(theme::accent()).dim(),
            _ => Style::new().dim(),
        };
        StyledLine::new(INDENT).styled(line.replace('\t', "    "), style)
    };
    let mut rows: Vec<StyledLine> = diff.lines().take(shown_count).map(row).collect();
    if shown_count < count {
        let hint = if is_detailed { "" } else { "; `-v` shows them" };
        let hidden = group_thousands((count - shown_count) as u64);
        rows.push(StyledLine::new(INDENT).dim(format!("… {hidden} more lines{hint}")));
    }
    rows
}

/// The number of lines to show of `count`. A single line is not hidden behind a note that takes the same space.
fn shown_line_count(count: usize, max_lines: usize) -> usize {
    if count <= max_lines + 1 { count } else { max_lines }
}

/// Counts the lines that a diff adds and removes.
pub(super) fn count_changes(diff: &str) -> String {
    let count = |mark: char| {
        let lines = diff.lines().filter(|line| line.starts_with(mark));
        group_thousands(lines.count() as u64)
    };
    format!("+{} −{}", count('+'), count('-'))
}

/// Returns the first `max_lines` lines of a text, dimmed and truncated to the window.
pub(super) fn first_rows(text: &str, max_lines: usize) -> Vec<StyledLine> {
    let count = text.lines().count();
    let shown_count = shown_line_count(count, max_lines);
    let mut rows: Vec<StyledLine> = text.lines().take(shown_count).map(dim_row).collect();
    if shown_count < count {
        let hidden = group_thousands((count - shown_count) as u64);
        rows.push(dim_row(&format!("… {hidden} more lines")));
    }
    rows
}

/// Returns a dimmed line.
pub(super) fn dim_row(line: &str) -> StyledLine {
    StyledLine::new(INDENT).dim(line.replace('\t', "    "))
}

/// Splits a stream of text into lines no wider than the window.
#[derive(Debug, Default)]
pub(super) struct LineFolder {
    pending: String,
}

impl LineFolder {
    /// Adds `text`; returns the lines that are now complete.
    pub(super) fn push(&mut self, text: &str, width: usize) -> Vec<StyledLine> {
        self.pending.push_str(text);
        let max_columns = width.saturating_sub(INDENT.len() + 1).max(20);
        let mut rows = Vec::new();
        let mut rest = self.pending.as_str();
        loop {
            let line = rest.split('\n').next().unwrap_or_default();
            match break_position(line, max_columns) {
                Some(at) => {
                    rows.push(dim_row(line[..at].trim_end()));
                    rest = rest[at..].trim_start_matches(' ');
                }
                None if line.len() < rest.len() => {
                    rows.push(dim_row(line));
                    rest = &rest[line.len() + 1..];
                }
                None => break,
            }
        }
        self.pending = rest.to_owned();
        rows
    }

    /// Returns the last, unterminated line.
    pub(super) fn rest(&mut self) -> Option<StyledLine> {
        let rest = std::mem::take(&mut self.pending);
        (!rest.trim().is_empty()).then(|| dim_row(&rest))
    }
}

/// Returns the break position of a line wider than `max_columns`: after a space, or anywhere if there is none.
fn break_position(line: &str, max_columns: usize) -> Option<usize> {
    // A line has at most as many columns as bytes, so most lines need no measuring.
    if line.len() <= max_columns {
        return None;
    }
    let (mut columns, mut space) = (0, None);
    for (at, character) in line.char_indices() {
        columns += measure_text_width(character.encode_utf8(&mut [0; 4]));
        if columns > max_columns && character == ' ' {
            return Some(at);
        }
        if columns > max_columns {
            return Some(space.filter(|space| *space > 0).unwrap_or(at));
        }
        if character == ' ' {
            space = Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{LineFolder, diff_rows, first_rows};

    #[test]
    fn text_is_folded_where_the_window_ends() {
        let check = |pieces: &[&str], expect: &[&str]| {
            let mut fold = LineFolder::default();
            let mut rows = Vec::new();
            for piece in pieces {
                rows.extend(fold.push(piece, 25));
            }
            rows.extend(fold.rest());
            let lines: Vec<String> = rows.iter().map(|row| row.text()).collect();
            let lines: Vec<&str> = lines.iter().map(|line| &line[4..]).collect();
            assert_eq!(lines, expect);
        };
        check(&["one\ntw", "o\n"], &["one", "two"]);
        check(&["one\n\nthree"], &["one", "", "three"]);
        check(
            &["a line that is wider than ", "the window"],
            &["a line that is wider", "than the window"],
        );
        check(&["abcdefghijklmnopqrstuvwxyz"], &["abcdefghijklmnopqrst", "uvwxyz"]);
        check(&["文書文書文書文書文書文書"], &["文書文書文書文書文書", "文書"]);
        check(&[""], &[]);
    }

    #[test]
    fn only_the_head_is_shown() {
        let text: String = (0..40).map(|line| format!("+{line}\n")).collect();
        let last = |rows: Vec<nanobot_os::terminal::StyledLine>| rows.last().unwrap().text();
        assert_eq!(last(first_rows(&text, 10)), "    … 30 more lines");
        assert_eq!(first_rows(&text, 39).len(), 40);
        assert_eq!(last(diff_rows(&text, false)), "    … 20 more lines; `-v` shows them");
        assert_eq!(last(diff_rows(&text, true)), "    +39");
    }
}
