//! Tables. They are buffered until they are complete, since the last row may widen a column.

use super::char_width;
use super::style::{Span, SpanBuffer, show_inline};
use super::wrap::{RowWrapper, spans_columns, trim_spans};
use nanobot_base::markdown::style::TextStyle;
use nanobot_base::markdown::table::{Align, parse_alignments, split_cells};
use termimad::TblFit;

/// The separator between two columns.
const COLUMN_SEPARATOR: &str = " │ ";
const SEPARATOR_COLUMNS: usize = 3;

/// Lines that form a table if the second one is a delimiter row.
#[derive(Debug, Default)]
pub(super) struct MarkdownTable {
    lines: Vec<String>,
}

impl MarkdownTable {
    /// Adds a line. A second line that is not a matching delimiter row is rejected.
    pub(super) fn push_line(&mut self, line: &str) -> bool {
        let is_table = match self.lines.as_slice() {
            [first] => parse_alignments(line)
                .is_some_and(|aligns| aligns.len() == split_cells(first).len()),
            _ => true,
        };
        if is_table {
            self.lines.push(line.to_owned());
        }
        is_table
    }

    /// Returns the lines, if they are not a table.
    pub(super) fn as_text(&self) -> Option<&[String]> {
        (self.lines.len() < 2).then_some(&self.lines)
    }

    /// Returns the rows of the table, without the prefixes of their containers.
    pub(super) fn rows(&self, width: usize) -> Vec<Vec<Span>> {
        let [header, aligns_line, body @ ..] = self.lines.as_slice() else {
            return Vec::new();
        };
        let aligns = parse_alignments(aligns_line).unwrap_or_default();
        let header = split_cells(header);
        let body: Vec<Vec<&str>> = body.iter().map(|line| split_cells(line)).collect();
        // Extra cells of a row longer than the header are kept.
        let count = body.iter().map(Vec::len).max().unwrap_or(0).max(header.len());
        match fit_columns(&header, &body, count, width) {
            Some(widths) => as_grid(&header, &body, &widths, &aligns),
            None => as_list(&header, &body, width),
        }
    }
}

/// Returns the widths of the columns, if they fit.
fn fit_columns(
    header: &[&str],
    body: &[Vec<&str>],
    count: usize,
    width: usize,
) -> Option<Vec<usize>> {
    // There is at least one column: even an empty line has a cell.
    let bars = SEPARATOR_COLUMNS * (count - 1);
    // The fitter counts one column for each border, and one more.
    let fitter_width = width.checked_sub(bars)? + count + 1;
    let mut fitter = TblFit::new(count, fitter_width).ok()?;
    let mut longest_words = vec![0; count];
    for row in body.iter().map(Vec::as_slice).chain([header]) {
        for (column, cell) in row.iter().enumerate() {
            let spans = cell_spans(cell, TextStyle::PLAIN);
            fitter.see_cell(column, spans_columns(&spans));
            longest_words[column] = longest_words[column].max(longest_word_columns(&spans));
        }
    }
    let mut widths = fitter.fit().col_widths;
    widen_for_words(&mut widths, &longest_words);
    (widths.iter().sum::<usize>() + bars <= width).then_some(widths)
}

fn longest_word_columns(spans: &[Span]) -> usize {
    let text: String = spans.iter().map(|span| span.text.as_str()).collect();
    let widths = text.split_whitespace().map(char_width::text_columns);
    widths.max().unwrap_or(0)
}

/// Widens the columns that would break their longest word, at the expense of the widest ones that would not. The fitter
/// knows only the lengths of whole cells.
fn widen_for_words(widths: &mut [usize], longest_words: &[usize]) {
    for column in 0..widths.len() {
        let missing = longest_words[column].saturating_sub(widths[column]);
        let spare = |other: usize| widths[other].saturating_sub(longest_words[other]);
        if missing > (0..widths.len()).map(spare).sum() {
            continue;
        }
        for _ in 0..missing {
            let has_spare = |other: &usize| widths[*other] > longest_words[*other];
            let others = (0..widths.len()).filter(has_spare);
            if let Some(widest) = others.max_by_key(|other| widths[*other]) {
                widths[widest] -= 1;
                widths[column] += 1;
            }
        }
    }
}

fn as_grid(
    header: &[&str],
    body: &[Vec<&str>],
    widths: &[usize],
    aligns: &[Align],
) -> Vec<Vec<Span>> {
    let mut rows = format_row(header, widths, aligns, TextStyle::BOLD);
    let column_rules: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    let rule = column_rules.join("─┼─");
    rows.push(vec![Span { style: TextStyle::FAINT, text: rule, link: None }]);
    for cells in body {
        rows.extend(format_row(cells, widths, aligns, TextStyle::PLAIN));
    }
    rows
}

