//! A progress bar for work that may take long. It shows the completed share and the current item, or a spinner if the share is
//! unknown, on a terminal only.
//!
//! The crate indicatif counts, formats and times it. Its draw target is the status area of the terminal, which keeps
//! the bar below all other output and neutralises escape sequences in its text.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use nanobot_os::terminal::{Painter, StyledLine, Terminal};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Work that finishes within this time gets no bar.
const SHOW_DELAY: Duration = Duration::from_millis(200);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const REDRAWS_PER_SECOND: u8 = 10;
const TEMPLATE: &str = "  {bar:24} {human_pos}/{human_len}  {elapsed}  {msg}";
const SPINNER_TEMPLATE: &str = "  {spinner} {msg}  {elapsed}";
/// The width of the draw target in columns. The status area truncates lines to the width of the window.
const DRAW_COLUMNS: u16 = 200;

/// Shows the progress of a job until it is dropped.
pub struct Bar(
    /// `None` if the bar would not be visible.
    Option<ProgressBar>,
);

impl Bar {
    /// Creates a bar for `total` parts.
    pub fn new(terminal: Terminal, quiet: bool, total: usize) -> Self {
        let is_visible = terminal.stderr_is_tty && !quiet && total > 0;
        Self(is_visible.then(|| {
            let bar = progress_bar(total as u64, status_line(terminal));
            bar.enable_steady_tick(REDRAW_INTERVAL);
            bar
        }))
    }

    /// Creates a spinner for work whose parts cannot be counted.
    pub fn spinner(terminal: Terminal, work: &str) -> Self {
        Self(terminal.stderr_is_tty.then(|| {
            let target = draw_target(status_line(terminal));
            let style =
                ProgressStyle::with_template(SPINNER_TEMPLATE).expect("the template is valid");
            let spinner = ProgressBar::with_draw_target(None, target).with_style(style);
            spinner.set_message(work.to_owned());
            spinner.enable_steady_tick(REDRAW_INTERVAL);
            spinner
        }))
    }

    /// Sets the current item.
    pub fn set_item(&self, item: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(item.to_owned());
        }
    }

    /// Adds `parts` to the completed ones.
    pub fn advance(&self, parts: usize) {
        if let Some(bar) = &self.0 {
            bar.inc(parts as u64);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn progress_bar(total: u64, line: impl TermLike + 'static) -> ProgressBar {
    let style = ProgressStyle::with_template(TEMPLATE).expect("the template is valid");
    let bar = ProgressBar::with_draw_target(Some(total), draw_target(line));
    bar.with_style(style.progress_chars("━╸─"))
}

fn draw_target(line: impl TermLike + 'static) -> ProgressDrawTarget {
    ProgressDrawTarget::term_like_with_hz(Box::new(line), REDRAWS_PER_SECOND)
}

/// A line in the status area of the terminal.
fn status_line(terminal: Terminal) -> impl TermLike + 'static {
    StatusLine::new(SHOW_DELAY, move |line: Option<String>| {
        terminal.set_status(
            line.map(|line| -> Painter { Box::new(move || vec![StyledLine::new(line.as_str())]) }),
        );
    })
}

/// A one-line terminal that passes its text to `show` at each flush; `None` if it is empty.
struct StatusLine<S> {
    show: S,
    started: Instant,
    /// Nothing is shown before this time has passed.
    delay: Duration,
    text: Mutex<String>,
}

impl<S: Fn(Option<String>)> StatusLine<S> {
    fn new(delay: Duration, show: S) -> Self {
        Self { show, started: Instant::now(), delay, text: Mutex::default() }
    }
}

impl<S> fmt::Debug for StatusLine<S> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("StatusLine")
    }
}

impl<S: Fn(Option<String>) + Send + Sync> TermLike for StatusLine<S> {
    fn width(&self) -> u16 {
        DRAW_COLUMNS
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.text.lock().push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.text.lock().clear();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        if self.started.elapsed() >= self.delay {
            let text = self.text.lock().trim_end().to_owned();
            (self.show)((!text.is_empty()).then_some(text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{StatusLine, progress_bar};
    use parking_lot::Mutex;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_bar_comes_late_and_never_overflows() {
        let check = |delay: Duration, done: u64, expect: Option<&str>| {
            let shown = Arc::new(Mutex::new(None));
            let line = {
                let shown = Arc::clone(&shown);
                StatusLine::new(delay, move |line| *shown.lock() = line)
            };
            let bar = progress_bar(1200, line);
            bar.inc(done);
            bar.set_message("work:it");
            // The second draw replaces the first.
            for _ in 0..2 {
                bar.force_draw();
                assert_eq!(shown.lock().as_deref(), expect);
            }
            bar.finish_and_clear();
            assert_eq!(*shown.lock(), None);
        };
        let full = |count: usize| "━".repeat(count);
        let some = format!("  {}╸{} 300/1,200  0s  work:it", full(6), "─".repeat(17));
        let all = format!("  {} 9,999/1,200  0s  work:it", full(24));
        check(Duration::MAX, 300, None);
        check(Duration::ZERO, 300, Some(&some));
        check(Duration::ZERO, 9999, Some(&all));
    }
}
