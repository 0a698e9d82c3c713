//! Paths within a writable directory that commands must not change: git's hooks and config in its own repository, in
//! submodules and linked worktrees, and in nested and bare repositories as far as a short search finds them; also the names given by the
//! policy, and the paths within the directory that git's config names.

use super::files_beneath;
use super::git_config::without_dots;
use super::git_config_files::{NamedPaths, user_configs};
use super::git_repository::{RepositoryNames, RepositoryPath, SKIPPED_DIRECTORIES};
use super::new_repository::CONFIG_NAMES;
use super::repository_search::named_git_dirs;
use nanobot_os::durable_file;
use rustix::fs::{Mode, OFlags};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Paths in a git directory that git runs, or that name what git runs. The last two held remotes before these were in the config;
/// git still reads them.
const GIT_DIR_PATHS: &[&str] =
    &["hooks", "config", "config.worktree", "commondir", "gitdir", "branches", "remotes"];

/// The file in a git directory that has the steps of an unfinished rebase.
const REBASE_STEPS: &str = "rebase-merge/git-rebase-todo";

/// Directories in a git directory that contain no submodules.
const GIT_DIR_CONTENTS: &[&str] = &["objects", "refs", "logs", "hooks", "info", "lfs"];
/// Maximum directory levels and entries that are searched for submodules, and entries for linked worktrees.
const MAX_MODULE_DEPTH: usize = 128;
const MAX_MODULE_ENTRIES: usize = 100_000;

/// Maximum length of a file that names a git directory or a worktree, in bytes.
const MAX_LINK_BYTES: u64 = 8 << 10;

/// Maximum directory levels below a writable directory that are searched for repositories.
const MAX_SEARCH_DEPTH: usize = 4;
/// Maximum directory entries that the search reads, nearest first. This takes a few milliseconds.
const MAX_SEARCH_ENTRIES: usize = 4000;

/// Lists the paths to protect in the writable directory `root`: those of its repository, and `names`.
pub fn protected_paths(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    let mut paths = repository_paths(root);
    paths.extend(names.iter().map(|name| root.join(name)));
    paths
}

/// Lists the `.git` files of the linked worktrees of the git directory that is `root` or in it. Git treats a worktree whose file it does
/// not find as removed, and deletes its directory in `worktrees`. A file is only listed if it names the directory that names it: an earlier
/// command may have written that directory.
pub fn worktree_links(root: &Path) -> Vec<PathBuf> {
    let git_dirs = [root.join(".git"), root.to_owned()];
    let listings = git_dirs.map(|git_dir| std::fs::read_dir(git_dir.join("worktrees")));
    let entries = listings.into_iter().flatten().flatten().flatten();
    entries.take(MAX_MODULE_ENTRIES).filter_map(|entry| worktree_link(&entry.path())).collect()
}

/// The `.git` file of the linked worktree whose git directory is `linked_git_dir`.
fn worktree_link(linked_git_dir: &Path) -> Option<PathBuf> {
    let read = |path: &Path| {
        let bytes = durable_file::read_limited(path, MAX_LINK_BYTES).ok()??;
        String::from_utf8(bytes).ok()
    };
    let target = read(&linked_git_dir.join("gitdir"))?;
    let link = linked_git_dir.join(target.trim_end()).canonicalize().ok()?;
    let text = read(&link)?;
    let back = link.parent()?.join(text.strip_prefix("gitdir: ")?.trim_end());
    (link.ends_with(".git") && back.canonicalize().ok()? == linked_git_dir.canonicalize().ok()?)
        .then_some(link)
}

/// Lists the paths to protect in repositories beneath `root`, and in `root` itself if it is a git directory. The search
/// covers [`MAX_SEARCH_DEPTH`] levels and at most [`MAX_SEARCH_ENTRIES`] entries.
pub fn nested_protected_paths(root: &Path) -> Vec<PathBuf> {
    let directories =
        find_directories(root, MAX_SEARCH_DEPTH, SKIPPED_DIRECTORIES, MAX_SEARCH_ENTRIES);
    let mut paths = Vec::new();
    for directory in directories.iter().map(PathBuf::as_path).chain([root]) {
        let names = RepositoryNames::in_directory(directory);
        if directory != root && names.has_git {
            paths.extend(repository_paths(directory));
        }
        if names.are_of_git_dir() {
            paths.extend(git_dir_paths(directory));
        }
    }
    paths
}

