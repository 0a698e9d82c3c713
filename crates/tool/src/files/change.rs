//! Changes of files by tools. Each is recorded for undo before it is made.

use super::text_file::text_to_change;
use super::{ChangeState, FileError, Files, FinalLink, LastState, READ_LIMIT_BYTES, read_content};
use crate::ToolError;
use crate::undo::ChangeRecorder;
use crate::undo::journal::PreviousState;
use nanobot_config::policy::Refusal;
use nanobot_config::policy::file_scope::FileAccess;
use nanobot_os::digest::digest;
use nanobot_os::durable_file::format_size;
use nanobot_os::rooted_fs::{self, ExistingEntry, PendingChange};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    pub path: PathBuf,
    /// Size of the old content in bytes; `None` if the file is new.
    pub(crate) old_size: Option<u64>,
    /// True if this run knew the old content.
    pub(crate) was_read: bool,
}

/// A change of one file.
pub(crate) struct FileChange<'a> {
    /// The path as the model wrote it.
    pub(crate) path: &'a str,
    /// The new content; `None` to remove the file.
    pub(crate) new: Option<&'a [u8]>,
    /// The mode of the file, if it changes or the file is new.
    pub(crate) mode: Option<u32>,
    pub(crate) expect: ExpectedState,
}

/// A change, and the file as it was before; `None` if it did not exist.
pub(crate) struct RevertibleChange<'a> {
    pub(crate) change: FileChange<'a>,
    pub(crate) old: Option<&'a LoadedFile>,
}

/// The failure of several changes that were to be made together.
pub(crate) enum ChangeAllError {
    /// No file was changed, or the changes were undone.
    Unchanged(ToolError),
    /// A file was changed and could not be restored; the message says which.
    Changed(String),
}

/// The state that a file must have before it is changed.
pub(crate) enum ExpectedState {
    /// The state of the last read or write in this run; any state if there was none.
    Unchanged,
    Missing,
    Digest(String),
}

/// A file that is about to be changed.
pub(crate) struct LoadedFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: String,
    pub(crate) mode: u32,
}

/// The content and the mode of an existing file.
struct FileContent {
    bytes: Vec<u8>,
    mode: u32,
}

/// The extent to which a change is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeStep {
    Check,
    Make,
}

impl<'a> FileChange<'a> {
    /// A change from the state at the last read or write of this run.
    fn new(path: &'a str, new: Option<&'a [u8]>) -> Self {
        Self { path, new, mode: None, expect: ExpectedState::Unchanged }
    }

    /// Checks that the existing entry is the expected one. `current` is its content if it is a file, and `last_state` its state at
    /// the last read or write of this run.
    fn check_current(
        &self,
        old: &ExistingEntry,
        current: Option<&FileContent>,
        last_state: Option<&LastState>,
    ) -> Result<(), FileError> {
        let raw_path = self.path;
        let current_digest = current.map(|entry| digest(&entry.bytes));
        let is_expected = match (&self.expect, old) {
            (ExpectedState::Missing, ExistingEntry::Missing) => true,
            (ExpectedState::Missing, _) => {
                return Err(FileError::Tool(format!("`{raw_path}` exists already").into()));
            }
            (ExpectedState::Digest(_), ExistingEntry::Missing) => false,
            (ExpectedState::Digest(expect), ExistingEntry::File(_)) => {
                current_digest.as_ref() == Some(expect)
            }
            (ExpectedState::Unchanged, ExistingEntry::File(_)) => {
                last_state.is_none_or(|last_state| last_state.digest == current_digest)
            }
            (_, _) => true,
        };
        if is_expected { Ok(()) } else { Err(FileError::Tool(changed_error(raw_path))) }
    }
}

impl Files {
    /// Replaces the content of the file `raw_path` with `bytes`, or creates it.
    pub fn write(&self, raw_path: &str, bytes: &[u8]) -> Result<WrittenFile, ToolError> {
        self.change(&FileChange::new(raw_path, Some(bytes)), ChangeStep::Make)
    }

