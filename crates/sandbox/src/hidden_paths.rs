//! The file system that a program outside of the sandbox sees: all of the system's, but for the places that a run may
//! change. An empty file system covers them, so that nothing executes what the run wrote there.

use super::mounts::{MountTree, clone_mounts, mount_cover, open_path, remount_read_only, unescape};
use super::namespaces;
use rustix::fs::FileType;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Places that a program does not see. All paths are absolute and free of symbolic links. A place that does not exist needs no
/// cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPaths {
    /// Files and directories that are covered.
    pub covered: Vec<PathBuf>,
    /// Places within the covered ones that the program sees all the same.
    pub visible: Vec<PathBuf>,
}

impl HiddenPaths {
    /// Hides them from this process, which must have a single thread, and from those that it starts.
    ///
    /// # Errors
    /// The system refuses it, or a place has become a symbolic link. The process must then not continue.
    pub fn hide(&self) -> io::Result<()> {
        namespaces::enter_mounts()?;
        // Changes of the system's mounts arrive here. Mounts made here do not show outside.
        let receives = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        mount_change("/", receives)?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
        // Parents come first. What is visible is copied before a cover hides it.
        let mut places: BTreeMap<PathBuf, Option<MountTree>> = BTreeMap::new();
        for place in &self.covered {
            places.extend(other_paths(place, &mounts).into_iter().filter_map(OtherPath::existing));
            places.insert(place.clone(), None);
        }
        for place in self.visible.iter().filter(|place| !self.covered.contains(place)) {
            if let Some(tree) = clone_mounts(place)? {
                places.insert(place.clone(), Some(tree));
            }
        }
        let mut covers = Vec::new();
        for (place, tree) in places {
            match tree {
                Some(tree) => tree.attach(&place)?,
                None => covers.extend(cover(place)?),
            }
        }
        for place in covers {
            remount_read_only(&open_path(&place)?.0)?;
        }
        Ok(())
    }
}

/// Covers `place`, if it exists. Returns a directory whose cover is still to become read-only.
fn cover(place: PathBuf) -> io::Result<Option<PathBuf>> {
    let (fd, kind) = match open_path(&place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match kind {
        FileType::Directory => {
            mount_cover(&fd)?;
            Ok(Some(place))
        }
        FileType::Symlink => Err(io::Error::other(format!("`{}` is a link", place.display()))),
        _ => {
            mount_bind("/dev/null", super::mounts::fd_path(&fd))?;
            Ok(None)
        }
    }
}

/// File systems that show what the kernel knows, and keep no programs.
const KERNEL_FILE_SYSTEMS: [&str; 7] =
    ["proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs"];

/// A mount of proc_pid_mountinfo(5).
struct Mount {
    device: String,
    /// The directory of the file system that is mounted.
    root: PathBuf,
    point: PathBuf,
    is_of_kernel: bool,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?.to_owned();
        let root = unescape(fields.next()?)?;
        let point = unescape(fields.next()?)?;
        let kind = fields.skip_while(|field| *field != "-").nth(1)?;
        Some(Self { device, root, point, is_of_kernel: KERNEL_FILE_SYSTEMS.contains(&kind) })
    }
}

/// A path by which another mount shows a place, or a part of it.
#[derive(Debug, PartialEq, Eq)]
struct OtherPath {
    path: PathBuf,
    /// The part, by the path of the place.
    part: PathBuf,
}

