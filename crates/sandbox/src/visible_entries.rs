//! The visible part of a directory that contains closed paths: the entries that exist when a command starts, one by one. So a
//! closed path that appears later is not seen, whether its parent directory existed or not. This is only possible where the
//! command may not write: a new entry of its own would be lost.

use super::spec::SandboxSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The parts of granted paths that get a mount, a directory or a link in a root that is being filled.
pub(super) struct VisibleEntries<'a> {
    sandbox: &'a SandboxSpec,
    /// The directory that is the root of the entries.
    root: &'a Path,
    /// The paths that get a mount.
    pub(super) mounts: BTreeSet<PathBuf>,
    /// The directories with only some visible entries.
    pub(super) directories: Vec<PathBuf>,
    /// The symbolic links in these directories, with their targets.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> VisibleEntries<'a> {
    pub(super) fn new(sandbox: &'a SandboxSpec, root: &'a Path) -> Self {
        Self {
            sandbox,
            root,
            mounts: BTreeSet::new(),
            directories: Vec::new(),
            links: BTreeMap::new(),
        }
    }

    /// Adds a granted path: as a whole, or its entries.
    pub(super) fn add(&mut self, path: &Path) {
        let mut writable = self.sandbox.writable.iter();
        if writable.any(|root| path.starts_with(root)) || !self.sandbox.has_closed(path) {
            self.mounts.insert(path.to_owned());
        } else {
            self.add_entries(path);
        }
    }

    /// Adds the entries of a directory that are not closed. One that this user cannot list stays empty.
    pub(super) fn add_entries(&mut self, directory: &Path) {
        self.directories.push(directory.to_owned());
        let real = self.root.join(directory.strip_prefix("/").unwrap_or(directory));
        for entry in std::fs::read_dir(real).into_iter().flatten().flatten() {
            let path = directory.join(entry.file_name());
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_symlink() {
                // The link reveals nothing unless its target is visible.
                let target = std::fs::read_link(entry.path());
                self.links.extend(target.map(|target| (path, target)));
            } else if (kind.is_dir() || kind.is_file()) && !self.sandbox.is_closed(&path) {
                self.add(&path);
            }
        }
    }
}

impl SandboxSpec {
    /// True if `directory` contains a closed path, existing or not.
    pub(super) fn has_closed(&self, directory: &Path) -> bool {
        self.homes.iter().any(|home| home.starts_with(directory))
            || self.denied.iter().any(|path| path.starts_with(directory) && path != directory)
    }

    /// True if `path` is closed, or a hidden entry of a home. Paths in it that are granted by name have mounts of their own.
    fn is_closed(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        self.denied.iter().any(|denied| path.starts_with(denied))
            || (is_hidden
                && path.parent().is_some_and(|parent| self.homes.iter().any(|home| home == parent)))
    }
}
