//! File operations: append a line, replace a file, lock. Errors name the path.
//!
//! Everything created here is accessible to its owner only: mode 0600 for files and 0700 for directories; in a directory
//! that is shared with a group, to the group too ([`EntryMode`]). A failed `fsync` is reported and never retried, since
//! the kernel may have dropped the unwritten data (as PostgreSQL found in 2018).

use super::entry_mode::EntryMode;
use super::file_lock::{FileLock, with_lock};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, fail};
use rustix::fs::{Access, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, DirEntry, File, OpenOptions, Permissions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Creates the directory `path` and its missing parents.
pub fn create_dir(path: &Path) -> Result<()> {
    // The common case: it exists.
    if path.is_dir() {
        return Ok(());
    }
    let mode = EntryMode::of_new(path).directory;
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .with_context(|| format!("create `{}`", path.display()))
}

/// The entries of a directory, in no order; none if there is no such directory. Entries that cannot be read are left out.
pub fn list_dir(path: &Path) -> Result<Vec<DirEntry>> {
    match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let entries = entries.with_context(|| format!("read `{}`", path.display()))?;
            Ok(entries.flatten().collect())
        }
    }
}

/// Opens `path` for appending, and creates it if it is missing. A link is not followed.
pub fn open_append(path: &Path) -> Result<File> {
    let file = match append_options().open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mode = EntryMode::of_new(path).file;
            append_options().create(true).mode(mode).open(path)
        }
        other => other,
    };
    file.with_context(|| format!("open `{}`", path.display()))
}

fn append_options() -> OpenOptions {
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).append(true).custom_flags(nofollow);
    options
}

/// Like [`open_append`], but returns `None` if the file is missing.
pub fn open_existing_append(path: &Path) -> Result<Option<File>> {
    match append_options().open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("open `{}`", path.display())),
    }
}

/// Opens `path` for reading; `None` if it is missing.
///
/// # Errors
/// The file is not a regular one: a FIFO would block its reader.
pub fn open_existing(path: &Path) -> Result<Option<File>> {
    let context = || format!("open `{}`", path.display());
    match open_nonblocking(path) {
        Ok(file) if file.metadata().with_context(context)?.is_file() => Ok(Some(file)),
        Ok(_) => Err(not_regular_file(path)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(context),
    }
}

/// Opens `path` for reading, without waiting for a writer if it is a FIFO.
pub fn open_nonblocking(path: &Path) -> std::io::Result<File> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(nonblock).open(path)
}

fn not_regular_file(path: &Path) -> anyhow::Error {
    let cause = format!("`{}` is not a regular file", path.display());
    fail(Exit::Io, cause)
}

/// Opens a log of lines for appending. An incomplete last line is ended with a newline first, so that the next line is
/// not appended to it.
///
/// # Errors
/// The file is not a regular one: a FIFO would block its writer.
pub fn open_line_log(path: &Path) -> Result<File> {
    let log = open_regular_append(path)?;
    with_lock(&log, path, || end_last_line(&log, path))?;
    Ok(log)
}

/// Appends `line`, which ends in a newline, to the log of lines at `path`, under the lock of [`with_line_log`].
///
/// # Errors
/// The errors of [`with_line_log`]; the file cannot be written.
pub fn append_line(path: &Path, line: &[u8]) -> Result<()> {
    with_line_log(path, |log| append_to(log, path, size(log, path)?, line))
}

/// Runs `work` with the log of lines at `path` open and locked. It may replace the file: a process that waited for the lock
/// opens the new one. An incomplete last line is ended with a newline first.
///
/// # Errors
/// The file is not a regular one; the errors of [`with_lock`] and of `work`.
pub fn with_line_log<T>(path: &Path, mut work: impl FnMut(&File) -> Result<T>) -> Result<T> {
    loop {
        let log = open_regular_append(path)?;
        let output = with_lock(&log, path, || {
            let metadata = log.metadata().with_context(|| format!("stat `{}`", path.display()))?;
            if metadata.nlink() == 0 {
                return Ok(None);
            }
            end_last_line(&log, path)?;
            work(&log).map(Some)
        })?;
        if let Some(output) = output {
            return Ok(output);
        }
    }
}

fn open_regular_append(path: &Path) -> Result<File> {
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(not_regular_file(path));
    }
    open_append(path)
}

