//! The names of project files, and the changes of them that commands may make.

use super::directory_cache::DirectoryCache;
use super::git_history::GitHistory;
use super::new_repository::{FileId, git_dir_id};
use nanobot_os::paths::is_generated_dir;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The names of the files to search for, and the changes that commands may make.
#[derive(Clone, Debug, Default)]
pub struct ProjectFiles {
    /// The names of the files, and of directories with such files, compared without case. The name of a file may begin with that
    /// of its directory, as in `.x/config`. If there are none, nothing is searched.
    pub names: Vec<&'static str>,
    /// The private directories of the run, which are not searched.
    pub skipped: Vec<PathBuf>,
    /// The git directories among the writable paths, whose contents are not searched.
    pub git_dirs: Vec<PathBuf>,
    pub access: ProjectFileAccess,
    /// Returns the current access, if untrusted content may arrive during the command.
    pub access_now: Option<AccessNow>,
    /// Reads the newest stash of git, which may have untracked files.
    pub stash: Option<StashReader>,
    /// The files that commands changed, and were permitted to.
    pub changed: ChangedPaths,
    /// The objects that git had before the commands of the run, if only these are accepted.
    pub git: Arc<GitHistory>,
    /// The git directories that commands of the run created.
    pub(super) created: Arc<Mutex<CreatedRepositories>>,
    /// The directories that the searches of the run have read.
    pub(super) cache: Arc<Mutex<DirectoryCache>>,
}

/// The git directories that commands of a run created.
#[derive(Debug, Default)]
pub(super) struct CreatedRepositories {
    created: BTreeMap<PathBuf, FileId>,
    /// The directories that existed before the first command, wherever they are now.
    earlier: Option<BTreeSet<FileId>>,
}

/// The permitted changes of a turn, shared by all its commands: the paths, with the content of a file or the target of a link.
pub type ChangedPaths = Arc<Mutex<BTreeMap<PathBuf, Option<Vec<u8>>>>>;

/// Returns the changes that a command may make at this moment.
pub type AccessNow = Callback<dyn Fn() -> ProjectFileAccess + Send + Sync>;

/// Reads the version of an untracked file in the newest stash.
pub type StashReader = Callback<dyn Fn(&Path) -> Option<Vec<u8>> + Send + Sync>;

/// A function that the caller passes in.
pub struct Callback<F: ?Sized>(pub Arc<F>);

impl<F: ?Sized> Clone for Callback<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: ?Sized> std::fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Callback")
    }
}

/// The changes of project files that a command may make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectFileAccess {
    /// All changes.
    #[default]
    Free,
    /// Changes that give a file the content that git had before the turn.
    FromHistory,
    /// Changes that give a file a content that git has: commands can fetch any.
    FromGit,
    /// No changes.
    Closed,
}

impl ProjectFiles {
    pub(super) fn is_name(&self, name: &OsStr) -> bool {
        self.names.iter().any(|other| name.eq_ignore_ascii_case(other))
    }

    /// True if a path that ends with `directory` and `name` is a project file because of both.
    pub(super) fn is_name_in(&self, directory: Option<&OsStr>, name: &OsStr) -> bool {
        let Some(directory) = directory else {
            return false;
        };
        let mut names = self.names.iter().filter_map(|name| name.split_once('/'));
        names.any(|(other_directory, other_name)| {
            name.eq_ignore_ascii_case(other_name) && directory.eq_ignore_ascii_case(other_directory)
        })
    }

    /// True if `path` ends with one of the names.
    pub(super) fn is_file_name(&self, path: &Path) -> bool {
        let directory = path.parent().and_then(Path::file_name);
        path.file_name().is_some_and(|name| self.is_name(name) || self.is_name_in(directory, name))
    }

    /// True if the file belongs to a dependency or to a build result.
    pub(super) fn is_in_dependencies(&self, relative: &Path) -> bool {
        let mut parts = relative.iter();
        parts
            .find(|part| self.is_name(part) || is_generated_dir(Path::new(part)))
            .is_some_and(|part| !self.is_name(part))
    }

    /// True if the conversation has no untrusted content, or the user allows changes after such content.
    pub(super) fn are_free(&self) -> bool {
        !self.names.is_empty() && self.current_access() == ProjectFileAccess::Free
    }

    /// True if all changes are permitted, and will be.
    pub(super) fn stay_free(&self) -> bool {
        self.access == ProjectFileAccess::Free && self.access_now.is_none()
    }

    /// The changes that the command may make at this moment.
    pub(super) fn current_access(&self) -> ProjectFileAccess {
        use ProjectFileAccess::{Closed, Free, FromGit, FromHistory};
        let now = self.access_now.as_ref().map_or(self.access, |now| (now.0)());
        match (self.access, now) {
            // The objects that git had before are known only if they were recorded from the beginning.
            (Free, FromHistory) => Closed,
            (Free, now) => now,
            // The command may have fetched from a host since it started.
            (FromHistory, FromGit) => FromGit,
            (access, _) => access,
        }
    }

    /// Adds a path to those that commands changed, and were permitted to.
    pub(super) fn add_changed(&self, path: &Path, content: Option<&[u8]>) {
        let content = content.map(<[u8]>::to_vec);
        self.changed.lock().insert(path.to_owned(), content);
    }

    /// True if the newest stash has this content of the file at `path`.
    pub(super) fn is_stashed(&self, path: &Path, content: &[u8]) -> bool {
        let stash = self.stash.as_ref();
        stash.is_some_and(|stash| (stash.0)(path).is_some_and(|stashed| stashed == content))
    }

    /// True if the file was last changed, as permitted, to this content, or removed if there is none.
    pub(super) fn was_changed_to(&self, path: &Path, content: Option<&[u8]>) -> bool {
        let changed = self.changed.lock();
        changed.get(path).is_some_and(|last| last.as_deref() == content)
    }

    /// Remembers the repositories with these protected `paths`, before the first command.
    pub(super) fn remember_repositories<'p>(&self, paths: impl Iterator<Item = &'p Path>) {
        let mut repositories = self.created.lock();
        if repositories.earlier.is_none() {
            let configs = paths.filter(|path| path.ends_with("config"));
            repositories.earlier = Some(configs.filter_map(git_dir_id).collect());
        }
    }

    /// Remembers that a command created this git directory, unless it existed before under another name.
    pub(super) fn add_created(&self, git_dir: &Path) {
        let mut repositories = self.created.lock();
        let earlier = repositories.earlier.as_ref();
        if let Some(id) = git_dir_id(&git_dir.join("config"))
            && !earlier.is_some_and(|ids| ids.contains(&id))
        {
            repositories.created.insert(git_dir.to_owned(), id);
        }
    }

    /// True if a command of the run created the git directory of `path`, and nothing has replaced it since.
    pub(super) fn is_created(&self, path: &Path) -> bool {
        let repositories = self.created.lock();
        let id = path.ancestors().find_map(|parent| repositories.created.get(parent));
        id.is_some_and(|id| git_dir_id(path).as_ref() == Some(id))
    }

    /// True if the writable `root` has such a name itself: the user granted it by name.
    pub(super) fn is_granted(&self, root: &Path) -> bool {
        self.is_file_name(root)
    }
}
