//! Wraps words into rows of limited width.
//!
//! Only the current word is buffered until it ends: a row grows with every word, and finished output never changes.

use super::char_width;
use super::style::{Span, SpanBuffer, StyledRun};
use nanobot_base::markdown::style::TextStyle;
use std::sync::Arc;

/// The rows under construction.
#[derive(Debug, Default)]
pub(super) struct RowWrapper {
    /// Columns of a row.
    pub(super) width: usize,
    pub(super) output: SpanBuffer,
    /// Prefix of the first row, and of each row that follows it.
    first_prefix: Vec<Span>,
    prefix: Vec<Span>,
    /// The columns used in this row; `None` while it is empty.
    column: Option<usize>,
    /// Spaces between the last word and the next one.
    gap: Option<(TextStyle, usize)>,
    current_word: SpanBuffer,
    word_width: usize,
    /// Bytes and columns of the word before the characters that must stay with the last one.
    break_point: (usize, usize),
    last: Option<char>,
    /// The address that the current text is a part of.
    link: Option<Arc<str>>,
}

impl RowWrapper {
    pub(super) fn with_width(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    /// Starts new rows with the prefix of the first one, and that of the others.
    pub(super) fn set_prefixes(&mut self, first_prefix: Vec<Span>, prefix: Vec<Span>) {
        (self.first_prefix, self.prefix) = (first_prefix, prefix);
    }

    pub(super) fn push_run(&mut self, run: StyledRun<'_>) {
        self.link = run.is_link.then(|| Arc::from(run.text));
        self.push_text(run.style, run.text);
        self.link = None;
    }

    pub(super) fn push_text(&mut self, style: TextStyle, text: &str) {
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let mut length = self.push_ascii(style, rest);
            if length == 0 {
                self.push_char(style, character);
                length = character.len_utf8();
            }
            rest = &rest[length..];
        }
    }

    /// Adds the start of `text` to the current word at once, as far as it is made of ASCII letters that fit. Returns their
    /// number.
    fn push_ascii(&mut self, style: TextStyle, text: &str) -> usize {
        if self.last.is_some_and(|last| !last.is_ascii()) {
            return 0;
        }
        let free_columns = self.text_columns().saturating_sub(self.word_width);
        let count = text.bytes().take(free_columns).take_while(u8::is_ascii_graphic).count();
        let Some(last) = text[..count].chars().next_back() else {
            return 0;
        };
        self.current_word.add_linked(style, &text[..count], self.link.as_ref());
        self.word_width += count;
        self.break_point = (self.current_word.length() - 1, self.word_width - 1);
        self.last = Some(last);
        count
    }

    fn push_char(&mut self, style: TextStyle, character: char) {
        if matches!(character, ' ' | '\t') {
            self.end_word();
            if self.column.is_some() {
                // Consecutive spaces collapse, except in code.
                let count = match self.gap {
                    Some((_, count)) if style.code => count,
                    _ => 0,
                };
                self.gap = Some((style, count + 1));
            }
            return;
        }
        let width = char_width::char_columns(self.last, character);
        if self.last.is_some_and(|last| char_width::may_break(last, character)) {
            self.end_word();
        }
        if !self.last.is_some_and(|last| char_width::joins(last, character)) {
            self.break_point = (self.current_word.length(), self.word_width);
        }
        if width > 0 && self.word_width + width > self.text_columns() {
            self.break_word();
        }
        let buffer = &mut [0; 4];
        self.current_word.add_linked(style, character.encode_utf8(buffer), self.link.as_ref());
        self.word_width += width;
        self.last = Some(character);
    }

    /// Breaks a word longer than a row, but keeps the characters that belong to its last one together.
    fn break_word(&mut self) {
        let (bytes, columns) = std::mem::take(&mut self.break_point);
        if columns == 0 {
            return self.end_word();
        }
        let tail = self.current_word.split_off(bytes);
        let width = std::mem::replace(&mut self.word_width, columns) - columns;
        let last = self.last;
        self.end_word();
        (self.current_word, self.word_width, self.last) = (tail, width, last);
    }

