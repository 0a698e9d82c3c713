//! Checks that a run started from here would work: config, directories, stored data, sandbox, and provider.

use super::check::{CheckContext, CheckResult, Level};
use super::probe_check::PROBE_JOB;
use crate::error::{Exit, exit_of};
use crate::mcp::roster::Look;
use crate::mcp::words;
use crate::memory::Memory;
use crate::memory::request::is_over;
use crate::ops::connection_test;
use crate::ops::context::Context;
use crate::ops::mcp_servers;
use crate::ops::model;
use crate::ops::permissions::Grants;
use crate::ops::skills::{self as workspace_skills, SkillsSummary};
use crate::ops::toolset;
use crate::ops::turn_setup;
use crate::policy::Sandbox;
use crate::session;
use crate::settings::Config;
use crate::settings::check::{Weight, findings};
use crate::settings::servers::Server;
use crate::sys::process::{self, Spec};
use crate::sys::shell::Shell;
use crate::sys::store::may_make;
use crate::sys::{sandbox as os_sandbox, signal, store};
use crate::trust::Trust;
use anyhow::{Context as _, Result, anyhow};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of the test request to the provider.
const HELLO: Duration = Duration::from_secs(30);
/// Time limit for checking sessions: there may be thousands.
const SESSIONS: Duration = Duration::from_secs(5);
/// Timeout of an empty command in the sandbox.
const NOTHING: Duration = Duration::from_secs(10);
/// The file that loads completions in bash, if it is installed.
const LOADER: &str = "/usr/share/bash-completion/bash_completion";
/// Maximum number of names listed in a result.
const NAMED: usize = 3;

/// Checks the config for unknown or odd settings. It is readable: otherwise no check would run.
pub(crate) fn config(look: &CheckContext) -> Vec<CheckResult> {
    let Context { env, paths, .. } = look.ctx;
    let display = paths.display(&paths.config);
    let config = match Config::load(&paths.config) {
        Ok(config) => config,
        Err(error) => return vec![CheckResult::of_error(Level::Failed, &error)],
    };
    let odd = findings(&config, env, paths);
    let odd = odd.into_iter().filter_map(|finding| match finding.weight {
        Weight::Error => Some(CheckResult::failed(finding.text).exit(Exit::Config)),
        Weight::Warning => Some(CheckResult::warn(finding.text)),
        Weight::Note => None,
    });
    let first = match config.exists() {
        true => CheckResult::ok(display),
        false => CheckResult::warn("no config file: all settings have their defaults")
            .hint("`nanobot onboard`"),
    };
    std::iter::once(first).chain(odd).collect()
}

/// Checks that a run can write its files.
pub(crate) fn places(look: &CheckContext) -> Vec<CheckResult> {
    let CheckContext { ctx, settings, .. } = look;
    let workspace = &settings.workspace;
    let mut findings: Vec<CheckResult> = [
        (ctx.paths.root.join("usage.jsonl"), "the usage ledger"),
        (ctx.paths.cron().join(PROBE_JOB), "job records"),
        (workspace.join("sessions/x"), "sessions"),
        (workspace.join("cron/jobs.json"), "the job file"),
    ]
    .iter()
    .filter_map(|(path, what)| {
        let error = may_make(path.parent().unwrap_or(path)).err()?;
        let message = format!("cannot write {what}: {error:#}");
        Some(CheckResult::failed(message).exit(Exit::Io))
    })
    .collect();
    let display = ctx.paths.display(workspace);
    if findings.is_empty() {
        findings.push(match workspace.is_dir() {
            true => CheckResult::ok(format!("workspace `{display}`")),
            false => CheckResult::warn(format!(
                "the workspace `{display}` does not exist: the first run creates it empty"
            ))
            .hint("`nanobot onboard`"),
        });
    }
    findings
}

/// Checks that other users cannot access private directories.
pub(crate) fn others(look: &CheckContext) -> Vec<CheckResult> {
    let CheckContext { ctx, settings, .. } = look;
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
        if !is_covered && store::is_seen_by_others(place) {
            open.push(place);
        }
    }
    open.iter()
        .map(|place| {
            let display = ctx.paths.display(place);
            CheckResult::warn(format!("other users of this machine can read `{display}`"))
                .hint(format!("chmod 700 {display}"))
        })
        .collect()
}

/// Checks that the sessions are intact.
pub(crate) fn sessions(look: &CheckContext) -> Vec<CheckResult> {
    looked_at(look).unwrap_or_else(|error| vec![CheckResult::of_error(Level::Failed, &error)])
}

