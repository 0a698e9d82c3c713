//! `nanobot usage`: prints tokens, cost and runs from the ledger.

use crate::cli::usage::{UsageArgs, UsageGroup};
use crate::command::name_pattern::single_line;
use crate::command::spending::format_spending;
use crate::ops::context::Context;
use crate::ops::conversation_cost;
use crate::ops::since::SinceFilter;
use anyhow::Result;
use console::{Style, measure_text_width};
use nanobot_agent::report::columns::{Side, align_to_width, hanging_indent, truncate};
use nanobot_base::error::Exit;
use nanobot_base::limits::BudgetLimits;
use nanobot_model::ledger::tool_usage::ToolUsageLog;
use nanobot_model::ledger::{CallSums, CostSum, Ledger, LedgerEntry, PeriodCosts, Rotation};
use nanobot_os::terminal::{StdoutWriter, theme, wrap_words};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

mod by_tool;

/// Maximum columns of a name, and of a bar.
const MAX_NAME_COLUMNS: usize = 40;
const MAX_BAR_COLUMNS: usize = 40;
/// Minimum columns of a name, enough for a date.
const MIN_NAME_COLUMNS: usize = 10;
/// Minimum columns of a bar; a shorter one shows nothing useful.
const MIN_BAR_COLUMNS: usize = 8;

/// Runs `nanobot usage`.
pub fn run(ctx: &Context, arguments: &UsageArgs) -> Result<Exit> {
    let UsageArgs { group, since, rotate, json } = *arguments;
    if rotate {
        return rotate_files(ctx);
    }
    let settings = ctx.settings()?;
    let since = SinceFilter::new(since, &ctx.clock.now());
    if let UsageGroup::Tool | UsageGroup::Server | UsageGroup::Skill = group {
        by_tool::run(ctx, group, &since, json)?;
        return Ok(Exit::Answered);
    }
    let mut groups: BTreeMap<UsageKey, UsageTotals> = BTreeMap::new();
    let mut total = UsageTotals::default();
    let mut invalid_lines = 0_u64;
    let ledger = Ledger::new(&ctx.paths.root, &ctx.clock);
    let has_entries = ledger.for_each_entry(&mut |entry| match entry {
        Some(entry) if since.includes(entry.time, entry.day) => {
            groups.entry(UsageKey::from_entry(group, &entry)).or_default().add(&entry);
            total.add(&entry);
        }
        Some(_) => {}
        None => invalid_lines += 1,
    })?;
    if invalid_lines > 0 {
        ctx.notice(&format!("skipped invalid lines of the ledger: {invalid_lines}"));
    }
    if !has_entries {
        ctx.notice("the ledger is empty: no request was sent yet");
    } else if groups.is_empty() {
        ctx.notice(&format!("no request was sent since {since}"));
    }
    let groups = sort_groups(group, groups);
    if json {
        let lines = groups.iter().map(|(key, totals)| group_json(group, key, totals));
        ctx.terminal.print_json_lines(lines)?;
        return Ok(Exit::Answered);
    }
    let mut writer = StdoutWriter::new(ctx.terminal);
    print_table(group, &groups, &total, ctx.terminal.stdout_width(), &mut writer)?;
    let has_budget = settings.budget.daily.or(settings.budget.monthly).is_some();
    if has_budget && has_entries {
        let (costs, width) = (ledger.period_costs()?, ctx.terminal.stdout_width());
        writer.write(&describe_budget(settings.budget, &costs, width))?;
    }
    writer.finish()?;
    Ok(Exit::Answered)
}

/// Prints the cost of the conversation in the session `key`: of its turns since `/new`, by any run.
pub(super) fn print_conversation(ctx: &Context, key: &str) -> Result<()> {
    let text = conversation_cost::describe(ctx, &ctx.settings()?, key)?;
    let line = hanging_indent("this conversation: ", &text, ctx.terminal.stdout_width());
    ctx.terminal.print(&format!("{line}\n"))
}

