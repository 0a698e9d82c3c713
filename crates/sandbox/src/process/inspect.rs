//! Queries about the terminal and about other processes of this system.

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

/// Sends SIGINT to the process `pid`, as Ctrl-C does. `is_it` is asked again once the process can no longer be confused
/// with a later one of the same id. Returns false if it is not that process any more.
///
/// # Errors
/// The process belongs to another user.
pub fn interrupt(pid: u32, is_it: impl FnOnce() -> bool) -> std::io::Result<bool> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(false);
    };
    let process = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(false),
        process => process?,
    };
    if !is_it() {
        return Ok(false);
    }
    match rustix::process::pidfd_send_signal(process, Signal::INT) {
        Err(Errno::SRCH) => Ok(false),
        sent => sent.map(|()| true).map_err(Into::into),
    }
}

/// Finds a process of this user with this `HOME` whose command line contains the words of `command` in sequence. The
/// first word may have a directory in front.
pub fn find_process(command: &[&str], home: &Path) -> Option<u32> {
    let words = |path: PathBuf| -> Vec<String> {
        let bytes = std::fs::read(path).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    };
    let is_it = |line: &[String]| {
        let last = |word: &str| word.rsplit('/').next() == command.first().copied();
        let rest = |words: &[String]| words.iter().zip(command).skip(1).all(|(a, b)| a == b);
        let mut runs = line.windows(command.len());
        runs.any(|words| last(&words[0]) && rest(words))
    };
    let home = format!("HOME={}", home.display());
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let mut numbered = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((number, entry.path()))
    });
    let found = numbered.find(|(_, path)| {
        // The environment of other users' processes is not readable.
        is_it(&words(path.join("cmdline"))) && words(path.join("environ")).contains(&home)
    });
    found.map(|(number, _)| number)
}
