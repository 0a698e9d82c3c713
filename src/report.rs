//! What a person or a program sees of a turn: the sinks that events go to.
//!
//! Text for a pipe (the answer once, byte for byte), text for a terminal (as it comes, made harmless), one JSON object,
//! or one JSON event per line; and beside each of them progress on standard error.

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

    /// Also write every event, but pieces of text, as a line of the file at `path`.
    pub fn log_to(&mut self, path: &Path) {
        self.log = Some(Log::new(path));
    }

    /// The sink.
    pub fn tell(&mut self, event: Event<'_>) -> Result<()> {
        // What is told of it meanwhile begins on a line of its own.
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

    /// Print the answer when it is complete, on a terminal too: until it is checked it is none.
    pub fn show_whole(&mut self) {
        self.whole = true;
        self.progress.beside_answer(false);
    }

    /// Show what comes as the model wrote it, on a terminal too.
    pub fn show_as_written(&mut self) {
        self.stream.as_written();
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
            Form::Text => self.stream.end_line()?,
            Form::Json | Form::StreamJson => self.line(result)?,
            Form::Held => {}
        }
        if let Some(summary) = self.progress.summary() {
            self.terminal.complain_row(&summary);
        }
        Ok(())
    }

    /// Show that `what` happens when so long has passed, as a countdown where there is a terminal.
    pub fn wait(&mut self, what: &'static str, wait: Duration) {
        self.progress.wait(what, wait);
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
