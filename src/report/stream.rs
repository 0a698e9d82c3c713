//! The answer on a terminal, as it comes.

use crate::event::Event;
use crate::sys::terminal::{Page, Terminal};
use anyhow::Result;

/// The answer on a terminal, as it comes.
pub(super) struct Stream {
    page: Page,
    /// Something was printed since the last line ended.
    open: bool,
    /// The text of this reply was printed piece by piece.
    shown: bool,
}

impl Stream {
    pub(super) fn on(terminal: Terminal) -> Self {
        Self {
            page: Page::on(terminal),
            open: false,
            shown: false,
        }
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Text { text, .. } => self.print(text),
            Event::Assistant { reply, .. } => {
                if !std::mem::take(&mut self.shown) && !reply.text.is_empty() {
                    self.print(&reply.text)?;
                    self.shown = false;
                }
                self.end_line()
            }
            _ => Ok(()),
        }
    }

    pub(super) fn end_line(&mut self) -> Result<()> {
        self.page.settle();
        if std::mem::take(&mut self.open) {
            self.page.put("\n")?;
        }
        self.page.flush()
    }

    fn print(&mut self, text: &str) -> Result<()> {
        self.shown = true;
        self.open = !text.ends_with('\n');
        self.page.put(text)?;
        self.page.flush()
    }
}
