//! The files of an archive while it is unpacked, and their limits.

use serde::{Deserialize, Serialize};

/// Maximum size of an archive, and of all its files together, in bytes.
pub const MAX_ARCHIVE_BYTES: u64 = 1 << 20;
/// Maximum number of files and folders.
pub(super) const MAX_ENTRIES: usize = 1_000;

/// A file of an archive.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnpackedFile {
    /// The path as written, which may lead anywhere.
    pub path: String,
    pub bytes: Vec<u8>,
    pub is_executable: bool,
}

/// The files that were unpacked so far, within the limits.
#[derive(Default)]
pub(super) struct Unpacked {
    pub(super) files: Vec<UnpackedFile>,
    entry_count: usize,
    total_bytes: u64,
}

impl Unpacked {
    /// Counts an entry.
    pub(super) fn count_entry(&mut self) -> Result<(), String> {
        self.entry_count += 1;
        if self.entry_count > MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} files and folders"));
        }
        Ok(())
    }

    /// The bytes that the next file may have.
    pub(super) fn remaining_bytes(&self) -> u64 {
        MAX_ARCHIVE_BYTES - self.total_bytes
    }

    pub(super) fn push(&mut self, file: UnpackedFile) -> Result<(), String> {
        if file.bytes.len() as u64 > self.remaining_bytes() {
            return Err(too_large());
        }
        self.total_bytes += file.bytes.len() as u64;
        self.files.push(file);
        Ok(())
    }
}

pub(super) fn too_large() -> String {
    format!("its files are larger than {} MiB in total", MAX_ARCHIVE_BYTES >> 20)
}

pub(super) fn not_a_file(path: &str, what: &str) -> String {
    format!("`{}` in it is {what}", path.escape_debug())
}
