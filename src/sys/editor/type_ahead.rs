//! Type-ahead: keys typed while no line is being read, collected and converted into lines. Pure.
//!
//! The input is read continuously instead of being left in the kernel's buffer, since the kernel looks for Ctrl-C only
//! in the first 4,096 waiting bytes.

use super::line::InputLine;
use super::multiline::continue_entry;
use std::collections::VecDeque;

const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// The lines typed ahead, and an incomplete last one.
#[derive(Debug, Default)]
pub(super) struct TypeAhead {
    lines: VecDeque<InputLine>,
    partial: String,
}

impl TypeAhead {
    /// Removes and returns the first complete line.
    pub(super) fn pop_line(&mut self) -> Option<InputLine> {
        self.lines.pop_front()
    }

    /// Removes and returns the incomplete line.
    pub(super) fn take_partial(&mut self) -> String {
        std::mem::take(&mut self.partial)
    }

    /// Merges all lines into the incomplete one, so that none is submitted automatically.
    pub(super) fn merge_lines(&mut self) {
        let mut all = String::new();
        for line in self.lines.drain(..) {
            if let InputLine::Text(text) = line {
                all.push_str(&text);
                all.push('\n');
            }
        }
        all.push_str(&self.partial);
        self.partial = all.trim_end_matches('\n').to_owned();
    }

    /// Processes typed bytes.
    pub(super) fn feed(&mut self, mut typed: &[u8]) {
        while let Some(byte) = typed.first() {
            let used = match byte {
                b'\r' | b'\n' => self.enter(),
                0x04 if self.partial.is_empty() => {
                    self.lines.push_back(InputLine::End);
                    1
                }
                0x08 | 0x7f => {
                    self.partial.pop();
                    1
                }
                // Ctrl-U deletes the line, Ctrl-W its last word.
                0x15 => self.truncate_from(|line| line.rfind('\n').map_or(0, |at| at + 1)),
                0x17 => self.truncate_from(|line| {
                    let trimmed = line.trim_end_matches([' ', '\t']);
                    trimmed.rfind([' ', '\t', '\n']).map_or(0, |at| at + 1)
                }),
                0x1b if typed.starts_with(PASTE_START) => self.paste(typed),
                0x1b if matches!(typed.get(1), Some(b'\r' | b'\n')) => {
                    self.partial.push('\n');
                    2
                }
                0x1b => escape_sequence_bytes(typed),
                b'\t' => self.push_text(typed),
                0x00..=0x1f => 1,
                _ => self.push_text(typed),
            };
            typed = &typed[used..];
        }
    }

    fn enter(&mut self) -> usize {
        if !self.partial.is_empty() && !continue_entry(&mut self.partial) {
            let text = std::mem::take(&mut self.partial);
            self.lines
                .push_back(InputLine::Text(text.trim_end_matches('\n').to_owned()));
        }
        1
    }

    fn truncate_from(&mut self, from: impl Fn(&str) -> usize) -> usize {
        self.partial.truncate(from(&self.partial));
        1
    }

    fn paste(&mut self, typed: &[u8]) -> usize {
        let inner = &typed[PASTE_START.len()..];
        let end = memchr::memmem::find(inner, PASTE_END);
        let text = String::from_utf8_lossy(&inner[..end.unwrap_or(inner.len())]);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let plain = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
        self.partial.extend(text.chars().filter(plain));
        end.map_or(typed.len(), |end| PASTE_START.len() + end + PASTE_END.len())
    }

    fn push_text(&mut self, typed: &[u8]) -> usize {
        let is_control = |byte: &u8| *byte < 0x20 && *byte != b'\t' || *byte == 0x7f;
        let long = typed.iter().position(is_control).unwrap_or(typed.len());
        self.partial
            .push_str(&String::from_utf8_lossy(&typed[..long]));
        long
    }
}

/// True if a paste has begun and not ended.
pub(super) fn is_pasting(typed: &[u8]) -> bool {
    let begun = memchr::memmem::rfind(typed, PASTE_START);
    begun.is_some_and(|at| memchr::memmem::find(&typed[at..], PASTE_END).is_none())
}

/// Returns the length of the escape sequence at the start of `typed`: a cursor key, which has no effect without a line.
fn escape_sequence_bytes(typed: &[u8]) -> usize {
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
    use super::{InputLine, TypeAhead, is_pasting};

    fn check(typed: &str, lines: &[&str], begun: &str) {
        let mut ahead = TypeAhead::default();
        ahead.feed(typed.as_bytes());
        let mut found = Vec::new();
        while let Some(line) = ahead.pop_line() {
            found.push(match line {
                InputLine::Text(text) => text,
                other => format!("{other:?}"),
            });
        }
        assert_eq!(found, lines, "{typed:?}");
        assert_eq!(ahead.take_partial(), begun, "{typed:?}");
    }

    #[test]
    fn typed_keys_become_lines() {
        check("", &[], "");
        check("one\rtwo\nthr", &["one", "two"], "thr");
        check("tyop\u{7f}\u{7f}po\r", &["typo"], "");
        check("grüße 你\u{7f}您\r", &["grüße 您"], "");
        check("\r\rone\r", &["one"], "");
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
    fn merged_lines_become_the_partial_line() {
        let mut ahead = TypeAhead::default();
        ahead.feed(b"one\rtwo\r\x04thr");
        ahead.merge_lines();
        assert_eq!(ahead.pop_line(), None);
        assert_eq!(ahead.take_partial(), "one\ntwo\nthr");
    }

    #[test]
    fn a_paste_is_open_until_it_ends() {
        assert!(!is_pasting(b"abc"));
        assert!(is_pasting(b"a\x1b[200~abc"));
        assert!(!is_pasting(b"a\x1b[200~abc\x1b[201~"));
        assert!(is_pasting(b"\x1b[200~abc\x1b[201~\x1b[200~"));
    }
}
