//! Commands for `/bin/sh` that take over our streams.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Become the shell's `command` in `directory`, with `env` alone and without input. It returns only where that failed.
pub fn become_shell(command: &str, env: &[(String, String)], directory: &Path) -> io::Error {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .current_dir(directory)
        .env_clear();
    shell.envs(env.iter().map(|(name, value)| (name, value)));
    shell.stdin(Stdio::null()).exec()
}

/// Let a person work with `program`, a command for a shell, on the file at `path`. Whether it ended well.
pub fn edit(program: &str, path: &Path) -> io::Result<bool> {
    let mut command = Command::new("/bin/sh");
    // The terminal's keys reach the shell as well. It takes them, so that it waits on, and its child does not inherit that.
    command
        .args(["-c", &format!("trap : INT QUIT; {program} \"$1\""), program])
        .arg(path);
    Ok(command.status()?.success())
}
