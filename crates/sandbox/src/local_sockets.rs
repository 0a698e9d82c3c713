//! Finds the local sockets that programs of the machine have bound. The kernel lists them by the names that were given when they were
//! bound: a relative one is looked for where it may have been meant.

use super::real_path::real_path;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The fields of a line of `/proc/net/unix` before the name.
const FIELDS_BEFORE_NAME: usize = 7;

/// The real paths of the sockets of this network namespace. A socket with a relative name is found in the `granted` directories, and in
/// the working directories of processes, which include its own unless that process has changed it.
pub(super) fn find<'a>(granted: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    // A kernel without local sockets has no such table.
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    find_in_table(&table, || {
        let mut directories = process_directories();
        directories.extend(granted.map(Path::to_owned));
        directories
    })
}

/// The sockets in the text of `/proc/net/unix`. The directories are listed only if a name is relative: hardly any is.
fn find_in_table(table: &[u8], directories: impl FnOnce() -> BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let (absolute, relative): (Vec<&Path>, Vec<&Path>) = table
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(name_in_line)
        .partition(|name| name.is_absolute());
    let mut paths: Vec<PathBuf> =
        absolute.into_iter().filter_map(|path| real_path(path).ok()).collect();
    if !relative.is_empty() {
        for directory in directories() {
            let candidates = relative.iter().map(|name| directory.join(name));
            let sockets = candidates.filter(|path| is_socket(path));
            paths.extend(sockets.filter_map(|path| real_path(&path).ok()));
        }
    }
    paths
}

/// The name in a line of `/proc/net/unix`, unless it is abstract. Programs choose names, which may contain blanks and need not be UTF-8.
fn name_in_line(line: &[u8]) -> Option<&Path> {
    let mut rest = line;
    for _ in 0..FIELDS_BEFORE_NAME {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        rest = &rest[end..];
    }
    let name = rest.strip_prefix(b" ")?;
    (!name.is_empty() && !name.starts_with(b"@")).then(|| Path::new(OsStr::from_bytes(name)))
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// The working directories of the processes whose user may be asked about them.
fn process_directories() -> BTreeSet<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{find_in_table, process_directories};
    use std::collections::BTreeSet;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_relative_name_is_looked_for_where_it_may_have_been_meant() {
        let temp = tempfile::tempdir().unwrap();
        let directory = std::fs::canonicalize(temp.path()).unwrap();
        let path = directory.join("agent socket");
        let _socket = UnixListener::bind(&path).unwrap();
        std::fs::write(directory.join("file"), "").unwrap();
        let names = ["agent socket", "@agent socket", "file", "missing", ""];
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 12345";
        let lines = names.map(|name| format!("{line} {name}\n")).concat();
        let table = format!("Num RefCount Protocol Flags Type St Inode Path\n{lines}{line}\n");
        let directories = BTreeSet::from([directory]);
        assert_eq!(find_in_table(table.as_bytes(), || directories), [path]);
        assert!(process_directories().contains(&std::env::current_dir().unwrap()));
    }

    #[test]
    fn directories_are_listed_only_for_a_relative_name() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 12345";
        let table = format!("Num\n{line} /missing/a socket\n{line} @abstract\n");
        let sockets = find_in_table(table.as_bytes(), || panic!("directories were listed"));
        assert!(sockets.is_empty());
    }
}
