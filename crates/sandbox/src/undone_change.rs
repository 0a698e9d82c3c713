//! A change that a command made and that was to be undone, with the way in which it was.

use super::files_beneath::{open_parent, set_aside};
use super::new_repository::is_config;
use super::protected_state::{
    RecordedContent, SNAPSHOT_LIMIT_BYTES, SnapshotState, overwrite_file, read_state, restore_state,
};
use rustix::fs::AtFlags;
use std::ffi::OsStr;
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
    /// The state before the command.
    pub(super) before: SnapshotState,
    /// The state that the command left.
    pub(super) after: SnapshotState,
}

/// Puts `path`, which is in `dir` and in the state `after`, back to the state `before`. A file with other content gets another
/// name. So does what cannot be put back, since its content before the command was not recorded.
///
/// # Errors
/// The file cannot be changed, or it is gone and its content was not recorded.
pub(super) fn put_back(
    dir: BorrowedFd<'_>,
    path: &Path,
    before: &SnapshotState,
    after: Option<&SnapshotState>,
) -> io::Result<Remedy> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    if !before.is_restorable(after) && after != Some(&SnapshotState::Missing) {
        return Ok(Remedy::SetAside(path.with_file_name(set_aside(dir, name)?)));
    }
    let new_name = match (before, after) {
        // The user may have created it, such as a new `.ssh`.
        (
            SnapshotState::Missing
            | SnapshotState::Unreachable
            | SnapshotState::File { .. }
            | SnapshotState::Link(_),
            Some(SnapshotState::Directory { entries, .. }),
        ) if !entries.is_empty() => Some(set_aside(dir, name)?),
        (
            SnapshotState::File { content: old_content, .. },
            Some(SnapshotState::File { content: new_content, .. }),
        ) if old_content == new_content => None,
        (_, Some(SnapshotState::File { .. })) => Some(set_aside(dir, name)?),
        _ => None,
    };
    restore_state(dir, name, before)?;
    Ok(Remedy::Restored(new_name.map(|new_name| path.with_file_name(new_name))))
}

/// The treatment of a change of a protected path.
#[derive(Debug)]
pub enum Remedy {
    /// The path is as it was before. A file, or a directory with files, that was in its place now has this name: the user may have
    /// saved it while the command ran.
    Restored(Option<PathBuf>),
    /// The file now has this name: it was new, or its content before the command is too large to be recorded.
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
        match self.withheld.as_ref().map(|withheld| &withheld.after) {
            Some(SnapshotState::File { content, .. }) => content.bytes.as_deref(),
            Some(SnapshotState::Link(target)) => Some(target.as_encoded_bytes()),
            _ => None,
        }
    }

    /// Makes a change after all that [`Self::is_withheld`].
    ///
    /// # Errors
    /// The path cannot be written, or it has been changed since.
    pub fn make(&self) -> io::Result<()> {
        let (Some(withheld), Ok(remedy)) = (&self.withheld, &self.remedy) else {
            return Err(io::Error::other("the change was not recorded"));
        };
        let (undone_state, kept_path) = match remedy {
            Remedy::Restored(kept_path) => (&withheld.before, kept_path.as_ref()),
            Remedy::SetAside(kept_path) => (&SnapshotState::Missing, Some(kept_path)),
            Remedy::LinesRemoved { .. } => return Err(io::ErrorKind::Unsupported.into()),
        };
        let (dir, name) = open_parent(&withheld.root, &withheld.relative, false)?;
        let read = |name: &OsStr| read_state(dir.as_fd(), name, &mut SNAPSHOT_LIMIT_BYTES.clone());
        // The user may edit the file while the question is open.
        if read(&name)? != *undone_state {
            return Err(io::Error::other("it has been changed since"));
        }
        // The content that the question showed: another command may have changed the kept file since.
        match &withheld.after {
            SnapshotState::File { mode, content: RecordedContent { bytes: Some(bytes), .. } }
                if is_config(&self.path) =>
            {
                overwrite_file(dir.as_fd(), &name, bytes, *mode)
            }
            after => restore_state(dir.as_fd(), &name, after),
        }?;
        if let Some(kept_name) = kept_path.and_then(|path| path.file_name())
            && read(kept_name).is_ok_and(|state| state == withheld.after)
        {
            rustix::fs::unlinkat(&dir, kept_name, AtFlags::empty())?;
        }
        Ok(())
    }
}
