//! Checks that a run started from here would work: config, directories, stored data, sandbox, and provider.

use super::check::{CheckInput, CheckResult, Severity};
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::jobs::scheduler_problems;
use crate::ops::mcp_servers;
use crate::ops::model;
use crate::ops::skills::{self as workspace_skills, SkillsSummary};
use crate::ops::turn_setup;
use crate::ops::turn_setup::programs;
use crate::ops::turn_setup::toolset;
use crate::ops::turn_setup::web_tools::search_problems;
use crate::options::grants::Grants;
use anyhow::{Context as _, Result, anyhow};
use nanobot_base::error::{Exit, exit_for};
use nanobot_base::format::list_first;
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

/// Checks the config for unknown or odd settings. The config is readable: otherwise no check would run.
pub(crate) fn check_config(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let Context { env, paths, .. } = input.ctx;
    let config = Config::load(paths)?;
    // A request tests the provider.
    let options = check::CheckOptions { is_provider: |_| true, for_python: false };
    let findings = check::check_config(&config, env, paths, options);
    let problems = findings.into_iter().filter_map(|finding| match finding.severity {
        ConfigSeverity::Error => Some(CheckResult::failed(finding.text).with_exit(Exit::Config)),
        ConfigSeverity::Warning => Some(CheckResult::warn(finding.text)),
        ConfigSeverity::Note => None,
    });
    let summary = if config.exists() {
        let files = config.existing_files().map(|file| paths.display(file.path()));
        CheckResult::ok(files.collect::<Vec<_>>().join(", "))
    } else {
        CheckResult::warn("no config file: all settings have their defaults")
            .with_hint("`nanobot onboard`")
    };
    let search_problems = search_problems(input.ctx, input.settings).into_iter();
    let search_problems = search_problems.map(CheckResult::warn);
    Ok(std::iter::once(summary).chain(problems).chain(search_problems).collect())
}

/// Checks that a run can write its files.
pub(crate) fn check_directories(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let CheckInput { ctx, settings, .. } = input;
    let workspace = &settings.workspace;
    let messages = scheduler_problems::unwritable_directories(ctx, settings).into_iter();
    let failed = |message| CheckResult::failed(message).with_exit(Exit::Io);
    let mut results: Vec<CheckResult> = messages.map(failed).collect();
    // A directory of a full disk can still take an empty file.
    results.extend(scheduler_problems::full_disk(ctx).map(|message| {
        let root = ctx.paths.display(&ctx.paths.root);
        failed(message).with_hint(format!("remove files from it; `df -h {root}` shows its space"))
    }));
    let display = ctx.paths.display(workspace);
    if results.is_empty() {
        results.push(if workspace.is_dir() {
            CheckResult::ok(format!("workspace `{display}`"))
        } else {
            CheckResult::warn(format!(
                "the workspace `{display}` does not exist: the first run creates it empty"
            ))
            .with_hint("`nanobot onboard`")
        });
    }
    Ok(results)
}

/// Checks that other users cannot access private directories.
pub(crate) fn check_private_directories(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let CheckInput { ctx, settings, .. } = input;
    let directories = [
        ctx.paths.root.clone(),
        ctx.paths.auth(),
        settings.workspace.clone(),
        settings.workspace.join("sessions"),
        settings.workspace.join("memory"),
    ];
    // Closing a directory also protects its contents, so only the topmost open one is reported.
    let mut open: Vec<&PathBuf> = Vec::new();
    for directory in &directories {
        let is_covered = open.iter().any(|parent| directory.starts_with(parent));
        if !is_covered && durable_file::is_readable_by_others(directory) {
            open.push(directory);
        }
    }
    let results = open.iter().map(|directory| {
        let display = ctx.paths.display(directory);
        CheckResult::warn(format!("other users of this machine can read `{display}`"))
            .with_hint(format!("chmod 700 {display}"))
    });
    Ok(results.collect())
}

