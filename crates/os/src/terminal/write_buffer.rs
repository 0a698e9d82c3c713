//! Delayed terminal output: text that arrives in many small chunks is written when the run is about to wait for more,
//! at most once per [`MAX_DELAY`]. A single chunk is written at once.
//!
//! Each thread has its own buffer. Every other kind of output to the terminal writes this buffer first.

use super::status_area;
use super::streams::write_stdout;
use crate::signal;
use anyhow::Result;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Maximum delay of output while more arrives; too short to be noticed.
const MAX_DELAY: Duration = Duration::from_millis(10);
/// Size of the buffer, in bytes, at which it is written at once.
const FLUSH_BYTES: usize = 64 << 10;

#[derive(Default)]
struct WriteBuffer {
    text: String,
    /// The time of the last write.
    last_write: Option<Instant>,
    /// The error of a delayed write, returned by the next call.
    error: Option<anyhow::Error>,
}

thread_local! {
    static BUFFER: RefCell<WriteBuffer> = RefCell::default();
}

/// Writes `text` before the next wait, or soon.
///
/// # Errors
/// The error of an earlier delayed write; `text` is still the caller's then, and is not written.
pub(super) fn push(text: &str) -> Result<()> {
    signal::set_before_wait(flush_if_due);
    let is_full = BUFFER.with_borrow_mut(|buffer| match buffer.error.take() {
        Some(error) => Err(error),
        None => {
            buffer.text.push_str(text);
            Ok(buffer.text.len() >= FLUSH_BYTES)
        }
    })?;
    if is_full { flush() } else { Ok(()) }
}

/// Writes the buffer.
///
/// # Errors
/// The errors of [`super::Terminal::print`].
pub(super) fn flush() -> Result<()> {
    let (text, error) = BUFFER.with_borrow_mut(|buffer| {
        if !buffer.text.is_empty() {
            buffer.last_write = Some(Instant::now());
        }
        (std::mem::take(&mut buffer.text), buffer.error.take())
    });
    if let Some(error) = error {
        return Err(error);
    }
    if text.is_empty() { Ok(()) } else { status_area::print(text.as_bytes()) }
}

/// Writes the buffer and then `bytes` to standard output.
///
/// # Errors
/// The errors of [`super::Terminal::print`].
pub(super) fn write_after_flush(is_terminal: bool, bytes: &[u8]) -> Result<()> {
    flush()?;
    if is_terminal && !bytes.is_empty() { status_area::print(bytes) } else { write_stdout(bytes) }
}

/// Runs before each wait and writes output that is due. Otherwise returns the time until it is due.
fn flush_if_due() -> Option<Duration> {
    let left = BUFFER.with_borrow(|buffer| {
        if buffer.text.is_empty() {
            return None;
        }
        let elapsed = buffer.last_write.map(|last_write| last_write.elapsed());
        Some(elapsed.map_or(Duration::ZERO, |elapsed| MAX_DELAY.saturating_sub(elapsed)))
    })?;
    if left.is_zero() {
        flush_deferring_error();
        return None;
    }
    Some(left)
}

/// Writes the buffer before any other output. An error is kept for the next call of [`push`] or [`flush`].
pub fn flush_deferring_error() {
    if let Err(error) = flush() {
        BUFFER.with_borrow_mut(|buffer| buffer.error = Some(error));
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER, push};

    #[test]
    fn a_text_is_not_kept_if_an_earlier_write_has_failed() {
        BUFFER.with_borrow_mut(|buffer| buffer.error = Some(anyhow::anyhow!("broken pipe")));
        assert!(push("a").is_err());
        assert!(BUFFER.with_borrow(|buffer| buffer.text.is_empty()));
        push("b").unwrap();
        assert_eq!(BUFFER.take().text, "b");
    }
}
