//! Cancels a group of threads: threads that work under a [`CancelToken`] notice the cancellation wherever they would
//! notice a signal; other threads are unaffected. The setting is per thread, and code that starts a thread must pass it
//! on.

use std::cell::RefCell;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A cancellation token for a group of threads.
#[derive(Debug)]
pub struct Leash {
    is_cut: AtomicBool,
    /// Becomes readable on cancellation, which wakes waiting threads.
    pub(super) bell: PipeReader,
    hammer: PipeWriter,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Leash>>> = const { RefCell::new(None) };
}

impl Leash {
    /// # Errors
    /// No file descriptors are left.
    pub fn new() -> io::Result<Arc<Self>> {
        let (wake_rx, wake_tx) = io::pipe()?;
        Ok(Arc::new(Self {
            is_cut: AtomicBool::new(false),
            bell: wake_rx,
            hammer: wake_tx,
        }))
    }

    /// Cancels all work under this token at its next check. This cannot be undone.
    pub fn cut(&self) {
        if !self.is_cut.swap(true, Ordering::SeqCst) {
            // One byte fits in any pipe. It is never read, so the pipe stays readable.
            drop((&self.hammer).write(b"!"));
        }
    }

    /// True if the token was cancelled.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

/// Returns this thread's token, to pass on to a new thread.
pub fn held() -> Option<Arc<Leash>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Runs `work` on this thread under `token`, then restores the previous token.
pub fn under<T>(leash: Option<Arc<Leash>>, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(leash);
    let done = work();
    CURRENT.set(before);
    done
}

#[cfg(test)]
mod tests {
    use super::{Leash, held, under};
    use crate::sys::signal;
    use std::time::Duration;

    #[test]
    fn a_cut_ends_what_is_under_it_and_nothing_else() {
        let leash = Leash::new().unwrap();
        under(Some(leash.clone()), || {
            assert!(signal::check().is_ok());
            std::thread::scope(|scope| {
                let handed = held();
                let waiting = scope
                    .spawn(|| under(handed, || signal::pause(Duration::from_secs(60)).is_err()));
                leash.cut();
                assert!(waiting.join().unwrap());
            });
            assert!(signal::check().is_err());
        });
        assert!(held().is_none() && signal::check().is_ok());
        assert!(signal::pause(Duration::ZERO).is_ok());
    }
}
