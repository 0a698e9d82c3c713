//! Separates think blocks, which some models emit within their text as reasoning, from the text.
//!
//! Only a block at the beginning of the text counts; a tag quoted later, in prose or code, is text. An unclosed block
//! extends to the end. Pure, and independent of how the stream is split.

/// The names of the tags, longest first because one is a prefix of another.
const TAG_NAMES: [&str; 3] = ["thinking", "thought", "think"];

/// The receiver of classified pieces.
type SegmentSink<'a, E> = dyn FnMut(TextSegment<'_>) -> Result<(), E> + 'a;

/// Splits a stream of text into text and reasoning.
#[derive(Debug, Default)]
pub struct ThinkTagSplitter {
    state: SplitterState,
    /// Text that is not classified yet.
    buffer: String,
    /// True after a block: white space between it and the text is dropped.
    after_block: bool,
    /// The name of the first block's tag.
    tag: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SplitterState {
    /// Only white space so far: a block may begin.
    #[default]
    Start,
    /// Within a block of this tag.
    Thinking(&'static str),
    /// Text until the end of the stream.
    Text,
}

/// A classified piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSegment<'a> {
    Text(&'a str),
    Reasoning(&'a str),
}

impl ThinkTagSplitter {
    /// Processes the next piece of the stream. Passes the pieces that are classified by now to `emit`.
    ///
    /// # Errors
    /// Those of `emit`.
    pub fn feed<E>(&mut self, text: &str, emit: &mut SegmentSink<'_, E>) -> Result<(), E> {
        if self.state == SplitterState::Text {
            return emit(TextSegment::Text(text));
        }
        self.buffer.push_str(text);
        while self.split_next(emit)? {}
        Ok(())
    }

    /// Ends the stream. Passes the rest to `emit`.
    ///
    /// # Errors
    /// Those of `emit`.
    pub fn finish<E>(&mut self, emit: &mut SegmentSink<'_, E>) -> Result<(), E> {
        let held = std::mem::take(&mut self.buffer);
        match self.state {
            _ if held.is_empty() => Ok(()),
            SplitterState::Thinking(_) => emit(TextSegment::Reasoning(&held)),
            SplitterState::Start | SplitterState::Text => emit(TextSegment::Text(&held)),
        }
    }

    /// The name of the tag of the first block, if there is one.
    pub fn tag(&self) -> Option<&'static str> {
        self.tag
    }

    /// Classifies one piece of the held text; `false` if more input is needed.
    fn split_next<E>(&mut self, emit: &mut SegmentSink<'_, E>) -> Result<bool, E> {
        Ok(match self.state {
            SplitterState::Text => {
                let held = std::mem::take(&mut self.buffer);
                if !held.is_empty() {
                    emit(TextSegment::Text(&held))?;
                }
                false
            }
            SplitterState::Start => {
                if self.after_block {
                    self.buffer = self.buffer.trim_start().to_owned();
                }
                let rest = self.buffer.trim_start();
                let opened = TAG_NAMES
                    .iter()
                    .find(|name| rest.starts_with(&format!("<{name}>")));
                let may_open = TAG_NAMES
                    .iter()
                    .any(|name| format!("<{name}>").starts_with(rest));
                if let Some(name) = opened {
                    self.buffer = rest[name.len() + 2..].to_owned();
                    self.state = SplitterState::Thinking(name);
                    self.tag.get_or_insert(name);
                } else if may_open {
                    return Ok(false);
                } else {
                    self.state = SplitterState::Text;
                }
                true
            }
            SplitterState::Thinking(name) => {
                let end = format!("</{name}>");
                if let Some(at) = self.buffer.find(&end) {
                    let rest = self.buffer[at + end.len()..].to_owned();
                    self.after_block = true;
                    self.buffer.truncate(at);
                    let thought = std::mem::replace(&mut self.buffer, rest);
                    self.state = SplitterState::Start;
                    emit(TextSegment::Reasoning(&thought))?;
                    return Ok(true);
                }
                // Everything is reasoning, except a suffix that may be the beginning of the closing tag.
                let known = (0..end.len())
                    .rev()
                    .find(|length| self.buffer.ends_with(&end[..*length]))
                    .unwrap_or(0);
                let rest = self.buffer.split_off(self.buffer.len() - known);
                let thought = std::mem::replace(&mut self.buffer, rest);
                if !thought.is_empty() {
                    emit(TextSegment::Reasoning(&thought))?;
                }
                false
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{TextSegment, ThinkTagSplitter};
    use std::convert::Infallible;

    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = ThinkTagSplitter::default();
        let (mut thought, mut text) = (String::new(), String::new());
        let mut emit = |piece: TextSegment<'_>| {
            match piece {
                TextSegment::Text(words) => text.push_str(words),
                TextSegment::Reasoning(words) => thought.push_str(words),
            }
            Ok::<(), Infallible>(())
        };
        for piece in pieces {
            splitter.feed(piece, &mut emit).unwrap();
        }
        splitter.finish(&mut emit).unwrap();
        (thought, text)
    }

    #[test]
    fn blocks_at_the_start_are_reasoning() {
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
        crate::fuzz::check(seeds, |input, random| {
            let stream = crate::fuzz::lossy_text(input);
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
