//! Line input with `rustyline`, which can be interrupted by a signal that ends the run, and which survives a stop of
//! the process.
//!
//! `rustyline` waits only for keys and window size changes, so a thread waits for other events. If the run is to end,
//! that thread replaces standard input by `/dev/null` and sends SIGWINCH: the reader wakes and finds the end of its
//! input.

use super::helper::{
    AcceptKey, DiscardKey, DoubleEscapeKey, EditorHelper, EnterKey, HistoryEntries,
    HistorySearchKey, PressedKey,
};
use super::line::{CompletionSource, EditorLine, LineKey, Prompt};
use super::paste_keys::{BackspaceKey, OutsidePaste, PasteCollector};
use super::pasted::SharedPastes;
use super::reflow::{WidthTracker, cursor_row};
use super::typing_guard::ESCAPE_TIMEOUT;
use anyhow::{Context, Result};
use nanobot_base::error::Stop;
use nanobot_os::signal::{self, Deadline};
use nanobot_os::terminal::stderr_width;
use nanobot_os::terminal::termios::{ENABLE_BRACKETED_PASTE, TerminalModes};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use rustyline::config::BellStyle;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{
    Cmd, ColorMode, CompletionType, ConditionalEventHandler, Config, EditMode, Event, EventHandler,
    ExternalPrinter, KeyCode, KeyEvent, Modifiers,
};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Time for the reader to notice that it must end. A history search notices only keys, so it does not notice this.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

type SharedPrinter = Arc<Mutex<dyn ExternalPrinter + Send>>;

/// A `rustyline` editor and its printer.
pub(super) struct RustylineReader {
    inner: rustyline::Editor<EditorHelper, MemHistory>,
    /// Prints above the line and redraws it.
    printer: SharedPrinter,
    /// True if the terminal reflows its rows.
    pub(super) reflows: bool,
    pub(super) edit_mode: EditMode,
    /// Shared with [`EditorHelper::inserts_newline`].
    inserts_newline: Arc<AtomicBool>,
    /// The key that ended the line, if it was not Enter.
    pressed: PressedKey<LineKey>,
}

impl RustylineReader {
    /// Creates a reader without special keys. `reflows` is true if the terminal reflows its rows; `max_entries` is the
    /// maximum number of history entries.
    pub(super) fn new(reflows: bool, edit_mode: EditMode, max_entries: usize) -> Result<Self> {
        let what = || "set up the line editor";
        let color = console::colors_enabled();
        let config = Config::builder()
            .auto_add_history(false)
            .bell_style(BellStyle::None)
            .color_mode(if color { ColorMode::Enabled } else { ColorMode::Disabled })
            .completion_type(CompletionType::List)
            .completion_show_all_if_ambiguous(true)
            .edit_mode(edit_mode)
            .keyseq_timeout(u16::try_from(ESCAPE_TIMEOUT.as_millis()).ok())
            .max_history_size(max_entries)
            .with_context(what)?
            .build();
        let history = MemHistory::with_config(&config);
        let mut inner = rustyline::Editor::with_history(config, history).with_context(what)?;
        let inserts_newline = Arc::new(AtomicBool::new(false));
        inner.set_helper(Some(EditorHelper {
            completions: None,
            color,
            inserts_newline: Arc::clone(&inserts_newline),
            width: WidthTracker::new(reflows),
        }));
        let printer = inner.create_external_printer().with_context(what)?;
        Ok(Self {
            inner,
            printer: Arc::new(Mutex::new(printer)),
            reflows,
            edit_mode,
            inserts_newline,
            pressed: PressedKey::default(),
        })
    }