/// Lists the paths to protect in all repositories in `root`: its own, and the `repositories` that a search has found. Among the
/// paths are the steps of unfinished rebases, which git itself changes.
pub(super) fn all_repository_paths(root: &Path, repositories: &[RepositoryPath]) -> Vec<PathBuf> {
    let mut paths = repository_paths(root);
    for repository in repositories {
        match repository {
            RepositoryPath::Worktree(path) => {
                let path = root.join(path);
                // The user's home is not known here, so paths in it are left out.
                paths.extend(configured_paths(&path, Path::new("/nonexistent")));
                paths.extend(repository_paths(&path));
            }
            RepositoryPath::GitDir(path) => paths.extend(git_dir_paths(&root.join(path))),
        }
    }
    let configs = paths.iter().filter(|path| path.ends_with("config"));
    let steps = configs.filter_map(|path| Some(path.parent()?.join(REBASE_STEPS)));
    paths.extend(steps.collect::<Vec<_>>());
    paths
}

/// True if `path` is the file with the steps of an unfinished rebase.
pub(super) fn is_rebase_steps(path: &Path) -> bool {
    path.ends_with(REBASE_STEPS)
}

/// The paths in `root` that git's configs name as hooks or as further config, whether they exist or not. The configs are
/// those of the repository that contains `root`, or of `root` itself if it is a git directory, and those of the user, whose
/// home is `home`.
pub fn configured_paths(root: &Path, home: &Path) -> Vec<PathBuf> {
    let is_git_dir = RepositoryNames::in_directory(root).are_of_git_dir();
    let top = if !is_git_dir {
        root.ancestors().find(|path| path.join(".git").exists()).unwrap_or(root)
    } else if root.ends_with(".git") {
        root.parent().unwrap_or(root)
    } else {
        root
    };
    let mut git_dirs = named_git_dirs(top);
    git_dirs.extend(is_git_dir.then(|| root.to_owned()));
    let repository_configs =
        git_dirs.iter().flat_map(|git_dir| CONFIG_NAMES.map(|name| git_dir.join(name)));
    let configs = repository_configs.chain(user_configs(home));
    let NamedPaths { configs, hooks, .. } = NamedPaths::find(configs, top, home);
    let mut paths: BTreeSet<PathBuf> = configs
        .union(&hooks)
        .map(|path| path.canonicalize().unwrap_or_else(|_| without_dots(path)))
        .collect();
    paths.retain(|path| path.starts_with(root) && path != root);
    paths.into_iter().collect()
}

/// The configs of the `git_dirs`, and of the submodules and worktrees in them, with the files that they include. The home of the
/// user is `home`.
pub fn repository_configs(git_dirs: &[PathBuf], home: &Path) -> Vec<PathBuf> {
    let mut configs: Vec<PathBuf> =
        git_dirs.iter().flat_map(|git_dir| git_dir_paths(git_dir)).collect();
    configs.retain(|path| CONFIG_NAMES.iter().any(|name| path.ends_with(name)));
    let included = NamedPaths::find(configs.clone(), Path::new("/"), home).configs;
    configs.extend(included.iter().filter_map(|path| path.canonicalize().ok()));
    configs
}

/// The paths to protect in the repository at `root`, even if there is none yet.
fn repository_paths(root: &Path) -> Vec<PathBuf> {
    let git_dir = root.join(".git");
    let mut paths = vec![git_dir.clone()];
    paths.extend(git_dir_paths(&git_dir));
    paths
}

/// The paths to protect in a git directory, and in those of its submodules and linked worktrees.
pub fn git_dir_paths(git_dir: &Path) -> Vec<PathBuf> {
    make_accessible(&git_dir.join("worktrees"));
    let worktrees = find_directories(&git_dir.join("worktrees"), 1, &[], MAX_MODULE_ENTRIES);
    let inner = submodules(&git_dir.join("modules")).into_iter().chain(worktrees);
    std::iter::once(git_dir.to_owned())
        .chain(inner)
        .flat_map(|path| GIT_DIR_PATHS.iter().map(move |name| path.join(name)))
        .collect()
}

/// The git directories of submodules. The name of a submodule is its path, slashes included, and it can contain further
/// submodules.
fn submodules(modules: &Path) -> Vec<PathBuf> {
    let mut git_dirs = Vec::new();
    let mut entries_read = 0;
    let mut pending = vec![(modules.to_owned(), 0)];
    while let Some((path, depth)) = pending.pop() {
        make_accessible(&path);
        let is_git_dir = path.join("HEAD").exists();
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            if entries_read == MAX_MODULE_ENTRIES {
                return git_dirs;
            }
            entries_read += 1;
            let name = entry.file_name();
            let is_content = is_git_dir && GIT_DIR_CONTENTS.iter().any(|other| name == *other);
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !is_content && depth < MAX_MODULE_DEPTH {
                pending.push((entry.path(), depth + 1));
            }
        }
        if is_git_dir {
            git_dirs.push(path);
        }
    }
    git_dirs
}

