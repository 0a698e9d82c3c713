//! The file system that a command sees: an empty root with a mount for each granted path, read-only unless it is writable;
//! an empty file or directory over each denied path, or one that it cannot open; its own `/proc`, `/dev` and `/tmp`. Everything else is
//! absent.
//!
//! This needs a mount namespace, which not every system allows. Without it, protected paths are restored afterwards
//! instead, and a directory that contains a denied path is granted entry by entry.

use super::config_copies;
use super::landlock_rules;
use super::spec::SandboxSpec;
use super::start_directory::StartDirectory;
use super::system_paths::{DEVICES, TERMINALS};
use super::visible_entries::VisibleEntries;
use rustix::fs::{CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The directory of named shared memory. A command gets an empty one of its own, since the system's is shared with
/// other programs.
const SHARED_MEMORY: &str = "/dev/shm";
/// The directory for temporary files. A command sees the run's own one there.
const TEMPORARY: &str = "/tmp";
/// The path of the system's root while the new root is being filled.
const OLD_ROOT: &str = "/.old-root";
const ROOT_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
/// The modes of the directories and files that mounts are attached to.
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// The usual size of the list of mounts, which is then read at once.
const MOUNTS_BYTES: usize = 64 << 10;
/// Links that programs expect in `/dev`.
const DEVICE_LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// A root that holds only `/proc`, `/dev` and, until it is filled, the system's root, in which the system's changes of
/// mounts still show.
#[derive(Debug)]
pub struct EmptyRoot(());

impl EmptyRoot {
    /// Gives this process, the first of new namespaces, such a root.
    ///
    /// # Errors
    /// The system refuses any part of it.
    pub fn enter() -> io::Result<Self> {
        // Changes of the system's mounts arrive here, so a file system that it unmounts is not kept busy. Mounts made here do not
        // show outside.
        let propagation = MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM;
        rustix::mount::mount_change("/", propagation)?;
        // Any existing directory will do until it becomes the root.
        let base = Path::new("/proc");
        rustix::mount::mount("none", base, "tmpfs", ROOT_FLAGS, c"mode=755,size=1m")?;
        let old_root = base.join(OLD_ROOT.trim_start_matches('/'));
        std::fs::create_dir(&old_root)?;
        rustix::process::pivot_root(base, &old_root)?;
        std::env::set_current_dir("/")?;
        drop(create_directories(Path::new("/proc"))?);
        let flags = MountFlags::RDONLY | no_programs();
        rustix::mount::mount("proc", "/proc", "proc", flags, None)?;
        mount_devices()?;
        Ok(Self(()))
    }

    /// Gives this process the view of the file system that `sandbox` describes, enters `directory`, and adds to the writable
    /// paths those that only this view has.
    ///
    /// # Errors
    /// The system refuses any part of it.
    pub(super) fn fill(
        self,
        sandbox: &mut SandboxSpec,
        directory: Option<&StartDirectory>,
    ) -> io::Result<()> {
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        rustix::mount::mount_change("/", private)?;
        let mount_points = writable_mount_points()?;
        let RootContents { mounts, directories, links } = list_root_contents(sandbox)?;
        let mut trees: BTreeMap<&Path, MountTree> = BTreeMap::new();
        for mount in mounts.iter().filter(|mount| mount.is_writable) {
            let tree = copy_mounts(&mount.path)?;
            trees.extend(tree.map(|tree| (mount.path.as_path(), tree)));
        }
        let tmp = match private_tmp(sandbox) {
            Some(tmp) => copy_mounts(tmp)?,
            None => None,
        };
        // Copies of a read-only mount are read-only. Those of the writable paths were made before.
        make_read_only(&mounts, &mount_points)?;
        let has_tmp = tmp.is_some();
        if let Some(tree) = tmp {
            tree.attach(Path::new(TEMPORARY))?;
        }
        create_links(&sandbox.links)?;
        let is_outermost = |directory: &&PathBuf| {
            let mut others = directories.iter().filter(|other| other != directory);
            !others.any(|other| directory.starts_with(other))
        };
        for directory in &directories {
            let fd = create_directories(directory)?;
            if is_outermost(&directory) {
                // The run's own `/tmp` may contain it, in which a command could add entries.
                mount_cover(&fd)?;
            }
        }
        create_links(&links)?;
        for mount in &mounts {
            let tree = if mount.is_writable {
                trees.remove(mount.path.as_path())
            } else {
                copy_mounts(&mount.path)?
            };
            if let Some(tree) = tree {
                tree.attach(&mount.path)?;
            }
        }
        for directory in directories.iter().filter(is_outermost) {
            remount_read_only(&open_path(directory)?.0)?;
        }
        rustix::mount::unmount(OLD_ROOT, UnmountFlags::DETACH)?;
        std::fs::remove_dir(OLD_ROOT)?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | ROOT_FLAGS;
        rustix::mount::mount_remount("/", flags, c"")?;
        hide_denied(sandbox, directory)?;
        cover_masked_configs(sandbox)?;
        protect(sandbox, &mount_points)?;
        sandbox.writable.push(SHARED_MEMORY.into());
        sandbox.writable.extend(has_tmp.then(|| PathBuf::from(TEMPORARY)));
        // The root, and a directory with only some visible entries, are created for the command: they have another identity than
        // the system's own directories.
        let is_mounted = |path: &Path| {
            !directories.iter().any(|directory| path == directory)
                && (mounts.iter().any(|mount| path.starts_with(&mount.path))
                    || (has_tmp && path.starts_with(TEMPORARY)))
        };
        match directory {
            Some(directory) if is_mounted(directory.path()) => directory.enter(),
            Some(directory) => directory.enter_created(),
            None => Ok(()),
        }
    }
}

/// The run's own directory that is mounted at [`TEMPORARY`], unless that path is granted itself.
fn private_tmp(sandbox: &SandboxSpec) -> Option<&Path> {
    let mut granted = sandbox.readable.iter().chain(&sandbox.writable);
    let is_granted = granted.any(|path| Path::new(TEMPORARY).starts_with(path));
    if is_granted { None } else { sandbox.tmp.as_deref() }
}

fn no_programs() -> MountFlags {
    MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC
}

/// A granted path that gets a mount.
struct GrantedMount {
    path: PathBuf,
    is_writable: bool,
}

struct RootContents {
    /// Parents first, without those that another mount contains.
    mounts: Vec<GrantedMount>,
    /// The directories that show only some of their entries.
    directories: Vec<PathBuf>,
    /// The symbolic links in them, with their targets.
    links: BTreeMap<PathBuf, PathBuf>,
}

/// Finds the contents of a root, while the system's root is at [`OLD_ROOT`].
fn list_root_contents(sandbox: &SandboxSpec) -> io::Result<RootContents> {
    let mut paths: BTreeSet<PathBuf> = sandbox.readable.iter().cloned().collect();
    paths.extend(sandbox.writable.iter().cloned());
    if paths.remove(Path::new("/")) {
        let entries = std::fs::read_dir(OLD_ROOT)?.flatten();
        paths.extend(entries.map(|entry| Path::new("/").join(entry.file_name())));
    }
    let has_own_mount = |path: &Path| path.starts_with("/proc") || path.starts_with("/dev");
    let mut visible = VisibleEntries::new(sandbox, Path::new(OLD_ROOT));
    for path in paths.iter().filter(|path| !has_own_mount(path)) {
        visible.add(path);
    }
    let mut mounts: Vec<GrantedMount> = Vec::new();
    for path in visible.mounts {
        let is_writable = is_within_any(&path, &[&sandbox.writable]);
        // A writable path within a read-only one needs a mount of its own.
        let outer = mounts.iter().rfind(|other| path.starts_with(&other.path));
        if outer.is_none_or(|outer| is_writable && !outer.is_writable) {
            mounts.push(GrantedMount { path, is_writable });
        }
    }
    Ok(RootContents { mounts, directories: visible.directories, links: visible.links })
}

/// The system's mount points whose mounts are not read-only.
fn writable_mount_points() -> io::Result<BTreeSet<PathBuf>> {
    let mut text = Vec::with_capacity(MOUNTS_BYTES);
    File::open("/proc/self/mountinfo")?.read_to_end(&mut text)?;
    let points = text.split(|byte| *byte == b'\n').filter_map(writable_mount_point);
    let system_points = points.filter_map(|point| {
        let relative = point.strip_prefix(OLD_ROOT).ok()?;
        Some(Path::new("/").join(relative))
    });
    Ok(system_points.collect())
}

/// Makes the system's mounts read-only that contain one of the read-only `mounts`, or that one of them contains.
fn make_read_only(mounts: &[GrantedMount], mount_points: &BTreeSet<PathBuf>) -> io::Result<()> {
    let is_shown_read_only = |point: &Path| {
        let mut read_only = mounts.iter().filter(|mount| !mount.is_writable);
        read_only.any(|mount| mount.path.starts_with(point) || point.starts_with(&mount.path))
    };
    for point in mount_points.iter().filter(|point| is_shown_read_only(point)) {
        // A mount that this process cannot open is closed to the command as well.
        if let Ok((fd, _)) = open_path(&in_old_root(point)) {
            remount_read_only(&fd)?;
        }
    }
    Ok(())
}

/// The system's `path` while its root is at [`OLD_ROOT`].
fn in_old_root(path: &Path) -> PathBuf {
    Path::new(OLD_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

/// Creates the symbolic links by which granted paths are also reached.
fn create_links(links: &BTreeMap<PathBuf, PathBuf>) -> io::Result<()> {
    for (link, target) in links {
        let (Some(parent), Some(name)) = (link.parent(), link.file_name()) else {
            continue;
        };
        // The run's own directory for temporary files may have the link of an earlier command.
        accept_existing(rustix::fs::symlinkat(target, create_directories(parent)?, name))?;
    }
    Ok(())
}

/// A copy of the system's mount at a path and of the mounts beneath it, not attached anywhere.
pub(super) struct MountTree {
    fd: OwnedFd,
    kind: FileType,
}

/// Copies the system's mount of `path` with those beneath it, while the system's root is at [`OLD_ROOT`]. Returns `None` for
/// a path that has disappeared or become a symbolic link.
fn copy_mounts(path: &Path) -> io::Result<Option<MountTree>> {
    clone_mounts(&in_old_root(path))
}

/// Copies the mount of `path` as this process sees it, with those beneath it. Returns `None` like [`copy_mounts`].
pub(super) fn clone_mounts(path: &Path) -> io::Result<Option<MountTree>> {
    let Ok((opened, kind)) = open_path(path) else {
        return Ok(None);
    };
    if kind == FileType::Symlink {
        return Ok(None);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let fd = rustix::mount::open_tree(&opened, "", flags)?;
    Ok(Some(MountTree { fd, kind }))
}

impl MountTree {
    /// Attaches it at `path`, which is created if it does not exist. Never follows a link: an earlier command may have
    /// put one into the directory for temporary files.
    pub(super) fn attach(self, path: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = create_directories(parent)?;
        accept_existing(match self.kind {
            FileType::Directory => rustix::fs::mkdirat(&parent, name, DIRECTORY_MODE),
            _ => rustix::fs::mknodat(&parent, name, FileType::RegularFile, FILE_MODE, 0),
        })?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&self.fd, "", &parent, name, flags)?)
    }
}

/// Turns the error that a path exists already into success.
fn accept_existing(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// Opens the directory `path`, and creates it and its ancestors if they do not exist. Never follows a link.
fn create_directories(path: &Path) -> io::Result<OwnedFd> {
    match landlock_rules::open_nofollow(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let parent = create_directories(parent)?;
    // In the run's own directory, another command may create it too.
    accept_existing(rustix::fs::mkdirat(&parent, name, DIRECTORY_MODE))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&parent, name, flags, Mode::empty())?)
}

/// Makes a `/dev` of harmless devices, shared memory and pseudo-terminals.
fn mount_devices() -> io::Result<()> {
    for device in DEVICES.iter().map(Path::new) {
        if let Some(tree) = copy_mounts(device)? {
            tree.attach(device)?;
            // A command cannot change its mode or its times.
            remount_read_only(&open_path(device)?.0)?;
        }
    }
    let devices = create_directories(Path::new("/dev"))?;
    rustix::fs::mkdirat(&devices, "shm", DIRECTORY_MODE)?;
    rustix::fs::mkdirat(&devices, "pts", DIRECTORY_MODE)?;
    for (link, target) in DEVICE_LINKS {
        rustix::fs::symlinkat(*target, &devices, *link)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let options = c"mode=1777,size=1g";
    rustix::mount::mount("none", SHARED_MEMORY, "tmpfs", flags, options)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    let options = c"newinstance,ptmxmode=0666,mode=620";
    Ok(rustix::mount::mount("devpts", TERMINALS, "devpts", flags, options)?)
}

/// Covers the denied paths. Programs find an empty place where their own credentials are, and cannot open what is closed to them by name:
/// an empty file would look like the true one. A directory that contains the working `directory` is empty too, so that a command can start.
fn hide_denied(sandbox: &SandboxSpec, directory: Option<&StartDirectory>) -> io::Result<()> {
    let granted = [&sandbox.readable, &sandbox.writable];
    let denied = sandbox.denied.iter().chain(&sandbox.covered);
    let denied = denied.filter(|path| is_within_any(path, &granted)).cloned().collect();
    let (mut empty_directory, mut closed_directory) =
        (DirectoryCover::new(c"mode=500,size=4k"), DirectoryCover::new(c"mode=000,size=4k"));
    let mut closed_file = ClosedFile::default();
    for path in outermost(&denied) {
        let is_entered = directory.is_some_and(|directory| directory.path().starts_with(path));
        let is_closed = !sandbox.denied.contains(path);
        with_existing(path, |fd, kind| match kind {
            FileType::Directory if is_closed && !is_entered => closed_directory.mount(path, fd),
            FileType::Directory => empty_directory.mount(path, fd),
            // A symbolic link reveals nothing unless its target is accessible.
            FileType::Symlink => Ok(()),
            FileType::RegularFile if is_closed => closed_file.mount(path, fd),
            _ => Ok(rustix::mount::mount_bind("/dev/null", fd_path(fd))?),
        })?;
    }
    closed_file.remove_source()
}

/// An empty file system that covers a first directory, and copies of its mount that cover others.
struct DirectoryCover {
    /// The options of the file system.
    options: &'static CStr,
    mounted: Option<OwnedFd>,
}

impl DirectoryCover {
    fn new(options: &'static CStr) -> Self {
        Self { options, mounted: None }
    }

    /// Covers the open directory `path`.
    fn mount(&mut self, path: &Path, fd: &OwnedFd) -> io::Result<()> {
        if let Some(mounted) = &self.mounted {
            return Ok(rustix::mount::mount_bind(fd_path(mounted), fd_path(fd))?);
        }
        let flags = no_programs() | MountFlags::RDONLY;
        rustix::mount::mount("none", fd_path(fd), "tmpfs", flags, self.options)?;
        self.mounted = Some(open_path(path)?.0);
        Ok(())
    }
}

/// An empty file that no command can open, over a first file and by copies of its mount over others. Commands have no capabilities, not
/// even those of root, and cannot change its mode, since the mounts are read-only.
#[derive(Default)]
struct ClosedFile {
    has_source: bool,
    mounted: Option<OwnedFd>,
}

impl ClosedFile {
    /// The file that is mounted, in the command's own shared memory.
    const SOURCE: &str = "/dev/shm/.closed";

    /// Covers the open file `path`.
    fn mount(&mut self, path: &Path, fd: &OwnedFd) -> io::Result<()> {
        if let Some(mounted) = &self.mounted {
            return Ok(rustix::mount::mount_bind(fd_path(mounted), fd_path(fd))?);
        }
        if !self.has_source {
            rustix::fs::mknodat(CWD, Self::SOURCE, FileType::RegularFile, Mode::empty(), 0)?;
            self.has_source = true;
        }
        rustix::mount::mount_bind(Self::SOURCE, fd_path(fd))?;
        let mounted = open_path(path)?.0;
        remount_read_only(&mounted)?;
        self.mounted = Some(mounted);
        Ok(())
    }

    /// Removes the name of the file, which the mounts keep.
    fn remove_source(self) -> io::Result<()> {
        if self.has_source { std::fs::remove_file(Self::SOURCE) } else { Ok(()) }
    }
}

/// Covers the git configs that have credentials with copies that have none.
fn cover_masked_configs(sandbox: &SandboxSpec) -> io::Result<()> {
    for (path, copy) in &sandbox.masked_configs {
        with_existing(path, |fd, _| {
            rustix::mount::mount_bind(copy, fd_path(fd))?;
            remount_read_only(&open_path(path)?.0)
        })?;
    }
    Ok(())
}

/// Makes the existing protected paths read-only mounts.
fn protect(sandbox: &SandboxSpec, mount_points: &BTreeSet<PathBuf>) -> io::Result<()> {
    let protected = existing_granted(&sandbox.protected, &sandbox.writable);
    // The cover of a denied path would move away with its parent directory.
    let mut pinned = existing_granted(&sandbox.denied, &sandbox.writable);
    pinned.extend(existing_granted(&sandbox.covered, &sandbox.writable));
    pinned.extend(protected.iter().cloned());
    for directory in parents_between(&pinned, &sandbox.writable) {
        // A mount point cannot be renamed, so nothing else can be put in its place.
        with_existing(&directory, |fd, kind| match kind {
            FileType::Directory => mount_on_itself(fd),
            _ => Ok(()),
        })?;
    }
    // A writable path within a protected one becomes a mount of its own, so that it stays writable when the protected path
    // becomes read-only.
    for path in sandbox.writable.iter().filter(|path| is_within(path, &protected)) {
        with_existing(path, |fd, _| mount_on_itself(fd))?;
    }
    let mut sealed: Vec<&PathBuf> = Vec::new();
    for path in &protected {
        let is_sealed_by = |directory: &&PathBuf| {
            let mut writable = sandbox.writable.iter().filter(|root| root.starts_with(directory));
            path.starts_with(directory) && !writable.any(|root| path.starts_with(root))
        };
        if sealed.iter().any(is_sealed_by) {
            continue;
        }
        if sandbox.has_closed(path) && open_path(path)?.1 == FileType::Directory {
            seal(sandbox, path)?;
            sealed.push(path);
            continue;
        }
        with_existing(path, |fd, kind| match kind {
            // The contents of `.git` have entries of their own.
            FileType::Directory if path.ends_with(".git") => Ok(()),
            FileType::RegularFile if mount_copy(sandbox, path) => Ok(()),
            FileType::Directory | FileType::RegularFile => {
                mount_on_itself(fd)?;
                // The descriptor still refers to the directory below; only the path leads to the new mount.
                remount_read_only(&open_path(path)?.0)
            }
            _ => Ok(()),
        })?;
    }
    // The system's mounts within a protected path, except for those in a writable path within it.
    let innermost_depth = |outer: &mut dyn Iterator<Item = &PathBuf>, path: &Path| {
        let outer = outer.filter(|outer| path.starts_with(outer));
        outer.map(|outer| outer.components().count()).max()
    };
    for point in mount_points.iter().filter(|point| is_within(point, &protected)) {
        let mut whole = protected.iter().filter(|path| !path.ends_with(".git"));
        let is_protected = innermost_depth(&mut whole, point)
            > innermost_depth(&mut sandbox.writable.iter(), point);
        // A mount that this process cannot open is closed to the command as well.
        if is_protected && let Ok((fd, _)) = open_path(point) {
            remount_read_only(&fd)?;
        }
    }
    Ok(())
}

/// Covers a protected directory that contains closed paths by one that shows only the current entries that are not closed.
fn seal(sandbox: &SandboxSpec, directory: &Path) -> io::Result<()> {
    let mut visible = VisibleEntries::new(sandbox, Path::new("/"));
    visible.add_entries(directory);
    let trees = visible.mounts.iter().map(|path| clone_mounts(path));
    let trees: Vec<Option<MountTree>> = trees.collect::<io::Result<_>>()?;
    with_existing(directory, |fd, _| mount_cover(fd))?;
    for directory in &visible.directories {
        drop(create_directories(directory)?);
    }
    create_links(&visible.links)?;
    for (path, tree) in visible.mounts.iter().zip(trees) {
        let Some(tree) = tree else {
            continue;
        };
        tree.attach(path)?;
        if !sandbox.writable.contains(path) {
            remount_read_only(&open_path(path)?.0)?;
        }
    }
    remount_read_only(&open_path(directory)?.0)
}

/// Mounts the link to a copy of the git config at `path`. Returns false if there is no copy, or the system refuses the
/// mount.
fn mount_copy(sandbox: &SandboxSpec, path: &Path) -> bool {
    let copies = sandbox.config_copies.as_deref();
    let Some(link) = copies.and_then(|copies| config_copies::link_of(copies, path)) else {
        return false;
    };
    let mounted = open_path(&link).and_then(|(link, _)| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(&link, "", flags)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&tree, "", CWD, path, flags)?)
    });
    mounted.is_ok()
}

