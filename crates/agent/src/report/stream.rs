//! Streams the answer to a terminal, rendered or as the model wrote it.

use super::markdown::Markdown;
use super::markdown::style::Span;
use anyhow::Result;
use console::Style;
use nanobot_base::event::Event;
use nanobot_base::markdown::code::CodeToken;
use nanobot_base::markdown::style::TextStyle;
use nanobot_os::terminal::theme;
use nanobot_os::terminal::{Sanitizer, StdoutWriter, Terminal};

/// The streamed answer on a terminal.
pub(super) struct AnswerStream {
    terminal: Terminal,
    writer: StdoutWriter,
    presentation: Presentation,
    /// True if the current output line is unterminated.
    is_line_open: bool,
    /// True if the text of this reply was printed as it arrived.
    has_printed: bool,
}

/// The presentation of an answer.
enum Presentation {
    Raw,
    /// Escape sequences are neutralised before rendering; a character that this step buffers later joins the renderer's input.
    Rendered(Box<Markdown>, Sanitizer),
}

impl AnswerStream {
    pub(super) fn new(terminal: Terminal) -> Self {
        let presentation = if terminal.stdout_is_rich {
            Presentation::Rendered(Box::default(), Sanitizer::default())
        } else {
            Presentation::Raw
        };
        Self {
            terminal,
            writer: StdoutWriter::new(terminal),
            presentation,
            is_line_open: false,
            has_printed: false,
        }
    }

    /// Prints the following text as the model wrote it.
    pub(super) fn disable_markdown(&mut self) {
        self.presentation = Presentation::Raw;
    }

    pub(super) fn handle(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Text { text, .. } => self.print(text),
            Event::Assistant { reply, .. } => {
                if !std::mem::take(&mut self.has_printed) && !reply.text.is_empty() {
                    self.print(&reply.text)?;
                    self.has_printed = false;
                }
                self.end_line()
            }
            _ => Ok(()),
        }
    }

    /// Ends the text so far with a line break.
    pub(super) fn end_line(&mut self) -> Result<()> {
        let is_open = std::mem::take(&mut self.is_line_open);
        match &mut self.presentation {
            Presentation::Raw => {
                self.writer.end_text();
                if is_open {
                    self.writer.write("\n")?;
                }
            }
            Presentation::Rendered(markdown, sanitizer) => {
                let width = self.terminal.stdout_width().unwrap_or(DEFAULT_COLUMNS);
                let mut spans = markdown.push(&sanitizer.finish(), width);
                spans.extend(markdown.end(width));
                paint(&mut self.writer, &spans)?;
            }
        }
        self.writer.flush()
    }

    /// Ends the current row; the text may continue in the next one.
    pub(super) fn end_current_row(&mut self) -> Result<()> {
        match &mut self.presentation {
            Presentation::Raw if self.is_line_open => self.end_line(),
            Presentation::Raw => Ok(()),
            Presentation::Rendered(markdown, _) => {
                let spans = markdown.end_row();
                if spans.is_empty() {
                    return Ok(());
                }
                paint(&mut self.writer, &spans)?;
                self.writer.flush()
            }
        }
    }

    fn print(&mut self, text: &str) -> Result<()> {
        self.has_printed = true;
        match &mut self.presentation {
            Presentation::Raw => {
                self.is_line_open = !text.ends_with('\n');
                self.writer.write(text)?;
            }
            Presentation::Rendered(markdown, sanitizer) => {
                let width = self.terminal.stdout_width().unwrap_or(DEFAULT_COLUMNS);
                paint(&mut self.writer, &markdown.push(&sanitizer.feed(text), width))?;
            }
        }
        self.writer.flush_soon()
    }
}

/// Renders a Markdown text of this program for standard output: for the width of a terminal, else unchanged.
///
/// # Errors
/// Standard output cannot be written.
pub fn render_markdown(terminal: Terminal, text: &str) -> Result<StdoutWriter> {
    let mut page = StdoutWriter::for_page(terminal);
    if !terminal.stdout_is_rich {
        page.write(text)?;
        return Ok(page);
    }
    let width = terminal.stdout_width().unwrap_or(DEFAULT_COLUMNS);
    let mut markdown = Markdown::default();
    let mut spans = markdown.push(text, width);
    spans.extend(markdown.end(width));
    paint(&mut page, &spans)?;
    Ok(page)
}

/// Columns, if the width is unknown.
const DEFAULT_COLUMNS: usize = 80;

fn paint(writer: &mut StdoutWriter, spans: &[Span]) -> Result<()> {
    for Span { style, text, link } in spans {
        match link {
            Some(address) => writer.write_link(text, &console_style(*style), address)?,
            None if *style == TextStyle::default() => writer.write(text)?,
            None => writer.write_styled(text, &console_style(*style))?,
        }
    }
    Ok(())
}

/// Converts a style to that of the terminal, in colours of its own scheme.
fn console_style(style: TextStyle) -> Style {
    let TextStyle { bold, italic, struck, code, link, faint, token } = style;
    let mut style = token.map_or_else(Style::new, token_style);
    if bold {
        style = style.bold();
    }
    if italic {
        style = style.italic();
    }
    if struck {
        style = style.strikethrough();
    }
    if code {
        style = style.fg(theme::accent());
    }
    if link {
        style = style.fg(theme::link()).underlined();
    }
    if faint {
        style = style.dim();
    }
    style
}

fn token_style(token: CodeToken) -> Style {
    let plain = Style::new();
    match token {
        CodeToken::Plain => plain,
        CodeToken::Comment => plain.dim(),
        CodeToken::Keyword => plain.magenta(),
        CodeToken::Literal | CodeToken::Added => plain.green(),
        CodeToken::Number | CodeToken::Hunk => plain.fg(theme::accent()),
        CodeToken::Removed => plain.red(),
    }
}
