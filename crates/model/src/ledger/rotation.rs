//! Rotation of the ledger: the calls of a past month become one line for each session, job, sender, provider and model. Lines that
//! are too old are removed.
//!
//! The totals of the last line remain unchanged, so that budgets do not depend on the rotation, whatever the clock says later. No I/O.

use super::cost_sum::round_usd;
use super::entry::{CallSums, CostTotals, LedgerEntry, parse_line};
use jiff::civil::Date;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The prefix of sessions that only one run uses. They are removed after a while, so their sum has no name.
const SINGLE_RUN_PREFIX: &str = "pipe:";
const SINGLE_RUN_SUM: &str = "pipe:*";

/// The effect of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    pub lines_before: u64,
    pub lines: u64,
}

/// The properties that the calls of one line share.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    /// The first day of the month.
    month: Date,
    session: String,
    job: Option<String>,
    sender: Option<String>,
    provider: String,
    model: String,
}

/// The sum of a group.
#[derive(Default)]
struct Group {
    /// The number of the line of its last call. Lines stay in the order of these numbers.
    line_number: usize,
    line: Value,
    sums: CallSums,
    turns: HashSet<u64>,
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
    usd: f64,
}

/// Returns the effect of a rotation, and the ledger `bytes` with the calls before `limit` added up; `None` if nothing
/// changes. Lines that cannot be parsed stay.
pub(super) fn rotate(bytes: &[u8], limit: Date) -> (Rotation, Option<Vec<u8>>) {
    let mut groups: BTreeMap<GroupKey, Group> = BTreeMap::new();
    let mut other_lines: Vec<(usize, &[u8])> = Vec::new();
    let mut rotation = Rotation::default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    for (number, line) in lines.enumerate() {
        rotation.lines_before += 1;
        match parse_line(line) {
            Some((entry, totals)) if entry.day < limit => {
                let group = groups.entry(group_key(&entry)).or_default();
                group.add(number, &entry, &totals);
            }
            _ => other_lines.push((number, line)),
        }
    }
    rotation.lines = (groups.len() + other_lines.len()) as u64;
    if rotation.lines == rotation.lines_before {
        return (rotation, None);
    }
    let sums: Vec<(usize, String)> = groups.into_values().map(Group::into_line).collect();
    let sums = sums.iter().map(|(number, line)| (*number, line.as_bytes()));
    let mut numbered_lines: Vec<(usize, &[u8])> = sums.chain(other_lines).collect();
    numbered_lines.sort_by_key(|(number, _)| *number);
    let lines: Vec<&[u8]> = numbered_lines.into_iter().map(|(_, line)| line).collect();
    (rotation, Some(lines.concat()))
}

/// Returns the ledger `bytes` without the lines of days before `limit`; `None` if it has none. Lines that cannot be parsed stay.
pub(super) fn without_days_before(bytes: &[u8], limit: Date) -> Option<Vec<u8>> {
    let is_kept = |line: &&[u8]| parse_line(line).is_none_or(|(entry, _)| entry.day >= limit);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').filter(is_kept).collect();
    let new_bytes = lines.concat();
    (new_bytes.len() < bytes.len()).then_some(new_bytes)
}

fn group_key(entry: &LedgerEntry<'_>) -> GroupKey {
    let is_single_run = entry.session.starts_with(SINGLE_RUN_PREFIX);
    GroupKey {
        month: entry.day.first_of_month(),
        session: if is_single_run { SINGLE_RUN_SUM } else { &entry.session }.to_owned(),
        job: entry.job.as_deref().map(str::to_owned),
        sender: entry.sender.as_deref().map(str::to_owned),
        provider: entry.provider.to_string(),
        model: entry.model.to_string(),
    }
}

impl Group {
    fn add(&mut self, line_number: usize, entry: &LedgerEntry<'_>, totals: &CostTotals) {
        let GroupKey { session, job, sender, provider, model, .. } = group_key(entry);
        self.line_number = line_number;
        self.line = json!({
            "v": 1, "time": entry.time.to_string(), "day": entry.day.to_string(), "session": session, "turn": "",
            "job": job, "cause": "sum", "provider": provider, "model": model, "estimated": false, "outcome": "ok",
            "day_usd": totals.daily, "month_usd": totals.monthly,
        });
        if let Some(sender) = sender {
            self.line["sender"] = sender.into();
        }
        let sums = entry.call_sums();
        self.sums.calls += sums.calls;
        self.sums.failed += sums.failed;
        self.sums.estimated += sums.estimated;
        self.sums.unpriced += sums.unpriced;
        match entry.sums {
            Some(sums) => self.sums.runs += sums.runs,
            None => {
                let mut hash = DefaultHasher::new();
                (&entry.session, &entry.turn).hash(&mut hash);
                self.turns.insert(hash.finish());
            }
        }
        self.input += entry.input;
        self.cached += entry.cached;
        self.cache_write += entry.cache_write;
        self.output += entry.output;
        self.reasoning += entry.reasoning;
        self.usd += entry.usd.unwrap_or(0.0);
    }

    /// The number and the text of the line of the sum.
    fn into_line(mut self) -> (usize, String) {
        self.sums.runs += self.turns.len() as u64;
        let has_price = self.sums.unpriced < self.sums.calls;
        self.line["usd"] = json!(has_price.then(|| round_usd(self.usd)));
        for (name, value) in [
            ("input", self.input),
            ("cached", self.cached),
            ("cache_write", self.cache_write),
            ("output", self.output),
            ("reasoning", self.reasoning),
        ] {
            self.line[name] = json!(value);
        }
        self.line["sums"] = json!(self.sums);
        (self.line_number, format!("{}\n", self.line))
    }
}
