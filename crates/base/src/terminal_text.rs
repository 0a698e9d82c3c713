//! Text that a program drew for a terminal, reduced to what the terminal shows at the end: a progress bar that returns to the start of its
//! line is one line, and escape sequences are gone. No I/O.
//!
//! It takes a stream. The last lines can still change, as on a screen. They are buffered until newer ones push them off it, or until
//! [`TerminalText::flush`]. The screen has no width, so nothing wraps.

use std::collections::VecDeque;
use unicode_width::UnicodeWidthChar;

/// The size in bytes from which on a line can no longer be drawn over: no progress bar is that long, and drawing must not take
/// long.
const MAX_LINE_BYTES: usize = 1 << 10;
/// The last column that the cursor can be moved to, unless the line is longer.
const MAX_PADDED_COLUMNS: usize = 200;
/// Maximum characters of the parameters of an escape sequence.
const MAX_PARAMETER_CHARS: usize = 32;
/// The distance of tab stops.
const TAB_COLUMNS: usize = 8;

/// Reduces a stream of text, chunk by chunk.
#[derive(Debug)]
pub struct TerminalText {
    /// The lines that can still change, the last one without its line break. Never empty.
    lines: VecDeque<ScreenLine>,
    height: usize,
    cursor: Cursor,
    saved_cursor: Cursor,
    parser: Parser,
}

#[derive(Debug, Default)]
struct ScreenLine {
    text: String,
    /// True if it was drawn over. Blanks at its end have then erased something.
    is_redrawn: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    line: usize,
    /// `None` behind the last character of the line, whatever column that is.
    column: Option<usize>,
}

/// The position within an escape sequence (ECMA-48).
#[derive(Debug, Default)]
enum Parser {
    #[default]
    Text,
    /// After the escape character.
    Escape,
    /// After an escape character and characters that announce one more.
    EscapeIntermediate,
    /// In a control sequence, with its parameters so far.
    Control(String),
    /// In a string for the terminal, such as a title.
    String,
    /// In such a string, after an escape character; a backslash now ends the string.
    StringEscape,
}

impl TerminalText {
    /// Creates an empty screen of `height` lines: programs cannot draw over lines that are further up.
    pub fn new(height: usize) -> Self {
        Self {
            lines: [ScreenLine::default()].into(),
            height: height.max(1),
            cursor: Cursor::default(),
            saved_cursor: Cursor::default(),
            parser: Parser::default(),
        }
    }

