//! A meter: a line that shows how much of a limit is used.

/// Draws `share` of a line of so many columns. A share above 1 fills the line; any share above 0 is visible.
pub fn draw_meter(share: f64, columns: usize) -> String {
    let halves = (share.clamp(0.0, 1.0) * columns as f64 * 2.0).round() as usize;
    let halves = halves.max(usize::from(share > 0.0));
    let half = if halves % 2 == 1 { "╸" } else { "" };
    let rest = columns - halves.div_ceil(2);
    format!("{}{half}{}", "━".repeat(halves / 2), "─".repeat(rest))
}

/// Formats a share as a percentage, rounded up, so that only nothing is `0%`.
pub fn format_percent(used: u64, limit: u64) -> String {
    format!("{}%", (u128::from(used) * 100).div_ceil(limit.max(1).into()))
}

#[cfg(test)]
mod tests {
    use super::{draw_meter, format_percent};

    #[test]
    fn meters_are_drawn_in_halves() {
        for (share, expect) in [
            (0.0, "────"),
            (0.001, "╸───"),
            (0.25, "━───"),
            (0.4, "━╸──"),
            (1.0, "━━━━"),
            (7.0, "━━━━"),
        ] {
            assert_eq!(draw_meter(share, 4), expect, "{share}");
        }
    }

    #[test]
    fn percentages_are_rounded_up() {
        assert_eq!(format_percent(0, 100), "0%");
        assert_eq!(format_percent(1, 1000), "1%");
        assert_eq!(format_percent(250, 100), "250%");
        assert_eq!(format_percent(1, 0), "100%");
        assert_eq!(format_percent(u64::MAX, u64::MAX), "100%");
    }
}