/// Adds up the calls of past months, and forgets which tools were used then.
fn rotate_files(ctx: &Context) -> Result<Exit> {
    let ledger = Ledger::new(&ctx.paths.root, &ctx.clock);
    let limit = ledger.rotation_limit();
    let Rotation { lines_before, lines } = ledger.rotate()?;
    let removed = ToolUsageLog::new(&ctx.paths.root, &ctx.clock).remove_before(limit)?;
    if !ctx.quiet {
        let merged = lines_before - lines;
        ctx.terminal.print(&match (merged, removed) {
            (0, 0) => format!("Nothing to add up before {limit}.\n"),
            _ => format!(
                "Added up the calls before {limit}: {merged} fewer lines in usage.jsonl, {removed} in tools.jsonl.\n"
            ),
        })?;
    }
    Ok(Exit::Answered)
}

/// The key that a row is grouped by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct UsageKey {
    /// `None` for calls that belong to no job.
    text: Option<String>,
    /// The provider of a model.
    provider: Option<String>,
}

impl UsageKey {
    fn from_entry(group: UsageGroup, entry: &LedgerEntry<'_>) -> Self {
        let text = match group {
            UsageGroup::Day if entry.sums.is_some() => {
                Some(entry.day.strftime("%Y-%m").to_string())
            }
            UsageGroup::Day => Some(entry.day.to_string()),
            UsageGroup::Model => Some(entry.model.to_string()),
            UsageGroup::Session => Some(entry.session.to_string()),
            // The use of tools is counted in another file, since it has no price of its own.
            UsageGroup::Job | UsageGroup::Tool | UsageGroup::Server | UsageGroup::Skill => {
                entry.job.as_ref().map(ToString::to_string)
            }
        };
        let provider = (group == UsageGroup::Model).then(|| entry.provider.to_string());
        Self { text, provider }
    }

    /// The name on one line; a model in the form that `agent --model` takes.
    fn display(&self) -> String {
        let text = match (&self.text, &self.provider) {
            (Some(text), Some(provider)) => format!("{provider}/{text}"),
            (Some(text), None) => text.clone(),
            (None, _) => "(no job)".into(),
        };
        single_line(&text)
    }
}

/// The totals of a group of calls.
#[derive(Clone, Debug, Default)]
struct UsageTotals {
    /// The turns, as hashes, so that the memory grows by only eight bytes with each turn of the ledger.
    turns: HashSet<u64>,
    /// The turns of months whose calls were added up.
    past_runs: u64,
    failed: u64,
    /// Calls whose tokens are estimated.
    estimated: u64,
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
    cost: CostSum,
}

impl UsageTotals {
    fn add(&mut self, entry: &LedgerEntry<'_>) {
        let CallSums { runs, failed, estimated, .. } = entry.call_sums();
        match entry.sums {
            Some(_) => self.past_runs += runs,
            None => {
                let mut hasher = DefaultHasher::new();
                (&entry.session, &entry.turn).hash(&mut hasher);
                self.turns.insert(hasher.finish());
            }
        }
        self.failed += failed;
        self.estimated += estimated;
        let add = |total: &mut u64, tokens| *total = total.saturating_add(tokens);
        add(&mut self.input, entry.input);
        add(&mut self.cached, entry.cached);
        add(&mut self.cache_write, entry.cache_write);
        add(&mut self.output, entry.output);
        add(&mut self.reasoning, entry.reasoning);
        self.cost.add_entry(entry);
    }

    fn runs(&self) -> u64 {
        self.past_runs + self.turns.len() as u64
    }

    fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// The cost in US dollars, and the marks of its footnotes.
    fn cost(&self) -> (String, String) {
        let cost = match self.cost.known_usd() {
            None => return ("unknown".into(), String::new()),
            Some(usd) if usd > 0.0 && usd < 0.0001 => "<0.0001".into(),
            Some(usd) => format!("{usd:.4}"),
        };
        let mark = |mark, count| if count > 0 { mark } else { "" };
        let marks = format!("{}{}", mark("?", self.cost.unpriced), mark("~", self.estimated));
        (cost, marks)
    }
}

