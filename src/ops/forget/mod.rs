//! Removal of a text, a session or a sender from the files of this program.
//!
//! The table of documented paths says what happens to each file. A text is overwritten in place with as many bytes: lengths,
//! offsets and formats stay as they are, other processes go on with the files that they have open, and a run that is killed
//! leaves nothing but a part of the work, which the next one finishes: what tells of other files is removed after them. Each
//! file is changed under the lock of its writers. What cannot be read is named, and the rest is removed.

mod content;
mod erase;
mod files;
pub(crate) mod finding;
mod scan;
pub(crate) mod search;
mod subject;

use anyhow::Result;
use content::FileFormat;
use finding::{Finding, FindingAction, Findings};
use nanobot_base::written_text::SearchText;
use nanobot_channel::approvals::ApprovalFile;
use nanobot_os::age::Age;
use nanobot_os::durable_file::{self, is_abandoned, is_temporary};
use nanobot_os::paths::Erasure;
use nanobot_os::signal;
use nanobot_tool::undo::UndoStore;
use nanobot_tool::undo::journal::JOURNAL_FILE;
use scan::{Query, Scan};
use search::{Search, Subject};
use std::path::Path;

/// The reason to keep what is in names and identifiers.
const IN_NAMES: &str = "in keys, names and numbers of its format; `--session` and `--sender` remove those of sessions and senders";

impl Search<'_> {
    /// Lists the files in which the subject occurs, in the order of their paths, and those that cannot be read.
    ///
    /// # Errors
    /// A file that tells what belongs to the subject cannot be read.
    pub(crate) fn find(&self) -> Result<Vec<Finding>> {
        let mut findings = Findings::default();
        let paths = self.list_files(&mut findings);
        for path in &paths {
            signal::check()?;
            if let Err(error) = self.add_file(&mut findings, path) {
                findings.add_unsearched(path, &format!("{error:#}"));
            }
        }
        match self.subject {
            Subject::Text(text) => {
                self.add_names_of_changes(&mut findings, text)?;
                self.add_recordings(&mut findings);
            }
            Subject::Session(_) | Subject::Sender { .. } => {
                self.add_attachments(&mut findings, &paths)?;
                self.add_sessions(&mut findings)?;
                self.add_unattributed(&mut findings);
                self.add_references(&mut findings)?;
            }
        }
        Ok(findings.into_list())
    }

    /// Adds what the file at `path` contains.
    fn add_file(&self, findings: &mut Findings, path: &Path) -> Result<()> {
        let treatment = self.erasure(path);
        let erasure = treatment.erasure;
        let is_text = self.is_text();
        if erasure == Erasure::RemoveFile && !is_text && path.ends_with(ApprovalFile::FILE_NAME) {
            return self.add_approvals(findings, path);
        }
        let is_journal = erasure == Erasure::RemoveDirectory && path.ends_with(JOURNAL_FILE);
        let is_searched = match erasure {
            Erasure::Overwrite => is_text || self.has_members(path),
            Erasure::RemoveFile => is_text || is_temporary(path),
            // The journal has words of ours, and the copies beside it the text of files.
            Erasure::RemoveDirectory => is_text != is_journal,
            Erasure::Keep(_) => is_text,
        };
        if !is_searched {
            return self.add_channel_data(findings, path, erasure);
        }
        let format = if erasure == Erasure::Overwrite || !is_text {
            self.format_of(path)?
        } else {
            FileFormat::Text
        };
        let Scan { ranges, numbers, count, excerpt, format_count, outputs } =
            scan_file(path, &self.query(path), format)?;
        let excerpt = if is_text { excerpt } else { String::new() };
        for output in outputs.iter().map(Path::new).filter(|output| output.exists()) {
            findings.add(output, FindingAction::Remove);
        }
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let is_named = match self.subject {
            Subject::Text(text) => !SearchText::new(text).find(name).is_empty(),
            Subject::Session(_) | Subject::Sender { .. } => false,
        };
        let action = match erasure {
            Erasure::Overwrite if ranges.is_empty() && numbers.is_empty() => None,
            Erasure::Overwrite => Some(self.require_settled(path)?),
            _ if count == 0 && !is_named => None,
            Erasure::RemoveFile if is_temporary(path) && !is_abandoned(path) => {
                Some(FindingAction::Keep("a run is writing it".into()))
            }
            Erasure::RemoveFile | Erasure::RemoveDirectory => Some(FindingAction::Remove),
            Erasure::Keep(reason) => Some(FindingAction::Keep(reason.into())),
        };
        let is_whole = action == Some(FindingAction::Remove);
        if let Some(action) = action {
            let is_directory = erasure == Erasure::RemoveDirectory;
            let path = if is_directory { &treatment.path } else { path };
            findings.add(path, action).add_occurrences(count, &excerpt);
        }
        let format_count = format_count + usize::from(is_named && erasure == Erasure::Overwrite);
        if format_count > 0 && is_text && !is_whole {
            findings.keep(path, IN_NAMES).add_occurrences(format_count, "");
        }
        Ok(())
    }

    /// Adds a file of the sender's channel that has the sender's id.
    fn add_channel_data(
        &self,
        findings: &mut Findings,
        path: &Path,
        erasure: Erasure,
    ) -> Result<()> {
        if let (Subject::Sender { channel, id }, Erasure::Keep(reason)) = (self.subject, erasure)
            && self.channel_of(path).as_ref() == Some(channel)
        {
            let query = Query::Text(SearchText::new(&format!("\"{id}\"")));
            let count = scan_file(path, &query, FileFormat::Text)?.count;
            if count > 0 {
                findings.keep(path, reason).add_occurrences(count, "");
            }
        }
        Ok(())
    }

    /// Adds the turns of the undo that changed a file whose name has the text. The directory of a turn is no content.
    fn add_names_of_changes(&self, findings: &mut Findings, text: &str) -> Result<()> {
        let search = SearchText::new(text);
        let directory = self.ctx.paths.undo();
        let mut on_unreadable = |id: u64, error: &anyhow::Error| {
            let journal = directory.join(id.to_string()).join(JOURNAL_FILE);
            findings.add_unsearched(&journal, &format!("{error:#}"));
        };
        let turns = UndoStore::new(directory.clone(), Age::Never).turns(&mut on_unreadable)?;
        for turn in turns {
            let has_text = |path: &Path| {
                let name = path.strip_prefix(&turn.info.directory).unwrap_or(path);
                let name = name.strip_prefix(&self.ctx.paths.home).unwrap_or(name);
                !search.find(name.as_os_str().as_encoded_bytes()).is_empty()
            };
            let changed = turn.changed_paths.iter().map(|changed| &changed.path);
            let paths = changed.chain(turn.gaps.iter().map(|gap| &gap.path));
            let count = paths.filter(|path| has_text(path)).count();
            if count > 0 {
                findings.add(&turn.dir, FindingAction::Remove).add_occurrences(count, "");
            }
        }
        Ok(())
    }
}

/// The occurrences in the file at `path`; none if it was removed meanwhile.
fn scan_file(path: &Path, query: &Query, format: FileFormat) -> Result<Scan> {
    match durable_file::open_existing(path)? {
        Some(file) => content::scan(query, &file, format),
        None => Ok(Scan::default()),
    }
}
