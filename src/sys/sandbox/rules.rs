//! From what a fence grants to rules of the kernel's: Landlock can only grant, so whatever contains a closed place is
//! granted part by part around it.

use super::{Fence, system};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// More than this many rules cost every command too much.
const MOST: usize = 2048;

/// What is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Right {
    /// Read it and what is beneath it, list it, run it.
    Read,
    /// Read from it and write to it: a device.
    Use,
    /// Everything beneath it.
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) path: PathBuf,
    pub(super) right: Right,
    pub(super) is_directory: bool,
}

/// The rules of `fence`: what exists of it.
///
/// # Errors
/// They would be too many: there are too many entries beside a closed place.
pub(super) fn of(fence: &Fence) -> io::Result<Vec<Rule>> {
    let mut rules = Vec::new();
    for path in &fence.reads {
        grant(path, Right::Read, &fence.closed, &mut rules)?;
    }
    for path in system::DEVICES {
        grant(Path::new(path), Right::Use, &fence.closed, &mut rules)?;
    }
    for path in &fence.writes {
        grant(path, Right::Write, &fence.closed, &mut rules)?;
    }
    Ok(rules)
}

fn grant(path: &Path, right: Right, closed: &[PathBuf], rules: &mut Vec<Rule>) -> io::Result<()> {
    if closed.iter().any(|place| path.starts_with(place)) {
        return Ok(());
    }
    // A link grants nothing: where it leads is judged by itself.
    let Ok(about) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if about.is_symlink() {
        return Ok(());
    }
    let inside: Vec<PathBuf> = closed
        .iter()
        .filter(|place| place.starts_with(path))
        .cloned()
        .collect();
    if inside.is_empty() || !about.is_dir() {
        if rules.len() == MOST {
            return Err(io::Error::other(format!(
                "there is too much beside what is closed in `{}`",
                path.display()
            )));
        }
        rules.push(Rule {
            path: path.to_owned(),
            right,
            is_directory: about.is_dir(),
        });
        return Ok(());
    }
    // Unreadable to us is unreadable to the command.
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        grant(&entry.path(), right, &inside, rules)?;
    }
    Ok(())
}

/// Hold `path` for a rule, by no link on the way: what was there when the rules were thought of may have been replaced.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), no_links) {
        Err(Errno::NOSYS | Errno::PERM) => Ok(rustix::fs::open(path, flags, Mode::empty())?),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::{Right, grant};
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_closed_is_granted_around() {
        let temp = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(temp.path()).unwrap();
        std::fs::create_dir_all(dir.join("a/deep/in")).unwrap();
        std::fs::create_dir_all(dir.join("b")).unwrap();
        std::fs::write(dir.join("a/file"), "").unwrap();
        symlink("a", dir.join("link")).unwrap();
        let check = |path: &str, closed: &[&str], expect: &[&str]| {
            let closed: Vec<_> = closed.iter().map(|name| dir.join(name)).collect();
            let mut rules = Vec::new();
            grant(&dir.join(path), Right::Read, &closed, &mut rules).unwrap();
            let mut found: Vec<String> = rules
                .into_iter()
                .map(|rule| rule.path.strip_prefix(&dir).unwrap().display().to_string())
                .collect();
            found.sort();
            assert_eq!(found, expect, "{path} without {closed:?}");
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
