//! What happens meanwhile, on standard error: notices everywhere, and on a terminal tools, waits and a spinner.

use super::{cut, hint, refusal};
use crate::event::{Event, Outcome};
use crate::sys::terminal::Terminal;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// What happens meanwhile, on standard error.
pub struct Progress {
    terminal: Terminal,
    level: Level,
    /// What was told of refusals.
    refused: Vec<String>,
    spinner: Option<ProgressBar>,
}

/// How much is told meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing but failures.
    Quiet,
    /// Notices.
    Notices,
    /// Notices, and lines for tools and retries.
    Lines,
}

impl Progress {
    /// A spinner is shown on a terminal only.
    pub fn new(terminal: Terminal, level: Level) -> Self {
        let level = if terminal.err && level == Level::Notices {
            Level::Lines
        } else {
            level
        };
        Self {
            terminal,
            level,
            refused: Vec::new(),
            spinner: None,
        }
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::User(_) => self.spin(),
            Event::Text { .. } => self.clear(),
            Event::Assistant { last: true, .. } => self.clear(),
            Event::ToolCall(call) => {
                self.line(&format!("  ↳ {}", hint(&call.name, &call.arguments)));
                self.spin();
            }
            Event::ToolResult {
                result,
                denied: Some((words, grant)),
                ..
            } => {
                let line = refusal(&result.name, words, *grant);
                // Each kind once, however often it is tried.
                let line = line.replace('\n', "\\n");
                if !self.refused.contains(&line) {
                    self.notice(&line);
                    self.refused.push(line);
                }
                self.spin();
            }
            Event::ToolResult {
                result,
                outcome,
                duration,
                ..
            } if *outcome != Outcome::Ok => {
                let text = crate::message::plain_text(&result.parts);
                let first = text.lines().next().unwrap_or_default();
                self.line(&format!(
                    "  ✗ {} ({}): {}",
                    result.name,
                    short(*duration),
                    cut(first, 160)
                ));
                self.spin();
            }
            Event::Retry {
                attempt,
                wait,
                cause,
            } => {
                self.line(&format!(
                    "  … {cause}; try {} in {}",
                    attempt + 1,
                    short(*wait)
                ));
                self.spin();
            }
            Event::Fallback { from, to, cause } => {
                self.notice(&format!("{cause}; `{to}` is asked instead of `{from}`"));
                self.spin();
            }
            Event::Notice(text) => self.notice(text),
            Event::CompactStart { tokens, .. } => {
                self.line(&format!("  … compacting {tokens} tokens"));
                self.spin();
            }
            Event::CompactEnd { .. } => self.spin(),
            _ => {}
        }
    }

    fn notice(&mut self, text: &str) {
        if self.level >= Level::Notices {
            self.clear();
            self.terminal.complain(&format!("nanobot: {text}"));
        }
    }

    fn line(&mut self, text: &str) {
        if self.level >= Level::Lines {
            self.clear();
            self.terminal.complain(text);
        }
    }

    fn spin(&mut self) {
        if self.terminal.err && self.level > Level::Quiet && self.spinner.is_none() {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            self.spinner = Some(bar);
        }
    }

    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.spinner.take() {
            bar.finish_and_clear();
        }
    }
}

fn short(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::short;
    use std::time::Duration;

    #[test]
    fn durations_are_short() {
        assert_eq!(short(Duration::from_millis(12)), "12 ms");
        assert_eq!(short(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(short(Duration::from_secs(61)), "1 min 1 s");
    }
}
