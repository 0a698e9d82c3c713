//! The skills of `--skill`: the run has their text from the start, as if the model had read it.

use crate::ops::context::Context;
use crate::ops::skill_lookup::find_skill;
use crate::ops::turn_setup::setup_input::SetupInput;
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, WithHint, fail, hint_for};
use nanobot_config::policy::Policy;
use nanobot_config::policy::provenance::ProvenanceTracker;
use nanobot_os::durable_file;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::{self, FoundSkills, Skill};
use nanobot_store::trust::TrustList;
use std::path::Path;

/// Reads the skills that the flags name, among those of the run and in directories.
///
/// # Errors
/// Status 66: there is no such skill. It cannot be read.
pub(super) fn load(
    ctx: &Context,
    input: &SetupInput<'_>,
    found_skills: &FoundSkills,
    notice: &mut dyn FnMut(&str),
) -> Result<Vec<Skill>> {
    let mut skills: Vec<Skill> = Vec::new();
    for name in &input.prompt.skills {
        let skill = read(ctx, found_skills, name)?;
        if !skill.is_available() {
            let missing = skill.unmet_requirements.join(", ");
            notice(&format!("skill `{}` needs what is missing: {missing}", skill.name));
        }
        if !skills.iter().any(|loaded| loaded.location == skill.location) {
            skills.push(skill);
        }
    }
    Ok(skills)
}

/// Adds the files of `skills` that the user has pinned to those that count as the user's, and that runs may not change at will.
pub(super) fn trust_pinned<'s>(
    ctx: &Context,
    skills: impl Iterator<Item = &'s Skill>,
    policy: &mut Policy,
) -> Result<()> {
    let mut skills = skills.peekable();
    if skills.peek().is_none() {
        return Ok(());
    }
    let trust = TrustList::load(&ctx.paths.trust())?;
    for skill in skills {
        let bytes = durable_file::read(&skill.location)?.unwrap_or_default();
        if trust.is_pinned(&skill.location, &bytes) {
            policy.file_scope.trusted.push(skill.location.clone());
            policy.file_scope.instruction_files.push(skill.location.clone());
        }
    }
    Ok(())
}

/// Records what the text of `skills` means for the origin of the conversation.
pub(super) fn observe(skills: &[Skill], provenance: &ProvenanceTracker) {
    for skill in skills {
        provenance.observe_file(&skill.location.display().to_string(), &skill.body);
    }
}

/// Reads the skill that a value of the flag names.
///
/// # Errors
/// As [`load`].
pub(crate) fn read(ctx: &Context, found_skills: &FoundSkills, name: &str) -> Result<Skill> {
    if is_path(name) { read_directory(ctx, name) } else { find_named(found_skills, name) }
}

/// True if the value of the flag is a directory. A name is never one, so that no directory takes the place of a skill of the user.
pub(crate) fn is_path(name: &str) -> bool {
    name.contains('/') || name == "." || name == ".."
}

fn find_named(found_skills: &FoundSkills, name: &str) -> Result<Skill> {
    find_skill(found_skills, name).cloned().map_err(|error| {
        if hint_for(&error).is_some() && Path::new(name).join("SKILL.md").is_file() {
            let cause = format!("{error:#}");
            fail(Exit::NoInput, cause).with_hint(format!("`--skill ./{name}` for the directory"))
        } else {
            error
        }
    })
}

fn read_directory(ctx: &Context, path: &str) -> Result<Skill> {
    let folder = ctx.paths.expand(path);
    let name = sanitize(path);
    let missing = || fail(Exit::NoInput, format!("`{name}` has no SKILL.md"));
    if !folder.is_dir() {
        return Err(if folder.exists() {
            fail(Exit::NoInput, format!("`{name}` is not a directory"))
        } else {
            fail(Exit::NoInput, format!("there is no directory `{name}`"))
        });
    }
    let folder = std::fs::canonicalize(&folder).with_context(|| format!("resolve `{name}`"))?;
    skill::read_skill(&folder, &ctx.env)?.ok_or_else(missing)
}
