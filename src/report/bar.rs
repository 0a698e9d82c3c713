//! A bar for work that may take long: how much of it is done, and what it is at. On a terminal only.
//!
//! The crate indicatif counts and words it; what it draws is caught, and stands at the foot of the terminal, where nothing
//! else that is printed gets in its way.

use crate::sys::terminal::{Row, Terminal};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Work that is done by then needs no bar.
const PATIENCE: Duration = Duration::from_millis(200);
/// What it looks like.
const LOOK: &str = "  {bar:24} {human_pos}/{human_len}  {elapsed}  {msg}";
/// The columns that it is told of: it is cut where the window ends.
const WIDTH: u16 = 200;

/// Shows how far a job is, until it is dropped.
pub struct Bar {
    terminal: Terminal,
    /// `None` where nobody would see it.
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A job of so many parts.
    pub fn new(terminal: Terminal, quiet: bool, total: usize) -> Self {
        let bar = (terminal.err && !quiet && total > 0).then(|| {
            let (bar, drawn) = bar(total as u64);
            let seen = bar.clone();
            terminal.show_below(Some(Box::new(move || rows(&seen, &drawn, seen.elapsed()))));
            bar
        });
        Self { terminal, bar }
    }

    /// It is at `what` now.
    pub fn at(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
        }
    }

    /// So many more parts are done.
    pub fn add(&self, parts: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(parts as u64);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.bar.is_some() {
            self.terminal.show_below(None);
        }
    }
}

/// A bar, and what it draws.
fn bar(total: u64) -> (ProgressBar, Drawn) {
    let drawn = Drawn::default();
    let target = ProgressDrawTarget::term_like(Box::new(drawn.clone()));
    let bar = ProgressBar::with_draw_target(Some(total), target);
    let style = ProgressStyle::with_template(LOOK).expect("it is a template");
    bar.set_style(style.progress_chars("━╸─"));
    (bar, drawn)
}

/// What stands below after `elapsed`.
fn rows(bar: &ProgressBar, drawn: &Drawn, elapsed: Duration) -> Vec<Row> {
    if elapsed < PATIENCE {
        return Vec::new();
    }
    bar.tick();
    vec![Row::of(drawn.text().trim_end())]
}

/// What would be on a terminal of one line.
#[derive(Clone, Debug, Default)]
struct Drawn(Arc<Mutex<String>>);

impl Drawn {
    fn text(&self) -> MutexGuard<'_, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TermLike for Drawn {
    fn width(&self) -> u16 {
        WIDTH
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
        self.text().push_str(text);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.text().clear();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{bar, rows};
    use std::time::Duration;

    #[test]
    fn a_bar_comes_late_and_never_overflows() {
        let check = |millis: u64, done: u64, expect: &[&str]| {
            let (bar, drawn) = bar(1200);
            bar.set_message("work:it");
            bar.inc(done);
            // Twice is the same once more.
            for _ in 0..2 {
                let rows = rows(&bar, &drawn, Duration::from_millis(millis));
                let rows: Vec<String> = rows.iter().map(|row| row.text()).collect();
                assert_eq!(rows, expect);
            }
        };
        let full = |count: usize| "━".repeat(count);
        check(100, 0, &[]);
        let some = format!("  {}╸{} 300/1,200  0s  work:it", full(6), "─".repeat(17));
        check(2000, 300, &[&some]);
        let all = format!("  {} 9,999/1,200  0s  work:it", full(24));
        check(2000, 9999, &[&all]);
    }
}
