//! `nanobot skill add` and `remove`. A person sees the contents of a skill before it is installed.

use super::describe::{body_tokens, describe_origin, entry_line, format_rows};
use crate::cli::skill::{RemoteOptions, SkillAddArgs};
use crate::command::question::{ask_yes, confirm_at_terminal};
use crate::ops::context::Context;
use crate::ops::skill_package::linked_hosts;
use crate::ops::skill_source::{PackageSource, SourcedPackage};
use crate::ops::skills;
use anyhow::Result;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::{Terminal, sanitize};
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::{RequirementChecker, WrittenSkills, install, is_displayable_name};
use serde_json::json;
use std::path::Path;

/// A skill from its source, as it is reviewed.
pub(super) struct Review<'a> {
    pub(super) sourced: &'a SourcedPackage,
    pub(super) is_remote: bool,
}

impl Review<'_> {
    /// The rows about what the skill may reach, and about the archive that it came in.
    pub(super) fn rows(&self) -> [(&'static str, String); 2] {
        let hosts = linked_hosts(&self.sourced.package.skill).join(", ");
        let hosts = match (hosts.as_str(), self.is_remote) {
            ("", _) => String::new(),
            (_, true) => format!("named only if you say so: {hosts}"),
            (_, false) => format!("always allowed, even after untrusted content: {hosts}"),
        };
        let digest = self.sourced.digest.as_ref().map(|digest| format!("sha256:{digest}"));
        [("hosts", hosts), ("digest", digest.unwrap_or_default())]
    }
}

/// Runs `nanobot skill add`.
pub(super) fn run(ctx: &Context, arguments: &SkillAddArgs) -> Result<Exit> {
    let SkillAddArgs { source, remote, yes, force, dry_run } = arguments;
    let settings = ctx.settings()?;
    let source = PackageSource::parse(source)?;
    require_identity(&source, remote, *dry_run)?;
    let sourced = source.read(ctx, &settings, remote.digest.as_deref())?;
    let review = Review { sourced: &sourced, is_remote: source.is_remote() };
    let package = &sourced.package;
    let name = &package.skill.name;
    let dir = settings.workspace.join("skills");
    let destination = dir.join(name);
    let skills = skills::find(ctx, &settings, Path::new("."))?;
    let is_installed = destination.symlink_metadata().is_ok();
    let hidden_skill = if is_installed {
        Some("the installed one, which it replaces".to_owned())
    } else {
        skills.by_name(name).map(|other| {
            format!("the skill of that name from: {}", describe_origin(ctx, &other.source))
        })
    };
    let destination = ctx.paths.display(&destination);
    let description = describe(ctx, &review, &destination, hidden_skill);
    ctx.terminal.print(&description)?;
    if !package.problems.is_empty() {
        let cause = format!("`{name}` is not installed: {}", package.problems.join("; "));
        return Err(fail(Exit::BadInput, cause));
    }
    if is_installed && !force {
        return Err(fail(Exit::Failed, format!("the workspace already has a skill `{name}`"))
            .with_hint(format!(
                "`nanobot skill update {name} SOURCE` for its changes, or `--force` to replace it"
            )));
    }
    if *dry_run {
        return Ok(Exit::Answered);
    }
    let hint = "`--yes`, or `--dry-run` for the review only";
    if !(*yes || confirm_at_terminal(ctx, &format!("Install {name}?"), hint)?) {
        ctx.notice("nothing was installed");
        return Ok(Exit::Failed);
    }
    name_hosts(ctx, &review, remote, *yes)?;
    let path = install::install(&dir, name, &package.files, *force)?;
    ctx.notice(&format!("installed in `{}`", ctx.paths.display(&path)));
    Ok(Exit::Answered)
}

/// Refuses an archive that no person will see before it is installed, unless its digest says which one is meant.
pub(super) fn require_identity(
    source: &PackageSource<'_>,
    remote: &RemoteOptions,
    is_dry_run: bool,
) -> Result<()> {
    let is_archive = matches!(source, PackageSource::Archive { .. });
    if remote.digest.is_some() && !is_archive {
        return Err(fail(Exit::Usage, "`--digest` is of an archive; a commit has its own"));
    }
    if is_archive && remote.digest.is_none() && !is_dry_run && !Terminal::can_prompt() {
        let cause = "without a terminal an archive needs `--digest` and `--yes`";
        let hint = "`--dry-run`, which prints the digest, and a look at what it prints";
        return Err(fail(Exit::Usage, cause).with_hint(hint));
    }
    Ok(())
}