/// Checks that this user owns the files of nanobot: files that a run as another user, such as root, has left cannot be written. Files of a
/// directory that is shared with a group may belong to its members.
pub(crate) fn check_owners(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let CheckInput { ctx, settings, .. } = input;
    let own = owner::user_id();
    let mut foreign: Vec<(PathBuf, u32)> = Vec::new();
    for root in [&ctx.paths.root, &settings.workspace] {
        for (path, owner) in owner::entries_of_others(root, own) {
            if foreign.iter().all(|(other, _)| *other != path) {
                foreign.push((path, owner));
            }
        }
    }
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    let names = foreign.iter().map(|(path, id)| {
        let owner = owner::user_name(*id).unwrap_or_else(|| id.to_string());
        format!("`{}` ({owner})", ctx.paths.display(path))
    });
    let names = list_first(&names.collect::<Vec<_>>(), MAX_NAMES);
    let root = ctx.paths.display(&ctx.paths.root);
    let hint = format!("sudo chown -R \"$(id -u)\" {root}");
    Ok(vec![CheckResult::warn(format!("files of other users: {names}")).with_hint(hint)])
}

/// Checks that the sessions are intact.
pub(crate) fn check_sessions(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let store = input.ctx.session_store(input.settings)?;
    let files = session::list_files(&store)?;
    let end = signal::now().saturating_add(SESSION_CHECK_TIMEOUT);
    // File permissions have a check of their own.
    let is_repairable =
        |finding: &session::RepairFinding| finding.repair.is_some() && !finding.is_file_mode;
    let mut repairable = Vec::new();
    let mut results = Vec::new();
    let mut checked = 0;
    for (key, path) in &files {
        if signal::now() > end {
            break;
        }
        checked += 1;
        match session::repair(&store, key, path, false) {
            Ok(findings) if findings.iter().any(is_repairable) => {
                repairable.push(format!("`{key}`"));
            }
            Ok(_) => {}
            // A turn holds the lock of this session.
            Err(error) if exit_for(&error) == Exit::TryAgain => {}
            Err(error) => results.push(CheckResult::from_error(&error)),
        }
    }
    if !repairable.is_empty() {
        let message = format!("repairable problems in {}", list_first(&repairable, MAX_NAMES));
        results.push(CheckResult::warn(message).with_hint("`nanobot session repair --all`"));
    }
    if results.is_empty() {
        let message = match files.len() {
            0 => "none yet".to_owned(),
            count if checked < count => format!("{checked} of {count} checked, no problems"),
            count => format!("{count}, no problems"),
        };
        results.push(CheckResult::ok(message));
    }
    Ok(results)
}

/// Checks that the memory is readable, writable and intact.
pub(crate) fn check_memory(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let memory = Memory::new(&input.settings.workspace, &input.ctx.clock);
    let text = memory.read()?.unwrap_or_default();
    let last_error = memory.last_error()?;
    let mut results = Vec::new();
    if let Err(error) = memory.check_writable() {
        let error = error.context("the memory cannot be updated");
        results.push(CheckResult::from_error(&error));
    }
    if memory.is_unfinished() {
        let message = "an update was interrupted; the next consolidation finishes it";
        results.push(CheckResult::warn(message).with_hint("`nanobot memory consolidate`"));
    }
    if let Some(message) = last_error {
        let message = format!("the last consolidation failed: {message}");
        results.push(CheckResult::warn(message).with_hint("`nanobot memory consolidate`"));
    }
    let budget = input.settings.memory.budget_tokens;
    if is_over_budget(&String::from_utf8_lossy(&text), budget) {
        let message = format!("exceeds its budget of {budget} tokens; each turn sends all of it");
        results.push(CheckResult::warn(message).with_hint("`nanobot memory edit`"));
    }
    if results.is_empty() {
        results.push(CheckResult::ok(durable_file::format_size(text.len() as u64)));
    }
    Ok(results)
}

/// Checks for instruction files and skills here that are ignored because the directory is not trusted.
pub(crate) fn check_trust(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let paths = &input.ctx.paths;
    let directory = std::env::current_dir().unwrap_or_default();
    let instructions = TrustList::load(&paths.trust())?.read_instructions(&directory)?;
    if instructions.ignored.is_empty() || directory == input.settings.workspace {
        return Ok(Vec::new());
    }
    let names = instructions.ignored.iter().map(|path| format!("`{}`", paths.display(path)));
    let names = list_first(&names.collect::<Vec<_>>(), MAX_NAMES);
    let reason = if instructions.stale.is_empty() {
        "their directory is not trusted"
    } else {
        "they changed or were added since their directory was trusted"
    };
    let message = format!("not read, because {reason}: {names}");
    Ok(vec![CheckResult::warn(message).with_hint("`nanobot trust .`, if you trust them")])
}

