//! Text without markup: marks are dropped, and the address of a link follows its text.

use nanobot_base::markdown::document::{DocumentLine, LineContent, RowKind, TextRun};
use nanobot_base::markdown::line::Container;
use nanobot_base::markdown::style::TextStyle;

/// The separator of two cells of a table.
pub(super) const CELL_SEPARATOR: &str = " │ ";
/// A horizontal rule.
pub(super) const RULE: &str = "──────────";

/// Writes the lines of a part.
pub(super) fn write(lines: &[DocumentLine]) -> String {
    let mut out = String::new();
    let mut is_first = true;
    for line in lines {
        let text = match &line.content {
            LineContent::Row(RowKind::Delimiter, _) => continue,
            LineContent::Row(..) => match as_text(line).content {
                LineContent::Text(runs) => runs_text(&runs),
                _ => String::new(),
            },
            LineContent::Text(runs) | LineContent::Heading(_, runs) => runs_text(runs),
            LineContent::Code { text, .. } => text.clone(),
            LineContent::Rule => RULE.to_owned(),
        };
        if !std::mem::take(&mut is_first) {
            out += if line.has_blank_before { "\n\n" } else { "\n" };
        }
        out += &prefix(line, "> ");
        out += &text;
    }
    out
}

/// Returns the marks of the containers before a line: those of items where they begin, else as many spaces.
pub(super) fn prefix(line: &DocumentLine, quote: &str) -> String {
    let marks = line.containers.iter().enumerate();
    let marks = marks.map(|(index, container)| match container {
        Container::Quote => quote.to_owned(),
        Container::Item { mark, .. } if index >= line.continued => mark.clone(),
        Container::Item { mark, .. } => " ".repeat(mark.chars().count()),
    });
    marks.collect()
}

/// Returns the text of `runs`, with the addresses of links.
pub(super) fn runs_text(runs: &[TextRun]) -> String {
    let mut out = String::new();
    for link in runs.chunk_by(|left, right| left.address == right.address) {
        for run in link {
            out += &run.text;
        }
        if let Some(address) = &link[0].address {
            out = format!("{out} ({address})");
        }
    }
    out
}

/// Returns a row of a table as text, and any other line unchanged.
pub(super) fn as_text<'t>(line: &DocumentLine<'t>) -> DocumentLine<'t> {
    let LineContent::Row(_, cells) = &line.content else {
        return line.clone();
    };
    let separator =
        TextRun { style: TextStyle::PLAIN, address: None, text: CELL_SEPARATOR.to_owned() };
    let runs: Vec<&[TextRun]> = cells.iter().map(|cell| cell.runs.as_slice()).collect();
    DocumentLine { content: LineContent::Text(runs.join(&separator)), source: None, ..line.clone() }
}
