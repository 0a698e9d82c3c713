//! Standard output and standard error. Nothing else in the program prints.
//!
//! Off a terminal, output goes out byte for byte. On one, and always on standard error, what models, tools, files and
//! servers said is made harmless first: a terminal obeys escape sequences, and text can lie about its order.

use crate::error::{Exit, Stop};
use crate::sys::signal::{self, Patience};
use anyhow::{Context, Result};
use rustix::io::Errno;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// The two streams and what they are connected to.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub out: bool,
    /// Standard error is a terminal that can show a spinner.
    pub err: bool,
    /// Colour may be used on standard error.
    pub color: bool,
}

impl Terminal {
    /// `color` is the user's word, where there is one; `no_color` and `dumb` are the environment's.
    pub fn probe(color: Option<bool>, no_color: bool, dumb: bool) -> Self {
        let out = std::io::stdout().is_terminal();
        let err = std::io::stderr().is_terminal() && !dumb;
        console::set_colors_enabled(color.unwrap_or(out && !dumb && !no_color));
        let color = color.unwrap_or(err && !no_color);
        console::set_colors_enabled_stderr(color);
        Self { out, err, color }
    }

    /// The columns of standard output, where that is a terminal; 80 where it does not say.
    pub fn width(self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(std::io::stdout());
        let told = size.map_or(0, |size| size.ws_col.into());
        self.out.then_some(if told == 0 { 80 } else { told })
    }

    /// Write `text` to standard output as it is. A reader that has gone ends the run quietly; a slow one is waited for.
    ///
    /// # Errors
    /// A full disk; a [`Stop`] when nobody reads any more, or the run is to end.
    pub fn print(self, text: &str) -> Result<()> {
        self.put(text.as_bytes())
    }

    /// As [`Self::print`], for what may be no text; on a terminal it is made harmless.
    pub fn print_bytes(self, bytes: &[u8]) -> Result<()> {
        match self.out {
            true => self.put(harmless(&String::from_utf8_lossy(bytes)).as_bytes()),
            false => self.put(bytes),
        }
    }

    fn put(self, bytes: &[u8]) -> Result<()> {
        let stdout = std::io::stdout();
        let lock = stdout.lock();
        write(lock.as_fd(), bytes, "standard output")
    }

    /// Let the readers of our streams see their end: what is written from now on goes nowhere. With `keeps_errors`
    /// standard error stays open.
    pub fn hang_up(self, keeps_errors: bool) -> Result<()> {
        let what = || "let go of standard output";
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .with_context(what)?;
        rustix::stdio::dup2_stdout(&null)
            .map_err(std::io::Error::from)
            .with_context(what)?;
        if !keeps_errors {
            rustix::stdio::dup2_stderr(&null)
                .map_err(std::io::Error::from)
                .with_context(what)?;
        }
        Ok(())
    }

    /// Write a line to standard error, made harmless. A standard error that fails has nobody to tell.
    pub fn complain(self, line: &str) {
        self.write_error(harmless(line));
    }

    /// As [`Self::complain`], for what ended the run: after our name, in red where colour may be used.
    pub fn fail(self, cause: &str) {
        let name = console::style("nanobot:").for_stderr().red().bold();
        self.write_error(format!("{name} {}", harmless(cause)));
    }

    fn write_error(self, mut text: String) {
        text.push('\n');
        let stderr = std::io::stderr();
        let lock = stderr.lock();
        drop(write(lock.as_fd(), text.as_bytes(), "standard error"));
    }
}

/// What a pipe takes at once without letting its writer wait.
const PIECE: usize = 4096;

/// Write all of `bytes`, past the buffers of the standard library, which would keep what a signal cut off.
fn write(fd: BorrowedFd<'_>, mut bytes: &[u8], name: &'static str) -> Result<()> {
    while !bytes.is_empty() {
        // A write that blocks cannot be ended by a signal; one that follows this wait does not block.
        signal::writable(fd, &mut Patience::endless())?;
        match rustix::io::write(fd, &bytes[..bytes.len().min(PIECE)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(Errno::PIPE) => return Err(Stop(Exit::Answered).into()),
            Err(error) => {
                return Err(std::io::Error::from(error))
                    .with_context(|| format!("write to {name}"));
            }
        }
    }
    Ok(())
}

/// From now on a panic is told in one line that can be reported, and in no other way.
pub fn report_defects() {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map(|place| format!(" at {}:{}", place.file(), place.line()));
        let cause = info.payload_as_str().unwrap_or("no cause is known");
        let line = format!(
            "nanobot: a defect of nanobot {}{}: {cause}\n  try: report this line, and what you did\n",
            env!("CARGO_PKG_VERSION"),
            place.unwrap_or_default()
        );
        // A standard error that fails has nobody to tell.
        drop(
            std::io::stderr()
                .lock()
                .write_all(harmless(&line).as_bytes()),
        );
    }));
}

