//! Calls of servers that may change files of the user. The rules for start-up and instruction files are those of commands: a server's
//! results are untrusted content, so such a change needs permission unless the server is trusted.

use super::call::McpToolContext;
use super::result::MAX_NAME_CHARS;
use crate::{ToolError, ToolOutput, sandbox_spec};
use nanobot_base::message::plain_text;
use nanobot_config::policy::Refusal;
use nanobot_config::policy::file_scope::{FileAccess, FileScope};
use nanobot_mcp::sanitize;
use nanobot_sandbox::process;
use nanobot_sandbox::{Remedy, UndoneChange};
use std::time::Duration;

/// The longest wait for commands that may change the same files.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Makes a call of `server`, and undoes the changes that it may not make.
pub(super) fn guard_changes(
    context: &McpToolContext,
    server: &str,
    call: impl FnOnce() -> Result<ToolOutput, ToolError>,
) -> Result<ToolOutput, ToolError> {
    let paths = context.catalog.changeable_paths(server);
    let Some(paths) = paths.filter(|paths| !paths.shared.is_empty()) else {
        return call();
    };
    let name = sanitize::single_line(server, MAX_NAME_CHARS);
    let scope = &context.files.file_scope;
    let not_called = |error| format!("server `{name}` was not called: {error}");
    let mut sandbox = sandbox_spec::for_changes_of_server(paths, scope).map_err(not_called)?;
    let is_external = !context.catalog.is_trusted(server);
    sandbox.project_files.changed = context.files.changed_startup_files();
    sandbox.project_files.access = context.files.project_file_access(is_external, true);
    let guarded_call = process::guard_changes(&sandbox, LOCK_TIMEOUT, call);
    let (result, undone) = guarded_call.map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => {
            format!("server `{name}` was not called: a command that may change the same files still runs; try again")
        }
        _ => not_called(error),
    })?;
    if undone.is_empty() {
        return result;
    }
    let mut refusal = explain(scope, &name, &undone);
    let text = match &result {
        Ok(output) => plain_text(&output.parts),
        Err(error) => error.message().to_owned(),
    };
    refusal.message.push_str(&format!("\n\n{text}"));
    Err(ToolError::DeniedDuringCall { refusal, withheld: None })
}

/// Explains the changes that were undone.
fn explain(scope: &FileScope, server: &str, undone: &[UndoneChange]) -> Refusal {
    let denial = |change: &UndoneChange| scope.find_denial(&change.path, FileAccess::Write);
    let lines = undone.iter().map(|change| {
        let path = change.path.display();
        let remedy = match &change.remedy {
            Ok(Remedy::Restored(None)) => "so it was put back".to_owned(),
            Ok(Remedy::Restored(Some(kept_file))) => {
                format!(
                    "so it was put back; what was written there is in `{}`",
                    kept_file.display()
                )
            }
            Ok(Remedy::SetAside(new_path)) => {
                format!("so it was renamed to `{}`", new_path.display())
            }
            Ok(Remedy::LinesRemoved { whole, .. }) => {
                format!("so parts of it were taken out; the whole file is `{}`", whole.display())
            }
            Err(error) => format!("and it could not be put back ({error}): tell the user"),
        };
        let reason = match denial(change) {
            Some(denial) => format!("which the rule `{}` denies", denial.rule),
            None => "which programs and agents read on their own".into(),
        };
        format!("MCP server `{server}` changed `{path}`, {reason}, {remedy}")
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    if undone.iter().all(|change| denial(change).is_some()) {
        return Refusal::new(lines);
    }
    let flag = "--allow startup";
    Refusal {
        message: format!("{lines}; the user can allow such changes with `{flag}`"),
        suggested_flag: Some(flag.into()),
        names_flag: true,
    }
}
