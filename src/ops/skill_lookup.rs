//! Finds skills by name, lists the files of a skill, and reads one.

use crate::ops::context::Context;
use crate::ops::skills;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, UserAction, WithHint, fail, fail_with_parts};
use nanobot_base::shell_quote::quote;
use nanobot_config::settings::Settings;
use nanobot_config::settings::keys::nearest;
use nanobot_os::rooted_fs::{self, RootDir};
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::{EntryType, FolderEntry, SkillFolder};
use nanobot_store::skill::{BuiltInSkill, FoundSkills, InactiveReason, Skill, SkillSource};
use std::io::Read;
use std::path::Path;

/// Maximum bytes of a file that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The settings, and the skills of a run in the current directory.
pub(crate) fn current_skills(ctx: &Context) -> Result<(Settings, FoundSkills)> {
    let settings = ctx.settings()?;
    let skills = skills::find(ctx, &settings, Path::new("."))?;
    Ok((settings, skills))
}

/// Finds a skill by name.
///
/// # Errors
/// Status 66 if there is no such skill, or it cannot be read.
pub(crate) fn find_skill<'a>(skills: &'a FoundSkills, name: &str) -> Result<&'a Skill> {
    let find_disabled = || {
        let mut inactive = skills.inactive.iter();
        inactive
            .find(|inactive| {
                inactive.skill.name == name && inactive.reason == InactiveReason::Disabled
            })
            .map(|inactive| &inactive.skill)
    };
    if let Some(skill) = skills.by_name(name).or_else(find_disabled) {
        return Ok(skill);
    }
    if let Some(skill) = find_changed(skills, name) {
        let path = skill.location.display();
        return Err(fail(Exit::Failed, format!("skill `{name}` changed since its first use"))
            .with_hint(format!(
                "`nanobot skill show {name}`, then `nanobot trust {}`",
                quote(&path.to_string())
            )));
    }
    let mut unreadable = skills.unreadable.iter();
    if let Some(unreadable) = unreadable.find(|skill| skill.name.as_deref() == Some(name)) {
        let cause = format!("skill `{name}`: {}", unreadable.reason);
        return Err(fail(Exit::BadInput, cause).with_hint("nanobot skill check"));
    }
    let names = skills.skills.iter().map(|skill| skill.name.as_str());
    let hint = match nearest(name, names) {
        Some(nearest) => format!("nanobot skill show {nearest}").into(),
        None => UserAction::ListSkills.into(),
    };
    Err(fail_with_parts(Exit::NoInput, format!("there is no skill `{name}`"), [hint]))
}

/// The skill `name` of a shared folder, which is not used because it changed.
pub(crate) fn find_changed<'a>(skills: &'a FoundSkills, name: &str) -> Option<&'a Skill> {
    let mut inactive = skills.inactive.iter();
    let changed = inactive.find(|inactive| {
        inactive.skill.name == name && inactive.reason == InactiveReason::Changed
    })?;
    Some(&changed.skill)
}

/// The files and directories of a skill.
pub(crate) fn skill_entries(skill: &Skill) -> Result<Vec<FolderEntry>> {
    match (&skill.source, BuiltInSkill::by_name(&skill.name)) {
        (SkillSource::BuiltIn, Some(built_in)) => Ok(built_in_entries(built_in)),
        _ => {
            let folder = skill.location.parent().unwrap_or(Path::new(""));
            Ok(SkillFolder::scan(folder)?.entries)
        }
    }
}

/// The files of a built-in skill.
pub(crate) fn built_in_entries(built_in: &BuiltInSkill) -> Vec<FolderEntry> {
    let entry = |(path, text): &(&str, &str)| FolderEntry {
        path: path.into(),
        entry_type: EntryType::File {
            size: text.len() as u64,
            is_executable: text.starts_with("#!"),
        },
    };
    built_in.files.iter().map(entry).collect()
}

/// Reads one of the skill's files. Links and paths cannot lead out of its folder.
///
/// # Errors
/// Status 66 if it has no such file, 65 if it is larger than [`MAX_FILE_BYTES`].
pub(crate) fn read_file(skill: &Skill, file: &str) -> Result<Vec<u8>> {
    let missing_file_error = || {
        let cause = format!("skill `{}` has no file `{}`", skill.name, sanitize(file));
        fail(Exit::NoInput, cause).with_hint(format!("nanobot skill show {}", skill.name))
    };
    if let (SkillSource::BuiltIn, Some(built_in)) =
        (&skill.source, BuiltInSkill::by_name(&skill.name))
    {
        return Ok(built_in.file(file).ok_or_else(missing_file_error)?.as_bytes().to_vec());
    }
    let folder = skill.location.parent().unwrap_or(Path::new(""));
    let context = || format!("read `{}`", folder.join(file).display());
    let root = RootDir::open(folder).with_context(context)?;
    let opened_file = match root.open_for_reading(Path::new(file)) {
        Ok(opened_file) => opened_file,
        Err(error) if rooted_fs::is_link(&error) => {
            let cause = format!("`{}` is a symbolic link, which is not followed", sanitize(file));
            return Err(fail(Exit::Failed, cause));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(missing_file_error());
        }
        Err(error) => return Err(error).with_context(context),
    };
    if !opened_file.metadata().with_context(context)?.is_file() {
        return Err(missing_file_error());
    }
    let mut bytes = Vec::new();
    opened_file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).with_context(context)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let cause = format!("`{}` is larger than {} MiB", sanitize(file), MAX_FILE_BYTES >> 20);
        return Err(fail(Exit::BadInput, cause));
    }
    Ok(bytes)
}
