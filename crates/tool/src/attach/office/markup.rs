//! The text of a document's XML: paragraphs as lines, table rows as lines of cells separated by tabs.

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};

/// Maximum size of the extracted text, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;
/// Maximum number of repetitions of a space or a cell: sheets end in thousands of empty cells.
const MAX_REPEATS: usize = 64;

/// The local names of the elements that carry text and structure.
pub(super) struct Vocabulary {
    /// Elements whose character data is text.
    text: &'static [&'static str],
    paragraph: &'static [&'static str],
    tab: &'static str,
    line_break: &'static [&'static str],
    row: &'static str,
    cell: &'static str,
}

/// Word and PowerPoint.
pub(super) const OOXML: Vocabulary = Vocabulary {
    text: &["t"],
    paragraph: &["p"],
    tab: "tab",
    line_break: &["br", "cr"],
    row: "tr",
    cell: "tc",
};

/// OpenDocument.
pub(super) const ODF: Vocabulary = Vocabulary {
    text: &["p", "h"],
    paragraph: &["p", "h"],
    tab: "tab",
    line_break: &["line-break"],
    row: "table-row",
    cell: "table-cell",
};

/// Converts `xml` to text.
///
/// # Errors
/// The XML is damaged, or the text too long.
pub(super) fn to_text(xml: &str, vocabulary: &Vocabulary) -> Result<String, String> {
    let mut reader = Reader::from_str(xml);
    let mut writer = TextWriter::default();
    loop {
        match reader.read_event().map_err(|_| damaged())? {
            Event::Start(start) => writer.open(&start, vocabulary),
            Event::Empty(start) => {
                writer.open(&start, vocabulary);
                writer.close(start.local_name().as_ref(), vocabulary);
            }
            Event::End(end) => writer.close(end.local_name().as_ref(), vocabulary),
            Event::Text(text) if writer.depth > 0 => {
                writer.text.push_str(&text.xml_content(XmlVersion::Implicit1_0));
            }
            Event::GeneralRef(reference) if writer.depth > 0 => {
                writer.text.extend(resolve(&reference));
            }
            Event::Eof => return Ok(writer.text),
            _ => {}
        }
        check_size(&writer.text)?;
    }
}

/// The character of a reference. Entities that the document defines are left out: they could expand without limit.
pub(super) fn resolve(reference: &BytesRef<'_>) -> Option<char> {
    match &**reference {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => reference.resolve_char_ref().ok().flatten(),
    }
}

/// Fails if `text` is longer than the limit.
pub(super) fn check_size(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT_BYTES {
        Err(format!("its text is longer than {} MiB", MAX_TEXT_BYTES >> 20))
    } else {
        Ok(())
    }
}

pub(super) fn damaged() -> String {
    "its XML is damaged".into()
}

/// The value of the attribute with this local name.
pub(super) fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = element
        .attributes()
        .flatten()
        .find(|attribute| attribute.key.local_name().as_ref() == name)?;
    let value = attribute.normalized_value(XmlVersion::Implicit1_0).ok()?;
    Some(value.into_owned())
}

#[derive(Default)]
struct TextWriter {
    text: String,
    /// The number of open elements whose character data is text.
    depth: usize,
    /// The number of open table cells. Their paragraphs are on one line.
    cells: usize,
}

impl TextWriter {
    fn open(&mut self, element: &BytesStart<'_>, vocabulary: &Vocabulary) {
        let name = element.local_name();
        let name = name.as_ref();
        let repeats = |key: &str| {
            let count = attribute(element, key).and_then(|count| count.parse().ok());
            count.unwrap_or(1).min(MAX_REPEATS)
        };
        self.depth += usize::from(vocabulary.text.contains(&name));
        self.cells += usize::from(name == vocabulary.cell);
        if name == vocabulary.tab {
            // An element with a position defines a tab stop.
            if attribute(element, "pos").is_none() {
                self.text.push('\t');
            }
        } else if vocabulary.line_break.contains(&name) {
            self.text.push('\n');
        } else if name == "s" && vocabulary.cell == ODF.cell {
            self.text.push_str(&" ".repeat(repeats("c")));
        } else if name == vocabulary.cell {
            // All repeated cells except the last one; they are empty, or have the same content.
            let empty = repeats("number-columns-repeated").saturating_sub(1);
            self.text.push_str(&"\t".repeat(empty));
        } else if name == "table"
            && let Some(title) = attribute(element, "name")
        {
            self.text.push_str(&format!("## {title}\n"));
        }
    }

    fn close(&mut self, name: &str, vocabulary: &Vocabulary) {
        self.depth -= usize::from(vocabulary.text.contains(&name)).min(self.depth);
        if name == vocabulary.cell {
            self.cells = self.cells.saturating_sub(1);
            trim_end(&mut self.text, ' ');
            self.text.push('\t');
        } else if name == vocabulary.row {
            trim_end(&mut self.text, '\t');
            self.text.push('\n');
        } else if vocabulary.paragraph.contains(&name) {
            self.text.push(if self.cells > 0 { ' ' } else { '\n' });
        }
    }
}

/// Removes `character` from the end of `text`.
fn trim_end(text: &mut String, character: char) {
    text.truncate(text.trim_end_matches(character).len());
}
