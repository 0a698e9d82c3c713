//! The objects of git repositories, as far as is needed to tell that git has a file with a given content, and had it before
//! a command could prepare that. A command may have put anything into a repository: only the age of its files is trusted,
//! which no program can set, and every name is opened without blocking.

use crate::sys::clock::{FileTime, file_time};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The objects that count.
#[derive(Clone, Copy, Debug)]
pub enum TrustedObjects {
    /// Those that are as they were before this instant.
    Before(FileTime),
    /// All: commands can fetch any.
    All,
}

/// The most bytes of a small file of a repository that are read.
const MAX_SMALL_FILE_BYTES: u64 = 64 << 10;
/// The most repositories that are searched for an object: one may borrow the objects of others.
const MAX_OBJECT_DIRECTORIES: usize = 8;

/// The position of the number of objects by first byte in the index of a pack, version 2 (gitformat-pack(5)).
const PACK_FANOUT: u64 = 8;
/// The position of the object names in it.
const PACK_NAMES: u64 = PACK_FANOUT + 256 * 4;
/// The beginning of such an index.
const PACK_INDEX_MAGIC: &[u8] = b"\xfftOc\0\0\0\x02";

/// The SHA-1 name of an object.
type ObjectName = [u8; 20];

/// True if the repository around `relative`, a path in `root`, or the one that it was cloned from on this machine, has a
/// file with this content. Places that commands cannot change are not trusted more: the file tools and servers may.
pub(super) fn has_blob(
    root: &Path,
    relative: &Path,
    content: &[u8],
    trusted: TrustedObjects,
) -> bool {
    let name = blob_name(content);
    let mut around = relative.ancestors().skip(1).map(|path| root.join(path));
    let Some(git_dir) = around.find_map(|directory| git_directory(&directory)) else {
        return false;
    };
    let mut waiting = vec![git_dir.join("objects")];
    waiting.extend(local_origin(&git_dir));
    let mut searched = Vec::new();
    while let Some(objects) = waiting.pop() {
        let Ok(objects) = objects.canonicalize() else {
            continue;
        };
        if searched.len() == MAX_OBJECT_DIRECTORIES || searched.contains(&objects) {
            continue;
        }
        if has_loose(&objects, &name, trusted) || has_packed(&objects, &name, trusted) {
            return true;
        }
        let others = read_small(&objects.join("info/alternates")).unwrap_or_default();
        waiting.extend(others.lines().map(|line| objects.join(line)));
        searched.push(objects);
    }
    false
}

fn blob_name(content: &[u8]) -> ObjectName {
    let mut hash = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(format!("blob {}\0", content.len()).as_bytes());
    hash.update(content);
    let mut name = [0; 20];
    name.copy_from_slice(hash.finish().as_ref());
    name
}

/// The directory with the objects and the config of the repository at `directory`.
fn git_directory(directory: &Path) -> Option<PathBuf> {
    let path = directory.join(".git");
    let git_dir = match read_small(&path) {
        Some(link) => directory.join(link.strip_prefix("gitdir: ")?.trim_end()),
        None => path.is_dir().then_some(path)?,
    };
    Some(match read_small(&git_dir.join("commondir")) {
        Some(common) => git_dir.join(common.trim_end()),
        None => git_dir,
    })
}

/// The objects of the repository on this machine that the one at `git_dir` was cloned from.
fn local_origin(git_dir: &Path) -> Option<PathBuf> {
    let config = read_small(&git_dir.join("config"))?;
    let mut urls = config.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "url").then(|| value.trim())
    });
    let url = urls.find_map(|url| {
        url.strip_prefix("file://")
            .or(url.starts_with('/').then_some(url))
    })?;
    let place = Path::new(url);
    let inner = place.join(".git");
    Some(match inner.is_dir() {
        true => inner.join("objects"),
        false => place.join("objects"),
    })
}

/// True if there is a loose object of this name. Its content is what the name says: it was not changed since git wrote it.
fn has_loose(objects: &Path, name: &ObjectName, trusted: TrustedObjects) -> bool {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    is_trusted(&objects.join(&hex[..2]).join(&hex[2..]), trusted)
}

fn has_packed(objects: &Path, name: &ObjectName, trusted: TrustedObjects) -> bool {
    let packs = std::fs::read_dir(objects.join("pack"));
    let paths = packs
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "idx"))
        .filter(|path| {
            is_trusted(path, trusted) && is_trusted(&path.with_extension("pack"), trusted)
        })
        .any(|path| open_regular(&path).is_some_and(|index| is_listed(&index, name)))
}

