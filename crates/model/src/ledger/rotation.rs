//! Rotation of the ledger: the calls of a past month become one line for each session, job, sender, provider and model. Lines that
//! are too old are removed.
//!
//! The totals of the last line remain unchanged, so that budgets do not depend on the rotation, whatever the clock says later. No I/O.

use super::cost_sum::round_usd;
use super::entry::{CallSums, LedgerEntry};
use jiff::civil::Date;
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
struct Group<'a> {
    /// The number of the line of its last call. Lines stay in the order of these numbers.
    line_number: usize,
    /// The last call, with the tokens and the known costs of all.
    sum: LedgerEntry<'a>,
    sums: CallSums,
    turns: HashSet<u64>,
}

/// Returns the effect of a rotation, and the ledger `bytes` with the calls before `limit` added up; `None` if nothing
/// changes. Lines that cannot be parsed stay.
pub(super) fn rotate(bytes: &[u8], limit: Date) -> (Rotation, Option<Vec<u8>>) {
    let mut groups: BTreeMap<GroupKey, Group<'_>> = BTreeMap::new();
    let mut other_lines: Vec<(usize, &[u8])> = Vec::new();
    let mut rotation = Rotation::default();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    for (number, line) in lines.enumerate() {
        rotation.lines_before += 1;
        match LedgerEntry::parse(line) {
            Some(entry) if entry.day < limit => {
                let group = groups.entry(group_key(&entry)).or_default();
                group.add(number, entry);
            }
            _ => other_lines.push((number, line)),
        }
    }
    rotation.lines = (groups.len() + other_lines.len()) as u64;
    if rotation.lines == rotation.lines_before {
        return (rotation, None);
    }
    let sums = groups.into_iter().map(|(key, group)| group.into_line(&key));
    let sums: Vec<(usize, String)> = sums.collect();
    let sums = sums.iter().map(|(number, line)| (*number, line.as_bytes()));
    let mut numbered_lines: Vec<(usize, &[u8])> = sums.chain(other_lines).collect();
    numbered_lines.sort_by_key(|(number, _)| *number);
    let lines: Vec<&[u8]> = numbered_lines.into_iter().map(|(_, line)| line).collect();
    (rotation, Some(lines.concat()))
}

/// Returns the ledger `bytes` without the lines of days before `limit`; `None` if it has none. Lines that cannot be parsed stay.
pub(super) fn without_days_before(bytes: &[u8], limit: Date) -> Option<Vec<u8>> {
    let is_kept = |line: &&[u8]| LedgerEntry::parse(line).is_none_or(|entry| entry.day >= limit);
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

impl<'a> Group<'a> {
    fn add(&mut self, line_number: usize, entry: LedgerEntry<'a>) {
        self.line_number = line_number;
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
        self.sum = LedgerEntry {
            input: self.sum.input + entry.input,
            cached: self.sum.cached + entry.cached,
            cache_write: self.sum.cache_write + entry.cache_write,
            output: self.sum.output + entry.output,
            reasoning: self.sum.reasoning + entry.reasoning,
            usd: Some(self.sum.usd.unwrap_or(0.0) + entry.usd.unwrap_or(0.0)),
            ..entry
        };
    }

    /// The number and the text of the line of the sum.
    fn into_line(mut self, key: &GroupKey) -> (usize, String) {
        self.sums.runs += self.turns.len() as u64;
        let usd = self.sum.usd.filter(|_| self.sums.unpriced < self.sums.calls);
        let sum = LedgerEntry {
            session: key.session.as_str().into(),
            turn: "".into(),
            cause: "sum",
            estimated: false,
            usd: usd.map(round_usd),
            failed: false,
            sums: Some(self.sums),
            ..self.sum
        };
        (self.line_number, sum.to_line())
    }
}
