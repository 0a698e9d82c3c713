//! Untracked instruction files that `git stash --include-untracked` removes. This is allowed, since `git stash pop` restores them.

use super::ExecTool;
use nanobot_sandbox::SandboxSpec;
use nanobot_sandbox::process::{self, CommandSpec};
use nanobot_sandbox::project_file_rules::{Callback, StashReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Prints the file `$NAME` of the newest stash, from its third parent, which has the untracked files.
const COMMAND: &str = "exec git cat-file blob \"refs/stash^3:./$NAME\"";
/// The time that git may take. Without an answer by then, the stash does not have the file.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum of bytes that are read of a file.
const MAX_FILE_BYTES: usize = 4 << 20;

impl ExecTool {
    /// Reads a file of the newest stash, in the sandbox of commands without write access.
    pub(super) fn stash_reader(&self, sandbox: &SandboxSpec) -> StashReader {
        let sandbox = sandbox.clone().read_only();
        let private = sandbox.private();
        let env = private.map_or_else(Vec::new, |path| self.sandbox_environment(path));
        Callback(Arc::new(move |path: &Path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let spec = CommandSpec {
                directory: path.parent()?.to_owned(),
                env: env.iter().cloned().chain([("NAME".into(), name)]).collect(),
                capture_bytes: MAX_FILE_BYTES,
                sandbox: Some(sandbox.clone()),
                ..CommandSpec::shell(COMMAND, TIMEOUT)
            };
            let (result, _) = process::run_split_stderr(&spec).ok()?;
            let is_whole =
                result.status.is_some_and(|status| status.success()) && result.omitted_bytes == 0;
            is_whole.then(|| [result.head, result.tail].concat())
        }))
    }
}
