//! Collects keys while no line is being read. They are shown below the output instead of within it, and none is lost.

use super::history::SharedHistory;
use super::pasted::SharedPastes;
use super::type_ahead::TypeAhead;
use nanobot_os::signal;
use nanobot_os::terminal::termios::{ENABLE_BRACKETED_PASTE, TerminalModes};
use nanobot_os::terminal::{Terminal, stderr_width};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of bytes kept; the kernel buffers some more.
const MAX_TYPED_BYTES: usize = 1 << 20;
/// Maximum pause within a paste.
const PASTE_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Maximum pause within the escape sequence of a key. After it, the Escape key was pressed alone.
pub(super) const ESCAPE_TIMEOUT: Duration = Duration::from_millis(50);
/// Interval between checks whether this process is in the foreground again.
const FOREGROUND_POLL_INTERVAL: Timespec = PASTE_TIMEOUT;

/// Collects keys while it exists; see [`super::Editor::guard_typing`].
#[must_use]
pub struct TypingGuard {
    keys: Arc<Mutex<TypedKeys>>,
    terminal: Terminal,
}

impl TypingGuard {
    /// Starts collecting keys, and shows them.
    pub(super) fn new(keys: &Arc<Mutex<TypedKeys>>, terminal: Terminal) -> Self {
        let keys = Arc::clone(keys);
        let type_ahead = keys.lock().type_ahead();
        keys.lock().start();
        terminal
            .set_typed_text(Some(Box::new(move || type_ahead.lock().status_rows(stderr_width()))));
        Self { keys, terminal }
    }

    /// Returns the function that takes the next message for the turn that is running.
    pub fn steering(&self) -> impl Fn() -> Option<String> + use<> {
        let type_ahead = self.keys.lock().type_ahead();
        move || type_ahead.lock().take_steering()
    }
}

impl Drop for TypingGuard {
    fn drop(&mut self) {
        self.terminal.set_typed_text(None);
        let mut keys = self.keys.lock();
        keys.stop();
        keys.type_ahead.lock().end_turn();
    }
}

/// The keys pressed while no line is being read.
pub(super) struct TypedKeys {
    /// The lines made of them so far.
    pub(super) type_ahead: Arc<Mutex<TypeAhead>>,
    modes: TerminalModes,
    resume_rx: UnixStream,
    /// The thread that reads them until the pipe is closed.
    collector: Option<(PipeWriter, JoinHandle<()>)>,
    terminal: Terminal,
}

impl TypedKeys {
    /// Duplicates the file descriptors that the collecting thread will need.
    pub(super) fn new(
        modes: &TerminalModes,
        resume_rx: &UnixStream,
        pastes: &SharedPastes,
        history: &SharedHistory,
        terminal: Terminal,
    ) -> io::Result<Self> {
        Ok(Self {
            type_ahead: Arc::new(Mutex::new(TypeAhead::new(pastes, history))),
            terminal,
            modes: modes.try_clone()?,
            resume_rx: resume_rx.try_clone()?,
            collector: None,
        })
    }

    /// Returns the lines made of the keys, which the collecting thread shares.
    pub(super) fn type_ahead(&self) -> Arc<Mutex<TypeAhead>> {
        Arc::clone(&self.type_ahead)
    }

    /// Starts collecting. If that fails, keys are shown and wait in the kernel's buffer.
    pub(super) fn start(&mut self) {
        self.collector = self.collector.take().or_else(|| self.spawn_collector().ok());
    }

    fn spawn_collector(&self) -> io::Result<(PipeWriter, JoinHandle<()>)> {
        let (done_rx, done_tx) = io::pipe()?;
        let collector = KeyCollector {
            modes: self.modes.try_clone()?,
            done_rx,
            resume_rx: self.resume_rx.try_clone()?,
            type_ahead: Arc::clone(&self.type_ahead),
            terminal: self.terminal,
        };
        collector.enter_mode()?;
        let thread = std::thread::Builder::new().spawn(move || collector.run())?;
        Ok((done_tx, thread))
    }

    /// Stops collecting; true if it was active. The terminal settings remain until the next reader sets its own:
    /// otherwise the kernel would process keys typed in between in canonical mode.
    pub(super) fn stop(&mut self) -> bool {
        let Some((done_tx, thread)) = self.collector.take() else {
            return false;
        };
        drop(done_tx);
        thread.join().expect("a panic ends the process");
        self.type_ahead.lock().feed(&[], true);
        true
    }
}

