//! Separates think blocks, which some models emit within their text as reasoning, from the text.
//!
//! Only a block at the beginning of the text counts; a tag quoted later, in prose or code, is text. An unclosed block
//! extends to the end. Pure, and independent of how the stream is split.

/// The names of the tags, longest first because one is a prefix of another.
const NAMES: [&str; 3] = ["thinking", "thought", "think"];

/// Splits a stream of text into text and reasoning.
#[derive(Debug, Default)]
pub struct Splitter {
    state: State,
    /// Text that is not classified yet.
    held: String,
    /// True after a block: white space between it and the text is dropped.
    after_block: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Only white space so far: a block may begin.
    #[default]
    Start,
    /// Within a block of this tag.
    Thinking(&'static str),
    /// Text until the end of the stream.
    Text,
}

/// A classified piece of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Thought(String),
}

impl Splitter {
    /// Processes the next piece of the stream. Returns the pieces that are classified by now.
    pub fn feed(&mut self, text: &str) -> Vec<Piece> {
        if self.state == State::Text {
            return vec![Piece::Text(text.to_owned())];
        }
        self.held.push_str(text);
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// Ends the stream. Returns the rest.
    pub fn finish(&mut self) -> Vec<Piece> {
        let held = std::mem::take(&mut self.held);
        match self.state {
            _ if held.is_empty() => Vec::new(),
            State::Thinking(_) => vec![Piece::Thought(held)],
            State::Start | State::Text => vec![Piece::Text(held)],
        }
    }

    /// Classifies one piece of the held text; `false` if more input is needed.
    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        match self.state {
            State::Text => {
                let held = std::mem::take(&mut self.held);
                if !held.is_empty() {
                    pieces.push(Piece::Text(held));
                }
                false
            }
            State::Start => {
                if self.after_block {
                    self.held = self.held.trim_start().to_owned();
                }
                let rest = self.held.trim_start();
                let opened = NAMES
                    .iter()
                    .find(|name| rest.starts_with(&format!("<{name}>")));
                let may_open = NAMES
                    .iter()
                    .any(|name| format!("<{name}>").starts_with(rest));
                if let Some(name) = opened {
                    self.held = rest[name.len() + 2..].to_owned();
                    self.state = State::Thinking(name);
                } else if may_open {
                    return false;
                } else {
                    self.state = State::Text;
                }
                true
            }
            State::Thinking(name) => {
                let end = format!("</{name}>");
                if let Some(at) = self.held.find(&end) {
                    let rest = self.held[at + end.len()..].to_owned();
                    self.after_block = true;
                    self.held.truncate(at);
                    pieces.push(Piece::Thought(std::mem::replace(&mut self.held, rest)));
                    self.state = State::Start;
                    return true;
                }
                // Everything is reasoning, except a suffix that may be the beginning of the closing tag.
                let known = (0..end.len())
                    .rev()
                    .find(|length| self.held.ends_with(&end[..*length]))
                    .unwrap_or(0);
                let rest = self.held.split_off(self.held.len() - known);
                let thought = std::mem::replace(&mut self.held, rest);
                if !thought.is_empty() {
                    pieces.push(Piece::Thought(thought));
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Piece, Splitter};

    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = Splitter::default();
        let mut found: Vec<Piece> = pieces
            .into_iter()
            .flat_map(|piece| splitter.feed(piece))
            .collect();
        found.extend(splitter.finish());
        let (mut thought, mut text) = (String::new(), String::new());
        for piece in found {
            match piece {
                Piece::Text(words) => text.push_str(&words),
                Piece::Thought(words) => thought.push_str(&words),
            }
        }
        (thought, text)
    }

    #[test]
    fn blocks_at_the_start_are_thought() {
        let check = |stream: &str, thought: &str, text: &str| {
            for (cut, _) in stream.char_indices().chain([(stream.len(), ' ')]) {
                assert_eq!(
                    split([&stream[..cut], &stream[cut..]]),
                    (thought.into(), text.into()),
                    "{stream:?} cut at {cut}"
                );
            }
            let letters: Vec<String> = stream.chars().map(String::from).collect();
            assert_eq!(
                split(letters.iter().map(String::as_str)),
                (thought.into(), text.into()),
                "{stream:?} by letters"
            );
        };
        check("plain", "", "plain");
        check("", "", "");
        check("<think>a</think>b", "a", "b");
        check("\n<thinking>a</thinking>\n\nb", "a", "b");
        check("<thought>a</thought>b", "a", "b");
        check("<think>a</think><think>c</think>b", "ac", "b");
        check("<think>never ends", "never ends", "");
        check("<think>a < b </thin </think>c", "a < b </thin ", "c");
        check("use <think>x</think> tags", "", "use <think>x</think> tags");
        check("<think", "", "<think");
        check("<thinker>x", "", "<thinker>x");
        check("a<think>b", "", "a<think>b");
        check("<think>é</think>日本", "é", "日本");
        check("  indented", "", "  indented");
    }

    #[test]
    fn fuzz_nothing_is_lost_and_cuts_do_not_matter() {
        let seeds: &[&[u8]] = &[
            b"<think>hm, 4?</think>\n\n4",
            b"\n<thinking>a</thinking><thought>b</thought>c <think>d</think>",
            "<think>\u{e9} < </thin</think>\u{65e5}".as_bytes(),
        ];
        crate::fuzz::hold(seeds, |input, random| {
            let stream = crate::fuzz::text(input);
            let mut cut = random.below(stream.len() + 1);
            while !stream.is_char_boundary(cut) {
                cut -= 1;
            }
            let whole = split([stream.as_str()]);
            assert_eq!(split([&stream[..cut], &stream[cut..]]), whole);
            assert!(whole.0.len() + whole.1.len() <= stream.len());
            assert!(stream.ends_with(&whole.1));
        });
    }
}