    /// Adds `text`, and returns the lines that can no longer change.
    pub fn feed(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            if matches!(self.parser, Parser::Text) {
                let plain = rest.find(char::is_control).unwrap_or(rest.len());
                if plain > 0 {
                    self.write(&rest[..plain], &mut out);
                    rest = &rest[plain..];
                    continue;
                }
            }
            self.read(character, &mut out);
            rest = &rest[character.len_utf8()..];
        }
        out
    }

    /// Returns the lines that could still change, and clears the screen.
    pub fn flush(&mut self) -> String {
        let mut out = String::new();
        self.flush_into(&mut out);
        out
    }

    /// The last line that is not blank.
    pub fn last_line(&self) -> &str {
        let texts = self.lines.iter().rev().map(|line| line.text.trim());
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }

    fn flush_into(&mut self, out: &mut String) {
        let lines = std::mem::replace(&mut self.lines, [ScreenLine::default()].into());
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                out.push('\n');
            }
            out.push_str(line.visible_text());
        }
        self.cursor = Cursor::default();
        self.saved_cursor = Cursor::default();
    }

    /// Reads a control character, or a character of an escape sequence.
    fn read(&mut self, character: char, out: &mut String) {
        match std::mem::take(&mut self.parser) {
            Parser::Text => self.control(character, out),
            Parser::Escape => self.escape(character, out),
            Parser::EscapeIntermediate => match character {
                ' '..='/' => self.parser = Parser::EscapeIntermediate,
                _ if character.is_control() => self.control(character, out),
                _ => {}
            },
            Parser::Control(mut parameters) => match character {
                ' '..='?' => {
                    if parameters.len() < MAX_PARAMETER_CHARS {
                        parameters.push(character);
                    }
                    self.parser = Parser::Control(parameters);
                }
                '@'..='~' => self.apply(character, &parameters),
                _ if character.is_control() => self.control(character, out),
                _ => self.write(character.encode_utf8(&mut [0; 4]), out),
            },
            Parser::String => match character {
                '\u{7}' | '\u{9c}' => {}
                '\u{1b}' => self.parser = Parser::StringEscape,
                // One that never ends must not hide the rest of the output.
                '\n' => self.control(character, out),
                _ => self.parser = Parser::String,
            },
            Parser::StringEscape if character == '\\' => {}
            Parser::StringEscape => self.escape(character, out),
        }
    }

    fn control(&mut self, character: char, out: &mut String) {
        match character {
            '\n' => self.line_feed(out),
            '\r' => self.move_to_column(0),
            '\u{8}' => self.move_to_column(self.column().saturating_sub(1)),
            '\t' => match self.cursor.column {
                None => self.write("\t", out),
                Some(column) => self.move_to_column(next_tab_stop(column)),
            },
            '\u{1b}' => self.parser = Parser::Escape,
            '\u{9b}' => self.parser = Parser::Control(String::new()),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => self.parser = Parser::String,
            // NUL separates the items of a list, VT and FF separate pages. Other control characters show nothing.
            '\0' | '\u{b}' | '\u{c}' => self.write(character.encode_utf8(&mut [0; 4]), out),
            _ => {}
        }
    }

    /// Reads the character after an escape character.
    fn escape(&mut self, character: char, out: &mut String) {
        match character {
            '[' => self.parser = Parser::Control(String::new()),
            ']' | 'P' | 'X' | '^' | '_' => self.parser = Parser::String,
            ' '..='/' => self.parser = Parser::EscapeIntermediate,
            '7' => self.save_cursor(),
            '8' => self.restore_cursor(),
            'D' | 'E' => self.line_feed(out),
            'M' => self.move_to_line(self.cursor.line.saturating_sub(1)),
            'c' => self.clear(),
            _ if character.is_control() => self.control(character, out),
            _ => {}
        }
    }

    /// Carries out a control sequence (ECMA-48, CSI) that ends in `command`.
    fn apply(&mut self, command: char, parameters: &str) {
        // Sequences of other kinds change no text.
        if !parameters.bytes().all(|byte| byte.is_ascii_digit() || byte == b';' || byte == b':') {
            return;
        }
        let mut numbers = parameters.split(';').map(|number| number.parse::<usize>().ok());
        let (first, second) = (numbers.next().flatten(), numbers.next().flatten());
        let count = first.unwrap_or(1).max(1);
        let (line, column) = (self.cursor.line, self.column());
        match command {
            'A' => self.move_to_line(line.saturating_sub(count)),
            'B' => self.move_to_line(line.saturating_add(count)),
            'C' => self.move_to_column(column.saturating_add(count)),
            'D' => self.move_to_column(column.saturating_sub(count)),
            'E' | 'F' => {
                self.move_to_line(match command {
                    'E' => line.saturating_add(count),
                    _ => line.saturating_sub(count),
                });
                self.move_to_column(0);
            }
            'G' | '`' => self.move_to_column(count - 1),
            'd' => self.move_to_line(count - 1),
            'H' | 'f' => {
                self.move_to_line(count - 1);
                self.move_to_column(second.unwrap_or(1).max(1) - 1);
            }
            'J' => match first.unwrap_or(0) {
                0 => {
                    self.lines.truncate(line + 1);
                    self.current_line().truncate_at(column);
                }
                1 => {
                    for line in self.lines.iter_mut().take(line) {
                        line.replace(0, None, "");
                    }
                    self.current_line().erase(0, column + 1);
                }
                _ => self.clear(),
            },
            'K' => match first.unwrap_or(0) {
                0 => self.current_line().truncate_at(column),
                1 => self.current_line().erase(0, column + 1),
                _ => {
                    self.current_line().truncate_at(0);
                    self.cursor.column = Some(column);
                }
            },
            'P' => {
                let end = column.saturating_add(count);
                self.current_line().replace(column, Some(end), "");
            }
            'X' => self.current_line().erase(column, column.saturating_add(count)),
            's' => self.save_cursor(),
            'u' => self.restore_cursor(),
            _ => {}
        }
    }

    /// Writes text without control characters at the cursor.
    fn write(&mut self, text: &str, out: &mut String) {
        // The position at which a long line is cut must not depend on how the text arrives.
        if self.current_line().text.len() + text.len() > MAX_LINE_BYTES {
            let mut buffer = [0; 4];
            for character in text.chars() {
                self.write_run(character.encode_utf8(&mut buffer), out);
            }
        } else {
            self.write_run(text, out);
        }
    }

    fn write_run(&mut self, text: &str, out: &mut String) {
        let column = self.cursor.column;
        let line = self.current_line();
        match column {
            None => line.text.push_str(text),
            Some(column) => {
                let end = column
                    + text.chars().map(|character| character.width().unwrap_or(0)).sum::<usize>();
                line.replace(column, Some(end), text);
                let is_at_end = end >= columns_of(&line.text);
                self.cursor.column = if is_at_end { None } else { Some(end) };
            }
        }
        if self.current_line().text.len() > MAX_LINE_BYTES {
            self.flush_into(out);
        }
    }

    fn line_feed(&mut self, out: &mut String) {
        self.cursor.line += 1;
        if self.cursor.line == self.lines.len() {
            self.lines.push_back(ScreenLine::default());
        }
        if self.lines.len() > self.height
            && let Some(line) = self.lines.pop_front()
        {
            out.push_str(line.visible_text());
            out.push('\n');
            self.cursor.line -= 1;
            self.saved_cursor.line = self.saved_cursor.line.saturating_sub(1);
        }
        self.move_to_column(0);
    }

    fn current_line(&mut self) -> &mut ScreenLine {
        // The cursor never leaves the lines.
        &mut self.lines[self.cursor.line]
    }

    /// The column of the cursor.
    fn column(&self) -> usize {
        let columns = || columns_of(&self.lines[self.cursor.line].text);
        self.cursor.column.unwrap_or_else(columns)
    }

    fn move_to_column(&mut self, column: usize) {
        let is_empty = self.current_line().text.is_empty();
        let column = if column <= MAX_PADDED_COLUMNS {
            column
        } else {
            column.min(columns_of(&self.current_line().text).max(MAX_PADDED_COLUMNS))
        };
        self.cursor.column = if column == 0 && is_empty { None } else { Some(column) };
    }

    /// Moves the cursor to a line, in the same column.
    fn move_to_line(&mut self, line: usize) {
        let column = self.column();
        self.cursor.line = line.min(self.lines.len() - 1);
        self.move_to_column(column);
    }

    fn save_cursor(&mut self) {
        self.saved_cursor = Cursor { line: self.cursor.line, column: Some(self.column()) };
    }

    fn restore_cursor(&mut self) {
        let Cursor { line, column } = self.saved_cursor;
        self.cursor = Cursor { line: line.min(self.lines.len() - 1), column };
    }

    /// Clears the screen. The cursor is then at its start.
    fn clear(&mut self) {
        self.lines = [ScreenLine::default()].into();
        self.cursor = Cursor::default();
        self.saved_cursor = Cursor::default();
    }
}

