//! Signals that ask a process to finish what it has begun, for commands that serve several requests.
//!
//! Unlike [`super::signal`], nothing is interrupted: the first signal makes a descriptor readable, and the command
//! takes no new work. What is in progress then ends by itself, or is cancelled by its tokens.

use crate::error::Exit;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SIGNALS: [(i32, Exit); 3] = [
    (SIGHUP, Exit::HangUp),
    (SIGTERM, Exit::Terminated),
    (SIGINT, Exit::Interrupted),
];

/// The signals that ask this process to stop, from [`GracefulStop::install`] on.
pub struct GracefulStop {
    wake_rx: UnixStream,
    received: Vec<(Exit, Arc<AtomicBool>)>,
}

impl GracefulStop {
    /// Installs the handlers. A signal that was ignored at start stays ignored.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn install() -> std::io::Result<Self> {
        let ignored = super::signal::ignored_signals();
        let (mut handled, mut received) = (Vec::new(), Vec::new());
        for (signal, exit) in SIGNALS {
            if ignored & (1 << (signal - 1)) == 0 {
                let came = Arc::new(AtomicBool::new(false));
                flag::register(signal, Arc::clone(&came))?;
                received.push((exit, came));
                handled.push(signal);
            }
        }
        let (wake_rx, wake_tx) = UnixStream::pair()?;
        wake_rx.set_nonblocking(true)?;
        let reader = wake_rx.try_clone()?;
        // Never dropped, since that would remove the handlers.
        std::mem::forget(SignalDelivery::with_pipe(
            reader, wake_tx, SignalOnly, &handled,
        )?);
        Ok(Self { wake_rx, received })
    }

    /// Readable when a signal has arrived since the last call of [`Self::take`].
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_rx.as_fd()
    }

    /// Clears the descriptor. Returns the status of the signal that arrived, if any.
    pub fn take(&self) -> Option<Exit> {
        let mut buffer = [0; 64];
        while (&self.wake_rx)
            .read(&mut buffer)
            .is_ok_and(|count| count > 0)
        {}
        self.exit()
    }

    /// The status of the signal that arrived, if any.
    pub fn exit(&self) -> Option<Exit> {
        let mut all = self.received.iter();
        let found = all.find(|(_, came)| came.load(Ordering::SeqCst));
        found.map(|(exit, _)| *exit)
    }
}
