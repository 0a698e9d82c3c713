//! Rotation of the ledger: of past months, one line remains for each session, job, provider and model.
//!
//! The totals of the last line stay as they are, so that budgets do not depend on the rotation, whatever the clock says
//! later. Pure.

use super::cost_sum::round_usd;
use super::entry::{CallSums, CostTotals, LedgerEntry, parse_line};
use jiff::civil::Date;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The prefix of sessions that only one run uses. They are removed after a week, so their sum has no name.
const SINGLE_RUN_PREFIX: &str = "pipe:";
const SINGLE_RUN_SUM: &str = "pipe:*";

/// The effect of a rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    pub lines_before: u64,
    pub lines: u64,
}

/// The calls that become one line: month, session, job, provider and model.
type GroupKey = (Date, String, Option<String>, String, String);

/// The sum of a group.
#[derive(Default)]
struct Group {
    /// The place of its last call in the file, by which the lines are ordered.
    last: usize,
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

/// Returns the ledger `bytes` with the calls before `limit` added up, and the effect. `None` if nothing changes. Lines that
/// are not understood stay.
pub(super) fn rotate(bytes: &[u8], limit: Date) -> (Rotation, Option<Vec<u8>>) {
    let mut groups: BTreeMap<GroupKey, Group> = BTreeMap::new();
    let mut kept: Vec<(usize, &[u8])> = Vec::new();
    let mut rotation = Rotation::default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    for (place, line) in lines.enumerate() {
        rotation.lines_before += 1;
        match parse_line(line) {
            Some((entry, totals)) if entry.day < limit => {
                let group = groups.entry(group_key(&entry)).or_default();
                group.add(place, &entry, &totals);
            }
            _ => kept.push((place, line)),
        }
    }
    rotation.lines = (groups.len() + kept.len()) as u64;
    if rotation.lines == rotation.lines_before {
        return (rotation, None);
    }
    let sums: Vec<(usize, String)> = groups.into_values().map(Group::into_line).collect();
    let sums = sums.iter().map(|(place, line)| (*place, line.as_bytes()));
    let mut all: Vec<(usize, &[u8])> = sums.chain(kept).collect();
    all.sort_by_key(|(place, _)| *place);
    let lines: Vec<&[u8]> = all.into_iter().map(|(_, line)| line).collect();
    (rotation, Some(lines.concat()))
}

fn group_key(entry: &LedgerEntry<'_>) -> GroupKey {
    let session = if entry.session.starts_with(SINGLE_RUN_PREFIX) {
        SINGLE_RUN_SUM.to_owned()
    } else {
        entry.session.to_string()
    };
    (
        entry.day.first_of_month(),
        session,
        entry.job.as_ref().map(ToString::to_string),
        entry.provider.to_string(),
        entry.model.to_string(),
    )
}

impl Group {
    fn add(&mut self, place: usize, entry: &LedgerEntry<'_>, totals: &CostTotals) {
        let (_, session, job, provider, model) = group_key(entry);
        self.last = place;
        self.line = json!({
            "v": 1, "time": entry.time.to_string(), "day": entry.day.to_string(), "session": session, "turn": "",
            "job": job, "cause": "sum", "provider": provider, "model": model, "estimated": false, "outcome": "ok",
            "day_usd": totals.daily, "month_usd": totals.monthly,
        });
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

    /// The line of the sum, and its place in the file.
    fn into_line(mut self) -> (usize, String) {
        self.sums.runs += self.turns.len() as u64;
        let known = self.sums.unpriced < self.sums.calls;
        self.line["usd"] = json!(known.then(|| round_usd(self.usd)));
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
        (self.last, format!("{}\n", self.line))
    }
}
