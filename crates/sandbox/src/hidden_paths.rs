//! The file system that a program outside of the sandbox sees: all of the system's, except for the paths that a run may change. An empty
//! file system covers these, so that the program executes no file that the run wrote there.

use super::mounts::{
    MountTree, clone_mounts, is_out_of_reach, mount_cover, open_path, remount_read_only, unescape,
};
use super::namespaces;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Paths that a program does not see. They are absolute and free of symbolic links. One that does not exist needs no cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPaths {
    /// Files and directories that are covered.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub covered: Vec<PathBuf>,
    /// Paths within the covered ones that the program can still see.
    #[serde(with = "nanobot_os::wire_paths::list")]
    pub visible: Vec<PathBuf>,
}

impl HiddenPaths {
    /// Hides them from this process, which must have a single thread, and from those that it starts.
    ///
    /// # Errors
    /// The system refuses it, or a path has become a symbolic link. The process must then not continue.
    pub fn hide(&self) -> io::Result<()> {
        namespaces::enter_mounts()?;
        // Changes of the system's mounts arrive here. Mounts made here do not show outside.
        let propagation = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        mount_change("/", propagation)?;
        let mounts = parse_mounts(&std::fs::read("/proc/self/mountinfo")?)?;
        // Parents come first. Visible paths are copied before a cover hides them.
        let mut steps: BTreeMap<PathBuf, HidingStep> = BTreeMap::new();
        for path in &self.covered {
            let other_paths = other_paths(path, &mounts, &mount_id)?.into_iter();
            let other_paths = other_paths.filter(OtherPath::shows_part).map(|other| other.path);
            steps.extend(other_paths.map(|other_path| (other_path, HidingStep::Cover)));
            steps.insert(path.clone(), HidingStep::Cover);
        }
        for path in self.visible.iter().filter(|path| !self.covered.contains(path)) {
            if let Some(tree) = clone_mounts(path)? {
                steps.insert(path.clone(), HidingStep::Show(tree));
            }
        }
        let mut covered_directories = Vec::new();
        for (path, step) in steps {
            match step {
                HidingStep::Show(tree) => tree.attach(&path)?,
                HidingStep::Cover => covered_directories.extend(cover(path)?),
            }
        }
        for directory in covered_directories {
            remount_read_only(&open_path(&directory)?.0)?;
        }
        Ok(())
    }
}

/// The change of a path that hides or shows it.
enum HidingStep {
    Cover,
    /// Attaches a copy of its mounts to a cover.
    Show(MountTree),
}

/// Covers `path`, if it exists. Returns a directory whose cover is still to become read-only.
fn cover(path: PathBuf) -> io::Result<Option<PathBuf>> {
    let (fd, kind) = match open_path(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    match kind {
        FileType::Directory => {
            mount_cover(&fd)?;
            Ok(Some(path))
        }
        FileType::Symlink => Err(io::Error::other(format!("`{}` is a link", path.display()))),
        _ => {
            mount_bind("/dev/null", super::mounts::fd_path(&fd))?;
            Ok(None)
        }
    }
}

/// File systems that show the state of the kernel, and store no programs.
const KERNEL_FILE_SYSTEMS: [&str; 7] =
    ["proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs"];

/// A mount of proc_pid_mountinfo(5).
struct Mount {
    id: u64,
    device: String,
    /// The directory of the file system that is mounted.
    root: PathBuf,
    point: PathBuf,
    is_of_kernel: bool,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let device = std::str::from_utf8(fields.nth(1)?).ok()?.to_owned();
        let root = unescape(fields.next()?)?;
        let point = unescape(fields.next()?)?;
        let kind = std::str::from_utf8(fields.skip_while(|field| *field != b"-").nth(1)?).ok()?;
        Some(Self { id, device, root, point, is_of_kernel: KERNEL_FILE_SYSTEMS.contains(&kind) })
    }
}

