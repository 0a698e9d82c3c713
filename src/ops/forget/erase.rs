//! Carries out what a search has found.

use super::content::{self, FileFormat};
use super::finding::{Finding, FindingAction};
use super::search::{Search, Subject};
use crate::ops::consolidation::memory_edit;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, exit_for, fail};
use nanobot_channel::approvals::ApprovalFile;
use nanobot_channel::inbox::ChannelInbox;
use nanobot_channel::pairing::PairingFile;
use nanobot_os::durable_file::is_temporary;
use nanobot_os::file_lock::{FileLock, with_lock};
use nanobot_os::signal;
use nanobot_sandbox::private_tmp;
use nanobot_store::session::{self, SessionRemoval};
use nanobot_tool::undo;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The reason to keep a file that tells of others.
const NEEDED: &str = "it tells of what was not removed";

/// The order of a removal: what tells of other files is removed after them.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum RemovalStage {
    /// Files and directories that are removed as a whole.
    Whole,
    /// Lines about it.
    Lines,
    Session,
    /// Records that tell which sessions are a sender's.
    Senders,
}

/// The result of a removal.
pub(crate) struct Erased {
    pub(crate) findings: Vec<Finding>,
    /// The status, if a file that should have been changed was kept.
    pub(crate) failure: Option<Exit>,
}

