//! Streams the answer to a terminal, rendered or as the model wrote it.

use super::markdown::Markdown;
use super::markdown::ink::{Look, Span};
use crate::event::Event;
use crate::sys::terminal::{Harmless, Page, Terminal};
use anyhow::Result;
use console::Style;

/// The streamed answer on a terminal.
pub(super) struct Stream {
    terminal: Terminal,
    page: Page,
    way: Way,
    /// True if the current output line is unterminated.
    open: bool,
    /// True if the text of this reply was printed piece by piece.
    shown: bool,
}

/// The presentation of an answer.
enum Way {
    AsWritten,
    /// Escape sequences are neutralised before rendering; a character held back by that step later joins the
    /// renderer's input.
    Rendered(Box<Markdown>, Harmless),
}

impl Stream {
    pub(super) fn on(terminal: Terminal) -> Self {
        let way = match terminal.rich {
            true => Way::Rendered(Box::default(), Harmless::default()),
            false => Way::AsWritten,
        };
        Self {
            terminal,
            page: Page::on(terminal),
            way,
            open: false,
            shown: false,
        }
    }

    /// Prints the following text as the model wrote it.
    pub(super) fn as_written(&mut self) {
        self.way = Way::AsWritten;
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

    /// Ends the text so far with a line break.
    pub(super) fn end_line(&mut self) -> Result<()> {
        let is_open = std::mem::take(&mut self.open);
        match &mut self.way {
            Way::AsWritten => {
                self.page.settle();
                if is_open {
                    self.page.put("\n")?;
                }
            }
            Way::Rendered(markdown, harmless) => {
                let width = self.terminal.width().unwrap_or(WIDTH);
                let mut spans = markdown.push(&harmless.rest(), width);
                spans.extend(markdown.end(width));
                paint(&mut self.page, &spans)?;
            }
        }
        self.page.flush()
    }

    /// Ends the current row; the text may continue in the next one.
    pub(super) fn make_way(&mut self) -> Result<()> {
        match &mut self.way {
            Way::AsWritten if self.open => self.end_line(),
            Way::AsWritten => Ok(()),
            Way::Rendered(markdown, _) => match markdown.end_row() {
                spans if spans.is_empty() => Ok(()),
                spans => {
                    paint(&mut self.page, &spans)?;
                    self.page.flush()
                }
            },
        }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        self.shown = true;
        match &mut self.way {
            Way::AsWritten => {
                self.open = !text.ends_with('\n');
                self.page.put(text)?;
            }
            Way::Rendered(markdown, harmless) => {
                let width = self.terminal.width().unwrap_or(WIDTH);
                paint(&mut self.page, &markdown.push(&harmless.pass(text), width))?;
            }
        }
        self.page.flush_soon()
    }
}

/// Columns, if the width is unknown.
const WIDTH: usize = 80;

fn paint(page: &mut Page, spans: &[Span]) -> Result<()> {
    for Span { look, text } in spans {
        match *look == Look::default() {
            true => page.put(text)?,
            false => page.paint(text, &style(*look))?,
        }
    }
    Ok(())
}

/// Returns the style of a look, in colours of the terminal's own scheme.
fn style(look: Look) -> Style {
    let Look {
        bold,
        italic,
        struck,
        code,
        link,
        faint,
    } = look;
    let plain = Style::new();
    let given = |is: bool, with: fn(Style) -> Style, style| if is { with(style) } else { style };
    let style = given(bold, Style::bold, plain);
    let style = given(italic, Style::italic, style);
    let style = given(struck, Style::strikethrough, style);
    let style = given(code, Style::cyan, style);
    let style = given(link, |style| style.blue().underlined(), style);
    given(faint, Style::dim, style)
}
