//! Type-ahead: keys typed while no line is being read, collected and converted into lines.
//!
//! The input is read continuously instead of being left in the kernel's buffer, since the kernel looks for Ctrl-C only
//! in the first 4,096 waiting bytes.

use super::history::SharedHistory;
use super::line::EditorLine;
use super::multiline::continue_entry;
use super::pasted::SharedPastes;
use console::Style;
use nanobot_os::terminal::StyledLine;
use std::collections::VecDeque;
use std::time::Instant;
use unicode_width::UnicodeWidthChar;

pub(super) const CTRL_D: u8 = 0x04;
pub(super) const BACKSPACE: u8 = 0x08;
pub(super) const CTRL_U: u8 = 0x15;
const CTRL_W: u8 = 0x17;
pub(super) const ESCAPE: u8 = 0x1b;
pub(super) const DELETE: u8 = 0x7f;
pub(super) const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// The line below the typed text, and the minimum width of a window that shows it.
const KEYS_HINT: &str = "Enter: after this turn · Alt-Enter: at its next step";
const MIN_HINT_COLUMNS: usize = 60;
/// The line that answers the Escape key after typed text.
const STOP_HINT: &str = "Esc again stops the turn; the text stays";
/// Maximum number of complete lines that are shown.
const MAX_SHOWN_LINES: usize = 4;

/// The lines typed ahead, and an incomplete last one.
#[derive(Debug, Default)]
pub(super) struct TypeAhead {
    lines: VecDeque<EditorLine>,
    /// Messages for the turn that is running.
    steering: VecDeque<String>,
    partial: String,
    /// Bytes that do not make a key yet.
    pending: Vec<u8>,
    /// The time of the last keys.
    pub(super) last_key: Option<Instant>,
    /// True after the Escape key, until the next one.
    shows_stop_hint: bool,
    pastes: SharedPastes,
    history: SharedHistory,
}

impl TypeAhead {
    pub(super) fn new(pastes: &SharedPastes, history: &SharedHistory) -> Self {
        Self {
            pastes: SharedPastes::clone(pastes),
            history: SharedHistory::clone(history),
            ..Self::default()
        }
    }

    /// Removes and returns the first complete line.
    pub(super) fn pop_line(&mut self) -> Option<EditorLine> {
        self.lines.pop_front()
    }

    /// Removes and returns the incomplete line.
    pub(super) fn take_partial(&mut self) -> String {
        std::mem::take(&mut self.partial)
    }

    /// Removes and returns the first message for the turn that is running.
    pub(super) fn take_steering(&mut self) -> Option<String> {
        let text = self.steering.pop_front()?;
        Some(self.pastes.lock().unfold(&text))
    }

    /// Ends the turn: the messages that came too late for it are the next lines.
    pub(super) fn end_turn(&mut self) {
        self.shows_stop_hint = false;
        while let Some(text) = self.steering.pop_back() {
            self.lines.push_front(EditorLine::Text(text));
        }
    }

    /// Merges all lines into the incomplete one, so that none is submitted automatically.
    pub(super) fn merge_lines(&mut self) {
        let mut merged = String::new();
        for line in self.lines.drain(..) {
            if let EditorLine::Text(text) = line {
                merged.push_str(&text);
                merged.push('\n');
            }
        }
        merged.push_str(&self.partial);
        self.partial = merged.trim_end_matches('\n').to_owned();
    }

    /// Returns the rows that show the typed text, for a window of `width` columns.
    pub(super) fn status_rows(&self, width: usize) -> Vec<StyledLine> {
        let steering = self.steering.iter().map(|text| ("at the next step", first_words(text)));
        let lines = self.lines.iter().filter_map(|line| match line {
            EditorLine::Text(text) => Some(("after this turn", first_words(text))),
            EditorLine::Interrupted | EditorLine::End | EditorLine::Key(..) => None,
        });
        let texts: Vec<(&str, String)> = steering.chain(lines).collect();
        let row = |(when, text): &(&str, String)| {
            let row = StyledLine::new("> ").shrinkable(text.as_str());
            row.dim(format!("  {when}"))
        };
        let mut rows: Vec<StyledLine> = texts.iter().take(MAX_SHOWN_LINES).map(row).collect();
        if texts.len() > rows.len() {
            rows.push(StyledLine::default().dim(format!("  … {} more", texts.len() - rows.len())));
        }
        rows.extend(self.partial_rows(width));
        let hint = if self.shows_stop_hint {
            Some(STOP_HINT)
        } else {
            (!self.partial.is_empty() && width >= MIN_HINT_COLUMNS).then_some(KEYS_HINT)
        };
        rows.extend(hint.map(|hint| StyledLine::default().dim(format!("  {hint}"))));
        rows
    }

