//! Runs a program with arguments on standard input, in the sandbox of commands.

use super::ExecTool;
use crate::{ToolError, ToolOutput};
use nanobot_sandbox::SandboxSpec;
use nanobot_sandbox::process::CommandSpec;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program to run instead of a shell command.
#[derive(Clone, Copy, Debug)]
pub struct ProgramCall<'a> {
    /// The id of the tool call; empty if there is none.
    pub call_id: &'a str,
    pub program: &'a Path,
    pub arguments: &'a [&'a str],
    pub input: &'a str,
    /// `None` for the time limit of commands.
    pub timeout: Option<Duration>,
}

impl ExecTool {
    /// Lets the sandbox read and run `programs`, which may lie in directories that are otherwise closed.
    pub fn with_programs(mut self, programs: Vec<PathBuf>) -> Self {
        self.programs = programs;
        self
    }

    /// Runs a program as a command is run: same sandbox, environment, limits and explanations.
    ///
    /// # Errors
    /// As [`crate::Tool::run`].
    pub fn run_program(
        &self,
        call: ProgramCall<'_>,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        let ProgramCall { call_id, program, arguments, input, timeout } = call;
        let command = program.display().to_string();
        self.prepare(&command)?;
        let (directory, _) = self.files.open_directory(".")?;
        let sandbox = self.sandbox_of_command(false)?;
        let private = sandbox.as_ref().and_then(SandboxSpec::private);
        let spec = CommandSpec {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            directory: format!("/proc/self/fd/{}", directory.as_raw_fd()).into(),
            env: self.call_environment(private, call_id),
            timeout: timeout.unwrap_or(self.timeout),
            capture_bytes: self.capture_bytes,
            sandbox,
            input: Some(input.as_bytes().to_vec()),
        };
        self.run_to_end(&command, spec, None, on_output)
    }
}
