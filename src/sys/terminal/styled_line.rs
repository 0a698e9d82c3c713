//! A styled line for standard error, which can be truncated to the window's width.

use super::sanitize::{redact_and_sanitize, sanitize};
use crate::sys::secret;
use console::{Style, measure_text_width, truncate_str};

/// Minimum width of a part that is shortened, in columns.
const MIN_SHRUNK_COLUMNS: usize = 8;

/// A line of styled parts. Its text may be untrusted: it is escaped when written.
#[derive(Clone, Debug, Default)]
pub struct StyledLine {
    spans: Vec<StyledSpan>,
}

#[derive(Clone, Debug)]
struct StyledSpan {
    text: String,
    style: Style,
    /// True if this part is shortened when the line is too long.
    is_shrinkable: bool,
}

impl StyledLine {
    /// Creates a line of unstyled text.
    pub fn new(text: impl Into<String>) -> Self {
        Self::default().plain(text)
    }

    /// Appends unstyled text.
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.styled(text, Style::new())
    }

    /// Appends dimmed text.
    #[must_use]
    pub fn dim(self, text: impl Into<String>) -> Self {
        self.styled(text, Style::new().dim())
    }

    /// Appends text in `style`.
    #[must_use]
    pub fn styled(mut self, text: impl Into<String>, style: Style) -> Self {
        self.spans.push(StyledSpan {
            text: text.into(),
            style: style.for_stderr(),
            is_shrinkable: false,
        });
        self
    }

    /// Appends unstyled text that is shortened first if the line is too long, so that the text after it stays visible.
    #[must_use]
    pub fn shrinkable(mut self, text: impl Into<String>) -> Self {
        self = self.plain(text);
        self.spans
            .iter_mut()
            .rev()
            .take(1)
            .for_each(|part| part.is_shrinkable = true);
        self
    }

    /// Returns the text without styles.
    pub fn text(&self) -> String {
        self.spans.iter().map(|part| part.text.as_str()).collect()
    }

    /// Formats the line for a decision of the user: escaped and complete. Only known keys are redacted, and nothing
    /// that merely looks like a key, since that could hide other text.
    pub(super) fn render_exact(&self) -> String {
        let part = |part: &StyledSpan| {
            let text = sanitize(&secret::redact_known(&part.text));
            part.style.apply_to(text).to_string()
        };
        self.spans.iter().map(part).collect()
    }

    /// Formats the line: escaped, redacted, on one line, with styles; truncated to fewer than `width` columns, if
    /// given. The last column stays free, since some terminals wrap there.
    pub(super) fn render(&self, width: Option<usize>) -> String {
        let clean =
            |part: &StyledSpan| redact_and_sanitize(&part.text.replace(['\n', '\r', '\t'], " "));
        let mut texts: Vec<String> = self.spans.iter().map(clean).collect();
        let columns = width.map_or(usize::MAX, |width| width.saturating_sub(1));
        let total_width: usize = texts.iter().map(|text| measure_text_width(text)).sum();
        let giving = self.spans.iter().position(|part| part.is_shrinkable);
        if let Some(at) = giving.filter(|_| total_width > columns) {
            let own = measure_text_width(&texts[at]);
            let rest = own
                .saturating_sub(total_width - columns)
                .max(MIN_SHRUNK_COLUMNS);
            texts[at] = truncate_str(&texts[at], rest, "…").into_owned();
        }
        let mut line = String::new();
        let mut left = columns;
        for (text, part) in texts.iter().zip(&self.spans) {
            // Truncated before styling, since escape sequences must not count as width.
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
    use super::StyledLine;
    use console::{Style, measure_text_width};

    #[test]
    fn a_line_is_truncated_and_keeps_its_end() {
        let row = |text: &str| StyledLine::new("✓ read ").shrinkable(text).plain("  12 ms");
        let check = |text: &str, width: usize, expect: &str| {
            let line = row(text).render(Some(width));
            assert_eq!(line, expect, "{text:?}");
            assert!(measure_text_width(&line) < width);
        };
        check("notes.md", 80, "✓ read notes.md  12 ms");
        check("a/very/long/name.md", 25, "✓ read a/very/lo…  12 ms");
        // Wide characters take two columns.
        check("文書文書文書文書", 25, "✓ read 文書文書…  12 ms");
        check("a\nb\tc", 80, "✓ read a b c  12 ms");
        check("\u{1b}[2J", 80, "✓ read \\u{1b}[2J  12 ms");
        // If that is not enough, the end of the line is cut.
        check("a/very/long/name.md", 12, "✓ read a/v…");
        assert_eq!(row("x").text(), "✓ read x  12 ms");
        // Escape sequences take no columns.
        let red = Style::new().red().force_styling(true);
        let line = StyledLine::new("a ").styled("red", red).plain(" end");
        let line = |width| line.render(Some(width));
        assert_eq!(line(10), "a \u{1b}[31mred\u{1b}[0m end");
        assert_eq!(line(8), "a \u{1b}[31mred\u{1b}[0m …");
    }
}
