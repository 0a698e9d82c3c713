//! Locates this program and starts it again.

use nanobot_os::children::detached;
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns the path by which this program was started. A symbolic link is not resolved, so that it also leads to the next
/// release. `path` is the value of `PATH`. If the name of the process leads to another program, returns the running executable,
/// or what has replaced it.
pub fn program_path(path: Option<&str>) -> io::Result<PathBuf> {
    let executable = installed_path(std::env::current_exe()?);
    let is_executable =
        |program: &PathBuf| match (std::fs::metadata(program), std::fs::metadata(&executable)) {
            (Ok(left), Ok(right)) => (left.dev(), left.ino()) == (right.dev(), right.ino()),
            _ => false,
        };
    let name = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if name.as_os_str().is_empty() {
        return Ok(executable);
    }
    let program = if name.components().count() == 1 && !name.starts_with("/") {
        let directories = path.unwrap_or_default().split(':');
        directories
            .filter(|directory| directory.starts_with('/'))
            .map(|directory| Path::new(directory).join(&name))
            .find(|program| program.is_file())
    } else {
        Some(std::path::absolute(name)?)
    };
    Ok(program.filter(is_executable).unwrap_or(executable))
}

/// The path at which the running `executable` was installed. The kernel adds a word to it once the file is replaced (proc(5)).
fn installed_path(executable: PathBuf) -> PathBuf {
    let path = executable.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    match path.map(|path| Path::new(OsStr::from_bytes(path))) {
        Some(path) if !executable.exists() => path.to_owned(),
        _ => executable,
    }
}

/// Starts this program again with `arguments`, without standard streams, and does not wait for it.
pub fn spawn_detached(arguments: &[OsString]) -> io::Result<()> {
    let mut command = Command::new(own_executable()?);
    // It gets its own process group from the start: terminal signals go to the foreground group, and if the terminal
    // closes a moment later, a process that has yet to create its own session would be ended too.
    command.arg0("nanobot").args(arguments).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut detached = detached();
    detached.push(Pid::from_child(&command.spawn()?));
    Ok(())
}

/// Starts this program again with `arguments` and our output streams, but without input. Without `has_stdout`, what it prints on
/// standard output is dropped.
pub fn spawn_self(arguments: &[OsString], has_stdout: bool) -> io::Result<Child> {
    let mut command = Command::new(own_executable()?);
    command.arg0("nanobot").args(arguments).stdin(Stdio::null());
    if !has_stdout {
        command.stdout(Stdio::null());
    }
    command.spawn()
}

/// True in a program that becomes a helper if its name asks for one. Another program, such as that of unit tests, would do
/// its own work again in every helper.
static BECOMES_HELPERS: AtomicBool = AtomicBool::new(false);

/// Declares that this program becomes a helper if its name (`argv[0]`) asks for one.
pub(super) fn enable_helpers() {
    BECOMES_HELPERS.store(true, Ordering::Relaxed);
}

/// True if this program may be started as a helper.
pub(super) fn becomes_helpers() -> bool {
    BECOMES_HELPERS.load(Ordering::Relaxed)
}

/// The running executable, to be started as a helper.
///
/// # Errors
/// `Unsupported` if this program does not become a helper.
pub(super) fn helper_executable() -> io::Result<PathBuf> {
    if becomes_helpers() {
        own_executable()
    } else {
        let message = "this program does not become a helper: it does not call `become_helper`";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }
}

/// The running executable, even if the file on disk was replaced.
fn own_executable() -> io::Result<PathBuf> {
    let link = Path::new("/proc/self/exe");
    if link.exists() { Ok(link.to_owned()) } else { std::env::current_exe() }
}
