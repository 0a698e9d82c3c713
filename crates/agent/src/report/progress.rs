//! Progress on standard error: notices everywhere, and live status on a terminal.

use super::short_text::{call_hint, format_denial, format_elapsed, truncate_line};
use live_view::{LiveView, ViewSettings};
use nanobot_base::event::{Event, ToolOutcome};
use nanobot_os::signal;
use nanobot_os::terminal::{StyledLine, Terminal, stderr_width};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod lines;
mod live_view;
mod plan;

/// Writes progress to standard error.
pub struct ProgressDisplay {
    terminal: Terminal,
    level: ProgressLevel,
    /// Lines that cannot be printed before the interrupted run ends.
    delayed_rows: Vec<StyledLine>,
    /// Refusals that were already reported.
    reported_denials: Vec<String>,
    /// The status of a turn on a terminal; `None` without a terminal, and if nothing is to be shown.
    live_view: Option<Arc<Mutex<LiveView>>>,
    /// The time that questions had taken before this turn.
    earlier_question_time: Duration,
    /// True if the live status is displayed below the output.
    is_displayed: bool,
    /// True if all details are shown.
    is_detailed: bool,
    /// True if the answer is streamed to the same terminal.
    streams_answer: bool,
    /// True if the turn ends with the status line.
    has_status_line: bool,
}

/// The amount of progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgressLevel {
    /// Only failures.
    Quiet,
    /// Notices; on a terminal also a summary of tools and waits.
    Notices,
    /// Notices, tools and waits.
    Lines,
}

impl ProgressDisplay {
    pub fn new(terminal: Terminal, level: ProgressLevel) -> Self {
        // Where nothing can be redrawn, only its permanent lines are printed.
        let is_terminal = terminal.stderr_is_tty || terminal.stderr_is_plain_tty;
        let is_live = is_terminal && level > ProgressLevel::Quiet;
        Self {
            terminal,
            level,
            delayed_rows: Vec::new(),
            reported_denials: Vec::new(),
            live_view: is_live.then(|| Arc::new(Mutex::new(LiveView::new(Instant::now())))),
            earlier_question_time: terminal.exclusive_time(),
            is_displayed: false,
            is_detailed: level == ProgressLevel::Lines,
            streams_answer: false,
            has_status_line: level == ProgressLevel::Lines,
        }
    }

    /// Sets whether the answer is streamed to the same terminal.
    pub(super) fn set_streams_answer(&mut self, streams_answer: bool) {
        self.streams_answer = streams_answer;
    }

    /// Shows the status line at the end of the turn.
    pub fn show_status_line(&mut self) {
        self.has_status_line = true;
    }

    /// Sets the model's context window in tokens. The status line shows how much of it is used.
    pub fn set_context_window(&self, tokens: u32) {
        if let Some(mut live_view) = self.lock_live_view() {
            live_view.set_context_window(tokens);
        }
    }

    /// True if progress is shown live.
    pub(super) fn is_live(&self) -> bool {
        self.live_view.is_some() && self.terminal.stderr_is_tty
    }

    pub(super) fn handle(&mut self, event: &Event<'_>) {
        match event {
            Event::Notice(text) => self.notice(text),
            Event::Fallback { from, to, cause } => {
                self.notice(&format!("{cause}; falling back from `{from}` to `{to}`"));
            }
            _ => {}
        }
        match &self.live_view {
            Some(_) => self.update_live_view(event),
            None => self.print_event(event),
        }
        if let Event::ToolResult { denial: Some(denial), .. } = event {
            let line = format_denial(denial).replace('\n', "\\n");
            // Each denial is reported once, even if it is repeated.
            if !self.reported_denials.contains(&line) {
                self.notice(&line);
                self.reported_denials.push(line);
            }
        }
    }

    /// Updates the live status of a terminal.
    fn update_live_view(&mut self, event: &Event<'_>) {
        let settings = ViewSettings {
            // The width only matters for text that we wrap.
            width: if self.is_detailed { stderr_width() } else { 80 },
            is_detailed: self.is_detailed,
            streams_answer: self.streams_answer,
            now: Instant::now(),
        };
        let Some(rows) =
            self.lock_live_view().map(|mut live_view| live_view.handle(event, settings))
        else {
            return;
        };
        match signal::check() {
            Ok(()) => self.print_rows(&rows),
            Err(_) => self.delayed_rows.extend(rows),
        }
        match event {
            Event::User(user) if !user.injected => self.display_live_view(),
            // A compaction that the user asks for has no message.
            Event::CompactStart { .. } if !self.is_displayed => self.display_live_view(),
            Event::Assistant { is_final: true, .. } => self.clear(),
            // There may be thousands of these events; the next frame shows their effect.
            Event::Text { .. } | Event::Reasoning { .. } | Event::ToolOutput { .. } => {}
            _ => self.terminal.refresh_status(),
        }
    }

