//! The optional steps that are offered once the setup works: shell completions, a regular check of HEARTBEAT.md by cron, the
//! default session, a chat channel, and a command to try. The command goes on after an error of an offer, by
//! [`warn_on_error`].

use crate::command::channel::login;
use crate::command::completions::script_of;
use crate::command::cron::saved_job::print_saved;
use crate::command::question::{Cancelled, ask_choice, confirm};
use crate::ops::context::{Context, report_error};
use crate::ops::jobs::crontab_sync;
use crate::ops::jobs::heartbeat_job;
use crate::ops::jobs::workspace_jobs;
use crate::options::job::JobSettings;
use anyhow::Result;
use jiff::tz::TimeZone;
use nanobot_base::error::{Exit, Stop, WithHint, fail};
use nanobot_channel::table::CHANNELS;
use nanobot_config::settings::{Config, Settings};
use nanobot_cron::job::{HEARTBEAT_ID, HEARTBEAT_INTERVAL};
use nanobot_cron::schedule::Schedule;
use nanobot_os::durable_file;
use nanobot_os::env;
use nanobot_os::shell::UserShell;
use nanobot_os::terminal::{stderr_width, wrap_words};
use nanobot_store::skill;
use nanobot_store::trust;
use std::path::Path;

/// Text in one of the first lines of every completion script.
const SCRIPT_MARK: &str = "Completion of nanobot for ";
/// Number of first lines that are searched for the mark.
const MARK_LINES: usize = 3;
/// The key of the conversation that a message continues.
const SESSION_KEY: [&str; 3] = ["agents", "defaults", "session"];

/// Reports an error of a step, so that the command can go on. A signal remains an error. If the input ends, the step is skipped.
pub(super) fn warn_on_error(ctx: &Context, result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is::<Cancelled>() => Ok(()),
        Err(error) if !error.is::<Stop>() => {
            report_error(&error, ctx.terminal);
            Ok(())
        }
        result => result,
    }
}

/// Offers completions for the user's shell.
pub(super) fn offer_completions(ctx: &Context) -> Result<()> {
    let Some(shell) = UserShell::from_env(&ctx.env) else {
        return Ok(());
    };
    let path = shell.completion_path(&ctx.env, &ctx.paths);
    if check_script(ctx, shell, &path)? == ScriptState::Current {
        return Ok(());
    }
    let question =
        format!("Install TAB completion for {} ({})?", shell.name(), ctx.paths.display(&path));
    if confirm(ctx, &question, true)? {
        write_script(ctx, shell, &path)?;
    }
    Ok(())
}

/// Writes the completions for the user's shell without asking.
///
/// # Errors
/// Status 2 for a shell without a known location for completions.
pub(super) fn write_completions(ctx: &Context) -> Result<()> {
    let shell = UserShell::from_env(&ctx.env).ok_or_else(|| {
        let shell = ctx.env.get("SHELL").unwrap_or("not set");
        let cause =
            format!("completions can be installed for bash, zsh and fish, and `SHELL` is {shell}");
        fail(Exit::Usage, cause).with_hint("`nanobot completions SHELL`, which prints them")
    })?;
    let path = shell.completion_path(&ctx.env, &ctx.paths);
    match check_script(ctx, shell, &path)? {
        ScriptState::Current => Ok(()),
        ScriptState::Writable => write_script(ctx, shell, &path),
    }
}

/// The state of the file for a completion script.
#[derive(PartialEq, Eq)]
enum ScriptState {
    /// It has the script of this release.
    Current,
    /// It does not exist, or it has the script of another release.
    Writable,
}

/// Checks the script for `shell` at `path`.
///
/// # Errors
/// The file is not nanobot's, or it is a link: neither is replaced.
fn check_script(ctx: &Context, shell: UserShell, path: &Path) -> Result<ScriptState> {
    let Ok(metadata) = path.symlink_metadata() else {
        return Ok(ScriptState::Writable);
    };
    let installed =
        if path.is_file() { durable_file::read(path)?.unwrap_or_default() } else { Vec::new() };
    if installed == script_of(shell).as_bytes() {
        return Ok(ScriptState::Current);
    }
    let text = String::from_utf8_lossy(&installed);
    let cause = if metadata.is_symlink() {
        "it is a symbolic link"
    } else if text.lines().take(MARK_LINES).any(|line| line.contains(SCRIPT_MARK)) {
        return Ok(ScriptState::Writable);
    } else {
        "it exists and is not nanobot's"
    };
    let name = shell.name();
    let path = ctx.paths.display(path);
    Err(fail(Exit::Io, format!("completions are not written to {path}: {cause}"))
        .with_hint(format!("`nanobot completions {name} > {path}`, which replaces it")))
}

