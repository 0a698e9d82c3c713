//! The files in which a subject occurs, with what a removal does to each.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A file in which the subject occurs.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) path: PathBuf,
    pub(crate) action: FindingAction,
    pub(crate) count: usize,
    /// The first occurrence, with the text around it.
    pub(crate) excerpt: String,
}

impl Finding {
    fn new(path: &Path, action: FindingAction) -> Self {
        Self { path: path.to_owned(), action, count: 0, excerpt: String::new() }
    }

    /// Adds occurrences, the first of which is in `excerpt`.
    pub(super) fn add_occurrences(&mut self, count: usize, excerpt: &str) {
        self.count += count;
        if self.excerpt.is_empty() {
            self.excerpt = excerpt.to_owned();
        }
    }
}

/// The effect of the removal on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FindingAction {
    /// The occurrences are overwritten.
    Overwrite,
    /// The file or the directory is removed.
    Remove,
    /// The session is removed, with its copies and side files.
    RemoveSession(String),
    /// The sender is removed from the file of pairings.
    Unpair,
    /// The questions and the lasting approvals of the subject are removed from the file.
    RemoveApprovals,
    /// Nothing is changed, for this reason.
    Keep(String),
    /// The file or the directory could not be read, for this reason.
    NotSearched(String),
}

impl FindingAction {
    /// True if the file stays as it is.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Keep(_) | Self::NotSearched(_))
    }
}

/// Findings by path. A file of which a part is kept has a second one.
#[derive(Default)]
pub(super) struct Findings {
    changed: BTreeMap<PathBuf, Finding>,
    unchanged: BTreeMap<PathBuf, Finding>,
}

impl Findings {
    /// Adds an effect on the file or the directory at `path`, and returns its finding. What is removed need not be overwritten.
    pub(super) fn add(&mut self, path: &Path, action: FindingAction) -> &mut Finding {
        let findings = if action.is_kept() { &mut self.unchanged } else { &mut self.changed };
        let finding =
            findings.entry(path.to_owned()).or_insert_with(|| Finding::new(path, action.clone()));
        if finding.action == FindingAction::Overwrite {
            finding.action = action;
        }
        finding
    }

    /// Adds a file or a directory that is kept because of `reason`.
    pub(super) fn keep(&mut self, path: &Path, reason: impl Into<String>) -> &mut Finding {
        self.add(path, FindingAction::Keep(reason.into()))
    }

    /// Adds a file or a directory that cannot be read, unless it is gone.
    pub(super) fn add_unsearched(&mut self, path: &Path, error: &dyn Display) {
        if !path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let action = FindingAction::NotSearched(error.to_string());
            self.unchanged.insert(path.to_owned(), Finding::new(path, action));
        }
    }

    /// The findings of what is changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = &Finding> {
        self.changed.values()
    }

    /// The paths of what is removed as a whole.
    pub(super) fn removed_paths(&self) -> Vec<PathBuf> {
        let removed = self.changed().filter(|finding| finding.action == FindingAction::Remove);
        removed.map(|finding| finding.path.clone()).collect()
    }

    /// All findings in the order of their paths. Nothing is kept of what is removed with its directory.
    pub(super) fn into_list(mut self) -> Vec<Finding> {
        let removed = self.removed_paths();
        self.unchanged.retain(|path, _| !removed.iter().any(|removed| path.starts_with(removed)));
        let mut findings: Vec<Finding> =
            self.changed.into_values().chain(self.unchanged.into_values()).collect();
        // A sort keeps the order of equals: what is changed comes before what is kept of the same file.
        findings.sort_by(|one, other| one.path.cmp(&other.path));
        findings
    }
}
