//! This program, to be started once more.

use super::children::detached;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where this program is, as whoever started it had it: a link stays one, so that it leads to the next release too. `path`
/// is what the variable says. Where that is another program, it is the file that runs.
pub fn program(path: Option<&str>) -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let same = |found: &PathBuf| match (std::fs::metadata(found), std::fs::metadata(&own)) {
        (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
        _ => false,
    };
    let typed = std::env::args_os().next().map(PathBuf::from);
    let Some(typed) = typed.filter(|typed| !typed.as_os_str().is_empty()) else {
        return Ok(own);
    };
    let found = match typed.components().count() {
        1 if !typed.starts_with("/") => {
            let folders = path.unwrap_or_default().split(':');
            folders
                .filter(|folder| folder.starts_with('/'))
                .map(|folder| Path::new(folder).join(&typed))
                .find(|found| found.is_file())
        }
        _ => Some(std::path::absolute(typed)?),
    };
    Ok(found.filter(same).unwrap_or(own))
}

/// Start this program once more, with `arguments`, without streams; nobody waits for it.
pub fn detach(arguments: &[OsString]) -> io::Result<()> {
    let mut command = Command::new(own_executable()?);
    // In a group of its own from its first instant on: a terminal's signals go to those in front, and when the terminal
    // itself goes away a moment later, one that had yet to start a session of its own would go with it.
    command.arg0("nanobot").args(arguments).process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut detached = detached();
    detached.push(Pid::from_child(&command.spawn()?));
    Ok(())
}

/// Start this program once more, with `arguments` and our streams, but without input.
pub fn spawn_self(arguments: &[OsString]) -> io::Result<Child> {
    let mut command = Command::new(own_executable()?);
    command.arg0("nanobot").args(arguments).stdin(Stdio::null());
    command.spawn()
}

/// The program that runs, also where another has taken its place on disk.
pub(super) fn own_executable() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    match link.exists() {
        true => Ok(link.to_owned()),
        false => std::env::current_exe(),
    }
}
