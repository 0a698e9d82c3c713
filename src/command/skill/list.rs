//! `nanobot skill list`: lists every skill, active or not.

use super::describe::{body_tokens, describe_origin, describe_state, origin_json};
use crate::command::name_pattern::NamePattern;
use crate::ops::context::Context;
use crate::ops::skill_lookup::current_skills;
use anyhow::Result;
use nanobot_agent::report::columns::{Side, align_columns, truncate};
use nanobot_base::error::Exit;
use nanobot_os::terminal::sanitize;
use nanobot_store::skill::{FoundSkills, InactiveSkill, Skill, render_list};
use serde_json::{Value, json};

/// Runs `nanobot skill list`.
pub(super) fn run(ctx: &Context, pattern: Option<&str>, as_json: bool) -> Result<Exit> {
    let (settings, mut found) = current_skills(ctx)?;
    let list = render_list(&found.skills, settings.skills.budget_tokens);
    let names = NamePattern(pattern);
    found.skills.retain(|skill| names.matches(&skill.name));
    found.inactive.retain(|it| names.matches(&it.skill.name));
    let has_name = |name: Option<&str>| name.map_or(pattern.is_none(), |name| names.matches(name));
    found.unreadable.retain(|it| has_name(it.name.as_deref()));
    if as_json {
        ctx.terminal.print_json_lines(json_lines(&found))?;
        return Ok(Exit::Answered);
    }
    ctx.terminal.print(&table(ctx, &found, ctx.terminal.stdout_width()))?;
    let budget = settings.skills.budget_tokens;
    let is_empty =
        found.skills.is_empty() && found.inactive.is_empty() && found.unreadable.is_empty();
    if is_empty {
        ctx.explain_empty("no skill matches");
    }
    if list.is_cut() {
        ctx.notice(&format!(
                "the skill list in each request is truncated to {budget} tokens (`agents.defaults.skillsBudgetTokens`)"
            ),
        );
    }
    Ok(Exit::Answered)
}

/// Formats all skills as a table: active ones, inactive ones, and those that cannot be read.
pub(super) fn table(ctx: &Context, found: &FoundSkills, width: Option<usize>) -> String {
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
    let mut rows: Vec<Vec<String>> = Vec::new();
    rows.extend(found.skills.iter().map(|skill| row(skill, describe_state(skill))));
    rows.extend(found.inactive.iter().map(|hidden| row(&hidden.skill, hidden_reason(ctx, hidden))));
    rows.extend(found.unreadable.iter().map(|unreadable| {
        let name = unreadable.name.as_deref().unwrap_or("-");
        let place = ctx.paths.display(&unreadable.path);
        let why = format!("unreadable: {}", unreadable.reason);
        [name, &place, "-", &why, ""].map(sanitize).to_vec()
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

fn hidden_reason(ctx: &Context, hidden: &InactiveSkill) -> String {
    match &hidden.superseded_by {
        Some(by) => format!("hidden by the one from {}", describe_origin(ctx, by)),
        None => "disabled in the config".into(),
    }
}

fn json_lines(found: &FoundSkills) -> impl Iterator<Item = Value> {
    let line = |skill: &Skill, state: &str, by: Option<String>| {
        json!({
            "name": skill.name, "description": skill.description, "source": origin_json(&skill.source),
            "location": skill.location, "state": state, "hidden_by": by, "always": skill.always, "missing": skill.unmet_requirements,
            "tokens": body_tokens(skill), "warnings": skill.warnings,
        })
    };
    let in_force = found.skills.iter().map(move |skill| {
        let state = match (skill.is_available(), skill.is_offered) {
            (false, _) => "unavailable",
            (true, false) => "not-offered",
            (true, true) => "available",
        };
        line(skill, state, None)
    });
    let hidden = found.inactive.iter().map(move |hidden| match &hidden.superseded_by {
        Some(by) => line(&hidden.skill, "hidden", Some(origin_json(by))),
        None => line(&hidden.skill, "disabled", None),
    });
    let unreadable = found.unreadable.iter().map(|unreadable| {
        json!({
            "name": unreadable.name, "location": unreadable.path, "state": "unreadable", "error": unreadable.reason,
        })
    });
    in_force.chain(hidden).chain(unreadable)
}
