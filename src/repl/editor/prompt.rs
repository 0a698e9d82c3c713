//! The text before a line that is being entered.

use nanobot_os::terminal::sanitize;

/// The text before a line that is being entered.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    pub text: &'a str,
    /// True if it is shown in red.
    pub is_warning: bool,
}

impl Prompt<'_> {
    /// The text without control characters.
    pub(super) fn plain(self) -> String {
        sanitize(self.text)
    }

    /// The text in its style.
    pub(super) fn styled(self) -> String {
        let style = console::style(self.plain()).bold();
        let style = if self.is_warning { style.red() } else { style };
        style.to_string()
    }
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Self { text, is_warning: false }
    }
}