/// Records whether the user names the hosts of a skill that comes from elsewhere, before it is installed. Without a question, only the flag
/// names them.
pub(super) fn name_hosts(
    ctx: &Context,
    review: &Review<'_>,
    remote: &RemoteOptions,
    is_unasked: bool,
) -> Result<()> {
    let package = &review.sourced.package;
    let hosts = linked_hosts(&package.skill);
    if !review.is_remote || hosts.is_empty() {
        return Ok(());
    }
    let mut files = package.files.iter();
    let skill_md = files.find(|(entry, _)| entry.path == Path::new("SKILL.md"));
    let text = skill_md.map_or(&[][..], |(_, bytes)| bytes);
    let written_skills = WrittenSkills::new(ctx.paths.written_skills());
    let question =
        format!("May web tools reach {}, even after untrusted content?", hosts.join(", "));
    if remote.hosts || (!is_unasked && ask_yes(ctx, &question)?) {
        return written_skills.name_hosts(text);
    }
    let is_untrusted = true;
    written_skills.record(None, text, is_untrusted)
}

/// Describes the skill in labelled rows, for review before it is installed at `destination`. `hidden_skill` is the skill of the
/// same name that it replaces or takes precedence over.
fn describe(
    ctx: &Context,
    review: &Review<'_>,
    destination: &str,
    hidden_skill: Option<String>,
) -> String {
    let package = &review.sourced.package;
    let skill = &package.skill;
    let [hosts, digest] = review.rows();
    let entries = || package.files.iter().map(|(entry, _)| entry);
    let is_file = |entry: &&FolderEntry| matches!(entry.entry_type, EntryType::File { .. });
    let file_count = entries().filter(is_file).count();
    let total_bytes = package.files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    let mut files = vec![format!("{file_count}, {}", format_size(total_bytes))];
    files.extend(entries().filter(|entry| entry.entry_type != EntryType::Folder).map(entry_line));
    files.extend(package.skipped.iter().map(|entry| format!("not copied: {entry}")));
    let always_note = match (skill.always && skill.is_offered, skill.is_available()) {
        (true, true) => "its text is part of every request",
        (true, false) => "its text is part of every request once its needs are met",
        (false, _) => "",
    };
    let mut tools = skill.inert_fields.allowed_tools.join(" ");
    if !tools.is_empty() {
        tools.push_str(" (grants nothing)");
    }
    let warnings: Vec<String> = skill.warnings.iter().chain(&package.warnings).cloned().collect();
    let rows = [
        ("name", skill.name.clone()),
        ("about", skill.description.clone()),
        ("into", destination.to_owned()),
        ("hides", hidden_skill.unwrap_or_default()),
        ("tokens", body_tokens(skill).to_string()),
        ("always", always_note.to_owned()),
        ("needs", skill.requirements.describe(&RequirementChecker::new(&ctx.env)).join(", ")),
        ("license", skill.inert_fields.license.clone().unwrap_or_default()),
        ("tools", tools),
        ("files", files.join("\n")),
        ("scripts", package.scripts().join("\n")),
        ("addresses", package.urls().join("\n")),
        hosts,
        digest,
        ("warnings", warnings.join("\n")),
    ];
    format_rows(&rows, ctx.terminal.stdout_width())
}

/// Removes a skill from the workspace.
pub(super) fn remove(ctx: &Context, name: &str, yes: bool) -> Result<Exit> {
    let settings = ctx.settings()?;
    let dir = settings.workspace.join("skills");
    let exists = is_displayable_name(name) && dir.join(name).symlink_metadata().is_ok();
    if !exists {
        let skills = skills::find(ctx, &settings, Path::new("."))?;
        let name = sanitize(name);
        return Err(match skills.by_name(&name) {
            Some(other) => {
                let origin = describe_origin(ctx, &other.source);
                let mut disabled = settings.skills.disabled;
                disabled.push(name.clone());
                let value = quote(&json!(disabled).to_string());
                fail(Exit::Usage, format!("`{name}` is not in the workspace; it is from: {origin}"))
                    .with_hint(format!("nanobot config set agents.defaults.disabledSkills {value}"))
            }
            None => fail(Exit::NoInput, format!("there is no skill `{name}` in the workspace"))
                .with_hint("nanobot skill list"),
        });
    }
    let path = ctx.paths.display(&dir.join(name));
    if !(yes || confirm_at_terminal(ctx, &format!("Delete {path} permanently?"), "`--yes`")?) {
        ctx.notice("nothing was removed");
        return Ok(Exit::Failed);
    }
    install::remove(&dir, name)?;
    ctx.notice(&format!("removed `{path}`"));
    Ok(Exit::Answered)
}
