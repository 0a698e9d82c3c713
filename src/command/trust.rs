//! `nanobot trust`: manages the directories whose files may instruct the agent.

use crate::cli::policy::TrustArgs;
use crate::ops::context::Context;
use crate::ops::{prompt_program, repository};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::input;
use nanobot_os::repository::GitPointer;
use nanobot_store::trust::{self, TrustChange, TrustList};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Runs `nanobot trust`.
pub fn run(ctx: &Context, arguments: &TrustArgs) -> Result<Exit> {
    let TrustArgs { path, list, revoke, json, dry_run } = arguments;
    if *list {
        return print_trusted(ctx, &load(ctx)?, *json);
    }
    let argument = path.as_deref().unwrap_or(Path::new("."));
    let display = |path: &Path| ctx.paths.display(path);
    if *revoke {
        // A directory that no longer exists is found by the path under which it was trusted.
        let path = std::fs::canonicalize(argument)
            .or_else(|_| std::path::absolute(argument))
            .with_context(|| format!("resolve `{}`", argument.display()))?;
        if !TrustList::change(&ctx.paths.trust(), |trust| Ok(trust.revoke(&path)))? {
            return Err(fail(Exit::NoInput, format!("`{}` is not trusted", display(&path)))
                .with_hint("nanobot trust --list"));
        }
        print_line(ctx, &format!("`{}` is no longer trusted", display(&path)))?;
        return Ok(Exit::Answered);
    }
    if argument.is_file() {
        return pin(ctx, argument, *dry_run);
    }
    let path = resolve_directory(argument)?;
    if path.parent().is_none() || ctx.paths.home.starts_with(&path) {
        let cause = format!(
            "`{}` contains more than one project; trust a directory below it",
            display(&path)
        );
        return Err(fail(Exit::Usage, cause));
    }
    let now = ctx.clock.now().timestamp();
    let pointers = repository::unpinned_pointers(ctx, &path);
    let (trust, change) =
        change_list(ctx, *dry_run, |trust| trust.add(&path, pointers.clone(), now))?;
    print_change(ctx, &path, change, *dry_run)?;
    for GitPointer { file, target } in &pointers {
        let (file, target) = (display(file), display(target));
        print_line(ctx, &format!("  git in commands uses `{target}`, as `{file}` says"))?;
    }
    let files = trust.instruction_files(&path);
    for file in &files {
        let when = if trust::is_own_instruction_file(file, &path) {
            "read from now on"
        } else if file.ends_with("AGENTS.md") {
            "read with the files in its directory"
        } else {
            "read only in runs in the directory around it"
        };
        let would_be = if *dry_run { "would be " } else { "" };
        print_line(ctx, &format!("  {would_be}{when}: {}", display(file)))?;
    }
    if ctx.terminal.stderr_is_tty && !dry_run {
        if files.is_empty() {
            ctx.notice("the directory has no instruction files; trust it again after you add one");
        }
        let root = quote_path(&path);
        ctx.notice(&format!("`nanobot trust --revoke {root}` undoes this"));
    }
    let notes = trust.read_instructions(&path)?;
    if let Some(repository) = trust::repository_root(&path)
        && !notes.ignored.is_empty()
    {
        let root = quote_path(repository);
        ctx.terminal.eprint(&format!(
            "nanobot: instructions above it stay ignored; `nanobot trust {root}` includes them"
        ));
    }
    Ok(Exit::Answered)
}

/// Pins a prompt file, so that its front matter may widen the permissions of its runs.
fn pin(ctx: &Context, file: &Path, is_dry_run: bool) -> Result<Exit> {
    let path =
        std::fs::canonicalize(file).with_context(|| format!("resolve `{}`", file.display()))?;
    let bytes =
        input::read_file(&path, &file.display().to_string(), prompt_program::MAX_FILE_BYTES)?;
    let now = ctx.clock.now().timestamp();
    let (_, change) = change_list(ctx, is_dry_run, |trust| Ok(trust.pin(&path, &bytes, now)))?;
    print_change(ctx, &path, change, is_dry_run)?;
    Ok(Exit::Answered)
}

/// Changes the list, or only its copy in memory, and returns it.
fn change_list(
    ctx: &Context,
    is_dry_run: bool,
    change: impl FnOnce(&mut TrustList) -> Result<TrustChange>,
) -> Result<(TrustList, TrustChange)> {
    if is_dry_run {
        let mut trust = load(ctx)?;
        let change = change(&mut trust)?;
        return Ok((trust, change));
    }
    let change = TrustList::change(&ctx.paths.trust(), |trust| {
        trust.damage_notice().iter().for_each(|notice| ctx.notice(notice));
        change(trust)
    })?;
    Ok((load(ctx)?, change))
}

fn print_change(ctx: &Context, path: &Path, change: TrustChange, is_dry_run: bool) -> Result<()> {
    let verb = match (change, is_dry_run) {
        (TrustChange::Added, false) => "is now trusted",
        (TrustChange::Added, true) => "would be trusted",
        (TrustChange::Updated, false) => "is now trusted with its changes",
        (TrustChange::Updated, true) => "would be trusted with its changes",
        (TrustChange::Unchanged, _) => "was already trusted",
    };
    print_line(ctx, &format!("`{}` {verb}", ctx.paths.display(path)))
}

/// Loads the list, and reports damage.
fn load(ctx: &Context) -> Result<TrustList> {
    let trust = TrustList::load(&ctx.paths.trust())?;
    trust.damage_notice().iter().for_each(|notice| ctx.notice(notice));
    Ok(trust)
}

fn print_trusted(ctx: &Context, trust: &TrustList, json: bool) -> Result<Exit> {
    if json {
        // A path need not be UTF-8, which JSON is.
        let line = |path: &Path, since: &str, is_valid: bool| json!({ "path": path.to_string_lossy(), "since": since, "stands": is_valid });
        let files = trust.files.iter();
        let files = files.map(|file| line(&file.path, &file.since, file.path.is_file()));
        let directories = trust.directories.iter();
        let directories = directories
            .map(|directory| line(&directory.path, &directory.since, directory.is_unchanged()));
        ctx.terminal.print_json_lines(files.chain(directories))?;
        return Ok(Exit::Answered);
    }
    if trust.directories.is_empty() && trust.files.is_empty() {
        ctx.explain_empty("no directory is trusted");
    }
    for file in &trust.files {
        ctx.terminal.print(&format!("{}\n", file.path.display()))?;
    }
    for trusted in &trust.directories {
        let path = trusted.path.display();
        ctx.terminal.print(&if trusted.is_unchanged() {
            format!("{path}\n")
        } else {
            format!("{path} (removed or replaced since, so not trusted)\n")
        })?;
    }
    Ok(Exit::Answered)
}

fn resolve_directory(directory: &Path) -> Result<PathBuf> {
    let path = std::fs::canonicalize(directory).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!("there is no `{}`", directory.display());
            if directory.as_os_str() == "list" {
                fail(Exit::NoInput, message).with_hint("nanobot trust --list")
            } else {
                fail(Exit::NoInput, message)
            }
        }
        _ => anyhow::Error::new(error).context(format!("resolve `{}`", directory.display())),
    })?;
    if !path.is_dir() {
        return Err(fail(Exit::Usage, format!("`{}` is not a directory", directory.display())));
    }
    Ok(path)
}

fn quote_path(path: &Path) -> String {
    quote(&path.display().to_string())
}

fn print_line(ctx: &Context, text: &str) -> Result<()> {
    if ctx.quiet {
        return Ok(());
    }
    ctx.terminal.print(&format!("{text}\n"))
}
