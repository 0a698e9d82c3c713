//! Interprets the bytes that are typed at a question that one key answers. No I/O.
//!
//! Keys that follow one another quickly are a word, not single keys. A word that is not an answer was meant for the draft.

use super::type_ahead::{BACKSPACE, CTRL_D, CTRL_U, DELETE, ESCAPE, PASTE_START};
use super::typing_guard::ESCAPE_TIMEOUT;
use std::time::Duration;

/// A key is an answer if no other key follows within this time.
const KEY_PAUSE: Duration = Duration::from_millis(250);

/// The longest encoding of a character in UTF-8.
const MAX_UTF8_BYTES: usize = 4;

/// A possible answer: a word, whose first letter, of ASCII, is its key.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    pub word: &'static str,
    /// True if the key only selects it, and Enter confirms.
    needs_enter: bool,
}

impl Choice {
    /// Creates an answer that its key gives at once.
    pub const fn immediate(word: &'static str) -> Self {
        Self { word, needs_enter: false }
    }

    /// Creates an answer that Enter confirms.
    pub const fn confirmed(word: &'static str) -> Self {
        Self { word, needs_enter: true }
    }
}

/// The words of the choice for the Escape key, the preferred one first.
const DECLINING_WORDS: [&str; 2] = ["cancel", "no"];

/// The outcome of the keys so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChoiceOutcome {
    /// The choice with this index.
    Chosen(usize),
    /// Ctrl-D.
    End,
    /// Text that is no answer.
    Draft(Vec<u8>),
}

/// The state of the question.
pub(super) struct ChoiceInput<'c> {
    choices: &'c [Choice],
    /// The answer of Enter alone.
    default: Option<usize>,
    /// The letters of the last moments.
    word: String,
    selected: Option<usize>,
    /// A key that is none of the choices.
    refused: Option<String>,
    /// Bytes that are not processed yet.
    pending: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
enum ChoiceKey {
    Letter(char),
    Enter,
    Up,
    Down,
    Backspace,
    End,
    Paste,
    Other,
}

impl<'c> ChoiceInput<'c> {
    pub(super) fn new(choices: &'c [Choice], default: Option<usize>) -> Self {
        Self {
            choices,
            default,
            word: String::new(),
            selected: None,
            refused: None,
            pending: Vec::new(),
        }
    }

    /// Returns the choice that `text`, a line, names by its key or its word.
    pub(super) fn parse_line(&self, text: &str) -> Option<usize> {
        let text = text.trim();
        if text.is_empty() { self.default } else { self.find(text) }
    }

    /// Returns the choice whose key or word is `text`.
    fn find(&self, text: &str) -> Option<usize> {
        let text = text.to_lowercase();
        let is_named = |choice: &Choice| text == choice.word || text == choice.word[..1];
        self.choices.iter().position(is_named)
    }

    /// Returns the time after which [`Self::pause`] is to be called, if no key comes before.
    pub(super) fn timeout(&self) -> Option<Duration> {
        if self.pending.first() == Some(&ESCAPE) {
            return Some(ESCAPE_TIMEOUT);
        }
        (self.word.chars().count() == 1).then_some(KEY_PAUSE)
    }

    /// Processes typed bytes.
    pub(super) fn feed(&mut self, typed: &[u8]) -> Option<ChoiceOutcome> {
        self.pending.extend_from_slice(typed);
        while let Some((key, length)) = first_key(&self.pending) {
            if key == ChoiceKey::Paste {
                return Some(self.take_draft());
            }
            self.pending.drain(..length);
            let outcome = match key {
                ChoiceKey::Letter(letter) => self.add_letter(letter),
                ChoiceKey::Enter => self.enter(),
                ChoiceKey::End => Some(ChoiceOutcome::End),
                ChoiceKey::Up | ChoiceKey::Down => {
                    self.select_next(key == ChoiceKey::Down);
                    None
                }
                ChoiceKey::Backspace => {
                    // The whole word: a letter that is left would be taken for an answer.
                    self.word.clear();
                    (self.selected, self.refused) = (None, None);
                    None
                }
                ChoiceKey::Paste | ChoiceKey::Other => None,
            };
            if outcome.is_some() {
                return outcome;
            }
        }
        None
    }

    /// Processes a pause after the last key.
    pub(super) fn pause(&mut self) -> Option<ChoiceOutcome> {
        if self.pending.first() == Some(&ESCAPE) {
            let is_alone = std::mem::take(&mut self.pending) == [ESCAPE];
            if !is_alone {
                return None;
            }
            let index = |word| self.choices.iter().position(|choice| choice.word == word);
            return DECLINING_WORDS.into_iter().find_map(index).map(ChoiceOutcome::Chosen);
        }
        match self.word.chars().count() {
            1 => self.take_word(false),
            _ => None,
        }
    }

