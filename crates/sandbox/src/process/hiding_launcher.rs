//! Starts a program outside of the sandbox that does not see the paths which a run may change: this program starts itself,
//! hides them, and executes the other program in its place. If they cannot be hidden, nothing is executed.

use super::own_program::helper_executable;
use crate::HiddenPaths;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The name (`argv[0]`) that makes this program hide paths. The arguments are a [`HiddenPaths`] as JSON, the working
/// directory, the program and its arguments. Without a program it only tries to hide them.
const HIDING_ARG0: &str = "nanobot-hiding";

/// Prepares a command that executes `program` in `directory` without the `hidden_paths`. The caller adds the arguments of the
/// program.
pub(super) fn hiding_command(
    program: &Path,
    directory: &Path,
    hidden_paths: &HiddenPaths,
) -> io::Result<Command> {
    let mut command = Command::new(helper_executable()?);
    command.arg0(HIDING_ARG0);
    command.arg(serde_json::to_string(hidden_paths).map_err(io::Error::other)?);
    command.arg(directory).arg(program).current_dir("/");
    Ok(command)
}

/// Executes a program without the paths that the arguments name, if this program was started for that, and returns `None`
/// otherwise. If they cannot be hidden, writes the reason to standard error and executes nothing.
pub(super) fn become_hiding_program() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != HIDING_ARG0) {
        return None;
    }
    let mut execute = || -> io::Result<()> {
        close_fds::set_fds_cloexec(3, &[]);
        let json = arguments.next().unwrap_or_default();
        let hidden_paths: HiddenPaths =
            serde_json::from_slice(json.as_encoded_bytes()).map_err(io::Error::other)?;
        let directory = arguments.next().unwrap_or_default();
        let program = arguments.next().unwrap_or_default();
        hidden_paths.hide().map_err(|error| {
            io::Error::new(error.kind(), format!("hide what the run may change: {error}"))
        })?;
        if program.is_empty() {
            return Ok(());
        }
        Err(Command::new(program).args(&mut arguments).current_dir(directory).exec())
    };
    let executed = execute().inspect_err(|error| {
        // Without standard error, the exit status alone reports the failure.
        let text = format!("{error}\n");
        let _: Result<_, _> = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    });
    Some(executed.is_ok())
}
