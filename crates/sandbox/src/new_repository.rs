//! Recognises harmless new repositories. `git init` writes the files that commands otherwise must not change; they are accepted if nothing
//! in them makes git run a program.

use super::git_repository::RepositoryNames;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The inode number and the birth time of a file or directory, in seconds and nanoseconds. The inode number alone does not identify it,
/// because file systems reuse these numbers.
pub(super) type FileId = (u64, i64, u32);

/// Identifies `name` in the directory `dir`; a symbolic link is not followed.
pub(super) fn file_id(dir: impl AsFd, name: impl rustix::path::Arg) -> Option<FileId> {
    let mask = StatxFlags::INO | StatxFlags::BTIME;
    let stat = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, mask).ok()?;
    Some((stat.stx_ino, stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

/// Identifies the git directory that contains `path`.
pub(super) fn git_dir_id(path: &Path) -> Option<FileId> {
    let git_dir = enclosing_git_dir(path).or_else(|| path.parent().map(Path::to_owned))?;
    file_id(CWD, &git_dir)
}

/// The names of configs in a git directory.
pub(super) const CONFIG_NAMES: [&str; 2] = ["config", "config.worktree"];

/// True if `path` is the config of a git directory.
pub(super) fn is_config(path: &Path) -> bool {
    let is_in_git_dir = || {
        let names = path.parent().map(RepositoryNames::in_directory);
        enclosing_git_dir(path).is_some() || names.is_some_and(RepositoryNames::are_of_git_dir)
    };
    CONFIG_NAMES.iter().any(|name| path.ends_with(name)) && is_in_git_dir()
}

/// The `.git` directory that contains `path`, or `path` itself if it is one.
pub(super) fn enclosing_git_dir(path: &Path) -> Option<PathBuf> {
    let mut git_dir = PathBuf::new();
    for part in path.components() {
        git_dir.push(part);
        if part.as_os_str() == ".git" {
            return Some(git_dir);
        }
    }
    None
}

/// True if a new file in a git directory is one that git makes for a linked worktree. `path` is relative to a writable
/// directory.
pub(super) fn is_worktree_link(path: &Path, content: &[u8]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        // A linked worktree belongs to the repository whose git directory contains its own.
        Some("commondir") => is_of_worktree(path) && content.trim_ascii() == b"../..",
        Some("gitdir") => is_of_worktree(path) && !content.trim_ascii().contains(&b'\n'),
        _ => false,
    }
}

fn is_of_worktree(path: &Path) -> bool {
    let parent = path.parent().and_then(Path::parent);
    parent.is_some_and(|parent| parent.ends_with("worktrees"))
}

/// True if the git directory of a linked worktree, within a `.git` directory, contains `path`.
pub(super) fn is_in_linked_git_dir(path: &Path) -> bool {
    let mut parents = path.ancestors().skip(2);
    parents.next().is_some_and(|parent| parent.ends_with("worktrees"))
        && parents.next().is_some_and(|parent| parent.ends_with(".git"))
}

/// The git directory that a `.git` file in `directory` names, free of links. `None` if the file has any other `content`.
pub(super) fn linked_git_dir(directory: &Path, content: &[u8]) -> Option<PathBuf> {
    let line = std::str::from_utf8(content).ok()?.strip_prefix("gitdir: ")?;
    let line = line.strip_suffix('\n').unwrap_or(line);
    if line.contains(['\n', '\r']) {
        return None;
    }
    directory.join(line).canonicalize().ok()
}

/// The steps of a rebase that run a command (`exec` of git-rebase(1)).
pub(super) fn exec_steps(todo: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(todo).into_owned();
    let steps = text.lines().map(str::trim_start);
    let runs = |line: &&str| matches!(line.split_whitespace().next(), Some("x" | "exec"));
    steps.filter(runs).map(str::to_owned).collect()
}

/// True if `path` is the file that says where a linked worktree is, which git rewrites when it moves the worktree.
pub(super) fn is_worktree_location(path: &Path) -> bool {
    path.ends_with("gitdir") && is_in_linked_git_dir(path)
}

#[cfg(test)]
mod tests {
    use super::{
        enclosing_git_dir, exec_steps, is_in_linked_git_dir, is_worktree_link, linked_git_dir,
    };
    use std::path::Path;

    #[test]
    fn files_of_a_linked_worktree() {
        let harmless = |path: &str, text: &str| is_worktree_link(Path::new(path), text.as_bytes());
        assert!(harmless(".git/worktrees/w/commondir", "../..\n"));
        assert!(!harmless(".git/worktrees/w/commondir", "../../..\n"));
        assert!(!harmless(".git/commondir", "../..\n"));
        assert!(harmless("a/.git/worktrees/w/gitdir", "/a/w/.git\n"));
        assert!(!harmless(".git/worktrees/w/hooks", ""));
        let is_linked = |path: &str| is_in_linked_git_dir(Path::new(path));
        assert!(is_linked("/a/.git/worktrees/w/config"));
        assert!(!is_linked("/worktrees/a/.git"));
        assert!(!is_linked("/a/.git/modules/worktrees/w/config"));
        assert!(!is_linked("/a/.git/worktrees/w"));
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join(".git/modules/sub")).unwrap();
        std::fs::create_dir_all(dir.join("else/inner")).unwrap();
        std::os::unix::fs::symlink("else/inner", dir.join("sub")).unwrap();
        let linked = |text: &str| linked_git_dir(&dir.join("sub"), text.as_bytes());
        assert_eq!(linked("gitdir: ../.git/modules/sub\n"), None);
        assert_eq!(linked("gitdir: ../../.git/modules/sub\n"), Some(dir.join(".git/modules/sub")));
        assert_eq!(linked("gitdir: /usr\n/lib\n"), None);
        assert_eq!(linked("/usr\n"), None);
    }

    #[test]
    fn steps_that_run_commands() {
        let actual = exec_steps(b"pick 1 x\n exec touch y\nx make\n# exec z\nfixup 2 exec\nexec\n");
        let expect = ["exec", "exec touch y", "x make"].map(str::to_owned);
        assert_eq!(actual.into_iter().collect::<Vec<_>>(), expect);
    }

    #[test]
    fn enclosing_git_directories() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(
                enclosing_git_dir(Path::new(path)).as_deref(),
                expect.map(Path::new),
                "{path}"
            );
        };
        check(".git/config", Some(".git"));
        check("a/.git/hooks", Some("a/.git"));
        check(".bashrc", None);
    }
}
