//! What Landlock cannot say, said by mounts of a command's own: a place that is read-only within a writable one, and a
//! closed one within one that is granted.
//!
//! It needs a namespace of mounts, and for ordinary users one of users around it, which only a process with a single
//! thread can enter: this program, started once more. Not every system lets it; then places are put back instead, and
//! what contains a closed one is granted part by part.

use super::fence::Fence;
use super::rules;
use rustix::fs::{FileType, StatVfsMountFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where programs share memory by name. A command gets one of its own: in the system's lies what others share.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// Make this process's own view of the files, as `fence` wants it. The process must have one thread.
///
/// # Errors
/// The system refuses any part of it.
pub(super) fn arrange(fence: &Fence) -> io::Result<()> {
    let here = std::env::current_dir()?;
    let before = rustix::fs::stat(".")?;
    enter()?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private)?;
    if let Ok(place) = rules::open(Path::new(SHARED_MEMORY)) {
        cover(&place, "mode=1777,size=1g", MountFlags::empty())?;
    }
    let closed = existing(&fence.closed, &[&fence.reads, &fence.writes]);
    for place in outermost(&closed) {
        let place = place.as_path();
        let (held, kind) = hold(place)?;
        match kind {
            FileType::Directory => cover(&held, "mode=500,size=4k", MountFlags::RDONLY)?,
            // A link shows nothing that is not closed where it leads to.
            FileType::Symlink => {}
            _ => rustix::mount::mount_bind("/dev/null", name(&held))?,
        }
    }
    let kept = existing(&fence.kept, &[&fence.writes]);
    for directory in above(&kept, &fence.writes) {
        let (held, kind) = hold(&directory)?;
        // What is mounted upon cannot be renamed, so nothing else can be put in its place.
        if kind == FileType::Directory {
            rustix::mount::mount_bind_recursive(name(&held), name(&held))?;
        }
    }
    // What is granted within a kept place stays as it is when that becomes read-only: as a mount of its own it is carried along.
    for place in fence.writes.iter().filter(|place| is_within(place, &kept)) {
        if let Ok((held, _)) = hold(place) {
            rustix::mount::mount_bind_recursive(name(&held), name(&held))?;
        }
    }
    for place in kept {
        let (held, kind) = hold(&place)?;
        match kind {
            // What is in it is for others to say.
            FileType::Directory if place.ends_with(".git") => {}
            FileType::Directory | FileType::RegularFile => {
                rustix::mount::mount_bind_recursive(name(&held), name(&held))?;
                // The descriptor still shows what is beneath; the name leads to the new mount.
                freeze(&hold(&place)?.0)?;
            }
            _ => {}
        }
    }
    // The working directory is still the one beneath all these mounts.
    std::env::set_current_dir(&here)?;
    let after = rustix::fs::stat(".")?;
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino) {
        return Err(io::Error::other("the working directory was replaced"));
    }
    Ok(())
}

/// Whether `fence` has anything that mounts do better.
pub(super) fn are_wanted(fence: &Fence) -> bool {
    // The last place is the private one, which every command may write.
    fence.writes.len() > 1 || fence.hides
}

/// New namespaces, in which we may mount.
fn enter() -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe for a flag that is not used here: no descriptors are parted from"
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

/// Those of `places` that exist, beneath one that is granted.
fn existing(places: &[PathBuf], granted: &[&Vec<PathBuf>]) -> BTreeSet<PathBuf> {
    let is_inside = |place: &&PathBuf| {
        let mut granted = granted.iter().copied().flatten();
        granted.any(|root| place.starts_with(root))
    };
    places
        .iter()
        .filter(is_inside)
        .filter(|place| hold(place).is_ok())
        .cloned()
        .collect()
}

/// Those of `places` that lie in no other: what is covered hides all that is in it, which then cannot be found.
fn outermost(places: &BTreeSet<PathBuf>) -> impl Iterator<Item = &PathBuf> {
    let is_inside = |place: &Path| {
        place
            .ancestors()
            .skip(1)
            .any(|above| places.contains(above))
    };
    places.iter().filter(move |place| !is_inside(place))
}

/// Whether `place` lies in one of `kept` that becomes read-only, and is none itself.
fn is_within(place: &Path, kept: &BTreeSet<PathBuf>) -> bool {
    let mut above = place.ancestors().skip(1);
    above.any(|above| kept.contains(above) && !above.ends_with(".git"))
}

/// The directories between what may be written and what is kept there, from above down.
fn above(kept: &BTreeSet<PathBuf>, writes: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for place in kept {
        let roots = writes.iter().filter(|root| place.starts_with(root));
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

fn hold(path: &Path) -> io::Result<(OwnedFd, FileType)> {
    let held = rules::open(path)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode);
    Ok((held, kind))
}

/// A name for what is held, which no rename changes.
fn name(held: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

/// An empty directory over what is held.
fn cover(held: &OwnedFd, options: &str, flags: MountFlags) -> io::Result<()> {
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    let flags = flags | MountFlags::NOSUID | MountFlags::NODEV;
    let options = options.as_c_str();
    Ok(rustix::mount::mount(
        "none",
        name(held),
        "tmpfs",
        flags,
        options,
    )?)
}

/// Make the mount that is held read-only. What it is otherwise must be said again, or the kernel refuses.
fn freeze(held: &OwnedFd) -> io::Result<()> {
    let is = rustix::fs::fstatvfs(held)?.f_flag;
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
    Ok(rustix::mount::mount_remount(name(held), flags, c"")?)
}

#[cfg(test)]
mod tests {
    use super::{above, outermost};
    use std::path::PathBuf;

    #[test]
    fn what_is_closed_is_covered_once() {
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
    fn what_is_mounted_upon() {
        let check = |kept: &[&str], writes: &[&str], expect: &[&str]| {
            let writes: Vec<PathBuf> = writes.iter().map(PathBuf::from).collect();
            let found = above(&kept.iter().map(PathBuf::from).collect(), &writes);
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expect, "{kept:?}");
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
