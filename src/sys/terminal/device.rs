//! The properties of standard output and standard error: terminal, colour, size.

use std::io::IsTerminal;

/// The two output streams and their properties.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// True if standard output is a terminal.
    pub out: bool,
    /// True if standard error is a terminal that can show a spinner.
    pub err: bool,
    /// True if standard output is a terminal that can show more than plain text.
    pub rich: bool,
    /// True if colour may be used on standard error.
    pub color: bool,
}

impl Terminal {
    /// Inspects the streams. `color` is the user's explicit choice, if any; `no_color` and `dumb` come from the
    /// environment.
    pub fn probe(color: Option<bool>, no_color: bool, dumb: bool) -> Self {
        let out = std::io::stdout().is_terminal();
        let err = std::io::stderr().is_terminal() && !dumb;
        console::set_colors_enabled(color.unwrap_or(out && !dumb && !no_color));
        let color = color.unwrap_or(err && !no_color);
        console::set_colors_enabled_stderr(color);
        Self {
            out,
            err,
            rich: out && !dumb,
            color,
        }
    }

    /// Returns the width of standard output in columns, 80 if unknown; `None` if it is not a terminal.
    pub fn width(self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let columns = size.map_or(0, |size| size.ws_col.into());
        self.out.then_some(if columns == 0 { 80 } else { columns })
    }

    /// Returns the height of standard output in rows; 24 if unknown.
    pub fn height(self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        match size.map_or(0, |size| size.ws_row.into()) {
            0 => 24,
            columns => columns,
        }
    }

    /// True if all three standard streams are terminals, so that a user can type and read.
    pub fn converses(self) -> bool {
        self.out && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}
