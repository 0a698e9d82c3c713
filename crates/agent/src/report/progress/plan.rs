//! The model's task list, read from the results of the `todo` tool. The live status shows it and ticks it off in place.

use console::Style;
use nanobot_os::terminal::StyledLine;

/// Maximum entries that the live status shows.
const MAX_SHOWN_ENTRIES: usize = 8;

/// The task list, as of the last result.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The mark and the text of each entry.
    entries: Vec<(char, String)>,
}

impl Plan {
    /// Reads the lines of a result, such as `[x] write the tests`.
    pub(super) fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let (mark, content) = line.strip_prefix('[')?.split_once("] ")?;
            Some((mark.chars().next()?, content.to_owned()))
        };
        Self { entries: text.lines().filter_map(entry).collect() }
    }

    fn count_done(&self) -> usize {
        self.entries.iter().filter(|(mark, _)| *mark == 'x').count()
    }

    /// Describes the progress: how much is done, and what is being done.
    pub(super) fn describe(&self) -> String {
        let progress = format!("{} of {} done", self.count_done(), self.entries.len());
        match self.entries.iter().find(|(mark, _)| *mark == '>') {
            Some((_, current)) => format!("{progress}, now: {current}"),
            None => progress,
        }
    }

    /// The entries that are not done, with some done ones before them; none once all are done.
    pub(super) fn rows(&self) -> Vec<StyledLine> {
        let is_open = |(mark, _): &(char, String)| matches!(mark, ' ' | '>');
        let Some(first_open) = self.entries.iter().position(is_open) else {
            return Vec::new();
        };
        let last_start = self.entries.len().saturating_sub(MAX_SHOWN_ENTRIES);
        let start = first_open.saturating_sub(2).min(last_start);
        let row = |(mark, content): &(char, String)| {
            let (mark, style) = match mark {
                'x' => ("☑", Style::new().dim()),
                '>' => ("▸", Style::new().bold()),
                '-' => ("☒", Style::new().dim()),
                _ => ("☐", Style::new()),
            };
            StyledLine::new("  ").styled(format!("{mark} {content}"), style)
        };
        let entries = self.entries.iter().skip(start).take(MAX_SHOWN_ENTRIES);
        let mut rows: Vec<StyledLine> = entries.map(row).collect();
        let hidden = self.entries.len() - rows.len();
        if hidden > 0 {
            rows.push(StyledLine::new("  ").dim(format!("… {hidden} more")));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn a_plan_shows_what_is_open() {
        let check = |text: &str, describes: &str, rows: &[&str]| {
            let plan = Plan::parse(text);
            assert_eq!(plan.describe(), describes);
            let shown: Vec<String> = plan.rows().iter().map(|row| row.text()).collect();
            assert_eq!(shown, rows);
        };
        check("(the list is empty)", "0 of 0 done", &[]);
        check("[x] a\n[-] b", "1 of 2 done", &[]);
        check("[x] a\n[>] b\n[ ] c", "1 of 3 done, now: b", &["  ☑ a", "  ▸ b", "  ☐ c"]);
        let long: String = (1..=12)
            .map(|number| format!("[{}] {number}\n", if number < 6 { 'x' } else { ' ' }))
            .collect();
        check(
            &long,
            "5 of 12 done",
            &[
                "  ☑ 4",
                "  ☑ 5",
                "  ☐ 6",
                "  ☐ 7",
                "  ☐ 8",
                "  ☐ 9",
                "  ☐ 10",
                "  ☐ 11",
                "  … 4 more",
            ],
        );
    }
}
