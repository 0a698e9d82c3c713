//! Styled text as a sequence of spans. The mapping from looks to colours is left to the caller.

/// The style of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct TextStyle {
    pub bold: bool,
    pub italic: bool,
    pub struck: bool,
    pub code: bool,
    /// An address.
    pub link: bool,
    /// Decoration that is not part of the text: bars, rules, labels.
    pub faint: bool,
}

impl TextStyle {
    pub(super) const FAINT: Self = Self {
        faint: true,
        ..Self::PLAIN
    };
    pub(super) const CODE: Self = Self {
        code: true,
        ..Self::PLAIN
    };
    pub(super) const BOLD: Self = Self {
        bold: true,
        ..Self::PLAIN
    };
    pub(super) const PLAIN: Self = Self {
        bold: false,
        italic: false,
        struck: false,
        code: false,
        link: false,
        faint: false,
    };
}

/// Text of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Span {
    pub style: TextStyle,
    pub text: String,
}

/// The output, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanBuffer(Vec<Span>);

impl SpanBuffer {
    pub(super) fn add(&mut self, look: TextStyle, text: &str) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == look => last.text.push_str(text),
            _ => self.0.push(Span {
                style: look,
                text: text.to_owned(),
            }),
        }
    }

    pub(super) fn add_all(&mut self, spans: &[Span]) {
        spans
            .iter()
            .for_each(|span| self.add(span.style, &span.text));
    }

    /// Ends the row, without a look on the line end.
    pub(super) fn end_row(&mut self) {
        self.add(TextStyle::PLAIN, "\n");
    }

    /// The length in bytes.
    pub(super) fn length(&self) -> usize {
        self.0.iter().map(|span| span.text.len()).sum()
    }

    /// Splits off the text after the first `bytes` bytes.
    pub(super) fn split_off(&mut self, bytes: usize) -> Self {
        let mut tail = Self::default();
        let mut left = bytes;
        for span in &mut self.0 {
            let at = left.min(span.text.len());
            left -= at;
            tail.add(span.style, &span.text.split_off(at));
        }
        self.0.retain(|span| !span.text.is_empty());
        tail
    }

    pub(super) fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.0)
    }
}