impl OtherPath {
    /// The path as an entry to cover. `None` if it shows something else, because something is mounted over it.
    fn existing(self) -> Option<(PathBuf, Option<MountTree>)> {
        let identify = |path: &Path| {
            let metadata = path.symlink_metadata().ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let shown = identify(&self.path)?;
        (identify(&self.part) == Some(shown)).then_some((self.path, None))
    }
}

/// The other paths by which mounts show `place`, and what is mounted within it.
fn other_paths(place: &Path, mounts: &[Mount]) -> Vec<OtherPath> {
    let is_within = |mount: &&Mount| mount.point.starts_with(place) && mount.point != place;
    let within = mounts.iter().filter(|mount| !mount.is_of_kernel).filter(is_within);
    let parts = std::iter::once(place).chain(within.map(|mount| mount.point.as_path()));
    let mut paths: Vec<_> = parts.flat_map(|part| paths_of_same_files(part, mounts)).collect();
    // The place covers what is in it.
    paths.retain(|other| !other.path.starts_with(place));
    paths
}

/// The other paths by which mounts of the same file system show `place`.
fn paths_of_same_files(place: &Path, mounts: &[Mount]) -> Vec<OtherPath> {
    let around = mounts.iter().filter(|mount| place.starts_with(&mount.point));
    // Of mounts at one point, the last one counts.
    let Some(own) = around.max_by_key(|mount| mount.point.components().count()) else {
        return Vec::new();
    };
    let join = |start: &Path, rest: &Path| {
        if rest.as_os_str().is_empty() { start.to_owned() } else { start.join(rest) }
    };
    let Ok(below) = place.strip_prefix(&own.point) else {
        return Vec::new();
    };
    let inside = join(&own.root, below);
    let others = mounts.iter().filter(|mount| mount.device == own.device);
    let paths = others.filter_map(|mount| {
        if let Ok(rest) = inside.strip_prefix(&mount.root) {
            return Some(OtherPath { path: join(&mount.point, rest), part: place.to_owned() });
        }
        let rest = mount.root.strip_prefix(&inside).ok()?;
        Some(OtherPath { path: mount.point.clone(), part: join(place, rest) })
    });
    paths.filter(|other| other.path != *place).collect()
}

#[cfg(test)]
mod tests {
    use super::{Mount, other_paths};
    use std::path::Path;

    #[test]
    fn a_place_has_a_path_in_each_mount_that_shows_it() {
        let mounts: Vec<Mount> = [
            "1 0 8:1 / / rw - ext4 /dev/a rw",
            "2 1 8:2 /@home /home rw - btrfs /dev/b rw",
            "3 1 8:2 / /data rw - btrfs /dev/b rw",
            "4 1 8:2 /@home/ann/src /srv/a\\040b rw - btrfs /dev/b rw",
            "5 1 8:2 /@home/ann/src/lib /usr/lib/x rw - btrfs /dev/b rw",
            "6 1 8:2 /@other /other rw - btrfs /dev/b rw",
            "7 1 8:3 / /other/disk rw shared:1 - ext4 /dev/c rw",
            "8 1 8:3 / /media/disk rw - ext4 /dev/c rw",
            "9 1 8:3 /in /other/part rw - ext4 /dev/c rw",
            "10 1 0:1 / /other/proc rw - proc proc rw",
            "11 1 0:1 / /proc rw - proc proc rw",
        ]
        .into_iter()
        .filter_map(Mount::parse)
        .collect();
        let check = |place: &str, expect: &[(&str, &str)]| {
            let found = other_paths(Path::new(place), &mounts);
            let found: Vec<_> = found
                .iter()
                .map(|it| (it.path.to_str().unwrap(), it.part.to_str().unwrap()))
                .collect();
            assert_eq!(found, expect, "{place}");
        };
        check(
            "/home/ann/src",
            &[
                ("/data/@home/ann/src", "/home/ann/src"),
                ("/srv/a b", "/home/ann/src"),
                ("/usr/lib/x", "/home/ann/src/lib"),
            ],
        );
        check(
            "/srv/a b/in",
            &[("/home/ann/src/in", "/srv/a b/in"), ("/data/@home/ann/src/in", "/srv/a b/in")],
        );
        check(
            "/other",
            &[
                ("/data/@other", "/other"),
                ("/media/disk", "/other/disk"),
                ("/media/disk/in", "/other/part"),
            ],
        );
        check("/media", &[("/other/disk", "/media/disk"), ("/other/part", "/media/disk/in")]);
        check("/etc", &[]);
    }
}
