//! Runs a program with arguments on standard input, in the sandbox of commands.

use super::{ExecTool, start_error};
use crate::{ToolError, ToolOutput};
use nanobot_sandbox::SandboxSpec;
use nanobot_sandbox::process::{self, CommandSpec, SigningListener, TextOutput};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program to run instead of a shell command.
#[derive(Clone, Copy, Debug)]
pub struct ProgramCall<'a> {
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
        let ProgramCall { program, arguments, input, timeout } = call;
        let command = program.display().to_string();
        self.check(&command)?;
        let (directory, _) = self.files.open_directory(".")?;
        let sandbox = self.configured_sandbox_spec(false)?;
        let private = sandbox.as_ref().and_then(SandboxSpec::private);
        let spec = CommandSpec {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            directory: format!("/proc/self/fd/{}", directory.as_raw_fd()).into(),
            env: private.map_or_else(|| self.env.clone(), |path| self.sandbox_environment(path)),
            timeout: timeout.unwrap_or(self.timeout),
            capture_bytes: self.capture_bytes,
            sandbox,
            input: Some(input.as_bytes().to_vec()),
        };
        self.run_to_end(&command, spec, None, on_output)
    }

    /// Runs a command to its end. `command` is its text for explanations. Until the end `signing` signs for it.
    pub(super) fn run_to_end(
        &self,
        command: &str,
        mut spec: CommandSpec,
        signing: Option<SigningListener>,
        on_output: &mut dyn FnMut(&str),
    ) -> Result<ToolOutput, ToolError> {
        let timeout = spec.timeout;
        let mut output = TextOutput::new(spec.capture_bytes, &self.temp_parents);
        // The output is captured as text.
        spec.capture_bytes = 0;
        let mut run = || process::run(&spec, &mut |bytes| on_output(&output.feed(bytes)));
        let result = self.files.record_command(&mut run);
        // From here on nothing is signed for it.
        drop(signing);
        let result = result.map_err(|error| start_error(&error, timeout))?;
        on_output(&output.end());
        self.to_output(command, result, &output.take(), timeout)
    }
}
