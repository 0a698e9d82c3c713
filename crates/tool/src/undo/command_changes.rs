//! The changes that commands make, found by comparison.
//!
//! A command does not announce its changes. So the files of its writable directories are copied before it starts, and
//! those that differ when it has ended are recorded in the turn's journal. Within the limits below that costs milliseconds; files beyond
//! them are reported as a gap. `.git`, which has its own history, and the folders of dependencies and build results are not covered,
//! but the removal of such a folder is a gap, and so is a move of git's `HEAD`.
//! Changes of a command that runs while nanobot itself is killed are lost to undo, unlike those of the file tools.

use super::journal::{JournalGap, PreviousState};
use nanobot_os::digest::digest;
use nanobot_os::paths::is_generated_dir;
use nanobot_os::rooted_fs::RootDir;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{File, Metadata, ReadDir};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Maximum number of entries of a directory that is copied, all levels included.
const MAX_ENTRIES: usize = 5_000;
/// The largest file that is copied, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum size of all copies of a turn, in bytes.
const MAX_COPIED_BYTES: u64 = 64 << 20;
/// The largest new file whose content is compared before it is removed again, in bytes.
const MAX_NEW_FILE_BYTES: u64 = 64 << 20;
/// Maximum size of all changed files that are read after a command, in bytes: a command can make large files that take no
/// space on disk.
const MAX_READ_BYTES: u64 = 1 << 30;

/// A change that a command made.
#[derive(Debug)]
pub(super) enum CommandChange {
    CreatedDirectory,
    /// A file or link that was created or changed, or a directory with another mode.
    Changed {
        before: PreviousState<'static>,
        /// The digest of the new content, which may be large; a directory has none.
        digest: String,
    },
    Removed {
        before: PreviousState<'static>,
    },
}

/// The state of the writable paths at the last scan.
#[derive(Debug)]
pub(super) struct DirectorySnapshot {
    /// The root of the file system: paths are opened without following links.
    root: RootDir,
    /// The paths that commands may change.
    writable: Vec<PathBuf>,
    /// The paths in them that are not scanned.
    excluded: Vec<PathBuf>,
    entries: BTreeMap<PathBuf, ScannedEntry>,
    /// The copied contents, one after the other, in a file without a name.
    copies: File,
    copied_bytes: u64,
    /// Number of commands that run.
    pub(super) running: usize,
    /// Changes that cannot be undone.
    pub(super) gaps: BTreeSet<JournalGap>,
}

#[derive(Clone, Debug, PartialEq)]
struct ScannedEntry {
    kind: EntryKind,
    mode: u32,
    copy: ContentCopy,
}

/// The copy of a file's content.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ContentCopy {
    /// There is no copy: the file is too large, or it is not a regular file.
    None,
    /// The copy is at this position.
    At(u64),
    /// No copy is needed: the journal has the state before the turn.
    Recorded,
}

#[derive(Clone, Debug, PartialEq)]
enum EntryKind {
    /// A regular file, with the metadata that changes when its content does.
    File {
        inode: (u64, u64),
        size: u64,
        modified: (i64, i64),
        status_changed: (i64, i64),
    },
    Link(PathBuf),
    Directory,
    /// A directory whose content is not covered.
    Generated {
        /// The names of its subdirectories.
        names: BTreeSet<OsString>,
        /// The size of git's log of `HEAD`, and its time in nanoseconds: a commit, a reset and a checkout append to it. `None` if there is
        /// none.
        head_log: Option<(u64, i64, i64)>,
    },
}

impl EntryKind {
    /// True if git has moved its `HEAD` between these two states of its directory.
    fn has_other_head(&self, later: &Self) -> bool {
        let head_log = |kind: &Self| match kind {
            Self::Generated { head_log, .. } => Some(*head_log),
            _ => None,
        };
        let (before, after) = (head_log(self), head_log(later));
        before.zip(after).is_some_and(|(before, after)| before != after)
    }
}

