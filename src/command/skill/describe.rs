//! The parts of a skill's description that several `skill` commands print.

use crate::ops::context::Context;
use nanobot_agent::report::columns::hanging_indent;
use nanobot_base::message::token_estimate;
use nanobot_os::durable_file::format_size;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::folder::{EntryType, FolderEntry};
use nanobot_store::skill::{Skill, SkillSource};

/// The origin of a skill, for people.
pub(super) fn describe_origin(ctx: &Context, source: &SkillSource) -> String {
    match source {
        SkillSource::Workspace => "workspace".into(),
        SkillSource::BuiltIn => "built-in".into(),
        SkillSource::Own(dir) | SkillSource::Directory(dir) | SkillSource::Shared(dir) => {
            ctx.paths.display(dir)
        }
    }
}

/// The origin of a skill for JSON: a word or a path.
pub(super) fn origin_json(source: &SkillSource) -> String {
    match source {
        SkillSource::Workspace => "workspace".into(),
        SkillSource::BuiltIn => "built-in".into(),
        SkillSource::Own(dir) | SkillSource::Directory(dir) | SkillSource::Shared(dir) => {
            dir.display().to_string()
        }
    }
}

/// The path of a skill for JSON. A built-in skill is no file.
pub(super) fn location_json(skill: &Skill) -> Option<String> {
    (skill.source != SkillSource::BuiltIn).then(|| skill.location.display().to_string())
}

/// The tokens of a skill's text, which each request contains once a model has read it, or always if it is always on.
pub(super) fn body_tokens(skill: &Skill) -> u64 {
    token_estimate::for_text(&skill.body)
}

/// The state of an active skill, for people.
pub(super) fn describe_state(skill: &Skill) -> String {
    let warnings = if skill.warnings.is_empty() { "" } else { "; warnings (skill check)" };
    let state = match (&skill.unmet_requirements[..], skill.is_offered) {
        ([], true) if skill.always => "always on".to_owned(),
        ([], true) => "available".into(),
        ([], false) => "not offered to the model, by its own setting".into(),
        (missing, _) => format!("missing: {}", missing.join(", ")),
    };
    state + warnings
}

/// Formats a labelled row for each text that is not empty.
pub(super) fn format_rows(rows: &[(&str, String)], width: Option<usize>) -> String {
    let mut text = String::new();
    for (label, value) in rows.iter().filter(|(_, value)| !value.trim().is_empty()) {
        for (index, line) in value.lines().enumerate() {
            let label = if index == 0 { label } else { "" };
            text += &hanging_indent(&format!("{label:9} "), &sanitize(line), width);
            text.push('\n');
        }
    }
    text
}

/// A file, directory or link on a line.
pub(super) fn entry_line(entry: &FolderEntry) -> String {
    let path = entry.path.display();
    match &entry.entry_type {
        EntryType::Folder => format!("{path}/"),
        EntryType::File { size, is_executable } => {
            let mark = if *is_executable { ", executable" } else { "" };
            format!("{path} ({}{mark})", format_size(*size))
        }
        EntryType::Link { target, problem } => {
            let problem = problem.map(|problem| format!(", which {problem}"));
            format!("{path} -> {}{}", target.display(), problem.unwrap_or_default())
        }
        EntryType::Other(file_type) => format!("{path} ({file_type})"),
    }
}
