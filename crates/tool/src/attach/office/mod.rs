//! The text of office documents: Word, Excel and PowerPoint (ECMA-376), and OpenDocument (ISO/IEC 26300). Both are ZIP
//! archives of XML files. Layout and formulas are left out; tables become rows of cells separated by tabs.

mod markup;
mod sheet;

use super::origin::AttachmentOrigin;
use crate::archive::zip::{self, Archive};
use anyhow::Result;
use markup::{ODF, OOXML, check_size, to_text};
use nanobot_base::error::{Exit, fail};
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser, ParserError};
use std::fmt::Display;
use std::time::Duration;

/// Maximum number of slides that are read.
const MAX_SLIDES: usize = 2_000;

/// The parser of office documents, in a process of its own.
pub struct OfficeParser;

impl IsolatedParser for OfficeParser {
    const NAME: &'static str = "office";
    const TIMEOUT: Duration = Duration::from_secs(30);
    const MEMORY_MIB: u64 = 1024;
    type Parameters = ();
    type Output = Result<Option<String>, String>;

    fn parse((): (), document: &[u8]) -> Self::Output {
        extract_text(document)
    }
}

/// True if `bytes` begin as an archive does.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(zip::START)
}

/// Reads the text of an office document. `None` if `bytes` are not an office document.
///
/// # Errors
/// Status 65 if the document is damaged, encrypted or too large, or its parser failed.
pub(super) fn read_text(bytes: &[u8], origin: AttachmentOrigin<'_>) -> Result<Option<String>> {
    if !is_archive(bytes) {
        return Ok(None);
    }
    let unreadable =
        |cause: &dyn Display| fail(Exit::BadInput, format!("{origin} cannot be read: {cause}"));
    match isolated_parser::parse::<OfficeParser>((), bytes) {
        Ok(text) => text.map_err(|cause| unreadable(&cause)),
        Err(ParserError::Stopped(stop)) => Err(stop.into()),
        Err(error) => Err(unreadable(&error)),
    }
}

fn extract_text(bytes: &[u8]) -> Result<Option<String>, String> {
    let Some(archive) = Archive::open(bytes) else {
        return Ok(None);
    };
    let text = if archive.contains("word/document.xml") {
        to_text(&archive.read("word/document.xml")?, &OOXML)?
    } else if archive.contains("xl/workbook.xml") {
        sheet::workbook_text(&archive)?
    } else if archive.contains("ppt/presentation.xml") {
        slides_text(&archive)?
    } else if archive.contains("content.xml") && archive.contains("mimetype") {
        to_text(&archive.read("content.xml")?, &ODF)?
    } else {
        return Ok(None);
    };
    if text.trim().is_empty() { Err("it has no text".into()) } else { Ok(Some(text)) }
}

