//! `nanobot usage --by tool|server|skill`: prints how often turns used each tool, server or skill, and the tokens that its
//! descriptions took.

use crate::cli::usage::UsageGroup;
use crate::command::name_pattern::single_line;
use crate::ops::agent_turn::tool_usage;
use crate::ops::context::Context;
use crate::ops::since::SinceFilter;
use anyhow::Result;
use nanobot_agent::report::columns::{Column, Side, format_table};
use nanobot_model::ledger::tool_usage::{ToolUsage, ToolUsageEntry, ToolUsageLog};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The totals of a group of turns.
#[derive(Clone, Debug, Default)]
struct ToolTotals {
    /// The turns in which the tool was offered, and those in which it was used, as hashes.
    offered: HashSet<u64>,
    used: HashSet<u64>,
    calls: u64,
    failed: u64,
    denied: u64,
    /// Tokens of the description, in all requests.
    description_tokens: u64,
}

/// Prints a row for each tool, server or skill.
pub(super) fn run(
    ctx: &Context,
    group: UsageGroup,
    since: &SinceFilter,
    as_json: bool,
) -> Result<()> {
    let mut totals_by_name: BTreeMap<String, ToolTotals> = BTreeMap::new();
    let log = ToolUsageLog::new(&ctx.paths.root, &ctx.clock);
    let has_entries = log.for_each_entry(&mut |entry| {
        if since.includes(entry.time, entry.day) {
            add_entry(group, &mut totals_by_name, &entry);
        }
    })?;
    if !has_entries {
        ctx.notice("no usage yet: no turn has called a tool");
    } else if totals_by_name.is_empty() {
        ctx.notice(&format!("nothing was offered or used since {since}"));
    }
    let mut rows: Vec<(String, ToolTotals)> = totals_by_name.into_iter().collect();
    rows.sort_by_key(|(_, totals)| std::cmp::Reverse((totals.used.len(), totals.calls)));
    if as_json {
        let lines = rows.iter().map(|(name, totals)| totals_json(group, name, totals));
        return ctx.terminal.print_json_lines(lines);
    }
    ctx.terminal.print(&format_rows(group, &rows, ctx.terminal.stdout_width()))
}

fn add_entry(
    group: UsageGroup,
    totals_by_name: &mut BTreeMap<String, ToolTotals>,
    entry: &ToolUsageEntry,
) {
    let mut hasher = DefaultHasher::new();
    (&entry.session, &entry.turn).hash(&mut hasher);
    let turn = hasher.finish();
    let ToolUsage { requests, tools, skills, definition_tokens, skill_list_tokens: _ } =
        &entry.usage;
    if group == UsageGroup::Skill {
        for name in skills {
            let totals = totals_by_name.entry(name.clone()).or_default();
            totals.used.insert(turn);
            totals.calls += 1;
        }
        return;
    }
    let servers: Vec<&str> = definition_tokens.keys().map(String::as_str).collect();
    if group == UsageGroup::Server {
        // The tools of the program itself are entered under an empty name.
        for (server, tokens) in definition_tokens.iter().filter(|(server, _)| !server.is_empty()) {
            let totals = totals_by_name.entry(server.clone()).or_default();
            totals.offered.insert(turn);
            let tokens = tokens.saturating_mul((*requests).into());
            totals.description_tokens = totals.description_tokens.saturating_add(tokens);
        }
    }
    for (tool, calls) in tools {
        let name = match group {
            UsageGroup::Server => tool_usage::find_server(tool, &servers),
            _ => Some(tool.as_str()),
        };
        let Some(name) = name else { continue };
        let totals = totals_by_name.entry(name.to_owned()).or_default();
        totals.used.insert(turn);
        totals.calls += u64::from(calls.count);
        totals.failed += u64::from(calls.failed);
        totals.denied += u64::from(calls.denied);
    }
}

fn totals_json(group: UsageGroup, name: &str, totals: &ToolTotals) -> serde_json::Value {
    let ToolTotals { offered, used, calls, failed, denied, description_tokens } = totals;
    let runs = used.len();
    match group {
        UsageGroup::Skill => json!({ "skill": name, "runs": runs }),
        UsageGroup::Server => {
            json!({ "server": name, "runs": runs, "offered_runs": offered.len(), "calls": calls,
            "failed_calls": failed, "denied_calls": denied, "told_tokens": description_tokens })
        }
        _ => {
            json!({ "tool": name, "runs": runs, "calls": calls, "failed_calls": failed, "denied_calls": denied })
        }
    }
}

fn format_rows(group: UsageGroup, rows: &[(String, ToolTotals)], width: Option<usize>) -> String {
    let name: &dyn Fn(&(String, ToolTotals)) -> String = &|(name, _)| single_line(name);
    let [runs, calls, failed, denied]: [Column<'_, (String, ToolTotals)>; 4] = [
        ("RUNS", Side::Right, &|(_, totals)| totals.used.len().to_string()),
        ("CALLS", Side::Right, &|(_, totals)| totals.calls.to_string()),
        ("FAILED", Side::Right, &|(_, totals)| totals.failed.to_string()),
        ("DENIED", Side::Right, &|(_, totals)| totals.denied.to_string()),
    ];
    let columns = match group {
        UsageGroup::Skill => vec![("SKILL", Side::Left, name), runs],
        UsageGroup::Server => vec![
            ("SERVER", Side::Left, name),
            runs,
            ("OFFERED", Side::Right, &|(_, totals)| totals.offered.len().to_string()),
            calls,
            failed,
            denied,
            ("TOKENS", Side::Right, &|(_, totals)| totals.description_tokens.to_string()),
        ],
        _ => vec![("TOOL", Side::Left, name), runs, calls, failed, denied],
    };
    format_table(rows, &columns, width)
}