    /// Checks that [`Self::write`] may write the file `raw_path`. Nothing is changed.
    pub(crate) fn check_write(&self, raw_path: &str) -> Result<(), ToolError> {
        self.change(&FileChange::new(raw_path, Some(b"")), ChangeStep::Check).map(drop)
    }

    /// Replaces the content of a file with the result of `edit`. Returns its path, the old content and the new one.
    pub fn edit(
        &self,
        raw_path: &str,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<(PathBuf, String, String), ToolError> {
        let decision = self.decide_change(raw_path, FinalLink::Follow);
        let is_final = |refusal: &Refusal| refusal.suggested_flag.is_none();
        if let Err(refusal) = &decision
            && is_final(refusal)
        {
            return Err(refusal.clone().into());
        }
        let loaded_file = match (self.load_for_change(raw_path), &decision) {
            (Err(ToolError::Denied(_)), Err(refusal)) => return Err(refusal.clone().into()),
            (loaded_file, _) => loaded_file?,
        };
        let LoadedFile { bytes, digest, .. } = loaded_file;
        let file = text_to_change(raw_path, &bytes)?;
        let with_path = |error: String| format!("`{raw_path}`: {error}");
        let after = edit(&file.text).map_err(with_path)?;
        let new = file.encode(&after, &bytes).map_err(with_path)?;
        // The user should not be asked to permit an edit that cannot be made.
        decision?;
        let change = FileChange {
            expect: ExpectedState::Digest(digest),
            ..FileChange::new(raw_path, Some(&new))
        };
        let WrittenFile { path, .. } = self.change(&change, ChangeStep::Make)?;
        Ok((path, file.text, after))
    }

    /// Removes the file, link or empty directory `raw_path`. Returns its path.
    pub fn remove(&self, raw_path: &str) -> Result<PathBuf, ToolError> {
        let change = FileChange::new(raw_path, None);
        Ok(self.change(&change, ChangeStep::Make)?.path)
    }

    /// Reads the file `raw_path`, which is about to be changed.
    ///
    /// # Errors
    /// The file cannot be read, or it was changed since this run last read it.
    pub(crate) fn load_for_change(&self, raw_path: &str) -> Result<LoadedFile, ToolError> {
        let (file, metadata, path) = self.open_regular(raw_path)?;
        let bytes =
            read_content(&file).map_err(|error| format!("`{raw_path}` cannot be read: {error}"))?;
        let digest = digest(&bytes);
        let last_state = self.changes.lock().last_states.get(&path).cloned();
        if last_state.is_some_and(|last_state| last_state.digest.as_ref() != Some(&digest)) {
            return Err(changed_error(raw_path));
        }
        let mode = metadata.permissions().mode() & 0o7777;
        Ok(LoadedFile { bytes, digest, mode })
    }

    /// Makes all of `changes`, or none: each is checked first, and if one fails nevertheless, the earlier ones are undone. Returns the
    /// path of each file by its path as the model wrote it.
    ///
    /// # Errors
    /// A change is refused or fails, or two of them have the same path.
    pub(crate) fn change_all<'a>(
        &self,
        changes: &[RevertibleChange<'a>],
    ) -> Result<BTreeMap<&'a str, PathBuf>, ChangeAllError> {
        let mut paths: BTreeMap<&str, PathBuf> = BTreeMap::new();
        for RevertibleChange { change, .. } in changes {
            let path =
                self.change(change, ChangeStep::Check).map_err(ChangeAllError::Unchanged)?.path;
            if paths.values().any(|other| *other == path) {
                let message = format!("`{}` is changed more than once", change.path);
                return Err(ChangeAllError::Unchanged(message.into()));
            }
            paths.insert(change.path, path);
        }
        for (count, RevertibleChange { change, .. }) in changes.iter().enumerate() {
            if let Err(error) = self.change(change, ChangeStep::Make) {
                return Err(match self.revert(&changes[..count]) {
                    Ok(()) => ChangeAllError::Unchanged(error),
                    Err((path, failure)) => ChangeAllError::Changed(format!(
                        "{}; and `{path}` could not be restored: {}",
                        error.message(),
                        failure.message()
                    )),
                });
            }
        }
        Ok(paths)
    }