/// The text of all slides, in the order of their numbers.
fn slides_text(archive: &Archive<'_>) -> Result<String, String> {
    let mut text = String::new();
    for number in 1..=MAX_SLIDES {
        let name = format!("ppt/slides/slide{number}.xml");
        // Numbers of removed slides may be missing.
        if !archive.contains(&name) {
            continue;
        }
        text.push_str(&format!("## Slide {number}\n"));
        text.push_str(&to_text(&archive.read(&name)?, &OOXML)?);
        text.push('\n');
        check_size(&text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::extract_text;
    use std::io::Write;

    /// A ZIP archive of `files`, with deflated content.
    pub(super) fn zip(files: &[(&str, &str)]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for (name, text) in files {
            let mut encoder =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            let data = encoder.finish().unwrap();
            let u16 = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
            let u32 = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
            let sizes = [[0; 4], u32(data.len()), u32(text.len())].concat();
            let common = [&[20, 0, 0, 0, 8, 0, 0, 0, 0, 0][..], &sizes, &u16(name.len())].concat();
            directory.extend(
                [
                    b"PK\x01\x02\x14\0".as_slice(),
                    &common,
                    &[0; 12],
                    &u32(bytes.len()),
                    name.as_bytes(),
                ]
                .concat(),
            );
            bytes.extend(
                [b"PK\x03\x04".as_slice(), &common, &[0; 2], name.as_bytes(), &data].concat(),
            );
        }
        let count = u16::try_from(files.len()).unwrap().to_le_bytes();
        let (size, start) =
            (u32::try_from(directory.len()).unwrap(), u32::try_from(bytes.len()).unwrap());
        bytes.extend(directory);
        bytes.extend(
            [
                b"PK\x05\x06\0\0\0\0".as_slice(),
                &count,
                &count,
                &size.to_le_bytes(),
                &start.to_le_bytes(),
                &[0; 2],
            ]
            .concat(),
        );
        bytes
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], expect: Result<&str, &str>) {
        let text = extract_text(&zip(files));
        let text = text.as_ref().map(|text| text.as_deref().expect("an office document"));
        assert_eq!(text.map_err(String::as_str), expect);
    }

    #[test]
    fn documents_and_slides() {
        let word = "<w:document><w:body><w:p><w:pPr><w:tabs><w:tab w:val=\"left\" w:pos=\"720\"/></w:tabs></w:pPr><w:r><w:t>Dear A&amp;B</w:t></w:r><w:r><w:tab/><w:t xml:space=\"preserve\"> x</w:t></w:r></w:p>\
             <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>\
             <w:p><w:r><w:t>one</w:t><w:br/><w:t>two &#233;</w:t></w:r></w:p></w:body></w:document>";
        check(&[("word/document.xml", word)], Ok("Dear A&B\t x\na\tb\none\ntwo é\n"));
        let slide = |text: &str| format!("<p:sld><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>");
        check(
            &[
                ("ppt/presentation.xml", "<p/>"),
                ("ppt/slides/slide3.xml", &slide("second")),
                ("ppt/slides/slide1.xml", &slide("first")),
            ],
            Ok("## Slide 1\nfirst\n\n## Slide 3\nsecond\n\n"),
        );
    }

    #[test]
    fn open_document() {
        let text = "<office:text><text:h>Title</text:h><text:p>a<text:s text:c=\"3\"/>b<text:tab/><text:span>c</text:span><text:line-break/>d</text:p></office:text>";
        check(&[("mimetype", "x"), ("content.xml", text)], Ok("Title\na   b\tc\nd\n"));
        let sheet = "<office:spreadsheet><table:table table:name=\"Costs\"><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>\
             <table:table-cell table:number-columns-repeated=\"2\"/><table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table></office:spreadsheet>";
        check(&[("mimetype", "x"), ("content.xml", sheet)], Ok("## Costs\na\t\t\tb\n"));
    }

    #[test]
    fn unusable_documents() {
        assert_eq!(extract_text(b"PK\x03\x04"), Ok(None));
        assert_eq!(extract_text(&zip(&[("other.txt", "x")])), Ok(None));
        check(&[("word/document.xml", "<w:document/>")], Err("it has no text"));
        check(&[("word/document.xml", "<w:p><w:t>x</w:q>")], Err("its XML is damaged"));
        let bomb = "<w:t>".to_owned() + &" ".repeat(80 << 20);
        check(
            &[("word/document.xml", &bomb)],
            Err("`word/document.xml` in it is larger than 64 MiB"),
        );
    }

    #[test]
    fn fuzz_any_archive_is_read_or_refused() {
        let word = "<w:p><w:r><w:t>a&amp;b</w:t><w:tab/></w:r></w:p>";
        let strings = "<sst><si><t>x</t></si></sst>";
        let seeds = [
            zip(&[("word/document.xml", word)]),
            zip(&[
                ("xl/workbook.xml", "<sheet name=\"a\" r:id=\"r1\"/>"),
                ("xl/sharedStrings.xml", strings),
            ]),
            zip(&[("mimetype", "x"), ("content.xml", "<text:p>a<text:s text:c=\"3\"/></text:p>")]),
        ];
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        nanobot_base::fuzz::check(&seeds, |input, _| drop(extract_text(input)));
    }
}
