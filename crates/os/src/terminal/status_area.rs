//! The status lines: lines below all output that change in place, such as a spinner, and below them the text that the user types meanwhile.
//!
//! Other output need not consider them: each output function of the terminal clears them first and redraws them after.
//! The cursor stays at their start, so they can be cleared in one operation even after the window was resized, and the
//! next shell prompt overwrites them if the process is killed. While a line of the answer is incomplete, only the typed
//! text is shown, below that line.
//!
//! The caller must first write the buffer of [`super::write_buffer`]: otherwise the next wait would write it while the
//! lock is held.

use super::device::stderr_width;
use super::streams::{is_stderr_foreground, try_write_stderr, write_stderr, write_stdout};
use super::styled_line::StyledLine;
use anyhow::Result;
use console::measure_text_width;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Redraw interval.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The sequences before and after the address of a link (OSC 8). A link without an address ends the one before.
pub(super) const LINK_START: &str = "\u{1b}]8;;";
pub(super) const LINK_END: &str = "\u{1b}\\";

/// Clears from the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\r\u{1b}[J";

static STATUS_AREA: Mutex<StatusArea> = Mutex::new(StatusArea {
    painter: None,
    typed: None,
    open_columns: 0,
    is_drawn: false,
    exclusive_user: None,
    exclusive_time: Duration::ZERO,
    delayed: String::new(),
    deferred: String::new(),
    has_redraw_thread: false,
});
/// Signals a change of [`STATUS_AREA`] that a thread may wait for.
static CHANGED: Condvar = Condvar::new();
/// True if there is a painter, or if a thread has exclusive use of the terminal. Otherwise output skips the lock.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// True if standard output is a terminal and its last line has no newline yet.
static IS_LINE_OPEN: AtomicBool = AtomicBool::new(false);

/// A function that returns the current status lines. It must not print.
pub type Painter = Box<dyn FnMut() -> Vec<StyledLine> + Send>;

struct StatusArea {
    painter: Option<Painter>,
    /// The source of the typed text.
    typed: Option<Painter>,
    /// Columns of the incomplete last line of standard output.
    open_columns: usize,
    /// True if its lines are on the screen.
    is_drawn: bool,
    /// The thread with exclusive use of the terminal, and its nesting depth.
    exclusive_user: Option<(ThreadId, u32)>,
    /// The time for which threads have had exclusive use so far.
    exclusive_time: Duration,
    /// Output of other threads to standard error, which waits for the end of the exclusive use.
    delayed: String,
    /// Lines for standard error that wait for the end of the incomplete line of standard output.
    deferred: String,
    /// True if the redraw thread has been started.
    has_redraw_thread: bool,
}

impl StatusArea {
    fn clear(&mut self) {
        if self.is_drawn && !is_stderr_foreground() {
            // The shell has written there since.
            self.is_drawn = false;
        } else if self.is_drawn {
            // After a signal, `write_stderr` refuses to wait; the clearing sequence is then written only if that needs
            // no wait.
            let sequence = if IS_LINE_OPEN.load(Ordering::Relaxed) {
                CLEAR_BELOW.trim_start_matches('\r')
            } else {
                CLEAR_BELOW
            };
            let is_cleared = write_stderr(sequence) || try_write_stderr(sequence);
            self.is_drawn = !is_cleared;
        }
    }

    fn draw(&mut self) {
        // In the background, the rows would be drawn over the shell's prompt.
        if self.exclusive_user.is_some() || !is_stderr_foreground() {
            return;
        }
        let is_open = IS_LINE_OPEN.load(Ordering::Relaxed);
        let mut rows = Vec::new();
        if !is_open && let Some(painter) = &mut self.painter {
            rows = painter();
        }
        rows.extend(self.typed.as_mut().map(|typed| typed()).unwrap_or_default());
        let width = stderr_width();
        // Where the terminal has wrapped the line, its last column is unknown.
        if rows.is_empty() || (is_open && self.open_columns >= width) {
            return self.clear();
        }
        let lines: Vec<String> = rows.iter().map(|row| row.render(Some(width))).collect();
        if is_open {
            let (rows, column) = (lines.len(), self.open_columns);
            let lines = lines.join("\u{1b}[K\r\n");
            // Without automatic wrapping (`?7l`), since the window may just have become narrower: the rows must be as many
            // as the cursor goes up.
            let sequence =
                format!("\u{1b}[?7l\r\n{lines}\u{1b}[J\u{1b}[{rows}A\r\u{1b}[{column}C\u{1b}[?7h");
            self.is_drawn |= write_stderr(&sequence);
            return;
        }
        // One write, which clears the rest of each line after its new text: this avoids flicker.
        let up = match lines.len() {
            1 => String::new(),
            count => format!("\u{1b}[{}A", count - 1),
        };
        let lines = lines.join("\u{1b}[K\r\n");
        self.is_drawn |= write_stderr(&format!("\r{lines}\u{1b}[J{up}\r"));
    }

