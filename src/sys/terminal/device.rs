//! What standard output and standard error are connected to.

use std::io::IsTerminal;

/// The two streams and what they are connected to.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub out: bool,
    /// Standard error is a terminal that can show a spinner.
    pub err: bool,
    /// Standard output is a terminal that can show more than the text as it is.
    pub rich: bool,
    /// Colour may be used on standard error.
    pub color: bool,
}

impl Terminal {
    /// `color` is the user's word, where there is one; `no_color` and `dumb` are the environment's.
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

    /// The columns of standard output, where that is a terminal; 80 where it does not say.
    pub fn width(self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let told = size.map_or(0, |size| size.ws_col.into());
        self.out.then_some(if told == 0 { 80 } else { told })
    }

    /// The rows of standard output; 24 where it does not say.
    pub fn height(self) -> usize {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        match size.map_or(0, |size| size.ws_row.into()) {
            0 => 24,
            told => told,
        }
    }

    /// Whether a person sits there, who types and sees what comes of it.
    pub fn converses(self) -> bool {
        self.out && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}
