//! While nobody reads: keys are not shown amid the answer, and none is lost.

use super::ahead::{Ahead, is_pasting};
use super::modes::{MARKS_PASTE, Modes};
use crate::sys::sync::IgnorePoison;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// What is kept of what is typed; the kernel keeps some more.
const MOST: usize = 1 << 20;
/// How long a paste that has begun may pause.
const PASTES: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// How often it is looked whether we are in front again.
const BEHIND: Timespec = PASTES;

/// See [`super::Editor::quiet`].
#[must_use]
pub struct Quiet(Arc<Mutex<Keys>>);

impl Quiet {
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

/// The keys that are pressed while nobody reads.
pub(super) struct Keys {
    /// What they are by now.
    pub(super) ahead: Ahead,
    modes: Modes,
    resumed: UnixStream,
    /// What takes them, until the pipe ends.
    drain: Option<(PipeWriter, JoinHandle<Vec<u8>>)>,
}

impl Keys {
    pub(super) fn new(modes: &Modes, resumed: &UnixStream) -> io::Result<Self> {
        Ok(Self {
            ahead: Ahead::default(),
            modes: modes.try_clone()?,
            resumed: resumed.try_clone()?,
            drain: None,
        })
    }

    /// Nobody reads from now on. Where that cannot be done, keys are shown, and wait in the kernel.
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

    /// Somebody reads again. Whether nobody did. The settings stay until that one sets its own: what is typed in between would
    /// else be taken by the kernel as it takes lines.
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

/// What reads the keys.
struct Drain {
    modes: Modes,
    over: PipeReader,
    resumed: UnixStream,
}

impl Drain {
    fn enter(&self) -> io::Result<()> {
        if self.modes.in_front() {
            self.modes.quiet()?;
            self.modes.say(MARKS_PASTE.as_bytes())?;
        }
        Ok(())
    }

    /// Read until it is over, and then what there is.
    fn run(mut self) -> Vec<u8> {
        let mut typed = Vec::new();
        loop {
            let (over, resumed, keys) = self.look(typed.len() < MOST);
            if resumed {
                // It is read as far as it goes. A terminal that has gone has no settings.
                drop(self.resumed.read(&mut [0; 64]));
                drop(self.enter());
            }
            if keys {
                match self.modes.in_front() {
                    true => match self.read(&mut typed) {
                        Ok(true) => continue,
                        // The terminal has gone: there is nothing more to wait for.
                        Ok(false) | Err(_) => return typed,
                    },
                    // What is typed is the shell's.
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

    /// Wait for whatever comes: it is over, the process goes on after a stop, there are keys.
    fn look(&self, wants_keys: bool) -> (bool, bool, bool) {
        let mut all = [
            PollFd::new(&self.over, PollFlags::IN),
            PollFd::new(&self.resumed, PollFlags::IN),
            PollFd::from_borrowed_fd(self.modes.tty(), PollFlags::IN),
        ];
        let count = if wants_keys { 3 } else { 2 };
        // Interrupted, it finds nothing, and is asked again.
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
        // Whatever it finds, the next look finds too.
        let _: Result<_, _> = poll(&mut over, Some(&BEHIND));
    }
}
