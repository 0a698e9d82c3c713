//! Aligns text in columns for people and for `awk`: two spaces apart, without trailing spaces. Pure.

use crate::sys::terminal::wrap_words;
use console::{Alignment, measure_text_width, pad_str, truncate_str};

/// Minimum columns for wrapped words.
const MIN_TEXT_COLUMNS: usize = 16;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// Aligns the rows below their headers, one line each; empty if there are no rows.
pub fn align_columns(columns: &[(&str, Side)], rows: &[Vec<String>]) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let head: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width = |column: usize| all().map(|row| measure_text_width(&row[column])).max();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| -> String {
        let cells = row.iter().zip(columns).zip(&widths);
        let padded = cells.map(|((cell, (_, side)), width)| {
            let side = match side {
                Side::Left => Alignment::Left,
                Side::Right => Alignment::Right,
            };
            pad_str(cell, *width, side, None).into_owned()
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    };
    all().map(line).collect()
}

/// Truncates `text` to `width` columns of a terminal; without a terminal, returns all of it.
pub fn truncate(text: &str, width: Option<usize>) -> String {
    match width {
        Some(width) => truncate_str(text, width, "…").into_owned(),
        None => text.to_owned(),
    }
}

/// Puts `words` after `head`, wrapped and indented if a terminal has only `width` columns.
pub fn hanging_indent(head: &str, words: &str, width: Option<usize>) -> String {
    let indent = measure_text_width(head);
    let words = match width {
        Some(width) => wrap_words(words, width.saturating_sub(indent).max(MIN_TEXT_COLUMNS), 0),
        None => return format!("{head}{words}"),
    };
    format!(
        "{head}{}",
        words.replace('\n', &format!("\n{:indent$}", ""))
    )
}

#[cfg(test)]
mod tests {
    use super::{Side, align_columns, hanging_indent, truncate};

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let columns = [("NAME", Side::Left), ("N", Side::Right), ("", Side::Left)];
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "1", ""]), row(["日本日", "200", "x"])];
        let expect = ["NAME      N", "a         1", "日本日  200  x"];
        assert_eq!(align_columns(&columns, &rows), expect);
        assert!(align_columns(&columns, &[]).is_empty());
    }

    #[test]
    fn what_is_too_wide_is_cut() {
        assert_eq!(truncate("日本語", Some(5)), "日本…");
        assert_eq!(truncate("abc", Some(3)), "abc");
        assert_eq!(truncate("日本語", None), "日本語");
    }

    #[test]
    fn words_stand_behind_their_head() {
        assert_eq!(hanging_indent("a:  ", "one two", None), "a:  one two");
        let text = "one two three four five six seven";
        let expect = "a:  one two three\n    four five six\n    seven";
        assert_eq!(hanging_indent("a:  ", text, Some(20)), expect);
        // A window without room for both.
        assert_eq!(
            hanging_indent(&" ".repeat(20), "one two three four", Some(10))
                .lines()
                .count(),
            2
        );
    }
}
