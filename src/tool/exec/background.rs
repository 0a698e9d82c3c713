//! Commands in the background: `exec` starts them, and the `process` tool reads their output, writes to their input, and ends
//! them. They end with the turn at the latest.

use super::{CommandEnd, ExecTool, format_output, start_error};
use crate::message::ToolSpec;
use crate::policy::Refusal;
use crate::policy::tool_names::PROCESS;
use crate::sys::process::CommandSpec;
use crate::sys::process::background::{self, BackgroundProcess, NewOutput};
use crate::sys::process::server::ServerExit;
use crate::sys::sandbox::UndoneChange;
use crate::sys::signal::Deadline;
use crate::sys::sync::IgnorePoison;
use crate::tool::dangerous_command::dangerous_command;
use crate::tool::{CallEffect, Tool, ToolError, ToolOutput};
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum number of commands that run in the background at a time.
const MAX_RUNNING: usize = 8;
/// Maximum wait that a model may ask for, in seconds.
const MAX_WAIT_SECS: u64 = 60;
/// The wait for output unless the model asks for another one, in seconds.
const DEFAULT_WAIT_SECS: u64 = 1;
/// The time that a command may take to read its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of the name in an id.
const MAX_NAME_CHARS: usize = 16;

/// The background commands of a turn. Dropping this ends them.
#[derive(Default)]
pub struct BackgroundCommands {
    commands: Mutex<Vec<BackgroundCommand>>,
}

struct BackgroundCommand {
    id: String,
    command: String,
    state: CommandState,
}

enum CommandState {
    Running(BackgroundProcess),
    /// The model was told its end.
    Ended(ServerExit),
}