    fn mark_busy(&self) {
        let has_painter = self.painter.is_some() || self.typed.is_some();
        let busy = has_painter || self.exclusive_user.is_some() || !self.deferred.is_empty();
        IS_BUSY.store(busy, Ordering::SeqCst);
        CHANGED.notify_all();
    }
}

/// Sets the source of the status lines; `None` clears them.
pub(super) fn set_painter(painter: Option<Painter>) {
    let needs_thread = painter.is_some();
    let mut area = STATUS_AREA.lock();
    if painter.is_none() {
        area.clear();
    }
    area.painter = painter;
    area.draw();
    if needs_thread && !area.has_redraw_thread {
        // If the thread cannot be started, the lines are merely not redrawn.
        let thread = thread::Builder::new().name("status-area".into()).spawn(redraw_periodically);
        area.has_redraw_thread = thread.is_ok();
    }
    area.mark_busy();
}

/// Sets the source of the typed text; `None` clears it.
pub(super) fn set_typed_text(painter: Option<Painter>) {
    let mut area = STATUS_AREA.lock();
    area.clear();
    area.typed = painter;
    area.draw();
    area.mark_busy();
}

/// Clears the status lines, unless the lock is held, possibly by the thread that panics.
pub(super) fn clear_if_unlocked() {
    if let Some(mut area) = STATUS_AREA.try_lock() {
        area.clear();
        (area.painter, area.typed) = (None, None);
        area.mark_busy();
    }
}

/// True if there are status lines, or if a thread has exclusive use of the terminal.
pub(super) fn is_busy() -> bool {
    IS_BUSY.load(Ordering::SeqCst)
}

/// Redraws the status lines.
pub(super) fn redraw() {
    STATUS_AREA.lock().draw();
}

fn redraw_periodically() {
    let mut area = STATUS_AREA.lock();
    loop {
        if area.painter.is_none() {
            CHANGED.wait(&mut area);
        } else if CHANGED.wait_for(&mut area, REDRAW_INTERVAL).timed_out() {
            area.draw();
        }
    }
}

/// Writes `bytes` to standard output, which is a terminal.
///
/// # Errors
/// The errors of [`super::Terminal::print`].
pub(super) fn print(bytes: &[u8]) -> Result<()> {
    let is_open = !bytes.ends_with(b"\n");
    if !is_busy() {
        IS_LINE_OPEN.store(is_open, Ordering::Relaxed);
        return write_stdout(bytes);
    }
    let mut area = STATUS_AREA.lock();
    area.clear();
    let columns = if IS_LINE_OPEN.load(Ordering::Relaxed) { area.open_columns } else { 0 };
    area.open_columns = open_columns(columns, &String::from_utf8_lossy(bytes));
    IS_LINE_OPEN.store(is_open, Ordering::Relaxed);
    let last_newline = bytes.iter().rposition(|byte| *byte == b'\n');
    let (lines, rest) = bytes.split_at(last_newline.map_or(0, |end| end + 1));
    let mut result = write_stdout(lines);
    if !lines.is_empty() && !area.deferred.is_empty() {
        let deferred = std::mem::take(&mut area.deferred);
        write_stderr(&deferred);
        area.mark_busy();
    }
    if result.is_ok() && !rest.is_empty() {
        result = write_stdout(rest);
    }
    area.draw();
    result
}

/// Returns the columns of the last line after `text`, which follows a line of `columns`. Escape sequences have none.
fn open_columns(columns: usize, text: &str) -> usize {
    match text.rsplit_once('\n') {
        Some((_, last)) => measure_text_width(&strip_links(last)),
        None => columns.saturating_add(measure_text_width(&strip_links(text))),
    }
}

/// Removes the start and the end of links (OSC 8).
fn strip_links(text: &str) -> String {
    let mut parts = text.split(LINK_START);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(LINK_END).map_or("", |(_, after)| after));
    }
    plain
}

