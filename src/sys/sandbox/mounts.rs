//! Mounts for what Landlock cannot express: a read-only place within a writable one, and a hidden place within a
//! granted one.
//!
//! This needs a mount namespace and, for ordinary users, a user namespace around it, which only a single-threaded
//! process can enter: this program, started again. Not every system allows that. Without it, protected paths are
//! restored afterwards instead, and a directory that contains a denied path is granted entry by entry.

use super::landlock_rules;
use super::spec::SandboxSpec;
use rustix::fs::{FileType, StatVfsMountFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The directory of named shared memory. A command gets an empty one of its own, since the system's is shared with
/// other programs.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// Gives this process the view of the file system that `sandbox` describes. The process must have a single thread.
///
/// # Errors
/// The system refuses any part of it.
pub(super) fn set_up(sandbox: &SandboxSpec) -> io::Result<()> {
    let here = std::env::current_dir()?;
    let before = rustix::fs::stat(".")?;
    enter_namespaces()?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)?;
    if let Ok(place) = landlock_rules::open_nofollow(Path::new(SHARED_MEMORY)) {
        mount_empty(&place, "mode=1777,size=1g", MountFlags::empty())?;
    }
    let denied = existing_granted(&sandbox.denied, &[&sandbox.readable, &sandbox.writable]);
    for place in outermost(&denied) {
        let place = place.as_path();
        let (fd, kind) = open_path(place)?;
        match kind {
            FileType::Directory => mount_empty(&fd, "mode=500,size=4k", MountFlags::RDONLY)?,
            // A symbolic link reveals nothing unless its target is accessible.
            FileType::Symlink => {}
            _ => rustix::mount::mount_bind("/dev/null", fd_path(&fd))?,
        }
    }
    let protected = existing_granted(&sandbox.protected, &[&sandbox.writable]);
    for directory in parents_between(&protected, &sandbox.writable) {
        let (fd, kind) = open_path(&directory)?;
        // A mount point cannot be renamed, so nothing else can be put in its place.
        if kind == FileType::Directory {
            rustix::mount::mount_bind_recursive(fd_path(&fd), fd_path(&fd))?;
        }
    }
    // A writable place within a protected one becomes a mount of its own, so that it stays writable when the protected
    // path becomes read-only.
    for place in sandbox
        .writable
        .iter()
        .filter(|place| is_within(place, &protected))
    {
        if let Ok((fd, _)) = open_path(place) {
            rustix::mount::mount_bind_recursive(fd_path(&fd), fd_path(&fd))?;
        }
    }
    for place in protected {
        let (fd, kind) = open_path(&place)?;
        match kind {
            // The contents of `.git` have entries of their own.
            FileType::Directory if place.ends_with(".git") => {}
            FileType::Directory | FileType::RegularFile => {
                rustix::mount::mount_bind_recursive(fd_path(&fd), fd_path(&fd))?;
                // The descriptor still refers to the directory below; only the path leads to the new mount.
                remount_read_only(&open_path(&place)?.0)?;
            }
            _ => {}
        }
    }
    // The working directory still refers to the directory below the mounts.
    std::env::set_current_dir(&here)?;
    let after = rustix::fs::stat(".")?;
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) {
        return Err(io::Error::other("the working directory was replaced"));
    }
    Ok(())
}

/// True if mounts would enforce `sandbox` better.
pub(super) fn are_useful(sandbox: &SandboxSpec) -> bool {
    // The last place is the private directory, which every command may write.
    sandbox.writable.len() > 1 || sandbox.hide_denied
}

/// Enters new namespaces in which this process may mount.
fn enter_namespaces() -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe because of a flag that is not used here"
    )]
    let unshare = rustix::thread::unshare;
    if unshare(UnshareFlags::NEWNS).is_ok() {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
    let write = |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text);
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{0} {0} 1", user.as_raw()))?;
    write("gid_map", format!("{0} {0} 1", group.as_raw()))
}