impl ScreenLine {
    fn visible_text(&self) -> &str {
        if self.is_redrawn { self.text.trim_end_matches(' ') } else { &self.text }
    }

    /// Puts `text` in place of the columns from `start` to `end`, or to the end of the line. Columns of a wide character
    /// that remain become blanks.
    fn replace(&mut self, start: usize, end: Option<usize>, text: &str) {
        let first = Cell::at(&self.text, start);
        let last = end.map(|end| (end, Cell::at(&self.text, end)));
        let mut new = " ".repeat(start - first.start_column);
        new.push_str(text);
        let end_byte = match last {
            Some((end, last)) if last.start_column < end && last.start_byte < self.text.len() => {
                new.push_str(&" ".repeat(last.end_column - end));
                last.end_byte
            }
            Some((_, last)) => last.start_byte,
            None => self.text.len(),
        };
        self.text.replace_range(first.start_byte..end_byte.max(first.start_byte), &new);
        self.is_redrawn = true;
    }

    /// Removes everything from `column` on.
    fn truncate_at(&mut self, column: usize) {
        if column < columns_of(&self.text) {
            self.replace(column, None, "");
        }
    }

    /// Replaces columns by blanks.
    fn erase(&mut self, start: usize, end: usize) {
        let end = end.min(columns_of(&self.text));
        if start < end {
            self.replace(start, Some(end), &" ".repeat(end - start));
        }
    }
}

