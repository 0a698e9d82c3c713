//! A handle on what is drawn meanwhile, for whoever has to speak with the person at the terminal while a turn goes on.

use crate::sys::terminal::Terminal;

/// Takes the progress away while something is asked. Any thread may hold one: a tool's, that asks whether it may.
#[derive(Clone, Copy, Debug)]
pub struct Curtain {
    terminal: Terminal,
}

impl Curtain {
    pub(super) fn of(terminal: Terminal) -> Self {
        Self { terminal }
    }

    /// Run `work` with the terminal to itself: no spinner is on it, and lines of progress wait until it has ended. One asks
    /// at a time; another thread that comes meanwhile waits for its turn.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        self.terminal.alone(work)
    }
}

#[cfg(test)]
mod tests {
    use super::Curtain;
    use crate::sys::terminal::Terminal;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn one_asks_at_a_time_and_may_ask_within() {
        let terminal = Terminal {
            out: false,
            err: false,
            rich: false,
            color: false,
        };
        let curtain = Curtain::of(terminal);
        let is_over = AtomicBool::new(false);
        let (send, receive) = mpsc::channel();
        thread::scope(|scope| {
            curtain.aside(|| {
                let is_over = &is_over;
                let other = move || {
                    send.send(()).unwrap();
                    curtain.aside(|| assert!(is_over.load(Ordering::SeqCst)));
                };
                scope.spawn(other);
                receive.recv().unwrap();
                let within = curtain.aside(|| curtain.aside(|| 7));
                assert_eq!(within, 7);
                is_over.store(true, Ordering::SeqCst);
            });
        });
        // Given back after a defect as well.
        let broken = std::panic::catch_unwind(|| curtain.aside(|| panic!("on purpose")));
        assert!(broken.is_err());
        thread::scope(|scope| scope.spawn(|| curtain.aside(|| ())).join().unwrap());
    }
}
