//! The text of an Excel workbook: each sheet with its name, each row with its cells at their columns.

use super::markup::{attribute, check_size, damaged, resolve};
use crate::archive::zip::Archive;
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::Event;
use std::collections::BTreeMap;

/// Maximum number of columns between two cells: a sheet can have 16,384.
const MAX_GAP_COLUMNS: usize = 64;

/// The text of all sheets, in the order of the workbook.
///
/// # Errors
/// A part is damaged, or the text too long.
pub(super) fn workbook_text(archive: &Archive<'_>) -> Result<String, String> {
    let strings = if archive.contains("xl/sharedStrings.xml") {
        texts_in(&archive.read("xl/sharedStrings.xml")?, "si")?
    } else {
        Vec::new()
    };
    let targets = attributes_of(
        &read_optional(archive, "xl/_rels/workbook.xml.rels")?,
        "Relationship",
        ["Id", "Target"],
    )?;
    let targets: BTreeMap<String, String> =
        targets.into_iter().map(|[id, target]| (id, target)).collect();
    let sheets = attributes_of(&archive.read("xl/workbook.xml")?, "sheet", ["name", "id"])?;
    let mut text = String::new();
    for (index, [name, id]) in sheets.iter().enumerate() {
        let default_target = format!("worksheets/sheet{}.xml", index + 1);
        let target = targets.get(id).unwrap_or(&default_target);
        let path = match target.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None => format!("xl/{target}"),
        };
        text.push_str(&format!("## {name}\n"));
        append_rows(&archive.read(&path)?, &strings, &mut text)?;
        text.push('\n');
    }
    Ok(text)
}

fn read_optional(archive: &Archive<'_>, name: &str) -> Result<String, String> {
    if archive.contains(name) { archive.read(name) } else { Ok(String::new()) }
}

/// The values of these attributes of all elements `element`.
fn attributes_of(xml: &str, element: &str, names: [&str; 2]) -> Result<Vec<[String; 2]>, String> {
    let mut reader = Reader::from_str(xml);
    let mut values = Vec::new();
    loop {
        match reader.read_event().map_err(|_| damaged())? {
            Event::Start(start) | Event::Empty(start) if start.local_name().as_ref() == element => {
                values.push(names.map(|name| attribute(&start, name).unwrap_or_default()));
            }
            Event::Eof => return Ok(values),
            _ => {}
        }
    }
}

/// The text of each element `element`: the character data of the `t` in it.
fn texts_in(xml: &str, element: &str) -> Result<Vec<String>, String> {
    let mut reader = Reader::from_str(xml);
    let (mut texts, mut text, mut is_text) = (Vec::new(), String::new(), false);
    loop {
        match reader.read_event().map_err(|_| damaged())? {
            Event::Start(start) => is_text = start.local_name().as_ref() == "t",
            Event::End(end) => {
                is_text = false;
                if end.local_name().as_ref() == element {
                    texts.push(std::mem::take(&mut text));
                }
            }
            Event::Empty(start) if start.local_name().as_ref() == element => {
                texts.push(String::new());
            }
            Event::Text(part) if is_text => {
                text.push_str(&part.xml_content(XmlVersion::Implicit1_0));
            }
            Event::GeneralRef(reference) if is_text => text.extend(resolve(&reference)),
            Event::Eof => return Ok(texts),
            _ => {}
        }
    }
}

/// Appends the rows of a sheet. A cell refers to a shared string, or contains its value.
fn append_rows(xml: &str, strings: &[String], text: &mut String) -> Result<(), String> {
    let mut reader = Reader::from_str(xml);
    let (mut value, mut is_value, mut is_shared) = (String::new(), false, false);
    let mut last_column = None;
    loop {
        match reader.read_event().map_err(|_| damaged())? {
            Event::Start(start) => match start.local_name().as_ref() {
                "row" => last_column = None,
                "c" => {
                    is_shared = attribute(&start, "t").as_deref() == Some("s");
                    let next_column = last_column.map_or(0, |last_column| last_column + 1);
                    let column =
                        attribute(&start, "r").map_or(next_column, |name| column_of(&name));
                    let gap = column.saturating_sub(last_column.unwrap_or(0)).min(MAX_GAP_COLUMNS);
                    text.push_str(&"\t".repeat(gap));
                    last_column = Some(column);
                }
                name => is_value = ["v", "t"].contains(&name),
            },
            Event::Text(part) if is_value => {
                value.push_str(&part.xml_content(XmlVersion::Implicit1_0));
            }
            Event::GeneralRef(reference) if is_value => value.extend(resolve(&reference)),
            Event::End(end) => match end.local_name().as_ref() {
                "row" => text.push('\n'),
                "c" => {
                    let mut cell_text = &value;
                    if is_shared
                        && let Ok(index) = value.trim().parse::<usize>()
                        && let Some(shared) = strings.get(index)
                    {
                        cell_text = shared;
                    }
                    text.push_str(&cell_text.replace(['\n', '\t'], " "));
                    value.clear();
                }
                _ => is_value = false,
            },
            Event::Eof => return Ok(()),
            _ => {}
        }
        check_size(text)?;
    }
}

/// The column of a cell such as `AB12`, from zero.
fn column_of(name: &str) -> usize {
    let letters = name.bytes().take_while(u8::is_ascii_uppercase).take(3);
    letters.fold(0, |column, letter| column * 26 + usize::from(letter - b'A') + 1).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::super::{extract_text, tests::zip};

    #[test]
    fn sheets_keep_their_columns() {
        let files = [
            (
                "xl/workbook.xml",
                "<workbook><sheets><sheet name=\"Costs &amp; more\" sheetId=\"1\" r:id=\"rId7\"/></sheets></workbook>",
            ),
            (
                "xl/_rels/workbook.xml.rels",
                "<Relationships><Relationship Id=\"rId7\" Target=\"worksheets/first.xml\"/></Relationships>",
            ),
            (
                "xl/sharedStrings.xml",
                "<sst><si><t>item</t></si><si><r><t>two </t></r><r><t>parts</t></r></si></sst>",
            ),
            (
                "xl/worksheets/first.xml",
                "<worksheet><sheetData><row r=\"1\"><c r=\"A1\" t=\"s\"><v>0</v></c><c r=\"D1\" t=\"s\"><v>1</v></c></row>\
              <row r=\"2\"><c r=\"B2\"><f>SUM(1)</f><v>3.5</v></c><c r=\"C2\" t=\"inlineStr\"><is><t>x&lt;y</t></is></c></row></sheetData></worksheet>",
            ),
        ];
        let text = extract_text(&zip(&files)).unwrap().unwrap();
        assert_eq!(text, "## Costs & more\nitem\t\t\ttwo parts\n\t3.5\tx<y\n\n");
    }
}