fn looked_at(look: &CheckContext) -> Result<Vec<CheckResult>> {
    let place = look.ctx.session_place(look.settings)?;
    let all = session::every(&place)?;
    let end = signal::now().saturating_add(SESSIONS);
    // File permissions have a check of their own.
    let is_odd = |finding: &session::Finding| finding.cure.is_some() && !finding.is_of_mode();
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
            Err(error) if exit_of(&error) == Exit::TryAgain => {}
            Err(error) => findings.push(CheckResult::of_error(Level::Failed, &error)),
        }
    }
    if !odd.is_empty() {
        let message = format!("repairable problems in {}", some(&odd));
        findings.push(CheckResult::warn(message).hint("`nanobot session repair --all`"));
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
fn some(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Checks that the memory is readable and intact.
pub(crate) fn memory(look: &CheckContext) -> Vec<CheckResult> {
    let memory = Memory::new(&look.settings.workspace, &look.ctx.clock);
    let (text, trouble) = match memory.read().and_then(|text| Ok((text, memory.trouble()?))) {
        Ok(found) => found,
        Err(error) => return vec![CheckResult::of_error(Level::Failed, &error)],
    };
    let text = text.unwrap_or_default();
    let mut findings = Vec::new();
    if memory.is_unfinished() {
        let message = "an update was interrupted; the next consolidation finishes it";
        findings.push(CheckResult::warn(message).hint("`nanobot memory consolidate`"));
    }
    if let Some(message) = trouble {
        let message = format!("the last consolidation failed: {message}");
        findings.push(CheckResult::warn(message).hint("`nanobot memory consolidate`"));
    }
    let budget = look.settings.memory.budget;
    if is_over(&String::from_utf8_lossy(&text), budget) {
        let message = format!("exceeds its budget of {budget} tokens; each turn sends all of it");
        findings.push(CheckResult::warn(message).hint("`nanobot memory edit`"));
    }
    if findings.is_empty() {
        findings.push(CheckResult::ok(store::size_in_words(text.len() as u64)));
    }
    findings
}

/// Checks for instruction files and skills here that are ignored because the directory is not trusted.
pub(crate) fn trust(look: &CheckContext) -> Vec<CheckResult> {
    let here = std::env::current_dir().unwrap_or_default();
    let notes = Trust::load(&look.ctx.paths.trust()).and_then(|trust| trust.notes(&here));
    match notes {
        Err(error) => vec![CheckResult::of_error(Level::Failed, &error)],
        Ok(notes) if notes.ignored.is_empty() || here == look.settings.workspace => Vec::new(),
        Ok(notes) => {
            let names = notes.ignored.iter();
            let names: Vec<String> = names
                .map(|path| format!("`{}`", look.ctx.paths.display(path)))
                .collect();
            let message = format!(
                "not read, because their directory is not trusted: {}",
                some(&names)
            );
            vec![CheckResult::warn(message).hint("`nanobot trust .`, if you trust them")]
        }
    }
}

/// Checks that the MCP servers answer and that their tools have not changed.
pub(crate) fn servers(look: &CheckContext) -> Vec<CheckResult> {
    let of_error = |error: &anyhow::Error| vec![CheckResult::of_error(Level::Failed, error)];
    let asked = match mcp_servers::ask_all(look.ctx, look.settings, look.offline) {
        Ok(asked) => asked,
        Err(error) => return of_error(&error),
    };
    let finding = |(server, looked): (Server, Result<Look>)| {
        let name = &server.name;
        match looked {
            Ok(view) if view.changed.is_empty() => {
                CheckResult::ok(format!("{name}: {} tools", view.offer.tools.len()))
            }
            Ok(view) => {
                let names: Vec<String> = view
                    .changed
                    .iter()
                    .map(|it| words::line(&it.tool, 80))
                    .collect();
                CheckResult::warn(format!("{name}: changed tools: {}", some(&names)))
                    .hint(format!("`nanobot mcp accept {name}`"))
            }
            // A run continues without an optional server.
            Err(error) if !server.required => CheckResult::of_error(Level::Warn, &error),
            Err(error) => CheckResult::of_error(Level::Failed, &error),
        }
    };
    asked.into_iter().map(finding).collect()
}

/// Checks that the skills are readable and usable, and fit their budget.
pub(crate) fn skills(look: &CheckContext) -> Vec<CheckResult> {
    let found = match workspace_skills::find(look.ctx, look.settings, Path::new(".")) {
        Ok(found) => found,
        Err(error) => return vec![CheckResult::of_error(Level::Failed, &error)],
    };
    let mut findings: Vec<CheckResult> =
        found.notices().into_iter().map(CheckResult::warn).collect();
    let summary = SkillsSummary::new(&found, look.settings);
    if !summary.lacking.is_empty() {
        let message = format!("missing requirements: {}", some(&summary.lacking));
        findings.push(CheckResult::warn(message).hint("`nanobot skill check`"));
    }
    if summary.is_cut {
        let message = "their list is truncated to its budget";
        let hint = "`nanobot config set agents.defaults.skillsBudgetTokens N`, or fewer skills";
        findings.push(CheckResult::warn(message).hint(hint));
    }
    if findings.is_empty() {
        findings.push(CheckResult::ok(summary.describe()));
    }
    findings
}

/// Checks that the sandbox works, by running an empty command in it.
pub(crate) fn sandbox(look: &CheckContext) -> Vec<CheckResult> {
    // Other notices are reported by other checks.
    let ctx = Context {
        quiet: true,
        ..look.ctx.clone()
    };
    let finding =
        tried(&ctx, look).unwrap_or_else(|error| CheckResult::of_error(Level::Failed, &error));
    vec![finding]
}

fn tried(ctx: &Context, look: &CheckContext) -> Result<CheckResult> {
    let setup = turn_setup::without_turn(ctx, &Grants::default(), true, true)?;
    let policy = &setup.policy;
    if policy.sandbox == Sandbox::Off {
        return Ok(CheckResult::warn(
            "the config disables the sandbox for commands",
        ));
    }
    if let Err(lack) = os_sandbox::available() {
        let message = format!("unavailable, so commands are denied: {lack}");
        let is_needed = policy.sandbox == Sandbox::Strict;
        let level = if is_needed {
            Level::Failed
        } else {
            Level::Warn
        };
        return Ok(CheckResult::new(level, message)
            .hint("`--sandbox off` to run commands without a sandbox")
            .exit(Exit::NoSandbox));
    }
    let exec = toolset::exec(ctx, look.settings, policy, &setup.shared.files);
    let mut fence = exec.fence().context("set up the sandbox")?;
    // Test as for a command that may write: such a command prefers its own mount namespace.
    fence.hides = true;
    let mounts = match process::lets_mount(&fence) {
        true => ", in its own mount namespace",
        false => {
            "; this system allows no mount namespace of its own, which is slower but equally safe"
        }
    };
    let finished = process::run(
        &Spec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), ":".into()],
            directory: policy.reach.directory.clone(),
            env: Vec::new(),
            timeout: NOTHING,
            keep: 0,
            fence: Some(fence),
            input: None,
        },
        &mut |_| {},
    )
    .context("run a command in the sandbox")?;
    if let Some(stop) = finished.stopped {
        return Err(stop.into());
    }
    match finished.status {
        Some(status) if status.success() => Ok(CheckResult::ok(format!(
            "a command ran under Landlock and seccomp{mounts}"
        ))),
        Some(status) => Err(anyhow!("an empty command fails in the sandbox: {status}")),
        None => Err(anyhow!("an empty command timed out in the sandbox")),
    }
}

