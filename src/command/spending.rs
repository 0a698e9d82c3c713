//! The cost of a period beside its budget.

use nanobot_agent::report::meter::{draw_meter, format_percent};
use nanobot_model::ledger::CostSum;

pub(super) const METER_COLUMNS: usize = 10;

/// Formats the cost of a period, with its budget, and with a meter of the budget if `has_meter`.
pub(super) fn format_spending(cost: &CostSum, limit: Option<f64>, has_meter: bool) -> String {
    let Some(limit) = limit else {
        return cost.to_string();
    };
    let text = format!("{cost} of ${limit:.2}");
    // A budget of zero has no percentage.
    if !has_meter || limit <= 0.0 {
        return text;
    }
    let micros = |usd: f64| (usd * 1e6) as u64;
    let meter = draw_meter(cost.usd / limit, METER_COLUMNS);
    let percent = format_percent(micros(cost.usd), micros(limit));
    format!("{text} {meter} {percent}")
}

#[cfg(test)]
mod tests {
    use super::format_spending;
    use nanobot_model::ledger::CostSum;

    #[test]
    fn a_budget_is_shown_beside_its_meter() {
        let mut cost = CostSum::default();
        cost.add(Some(1.25));
        let check = |limit, has_meter, expect: &str| {
            assert_eq!(format_spending(&cost, limit, has_meter), expect);
        };
        check(None, true, "$1.25");
        check(Some(5.0), false, "$1.25 of $5.00");
        check(Some(5.0), true, "$1.25 of $5.00 ━━╸─────── 25%");
        check(Some(1.0), true, "$1.25 of $1.00 ━━━━━━━━━━ 125%");
        check(Some(0.0), true, "$1.25 of $0.00");
    }
}