/// `text` with nothing in it that a terminal obeys.
pub fn harmless(text: &str) -> String {
    let mut harmless = Harmless::default();
    let mut out = harmless.pass(text);
    out.push_str(harmless.rest());
    out
}

/// Makes a stream of text harmless, piece by piece, wherever it was cut.
///
/// A carriage return before a newline is dropped. Control characters but newline and tab, and marks that change the order or hide text, are shown as `\u{…}`, so that
/// an escape sequence becomes the letters it is made of. Joiners and selectors stay where they belong: after an emoji.
#[derive(Debug, Default)]
pub struct Harmless {
    /// The last character that was shown, which decides about joiners.
    previous: char,
    /// A carriage return came last, and what it is shows with the next character.
    held: bool,
}

/// A carriage return that stands alone: it would write over the line.
const RETURN: &str = "\\u{d}";

impl Harmless {
    pub fn pass(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for letter in piece.chars() {
            if std::mem::take(&mut self.held) && letter != '\n' {
                out.push_str(RETURN);
            }
            if letter == '\r' {
                self.held = true;
                self.previous = '}';
            } else if self.allows(letter) {
                out.push(letter);
                self.previous = letter;
            } else {
                out.extend(letter.escape_unicode());
                self.previous = '}';
            }
        }
        out
    }

    /// What was held back, at the end of the text.
    pub fn rest(&mut self) -> &'static str {
        match std::mem::take(&mut self.held) {
            true => RETURN,
            false => "",
        }
    }

    fn allows(&self, letter: char) -> bool {
        match letter {
            '\n' | '\t' => true,
            '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => takes_a_joiner(self.previous),
            // Bidi marks and overrides, zero-width characters, invisible operators, tags, further selectors.
            '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' => false,
            '\u{feff}'
            | '\u{fe00}'..='\u{fe0d}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}' => false,
            other => !other.is_control(),
        }
    }
}

/// Whether `letter` is one of those that emoji sequences are made of.
fn takes_a_joiner(letter: char) -> bool {
    matches!(letter,
        '#' | '*' | '0'..='9' | '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}'..='\u{2bff}' | '\u{3030}'..='\u{3299}'
        | '\u{fe0f}' | '\u{1f000}'..='\u{1faff}')
}

#[cfg(test)]
mod tests {
    use super::{Harmless, harmless};

    #[test]
    fn what_a_terminal_obeys_is_shown() {
        let check = |text: &str, expect: &str| {
            assert_eq!(harmless(text), expect);
            let mut pieces = Harmless::default();
            let mut one_by_one: String = text
                .chars()
                .map(|letter| pieces.pass(&letter.to_string()))
                .collect();
            one_by_one.push_str(pieces.rest());
            assert_eq!(one_by_one, expect, "cut everywhere");
        };
        check("plain\ttext\n", "plain\ttext\n");
        check("\x1b[2Jgone", "\\u{1b}[2Jgone");
        check("\x1b]52;c;ZXZpbA==\x07", "\\u{1b}]52;c;ZXZpbA==\\u{7}");
        check("safe\rEVIL", "safe\\u{d}EVIL");
        check("a\r\nb\r\r\nc\r", "a\nb\\u{d}\nc\\u{d}");
        check("a\u{9b}31m\u{7f}", "a\\u{9b}31m\\u{7f}");
        check("abc\u{202e}txt.exe", "abc\\u{202e}txt.exe");
        check("pay\u{200b}pal", "pay\\u{200b}pal");
        check("\u{e0041}", "\\u{e0041}");
        check("👩\u{200d}🔬 ❤\u{fe0f}", "👩\u{200d}🔬 ❤\u{fe0f}");
        check("a\u{200d}b", "a\\u{200d}b");
        check("naïve 日本 עברית", "naïve 日本 עברית");
    }

    #[test]
    fn fuzz_nothing_that_a_terminal_obeys_gets_through() {
        let seeds: &[&[u8]] = &[
            b"plain\ttext\r\n\x1b[31mred\x1b]52;c;eA==\x07\r",
            "\u{9b}31m \u{202e}abc\u{2066} \u{1f469}\u{200d}\u{1f52c} \u{e0041} \u{2764}\u{fe0f}"
                .as_bytes(),
        ];
        crate::fuzz::hold(seeds, |input, random| {
            let text = crate::fuzz::text(input);
            let whole = harmless(&text);
            let obeyed = |letter: &char| {
                (letter.is_control() && !matches!(letter, '\n' | '\t'))
                    || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e0fff}')
            };
            assert_eq!(whole.chars().find(obeyed), None);
            // It says no more and no less, wherever it is cut.
            let mut cut = random.below(text.len() + 1);
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
            let mut pieces = Harmless::default();
            let mut both = pieces.pass(&text[..cut]);
            both.push_str(&pieces.pass(&text[cut..]));
            both.push_str(pieces.rest());
            assert_eq!(both, whole);
            assert_eq!(harmless(&whole), whole);
        });
    }
}
