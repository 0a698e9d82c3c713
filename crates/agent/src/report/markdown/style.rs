//! Styled text as a sequence of spans. The mapping from styles to colours is left to the caller.

use nanobot_base::markdown::inline::{self, InlineEvent};
use nanobot_base::markdown::style::TextStyle;
use std::sync::Arc;

/// Text of one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Span {
    pub style: TextStyle,
    pub text: String,
    /// The complete address. `text` is all of it or a part.
    pub link: Option<Arc<str>>,
}

/// A part of a line, of one style, before it is wrapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct StyledRun<'t> {
    pub(super) style: TextStyle,
    pub(super) text: &'t str,
    /// True if the text is an address that can be opened.
    pub(super) is_link: bool,
}

/// The prefixes of addresses that can be opened.
const LINK_SCHEMES: [&str; 2] = ["https://", "http://"];

/// The output, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanBuffer(Vec<Span>);

impl SpanBuffer {
    pub(super) fn add(&mut self, style: TextStyle, text: &str) {
        self.add_linked(style, text, None);
    }

    /// Adds text that is all or a part of the address `link`.
    pub(super) fn add_linked(&mut self, style: TextStyle, text: &str, link: Option<&Arc<str>>) {
        match self.0.last_mut() {
            _ if text.is_empty() => {}
            Some(last) if last.style == style && last.link.as_ref() == link => {
                last.text.push_str(text);
            }
            _ => self.0.push(Span { style, text: text.to_owned(), link: link.cloned() }),
        }
    }

    pub(super) fn add_all(&mut self, spans: &[Span]) {
        for span in spans {
            self.add_linked(span.style, &span.text, span.link.as_ref());
        }
    }

    /// Ends the row. The line end has no style.
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
            tail.add_linked(span.style, &span.text.split_off(at), span.link.as_ref());
        }
        self.0.retain(|span| !span.text.is_empty());
        tail
    }

    /// Moves all of `other` to the end.
    pub(super) fn append(&mut self, other: &mut Self) {
        for span in other.0.drain(..) {
            match self.0.last() {
                Some(last) if last.style == span.style && last.link == span.link => {
                    self.add_linked(span.style, &span.text, span.link.as_ref());
                }
                _ => self.0.push(span),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self) -> Vec<Span> {
        std::mem::take(&mut self.0)
    }
}

/// Shows a complete text.
pub(super) fn show_inline(text: &str, style: TextStyle, sink: &mut dyn FnMut(StyledRun<'_>)) {
    inline::parse(text, style, &mut |event| show_event(event, sink));
}

/// Shows a part of a line. A link's address follows its text, so that the target is visible and is what the user
/// clicks.
pub(super) fn show_event(event: InlineEvent<'_>, sink: &mut dyn FnMut(StyledRun<'_>)) {
    let mut show = |style: TextStyle, text: &str| {
        let is_link = style.link && LINK_SCHEMES.iter().any(|scheme| text.starts_with(scheme));
        sink(StyledRun { style, text, is_link });
    };
    match event {
        InlineEvent::Text(style, text) => show(style, text),
        InlineEvent::LinkStart(_) => {}
        InlineEvent::LinkEnd(style, address) => {
            show(style, " (");
            show(TextStyle { link: true, ..style }, address);
            show(style, ")");
        }
    }
}
