//! `nanobot policy`: shows a run's permissions and their origin, and tests that they are enforced.

use crate::cli::policy::{ExplainArgs, PolicyCommand as Command};
use crate::error::{Exit, fail, fail_with_hint};
use crate::message::Origin;
use crate::ops::context::Context;
use crate::ops::turn_setup::toolset;
use crate::ops::turn_setup::{self, TurnSetup};
use crate::options::grants::Grants;
use crate::policy::call_files::{file_access, files_of_call};
use crate::policy::tool_names::APPLY_PATCH;
use crate::policy::{Policy, PolicyDecision, Refusal, Sandbox, tool_names};
use crate::session::{self, RecordedOrigin, Session};
use crate::settings::LayeredConfig;
use crate::sys::process;
use crate::sys::sandbox::{self, SandboxSpec, namespaces, self_test::SelfTestResult};
use crate::tool::arguments::cast_and_check;
use crate::tool::{Tool, ToolError, cron};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Runs `nanobot policy`.
pub fn run(ctx: &Context, command: &Command) -> Result<Exit> {
    match command {
        Command::Explain(arguments) => explain(ctx, arguments),
        Command::Test { grants, json } => test_sandbox(ctx, grants, *json),
    }
}

fn explain(ctx: &Context, arguments: &ExplainArgs) -> Result<Exit> {
    let ExplainArgs { tool, arguments, grants, session, json } = arguments;
    let TurnSetup { toolbox, policy, .. } =
        turn_setup::prepare_without_turn(ctx, grants, (false, true), Vec::new(), None)?;
    let Some(tool) = tool else {
        return explain_all(ctx, &policy, session.as_deref(), *json);
    };
    let decided = match toolbox.find(tool) {
        Some(found) => {
            let call = parse_arguments(arguments, &found.spec().parameters)?;
            (decide(&policy, found, &call), call)
        }
        None => match decide_absent_tool(&policy, grants, tool)? {
            // The answer covers only what can be decided without a conversation.
            PolicyDecision::Allow(rule) if tool == "cron" => {
                let schema = &cron::spec().parameters;
                let call = cast_and_check(schema, &parse_arguments(arguments, schema)?);
                let call = call.map_err(|words| fail(Exit::Usage, words))?;
                match policy.decide(tool, &call) {
                    PolicyDecision::Allow(_) => (PolicyDecision::Allow(rule), call),
                    no => (no, call),
                }
            }
            decision => (decision, json!(arguments)),
        },
    };
    let (decision, call) = decided;
    let (word, why, grant) = match decision {
        PolicyDecision::Allow(rule) => ("allowed", rule, None),
        PolicyDecision::Ask(refusal) => ("refused", refusal.message, refusal.suggested_flag),
        PolicyDecision::Deny(refusal) => ("refused", refusal.message, refusal.suggested_flag),
    };
    let line = match json {
        true => {
            json!({ "tool": tool, "arguments": call, "decision": word, "why": why, "grant": grant })
                .to_string()
        }
        false => match &grant {
            Some(flag) => format!("{word}: {why}\ngrant: {flag}"),
            None => format!("{word}: {why}"),
        },
    };
    ctx.terminal.print(&format!("{line}\n"))?;
    Ok(if word == "allowed" { Exit::Answered } else { Exit::Refused })
}

