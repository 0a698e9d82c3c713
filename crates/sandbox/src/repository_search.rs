//! Finds the repository that contains a directory, as git does: the top of its working tree, its git directories and its alternates.
//! Everything that commands and file tools may use of it is derived from this one value.
//!
//! A downloaded tree can name any path in `.git`, `commondir` or `alternates`. The target of such a pointer outside of the directory is
//! accepted only if the target names this working tree too, which only git or its user can have written there, or if the user has pinned
//! the pointer. The target must also have the right form, belong to the same owner, and not be closed.

use super::git_config;
use super::git_repository::{RepositoryNames, read_small};
use nanobot_os::repository::{GitPointer, Repository};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum length of a chain of alternates. Git has the same limit.
const MAX_ALTERNATES: usize = 5;

/// The limits of a search.
pub struct RepositoryLimits<'a> {
    /// The home of the user: a repository that is the home or contains it is not used.
    pub home: &'a Path,
    /// True for a path that commands never see.
    pub is_closed: &'a dyn Fn(&Path) -> bool,
    /// True if the user has pinned the pointer.
    pub is_pinned: &'a dyn Fn(&GitPointer) -> bool,
}

/// Finds the repository that contains `directory`, an absolute path without links.
pub fn find_repository(directory: &Path, limits: &RepositoryLimits<'_>) -> Option<Repository> {
    let owner = std::fs::metadata(directory).ok()?.uid();
    let mut ancestors = directory.ancestors();
    let (top, entry) = ancestors.find_map(|path| Some((path, git_entry(path)?)))?;
    let is_unusable = || !is_owned_by(top, owner) || (limits.is_closed)(top);
    if limits.home.starts_with(top) || (top != directory && is_unusable()) {
        return None;
    }
    let repository = Repository { top: top.to_owned(), ..Repository::default() };
    let mut search = RepositorySearch { directory, owner, limits, repository };
    if let Some(git_dir) = search.git_dir(entry)
        && let Some(common) = search.common_dir(&git_dir)
    {
        search.add_alternates(&common.join("objects"), 0);
        search.repository.git_dirs =
            if git_dir.starts_with(&common) { vec![common] } else { vec![git_dir, common] };
    }
    Some(search.repository)
}

/// An entry named `.git`.
enum GitEntry {
    Directory(PathBuf),
    /// A file or a link, and the git directory that it names.
    Pointer(GitPointer),
}

/// The `.git` in `top`. `None` for a directory that is not a git directory: git then searches the parents of `top`.
fn git_entry(top: &Path) -> Option<GitEntry> {
    let file = top.join(".git");
    let metadata = file.symlink_metadata().ok()?;
    if metadata.is_dir() {
        return RepositoryNames::in_directory(&file)
            .are_of_git_dir()
            .then_some(GitEntry::Directory(file));
    }
    let target = if metadata.is_symlink() {
        file.canonicalize()
    } else {
        named_git_dir(&file)?.canonicalize()
    };
    // A pointer that leads nowhere ends the search: git fails at it.
    let target = target.unwrap_or_default();
    Some(GitEntry::Pointer(GitPointer { file, target }))
}

/// A search under way.
struct RepositorySearch<'a> {
    directory: &'a Path,
    owner: u32,
    limits: &'a RepositoryLimits<'a>,
    repository: Repository,
}

impl RepositorySearch<'_> {
    /// The git directory that `entry` is, or names.
    fn git_dir(&mut self, entry: GitEntry) -> Option<PathBuf> {
        match entry {
            GitEntry::Directory(path) => is_owned_by(&path, self.owner).then_some(path),
            GitEntry::Pointer(pointer) => {
                let is_mutual = is_mutual(&pointer);
                let git_dir = self.follow(pointer, is_mutual)?;
                RepositoryNames::in_directory(&git_dir).are_of_git_dir().then_some(git_dir)
            }
        }
    }

    /// The directory that the worktrees of the repository share. It contains the git directory of a linked worktree.
    fn common_dir(&mut self, git_dir: &Path) -> Option<PathBuf> {
        let file = git_dir.join("commondir");
        let Some(text) = read_small(&file) else {
            return Some(git_dir.to_owned());
        };
        let target = git_dir.join(text.trim_end()).canonicalize().ok()?;
        let is_mutual = git_dir.parent() == Some(&target.join("worktrees"));
        let common = self.follow(GitPointer { file, target }, is_mutual)?;
        RepositoryNames::in_directory(&common).has_own_objects().then_some(common)
    }

    /// Adds the alternates of `objects`, and their alternates.
    fn add_alternates(&mut self, objects: &Path, depth: usize) {
        let file = objects.join("info/alternates");
        let Some(text) = read_small(&file) else {
            return;
        };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Ok(target) = objects.join(line).canonicalize() else {
                continue;
            };
            if !target.ends_with("objects") || depth == MAX_ALTERNATES {
                continue;
            }
            if let Some(target) = self.follow(GitPointer { file: file.clone(), target }, false)
                && !self.repository.objects.contains(&target)
            {
                self.repository.objects.push(target.clone());
                self.add_alternates(&target, depth + 1);
            }
        }
    }

    /// The target of `pointer`, if it is accepted. The run may use a target within its directory anyway. `is_mutual` if the target
    /// names this working tree too.
    fn follow(&mut self, pointer: GitPointer, is_mutual: bool) -> Option<PathBuf> {
        let target = &pointer.target;
        if target.starts_with(self.directory) {
            return Some(pointer.target);
        }
        let is_too_large =
            self.directory.starts_with(target) || self.limits.home.starts_with(target);
        if is_too_large || !is_owned_by(target, self.owner) || (self.limits.is_closed)(target) {
            return None;
        }
        if is_mutual || (self.limits.is_pinned)(&pointer) {
            return Some(pointer.target);
        }
        self.repository.unpinned.push(pointer);
        None
    }
}

/// True if `pointer` names the git directory of a linked worktree or a submodule, and that directory names this working tree too.
fn is_mutual(pointer: &GitPointer) -> bool {
    let GitPointer { file, target } = pointer;
    if file.is_symlink() {
        return false;
    }
    let Some(top) = file.parent() else {
        return false;
    };
    let leads_back = |name: &str, expect: &Path| {
        target.join(name).canonicalize().is_ok_and(|path| path == expect)
    };
    if let Some(text) = read_small(&target.join("gitdir")) {
        return leads_back(text.trim_end(), file);
    }
    let entries = git_config::read(&target.join("config")).unwrap_or_default();
    let mut worktrees = entries.iter().filter(|entry| entry.is("core", "worktree"));
    worktrees.next_back().is_some_and(|entry| leads_back(&entry.value, top))
}

/// The directory that the `.git` file at `path` names. `None` if the file is not of that kind.
fn named_git_dir(path: &Path) -> Option<PathBuf> {
    let text = read_small(path)?;
    Some(path.parent()?.join(text.strip_prefix("gitdir: ")?.trim_end_matches(['\n', '\r'])))
}

/// The git directory of the working tree at `top`, and the common one. The pointers to them are not checked, so only what their
/// configs name in `top` may be used.
pub(super) fn named_git_dirs(top: &Path) -> Vec<PathBuf> {
    let path = top.join(".git");
    let git_dir = named_git_dir(&path).or_else(|| path.is_dir().then_some(path));
    let common = git_dir
        .as_ref()
        .and_then(|git_dir| Some(git_dir.join(read_small(&git_dir.join("commondir"))?.trim_end())));
    git_dir.into_iter().chain(common).collect()
}

/// True if `path` is a directory of this owner.
fn is_owned_by(path: &Path, owner: u32) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == owner)
}
