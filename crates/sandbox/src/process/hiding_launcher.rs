//! Starts a program outside of the sandbox that does not see the places which a run may change: this program starts itself,
//! hides them, and executes the other program in its place. If they cannot be hidden, nothing is executed.

use super::own_program::helper_executable;
use crate::HiddenPaths;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The name (`argv[0]`) that makes this program hide places. The arguments are these as JSON, the working directory, the program
/// and its arguments. Without a program it only tries to hide them.
const HIDING_ARG0: &str = "nanobot-hiding";

/// Prepares a command that executes `program` in `directory` without the places. The arguments of the program are still to be
/// added.
pub(super) fn hiding_command(
    program: &Path,
    directory: &Path,
    places: &HiddenPaths,
) -> io::Result<Command> {
    let mut command = Command::new(helper_executable()?);
    command.arg0(HIDING_ARG0);
    command.arg(serde_json::to_string(places).map_err(io::Error::other)?);
    command.arg(directory).arg(program).current_dir("/");
    Ok(command)
}

/// Executes a program without the places that the arguments name, if this program was started for that. Returns `None` if it
/// was not. A failure is written to standard error, and nothing is executed then.
pub(super) fn become_hiding_program() -> Option<bool> {
    let mut arguments = std::env::args_os();
    if arguments.next().is_none_or(|name| name != HIDING_ARG0) {
        return None;
    }
    let mut execute = || -> io::Result<()> {
        close_fds::set_fds_cloexec(3, &[]);
        let places = arguments.next().unwrap_or_default();
        let places: HiddenPaths =
            serde_json::from_slice(places.as_encoded_bytes()).map_err(io::Error::other)?;
        let directory = arguments.next().unwrap_or_default();
        let program = arguments.next().unwrap_or_default();
        places.hide().map_err(|error| {
            io::Error::new(error.kind(), format!("hide what the run may change: {error}"))
        })?;
        if program.is_empty() {
            return Ok(());
        }
        Err(Command::new(program).args(&mut arguments).current_dir(directory).exec())
    };
    let executed = execute().inspect_err(|error| {
        // Where this cannot be written, the exit status tells it.
        let text = format!("{error}\n");
        let _: Result<_, _> = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    });
    Some(executed.is_ok())
}
