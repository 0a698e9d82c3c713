//! The record of the skills that runs wrote while their conversation had untrusted content, and of those that were fetched from elsewhere:
//! digests of the SKILL.md files. The hosts in such a skill are not the user's choice. A skill that the user changes has another digest.

use anyhow::Result;
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use std::path::{Path, PathBuf};

/// The mark before a digest whose hosts the user has named after all.
const NAMED_MARK: u8 = b'+';

/// The record, a file with a digest on each line. The last line with a digest counts.
#[derive(Clone, Debug)]
pub struct WrittenSkills(PathBuf);

impl WrittenSkills {
    /// The record in `file`, which may be missing.
    pub fn new(file: PathBuf) -> Self {
        Self(file)
    }

    /// True if a run wrote a SKILL.md with this text, or it was fetched, and the user has not named its hosts.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn contains(&self, text: &[u8]) -> Result<bool> {
        let record = durable_file::read(&self.0)?.unwrap_or_default();
        let digest = digest(text);
        let is_of_text =
            |line: &&[u8]| line.strip_prefix(&[NAMED_MARK]).unwrap_or(line) == digest.as_bytes();
        let last = record.split(|byte| *byte == b'\n').rfind(is_of_text);
        Ok(last.is_some_and(|line| !line.starts_with(&[NAMED_MARK])))
    }

    /// Records that the user names the hosts in the SKILL.md with this text.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn name_hosts(&self, text: &[u8]) -> Result<()> {
        if self.contains(text)? { self.append(&format!("+{}\n", digest(text))) } else { Ok(()) }
    }

    /// Records that a run is about to replace the text `old` of a SKILL.md, if there is one, by `new`. The text is recorded if the
    /// conversation has untrusted content (`is_untrusted`), or had it when `old` was written.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn record(&self, old: Option<&[u8]>, new: &[u8], is_untrusted: bool) -> Result<()> {
        let is_tainted = is_untrusted || old.map_or(Ok(false), |old| self.contains(old))?;
        if !is_tainted || self.contains(new)? {
            return Ok(());
        }
        self.append(&format!("{}\n", digest(new)))
    }

    fn append(&self, line: &str) -> Result<()> {
        durable_file::create_dir(self.0.parent().unwrap_or(Path::new("/")))?;
        durable_file::with_line_log(&self.0, |log| {
            let size = durable_file::size(log, &self.0)?;
            durable_file::append_to(log, &self.0, size, line.as_bytes())?;
            durable_file::sync(log, &self.0)
        })
    }
}
