//! Cancels a group of threads: threads that work under a [`CancelToken`] notice the cancellation wherever they would
//! notice a signal; other threads are unaffected. Each thread has its own current token, and code that starts a thread
//! must pass it on.

use std::cell::RefCell;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A cancellation token for a group of threads.
#[derive(Debug)]
pub struct CancelToken {
    is_cancelled: AtomicBool,
    /// True if signals do not end the work under it, nor under tokens that are created in it.
    is_shielded: bool,
    /// Becomes readable on cancellation, which wakes waiting threads.
    pub wake_rx: PipeReader,
    wake_tx: PipeWriter,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<CancelToken>>> = const { RefCell::new(None) };
}

impl CancelToken {
    /// # Errors
    /// No file descriptors are left.
    pub fn new() -> io::Result<Arc<Self>> {
        Self::create(is_shielded())
    }

    /// Creates a token for work that continues after a signal. The thread that started it waits for it.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn shielded() -> io::Result<Arc<Self>> {
        Self::create(true)
    }

    fn create(is_shielded: bool) -> io::Result<Arc<Self>> {
        let (wake_rx, wake_tx) = io::pipe()?;
        Ok(Arc::new(Self { is_cancelled: AtomicBool::new(false), is_shielded, wake_rx, wake_tx }))
    }

    /// Cancels all work under this token at its next check. This cannot be undone.
    pub fn cancel(&self) {
        if !self.is_cancelled.swap(true, Ordering::SeqCst) {
            // One byte fits in any pipe. It is never read, so the pipe stays readable.
            drop((&self.wake_tx).write(b"!"));
        }
    }

    /// True if the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }
}

/// Returns this thread's token, to pass on to a new thread.
pub fn current() -> Option<Arc<CancelToken>> {
    CURRENT.with_borrow(Clone::clone)
}

/// True if signals do not end the work of this thread.
pub(crate) fn is_shielded() -> bool {
    CURRENT.with_borrow(|token| token.as_ref().is_some_and(|token| token.is_shielded))
}

/// Runs `work` on this thread under `token`, then restores the previous token.
pub fn scope<T>(token: Option<Arc<CancelToken>>, work: impl FnOnce() -> T) -> T {
    let previous = CURRENT.replace(token);
    let output = work();
    CURRENT.set(previous);
    output
}

#[cfg(test)]
mod tests {
    use super::{CancelToken, current, scope};
    use crate::signal;
    use std::time::Duration;

    #[test]
    fn cancellation_affects_only_threads_with_the_token() {
        let token = CancelToken::new().unwrap();
        scope(Some(token.clone()), || {
            assert!(signal::check().is_ok());
            std::thread::scope(|threads| {
                let inherited = current();
                let waiting = threads
                    .spawn(|| scope(inherited, || signal::sleep(Duration::from_secs(60)).is_err()));
                token.cancel();
                assert!(waiting.join().unwrap());
            });
            assert!(signal::check().is_err());
        });
        assert!(current().is_none() && signal::check().is_ok());
        assert!(signal::sleep(Duration::ZERO).is_ok());
    }
}
