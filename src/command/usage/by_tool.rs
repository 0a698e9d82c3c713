//! `nanobot usage --by tool|server|skill`: prints how often turns used what they were offered, and the tokens that the
//! offer took.

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
    /// The turns in which it was offered, and those in which it was used, as hashes.
    offered: HashSet<u64>,
    used: HashSet<u64>,
    calls: u64,
    failed: u64,
    denied: u64,
    /// Tokens of its description, in all requests.
    description_tokens: u64,
}

/// Prints a row for each tool, server or skill.
pub(super) fn run(ctx: &Context, by: UsageGroup, start: &SinceFilter, as_json: bool) -> Result<()> {
    let mut sums: BTreeMap<String, ToolTotals> = BTreeMap::new();
    let file = ToolUsageLog::new(&ctx.paths.root, &ctx.clock);
    let any = file.for_each_entry(&mut |line| {
        if start.includes(line.time, line.day) {
            add_line(by, &mut sums, &line);
        }
    })?;
    if !ctx.quiet && (!any || sums.is_empty()) {
        let words = if !any {
            "no usage yet: no turn has called a tool".to_owned()
        } else {
            format!("nothing was offered or used since {start}")
        };
        ctx.terminal.eprint(&format!("nanobot: {words}"));
    }
    let mut rows: Vec<(String, ToolTotals)> = sums.into_iter().collect();
    rows.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.used.len(), sum.calls)));
    if as_json {
        return ctx
            .terminal
            .print_json_lines(rows.iter().map(|(name, sum)| totals_json(by, name, sum)));
    }
    ctx.terminal.print(&format_totals(by, &rows, ctx.terminal.stdout_width()))
}

fn add_line(by: UsageGroup, sums: &mut BTreeMap<String, ToolTotals>, line: &ToolUsageEntry) {
    let mut hash = DefaultHasher::new();
    (&line.session, &line.turn).hash(&mut hash);
    let turn = hash.finish();
    let ToolUsage { requests, tools, skills, definition_tokens: told, skill_list_tokens: _ } =
        &line.usage;
    if by == UsageGroup::Skill {
        for name in skills {
            let sum = sums.entry(name.clone()).or_default();
            sum.used.insert(turn);
            sum.calls += 1;
        }
        return;
    }
    let servers: Vec<&str> = told.keys().map(String::as_str).collect();
    if by == UsageGroup::Server {
        for (server, tokens) in told.iter().filter(|(server, _)| !server.is_empty()) {
            let sum = sums.entry(server.clone()).or_default();
            sum.offered.insert(turn);
            sum.description_tokens =
                sum.description_tokens.saturating_add(tokens.saturating_mul((*requests).into()));
        }
    }
    for (tool, calls) in tools {
        let name = match by {
            UsageGroup::Server => tool_usage::find_server(tool, &servers),
            _ => Some(tool.as_str()),
        };
        let Some(name) = name else { continue };
        let sum = sums.entry(name.to_owned()).or_default();
        sum.used.insert(turn);
        sum.calls += u64::from(calls.count);
        sum.failed += u64::from(calls.failed);
        sum.denied += u64::from(calls.denied);
    }
}

fn totals_json(by: UsageGroup, name: &str, sum: &ToolTotals) -> serde_json::Value {
    let ToolTotals { offered, used, calls, failed, denied, description_tokens: told } = sum;
    let runs = used.len();
    match by {
        UsageGroup::Skill => json!({ "skill": name, "runs": runs }),
        UsageGroup::Server => {
            json!({ "server": name, "runs": runs, "offered_runs": offered.len(), "calls": calls,
            "failed_calls": failed, "denied_calls": denied, "told_tokens": told })
        }
        _ => {
            json!({ "tool": name, "runs": runs, "calls": calls, "failed_calls": failed, "denied_calls": denied })
        }
    }
}

fn format_totals(by: UsageGroup, rows: &[(String, ToolTotals)], width: Option<usize>) -> String {
    let runs: Column<'_, (String, ToolTotals)> =
        ("RUNS", Side::Right, &|(_, sum)| sum.used.len().to_string());
    let name: &dyn Fn(&(String, ToolTotals)) -> String = &|(name, _)| single_line(name);
    let calls: [Column<'_, (String, ToolTotals)>; 3] = [
        ("CALLS", Side::Right, &|(_, sum)| sum.calls.to_string()),
        ("FAILED", Side::Right, &|(_, sum)| sum.failed.to_string()),
        ("DENIED", Side::Right, &|(_, sum)| sum.denied.to_string()),
    ];
    let [called, failed, denied] = calls;
    let columns = match by {
        UsageGroup::Skill => vec![("SKILL", Side::Left, name), runs],
        UsageGroup::Server => vec![
            ("SERVER", Side::Left, name),
            runs,
            ("OFFERED", Side::Right, &|(_, sum)| sum.offered.len().to_string()),
            called,
            failed,
            denied,
            ("TOKENS", Side::Right, &|(_, sum)| sum.description_tokens.to_string()),
        ],
        _ => vec![("TOOL", Side::Left, name), runs, called, failed, denied],
    };
    format_table(rows, &columns, width)
}
