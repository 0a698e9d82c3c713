//! The content of a file, searched and overwritten in chunks, so that memory does not grow with the file.

use super::scan::{Chunk, DIGIT_FILLER, Query, Scan, TEXT_FILLER};
use anyhow::{Context as _, Result, bail};
use nanobot_base::written_text::WrittenText;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The bytes of a text that are searched at a time, and those of one chunk that are searched again with the next: more than an
/// occurrence has.
const CHUNK_BYTES: u64 = 8 << 20;
const REPEATED_BYTES: usize = 256 << 10;
/// Largest line or document of JSON. It is read as a whole.
const MAX_JSON_BYTES: u64 = 1 << 30;

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFormat {
    Text,
    JsonLines,
    JsonDocument,
}

impl FileFormat {
    /// The format that the name of a file states.
    pub(super) fn of_name(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains(".jsonl") {
            Self::JsonLines
        } else if name.ends_with(".json") {
            Self::JsonDocument
        } else {
            Self::Text
        }
    }

    /// The format of a file that a person named: also that which its first line has.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of_content(path: &Path) -> Result<Self> {
        let mut line = Vec::new();
        let file = File::open(path).with_context(|| format!("open `{}`", path.display()))?;
        BufReader::new(file).take(MAX_JSON_BYTES).read_until(b'\n', &mut line)?;
        Ok(match Self::of_name(path) {
            Self::Text if WrittenText::new(&line).is_json() => Self::JsonLines,
            format => format,
        })
    }
}

/// The occurrences in `file`.
///
/// # Errors
/// The file cannot be read, or a line of JSON is too large.
pub(super) fn scan(query: &Query, file: &File, format: FileFormat) -> Result<Scan> {
    let mut scan = Scan::default();
    let mut reader = BufReader::new(file);
    match format {
        FileFormat::Text => scan_text(query, &mut reader, &mut scan)?,
        FileFormat::JsonDocument => {
            let bytes = read_limited(|out| reader.by_ref().take(MAX_JSON_BYTES).read_to_end(out))?;
            query.scan(
                Chunk { bytes: &bytes, offset: 0, repeated: 0, may_be_json: true },
                &mut scan,
            );
        }
        FileFormat::JsonLines => {
            let mut offset = 0;
            loop {
                let read_line =
                    |out: &mut Vec<u8>| reader.by_ref().take(MAX_JSON_BYTES).read_until(b'\n', out);
                let line = read_limited(read_line)?;
                if line.is_empty() {
                    break;
                }
                let chunk = Chunk { bytes: &line, offset, repeated: 0, may_be_json: true };
                query.scan(chunk, &mut scan);
                offset += line.len();
            }
        }
    }
    Ok(scan)
}

fn read_limited(read: impl FnOnce(&mut Vec<u8>) -> std::io::Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read(&mut bytes)?;
    if bytes.len() as u64 == MAX_JSON_BYTES {
        bail!("it has a line of more than 1 GiB");
    }
    Ok(bytes)
}

fn scan_text(query: &Query, reader: &mut impl Read, scan: &mut Scan) -> Result<()> {
    let (mut bytes, mut offset) = (Vec::new(), 0);
    loop {
        let skipped = bytes.len().saturating_sub(REPEATED_BYTES);
        bytes.drain(..skipped);
        offset += skipped;
        let repeated = bytes.len();
        if reader.take(CHUNK_BYTES).read_to_end(&mut bytes)? == 0 {
            return Ok(());
        }
        query.scan(Chunk { bytes: &bytes, offset, repeated, may_be_json: false }, scan);
    }
}

/// Overwrites what was found in `file`. Line breaks stay.
pub(super) fn overwrite(file: &File, scan: &Scan) -> std::io::Result<()> {
    let text = |byte: u8| if byte == b'\n' { byte } else { TEXT_FILLER };
    let number = |byte: u8| if byte.is_ascii_digit() { DIGIT_FILLER } else { byte };
    scan.ranges.iter().try_for_each(|range| replace(file, range, text))?;
    scan.numbers.iter().try_for_each(|range| replace(file, range, number))
}

fn replace(file: &File, range: &Range<usize>, with: impl Fn(u8) -> u8) -> std::io::Result<()> {
    let mut bytes = vec![0; range.len()];
    file.read_exact_at(&mut bytes, range.start as u64)?;
    bytes.iter_mut().for_each(|byte| *byte = with(*byte));
    file.write_all_at(&bytes, range.start as u64)
}
