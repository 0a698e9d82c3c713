//! Delayed terminal output: text that arrives in many small pieces is written when the run is about to wait for more,
//! at most once per [`MAX_DELAY`]. A single piece is written at once.
//!
//! Each thread has its own buffer. Every other kind of output to the terminal writes this buffer first.

use super::foot;
use super::streams::write_out;
use crate::sys::signal;
use anyhow::Result;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Maximum delay of output while more arrives; too short to be noticed.
const FRAME: Duration = Duration::from_millis(10);
/// Size of the buffer, in bytes, at which it is written at once.
const MUCH: usize = 64 << 10;

#[derive(Default)]
struct Later {
    held: String,
    /// The time of the last write.
    written: Option<Instant>,
    /// The error of a delayed write, returned by the next call.
    failed: Option<anyhow::Error>,
}

thread_local! {
    static BUFFER: RefCell<Later> = RefCell::default();
}

/// Writes `text` before the next wait, or soon.
///
/// # Errors
/// The error of an earlier delayed write.
pub(super) fn say(text: &str) -> Result<()> {
    signal::set_before_wait(before_wait);
    let is_much = BUFFER.with_borrow_mut(|later| {
        later.held.push_str(text);
        match later.failed.take() {
            Some(error) => Err(error),
            None => Ok(later.held.len() >= MUCH),
        }
    })?;
    if is_much { now() } else { Ok(()) }
}

/// Writes the buffer.
///
/// # Errors
/// Those of [`super::Terminal::print`].
pub(super) fn now() -> Result<()> {
    let (text, failed) = BUFFER.with_borrow_mut(|later| {
        if !later.held.is_empty() {
            later.written = Some(Instant::now());
        }
        (std::mem::take(&mut later.held), later.failed.take())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    match text.is_empty() {
        true => Ok(()),
        false => foot::print(text.as_bytes()),
    }
}

/// Writes the buffer and then `bytes` to standard output.
///
/// # Errors
/// Those of [`super::Terminal::print`].
pub(super) fn write(is_terminal: bool, bytes: &[u8]) -> Result<()> {
    now()?;
    match is_terminal && !bytes.is_empty() {
        true => foot::print(bytes),
        false => write_out(bytes),
    }
}

/// Runs before each wait and writes output that is due. Otherwise returns the time until it is due.
fn before_wait() -> Option<Duration> {
    let left = BUFFER.with_borrow(|later| {
        if later.held.is_empty() {
            return None;
        }
        let since = later.written.map(|written| written.elapsed());
        Some(since.map_or(Duration::ZERO, |since| FRAME.saturating_sub(since)))
    })?;
    if left.is_zero() {
        catch_up();
        return None;
    }
    Some(left)
}

/// Writes the buffer before any other output. An error is kept for the next call of [`push`] or [`flush`].
pub(in crate::sys) fn catch_up() {
    if let Err(error) = now() {
        BUFFER.with_borrow_mut(|later| later.failed = Some(error));
    }
}