/// Ends an incomplete last line of a locked log with a newline.
fn end_last_line(log: &File, path: &Path) -> Result<()> {
    let size = size(log, path)?;
    if ends_with_newline(log, path, size)? { Ok(()) } else { append_to(log, path, size, b"\n") }
}

/// True if a file of `size` bytes is empty or ends in a newline.
pub fn ends_with_newline(file: &File, path: &Path, size: u64) -> Result<bool> {
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)
            .with_context(|| format!("read `{}`", path.display()))?;
    }
    Ok(last == [b'\n'])
}

/// Returns the length of an open file, in bytes.
pub fn size(file: &File, path: &Path) -> Result<u64> {
    let metadata = file.metadata().with_context(|| format!("stat `{}`", path.display()))?;
    Ok(metadata.len())
}

/// Appends `bytes` to an open log of `size` bytes, in one write. If the disk takes only a part, the file is truncated to
/// its previous length, so no partial line remains. The caller must hold a lock.
pub fn append_to(mut log: &File, path: &Path, size: u64, bytes: &[u8]) -> Result<()> {
    if let Err(error) = log.write_all(bytes) {
        // If this fails too, the next open repairs the end of the file.
        drop(log.set_len(size));
        return Err(error).with_context(|| format!("write `{}`", path.display()));
    }
    Ok(())
}

/// Creates the file at `path`, empty, unless it exists: a mark that something was done.
pub fn create_marker(path: &Path) -> Result<()> {
    open_append(path).map(drop)
}

/// Appends `bytes` to the file at exactly `path`, under its lock, and creates it and its directory if missing. No link on the
/// path is followed, so a process that may change the directory cannot redirect the data.
pub fn append_nofollow(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    if let Some(existing) = existing_ancestor(dir) {
        let context = || format!("stat `{}`", existing.display());
        if existing.canonicalize().with_context(context)? != existing {
            return Err(symlink_error(existing));
        }
    }
    create_dir(dir)?;
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let no_links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = match rustix::fs::openat2(rustix::fs::CWD, path, flags, mode, no_links) {
        // Linux before 5.6, or a seccomp filter that does not allow the call.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(path, flags, mode),
        other => other,
    };
    let log = match fd {
        Err(Errno::LOOP) => return Err(symlink_error(path)),
        other => File::from(other.with_context(|| format!("open `{}`", path.display()))?),
    };
    if !log.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(not_regular_file(path));
    }
    // Without the lock, an append that fails would also truncate what another process has appended since.
    with_lock(&log, path, || append_to(&log, path, size(&log, path)?, bytes))
}

/// The nearest directory or file on the way to `path`, or `path` itself, that exists.
fn existing_ancestor(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.symlink_metadata().is_ok())
}

fn symlink_error(path: &Path) -> anyhow::Error {
    let cause = format!("`{}` is a symbolic link, or is reached through one", path.display());
    fail(Exit::Io, cause)
}

/// Syncs a log's data to the disk.
pub fn sync(log: &File, path: &Path) -> Result<()> {
    log.sync_data().with_context(|| format!("sync `{}`", path.display()))
}

/// Syncs a directory's entries to the disk.
pub fn sync_dir(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .with_context(|| format!("sync `{}`", path.display()))
}

/// Atomically replaces the content of `path` with `bytes`: readers find either the old file or the new one. If `path`
/// is a link, its target is replaced.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    replace_with(path, |out| Ok(out.write_all(bytes)?))
}

/// Like [`replace`], with the content written by `fill`.
pub fn replace_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        let cause = format!("write `{}`: not a regular file", path.display());
        return Err(fail(Exit::Io, cause));
    }
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let context = || format!("write `{}`", path.display());
    let temp = create_temp_in(dir, fill).with_context(context)?;
    temp.persist(&target).map_err(|error| error.error).with_context(context)?;
    sync_dir(dir)
}

/// Timeout for the lock of a file that is being changed, which takes milliseconds.
const CHANGE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes the lock for reading the file `path`, changing it and replacing it, so that no change of another process is lost.
/// The lock file is `path` with `.lock` appended; missing directories are created. `subject` names the file in errors.
///
/// # Errors
/// The errors of [`FileLock::acquire`].
pub fn lock_for_change(path: &Path, subject: &str) -> Result<FileLock> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let Some(parent) = target.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        create_dir(parent)?;
    }
    let mut lock = target.into_os_string();
    lock.push(".lock");
    FileLock::acquire(Path::new(&lock), subject, None, CHANGE_LOCK_TIMEOUT, &mut |_| {})
}

