//! Number formatting for people. Pure.

/// Formats an amount of US dollars with two decimals; four below $0.995, six below $0.001.
pub fn format_dollars(usd: f64) -> String {
    match usd {
        usd if usd == 0.0 || usd >= 0.995 => format!("{usd:.2}"),
        usd if usd >= 0.001 => format!("{usd:.4}"),
        usd => format!("{usd:.6}"),
    }
}