impl DirectorySnapshot {
    /// Creates an empty snapshot, with its copies on the file system of `dir`. The paths in `excluded` are left out.
    pub(super) fn new(dir: &Path, excluded: Vec<PathBuf>) -> io::Result<Self> {
        Ok(Self {
            root: RootDir::open(Path::new("/"))?,
            writable: Vec::new(),
            excluded,
            entries: BTreeMap::new(),
            copies: tempfile::tempfile_in(dir)?,
            copied_bytes: 0,
            running: 0,
            gaps: BTreeSet::new(),
        })
    }

    /// Adds the `writable` paths of a command that is about to start, and copies the files that changed since the last scan. While another
    /// command runs, changes in paths that were already writable belong to that command, and are left for [`Self::take_changes`].
    pub(super) fn refresh(&mut self, writable: &[PathBuf]) -> io::Result<()> {
        let old_writable = self.writable.clone();
        let was_writable = |path: &Path| old_writable.iter().any(|root| path.starts_with(root));
        self.writable.extend(writable.iter().filter(|path| !was_writable(path)).cloned());
        if self.running > 0 && self.writable.len() == old_writable.len() {
            return Ok(());
        }
        let mut entries = self.scan();
        if self.running > 0 {
            entries.retain(|path, _| !was_writable(path));
            entries.extend(self.entries.clone());
        }
        for (path, entry) in &mut entries {
            match self.entries.get(path) {
                Some(old_entry) if old_entry.kind == entry.kind => entry.copy = old_entry.copy,
                _ => entry.copy = self.copy(path, &entry.kind)?,
            }
        }
        self.entries = entries;
        Ok(())
    }

    /// The changes since the last scan: created and changed entries from the top down, then removed ones, contents before their directory.
    pub(super) fn take_changes(&mut self) -> Vec<(PathBuf, CommandChange)> {
        let mut entries = self.scan();
        let mut changes = Vec::new();
        let mut bytes_left = MAX_READ_BYTES;
        for (path, entry) in &mut entries {
            let old_entry = self.entries.get(path);
            if old_entry.is_some_and(|old_entry| old_entry.kind.has_other_head(&entry.kind)) {
                self.gaps.insert(JournalGap::moved_head(path));
            }
            match old_entry {
                Some(old_entry) if old_entry.is_unchanged(entry) => entry.copy = old_entry.copy,
                old_entry => match self.change(path, old_entry, entry, &mut bytes_left) {
                    Ok(Some(change)) => {
                        entry.copy = ContentCopy::Recorded;
                        changes.push((path.clone(), change));
                    }
                    Ok(None) => {
                        entry.copy =
                            old_entry.map_or(ContentCopy::None, |old_entry| old_entry.copy);
                    }
                    Err(reason) => add_gap(&mut self.gaps, path, &reason),
                },
            }
        }
        for (path, old_entry) in self.entries.iter().rev() {
            // An excluded directory is not scanned, so removed entries in it are unknown.
            if entries.contains_key(path) || self.is_excluded(path) {
                continue;
            }
            match self.saved_state(old_entry) {
                Ok(before) => changes.push((path.clone(), CommandChange::Removed { before })),
                Err(reason) => add_gap(&mut self.gaps, path, &reason),
            }
        }
        self.entries = entries;
        changes
    }