    /// Returns the rows of the incomplete line. If it has several lines: the first one, their number, and the last one.
    fn partial_rows(&self, width: usize) -> Vec<StyledLine> {
        if self.partial.is_empty() {
            return Vec::new();
        }
        let mut rows = Vec::new();
        let mut prompt = "> ";
        if let Some((first, _)) = self.partial.split_once('\n') {
            let count = self.partial.split('\n').count();
            let row = StyledLine::new(prompt).shrinkable(first);
            rows.push(row.dim(format!("  … {count} lines")));
            prompt = "  ";
        }
        let last = self.partial.rsplit('\n').next().unwrap_or_default();
        let row = StyledLine::new(prompt).plain(last_columns(last, width.saturating_sub(4)));
        rows.push(row.styled("▏", Style::new().dim()));
        rows
    }

    /// Returns the end of the incomplete line, at most `columns` wide, after an ellipsis if it is cut; `None` if nothing
    /// was typed.
    pub(super) fn describe_partial(&self, columns: usize) -> Option<String> {
        let line = self.partial.replace('\n', " ");
        (!line.is_empty()).then(|| last_columns(&line, columns))
    }

    /// True if a paste has begun and not ended.
    pub(super) fn is_pasting(&self) -> bool {
        self.pending.starts_with(PASTE_START)
    }

    /// True if the last byte was that of the Escape key, or the start of another key whose rest is missing.
    pub(super) fn has_open_escape(&self) -> bool {
        self.pending.first() == Some(&ESCAPE) && !self.is_pasting()
    }

    /// Ends an open escape sequence, whose rest did not arrive in time. True if it is the Escape key alone, and stops the turn: where
    /// text is typed, only the second one does.
    pub(super) fn end_escape(&mut self) -> bool {
        let is_escape = self.pending == [ESCAPE];
        let stops_turn = is_escape && (self.partial.is_empty() || self.shows_stop_hint);
        self.shows_stop_hint = is_escape && !stops_turn;
        self.pending.clear();
        stops_turn
    }

    /// Processes typed bytes, and records the time.
    pub(super) fn add_keys(&mut self, typed: &[u8]) {
        self.feed(typed, false);
        self.last_key = Some(Instant::now());
    }

    /// Processes typed bytes. Unless it `is_over`, the start of a key waits for its rest.
    pub(super) fn feed(&mut self, typed: &[u8], is_over: bool) {
        self.shows_stop_hint &= typed.is_empty() || typed == [ESCAPE];
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(typed);
        let mut rest = &pending[..];
        while let Some(used) = self.process_key(rest, is_over) {
            rest = &rest[used..];
        }
        self.pending = rest.to_vec();
    }

    /// Processes the key, or the text, at the start of `typed`; returns its length. `None` if it is incomplete.
    fn process_key(&mut self, typed: &[u8], is_over: bool) -> Option<usize> {
        Some(match typed.first()? {
            b'\r' | b'\n' => self.enter(),
            &CTRL_D if self.partial.is_empty() => {
                self.lines.push_back(EditorLine::End);
                1
            }
            &(BACKSPACE | DELETE) => self.delete_back(),
            // Ctrl-U deletes the line, Ctrl-W its last word.
            &CTRL_U => self.truncate_from(|line| line.rfind('\n').map_or(0, |end| end + 1)),
            &CTRL_W => self.truncate_from(|line| {
                let trimmed = line.trim_end_matches([' ', '\t']);
                trimmed.rfind([' ', '\t', '\n']).map_or(0, |end| end + 1)
            }),
            &ESCAPE if !is_over && PASTE_START.starts_with(typed) => return None,
            &ESCAPE if typed.starts_with(PASTE_START) => return self.paste(typed, is_over),
            &ESCAPE if matches!(typed.get(1), Some(b'\r' | b'\n')) => self.steer(),
            &ESCAPE => return escape_sequence_bytes(typed, is_over),
            b'\t' => return self.push_text(typed, is_over),
            0x00..=0x1f => 1,
            _ => return self.push_text(typed, is_over),
        })
    }

    fn enter(&mut self) -> usize {
        if !self.partial.is_empty() && !continue_entry(&mut self.partial) {
            let text = std::mem::take(&mut self.partial);
            let text = text.trim_end_matches('\n').to_owned();
            self.history.lock().append_queued(&self.pastes.lock().unfold(&text));
            self.lines.push_back(EditorLine::Text(text));
        }
        1
    }

    /// Alt-Enter: the text goes to the turn that is running. Commands are for the REPL.
    fn steer(&mut self) -> usize {
        let is_message = !self.partial.trim_start().starts_with(['/', '!']);
        if is_message && !self.partial.trim().is_empty() {
            let text = std::mem::take(&mut self.partial);
            self.history.lock().append_queued(&self.pastes.lock().unfold(&text));
            self.steering.push_back(text);
        } else {
            self.enter();
        }
        2
    }

