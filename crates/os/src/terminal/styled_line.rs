//! A styled line for standard error, which can be truncated to the window's width.

use super::sanitize::{redact_and_sanitize, sanitize};
use crate::secret;
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
    role: SpanRole,
}

/// The treatment of a part when the line is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanRole {
    Fixed,
    /// It is shortened.
    Shrinkable,
    /// It is left out if the part to shorten would otherwise get less than half of the line, or if there is none. The last such part
    /// is left out first.
    Optional,
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
            role: SpanRole::Fixed,
        });
        self
    }

    /// Appends dimmed text that is left out if the line has no room for it.
    #[must_use]
    pub fn optional(self, text: impl Into<String>) -> Self {
        self.dim(text).with_role(SpanRole::Optional)
    }

    /// Appends unstyled text that is shortened first if the line is too long, so that the text after it stays visible.
    #[must_use]
    pub fn shrinkable(self, text: impl Into<String>) -> Self {
        self.plain(text).with_role(SpanRole::Shrinkable)
    }

    /// Sets the role of the last part.
    fn with_role(mut self, role: SpanRole) -> Self {
        if let Some(span) = self.spans.last_mut() {
            span.role = role;
        }
        self
    }

    /// Returns the text without styles.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// Formats the line for a decision of the user: escaped and complete. Only known keys are redacted, and nothing
    /// that merely looks like a key, since that could hide other text.
    pub(super) fn render_exact(&self) -> String {
        let render = |span: &StyledSpan| {
            let text = sanitize(&secret::redact_known(&span.text));
            span.style.apply_to(text).to_string()
        };
        self.spans.iter().map(render).collect()
    }

    /// Formats the line: escaped, redacted, on one line, with styles; truncated to fewer than `width` columns, if
    /// given. The last column stays free, since some terminals wrap there.
    pub(super) fn render(&self, width: Option<usize>) -> String {
        let one_line =
            |span: &StyledSpan| redact_and_sanitize(&span.text.replace(['\n', '\r', '\t'], " "));
        let mut texts: Vec<String> = self.spans.iter().map(one_line).collect();
        let columns = width.map_or(usize::MAX, |width| width.saturating_sub(1));
        let shrinkable = self.spans.iter().position(|span| span.role == SpanRole::Shrinkable);
        let mut optional: Vec<usize> = (0..texts.len()).collect();
        optional.retain(|index| self.spans[*index].role == SpanRole::Optional);
        loop {
            let total_width: usize = texts.iter().map(|text| measure_text_width(text)).sum();
            if total_width <= columns {
                break;
            }
            let shrinkable_width = shrinkable.map_or(0, |index| measure_text_width(&texts[index]));
            let rest = shrinkable_width.saturating_sub(total_width - columns);
            if (shrinkable_width == 0 || rest < shrinkable_width.min(columns / 2))
                && let Some(index) = optional.pop()
            {
                texts[index].clear();
                continue;
            }
            if let Some(index) = shrinkable {
                let rest = rest.max(MIN_SHRUNK_COLUMNS);
                texts[index] = truncate_str(&texts[index], rest, "…").into_owned();
            }
            break;
        }
        let mut line = String::new();
        let mut columns_left = columns;
        for (text, span) in texts.iter().zip(&self.spans) {
            // Truncated before styling, since escape sequences have no width.
            let text = truncate_str(text, columns_left, "…");
            line.push_str(&span.style.apply_to(&text).to_string());
            columns_left = columns_left.saturating_sub(measure_text_width(&text));
            if columns_left == 0 {
                break;
            }
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
        // Optional parts are left out before half of the name is.
        let row = row("a/very/long/name.md").optional(", 9 lines").optional(", 1 KB");
        let line = |width| row.render(Some(width));
        assert_eq!(line(50), "✓ read a/very/long/name.md  12 ms, 9 lines, 1 KB");
        assert_eq!(line(48), "✓ read a/very/long/name.md  12 ms, 9 lines");
        assert_eq!(line(41), "✓ read a/very/long/name.md  12 ms");
        assert_eq!(line(33), "✓ read a/very/long/name.…  12 ms");
        // So they are if there is nothing to shorten.
        let row = StyledLine::new("✓ read").shrinkable("").optional(", 9 lines").optional(", 1 KB");
        assert_eq!(row.render(Some(20)), "✓ read, 9 lines");
        // Escape sequences take no columns.
        let red = Style::new().red().force_styling(true);
        let line = StyledLine::new("a ").styled("red", red).plain(" end");
        let line = |width| line.render(Some(width));
        assert_eq!(line(10), "a \u{1b}[31mred\u{1b}[0m end");
        assert_eq!(line(8), "a \u{1b}[31mred\u{1b}[0m …");
    }
}