    /// Returns the bytes after the answer.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Returns the text after the question, and a note.
    pub(super) fn display_text(&self) -> (&str, String) {
        if !self.word.is_empty() {
            return (&self.word, String::new());
        }
        match (self.selected, &self.refused) {
            (Some(selected), _) => (self.choices[selected].word, "  Enter confirms".into()),
            (None, Some(key)) => ("", format!("`{key}` is none of the keys in brackets")),
            (None, None) => ("", String::new()),
        }
    }

    fn add_letter(&mut self, letter: char) -> Option<ChoiceOutcome> {
        (self.selected, self.refused) = (None, None);
        self.word.push(letter);
        let typed = self.word.to_lowercase();
        let is_word = |choice: &Choice| choice.word.starts_with(&typed);
        let is_draft = typed.chars().count() > 1 && !self.choices.iter().any(is_word);
        is_draft.then(|| self.take_draft())
    }

    fn enter(&mut self) -> Option<ChoiceOutcome> {
        if !self.word.is_empty() {
            return self.take_word(true);
        }
        self.selected.or(self.default).map(ChoiceOutcome::Chosen)
    }

    /// Processes the letters as an answer.
    fn take_word(&mut self, is_confirmed: bool) -> Option<ChoiceOutcome> {
        let word = std::mem::take(&mut self.word);
        let choice = self.find(&word);
        match choice {
            Some(index) if is_confirmed || !self.choices[index].needs_enter => {
                return Some(ChoiceOutcome::Chosen(index));
            }
            Some(_) => self.selected = choice,
            None => (self.selected, self.refused) = (None, Some(word)),
        }
        None
    }

    fn select_next(&mut self, is_down: bool) {
        self.word.clear();
        self.refused = None;
        let last = self.choices.len() - 1;
        self.selected = Some(match (self.selected, is_down) {
            (None, true) => 0,
            (None, false) => last,
            (Some(index), true) if index < last => index + 1,
            (Some(index), false) if index > 0 => index - 1,
            (Some(index), _) => index,
        });
    }

    fn take_draft(&mut self) -> ChoiceOutcome {
        // The Enter that ends the draft confirms no earlier choice.
        (self.selected, self.refused) = (None, None);
        let mut text = std::mem::take(&mut self.word).into_bytes();
        text.append(&mut self.pending);
        ChoiceOutcome::Draft(text)
    }
}

/// Returns the first key of `typed` and its length in bytes; `None` if it is incomplete.
fn first_key(typed: &[u8]) -> Option<(ChoiceKey, usize)> {
    Some(match typed.first()? {
        b'\r' | b'\n' => (ChoiceKey::Enter, 1),
        b'\t' => (ChoiceKey::Down, 1),
        &(BACKSPACE | CTRL_U | DELETE) => (ChoiceKey::Backspace, 1),
        &CTRL_D => (ChoiceKey::End, 1),
        &ESCAPE if typed.starts_with(PASTE_START) => (ChoiceKey::Paste, PASTE_START.len()),
        &ESCAPE => return escape_sequence(typed),
        0x00..=0x1f => (ChoiceKey::Other, 1),
        _ => {
            let head = &typed[..typed.len().min(MAX_UTF8_BYTES)];
            let (text, is_open) = match std::str::from_utf8(head) {
                Ok(text) => (text, false),
                Err(error) => {
                    let valid = &head[..error.valid_up_to()];
                    let text = std::str::from_utf8(valid).unwrap_or_default();
                    (text, error.error_len().is_none() && typed.len() < MAX_UTF8_BYTES)
                }
            };
            match text.chars().next() {
                Some(letter) => (ChoiceKey::Letter(letter), letter.len_utf8()),
                None if is_open => return None,
                None => (ChoiceKey::Other, 1),
            }
        }
    })
}

fn escape_sequence(typed: &[u8]) -> Option<(ChoiceKey, usize)> {
    let end = match typed.get(1)? {
        b'[' => {
            // The function keys of the Linux console have a second bracket: `ESC [ [ A`.
            let start = if typed.get(2) == Some(&b'[') { 3 } else { 2 };
            let mut body = typed.get(start..)?.iter();
            body.position(|byte| matches!(byte, 0x40..=0x7e))? + start
        }
        b'O' => 2,
        // It may begin a sequence, as Alt with an arrow in some terminals.
        &ESCAPE => return Some((ChoiceKey::Other, 1)),
        _ => return Some((ChoiceKey::Other, 2)),
    };
    let key = match (typed.get(end)?, end) {
        (b'A', 2) => ChoiceKey::Up,
        (b'B', 2) => ChoiceKey::Down,
        _ => ChoiceKey::Other,
    };
    Some((key, end + 1))
}

