//! The status lines: lines below all output that change in place, such as a spinner.
//!
//! Other output need not consider them: each output function of the terminal clears them first and redraws them after.
//! The cursor rests at their start, so they can be cleared in one operation even after the window was resized, and the
//! next shell prompt overwrites them if the process is killed.
//!
//! The caller must first write the buffer of [`super::write_buffer`]: otherwise the next wait would write it while the
//! lock is held.

use super::row::Row;
use super::streams::{error_width, write_at_once, write_out, write_stderr};
use crate::sys::sync::IgnorePoison;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Redraw interval.
const PACE: Duration = Duration::from_millis(100);

/// Clears from the cursor to the end of the screen.
const WIPE: &str = "\r\u{1b}[J";

static FOOT: Mutex<Foot> = Mutex::new(Foot {
    painter: None,
    is_shown: false,
    alone: None,
    held: String::new(),
    is_ticking: false,
});
/// Signals a change of [`STATUS_AREA`] that a thread may wait for.
static CHANGED: Condvar = Condvar::new();
/// True if there is a painter, or if a thread has exclusive use of the terminal. Otherwise output skips the lock.
static BUSY: AtomicBool = AtomicBool::new(false);
/// True if standard output is a terminal and its last line has no newline yet.
static OPEN: AtomicBool = AtomicBool::new(false);

/// A function that returns the current status lines. It must not print.
pub type Painter = Box<dyn FnMut() -> Vec<Row> + Send>;

struct Foot {
    painter: Option<Painter>,
    /// True if its lines are on the screen.
    is_shown: bool,
    /// The thread with exclusive use of the terminal, and its nesting depth.
    alone: Option<(ThreadId, u32)>,
    /// Output of other threads to standard error, delayed meanwhile.
    held: String,
    /// True if the redraw thread has been started.
    is_ticking: bool,
}

fn foot() -> MutexGuard<'static, Foot> {
    FOOT.lock().ignore_poison()
}

impl Foot {
    fn wipe(&mut self) {
        if self.is_shown {
            // After a signal, `write_stderr` refuses to wait; the clearing sequence is then written only if that needs
            // no wait.
            let is_wiped = write_stderr(WIPE) || write_at_once(WIPE);
            self.is_shown = !is_wiped;
        }
    }

    fn draw(&mut self) {
        if self.alone.is_some() || OPEN.load(Ordering::Relaxed) {
            return;
        }
        let Some(painter) = &mut self.painter else {
            return;
        };
        let width = error_width();
        let lines: Vec<String> = painter()
            .iter()
            .map(|row| row.written(Some(width)))
            .collect();
        if lines.is_empty() {
            return self.wipe();
        }
        // One write, which clears the rest of each line after its new text: this avoids flicker.
        let up = match lines.len() {
            1 => String::new(),
            count => format!("\u{1b}[{}A", count - 1),
        };
        let lines = lines.join("\u{1b}[K\r\n");
        self.is_shown |= write_stderr(&format!("\r{lines}\u{1b}[J{up}\r"));
    }

    fn mark_busy(&self) {
        let busy = self.painter.is_some() || self.alone.is_some();
        BUSY.store(busy, Ordering::SeqCst);
        CHANGED.notify_all();
    }
}

/// Sets the source of the status lines; `None` clears them.
pub(super) fn show(painter: Option<Painter>) {
    let mut foot = foot();
    match painter {
        None => {
            foot.wipe();
            foot.painter = None;
        }
        some => {
            foot.painter = some;
            foot.draw();
            if !foot.is_ticking {
                // If the thread cannot be started, the lines are merely not redrawn.
                let started = thread::Builder::new()
                    .name("status-area".into())
                    .spawn(tick);
                foot.is_ticking = started.is_ok();
            }
        }
    }
    foot.mark_busy();
}

/// Clears the status lines, unless the lock is held, possibly by the thread that panics.
pub(super) fn give_up() {
    if let Ok(mut foot) = FOOT.try_lock() {
        foot.wipe();
        foot.painter = None;
        foot.mark_busy();
    }
}