/// The existing `places` beneath a granted one.
fn existing_granted(places: &[PathBuf], granted: &[&Vec<PathBuf>]) -> BTreeSet<PathBuf> {
    let is_inside = |place: &&PathBuf| {
        let mut granted = granted.iter().copied().flatten();
        granted.any(|root| place.starts_with(root))
    };
    places
        .iter()
        .filter(is_inside)
        .filter(|place| open_path(place).is_ok())
        .cloned()
        .collect()
}

/// The `places` that are not within another one: a covered directory hides its contents, which could then not be found.
fn outermost(places: &BTreeSet<PathBuf>) -> impl Iterator<Item = &PathBuf> {
    let is_inside = |place: &Path| {
        place
            .ancestors()
            .skip(1)
            .any(|above| places.contains(above))
    };
    places.iter().filter(move |place| !is_inside(place))
}

/// True if `place` is strictly within one of `protected` that becomes read-only.
fn is_within(place: &Path, protected: &BTreeSet<PathBuf>) -> bool {
    let mut above = place.ancestors().skip(1);
    above.any(|above| protected.contains(above) && !above.ends_with(".git"))
}

/// The directories between writable places and protected ones, parents first.
fn parents_between(protected: &BTreeSet<PathBuf>, writable: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for place in protected {
        let roots = writable.iter().filter(|root| place.starts_with(root));
        let Some(root) = roots.min_by_key(|root| root.as_os_str().len()) else {
            continue;
        };
        let between = place.ancestors().skip(1);
        let between = between.take_while(|path| path != root && path.starts_with(root));
        found.extend(between.map(Path::to_owned));
        if place.ends_with(".git") && place != root {
            found.insert(place.clone());
        }
    }
    found
}

fn open_path(path: &Path) -> io::Result<(OwnedFd, FileType)> {
    let fd = landlock_rules::open_nofollow(path)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    Ok((fd, kind))
}

/// A path to an open descriptor, unaffected by renames.
fn fd_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Mounts an empty file system over an open directory.
fn mount_empty(fd: &OwnedFd, options: &str, flags: MountFlags) -> io::Result<()> {
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    let options = options.as_c_str();
    Ok(rustix::mount::mount(
        "none",
        fd_path(fd),
        "tmpfs",
        flags,
        options,
    )?)
}

/// Makes an open mount read-only. Its other flags must be repeated, or the kernel refuses.
fn remount_read_only(fd: &OwnedFd) -> io::Result<()> {
    let is = rustix::fs::fstatvfs(fd)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (found, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if is.contains(found) {
            flags |= flag;
        }
    }
    Ok(rustix::mount::mount_remount(fd_path(fd), flags, c"")?)
}

#[cfg(test)]
mod tests {
    use super::{outermost, parents_between};
    use std::path::PathBuf;

    #[test]
    fn only_outermost_denied_paths_are_covered() {
        let places = ["/h/w", "/h/w/sessions", "/h/ws", "/h/w/a/b", "/x/y"].map(PathBuf::from);
        let places = places.into_iter().collect();
        let found: Vec<_> = outermost(&places).collect();
        assert_eq!(
            found,
            ["/h/w", "/h/ws", "/x/y"]
                .map(PathBuf::from)
                .iter()
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn mount_points_between_roots_and_protected_paths() {
        let check = |protected: &[&str], writes: &[&str], expect: &[&str]| {
            let writes: Vec<PathBuf> = writes.iter().map(PathBuf::from).collect();
            let found = parents_between(&protected.iter().map(PathBuf::from).collect(), &writes);
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(
                found.into_iter().collect::<Vec<_>>(),
                expect,
                "{protected:?}"
            );
        };
        check(&["/w/.git/hooks", "/w/.git/config"], &["/w"], &["/w/.git"]);
        check(&["/w/.git", "/w/.bashrc"], &["/w"], &["/w/.git"]);
        check(
            &["/w/.config/git/config"],
            &["/w"],
            &["/w/.config", "/w/.config/git"],
        );
        check(
            &["/w/in/.git/config"],
            &["/w", "/w/in"],
            &["/w/in", "/w/in/.git"],
        );
        check(&["/w/.bashrc"], &["/w"], &[]);
        check(&["/else/.bashrc"], &["/w"], &[]);
    }
}