    /// Sets up the features that only entries have, not answers to questions: completion, several lines, folded pastes, and keys that
    /// search the history and change the profile.
    pub(super) fn bind_line_keys(
        &mut self,
        completions: Box<dyn CompletionSource>,
        entries: &HistoryEntries,
        pastes: &SharedPastes,
    ) {
        if let Some(helper) = self.inner.helper_mut() {
            helper.completions = Some(completions);
        }
        let collector = PasteCollector::new(SharedPastes::clone(pastes));
        let any = EventHandler::Conditional(Box::new(collector.clone()));
        self.inner.bind_sequence(Event::Any, any);
        let control = |letter| KeyEvent(KeyCode::Char(letter), Modifiers::CTRL);
        for enter in [KeyEvent(KeyCode::Enter, Modifiers::NONE), control('J')] {
            let inserts_newline = Arc::clone(&self.inserts_newline);
            self.bind(enter, &collector, EnterKey { inserts_newline });
        }
        for key in [KeyEvent(KeyCode::Backspace, Modifiers::NONE), control('H')] {
            let handler = BackspaceKey(SharedPastes::clone(pastes));
            self.bind(key, &collector, handler);
        }
        for (key, is_backward) in [(KeyCode::Up, true), (KeyCode::Down, false)] {
            let entries = Arc::clone(entries);
            let handler = HistorySearchKey { entries, is_backward };
            self.bind(KeyEvent(key, Modifiers::NONE), &collector, handler);
        }
        let shift_tab = KeyEvent(KeyCode::BackTab, Modifiers::NONE);
        for (event, key) in [
            (shift_tab, LineKey::NextProfile),
            (control('O'), LineKey::LastOutput),
            (control('V'), LineKey::Paste),
        ] {
            let pressed = PressedKey::clone(&self.pressed);
            self.bind(event, &collector, AcceptKey { key, pressed });
        }
        let pressed = PressedKey::clone(&self.pressed);
        self.bind(control('C'), &collector, DiscardKey { pressed });
        // In vi, the key has a meaning, and is often pressed twice.
        if self.edit_mode == EditMode::Emacs {
            let escape = KeyEvent(KeyCode::Esc, Modifiers::NONE);
            let pressed = PressedKey::clone(&self.pressed);
            self.bind(escape, &collector, DoubleEscapeKey { pressed, last: Mutex::default() });
        }
        let alt_enter = KeyEvent(KeyCode::Enter, Modifiers::ALT);
        self.inner.bind_sequence(alt_enter, Cmd::Newline);
    }

    fn bind(
        &mut self,
        key: KeyEvent,
        collector: &PasteCollector,
        handler: impl ConditionalEventHandler + 'static,
    ) {
        let collector = collector.clone();
        let handler = Box::new(OutsidePaste { collector, handler });
        self.inner.bind_sequence(key, EventHandler::Conditional(handler));
    }

    /// Reads an answer. The Down and Up keys enter one of the `options`; Escape ends the input.
    pub(super) fn read_answer(
        mut self,
        modes: &TerminalModes,
        resume_rx: &UnixStream,
        question: &str,
        options: &[String],
    ) -> Result<EditorLine> {
        // The options are the history, the first one being the most recent entry.
        for option in options.iter().rev() {
            self.add_to_history(option)?;
        }
        for (key, command) in
            [(KeyCode::Down, Cmd::PreviousHistory), (KeyCode::Up, Cmd::NextHistory)]
        {
            self.inner.bind_sequence(KeyEvent(key, Modifiers::NONE), command);
        }
        let pressed = PressedKey::default();
        let escape = AcceptKey { key: (), pressed: PressedKey::clone(&pressed) };
        self.inner.bind_sequence(
            KeyEvent(KeyCode::Esc, Modifiers::NONE),
            EventHandler::Conditional(Box::new(escape)),
        );
        let line = self.read(modes, resume_rx, question.into(), "")?;
        let is_escaped = pressed.lock().is_some();
        Ok(if is_escaped { EditorLine::End } else { line })
    }

    /// Adds an entry to the history in memory.
    pub(super) fn add_to_history(&mut self, entry: &str) -> Result<()> {
        let added = self.inner.add_history_entry(entry);
        added.map(drop).context("add a line to the history")
    }