/// The mount point in a line of proc_pid_mountinfo(5), unless the mount is read-only.
fn writable_mount_point(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ').skip(4);
    let field = fields.next()?;
    if fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro") {
        return None;
    }
    unescape(field)
}

/// Decodes the path in a field of proc_pid_mountinfo(5), which need not be UTF-8. Blanks and backslashes are written as octal numbers.
pub(super) fn unescape(field: &[u8]) -> Option<PathBuf> {
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some(backslash) = rest.iter().position(|byte| *byte == b'\\') {
        let (code, after) = rest[backslash + 1..].split_at_checked(3)?;
        path.extend_from_slice(&rest[..backslash]);
        path.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok()?);
        rest = after;
    }
    path.extend_from_slice(rest);
    Some(OsString::from_vec(path).into())
}

/// The existing `paths` beneath one of `roots`.
fn existing_granted(paths: &[PathBuf], roots: &Vec<PathBuf>) -> BTreeSet<PathBuf> {
    let granted = paths.iter().filter(|path| is_within_any(path, &[roots]));
    granted.filter(|path| open_path(path).is_ok()).cloned().collect()
}

/// True if `path` is one of the `granted` paths, or within one.
fn is_within_any(path: &Path, granted: &[&Vec<PathBuf>]) -> bool {
    let mut granted = granted.iter().copied().flatten();
    granted.any(|root| path.starts_with(root))
}

