//! A bar for work that may take long: how much of it is done, and what it is at. On a terminal only.

use super::progress::words::{grouped, running};
use crate::sys::terminal::{Row, Terminal};
use console::Style;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Work that is done by then needs no bar.
const PATIENCE: Duration = Duration::from_millis(200);
/// Columns of the bar itself.
const WIDTH: u64 = 24;

/// Shows how far a job is, until it is dropped.
pub struct Bar {
    terminal: Terminal,
    /// `None` where nobody would see it.
    state: Option<Arc<Mutex<State>>>,
}

#[derive(Debug)]
struct State {
    began: Instant,
    done: u64,
    total: u64,
    what: String,
}

impl Bar {
    /// A job of so many parts.
    pub fn new(terminal: Terminal, quiet: bool, total: usize) -> Self {
        let state = (terminal.err && !quiet && total > 0).then(|| {
            Arc::new(Mutex::new(State {
                began: Instant::now(),
                done: 0,
                total: total as u64,
                what: String::new(),
            }))
        });
        if let Some(state) = state.clone() {
            terminal.show_below(Some(Box::new(move || lock(&state).rows(Instant::now()))));
        }
        Self { terminal, state }
    }

    /// It is at `what` now.
    pub fn at(&self, what: &str) {
        if let Some(state) = &self.state {
            what.clone_into(&mut lock(state).what);
        }
    }

    /// So many more parts are done.
    pub fn add(&self, parts: usize) {
        if let Some(state) = &self.state {
            lock(state).done += parts as u64;
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.state.is_some() {
            self.terminal.show_below(None);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn rows(&self, now: Instant) -> Vec<Row> {
        let elapsed = now.saturating_duration_since(self.began);
        if elapsed < PATIENCE {
            return Vec::new();
        }
        let done = self.done.min(self.total);
        let full = (done * WIDTH / self.total) as usize;
        let (full, empty) = ("━".repeat(full), "━".repeat(WIDTH as usize - full));
        let row = Row::of("  ")
            .styled(full, Style::new().cyan())
            .dim(empty)
            .and(format!(" {}/{}", grouped(done), grouped(self.total)))
            .dim(format!("  {}  ", running(elapsed)))
            .giving(&self.what);
        vec![row]
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use std::time::{Duration, Instant};

    #[test]
    fn a_bar_comes_late_and_never_overflows() {
        let began = Instant::now();
        let check = |millis: u64, done: u64, expect: &[&str]| {
            let what = "work:it".to_owned();
            let state = State {
                began,
                done,
                total: 1200,
                what,
            };
            let rows = state.rows(began + Duration::from_millis(millis));
            let rows: Vec<String> = rows.iter().map(|row| row.text()).collect();
            assert_eq!(rows, expect);
        };
        let bar = "━".repeat(24);
        check(100, 0, &[]);
        check(2000, 300, &[&format!("  {bar} 300/1,200  2 s  work:it")]);
        check(2000, 9999, &[&format!("  {bar} 1,200/1,200  2 s  work:it")]);
    }
}
