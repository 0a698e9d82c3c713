//! Collects keys while no line is being read: they are not shown amid the output, and none is lost.

use super::ahead::{Ahead, is_pasting};
use super::modes::{ENABLE_BRACKETED_PASTE, Modes};
use crate::sys::sync::IgnorePoison;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Maximum number of bytes kept; the kernel buffers some more.
const MOST: usize = 1 << 20;
/// Maximum pause within a paste.
const PASTES: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// Interval between checks whether this process is in the foreground again.
const BEHIND: Timespec = PASTES;

/// A guard for quiet mode; see [`super::Editor::guard_typing`].
#[must_use]
pub struct Quiet(Arc<Mutex<Keys>>);

impl Quiet {
    /// Starts collecting keys.
    pub(super) fn begin(keys: &Arc<Mutex<Keys>>) -> Self {
        let keys = Arc::clone(keys);
        lock(&keys).begin();
        Self(keys)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        lock(&self.0).end();
    }
}

fn lock(keys: &Mutex<Keys>) -> MutexGuard<'_, Keys> {
    keys.lock().ignore_poison()
}

/// The keys pressed while no line is being read.
pub(super) struct Keys {
    /// The lines made of them so far.
    pub(super) ahead: Ahead,
    modes: Modes,
    resumed: UnixStream,
    /// The thread that reads them until the pipe is closed.
    drain: Option<(PipeWriter, JoinHandle<Vec<u8>>)>,
}

impl Keys {
    /// Duplicates the file descriptors that the collecting thread will need.
    pub(super) fn new(modes: &Modes, resumed: &UnixStream) -> io::Result<Self> {
        Ok(Self {
            ahead: Ahead::default(),
            modes: modes.try_clone()?,
            resumed: resumed.try_clone()?,
            drain: None,
        })
    }

    /// Starts collecting. If that fails, keys are shown and wait in the kernel's buffer.
    pub(super) fn begin(&mut self) {
        self.drain = self.drain.take().or_else(|| self.start().ok());
    }

    fn start(&self) -> io::Result<(PipeWriter, JoinHandle<Vec<u8>>)> {
        let (over, going) = io::pipe()?;
        let drain = Drain {
            modes: self.modes.try_clone()?,
            over,
            resumed: self.resumed.try_clone()?,
        };
        drain.enter()?;
        let thread = std::thread::Builder::new().spawn(move || drain.run())?;
        Ok((going, thread))
    }

    /// Stops collecting; true if it was active. The terminal settings remain until the next reader sets its own:
    /// otherwise the kernel would process keys typed in between in canonical mode.
    pub(super) fn end(&mut self) -> bool {
        let Some((going, thread)) = self.drain.take() else {
            return false;
        };
        drop(going);
        let typed = thread.join();
        let typed = typed.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        self.ahead.take(&typed);
        true
    }
}

/// The state of the collecting thread.
struct Drain {
    modes: Modes,
    over: PipeReader,
    resumed: UnixStream,
}

impl Drain {
    fn enter(&self) -> io::Result<()> {
        if self.modes.in_front() {
            self.modes.quiet()?;
            self.modes.say(ENABLE_BRACKETED_PASTE.as_bytes())?;
        }
        Ok(())
    }

    /// Reads until collecting ends, and then the remaining input.
    fn run(mut self) -> Vec<u8> {
        let mut typed = Vec::new();
        loop {
            let (over, resumed, keys) = self.look(typed.len() < MOST);
            if resumed {
                // One read is enough for several stops. If the terminal is gone, there are no settings to change.
                drop(self.resumed.read(&mut [0; 64]));
                drop(self.enter());
            }
            if keys {
                match self.modes.in_front() {
                    true => match self.read(&mut typed) {
                        Ok(true) => continue,
                        // The terminal is gone; there is nothing to wait for.
                        Ok(false) | Err(_) => return typed,
                    },
                    // In the background, input belongs to the shell.
                    false if !over => self.pause(),
                    false => {}
                }
            }
            if over {
                let mut keys = [PollFd::from_borrowed_fd(self.modes.tty(), PollFlags::IN)];
                let more = is_pasting(&typed)
                    && typed.len() < MOST
                    && poll(&mut keys, Some(&PASTES)) == Ok(1);
                if !more {
                    return typed;
                }
            }
        }
    }

    /// Waits for an event. Returns three flags: collecting ends, the process continues after a stop, keys are
    /// available.
    fn look(&self, wants_keys: bool) -> (bool, bool, bool) {
        let mut all = [
            PollFd::new(&self.over, PollFlags::IN),
            PollFd::new(&self.resumed, PollFlags::IN),
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

    fn pause(&self) {
        let mut over = [PollFd::from_borrowed_fd(self.over.as_fd(), PollFlags::IN)];
        // The next call of `look` finds the same event.
        let _: Result<_, _> = poll(&mut over, Some(&BEHIND));
    }
}
