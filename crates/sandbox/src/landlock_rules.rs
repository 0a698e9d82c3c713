//! Translates a [`SandboxSpec`] into Landlock rules. Landlock can only grant access. So if a directory contains a denied path, all its
//! other entries are granted one by one.

use super::spec::SandboxSpec;
use super::system_paths;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The maximum number of rules. Each one costs system calls when a command starts.
const MAX_RULES: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccessRight {
    /// List this directory and those beneath it.
    List,
    /// Read, list and run it and everything beneath it.
    Read,
    /// Read from and write to a device.
    Device,
    /// Full access to everything beneath it.
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LandlockRule {
    pub(super) path: PathBuf,
    pub(super) right: AccessRight,
    pub(super) is_directory: bool,
}

/// The rules of `sandbox`, for paths that exist.
///
/// # Errors
/// There would be more than [`MAX_RULES`] rules: too many entries beside a denied path.
pub(super) fn build_rules(sandbox: &SandboxSpec) -> io::Result<Vec<LandlockRule>> {
    let mut rules = Vec::new();
    let denied = [sandbox.denied.as_slice(), &sandbox.covered].concat();
    if sandbox.in_namespaces {
        // Its root has only granted paths.
        rules.push(LandlockRule { path: "/".into(), right: AccessRight::List, is_directory: true });
    }
    for path in &sandbox.readable {
        grant(path, AccessRight::Read, &denied, &mut rules)?;
        grant_listing(path, sandbox, &denied, &mut rules);
    }
    let terminals = sandbox.in_namespaces.then_some(&system_paths::TERMINALS);
    for path in system_paths::DEVICES.iter().chain(terminals) {
        grant(Path::new(path), AccessRight::Device, &denied, &mut rules)?;
    }
    for path in &sandbox.writable {
        grant_listing(path, sandbox, &denied, &mut rules);
        let protected = write_protected(path, sandbox);
        if !protected.is_empty() {
            grant(path, AccessRight::Read, &denied, &mut rules)?;
        }
        let read_only = [denied.as_slice(), &protected].concat();
        grant(path, AccessRight::Write, &read_only, &mut rules)?;
    }
    Ok(rules)
}

/// The existing protected paths in the writable `path` to which write access is withheld. A protected path that does not exist cannot be
/// distinguished from any other new file.
fn write_protected(path: &Path, sandbox: &SandboxSpec) -> Vec<PathBuf> {
    if !sandbox.split_parents {
        return Vec::new();
    }
    let is_write_protected = |protected: &&PathBuf| {
        protected.starts_with(path)
            && *protected != path
            // The contents of `.git` have entries of their own.
            && !(protected.ends_with(".git") && protected.is_dir())
            && protected.symlink_metadata().is_ok()
    };
    sandbox.protected.iter().filter(is_write_protected).cloned().collect()
}

/// Allows listing a directory that is granted entry by entry, if mounts hide the denied paths in it.
fn grant_listing(
    path: &Path,
    sandbox: &SandboxSpec,
    denied: &[PathBuf],
    rules: &mut Vec<LandlockRule>,
) {
    let contains = |denied: &PathBuf| denied.starts_with(path) && denied != path;
    let is_denied = || denied.iter().any(|denied| path.starts_with(denied));
    if sandbox.long_lived && path.is_dir() && !is_denied() && denied.iter().any(contains) {
        rules.push(LandlockRule {
            path: path.to_owned(),
            right: AccessRight::List,
            is_directory: true,
        });
    }
}

/// Grants `path` as a whole, or entry by entry around the `denied` paths in it.
fn grant(
    path: &Path,
    right: AccessRight,
    denied: &[PathBuf],
    rules: &mut Vec<LandlockRule>,
) -> io::Result<()> {
    if denied.iter().any(|denied| path.starts_with(denied)) {
        return Ok(());
    }
    // A symbolic link grants nothing; its target is checked on its own.
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if metadata.is_symlink() {
        return Ok(());
    }
    let inside: Vec<PathBuf> =
        denied.iter().filter(|denied| denied.starts_with(path)).cloned().collect();
    if inside.is_empty() || !metadata.is_dir() {
        if rules.len() == MAX_RULES {
            return Err(io::Error::other(format!(
                "too many entries next to denied paths in `{}`",
                path.display()
            )));
        }
        rules.push(LandlockRule { path: path.to_owned(), right, is_directory: metadata.is_dir() });
        return Ok(());
    }
    // A directory that this process cannot read is unreadable to the command too.
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        grant(&entry.path(), right, &inside, rules)?;
    }
    Ok(())
}

