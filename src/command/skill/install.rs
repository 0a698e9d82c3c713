//! `nanobot skill install` and `remove`: the contents of a skill are shown before it is installed.

use super::describe::{body_tokens, describe_origin, entry_line, format_rows};
use crate::cli::skill::SkillInstallArgs;
use crate::command::question::confirm_at_terminal;
use crate::ops::context::Context;
use crate::ops::skill_package::{SkillPackage, allowed_hosts};
use crate::ops::skills;
use anyhow::Result;
use nanobot_base::error::{Exit, fail, fail_with_hint};
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::{BuiltInSkill, RequirementChecker, install, is_displayable_name};
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
    let description = describe(ctx, &package, &ctx.paths.display(&place), &hides);
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

/// Describes the skill in labelled rows, for review before it is installed at `destination`. `hidden_skill` says
/// which skill of the same name it replaces or takes precedence over; empty if there is none.
fn describe(
    ctx: &Context,
    package: &SkillPackage,
    destination: &str,
    hidden_skill: &str,
) -> String {
    let skill = &package.skill;
    let entries: Vec<&FolderEntry> = package.files.iter().map(|(entry, _)| entry).collect();
    let is_file = |entry: &&FolderEntry| matches!(entry.entry_type, EntryType::File { .. });
    let (file_count, total_bytes) = (
        entries.iter().copied().filter(|entry| is_file(entry)).count(),
        package.files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>(),
    );
    let without_folders = entries.iter().filter(|entry| entry.entry_type != EntryType::Folder);
    let lines = without_folders
        .map(|entry| entry_line(entry))
        .chain(package.skipped.iter().map(|entry| format!("not copied: {entry}")));
    let lines: Vec<String> = std::iter::once(format!("{file_count}, {}", format_size(total_bytes)))
        .chain(lines)
        .collect();
    let always_note = if skill.always { "its text is part of every request" } else { "" };
    let mut tools = skill.inert_fields.allowed_tools.join(" ");
    if !tools.is_empty() {
        tools.push_str(" (grants nothing)");
    }
    let warnings: Vec<String> = skill.warnings.iter().chain(&package.warnings).cloned().collect();
    let rows = [
        ("name", skill.name.clone()),
        ("about", skill.description.clone()),
        ("into", destination.to_owned()),
        ("hides", hidden_skill.to_owned()),
        ("tokens", body_tokens(skill).to_string()),
        ("always", always_note.to_owned()),
        ("needs", skill.requirements.describe(&RequirementChecker::new(&ctx.env)).join(", ")),
        ("license", skill.inert_fields.license.clone().unwrap_or_default()),
        ("tools", tools),
        ("files", lines.join("\n")),
        ("scripts", package.scripts().join("\n")),
        ("addresses", package.urls().join("\n")),
        ("hosts", allowed_hosts(skill)),
        ("warnings", warnings.join("\n")),
    ];
    format_rows(&rows, ctx.terminal.stdout_width())
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
