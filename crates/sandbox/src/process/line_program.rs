//! A program that exchanges lines with this process over its standard streams. It has a supervisor like every server: it ends when this
//! process ends, or when the value is dropped.

use super::server::{self, ServerProcess, ServerSpec};
use anyhow::{Context as _, Result};
use nanobot_os::line_buffer::{InputLine, LineBuffer};
use nanobot_os::secret::redact_all;
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::sanitize;
use parking_lot::Mutex;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum time until a program reads a line.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time from the end of the output to the report that the program has ended.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause between two looks for that report.
const REPORT_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes that a pipe takes at once when it is writable (POSIX, `PIPE_BUF`).
const ATOMIC_WRITE_BYTES: usize = 4096;
/// Maximum length of a line of standard error. A longer line is split into several, and a key across the border between two of
/// them is not recognised.
const MAX_ERROR_LINE_BYTES: u64 = 8 << 10;

/// A running program.
#[derive(Debug)]
pub struct LineProgram {
    name: String,
    input: PipeWriter,
    output: PipeReader,
    lines: LineBuffer,
    /// The last line of its standard error.
    last_error: Arc<Mutex<String>>,
    /// The thread that reads its standard error to the end.
    log: JoinHandle<()>,
    /// Dropped last, after `input`: its drop waits for the program, which reads until its input is closed.
    process: ServerProcess,
}

impl LineProgram {
    /// Starts a program. Its standard error goes to the log.
    ///
    /// # Errors
    /// The errors of [`server::start`].
    pub fn start(spec: &ServerSpec) -> io::Result<Self> {
        let mut process = server::start(spec)?;
        let streams = (process.input.take(), process.output.take(), process.errors.take());
        let (Some(input), Some(output), Some(errors)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let last_error = Arc::new(Mutex::new(String::new()));
        let name = spec.name.clone();
        let thread = std::thread::Builder::new().name("program-log".into());
        let log = thread.spawn({
            let last_error = Arc::clone(&last_error);
            move || log_errors(errors, &name, &last_error)
        })?;
        Ok(Self {
            name: spec.name.clone(),
            input,
            output,
            lines: LineBuffer::default(),
            last_error,
            log,
            process,
        })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The program has ended or does not read, or the run was cancelled.
    pub fn write_line(&mut self, line: &str) -> Result<()> {
        let bytes = [line.as_bytes(), b"\n"].concat();
        let mut deadline = Deadline::after(WRITE_TIMEOUT);
        for chunk in bytes.chunks(ATOMIC_WRITE_BYTES) {
            if !signal::wait_writable(&self.input, &mut deadline)? {
                return Err(anyhow::Error::msg("it does not read its standard input"));
            }
            if self.input.write_all(chunk).is_err() {
                return Err(self.end_error());
            }
        }
        Ok(())
    }

    /// Returns the next line; `None` if there is none until `end`, on the clock of [`signal::now`].
    ///
    /// # Errors
    /// The program has ended, or the run was cancelled.
    pub fn next_line(&mut self, end: Duration) -> Result<Option<InputLine>> {
        loop {
            if let Some(line) = self.lines.take_line() {
                return Ok(Some(line));
            }
            if self.lines.is_at_end() {
                return Err(self.end_error());
            }
            if !signal::wait_readable(&self.output, &mut Deadline::until(end))? {
                return Ok(None);
            }
            let (name, output) = (&self.name, self.output.as_fd());
            let filled = self.lines.fill(output);
            filled.with_context(|| format!("read the output of `{name}`"))?;
        }
    }

    /// The reason why it has ended, with the last line of its standard error.
    fn end_error(&mut self) -> anyhow::Error {
        let end = signal::now() + END_REPORT_TIMEOUT;
        // The report and the last lines arrive slightly later than the end of the output.
        let exit = loop {
            let exit = self.process.exit();
            let is_complete = exit.is_some() && self.log.is_finished();
            if is_complete || signal::now() >= end {
                break exit;
            }
            if let Err(stop) = signal::sleep(REPORT_INTERVAL) {
                return stop.into();
            }
        };
        let cause = exit.map_or_else(|| "it closed its output".to_owned(), |exit| exit.to_string());
        let last_error = self.last_error.lock();
        if last_error.is_empty() {
            anyhow::Error::msg(cause)
        } else {
            anyhow::Error::msg(format!("{cause}: {last_error}"))
        }
    }
}

/// Logs the standard error of a program, without secrets, and keeps the last line.
fn log_errors(errors: PipeReader, name: &str, last_error: &Mutex<String>) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut errors).take(MAX_ERROR_LINE_BYTES).read_until(b'\n', &mut line);
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let text = sanitize(&redact_all(text.trim_end()));
        if !text.trim().is_empty() {
            // Only the programs of chat channels exchange lines.
            log::info!(target: "channel", "{name}: {text}");
            *last_error.lock() = text.trim().to_owned();
        }
    }
}
