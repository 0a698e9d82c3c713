//! Numbers as people read them. Pure.

/// An amount of US dollars, in cents; with more digits where it is less than one cent.
pub fn dollars(usd: f64) -> String {
    match usd {
        usd if usd == 0.0 || usd >= 0.995 => format!("{usd:.2}"),
        usd if usd >= 0.001 => format!("{usd:.4}"),
        usd => format!("{usd:.6}"),
    }
}
