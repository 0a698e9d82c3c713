//! Limits of the config that other crates enforce. `None` is unlimited.

/// Budgets, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetLimits {
    /// Limit per day in the system's time zone.
    pub daily: Option<f64>,
    pub monthly: Option<f64>,
    pub per_session: Option<f64>,
}

impl BudgetLimits {
    /// True if no limit is set.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Limits of the requests to a provider, of all runs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Maximum number of requests at once.
    pub max_concurrent: Option<u32>,
    pub requests_per_minute: Option<u64>,
    /// Tokens of input and output.
    pub tokens_per_minute: Option<u64>,
}