#[cfg(test)]
mod tests {
    use super::{Choice, ChoiceInput, ChoiceOutcome};

    const CHOICES: [Choice; 3] =
        [Choice::immediate("yes"), Choice::immediate("no"), Choice::confirmed("session")];

    /// Feeds `pieces` with a pause after each; returns the outcome, and what is shown without one.
    fn ask(pieces: &[&str], default: Option<usize>) -> (Option<ChoiceOutcome>, String) {
        let mut input = ChoiceInput::new(&CHOICES, default);
        for piece in pieces {
            let outcome = input.feed(piece.as_bytes()).or_else(|| {
                let timeout = input.timeout();
                timeout.and_then(|_| input.pause())
            });
            if outcome.is_some() {
                return (outcome, String::from_utf8(input.take_rest()).unwrap());
            }
        }
        let (text, note) = input.display_text();
        (None, format!("{text}{note}"))
    }

    #[test]
    fn a_key_a_word_and_the_arrows_answer() {
        let check = |pieces: &[&str], chosen: usize, rest: &str| {
            let expect = (Some(ChoiceOutcome::Chosen(chosen)), rest.to_owned());
            assert_eq!(ask(pieces, None), expect, "{pieces:?}");
        };
        check(&["y"], 0, "");
        check(&["Y"], 0, "");
        check(&["y\r"], 0, "");
        check(&["yes\r"], 0, "");
        check(&["no\ry\r"], 1, "y\r");
        check(&["\u{1b}"], 1, "");
        check(&["s", "\r"], 2, "");
        check(&["s\r"], 2, "");
        check(&["s", "y"], 0, "");
        check(&["\u{1b}[B", "\r"], 0, "");
        check(&["\u{1b}[B\u{1b}OB\r"], 1, "");
        check(&["\u{1b}[A\r"], 2, "");
        check(&["\u{1b}[A\u{1b}[A\u{1b}[A\u{1b}[A\r"], 0, "");
        check(&["x", "y"], 0, "");
        check(&["q\u{7f}y"], 0, "");
        check(&["\u{1b}[1;5Cy"], 0, "");
        check(&["\u{1b}[[Ay"], 0, "");
        check(&["\u{1b}\u{1b}[B", "\r"], 0, "");
        check(&["yes\u{15}", "n"], 1, "");
        assert_eq!(ask(&["\r"], Some(1)).0, Some(ChoiceOutcome::Chosen(1)));
        assert_eq!(ask(&["\u{4}"], None).0, Some(ChoiceOutcome::End));
    }

    #[test]
    fn other_text_belongs_to_the_draft() {
        let check = |pieces: &[&str], draft: &str| {
            let expect = (Some(ChoiceOutcome::Draft(draft.into())), String::new());
            assert_eq!(ask(pieces, None), expect, "{pieces:?}");
        };
        check(&["your tests\r"], "your tests\r");
        check(&["yy"], "yy");
        check(&["o please"], "o please");
        check(&["\u{1b}[200~yes\u{1b}[201~"], "\u{1b}[200~yes\u{1b}[201~");
        check(&["größe"], "größe");
    }

    #[test]
    fn a_key_that_is_no_choice_is_refused_at_once() {
        let check = |pieces: &[&str], shown: &str| {
            assert_eq!(ask(pieces, None), (None, shown.to_owned()), "{pieces:?}");
        };
        check(&["x"], "`x` is none of the keys in brackets");
        check(&["ß"], "`ß` is none of the keys in brackets");
        check(&["\r"], "");
        check(&["\u{1b}["], "");
        check(&["\u{3}"], "");
        check(&["s"], "session  Enter confirms");
        check(&["ye"], "ye");
        check(&[" "], "` ` is none of the keys in brackets");
    }

    #[test]
    fn an_erased_answer_is_none() {
        for erase in ["\u{7f}", "\u{8}", "\u{15}"] {
            assert_eq!(ask(&["ye", erase], Some(0)), (None, String::new()), "{erase:?}");
        }
        assert_eq!(ask(&[" "], Some(0)).0, None);
    }

    #[test]
    fn a_draft_takes_back_a_selection() {
        let mut input = ChoiceInput::new(&CHOICES, None);
        assert_eq!(input.feed(b"s"), None);
        assert_eq!(input.pause(), None);
        assert_eq!(input.feed(b"to"), Some(ChoiceOutcome::Draft(b"to".to_vec())));
        assert_eq!(input.feed(b"\r"), None);
    }
}