    /// The change of `path` from `old_entry` to `entry`; `None` if only its times differ, or the content of a directory that is not covered.
    /// `bytes_left` is the number of bytes that may still be read.
    ///
    /// # Errors
    /// The change cannot be undone, for this reason.
    fn change(
        &self,
        path: &Path,
        old_entry: Option<&ScannedEntry>,
        entry: &ScannedEntry,
        bytes_left: &mut u64,
    ) -> Result<Option<CommandChange>, String> {
        if let (
            Some(EntryKind::Generated { names: old_names, .. }),
            EntryKind::Generated { names, .. },
        ) = (old_entry.map(|old_entry| &old_entry.kind), &entry.kind)
        {
            return match old_names.difference(names).next() {
                Some(name) => Err(format!(
                    "`{}` in it was removed, and its content is not copied",
                    name.display()
                )),
                None => Ok(None),
            };
        }
        let before = old_entry
            .map_or(Ok(PreviousState::Nothing), |old_entry| self.saved_state(old_entry))?;
        let content = match (&entry.kind, &before) {
            (EntryKind::Generated { .. }, PreviousState::Nothing) => return Ok(None),
            (EntryKind::Directory, PreviousState::Nothing) => {
                return Ok(Some(CommandChange::CreatedDirectory));
            }
            (EntryKind::Directory, PreviousState::Directory { .. }) => Vec::new(),
            (EntryKind::Directory | EntryKind::Generated { .. }, _)
            | (_, PreviousState::Directory { .. }) => {
                return Err(
                    "a directory took the place of a file, or a file that of a directory".into()
                );
            }
            (EntryKind::Link(target), _) => target.as_os_str().as_encoded_bytes().to_owned(),
            (EntryKind::File { size, .. }, _) if *size > MAX_NEW_FILE_BYTES => {
                return Err("it is too large".into());
            }
            (EntryKind::File { size, .. }, _) => {
                *bytes_left =
                    bytes_left.checked_sub(*size).ok_or("too much was changed at once")?;
                self.read(path, *size).map_err(|error| error.to_string())?
            }
        };
        let is_same = matches!(&entry.kind, EntryKind::File { .. })
            && matches!(
                &before,
                PreviousState::File { bytes, mode } if **bytes == content && *mode == entry.mode
            );
        let digest = digest(&content);
        Ok((!is_same).then_some(CommandChange::Changed { before, digest }))
    }

