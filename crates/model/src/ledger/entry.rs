//! A line of the ledger: a model call, or the sum of the calls of a month, and the totals including it.

use crate::text_form;
use jiff::{Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The version of the format.
pub(super) const FORMAT_VERSION: u64 = 1;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry<'a> {
    pub(super) v: u64,
    #[serde(with = "text_form")]
    pub time: Timestamp,
    /// Local date.
    #[serde(with = "text_form")]
    pub day: Date,
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    #[serde(borrow)]
    pub turn: Cow<'a, str>,
    pub job: Option<Cow<'a, str>>,
    #[serde(skip_deserializing)]
    pub(super) cause: &'a str,
    #[serde(borrow)]
    pub provider: Cow<'a, str>,
    #[serde(borrow)]
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
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub(super) ms: Option<u64>,
    #[serde(rename = "outcome", with = "outcome")]
    pub failed: bool,
    pub(super) day_usd: f64,
    pub(super) month_usd: f64,
    /// The sender of the chat message that was answered, as `CHANNEL:ID`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Cow<'a, str>>,
    /// The numbers, if the line is the sum of several calls. The other fields are then sums, or the values of the last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sums: Option<CallSums>,
}

/// The outcome of a call as text: `ok`, or another one of a call that has failed.
mod outcome {
    use crate::text_form::Text;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(failed: &bool, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(if *failed { "failed" } else { "ok" })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        Ok(Text::deserialize(from)?.0 != "ok")
    }
}

impl<'a> LedgerEntry<'a> {
    /// Parses a line; `None` if it is invalid or of another format version.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok().filter(|entry: &Self| entry.v == FORMAT_VERSION)
    }

    /// The line, with its end.
    pub(super) fn to_line(&self) -> String {
        let line = serde_json::to_string(self);
        line.expect("texts and numbers can be serialized to memory") + "\n"
    }

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

    /// The totals including the line.
    pub(super) fn totals(&self) -> CostTotals {
        CostTotals { day: self.day, daily: self.day_usd, monthly: self.month_usd }
    }
}

/// Total costs in US dollars, as budgets count them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostTotals {
    pub(super) day: Date,
    pub daily: f64,
    pub monthly: f64,
}

impl CostTotals {
    /// Updates the totals for the date `today`. Dates never move backwards: if time zones or clocks differ, costs are added to the later
    /// date.
    pub(super) fn roll_over(mut self, today: Date) -> Self {
        if self.day.first_of_month() < today.first_of_month() {
            self.monthly = 0.0;
        }
        if self.day < today {
            self.daily = 0.0;
            self.day = today;
        }
        self
    }
}
