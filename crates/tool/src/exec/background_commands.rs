//! The list of the background commands of a turn.

use crate::ToolError;
use nanobot_config::policy::tool_names::PROCESS;
use nanobot_sandbox::process::background::{self, BackgroundProcess};
use nanobot_sandbox::process::server::ServerExit;
use nanobot_sandbox::{Remedy, UndoneChange};
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::path::Path;

/// Maximum number of commands that run in the background at a time.
const MAX_RUNNING_COMMANDS: usize = 8;
/// Maximum length of the name in an id.
const MAX_NAME_CHARS: usize = 16;

/// The background commands of a turn. Dropping this ends them.
#[derive(Default)]
pub struct BackgroundCommands {
    commands: Mutex<CommandList>,
}

/// Commands in the order of their start. None is removed, so that their numbers make unique ids.
#[derive(Default)]
pub(super) struct CommandList(Vec<BackgroundCommand>);

/// A command that was started in the background.
pub(super) struct BackgroundCommand {
    pub(super) id: String,
    pub(super) command: String,
    pub(super) state: CommandState,
}

pub(super) enum CommandState {
    /// It runs, or its end was not reported yet.
    Running(Box<BackgroundProcess>),
    /// Its end was reported to the model.
    Ended(ServerExit),
}

impl BackgroundCommands {
    pub(super) fn lock(&self) -> MutexGuard<'_, CommandList> {
        self.commands.lock()
    }

    /// Ends all commands in parallel. Returns the changes of protected paths, with the remedy of each.
    pub fn end_all(&self) -> Vec<UndoneChange> {
        let CommandList(commands) = std::mem::take(&mut *self.lock());
        let processes = commands.into_iter().filter_map(|command| match command.state {
            CommandState::Running(process) => Some(*process),
            CommandState::Ended(_) => None,
        });
        background::end_all(processes.collect())
    }
}

impl Drop for BackgroundCommands {
    fn drop(&mut self) {
        for change in self.end_all() {
            log::warn!(target: "sandbox", "{}", describe_change(&change.path, &change.remedy));
        }
    }
}

/// Describes a change of the protected `path` by a background command, and its remedy.
pub fn describe_change(path: &Path, remedy: &io::Result<Remedy>) -> String {
    let text = format!("a background command changed `{}`, which is protected", path.display());
    match remedy {
        Ok(_) => format!("{text}: it was undone"),
        Err(error) => format!("{text}, and that could not be undone: {error}"),
    }
}

impl CommandList {
    /// Starts `command` by `start`, and returns its id.
    ///
    /// # Errors
    /// Too many commands are running, or the error of `start`.
    pub(super) fn start(
        &mut self,
        command: &str,
        start: impl FnOnce() -> Result<BackgroundProcess, ToolError>,
    ) -> Result<String, ToolError> {
        let mut running = Vec::new();
        for other in &mut self.0 {
            if let CommandState::Running(process) = &mut other.state
                && process.exit().is_none()
            {
                running.push(other.id.as_str());
            }
        }
        if running.len() >= MAX_RUNNING_COMMANDS {
            return Err(format!(
                "not run: at most {MAX_RUNNING_COMMANDS} commands can run in the background; end one with `{PROCESS}`: {}",
                running.join(", ")
            )
            .into());
        }
        let process = start()?;
        let id = format!("{}-{}", short_name(command), self.0.len() + 1);
        self.0.push(BackgroundCommand {
            id: id.clone(),
            command: command.to_owned(),
            state: CommandState::Running(Box::new(process)),
        });
        Ok(id)
    }

    /// The command that has this id.
    ///
    /// # Errors
    /// There is none; the error names those that there are.
    pub(super) fn find(&mut self, id: &str) -> Result<&mut BackgroundCommand, String> {
        match self.0.iter().position(|command| command.id == id) {
            Some(index) => Ok(&mut self.0[index]),
            None => Err(self.describe_unknown_id(id)),
        }
    }

    fn describe_unknown_id(&self, id: &str) -> String {
        let ids: Vec<&str> = self.0.iter().map(|command| command.id.as_str()).collect();
        if ids.is_empty() {
            format!(
                "there is no background command `{id}`: this turn has started none, and those of earlier turns have ended"
            )
        } else {
            format!(
                "there is no background command `{id}` in this turn; there are {}",
                ids.join(", ")
            )
        }
    }
}

/// The name of the program that `command` seems to start, for an id.
fn short_name(command: &str) -> String {
    let word = command.split_whitespace().next().unwrap_or_default();
    let name = word.rsplit('/').next().unwrap_or_default();
    let is_plain =
        |character: &char| character.is_ascii_alphanumeric() || "._-".contains(*character);
    let name: String = name.chars().filter(is_plain).take(MAX_NAME_CHARS).collect();
    if name.is_empty() { "command".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::describe_change;
    use nanobot_sandbox::Remedy;
    use std::io;
    use std::path::Path;

    #[test]
    fn a_change_that_is_still_there_is_not_called_undone() {
        let check = |remedy: io::Result<Remedy>, expect: &str| {
            let text = describe_change(Path::new("/x/.envrc"), &remedy);
            let (_, end) = text.split_once("`/x/.envrc`, which is protected").unwrap();
            assert_eq!(end, expect);
        };
        check(Ok(Remedy::Restored(None)), ": it was undone");
        let error = io::Error::other("no space");
        check(Err(error), ", and that could not be undone: no space");
    }
}