impl BackgroundCommands {
    /// Ends all commands in parallel. Returns the changes of protected paths that were undone.
    pub fn end_all(&self) -> Vec<UndoneChange> {
        let commands = std::mem::take(&mut *self.commands.lock().ignore_poison());
        let processes = commands.into_iter().filter_map(|it| match it.state {
            CommandState::Running(process) => Some(process),
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

impl ExecTool {
    /// Starts `command` and returns its id.
    pub(super) fn start_in_background(
        &self,
        command: &str,
        spec: &CommandSpec,
    ) -> Result<ToolOutput, ToolError> {
        let Some(commands) = &self.background else {
            return Err(
                "not run: this run, or a permission for one call, has no background commands"
                    .into(),
            );
        };
        let mut commands = commands.commands.lock().ignore_poison();
        let mut running = Vec::new();
        for it in commands.iter_mut() {
            if let CommandState::Running(process) = &mut it.state
                && process.exit().is_none()
            {
                running.push(it.id.as_str());
            }
        }
        if running.len() >= MAX_RUNNING {
            let running = running.join(", ");
            return Err(format!(
                "not run: at most {MAX_RUNNING} commands can run in the background; end one with `{PROCESS}`: {running}"
            )
            .into());
        }
        let process = background::start(spec, &self.temp_parents)
            .map_err(|error| start_error(&error, spec.timeout))?;
        let id = format!("{}-{}", short_name(command), commands.len() + 1);
        commands.push(BackgroundCommand {
            id: id.clone(),
            command: command.to_owned(),
            state: CommandState::Running(process),
        });
        Ok(format!(
            "Started in the background as `{id}`. It ends with your turn, or when `{PROCESS}` ends it."
        )
        .into())
    }

    /// The text about the end of a background command, as after other commands, and true if it failed.
    fn describe_end(&self, command: &str, output: &str, exit: ServerExit) -> (String, bool) {
        let (mut text, end) = match exit {
            ServerExit::Status(0) => ("Exited with status 0".to_owned(), CommandEnd::Success),
            ServerExit::Status(126) => ("Exit code: 126".into(), CommandEnd::NotExecutable),
            ServerExit::Status(code) => (format!("Exit code: {code}"), CommandEnd::Failure),
            ServerExit::Signal(signal) => {
                (format!("Killed by signal {signal}"), CommandEnd::Failure)
            }
            ServerExit::Unknown => ("It was killed".into(), CommandEnd::Failure),
        };
        if let Some((message, _)) = self.explain_failure(command, output, end) {
            text.push_str(&format!("\n{message}"));
        }
        (text, end != CommandEnd::Success)
    }
}

/// The name of the program that `command` seems to start, for an id.
fn short_name(command: &str) -> String {
    let word = command.split_whitespace().next().unwrap_or_default();
    let name = word.rsplit('/').next().unwrap_or_default();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let name: String = name.chars().filter(is_plain).take(MAX_NAME_CHARS).collect();
    match name.is_empty() {
        true => "command".into(),
        false => name,
    }
}

/// The `process` tool.
pub struct ProcessTool {
    spec: ToolSpec,
    /// The tool that starts the commands.
    exec: Arc<ExecTool>,
    commands: Arc<BackgroundCommands>,
}

impl ProcessTool {
    /// Creates the tool for the commands that `exec` starts, which has the same `commands`.
    pub fn new(exec: Arc<ExecTool>, commands: Arc<BackgroundCommands>) -> Self {
        let spec = ToolSpec {
            name: PROCESS.into(),
            description: "Read the new output of a background command of `exec`, after writing to its stdin or ending it"
                .into(),
            parameters: json!({ "type": "object", "required": ["id"], "properties": {
                "id": { "type": "string", "minLength": 1 },
                "input": { "type": "string", "description": "written to stdin as it is; end a line with \\n" },
                "end": { "type": "boolean" },
                "wait": { "type": "integer", "minimum": 0, "maximum": MAX_WAIT_SECS, "description": "seconds to wait for output or the end; default 1" },
            } })
            .into(),
        };
        Self {
            spec,
            exec,
            commands,
        }
    }
}

impl Tool for ProcessTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value) -> CallEffect {
        // Inputs are written in the order of the calls.
        CallEffect::Writes
    }

    fn run(
        &self,
        arguments: &Value,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        let id = arguments["id"].as_str().unwrap_or_default();
        let input = arguments["input"].as_str();
        if let Some(accident) = input.and_then(dangerous_command) {
            return Err(Refusal::new(format!(
                "not written: this {accident}; if that is intended, the user must do it"
            ))
            .into());
        }
        let mut commands = self.commands.commands.lock().ignore_poison();
        let Some(found) = commands.iter_mut().find(|it| it.id == id) else {
            return Err(unknown_id(id, &commands).into());
        };
        let BackgroundCommand { command, state, .. } = found;
        let process = match state {
            CommandState::Running(process) => process,
            CommandState::Ended(exit) if input.is_some() => {
                return Err(format!("nothing was written: `{id}` has ended ({exit})").into());
            }
            CommandState::Ended(exit) => {
                return Ok(format!("`{id}` has ended ({exit}); there is no more output").into());
            }
        };
        let problem = input.and_then(|text| write_input(process, text));
        let wait = arguments["wait"].as_u64().unwrap_or(DEFAULT_WAIT_SECS);
        if arguments["end"] == true {
            process.end();
        } else if problem.is_none() {
            // If the run is cancelled, the result is what there is so far.
            drop(process.wait(Duration::from_secs(wait), input.is_none()));
        }
        let exit = process.exit();
        let NewOutput {
            head,
            tail,
            omitted_bytes,
            kept,
        } = process.take_output();
        let undone = process.restore_protected();
        let output = (&head[..], &tail[..], omitted_bytes);
        let mut text = format_output(output, kept.as_ref(), self.exec.capture_bytes);
        if !(head.is_empty() && tail.is_empty()) {
            on_output(&text);
        }
        let mut command_failed = false;
        match exit {
            None => text.push_str("\n(still running)"),
            Some(exit) => {
                let (end, failed) = self.exec.describe_end(command, &text, exit);
                // A command that was ended has not failed.
                command_failed = failed && arguments["end"] != true;
                text.push_str(&format!("\n{end}"));
                *state = CommandState::Ended(exit);
            }
        }
        if let Some(problem) = problem {
            text.push_str(&format!("\n({problem})"));
        }
        if !undone.is_empty() {
            return Err(self.exec.undone_refusal(&text, &undone).into());
        }
        Ok(ToolOutput {
            command_failed,
            ..text.into()
        })
    }
}

/// Writes `text` to the input of the command. Returns the reason if it did not read all of it.
fn write_input(process: &mut BackgroundProcess, text: &str) -> Option<String> {
    match process.write(text, Deadline::after(INPUT_TIMEOUT)) {
        Ok(count) if count == text.len() => None,
        Ok(count) => Some(format!(
            "only {count} of {} bytes of the input were written: the command does not read it",
            text.len()
        )),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Some("nothing more can be written: the command has closed its input, or ended".into())
        }
        Err(error) => Some(format!("the input was not written: {error}")),
    }
}

fn unknown_id(id: &str, commands: &[BackgroundCommand]) -> String {
    let ids: Vec<&str> = commands.iter().map(|it| it.id.as_str()).collect();
    match ids.is_empty() {
        true => format!(
            "there is no background command `{id}`: this turn has started none, and those of earlier turns have ended"
        ),
        false => format!(
            "there is no background command `{id}` in this turn; there are {}",
            ids.join(", ")
        ),
    }
}