/// The `paths` that are not within another one: a covered directory hides its contents, which could then not be opened.
fn outermost(paths: &BTreeSet<PathBuf>) -> impl Iterator<Item = &PathBuf> {
    let is_inside = |path: &Path| path.ancestors().skip(1).any(|parent| paths.contains(parent));
    paths.iter().filter(move |path| !is_inside(path))
}

/// True if `path` is strictly within one of `protected` that becomes read-only.
fn is_within(path: &Path, protected: &BTreeSet<PathBuf>) -> bool {
    let mut parents = path.ancestors().skip(1);
    parents.any(|parent| protected.contains(parent) && !parent.ends_with(".git"))
}

/// The directories between writable paths and protected ones, parents first.
fn parents_between(protected: &BTreeSet<PathBuf>, writable: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for path in protected {
        let roots = writable.iter().filter(|root| path.starts_with(root));
        let Some(root) = roots.min_by_key(|root| root.as_os_str().len()) else {
            continue;
        };
        let parents = path.ancestors().skip(1);
        let parents = parents.take_while(|parent| parent != root && parent.starts_with(root));
        directories.extend(parents.map(Path::to_owned));
        if path.ends_with(".git") && path != root {
            directories.insert(path.clone());
        }
    }
    directories
}

/// Opens `path` and mounts something with `mount`. A path that another program removes meanwhile needs no mount, and neither
/// does one that this user cannot reach.
fn with_existing(
    path: &Path,
    mount: impl FnOnce(&OwnedFd, FileType) -> io::Result<()>,
) -> io::Result<()> {
    let (fd, kind) = match open_path(path) {
        Err(error) if is_out_of_reach(&error) => return Ok(()),
        other => other?,
    };
    match mount(&fd, kind) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && open_path(path).is_err() => Ok(()),
        other => other,
    }
}

