//! The names of the objects in a git repository, read from its loose objects and from the indexes of its packs. A command may
//! have put anything there: files are opened without blocking, no link is followed, and an index is only accepted if git
//! could have written it.

use nanobot_os::clock::{FileTime, file_time};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// The beginning of the index of a pack, version 2 (gitformat-pack(5)).
const INDEX_MAGIC: &[u8] = b"\xfftOc\0\0\0\x02";
/// The size of the table that follows, which counts the objects by the first byte of their names.
const FANOUT_BYTES: usize = 256 * 4;
/// The bytes of the index for each object: its name, its checksum and its position.
const ENTRY_BYTES: usize = 20 + 4 + 4;
/// Maximum size of all indexes of a directory together. Their names stay in memory, and an index that a command has made can list any
/// number of objects without taking space on disk.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// The SHA-1 name of an object.
pub(super) type ObjectName = [u8; 20];

/// The inode number, the time and the size of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileVersion {
    inode: u64,
    time: FileTime,
    bytes: u64,
}

/// The objects in a directory at one time.
#[derive(Debug, Default)]
pub(super) struct ObjectList {
    loose: HashSet<ObjectName>,
    /// The names in the packs, sorted, by the index that lists them.
    packs: BTreeMap<FileVersion, Arc<[ObjectName]>>,
}

impl ObjectList {
    /// Lists the objects in `directory` whose files have a time that `is_accepted`. The indexes that are in the `earlier` list
    /// are not read again.
    ///
    /// # Errors
    /// A part of the directory cannot be read, or does not have the form that git writes: a command may have changed it.
    pub(super) fn read(
        directory: &Path,
        earlier: Option<&Self>,
        is_accepted: &dyn Fn(FileTime) -> bool,
    ) -> io::Result<Self> {
        let mut list = Self::default();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Some(objects) = existing(rustix::fs::open(directory, flags, Mode::empty()))? else {
            return Ok(list);
        };
        for first in 0..=u8::MAX {
            let first = format!("{first:02x}");
            let Some(folder) =
                existing(rustix::fs::openat(&objects, &first, flags, Mode::empty()))?
            else {
                continue;
            };
            for rest in names_in(&folder)? {
                if let Some(name) = parse_name(&format!("{first}{rest}"))
                    && version_of(folder.as_fd(), &rest)?
                        .is_some_and(|version| is_accepted(version.time))
                {
                    list.loose.insert(name);
                }
            }
        }
        let Some(packs) = existing(rustix::fs::openat(&objects, "pack", flags, Mode::empty()))?
        else {
            return Ok(list);
        };
        let mut indexes = Vec::new();
        for index in names_in(&packs)? {
            let Some(stem) = index.strip_suffix(".idx") else {
                continue;
            };
            let pack = version_of(packs.as_fd(), &format!("{stem}.pack"))?;
            let version = version_of(packs.as_fd(), &index)?;
            let (Some(version), Some(pack)) = (version, pack) else {
                continue;
            };
            if is_accepted(version.time) && is_accepted(pack.time) {
                indexes.push((index, version));
            }
        }
        let sizes = indexes.iter().map(|(_, version)| version.bytes);
        if sizes.fold(0, u64::saturating_add) > MAX_INDEX_BYTES {
            return Err(io::Error::other("the indexes of the packs are too large together"));
        }
        for (index, version) in indexes {
            let names = match earlier.and_then(|list| list.packs.get(&version)) {
                Some(names) => Arc::clone(names),
                None => read_index(packs.as_fd(), &index, version.bytes)?.into(),
            };
            list.packs.insert(version, names);
        }
        Ok(list)
    }

    pub(super) fn contains(&self, name: &ObjectName) -> bool {
        let mut packs = self.packs.values();
        self.loose.contains(name) || packs.any(|names| names.binary_search(name).is_ok())
    }

    /// The names of the objects in files that the `earlier` list does not have. Some may be old objects that
    /// were packed since.
    pub(super) fn names_in_new_files<'a>(
        &'a self,
        earlier: Option<&'a Self>,
    ) -> impl Iterator<Item = &'a ObjectName> {
        let is_new_loose =
            move |name: &&ObjectName| !earlier.is_some_and(|list| list.loose.contains(*name));
        let is_new_pack = move |version: &FileVersion| {
            !earlier.is_some_and(|list| list.packs.contains_key(version))
        };
        let packs = self.packs.iter();
        let packed = packs.filter(move |(version, _)| is_new_pack(version));
        let packed = packed.flat_map(|(_, names)| names.iter());
        self.loose.iter().filter(is_new_loose).chain(packed)
    }
}

