//! `nanobot policy`: shows a run's permissions and their origin, and tests that they are enforced.

use crate::cli::policy::{ExplainArgs, PolicyCommand};
use crate::ops::context::Context;
use crate::ops::policy_explanation;
use crate::ops::sandbox_test::SandboxTest;
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_config::policy::PolicyDecision;
use serde_json::{Value, json};

/// Runs `nanobot policy`.
pub fn run(ctx: &Context, command: &PolicyCommand) -> Result<Exit> {
    match command {
        PolicyCommand::Explain(explain_args) => explain(ctx, explain_args),
        PolicyCommand::Check { grants, json } => test_sandbox(ctx, grants, *json),
    }
}

fn explain(ctx: &Context, explain_args: &ExplainArgs) -> Result<Exit> {
    let ExplainArgs { tool, arguments, grants, session, json } = explain_args;
    let Some(tool) = tool else {
        return explain_all(ctx, grants, session.as_deref(), *json).map(|()| Exit::Answered);
    };
    let call = policy_explanation::explain_call(ctx, grants, tool, arguments)?;
    let (exit, decision, reason, flag) = match call.decision {
        PolicyDecision::Allow(rule) => (Exit::Answered, "allowed", rule, None),
        // This is about a run of `agent` that cannot prompt: it refuses a call that needs approval.
        PolicyDecision::Ask(refusal) | PolicyDecision::Deny(refusal) => {
            (Exit::Refused, "refused", refusal.message, refusal.suggested_flag)
        }
    };
    if *json {
        ctx.terminal.print_json(&json!({
            "tool": tool, "arguments": call.arguments, "decision": decision, "why": reason, "grant": flag
        }))?;
        return Ok(exit);
    }
    let grant = flag.map(|flag| format!("grant: {flag}\n")).unwrap_or_default();
    ctx.terminal.print(&format!("{decision}: {reason}\n{grant}"))?;
    Ok(exit)
}

fn explain_all(ctx: &Context, grants: &Grants, session: Option<&str>, as_json: bool) -> Result<()> {
    let rows = policy_explanation::describe_policy(ctx, grants, session)?;
    if as_json {
        let rows = rows.iter().map(|(name, value)| json!({ "what": name, "value": value }));
        return ctx.terminal.print_json(&rows.collect::<Value>());
    }
    let rows = rows.iter().map(|(name, value)| format!("{name:<11} {value}\n"));
    ctx.terminal.print(&rows.collect::<String>())
}

fn test_sandbox(ctx: &Context, grants: &Grants, as_json: bool) -> Result<Exit> {
    let test = SandboxTest::new(ctx, grants)?;
    let missing_reason = test.missing_layers();
    if as_json {
        ctx.terminal.print_json(&json!({ "namespaces": missing_reason.is_none() }))?;
    } else {
        ctx.terminal.print(&match missing_reason {
            None => "commands run in namespaces of their own, under Landlock and seccomp\n".into(),
            Some(reason) => format!(
                "commands run under Landlock and seccomp alone, and not with `--write`: this system allows no namespaces ({reason})\n"
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
