//! Hang-up, Ctrl-C and termination: the children are ended, then we die by the same signal, so that a shell sees the
//! truth. The log needs nothing: what was said is on disk already.
//!
//! The thread that waits for signals is started with the first child; before that the system's own way is right.

use super::process;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::time::Duration;

/// How long children may take to end by themselves.
const GRACE: Duration = Duration::from_millis(100);

/// Start to wait for signals.
pub fn watch() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        return;
    };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            end_by(signal);
        }
    });
}

fn end_by(signal: i32) {
    let running = {
        // Kept locked to the end, so that nothing starts any more.
        let groups = process::groups();
        let running = groups.clone();
        std::mem::forget(groups);
        running
    };
    // Errors mean that a group has ended already.
    for group in &running {
        let _: Result<_, _> = rustix::process::kill_process_group(*group, Signal::TERM);
    }
    if !running.is_empty() {
        std::thread::sleep(GRACE);
    }
    for group in &running {
        let _: Result<_, _> = rustix::process::kill_process_group(*group, Signal::KILL);
    }
    process::end_children();
    drop(signal_hook::low_level::emulate_default_handler(signal));
}