    /// Reads an entry. `resume_rx` becomes readable when the process continues after a stop.
    pub(super) fn read(
        &mut self,
        modes: &TerminalModes,
        resume_rx: &UnixStream,
        prompt: Prompt<'_>,
        initial: &str,
    ) -> Result<EditorLine> {
        let what = || "read a line";
        let prompt = (prompt.plain(), prompt.styled());
        let (done_rx, done_tx) = io::pipe().with_context(what)?;
        let watcher = SignalWatcher {
            modes: modes.try_clone().with_context(what)?,
            done_rx,
            resume_rx: resume_rx.try_clone().with_context(what)?,
            printer: Arc::clone(&self.printer),
        };
        let thread = std::thread::Builder::new().spawn(move || watcher.run()).with_context(what)?;
        // `rustyline` restores the settings that it found. In this mode, keys typed before the next line is read are
        // neither shown nor changed. If the terminal is gone, the read below reports it.
        drop(modes.set_no_echo());
        if let Some(helper) = self.inner.helper() {
            helper.width.start(&prompt.0);
        }
        // A signal may have ended an earlier read after the key.
        *self.pressed.lock() = None;
        let result = self.inner.readline_with_initial(&prompt, (initial, ""));
        drop(done_tx);
        if let Some(stop) = thread.join().expect("a panic ends the process") {
            rustix::stdio::dup2_stdin(modes.tty()).map_err(io::Error::from).with_context(what)?;
            modes.restore_and_reset().with_context(what)?;
            return Err(stop.into());
        }
        let pressed = self.pressed.lock().take();
        match result {
            Ok(text) => {
                let Some(key) = pressed else {
                    return Ok(EditorLine::Text(text.trim_end_matches('\n').to_owned()));
                };
                if key != LineKey::Discard {
                    // Erases the entry with all its rows.
                    let (rows, _) = cursor_row(&format!("{}{text}", prompt.0), stderr_width());
                    let sequence = format!("\x1b[{}A\r\x1b[J", rows + 1);
                    modes.write(sequence.as_bytes()).with_context(what)?;
                }
                Ok(EditorLine::Key(key, text))
            }
            Err(ReadlineError::Interrupted) => Ok(EditorLine::Interrupted),
            Err(ReadlineError::Eof) => Ok(EditorLine::End),
            Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                // Invalid UTF-8. The rest of the input could have arbitrary effects as keys, so it is discarded.
                modes.discard_input().with_context(what)?;
                Ok(EditorLine::Interrupted)
            }
            // The terminal is gone.
            Err(ReadlineError::Io(error)) if error.raw_os_error() == Some(libc::EIO) => {
                Ok(EditorLine::End)
            }
            Err(error) => Err(error).with_context(what),
        }
    }
}

/// The thread that waits next to the reader.
struct SignalWatcher {
    modes: TerminalModes,
    done_rx: PipeReader,
    resume_rx: UnixStream,
    printer: SharedPrinter,
}

impl SignalWatcher {
    /// Runs until the read ends. Returns the reason if the run is to end.
    fn run(mut self) -> Option<Stop> {
        let stop = loop {
            let fds =
                [(self.done_rx.as_fd(), PollFlags::IN), (self.resume_rx.as_fd(), PollFlags::IN)];
            match signal::wait(&fds, &mut Deadline::never()) {
                Ok(Some(1)) => self.redraw_after_resume(),
                Ok(_) => return None,
                Err(stop) => break stop,
            }
        };
        let replaced =
            File::open("/dev/null").and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?));
        let signalled = kill_process(getpid(), Signal::WINCH);
        let mut fds = [PollFd::new(&self.done_rx, PollFlags::IN)];
        let is_done = loop {
            match poll(&mut fds, Some(&END_TIMEOUT)) {
                Err(Errno::INTR) => {}
                result => break result == Ok(1),
            }
        };
        if replaced.is_err() || signalled.is_err() || !is_done {
            // The reader waits for a key that will not come, so the process kills itself.
            drop(self.modes.restore_and_reset());
            signal::kill_self_for(stop.0);
        }
        Some(stop)
    }

    /// Restores the settings and redraws the line after a stop: a shell may have changed the settings, and has written
    /// to the terminal.
    fn redraw_after_resume(&mut self) {
        // One read is enough; several stops need the same handling as one.
        drop(self.resume_rx.read(&mut [0; 64]));
        if !self.modes.is_foreground() || self.modes.set_raw().is_err() {
            return;
        }
        let printer = Arc::clone(&self.printer);
        // While `rustyline` waits for a single key, it prints later; this thread waits so that the caller need not. The
        // sequence moves the cursor up because the printer ends with a newline.
        std::thread::spawn(move || {
            let mut printer = printer.lock();
            drop(printer.print(format!("{ENABLE_BRACKETED_PASTE}\x1b[A\n")));
        });
    }
}
