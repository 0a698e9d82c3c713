//! Unbuffered, unmodified writes to standard output and standard error. A signal ends a write that blocks.

use crate::process_group::process_group;
use crate::signal::{self, Deadline};
use anyhow::{Context, Result};
use nanobot_base::error::{Exit, Stop};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// Size in bytes that a pipe reported as writable accepts without blocking (`PIPE_BUF`).
const PIPE_BUF_BYTES: usize = 4096;

/// Writes all of `bytes`, bypassing the buffers of the standard library, which would keep the data of an interrupted
/// write.
pub(super) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8], name: &'static str) -> Result<()> {
    while !bytes.is_empty() {
        // A signal cannot end a blocking write; a write after this wait does not block.
        signal::wait_writable(fd, &mut Deadline::never())?;
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

/// Writes all of `bytes` to standard output.
///
/// # Errors
/// A system error; a [`Stop`] if the reader is gone or the run is cancelled.
pub(super) fn write_stdout(bytes: &[u8]) -> Result<()> {
    let stdout = std::io::stdout();
    let lock = stdout.lock();
    write_all(lock.as_fd(), bytes, "standard output")
}

/// Writes `text` to standard error. False if it failed, which can be reported nowhere.
pub(super) fn write_stderr(text: &str) -> bool {
    let stderr = std::io::stderr();
    let lock = stderr.lock();
    write_all(lock.as_fd(), text.as_bytes(), "standard error").is_ok()
}

/// Writes the few bytes of `text` to standard error if that needs no wait. True if they were written.
pub(super) fn try_write_stderr(text: &str) -> bool {
    let stderr = std::io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let is_ready = poll(&mut fds, Some(&Timespec::default())) == Ok(1);
    is_ready && rustix::io::write(&stderr, text.as_bytes()) == Ok(text.len())
}

/// True unless standard error is the terminal of this process and another process group is in its foreground.
pub(super) fn is_stderr_foreground() -> bool {
    let foreground_group = rustix::termios::tcgetpgrp(std::io::stderr());
    let (Ok(foreground_group), Some(own_group)) = (foreground_group, process_group(None)) else {
        return true;
    };
    foreground_group == own_group
}

/// Moves the cursor of the terminal so many rows up. Moving down by line feeds, for a negative number, also works at the
/// bottom of the screen.
pub fn move_cursor_up(rows: isize) {
    let movement = match rows {
        0 => return,
        1.. => format!("\u{1b}[{rows}A"),
        _ => "\n".repeat(rows.unsigned_abs()),
    };
    // If the terminal is gone, the next read reports it.
    write_stderr(&movement);
}
