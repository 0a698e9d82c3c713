//! A ZIP archive, as far as office programs write it (APPNOTE 6.3.10): a central directory, entries that are stored or
//! deflated, no encryption, no ZIP64.

use flate2::read::DeflateDecoder;
use std::collections::BTreeMap;
use std::io::Read;

/// Maximum size of one file in the archive, in bytes, uncompressed.
const MAX_ENTRY_BYTES: u64 = 64 << 20;
/// Length of the record that ends an archive, without its comment.
const END_RECORD_BYTES: usize = 22;
/// Maximum length of the comment that may follow that record.
const MAX_COMMENT_BYTES: usize = 0xffff;
/// The first bytes of an archive.
pub(super) const START: &[u8] = b"PK\x03\x04";
/// The first bytes of an entry of the central directory, and of the record that ends the archive.
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
const END_RECORD: &[u8] = b"PK\x05\x06";
/// The lengths of the fixed parts of such an entry, and of the header before a file's content.
const DIRECTORY_ENTRY_BYTES: usize = 46;
const FILE_HEADER_BYTES: usize = 30;
/// Methods of compression.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// An archive in memory.
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    entries: BTreeMap<String, Entry>,
}

/// The position of a file in the archive.
struct Entry {
    method: u16,
    is_encrypted: bool,
    compressed_bytes: usize,
    /// Offset of the header that precedes the content.
    header: usize,
}

impl<'a> Archive<'a> {
    /// Reads the directory of the archive; `None` if `bytes` are not an archive.
    pub(super) fn open(bytes: &'a [u8]) -> Option<Self> {
        bytes.strip_prefix(START)?;
        let first = bytes.len().saturating_sub(END_RECORD_BYTES + MAX_COMMENT_BYTES);
        let last = bytes.len().checked_sub(END_RECORD_BYTES)?;
        let end = (first..=last).rev().find(|start| bytes[*start..].starts_with(END_RECORD))?;
        let mut offset = u32_at(bytes, end + 16)?;
        let mut entries = BTreeMap::new();
        while let Some(entry) = bytes.get(offset..).filter(|rest| rest.starts_with(DIRECTORY_ENTRY))
        {
            let lengths = [28, 30, 32].map(|field| u16_at(entry, field).map(usize::from));
            let [name, extra, comment] = lengths;
            let name = entry.get(DIRECTORY_ENTRY_BYTES..DIRECTORY_ENTRY_BYTES + name?)?;
            entries.insert(
                String::from_utf8_lossy(name).into_owned(),
                Entry {
                    is_encrypted: u16_at(entry, 8)? & 1 != 0,
                    method: u16_at(entry, 10)?,
                    compressed_bytes: u32_at(entry, 20)?,
                    header: u32_at(entry, 42)?,
                },
            );
            offset += DIRECTORY_ENTRY_BYTES + name.len() + extra? + comment?;
        }
        Some(Self { bytes, entries })
    }

    /// True if the archive has the file `name`.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Reads the file `name` as text.
    ///
    /// # Errors
    /// The file is missing, encrypted, damaged, or too large.
    pub(super) fn read(&self, name: &str) -> Result<String, String> {
        let damaged = || format!("`{name}` in it is damaged");
        let entry = self.entries.get(name).ok_or_else(|| format!("`{name}` is missing in it"))?;
        if entry.is_encrypted {
            return Err("it is encrypted".into());
        }
        let header = self.bytes.get(entry.header..).ok_or_else(damaged)?;
        let length = |field| u16_at(header, field).map(usize::from).ok_or_else(damaged);
        let start = FILE_HEADER_BYTES + length(26)? + length(28)?;
        let end = start.checked_add(entry.compressed_bytes).ok_or_else(damaged)?;
        let content = header.get(start..end).ok_or_else(damaged)?;
        let mut bytes = Vec::new();
        match entry.method {
            STORED => bytes.extend_from_slice(content),
            DEFLATED => {
                DeflateDecoder::new(content)
                    .take(MAX_ENTRY_BYTES + 1)
                    .read_to_end(&mut bytes)
                    .map_err(|_| damaged())?;
            }
            _ => return Err(damaged()),
        }
        if bytes.len() as u64 > MAX_ENTRY_BYTES {
            Err(format!("`{name}` in it is larger than {} MiB", MAX_ENTRY_BYTES >> 20))
        } else {
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let bytes = bytes.get(offset..offset + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes = bytes.get(offset..offset + 4)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}
