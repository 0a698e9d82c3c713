//! What a person sees a moment later: text that comes in many small pieces is written when the run is about to wait for
//! more, and not more often than a screen shows something new. A piece that comes alone is written at once.
//!
//! Each thread has its own; whoever writes to the terminal in any other way writes this before.

use super::foot;
use super::streams::write_out;
use crate::sys::signal;
use anyhow::Result;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How long what has arrived may be unseen while more arrives: less than an eye notices.
const FRAME: Duration = Duration::from_millis(10);
/// So much is written without waiting for anything.
const MUCH: usize = 64 << 10;

#[derive(Default)]
struct Later {
    held: String,
    /// When something was written last.
    written: Option<Instant>,
    /// Why that failed, for whoever says something next.
    failed: Option<anyhow::Error>,
}

thread_local! {
    static LATER: RefCell<Later> = RefCell::default();
}

/// Have `text` written before the next wait, or soon.
///
/// # Errors
/// What was to be written before could not be.
pub(super) fn say(text: &str) -> Result<()> {
    signal::set_before_wait(before_wait);
    let is_much = LATER.with_borrow_mut(|later| {
        later.held.push_str(text);
        match later.failed.take() {
            Some(error) => Err(error),
            None => Ok(later.held.len() >= MUCH),
        }
    })?;
    if is_much { now() } else { Ok(()) }
}

/// Write what there is.
///
/// # Errors
/// Those of [`super::Terminal::print`].
pub(super) fn now() -> Result<()> {
    let (held, failed) = LATER.with_borrow_mut(|later| {
        if !later.held.is_empty() {
            later.written = Some(Instant::now());
        }
        (std::mem::take(&mut later.held), later.failed.take())
    });
    if let Some(error) = failed {
        return Err(error);
    }
    match held.is_empty() {
        true => Ok(()),
        false => foot::print(held.as_bytes()),
    }
}

/// Write what there is, and then `bytes`, to standard output.
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

/// The run is about to wait: write what is due. What is not yet is due after the time that is returned.
fn before_wait() -> Option<Duration> {
    let left = LATER.with_borrow(|later| {
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

/// Write what there is, whoever is about to do something else. That it failed is told to whoever says something next.
pub(in crate::sys) fn catch_up() {
    if let Err(error) = now() {
        LATER.with_borrow_mut(|later| later.failed = Some(error));
    }
}