/// Atomically creates the file `path`, with the content written by `fill`. It must not exist.
///
/// # Errors
/// The file cannot be written, or another program created it first.
pub fn create(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let context = || format!("write `{}`", path.display());
    let dir = path.parent().unwrap_or(Path::new("."));
    let temp = create_temp_in(dir, fill).with_context(context)?;
    temp.persist_noclobber(path).map_err(|error| error.error).with_context(context)?;
    sync_dir(dir)
}

/// Creates a temporary file in `dir` with the content written by `fill`, synced to the disk.
fn create_temp_in(
    dir: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<tempfile::NamedTempFile> {
    let mode = EntryMode::of_new(&dir.join("new")).file;
    let mut temp = tempfile::Builder::new()
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(dir)
        .map_err(|error| creation_error(&error, dir))?;
    // The errors of `temp` itself would name it.
    let mut buffer = BufWriter::with_capacity(256 << 10, temp.as_file_mut());
    fill(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    temp.as_file().sync_all()?;
    Ok(temp)
}

/// The age from which on a temporary file is that of a killed run.
const MIN_ABANDONED_AGE: Duration = Duration::from_secs(60);
/// The length of the name of a temporary file: `.tmp` and six letters.
const TEMPORARY_NAME_BYTES: usize = 10;

/// True for the name of a temporary file through which another is replaced.
pub fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.len() == TEMPORARY_NAME_BYTES
        && name.strip_prefix(b".tmp").is_some_and(|rest| rest.iter().all(u8::is_ascii_alphanumeric))
}

/// True if no run can still be writing the temporary file at `path`.
pub fn is_abandoned(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified.ok().and_then(|modified| modified.elapsed().ok());
    age.is_some_and(|age| age >= MIN_ABANDONED_AGE)
}

/// The error of creating a temporary file in `dir`, without the file's name.
fn creation_error(error: &std::io::Error, dir: &Path) -> std::io::Error {
    match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("there is no directory `{}`", dir.display());
            std::io::Error::new(ErrorKind::NotFound, message)
        }
        kind => kind.into(),
    }
}

/// Creates a temporary file with `bytes` that only its owner can read, for a program that does not read from a pipe. It
/// is removed when dropped.
pub fn create_temp(bytes: &[u8]) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Like [`create_temp`], with a name that ends in `suffix`, by which an editor recognises the format.
pub fn create_temp_named(bytes: &[u8], suffix: &str) -> std::io::Result<tempfile::NamedTempFile> {
    let mut file = tempfile::Builder::new().prefix("nanobot-").suffix(suffix).tempfile()?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Removes the file at `path`. Returns false if there is none: another process may have removed it.
pub fn remove(path: &Path) -> Result<bool> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        result => {
            result.with_context(|| format!("remove `{}`", path.display()))?;
            Ok(true)
        }
    }
}

/// Renames a file to a name that does not exist. Returns false if the two are on different file systems.
pub fn rename_noreplace(from: &Path, to: &Path) -> Result<bool> {
    let is_moved = rename_noreplace_unsynced(from, to)?;
    if is_moved {
        for dir in [from.parent(), to.parent()].into_iter().flatten() {
            sync_dir(dir)?;
        }
    }
    Ok(is_moved)
}

/// Like [`rename_noreplace`], but the directories are not synced: for a caller that moves many files and calls
/// [`sync_dir`] afterwards.
///
/// # Errors
/// The errors of [`rename_noreplace`].
pub fn rename_noreplace_unsynced(from: &Path, to: &Path) -> Result<bool> {
    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::NOREPLACE);
    match rustix::fs::renameat_with(cwd, from, cwd, to, flags) {
        Ok(()) => {}
        Err(Errno::XDEV) => return Ok(false),
        // Not every file system supports `RENAME_NOREPLACE`. Those with hard links refuse to link over an existing
        // file.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)
                .and_then(|()| std::fs::remove_file(from))
                .with_context(|| format!("move `{}`", from.display()))?;
        }
        Err(error) => {
            let error = std::io::Error::from(error);
            return Err(error).with_context(|| format!("move `{}`", from.display()));
        }
    }
    Ok(true)
}

/// Formats a size for people: `12 B`, `3.4 KB`, `5.6 MB` (in powers of 1024).
pub fn format_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