fn write_script(ctx: &Context, shell: UserShell, path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        durable_file::create_dir(folder)?;
    }
    durable_file::replace(path, script_of(shell).as_bytes())?;
    if !ctx.quiet {
        ctx.terminal.eprint(&format!("wrote {}", ctx.paths.display(path)));
        if let Some(note) = shell.loading_note(path) {
            ctx.terminal.eprint(&format!("  {note}"));
        }
    }
    Ok(())
}

/// Offers to let cron check HEARTBEAT.md, if cron is available.
pub(super) fn offer_heartbeat(ctx: &Context, settings: &Settings) -> Result<()> {
    let is_enabled = workspace_jobs::open(ctx, settings).job(HEARTBEAT_ID)?.is_some();
    if is_enabled || crontab_sync::read_lines(ctx, settings).is_err() {
        return Ok(());
    }
    let interval = Schedule::Every(HEARTBEAT_INTERVAL).describe(&TimeZone::UTC);
    let question = format!(
        "HEARTBEAT.md is your list of tasks for the agent. Check it {interval} with cron, and do its tasks? While it has none, no request is sent."
    );
    if confirm(ctx, &question, false)? {
        enable_heartbeat(ctx)?;
    }
    Ok(())
}

/// Enables the heartbeat with its defaults.
pub(super) fn enable_heartbeat(ctx: &Context) -> Result<()> {
    let saved = heartbeat_job::enable(ctx, &JobSettings::default())?;
    print_saved(ctx, saved, "✓ Heartbeat enabled", false).map(drop)
}

/// Asks which conversation a message without `-s` continues, unless the config or the environment has an answer. The default
/// answer writes nothing.
pub(super) fn offer_session(ctx: &Context) -> Result<()> {
    let is_configured =
        Config::load(&ctx.paths)?.get_path(SESSION_KEY.join(".").as_str()).is_some();
    if is_configured || ctx.env.get(env::SESSION).is_some() {
        return Ok(());
    }
    ctx.terminal.eprint(
        "Without `-s`, `agent -m` continues:\n  one        one conversation, in scripts too\n  directory  one for each directory\n  none       none: each message is on its own",
    );
    let choices = ["one", "directory", "none"];
    match ask_choice(ctx.terminal, "Conversation [one]: ", "one", &choices)? {
        "one" => Ok(()),
        rule => Config::change(&ctx.paths, |config| config.set(&SESSION_KEY, &rule.into())),
    }
}

/// Offers to log in at a chat channel, unless one is enabled.
pub(super) fn offer_channel(ctx: &Context, settings: &Settings) -> Result<()> {
    if !settings.channels.is_empty() {
        return Ok(());
    }
    let kinds = CHANNELS.iter().filter(|kind| kind.is_offered_by_onboard());
    let names: Vec<&str> = kinds.map(|kind| kind.name).collect();
    let text = format!("Chats can be answered too: {}.", names.join(", "));
    ctx.terminal.eprint(&wrap_words(&text, stderr_width(), 0));
    let choices = [&names[..], &["none"]].concat();
    match ask_choice(ctx.terminal, "Channel [none]: ", "none", &choices)? {
        "none" => Ok(()),
        name => login::log_in(ctx, name),
    }
}

/// A command to try next, which works in the current directory.
pub(super) fn suggest_command(ctx: &Context) -> &'static str {
    let directory = std::env::current_dir().unwrap_or_default();
    let has_git = skill::is_on_path("git", ctx.env.get("PATH").unwrap_or_default());
    if has_git && trust::repository_root(&directory).is_some() {
        return "git log -5 | nanobot agent -m \"what happened here?\"";
    }
    let has_files = std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
    if has_files {
        "ls -l | nanobot agent -m \"what is in this directory?\""
    } else {
        "nanobot agent -m \"what can you do for me?\""
    }
}
