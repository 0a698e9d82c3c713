//! The list of the background commands of a turn.

use nanobot_config::policy::tool_names::PROCESS;
use nanobot_os::sync::IgnorePoison;
use nanobot_sandbox::UndoneChange;
use nanobot_sandbox::process::background::{self, BackgroundProcess};
use nanobot_sandbox::process::server::ServerExit;
use std::sync::{Mutex, MutexGuard};

/// Maximum number of commands that run in the background at a time.
const MAX_RUNNING_COMMANDS: usize = 8;
/// Maximum length of the name in an id.
const MAX_NAME_CHARS: usize = 16;

/// The background commands of a turn. Dropping this ends them.
#[derive(Default)]
pub struct BackgroundCommands {
    commands: Mutex<Vec<BackgroundCommand>>,
}

/// A command that was started in the background.
pub(super) struct BackgroundCommand {
    pub(super) id: String,
    pub(super) command: String,
    pub(super) state: CommandState,
}

pub(super) enum CommandState {
    Running(Box<BackgroundProcess>),
    /// Its end was reported to the model.
    Ended(ServerExit),
}

impl BackgroundCommands {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<BackgroundCommand>> {
        self.commands.lock().ignore_poison()
    }

    /// Ends all commands in parallel. Returns the changes of protected paths that were undone.
    pub fn end_all(&self) -> Vec<UndoneChange> {
        let commands = std::mem::take(&mut *self.lock());
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
            let path = change.path.display();
            log::warn!(target: "sandbox", "a background command changed `{path}`, which was undone");
        }
    }
}

/// Checks that one more command can be started.
///
/// # Errors
/// Too many are running.
pub(super) fn check_count(commands: &mut [BackgroundCommand]) -> Result<(), String> {
    let mut running = Vec::new();
    for command in commands {
        if let CommandState::Running(process) = &mut command.state
            && process.exit().is_none()
        {
            running.push(command.id.as_str());
        }
    }
    if running.len() < MAX_RUNNING_COMMANDS {
        Ok(())
    } else {
        Err(format!(
            "not run: at most {MAX_RUNNING_COMMANDS} commands can run in the background; end one with `{PROCESS}`: {}",
            running.join(", ")
        ))
    }
}

/// Adds a command that was started. Returns its id.
pub(super) fn add(
    commands: &mut Vec<BackgroundCommand>,
    command: &str,
    process: BackgroundProcess,
) -> String {
    let id = format!("{}-{}", short_name(command), commands.len() + 1);
    commands.push(BackgroundCommand {
        id: id.clone(),
        command: command.to_owned(),
        state: CommandState::Running(Box::new(process)),
    });
    id
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

/// The error for an id that no command has.
pub(super) fn unknown_id(id: &str, commands: &[BackgroundCommand]) -> String {
    let ids: Vec<&str> = commands.iter().map(|command| command.id.as_str()).collect();
    if ids.is_empty() {
        format!(
            "there is no background command `{id}`: this turn has started none, and those of earlier turns have ended"
        )
    } else {
        format!("there is no background command `{id}` in this turn; there are {}", ids.join(", "))
    }
}
