//! Output of a turn, for people and programs: the sinks that receive its events.
//!
//! The formats are text for a pipe (the answer once, byte for byte), text for a terminal (streamed, with escape
//! sequences neutralised), one JSON object, or one JSON event per line. Each is accompanied by progress on standard
//! error.

use crate::event::Event;
use crate::sys::terminal::Terminal;
use anyhow::Result;
use log::Log;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use stream::Stream;

mod bar;
pub mod columns;
pub mod json;
mod log;
mod markdown;
mod progress;
pub mod short_text;
mod stream;

pub use bar::Bar;
pub use progress::{Level, Progress};

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// Only the result, as one JSON object.
    Json,
    /// Every event as a JSON line.
    StreamJson,
    /// Nothing: the caller prints the answer.
    Held,
}

/// Converts the events of one turn to output.
pub struct Report {
    terminal: Terminal,
    form: Form,
    /// The fields that every event line carries.
    pub stamp: json::Stamp,
    progress: Progress,
    stream: Stream,
    log: Option<Log>,
    /// True if the answer is only printed once it is complete, even on a terminal.
    whole: bool,
}

impl Report {
    pub fn new(terminal: Terminal, form: Form, mut progress: Progress, stamp: json::Stamp) -> Self {
        progress.beside_answer(terminal.out && form == Form::Text);
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

    /// Also appends every event, except pieces of text, to the log file at `path`.
    pub fn log_to(&mut self, path: &Path) {
        self.log = Some(Log::new(path));
    }

    /// Handles an event.
    pub fn tell(&mut self, event: Event<'_>) -> Result<()> {
        // Progress output starts on a new line.
        if !matches!(event, Event::Text { .. } | Event::Assistant { .. }) {
            self.stream.make_way()?;
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

    /// Prints the answer only when it is complete, even on a terminal, because it has to be checked first.
    pub fn show_whole(&mut self) {
        self.whole = true;
        self.progress.beside_answer(false);
    }

    /// Streams the model's text unrendered, even on a terminal.
    pub fn show_as_written(&mut self) {
        self.stream.as_written();
    }

    /// Prints a notice, which is not an error.
    pub fn notice(&mut self, text: &str) {
        // If the notice cannot be written, there is no other place to report that.
        drop(self.tell(Event::Notice(text)));
    }

    /// Ends the output of a run, with the result object if the format has one.
    pub fn finish(&mut self, result: &Value) -> Result<()> {
        self.progress.clear();
        self.log(|_| result.clone());
        match self.form {
            // If the answer was cut off, the reason follows on a new line.
            Form::Text => self.stream.end_line()?,
            Form::Json | Form::StreamJson => self.line(result)?,
            Form::Held => {}
        }
        if let Some(summary) = self.progress.summary() {
            self.terminal.complain_row(&summary);
        }
        Ok(())
    }

    /// Shows that `what` happens after `wait`, as a countdown on a terminal.
    pub fn wait(&mut self, what: &'static str, wait: Duration) {
        self.progress.wait(what, wait);
    }

    /// Reports a log that cannot be written once. It does not end the run, because the user wants the answer.
    fn log(&mut self, line: impl FnOnce(&json::Stamp) -> Value) {
        let Some(log) = &mut self.log else {
            return;
        };
        if let Err(error) = log.write(&line(&self.stamp)) {
            self.log = None;
            self.notice(&format!("cannot write the log: {error:#}"));
        }
    }

    fn line(&self, value: &Value) -> Result<()> {
        self.terminal.print_json(value)
    }
}
