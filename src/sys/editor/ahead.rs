//! Type-ahead: keys typed while no line is being read, collected and converted into lines. Pure.
//!
//! The input is read continuously instead of being left in the kernel's buffer, since the kernel looks for Ctrl-C only
//! in the first 4,096 waiting bytes.

use super::entry::end_line;
use super::line::Line;
use std::collections::VecDeque;

const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// The lines typed ahead, and an incomplete last one.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    lines: VecDeque<Line>,
    begun: String,
}

impl Ahead {
    /// Removes and returns the first complete line.
    pub(super) fn next(&mut self) -> Option<Line> {
        self.lines.pop_front()
    }

    /// Removes and returns the incomplete line.
    pub(super) fn begun(&mut self) -> String {
        std::mem::take(&mut self.begun)
    }

    /// Merges all lines into the incomplete one, so that none is submitted automatically.
    pub(super) fn hold_back(&mut self) {
        let mut all = String::new();
        for line in self.lines.drain(..) {
            if let Line::Text(text) = line {
                all.push_str(&text);
                all.push('\n');
            }
        }
        all.push_str(&self.begun);
        self.begun = all.trim_end_matches('\n').to_owned();
    }

    /// Processes typed bytes.
    pub(super) fn take(&mut self, mut typed: &[u8]) {
        while let Some(byte) = typed.first() {
            let used = match byte {
                b'\r' | b'\n' => self.enter(),
                0x04 if self.begun.is_empty() => {
                    self.lines.push_back(Line::End);
                    1
                }
                0x08 | 0x7f => {
                    self.begun.pop();
                    1
                }
                // Ctrl-U deletes the line, Ctrl-W its last word.
                0x15 => self.cut(|line| line.rfind('\n').map_or(0, |at| at + 1)),
                0x17 => self.cut(|line| {
                    let trimmed = line.trim_end_matches([' ', '\t']);
                    trimmed.rfind([' ', '\t', '\n']).map_or(0, |at| at + 1)
                }),
                0x1b if typed.starts_with(PASTE_BEGINS) => self.paste(typed),
                0x1b if matches!(typed.get(1), Some(b'\r' | b'\n')) => {
                    self.begun.push('\n');
                    2
                }
                0x1b => sequence(typed),
                b'\t' => self.letters(typed),
                0x00..=0x1f => 1,
                _ => self.letters(typed),
            };
            typed = &typed[used..];
        }
    }

    fn enter(&mut self) -> usize {
        if !end_line(&mut self.begun) {
            let text = std::mem::take(&mut self.begun);
            self.lines
                .push_back(Line::Text(text.trim_end_matches('\n').to_owned()));
        }
        1
    }

    fn cut(&mut self, from: impl Fn(&str) -> usize) -> usize {
        self.begun.truncate(from(&self.begun));
        1
    }

    fn paste(&mut self, typed: &[u8]) -> usize {
        let inner = &typed[PASTE_BEGINS.len()..];
        let end = memchr::memmem::find(inner, PASTE_ENDS);
        let text = String::from_utf8_lossy(&inner[..end.unwrap_or(inner.len())]);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let plain = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
        self.begun.extend(text.chars().filter(plain));
        end.map_or(typed.len(), |end| {
            PASTE_BEGINS.len() + end + PASTE_ENDS.len()
        })
    }

    fn letters(&mut self, typed: &[u8]) -> usize {
        let is_control = |byte: &u8| *byte < 0x20 && *byte != b'\t' || *byte == 0x7f;
        let long = typed.iter().position(is_control).unwrap_or(typed.len());
        self.begun
            .push_str(&String::from_utf8_lossy(&typed[..long]));
        long
    }
}

/// True if a paste has begun and not ended.
pub(super) fn is_pasting(typed: &[u8]) -> bool {
    let begun = memchr::memmem::rfind(typed, PASTE_BEGINS);
    begun.is_some_and(|at| memchr::memmem::find(&typed[at..], PASTE_ENDS).is_none())
}

/// Returns the length of the escape sequence at the start of `typed`: a cursor key, which has no effect without a line.
fn sequence(typed: &[u8]) -> usize {
    let body = match typed.get(1) {
        Some(b'[') => typed[2..]
            .iter()
            .position(|byte| matches!(byte, 0x40..=0x7e)),
        Some(b'O') => Some(0),
        Some(_) => return 2,
        None => return 1,
    };
    body.map_or(typed.len(), |at| (at + 3).min(typed.len()))
}

#[cfg(test)]
mod tests {
    use super::{Ahead, Line, is_pasting};

    fn check(typed: &str, lines: &[&str], begun: &str) {
        let mut ahead = Ahead::default();
        ahead.take(typed.as_bytes());
        let mut found = Vec::new();
        while let Some(line) = ahead.next() {
            found.push(match line {
                Line::Text(text) => text,
                other => format!("{other:?}"),
            });
        }
        assert_eq!(found, lines, "{typed:?}");
        assert_eq!(ahead.begun(), begun, "{typed:?}");
    }

    #[test]
    fn what_is_typed_becomes_lines() {
        check("", &[], "");
        check("one\rtwo\nthr", &["one", "two"], "thr");
        check("tyop\u{7f}\u{7f}po\r", &["typo"], "");
        check("grüße 你\u{7f}您\r", &["grüße 您"], "");
        check("two words\u{17}", &[], "two ");
        check("all\u{15}new\r", &["new"], "");
        check("a\\\rb\r", &["a\nb"], "");
        check("```\ra\\\r```\r", &["```\na\\\n```"], "");
        check("a\u{1b}\rb\r", &["a\nb"], "");
        check("\u{1b}[Aup\u{1b}[1;5Cright\u{1b}OPf\r", &["uprightf"], "");
        check("\u{4}", &["End"], "");
        check("a\u{4}b", &[], "ab");
        check(
            "x\u{1b}[200~1\r\n2\t3\r4\u{1b}[201~y\rz",
            &["x1\n2\t3\n4y"],
            "z",
        );
        check("\u{1b}[200~a\nb\n\u{1b}[201~\r", &["a\nb"], "");
        check("\u{1b}", &[], "");
        check("\u{1b}[", &[], "");
    }

    #[test]
    fn what_is_held_back_stands_in_the_line() {
        let mut ahead = Ahead::default();
        ahead.take(b"one\rtwo\r\x04thr");
        ahead.hold_back();
        assert_eq!(ahead.next(), None);
        assert_eq!(ahead.begun(), "one\ntwo\nthr");
    }

    #[test]
    fn a_paste_is_open_until_it_ends() {
        assert!(!is_pasting(b"abc"));
        assert!(is_pasting(b"a\x1b[200~abc"));
        assert!(!is_pasting(b"a\x1b[200~abc\x1b[201~"));
        assert!(is_pasting(b"\x1b[200~abc\x1b[201~\x1b[200~"));
    }
}