/// Succeeds if a file can be created at `path`, or in its nearest existing parent directory.
///
/// # Errors
/// The reason why not, with that directory.
pub fn check_can_create(path: &Path) -> Result<()> {
    let existing = existing_ancestor(path).unwrap_or(path);
    let context = || format!("write in `{}`", existing.display());
    if !existing.is_dir() {
        return Err(std::io::Error::from(Errno::NOTDIR)).with_context(context);
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    // Also detects a read-only file system.
    rustix::fs::accessat(rustix::fs::CWD, existing, access, AtFlags::EACCESS)
        .map_err(std::io::Error::from)
        .with_context(context)
}

/// The bytes that this user can still write to the file system of `path`.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(path).map_err(std::io::Error::from).with_context(|| {
        format!("read the free space of the file system of `{}`", path.display())
    })?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// True if other users can reach and read `path`, apart from a group that shares it.
pub fn is_readable_by_others(path: &Path) -> bool {
    let is_shared = EntryMode::of_new(&path.join("new")) != EntryMode::PRIVATE;
    let others = if is_shared { 0o007 } else { 0o077 };
    let mode = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.mode());
    let can_be_entered = |dir: &Path| mode(dir) & 0o011 != 0;
    mode(path) & others != 0 && path.ancestors().skip(1).all(can_be_entered)
}

/// Like [`read`], for an untrusted file: it must be a regular file of at most `limit` bytes.
pub fn read_limited(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let Some(file) = open_existing(path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .with_context(|| format!("read `{}`", path.display()))?;
    if bytes.len() as u64 > limit {
        let limit = format_size(limit);
        return Err(fail(Exit::Io, format!("`{}` is larger than {limit}", path.display())));
    }
    Ok(Some(bytes))
}

/// Explains why users other than the owner can change the file at `path`, or that its owner is neither this user nor
/// root. `None` if neither is the case, or if there is no file.
pub fn unsafe_permissions(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
    let user = rustix::process::geteuid().as_raw();
    if owner != user && owner != 0 {
        Some(format!("is owned by another user ({owner})"))
    } else if mode & 0o002 != 0 {
        Some("is world-writable".into())
    } else if mode & 0o020 != 0 && group != owner {
        // By convention, a group with the same number as a user belongs to that user only.
        Some(format!("is writable by group {group}"))
    } else {
        None
    }
}

/// Returns the content of a file; `None` if it is missing.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let read = || {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        read_to_size(file, size, u64::MAX)
    };
    match read() {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("read `{}`", path.display())),
    }
}

/// Reads an open file of `size` bytes, but at most `limit`. The size saves the read that finds the end; for a file whose
/// size is unknown, as in `/proc`, it is 0.
pub fn read_to_size(file: File, size: u64, limit: u64) -> std::io::Result<Vec<u8>> {
    let end = if size > 0 { size.min(limit) } else { limit };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size.min(limit)).unwrap_or_default())?;
    file.take(end).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{append_line, append_nofollow, create_dir, create_marker, replace};
    use nanobot_base::error::{Exit, exit_for};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_private_to_their_owner() {
        let dir = tempfile::tempdir().unwrap();
        let mode =
            |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let inner = dir.path().join("a/b");
        create_dir(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
        append_line(&inner.join("log"), b"one\n").unwrap();
        append_line(&inner.join("log"), b"two\n").unwrap();
        create_marker(&inner.join("log")).unwrap();
        assert_eq!(std::fs::read(inner.join("log")).unwrap(), b"one\ntwo\n");
        assert_eq!(mode(&inner.join("log")), 0o600);
        replace(&inner.join("new"), b"x").unwrap();
        assert_eq!(mode(&inner.join("new")), 0o600);
    }

    #[test]
    fn a_failure_does_not_name_the_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out/x.md");
        let error = format!("{:#}", replace(&path, b"x").unwrap_err());
        let expect = format!(
            "write `{}`: there is no directory `{}`",
            path.display(),
            path.parent().unwrap().display()
        );
        assert_eq!(error, expect);
    }

    #[test]
    fn a_replaced_file_keeps_its_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600))
            .unwrap();
        assert_eq!(exit_for(&replace(&pipe, b"x").unwrap_err()), Exit::Io);
        assert!(replace(dir.path(), b"x").is_err());
        assert!(!std::fs::metadata(&pipe).unwrap().is_file());
    }

    #[test]
    fn append_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("link")).unwrap();
        assert!(append_line(&dir.path().join("link"), b"x\n").is_err());
        assert!(append_nofollow(&dir.path().join("link"), b"x").is_err());
        assert!(!dir.path().join("target").exists());
    }
}
