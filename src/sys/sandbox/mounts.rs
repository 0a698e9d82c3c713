//! The file system that a command sees: an empty root with a mount for each granted place, read-only unless it is
//! writable; an empty place over each denied one; its own `/proc`, `/dev` and `/tmp`. Everything else is not there.
//!
//! This needs a mount namespace, which not every system allows. Without it, protected paths are restored afterwards
//! instead, and a directory that contains a denied path is granted entry by entry.

use super::landlock_rules;
use super::spec::SandboxSpec;
use super::system_paths::{DEVICES, TERMINALS};
use rustix::fs::{FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The directory of named shared memory. A command gets an empty one of its own, since the system's is shared with
/// other programs.
const SHARED_MEMORY: &str = "/dev/shm";
/// The directory for temporary files. A command sees the run's own one there.
const TEMPORARY: &str = "/tmp";
/// The system's root while the new one is being made.
const OLD_ROOT: &str = "/.old-root";
/// Links that programs expect in `/dev`.
const DEVICE_LINKS: &[(&str, &str)] = &[
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Gives this process, the first of new namespaces, the view of the file system that `sandbox` describes, and adds to
/// its writable places those that only this view has.
///
/// # Errors
/// The system refuses any part of it.
pub(super) fn set_up(sandbox: &mut SandboxSpec) -> io::Result<()> {
    let here = std::env::current_dir()?;
    let before = rustix::fs::stat(".")?;
    enter_empty_root()?;
    let has_tmp = mount_tmp(sandbox)?;
    create_links(&sandbox.links)?;
    bind_granted(sandbox)?;
    mount_devices()?;
    create_mount_point(Path::new("/proc"), true)?;
    let of_proc = MountFlags::RDONLY | no_programs();
    rustix::mount::mount("proc", "/proc", "proc", of_proc, None)?;
    rustix::mount::unmount(OLD_ROOT, UnmountFlags::DETACH)?;
    std::fs::remove_dir(OLD_ROOT)?;
    hide_denied(sandbox)?;
    protect(sandbox)?;
    remount_rest_read_only(sandbox)?;
    sandbox.writable.push(SHARED_MEMORY.into());
    sandbox
        .writable
        .extend(has_tmp.then(|| PathBuf::from(TEMPORARY)));
    if here == Path::new("/") {
        return Ok(());
    }
    // The working directory still refers to the directory below the mounts.
    std::env::set_current_dir(&here)?;
    let after = rustix::fs::stat(".")?;
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) {
        return Err(io::Error::other("the working directory was replaced"));
    }
    Ok(())
}

/// Mounts the run's own directory at [`TEMPORARY`]. Returns false if that place is granted itself, or there is none.
fn mount_tmp(sandbox: &SandboxSpec) -> io::Result<bool> {
    let mut granted = sandbox.readable.iter().chain(&sandbox.writable);
    let is_granted = granted.any(|place| Path::new(TEMPORARY).starts_with(place));
    let Some(tmp) = sandbox.tmp.as_deref().filter(|_| !is_granted) else {
        return Ok(false);
    };
    bind(tmp, Path::new(TEMPORARY))?;
    Ok(true)
}

fn no_programs() -> MountFlags {
    MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC
}

/// Makes an empty file system the root. The system's own lies at [`OLD_ROOT`].
fn enter_empty_root() -> io::Result<()> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)?;
    // Any existing directory will do until it becomes the root.
    let base = Path::new("/proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("none", base, "tmpfs", flags, c"mode=755,size=1m")?;
    let old = base.join(OLD_ROOT.trim_start_matches('/'));
    std::fs::create_dir(&old)?;
    rustix::process::pivot_root(base, &old)?;
    std::env::set_current_dir("/")
}

