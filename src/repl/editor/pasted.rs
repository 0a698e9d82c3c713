//! Long pastes. The line that is being edited has a short mark for each; the entry has its text. No I/O.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum lines and characters of a paste that is shown.
const MAX_SHOWN_LINES: usize = 8;
const MAX_SHOWN_CHARS: usize = 1000;
/// Maximum characters of the first line of an entry of the history that is shown before the mark.
const MAX_FIRST_LINE_CHARS: usize = 200;

/// The first character of a mark, which occurs in it only once.
pub(super) const MARK_START: char = '[';

/// The long pastes so far. They are kept, since a deleted mark can be brought back.
#[derive(Debug, Default)]
pub(super) struct FoldedPastes {
    pastes: Vec<FoldedPaste>,
    /// The number of pastes of each size, such as `120 lines`, which tells the marks apart.
    counts: HashMap<String, usize>,
}

/// The pastes, shared by all that take input.
pub(super) type SharedPastes = Arc<Mutex<FoldedPastes>>;

#[derive(Debug)]
struct FoldedPaste {
    /// Its mark, such as `[pasted 120 lines]`.
    mark: String,
    text: String,
}

impl FoldedPastes {
    /// Returns the text of a paste in the line: its own text, or a mark if that is long.
    pub(super) fn fold(&mut self, text: String) -> String {
        let Some(size) = describe_long(&text) else {
            return text;
        };
        if let Some(paste) = self.pastes.iter().find(|paste| paste.text == text) {
            return paste.mark.clone();
        }
        let mut mark = format!("{MARK_START}pasted {size}]");
        let count = self.counts.entry(size.clone()).or_default();
        *count += 1;
        if *count > 1 {
            mark = format!("{MARK_START}pasted {size}, {count}]");
        }
        self.pastes.push(FoldedPaste { mark: mark.clone(), text });
        mark
    }

    /// Returns the text of an entry in the line. Pastes in it become marks. If it is long for another reason, it is folded
    /// like a stored one.
    pub(super) fn fold_entry(&mut self, entry: &str) -> String {
        if describe_long(entry).is_none() {
            return entry.to_owned();
        }
        let pastes = self.pastes.iter();
        let folded =
            pastes.fold(entry.to_owned(), |line, paste| line.replace(&paste.text, &paste.mark));
        match describe_long(&folded) {
            None => folded,
            Some(_) => self.fold_stored_entry(entry),
        }
    }

    /// Returns the text of an entry of the history file in the line: if it is long, all but its first line becomes a mark. It
    /// is not searched for pastes, since there may be thousands of both.
    pub(super) fn fold_stored_entry(&mut self, entry: &str) -> String {
        if describe_long(entry).is_none() {
            return entry.to_owned();
        }
        match entry.split_once('\n') {
            Some((first, rest)) if first.chars().count() <= MAX_FIRST_LINE_CHARS => {
                format!("{first}\n{}", self.fold(rest.to_owned()))
            }
            _ => self.fold(entry.to_owned()),
        }
    }

    /// Replaces the marks in `line` by their texts.
    pub(super) fn unfold(&self, line: &str) -> String {
        let mut text = String::new();
        let mut rest = line;
        // The text of a paste may contain text that looks like a mark, so it is not searched.
        while let Some((at, paste)) = self.first_mark(rest) {
            text.push_str(&rest[..at]);
            text.push_str(&paste.text);
            rest = &rest[at + paste.mark.len()..];
        }
        text + rest
    }

    fn first_mark(&self, text: &str) -> Option<(usize, &FoldedPaste)> {
        let marks = self.pastes.iter();
        marks.filter_map(|paste| Some((text.find(&paste.mark)?, paste))).min_by_key(|(at, _)| *at)
    }

    /// Returns the mark at the end of `text`, which is deleted as a whole.
    pub(super) fn mark_at_end(&self, text: &str) -> Option<&str> {
        let mut marks = self.pastes.iter().map(|paste| paste.mark.as_str());
        marks.find(|mark| text.ends_with(mark))
    }
}

/// The size of a text that is too long to be shown; `None` if it is not.
fn describe_long(text: &str) -> Option<String> {
    let (lines, chars) = (text.lines().count(), text.chars().count());
    if lines > MAX_SHOWN_LINES {
        Some(format!("{lines} lines"))
    } else {
        (chars > MAX_SHOWN_CHARS).then(|| format!("{chars} characters"))
    }
}

#[cfg(test)]
mod tests {
    use super::FoldedPastes;
    use std::collections::HashSet;

    #[test]
    fn long_pastes_are_folded_and_restored() {
        let mut pastes = FoldedPastes::default();
        assert_eq!(pastes.fold("short\ntext".into()), "short\ntext");
        let lines = "line\n".repeat(120);
        let words = "word ".repeat(300);
        assert_eq!(pastes.fold(lines.clone()), "[pasted 120 lines]");
        assert_eq!(pastes.fold(words.clone()), "[pasted 1500 characters]");
        let marked = format!("{}[pasted 120 lines]", "other\n".repeat(119));
        assert_eq!(pastes.fold(marked.clone()), "[pasted 120 lines, 2]");
        assert_eq!(pastes.mark_at_end("a [pasted 120 lines]"), Some("[pasted 120 lines]"));
        assert_eq!(pastes.mark_at_end("a [pasted 120 lines] "), None);
        let line = "a [pasted 120 lines, 2] b [pasted 120 lines]c";
        assert_eq!(pastes.unfold(line), format!("a {marked} b {lines}c"));
        assert_eq!(pastes.unfold("[pasted 1500 characters]"), words);
        // The same paste has the same mark.
        assert_eq!(pastes.fold(lines), "[pasted 120 lines]");
        // An entry of the history shows the mark again, or another one.
        assert_eq!(pastes.fold_entry(&pastes.unfold(line)), line);
        for entry in ["a\nb".to_owned(), "long ".repeat(500), format!("first\n{words}")] {
            let folded = pastes.fold_entry(&entry);
            assert!(folded.len() < 100, "{folded}");
            assert_eq!(pastes.unfold(&folded), entry);
        }
        let several = (1..40).map(|number| format!("{number}\n"));
        let several = several.collect::<String>();
        assert_eq!(pastes.fold_entry(&several), "1\n[pasted 38 lines]");
        for text in ["[pasted 12 lines]", "[pasted 1500 characters", ""] {
            assert_eq!(pastes.unfold(text), text);
        }
    }

    #[test]
    fn each_of_thousands_of_stored_entries_has_its_mark() {
        let mut pastes = FoldedPastes::default();
        let entries: Vec<String> =
            (0..5000).map(|number| format!("see\n{}{number}", "line\n".repeat(20))).collect();
        let folded: Vec<String> =
            entries.iter().map(|entry| pastes.fold_stored_entry(entry)).collect();
        assert_eq!(folded.iter().collect::<HashSet<_>>().len(), entries.len());
        assert_eq!(folded[1], "see\n[pasted 21 lines, 2]");
        assert_eq!(pastes.unfold(&folded[4999]), entries[4999]);
    }
}
