//! Unpacks a small archive that a person has fetched: ZIP, or tar with or without gzip. It holds files and folders only; an archive with
//! links or devices is refused as a whole. Callers check the paths.

pub(crate) mod zip;

mod tar;
pub mod unpacked;

use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser, ParserError};
use std::time::Duration;
use unpacked::{MAX_ARCHIVE_BYTES, UnpackedFile};

/// The parser of archives, in a process of its own.
pub struct ArchiveParser;

impl IsolatedParser for ArchiveParser {
    const NAME: &'static str = "archive";
    const TIMEOUT: Duration = Duration::from_secs(30);
    const MEMORY_MIB: u64 = 512;
    type Parameters = ();
    type Output = Result<Vec<UnpackedFile>, String>;

    fn parse((): (), archive: &[u8]) -> Self::Output {
        if archive.starts_with(zip::START) { zip::unpack(archive) } else { tar::unpack(archive) }
    }
}

/// Unpacks the archive `name`.
///
/// # Errors
/// Status 65: it is damaged or too large, or has an entry that is neither a file nor a folder.
pub fn unpack(name: &str, archive: &[u8]) -> Result<Vec<UnpackedFile>> {
    let unreadable =
        |cause: &dyn std::fmt::Display| fail(Exit::BadInput, format!("`{name}`: {cause}"));
    if archive.len() as u64 > MAX_ARCHIVE_BYTES {
        return Err(unreadable(&"the archive is larger than 1 MiB"));
    }
    match isolated_parser::parse::<ArchiveParser>((), archive) {
        Ok(files) => files.map_err(|cause| unreadable(&cause)),
        Err(ParserError::Stopped(stop)) => Err(stop.into()),
        Err(error) => Err(unreadable(&error)),
    }
}