/// True for the errors of paths that lead nowhere, or through a directory that the user may not enter.
pub(super) fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// Makes an open file or directory a mount of its own.
fn mount_on_itself(fd: &OwnedFd) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(fd_path(fd), fd_path(fd))?)
}

pub(super) fn open_path(path: &Path) -> io::Result<(OwnedFd, FileType)> {
    let fd = landlock_rules::open_nofollow(path)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    Ok((fd, kind))
}

/// A path to an open descriptor, unaffected by renames.
pub(super) fn fd_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Mounts an empty file system over an open directory. Mounts can be attached in it until it becomes read-only.
pub(super) fn mount_cover(fd: &OwnedFd) -> io::Result<()> {
    Ok(rustix::mount::mount("none", fd_path(fd), "tmpfs", no_programs(), c"mode=755,size=1m")?)
}

/// Makes an open mount read-only. Its other flags must be repeated, or the kernel refuses.
pub(super) fn remount_read_only(fd: &OwnedFd) -> io::Result<()> {
    let current_flags = rustix::fs::fstatvfs(fd)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (current_flag, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        if current_flags.contains(current_flag) {
            flags |= flag;
        }
    }
    Ok(rustix::mount::mount_remount(fd_path(fd), flags, c"")?)
}

#[cfg(test)]
mod tests {
    use super::{outermost, parents_between, writable_mount_point};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    #[test]
    fn only_outermost_denied_paths_are_covered() {
        let denied = ["/h/w", "/h/w/sessions", "/h/ws", "/h/w/a/b", "/x/y"].map(PathBuf::from);
        let denied = denied.into_iter().collect();
        let actual: Vec<_> = outermost(&denied).collect();
        assert_eq!(actual, ["/h/w", "/h/ws", "/x/y"].map(PathBuf::from).iter().collect::<Vec<_>>());
    }

