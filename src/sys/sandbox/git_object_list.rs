//! The names of the objects in a git repository, read from its loose objects and from the indexes of its packs. A command
//! may have put anything there: every name is opened without blocking.

use crate::sys::clock::{FileTime, file_time};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The position of the number of objects by first byte in the index of a pack, version 2 (gitformat-pack(5)).
const PACK_FANOUT: u64 = 8;
/// The position of the object names in it.
const PACK_NAMES: u64 = PACK_FANOUT + 256 * 4;
/// The beginning of such an index.
const PACK_INDEX_MAGIC: &[u8] = b"\xfftOc\0\0\0\x02";

/// The SHA-1 name of an object.
pub(super) type ObjectName = [u8; 20];

/// The objects in a directory at one time.
#[derive(Debug, Default)]
pub(super) struct ObjectList {
    loose: HashSet<ObjectName>,
    /// The indexes of packs, by inode number. They stay readable when git replaces the packs.
    packs: BTreeMap<u64, File>,
}

impl ObjectList {
    /// Lists the objects in `directory` whose files have a time that counts.
    ///
    /// # Errors
    /// A part of it cannot be read, as a command may have made it.
    pub(super) fn read(directory: &Path, counts: &dyn Fn(FileTime) -> bool) -> io::Result<Self> {
        let mut list = Self::default();
        for first in 0..=u8::MAX {
            let first = format!("{first:02x}");
            for rest in names_in(&directory.join(&first))? {
                let name = rest.to_str().map(|rest| format!("{first}{rest}"));
                if let Some(name) = name.as_deref().and_then(parse_name)
                    && time_of(&directory.join(&first).join(&rest))?.is_some_and(counts)
                {
                    list.loose.insert(name);
                }
            }
        }
        let packs = directory.join("pack");
        for name in names_in(&packs)? {
            let index = packs.join(name);
            if index.extension().is_none_or(|end| end != "idx") {
                continue;
            }
            let times = [time_of(&index)?, time_of(&index.with_extension("pack"))?];
            if times.iter().all(|time| time.is_some_and(counts)) {
                let file = open_regular(&index)
                    .ok_or_else(|| io::Error::other("the index of a pack cannot be read"))?;
                list.packs.insert(file.metadata()?.ino(), file);
            }
        }
        Ok(list)
    }

    pub(super) fn contains(&self, name: &ObjectName) -> bool {
        self.loose.contains(name) || self.packs.values().any(|index| is_listed(index, name))
    }

    /// The names of the objects that are not in the same files in the `earlier` list.
    pub(super) fn names_beyond(&self, earlier: Option<&Self>) -> Vec<ObjectName> {
        let is_earlier =
            |name: &&ObjectName| earlier.is_some_and(|list| list.loose.contains(*name));
        let loose = self.loose.iter().filter(|name| !is_earlier(name));
        let mut names: Vec<ObjectName> = loose.copied().collect();
        for (inode, index) in &self.packs {
            if !earlier.is_some_and(|list| list.packs.contains_key(inode)) {
                names.extend(listed_names(index));
            }
        }
        names
    }
}

/// The names in a directory; none if it does not exist.
fn names_in(directory: &Path) -> io::Result<Vec<OsString>> {
    match std::fs::read_dir(directory) {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name())).collect(),
    }
}

/// The time of a regular file. `None` if there is none.
fn time_of(path: &Path) -> io::Result<Option<FileTime>> {
    match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from) {
        Err(error) if is_absent(&error) => Ok(None),
        stat => {
            let stat = stat?;
            let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            Ok(is_regular.then(|| file_time(&stat)))
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
}

/// Formats a name as git shows it.
pub(super) fn format_name(name: &ObjectName) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses a name as git shows it.
pub(super) fn parse_name(text: &str) -> Option<ObjectName> {
    let mut name = [0; 20];
    if text.len() != 2 * name.len() || !text.is_ascii() {
        return None;
    }
    for (byte, at) in name.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(name)
}

/// The indexes of the packs in the directory of the objects.
pub(super) fn pack_indexes(objects: &Path) -> impl Iterator<Item = PathBuf> {
    let packs = std::fs::read_dir(objects.join("pack"));
    let entries = packs.into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "idx"))
}

/// True if the index of a pack lists the object.
pub(super) fn is_listed(index: &File, name: &ObjectName) -> bool {
    let first = name[0]
        .checked_sub(1)
        .map_or(Some(0), |byte| count_up_to(index, byte));
    let (Some(mut low), Some(mut high)) = (first, count_up_to(index, name[0])) else {
        return false;
    };
    while low < high {
        let middle = low.midpoint(high);
        let Some(found) = name_at(index, middle) else {
            return false;
        };
        match found.cmp(name) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    false
}

/// All names that the index of a pack lists.
fn listed_names(index: &File) -> Vec<ObjectName> {
    let count = count_up_to(index, u8::MAX).unwrap_or_default();
    (0..count).map_while(|at| name_at(index, at)).collect()
}

/// The number of objects whose names begin with `byte` or a lower one.
fn count_up_to(index: &File, byte: u8) -> Option<u64> {
    let mut magic = [0; 8];
    index.read_exact_at(&mut magic, 0).ok()?;
    let mut count = [0; 4];
    index
        .read_exact_at(&mut count, PACK_FANOUT + u64::from(byte) * 4)
        .ok()?;
    (magic == PACK_INDEX_MAGIC).then(|| u64::from(u32::from_be_bytes(count)))
}

/// The name at this position of the index of a pack.
fn name_at(index: &File, position: u64) -> Option<ObjectName> {
    let mut name = [0; 20];
    let place = PACK_NAMES + position * 20;
    index.read_exact_at(&mut name, place).ok()?;
    Some(name)
}

/// The time of a regular file that can be looked at.
pub(super) fn regular_file_time(path: &Path) -> Option<FileTime> {
    time_of(path).ok().flatten()
}

/// Opens a regular file for reading.
pub(super) fn open_regular(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}
