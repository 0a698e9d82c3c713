//! The files in which a subject occurs, with what a removal does to each.

use std::collections::BTreeMap;
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
pub(super) type Findings = BTreeMap<(PathBuf, bool), Finding>;

/// Adds an occurrence to the finding for `path`, which is created if there is none. What is removed need not be overwritten.
pub(super) fn add(
    findings: &mut Findings,
    path: &Path,
    action: FindingAction,
    count: usize,
    excerpt: &str,
) {
    let key = (path.to_owned(), action.is_kept());
    let new_finding =
        Finding { path: path.to_owned(), action: action.clone(), count: 0, excerpt: String::new() };
    let finding = findings.entry(key).or_insert(new_finding);
    if finding.action == FindingAction::Overwrite {
        finding.action = action;
    }
    finding.count += count;
    if finding.excerpt.is_empty() {
        finding.excerpt = excerpt.to_owned();
    }
}

/// Adds a file or directory that cannot be read, unless it is gone. Returns false.
pub(super) fn not_searched(
    findings: &mut Findings,
    path: &Path,
    error: &dyn std::fmt::Display,
) -> bool {
    if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return false;
    }
    let action = FindingAction::NotSearched(error.to_string());
    let finding = Finding { path: path.to_owned(), action, count: 0, excerpt: String::new() };
    findings.insert((path.to_owned(), true), finding);
    false
}