    /// Undoes `changes`, the last one first. The error has the path of the file that could not be restored.
    pub(crate) fn revert<'a>(
        &self,
        changes: &[RevertibleChange<'a>],
    ) -> Result<(), (&'a str, ToolError)> {
        for RevertibleChange { change, old } in changes.iter().rev() {
            let raw_path = change.path;
            let reverse_change = FileChange {
                mode: old.map(|old| old.mode),
                ..FileChange::new(raw_path, old.map(|old| &old.bytes[..]))
            };
            self.change(&reverse_change, ChangeStep::Make).map_err(|error| (raw_path, error))?;
        }
        Ok(())
    }

    /// Makes a change, or only checks whether it can be made.
    fn change(&self, change: &FileChange<'_>, step: ChangeStep) -> Result<WrittenFile, ToolError> {
        let FileChange { new, mode, .. } = *change;
        let raw_path = change.path;
        // The lock is held to the end, so that concurrent writers of this run wait for each other.
        let mut changes = self.changes.lock();
        let ChangeState { last_states, recorder, written, .. } = &mut *changes;
        let (mut old_size, mut was_read) = (None, false);
        let link = match new {
            Some(_) => FinalLink::Follow,
            // Remove the link itself, not its target.
            None => FinalLink::NoFollow,
        };
        let result = self.follow(raw_path, FileAccess::Write, link, |root, path, relative| {
            let mut is_checked = false;
            let mut is_recorded = false;
            // An error prevents the change, so a check ends with one.
            let mut end_check = || {
                is_checked = step == ChangeStep::Check;
                if is_checked { Err(FileError::Io(ErrorKind::Interrupted.into())) } else { Ok(()) }
            };
            let mut approve = |pending: PendingChange<'_>| {
                let (old, temp) = match pending {
                    PendingChange::Directory(new_dir) => {
                        end_check()?;
                        let root_path = path.ancestors().nth(relative.components().count());
                        let new_dir = root_path.unwrap_or(path).join(new_dir);
                        return recorder
                            .as_mut()
                            .map_or(Ok(()), |recorder| recorder.record_directory(&new_dir))
                            .map_err(|error| unsaved_error(&error));
                    }
                    PendingChange::File { old, temp } => (old, temp),
                };
                let current = read_entry(raw_path, &old)?;
                let last_state = last_states.get(path);
                if let Some(content) = &current {
                    (old_size, was_read) = (Some(content.bytes.len() as u64), last_state.is_some());
                }
                change.check_current(&old, current.as_ref(), last_state)?;
                end_check()?;
                self.record_skill(path, current.as_ref(), new)?;
                let state = previous_state(&old, current.as_ref());
                let record = |recorder: &mut ChangeRecorder| {
                    recorder.record_change(path, &state, new, mode, temp)
                };
                let recorded = recorder.as_mut().map_or(Ok(false), record);
                is_recorded = recorded.map_err(|error| unsaved_error(&error))?;
                Ok(())
            };
            let result = match new {
                Some(bytes) => root.write(relative, bytes, mode, &mut approve).map(drop),
                None => root.remove(relative, &mut approve),
            };
            if let (Err(_), true, Some(recorder)) = (&result, is_recorded, recorder.as_mut()) {
                recorder.cancel_change(path).map_err(|error| unsaved_error(&error))?;
            }
            if is_checked { Ok(()) } else { result }
        });
        let verb = if new.is_some() { "written" } else { "removed" };
        let ((), path) = result.map_err(|error| self.to_failure(raw_path, verb, error))?;
        if step == ChangeStep::Make {
            last_states.insert(path.clone(), LastState { digest: new.map(digest) });
            written.insert(path.clone());
            if self.file_scope.is_instruction_file(&path) {
                let content = new.map(<[u8]>::to_vec);
                changes.startup_files.lock().insert(path.clone(), content);
            }
        }
        Ok(WrittenFile {
            path,
            old_size,
            was_read: was_read || matches!(change.expect, ExpectedState::Digest(_)),
        })
    }

    /// Records a skill of the workspace that is about to be changed, if the change makes it untrusted. `old` is its
    /// content.
    fn record_skill(
        &self,
        path: &Path,
        old: Option<&FileContent>,
        new: Option<&[u8]>,
    ) -> Result<(), FileError> {
        let skills = self.file_scope.workspace.join("skills");
        let (Some(written_skills), Some(new)) = (&self.written_skills, new) else {
            return Ok(());
        };
        if !path.starts_with(skills) || !path.ends_with("SKILL.md") {
            return Ok(());
        }
        let old = old.map(|content| content.bytes.as_slice());
        let provenance = self.provenance.as_ref();
        let untrusted = provenance.and_then(|provenance| provenance.untrusted_content());
        written_skills.record(old, new, untrusted.is_some()).map_err(|error| {
            let message =
                format!("nothing was done because the skill could not be recorded: {error:#}");
            FileError::Tool(message.into())
        })
    }

    /// The failure of a change to the file `raw_path`; `verb` is `written` or `removed`.
    fn to_failure(&self, raw_path: &str, verb: &str, error: FileError) -> ToolError {
        match error {
            FileError::Tool(failure) => failure,
            FileError::Io(error) if rooted_fs::is_race(&error) => format!(
                "`{raw_path}` was changed at the same time by another process, and nothing was done; read it again, then \
                 repeat the change"
            )
            .into(),
            FileError::Io(error) if error.kind() == ErrorKind::NotFound => {
                self.explain_open_error(raw_path, &error).into()
            }
            FileError::Io(error) if error.kind() == ErrorKind::DirectoryNotEmpty => format!(
                "`{raw_path}` is a directory that is not empty; delete its contents first"
            )
            .into(),
            FileError::Io(error) => format!("`{raw_path}` cannot be {verb}: {error}").into(),
        }
    }
}

