//! Changes of files by tools. Each is recorded for undo before it is made.

use super::{ChangeState, FileError, Files, FinalLink, READ_LIMIT_BYTES, read_content};
use crate::policy::file_scope::FileAccess;
use crate::sys::digest::digest;
use crate::sys::durable_file::format_size;
use crate::sys::rooted_fs::{self, ExistingEntry, PendingChange};
use crate::tool::ToolError;
use crate::undo::PreviousState;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    pub path: PathBuf,
    /// Size of the old content in bytes; `None` if the file is new.
    pub old_size: Option<u64>,
    /// True if this run knew the old content.
    pub was_read: bool,
}

impl Files {
    /// Replaces the content of the file `given` with `bytes`, or creates it.
    pub fn write(&self, given: &str, bytes: &[u8]) -> Result<WrittenFile, ToolError> {
        self.change(given, Some(bytes), None)
    }

    /// Replaces the content of a file with the result of `edit`. Returns its path, the old content and the new one.
    pub fn edit(
        &self,
        given: &str,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<(PathBuf, String, String), ToolError> {
        // Check before reading: if the file is read-only, the model should get that error.
        self.file_scope.decide(given, FileAccess::Write)?;
        let (bytes, path) = self.load(given)?;
        let mark = digest(&bytes);
        let seen = self.lock_changes().digests.get(&path).cloned();
        if seen.is_some_and(|seen| seen.as_ref() != Some(&mark)) {
            return Err(changed_error(given));
        }
        let before = String::from_utf8(bytes)
            .map_err(|_| format!("`{given}` is not UTF-8 text and cannot be edited"))?;
        let after = edit(&before).map_err(|error| format!("`{given}`: {error}"))?;
        let written = self.change(given, Some(after.as_bytes()), Some(&mark))?;
        Ok((written.path, before, after))
    }

    /// Removes the file, link or empty directory `given`. Returns its path.
    pub fn remove(&self, given: &str) -> Result<PathBuf, ToolError> {
        Ok(self.change(given, None, None)?.path)
    }

    /// Changes the content of `given` to `new`, or removes it if that is `None`. Fails if the current content does not
    /// have the digest `expect`.
    fn change(
        &self,
        given: &str,
        new: Option<&[u8]>,
        expect: Option<&str>,
    ) -> Result<WrittenFile, ToolError> {
        // Keep the lock to the end, so that concurrent writers of this run wait for each other.
        let mut changes = self.lock_changes();
        let ChangeState { digests, recorder } = &mut *changes;
        let (mut before, mut was_seen) = (None, false);
        let last = match new {
            Some(_) => FinalLink::Follow,
            // Remove the link itself, not its target.
            None => FinalLink::NoFollow,
        };
        let done = self.follow(given, FileAccess::Write, last, |root, path, relative| {
            let mut approve = |change: PendingChange<'_>| {
                let (old, temp) = match change {
                    PendingChange::Directory(made) => {
                        let top = path.ancestors().nth(relative.components().count());
                        let made = top.unwrap_or(path).join(made);
                        return recorder
                            .as_mut()
                            .map_or(Ok(()), |recorder| recorder.record_directory(&made))
                            .map_err(|error| unsaved_error(&error));
                    }
                    PendingChange::File { old, temp } => (old, temp),
                };
                let bytes;
                let was = match &old {
                    ExistingEntry::Missing if expect.is_some() => {
                        return Err(FileError::Tool(changed_error(given)));
                    }
                    ExistingEntry::Missing => PreviousState::Nothing,
                    ExistingEntry::Symlink(target) => PreviousState::Link(target),
                    ExistingEntry::Directory(mode) => PreviousState::Directory { mode: *mode },
                    ExistingEntry::File(file) => {
                        let metadata = file.metadata()?;
                        if metadata.len() > READ_LIMIT_BYTES {
                            return Err(FileError::Tool(too_large_error(given, metadata.len())));
                        }
                        bytes = read_content(file)?;
                        let mark = digest(&bytes);
                        let known = digests.get(path);
                        let is_known = match expect {
                            Some(expect) => expect == mark,
                            None => known.is_none_or(|known| known.as_ref() == Some(&mark)),
                        };
                        if !is_known {
                            return Err(FileError::Tool(changed_error(given)));
                        }
                        was_seen = known.is_some() || expect.is_some();
                        before = Some(bytes.len() as u64);
                        PreviousState::File {
                            bytes: &bytes,
                            mode: metadata.permissions().mode() & 0o7777,
                        }
                    }
                };
                recorder
                    .as_mut()
                    .map_or(Ok(()), |recorder| {
                        recorder.record_change(path, &was, new, temp)
                    })
                    .map_err(|error| unsaved_error(&error))
            };
            match new {
                Some(bytes) => root.write(relative, bytes, None, &mut approve).map(drop),
                None => root.remove(relative, &mut approve),
            }
        });
        let verb = if new.is_some() { "written" } else { "removed" };
        let ((), path) = done.map_err(|error| self.to_failure(given, verb, error))?;
        digests.insert(path.clone(), new.map(digest));
        Ok(WrittenFile {
            path,
            old_size: before,
            was_read: was_seen,
        })
    }

    /// The failure of a change to the file `given`; `verb` is `written` or `removed`.
    fn to_failure(&self, given: &str, verb: &str, error: FileError) -> ToolError {
        match error {
            FileError::Tool(failure) => failure,
            FileError::Io(error) if rooted_fs::is_race(&error) => format!(
                "`{given}` was changed at the same time by another process, and nothing was done; read it again, then \
                 repeat the change"
            )
            .into(),
            FileError::Io(error) if error.kind() == ErrorKind::NotFound => {
                self.explain_open_error(given, &error).into()
            }
            FileError::Io(error) if error.kind() == ErrorKind::DirectoryNotEmpty => format!(
                "`{given}` is a directory that is not empty; delete its contents first"
            )
            .into(),
            FileError::Io(error) => format!("`{given}` cannot be {verb}: {error}").into(),
        }
    }
}

fn changed_error(given: &str) -> ToolError {
    format!(
        "`{given}` was changed by a command or another process since it was last read, and nothing was done; read it again \
         with read_file, then adapt and repeat the change"
    )
    .into()
}

fn too_large_error(given: &str, size: u64) -> ToolError {
    format!(
        "`{given}` is too large to be saved for undo ({}), and nothing was done; write to another name, or use exec",
        format_size(size)
    )
    .into()
}

fn unsaved_error(error: &anyhow::Error) -> FileError {
    let message =
        format!("nothing was done because the old content could not be saved for undo: {error:#}");
    FileError::Tool(message.into())
}