    fn lock_live_view(&self) -> Option<MutexGuard<'_, LiveView>> {
        let live_view = self.live_view.as_ref()?;
        Some(live_view.lock())
    }

    /// Starts the live status.
    fn display_live_view(&mut self) {
        self.is_displayed = true;
        if let Some(live_view) = self.live_view.clone() {
            self.terminal.set_status(Some(Box::new(move || {
                let live_view = live_view.lock();
                live_view.status_rows(Instant::now())
            })));
        }
    }

    /// Shows that `action` happens after `wait`, as a countdown on a terminal.
    pub fn show_wait(&mut self, action: &'static str, wait: Duration) {
        let Some(mut live_view) = self.lock_live_view() else {
            return;
        };
        live_view.wait(action, wait, Instant::now());
        drop(live_view);
        self.display_live_view();
    }

    /// Prints a line of progress without a terminal, if the level includes it.
    fn print_event(&self, event: &Event<'_>) {
        let line = match event {
            Event::Assistant { reply, is_final } => {
                // The text of the last reply is the answer, which goes to standard output.
                let interim = if *is_final { "" } else { &*reply.text };
                let parts = [("  ~ ", &*reply.reasoning), ("  ", interim)];
                let lines: Vec<String> = parts
                    .into_iter()
                    .flat_map(|(prefix, text)| {
                        let lines = text.trim().lines();
                        lines.map(move |line| format!("{prefix}{}", line.trim_end()))
                    })
                    .collect();
                if lines.is_empty() {
                    return;
                }
                lines.join("\n")
            }
            Event::ToolCall(call) => format!("  ↳ {}", call_hint(&call.name, &call.arguments)),
            Event::ToolResult {
                result,
                outcome: ToolOutcome::Failed | ToolOutcome::Skipped,
                duration,
                ..
            } => {
                let text = nanobot_base::message::plain_text(&result.parts);
                let first = truncate_line(text.lines().next().unwrap_or_default(), 160);
                let time = format_elapsed(*duration);
                format!("  ✗ {} ({time}): {first}", result.name)
            }
            Event::Retry { attempt, wait, cause } => {
                format!("  … attempt {} in {}: {cause}", attempt + 1, format_elapsed(*wait))
            }
            Event::Wait { wait: Some(wait), cause } => {
                format!("  … waiting {}: {cause}", format_elapsed(*wait))
            }
            Event::Wait { wait: None, cause } => format!("  … waiting: {cause}"),
            Event::CompactStart { tokens, .. } => format!("  … compacting {tokens} tokens"),
            _ => return,
        };
        if self.level == ProgressLevel::Lines {
            self.terminal.eprint(&line);
        }
    }

    fn notice(&self, text: &str) {
        if self.level >= ProgressLevel::Notices {
            self.terminal.eprint(&format!("nanobot: {text}"));
        }
    }

    fn print_rows(&self, rows: &[StyledLine]) {
        for row in rows {
            self.terminal.eprint_truncated(row);
        }
    }

    /// Removes the live status at the end of the run. Calls that still run get a last line, which says that they were
    /// interrupted.
    pub(super) fn end(&mut self) {
        let mut rows = std::mem::take(&mut self.delayed_rows);
        let interrupted =
            self.lock_live_view().map(|mut live_view| live_view.end_calls(Instant::now()));
        rows.extend(interrupted.into_iter().flatten());
        self.clear();
        self.print_rows(&rows);
    }

    /// Removes the live status.
    fn clear(&mut self) {
        if self.is_displayed {
            self.is_displayed = false;
            self.terminal.set_status(None);
        }
    }

    /// Returns the status line of a turn that has made requests, if it is to be shown.
    pub(super) fn status_line(&self) -> Option<StyledLine> {
        let live_view = self.lock_live_view().filter(|live_view| live_view.has_requests())?;
        // A meter is of no use to a screen reader.
        let width = if self.terminal.stderr_is_tty { stderr_width() } else { 0 };
        // The time for which the user was asked is not that of the turn.
        let question_time =
            self.terminal.exclusive_time().saturating_sub(self.earlier_question_time);
        let end = Instant::now().checked_sub(question_time)?;
        self.has_status_line.then(|| live_view.status_line(end, width, self.is_detailed))
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.end();
    }
}
