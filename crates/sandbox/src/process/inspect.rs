//! Queries about the terminal and about other processes of this system.

use nanobot_os::signal::ignores_interrupt;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs::File;
use std::path::{Path, PathBuf};

/// True if this process has a controlling terminal, even if all standard streams are redirected.
pub fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// True if a process with this id exists.
pub fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // A permission error shows that the process exists but belongs to another user.
    pid.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH)))
}

/// Sends SIGINT to the process `process_id`, as Ctrl-C does, or SIGTERM if it ignores that. `is_it` is called once the process can no longer be confused with a later process of
/// the same id. Returns false if it is not that process any more.
///
/// # Errors
/// The process belongs to another user.
pub fn interrupt(process_id: u32, is_it: impl FnOnce() -> bool) -> std::io::Result<bool> {
    let Some(pid) = i32::try_from(process_id).ok().and_then(Pid::from_raw) else {
        return Ok(false);
    };
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(false),
        pidfd => pidfd?,
    };
    if !is_it() {
        return Ok(false);
    }
    let signal = if ignores_interrupt(process_id) { Signal::TERM } else { Signal::INT };
    match rustix::process::pidfd_send_signal(pidfd, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Finds a process of this user with this `HOME` whose command line contains the words of `command` in sequence. The
/// first word may have a directory in front.
pub fn find_process(command: &[&str], home: &Path) -> Option<u32> {
    let home = format!("HOME={}", home.display());
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let path = entry.path();
        // The environment of other users' processes is not readable.
        if contains_command(&read_strings(path.join("cmdline")), command)
            && read_strings(path.join("environ")).contains(&home)
        {
            return Some(pid);
        }
    }
    None
}

/// The strings of a file in `/proc` in which each one ends with a zero byte.
fn read_strings(path: PathBuf) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let strings = bytes.split(|byte| *byte == 0);
    strings.map(|string| String::from_utf8_lossy(string).into_owned()).collect()
}

fn contains_command(arguments: &[String], command: &[&str]) -> bool {
    arguments.windows(command.len()).any(|window| {
        window[0].rsplit('/').next() == command.first().copied() && window[1..] == command[1..]
    })
}
