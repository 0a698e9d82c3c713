//! Aligns text in columns for people and for `awk`: two spaces apart, without trailing spaces. No I/O.

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use nanobot_os::terminal::wrap_words;

/// Minimum columns for wrapped words.
const MIN_TEXT_COLUMNS: usize = 16;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// A column of a table of records: its title, its alignment, and the text of a record in it.
pub type Column<'a, R> = (&'a str, Side, &'a dyn Fn(&R) -> String);

/// Formats the records as a table, one line each, cut to `width` columns of a terminal; empty if there are no records.
pub fn format_table<R>(records: &[R], columns: &[Column<'_, R>], width: Option<usize>) -> String {
    let titles: Vec<(&str, Side)> =
        columns.iter().map(|(title, side, _)| (*title, *side)).collect();
    let row = |record| columns.iter().map(|(_, _, text)| text(record)).collect();
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    let lines = align_columns(&titles, &rows).into_iter();
    lines.map(|line| truncate(&line, width) + "\n").collect()
}

/// Aligns the rows below their headers, one line each; empty if there are no rows.
pub fn align_columns(columns: &[(&str, Side)], rows: &[Vec<String>]) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let rows = || std::iter::once(&titles).chain(rows);
    let width = |column: usize| rows().map(|row| measure_text_width(&row[column])).max();
    let widths: Vec<usize> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| -> String {
        let cells = row.iter().zip(columns).zip(&widths);
        let cells = cells.map(|((cell, (_, side)), width)| {
            let alignment = match side {
                Side::Left => Alignment::Left,
                Side::Right => Alignment::Right,
            };
            pad_str(cell, *width, alignment, None).into_owned()
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows().map(line).collect()
}

/// Like [`align_columns`]. If a terminal has only `width` columns, the words of the last column are wrapped below each
/// other.
pub fn align_and_wrap(
    columns: &[(&str, Side)],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> Vec<String> {
    let (Some(width), Some((_, others))) = (width, columns.split_last()) else {
        return align_columns(columns, rows);
    };
    let heads: Vec<Vec<String>> = rows.iter().map(|row| row[..others.len()].to_vec()).collect();
    let heads = align_columns(others, &heads);
    let indent = heads.iter().map(|head| measure_text_width(head)).max();
    let indent = indent.map_or(0, |columns| columns + 2);
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    heads
        .iter()
        .zip(std::iter::once(&titles).chain(rows))
        .map(|(head, row)| {
            let head = pad_str(head, indent, Alignment::Left, None);
            let line = hanging_indent(&head, &row[others.len()], Some(width));
            line.trim_end().to_owned()
        })
        .collect()
}

/// Like [`align_columns`]. As long as the lines do not fit into `width` columns of a terminal, the next one of the
/// columns `optional` is left out.
pub fn align_to_width(
    columns: &[(&str, Side)],
    rows: &[Vec<String>],
    width: Option<usize>,
    optional: &[usize],
) -> Vec<String> {
    let align_without = |omitted: &[usize]| {
        let is_shown = |index: &usize| !omitted.contains(index);
        let indices: Vec<usize> = (0..columns.len()).filter(is_shown).collect();
        let columns: Vec<_> = indices.iter().map(|index| columns[*index]).collect();
        let cells = |row: &Vec<String>| indices.iter().map(|index| row[*index].clone()).collect();
        align_columns(&columns, &rows.iter().map(cells).collect::<Vec<_>>())
    };
    let fits = |lines: &[String]| {
        let width = width.unwrap_or(usize::MAX);
        lines.iter().all(|line| measure_text_width(line) <= width)
    };
    let mut lines = align_without(&[]);
    for count in 1..=optional.len() {
        if fits(&lines) {
            break;
        }
        lines = align_without(&optional[..count]);
    }
    lines
}

/// Like [`align_columns`]. As long as the lines do not fit into `width` columns of a terminal, the cells of the next one of
/// the columns `shortened` are cut, to no less than `min_columns` and their title. The lines may still be too long.
pub fn align_and_shorten(
    columns: &[(&str, Side)],
    rows: &[Vec<String>],
    width: Option<usize>,
    shortened: &[usize],
    min_columns: usize,
) -> Vec<String> {
    let mut rows = rows.to_vec();
    let mut lines = align_columns(columns, &rows);
    for index in shortened {
        let line_width = lines.iter().map(|line| measure_text_width(line)).max();
        let excess = line_width.unwrap_or(0).saturating_sub(width.unwrap_or(usize::MAX));
        if excess == 0 {
            break;
        }
        let cell_width = rows.iter().map(|row| measure_text_width(&row[*index])).max();
        let min_columns = min_columns.max(measure_text_width(columns[*index].0));
        let limit = cell_width.unwrap_or(0).saturating_sub(excess).max(min_columns);
        for row in &mut rows {
            row[*index] = truncate(&row[*index], Some(limit));
        }
        lines = align_columns(columns, &rows);
    }
    lines
}

/// Truncates `text` to `width` columns of a terminal; without a terminal, returns all of it.
pub fn truncate(text: &str, width: Option<usize>) -> String {
    match width {
        Some(width) => truncate_str(text, width, "…").into_owned(),
        None => text.to_owned(),
    }
}

/// Puts `text` after `head`, wrapped and indented if a terminal has only `width` columns.
pub fn hanging_indent(head: &str, text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return format!("{head}{text}");
    };
    let indent = measure_text_width(head);
    let text = wrap_words(text, width.saturating_sub(indent).max(MIN_TEXT_COLUMNS), 0);
    format!("{head}{}", text.replace('\n', &format!("\n{:indent$}", "")))
}

#[cfg(test)]
mod tests {
    use super::{
        Side, align_and_shorten, align_and_wrap, align_columns, align_to_width, hanging_indent,
        truncate,
    };

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
    fn a_narrow_terminal_gets_wrapped_words_or_fewer_columns() {
        let columns = [("NAME", Side::Left), ("N", Side::Right), ("WHY", Side::Left)];
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "100", "one two three four"]), row(["b", "2", ""])];
        let expect = ["NAME    N  WHY", "a     100  one two three four", "b       2"];
        assert_eq!(align_and_wrap(&columns, &rows, None), expect);
        assert_eq!(align_and_wrap(&columns, &rows, Some(80)), expect);
        let wrapped = "a     100  one two three\n           four";
        assert_eq!(align_and_wrap(&columns, &rows, Some(27))[1], wrapped);
        assert_eq!(align_to_width(&columns, &rows, None, &[2]), expect);
        let expect = ["NAME  WHY", "a     one two three four", "b"];
        assert_eq!(align_to_width(&columns, &rows, Some(28), &[1, 2]), expect);
        let expect = ["NAME", "a", "b"];
        assert_eq!(align_to_width(&columns, &rows, Some(20), &[1, 2]), expect);
    }

    #[test]
    fn a_narrow_terminal_gets_shorter_cells() {
        let columns = [("A", Side::Left), ("B", Side::Left), ("C", Side::Left)];
        let rows = [["one two", "three four", "five"].map(str::to_owned).to_vec()];
        let shorten = |width| align_and_shorten(&columns, &rows, width, &[1, 0], 5)[1].clone();
        assert_eq!(shorten(None), "one two  three four  five");
        assert_eq!(shorten(Some(25)), "one two  three four  five");
        assert_eq!(shorten(Some(22)), "one two  three …  five");
        assert_eq!(shorten(Some(19)), "one t…  thre…  five");
        assert_eq!(shorten(Some(3)), "one …  thre…  five");
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
            hanging_indent(&" ".repeat(20), "one two three four", Some(10)).lines().count(),
            2
        );
    }
}
