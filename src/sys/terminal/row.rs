//! A line of standard error that is more than plain words: parts in colours, and cut where the window ends.

use super::harmless::{harmless, shown};
use crate::sys::secret;
use console::{Style, measure_text_width, truncate_str};

/// A part that gives way is not made narrower than this.
const NARROWEST: usize = 8;

/// A line made of parts, each with its looks. What is put into it is words of anybody's.
#[derive(Clone, Debug, Default)]
pub struct Row {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    text: String,
    style: Style,
    /// It becomes shorter where the line is too long.
    gives: bool,
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
        self.parts.push(Part {
            text: text.into(),
            style: style.for_stderr(),
            gives: false,
        });
        self
    }

    /// With plain words after it that are cut first where the line is too long, so that what follows is seen.
    #[must_use]
    pub fn giving(mut self, text: impl Into<String>) -> Self {
        self = self.and(text);
        self.parts
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|part| part.gives = true);
        self
    }

    /// The words alone.
    pub fn text(&self) -> String {
        self.parts.iter().map(|part| part.text.as_str()).collect()
    }

    /// As it is to be written where somebody decides by it: harmless, and whole. Only keys that are known are left out of it,
    /// and nothing that merely looks like one: that could hide the rest.
    pub(super) fn exact(&self) -> String {
        let part = |part: &Part| {
            let text = harmless(&secret::mask(&part.text));
            part.style.apply_to(text).to_string()
        };
        self.parts.iter().map(part).collect()
    }

    /// As it is to be written: harmless, without keys, on one line, in its colours; in fewer columns than `width`, where
    /// there is one: the last column stays free, since some terminals begin a new line there.
    pub(super) fn written(&self, width: Option<usize>) -> String {
        let clean = |part: &Part| shown(&part.text.replace(['\n', '\r', '\t'], " "));
        let mut texts: Vec<String> = self.parts.iter().map(clean).collect();
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(1));
        let wide: usize = texts.iter().map(|text| measure_text_width(text)).sum();
        let giving = self.parts.iter().position(|part| part.gives);
        if let Some(at) = giving.filter(|_| wide > room) {
            let own = measure_text_width(&texts[at]);
            let rest = own.saturating_sub(wide - room).max(NARROWEST);
            texts[at] = truncate_str(&texts[at], rest, "…").into_owned();
        }
        let mut line = String::new();
        let mut left = room;
        for (text, part) in texts.iter().zip(&self.parts) {
            // Before its colours, which no width counts.
            let text = truncate_str(text, left, "…");
            line.push_str(&part.style.apply_to(&text).to_string());
            left = match left.saturating_sub(measure_text_width(&text)) {
                0 => break,
                left => left,
            };
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::Row;
    use console::{Style, measure_text_width};

    #[test]
    fn a_line_fits_its_window_and_keeps_what_comes_last() {
        let row = |text: &str| Row::of("✓ read ").giving(text).and("  12 ms");
        let check = |text: &str, width: usize, expect: &str| {
            let line = row(text).written(Some(width));
            assert_eq!(line, expect, "{text:?}");
            assert!(measure_text_width(&line) < width);
        };
        check("notes.md", 80, "✓ read notes.md  12 ms");
        check("a/very/long/name.md", 25, "✓ read a/very/lo…  12 ms");
        // Wide letters count for two.
        check("文書文書文書文書", 25, "✓ read 文書文書…  12 ms");
        check("a\nb\tc", 80, "✓ read a b c  12 ms");
        check("\u{1b}[2J", 80, "✓ read \\u{1b}[2J  12 ms");
        // Where even that is too much, its end goes.
        check("a/very/long/name.md", 12, "✓ read a/v…");
        assert_eq!(row("x").text(), "✓ read x  12 ms");
        // Colours take no room.
        let red = Style::new().red().force_styling(true);
        let line = Row::of("a ").styled("red", red).and(" end");
        let line = |width| line.written(Some(width));
        assert_eq!(line(10), "a \u{1b}[31mred\u{1b}[0m end");
        assert_eq!(line(8), "a \u{1b}[31mred\u{1b}[0m …");
    }
}
