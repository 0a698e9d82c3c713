//! Checks that a run started from here would work: config, directories, stored data, sandbox, and provider.

use super::check::{CheckContext, CheckResult, Severity};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::jobs::scheduler_problems;
use crate::ops::mcp_servers;
use crate::ops::model;
use crate::ops::skills::{self as workspace_skills, SkillsSummary};
use crate::ops::turn_setup;
use crate::ops::turn_setup::programs;
use crate::ops::turn_setup::toolset;
use crate::options::grants::Grants;
use anyhow::{Context as _, Result, anyhow};
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::shell_quote::quote;
use nanobot_config::policy::Sandbox;
use nanobot_config::settings::check::{self, ConfigSeverity};
use nanobot_config::settings::servers::McpServer;
use nanobot_config::settings::{Config, Settings};
use nanobot_mcp::catalog::ServerView;
use nanobot_mcp::sanitize;
use nanobot_os::durable_file;
use nanobot_os::owner;
use nanobot_os::shell::UserShell;
use nanobot_os::signal;
use nanobot_sandbox as os_sandbox;
use nanobot_sandbox::process::{self, CommandSpec};
use nanobot_store::memory::Memory;
use nanobot_store::memory::request::is_over_budget;
use nanobot_store::session;
use nanobot_store::trust::TrustList;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of the test request to the provider.
const TEST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for checking sessions: there may be thousands.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of an empty command in the sandbox.
const EMPTY_COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The file that loads completions in bash, if it is installed.
const BASH_COMPLETION_LOADER: &str = "/usr/share/bash-completion/bash_completion";
/// Maximum number of names listed in a result.
const MAX_NAMES: usize = 3;

/// Checks the config for unknown or odd settings. It is readable: otherwise no check would run.
pub(crate) fn check_config(input: &CheckContext) -> Vec<CheckResult> {
    let Context { env, paths, .. } = input.ctx;
    let config = match Config::load(&paths.config) {
        Ok(config) => config,
        Err(error) => return vec![CheckResult::from_error(Severity::Failed, &error)],
    };
    // A request tests the provider.
    let options = check::CheckOptions { is_provider: |_| true, for_python: false };
    let odd = check::check_config(&config, env, paths, options);
    let odd = odd.into_iter().filter_map(|finding| match finding.severity {
        ConfigSeverity::Error => Some(CheckResult::failed(finding.text).with_exit(Exit::Config)),
        ConfigSeverity::Warning => Some(CheckResult::warn(finding.text)),
        ConfigSeverity::Note => None,
    });
    let first = if config.exists() {
        let files = config.existing_files().map(|file| paths.display(file.path()));
        CheckResult::ok(files.collect::<Vec<_>>().join(", "))
    } else {
        CheckResult::warn("no config file: all settings have their defaults")
            .with_hint("`nanobot onboard`")
    };
    std::iter::once(first).chain(odd).collect()
}

/// Checks that a run can write its files.
pub(crate) fn check_directories(input: &CheckContext) -> Vec<CheckResult> {
    let CheckContext { ctx, settings, .. } = input;
    let workspace = &settings.workspace;
    let messages = scheduler_problems::unwritable_directories(ctx, settings).into_iter();
    let failed = |message| CheckResult::failed(message).with_exit(Exit::Io);
    let mut findings: Vec<CheckResult> = messages.map(failed).collect();
    let display = ctx.paths.display(workspace);
    if findings.is_empty() {
        findings.push(if workspace.is_dir() {
            CheckResult::ok(format!("workspace `{display}`"))
        } else {
            CheckResult::warn(format!(
                "the workspace `{display}` does not exist: the first run creates it empty"
            ))
            .with_hint("`nanobot onboard`")
        });
    }
    findings
}

