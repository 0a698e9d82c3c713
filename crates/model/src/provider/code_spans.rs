//! Finds code in Markdown text that arrives in pieces: fenced and indented blocks, and spans in backticks. No I/O.
//!
//! A span that is not closed ends with its paragraph, because the text after it is not known yet.

/// The state of a scan, byte by byte.
#[derive(Debug)]
pub(super) struct CodeTracker {
    /// The character and the length of the fence that opened the current block.
    block: Option<(u8, usize)>,
    /// The length of the run of backticks that opened the current span.
    span: Option<usize>,
    /// The current run of backticks or tildes.
    run: Option<Run>,
    is_line_blank: bool,
    /// Columns of white space at the beginning of the line.
    indent: usize,
    /// True in the line that opened the fence.
    opens_block: bool,
}

#[derive(Debug)]
struct Run {
    byte: u8,
    length: usize,
    begins_line: bool,
}

/// The shortest fence of a block.
const MIN_BLOCK_MARK_CHARS: usize = 3;

/// The indent of an indented code block.
const CODE_INDENT_COLUMNS: usize = 4;

impl Default for CodeTracker {
    fn default() -> Self {
        Self {
            block: None,
            span: None,
            run: None,
            is_line_blank: true,
            indent: 0,
            opens_block: false,
        }
    }
}

impl CodeTracker {
    /// Passes over the next byte.
    pub(super) fn step(&mut self, byte: u8) {
        if let Some(run) = &mut self.run {
            if run.byte == byte {
                run.length += 1;
                return;
            }
            self.end_run();
        }
        match byte {
            b'`' | b'~' => {
                self.run = Some(Run { byte, length: 1, begins_line: self.is_line_blank });
                self.is_line_blank = false;
            }
            b'\n' => {
                if self.is_line_blank {
                    self.span = None;
                }
                self.is_line_blank = true;
                self.indent = 0;
                self.opens_block = false;
            }
            b' ' if self.is_line_blank => self.indent += 1,
            b'\t' if self.is_line_blank => self.indent += CODE_INDENT_COLUMNS,
            b'\r' => {}
            _ => self.is_line_blank = false,
        }
    }

    /// True if the next byte is in code, unless it is a backtick or a tilde itself.
    pub(super) fn is_in_code(&mut self) -> bool {
        self.end_run();
        self.block.is_some() || self.span.is_some() || self.indent >= CODE_INDENT_COLUMNS
    }

    /// True if there is only white space in the line so far.
    pub(super) fn is_line_blank(&self) -> bool {
        self.is_line_blank
    }

    fn end_run(&mut self) {
        let Some(Run { byte, length, begins_line }) = self.run.take() else {
            return;
        };
        match self.block {
            // The line of a fence has no other backticks (CommonMark), so this one opened a span.
            Some((_, open)) if self.opens_block && byte == b'`' => {
                self.block = None;
                self.span = (length != open).then_some(open);
            }
            Some((open_byte, open)) if begins_line && byte == open_byte && length >= open => {
                self.block = None;
            }
            Some(_) => {}
            None if byte == b'`' && self.span == Some(length) => self.span = None,
            None if self.span.is_some() => {}
            None if begins_line && length >= MIN_BLOCK_MARK_CHARS => {
                self.block = Some((byte, length));
                self.opens_block = true;
            }
            None if byte == b'`' => self.span = Some(length),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CodeTracker;

    #[test]
    fn code_is_found() {
        // Each `<` is in code, each `>` is not.
        let check = |text: &str| {
            let mut code = CodeTracker::default();
            for (at, byte) in text.bytes().enumerate() {
                match byte {
                    b'<' => assert!(code.is_in_code(), "{text:?} at {at}"),
                    b'>' => assert!(!code.is_in_code(), "{text:?} at {at}"),
                    _ => {}
                }
                code.step(byte);
            }
        };
        check("> `<` > ``<`<`` > ```<``` >");
        check("```\n<\n``` \n>");
        check("a\n~~~~ x\n<\n~~~\n<\n```\n<\n~~~~\n>");
        check("- a\n  ```rust\n  <\n  ```\n>");
        check("```<``` >\n>");
        check("> a ` b <\n<\n\n>");
        check(">\n    <\n>\n\t<\n   >");
        check("~> ~~>~~");
    }
}
