//! The cgroup (version 2) that limits the memory of a run's commands, where the system lets this user make one.

use crate::MemoryLimit;
use nanobot_os::secret::random_hex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory in which the system mounts its cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The file of a cgroup that holds the limit of its memory. The file is missing if the parent does not limit memory.
const LIMIT_FILE: &str = "memory.max";

/// The cgroup of this run, once [`memory_limit`] was called; `None` if none can be created.
static RUN_CGROUP: OnceLock<Option<PathBuf>> = OnceLock::new();

/// The limit of `bytes` for the commands of this run: by a cgroup if one can be created.
pub fn memory_limit(bytes: u64) -> MemoryLimit {
    let cgroup = RUN_CGROUP.get_or_init(|| {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        candidates(&own).iter().find_map(|parent| create(parent, bytes))
    });
    MemoryLimit { bytes, cgroup: cgroup.clone() }
}

/// The cgroups in which one may be created, from the content of `/proc/PID/cgroup`: that of the process, and its parent. A cgroup
/// with processes of its own cannot limit the cgroups in it (cgroups(7)), and then its parent often can.
fn candidates(own: &str) -> Vec<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let directory = path.map(|path| Path::new(CGROUPS).join(path));
    let cgroups = directory.iter().flat_map(|directory| directory.ancestors().take(2));
    cgroups.filter(|cgroup| cgroup.starts_with(CGROUPS)).map(Path::to_owned).collect()
}

/// Creates a cgroup in `parent` with this limit. Returns `None` if that is not possible.
fn create(parent: &Path, bytes: u64) -> Option<PathBuf> {
    let directory = parent.join(format!("nanobot-{}", random_hex(8)));
    std::fs::create_dir(&directory).ok()?;
    let limit = directory.join(LIMIT_FILE);
    let written = if limit.exists() {
        std::fs::write(&limit, bytes.to_string())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    };
    if written.is_err() {
        drop(std::fs::remove_dir(&directory));
        return None;
    }
    // The file is missing where the kernel does not count swap.
    drop(std::fs::write(directory.join("memory.swap.max"), "0"));
    Some(directory)
}

/// Moves this process into the cgroup. Its children begin there.
///
/// # Errors
/// The system refuses it.
pub(super) fn join(directory: &Path) -> io::Result<()> {
    // 0 means the process that writes.
    let written = std::fs::write(directory.join("cgroup.procs"), "0");
    written.map_err(|error| io::Error::other(format!("cannot limit its memory: {error}")))
}

/// The limit of the cgroup, if this process is in it.
///
/// # Errors
/// A file of the kernel cannot be read.
pub(super) fn own_limit(directory: &Path) -> io::Result<Option<u64>> {
    let own = std::fs::read_to_string("/proc/self/cgroup")?;
    let name = directory.file_name().unwrap_or_default();
    let is_in = own.lines().any(|line| Path::new(line).ends_with(name));
    let limit = std::fs::read_to_string(directory.join(LIMIT_FILE))?;
    Ok(if is_in { limit.trim().parse().ok() } else { None })
}

/// Removes the cgroup of this run. Called last in `main`.
pub fn remove_memory_cgroup() {
    if let Some(Some(directory)) = RUN_CGROUP.get() {
        // It cannot be removed while it has a process that could not be ended.
        drop(std::fs::remove_dir(directory));
    }
}

#[cfg(test)]
mod tests {
    use super::{candidates, create};
    use std::path::PathBuf;

    #[test]
    fn cgroups_are_made_beside_and_in_the_own_one() {
        let check = |own: &str, expect: &[&str]| {
            let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
            assert_eq!(candidates(own), expect, "{own}");
        };
        check(
            "1:name=systemd:/x\n0::/user.slice/app.slice/term.scope\n",
            &[
                "/sys/fs/cgroup/user.slice/app.slice/term.scope",
                "/sys/fs/cgroup/user.slice/app.slice",
            ],
        );
        check("0::/\n", &["/sys/fs/cgroup/"]);
        check("4:memory:/x\n", &[]);
    }

    #[test]
    fn a_directory_that_does_not_limit_memory_is_removed_again() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(create(temp.path(), 1 << 30), None);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
        assert_eq!(create(&temp.path().join("missing"), 1 << 30), None);
    }
}
