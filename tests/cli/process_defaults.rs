//! Defaults of processes, which a story must not inherit from the program that started the tests: `nohup`, a shell's `&` and daemons
//! ignore signals, and ignored signals stay ignored in all children.

use rustix::fs::Mode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::{Arc, Once};

/// Gives the processes that this one starts the defaults of an interactive shell.
pub(crate) fn set() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let ignored = ignored_signals();
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            if ignored & (1 << (signal - 1)) != 0 {
                // A handler without effect: the tests themselves go on, and an exec resets handlers to the default.
                signal_hook::flag::register(signal, Arc::default()).expect("it can be handled");
            }
        }
    });
}

/// The signals that this process ignores, as a bit mask.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    u64::from_str_radix(mask.expect("it is listed").trim(), 16).expect("it is a mask")
}