/// The place of `path` while the system's root is at [`OLD_ROOT`].
fn outside(path: &Path) -> PathBuf {
    Path::new(OLD_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

/// Creates the symbolic links that granted places are also reached by.
fn create_links(links: &BTreeMap<PathBuf, PathBuf>) -> io::Result<()> {
    for (link, target) in links {
        let (Some(parent), Some(name)) = (link.parent(), link.file_name()) else {
            continue;
        };
        match rustix::fs::symlinkat(target, create_directories(parent)?, name) {
            // The run's own directory for temporary files still has the one of an earlier command.
            Err(error) if error != Errno::EXIST => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// Mounts the granted places, parents first.
fn bind_granted(sandbox: &SandboxSpec) -> io::Result<()> {
    let mut places: BTreeSet<PathBuf> = sandbox.readable.iter().cloned().collect();
    places.extend(sandbox.writable.iter().cloned());
    if places.remove(Path::new("/")) {
        let entries = std::fs::read_dir(OLD_ROOT)?.flatten();
        places.extend(entries.map(|entry| Path::new("/").join(entry.file_name())));
    }
    let is_ours = |place: &PathBuf| place.starts_with("/proc") || place.starts_with("/dev");
    let mut bound: Vec<PathBuf> = Vec::new();
    for place in places.into_iter().filter(|place| !is_ours(place)) {
        // A place within a mounted one is there already. A writable one within a read-only one needs a mount of its own.
        let around = bound.iter().rfind(|other| place.starts_with(other));
        let is_missing = |other: &PathBuf| {
            sandbox.writable.contains(&place) && !sandbox.writable.contains(other)
        };
        if around.is_none_or(is_missing) {
            bind(&place, &place)?;
            bound.push(place);
        }
    }
    Ok(())
}

/// Mounts the system's place `from`, with what is mounted beneath it, at `to`. A place that has disappeared or become a
/// symbolic link is left out.
fn bind(from: &Path, to: &Path) -> io::Result<()> {
    let Ok((source, kind)) = open_path(&outside(from)) else {
        return Ok(());
    };
    if kind == FileType::Symlink {
        return Ok(());
    }
    if landlock_rules::open_nofollow(to).is_err() {
        create_mount_point(to, kind == FileType::Directory)?;
    }
    let target = landlock_rules::open_nofollow(to)?;
    let of_old = |fd: &OwnedFd| format!("{OLD_ROOT}{}", fd_path(fd));
    match rustix::mount::mount_bind_recursive(of_old(&source), of_old(&target)) {
        Err(Errno::NOENT) if open_path(&outside(from)).is_err() => Ok(()),
        other => Ok(other?),
    }
}

/// Creates what a mount needs, and the directories around it.
fn create_mount_point(path: &Path, is_directory: bool) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    if is_directory {
        return create_directories(path).map(drop);
    }
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::openat(create_directories(parent)?, name, new, mode)?;
    Ok(())
}

/// Creates the directory `path` and those around it, and opens it. Never follows a link: an earlier command may have put
/// one into the directory for temporary files.
fn create_directories(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open("/", flags, Mode::empty())?;
    for part in path.strip_prefix("/").unwrap_or(path) {
        match rustix::fs::mkdirat(&directory, part, Mode::from_raw_mode(0o755)) {
            Err(error) if error != Errno::EXIST => return Err(error.into()),
            _ => {}
        }
        directory = rustix::fs::openat(&directory, part, flags, Mode::empty())?;
    }
    Ok(directory)
}

/// Makes a `/dev` of harmless devices, shared memory and pseudo-terminals.
fn mount_devices() -> io::Result<()> {
    for device in DEVICES {
        bind(Path::new(device), Path::new(device))?;
    }
    for (link, target) in DEVICE_LINKS {
        symlink(target, link)?;
    }
    create_mount_point(Path::new(SHARED_MEMORY), true)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let of_memory = c"mode=1777,size=1g";
    rustix::mount::mount("none", SHARED_MEMORY, "tmpfs", flags, of_memory)?;
    create_mount_point(Path::new(TERMINALS), true)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let of_terminals = c"newinstance,ptmxmode=0666,mode=620";
    Ok(rustix::mount::mount(
        "devpts",
        TERMINALS,
        "devpts",
        flags,
        of_terminals,
    )?)
}

/// Covers the denied places.
fn hide_denied(sandbox: &SandboxSpec) -> io::Result<()> {
    let denied = existing_granted(&sandbox.denied, &[&sandbox.readable, &sandbox.writable]);
    for place in outermost(&denied) {
        with_existing(place, |fd, kind| match kind {
            FileType::Directory => mount_empty(fd),
            // A symbolic link reveals nothing unless its target is accessible.
            FileType::Symlink => Ok(()),
            _ => Ok(rustix::mount::mount_bind("/dev/null", fd_path(fd))?),
        })?;
    }
    Ok(())
}

/// Makes the existing protected places read-only mounts.
fn protect(sandbox: &SandboxSpec) -> io::Result<()> {
    let protected = existing_granted(&sandbox.protected, &[&sandbox.writable]);
    // The cover of a denied place would move away with a directory around it.
    let mut pinned = existing_granted(&sandbox.denied, &[&sandbox.writable]);
    pinned.extend(protected.iter().cloned());
    for directory in parents_between(&pinned, &sandbox.writable) {
        // A mount point cannot be renamed, so nothing else can be put in its place.
        with_existing(&directory, |fd, kind| match kind {
            FileType::Directory => mount_on_itself(fd),
            _ => Ok(()),
        })?;
    }
    // A writable place within a protected one becomes a mount of its own, so that it stays writable when the protected
    // path becomes read-only.
    for place in sandbox
        .writable
        .iter()
        .filter(|place| is_within(place, &protected))
    {
        with_existing(place, |fd, _| mount_on_itself(fd))?;
    }
    for place in protected {
        with_existing(&place, |fd, kind| match kind {
            // The contents of `.git` have entries of their own.
            FileType::Directory if place.ends_with(".git") => Ok(()),
            FileType::Directory | FileType::RegularFile => {
                mount_on_itself(fd)?;
                // The descriptor still refers to the directory below; only the path leads to the new mount.
                remount_read_only(&open_path(&place)?.0)
            }
            _ => Ok(()),
        })?;
    }
    Ok(())
}

/// Makes every mount read-only that is not in a writable place.
fn remount_rest_read_only(sandbox: &SandboxSpec) -> io::Result<()> {
    let depth = |places: &[PathBuf], path: &Path| {
        let around = places.iter().filter(|place| path.starts_with(place));
        around.map(|place| place.components().count()).max()
    };
    // The contents of `.git` have entries of their own.
    let protected = sandbox
        .protected
        .iter()
        .filter(|place| !place.ends_with(".git"));
    let protected: Vec<PathBuf> = protected.cloned().collect();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    for place in mounts.lines().filter_map(mount_point) {
        let writes = depth(&sandbox.writable, &place);
        // The root holds nothing but mount points, even if that of the system was granted.
        let is_root = place == Path::new("/");
        let is_writable = !is_root && writes.is_some() && writes >= depth(&protected, &place);
        let is_ours = [TERMINALS, SHARED_MEMORY, TEMPORARY]
            .map(Path::new)
            .contains(&place.as_path());
        if is_writable || is_ours {
            continue;
        }
        // A mount that this process cannot open is closed to the command as well.
        if let Ok((fd, _)) = open_path(&place) {
            remount_read_only(&fd)?;
        }
    }
    Ok(())
}

/// The mount point in a line of proc_pid_mountinfo(5). Blanks and backslashes are written as octal numbers.
fn mount_point(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    let (mut text, mut rest) = (String::new(), field);
    while let Some((before, after)) = rest.split_once('\\') {
        let (code, after) = after.split_at_checked(3)?;
        text.push_str(before);
        text.push(char::from(u8::from_str_radix(code, 8).ok()?));
        rest = after;
    }
    text.push_str(rest);
    Some(text.into())
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

/// Opens `place` and mounts something with `mount`. A place that another program removes meanwhile needs no mount.
fn with_existing(
    place: &Path,
    mount: impl FnOnce(&OwnedFd, FileType) -> io::Result<()>,
) -> io::Result<()> {
    match open_path(place).and_then(|(fd, kind)| mount(&fd, kind)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && open_path(place).is_err() => {
            Ok(())
        }
        other => other,
    }
}

/// Makes an open place a mount of its own.
fn mount_on_itself(fd: &OwnedFd) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(
        fd_path(fd),
        fd_path(fd),
    )?)
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
fn mount_empty(fd: &OwnedFd) -> io::Result<()> {
    let flags = no_programs() | MountFlags::RDONLY;
    let options = c"mode=500,size=4k";
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
    use super::{mount_point, outermost, parents_between};
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
    fn mount_points_are_read_from_lines() {
        let line = "36 35 98:0 / /mnt/a\\040b\\134c rw,noatime - ext4 /dev/root rw";
        assert_eq!(mount_point(line), Some(PathBuf::from("/mnt/a b\\c")));
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
