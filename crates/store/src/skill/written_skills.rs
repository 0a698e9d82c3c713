//! The record of the skills that runs wrote while their conversation had untrusted content: digests of the SKILL.md files. The hosts in
//! such a skill are not the user's choice. A skill that the user changes has another digest.

use anyhow::Result;
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use std::path::{Path, PathBuf};

/// The record, a file with a digest on each line.
#[derive(Clone, Debug)]
pub struct WrittenSkills(PathBuf);

impl WrittenSkills {
    /// The record in `file`, which may be missing.
    pub fn new(file: PathBuf) -> Self {
        Self(file)
    }

    /// True if a run wrote a SKILL.md with this text.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn contains(&self, text: &[u8]) -> Result<bool> {
        let record = durable_file::read(&self.0)?.unwrap_or_default();
        let digest = digest(text);
        let mut lines = record.split(|byte| *byte == b'\n');
        Ok(lines.any(|line| line == digest.as_bytes()))
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
        durable_file::create_dir(self.0.parent().unwrap_or(Path::new("/")))?;
        let line = format!("{}\n", digest(new));
        durable_file::with_line_log(&self.0, |log| {
            let size = durable_file::size(log, &self.0)?;
            durable_file::append_to(log, &self.0, size, line.as_bytes())?;
            durable_file::sync(log, &self.0)
        })
    }
}