/// Sorts days in order, so that the last one is next to the prompt; everything else by cost, the highest first.
fn sort_groups(
    group: UsageGroup,
    groups: BTreeMap<UsageKey, UsageTotals>,
) -> Vec<(UsageKey, UsageTotals)> {
    let mut groups: Vec<(UsageKey, UsageTotals)> = groups.into_iter().collect();
    if group != UsageGroup::Day {
        groups.sort_by(|(_, left), (_, right)| {
            let by_cost = right.cost.usd.total_cmp(&left.cost.usd);
            by_cost.then(right.tokens().cmp(&left.tokens()))
        });
    }
    groups
}

fn group_json(group: UsageGroup, key: &UsageKey, totals: &UsageTotals) -> Value {
    let UsageKey { text, provider } = key;
    let mut line = match group {
        UsageGroup::Day => json!({ "day": text }),
        UsageGroup::Model => json!({ "model": text, "provider": provider }),
        UsageGroup::Session => json!({ "session": text }),
        UsageGroup::Job | UsageGroup::Tool | UsageGroup::Server | UsageGroup::Skill => {
            json!({ "job": text })
        }
    };
    let members = json!({
        "runs": totals.runs(), "calls": totals.cost.calls, "failed_calls": totals.failed, "unpriced_calls": totals.cost.unpriced,
        "estimated_calls": totals.estimated, "input": totals.input, "cached": totals.cached, "cache_write": totals.cache_write,
        "output": totals.output, "reasoning": totals.reasoning, "usd": totals.cost.known_usd(),
    });
    if let (Some(line), Value::Object(members)) = (line.as_object_mut(), members) {
        line.extend(members);
    }
    line
}

/// Formats the rows, their total and the footnotes; with bars if the terminal's width is given.
fn print_table(
    group: UsageGroup,
    groups: &[(UsageKey, UsageTotals)],
    total: &UsageTotals,
    width: Option<usize>,
    writer: &mut StdoutWriter,
) -> Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let lines = format_rows(group, groups, total, width);
    let bar_start = max_columns(&lines) + 2;
    let bar_columns = width.map_or(0, |width| width.saturating_sub(bar_start).min(MAX_BAR_COLUMNS));
    let shares = row_shares(groups);
    for (index, line) in lines.iter().enumerate() {
        // Neither the heading nor the total has a bar.
        let share = index.checked_sub(1).and_then(|row| shares.get(row));
        let bar = share.map_or_else(String::new, |share| draw_bar(*share, bar_columns));
        writer.write(line)?;
        if !bar.is_empty() && bar_columns >= MIN_BAR_COLUMNS {
            writer.write(&" ".repeat(bar_start - measure_text_width(line)))?;
            writer.write_styled(&bar, &Style::new().fg(theme::accent()))?;
        }
        writer.write("\n")?;
    }
    let notes = footnotes(total);
    writer.write(&match width {
        Some(width) => wrap_words(&notes, width, 2),
        None => notes,
    })
}

/// The columns that a narrow terminal leaves out: the cached tokens, the calls, and the runs.
const OPTIONAL_COLUMNS: [usize; 3] = [4, 2, 1];

