//! Finds skills by name, and lists the files of a skill.

use crate::error::{Exit, fail_hint};
use crate::ops::context::Context;
use crate::ops::skills;
use crate::settings::Settings;
use crate::settings::keys::nearest;
use crate::skill::folder::{Entry, Folder, Kind};
use crate::skill::{BuiltIn, Found, Skill, Source};
use anyhow::Result;
use std::path::Path;

/// The settings, and the skills of a run in the current directory.
pub(super) fn here(ctx: &Context) -> Result<(Settings, Found)> {
    let settings = ctx.settings()?;
    let found = skills::find(ctx, &settings, Path::new("."))?;
    Ok((settings, found))
}

/// Finds a skill by name.
///
/// # Errors
/// Status 66 if there is no such skill, or it cannot be read.
pub(super) fn named<'a>(found: &'a Found, name: &str) -> Result<&'a Skill> {
    let disabled = || {
        let mut hidden = found.hidden.iter();
        let hidden = hidden.find(|hidden| hidden.skill.name == name && hidden.by.is_none());
        hidden.map(|hidden| &hidden.skill)
    };
    if let Some(skill) = found.named(name).or_else(disabled) {
        return Ok(skill);
    }
    let mut unreadable = found.unreadable.iter();
    if let Some(unreadable) = unreadable.find(|unreadable| unreadable.name.as_deref() == Some(name))
    {
        let cause = format!("skill `{name}`: {}", unreadable.why);
        return Err(fail_hint(Exit::BadInput, cause, "nanobot skill check"));
    }
    let names = found.skills.iter().map(|skill| skill.name.as_str());
    let hint = match nearest(name, names) {
        Some(meant) => format!("nanobot skill show {meant}"),
        None => "nanobot skill list".into(),
    };
    Err(fail_hint(
        Exit::NoInput,
        format!("there is no skill `{name}`"),
        hint,
    ))
}

/// The files and directories of a skill.
pub(super) fn entries(skill: &Skill) -> Result<Vec<Entry>> {
    match (&skill.source, BuiltIn::named(&skill.name)) {
        (Source::BuiltIn, Some(built_in)) => Ok(built_in_entries(built_in)),
        _ => {
            let folder = skill.location.parent().unwrap_or(Path::new(""));
            Ok(Folder::look(folder)?.entries)
        }
    }
}

/// The files of a built-in skill.
pub(super) fn built_in_entries(built_in: &BuiltIn) -> Vec<Entry> {
    let entry = |(path, text): &(&str, &str)| Entry {
        path: path.into(),
        kind: Kind::File {
            size: text.len() as u64,
            is_executable: text.starts_with("#!"),
        },
    };
    built_in.files.iter().map(entry).collect()
}
