//! `nanobot policy`: shows a run's permissions and their origin, and tests that they are enforced.

use crate::cli::policy::{ExplainArgs, PolicyCommand};
use crate::ops::context::Context;
use crate::ops::policy_explanation::{self, ExplainedCall};
use crate::ops::sandbox_test::SandboxTest;
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_config::policy::PolicyDecision;
use serde_json::{Value, json};

/// Runs `nanobot policy`.
pub fn run(ctx: &Context, command: &PolicyCommand) -> Result<Exit> {
    match command {
        PolicyCommand::Explain(arguments) => explain(ctx, arguments),
        PolicyCommand::Test { grants, json } => test_sandbox(ctx, grants, *json),
    }
}

fn explain(ctx: &Context, arguments: &ExplainArgs) -> Result<Exit> {
    let ExplainArgs { tool, arguments, grants, session, json } = arguments;
    let Some(tool) = tool else {
        return explain_all(ctx, grants, session.as_deref(), *json);
    };
    let ExplainedCall { arguments, decision } =
        policy_explanation::explain_call(ctx, grants, tool, arguments)?;
    let (exit, decision, why, grant) = match decision {
        PolicyDecision::Allow(rule) => (Exit::Answered, "allowed", rule, None),
        PolicyDecision::Ask(refusal) | PolicyDecision::Deny(refusal) => {
            (Exit::Refused, "refused", refusal.message, refusal.suggested_flag)
        }
    };
    let line = match (json, &grant) {
        (true, _) => {
            json!({ "tool": tool, "arguments": arguments, "decision": decision, "why": why, "grant": grant })
                .to_string()
        }
        (false, Some(flag)) => format!("{decision}: {why}\ngrant: {flag}"),
        (false, None) => format!("{decision}: {why}"),
    };
    ctx.terminal.print(&format!("{line}\n"))?;
    Ok(exit)
}

fn explain_all(
    ctx: &Context,
    grants: &Grants,
    session: Option<&str>,
    as_json: bool,
) -> Result<Exit> {
    let rows = policy_explanation::describe_policy(ctx, grants, session)?;
    if as_json {
        let rows = rows.iter().map(|(name, value)| json!({ "what": name, "value": value }));
        ctx.terminal.print_json(&rows.collect::<Value>())?;
        return Ok(Exit::Answered);
    }
    let rows = rows.iter().map(|(name, value)| format!("{name:<11} {value}\n"));
    ctx.terminal.print(&rows.collect::<String>())?;
    Ok(Exit::Answered)
}

fn test_sandbox(ctx: &Context, grants: &Grants, as_json: bool) -> Result<Exit> {
    let test = SandboxTest::new(ctx, grants)?;
    let missing = test.missing_layers();
    if as_json {
        ctx.terminal.print_json(&json!({ "namespaces": missing.is_none() }))?;
    } else {
        ctx.terminal.print(&match missing {
            None => "commands run in namespaces of their own, under Landlock and seccomp\n".into(),
            Some(why) => format!(
                "commands run under Landlock and seccomp alone, and not with `--write`: this system allows no namespaces ({why})\n"
            ),
        })?;
    }
    let results = test.run()?;
    if as_json {
        ctx.terminal.print_json_lines(results.iter().map(|result| {
            json!({ "what": result.operation, "held": result.is_refused, "found": result.outcome })
        }))?;
    } else {
        let lines = results.iter().map(|result| {
            let status = if result.is_refused { "ok" } else { "FAILED" };
            format!("{status:6}  a command cannot {}: {}\n", result.operation, result.outcome)
        });
        ctx.terminal.print(&lines.collect::<String>())?;
    }
    let all_refused = results.iter().all(|result| result.is_refused);
    Ok(if all_refused { Exit::Answered } else { Exit::Failed })
}
