//! `nanobot usage --by tool|server|skill`: prints how often turns used what they were offered, and the tokens that the
//! offer took.

use crate::cli::usage::UsageGroup;
use crate::ledger::tool_usage::{ToolUsage, ToolUsageEntry, ToolUsageLog};
use crate::ops::context::Context;
use crate::ops::since::SinceFilter;
use crate::ops::tool_usage;
use crate::report::columns::{Side, align_columns, truncate};
use crate::sys::terminal::{StdoutWriter, sanitize};
use anyhow::Result;
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
    let mut page = StdoutWriter::new(ctx.terminal);
    if as_json {
        for (name, sum) in &rows {
            page.write_json_text(&format!("{}\n", totals_json(by, name, sum)))?;
        }
    } else {
        for line in format_table(by, &rows) {
            page.write(&format!("{}\n", truncate(&line, ctx.terminal.stdout_width())))?;
        }
    }
    page.finish()
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

fn format_table(by: UsageGroup, rows: &[(String, ToolTotals)]) -> Vec<String> {
    let name = |name: &str| sanitize(name).replace(['\n', '\t'], " ");
    let right = |head: &'static str| (head, Side::Right);
    let (columns, rows): (Vec<_>, Vec<Vec<String>>) = match by {
        UsageGroup::Skill => (
            vec![("SKILL", Side::Left), right("RUNS")],
            rows.iter().map(|(skill, sum)| vec![name(skill), sum.used.len().to_string()]).collect(),
        ),
        UsageGroup::Server => (
            vec![
                ("SERVER", Side::Left),
                right("RUNS"),
                right("OFFERED"),
                right("CALLS"),
                right("FAILED"),
                right("DENIED"),
                right("TOKENS"),
            ],
            rows.iter()
                .map(|(server, sum)| {
                    let counts = [
                        sum.used.len() as u64,
                        sum.offered.len() as u64,
                        sum.calls,
                        sum.failed,
                        sum.denied,
                        sum.description_tokens,
                    ];
                    let cells = counts.map(|count| count.to_string());
                    std::iter::once(name(server)).chain(cells).collect()
                })
                .collect(),
        ),
        _ => (
            vec![
                ("TOOL", Side::Left),
                right("RUNS"),
                right("CALLS"),
                right("FAILED"),
                right("DENIED"),
            ],
            rows.iter()
                .map(|(tool, sum)| {
                    let counts = [sum.used.len() as u64, sum.calls, sum.failed, sum.denied];
                    let cells = counts.map(|count| count.to_string());
                    std::iter::once(name(tool)).chain(cells).collect()
                })
                .collect(),
        ),
    };
    align_columns(&columns, &rows)
}
