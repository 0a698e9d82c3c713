//! Runs a hook of the user in the sandbox of commands.

use super::withheld::explain_undone;
use super::{ExecTool, start_error};
use nanobot_sandbox::SandboxSpec;
use nanobot_sandbox::process::{self, CommandResult, CommandSpec};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A hook to run instead of a command of the model.
#[derive(Debug)]
pub struct HookCall<'a> {
    /// A shell command.
    pub command: &'a str,
    pub input: Vec<u8>,
    /// Variables in addition to those of a command.
    pub variables: Vec<(String, String)>,
    pub timeout: Duration,
    /// The number of bytes to keep of the output.
    pub capture_bytes: usize,
}

/// A hook that has run.
#[derive(Debug)]
pub struct FinishedHook {
    pub result: CommandResult,
    /// The beginning of standard error.
    pub stderr: Vec<u8>,
    /// The description of its changes of protected files that were undone.
    pub undone: Option<String>,
}

impl ExecTool {
    /// Runs a hook like a command: in the same directory and sandbox, with the same environment and record of changes.
    ///
    /// # Errors
    /// The hook cannot be started, for this reason.
    pub fn run_hook(&self, hook: HookCall<'_>) -> Result<FinishedHook, String> {
        self.require_sandbox().map_err(|refusal| refusal.message)?;
        let (directory, _) =
            self.files.open_directory(".").map_err(|error| error.message().to_owned())?;
        let sandbox = self.sandbox_of_command(false)?;
        let private = sandbox.as_ref().and_then(SandboxSpec::private);
        let mut env =
            private.map_or_else(|| self.env.clone(), |path| self.sandbox_environment(path));
        env.extend(hook.variables);
        let spec = CommandSpec {
            program: self.shell.path().into(),
            arguments: self.shell.arguments(hook.command.to_owned()),
            directory: format!("/proc/self/fd/{}", directory.as_raw_fd()).into(),
            env,
            timeout: hook.timeout,
            capture_bytes: hook.capture_bytes,
            sandbox,
            input: Some(hook.input),
        };
        let result = self.files.record_command(|| process::run_split_stderr(&spec));
        let (result, stderr) =
            result.map_err(|error| start_error(&error, hook.timeout).message().to_owned())?;
        let scope = &self.files.file_scope;
        let undone =
            (!result.undone.is_empty()).then(|| explain_undone(scope, &result.undone).message);
        Ok(FinishedHook { result, stderr, undone })
    }
}