/// Opens `path` for a rule without following symbolic links, since it may have been replaced since the rules were
/// computed.
pub(super) fn open_nofollow(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), no_links) {
        Err(Errno::NOSYS | Errno::PERM) => Ok(rustix::fs::open(path, flags, Mode::empty())?),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessRight, build_rules, grant};
    use crate::{NetworkAccess, SandboxSpec};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    #[test]
    fn unprotectable_paths_are_not_writable() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        for name in ["w/.git/hooks", "w/src", "w/.vscode/mine", "w/secret"] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("w/.git/HEAD"), "").unwrap();
        let paths =
            |names: &[&str]| -> Vec<PathBuf> { names.iter().map(|name| dir.join(name)).collect() };
        let protected = ["w/.git", "w/.git/hooks", "w/.vscode", "w/.envrc"];
        let mut sandbox = SandboxSpec::new(
            Vec::new(),
            paths(&["w", "w/.vscode/mine"]),
            paths(&["w/secret"]),
            paths(&protected),
            NetworkAccess::Machine,
        );
        let of_right = |sandbox: &SandboxSpec, right: AccessRight| {
            let rules = build_rules(sandbox).unwrap().into_iter();
            let rules = rules.filter(|rule| rule.right == right && rule.path.starts_with(&dir));
            let mut actual: Vec<PathBuf> = rules.map(|rule| rule.path).collect();
            actual.sort();
            actual
        };
        let all = paths(&["w/.git", "w/.vscode", "w/.vscode/mine", "w/src"]);
        assert_eq!(of_right(&sandbox, AccessRight::Write), all);
        assert_eq!(of_right(&sandbox, AccessRight::List), [""; 0].map(PathBuf::from));
        sandbox.long_lived = true;
        assert_eq!(of_right(&sandbox, AccessRight::List), paths(&["w"]));
        sandbox.split_parents = true;
        assert_eq!(
            of_right(&sandbox, AccessRight::Write),
            paths(&["w/.git/HEAD", "w/.vscode/mine", "w/src"])
        );
        let read = paths(&["w/.git", "w/.vscode", "w/src"]);
        assert_eq!(of_right(&sandbox, AccessRight::Read), read);
    }

    #[test]
    fn denied_paths_split_their_parents() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("a/deep/in")).unwrap();
        std::fs::create_dir_all(dir.join("b")).unwrap();
        std::fs::write(dir.join("a/file"), "").unwrap();
        symlink("a", dir.join("link")).unwrap();
        let check = |path: &str, closed: &[&str], expect: &[&str]| {
            let closed: Vec<_> = closed.iter().map(|name| dir.join(name)).collect();
            let mut rules = Vec::new();
            grant(&dir.join(path), AccessRight::Read, &closed, &mut rules).unwrap();
            let mut actual: Vec<String> = rules
                .into_iter()
                .map(|rule| rule.path.strip_prefix(&dir).unwrap().display().to_string())
                .collect();
            actual.sort();
            assert_eq!(actual, expect, "{path} without {closed:?}");
        };
        check("", &[], &[""]);
        check("", &["b"], &["a"]);
        check("", &["a/deep"], &["a/file", "b"]);
        check("", &["a/deep/in"], &["a/file", "b"]);
        check("a", &["b"], &["a"]);
        check("a", &["a"], &[]);
        check("a/deep", &["a"], &[]);
        check("a", &["a/missing"], &["a/deep", "a/file"]);
        check("link", &[], &[]);
        check("missing", &[], &[]);
    }
}
