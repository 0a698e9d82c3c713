//! A line of standard error that is more than plain words: parts in colours, and cut where the window ends.

use super::shown;
use console::Style;

/// A line made of parts, each with its looks. What is put into it is words of anybody's.
#[derive(Clone, Debug, Default)]
pub struct Row {
    parts: Vec<(String, Style)>,
}

impl Row {
    /// Plain words.
    pub fn of(text: impl Into<String>) -> Self {
        Self::default().and(text)
    }

    /// With plain words after it.
    #[must_use]
    pub fn and(self, text: impl Into<String>) -> Self {
        self.styled(text, Style::new())
    }

    /// With words after it that step back.
    #[must_use]
    pub fn dim(self, text: impl Into<String>) -> Self {
        self.styled(text, Style::new().dim())
    }

    /// With words after it that look like `style`.
    #[must_use]
    pub fn styled(mut self, text: impl Into<String>, style: Style) -> Self {
        self.parts.push((text.into(), style));
        self
    }

    /// As it is to be written: harmless, without keys, on one line, in its colours.
    pub(super) fn whole(&self) -> String {
        let part = |(text, style): &(String, Style)| {
            let text = shown(&text.replace(['\n', '\r', '\t'], " "));
            style.clone().for_stderr().apply_to(text).to_string()
        };
        self.parts.iter().map(part).collect()
    }

    /// As [`Self::whole`], in fewer than `width` columns: the last one stays free, where some terminals begin a new line.
    pub(super) fn cut(&self, width: usize) -> String {
        let whole = self.whole();
        console::truncate_str(&whole, width.saturating_sub(1), "…").into_owned()
    }
}
