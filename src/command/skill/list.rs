//! `nanobot skill list`: lists every skill, active or not.

use super::describe::{body_tokens, describe_origin, describe_state, location_json, origin_json};
use crate::command::name_pattern::NamePattern;
use crate::ops::context::Context;
use crate::ops::skill_lookup::current_skills;
use anyhow::Result;
use nanobot_agent::report::columns::{Side, align_columns, truncate};
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::{FoundSkills, InactiveReason, InactiveSkill, Skill, render_list};
use serde_json::{Value, json};

/// Runs `nanobot skill list`.
pub(super) fn run(ctx: &Context, pattern: Option<&str>, as_json: bool) -> Result<Exit> {
    let (settings, mut found_skills) = current_skills(ctx)?;
    let budget = settings.skills.budget_tokens;
    let list = render_list(&found_skills.skills, budget);
    let names = NamePattern(pattern);
    let FoundSkills { skills, inactive, unreadable, .. } = &mut found_skills;
    skills.retain(|skill| names.matches(&skill.name));
    inactive.retain(|inactive| names.matches(&inactive.skill.name));
    // A skill whose name could not be read matches no pattern.
    unreadable.retain(|unreadable| match &unreadable.name {
        Some(name) => names.matches(name),
        None => pattern.is_none(),
    });
    let is_empty = skills.is_empty() && inactive.is_empty() && unreadable.is_empty();
    if as_json {
        ctx.terminal.print_json_lines(json_lines(&found_skills))?;
        return Ok(Exit::Answered);
    }
    ctx.terminal.print(&table(ctx, &found_skills, ctx.terminal.stdout_width()))?;
    if is_empty {
        ctx.explain_empty("no skill matches");
    }
    if list.is_cut() {
        ctx.notice(&format!(
            "the skill list in each request is truncated to {budget} tokens (`agents.defaults.skillsBudgetTokens`)"
        ));
    }
    Ok(Exit::Answered)
}

/// Formats all skills as a table: active ones, inactive ones, and those that cannot be read.
pub(super) fn table(ctx: &Context, found_skills: &FoundSkills, width: Option<usize>) -> String {
    let row = |skill: &Skill, state: String| {
        let description: Vec<&str> = skill.description.split_whitespace().collect();
        vec![
            skill.name.clone(),
            sanitize(&describe_origin(ctx, &skill.source)),
            body_tokens(skill).to_string(),
            sanitize(&state),
            sanitize(&description.join(" ")),
        ]
    };
    let FoundSkills { skills, inactive, unreadable, .. } = found_skills;
    let mut rows: Vec<Vec<String>> =
        skills.iter().map(|skill| row(skill, describe_state(skill))).collect();
    rows.extend(
        inactive.iter().map(|inactive| row(&inactive.skill, describe_inactive(ctx, inactive))),
    );
    rows.extend(unreadable.iter().map(|unreadable| {
        let name = unreadable.name.as_deref().unwrap_or("-");
        let path = ctx.paths.display(&unreadable.path);
        let state = format!("unreadable: {}", unreadable.reason);
        [name, &path, "-", &state, ""].map(sanitize).to_vec()
    }));
    let columns = [
        ("NAME", Side::Left),
        ("FROM", Side::Left),
        ("TOKENS", Side::Right),
        ("STATE", Side::Left),
        ("DESCRIPTION", Side::Left),
    ];
    let lines = align_columns(&columns, &rows).into_iter();
    lines.map(|line| truncate(&line, width) + "\n").collect()
}

fn describe_inactive(ctx: &Context, inactive: &InactiveSkill) -> String {
    match &inactive.reason {
        InactiveReason::Superseded(source) => {
            format!("hidden by the one from {}", describe_origin(ctx, source))
        }
        InactiveReason::Disabled => "disabled in the config".into(),
        InactiveReason::Changed => "changed since its first use (nanobot trust)".into(),
    }
}

fn json_lines(found_skills: &FoundSkills) -> impl Iterator<Item = Value> {
    let line = |skill: &Skill, state: &str, hidden_by: Option<String>| {
        json!({
            "name": skill.name, "description": skill.description, "source": origin_json(&skill.source),
            "location": location_json(skill), "state": state, "hidden_by": hidden_by, "always": skill.always, "missing": skill.unmet_requirements,
            "tokens": body_tokens(skill), "warnings": skill.warnings,
        })
    };
    let active = found_skills.skills.iter().map(move |skill| {
        let state = match (skill.is_available(), skill.is_offered) {
            (false, _) => "unavailable",
            (true, false) => "not-offered",
            (true, true) => "available",
        };
        line(skill, state, None)
    });
    let inactive = found_skills.inactive.iter().map(move |inactive| match &inactive.reason {
        InactiveReason::Superseded(source) => {
            line(&inactive.skill, "hidden", Some(origin_json(source)))
        }
        InactiveReason::Disabled => line(&inactive.skill, "disabled", None),
        InactiveReason::Changed => line(&inactive.skill, "changed", None),
    });
    let unreadable = found_skills.unreadable.iter().map(|unreadable| {
        json!({
            "name": unreadable.name, "location": unreadable.path.display().to_string(), "state": "unreadable", "error": unreadable.reason,
        })
    });
    active.chain(inactive).chain(unreadable)
}
