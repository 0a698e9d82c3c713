//! Finds skills by name, and lists the files of a skill.

use crate::error::{Exit, fail_with_hint};
use crate::ops::context::Context;
use crate::ops::skills;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::skill::folder::{EntryType, FolderEntry, SkillFolder};
use crate::skill::{BuiltInSkill, FoundSkills, Skill, SkillSource};
use anyhow::Result;
use std::path::Path;

/// The settings, and the skills of a run in the current directory.
pub(super) fn current_skills(ctx: &Context) -> Result<(Settings, FoundSkills)> {
    let settings = ctx.settings()?;
    let found = skills::find(ctx, &settings, Path::new("."))?;
    Ok((settings, found))
}

/// Finds a skill by name.
///
/// # Errors
/// Status 66 if there is no such skill, or it cannot be read.
pub(super) fn find_skill<'a>(found: &'a FoundSkills, name: &str) -> Result<&'a Skill> {
    let disabled = || {
        let mut hidden = found.inactive.iter();
        let hidden =
            hidden.find(|hidden| hidden.skill.name == name && hidden.superseded_by.is_none());
        hidden.map(|hidden| &hidden.skill)
    };
    if let Some(skill) = found.by_name(name).or_else(disabled) {
        return Ok(skill);
    }
    let mut unreadable = found.unreadable.iter();
    if let Some(unreadable) = unreadable.find(|unreadable| unreadable.name.as_deref() == Some(name))
    {
        let cause = format!("skill `{name}`: {}", unreadable.reason);
        return Err(fail_with_hint(Exit::BadInput, cause, "nanobot skill check"));
    }
    let names = found.skills.iter().map(|skill| skill.name.as_str());
    let hint = match nearest(name, names) {
        Some(meant) => format!("nanobot skill show {meant}"),
        None => "nanobot skill list".into(),
    };
    Err(fail_with_hint(Exit::NoInput, format!("there is no skill `{name}`"), hint))
}

/// The files and directories of a skill.
pub(super) fn skill_entries(skill: &Skill) -> Result<Vec<FolderEntry>> {
    match (&skill.source, BuiltInSkill::by_name(&skill.name)) {
        (SkillSource::BuiltIn, Some(built_in)) => Ok(built_in_entries(built_in)),
        _ => {
            let folder = skill.location.parent().unwrap_or(Path::new(""));
            Ok(SkillFolder::scan(folder)?.entries)
        }
    }
}

/// The files of a built-in skill.
pub(super) fn built_in_entries(built_in: &BuiltInSkill) -> Vec<FolderEntry> {
    let entry = |(path, text): &(&str, &str)| FolderEntry {
        path: path.into(),
        entry_type: EntryType::File {
            size: text.len() as u64,
            is_executable: text.starts_with("#!"),
        },
    };
    built_in.files.iter().map(entry).collect()
}
