//! Ends some threads and no others: those that work under a leash see its cut wherever they would see a signal, and
//! everybody else goes on. A thread's leash is its own; whoever starts threads hands it on to them.

use std::cell::RefCell;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What holds threads.
#[derive(Debug)]
pub struct Leash {
    is_cut: AtomicBool,
    /// Can be read once it is cut, so that it wakes whoever waits.
    pub(super) bell: PipeReader,
    hammer: PipeWriter,
}

thread_local! {
    static HELD: RefCell<Option<Arc<Leash>>> = const { RefCell::new(None) };
}

impl Leash {
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Arc<Self>> {
        let (bell, hammer) = io::pipe()?;
        Ok(Arc::new(Self {
            is_cut: AtomicBool::new(false),
            bell,
            hammer,
        }))
    }

    /// End all that works under it, as soon as that looks. It stays cut.
    pub fn cut(&self) {
        if !self.is_cut.swap(true, Ordering::SeqCst) {
            // One byte fits in any pipe; it is never read, so that the bell goes on ringing.
            drop((&self.hammer).write(b"!"));
        }
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

/// The leash of this thread, to be handed on to one that it starts.
pub fn held() -> Option<Arc<Leash>> {
    HELD.with_borrow(Clone::clone)
}

/// Do `work` on this thread under `leash`.
pub fn under<T>(leash: Option<Arc<Leash>>, work: impl FnOnce() -> T) -> T {
    let before = HELD.replace(leash);
    let done = work();
    HELD.set(before);
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
