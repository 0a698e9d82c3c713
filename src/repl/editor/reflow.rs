//! Keeps the line that is being edited in its place when the width of the window changes.
//!
//! Most terminals reflow their rows then, and the cursor with them. `rustyline` clears as many rows as the line had
//! before: it would erase output above the line, or leave rows of the line. So before `rustyline` redraws the line, the
//! cursor is moved to where it would be without the reflow.

use nanobot_os::env::Env;
use nanobot_os::terminal::{move_cursor_up, stderr_width};
use std::cell::{Cell, RefCell};
use unicode_width::UnicodeWidthStr;

/// Follows the width of the window while a line is being edited.
#[derive(Debug)]
pub(super) struct WidthTracker {
    /// True if the terminal reflows its rows.
    reflows: bool,
    /// The last width in columns.
    columns: Cell<usize>,
    prompt: RefCell<String>,
}

impl WidthTracker {
    pub(super) fn new(reflows: bool) -> Self {
        Self { reflows, columns: Cell::new(0), prompt: RefCell::default() }
    }

    /// Begins a line after `prompt`.
    pub(super) fn start(&self, prompt: &str) {
        prompt.clone_into(&mut self.prompt.borrow_mut());
        self.columns.set(stderr_width());
    }

    /// Called before the line is drawn; `before_cursor` is its text before the cursor.
    pub(super) fn follow(&self, before_cursor: &str) {
        let columns = stderr_width();
        let old = self.columns.replace(columns);
        if old == columns || !self.reflows {
            return;
        }
        let text = format!("{}{before_cursor}", self.prompt.borrow());
        let (old_row, is_full) = cursor_row(&text, old);
        let (new_row, _) = cursor_row(&text, columns);
        // After a full row `rustyline` has written a line end, which is not reflowed.
        let new_row = new_row + usize::from(is_full);
        move_cursor_up(new_row.cast_signed() - old_row.cast_signed());
    }

    /// True if the text up to the cursor takes more than a row. Then all of it must be drawn, not only a new character: a
    /// full row ends with a line end, which keeps the rows from being reflowed as one line.
    pub(super) fn is_wrapped(&self, before_cursor: &str) -> bool {
        let text = format!("{}{before_cursor}", self.prompt.borrow());
        cursor_row(&text, self.columns.get()).0 > 0
    }
}

/// True if the terminal reflows its rows when its width changes.
pub(super) fn is_reflowing(env: &Env) -> bool {
    let term = env.get("TERM").unwrap_or_default();
    let is_fixed = env.get("XTERM_VERSION").is_some()
        || ["linux", "rxvt", "screen"].iter().any(|prefix| term.starts_with(prefix));
    env.get("TMUX").is_some() || !is_fixed
}

/// Returns the row of the cursor after `text`, counted from 0, in a window of `columns`, and true if the row before it is
/// full.
pub(super) fn cursor_row(text: &str, columns: usize) -> (usize, bool) {
    let mut row = 0;
    let mut is_full = false;
    for (number, line) in text.split('\n').enumerate() {
        row += usize::from(number > 0);
        let mut column = 0;
        for letter in line.chars() {
            let width = letter.encode_utf8(&mut [0; 4]).width();
            if column + width > columns {
                (row, column) = (row + 1, 0);
            }
            column += width;
        }
        is_full = column == columns;
        row += usize::from(is_full);
    }
    (row, is_full)
}

#[cfg(test)]
mod tests {
    use super::{cursor_row, is_reflowing};

    #[test]
    fn rows_are_counted_as_a_terminal_wraps() {
        let check = |text: &str, columns: usize, expect: usize| {
            assert_eq!(cursor_row(text, columns).0, expect, "{text:?}");
        };
        check("", 10, 0);
        check("> abc", 10, 0);
        check("> abcdefgh", 10, 1);
        check("> abcdefghi", 10, 1);
        check("> abc\nde", 10, 1);
        check("> 日本語日", 9, 1);
        check("> abcdefghijklmnopqrstuvwxyz", 10, 2);
    }

    #[test]
    fn some_terminals_do_not_reflow() {
        let check = |variables: &[(&str, &str)], expect: bool| {
            assert_eq!(is_reflowing(&variables.iter().copied().collect()), expect, "{variables:?}");
        };
        check(&[("TERM", "xterm-256color")], true);
        check(&[("TERM", "xterm"), ("XTERM_VERSION", "XTerm(390)")], false);
        check(&[("TERM", "linux")], false);
        check(&[("TERM", "screen")], false);
        check(&[("TERM", "screen"), ("TMUX", "/tmp/tmux")], true);
    }
}
