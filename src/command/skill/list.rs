//! `nanobot skill list`: lists every skill, active or not.

use super::describe::{origin, origin_json, state, tokens};
use super::lookup::here;
use crate::error::Exit;
use crate::ops::context::Context;
use crate::report::columns::{Side, aligned, clipped};
use crate::skill::{Found, Hidden, Skill, summary};
use crate::sys::terminal::harmless;
use anyhow::Result;
use serde_json::json;

/// Runs `nanobot skill list`.
pub(super) fn run(ctx: &Context, as_json: bool) -> Result<Exit> {
    let (settings, found) = here(ctx)?;
    if as_json {
        ctx.terminal.print_json_text(&lines_of_json(&found))?;
        return Ok(Exit::Answered);
    }
    ctx.terminal
        .print(&table(ctx, &found, ctx.terminal.width()))?;
    let budget = settings.skills.budget;
    let list = summary(&found.skills, budget);
    if list.is_cut() {
        ctx.notice(&format!(
                "the skill list in each request is truncated to {budget} tokens (`agents.defaults.skillsBudgetTokens`)"
            ),
        );
    }
    Ok(Exit::Answered)
}

/// Formats all skills as a table: active ones, inactive ones, and those that cannot be read.
pub(super) fn table(ctx: &Context, found: &Found, width: Option<usize>) -> String {
    let row = |skill: &Skill, state: String| {
        let description: Vec<&str> = skill.description.split_whitespace().collect();
        vec![
            skill.name.clone(),
            harmless(&origin(ctx, &skill.source)),
            tokens(skill).to_string(),
            harmless(&state),
            harmless(&description.join(" ")),
        ]
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    rows.extend(found.skills.iter().map(|skill| row(skill, state(skill))));
    rows.extend(
        found
            .hidden
            .iter()
            .map(|hidden| row(&hidden.skill, why(ctx, hidden))),
    );
    rows.extend(found.unreadable.iter().map(|unreadable| {
        let name = unreadable.name.as_deref().unwrap_or("-");
        let place = ctx.paths.display(&unreadable.path);
        let why = format!("unreadable: {}", unreadable.why);
        [name, &place, "-", &why, ""].map(harmless).to_vec()
    }));
    let columns = [
        ("NAME", Side::Left),
        ("FROM", Side::Left),
        ("TOKENS", Side::Right),
        ("STATE", Side::Left),
        ("DESCRIPTION", Side::Left),
    ];
    let lines = aligned(&columns, &rows).into_iter();
    lines.map(|line| clipped(&line, width) + "\n").collect()
}

fn why(ctx: &Context, hidden: &Hidden) -> String {
    match &hidden.by {
        Some(by) => format!("hidden by the one from {}", origin(ctx, by)),
        None => "disabled in the config".into(),
    }
}

fn lines_of_json(found: &Found) -> String {
    let line = |skill: &Skill, state: &str, by: Option<String>| {
        let line = json!({
            "name": skill.name, "description": skill.description, "source": origin_json(&skill.source),
            "location": skill.location, "state": state, "hidden_by": by, "always": skill.always, "missing": skill.missing,
            "tokens": tokens(skill), "warnings": skill.warnings,
        });
        format!("{line}\n")
    };
    let in_force = found.skills.iter().map(|skill| {
        let state = match (skill.is_available(), skill.is_offered) {
            (false, _) => "unavailable",
            (true, false) => "not-offered",
            (true, true) => "available",
        };
        line(skill, state, None)
    });
    let hidden = found.hidden.iter().map(|hidden| match &hidden.by {
        Some(by) => line(&hidden.skill, "hidden", Some(origin_json(by))),
        None => line(&hidden.skill, "disabled", None),
    });
    let unreadable = found.unreadable.iter().map(|unreadable| {
        let line = json!({
            "name": unreadable.name, "location": unreadable.path, "state": "unreadable", "error": unreadable.why,
        });
        format!("{line}\n")
    });
    in_force.chain(hidden).chain(unreadable).collect()
}
