//! One parsed line of the ledger: a model call, or the sum of the calls of a month, and the totals including it.

use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The numbers of a line that is the sum of several calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSums {
    pub calls: u64,
    pub runs: u64,
    pub failed: u64,
    pub estimated: u64,
    pub unpriced: u64,
}

/// A recorded model call, or several calls of a month.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerEntry<'a> {
    /// The numbers, if the line is the sum of several calls. The other fields are then sums, or the values of the last call.
    pub sums: Option<CallSums>,
    pub time: Timestamp,
    /// Local date.
    pub day: Date,
    pub session: Cow<'a, str>,
    pub turn: Cow<'a, str>,
    pub job: Option<Cow<'a, str>>,
    /// The sender of the chat message that was answered, as `CHANNEL:ID`.
    pub sender: Option<Cow<'a, str>>,
    pub provider: Cow<'a, str>,
    pub model: Cow<'a, str>,
    /// Input tokens, including those read from the provider's cache and written to it.
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
    /// True if the token counts are estimates.
    pub estimated: bool,
    /// Cost in US dollars; `None` if the price was unknown.
    pub usd: Option<f64>,
    pub failed: bool,
}

impl LedgerEntry<'_> {
    /// The numbers of calls in the line.
    pub fn call_sums(&self) -> CallSums {
        self.sums.unwrap_or(CallSums {
            calls: 1,
            runs: 1,
            failed: u64::from(self.failed),
            estimated: u64::from(self.estimated),
            unpriced: u64::from(self.usd.is_none()),
        })
    }
}

/// A line as it is written.
#[derive(Serialize, Deserialize)]
pub(super) struct LedgerLine<'a> {
    pub v: u64,
    #[serde(borrow)]
    pub time: Cow<'a, str>,
    #[serde(borrow)]
    pub day: Cow<'a, str>,
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    #[serde(borrow)]
    pub turn: Cow<'a, str>,
    pub job: Option<Cow<'a, str>>,
    #[serde(skip_deserializing)]
    pub cause: &'a str,
    #[serde(borrow)]
    pub provider: Cow<'a, str>,
    #[serde(borrow)]
    pub model: Cow<'a, str>,
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
    pub estimated: bool,
    pub usd: Option<f64>,
    #[serde(skip_deserializing)]
    pub ms: u64,
    #[serde(borrow)]
    pub outcome: Cow<'a, str>,
    pub day_usd: f64,
    pub month_usd: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sums: Option<CallSums>,
}

/// Total costs in US dollars, as budgets count them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostTotals {
    pub(super) day: String,
    pub daily: f64,
    pub monthly: f64,
}

impl CostTotals {
    /// Updates the totals for the date `today`. Dates never move backwards: if time zones or clocks differ, costs are added to the later
    /// date.
    pub(super) fn roll_over(mut self, today: &str) -> Self {
        let month = |day: &str| day.get(..7).map(str::to_owned);
        if month(&self.day) < month(today) {
            self.monthly = 0.0;
        }
        if self.day.as_str() < today {
            self.daily = 0.0;
            today.clone_into(&mut self.day);
        }
        self
    }
}

/// Parses a line of the ledger; `None` if it is invalid or of another format version.
pub(super) fn parse_line(line: &[u8]) -> Option<(LedgerEntry<'_>, CostTotals)> {
    let line: LedgerLine<'_> = serde_json::from_slice(line).ok()?;
    let entry = LedgerEntry {
        sums: line.sums,
        time: line.time.parse().ok()?,
        day: line.day.parse().ok()?,
        session: line.session,
        turn: line.turn,
        job: line.job,
        sender: line.sender,
        provider: line.provider,
        model: line.model,
        input: line.input,
        cached: line.cached,
        cache_write: line.cache_write,
        output: line.output,
        reasoning: line.reasoning,
        estimated: line.estimated,
        usd: line.usd,
        failed: line.outcome != "ok",
    };
    let totals =
        CostTotals { day: line.day.into_owned(), daily: line.day_usd, monthly: line.month_usd };
    (line.v == 1).then_some((entry, totals))
}
