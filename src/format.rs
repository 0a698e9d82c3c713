//! Numbers and paths as text. Pure.

use std::path::Path;

/// Formats a path on one line: control characters, as a line break in a name, are escaped.
pub fn on_one_line(path: &Path) -> String {
    let text = path.display().to_string();
    match text.contains(char::is_control) {
        false => text,
        true => text
            .chars()
            .flat_map(|letter| match letter.is_control() {
                true => letter.escape_default().collect::<Vec<char>>(),
                false => vec![letter],
            })
            .collect(),
    }
}

/// Formats an amount of US dollars with two decimals; four below $0.995, six below $0.001.
pub fn format_dollars(usd: f64) -> String {
    match usd {
        usd if usd == 0.0 || usd >= 0.995 => format!("{usd:.2}"),
        usd if usd >= 0.001 => format!("{usd:.4}"),
        usd => format!("{usd:.6}"),
    }
}
