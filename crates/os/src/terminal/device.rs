//! The properties of standard output and standard error: terminal, colour, size.

use crate::env::Env;
use std::io::IsTerminal;

/// The two output streams and their properties.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// True if standard output is a terminal.
    pub stdout_is_tty: bool,
    /// True if standard error is a terminal that can show a spinner.
    pub stderr_is_tty: bool,
    /// True if standard error is a terminal that shows plain lines only.
    pub stderr_is_plain_tty: bool,
    /// True if standard output is a terminal that can show more than plain text.
    pub stdout_is_rich: bool,
}

impl Terminal {
    /// Inspects the streams. `color` is the user's explicit choice, if any; `dumb` is true for plain text only.
    pub fn probe(color: Option<bool>, env: &Env, dumb: bool) -> Self {
        let no_color = env.get("NO_COLOR").is_some();
        let is_forced = env.get("CLICOLOR_FORCE").is_some();
        let stdout_is_tty = std::io::stdout().is_terminal();
        let stderr_is_any_tty = std::io::stderr().is_terminal();
        let stderr_is_tty = stderr_is_any_tty && !dumb;
        let stdout_color = color.unwrap_or(stdout_is_tty && !dumb && !no_color);
        let stderr_color = color.unwrap_or(stderr_is_tty && !no_color);
        // The library determines its default before it takes another value, with two system calls for each stream. For a
        // stream that is not a terminal the default is no colour, unless `CLICOLOR_FORCE` is set.
        if stdout_color || stdout_is_tty || is_forced {
            console::set_colors_enabled(stdout_color);
        }
        if stderr_color || stderr_is_any_tty || is_forced {
            console::set_colors_enabled_stderr(stderr_color);
        }
        Self {
            stdout_is_tty,
            stderr_is_tty,
            stderr_is_plain_tty: stderr_is_any_tty && dumb,
            stdout_is_rich: stdout_is_tty && !dumb,
        }
    }

    /// Returns the width of standard output in columns, 80 if unknown; `None` if it is not a terminal.
    pub fn stdout_width(self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let columns = size.map_or(0, |size| size.ws_col.into());
        self.stdout_is_tty.then_some(if columns == 0 { 80 } else { columns })
    }

    /// Returns the height of standard output in rows; 24 if unknown.
    pub fn stdout_height(self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        match size.map_or(0, |size| size.ws_row.into()) {
            0 => 24,
            rows => rows,
        }
    }

    /// True if all three standard streams are terminals, so that a user can type and read.
    pub fn is_interactive() -> bool {
        std::io::stdout().is_terminal()
            && std::io::stdin().is_terminal()
            && std::io::stderr().is_terminal()
    }
}

/// Returns the width of standard error in columns; 80 if unknown.
pub fn stderr_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    match size.map_or(0, |size| size.ws_col.into()) {
        0 => 80,
        columns => columns,
    }
}
