//! Tables for services that have none.

use super::plain::{self, CELL_SEPARATOR};
use nanobot_base::markdown::document::{DocumentLine, LineContent, RowKind};
use unicode_width::UnicodeWidthStr;

/// Maximum columns of a table that is aligned. A wider one wraps in every chat, where padding makes it worse.
const MAX_ALIGNED_COLUMNS: usize = 80;

/// Replaces tables by code, with aligned columns.
pub(super) fn align(lines: Vec<DocumentLine<'_>>) -> Vec<DocumentLine<'_>> {
    let mut aligned: Vec<DocumentLine<'_>> = Vec::with_capacity(lines.len());
    let mut table: Vec<DocumentLine<'_>> = Vec::new();
    for line in lines {
        let is_row = matches!(line.content, LineContent::Row(..));
        if !is_row || line.starts_block {
            aligned.extend(align_table(std::mem::take(&mut table)));
        }
        if is_row { table.push(line) } else { aligned.push(line) }
    }
    aligned.extend(align_table(table));
    aligned
}

fn align_table(mut rows: Vec<DocumentLine<'_>>) -> Vec<DocumentLine<'_>> {
    let texts: Vec<Vec<String>> = rows.iter().map(|row| cell_texts(&row.content)).collect();
    let mut widths: Vec<usize> = Vec::new();
    for cells in &texts {
        for (column, cell) in cells.iter().enumerate() {
            match widths.get_mut(column) {
                Some(width) => *width = cell.width().max(*width),
                None => widths.push(cell.width()),
            }
        }
    }
    if widths.iter().sum::<usize>() > MAX_ALIGNED_COLUMNS {
        widths.fill(0);
    }
    let dashes: Vec<String> = widths.iter().map(|width| "─".repeat((*width).max(1))).collect();
    for (row, cells) in rows.iter_mut().zip(texts) {
        let text = match row.content {
            LineContent::Row(RowKind::Delimiter, _) => dashes.join("─┼─"),
            _ => join_cells(&cells, &widths),
        };
        row.content = LineContent::Code { language: String::new(), text };
    }
    rows
}

fn join_cells(cells: &[String], widths: &[usize]) -> String {
    let padded_cells = cells.iter().zip(widths).map(|(cell, width)| {
        let padding = width.saturating_sub(cell.width());
        format!("{cell}{}", " ".repeat(padding))
    });
    let padded_cells: Vec<String> = padded_cells.collect();
    padded_cells.join(CELL_SEPARATOR).trim_end().to_owned()
}

fn cell_texts(content: &LineContent) -> Vec<String> {
    match content {
        LineContent::Row(_, cells) => {
            cells.iter().map(|cell| plain::runs_text(&cell.runs)).collect()
        }
        _ => Vec::new(),
    }
}
