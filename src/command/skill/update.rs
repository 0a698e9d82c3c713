//! `nanobot skill update`: shows how a skill of the workspace differs from its source, and replaces it after confirmation.

use super::add::{Review, name_hosts, require_identity};
use super::describe::format_rows;
use crate::cli::skill::SkillUpdateArgs;
use crate::command::question::confirm_at_terminal;
use crate::ops::context::Context;
use crate::ops::skill_package::SkillPackage;
use crate::ops::skill_source::PackageSource;
use anyhow::Result;
use nanobot_base::diff::Diff;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::EntryType;
use nanobot_store::skill::install::{self, PackageEntry};
use nanobot_store::skill::is_displayable_name;
use std::collections::BTreeMap;
use std::path::Path;

/// Context lines around a difference.
const CONTEXT_LINES: usize = 3;

/// Runs `nanobot skill update`.
pub(super) fn run(ctx: &Context, arguments: &SkillUpdateArgs) -> Result<Exit> {
    let SkillUpdateArgs { name, source, remote, yes, dry_run } = arguments;
    let settings = ctx.settings()?;
    let dir = settings.workspace.join("skills");
    let folder = dir.join(name);
    if !is_displayable_name(name) || !folder.join("SKILL.md").is_file() {
        let cause = format!("there is no skill `{}` in the workspace", sanitize(name));
        return Err(fail(Exit::NoInput, cause).with_hint("nanobot skill add SOURCE"));
    }
    let source = PackageSource::parse(source)?;
    require_identity(&source, remote, *dry_run)?;
    let installed = SkillPackage::read(ctx, &folder)?;
    let sourced = source.read(ctx, &settings, remote.digest.as_deref())?;
    let package = &sourced.package;
    if package.skill.name != *name {
        let cause = format!("the skill there is `{}`, not `{name}`", package.skill.name);
        return Err(fail(Exit::BadInput, cause));
    }
    if !package.problems.is_empty() {
        let cause = format!("`{name}` is not updated: {}", package.problems.join("; "));
        return Err(fail(Exit::BadInput, cause));
    }
    let changes = describe_changes(&installed.files, &package.files);
    if changes.is_empty() {
        ctx.notice(&format!("`{name}` is what is there already"));
        return Ok(Exit::Answered);
    }
    ctx.terminal.print(&sanitize(&changes))?;
    let review = Review { sourced: &sourced, is_remote: source.is_remote() };
    ctx.terminal.print(&format_rows(&review.rows(), ctx.terminal.stdout_width()))?;
    if *dry_run {
        return Ok(Exit::Answered);
    }
    let hint = "`--yes`, or `--dry-run` for the changes only";
    if !(*yes || confirm_at_terminal(ctx, &format!("Update {name}?"), hint)?) {
        ctx.notice("nothing was changed");
        return Ok(Exit::Failed);
    }
    name_hosts(ctx, &review, remote, *yes)?;
    let replace = true;
    let path = install::install(&dir, name, &package.files, replace)?;
    ctx.notice(&format!("updated `{}`", ctx.paths.display(&path)));
    Ok(Exit::Answered)
}

/// Describes the files that were added, removed or changed, with a diff of each text; empty if all are equal.
fn describe_changes(old: &[PackageEntry], new: &[PackageEntry]) -> String {
    let [old, new] = [files_by_path(old), files_by_path(new)];
    let paths = old.keys().chain(new.keys().filter(|path| !old.contains_key(*path)));
    let mut text = String::new();
    for path in paths {
        let (before, after) = (old.get(path), new.get(path));
        if before == after {
            continue;
        }
        let header = [before, after].map(|file| match file {
            Some(_) => path.display().to_string(),
            None => "/dev/null".to_owned(),
        });
        let [before_text, after_text] = [before, after]
            .map(|file| file.map_or(Some(""), |file| std::str::from_utf8(file.bytes).ok()));
        match (before_text, after_text) {
            (Some(before), Some(after)) if before != after => {
                let [old_name, new_name] = &header;
                text += &Diff::new(before, after).unified_with_header(
                    CONTEXT_LINES,
                    old_name,
                    new_name,
                );
            }
            (Some(_), Some(_)) if before.is_none() || after.is_none() => {
                let verb = if before.is_none() { "is added" } else { "is removed" };
                text += &format!("{} {verb}\n", path.display());
            }
            (Some(_), Some(_)) => {}
            _ => {
                let size = after.map_or_else(
                    || "removed".to_owned(),
                    |file| format_size(file.bytes.len() as u64),
                );
                text += &format!("{}: not a text, {size}\n", path.display());
            }
        }
        let is_executable =
            |file: Option<&ReviewedFile<'_>>| file.is_some_and(|file| file.is_executable);
        match (is_executable(before), is_executable(after)) {
            (false, true) => text += &format!("{} becomes executable\n", path.display()),
            (true, false) if after.is_some() => {
                text += &format!("{} is no longer executable\n", path.display());
            }
            _ => {}
        }
        let [link_before, link_after] = [before, after].map(|file| file.and_then(|file| file.link));
        if link_before != link_after && after.is_some() {
            let target = link_after.map_or("a file".into(), |target| target.display().to_string());
            text += &format!("{} now leads to {target}\n", path.display());
        }
    }
    text
}

/// A file or link of a skill.
#[derive(PartialEq)]
struct ReviewedFile<'a> {
    bytes: &'a [u8],
    is_executable: bool,
    link: Option<&'a Path>,
}

fn files_by_path(entries: &[PackageEntry]) -> BTreeMap<&Path, ReviewedFile<'_>> {
    let files = entries.iter().filter_map(|(entry, bytes)| {
        let (is_executable, link) = match &entry.entry_type {
            EntryType::File { is_executable, .. } => (*is_executable, None),
            EntryType::Link { target, .. } => (false, Some(target.as_path())),
            EntryType::Folder | EntryType::Other(_) => return None,
        };
        Some((entry.path.as_path(), ReviewedFile { bytes, is_executable, link }))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::describe_changes;
    use nanobot_store::skill::folder::{EntryType, FolderEntry};
    use nanobot_store::skill::install::PackageEntry;

    fn file(path: &str, bytes: &[u8], is_executable: bool) -> PackageEntry {
        let size = bytes.len() as u64;
        let entry_type = EntryType::File { size, is_executable };
        (FolderEntry { path: path.into(), entry_type }, bytes.to_vec())
    }

    #[test]
    fn changes_of_files() {
        let check = |old: &[PackageEntry], new: &[PackageEntry], expect: &[&str]| {
            let text = describe_changes(old, new);
            expect.iter().for_each(|line| assert!(text.contains(line), "{line}: {text}"));
            assert_eq!(text.is_empty(), expect.is_empty(), "{text}");
        };
        let a = [file("a", b"one\n", false)];
        check(&a, &a, &[]);
        check(&a, &[file("a", b"two\n", false)], &["--- a", "+++ a", "-one", "+two"]);
        check(&a, &[], &["+++ /dev/null", "-one"]);
        check(&[], &a, &["--- /dev/null", "+one"]);
        check(&[file("b", b"", false)], &[], &["b is removed"]);
        check(&a, &[file("a", b"one\n", true)], &["a becomes executable"]);
        check(&a, &[file("a", b"\xff", false)], &["a: not a text, 1 B"]);
    }
}