/// Checks that the MCP servers answer and that their tools have not changed.
pub(crate) fn check_servers(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let servers = mcp_servers::query_all(input.ctx, input.settings, input.offline)?;
    let refused = refused_tools(input.settings, &servers.results);
    let under_cron = servers.cron_failures.into_iter().map(|(name, failure)| {
        CheckResult::warn(format!("{name}: {failure}"))
            .with_hint(format!("`nanobot mcp check {name}`"))
    });
    let results = servers.results.into_iter().map(|(server, view)| check_server(&server, view));
    Ok(results.chain(under_cron).chain(refused).collect())
}

fn check_server(server: &McpServer, view: Result<ServerView>) -> CheckResult {
    let name = &server.name;
    match view {
        Ok(view) if view.changed.is_empty() => {
            CheckResult::ok(format!("{name}: {} tools", view.features.tools.len()))
        }
        Ok(view) => {
            let names: Vec<String> =
                view.changed.iter().map(|tool| sanitize::single_line(&tool.name, 80)).collect();
            CheckResult::warn(format!("{name}: changed tools: {}", list_first(&names, MAX_NAMES)))
                .with_hint(format!("`{}`", server.accept_command()))
        }
        // A run continues without an optional server.
        Err(error) if !server.is_required => {
            CheckResult { severity: Severity::Warn, ..CheckResult::from_error(&error) }
        }
        Err(error) => CheckResult::from_error(&error),
    }
}