    #[test]
    fn mount_points_are_read_from_lines() {
        let check = |line: &[u8], expect: Option<&[u8]>| {
            let expect = expect.map(|path| PathBuf::from(OsStr::from_bytes(path)));
            assert_eq!(writable_mount_point(line), expect);
        };
        let line = b"36 35 98:0 / /mnt/a\\040b\\134c rw,noatime - ext4 /dev/root rw";
        check(line, Some(b"/mnt/a b\\c"));
        check(b"36 35 98:0 / /mnt/caf\xe9 rw - vfat /dev/sdb1 rw", Some(b"/mnt/caf\xe9"));
        check(b"36 35 98:0 / /mnt ro,noatime shared:1 - ext4 /dev/root rw", None);
    }

    #[test]
    fn mount_points_between_roots_and_protected_paths() {
        let check = |protected: &[&str], writable: &[&str], expect: &[&str]| {
            let writable: Vec<PathBuf> = writable.iter().map(PathBuf::from).collect();
            let actual = parents_between(&protected.iter().map(PathBuf::from).collect(), &writable);
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(actual.into_iter().collect::<Vec<_>>(), expect, "{protected:?}");
        };
        check(&["/w/.git/hooks", "/w/.git/config"], &["/w"], &["/w/.git"]);
        check(&["/w/.git", "/w/.bashrc"], &["/w"], &["/w/.git"]);
        check(&["/w/.config/git/config"], &["/w"], &["/w/.config", "/w/.config/git"]);
        check(&["/w/in/.git/config"], &["/w", "/w/in"], &["/w/in", "/w/in/.git"]);
        check(&["/w/.bashrc"], &["/w"], &[]);
        check(&["/else/.bashrc"], &["/w"], &[]);
    }
}