/// The name of the blob with this content.
pub(super) fn blob_name(content: &[u8]) -> ObjectName {
    let mut hash = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(format!("blob {}\0", content.len()).as_bytes());
    hash.update(content);
    let mut name = [0; 20];
    name.copy_from_slice(hash.finish().as_ref());
    name
}

/// Formats a name as git shows it.
pub(super) fn format_name(name: &ObjectName) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a name as git shows it: in hexadecimal digits, without capitals.
pub(super) fn parse_name(text: &str) -> Option<ObjectName> {
    let mut name = [0; 20];
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * name.len() || !text.bytes().all(is_digit) {
        return None;
    }
    for (byte, at) in name.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(name)
}

/// Turns the error that a file does not exist into `None`.
fn existing<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Err(Errno::NOENT) => Ok(None),
        other => Ok(Some(other?)),
    }
}

/// The names in a directory. Those that are not UTF-8 are left out: git gives none.
fn names_in(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        names.extend(entry?.file_name().to_str().map(str::to_owned));
    }
    Ok(names)
}

/// The version of the regular file `name`. `None` if there is none.
fn version_of(directory: BorrowedFd<'_>, name: &str) -> io::Result<Option<FileVersion>> {
    let stat = existing(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW))?;
    Ok(stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).map(
        |stat| FileVersion {
            inode: stat.st_ino,
            time: file_time(&stat),
            bytes: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
        },
    ))
}

/// The names that the index of a pack, which has `size` bytes, lists, sorted.
fn read_index(directory: BorrowedFd<'_>, name: &str, size: u64) -> io::Result<Vec<ObjectName>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    // An index is never changed, so one that has grown is cut, and is not valid then.
    file.take(size).read_to_end(&mut bytes)?;
    parse_index(&bytes)
        .ok_or_else(|| io::Error::other(format!("`{name}` is not a valid pack index")))
}

/// Parses the index of a pack. Returns `None` unless git could have written it: the names are sorted, and the table has their
/// numbers.
fn parse_index(bytes: &[u8]) -> Option<Vec<ObjectName>> {
    let (fanout, rest) = bytes.strip_prefix(INDEX_MAGIC)?.split_at_checked(FANOUT_BYTES)?;
    let counts = fanout.chunks_exact(4).map(|count| {
        let count = count.try_into().map_or(0, u32::from_be_bytes);
        usize::try_from(count).unwrap_or(usize::MAX)
    });
    let total = counts.clone().next_back()?;
    if rest.len() < total.checked_mul(ENTRY_BYTES)? {
        return None;
    }
    let names = rest[..total * 20].chunks_exact(20);
    let names: Vec<ObjectName> = names.filter_map(|name| name.try_into().ok()).collect();
    let is_counted = |(first, count): (usize, usize)| {
        names.partition_point(|name| usize::from(name[0]) <= first) == count
    };
    (names.is_sorted() && counts.enumerate().all(is_counted)).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::{MAX_INDEX_BYTES, ObjectList, blob_name, format_name, parse_name};
    use std::fs::File;

    #[test]
    fn names_of_blobs() {
        assert_eq!(format_name(&blob_name(b"")), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(format_name(&blob_name(b"hello\n")), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn indexes_have_a_limit_together() {
        let temp = tempfile::tempdir().unwrap();
        let packs = temp.path().join("pack");
        std::fs::create_dir(&packs).unwrap();
        let error = || ObjectList::read(temp.path(), None, &|_| true).unwrap_err().to_string();
        for name in ["a", "b"] {
            File::create(packs.join(format!("{name}.pack"))).unwrap();
            let index = File::create(packs.join(format!("{name}.idx"))).unwrap();
            index.set_len(1000).unwrap();
        }
        assert!(error().contains("is not a valid pack index"), "{}", error());
        for name in ["a", "b"] {
            let index = File::create(packs.join(format!("{name}.idx"))).unwrap();
            index.set_len(MAX_INDEX_BYTES / 2 + 1).unwrap();
        }
        assert!(error().contains("too large together"), "{}", error());
    }

    #[test]
    fn names_are_parsed() {
        let name = blob_name(b"");
        assert_eq!(parse_name(&format_name(&name)), Some(name));
        assert_eq!(parse_name("abc"), None);
        assert_eq!(parse_name(&format_name(&name).to_uppercase()), None);
        assert_eq!(parse_name(&"+f".repeat(20)), None);
        assert_eq!(parse_name(&"\u{e9}".repeat(20)), None);
    }
}
