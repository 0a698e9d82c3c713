//! Output of a turn, for people and programs: the sinks that receive its events.
//!
//! The formats are text for a pipe (the answer once, byte for byte), text for a terminal (streamed, with escape
//! sequences neutralised), one JSON object, or one JSON event per line. Each is accompanied by progress on standard
//! error.

use anyhow::Result;
use nanobot_base::event::Event;
use nanobot_base::markdown::code_block::first_code_block;
use nanobot_os::terminal::Terminal;
use nanobot_os::{durable_file, file_lock, secret};
use serde_json::Value;
use short_text::count_noun;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stream::AnswerStream;
use trace::AgentTrace;

mod bar;
pub mod columns;
pub mod json;
mod markdown;
pub mod meter;
mod otlp;
mod progress;
pub mod short_text;
mod stream;
pub mod trace;

pub use bar::Bar;
pub use progress::{ProgressDisplay, ProgressLevel};
pub use stream::render_markdown;

/// The format of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    Text,
    /// Only the result, as one JSON object.
    Json,
    /// Every event as a JSON line.
    StreamJson,
    /// Nothing: the caller prints or sends the answer.
    Unprinted,
}

/// A further receiver of events, which cannot fail.
pub type EventObserver = Box<dyn Fn(&Event<'_>) + Send>;

/// Converts the events of one turn to output.
pub struct Reporter {
    terminal: Terminal,
    format: ReportFormat,
    /// The fields that every event line carries.
    pub envelope: json::EventEnvelope,
    /// The display of the progress.
    pub progress: ProgressDisplay,
    stream: AnswerStream,
    log: Option<EventLog>,
    observer: Option<EventObserver>,
    trace: Option<Arc<AgentTrace>>,
    /// True if the observer shows the deltas of a reply as they arrive.
    is_observer_live: bool,
    /// True if the answer is only printed once it is complete, even on a terminal.
    is_buffered: bool,
    /// Prints only code of the answer.
    extract: Option<CodeSelection>,
    /// Prints the answer to standard error.
    is_beside_patch: bool,
    /// The text before the name of a command in a notice: that of the program, or the slash in the REPL.
    pub command_prefix: &'static str,
}

/// The command prefix outside of the REPL.
pub const PROGRAM_PREFIX: &str = "nanobot ";

/// The code of an answer that is printed in place of the answer: its first fenced block, or the first one of a language.
#[derive(Clone, Debug)]
pub struct CodeSelection {
    /// The first word behind the fence, in any case.
    pub language: Option<String>,
}

impl CodeSelection {
    /// Returns the code in `answer`, byte for byte.
    pub fn find(&self, answer: &str) -> Option<String> {
        first_code_block(answer, self.language.as_deref())
    }
}

impl Reporter {
    pub fn new(
        terminal: Terminal,
        format: ReportFormat,
        mut progress: ProgressDisplay,
        envelope: json::EventEnvelope,
    ) -> Self {
        progress.set_streams_answer(terminal.stdout_is_tty && format == ReportFormat::Text);
        Self {
            terminal,
            format,
            envelope,
            progress,
            stream: AnswerStream::new(terminal),
            log: None,
            observer: None,
            trace: None,
            is_observer_live: false,
            is_buffered: false,
            extract: None,
            is_beside_patch: false,
            command_prefix: PROGRAM_PREFIX,
        }
    }

    pub fn format(&self) -> ReportFormat {
        self.format
    }

    /// True if the deltas of a reply are shown as they arrive. They cannot be retracted then.
    pub fn shows_pieces(&self) -> bool {
        match self.format {
            ReportFormat::Text => self.terminal.stdout_is_tty && !self.is_buffered,
            ReportFormat::StreamJson => true,
            ReportFormat::Unprinted => self.is_observer_live,
            ReportFormat::Json => false,
        }
    }

    /// Also appends every event, except deltas, to the log file at `path`.
    pub fn log_to(&mut self, path: &Path) {
        self.log = Some(EventLog::new(path));
    }

    /// Also passes every event to `trace`.
    pub fn trace_to(&mut self, trace: Arc<AgentTrace>) {
        self.trace = Some(trace);
    }

    /// Also passes every event to `observer`.
    pub fn observe(&mut self, observer: EventObserver) {
        self.observer = Some(observer);
    }

    /// Also passes every event to `observer`, which shows the deltas of a reply as they arrive.
    pub fn stream_to(&mut self, observer: EventObserver) {
        self.observe(observer);
        self.is_observer_live = true;
    }

    /// Handles an event.
    pub fn emit(&mut self, event: Event<'_>) -> Result<()> {
        // Progress output starts on a new line.
        if !matches!(event, Event::Text { .. } | Event::Assistant { .. } | Event::Usage { .. }) {
            self.stream.end_current_row()?;
        }
        self.progress.handle(&event);
        if let Some(observer) = &self.observer {
            observer(&event);
        }
        if let Some(trace) = &self.trace {
            trace.observe(&event);
        }
        if is_logged(&event) {
            self.log(|envelope| json::event_json(&event, envelope));
        }
        match self.format {
            ReportFormat::Json | ReportFormat::Unprinted => Ok(()),
            ReportFormat::StreamJson => self.print_json(&json::event_json(&event, &self.envelope)),
            ReportFormat::Text if self.shows_pieces() => self.stream.handle(&event),
            ReportFormat::Text => match event {
                Event::Assistant { reply, is_final: true } => self.print_answer(&reply.text),
                _ => Ok(()),
            },
        }
    }

    /// Prints the whole answer, or the code in it. If it has none, or a patch takes its place, it is printed to standard error.
    fn print_answer(&self, answer: &str) -> Result<()> {
        let answer = answer.trim_end_matches('\n');
        if self.is_beside_patch {
            self.terminal.eprint(answer);
            return Ok(());
        }
        match self.extract.as_ref().map(|selection| selection.find(answer)) {
            None => self.terminal.print(&format!("{answer}\n")),
            Some(Some(code)) => self.terminal.print(&code),
            Some(None) => {
                self.terminal.eprint(answer);
                Ok(())
            }
        }
    }

    /// Prints only the code of the answer.
    pub fn extract_code(&mut self, selection: CodeSelection) {
        self.extract = Some(selection);
        self.buffer_answer();
    }

    /// Prints the answer to standard error: standard output is for a patch.
    pub fn print_beside_patch(&mut self) {
        self.is_beside_patch = true;
        self.buffer_answer();
    }

    /// Prints the answer only when it is complete, even on a terminal, because it has to be checked first.
    pub fn buffer_answer(&mut self) {
        self.is_buffered = true;
        self.progress.set_streams_answer(false);
    }

    /// Streams the model's text unrendered, even on a terminal.
    pub fn disable_markdown(&mut self) {
        self.stream.disable_markdown();
    }

    /// Prints a notice, which is not an error.
    pub fn notice(&mut self, text: &str) {
        // If the notice cannot be written, that cannot be reported either.
        drop(self.emit(Event::Notice(text)));
    }

    /// Ends the output of a run, with the result object if the format has one. `result` builds it.
    pub fn finish(&mut self, result: impl Fn(&json::EventEnvelope) -> Value) -> Result<()> {
        self.progress.end();
        self.log(&result);
        match self.format {
            // If the answer was cut off, the reason follows on a new line.
            ReportFormat::Text => self.stream.end_line()?,
            ReportFormat::Json | ReportFormat::StreamJson => {
                self.print_json(&result(&self.envelope))?;
            }
            ReportFormat::Unprinted => {}
        }
        if let Some(line) = self.progress.status_line() {
            self.terminal.eprint_truncated(&line);
        }
        Ok(())
    }

    /// Shows which conversation the turn continues, on a terminal only.
    pub fn show_continued(&self, session: &str, messages: usize) {
        if self.progress.is_live() {
            let count = count_noun(messages, "message");
            self.terminal.eprint_dim(&format!("continues {session}, {count}; --new starts over"));
        }
    }

    /// Reports a log that cannot be written once. It does not end the run, because the user wants the answer.
    fn log(&mut self, line: impl FnOnce(&json::EventEnvelope) -> Value) {
        let Some(log) = &mut self.log else {
            return;
        };
        if let Err(error) = log.write(&line(&self.envelope)) {
            self.log = None;
            self.notice(&format!("cannot write the log: {error:#}"));
        }
    }

    fn print_json(&self, value: &Value) -> Result<()> {
        self.terminal.print_json(value)
    }
}

/// The event log of `NANOBOT_LOG`: one JSON line per event, for later analysis. It contains no secrets, and several runs
/// may append to it.
struct EventLog {
    path: PathBuf,
    file: Option<File>,
}

/// True if an event is logged. Deltas are not, since the complete text is.
fn is_logged(event: &Event<'_>) -> bool {
    !matches!(event, Event::Text { .. } | Event::Reasoning { .. } | Event::ToolOutput { .. })
}

impl EventLog {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: None }
    }

    fn write(&mut self, line: &Value) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(durable_file::open_line_log(&self.path)?),
        };
        append_json_line(file, &self.path, line)
    }
}

/// Appends `line`, with known keys masked, to `file`, the open log of lines at `path`. Several runs may do so.
///
/// # Errors
/// The file cannot be locked or written.
pub fn append_json_line(file: &File, path: &Path, line: &Value) -> Result<()> {
    file_lock::with_lock(file, path, || {
        let size = durable_file::size(file, path)?;
        let line = format!("{}\n", secret::redact_all_json(line));
        durable_file::append_to(file, path, size, line.as_bytes())
    })
}