/// Parses the text of proc_pid_mountinfo(5).
///
/// # Errors
/// A line has another form. Without it, files in that mount could stay visible.
fn parse_mounts(text: &[u8]) -> io::Result<Vec<Mount>> {
    let parse = |line: &[u8]| {
        Mount::parse(line).ok_or_else(|| {
            let line = String::from_utf8_lossy(line);
            io::Error::other(format!("the mount `{line}` is not understood"))
        })
    };
    let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
    lines.map(parse).collect()
}

/// The id of the mount that `path` leads to.
fn mount_id(path: &Path) -> io::Result<u64> {
    let (fd, _) = open_path(path)?;
    let status = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::MNT_ID) {
        Ok(status.stx_mnt_id)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A path by which another mount shows a directory, or a part of it.
#[derive(Debug, PartialEq, Eq)]
struct OtherPath {
    path: PathBuf,
    /// The part, by the path of the directory.
    part: PathBuf,
}

impl OtherPath {
    /// True if the path leads to the part. It does not if something is mounted over it. Of a part that the run may have closed by the
    /// mode of a directory, this is not known.
    fn shows_part(&self) -> bool {
        let identify = |path: &Path| {
            let metadata = path.symlink_metadata()?;
            io::Result::Ok((metadata.dev(), metadata.ino()))
        };
        identify(&self.path).is_ok_and(|id| match identify(&self.part) {
            Err(error) if is_denied(&error) => can_be_opened(&self.part),
            part_id => part_id.is_ok_and(|part_id| part_id == id),
        })
    }
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// True if the directory that keeps this user from `path` belongs to the user, who can then change its mode.
fn can_be_opened(path: &Path) -> bool {
    let mut parents = path.ancestors().skip(1);
    let metadata = parents.find_map(|parent| parent.symlink_metadata().ok());
    metadata.is_some_and(|metadata| metadata.uid() == rustix::process::geteuid().as_raw())
}

/// The other paths by which mounts show `path`, and the mounts within it. `mount_id` returns the id of the mount that a path leads to,
/// which mount points alone do not tell: a later mount hides those beneath its mount point.
///
/// # Errors
/// It is unknown which mount `path` leads to.
fn other_paths(
    path: &Path,
    mounts: &[Mount],
    mount_id: &dyn Fn(&Path) -> io::Result<u64>,
) -> io::Result<Vec<OtherPath>> {
    let id = match mount_id(path) {
        // If it exists, covering it fails too, unless the cover of another path hides it.
        Err(error) if is_out_of_reach(&error) => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths = paths_of_same_files(path, id, mounts)?;
    let is_within = |mount: &&Mount| mount.point.starts_with(path) && mount.point != path;
    for mount in mounts.iter().filter(|mount| !mount.is_of_kernel).filter(is_within) {
        let id = match mount_id(&mount.point) {
            Ok(id) => id,
            Err(error) if is_denied(&error) => mount.id,
            // Another mount hides it.
            Err(_) => continue,
        };
        paths.extend(paths_of_same_files(&mount.point, id, mounts)?);
    }
    // The cover of `path` hides its entries.
    paths.retain(|other| !other.path.starts_with(path));
    Ok(paths)
}

/// The other paths by which mounts of the same file system show `path`, which leads to the mount `id`.
fn paths_of_same_files(path: &Path, id: u64, mounts: &[Mount]) -> io::Result<Vec<OtherPath>> {
    let join = |start: &Path, rest: &Path| {
        if rest.as_os_str().is_empty() { start.to_owned() } else { start.join(rest) }
    };
    let own = mounts.iter().find(|mount| mount.id == id);
    let Some((own, relative)) =
        own.and_then(|own| Some((own, path.strip_prefix(&own.point).ok()?)))
    else {
        return Err(io::Error::other(format!("the mount of `{}` is unknown", path.display())));
    };
    let path_in_device = join(&own.root, relative);
    let others = mounts.iter().filter(|mount| mount.device == own.device);
    let paths = others.filter_map(|mount| {
        if let Ok(rest) = path_in_device.strip_prefix(&mount.root) {
            return Some(OtherPath { path: join(&mount.point, rest), part: path.to_owned() });
        }
        let rest = mount.root.strip_prefix(&path_in_device).ok()?;
        Some(OtherPath { path: mount.point.clone(), part: join(path, rest) })
    });
    Ok(paths.filter(|other| other.path != *path).collect())
}

#[cfg(test)]
mod tests {
    use super::{OtherPath, can_be_opened, mount_id, other_paths, parse_mounts};
    use std::io;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_place_has_a_path_in_each_mount_that_shows_it() {
        let mounts = [
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
            // Hidden by the mount at `/over`, which shows the same as `/under`.
            "12 1 0:2 / /over/in rw - tmpfs none rw",
            "13 1 0:3 / /under rw - tmpfs none rw",
            "14 1 0:3 / /over rw - tmpfs none rw",
        ];
        let mounts = parse_mounts(mounts.join("\n").as_bytes()).unwrap();
        let id = |path: &Path| -> io::Result<u64> {
            let visible_mounts = mounts.iter().filter(|mount| mount.id != 12);
            let outer_mounts = visible_mounts.filter(|mount| path.starts_with(&mount.point));
            let own = outer_mounts.max_by_key(|mount| mount.point.components().count());
            own.map(|own| own.id).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let check = |place: &str, expect: &[(&str, &str)]| {
            let actual = other_paths(Path::new(place), &mounts, &id).unwrap();
            let actual: Vec<_> = actual
                .iter()
                .map(|it| (it.path.to_str().unwrap(), it.part.to_str().unwrap()))
                .collect();
            assert_eq!(actual, expect, "{place}");
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
        check("/over/in", &[("/under/in", "/over/in")]);
        let id_below_closed_directory = |path: &Path| match path.to_str() {
            Some("/other/part") => Err(io::ErrorKind::PermissionDenied.into()),
            _ => id(path),
        };
        let actual = other_paths(Path::new("/other"), &mounts, &id_below_closed_directory).unwrap();
        let is_in_disk = |other: &OtherPath| other.path == Path::new("/media/disk/in");
        assert!(actual.iter().any(is_in_disk), "{actual:?}");
        let fails = |id: &dyn Fn(&Path) -> io::Result<u64>| {
            assert!(other_paths(Path::new("/etc"), &mounts, id).is_err());
        };
        fails(&|_| Ok(99));
        // No mount of `/etc`.
        fails(&|_| Ok(2));
        fails(&|_| Err(io::ErrorKind::Unsupported.into()));
        let missing = |_: &Path| -> io::Result<u64> { Err(io::ErrorKind::NotFound.into()) };
        assert!(other_paths(Path::new("/data"), &mounts, &missing).unwrap().is_empty());
    }

    #[test]
    fn a_directory_of_the_user_can_be_opened() {
        let temp = tempfile::tempdir().unwrap();
        let closed = temp.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o0)).unwrap();
        assert!(can_be_opened(&closed.join("mount/within")));
    }

    #[test]
    fn the_mount_of_a_path_is_that_of_the_kernel() {
        let text = std::fs::read("/proc/self/mountinfo").unwrap();
        let mounts = parse_mounts(&text).unwrap();
        let id = mount_id(Path::new("/proc/version")).unwrap();
        let mount = mounts.iter().find(|mount| mount.id == id).unwrap();
        assert_eq!(mount.point, Path::new("/proc"));
    }

    #[test]
    fn a_line_of_another_form_is_an_error() {
        let line = "1 0 8:1 / / rw - ext4 /dev/a rw";
        assert!(parse_mounts(line.as_bytes()).is_ok());
        for other in ["", "x 0 8:1 / / rw - ext4 /dev/a rw", "1 0 8:1 / /\\0 rw - ext4 /dev/a rw"] {
            assert!(parse_mounts(format!("{line}\n{other}\n").as_bytes()).is_err(), "{other}");
        }
    }
}
