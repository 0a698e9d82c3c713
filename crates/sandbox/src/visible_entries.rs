//! The visible part of a directory that contains closed places: the entries that are there when a command starts, one by one.
//! So a closed place that appears later is not seen, whether a directory of it existed or not. This is only possible where
//! the command may not write: a new entry of its own would be lost.

use super::spec::SandboxSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The parts of granted places that get a mount, a directory or a link in a root that is being filled.
pub(super) struct VisibleEntries<'a> {
    sandbox: &'a SandboxSpec,
    /// The place of the root in which the entries are looked for.
    root: &'a Path,
    pub(super) places: BTreeSet<PathBuf>,
    /// The directories of which only some entries are visible.
    pub(super) directories: Vec<PathBuf>,
    /// The symbolic links in these directories, with their targets.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> VisibleEntries<'a> {
    pub(super) fn new(sandbox: &'a SandboxSpec, root: &'a Path) -> Self {
        Self {
            sandbox,
            root,
            places: BTreeSet::new(),
            directories: Vec::new(),
            links: BTreeMap::new(),
        }
    }

    /// Adds a granted place: as a whole, or its entries.
    pub(super) fn add(&mut self, place: &Path) {
        let mut writable = self.sandbox.writable.iter();
        if writable.any(|root| place.starts_with(root)) || !self.sandbox.has_closed(place) {
            self.places.insert(place.to_owned());
        } else {
            self.add_entries(place);
        }
    }

    /// Adds the entries of a directory that are not closed. One that this user cannot list stays empty.
    pub(super) fn add_entries(&mut self, directory: &Path) {
        self.directories.push(directory.to_owned());
        let outside = self.root.join(directory.strip_prefix("/").unwrap_or(directory));
        for entry in std::fs::read_dir(outside).into_iter().flatten().flatten() {
            let place = directory.join(entry.file_name());
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_symlink() {
                // It reveals nothing unless its target is visible.
                let target = std::fs::read_link(entry.path());
                self.links.extend(target.map(|target| (place, target)));
            } else if (kind.is_dir() || kind.is_file()) && !self.sandbox.is_closed(&place) {
                self.add(&place);
            }
        }
    }
}

impl SandboxSpec {
    /// True if `directory` contains a closed place, existing or not.
    pub(super) fn has_closed(&self, directory: &Path) -> bool {
        self.homes.iter().any(|home| home.starts_with(directory))
            || self.denied.iter().any(|place| place.starts_with(directory) && place != directory)
    }

    /// True if `place` is closed, or a hidden entry of a home. What is granted in it by name has a mount of its own.
    fn is_closed(&self, place: &Path) -> bool {
        let name = place.file_name().unwrap_or_default();
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        self.denied.iter().any(|denied| place.starts_with(denied))
            || is_hidden
                && place.parent().is_some_and(|parent| self.homes.iter().any(|home| home == parent))
    }
}