    fn delete_back(&mut self) -> usize {
        let pastes = self.pastes.lock();
        match pastes.mark_at_end(&self.partial) {
            Some(mark) => self.partial.truncate(self.partial.len() - mark.len()),
            None => {
                self.partial.pop();
            }
        }
        1
    }

    fn truncate_from(&mut self, from: impl Fn(&str) -> usize) -> usize {
        self.partial.truncate(from(&self.partial));
        1
    }

    fn paste(&mut self, typed: &[u8], is_over: bool) -> Option<usize> {
        let inner = &typed[PASTE_START.len()..];
        let end = memchr::memmem::find(inner, PASTE_END);
        if end.is_none() && !is_over {
            return None;
        }
        let text = String::from_utf8_lossy(&inner[..end.unwrap_or(inner.len())]);
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let is_plain = |letter: &char| !letter.is_control() || matches!(letter, '\n' | '\t');
        let text: String = text.chars().filter(is_plain).collect();
        let folded = self.pastes.lock().fold(text);
        self.partial.push_str(&folded);
        Some(end.map_or(typed.len(), |end| PASTE_START.len() + end + PASTE_END.len()))
    }

    fn push_text(&mut self, typed: &[u8], is_over: bool) -> Option<usize> {
        let is_control = |byte: &u8| *byte < 0x20 && *byte != b'\t' || *byte == DELETE;
        let mut length = typed.iter().position(is_control).unwrap_or(typed.len());
        if length == typed.len()
            && !is_over
            && let Err(error) = std::str::from_utf8(typed)
            && error.error_len().is_none()
        {
            // The rest of the last character follows.
            length = error.valid_up_to();
        }
        self.partial.push_str(&String::from_utf8_lossy(&typed[..length]));
        (length > 0).then_some(length)
    }
}

/// Returns the first line of `text`, with a mark if there are others.
fn first_words(text: &str) -> String {
    match text.split_once('\n') {
        Some((first, _)) => format!("{first} …"),
        None => text.to_owned(),
    }
}

/// Returns the end of `text`, at most `columns` wide, after an ellipsis if it is cut.
fn last_columns(text: &str, columns: usize) -> String {
    let mut width = 0;
    for (offset, letter) in text.char_indices().rev() {
        width += letter.width().unwrap_or(0);
        if width > columns {
            return format!("…{}", &text[offset + letter.len_utf8()..]);
        }
    }
    text.to_owned()
}

