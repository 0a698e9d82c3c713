//! The file system that a program outside of the sandbox sees: all of the system's, but for the places that a run may
//! change. An empty file system covers them, so that nothing executes what the run wrote there.

use super::mounts::{MountTree, clone_mounts, mount_cover, open_path, remount_read_only};
use super::namespaces;
use rustix::fs::FileType;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Places that a program does not see. All paths are absolute and free of symbolic links. A place that does not exist needs no
/// cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPlaces {
    /// Files and directories that are covered.
    pub covered: Vec<PathBuf>,
    /// Places within the covered ones that the program sees all the same.
    pub visible: Vec<PathBuf>,
}

impl HiddenPlaces {
    /// Hides them from this process, which must have a single thread, and from those that it starts.
    ///
    /// # Errors
    /// The system refuses it, or a place has become a symbolic link. The process must then not continue.
    pub fn hide(&self) -> io::Result<()> {
        namespaces::enter_mounts()?;
        // Changes of the system's mounts arrive here. Mounts made here do not show outside.
        let receives = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        mount_change("/", receives)?;
        // Parents come first. What is visible is copied before a cover hides it.
        let mut places: BTreeMap<&Path, Option<MountTree>> = BTreeMap::new();
        for place in &self.covered {
            places.insert(place, None);
        }
        for place in self.visible.iter().filter(|place| !self.covered.contains(place)) {
            if let Some(tree) = clone_mounts(place)? {
                places.insert(place, Some(tree));
            }
        }
        let mut covers = Vec::new();
        for (place, tree) in places {
            match tree {
                Some(tree) => tree.attach(place)?,
                None => covers.extend(cover(place)?),
            }
        }
        for place in covers {
            remount_read_only(&open_path(place)?.0)?;
        }
        Ok(())
    }
}

/// Covers `place`, if it exists. Returns a directory whose cover is still to become read-only.
fn cover(place: &Path) -> io::Result<Option<&Path>> {
    let (fd, kind) = match open_path(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match kind {
        FileType::Directory => {
            mount_cover(&fd)?;
            Ok(Some(place))
        }
        FileType::Symlink => Err(io::Error::other(format!("`{}` is a link", place.display()))),
        _ => {
            mount_bind("/dev/null", super::mounts::fd_path(&fd))?;
            Ok(None)
        }
    }
}
