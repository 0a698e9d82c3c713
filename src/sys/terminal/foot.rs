//! The foot of the terminal: lines that change in place below all that was printed, such as a spinner.
//!
//! Whoever prints need not know of them: each door of the terminal takes them away first and puts them back after. The
//! cursor rests at their beginning, so that they are wiped in one go however the window was resized, and a process that
//! is killed leaves nothing that the next prompt would not write over.
//!
//! The caller first writes what [`super::later`] holds back: else the next wait would write it while the lock is held.

use super::row::Row;
use super::streams::{error_width, write_at_once, write_out, write_stderr};
use crate::sys::sync::IgnorePoison;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How often the lines are drawn anew.
const PACE: Duration = Duration::from_millis(100);

/// Wipe from the cursor to the end of the screen.
const WIPE: &str = "\r\u{1b}[J";

static FOOT: Mutex<Foot> = Mutex::new(Foot {
    painter: None,
    is_shown: false,
    alone: None,
    held: String::new(),
    is_ticking: false,
});
/// Something about [`FOOT`] has changed that a thread may wait for.
static CHANGED: Condvar = Condvar::new();
/// There is a painter, or somebody has the terminal alone: until then, doors have nothing to ask.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The last line of standard output has no end yet, where that is a terminal.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Says what the lines are at this moment. It prints nothing itself.
pub type Painter = Box<dyn FnMut() -> Vec<Row> + Send>;

struct Foot {
    painter: Option<Painter>,
    /// Its lines are on the screen.
    is_shown: bool,
    /// Whoever has the terminal to itself, and how often that was asked for.
    alone: Option<(ThreadId, u32)>,
    /// What others had to say to standard error meanwhile.
    held: String,
    /// The thread that draws is there.
    is_ticking: bool,
}

fn foot() -> MutexGuard<'static, Foot> {
    FOOT.lock().ignore_poison()
}

impl Foot {
    fn wipe(&mut self) {
        if self.is_shown {
            // Once a signal has come, what may have to wait is not written; this is, where it need not wait.
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
        // In one write, and each line is wiped behind what is new of it: nothing flickers.
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

/// From now on `painter` says what stands at the foot; `None` clears it.
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
                // Without a thread the lines stand still, and that is all.
                let started = thread::Builder::new().name("foot".into()).spawn(tick);
                foot.is_ticking = started.is_ok();
            }
        }
    }
    foot.mark_busy();
}

/// Clear the foot, unless whoever draws it is just in trouble.
pub(super) fn give_up() {
    if let Ok(mut foot) = FOOT.try_lock() {
        foot.wipe();
        foot.painter = None;
        foot.mark_busy();
    }
}

/// True if lines are shown, or a thread has the terminal to itself.
pub(super) fn is_busy() -> bool {
    BUSY.load(Ordering::SeqCst)
}

/// Draw the lines as they are now.
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

/// Write `bytes` to standard output, which is a terminal.
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

/// Print `line` to standard error, or hold it while somebody else has the terminal alone. With `is_shared` standard output
/// is on the same terminal, where a line of it that has no end yet gets one.
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
        Some((who, _)) if who != thread::current().id() => foot.held.push_str(line),
        _ => {
            foot.wipe();
            print(line);
            foot.draw();
        }
    }
}

/// Run `work`, during which this thread has the terminal to itself. Another that wants the same waits for it.
pub(super) fn alone<T>(work: impl FnOnce() -> T) -> T {
    /// Gives the terminal back, whatever happens.
    struct Alone;

    impl Drop for Alone {
        fn drop(&mut self) {
            let mut foot = foot();
            foot.alone = match foot.alone.take() {
                Some((who, depth)) if depth > 1 => Some((who, depth - 1)),
                _ => None,
            };
            if foot.alone.is_none() {
                let held = std::mem::take(&mut foot.held);
                write_stderr(&held);
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
            Some((who, depth)) if who == me => break depth + 1,
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
        // Given back after a defect as well.
        let broken = std::panic::catch_unwind(|| alone(|| panic!("on purpose")));
        assert!(broken.is_err());
        thread::scope(|scope| scope.spawn(|| alone(|| ())).join().unwrap());
    }
}