/// The state of the collecting thread.
struct KeyCollector {
    modes: TerminalModes,
    done_rx: PipeReader,
    resume_rx: UnixStream,
    type_ahead: Arc<Mutex<TypeAhead>>,
    terminal: Terminal,
}

/// The events that ended a wait of the collecting thread.
struct CollectorEvents {
    /// Collecting ends.
    is_done: bool,
    /// The process continues after a stop.
    is_resumed: bool,
    has_keys: bool,
}

impl KeyCollector {
    fn enter_mode(&self) -> io::Result<()> {
        if self.modes.is_foreground() {
            self.modes.set_no_echo()?;
            self.modes.write_sequence(ENABLE_BRACKETED_PASTE.as_bytes())?;
        }
        Ok(())
    }

    /// Reads until collecting ends, and then the remaining input.
    fn run(mut self) {
        let mut count = 0;
        loop {
            let events = self.wait_for_event(count < MAX_TYPED_BYTES);
            if events.is_resumed {
                // One read is enough for several stops. If the terminal is gone, there are no settings to change.
                drop(self.resume_rx.read(&mut [0; 64]));
                drop(self.enter_mode());
            }
            if events.has_keys {
                if self.modes.is_foreground() {
                    match self.read() {
                        Ok(Some(bytes)) => {
                            count += bytes;
                            continue;
                        }
                        // The terminal is gone; there is nothing to wait for.
                        Ok(None) | Err(_) => return,
                    }
                }
                // In the background, input belongs to the shell.
                if !events.is_done {
                    self.wait_in_background();
                }
            }
            if events.is_done {
                let mut fds = [PollFd::from_borrowed_fd(self.modes.tty(), PollFlags::IN)];
                let has_more = self.type_ahead.lock().is_pasting()
                    && count < MAX_TYPED_BYTES
                    && poll(&mut fds, Some(&PASTE_TIMEOUT)) == Ok(1);
                if !has_more {
                    return;
                }
            }
        }
    }

    /// Waits for an event, of keys only if `wants_keys`.
    fn wait_for_event(&self, wants_keys: bool) -> CollectorEvents {
        let mut fds = [
            PollFd::new(&self.done_rx, PollFlags::IN),
            PollFd::new(&self.resume_rx, PollFlags::IN),
            PollFd::from_borrowed_fd(self.modes.tty(), PollFlags::IN),
        ];
        let count = if wants_keys { 3 } else { 2 };
        let is_escape_open = self.type_ahead.lock().has_open_escape();
        let timeout = if is_escape_open { Timespec::try_from(ESCAPE_TIMEOUT).ok() } else { None };
        // If interrupted, `poll` reports nothing, and the caller repeats it.
        let result = poll(&mut fds[..count], timeout.as_ref());
        if result == Ok(0) {
            if self.type_ahead.lock().end_escape() {
                signal::interrupt_once();
            }
            self.terminal.refresh_status();
        }
        let is_ready = |fd: &PollFd<'_>| result.is_ok() && !fd.revents().is_empty();
        CollectorEvents {
            is_done: is_ready(&fds[0]),
            is_resumed: is_ready(&fds[1]),
            has_keys: wants_keys && is_ready(&fds[2]),
        }
    }

    /// Reads keys and shows them. Returns the number of bytes; `None` at the end of input.
    fn read(&self) -> rustix::io::Result<Option<usize>> {
        let mut block = [0; 4096];
        match rustix::io::read(self.modes.tty(), &mut block) {
            Ok(count) => {
                let mut type_ahead = self.type_ahead.lock();
                type_ahead.add_keys(&block[..count]);
                drop(type_ahead);
                self.terminal.refresh_status();
                Ok((count > 0).then_some(count))
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    fn wait_in_background(&self) {
        let mut fds = [PollFd::from_borrowed_fd(self.done_rx.as_fd(), PollFlags::IN)];
        // The next call of `wait_for_event` finds the same event.
        let _: Result<_, _> = poll(&mut fds, Some(&FOREGROUND_POLL_INTERVAL));
    }
}
