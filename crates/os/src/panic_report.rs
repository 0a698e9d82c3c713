//! Panic reports: a panic prints a two-line apology, writes a report file that the user can send in, and ends the process,
//! in every build and on every thread. The stack is not unwound: acknowledged data is on disk, as after a `kill -9`.
//!
//! The report contains no conversation text: only the command and its flags without values, the location, the
//! backtrace, and the message without quoted parts. Only its user can read it.

use super::clock::Clock;
use super::secret::redact_all;
use super::{durable_file, terminal};
use anyhow::{Context, Result};
use nanobot_base::error::Exit;
use std::backtrace::Backtrace;
use std::ffi::OsString;
use std::fmt::Write;
use std::panic::PanicHookInfo;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Maximum number of reports kept.
const MAX_REPORTS: usize = 10;
/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

static REPORTER: OnceLock<PanicReporter> = OnceLock::new();
/// The result that is printed on standard output if the process panics.
static RESULT: OnceLock<String> = OnceLock::new();

/// The report directory, and the context that reports need.
#[derive(Debug)]
pub struct PanicReporter {
    /// The directory of the reports.
    pub folder: PathBuf,
    /// The clock for their time stamps.
    pub clock: Clock,
    /// Formats the command line without values.
    pub command: fn(&[OsString]) -> String,
}

/// Installs the panic hook, which replaces the default message and ends the process.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let report = REPORTER.get().map(|reporter| reporter.write(panic));
        terminal::termios::restore_terminal();
        terminal::eprint_panic(&format_message(panic, report));
        if let Some(result) = RESULT.get() {
            terminal::print_panic_result(result);
        }
        end_process();
    }));
}

/// Ends the process with the status of an internal error. Its children notice the end of their sockets, and the next run
/// removes its temporary directories: a cleanup here could need locks that this thread holds.
#[expect(clippy::exit, reason = "nothing of a process that panicked can be trusted to return")]
fn end_process() -> ! {
    std::process::exit(Exit::Defect.code().into())
}

/// Sets where reports are written.
pub fn configure(reporter: PanicReporter) {
    // A process is one run, so the first value stays.
    drop(REPORTER.set(reporter));
}

/// Sets the line that is printed on standard output if the process panics: a program may wait there for a result.
pub fn set_result(line: String) {
    drop(RESULT.set(line));
}

fn format_message(panic: &PanicHookInfo<'_>, report: Option<Result<PathBuf>>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let location = format_location(panic);
    let failure = match report {
        Some(Ok(path)) => {
            let path = path.display();
            return format!(
                "nanobot: internal error in nanobot {version}, at {location}\n  try: report this bug with `{path}`, which contains no \
                 conversation text and no keys\n"
            );
        }
        Some(Err(error)) => format!(" (cannot write a report: {error:#})"),
        None => String::new(),
    };
    let message = panic.payload_as_str().unwrap_or("unknown cause");
    format!(
        "nanobot: internal error in nanobot {version}, at {location}: {message}{failure}\n  try: report this line, with the steps \
         to reproduce it\n"
    )
}

fn format_location(panic: &PanicHookInfo<'_>) -> String {
    match panic.location() {
        Some(location) => format!("{}:{}", location.file(), location.line()),
        None => "an unknown location".into(),
    }
}

impl PanicReporter {
    fn write(&self, panic: &PanicHookInfo<'_>) -> Result<PathBuf> {
        self.store(&self.report(panic))
    }

    /// Stores a report, and removes old ones.
    fn store(&self, report: &str) -> Result<PathBuf> {
        durable_file::create_dir(&self.folder)?;
        let time = self.clock.timestamp().strftime("%Y-%m-%dT%H-%M-%SZ");
        let name = format!("{time}-{}.txt", std::process::id());
        let path = self.folder.join(name);
        durable_file::replace(&path, redact_all(report).as_bytes())?;
        // The user needs this report, even if an old one cannot be removed.
        drop(self.remove_old_reports());
        Ok(path)
    }

    fn report(&self, panic: &PanicHookInfo<'_>) -> String {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let thread = std::thread::current();
        let lines = [
            ("nanobot", env!("CARGO_PKG_VERSION").to_owned()),
            ("time", self.clock.timestamp().to_string()),
            ("command", (self.command)(&arguments)),
            ("location", format_location(panic)),
            ("message", without_quoted_parts(panic.payload_as_str().unwrap_or_default())),
            ("thread", thread.name().unwrap_or_default().to_owned()),
            (
                "system",
                format!("{} {} {}", std::env::consts::OS, std::env::consts::ARCH, kernel.trim()),
            ),
        ];
        let mut text = String::new();
        for (name, value) in lines {
            writeln!(text, "{name}: {value}").expect("writing to a string cannot fail");
        }
        let trace = Backtrace::force_capture();
        writeln!(text, "\n{trace}").expect("writing to a string cannot fail");
        text
    }

    fn remove_old_reports(&self) -> Result<()> {
        let entries = std::fs::read_dir(&self.folder)
            .with_context(|| format!("read `{}`", self.folder.display()))?;
        let is_report = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "txt");
        let mut reports: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        reports.retain(is_report);
        // Their names begin with the time.
        reports.sort();
        let old_count = reports.len().saturating_sub(MAX_REPORTS);
        for path in &reports[..old_count] {
            durable_file::remove(path)?;
        }
        Ok(())
    }
}

/// Returns the message without quoted parts, which may be user text.
fn without_quoted_parts(message: &str) -> String {
    let mut text = String::new();
    let mut rest = message;
    while let Some(at) = rest.find(['`', '"']) {
        let (before, quoted) = rest.split_at(at);
        let quote = &quoted[..1];
        text.push_str(before);
        text.push('…');
        // Quoted text may contain its own quotation mark, so the last one ends it.
        rest = quoted[1..].rsplit_once(quote).map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_REPORTS, PanicReporter, without_quoted_parts};
    use crate::clock::Clock;

    #[test]
    fn a_report_is_stored_even_if_an_old_one_cannot_be_removed() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().to_owned();
        // Directories are not removed.
        for number in 0..=MAX_REPORTS {
            std::fs::create_dir(folder.join(format!("0{number}.txt"))).unwrap();
        }
        let reporter =
            PanicReporter { folder, clock: Clock::default(), command: |_| String::new() };
        let path = reporter.store("the report").unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "the report");
    }

    #[test]
    fn quoted_parts_are_omitted() {
        let check = |message: &str, expect: &str| assert_eq!(without_quoted_parts(message), expect);
        check("index out of bounds", "index out of bounds");
        check("inside 'é' of `my secret diary`", "inside 'é' of …");
        check("of `a `quoted` diary`: why", "of …: why");
        check("an `Err` value: \"words", "an … value: …");
        check("cut `off", "cut …");
    }
}