/// A warning about the servers whose tools may make changes and are not allowed by any rule.
fn refused_tools(
    settings: &Settings,
    results: &[(McpServer, Result<ServerView>)],
) -> Option<CheckResult> {
    let missing = mcp_servers::missing_allow_rules(settings);
    let may_change = |view: &ServerView| {
        let mut tools = view.features.tools.iter();
        tools.any(|tool| tool.hints.reads_only != Some(true))
    };
    let is_refused = |(server, view): &&(McpServer, Result<ServerView>)| {
        missing.contains(&mcp_servers::allow_rule(&server.name))
            && view.as_ref().is_ok_and(may_change)
    };
    let names: Vec<&str> =
        results.iter().filter(is_refused).map(|(server, _)| server.name.as_str()).collect();
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
pub(crate) fn check_skills(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let skills = workspace_skills::find(input.ctx, input.settings, Path::new("."))?;
    let mut results: Vec<CheckResult> =
        skills.notices().into_iter().map(CheckResult::warn).collect();
    let summary = SkillsSummary::new(&skills, input.settings);
    if !summary.unavailable.is_empty() {
        let message =
            format!("missing requirements: {}", list_first(&summary.unavailable, MAX_NAMES));
        results.push(CheckResult::warn(message).with_hint("`nanobot skill check`"));
    }
    if summary.is_truncated {
        let message = "their list is truncated to its budget";
        let hint = "`nanobot config set agents.defaults.skillsBudgetTokens N`, or fewer skills";
        results.push(CheckResult::warn(message).with_hint(hint));
    }
    if results.is_empty() {
        results.push(CheckResult::ok(summary.describe()));
    }
    Ok(results)
}

/// Checks that the enabled tool programs describe themselves, as far as earlier runs know.
pub(crate) fn check_programs(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let enabled = &input.settings.tools.programs;
    let timed_out = programs::timed_out(input.ctx, enabled).into_iter();
    let mut results: Vec<CheckResult> = timed_out
        .map(|(path, reason)| {
            CheckResult::warn(format!(
                "`{}` is not offered: {reason}",
                input.ctx.paths.display(&path)
            ))
        })
        .collect();
    if results.is_empty() && !enabled.is_empty() {
        results.push(CheckResult::ok(format!("enabled: {}", enabled.join(", "))));
    }
    Ok(results)
}

/// Checks that the sandbox works, by running an empty command in it.
pub(crate) fn check_sandbox(input: &CheckInput) -> Result<Vec<CheckResult>> {
    // Other notices are reported by other checks.
    let ctx = &Context { quiet: true, ..input.ctx.clone() };
    let setup =
        turn_setup::build_without_turn(ctx, &Grants::default(), true, true, Vec::new(), None)?;
    let policy = &setup.policy;
    if policy.sandbox == Sandbox::Off {
        return Ok(vec![CheckResult::warn("the config disables the sandbox for commands")]);
    }
    if let Err(reason) = os_sandbox::check_available() {
        let message = format!("unavailable, so commands are denied: {reason}");
        let is_needed = policy.sandbox == Sandbox::Strict;
        let severity = if is_needed { Severity::Failed } else { Severity::Warn };
        let result = CheckResult::new(severity, message)
            .with_hint("`--sandbox off` to run commands without a sandbox");
        return Ok(vec![result.with_exit(Exit::NoSandbox)]);
    }
    let exec = toolset::exec_tool(ctx, input.settings, policy, &setup.shared.files);
    let sandbox = exec.prepare_sandbox().context("set up the sandbox")?;
    let namespace_error = process::check_namespaces(&sandbox).err();
    let finished = process::run(
        &CommandSpec {
            directory: policy.file_scope.directory.clone(),
            sandbox: Some(sandbox),
            ..CommandSpec::shell(":", EMPTY_COMMAND_TIMEOUT)
        },
        &mut |_| {},
    )
    .context("run a command in the sandbox")?;
    if let Some(stop) = finished.stop {
        return Err(stop.into());
    }
    match finished.status {
        Some(status) if status.success() => Ok(vec![match namespace_error {
            None => CheckResult::ok(
                "a command ran in namespaces of its own, under Landlock and seccomp",
            ),
            Some(error) => CheckResult::warn(format!(
                "a command ran under Landlock and seccomp; this system allows no namespaces ({error}), so commands are \
                 denied with `--write`"
            ))
            .with_hint(os_sandbox::namespaces::explain_refusal()),
        }]),
        Some(status) => Err(anyhow!("an empty command fails in the sandbox: {status}")),
        None => Err(anyhow!("an empty command timed out in the sandbox")),
    }
}

/// Checks that the provider answers with this key and model, and that the price is known if a budget needs it.
pub(crate) fn check_provider(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let CheckInput { ctx, settings, .. } = input;
    let settings = connection_test::with_short_timeouts(settings, TEST_REQUEST_TIMEOUT);
    let endpoint =
        model::resolve_endpoint(ctx, &settings, &settings.models[0], input.offline, true)?;
    let endpoint =
        model::require_price(endpoint, model::has_budget(&settings).then_some(false), &mut |_| ())?;
    let key = if endpoint.http_provider.key.is_configured() {
        format!("key from {}", endpoint.choice.key_label.plain_text())
    } else {
        "no key".into()
    };
    let label = format!("`{}` of {}, {key}", endpoint.choice.model, endpoint.choice.provider);
    if input.offline {
        return Ok(vec![CheckResult::ok(format!("{label}; not contacted (--offline)"))]);
    }
    let reply = connection_test::send_test_request(ctx, &settings, endpoint, &|_| ())?;
    let (duration, cost) = (reply.describe_duration(), reply.describe_cost());
    Ok(vec![CheckResult::ok(format!("{label}: answered in {duration}, {cost}"))])
}

/// Checks that shell completions are installed, for supported shells.
pub(crate) fn check_completions(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let Context { env, paths, .. } = input.ctx;
    let Some(shell) = UserShell::from_env(env) else {
        return Ok(Vec::new());
    };
    let name = shell.name();
    Ok(vec![if !shell.completion_path(env, paths).exists() {
        CheckResult::ok(format!("optional; none for {name}"))
            .with_hint("`nanobot onboard --completions`")
    } else if name == "bash" && !Path::new(BASH_COMPLETION_LOADER).exists() {
        CheckResult::warn("installed for bash, but bash-completion is not")
            .with_hint("the package `bash-completion`")
    } else {
        CheckResult::ok(format!("installed for {name}"))
    }])
}

/// Checks whether the Python program's server is also running. It starts its jobs too, and keeps its own copy of sessions.
pub(crate) fn check_gateway(input: &CheckInput) -> Result<Vec<CheckResult>> {
    let process_id = process::find_process(&["nanobot", "gateway"], &input.ctx.paths.home);
    let result = process_id.map(|process_id| {
        let message = format!(
            "the Python program's gateway is running (process {process_id}): it starts its jobs too, and overwrites the sessions \
             that it has open"
        );
        CheckResult::warn(message).with_hint("stop it, or use separate jobs and sessions")
    });
    Ok(result.into_iter().collect())
}
