//! Text in columns, for people and for `awk`: two spaces apart, nothing at the end of a line. Pure.

use console::{Alignment, measure_text_width, pad_str, truncate_str};

/// Where the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// The rows below their heads, one line each; nothing where there is no row.
pub(super) fn aligned(columns: &[(&str, Side)], rows: &[Vec<String>]) -> Vec<String> {
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

/// `text` in at most so many columns of a terminal; all of it elsewhere.
pub(super) fn clipped(text: &str, width: Option<usize>) -> String {
    match width {
        Some(width) => truncate_str(text, width, "…").into_owned(),
        None => text.to_owned(),
    }
}

/// `text` in lines of at most `width` columns, broken where there is a space.
pub(super) fn folded(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let mut now = line[..indent].to_owned();
        let mut is_empty = true;
        for word in line[indent..].split(' ') {
            let next = measure_text_width(&now) + 1 + measure_text_width(word);
            if !is_empty && next > width {
                lines.push(std::mem::replace(&mut now, " ".repeat(indent)));
                is_empty = true;
            }
            if !is_empty {
                now.push(' ');
            }
            now.push_str(word);
            is_empty = false;
        }
        lines.push(now);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Side, aligned, clipped, folded};

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let columns = [("NAME", Side::Left), ("N", Side::Right), ("", Side::Left)];
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "1", ""]), row(["日本日", "200", "x"])];
        let expect = ["NAME      N", "a         1", "日本日  200  x"];
        assert_eq!(aligned(&columns, &rows), expect);
        assert!(aligned(&columns, &[]).is_empty());
    }

    #[test]
    fn what_is_too_wide_is_cut() {
        assert_eq!(clipped("日本語", Some(5)), "日本…");
        assert_eq!(clipped("abc", Some(3)), "abc");
        assert_eq!(clipped("日本語", None), "日本語");
    }

    #[test]
    fn a_text_is_folded_at_spaces() {
        let check =
            |text: &str, width: usize, expect: &str| assert_eq!(folded(text, width), expect);
        check("one two three", 80, "one two three");
        check("one two three", 8, "one two\nthree");
        check("  one two three", 8, "  one\n  two\n  three");
        check("a-very-long-word next", 8, "a-very-long-word\nnext");
        check("one\ntwo", 80, "one\ntwo");
        check("", 8, "");
    }
}
