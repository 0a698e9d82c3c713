//! The commands inside the sandbox of an agent's command: one prints a built-in skill, and all others are refused.

use super::skill;
use crate::cli::CliCommand;
use crate::cli::cron::{CronAddArgs, CronCommand};
use crate::options::job::ScheduleFlags;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_cron::schedule::parse_period;
use nanobot_os::terminal::Terminal;
use serde_json::{Value, json};

/// Prints a file of a built-in skill, if that is the command.
///
/// # Errors
/// Status 77 for every other command.
pub(crate) fn run(command: &CliCommand, terminal: Terminal) -> Result<Exit> {
    if let CliCommand::Skill { command } = command
        && let Some(exit) = skill::run_in_sandbox(command, terminal)
    {
        return exit;
    }
    if let CliCommand::Cron { command } = command
        && !matches!(command, CronCommand::Heartbeat(_))
    {
        let cause = "`nanobot cron` cannot run in the agent's sandbox: the tool `cron` does it";
        let hint = format!("call the tool `cron` with {}", cron_tool_arguments(command));
        return Err(fail(Exit::Refused, cause).with_hint(hint));
    }
    Err(fail(Exit::Refused, "nanobot cannot run in the agent's sandbox, which has no network and no access to nanobot's files")
        .with_hint("the agent's tools: `spawn` to delegate a task, `cron` for reminders, `web_fetch` and the file tools for the rest"))
}

/// The arguments of the tool `cron` with the same effect as `command`, as far as the tool supports it.
fn cron_tool_arguments(command: &CronCommand) -> Value {
    match command {
        CronCommand::Add(arguments) => {
            let CronAddArgs { name, message, flags, .. } = &**arguments;
            let ScheduleFlags { cron, tz, every, at, .. } = &flags.settings.schedule;
            let period = every.as_deref().and_then(|every| parse_period(every).ok());
            let mut tool_arguments = json!({
                "action": "add", "message": message, "name": name, "cron_expr": cron, "tz": tz,
                "every_seconds": period.map(|period| period.as_secs()), "at": at,
            });
            if let Some(members) = tool_arguments.as_object_mut() {
                members.retain(|_, value| !value.is_null());
            }
            tool_arguments
        }
        CronCommand::Remove { jobs } => json!({ "action": "remove", "job_id": jobs.first() }),
        _ => json!({ "action": "list" }),
    }
}