    /// The state that an entry describes. For one that is recorded already, the state does not matter.
    ///
    /// # Errors
    /// The content of the entry was not copied.
    fn saved_state(&self, entry: &ScannedEntry) -> Result<PreviousState<'static>, String> {
        let mode = entry.mode;
        match &entry.kind {
            EntryKind::Generated { .. } => Err("its content is not copied".into()),
            EntryKind::Directory => Ok(PreviousState::Directory { mode }),
            EntryKind::Link(target) => Ok(PreviousState::Link(target.clone().into())),
            EntryKind::File { size, .. } => {
                let position = match entry.copy {
                    ContentCopy::None => return Err("it is too large to be copied".into()),
                    ContentCopy::At(position) => position,
                    ContentCopy::Recorded => return Ok(PreviousState::Nothing),
                };
                let mut bytes = vec![0; usize::try_from(*size).map_err(|error| error.to_string())?];
                let result = self.copies.read_exact_at(&mut bytes, position);
                result.map_err(|error| format!("its copy cannot be read: {error}"))?;
                Ok(PreviousState::File { bytes: bytes.into(), mode })
            }
        }
    }

    /// Copies the content of a file. There is no copy if the file exceeds the limits, or if it changes
    /// meanwhile.
    ///
    /// # Errors
    /// The copy cannot be written.
    fn copy(&mut self, path: &Path, kind: &EntryKind) -> io::Result<ContentCopy> {
        let EntryKind::File { size, .. } = *kind else {
            return Ok(ContentCopy::None);
        };
        if size > MAX_FILE_BYTES || self.copied_bytes + size > MAX_COPIED_BYTES {
            return Ok(ContentCopy::None);
        }
        let Ok(bytes) = self.read(path, size) else {
            return Ok(ContentCopy::None);
        };
        if bytes.len() as u64 != size {
            return Ok(ContentCopy::None);
        }
        let position = self.copied_bytes;
        self.copies.write_all_at(&bytes, position)?;
        self.copied_bytes += size;
        Ok(ContentCopy::At(position))
    }

    /// Reads a file of about `size` bytes, up to the limit for new files.
    fn read(&self, path: &Path, size: u64) -> io::Result<Vec<u8>> {
        // One byte more, so that the end is found without another buffer.
        let capacity = usize::try_from(size).unwrap_or_default().saturating_add(1);
        let mut bytes = Vec::with_capacity(capacity);
        let file = self.root.open_for_reading(path.strip_prefix("/").unwrap_or(path))?;
        file.take(MAX_NEW_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Scans the writable paths. A path with too many entries, or a directory that cannot be read, is excluded from now on.
    fn scan(&mut self) -> BTreeMap<PathBuf, ScannedEntry> {
        let mut entries: BTreeMap<PathBuf, ScannedEntry> = BTreeMap::new();
        for path in self.writable.clone() {
            if self.is_excluded(&path) {
                continue;
            }
            match self.scan_path(&path) {
                Some(path_entries) => entries.extend(path_entries),
                None => {
                    add_gap(
                        &mut self.gaps,
                        &path,
                        &format!("it has more than {MAX_ENTRIES} entries"),
                    );
                    self.exclude(path);
                }
            }
        }
        // Writable paths can be nested. Without its state before, an entry that was scanned already would count as created.
        entries.retain(|path, _| !self.is_excluded(path));
        entries
    }

    /// The entries at and beneath `root`; `None` if there are too many.
    fn scan_path(&mut self, root: &Path) -> Option<BTreeMap<PathBuf, ScannedEntry>> {
        let entries = self.list_paths(root)?.into_iter().filter_map(|path| {
            let metadata = std::fs::symlink_metadata(&path).ok()?;
            let entry = if metadata.is_dir() && is_generated_dir(&path) {
                Some(ScannedEntry::generated(&path))
            } else {
                ScannedEntry::new(&path, &metadata)
            };
            entry.map(|entry| (path, entry))
        });
        Some(entries.collect())
    }

    /// The paths beneath `root`, or `root` itself if it is not a directory; `None` if there are too many. Names are listed before any
    /// metadata is read, so it is cheap to find out that there are too many. Directories that cannot be read are excluded.
    fn list_paths(&mut self, root: &Path) -> Option<Vec<PathBuf>> {
        if !std::fs::symlink_metadata(root).is_ok_and(|metadata| metadata.is_dir()) {
            return Some(vec![root.to_owned()]);
        }
        let mut paths = Vec::new();
        let mut pending = vec![root.to_owned()];
        while let Some(directory) = pending.pop() {
            let entries = match open_directory(&directory) {
                Ok(entries) => entries,
                // A directory that was removed meanwhile has no entries.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    self.exclude_unreadable(directory);
                    continue;
                }
            };
            for entry in entries {
                let Ok(entry) = entry else {
                    self.exclude_unreadable(directory);
                    break;
                };
                let path = entry.path();
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if self.is_excluded(&path) {
                    continue;
                }
                if is_directory && !is_generated_dir(&path) {
                    pending.push(path.clone());
                }
                paths.push(path);
                if paths.len() > MAX_ENTRIES {
                    return None;
                }
            }
        }
        Some(paths)
    }

    fn is_excluded(&self, path: &Path) -> bool {
        let mut excluded = self.excluded.iter();
        excluded.any(|root| path.starts_with(root))
    }

    /// Excludes a directory that cannot be read. A command can change its mode, and its old files would then count as created.
    fn exclude_unreadable(&mut self, directory: PathBuf) {
        add_gap(&mut self.gaps, &directory, "it cannot be read");
        self.exclude(directory);
    }

    fn exclude(&mut self, root: PathBuf) {
        self.entries.retain(|path, _| !path.starts_with(&root));
        self.excluded.push(root);
    }
}

impl ScannedEntry {
    /// The entry at `path`; `None` if it is neither a file, a link nor a directory.
    fn new(path: &Path, metadata: &Metadata) -> Option<Self> {
        let kind = if metadata.is_dir() {
            EntryKind::Directory
        } else if metadata.is_symlink() {
            EntryKind::Link(std::fs::read_link(path).ok()?)
        } else if metadata.is_file() {
            EntryKind::File {
                inode: (metadata.dev(), metadata.ino()),
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                status_changed: (metadata.ctime(), metadata.ctime_nsec()),
            }
        } else {
            return None;
        };
        Some(Self { kind, mode: metadata.mode() & 0o7777, copy: ContentCopy::None })
    }