/// Checks that the provider answers with this key and model, and that the price is known if a budget needs it.
pub(crate) fn provider(look: &CheckContext) -> Vec<CheckResult> {
    let finding = asked(look).unwrap_or_else(|error| CheckResult::of_error(Level::Failed, &error));
    vec![finding]
}

fn asked(look: &CheckContext) -> Result<CheckResult> {
    let CheckContext { ctx, settings, .. } = look;
    let settings = connection_test::with_short_timeouts(settings, HELLO);
    let way = model::resolve_endpoint(ctx, &settings, &settings.asked[0], look.offline, true)?;
    let way = model::require_price(way, model::is_capped(&settings).then_some(false))?;
    let key = match way.wire.key.is_some() {
        true => format!("key from {}", way.choice.key_place.replace('`', "")),
        false => "no key".into(),
    };
    let who = format!("`{}` of {}, {key}", way.choice.model, way.choice.provider);
    if look.offline {
        return Ok(CheckResult::ok(format!("{who}; not contacted (--offline)")));
    }
    let reply = connection_test::ask(ctx, &settings, way)?;
    Ok(CheckResult::ok(format!(
        "{who}: answered in {}, {}",
        reply.seconds(),
        reply.cost()
    )))
}

/// Checks that shell completions are installed, for supported shells.
pub(crate) fn completions(look: &CheckContext) -> Vec<CheckResult> {
    let Context { env, paths, .. } = look.ctx;
    let shell = Shell::of(env).map(|shell| (shell.name(), shell.place(env, paths)));
    let found = shell.map(|(name, path)| match path.exists() {
        true if name == "bash" && !Path::new(LOADER).exists() => {
            CheckResult::warn("installed for bash, but bash-completion is not")
                .hint("the package `bash-completion`")
        }
        true => CheckResult::ok(format!("installed for {name}")),
        false => CheckResult::ok(format!("not installed for {name}"))
            .hint("`nanobot onboard --completions`"),
    });
    found.into_iter().collect()
}

/// Checks if the Python program's server is also running. It starts its jobs too, and keeps its own copy of sessions.
pub(crate) fn gateway(look: &CheckContext) -> Vec<CheckResult> {
    let found = process::running(&["nanobot", "gateway"], &look.ctx.paths.home);
    let results = found.map(|number| {
        let message = format!(
            "the Python program's gateway is running (process {number}): it starts its jobs too, and overwrites the sessions \
             that it has open"
        );
        CheckResult::warn(message).hint("stop it, or use separate jobs and sessions")
    });
    results.into_iter().collect()
}
