//! Decides whether git has a file with a given content, in the objects of a repository and of its alternates. A command
//! may have put anything into a repository: files are opened without blocking.

use super::git_config;
use super::git_history::GitHistory;
use super::git_object_list::{ObjectList, blob_name};
use super::git_repository::{RepositoryPath, read_small};
use super::repository_search::named_git_dirs;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of repositories that are searched for an object: a repository may use the objects of others (alternates).
const MAX_OBJECT_DIRECTORIES: usize = 8;

/// The directories of the objects of `repositories`, which a search of `root` has found, and of the one at `root` itself.
pub(super) fn object_directories(root: &Path, repositories: &[RepositoryPath]) -> Vec<PathBuf> {
    let own = git_directory(root);
    let others = repositories.iter().filter_map(|repository| match repository {
        RepositoryPath::Worktree(path) => git_directory(&root.join(path)),
        RepositoryPath::GitDir(path) => Some(root.join(path)),
    });
    let git_dirs = own.into_iter().chain(others);
    git_dirs.filter_map(|git_dir| git_dir.join("objects").canonicalize().ok()).collect()
}

/// The objects of the directories that were read, so that each is read once for all files of a command.
pub(super) type ObjectCache = RefCell<BTreeMap<PathBuf, ObjectList>>;

/// True if the repository that contains `relative`, a path in `root`, or the one that it was cloned from on this machine, has a
/// file with this content. With a `history`, only the objects that these had before are accepted.
pub(super) fn has_blob(
    root: &Path,
    relative: &Path,
    content: &[u8],
    history: Option<&GitHistory>,
    object_cache: &ObjectCache,
) -> bool {
    let name = blob_name(content);
    let path = root.join(relative);
    let Some(git_dir) = path.ancestors().skip(1).find_map(git_directory) else {
        return false;
    };
    let mut pending = vec![git_dir.join("objects")];
    pending.extend(local_origin(&git_dir));
    if let Some(history) = history {
        let real = pending.iter().filter_map(|path| path.canonicalize().ok());
        return history.had(&real.collect::<Vec<_>>(), &name);
    }
    let mut searched = Vec::new();
    while let Some(objects) = pending.pop() {
        let Ok(objects) = objects.canonicalize() else {
            continue;
        };
        if searched.len() == MAX_OBJECT_DIRECTORIES || searched.contains(&objects) {
            continue;
        }
        let mut cache = object_cache.borrow_mut();
        // A directory that cannot be read proves nothing.
        let list = cache
            .entry(objects.clone())
            .or_insert_with(|| ObjectList::read(&objects, None, &|_| true).unwrap_or_default());
        if list.contains(&name) {
            return true;
        }
        let alternates = read_small(&objects.join("info/alternates")).unwrap_or_default();
        pending.extend(alternates.lines().map(|line| objects.join(line)));
        searched.push(objects);
    }
    false
}

/// The directory with the objects and the config of the repository at `directory`.
fn git_directory(directory: &Path) -> Option<PathBuf> {
    named_git_dirs(directory).pop()
}

/// The objects of the repository on this machine that the one at `git_dir` was cloned from.
fn local_origin(git_dir: &Path) -> Option<PathBuf> {
    let entries = git_config::read(&git_dir.join("config"))?;
    let urls = entries.iter().filter(|entry| entry.is("remote", "url"));
    let mut urls = urls.map(|entry| entry.value.as_str());
    let path =
        urls.find_map(|url| url.strip_prefix("file://").or(url.starts_with('/').then_some(url)))?;
    let origin = Path::new(path);
    let inner = origin.join(".git");
    Some(if inner.is_dir() { inner.join("objects") } else { origin.join("objects") })
}

#[cfg(test)]
mod tests {
    use super::{ObjectCache, has_blob, object_directories};
    use crate::GitHistory;
    use std::path::Path;
    use std::sync::Arc;

    fn git(dir: &Path, arguments: &[&str]) {
        let _alone = nanobot_os::children::serialize_tests();
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=u", "-c", "user.email=u@example.org"])
            .args(arguments)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?} {output:?}");
    }

    #[test]
    fn content_that_git_has() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap().join("w");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        git(&dir, &["init", "-q"]);
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        // A run that starts now.
        let history = || {
            let history = Arc::new(GitHistory::default());
            let objects = object_directories(&dir, &[]);
            let record = history.begin(&objects, &[], std::iter::empty()).unwrap();
            (history, record)
        };
        let has = |text: &str, history: Option<&GitHistory>| {
            let path = Path::new("sub/AGENTS.md");
            has_blob(&dir, path, text.as_bytes(), history, &ObjectCache::default())
        };
        assert!(!has("one", None));
        for text in ["one", "two", "three"] {
            write("f", text);
            git(&dir, &["add", "f"]);
            git(&dir, &["commit", "-qm", text]);
        }
        nanobot_os::clock::wait_for_later_file_time().unwrap();
        let (before, record) = history();
        git(&dir, &["gc", "-q"]);
        write("f", "loose");
        git(&dir, &["add", "f"]);
        for text in ["one", "two", "three"] {
            assert!(has(text, None) && has(text, Some(&before)), "{text}");
        }
        assert!(has("loose", None) && !has("loose", Some(&before)));
        assert!(!has("other", None) && !has("other", Some(&before)));
        record.add_new(&object_directories(&dir, &[]));
        drop(record);
        nanobot_os::clock::wait_for_later_file_time().unwrap();
        let (later, _record) = history();
        assert!(has("loose", Some(&later)) && has("one", Some(&later)));
        // A worktree has the objects of its repository, and a clone those of where it came from.
        git(&dir, &["commit", "-qm", "x"]);
        git(&dir, &["worktree", "add", "-q", "../v"]);
        git(temp.path(), &["clone", "-q", "w", "c"]);
        for name in ["v", "c"] {
            let root = temp.path().canonicalize().unwrap().join(name);
            assert!(
                has_blob(&root, Path::new("f"), b"loose", None, &ObjectCache::default()),
                "{name}"
            );
        }
        // A pipe in place of a file is not waited for.
        std::fs::remove_dir_all(dir.join("sub")).unwrap();
        std::fs::create_dir(dir.join("sub")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("sub/.git"), mode).unwrap();
        assert!(has("two", None));
    }
}
