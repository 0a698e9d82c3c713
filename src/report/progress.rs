//! Progress on standard error: notices everywhere, and live status on a terminal.

use super::short_text::{cut, hint, refusal, took};
use crate::event::{Event, Outcome};
use crate::sys::sync::IgnorePoison;
use crate::sys::terminal::{Row, Terminal, error_width};
use scene::{Scene, View};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

mod lines;
mod scene;

/// Writes progress to standard error.
pub struct Progress {
    terminal: Terminal,
    level: Level,
    /// Refusals that were already reported.
    refused: Vec<String>,
    /// The live status of a terminal; `None` without a terminal, and if nothing is to be shown.
    scene: Option<Arc<Mutex<Scene>>>,
    /// True if the live status is displayed below the output.
    begun: bool,
    /// True if all details are shown.
    detailed: bool,
    /// True if the answer is streamed to the same terminal.
    speaks: bool,
}

/// The amount of progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only failures.
    Quiet,
    /// Notices; on a terminal also a summary of tools and waits.
    Notices,
    /// Notices, tools and waits.
    Lines,
}

impl Progress {
    pub fn new(terminal: Terminal, level: Level) -> Self {
        let is_live = terminal.err && level > Level::Quiet;
        Self {
            terminal,
            level,
            refused: Vec::new(),
            scene: is_live.then(|| Arc::new(Mutex::new(Scene::new(Instant::now())))),
            begun: false,
            detailed: level == Level::Lines,
            speaks: false,
        }
    }

    /// Sets if the answer is streamed to the same terminal.
    pub(super) fn beside_answer(&mut self, speaks: bool) {
        self.speaks = speaks;
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) {
        match event {
            Event::Notice(text) => self.notice(text),
            Event::Fallback { from, to, cause } => {
                self.notice(&format!("{cause}; falling back from `{from}` to `{to}`"));
            }
            _ => {}
        }
        match &self.scene {
            Some(_) => self.show(event),
            None => self.line(event),
        }
        if let Event::ToolResult {
            result,
            denied: Some((words, grant)),
            ..
        } = event
        {
            let line = refusal(&result.name, words, *grant).replace('\n', "\\n");
            // Each refusal is reported once, even if it is repeated.
            if !self.refused.contains(&line) {
                self.notice(&line);
                self.refused.push(line);
            }
        }
    }

    /// Updates the live status of a terminal.
    fn show(&mut self, event: &Event<'_>) {
        let view = View {
            // The width only matters for text that we wrap.
            width: if self.detailed { error_width() } else { 80 },
            detailed: self.detailed,
            speaks: self.speaks,
            now: Instant::now(),
        };
        let Some(rows) = self.scene().map(|mut scene| scene.take(event, view)) else {
            return;
        };
        for row in &rows {
            self.terminal.complain_row(row);
        }
        match event {
            Event::User(user) if !user.injected => self.begin(),
            Event::Assistant { last: true, .. } => self.clear(),
            // There may be thousands of these events; the next frame shows their effect.
            Event::Text { .. } | Event::Reasoning { .. } | Event::ToolOutput { .. } => {}
            _ => self.terminal.refresh(),
        }
    }

    fn scene(&self) -> Option<MutexGuard<'_, Scene>> {
        let scene = self.scene.as_ref()?;
        Some(scene.lock().ignore_poison())
    }

    /// Starts the live status.
    fn begin(&mut self) {
        self.begun = true;
        if let Some(scene) = self.scene.clone() {
            self.terminal.show_below(Some(Box::new(move || {
                let scene = scene.lock().ignore_poison();
                scene.rows(Instant::now())
            })));
        }
    }

    /// Shows that `what` happens after `wait`.
    pub(super) fn wait(&mut self, what: &'static str, wait: Duration) {
        let now = Instant::now();
        let waits = self.scene().map(|mut scene| scene.wait(what, wait, now));
        if waits.is_some() {
            self.begin();
        }
    }

    /// Prints a line of progress without a terminal, at the level that asks for it.
    fn line(&self, event: &Event<'_>) {
        let line = match event {
            Event::ToolCall(call) => format!("  ↳ {}", hint(&call.name, &call.arguments)),
            Event::ToolResult {
                result,
                outcome: Outcome::Failed | Outcome::Skipped,
                duration,
                ..
            } => {
                let text = crate::message::plain_text(&result.parts);
                let first = cut(text.lines().next().unwrap_or_default(), 160);
                let time = took(*duration);
                format!("  ✗ {} ({time}): {first}", result.name)
            }
            Event::Retry {
                attempt,
                wait,
                cause,
            } => format!("  … {cause}; attempt {} in {}", attempt + 1, took(*wait)),
            Event::CompactStart { tokens, .. } => format!("  … compacting {tokens} tokens"),
            _ => return,
        };
        if self.level == Level::Lines {
            self.terminal.complain(&line);
        }
    }

    fn notice(&self, text: &str) {
        if self.level >= Level::Notices {
            self.terminal.complain(&format!("nanobot: {text}"));
        }
    }

    /// Removes the live status.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.begun) {
            self.terminal.show_below(None);
        }
    }

    /// Returns a summary of the turn, if details are shown.
    pub(super) fn summary(&self) -> Option<Row> {
        let scene = self.scene().filter(|scene| scene.has_asked())?;
        self.detailed.then(|| scene.summary(Instant::now()))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
