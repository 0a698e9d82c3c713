//! Collects keys while no line is being read: they are not shown amid the output, and none is lost.

use super::termios::{ENABLE_BRACKETED_PASTE, TerminalModes};
use super::type_ahead::{TypeAhead, is_pasting};
use crate::sys::sync::IgnorePoison;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Maximum number of bytes kept; the kernel buffers some more.
const MAX_TYPED_BYTES: usize = 1 << 20;
/// Maximum pause within a paste.
const PASTE_TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// Interval between checks whether this process is in the foreground again.
const FOREGROUND_POLL_INTERVAL: Timespec = PASTE_TIMEOUT;

/// A guard for quiet mode; see [`super::Editor::guard_typing`].
#[must_use]
pub struct TypingGuard(Arc<Mutex<TypedKeys>>);

impl TypingGuard {
    /// Starts collecting keys.
    pub(super) fn new(keys: &Arc<Mutex<TypedKeys>>) -> Self {
        let keys = Arc::clone(keys);
        lock_keys(&keys).start();
        Self(keys)
    }
}

impl Drop for TypingGuard {
    fn drop(&mut self) {
        lock_keys(&self.0).stop();
    }
}

fn lock_keys(keys: &Mutex<TypedKeys>) -> MutexGuard<'_, TypedKeys> {
    keys.lock().ignore_poison()
}

/// The keys pressed while no line is being read.
pub(super) struct TypedKeys {
    /// The lines made of them so far.
    pub(super) type_ahead: TypeAhead,
    modes: TerminalModes,
    resume_rx: UnixStream,
    /// The thread that reads them until the pipe is closed.
    collector: Option<(PipeWriter, JoinHandle<Vec<u8>>)>,
}

impl TypedKeys {
    /// Duplicates the file descriptors that the collecting thread will need.
    pub(super) fn new(modes: &TerminalModes, resumed: &UnixStream) -> io::Result<Self> {
        Ok(Self {
            type_ahead: TypeAhead::default(),
            modes: modes.try_clone()?,
            resume_rx: resumed.try_clone()?,
            collector: None,
        })
    }

    /// Starts collecting. If that fails, keys are shown and wait in the kernel's buffer.
    pub(super) fn start(&mut self) {
        self.collector = self
            .collector
            .take()
            .or_else(|| self.spawn_collector().ok());
    }

    fn spawn_collector(&self) -> io::Result<(PipeWriter, JoinHandle<Vec<u8>>)> {
        let (over, going) = io::pipe()?;
        let drain = KeyCollector {
            modes: self.modes.try_clone()?,
            done_rx: over,
            resume_rx: self.resume_rx.try_clone()?,
        };
        drain.enter_mode()?;
        let thread = std::thread::Builder::new().spawn(move || drain.run())?;
        Ok((going, thread))
    }

    /// Stops collecting; true if it was active. The terminal settings remain until the next reader sets its own:
    /// otherwise the kernel would process keys typed in between in canonical mode.
    pub(super) fn stop(&mut self) -> bool {
        let Some((going, thread)) = self.collector.take() else {
            return false;
        };
        drop(going);
        let typed = thread.join();
        let typed = typed.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        self.type_ahead.feed(&typed);
        true
    }
}

/// The state of the collecting thread.
struct KeyCollector {
    modes: TerminalModes,
    done_rx: PipeReader,
    resume_rx: UnixStream,
}

impl KeyCollector {
    fn enter_mode(&self) -> io::Result<()> {
        if self.modes.is_foreground() {
            self.modes.set_no_echo()?;
            self.modes.write(ENABLE_BRACKETED_PASTE.as_bytes())?;
        }
        Ok(())
    }

    /// Reads until collecting ends, and then the remaining input.
    fn run(mut self) -> Vec<u8> {
        let mut typed = Vec::new();
        loop {
            let (over, resumed, keys) = self.wait_for_event(typed.len() < MAX_TYPED_BYTES);
            if resumed {
                // One read is enough for several stops. If the terminal is gone, there are no settings to change.
                drop(self.resume_rx.read(&mut [0; 64]));
                drop(self.enter_mode());
            }
            if keys {
                match self.modes.is_foreground() {
                    true => match self.read(&mut typed) {
                        Ok(true) => continue,
                        // The terminal is gone; there is nothing to wait for.
                        Ok(false) | Err(_) => return typed,
                    },
                    // In the background, input belongs to the shell.
                    false if !over => self.wait_in_background(),
                    false => {}
                }
            }
            if over {
                let mut keys = [PollFd::from_borrowed_fd(self.modes.tty(), PollFlags::IN)];
                let more = is_pasting(&typed)
                    && typed.len() < MAX_TYPED_BYTES
                    && poll(&mut keys, Some(&PASTE_TIMEOUT)) == Ok(1);
                if !more {
                    return typed;
                }
            }
        }
    }

    /// Waits for an event. Returns three flags: collecting ends, the process continues after a stop, keys are
    /// available.
    fn wait_for_event(&self, wants_keys: bool) -> (bool, bool, bool) {
        let mut all = [
            PollFd::new(&self.done_rx, PollFlags::IN),
            PollFd::new(&self.resume_rx, PollFlags::IN),
            PollFd::from_borrowed_fd(self.modes.tty(), PollFlags::IN),
        ];
        let count = if wants_keys { 3 } else { 2 };
        // If interrupted, `poll` reports nothing, and the caller repeats it.
        let found = poll(&mut all[..count], None);
        let is = |one: &PollFd<'_>| found.is_ok() && !one.revents().is_empty();
        (is(&all[0]), is(&all[1]), wants_keys && is(&all[2]))
    }

    fn read(&self, typed: &mut Vec<u8>) -> rustix::io::Result<bool> {
        let mut block = [0; 4096];
        match rustix::io::read(self.modes.tty(), &mut block) {
            Ok(count) => {
                typed.extend_from_slice(&block[..count]);
                Ok(count > 0)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn wait_in_background(&self) {
        let mut over = [PollFd::from_borrowed_fd(
            self.done_rx.as_fd(),
            PollFlags::IN,
        )];
        // The next call of `look` finds the same event.
        let _: Result<_, _> = poll(&mut over, Some(&FOREGROUND_POLL_INTERVAL));
    }
}