/// Decides about a call of `tool`, as far as that is possible without making it.
fn decide(policy: &Policy, tool: &dyn Tool, call: &Value) -> PolicyDecision {
    let name = tool.spec().name.as_str();
    let rule = match policy.decide(name, call) {
        PolicyDecision::Allow(rule) => rule,
        no => return no,
    };
    // For paths, the access rules decide.
    if let Some(access) = file_access(name) {
        let mut places = Vec::new();
        for file in files_of_call(name, call) {
            match policy.file_scope.decide(file.path, access) {
                Ok(place) => places.push(place.root),
                Err(refusal) => return PolicyDecision::Deny(refusal),
            }
        }
        places.dedup();
        let roots = places.iter().map(|root| {
            let root = &policy.file_scope.roots[*root].path;
            format!("; it is inside `{}`", root.display())
        });
        return PolicyDecision::Allow(format!("{rule}{}", roots.collect::<String>()));
    }
    match tool.precheck(call) {
        Ok(()) => {}
        Err(
            ToolError::Denied(refusal)
            | ToolError::DeniedDuringCall { refusal, .. }
            | ToolError::Rejected(refusal),
        ) => {
            return PolicyDecision::Deny(refusal);
        }
        Err(ToolError::Failed(words) | ToolError::Declined(words)) => {
            return PolicyDecision::Deny(Refusal::new(words));
        }
    }
    if name != "exec" {
        return PolicyDecision::Allow(rule);
    }
    if policy.sandbox != Sandbox::Off
        && let Err(lack) = sandbox::check_available()
    {
        return PolicyDecision::Deny(Refusal {
            message: format!("commands need a sandbox, and none is available: {lack}"),
            suggested_flag: Some("--sandbox off".into()),
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
    if !tool_names::TOOLS.contains(&tool) {
        if let Some(refusal) = policy.withheld_reason(tool).filter(|_| tool.starts_with("mcp_")) {
            return Ok(PolicyDecision::Deny(refusal));
        }
        let words = tool_names::check(tool).err();
        let words = words.unwrap_or_else(|| "is not a tool of this run".into());
        return Err(fail_with_hint(Exit::Usage, format!("`{tool}` {words}"), "nanobot tool list"));
    }
    if let Some(refusal) = policy.withheld_reason(tool) {
        return Ok(PolicyDecision::Deny(refusal));
    }
    let why = match &grants.tools {
        _ if grants.no_tools => "`--no-tools` offers none",
        Some(_) if !grants.lists_tool(tool) => "`--tools` leaves it out",
        _ if tool == "spawn" => {
            return Ok(PolicyDecision::Allow(
                "in a turn of `agent`; a sub-agent may do at most what the turn may".into(),
            ));
        }
        _ if tool == "cron" => {
            return Ok(PolicyDecision::Allow(
                "in a turn of `agent`, not of a job; after content from outside with `--allow cron`; no job may do more than the \
                 turn"
                    .into(),
            ));
        }
        _ if tool == APPLY_PATCH => {
            "only models that were trained on its format get it, unless `--tools` or the profile names it"
        }
        _ => "the config turns it off (`enable` in `tools.file`, `tools.exec` or `tools.web`)",
    };
    Ok(PolicyDecision::Deny(Refusal::new(format!("`{tool}` is not offered: {why}"))))
}

/// The arguments that decisions are about.
const MAIN_ARGUMENTS: &[&str] = &["path", "command", "url", "query"];

/// Parses the arguments: JSON for a complete call, or text as the single argument that the decision is about.
///
/// # Errors
/// The JSON is invalid, or the tool does not accept it, or the text is missing.
fn parse_arguments(text: &str, schema: &Value) -> Result<Value> {
    if let Ok(call @ Value::Object(_)) = serde_json::from_str(text) {
        return cast_and_check(schema, &call).map_err(|words| fail(Exit::Usage, words));
    }
    if text.trim().is_empty() || text.trim_start().starts_with('{') {
        return Err(fail_with_hint(
            Exit::Usage,
            "the arguments are not a JSON object",
            "`{\"path\": \"notes.md\"}`, or only the path, command or URL",
        ));
    }
    let needed = schema["required"][0].as_str();
    let has = |name: &&&str| schema["properties"].get(**name).is_some();
    let name = needed.or(MAIN_ARGUMENTS.iter().find(has).copied()).unwrap_or("text");
    Ok(json!({ name: text }))
}

fn explain_all(
    ctx: &Context,
    policy: &Policy,
    session: Option<&str>,
    as_json: bool,
) -> Result<Exit> {
    let mut lines = policy.for_people(&|path: &Path| ctx.paths.display(path));
    if let Some(key) = session {
        lines.push(("origin", describe_origin(ctx, key)?));
    }
    let config = ctx.load_config()?;
    let spared = LayeredConfig::new(&config, &ctx.env).read(&["tools", "ssrfWhitelist"])?;
    for range in spared.iter().filter_map(Value::as_array).flatten() {
        let range = range.as_str().unwrap_or_default();
        lines.push(("reached", format!("{range} (tools.ssrfWhitelist)")));
    }
    for (address, port) in &policy.explicit_addresses {
        let port = port.map(|port| format!(", port {port}")).unwrap_or_default();
        lines.push(("reached", format!("{address}{port} (--net)")));
    }
    if as_json {
        let lines: Vec<Value> =
            lines.iter().map(|(name, value)| json!({ "what": name, "value": value })).collect();
        ctx.terminal.print(&format!("{}\n", json!(lines)))?;
        return Ok(Exit::Answered);
    }
    for (name, value) in lines {
        ctx.terminal.print(&format!("{name:<11} {value}\n"))?;
    }
    Ok(Exit::Answered)
}

/// The origin of the session `key`: the content that it is from, since which message, and what it restricts.
fn describe_origin(ctx: &Context, key: &str) -> Result<String> {
    let sessions = ctx.session_store(&ctx.settings()?)?;
    let session = Session::read(&sessions, key, &mut |_| {})?;
    if session.history_window().count == 0 {
        return Err(session::not_found_error(&sessions, key));
    }
    let Some(RecordedOrigin { level, content, since }) = session.origin() else {
        return Ok("not recorded; the next turn determines it".into());
    };
    let from = format!("{content}, since message {since}");
    Ok(match level {
        Origin::User => "user: nothing is restricted".into(),
        Origin::Project => {
            format!("project ({from}): composed web addresses are refused; `/new` ends it")
        }
        Origin::External => format!(
            "external ({from}): composed web addresses are refused, and changes of jobs and notes need permission; `/new` ends it"
        ),
    })
}

/// Paths that no command may read if they exist, unless the user grants them by name.
const SECRET_PATHS: &[&str] = &[".ssh", ".aws", ".gnupg", ".netrc", ".git-credentials"];

/// Tells which layers of the sandbox this system allows.
fn sandbox_situation(sandbox: &SandboxSpec, as_json: bool) -> String {
    let missing = process::check_namespaces(sandbox).err();
    match (missing, as_json) {
        (missing, true) => json!({ "namespaces": missing.is_none() }).to_string(),
        (None, false) => {
            "commands run in namespaces of their own, under Landlock and seccomp".into()
        }
        (Some(error), false) => format!(
            "commands run under Landlock and seccomp alone, and not with `--write`: this system allows no namespaces ({error}; {})",
            namespaces::explain_refusal()
        ),
    }
}

fn test_sandbox(ctx: &Context, grants: &Grants, as_json: bool) -> Result<Exit> {
    let TurnSetup { policy, shared, .. } =
        turn_setup::prepare_without_turn(ctx, grants, (false, false), Vec::new(), None)?;
    if policy.sandbox == Sandbox::Off {
        return Err(fail_with_hint(
            Exit::Failed,
            "nothing to test: with these flags commands run without a sandbox",
            "without `--sandbox off` and `--profile full`",
        ));
    }
    if let Err(lack) = sandbox::check_available() {
        return Err(fail_with_hint(
            Exit::NoSandbox,
            format!("no sandbox is available: {lack}"),
            "`--sandbox off` to run commands without one",
        ));
    }
    let settings = ctx.settings()?;
    let exec = toolset::exec_tool(ctx, &settings, &policy, &shared.files);
    let fence = exec.sandbox_spec().context("set up the sandbox")?;
    let home = &policy.file_scope.home;
    let may_write = |path: &PathBuf| fence.writable.iter().any(|place| path.starts_with(place));
    let outside: Vec<PathBuf> =
        [home, &ctx.paths.root, &policy.file_scope.directory, &policy.file_scope.workspace]
            .into_iter()
            .filter(|path| path.is_dir() && !may_write(path))
            .cloned()
            .collect();
    let named =
        |path: &PathBuf| policy.file_scope.roots.iter().any(|root| root.path.starts_with(path));
    let secrets = SECRET_PATHS.iter().map(|name| home.join(name));
    let own = policy.file_scope.hidden.iter().cloned();
    let closed: Vec<PathBuf> = own
        .chain(secrets)
        .chain([PathBuf::from("/etc/shadow")])
        .filter(|path| path.exists() && !named(path))
        .collect();
    let situation = sandbox_situation(&fence, as_json);
    ctx.terminal.print(&format!("{situation}\n"))?;
    let trials = process::test_sandbox(&fence, &outside, &closed).context("test the sandbox")?;
    let mut exit = Exit::Answered;
    for SelfTestResult { operation: what, is_refused: held, outcome: found } in trials {
        if !held {
            exit = Exit::Failed;
        }
        let line = if as_json {
            json!({ "what": what, "held": held, "found": found }).to_string()
        } else {
            format!("{:6}  a command cannot {what}: {found}", if held { "ok" } else { "FAILED" })
        };
        ctx.terminal.print(&format!("{line}\n"))?;
    }
    Ok(exit)
}