/// True if there are status lines, or if a thread has exclusive use of the terminal.
pub(super) fn is_busy() -> bool {
    BUSY.load(Ordering::SeqCst)
}

/// Redraws the status lines.
pub(super) fn refresh() {
    foot().draw();
}

fn tick() {
    let mut foot = foot();
    loop {
        foot = match foot.painter {
            None => CHANGED.wait(foot).ignore_poison(),
            Some(_) => {
                let waited = CHANGED.wait_timeout(foot, PACE);
                let (mut foot, waited) = waited.ignore_poison();
                if waited.timed_out() {
                    foot.draw();
                }
                foot
            }
        };
    }
}

/// Writes `bytes` to standard output, which is a terminal.
///
/// # Errors
/// Those of [`super::Terminal::print`].
pub(super) fn print(bytes: &[u8]) -> Result<()> {
    let is_open = !bytes.ends_with(b"\n");
    if !is_busy() {
        OPEN.store(is_open, Ordering::Relaxed);
        return write_out(bytes);
    }
    let mut foot = foot();
    foot.wipe();
    OPEN.store(is_open, Ordering::Relaxed);
    let printed = write_out(bytes);
    foot.draw();
    printed
}

/// Writes `line` to standard error, or delays it while another thread has exclusive use of the terminal. `is_shared`
/// means that standard output is on the same terminal: an incomplete line of it is ended first.
pub(super) fn complain(line: &str, is_shared: bool) {
    let print = |line: &str| {
        let break_off = is_shared && OPEN.swap(false, Ordering::Relaxed);
        match break_off {
            true => write_stderr(&format!("\n{line}")),
            false => write_stderr(line),
        };
    };
    if !is_busy() {
        return print(line);
    }
    let mut foot = foot();
    match foot.alone {
        Some((owner, _)) if owner != thread::current().id() => foot.held.push_str(line),
        _ => {
            foot.wipe();
            print(line);
            foot.draw();
        }
    }
}

/// Runs `work` with exclusive use of the terminal. Calls from other threads wait for it; nested calls are allowed.
pub(super) fn alone<T>(work: impl FnOnce() -> T) -> T {
    /// Releases the terminal, also after a panic.
    struct Alone;

    impl Drop for Alone {
        fn drop(&mut self) {
            let mut foot = foot();
            foot.alone = match foot.alone.take() {
                Some((owner, depth)) if depth > 1 => Some((owner, depth - 1)),
                _ => None,
            };
            if foot.alone.is_none() {
                let delayed = std::mem::take(&mut foot.held);
                write_stderr(&delayed);
                foot.draw();
            }
            foot.mark_busy();
        }
    }

    let me = thread::current().id();
    let mut foot = foot();
    let depth = loop {
        match foot.alone {
            None => break 1,
            Some((owner, depth)) if owner == me => break depth + 1,
            Some(_) => foot = CHANGED.wait(foot).ignore_poison(),
        }
    };
    foot.wipe();
    foot.alone = Some((me, depth));
    foot.mark_busy();
    drop(foot);
    let alone = Alone;
    let done = work();
    drop(alone);
    done
}

#[cfg(test)]
mod tests {
    use super::alone;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn one_asks_at_a_time_and_may_ask_within() {
        let is_over = AtomicBool::new(false);
        let (send, receive) = mpsc::channel();
        thread::scope(|scope| {
            alone(|| {
                let is_over = &is_over;
                let other = move || {
                    send.send(()).unwrap();
                    alone(|| assert!(is_over.load(Ordering::SeqCst)));
                };
                scope.spawn(other);
                receive.recv().unwrap();
                let within = alone(|| alone(|| 7));
                assert_eq!(within, 7);
                is_over.store(true, Ordering::SeqCst);
            });
        });
        // Released after a panic as well.
        let broken = std::panic::catch_unwind(|| alone(|| panic!("on purpose")));
        assert!(broken.is_err());
        thread::scope(|scope| scope.spawn(|| alone(|| ())).join().unwrap());
    }
}
