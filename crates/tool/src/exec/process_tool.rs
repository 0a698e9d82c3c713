//! The `process` tool: reads the output of commands that `exec` has started in the background, writes to their input, and
//! ends them. They end with the turn at the latest.

use super::background_commands::{BackgroundCommand, BackgroundCommands, CommandState};
use super::output::format_output;
use super::withheld::undone_refusal;
use super::{CommandEnd, EndedCommand, ExecTool, Explanation, NOT_EXECUTABLE_STATUS, start_error};
use crate::{Call, Tool, ToolError, ToolOutput, dangerous_command};
use nanobot_base::message::{ToolSpec, without_blanks};
use nanobot_config::policy::tool_names::PROCESS;
use nanobot_os::signal::Deadline;
use nanobot_sandbox::process::CommandSpec;
use nanobot_sandbox::process::background::{self, BackgroundProcess};
use nanobot_sandbox::process::server::ServerExit;
use serde_json::Value;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The wait for output unless the model asks for another one, in seconds.
const DEFAULT_WAIT_SECS: u64 = 1;
/// The time that a command may take to read its input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(10);

impl ExecTool {
    /// Starts `command` and returns its id.
    pub(super) fn start_in_background(
        &self,
        command: &str,
        spec: &CommandSpec,
    ) -> Result<ToolOutput, ToolError> {
        let Some(commands) = &self.background else {
            return Err("not run: commands cannot be started in the background here".into());
        };
        let id = commands.lock().start(command, || {
            self.files.begin_command();
            background::start(spec, &self.temp_parents)
                .map_err(|error| start_error(&error, spec.timeout))
        })?;
        Ok(format!(
            "Started in the background as `{id}`. It ends with your turn, or when `{PROCESS}` ends it."
        )
        .into())
    }

    /// The text about the end of a background command, in the form of other commands, and true if it failed.
    fn describe_end(&self, command: &str, output: &str, exit: ServerExit) -> (String, bool) {
        let (mut text, end) = match exit {
            ServerExit::Status(0) => ("Exited with status 0".to_owned(), CommandEnd::Success),
            ServerExit::Status(NOT_EXECUTABLE_STATUS) => {
                (format!("Exit code: {NOT_EXECUTABLE_STATUS}"), CommandEnd::NotExecutable)
            }
            ServerExit::Status(code) => (format!("Exit code: {code}"), CommandEnd::Failure),
            ServerExit::Signal(signal) => {
                (format!("Killed by signal {signal}"), CommandEnd::Failure)
            }
            ServerExit::Unknown => ("It was killed".into(), CommandEnd::Failure),
        };
        let ended = EndedCommand::new(command, output, end);
        let explanation = self.explain_refused_hosts().or_else(|| self.explain_failure(&ended));
        if let Some(Explanation { message, .. }) = explanation {
            text.push_str(&format!("\n{message}"));
        }
        (text, end != CommandEnd::Success)
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
            parameters: const { &without_blanks(br#"{ "type": "object", "required": ["id"], "properties": {
                "id": { "type": "string" },
                "input": { "type": "string", "description": "text for its stdin; end a line with \\n" },
                "end": { "type": "boolean" },
                "wait": { "type": "integer", "maximum": 60, "description": "seconds; default 1" }
            } }"#) }.into(),
        };
        Self { spec, exec, commands }
    }
}

impl Tool for ProcessTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let Call { arguments, on_output, .. } = call;
        let id = arguments["id"].as_str().unwrap_or_default();
        let input = arguments["input"].as_str();
        self.check_call(arguments)?;
        let mut commands = self.commands.lock();
        let BackgroundCommand { command, state, .. } = commands.find(id)?;
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
        let wait_secs = arguments["wait"].as_u64().unwrap_or(DEFAULT_WAIT_SECS);
        if arguments["end"] == true {
            process.end();
        } else if problem.is_none() {
            // If the run is cancelled, the result is the output so far.
            drop(process.wait(Duration::from_secs(wait_secs), input.is_none()));
        }
        let exit = process.exit();
        let output = process.take_output();
        let undone = process.restore_protected();
        let mut text = format_output(&output);
        if !(output.head.is_empty() && output.tail.is_empty()) {
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
            let refusal = undone_refusal(&self.exec.files.file_scope, &text, &undone);
            return Err(ToolError::DeniedDuringCall { refusal, withheld: None });
        }
        Ok(ToolOutput { command_failed, ..text.into() })
    }

    fn check_call(&self, arguments: &Value) -> Result<(), ToolError> {
        let input = arguments["input"].as_str().unwrap_or_default();
        Ok(dangerous_command::check(input, "not written")?)
    }
}

/// Writes `text` to the input of the command. Returns the reason if it did not read all of it.
fn write_input(process: &mut BackgroundProcess, text: &str) -> Option<String> {
    match process.write(text.as_bytes(), Deadline::after(INPUT_TIMEOUT)) {
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
