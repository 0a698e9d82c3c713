//! Puts the terminal's settings back where we cannot: after a `kill -9`, or a signal whose handler ends us at once.
//!
//! It is this program once more, in a group of its own, and waits for the end of a pipe that only we hold. An end in order
//! ends it first. A shell that was faster has the terminal already, and is left alone.

use super::modes::{Modes, Told};
use crate::sys::process;
use nix::sys::signal::{SigSet, Signal};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::io::{self, PipeWriter, Read, Write};
use std::process::{Child, Stdio};

/// The one that sits beside us.
pub(super) struct Keeper {
    child: Child,
    /// Its end is ours.
    _life: PipeWriter,
}

/// What it is told.
#[derive(Serialize, Deserialize)]
struct Order {
    found: Told,
    /// The group of processes that had the terminal.
    group: i32,
}

impl Keeper {
    pub(super) fn start(modes: &Modes) -> io::Result<Self> {
        let order = Order {
            found: modes.told(),
            group: rustix::process::getpgrp().as_raw_pid(),
        };
        let (orders, mut life) = io::pipe()?;
        serde_json::to_writer(&mut life, &order).map_err(io::Error::other)?;
        life.flush()?;
        let tty = modes.tty().try_clone_to_owned()?;
        let child = process::keeper(Stdio::from(orders), Stdio::from(tty))?;
        Ok(Self { child, _life: life })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Killed and not asked: it ends at once, also where it was stopped. There is nobody to tell of an error.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whether this program was started by itself to be the keeper, which it has been then.
pub fn become_keeper() -> bool {
    let is_keeper = process::is_keeper();
    if is_keeper {
        // There is nobody to tell of an error.
        drop(keep());
    }
    is_keeper
}

fn keep() -> io::Result<()> {
    // Who is behind may set the terminal only where it does not hear that it may not; and what ends us all at once is to
    // leave somebody to do so.
    let mut deaf = SigSet::empty();
    for signal in [
        Signal::SIGTTOU,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGTERM,
    ] {
        deaf.add(signal);
    }
    deaf.thread_block()?;
    let mut order = Vec::new();
    io::stdin().lock().read_to_end(&mut order)?;
    let order: Order = serde_json::from_slice(&order).map_err(io::Error::other)?;
    // Standard output is the terminal.
    let mut modes = Modes::of(rustix::stdio::stdout())?;
    modes.take(&order.found);
    let front = rustix::termios::tcgetpgrp(modes.tty());
    let is_ours = front.map_or(true, |front| Pid::as_raw(Some(front)) == order.group);
    if is_ours || modes.takes_signals_as_keys() {
        modes.put_back()?;
    }
    Ok(())
}
