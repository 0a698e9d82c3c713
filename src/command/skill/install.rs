//! `nanobot skill install` and `remove`: the contents of a skill are shown before it is installed.

use super::describe::describe_origin;
use super::package::SkillPackage;
use crate::cli::skill::SkillInstallArgs;
use crate::command::question::confirm_at_terminal;
use crate::error::{Exit, fail, fail_with_hint};
use crate::ops::context::Context;
use crate::ops::skills;
use crate::skill::{BuiltInSkill, install, is_displayable_name};
use crate::sys::terminal::sanitize;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Runs `nanobot skill install`.
pub(super) fn run(ctx: &Context, arguments: &SkillInstallArgs) -> Result<Exit> {
    let SkillInstallArgs { path, yes, force, dry_run } = arguments;
    let settings = ctx.settings()?;
    let built_in = path.to_str().filter(|_| !path.exists()).and_then(BuiltInSkill::by_name);
    let package = match built_in {
        Some(built_in) => SkillPackage::from_built_in(ctx, built_in)?,
        None => SkillPackage::read(ctx, path)?,
    };
    let name = &package.skill.name;
    let dir = settings.workspace.join("skills");
    let place = dir.join(name);
    let found = skills::find(ctx, &settings, Path::new("."))?;
    let is_taken = place.symlink_metadata().is_ok();
    let hides = match found.by_name(name) {
        _ if is_taken => "the installed one, which it replaces".to_owned(),
        Some(other) => {
            format!("the skill of that name from: {}", describe_origin(ctx, &other.source))
        }
        None => String::new(),
    };
    let description = package.describe(ctx, &ctx.paths.display(&place), &hides);
    ctx.terminal.print(&description)?;
    if !package.problems.is_empty() {
        let cause = format!("`{name}` is not installed: {}", package.problems.join("; "));
        return Err(fail(Exit::BadInput, cause));
    }
    if is_taken && !force {
        return Err(fail_with_hint(
            Exit::Failed,
            format!("the workspace already has a skill `{name}`"),
            "`--force` to replace it",
        ));
    }
    if *dry_run {
        return Ok(Exit::Answered);
    }
    if !(*yes
        || confirm_at_terminal(
            ctx,
            &format!("Install {name}?"),
            "`--yes`, or `--dry-run` for the review only",
        )?)
    {
        ctx.notice("nothing was installed");
        return Ok(Exit::Failed);
    }
    let place: PathBuf = install::install(&dir, name, &package.files, *force)?;
    ctx.notice(&format!("installed in `{}`", ctx.paths.display(&place)));
    Ok(Exit::Answered)
}

/// Removes a skill from the workspace.
pub(super) fn remove(ctx: &Context, name: &str, yes: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    let dir = settings.workspace.join("skills");
    let is_there = is_displayable_name(name) && dir.join(name).symlink_metadata().is_ok();
    if !is_there {
        let found = skills::find(ctx, &settings, Path::new("."))?;
        let name = sanitize(name);
        return Err(match found.by_name(&name) {
            Some(other) => fail_with_hint(
                Exit::Usage,
                format!(
                    "`{name}` is not in the workspace; it is from: {}",
                    describe_origin(ctx, &other.source)
                ),
                format!("nanobot config set agents.defaults.disabledSkills '[\"{name}\"]'"),
            ),
            None => fail_with_hint(
                Exit::NoInput,
                format!("there is no skill `{name}` in the workspace"),
                "nanobot skill list",
            ),
        });
    }
    let shown = ctx.paths.display(&dir.join(name));
    if !(yes || confirm_at_terminal(ctx, &format!("Delete {shown} permanently?"), "`--yes`")?) {
        ctx.notice("nothing was removed");
        return Ok(Exit::Failed);
    }
    install::remove(&dir, name)?;
    ctx.notice(&format!("removed `{shown}`"));
    Ok(Exit::Answered)
}