/// Formats a row of cells, with as many lines as its tallest cell.
fn format_row(
    cells: &[&str],
    widths: &[usize],
    aligns: &[Align],
    style: TextStyle,
) -> Vec<Vec<Span>> {
    let wrapped: Vec<Vec<Vec<Span>>> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| {
            wrap_cell(cells.get(column).copied().unwrap_or_default(), *width, style)
        })
        .collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
    let line = |number: usize| {
        let mut line_spans = SpanBuffer::default();
        for (column, (rows, width)) in wrapped.iter().zip(widths).enumerate() {
            if column > 0 {
                line_spans.add(TextStyle::FAINT, COLUMN_SEPARATOR);
            }
            let cell = rows.get(number).map_or(&[][..], Vec::as_slice);
            let free_columns = width.saturating_sub(spans_columns(cell));
            let left = match aligns.get(column).copied().unwrap_or_default() {
                Align::Left => 0,
                Align::Center => free_columns / 2,
                Align::Right => free_columns,
            };
            line_spans.add(TextStyle::PLAIN, &" ".repeat(left));
            line_spans.add_all(cell);
            line_spans.add(TextStyle::PLAIN, &" ".repeat(free_columns - left));
        }
        trim_spans(&line_spans.take())
    };
    (0..height).map(line).collect()
}

/// Formats a table with too many columns: each row as several lines, each cell after its column name.
fn as_list(header: &[&str], body: &[Vec<&str>], width: usize) -> Vec<Vec<Span>> {
    if body.is_empty() {
        return wrap_cell(&header.join(" "), width, TextStyle::BOLD);
    }
    let mut list = Vec::new();
    for (number, cells) in body.iter().enumerate() {
        if number > 0 {
            list.push(Vec::new());
        }
        for (column, cell) in cells.iter().enumerate() {
            let mut rows = RowWrapper::with_width(width);
            if let Some(name) = header.get(column).filter(|name| !name.is_empty()) {
                show_inline(name, TextStyle::BOLD, &mut |run| rows.push_run(run));
                rows.push_text(TextStyle::PLAIN, ": ");
            }
            show_inline(cell, TextStyle::PLAIN, &mut |run| rows.push_run(run));
            list.extend(split_rows(rows));
        }
    }
    list
}

fn cell_spans(cell: &str, style: TextStyle) -> Vec<Span> {
    let mut spans = SpanBuffer::default();
    show_inline(cell, style, &mut |run| spans.add(run.style, run.text));
    spans.take()
}

fn wrap_cell(cell: &str, width: usize, style: TextStyle) -> Vec<Vec<Span>> {
    let mut rows = RowWrapper::with_width(width);
    show_inline(cell, style, &mut |run| rows.push_run(run));
    split_rows(rows)
}

/// Splits the output into lines, without their line ends.
fn split_rows(mut rows: RowWrapper) -> Vec<Vec<Span>> {
    rows.end();
    let mut lines = vec![SpanBuffer::default()];
    for Span { style, text, link } in rows.output.take() {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                lines.push(SpanBuffer::default());
            }
            let last = lines.last_mut().expect("there is one");
            last.add_linked(style, line, link.as_ref());
        }
    }
    // Nothing follows the last line end.
    lines.pop();
    lines.iter_mut().map(SpanBuffer::take).collect()
}

#[cfg(test)]
mod tests {
    use super::MarkdownTable;

    fn check(lines: &[&str], width: usize, expect: &str) {
        let mut table = MarkdownTable::default();
        for line in lines {
            assert!(table.push_line(line), "{line}");
        }
        let rows = table.rows(width);
        let text =
            |row: &Vec<super::Span>| row.iter().map(|span| span.text.as_str()).collect::<String>();
        let rows: Vec<String> = rows.iter().map(text).collect();
        assert_eq!(rows.join("\n"), expect);
    }

    #[test]
    fn tables_fit() {
        let table =
            ["| Name | Price |", "|:-----|------:|", "| apple | 1.20 |", "| 日本 | 10 | x |"];
        check(
            &table,
            40,
            "Name  │ Price │\n──────┼───────┼────\napple │  1.20 │\n日本  │    10 │ x",
        );
        check(&table[..2], 40, "Name │ Price\n─────┼──────");
        let wide = ["|a|b|", "|-|:-:|", "|some words that are many|x|"];
        check(
            &wide,
            16,
            "a          │  b\n───────────┼────\nsome words │  x\nthat are   │\nmany       │",
        );
        let narrow = ["|price|said of it|", "|-|-|", "|1|keeps the doctor away, or so they say|"];
        check(
            &narrow,
            24,
            "price │ said of it\n──────┼─────────────────\n1     │ keeps the doctor\n      │ away, or so they\n      │ say",
        );
        check(&wide, 6, "a:\nsome\nwords\nthat\nare\nmany\nb: x");
    }
}
