//! One line of the ledger as it is read: the call of a model, and the totals up to and with it.

use jiff::{Timestamp, civil::Date};
use serde::Deserialize;
use std::borrow::Cow;

/// One call of a model, as it was written down.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    pub time: Timestamp,
    /// As the clock on the wall had it.
    pub day: Date,
    pub session: Cow<'a, str>,
    pub turn: Cow<'a, str>,
    pub job: Option<Cow<'a, str>>,
    pub provider: Cow<'a, str>,
    pub model: Cow<'a, str>,
    /// Tokens, with those read from the provider's cache and written to it.
    pub input: u64,
    pub cached: u64,
    pub cache_write: u64,
    pub output: u64,
    pub reasoning: u64,
    /// The tokens are a guess.
    pub estimated: bool,
    /// `None` where no price was known.
    pub usd: Option<f64>,
    pub failed: bool,
}

/// A line, as far as it is read.
#[derive(Deserialize)]
struct Written<'a> {
    v: u64,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    day: Cow<'a, str>,
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    turn: Cow<'a, str>,
    job: Option<Cow<'a, str>>,
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    reasoning: u64,
    estimated: bool,
    usd: Option<f64>,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
    day_usd: f64,
    month_usd: f64,
}

/// What has been spent, as budgets have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub(super) day: String,
    pub daily: f64,
    pub monthly: f64,
}

impl Totals {
    /// As they are on the day `today`. A day that was reached is not left again: where zones or clocks differ, what is spent
    /// in one is spent in the other.
    pub(super) fn on(mut self, today: &str) -> Self {
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

pub(super) fn entry(line: &[u8]) -> Option<(Entry<'_>, Totals)> {
    let written: Written<'_> = serde_json::from_slice(line).ok()?;
    let entry = Entry {
        time: written.time.parse().ok()?,
        day: written.day.parse().ok()?,
        session: written.session,
        turn: written.turn,
        job: written.job,
        provider: written.provider,
        model: written.model,
        input: written.input,
        cached: written.cached,
        cache_write: written.cache_write,
        output: written.output,
        reasoning: written.reasoning,
        estimated: written.estimated,
        usd: written.usd,
        failed: written.outcome != "ok",
    };
    let totals = Totals {
        day: written.day.into_owned(),
        daily: written.day_usd,
        monthly: written.month_usd,
    };
    (written.v == 1).then_some((entry, totals))
}