/// A character with those that combine with it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    start_byte: usize,
    end_byte: usize,
    start_column: usize,
    end_column: usize,
}

impl Cell {
    /// The cell at `column` of `text`; an empty one behind the last.
    fn at(text: &str, column: usize) -> Self {
        let cell = |bytes: [usize; 2], columns: [usize; 2]| Self {
            start_byte: bytes[0],
            end_byte: bytes[1],
            start_column: columns[0],
            end_column: columns[1],
        };
        if is_printable_ascii(text) && column < text.len() {
            return cell([column, column + 1], [column, column + 1]);
        }
        cells(text)
            .find(|cell| cell.end_column > column)
            .unwrap_or_else(|| cell([text.len(); 2], [columns_of(text); 2]))
    }
}

/// The cells of a line.
fn cells(text: &str) -> impl Iterator<Item = Cell> {
    let mut characters = text.char_indices().peekable();
    let mut column = 0;
    std::iter::from_fn(move || {
        let (start_byte, character) = characters.next()?;
        let start_column = column;
        column = match character {
            '\t' => next_tab_stop(column),
            character => column + character.width().unwrap_or(0),
        };
        while characters
            .next_if(|(_, next)| *next != '\t' && next.width().unwrap_or(0) == 0)
            .is_some()
        {}
        let end_byte = characters.peek().map_or(text.len(), |(at, _)| *at);
        Some(Cell { start_byte, end_byte, start_column, end_column: column })
    })
}

/// The number of columns that a line takes.
fn columns_of(text: &str) -> usize {
    if is_printable_ascii(text) {
        return text.len();
    }
    cells(text).last().map_or(0, |cell| cell.end_column)
}

