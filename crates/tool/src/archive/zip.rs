//! A ZIP archive, as far as office programs and packers of small files write it (APPNOTE 6.3.10): a central directory, entries that are
//! stored or deflated, no encryption, no ZIP64.

use super::unpacked::{Unpacked, UnpackedFile, not_a_file, too_large};
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
pub(crate) const START: &[u8] = b"PK\x03\x04";
/// The first bytes of an entry of the central directory, and of the record that ends the archive.
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
const END_RECORD: &[u8] = b"PK\x05\x06";
/// The lengths of the fixed parts of such an entry, and of the header before a file's content.
const DIRECTORY_ENTRY_BYTES: usize = 46;
const FILE_HEADER_BYTES: usize = 30;
/// The system in whose terms an entry gives the attributes of its file.
const MADE_BY_UNIX: u8 = 3;
/// The types of files in a mode (`sys/stat.h`).
const UNIX_TYPE: usize = 0o170_000;
const UNIX_FILE: usize = 0o100_000;
const UNIX_FOLDER: usize = 0o040_000;
const UNIX_LINK: usize = 0o120_000;
/// Methods of compression.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// An archive in memory.
pub(crate) struct Archive<'a> {
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
    /// The mode of the file on a Unix, with its type; 0 if another system wrote the archive.
    unix_mode: usize,
}

impl<'a> Archive<'a> {
    /// Reads the directory of the archive; `None` if `bytes` are not an archive.
    pub(crate) fn open(bytes: &'a [u8]) -> Option<Self> {
        Some(Self { bytes, entries: read_directory(bytes)?.into_iter().collect() })
    }

    /// True if the archive has the file `name`.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Reads the file `name` as text.
    ///
    /// # Errors
    /// The file is missing, encrypted, damaged, or too large.
    pub(crate) fn read(&self, name: &str) -> Result<String, String> {
        let entry = self.entries.get(name).ok_or_else(|| format!("`{name}` is missing in it"))?;
        let bytes = entry.read(name, self.bytes, MAX_ENTRY_BYTES)?;
        let bytes = bytes.ok_or_else(|| {
            format!("`{name}` in it is larger than {} MiB", MAX_ENTRY_BYTES >> 20)
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Entry {
    /// Reads the content of this entry of `archive`. `None` if it has more than `limit_bytes`.
    fn read(
        &self,
        name: &str,
        archive: &[u8],
        limit_bytes: u64,
    ) -> Result<Option<Vec<u8>>, String> {
        let damaged = || format!("`{}` in it is damaged", name.escape_debug());
        if self.is_encrypted {
            return Err("it is encrypted".into());
        }
        let header = archive.get(self.header..).ok_or_else(damaged)?;
        let length = |field| u16_at(header, field).map(usize::from).ok_or_else(damaged);
        let start = FILE_HEADER_BYTES + length(26)? + length(28)?;
        let end = start.checked_add(self.compressed_bytes).ok_or_else(damaged)?;
        let content = header.get(start..end).ok_or_else(damaged)?;
        let mut bytes = Vec::new();
        match self.method {
            STORED => bytes.extend_from_slice(content),
            DEFLATED => {
                DeflateDecoder::new(content)
                    .take(limit_bytes + 1)
                    .read_to_end(&mut bytes)
                    .map_err(|_| damaged())?;
            }
            _ => return Err(damaged()),
        }
        Ok((bytes.len() as u64 <= limit_bytes).then_some(bytes))
    }
}

/// Unpacks the files of the archive.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<UnpackedFile>, String> {
    let entries = read_directory(bytes).ok_or("the archive is damaged")?;
    let mut unpacked = Unpacked::default();
    for (path, entry) in entries {
        unpacked.count_entry()?;
        match entry.unix_mode & UNIX_TYPE {
            0 | UNIX_FILE | UNIX_FOLDER => {}
            UNIX_LINK => return Err(not_a_file(&path, "a link")),
            _ => return Err(not_a_file(&path, "neither a file nor a folder")),
        }
        if path.ends_with('/') || entry.unix_mode & UNIX_TYPE == UNIX_FOLDER {
            continue;
        }
        let bytes = entry.read(&path, bytes, unpacked.remaining_bytes())?.ok_or_else(too_large)?;
        let is_executable = entry.unix_mode & 0o111 != 0;
        unpacked.push(UnpackedFile { path, bytes, is_executable })?;
    }
    Ok(unpacked.files)
}

/// Reads the entries of the archive in the order of its directory; `None` if `bytes` are not an archive.
fn read_directory(bytes: &[u8]) -> Option<Vec<(String, Entry)>> {
    bytes.strip_prefix(START)?;
    let first = bytes.len().saturating_sub(END_RECORD_BYTES + MAX_COMMENT_BYTES);
    let last = bytes.len().checked_sub(END_RECORD_BYTES)?;
    let end = (first..=last).rev().find(|start| bytes[*start..].starts_with(END_RECORD))?;
    let mut offset = u32_at(bytes, end + 16)?;
    let mut entries = Vec::new();
    while let Some(entry) = bytes.get(offset..).filter(|rest| rest.starts_with(DIRECTORY_ENTRY)) {
        let lengths = [28, 30, 32].map(|field| u16_at(entry, field).map(usize::from));
        let [name, extra, comment] = lengths;
        let name = entry.get(DIRECTORY_ENTRY_BYTES..DIRECTORY_ENTRY_BYTES + name?)?;
        let is_of_unix = entry.get(5) == Some(&MADE_BY_UNIX);
        entries.push((
            String::from_utf8_lossy(name).into_owned(),
            Entry {
                is_encrypted: u16_at(entry, 8)? & 1 != 0,
                method: u16_at(entry, 10)?,
                compressed_bytes: u32_at(entry, 20)?,
                header: u32_at(entry, 42)?,
                unix_mode: if is_of_unix { u32_at(entry, 38)? >> 16 } else { 0 },
            },
        ));
        offset += DIRECTORY_ENTRY_BYTES + name.len() + extra? + comment?;
    }
    Some(entries)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    let bytes = bytes.get(offset..offset + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let bytes = bytes.get(offset..offset + 4)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}
