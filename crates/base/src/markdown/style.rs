//! The style of text, for any output.

use super::code::CodeToken;

/// The style of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// Strong emphasis.
    pub bold: bool,
    /// Emphasis.
    pub italic: bool,
    /// Struck through.
    pub struck: bool,
    /// Verbatim.
    pub code: bool,
    /// An address.
    pub link: bool,
    /// Decoration that is not part of the text: bars, rules, labels.
    pub faint: bool,
    /// A token of fenced code, if the language is known.
    pub token: Option<CodeToken>,
}

impl TextStyle {
    /// Decoration.
    pub const FAINT: Self = Self { faint: true, ..Self::PLAIN };
    /// Verbatim text.
    pub const CODE: Self = Self { code: true, ..Self::PLAIN };
    /// Strong emphasis.
    pub const BOLD: Self = Self { bold: true, ..Self::PLAIN };
    /// Text without any style.
    pub const PLAIN: Self = Self {
        bold: false,
        italic: false,
        struck: false,
        code: false,
        link: false,
        faint: false,
        token: None,
    };

    /// A token of fenced code.
    pub const fn token(token: CodeToken) -> Self {
        Self { token: Some(token), ..Self::PLAIN }
    }
}
