//! Explains what a run with given permissions may do: in general, and for one call of a tool, which is not executed.

use crate::ops::context::Context;
use crate::ops::turn_setup::{self, TurnSetup};
use crate::options::grants::Grants;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::message::Origin;
use nanobot_config::policy::call_files::{file_access, files_of_call};
use nanobot_config::policy::tool_names::{APPLY_PATCH, SESSIONS};
use nanobot_config::policy::{Policy, PolicyDecision, Refusal, Sandbox, tool_names};
use nanobot_config::settings::LayeredConfig;
use nanobot_sandbox as sandbox;
use nanobot_store::session::{self, RecordedOrigin, Session};
use nanobot_tool::arguments::cast_and_check;
use nanobot_tool::{Tool, ToolError, cron};
use serde_json::{Value, json};
use std::path::Path;

/// The decision about a call.
pub(crate) struct ExplainedCall {
    pub(crate) arguments: Value,
    pub(crate) decision: PolicyDecision,
}

/// Decides about a call of `tool` in a run with these permissions. `arguments` are JSON, or the text of the argument that
/// the decision is about.
///
/// # Errors
/// There is no such tool, or it does not take these arguments.
pub(crate) fn explain_call(
    ctx: &Context,
    grants: &Grants,
    tool_name: &str,
    arguments: &str,
) -> Result<ExplainedCall> {
    let TurnSetup { toolbox, policy, .. } = build_setup(ctx, grants)?;
    if let Some(tool) = toolbox.find(tool_name) {
        let arguments = parse_arguments(arguments, &tool.spec().parameters)?;
        let decision = decide(&policy, tool, &arguments);
        return Ok(ExplainedCall { arguments, decision });
    }
    let decision = decide_absent_tool(&policy, grants, tool_name)?;
    if tool_name != "cron" || !matches!(decision, PolicyDecision::Allow(_)) {
        return Ok(ExplainedCall { arguments: json!(arguments), decision });
    }
    // The answer covers only what can be decided without a conversation.
    let schema = &cron::spec().parameters;
    let arguments = cast_and_check(schema, &parse_arguments(arguments, schema)?)
        .map_err(|error| fail(Exit::Usage, error))?;
    let decision = match policy.decide(tool_name, &arguments) {
        PolicyDecision::Allow(_) => decision,
        refusal => refusal,
    };
    Ok(ExplainedCall { arguments, decision })
}

fn build_setup(ctx: &Context, grants: &Grants) -> Result<TurnSetup> {
    turn_setup::build_without_turn(ctx, grants, false, true, Vec::new(), None)
}

/// The policy of a run with these permissions as rows of a name and a text, with the restrictions of the session.
///
/// # Errors
/// The settings or the session cannot be read.
pub(crate) fn describe_policy(
    ctx: &Context,
    grants: &Grants,
    session: Option<&str>,
) -> Result<Vec<(&'static str, String)>> {
    let policy = build_setup(ctx, grants)?.policy;
    let mut rows = policy.describe_for_people(&|path: &Path| ctx.paths.display(path));
    if let Some(key) = session {
        rows.push(("origin", describe_origin(ctx, key)?));
    }
    let config = ctx.load_config()?;
    let allowed_ranges = LayeredConfig::new(&config, &ctx.env).read(&["tools", "ssrfWhitelist"])?;
    for range in allowed_ranges.iter().filter_map(Value::as_array).flatten() {
        let range = range.as_str().unwrap_or_default();
        rows.push(("reached", format!("{range} (tools.ssrfWhitelist)")));
    }
    for (address, port) in &policy.explicit_addresses {
        let port = port.map(|port| format!(", port {port}")).unwrap_or_default();
        rows.push(("reached", format!("{address}{port} (--net)")));
    }
    Ok(rows)
}

/// Decides about a call of `tool`, as far as that is possible without making it.
fn decide(policy: &Policy, tool: &dyn Tool, call: &Value) -> PolicyDecision {
    let name = tool.spec().name.as_str();
    let rule = match policy.decide(name, call) {
        PolicyDecision::Allow(rule) => rule,
        refusal => return refusal,
    };
    // For paths, the access rules decide.
    if let Some(access) = file_access(name) {
        let mut roots = Vec::new();
        for file in files_of_call(name, call) {
            match policy.file_scope.decide(&file.path, access) {
                Ok(scoped_path) => roots.push(scoped_path.root),
                Err(refusal) => return PolicyDecision::Deny(refusal),
            }
        }
        roots.dedup();
        let mut reason = rule;
        for root in roots {
            let path = policy.file_scope.roots[root].path.display();
            reason.push_str(&format!("; it is inside `{path}`"));
        }
        return PolicyDecision::Allow(reason);
    }
    match tool.check_call(call) {
        Ok(()) => {}
        Err(
            ToolError::Denied(refusal)
            | ToolError::DeniedDuringCall { refusal, .. }
            | ToolError::Rejected(refusal),
        ) => {
            return PolicyDecision::Deny(refusal);
        }
        Err(
            ToolError::Failed(message)
            | ToolError::NothingRead(message)
            | ToolError::Declined(message),
        ) => {
            return PolicyDecision::Deny(Refusal::new(message));
        }
    }
    if name != "exec" {
        return PolicyDecision::Allow(rule);
    }
    if policy.sandbox != Sandbox::Off
        && let Err(error) = sandbox::check_available()
    {
        return PolicyDecision::Deny(Refusal {
            message: format!("commands need a sandbox, and none is available: {error}"),
            suggested_flag: Some("--sandbox off".into()),
            names_flag: false,
        });
    }
    PolicyDecision::Allow(format!("{rule}; {}", policy.describe_containment()))
}

