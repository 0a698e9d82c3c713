//! `nanobot usage --by tool|server|skill`: prints how often turns used what they were offered, and the tokens that the
//! offer took.

use crate::cli::usage::By;
use crate::ledger::tools::{Line, Tools, Used};
use crate::ops::context::Context;
use crate::ops::since::SinceFilter;
use crate::ops::tool_usage;
use crate::report::columns::{Side, aligned, clipped};
use crate::sys::terminal::{Page, harmless};
use anyhow::Result;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The totals of a group of turns.
#[derive(Clone, Debug, Default)]
struct Sum {
    /// The turns in which it was offered, and those in which it was used, as hashes.
    offered: HashSet<u64>,
    used: HashSet<u64>,
    calls: u64,
    failed: u64,
    denied: u64,
    /// Tokens of its description, in all requests.
    told: u64,
}

/// Prints a row for each tool, server or skill.
pub(super) fn run(ctx: &Context, by: By, start: &SinceFilter, as_json: bool) -> Result<()> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    let file = Tools::new(&ctx.paths.root, &ctx.clock);
    let any = file.lines(&mut |line| {
        if start.includes(line.time, line.day) {
            add(by, &mut sums, &line);
        }
    })?;
    if !ctx.quiet && (!any || sums.is_empty()) {
        let words = match any {
            false => "no usage yet: no turn has called a tool".to_owned(),
            true => format!("nothing was offered or used since {start}"),
        };
        ctx.terminal.complain(&format!("nanobot: {words}"));
    }
    let mut rows: Vec<(String, Sum)> = sums.into_iter().collect();
    rows.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.used.len(), sum.calls)));
    let mut page = Page::on(ctx.terminal);
    match as_json {
        true => {
            for (name, sum) in &rows {
                page.put_json_text(&format!("{}\n", object(by, name, sum)))?;
            }
        }
        false => {
            for line in table(by, &rows) {
                page.put(&format!("{}\n", clipped(&line, ctx.terminal.width())))?;
            }
        }
    }
    page.end()
}

fn add(by: By, sums: &mut BTreeMap<String, Sum>, line: &Line) {
    let mut hash = DefaultHasher::new();
    (&line.session, &line.turn).hash(&mut hash);
    let turn = hash.finish();
    let Used {
        requests,
        tools,
        skills,
        told,
        told_of_skills: _,
    } = &line.used;
    if by == By::Skill {
        for name in skills {
            let sum = sums.entry(name.clone()).or_default();
            sum.used.insert(turn);
            sum.calls += 1;
        }
        return;
    }
    let servers: Vec<&str> = told.keys().map(String::as_str).collect();
    if by == By::Server {
        for (server, tokens) in told.iter().filter(|(server, _)| !server.is_empty()) {
            let sum = sums.entry(server.clone()).or_default();
            sum.offered.insert(turn);
            sum.told = sum
                .told
                .saturating_add(tokens.saturating_mul((*requests).into()));
        }
    }
    for (tool, calls) in tools {
        let name = match by {
            By::Server => tool_usage::server_of(tool, &servers),
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

fn object(by: By, name: &str, sum: &Sum) -> serde_json::Value {
    let Sum {
        offered,
        used,
        calls,
        failed,
        denied,
        told,
    } = sum;
    let runs = used.len();
    match by {
        By::Skill => json!({ "skill": name, "runs": runs }),
        By::Server => {
            json!({ "server": name, "runs": runs, "offered_runs": offered.len(), "calls": calls,
            "failed_calls": failed, "denied_calls": denied, "told_tokens": told })
        }
        _ => {
            json!({ "tool": name, "runs": runs, "calls": calls, "failed_calls": failed, "denied_calls": denied })
        }
    }
}

fn table(by: By, rows: &[(String, Sum)]) -> Vec<String> {
    let name = |name: &str| harmless(name).replace(['\n', '\t'], " ");
    let right = |head: &'static str| (head, Side::Right);
    let (columns, rows): (Vec<_>, Vec<Vec<String>>) = match by {
        By::Skill => (
            vec![("SKILL", Side::Left), right("RUNS")],
            rows.iter()
                .map(|(skill, sum)| vec![name(skill), sum.used.len().to_string()])
                .collect(),
        ),
        By::Server => (
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
                        sum.told,
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
    aligned(&columns, &rows)
}
