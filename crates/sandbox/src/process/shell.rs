//! The shell of a run's commands, and `/bin/sh` for commands that inherit the output streams of this process, or the whole
//! terminal for an editor.

use nanobot_os::signal;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The shell that runs the commands of models: bash where it exists, since models write for bash, else sh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandShell {
    path: &'static str,
    name: &'static str,
    /// Options before the script: it reads no start-up file.
    options: &'static [&'static str],
}

/// The paths of bash on Linux and on the BSDs. PATH is not used: it may name a directory that commands change.
const BASH_PATHS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];

/// Variables that make bash run a start-up file, or change its syntax.
const SHELL_VARIABLES: [&str; 5] = ["BASH_ENV", "ENV", "POSIXLY_CORRECT", "SHELLOPTS", "BASHOPTS"];

impl CommandShell {
    /// Finds the shell of this system.
    pub fn find() -> Self {
        match BASH_PATHS.into_iter().find(|path| is_executable(path)) {
            Some(path) => Self { path, name: "bash", options: &["--norc", "--noprofile"] },
            None => Self { path: "/bin/sh", name: "sh", options: &[] },
        }
    }

    pub fn path(self) -> &'static str {
        self.path
    }

    pub fn name(self) -> &'static str {
        self.name
    }

    /// The arguments that run `script`. Error messages begin with the shell's name.
    pub fn arguments(self, script: String) -> Vec<String> {
        let options = self.options.iter().map(|option| (*option).to_owned());
        options.chain(["-c".to_owned(), script, self.name.to_owned()]).collect()
    }

    /// True if the variable must not reach the shell.
    pub fn is_removed_variable(name: &str) -> bool {
        SHELL_VARIABLES.contains(&name) || name.starts_with("BASH_FUNC_")
    }
}

fn is_executable(path: &str) -> bool {
    Path::new(path).is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

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

/// Shows `text` in `program`, an interactive shell command such as `less`. Waits until the user has left it.
///
/// # Errors
/// There is no such program, or the shell cannot be started.
pub fn run_pager(program: &str, text: &str) -> io::Result<()> {
    let mut command = Command::new("/bin/sh");
    // With the same options that git sets, `less` quits if the text fits the screen, shows colours, and leaves the text there.
    let script = format!("trap : INT QUIT; export LESS=\"${{LESS-FRX}}\"; {program}");
    command.args(["-c", &script]).stdin(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().expect("it is piped");
    let (written, status) = signal::with_foreground_program(|| {
        // A user may leave before the end is read.
        let written = input.write_all(text.as_bytes());
        drop(input);
        (written, child.wait())
    });
    match (status?.code(), written) {
        (Some(NOT_FOUND_STATUS), _) => {
            Err(io::Error::new(io::ErrorKind::NotFound, "there is no such program"))
        }
        (_, Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

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
    let status = signal::with_foreground_program(|| command.status())?;
    match status.code() {
        Some(NOT_FOUND_STATUS) => {
            Err(io::Error::new(io::ErrorKind::NotFound, "there is no such program"))
        }
        _ => Ok(status.success()),
    }
}