/// Checks that other users cannot access private directories.
pub(crate) fn check_private_directories(input: &CheckContext) -> Vec<CheckResult> {
    let CheckContext { ctx, settings, .. } = input;
    let root = &ctx.paths.root;
    let places = [
        root.clone(),
        ctx.paths.auth(),
        settings.workspace.clone(),
        settings.workspace.join("sessions"),
        settings.workspace.join("memory"),
    ];
    // Closing a directory also protects its contents, so only the topmost open one is reported.
    let mut open: Vec<&PathBuf> = Vec::new();
    for place in &places {
        let is_covered = open.iter().any(|above| place.starts_with(above));
        if !is_covered && durable_file::is_readable_by_others(place) {
            open.push(place);
        }
    }
    open.iter()
        .map(|place| {
            let display = ctx.paths.display(place);
            CheckResult::warn(format!("other users of this machine can read `{display}`"))
                .with_hint(format!("chmod 700 {display}"))
        })
        .collect()
}

/// Checks that this user owns the files of nanobot: those that a run as another user left, such as root, cannot be
/// written. Files of a directory that is shared with a group may belong to its members.
pub(crate) fn check_owners(input: &CheckContext) -> Vec<CheckResult> {
    let CheckContext { ctx, settings, .. } = input;
    let own = owner::user_id();
    let mut foreign: Vec<(PathBuf, u32)> = Vec::new();
    for root in [&ctx.paths.root, &settings.workspace] {
        let is_covered = |path: &PathBuf| foreign.iter().any(|(known, _)| known == path);
        let found = owner::entries_of_others(root, own);
        let found: Vec<_> = found.into_iter().filter(|(path, _)| !is_covered(path)).collect();
        foreign.extend(found);
    }
    if foreign.is_empty() {
        return Vec::new();
    }
    let named = foreign.iter().take(MAX_NAMES).map(|(path, id)| {
        let owner = owner::user_name(*id).unwrap_or_else(|| id.to_string());
        format!("`{}` ({owner})", ctx.paths.display(path))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match foreign.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let root = ctx.paths.display(&ctx.paths.root);
    vec![
        CheckResult::warn(format!("files of other users: {named}{more}"))
            .with_hint(format!("sudo chown -R \"$(id -u)\" {root}")),
    ]
}

/// Checks that the sessions are intact.
pub(crate) fn check_sessions(input: &CheckContext) -> Vec<CheckResult> {
    inspect_sessions(input)
        .unwrap_or_else(|error| vec![CheckResult::from_error(Severity::Failed, &error)])
}

fn inspect_sessions(input: &CheckContext) -> Result<Vec<CheckResult>> {
    let place = input.ctx.session_store(input.settings)?;
    let all = session::list_files(&place)?;
    let end = signal::now().saturating_add(SESSION_CHECK_TIMEOUT);
    // File permissions have a check of their own.
    let is_odd =
        |finding: &session::RepairFinding| finding.repair.is_some() && !finding.is_file_mode();
    let (mut odd, mut findings, mut seen) = (Vec::new(), Vec::new(), 0);
    for (key, path) in &all {
        if signal::now() > end {
            break;
        }
        seen += 1;
        match session::repair(&place, key, path, false) {
            Ok(found) if found.iter().any(is_odd) => {
                odd.push(format!("`{key}`"));
            }
            Ok(_) => {}
            // A turn holds the lock of this session.
            Err(error) if exit_for(&error) == Exit::TryAgain => {}
            Err(error) => findings.push(CheckResult::from_error(Severity::Failed, &error)),
        }
    }
    if !odd.is_empty() {
        let message = format!("repairable problems in {}", first_names(&odd));
        findings.push(CheckResult::warn(message).with_hint("`nanobot session repair --all`"));
    }
    if findings.is_empty() {
        let message = match (all.len(), seen) {
            (0, _) => "none yet".to_owned(),
            (all, seen) if seen < all => format!("{seen} of {all} checked, no problems"),
            (1, _) => "1, no problems".to_owned(),
            (all, _) => format!("{all}, no problems"),
        };
        findings.push(CheckResult::ok(message));
    }
    Ok(findings)
}

/// The first names of a list.
fn first_names(names: &[String]) -> String {
    let first = names[..names.len().min(MAX_NAMES)].join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Checks that the memory is readable, writable and intact.
pub(crate) fn check_memory(input: &CheckContext) -> Vec<CheckResult> {
    let memory = Memory::new(&input.settings.workspace, &input.ctx.clock);
    let (text, trouble) = match memory.read().and_then(|text| Ok((text, memory.last_error()?))) {
        Ok(found) => found,
        Err(error) => return vec![CheckResult::from_error(Severity::Failed, &error)],
    };
    let text = text.unwrap_or_default();
    let mut findings = Vec::new();
    if let Err(error) = memory.check_writable() {
        let error = error.context("the memory cannot be updated");
        findings.push(CheckResult::from_error(Severity::Failed, &error));
    }
    if memory.is_unfinished() {
        let message = "an update was interrupted; the next consolidation finishes it";
        findings.push(CheckResult::warn(message).with_hint("`nanobot memory consolidate`"));
    }
    if let Some(message) = trouble {
        let message = format!("the last consolidation failed: {message}");
        findings.push(CheckResult::warn(message).with_hint("`nanobot memory consolidate`"));
    }
    let budget = input.settings.memory.budget_tokens;
    if is_over_budget(&String::from_utf8_lossy(&text), budget) {
        let message = format!("exceeds its budget of {budget} tokens; each turn sends all of it");
        findings.push(CheckResult::warn(message).with_hint("`nanobot memory edit`"));
    }
    if findings.is_empty() {
        findings.push(CheckResult::ok(durable_file::format_size(text.len() as u64)));
    }
    findings
}

/// Checks for instruction files and skills here that are ignored because the directory is not trusted.
pub(crate) fn check_trust(input: &CheckContext) -> Vec<CheckResult> {
    let here = std::env::current_dir().unwrap_or_default();
    let notes =
        TrustList::load(&input.ctx.paths.trust()).and_then(|trust| trust.read_instructions(&here));
    match notes {
        Err(error) => vec![CheckResult::from_error(Severity::Failed, &error)],
        Ok(notes) if notes.ignored.is_empty() || here == input.settings.workspace => Vec::new(),
        Ok(notes) => {
            let names = notes.ignored.iter();
            let names: Vec<String> =
                names.map(|path| format!("`{}`", input.ctx.paths.display(path))).collect();
            let reason = if notes.stale.is_empty() {
                "their directory is not trusted"
            } else {
                "they changed or were added since their directory was trusted"
            };
            let message = format!("not read, because {reason}: {}", first_names(&names));
            vec![CheckResult::warn(message).with_hint("`nanobot trust .`, if you trust them")]
        }
    }
}

/// Checks that the MCP servers answer and that their tools have not changed.
pub(crate) fn check_servers(input: &CheckContext) -> Vec<CheckResult> {
    let of_error = |error: &anyhow::Error| vec![CheckResult::from_error(Severity::Failed, error)];
    let asked = match mcp_servers::query_all(input.ctx, input.settings, input.offline) {
        Ok(asked) => asked,
        Err(error) => return of_error(&error),
    };
    let refused = refused_tools(input.settings, &asked.results);
    let finding = |(server, looked): (McpServer, Result<ServerView>)| {
        let name = &server.name;
        match looked {
            Ok(view) if view.changed.is_empty() => {
                CheckResult::ok(format!("{name}: {} tools", view.features.tools.len()))
            }
            Ok(view) => {
                let names: Vec<String> =
                    view.changed.iter().map(|it| sanitize::single_line(&it.name, 80)).collect();
                CheckResult::warn(format!("{name}: changed tools: {}", first_names(&names)))
                    .with_hint(format!("`nanobot mcp accept {name}`"))
            }
            // A run continues without an optional server.
            Err(error) if !server.is_required => CheckResult::from_error(Severity::Warn, &error),
            Err(error) => CheckResult::from_error(Severity::Failed, &error),
        }
    };
    let under_cron = asked.cron_failures.into_iter().map(|(name, words)| {
        CheckResult::warn(format!("{name}: {words}"))
            .with_hint(format!("`nanobot mcp test {name}`"))
    });
    let results = asked.results.into_iter().map(finding);
    results.chain(under_cron).chain(refused).collect()
}

/// A warning about the servers without a rule that allows their tools, if these may make changes.
fn refused_tools(
    settings: &Settings,
    results: &[(McpServer, Result<ServerView>)],
) -> Option<CheckResult> {
    let missing = mcp_servers::missing_allow_rules(settings);
    let may_change = |view: &ServerView| {
        let mut tools = view.features.tools.iter();
        tools.any(|tool| tool.hints.reads_only != Some(true))
    };
    let concerned = |(server, result): &&(McpServer, Result<ServerView>)| {
        missing.contains(&mcp_servers::allow_rule(&server.name))
            && result.as_ref().is_ok_and(may_change)
    };
    let names: Vec<&str> =
        results.iter().filter(concerned).map(|(server, _)| server.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let rules = settings.tools.allow.iter().cloned();
    let rules: Vec<String> =
        rules.chain(names.iter().map(|name| mcp_servers::allow_rule(name))).collect();
    let rules = serde_json::Value::from(rules).to_string();
    let message = format!(
        "{}: tools that do not claim to be read-only are refused in `agent`",
        names.join(", ")
    );
    let hint = format!("`nanobot config set tools.allow {}`", quote(&rules));
    Some(CheckResult::warn(message).with_hint(hint))
}

/// Checks that the skills are readable and usable, and fit their budget.
pub(crate) fn check_skills(input: &CheckContext) -> Vec<CheckResult> {
    let found = match workspace_skills::find(input.ctx, input.settings, Path::new(".")) {
        Ok(found) => found,
        Err(error) => return vec![CheckResult::from_error(Severity::Failed, &error)],
    };
    let mut findings: Vec<CheckResult> =
        found.notices().into_iter().map(CheckResult::warn).collect();
    let summary = SkillsSummary::new(&found, input.settings);
    if !summary.unavailable.is_empty() {
        let message = format!("missing requirements: {}", first_names(&summary.unavailable));
        findings.push(CheckResult::warn(message).with_hint("`nanobot skill check`"));
    }
    if summary.is_truncated {
        let message = "their list is truncated to its budget";
        let hint = "`nanobot config set agents.defaults.skillsBudgetTokens N`, or fewer skills";
        findings.push(CheckResult::warn(message).with_hint(hint));
    }
    if findings.is_empty() {
        findings.push(CheckResult::ok(summary.describe()));
    }
    findings
}

/// Checks that the enabled tool programs describe themselves, as far as earlier runs know.
pub(crate) fn check_programs(input: &CheckContext) -> Vec<CheckResult> {
    let enabled = &input.settings.tools.programs;
    let timed_out = programs::timed_out(input.ctx, enabled).into_iter();
    let mut findings: Vec<CheckResult> = timed_out
        .map(|(path, reason)| {
            CheckResult::warn(format!(
                "`{}` is not offered: {reason}",
                input.ctx.paths.display(&path)
            ))
        })
        .collect();
    if findings.is_empty() && !enabled.is_empty() {
        findings.push(CheckResult::ok(format!("enabled: {}", enabled.join(", "))));
    }
    findings
}

/// Checks that the sandbox works, by running an empty command in it.
pub(crate) fn check_sandbox(input: &CheckContext) -> Vec<CheckResult> {
    // Other notices are reported by other checks.
    let ctx = Context { quiet: true, ..input.ctx.clone() };
    let finding = test_sandbox(&ctx, input)
        .unwrap_or_else(|error| CheckResult::from_error(Severity::Failed, &error));
    vec![finding]
}

fn test_sandbox(ctx: &Context, input: &CheckContext) -> Result<CheckResult> {
    let setup =
        turn_setup::prepare_without_turn(ctx, &Grants::default(), true, true, Vec::new(), None)?;
    let policy = &setup.policy;
    if policy.sandbox == Sandbox::Off {
        return Ok(CheckResult::warn("the config disables the sandbox for commands"));
    }
    if let Err(lack) = os_sandbox::check_available() {
        let message = format!("unavailable, so commands are denied: {lack}");
        let is_needed = policy.sandbox == Sandbox::Strict;
        let level = if is_needed { Severity::Failed } else { Severity::Warn };
        return Ok(CheckResult::new(level, message)
            .with_hint("`--sandbox off` to run commands without a sandbox")
            .with_exit(Exit::NoSandbox));
    }
    let exec = toolset::exec_tool(ctx, input.settings, policy, &setup.shared.files);
    let fence = exec.sandbox_spec().context("set up the sandbox")?;
    let missing = process::check_namespaces(&fence).err();
    let finished = process::run(
        &CommandSpec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), ":".into()],
            directory: policy.file_scope.directory.clone(),
            env: Vec::new(),
            timeout: EMPTY_COMMAND_TIMEOUT,
            capture_bytes: 0,
            sandbox: Some(fence),
            input: None,
        },
        &mut |_| {},
    )
    .context("run a command in the sandbox")?;
    if let Some(stop) = finished.stop {
        return Err(stop.into());
    }
    match finished.status {
        Some(status) if status.success() => Ok(match missing {
            None => CheckResult::ok(
                "a command ran in namespaces of its own, under Landlock and seccomp",
            ),
            Some(error) => CheckResult::warn(format!(
                "a command ran under Landlock and seccomp; this system allows no namespaces ({error}), so commands are \
                 denied with `--write`"
            ))
            .with_hint(os_sandbox::namespaces::explain_refusal()),
        }),
        Some(status) => Err(anyhow!("an empty command fails in the sandbox: {status}")),
        None => Err(anyhow!("an empty command timed out in the sandbox")),
    }
}

/// Checks that the provider answers with this key and model, and that the price is known if a budget needs it.
pub(crate) fn check_provider(input: &CheckContext) -> Vec<CheckResult> {
    let finding = test_provider(input)
        .unwrap_or_else(|error| CheckResult::from_error(Severity::Failed, &error));
    vec![finding]
}

fn test_provider(input: &CheckContext) -> Result<CheckResult> {
    let CheckContext { ctx, settings, .. } = input;
    let settings = connection_test::with_short_timeouts(settings, TEST_REQUEST_TIMEOUT);
    let way = model::resolve_endpoint(ctx, &settings, &settings.models[0], input.offline, true)?;
    let way =
        model::require_price(way, model::has_budget(&settings).then_some(false), &mut |_| ())?;
    let key = if way.http_provider.key.is_configured() {
        format!("key from {}", way.choice.key_label.to_string().replace('`', ""))
    } else {
        "no key".into()
    };
    let who = format!("`{}` of {}, {key}", way.choice.model, way.choice.provider);
    if input.offline {
        return Ok(CheckResult::ok(format!("{who}; not contacted (--offline)")));
    }
    let reply = connection_test::send_test_request(ctx, &settings, way)?;
    Ok(CheckResult::ok(format!(
        "{who}: answered in {}, {}",
        reply.describe_duration(),
        reply.describe_cost()
    )))
}

/// Checks that shell completions are installed, for supported shells.
pub(crate) fn check_completions(input: &CheckContext) -> Vec<CheckResult> {
    let Context { env, paths, .. } = input.ctx;
    let shell =
        UserShell::from_env(env).map(|shell| (shell.name(), shell.completion_path(env, paths)));
    let found = shell.map(|(name, path)| match path.exists() {
        true if name == "bash" && !Path::new(BASH_COMPLETION_LOADER).exists() => {
            CheckResult::warn("installed for bash, but bash-completion is not")
                .with_hint("the package `bash-completion`")
        }
        true => CheckResult::ok(format!("installed for {name}")),
        false => CheckResult::ok(format!("optional; none for {name}"))
            .with_hint("`nanobot onboard --completions`"),
    });
    found.into_iter().collect()
}

/// Checks if the Python program's server is also running. It starts its jobs too, and keeps its own copy of sessions.
pub(crate) fn check_gateway(input: &CheckContext) -> Vec<CheckResult> {
    let found = process::find_process(&["nanobot", "gateway"], &input.ctx.paths.home);
    let results = found.map(|number| {
        let message = format!(
            "the Python program's gateway is running (process {number}): it starts its jobs too, and overwrites the sessions \
             that it has open"
        );
        CheckResult::warn(message).with_hint("stop it, or use separate jobs and sessions")
    });
    results.into_iter().collect()
}
