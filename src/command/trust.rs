//! `nanobot trust`: manages the directories whose files may instruct the agent.

use crate::cli::policy::TrustArgs as Arguments;
use crate::ops::context::Context;
use crate::ops::{prompt_program, repository};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_os::input;
use nanobot_os::repository::GitPointer;
use nanobot_store::trust::{self, TrustChange, TrustList};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Runs `nanobot trust`.
pub fn run(ctx: &Context, arguments: &Arguments) -> Result<Exit> {
    let Arguments { directory, list, revoke, json } = arguments;
    if *list {
        return print_trusted(ctx, &load(ctx)?, *json);
    }
    let given = directory.as_deref().unwrap_or(Path::new("."));
    let show = |path: &Path| ctx.paths.display(path);
    if *revoke {
        // A directory that no longer exists is found by the name under which it was trusted.
        let path = std::fs::canonicalize(given).or_else(|_| std::path::absolute(given));
        let path = path.with_context(|| format!("resolve `{}`", given.display()))?;
        if !TrustList::change(&ctx.paths.trust(), |trust| trust.revoke(&path))? {
            return Err(fail_with_hint(
                Exit::NoInput,
                format!("`{}` is not trusted", show(&path)),
                "nanobot trust --list",
            ));
        }
        print_line(ctx, &format!("`{}` is no longer trusted", show(&path)))?;
        return Ok(Exit::Answered);
    }
    if given.is_file() {
        return pin(ctx, given);
    }
    let path = resolve_directory(given)?;
    if path.parent().is_none() || ctx.paths.home.starts_with(&path) {
        return Err(fail(
            Exit::Usage,
            format!("`{}` contains more than one project; trust a directory below it", show(&path)),
        ));
    }
    let now = ctx.clock.now().timestamp();
    let pointers = repository::unpinned_pointers(ctx, &path);
    let added = TrustList::change(&ctx.paths.trust(), |trust| {
        trust.damage_notice().iter().for_each(|notice| ctx.notice(notice));
        trust.add(&path, pointers.clone(), now)
    });
    print_change(ctx, &path, added?)?;
    for GitPointer { file, target } in &pointers {
        let (file, target) = (show(file), show(target));
        print_line(ctx, &format!("  git in commands uses `{target}`, as `{file}` says"))?;
    }
    let trust = load(ctx)?;
    let files = trust.instruction_files(&path);
    for file in &files {
        let when = match trust::is_own_instruction_file(file, &path) {
            true => "read from now on",
            false if file.ends_with("AGENTS.md") => "read with the files in its directory",
            false => "read only in runs in the directory around it",
        };
        print_line(ctx, &format!("  {when}: {}", show(file)))?;
    }
    if ctx.terminal.stderr_is_tty {
        if files.is_empty() {
            ctx.notice("it has no instruction files; one that comes later is read once it is trusted again");
        }
        let root = show(&path);
        ctx.notice(&format!("`nanobot trust --revoke {root}` takes this back"));
    }
    let notes = trust.read_instructions(&path)?;
    if let Some(repository) = trust::repository_root(&path)
        && !notes.ignored.is_empty()
    {
        let root = show(repository);
        ctx.terminal.eprint(&format!(
            "nanobot: instructions above it stay ignored; `nanobot trust {root}` includes them"
        ));
    }
    Ok(Exit::Answered)
}

/// Pins a prompt file: its front matter may then widen what its run may do.
fn pin(ctx: &Context, given: &Path) -> Result<Exit> {
    let path =
        std::fs::canonicalize(given).with_context(|| format!("resolve `{}`", given.display()))?;
    let bytes =
        input::read_file(&path, &given.display().to_string(), prompt_program::MAX_FILE_BYTES)?;
    let now = ctx.clock.now().timestamp();
    let change = TrustList::change(&ctx.paths.trust(), |trust| {
        trust.damage_notice().iter().for_each(|notice| ctx.notice(notice));
        trust.pin(&path, &bytes, now)
    })?;
    print_change(ctx, &path, change)?;
    Ok(Exit::Answered)
}

fn print_change(ctx: &Context, path: &Path, change: TrustChange) -> Result<()> {
    let words = match change {
        TrustChange::Added => "is now trusted",
        TrustChange::Updated => "is now trusted with its changes",
        TrustChange::Unchanged => "was already trusted",
    };
    print_line(ctx, &format!("`{}` {words}", ctx.paths.display(path)))
}

/// Loads the list, and reports damage.
fn load(ctx: &Context) -> Result<TrustList> {
    let trust = TrustList::load(&ctx.paths.trust())?;
    trust.damage_notice().iter().for_each(|notice| ctx.notice(notice));
    Ok(trust)
}

fn print_trusted(ctx: &Context, trust: &TrustList, json: bool) -> Result<Exit> {
    if json {
        let line = |path: &Path, since: &str, stands: bool| json!({ "path": path, "since": since, "stands": stands });
        let files = trust.files.iter();
        let files = files.map(|file| line(&file.path, &file.since, file.path.is_file()));
        let directories = trust.directories.iter();
        let directories = directories.map(|it| line(&it.path, &it.since, it.is_unchanged()));
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

fn resolve_directory(given: &Path) -> Result<PathBuf> {
    let path = std::fs::canonicalize(given).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!("there is no `{}`", given.display());
            if given.as_os_str() == "list" {
                fail_with_hint(Exit::NoInput, message, "nanobot trust --list")
            } else {
                fail(Exit::NoInput, message)
            }
        }
        _ => anyhow::Error::new(error).context(format!("resolve `{}`", given.display())),
    })?;
    if !path.is_dir() {
        return Err(fail(Exit::Usage, format!("`{}` is not a directory", given.display())));
    }
    Ok(path)
}

fn print_line(ctx: &Context, words: &str) -> Result<()> {
    if ctx.quiet {
        return Ok(());
    }
    ctx.terminal.print(&format!("{words}\n"))
}