/// Formats the rows with heading and total, in at most `width` columns if possible.
fn format_rows(
    group: UsageGroup,
    groups: &[(UsageKey, UsageTotals)],
    total: &UsageTotals,
    width: Option<usize>,
) -> Vec<String> {
    let head = match group {
        UsageGroup::Day => "DAY",
        UsageGroup::Model => "MODEL",
        UsageGroup::Session => "SESSION",
        UsageGroup::Job | UsageGroup::Tool | UsageGroup::Server | UsageGroup::Skill => "JOB",
    };
    let columns = [
        (head, Side::Left),
        ("RUNS", Side::Right),
        ("CALLS", Side::Right),
        ("INPUT", Side::Right),
        ("CACHED", Side::Right),
        ("OUTPUT", Side::Right),
        ("USD", Side::Right),
    ];
    let mut rows: Vec<(String, &UsageTotals)> =
        groups.iter().map(|(key, totals)| (key.display(), totals)).collect();
    rows.push(("TOTAL".into(), total));
    let mark_columns = rows.iter().map(|(_, totals)| totals.cost().1.len()).max().unwrap_or(0);
    let format_lines = |name_limit: Option<usize>| {
        let rows = rows.iter().map(|(name, totals)| {
            let (cost, marks) = totals.cost();
            let counts =
                [totals.runs(), totals.cost.calls, totals.input, totals.cached, totals.output];
            let mut row = vec![truncate(name, name_limit)];
            row.extend(counts.map(|count| count.to_string()));
            row.push(format!("{cost}{marks:<mark_columns$}"));
            row
        });
        align_to_width(&columns, &rows.collect::<Vec<_>>(), width, &OPTIONAL_COLUMNS)
    };
    let lines = format_lines(width.map(|_| MAX_NAME_COLUMNS));
    let excess = width.map_or(0, |width| max_columns(&lines).saturating_sub(width));
    if excess == 0 {
        return lines;
    }
    // Only names are cut, since a cut number would be a wrong number.
    let name_columns = rows.iter().map(|(name, _)| measure_text_width(name)).max().unwrap_or(0);
    let name_limit = name_columns.min(MAX_NAME_COLUMNS).saturating_sub(excess);
    format_lines(Some(name_limit.max(MIN_NAME_COLUMNS)))
}

fn max_columns(lines: &[String]) -> usize {
    let widths = lines.iter().map(|line| measure_text_width(line));
    widths.max().unwrap_or(0)
}

/// Each row's fraction of the largest, by cost, or by tokens if no cost is known.
fn row_shares(groups: &[(UsageKey, UsageTotals)]) -> Vec<f64> {
    let is_priced = groups.iter().any(|(_, totals)| totals.cost.usd > 0.0);
    let weights: Vec<f64> = groups
        .iter()
        .map(|(_, totals)| if is_priced { totals.cost.usd } else { totals.tokens() as f64 })
        .collect();
    let maximum = weights.iter().copied().fold(0.0, f64::max);
    let share = |weight| if maximum > 0.0 { weight / maximum } else { 0.0 };
    weights.into_iter().map(share).collect()
}

/// A bar for `share` of so many columns, to an eighth of a column.
fn draw_bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // A share is at most 1, so this fits. Anything above zero is visible.
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let eighths = eighths.max(usize::from(share > 0.0));
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

fn footnotes(total: &UsageTotals) -> String {
    let mut text = String::new();
    if total.cost.unpriced > 0 {
        let mark = if total.cost.known_usd().is_some() { "?" } else { "cost" };
        text.push_str(&format!(
            "{mark} {}; set `models.NAME.price` in the config for later calls\n",
            total.cost
        ));
    }
    if total.estimated > 0 {
        let count = total.estimated;
        text.push_str(&format!(
            "~ calls with estimated tokens, because the server sent no usage: {count}\n"
        ));
    }
    text
}

/// Describes how much of the budgets is spent; a terminal gets meters.
fn describe_budget(budget: BudgetLimits, costs: &PeriodCosts, width: Option<usize>) -> String {
    let periods =
        [("today", costs.today, budget.daily), ("this month", costs.month, budget.monthly)];
    let limited = periods.into_iter().filter(|(_, _, limit)| limit.is_some());
    let parts = limited.map(|(when, cost, limit)| {
        let spending = format_spending(&cost, limit, width.is_some());
        format!("{when} {spending}")
    });
    let line = hanging_indent("budget: ", &parts.collect::<Vec<_>>().join(", "), width);
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::draw_bar;

    #[test]
    fn bars_are_drawn_in_eighths() {
        for (share, expect) in [(0.0, ""), (0.001, "▏"), (0.25, "█"), (0.3, "█▎"), (1.0, "████")]
        {
            assert_eq!(draw_bar(share, 4), expect, "{share}");
        }
    }
}