/// The content and the mode of an existing file; `None` for any other entry.
fn read_entry(raw_path: &str, entry: &ExistingEntry) -> Result<Option<FileContent>, FileError> {
    let ExistingEntry::File(file) = entry else {
        return Ok(None);
    };
    let metadata = file.metadata()?;
    if metadata.len() > READ_LIMIT_BYTES {
        return Err(FileError::Tool(too_large_error(raw_path, metadata.len())));
    }
    let mode = metadata.permissions().mode() & 0o7777;
    Ok(Some(FileContent { bytes: read_content(file)?, mode }))
}

/// The state before a change, as it is recorded.
fn previous_state<'a>(
    entry: &'a ExistingEntry,
    current: Option<&'a FileContent>,
) -> PreviousState<'a> {
    match (entry, current) {
        (_, Some(content)) => {
            PreviousState::File { bytes: (&content.bytes).into(), mode: content.mode }
        }
        (ExistingEntry::Symlink(target), _) => PreviousState::Link(target.into()),
        (ExistingEntry::Directory(mode), _) => PreviousState::Directory { mode: *mode },
        (ExistingEntry::Missing | ExistingEntry::File(_), None) => PreviousState::Nothing,
    }
}

fn changed_error(raw_path: &str) -> ToolError {
    format!(
        "`{raw_path}` was changed by a command or another process since it was last read, and nothing was done; read it again \
         with read_file, then adapt and repeat the change"
    )
    .into()
}

fn too_large_error(raw_path: &str, size: u64) -> ToolError {
    format!(
        "`{raw_path}` is too large to be saved for undo ({}), and nothing was done; write to another name, or use exec",
        format_size(size)
    )
    .into()
}

fn unsaved_error(error: &anyhow::Error) -> FileError {
    let message =
        format!("nothing was done because the old content could not be saved for undo: {error:#}");
    FileError::Tool(message.into())
}
