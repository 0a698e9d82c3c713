//! Rings the bell of the terminal when a long turn ends or needs an approval: the user may be doing something else.

use nanobot_os::terminal::Terminal;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The bell of the terminal, and the time at which the turn began.
pub(super) struct Bell {
    terminal: Terminal,
    /// The duration after which a turn is long; `None` if the bell is off.
    after: Option<Duration>,
    turn_start: Mutex<Instant>,
}

impl Bell {
    pub(super) fn new(terminal: Terminal, after: Option<Duration>) -> Self {
        Self { terminal, after, turn_start: Mutex::new(Instant::now()) }
    }

    pub(super) fn begin_turn(&self) {
        *self.turn_start.lock() = Instant::now();
    }

    /// Rings if the turn has been long.
    pub(super) fn ring_if_long(&self) {
        let elapsed = self.turn_start.lock().elapsed();
        if self.after.is_some_and(|after| elapsed >= after) {
            self.terminal.ring_bell();
        }
    }
}
