//! Runs `/bin/sh` commands that inherit the output streams of this process, or the whole terminal for an editor.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Replaces this process by a shell that runs `command` in `directory`, with only the variables of `env` and without
/// input. Returns only on failure.
pub fn become_shell(command: &str, env: &[(String, String)], directory: &Path) -> io::Error {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).current_dir(directory).env_clear();
    shell.envs(env.iter().map(|(name, value)| (name, value)));
    shell.stdin(Stdio::null()).exec()
}

/// The status of a shell that did not find the program (POSIX).
const NOT_FOUND_STATUS: i32 = 127;

/// Opens the file at `path` in `program`, an interactive shell command such as an editor. Returns true if it exits with
/// status 0.
///
/// # Errors
/// There is no such program, or the shell cannot be started.
pub fn run_editor(program: &str, path: &Path) -> io::Result<bool> {
    let mut command = Command::new("/bin/sh");
    // Signals from the terminal reach the shell as well. It traps them to keep waiting; its child does not inherit
    // traps.
    command.args(["-c", &format!("trap : INT QUIT; {program} \"$1\""), program]).arg(path);
    let status = command.status()?;
    match status.code() {
        Some(NOT_FOUND_STATUS) => {
            Err(io::Error::new(io::ErrorKind::NotFound, "there is no such program"))
        }
        _ => Ok(status.success()),
    }
}