/// True if each byte is a character of one column.
fn is_printable_ascii(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn next_tab_stop(column: usize) -> usize {
    (column / TAB_COLUMNS + 1) * TAB_COLUMNS
}

#[cfg(test)]
mod tests {
    use super::TerminalText;

    fn shown(text: &str, height: usize) -> String {
        let mut screen = TerminalText::new(height);
        screen.feed(text) + &screen.flush()
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(shown(text, 50), expect, "{text:?}");
        let mut screen = TerminalText::new(50);
        let mut one_by_one: String =
            text.chars().map(|character| screen.feed(character.encode_utf8(&mut [0; 4]))).collect();
        one_by_one.push_str(&screen.flush());
        assert_eq!(one_by_one, expect, "cut everywhere: {text:?}");
    }

    #[test]
    fn lines_are_what_a_terminal_shows_at_the_end() {
        check("", "");
        check("plain\n\ttext\n", "plain\n\ttext\n");
        check("dos\r\nlines\r\n", "dos\nlines\n");
        check(" 10%\r 50%\r100%\n", "100%\n");
        check("a long line\rshort", "shortg line");
        check("a long line\rshort\x1b[K\n", "short\n");
        check("working\r       \rdone\n", "done\n");
        check("working\x1b[2K\rdone", "done");
        check("12\x083", "13");
        check("_\x08b_\x08o_\x08l_\x08d b\x08bo\x08o", "bold bo");
        check("abc\x1b[2DX", "aXc");
        check("abc\x1b[1GX\x1b[5GY", "Xbc Y");
        check("\r\r\rx", "x");
        check("keep  \n", "keep  \n");
        check("a\0b\0", "a\0b\0");
        check("bell\x07\x0f!", "bell!");
        // Lines further up.
        check("one\ntwo\n\x1b[2A\rONE\n\nthree\n", "ONE\ntwo\nthree\n");
        check("outer 0\ninner 0\x1b[A\router 1\ninner 9\n", "outer 1\ninner 9\n");
        check("one\ntwo\nthree\x1b[2F\x1b[Jnew\n", "new\n");
        check("one\ntwo\x1b[H\x1b[2Jnew", "new");
        check("one\ntwo\x1b[1;2HX", "oXe\ntwo");
        check("a\x1b7bc\x1b8X", "aXc");
        // Nothing is drawn over that has left the screen.
        assert_eq!(shown("1\n2\n3\n\x1b[9A\rX", 2), "1\n2\nX\n");
        assert_eq!(shown("50%\r60%\nnext\x1b[AX", 1), "60%\nnextX");
    }

    /// Short forms of what common tools draw.
    #[test]
    fn recordings_of_tools() {
        // cargo
        check(
            "\x1b[1m\x1b[92m   Compiling\x1b[0m libc v0.2.180\n\
             \x1b[1m\x1b[96m    Building\x1b[0m [=>           ] 1/40: libc(build)\r\x1b[K\
             \x1b[1m\x1b[92m   Compiling\x1b[0m cfg-if v1.0.4\n\
             \x1b[1m\x1b[96m    Building\x1b[0m [===========> ] 39/40: app\r\x1b[K\
             \x1b[1m\x1b[92m    Finished\x1b[0m `dev` profile in 3.21s\n",
            "   Compiling libc v0.2.180\n   Compiling cfg-if v1.0.4\n    Finished `dev` profile in 3.21s\n",
        );
        // npm
        check(
            "⠙\x1b[1G\x1b[0K⠹\x1b[1G\x1b[0K⠸\x1b[1G\x1b[0K\nadded 12 packages in 2s\n⠼\x1b[1G\x1b[0K",
            "\nadded 12 packages in 2s\n",
        );
        // pip
        check(
            "Downloading numpy.whl (16.4 MB)\n\x1b[?25l   \x1b[38;5;237m━━━━\x1b[0m \x1b[32m0.0/16.4 MB\x1b[0m\r\
             \x1b[2K   \x1b[38;5;197m━━\x1b[0m\x1b[38;5;237m╺━\x1b[0m \x1b[32m8.1/16.4 MB\x1b[0m eta \x1b[36m0:00:01\x1b[0m\r\
             \x1b[2K   \x1b[38;5;70m━━━━\x1b[0m \x1b[32m16.4/16.4 MB\x1b[0m \x1b[31m40.1 MB/s\x1b[0m\n\x1b[?25hInstalling\n",
            "Downloading numpy.whl (16.4 MB)\n   ━━━━ 16.4/16.4 MB 40.1 MB/s\nInstalling\n",
        );
        // pytest
        check(
            "test_a.py \x1b[32m.\x1b[0m\x1b[31mF\x1b[0m\x1b[31m            [100%]\x1b[0m\n\x1b[31m\x1b[1m1 failed\x1b[0m, \x1b[32m1 passed\x1b[0m\n",
            "test_a.py .F            [100%]\n1 failed, 1 passed\n",
        );
        // curl
        check(
            "  % Total    % Received\n\r  0     0    0     0\r 40  1000   40   400\r100  1000  100  1000\n",
            "  % Total    % Received\n100  1000  100  1000\n",
        );
        // rsync
        check(
            "big.bin\n\r         32,768   0%    0.00kB/s    0:00:00  \r     10,485,760 100%   98.14MB/s    0:00:00 (xfr#1)\n\nsent 10 MB\n",
            "big.bin\n     10,485,760 100%   98.14MB/s    0:00:00 (xfr#1)\n\nsent 10 MB\n",
        );
        // docker build
        check(
            "[+] Building 0.1s (1/3)\n => [internal] load build definition  0.0s\n\
             \x1b[1A\x1b[1A\x1b[0G\x1b[?25l[+] Building 0.9s (2/3)\n\x1b[34m => [internal] load build definition  0.1s\x1b[0m\n\
             \x1b[?25h => [2/2] RUN make  0.5s\n => => # cc a.c\n\
             \x1b[1A\x1b[1A\x1b[1A\x1b[1A\x1b[0G\x1b[?25l[+] Building 1.4s (3/3) FINISHED\n\x1b[1B\
             \x1b[34m => [2/2] RUN make  1.2s\x1b[0m\n\x1b[0K => exporting  0.1s\n\x1b[?25h",
            "[+] Building 1.4s (3/3) FINISHED\n => [internal] load build definition  0.1s\n => [2/2] RUN make  1.2s\n => exporting  0.1s\n",
        );
    }

    #[test]
    fn escape_sequences_are_removed() {
        check("\x1b[1;31mred\x1b[0m \x1b[38;5;9mx\x1b[m", "red x");
        check("\x1b[?25lhidden\x1b[?25h\x1b[>4;1m", "hidden");
        check("\x1b]0;a title\x07text", "text");
        check("\x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\", "link");
        check("\x1bP1$r\x1b\\text\x1b(B\x1b#8!", "text!");
        check("\u{9b}31mred\u{9d}title\u{9c}", "red");
        // What is cut off, or no sequence, hides nothing that follows.
        check("\x1b]0;never ends\nnext", "\nnext");
        check("\x1b[31\nnext", "\nnext");
        check("\x1b[3é", "é");
        check("end\x1b", "end");
        check(&format!("\x1b[{}mtext", "1;".repeat(100)), "text");
        check("\x1b[99999999999999999999Ctext", " text");
        check("a\x1b[9999Cb", &format!("a{}b", " ".repeat(199)));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        check("日本\rab", "ab本");
        check("日本\ra", "a 本");
        check("日本\x1b[2GX", " X本");
        check("日本\x08\x08x", "日x");
        check("e\u{301}x\ra", "ax");
        check("⠋ wait\r✔ done\n", "✔ done\n");
        check("a\tb\rxyz", "xyz     b");
        check("abc\r\tX", "abc     X");
    }

    #[test]
    fn long_lines_take_limited_memory() {
        let mut screen = TerminalText::new(50);
        let mut text = String::new();
        for _ in 0..100 {
            text.push_str(&screen.feed(&"x".repeat(4096)));
            assert!(screen.lines.iter().map(|line| line.text.len()).sum::<usize>() < 100_000);
        }
        text.push_str(&screen.flush());
        assert_eq!(text, "x".repeat(409_600));
    }

    #[test]
    fn fuzz_no_escape_sequence_gets_through() {
        let seeds: &[&[u8]] = &[
            b"plain\ttext\r\n\x1b[31mred\x1b]52;c;eA==\x07\r\x08\x08\x1b[2A\x1b[3;4Hx\x1b[1K\x1b[2P\x1b[3X",
            "\u{9b}31m \u{65e5}\u{672c}\x08\x08e\u{301}\t\x1b7\x1b8\x1bM\x1b[s\x1b[u\x1b[J\x1b[1J".as_bytes(),
        ];
        crate::fuzz::check(seeds, |input, random| {
            let text = crate::fuzz::lossy_text(input);
            let whole = shown(&text, 5);
            let is_odd = |character: &char| {
                character.is_control()
                    && !matches!(character, '\n' | '\t' | '\0' | '\u{b}' | '\u{c}')
            };
            assert_eq!(whole.chars().find(is_odd), None);
            let mut screen = TerminalText::new(5);
            let (mut pieces, mut rest) = (String::new(), text.as_str());
            while !rest.is_empty() {
                let mut cut = 1 + random.below(rest.len().min(9));
                while !rest.is_char_boundary(cut) {
                    cut += 1;
                }
                pieces.push_str(&screen.feed(&rest[..cut]));
                rest = &rest[cut..];
            }
            pieces.push_str(&screen.flush());
            assert_eq!(pieces, whole);
        });
    }
}