/// True if the index of a pack lists the object.
fn is_listed(index: &File, name: &ObjectName) -> bool {
    let mut magic = [0; 8];
    if index.read_exact_at(&mut magic, 0).is_err() || magic != PACK_INDEX_MAGIC {
        return false;
    }
    let count = |byte: u8| {
        let mut bytes = [0; 4];
        let read = index.read_exact_at(&mut bytes, PACK_FANOUT + u64::from(byte) * 4);
        read.map(|()| u64::from(u32::from_be_bytes(bytes)))
    };
    let first = name[0].checked_sub(1).map_or(Ok(0), count);
    let (Ok(mut low), Ok(mut high)) = (first, count(name[0])) else {
        return false;
    };
    while low < high {
        let middle = low.midpoint(high);
        let mut found = [0; 20];
        if index
            .read_exact_at(&mut found, PACK_NAMES + middle * 20)
            .is_err()
        {
            return false;
        }
        match found.cmp(name) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    false
}

/// True if there is a regular file that counts.
fn is_trusted(path: &Path, trusted: TrustedObjects) -> bool {
    let stat = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| {
        let is_old = match trusted {
            TrustedObjects::Before(limit) => file_time(&stat) < limit,
            TrustedObjects::All => true,
        };
        is_old && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
    })
}

fn open_regular(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}

/// The beginning of a regular file that is UTF-8.
fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = open_regular(path)?;
    file.take(MAX_SMALL_FILE_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::{TrustedObjects, blob_name, has_blob};
    use crate::sys::clock::current_file_time;
    use std::path::Path;

    fn git(dir: &Path, arguments: &[&str]) {
        let _alone = crate::sys::process::tests::serialize();
        let output = std::process::Command::new("git")
            .args(["-c", "user.name=u", "-c", "user.email=u@example.org"])
            .args(arguments)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?} {output:?}");
    }

    #[test]
    fn names_of_blobs() {
        let hex = |name: [u8; 20]| {
            name.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        assert_eq!(
            hex(blob_name(b"")),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        );
        assert_eq!(
            hex(blob_name(b"hello\n")),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
    }

    #[test]
    fn content_that_git_has() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap().join("w");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        git(&dir, &["init", "-q"]);
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        let check = |text: &str, trusted, expect: bool| {
            let found = has_blob(&dir, Path::new("sub/AGENTS.md"), text.as_bytes(), trusted);
            assert_eq!(found, expect, "{text} {trusted:?}");
        };
        let all = TrustedObjects::All;
        check("loose", all, false);
        for text in ["one", "two", "three"] {
            write("f", text);
            git(&dir, &["add", "f"]);
            git(&dir, &["commit", "-qm", text]);
        }
        git(&dir, &["gc", "-q"]);
        write("f", "loose");
        git(&dir, &["add", "f"]);
        for text in ["one", "two", "three", "loose"] {
            check(text, all, true);
            check(text, TrustedObjects::Before((0, 0)), false);
        }
        check("other", all, false);
        // A file of an old time under another name is no object: moving it there changes its time.
        let before = TrustedObjects::Before(current_file_time());
        let name: String = blob_name(b"evil")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let place = dir.join(".git/objects").join(&name[..2]);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::copy(dir.join("f"), place.join(&name[2..])).unwrap();
        check("evil", before, false);
        // A worktree has the objects of its repository, and a clone those of where it came from.
        git(&dir, &["commit", "-qm", "x"]);
        git(&dir, &["worktree", "add", "-q", "../v"]);
        git(temp.path(), &["clone", "-q", "w", "c"]);
        let now = TrustedObjects::Before((0, 0));
        let of = |name: &str, trusted| {
            let root = temp.path().canonicalize().unwrap().join(name);
            has_blob(&root, Path::new("f"), b"loose", trusted)
        };
        for name in ["v", "c"] {
            assert!(of(name, all) && !of(name, now), "{name}");
        }
        // A pipe in place of a file is not waited for.
        std::fs::remove_dir_all(dir.join("sub")).unwrap();
        std::fs::create_dir(dir.join("sub")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("sub/.git"), mode).unwrap();
        check("two", all, true);
    }
}
