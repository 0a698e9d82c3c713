//! Colours that can be read on the background of the terminal. All are of the terminal's own scheme.
//!
//! Like the switch for colours, the background is one value of the process. It is determined when the first colour
//! depends on it.

use console::{Color, Style};
use std::sync::OnceLock;

/// The brightness of the terminal's background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    Dark,
    Light,
}

impl Background {
    /// Parses the variable `COLORFGBG`, such as `15;0`, which some terminals set: the last number is the background, one
    /// of the 16 basic colours.
    pub fn parse_colorfgbg(text: &str) -> Option<Self> {
        match text.rsplit(';').next()?.parse().ok()? {
            0..=6 | 8 => Some(Self::Dark),
            7 | 9..=15 => Some(Self::Light),
            _ => None,
        }
    }
}

/// A function that determines the background; `None` if it is unknown.
type BackgroundSource = Box<dyn Fn() -> Option<Background> + Send + Sync>;

static SOURCE: OnceLock<BackgroundSource> = OnceLock::new();
static BACKGROUND: OnceLock<Option<Background>> = OnceLock::new();

/// Sets the function that determines the background, once per process.
pub fn set_source(source: impl Fn() -> Option<Background> + Send + Sync + 'static) {
    // A later source of the same process returns the same value.
    drop(SOURCE.set(Box::new(source)));
}

fn has_background(background: Background) -> bool {
    *BACKGROUND.get_or_init(|| SOURCE.get().and_then(|source| source())) == Some(background)
}

/// The colour of code and numbers.
pub fn accent() -> Color {
    if has_background(Background::Light) { Color::Blue } else { Color::Cyan }
}

/// The colour of addresses. Blue is hard to read on black.
pub fn link() -> Color {
    if has_background(Background::Dark) { Color::Cyan } else { Color::Blue }
}

/// The style of text that needs the user's attention. Yellow is hard to read on white.
pub fn attention() -> Style {
    if has_background(Background::Light) { Style::new().magenta() } else { Style::new().yellow() }
}

/// The style of a line of a diff.
pub fn diff_line(line: &str) -> Style {
    match line.bytes().next() {
        Some(b'+') => Style::new().green(),
        Some(b'-') => Style::new().red(),
        Some(b'@') => Style::new().fg(accent()),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::Background::{self, Dark, Light};

    #[test]
    fn backgrounds_are_dark_or_light() {
        for (text, expect) in [
            ("15;0", Some(Dark)),
            ("0;default;15", Some(Light)),
            ("12;8", Some(Dark)),
            ("0;7", Some(Light)),
            ("0;default", None),
            ("0;300", None),
            ("", None),
        ] {
            assert_eq!(Background::parse_colorfgbg(text), expect, "{text:?}");
        }
    }
}
