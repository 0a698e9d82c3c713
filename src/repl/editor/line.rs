//! The result of reading a line.

/// The result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputLine {
    /// The text, without the line ending.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Shift-Tab, for another profile. The text is not finished.
    NextProfile(String),
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}
