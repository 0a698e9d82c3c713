//! Writes to standard output and standard error, unbuffered and as the bytes are. A signal ends a write that blocks.

use crate::error::{Exit, Stop};
use crate::sys::signal::{self, Patience};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// A pipe that is ready takes as many bytes at once (`PIPE_BUF`).
const PIPE_BUF_BYTES: usize = 4096;

/// Write all of `bytes`, past the buffers of the standard library, which would keep what a signal cut off.
fn write(fd: BorrowedFd<'_>, mut bytes: &[u8], name: &'static str) -> Result<()> {
    while !bytes.is_empty() {
        // A write that blocks cannot be ended by a signal; one that follows this wait does not block.
        signal::writable(fd, &mut Patience::endless())?;
        match rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BUF_BYTES)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::PIPE) => return Err(Stop(Exit::Answered).into()),
            Err(error) => {
                return Err(std::io::Error::from(error))
                    .with_context(|| format!("write to {name}"));
            }
        }
    }
    Ok(())
}

/// Write all of `bytes` to standard output.
///
/// # Errors
/// Those of the system; a [`Stop`] when nobody reads any more, or the run is to end.
pub(super) fn write_out(bytes: &[u8]) -> Result<()> {
    let stdout = std::io::stdout();
    let lock = stdout.lock();
    write(lock.as_fd(), bytes, "standard output")
}

/// Write `text` to standard error. False if it failed, which can be reported nowhere.
pub(super) fn write_stderr(text: &str) -> bool {
    let stderr = std::io::stderr();
    let lock = stderr.lock();
    write(lock.as_fd(), text.as_bytes(), "standard error").is_ok()
}

/// Write the few bytes of `text` to standard error, if that needs no wait. True if they were written.
pub(super) fn write_at_once(text: &str) -> bool {
    let stderr = std::io::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let is_ready = poll(&mut ready, Some(&Timespec::default())) == Ok(1);
    is_ready && rustix::io::write(&stderr, text.as_bytes()) == Ok(text.len())
}

/// The columns of standard error; 80 where it does not say.
pub fn error_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    match size.map_or(0, |size| size.ws_col.into()) {
        0 => 80,
        told => told,
    }
}