    /// The directory at `path`, whose content is not covered.
    fn generated(path: &Path) -> Self {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = directories.map(|entry| entry.file_name()).collect();
        let head_log = std::fs::metadata(path.join("logs/HEAD")).ok();
        let head_log =
            head_log.map(|metadata| (metadata.len(), metadata.mtime(), metadata.mtime_nsec()));
        Self { kind: EntryKind::Generated { names, head_log }, mode: 0, copy: ContentCopy::None }
    }

    fn is_unchanged(&self, other: &Self) -> bool {
        self.kind == other.kind && self.mode == other.mode
    }
}

/// Opens a directory to list it. Its entries must be reachable: with the permission to read alone, it gives only names.
fn open_directory(path: &Path) -> io::Result<ReadDir> {
    std::fs::symlink_metadata(path.join("."))?;
    std::fs::read_dir(path)
}

fn add_gap(gaps: &mut BTreeSet<JournalGap>, path: &Path, reason: &str) {
    gaps.insert(JournalGap::new(path, reason));
}

#[cfg(test)]
mod tests {
    use super::{DirectorySnapshot, MAX_ENTRIES, ScannedEntry};

    #[test]
    fn the_changed_files_that_are_read_have_a_limit_together() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("new");
        std::fs::write(&path, "12345").unwrap();
        let snapshot = DirectorySnapshot::new(temp.path(), Vec::new()).unwrap();
        let entry = ScannedEntry::new(&path, &path.symlink_metadata().unwrap()).unwrap();
        let mut bytes_left = 9;
        assert!(snapshot.change(&path, None, &entry, &mut bytes_left).unwrap().is_some());
        let reason = snapshot.change(&path, None, &entry, &mut bytes_left).unwrap_err();
        assert_eq!((reason.as_str(), bytes_left), ("too much was changed at once", 4));
    }

    #[test]
    fn the_files_of_a_nested_path_are_not_created_when_the_outer_one_becomes_too_large() {
        let temp = tempfile::tempdir().unwrap();
        let (inner, many) = (temp.path().join("inner"), temp.path().join("many"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("old"), "x").unwrap();
        let mut snapshot = DirectorySnapshot::new(temp.path(), Vec::new()).unwrap();
        snapshot.refresh(&[inner, temp.path().to_owned()]).unwrap();
        std::fs::create_dir(&many).unwrap();
        for number in 0..=MAX_ENTRIES {
            std::fs::write(many.join(number.to_string()), "").unwrap();
        }
        let changes = snapshot.take_changes();
        assert!(changes.is_empty(), "{changes:?}");
        assert_eq!(snapshot.gaps.first().unwrap().path, temp.path());
    }

    /// Root can read any directory, so the paths here are unreadable because they are too long.
    #[test]
    fn directories_that_cannot_be_read_are_gaps() {
        let temp = tempfile::tempdir().unwrap();
        let (short, long) = (temp.path().join("a/b"), "x".repeat(250));
        std::fs::create_dir_all(short.join(format!("{}/", "y".repeat(200)).repeat(18))).unwrap();
        std::fs::rename(&short, short.with_file_name(&long)).unwrap();
        std::fs::rename(temp.path().join("a"), temp.path().join(&long)).unwrap();
        let mut snapshot = DirectorySnapshot::new(temp.path(), Vec::new()).unwrap();
        snapshot.refresh(&[temp.path().to_owned()]).unwrap();
        let gap = snapshot.gaps.pop_first().unwrap();
        assert_eq!(gap.reason, "it cannot be read");
        assert!(snapshot.is_excluded(&gap.path) && snapshot.gaps.is_empty());
        std::fs::write(temp.path().join("new"), "").unwrap();
        let changes = snapshot.take_changes();
        assert!(matches!(&changes[..], [(path, _)] if path.ends_with("new")), "{changes:?}");
        assert!(snapshot.gaps.is_empty(), "an excluded directory is not scanned again");
    }
}