/// Writes `line` to standard error, or delays it while another thread has exclusive use of the terminal. `is_shared`
/// means that standard output is on the same terminal: an incomplete line of it is ended first.
pub(super) fn eprint(line: &str, is_shared: bool) {
    let print = |line: &str| {
        let ends_line = is_shared && IS_LINE_OPEN.swap(false, Ordering::Relaxed);
        if ends_line {
            write_stderr(&format!("\n{line}"))
        } else {
            write_stderr(line)
        };
    };
    if !is_busy() {
        return print(line);
    }
    let mut area = STATUS_AREA.lock();
    match area.exclusive_user {
        Some((owner, _)) if owner != thread::current().id() => area.delayed.push_str(line),
        _ => {
            area.clear();
            // The line of standard output ends here.
            let deferred = std::mem::take(&mut area.deferred);
            print(&(deferred + line));
            area.mark_busy();
            area.draw();
        }
    }
}

/// Like [`eprint`], but waits for the end of an incomplete line of standard output.
pub(super) fn eprint_between_lines(line: &str, is_shared: bool) {
    if !(is_shared && IS_LINE_OPEN.load(Ordering::Relaxed)) {
        return eprint(line, is_shared);
    }
    let mut area = STATUS_AREA.lock();
    area.deferred.push_str(line);
    area.mark_busy();
}

/// The time for which threads of this process have had exclusive use of the terminal.
pub(super) fn exclusive_time() -> Duration {
    STATUS_AREA.lock().exclusive_time
}

/// Runs `work` with exclusive use of the terminal. Calls from other threads wait for it; nested calls are allowed.
pub(super) fn with_exclusive_use<T>(work: impl FnOnce() -> T) -> T {
    /// Releases the terminal, also after a panic.
    struct ExclusiveUse(Instant);

    impl Drop for ExclusiveUse {
        fn drop(&mut self) {
            let mut area = STATUS_AREA.lock();
            area.exclusive_user = match area.exclusive_user.take() {
                Some((owner, depth)) if depth > 1 => Some((owner, depth - 1)),
                _ => None,
            };
            if area.exclusive_user.is_none() {
                area.exclusive_time += self.0.elapsed();
                let delayed = std::mem::take(&mut area.delayed);
                write_stderr(&delayed);
                area.draw();
            }
            area.mark_busy();
        }
    }

    let current_thread = thread::current().id();
    let mut area = STATUS_AREA.lock();
    let depth = loop {
        match area.exclusive_user {
            None => break 1,
            Some((owner, depth)) if owner == current_thread => break depth + 1,
            Some(_) => CHANGED.wait(&mut area),
        }
    };
    area.clear();
    area.exclusive_user = Some((current_thread, depth));
    area.mark_busy();
    drop(area);
    let exclusive_use = ExclusiveUse(Instant::now());
    let output = work();
    drop(exclusive_use);
    output
}

#[cfg(test)]
mod tests {
    use super::{exclusive_time, open_columns, with_exclusive_use};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn columns_are_those_that_are_seen() {
        for (before, text, expect) in [
            (3, "ab", 5),
            (3, "ab\nc", 1),
            (0, "\u{1b}[1mbold\u{1b}[0m 日本", 9),
            (0, "\u{1b}]8;;https://a.example/\u{1b}\\\u{1b}[4mlink\u{1b}[0m\u{1b}]8;;\u{1b}\\)", 5),
        ] {
            assert_eq!(open_columns(before, text), expect, "{text:?}");
        }
    }

    #[test]
    fn the_time_of_exclusive_use_adds_up() {
        let least = Duration::from_millis(2);
        let before = exclusive_time();
        for _ in 0..2 {
            let started = Instant::now();
            with_exclusive_use(|| {
                with_exclusive_use(|| {
                    while started.elapsed() < least {
                        thread::yield_now();
                    }
                });
            });
        }
        assert!(exclusive_time() - before >= least);
    }

    #[test]
    fn exclusive_use_is_reentrant() {
        let is_over = AtomicBool::new(false);
        let (send, receive) = mpsc::channel();
        thread::scope(|scope| {
            with_exclusive_use(|| {
                let is_over = &is_over;
                let other = move || {
                    send.send(()).unwrap();
                    with_exclusive_use(|| assert!(is_over.load(Ordering::SeqCst)));
                };
                scope.spawn(other);
                receive.recv().unwrap();
                let within = with_exclusive_use(|| with_exclusive_use(|| 7));
                assert_eq!(within, 7);
                is_over.store(true, Ordering::SeqCst);
            });
        });
        // Released after a panic as well.
        let broken = std::panic::catch_unwind(|| with_exclusive_use(|| panic!("on purpose")));
        assert!(broken.is_err());
        thread::scope(|scope| scope.spawn(|| with_exclusive_use(|| ())).join().unwrap());
    }
}
