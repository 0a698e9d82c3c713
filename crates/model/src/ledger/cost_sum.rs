//! The cost of several calls. Some of them may have no known price. An unknown cost is never shown as zero.

use super::entry::LedgerEntry;
use jiff::civil::Date;
use nanobot_base::format::format_dollars;
use std::fmt;

/// The cost of a group of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CostSum {
    /// The sum of the known costs, in US dollars.
    pub usd: f64,
    pub calls: u64,
    /// Calls of unknown price.
    pub unpriced: u64,
}

/// The costs of this day and of this month.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeriodCosts {
    pub today: CostSum,
    pub month: CostSum,
    /// The latest day of costs that were recorded while the clock was ahead.
    pub later_day: Option<Date>,
}

impl CostSum {
    /// Adds a call that cost `usd` US dollars.
    pub fn add(&mut self, usd: Option<f64>) {
        self.usd += usd.unwrap_or(0.0);
        self.calls += 1;
        self.unpriced += u64::from(usd.is_none());
    }

    /// Adds the calls of a line of the ledger.
    pub fn add_entry(&mut self, entry: &LedgerEntry<'_>) {
        let sums = entry.call_sums();
        self.usd += entry.usd.unwrap_or(0.0);
        self.calls += sums.calls;
        self.unpriced += sums.unpriced;
    }

    /// The cost in US dollars as far as it is known; `None` if no call has a known price.
    pub fn known_usd(&self) -> Option<f64> {
        (self.unpriced == 0 || self.unpriced < self.calls).then(|| round_usd(self.usd))
    }
}

impl fmt::Display for CostSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unpriced = match self.unpriced {
            1 => "1 call without a price".to_owned(),
            count => format!("{count} calls without a price"),
        };
        match (self.known_usd(), self.unpriced) {
            (None, _) => write!(f, "unknown ({unpriced})"),
            (Some(usd), 0) => write!(f, "${}", format_dollars(usd)),
            (Some(usd), _) => write!(f, "at least ${} ({unpriced})", format_dollars(usd)),
        }
    }
}

/// Rounds to 1e-8 dollars, because sums of floats end in noise.
pub fn round_usd(usd: f64) -> f64 {
    (usd * 1e8).round() / 1e8
}

#[cfg(test)]
mod tests {
    use super::CostSum;

    #[test]
    fn unknown_costs_are_never_shown_as_none() {
        let check = |costs: &[Option<f64>], known: Option<f64>, expect: &str| {
            let mut sum = CostSum::default();
            costs.iter().for_each(|usd| sum.add(*usd));
            assert_eq!((sum.known_usd(), sum.to_string().as_str()), (known, expect));
        };
        check(&[], Some(0.0), "$0.00");
        check(&[Some(0.0)], Some(0.0), "$0.00");
        check(&[Some(1.25), Some(0.15)], Some(1.4), "$1.40");
        check(&[None], None, "unknown (1 call without a price)");
        check(&[None; 149], None, "unknown (149 calls without a price)");
        check(&[Some(0.5), None, None], Some(0.5), "at least $0.5000 (2 calls without a price)");
    }
}
