//! Places within a writable directory that commands must not change: git's hooks and config in its own repository, in
//! submodules and linked worktrees, and in nested and bare repositories as far as a short search finds them; also the
//! names given by the policy, and what git's config names within the directory.

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

/// Paths in a git directory that git runs, or that name what git runs. The last two are places of remotes from before these were
/// in the config, which git still reads.
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
    let mut kept = repository_paths(root);
    kept.extend(names.iter().map(|name| root.join(name)));
    kept
}

/// Lists the `.git` files of the linked worktrees of the git directory that is `root` or in it. Where git does not find one, it
/// takes the worktree for removed, and deletes what it keeps of it. A file is only listed if it names the directory that names
/// it: the command before may have written the latter.
pub fn worktree_links(root: &Path) -> Vec<PathBuf> {
    let around = [root.join(".git"), root.to_owned()];
    let kept = around.map(|git_dir| std::fs::read_dir(git_dir.join("worktrees")));
    let kept = kept.into_iter().flatten().flatten().flatten();
    kept.take(MAX_MODULE_ENTRIES).filter_map(|entry| worktree_link(&entry.path())).collect()
}

/// The `.git` file of the linked worktree of which git keeps `administered`.
fn worktree_link(administered: &Path) -> Option<PathBuf> {
    let read = |path: &Path| {
        let bytes = durable_file::read_limited(path, MAX_LINK_BYTES).ok()??;
        String::from_utf8(bytes).ok()
    };
    let named = read(&administered.join("gitdir"))?;
    let link = administered.join(named.trim_end()).canonicalize().ok()?;
    let back = read(&link)?;
    let back = link.parent()?.join(back.strip_prefix("gitdir: ")?.trim_end());
    (link.ends_with(".git") && back.canonicalize().ok()? == administered.canonicalize().ok()?)
        .then_some(link)
}

/// Lists the paths to protect in repositories beneath `root`, and in `root` itself if it is a git directory. The search
/// covers [`MAX_SEARCH_DEPTH`] levels and at most [`MAX_SEARCH_ENTRIES`] entries.
pub fn nested_protected_paths(root: &Path) -> Vec<PathBuf> {
    let mut left = MAX_SEARCH_ENTRIES;
    let found = find_directories(root, MAX_SEARCH_DEPTH, SKIPPED_DIRECTORIES, &mut left);
    let mut kept = Vec::new();
    for path in found.iter().map(PathBuf::as_path).chain([root]) {
        let names = RepositoryNames::in_directory(path);
        if path != root && names.has_git {
            kept.extend(repository_paths(path));
        }
        if names.are_of_git_dir() {
            kept.extend(git_dir_paths(path));
        }
    }
    kept
}

/// Lists the paths to protect in all repositories in `root`: its own, and those found. Among them are the steps of unfinished
/// rebases, which git itself changes.
pub(super) fn all_repository_paths(root: &Path, found: &[RepositoryPath]) -> Vec<PathBuf> {
    let mut kept = repository_paths(root);
    for repository in found {
        kept.extend(match repository {
            RepositoryPath::Worktree(path) => {
                let path = root.join(path);
                // The user's home is not known here, so paths in it are left out.
                let mut named = configured_paths(&path, Path::new("/nonexistent"));
                named.extend(repository_paths(&path));
                named
            }
            RepositoryPath::GitDir(path) => git_dir_paths(&root.join(path)),
        });
    }
    let configs = kept.iter().filter(|path| path.ends_with("config"));
    let steps = configs.filter_map(|path| Some(path.parent()?.join(REBASE_STEPS)));
    kept.extend(steps.collect::<Vec<_>>());
    kept
}

/// True if `path` is the file with the steps of an unfinished rebase.
pub(super) fn is_rebase_steps(path: &Path) -> bool {
    path.ends_with(REBASE_STEPS)
}

/// The paths in `root` that git's config names as hooks or as further config, whether they exist or not: that of the
/// repository at `root` or around it, or of `root` itself if it is a git directory, and that of the user, whose home is `home`.
pub fn configured_paths(root: &Path, home: &Path) -> Vec<PathBuf> {
    let is_git_dir = RepositoryNames::in_directory(root).are_of_git_dir();
    let around = root.ancestors().find(|path| path.join(".git").exists());
    let top = if is_git_dir {
        root.parent().filter(|_| root.ends_with(".git")).unwrap_or(root)
    } else {
        around.unwrap_or(root)
    };
    let mut git_dirs = named_git_dirs(top);
    git_dirs.extend(is_git_dir.then(|| root.to_owned()));
    let of_repository =
        git_dirs.iter().flat_map(|git_dir| CONFIG_NAMES.map(|name| git_dir.join(name)));
    let configs = of_repository.chain(user_configs(home));
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
    let mut kept = vec![git_dir.clone()];
    kept.extend(git_dir_paths(&git_dir));
    kept
}

/// The paths to protect in a git directory, and in those of its submodules and linked worktrees.
pub fn git_dir_paths(git_dir: &Path) -> Vec<PathBuf> {
    let mut left = MAX_MODULE_ENTRIES;
    make_accessible(&git_dir.join("worktrees"));
    let worktrees = find_directories(&git_dir.join("worktrees"), 1, &[], &mut left);
    let inner = submodules(&git_dir.join("modules")).into_iter().chain(worktrees);
    std::iter::once(git_dir.to_owned())
        .chain(inner)
        .flat_map(|path| GIT_DIR_PATHS.iter().map(move |name| path.join(name)))
        .collect()
}

/// The git directories of submodules. The name of a submodule is its path, slashes included, and it can contain further
/// submodules.
fn submodules(modules: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = MAX_MODULE_ENTRIES;
    let mut waiting = vec![(modules.to_owned(), 0)];
    while let Some((path, deep)) = waiting.pop() {
        make_accessible(&path);
        let is_git_dir = path.join("HEAD").exists();
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let Some(rest) = left.checked_sub(1) else {
                return found;
            };
            left = rest;
            let name = entry.file_name();
            let is_content = is_git_dir && GIT_DIR_CONTENTS.iter().any(|other| name == *other);
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && !is_content && deep < MAX_MODULE_DEPTH {
                waiting.push((entry.path(), deep + 1));
            }
        }
        if is_git_dir {
            found.push(path);
        }
    }
    found
}

/// Lets the user enter and read a directory in a git directory, which a command may have closed.
fn make_accessible(path: &Path) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) {
        // If that fails, git cannot open it either.
        drop(files_beneath::make_accessible(directory.as_fd()));
    }
}

/// The directories beneath `root`, nearest first, down to `max_depth` levels, without `skipped` and their contents.
/// `entries_left` is the number of entries that may still be read.
fn find_directories(
    root: &Path,
    max_depth: usize,
    skipped: &[&str],
    entries_left: &mut usize,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(root.to_owned(), 0)]);
    while let Some((path, deep)) = waiting.pop_front() {
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            let Some(rest) = entries_left.checked_sub(1) else {
                return found;
            };
            *entries_left = rest;
            let name = entry.file_name();
            if skipped.iter().any(|other| name == *other)
                || !entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                continue;
            }
            found.push(entry.path());
            if deep + 1 < max_depth {
                waiting.push_back((entry.path(), deep + 1));
            }
        }
    }
    found
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
            let mut found: Vec<&str> = all
                .iter()
                .map(|path| path.strip_prefix(temp.path()).unwrap())
                .filter(is_config)
                .map(|path| path.to_str().unwrap())
                .collect();
            found.sort_unstable();
            assert_eq!(found, expect, "{made:?}");
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
