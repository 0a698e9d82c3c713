//! What a person or a program sees of a turn: the sinks that events go to.
//!
//! Text for a pipe (the answer once, byte for byte), text for a terminal (as it comes, made harmless), one JSON object,
//! or one JSON event per line; and beside each of them progress on standard error.

use crate::event::{Event, Outcome};
use crate::sys::terminal::{Page, Terminal};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use log::Log;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

pub mod json;
mod log;

/// What is printed on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// The result alone, as one object.
    Json,
    /// Every event as a line.
    StreamJson,
    /// Nothing: the answer is for somebody else to print.
    Held,
}

/// Turns the events of one turn into what is printed.
pub struct Report {
    terminal: Terminal,
    form: Form,
    /// Every event line carries these.
    pub stamp: json::Stamp,
    progress: Progress,
    stream: Stream,
    log: Option<Log>,
    /// The answer is printed when it is complete, wherever.
    whole: bool,
}

impl Report {
    pub fn new(terminal: Terminal, form: Form, progress: Progress, stamp: json::Stamp) -> Self {
        Self {
            terminal,
            form,
            stamp,
            progress,
            stream: Stream::on(terminal),
            log: None,
            whole: false,
        }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    /// Also write every event, but pieces of text, as a line of the file at `path`.
    pub fn log_to(&mut self, path: &Path) {
        self.log = Some(Log::new(path));
    }

    /// The sink.
    pub fn tell(&mut self, event: Event<'_>) -> Result<()> {
        if matches!(event, Event::Notice(_)) {
            self.stream.end_line()?;
        }
        self.progress.tell(&event);
        if log::takes(&event) {
            self.log(|stamp| json::event(&event, stamp));
        }
        match self.form {
            Form::Json | Form::Held => Ok(()),
            Form::StreamJson => self.line(&json::event(&event, &self.stamp)),
            Form::Text if self.terminal.out && !self.whole => self.stream.tell(&event),
            Form::Text => match event {
                Event::Assistant { reply, last: true } => self
                    .terminal
                    .print(&format!("{}\n", reply.text.trim_end_matches('\n'))),
                _ => Ok(()),
            },
        }
    }

    /// Print the answer when it is complete, on a terminal too: until it is checked it is none.
    pub fn show_whole(&mut self) {
        self.whole = true;
    }

    /// Say something that is no failure.
    pub fn notice(&mut self, text: &str) {
        // A notice that cannot be shown has nobody to see it.
        drop(self.tell(Event::Notice(text)));
    }

    /// The last word of a run: the result object, where one is printed.
    pub fn finish(&mut self, result: &Value) -> Result<()> {
        self.progress.clear();
        self.log(|_| result.clone());
        match self.form {
            // What was cut off is followed by why, on a line of its own.
            Form::Text => self.stream.end_line(),
            Form::Json | Form::StreamJson => self.line(result),
            Form::Held => Ok(()),
        }
    }

    /// A log that cannot be written is told once, and is no reason to end: whoever asked for the turn wants its answer.
    fn log(&mut self, line: impl FnOnce(&json::Stamp) -> Value) {
        let Some(log) = &mut self.log else {
            return;
        };
        if let Err(error) = log.write(&line(&self.stamp)) {
            self.log = None;
            self.notice(&format!("no log is kept: {error:#}"));
        }
    }

    fn line(&self, value: &Value) -> Result<()> {
        self.terminal.print_json(value)
    }
}

/// The answer on a terminal, as it comes.
struct Stream {
    page: Page,
    /// Something was printed since the last line ended.
    open: bool,
    /// The text of this reply was printed piece by piece.
    shown: bool,
}

impl Stream {
    fn on(terminal: Terminal) -> Self {
        Self {
            page: Page::on(terminal),
            open: false,
            shown: false,
        }
    }

    fn tell(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Text { text, .. } => self.print(text),
            Event::Assistant { reply, .. } => {
                if !std::mem::take(&mut self.shown) && !reply.text.is_empty() {
                    self.print(&reply.text)?;
                    self.shown = false;
                }
                self.end_line()
            }
            _ => Ok(()),
        }
    }

    fn end_line(&mut self) -> Result<()> {
        self.page.settle();
        if std::mem::take(&mut self.open) {
            self.page.put("\n")?;
        }
        self.page.flush()
    }

    fn print(&mut self, text: &str) -> Result<()> {
        self.shown = true;
        self.open = !text.ends_with('\n');
        self.page.put(text)?;
        self.page.flush()
    }
}

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

    fn tell(&mut self, event: &Event<'_>) {
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

    fn clear(&mut self) {
        if let Some(bar) = self.spinner.take() {
            bar.finish_and_clear();
        }
    }
}

/// A refusal on one line, with the flag that would have allowed it.
pub fn refusal(tool: &str, words: &str, grant: Option<&str>) -> String {
    let mut line = format!("refused: {tool}: {}", cut(words, 300));
    // Most refusals name the flag where they say why.
    if let Some(flag) = grant.filter(|flag| !line.contains(*flag)) {
        line.push_str(&format!("; `{flag}` would allow it"));
    }
    // A name may hold a line's end, and would begin a line of its own making.
    line.replace(['\n', '\r'], "␊")
}

/// A call in a few words: its name and, where its first argument is text, that.
pub fn hint(name: &str, arguments: &Value) -> String {
    match arguments
        .as_object()
        .and_then(|object| object.values().next())
        .and_then(Value::as_str)
    {
        Some(text) => format!("{name}(\"{}\")", cut(text, 60)),
        None => name.to_owned(),
    }
}

/// The first `limit` characters of `text` on one line.
pub fn cut(text: &str, limit: usize) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
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
    use super::{hint, short};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_call_is_hinted_by_its_first_text() {
        assert_eq!(
            hint("read_file", &json!({"path": "a.md", "limit": 3})),
            "read_file(\"a.md\")"
        );
        assert_eq!(hint("list", &json!({})), "list");
        assert_eq!(hint("exec", &json!({"command": "a\nb"})), "exec(\"a b\")");
        assert_eq!(
            hint("exec", &json!({"command": "x".repeat(61)})),
            format!("exec(\"{}…\")", "x".repeat(60))
        );
    }

    #[test]
    fn durations_are_short() {
        assert_eq!(short(Duration::from_millis(12)), "12 ms");
        assert_eq!(short(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(short(Duration::from_secs(61)), "1 min 1 s");
    }
}