/// Returns the length of the escape sequence at the start of `typed`: a cursor key, which has no effect without a line.
fn escape_sequence_bytes(typed: &[u8], is_over: bool) -> Option<usize> {
    let body = match typed.get(1) {
        Some(b'[') => typed[2..].iter().position(|byte| matches!(byte, 0x40..=0x7e)),
        Some(b'O') => (typed.len() > 2).then_some(0),
        Some(_) => return Some(2),
        None => None,
    };
    match body {
        None if !is_over => None,
        body => Some(body.map_or(typed.len(), |at| (at + 3).min(typed.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::{EditorLine, TypeAhead};
    use nanobot_os::terminal::StyledLine;

    #[track_caller]
    fn check(typed: &str, lines: &[&str], partial: &str) {
        check_pieces(&[typed.as_bytes()], lines, partial);
        // Key by key.
        let bytes: Vec<&[u8]> = typed.as_bytes().chunks(1).collect();
        check_pieces(&bytes, lines, partial);
    }

    #[track_caller]
    fn check_pieces(typed: &[&[u8]], lines: &[&str], partial: &str) {
        let mut ahead = TypeAhead::default();
        typed.iter().for_each(|piece| ahead.feed(piece, false));
        ahead.feed(&[], true);
        ahead.end_turn();
        let mut actual = Vec::new();
        while let Some(line) = ahead.pop_line() {
            actual.push(match line {
                EditorLine::Text(text) => text,
                other => format!("{other:?}"),
            });
        }
        assert_eq!(actual, lines, "{typed:?}");
        assert_eq!(ahead.take_partial(), partial, "{typed:?}");
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
        check("a\u{1b}\rb\r", &["a", "b"], "");
        check("a\tb\r", &["a\tb"], "");
        check("\u{1b}[Aup\u{1b}[1;5Cright\u{1b}OPf\r", &["uprightf"], "");
        check("\u{4}", &["End"], "");
        check("a\u{4}b", &[], "ab");
        check("x\u{1b}[200~1\r\n2\t3\r4\u{1b}[201~y\rz", &["x1\n2\t3\n4y"], "z");
        check("\u{1b}[200~a\nb\n\u{1b}[201~\r", &["a\nb"], "");
        check("\u{1b}", &[], "");
        check("\u{1b}[", &[], "");
    }

    #[test]
    fn merged_lines_become_the_partial_line() {
        let mut ahead = TypeAhead::default();
        ahead.feed(b"one\rtwo\r\x04thr", false);
        ahead.merge_lines();
        assert_eq!(ahead.pop_line(), None);
        assert_eq!(ahead.take_partial(), "one\ntwo\nthr");
    }

    #[test]
    fn the_escape_key_leaves_the_next_key_whole() {
        for (typed, hint) in [("a\u{1b}", true), ("a\u{1b}[", false), ("a\u{1b}[1;", false)] {
            let mut ahead = TypeAhead::default();
            ahead.feed(typed.as_bytes(), false);
            assert!(ahead.has_open_escape(), "{typed:?}");
            assert!(!ahead.end_escape(), "{typed:?}");
            let rows = ahead.status_rows(40);
            let is_hinted = rows.iter().any(|row| row.text().contains("Esc again"));
            assert_eq!(is_hinted, hint, "{typed:?}");
            ahead.feed(b"b", false);
            assert_eq!(ahead.status_rows(40).len(), 1, "{typed:?}");
            assert_eq!(ahead.take_partial(), "ab", "{typed:?}");
        }
    }

    #[test]
    fn the_escape_key_stops_the_turn_at_once_only_without_text() {
        for (typed, stops) in [
            (&["\x1b"][..], true),
            (&["\x1b["], false),
            (&["a", "\x1b", "\x1b"], true),
            (&["a", "\x1b", "b", "\x1b"], false),
            (&["a", "\x1b", "\x15", "\x1b"], true),
            (&["a\r", "\x1b"], true),
        ] {
            let mut ahead = TypeAhead::default();
            let mut has_stopped = false;
            for keys in typed {
                ahead.feed(keys.as_bytes(), false);
                has_stopped = ahead.has_open_escape() && ahead.end_escape();
            }
            assert_eq!(has_stopped, stops, "{typed:?}");
        }
    }

    #[test]
    fn a_paste_is_open_until_it_ends() {
        let mut ahead = TypeAhead::default();
        for (typed, is_open) in [("abc", false), ("a\x1b[200~abc", true), ("\x1b[201~", false)] {
            ahead.feed(typed.as_bytes(), false);
            assert_eq!(ahead.is_pasting(), is_open, "{typed:?}");
        }
    }

    #[test]
    fn what_was_typed_is_shown_and_goes_where_it_should() {
        let mut ahead = TypeAhead::default();
        ahead.feed(b"later\rnow\x1b\r/usage\x1b\rhalf a li", false);
        let shown = |ahead: &TypeAhead, width| {
            let rows = ahead.status_rows(width);
            rows.iter().map(StyledLine::text).collect::<Vec<_>>()
        };
        let rows = shown(&ahead, 40);
        let expect = [
            "> now  at the next step",
            "> later  after this turn",
            "> /usage  after this turn",
            "> half a li▏",
        ];
        assert_eq!(rows, expect);
        assert_eq!(shown(&ahead, 80).len(), 5);
        assert_eq!(ahead.take_steering().as_deref(), Some("now"));
        assert_eq!(ahead.take_steering(), None);
        // Too late for the turn.
        ahead.feed(b"\x15first\x1b\r", false);
        ahead.end_turn();
        assert_eq!(ahead.pop_line(), Some(EditorLine::Text("first".into())));
        assert_eq!(ahead.pop_line(), Some(EditorLine::Text("later".into())));
        // A narrow window shows the end of a long line.
        ahead.feed("x".repeat(50).as_bytes(), false);
        assert_eq!(shown(&ahead, 20).last().unwrap(), &format!("> …{}▏", "x".repeat(16)));
        // A draft of several lines shows its first and its last one.
        ahead.feed(b"\x15fix this: \x1b[200~one\rtwo\r\x1b[201~", false);
        let rows = shown(&ahead, 40);
        assert_eq!(rows[1..], ["> fix this: one  … 3 lines", "  ▏"]);
        assert_eq!(ahead.describe_partial(8).as_deref(), Some("…one two "));
        assert_eq!(ahead.take_partial(), "fix this: one\ntwo\n");
        // A long paste is folded, and deleted as a whole.
        let paste = format!("\x15a \x1b[200~{}\x1b[201~", "line\r".repeat(50));
        ahead.feed(paste.as_bytes(), false);
        assert_eq!(ahead.take_partial(), "a [pasted 50 lines]");
        ahead.feed(paste.as_bytes(), false);
        ahead.feed(b"\x7f", false);
        assert_eq!(ahead.take_partial(), "a ");
    }
}
