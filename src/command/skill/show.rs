//! `nanobot skill show`: prints one skill in full.

use super::describe::{
    body_tokens, describe_origin, describe_state, entry_line, format_rows, location_json,
    origin_json,
};
use crate::cli::skill::SkillShowArgs;
use crate::ops::context::Context;
use crate::ops::skill_lookup::{
    current_skills, find_changed, find_skill, read_file, skill_entries,
};
use anyhow::Result;
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::{RequirementChecker, Skill, SkillSource};
use serde_json::{Value, json};

/// Runs `nanobot skill show`.
pub(super) fn run(ctx: &Context, arguments: &SkillShowArgs) -> Result<Exit> {
    let SkillShowArgs { name, file, json } = arguments;
    let (_, skills) = current_skills(ctx)?;
    let skill = match find_changed(&skills, name) {
        // A skill that has changed is not used, but the user reads it here before trusting it again. Another skill of its name is
        // the one that runs use.
        Some(changed) if skills.by_name(name).is_none() => changed,
        _ => find_skill(&skills, name)?,
    };
    if let Some(file) = file {
        ctx.terminal.print_bytes(&read_file(skill, file)?)?;
    } else if *json {
        ctx.terminal.print_json(&skill_json(ctx, skill))?;
    } else {
        ctx.terminal.print(&describe(ctx, skill, ctx.terminal.stdout_width()))?;
    }
    Ok(Exit::Answered)
}

/// Formats the rows about a skill, and its text.
pub(super) fn describe(ctx: &Context, skill: &Skill, width: Option<usize>) -> String {
    let requirements = RequirementChecker::new(&ctx.env);
    let inert_fields = &skill.inert_fields;
    let origin = match skill.source {
        SkillSource::BuiltIn => "built-in".to_owned(),
        _ => format!(
            "{}: {}",
            describe_origin(ctx, &skill.source),
            ctx.paths.display(&skill.location)
        ),
    };
    let SkillContents { entries, warnings } = SkillContents::read(skill);
    let mut tools = inert_fields.allowed_tools.join(" ");
    if !tools.is_empty() {
        tools.push_str(" (grants nothing)");
    }
    let metadata = match &inert_fields.metadata {
        Value::Null => String::new(),
        metadata => metadata.to_string(),
    };
    let rows = [
        ("name", skill.name.clone()),
        ("about", skill.description.clone()),
        ("from", origin),
        ("state", describe_state(skill)),
        ("tokens", body_tokens(skill).to_string()),
        ("needs", skill.requirements.describe(&requirements).join(", ")),
        ("install", skill.requirements.install.join("; ")),
        ("license", inert_fields.license.clone().unwrap_or_default()),
        ("for", inert_fields.compatibility.clone().unwrap_or_default()),
        ("tools", tools),
        ("metadata", metadata),
        ("files", entries.iter().map(entry_line).collect::<Vec<_>>().join("\n")),
        ("warnings", warnings.join("\n")),
    ];
    format!("{}\n{}\n", format_rows(&rows, width), sanitize(&skill.body))
}

/// The files of a skill, and its warnings. A folder that cannot be listed is one of them.
struct SkillContents {
    entries: Vec<FolderEntry>,
    warnings: Vec<String>,
}

impl SkillContents {
    fn read(skill: &Skill) -> Self {
        let mut warnings = skill.warnings.clone();
        let entries = skill_entries(skill).unwrap_or_else(|error| {
            warnings.push(format!("{error:#}"));
            Vec::new()
        });
        Self { entries, warnings }
    }
}

fn entry_json(entry: &FolderEntry) -> Value {
    let path = entry.path.to_string_lossy();
    match &entry.entry_type {
        EntryType::Folder => json!({ "path": path, "kind": "folder" }),
        EntryType::File { size, is_executable } => {
            json!({ "path": path, "kind": "file", "bytes": size, "executable": is_executable })
        }
        EntryType::Link { target, .. } => {
            json!({ "path": path, "kind": "link", "target": target.to_string_lossy() })
        }
        EntryType::Other(_) => json!({ "path": path, "kind": "other" }),
    }
}

fn skill_json(ctx: &Context, skill: &Skill) -> Value {
    let SkillContents { entries, warnings } = SkillContents::read(skill);
    let files: Vec<Value> = entries.iter().map(entry_json).collect();
    json!({
        "name": skill.name, "description": skill.description, "source": origin_json(&skill.source),
        "location": location_json(skill), "available": skill.is_available(), "offered": skill.is_offered,
        "always": skill.always, "missing": skill.unmet_requirements,
        "needs": skill.requirements.describe(&RequirementChecker::new(&ctx.env)), "install": skill.requirements.install,
        "license": skill.inert_fields.license, "compatibility": skill.inert_fields.compatibility,
        "allowed_tools": skill.inert_fields.allowed_tools, "metadata": skill.inert_fields.metadata,
        "user_invocable": skill.inert_fields.is_user_invocable, "tokens": body_tokens(skill), "files": files,
        "warnings": warnings, "body": skill.body,
    })
}

#[cfg(test)]
mod tests {
    use super::SkillContents;
    use nanobot_os::env::Env;
    use nanobot_store::skill::{RequirementChecker, SkillSource, parse};

    #[test]
    fn a_folder_that_cannot_be_listed_is_a_warning() {
        let env = Env::default();
        let text = "---\nname: x\ndescription: d\n---\nb";
        let mut skill = parse("x", text, &RequirementChecker::new(&env));
        skill.source = SkillSource::Workspace;
        skill.location = "/nowhere/x/SKILL.md".into();
        let SkillContents { entries, warnings } = SkillContents::read(&skill);
        assert!(entries.is_empty());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}