/// Lets the user enter and read a directory in a git directory, which a command may have closed.
fn make_accessible(path: &Path) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) {
        // If that fails, git cannot open it either.
        drop(files_beneath::make_accessible(directory.as_fd()));
    }
}

/// The directories beneath `root`, nearest first, down to `max_depth` levels, without `skipped` and their contents. At most
/// `max_entries` entries are read.
fn find_directories(
    root: &Path,
    max_depth: usize,
    skipped: &[&str],
    max_entries: usize,
) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    let mut entries_read = 0;
    let mut queue = VecDeque::from([(root.to_owned(), 0)]);
    while let Some((path, depth)) = queue.pop_front() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            if entries_read == max_entries {
                return directories;
            }
            entries_read += 1;
            let name = entry.file_name();
            if skipped.iter().any(|other| name == *other)
                || !entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                continue;
            }
            directories.push(entry.path());
            if depth + 1 < max_depth {
                queue.push_back((entry.path(), depth + 1));
            }
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use super::{configured_paths, nested_protected_paths, protected_paths};
    use std::path::Path;

    #[test]
    fn paths_that_the_config_names_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join(".git")).unwrap();
        std::fs::create_dir_all(dir.join("own/hooks")).unwrap();
        let config = "[core]\n\thooksPath = own/hooks\n[include]\n\tpath = \"../shared.gitconfig\"\n\tpath = ../gone\n\
                      [core] hooksPath = more\n[includeIf \"x\"]\n\tPATH=/etc/passwd\n[core]\n\tworktree = .\n";
        std::fs::write(dir.join(".git/config"), config).unwrap();
        // A further config among them names hooks too.
        std::fs::write(dir.join("shared.gitconfig"), "[core]\n\thooksPath = inner\n").unwrap();
        let expect = ["gone", "inner", "more", "own/hooks", "shared.gitconfig"];
        let expect = expect.map(|name| dir.join(name));
        assert_eq!(configured_paths(&dir, Path::new("/h")), expect);
        // The repository is around the directory, and its config has other forms.
        let config = "[core]\n\thooksPath = \\\n own/hooks\n[include]\n\tpath = ~/own/inc\n";
        std::fs::write(dir.join(".git/config.worktree"), config).unwrap();
        std::fs::write(dir.join(".gitconfig"), "[core]\n\thooksPath = ~/own/global\n").unwrap();
        let expect = ["own/global", "own/hooks", "own/inc"].map(|name| dir.join(name));
        assert_eq!(configured_paths(&dir.join("own"), &dir), expect);
    }

    #[test]
    fn nested_repositories_are_found() {
        let check = |made: &[&str], expect: &[&str]| {
            let temp = tempfile::tempdir().unwrap();
            for path in made {
                let path = temp.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            let mut all = protected_paths(temp.path(), &[".bashrc"]);
            all.extend(nested_protected_paths(temp.path()));
            let is_config = |path: &&Path| path.ends_with("config");
            let mut actual: Vec<&str> = all
                .iter()
                .map(|path| path.strip_prefix(temp.path()).unwrap())
                .filter(is_config)
                .map(|path| path.to_str().unwrap())
                .collect();
            actual.sort_unstable();
            assert_eq!(actual, expect, "{made:?}");
        };
        check(&[], &[".git/config"]);
        check(&["a/b/c/d/.git/HEAD"], &[".git/config", "a/b/c/d/.git/config"]);
        check(&["a/b/c/d/e/.git/HEAD"], &[".git/config"]);
        check(&["a/.git"], &[".git/config", "a/.git/config"]);
        check(&["node_modules/a/.git/HEAD", "target/.git/HEAD"], &[".git/config"]);
        check(
            &[
                ".git/modules/lib/x/HEAD",
                ".git/modules/lib/x/modules/y/HEAD",
                ".git/worktrees/w/HEAD",
            ],
            &[
                ".git/config",
                ".git/modules/lib/x/config",
                ".git/modules/lib/x/modules/y/config",
                ".git/worktrees/w/config",
            ],
        );
        check(
            &["x.git/HEAD", "x.git/objects/a", "x.git/refs/a", "y/HEAD", "y/refs/a"],
            &[".git/config", "x.git/config"],
        );
        check(
            &["sub/.git/modules/z/HEAD"],
            &[".git/config", "sub/.git/config", "sub/.git/modules/z/config"],
        );
    }
}
