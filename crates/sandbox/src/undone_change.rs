//! A change that a command made and that was to be undone, with the remedy.

use super::files_beneath::{open_parent, set_aside};
use super::new_repository::is_config;
use super::protected_state::{RecordedContent, SnapshotState, overwrite_file, restore_state};
use rustix::fs::AtFlags;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A change of a protected path, which was undone if there is a remedy.
#[derive(Debug)]
pub struct UndoneChange {
    /// The path.
    pub path: PathBuf,
    /// The remedy. An error means that the change is still there.
    pub remedy: io::Result<Remedy>,
    /// The change itself, if the user may allow it.
    pub(super) withheld: Option<WithheldChange>,
}

/// A change that can be made after all.
#[derive(Debug)]
pub(super) struct WithheldChange {
    /// The writable directory.
    pub(super) root: OwnedFd,
    /// The path beneath it.
    pub(super) relative: PathBuf,
    /// The state that the command left.
    pub(super) state: SnapshotState,
}

/// Puts `name`, which is in the state `after`, back to the state `before`. A file with other content gets another name, which is
/// returned.
///
/// # Errors
/// The file cannot be changed, or its content was not recorded.
pub(super) fn put_back(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    before: &SnapshotState,
    after: Option<&SnapshotState>,
) -> io::Result<Option<OsString>> {
    let new_name = match (before, after) {
        (
            SnapshotState::File { content: old_content, .. },
            Some(SnapshotState::File { content: new_content, .. }),
        ) if old_content == new_content => None,
        (_, Some(SnapshotState::File { .. })) => Some(set_aside(dir, name)?),
        // The user may have created it, such as a new `.ssh`.
        (SnapshotState::Missing, Some(SnapshotState::Directory { entries, .. }))
            if !entries.is_empty() =>
        {
            Some(set_aside(dir, name)?)
        }
        _ => None,
    };
    restore_state(dir, name, before)?;
    Ok(new_name)
}

/// The treatment of a change of a protected path.
#[derive(Debug)]
pub enum Remedy {
    /// The path is as it was before. A file, or a new directory with files, that was in its place now has this name: the user may have
    /// saved it while the command ran.
    Restored(Option<PathBuf>),
    /// The file was new and now has this name.
    SetAside(PathBuf),
    /// The file is the config of a new repository. The lines that could make git run a program were removed.
    LinesRemoved {
        /// The lines, as `section.key = value`.
        lines: Vec<String>,
        /// The path of the whole file.
        whole: PathBuf,
    },
}

impl UndoneChange {
    /// True if the user may allow the change after all.
    pub fn is_withheld(&self) -> bool {
        self.withheld.is_some() && self.remedy.is_ok()
    }

    /// The content that the file would have, or the target of the link, if the user may allow it.
    pub fn withheld_content(&self) -> Option<&[u8]> {
        match self.withheld.as_ref().map(|withheld| &withheld.state) {
            Some(SnapshotState::File { content: RecordedContent::Bytes(bytes), .. }) => Some(bytes),
            Some(SnapshotState::Link(target)) => Some(target.as_encoded_bytes()),
            _ => None,
        }
    }

    /// Makes the change after all, if it was undone.
    ///
    /// # Errors
    /// The path cannot be written, or it has been changed since.
    pub fn make(&self) -> io::Result<()> {
        let (Some(withheld), Ok(remedy)) = (&self.withheld, &self.remedy) else {
            return Ok(());
        };
        let (dir, name) = open_parent(&withheld.root, &withheld.relative, true)?;
        match remedy {
            Remedy::Restored(new_path) => {
                match &withheld.state {
                    SnapshotState::File { mode, content: RecordedContent::Bytes(bytes) }
                        if is_config(&self.path) =>
                    {
                        overwrite_file(dir.as_fd(), &name, bytes, *mode)?;
                    }
                    state => restore_state(dir.as_fd(), &name, state)?,
                }
                match new_path.as_deref().and_then(Path::file_name) {
                    Some(new_name) => Ok(rustix::fs::unlinkat(&dir, new_name, AtFlags::empty())?),
                    None => Ok(()),
                }
            }
            Remedy::SetAside(new_path) => {
                let new_name = new_path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
                let stat = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW);
                if stat.is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                // The content that the question showed: another command may have changed the file since.
                restore_state(dir.as_fd(), &name, &withheld.state)?;
                Ok(rustix::fs::unlinkat(&dir, new_name, AtFlags::empty())?)
            }
            Remedy::LinesRemoved { .. } => Ok(()),
        }
    }
}