/// Explains why a run with these flags does not have `tool`, or gives the decision for a tool that exists only within a
/// turn.
///
/// # Errors
/// There is no such tool at all.
fn decide_absent_tool(policy: &Policy, grants: &Grants, tool: &str) -> Result<PolicyDecision> {
    if tool_names::find_built_in(tool).is_none() {
        if tool.starts_with("mcp_")
            && let Some(refusal) = policy.withheld_reason(tool)
        {
            return Ok(PolicyDecision::Deny(refusal));
        }
        let problem =
            tool_names::check(tool).err().unwrap_or_else(|| "is not a tool of this run".into());
        return Err(fail(Exit::Usage, format!("`{tool}` {problem}")).with_hint("nanobot tool list"));
    }
    if let Some(refusal) = policy.withheld_reason(tool) {
        return Ok(PolicyDecision::Deny(refusal));
    }
    let reason = if grants.no_tools {
        "`--no-tools` offers none"
    } else if grants.tools.is_some() && !grants.lists_tool(tool) {
        "`--tools` leaves it out"
    } else {
        match tool {
            "spawn" => {
                return Ok(PolicyDecision::Allow(
                    "in a turn of `agent`; a sub-agent may do at most what the turn may".into(),
                ));
            }
            "cron" => {
                return Ok(PolicyDecision::Allow(
                    "in a turn of `agent`, not of a job; after content from outside with `--allow cron`; no job may do more than the \
                     turn"
                        .into(),
                ));
            }
            SESSIONS => {
                "the REPL and editors have it and ask about each call; another run has it with `--allow sessions`"
            }
            APPLY_PATCH => {
                "only models that were trained on its format get it, unless `--tools` or the profile names it"
            }
            _ => "the config turns it off (`enable` in `tools.file`, `tools.exec` or `tools.web`)",
        }
    };
    Ok(PolicyDecision::Deny(Refusal::new(format!("`{tool}` is not offered: {reason}"))))
}

/// The arguments that decisions are about.
const MAIN_ARGUMENTS: &[&str] = &["path", "command", "url", "query"];

/// Parses the arguments: JSON for a complete call, or text as the single argument that the decision is about.
///
/// # Errors
/// The JSON is invalid, the tool does not accept it, or the text is missing.
fn parse_arguments(text: &str, schema: &Value) -> Result<Value> {
    if let Ok(call @ Value::Object(_)) = serde_json::from_str(text) {
        return cast_and_check(schema, &call).map_err(|error| fail(Exit::Usage, error));
    }
    if text.trim().is_empty() || text.trim_start().starts_with('{') {
        return Err(fail(Exit::Usage, "the arguments are not a JSON object")
            .with_hint("`{\"path\": \"notes.md\"}`, or only the path, command or URL"));
    }
    let required = schema["required"][0].as_str();
    let is_property = |name: &&&str| schema["properties"].get(**name).is_some();
    let main_argument = MAIN_ARGUMENTS.iter().find(is_property).copied();
    let name = required.or(main_argument).unwrap_or("text");
    Ok(json!({ name: text }))
}

/// The origin of the session `key`: the content that raised it, the number of its message, and the restrictions.
fn describe_origin(ctx: &Context, key: &str) -> Result<String> {
    let sessions = ctx.session_store(&ctx.settings()?)?;
    let session = Session::read(&sessions, key, &mut |_| {})?;
    if session.history_window().count == 0 {
        return Err(session::not_found_error(&sessions, key));
    }
    let Some(RecordedOrigin { level, content, since }) = session.origin() else {
        return Ok("not recorded; the next turn determines it".into());
    };
    let source = format!("{content}, since message {since}");
    Ok(match level {
        Origin::User => "user: nothing is restricted".into(),
        Origin::Project => {
            format!("project ({source}): composed web addresses are refused; `/new` ends it")
        }
        Origin::External => format!(
            "external ({source}): composed web addresses are refused, and changes of jobs and notes need permission; `/new` ends it"
        ),
    })
}