impl Search<'_> {
    /// Carries out the actions. A file that cannot be changed is kept, with the reason.
    ///
    /// # Errors
    /// A session is in use, and nothing else was changed; or the run is being stopped.
    pub(crate) fn erase(&self, mut findings: Vec<Finding>) -> Result<Erased> {
        signal::install(None).context("wait for signals")?;
        // If one is in use, nothing of it is changed.
        let mut removals = BTreeMap::new();
        for key in findings.iter().filter_map(|finding| key_of_removed(&finding.action)) {
            // Several copies of it may have been found.
            if !removals.contains_key(key) {
                removals.insert(key.clone(), session::begin_removal(&self.sessions, key)?);
            }
        }
        // All files of the memory change under one lock.
        let is_memory = |finding: &Finding| {
            finding.action == FindingAction::Overwrite && self.is_memory_file(&finding.path)
        };
        let lock_memory =
            || memory_edit::lock(self.ctx, &self.memory, &self.sessions, Duration::ZERO);
        let is_unfinished = self.memory.is_unfinished();
        let memory_lock = findings.iter().any(is_memory).then(lock_memory);
        if is_unfinished && matches!(memory_lock, Some(Ok(_))) {
            // An interrupted change was completed: its text is in other files now.
            findings = self.find()?;
        }
        private_tmp::remove_left(&private_tmp::candidate_parents(self.ctx.env.get("TMPDIR")));
        findings.sort_by_key(|finding| self.stage(finding));
        let mut failure = None;
        // True if a file was not removed that later ones tell of.
        let mut is_incomplete = false;
        for finding in &mut findings {
            signal::check()?;
            let tells_of_others = self.stage(finding) > RemovalStage::Whole
                && !matches!(self.subject, Subject::Text(_));
            let result = match &memory_lock {
                _ if finding.action.is_kept() => continue,
                _ if is_incomplete && tells_of_others => {
                    finding.action = FindingAction::Keep(NEEDED.to_owned());
                    continue;
                }
                Some(Err(error)) if is_memory(finding) => {
                    Err(fail(exit_for(error), format!("{error:#}")))
                }
                _ => self.erase_one(finding, &mut removals),
            };
            if let Err(error) = result {
                // To try again helps only for files in use.
                failure = failure.filter(|exit| *exit == Exit::TryAgain).or(Some(exit_for(&error)));
                is_incomplete |= finding.action == FindingAction::Remove;
                finding.action = FindingAction::Keep(format!("{error:#}"));
            }
        }
        Ok(Erased { findings, failure })
    }

    fn stage(&self, finding: &Finding) -> RemovalStage {
        match finding.action {
            FindingAction::Remove | FindingAction::Keep(_) | FindingAction::NotSearched(_) => {
                RemovalStage::Whole
            }
            FindingAction::RemoveSession(_) => RemovalStage::Session,
            _ if finding.path == self.ledger() || self.is_channel_inbox(&finding.path) => {
                RemovalStage::Senders
            }
            FindingAction::Overwrite | FindingAction::Unpair | FindingAction::RemoveApprovals => {
                RemovalStage::Lines
            }
        }
    }

    fn is_memory_file(&self, path: &Path) -> bool {
        path.starts_with(self.workspace.join("memory")) || path == self.memory.path()
    }

    fn erase_one(
        &self,
        finding: &Finding,
        removals: &mut BTreeMap<String, SessionRemoval<'_>>,
    ) -> Result<()> {
        let Finding { path, action, .. } = finding;
        match action {
            FindingAction::Keep(_) | FindingAction::NotSearched(_) => Ok(()),
            FindingAction::Overwrite => {
                let _lock = self.lock_of(path)?;
                self.overwrite(path)
            }
            FindingAction::RemoveSession(key) => match removals.remove(key) {
                Some(removal) => removal.finish(),
                // Its first copy has removed all of them.
                None if !path.exists() => Ok(()),
                None => Err(fail(Exit::Io, "another copy of the session could not be removed")),
            },
            FindingAction::Unpair => {
                let Subject::Sender { channel, id } = self.subject else {
                    return Ok(());
                };
                PairingFile::change(path, |file| file.remove_sender(channel, id)).map(drop)
            }
            FindingAction::RemoveApprovals => {
                let now = self.ctx.clock.timestamp().as_millisecond();
                ApprovalFile::change(path, now, |file| self.remove_approvals(path, file)).map(drop)
            }
            FindingAction::Remove => {
                let result = if path.is_dir() {
                    refuse_running_turn(path)?;
                    std::fs::remove_dir_all(path)
                } else {
                    std::fs::remove_file(path)
                };
                match result {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    result => result.with_context(|| format!("remove `{}`", path.display())),
                }
            }
        }
    }

    /// Takes the lock that a process holds while it has the content of the file at `path` in memory. The lock of an append is taken
    /// when the file is overwritten.
    ///
    /// # Errors
    /// Status 75 if it is in use.
    fn lock_of(&self, path: &Path) -> Result<Option<FileLock>> {
        let is_session =
            self.is_session_file(path) && path.extension().is_some_and(|kind| kind == "jsonl");
        let is_inbox = path.ends_with(ChannelInbox::FILE_NAME);
        let lock_path = if is_session {
            PathBuf::from(format!("{}.lock", path.display()))
        } else if is_inbox {
            path.with_file_name("lock")
        } else {
            return Ok(None);
        };
        let now = self.ctx.clock.local_timestamp();
        FileLock::acquire(&lock_path, "it", Some(&now), Duration::ZERO, &mut |_| {}).map(Some)
    }

    /// Overwrites the occurrences in the file at `path`.
    fn overwrite(&self, path: &Path) -> Result<()> {
        let metadata =
            std::fs::metadata(path).with_context(|| format!("stat `{}`", path.display()))?;
        if metadata.permissions().readonly() {
            return Err(fail(Exit::Io, "it is read-only"));
        }
        // Newer releases of the Python program have one lock for all sessions.
        let shared_lock = File::open(path.with_file_name(".session-files.lock")).ok();
        loop {
            let file = OpenOptions::new().read(true).write(true).open(path);
            let file = file.with_context(|| format!("open `{}`", path.display()))?;
            let write = || with_lock(&file, path, || self.overwrite_locked(&file, path));
            let is_written = match &shared_lock {
                Some(lock) if self.is_session_file(path) => with_lock(lock, path, write)?,
                _ => write()?,
            };
            if is_written {
                return Ok(());
            }
        }
    }

    /// Returns false if another process has replaced the file.
    fn overwrite_locked(&self, file: &File, path: &Path) -> Result<bool> {
        let context = || format!("overwrite `{}`", path.display());
        let metadata = file.metadata().with_context(context)?;
        if metadata.nlink() == 0 {
            return Ok(false);
        }
        let scan = content::scan(&self.query(path), file, self.format_of(path)?);
        content::overwrite(file, &scan.with_context(context)?).with_context(context)?;
        if self.is_session_file(path) {
            // The session was not used by this. Programs that copy changed files see another time.
            let modified = metadata.modified().with_context(context)? + Duration::from_secs(1);
            file.set_modified(modified).with_context(context)?;
        }
        file.sync_all().with_context(context)?;
        Ok(true)
    }

    /// The format of a file that is overwritten.
    pub(super) fn format_of(&self, path: &Path) -> Result<FileFormat> {
        if self.files.iter().any(|file| file == path) || is_temporary(path) {
            FileFormat::of_content(path)
        } else {
            Ok(FileFormat::of_name(path))
        }
    }
}

/// The key of the session that an action removes.
fn key_of_removed(action: &FindingAction) -> Option<&String> {
    match action {
        FindingAction::RemoveSession(key) => Some(key),
        _ => None,
    }
}

/// # Errors
/// Status 75 if the turn whose changes are in `directory` is still running.
fn refuse_running_turn(directory: &Path) -> Result<()> {
    if undo::journal::is_running(directory) {
        return Err(fail(Exit::TryAgain, "its turn is running"));
    }
    Ok(())
}