    /// True if the next row has a different prefix than the others.
    pub(super) fn has_own_first_prefix(&self) -> bool {
        self.first_prefix != self.prefix
    }

    /// The columns available for words.
    pub(super) fn text_columns(&self) -> usize {
        self.width.saturating_sub(spans_columns(&self.prefix)).max(2)
    }

    fn end_word(&mut self) {
        let width = std::mem::take(&mut self.word_width);
        self.last = None;
        if self.current_word.is_empty() {
            return;
        }
        let gap = self.gap.take();
        let gap_columns = gap.map_or(0, |(_, count)| count);
        if let Some(column) = self.column
            && column + gap_columns + width > self.text_columns()
        {
            self.end_row();
        }
        match (self.column, gap) {
            (None, _) => self.output.add_all(&self.first_prefix),
            (_, Some((style, 1))) => self.output.add(style, " "),
            (_, Some((style, count))) => self.output.add(style, &" ".repeat(count)),
            _ => {}
        }
        self.column = Some(self.column.map_or(0, |column| column + gap_columns) + width);
        self.output.append(&mut self.current_word);
    }

    /// Ends the text. A row without text still has its prefix.
    pub(super) fn end(&mut self) {
        self.end_word();
        if self.column.is_none() {
            self.output.add_all(&trim_spans(&self.first_prefix));
        }
        self.end_row();
        self.gap = None;
    }

    /// Ends the row if it has text; the text continues in the next one.
    pub(super) fn end_started_row(&mut self) {
        if self.column.is_some() {
            self.end_row();
            self.gap = None;
        }
    }

    /// Adds a finished row.
    pub(super) fn push_row(&mut self, row: &[Span]) {
        match row {
            [] => self.output.add_all(&trim_spans(&self.first_prefix)),
            _ => {
                self.output.add_all(&self.first_prefix);
                self.output.add_all(row);
            }
        }
        self.end_row();
    }

    fn end_row(&mut self) {
        self.output.end_row();
        self.first_prefix.clone_from(&self.prefix);
        self.column = None;
    }
}

pub(super) fn spans_columns(spans: &[Span]) -> usize {
    spans.iter().map(|span| char_width::text_columns(&span.text)).sum()
}

/// Removes trailing spaces.
pub(super) fn trim_spans(spans: &[Span]) -> Vec<Span> {
    let mut spans = spans.to_vec();
    while let Some(last) = spans.last_mut() {
        last.text.truncate(last.text.trim_end().len());
        if !last.text.is_empty() {
            break;
        }
        spans.pop();
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::{RowWrapper, TextStyle};

    fn check(text: &str, width: usize, expect: &str) {
        let mut rows = RowWrapper::with_width(width);
        rows.push_text(TextStyle::PLAIN, text);
        rows.end();
        let spans = rows.output.take();
        let shown: String = spans.into_iter().map(|span| span.text).collect();
        assert_eq!(shown, format!("{expect}\n"));
    }

    #[test]
    fn rows_are_filled_by_columns() {
        check("one two  three", 7, "one two\nthree");
        check("one two three", 6, "one\ntwo\nthree");
        check("abcdefghij k", 4, "abcd\nefgh\nij k");
        check("日本語の文章です。", 8, "日本語の\n文章で\nす。");
        check("ab日本", 5, "ab日\n本");
        check("（日本）語", 6, "（日\n本）語");
        check("cafe\u{301} e\u{301}e\u{301}", 4, "cafe\u{301}\ne\u{301}e\u{301}");
        check("a👩\u{200d}🔬b", 5, "a👩\u{200d}🔬\nb");
        check("👍🏽👍🏽", 5, "👍🏽\n👍🏽");
        check("❤\u{fe0f}❤\u{fe0f}", 3, "❤\u{fe0f}\n❤\u{fe0f}");
        check("🇩🇪 🇫🇷", 4, "🇩🇪\n🇫🇷");
        check("a\u{a0}b c", 3, "a\u{a0}b\nc");
    }
}
