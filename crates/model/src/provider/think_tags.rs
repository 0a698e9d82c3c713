//! Separates think blocks, which some models emit within their text as reasoning, from the text.
//!
//! A block at the beginning of the text is reasoning even if it never ends, a later one only if it is closed, and within a line only if
//! it is closed before the next one begins. Tags in code are text, and so are tags that are only mentioned. No I/O, and the result does not depend on how the stream is split.

use super::code_spans::CodeTracker;

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
    /// The white space to drop: it follows a block.
    dropped: DroppedSpace,
    /// Code in the text so far.
    code: CodeTracker,
    /// The last character of the text so far.
    last: Option<char>,
    /// True once the stream has ended.
    is_ended: bool,
    /// Tags that are not closed in the rest of the stream; known at its end.
    unclosed: Vec<&'static str>,
    /// The name of the first block's tag.
    tag: Option<&'static str>,
}

#[derive(Debug, Default)]
enum SplitterState {
    /// Only white space so far: a block may begin.
    #[default]
    Start,
    /// Within a block of this tag at the beginning.
    Thinking(&'static str),
    Text,
    /// At a tag within the text, with the search for its end. The buffer begins with the tag.
    Tag(&'static str, CloseSearch),
}

/// The search for the end of a block.
#[derive(Debug)]
struct CloseSearch {
    /// The number of bytes of the buffer that were searched.
    searched: usize,
    /// True if the block begins a line. Its content is reasoning then, whatever it looks like; in a line of text, a
    /// tag in code does not close it.
    begins_line: bool,
    code: CodeTracker,
}

/// A result of [`CloseSearch::find`]. Positions are those in the buffer.
enum TagEnd {
    /// The closing tag is here.
    Closed(usize),
    /// The same tag opens again, so that the first one was only mentioned.
    Reopened,
    /// More input is needed.
    Unknown,
}

/// White space that follows a block and is not part of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DroppedSpace {
    #[default]
    None,
    /// Blanks between two words.
    Blanks,
    /// The rest of the line, and empty lines.
    Lines,
    /// All of it, before the text.
    All,
}

/// A classified piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSegment<'a> {
    Text(&'a str),
    Reasoning(&'a str),
}

/// The result of matching a text with the tags.
enum TagMatch {
    Found(&'static str),
    /// More input is needed.
    Unknown,
    None,
}

impl ThinkTagSplitter {
    /// Processes the next piece of the stream. Passes the pieces that are classified by now to `on_segment`.
    ///
    /// # Errors
    /// The errors of `on_segment`.
    pub fn feed<E>(&mut self, text: &str, on_segment: &mut SegmentSink<'_, E>) -> Result<(), E> {
        self.buffer.push_str(text);
        while self.split_next(on_segment)? {}
        Ok(())
    }

    /// Ends the stream. Passes the rest to `on_segment`.
    ///
    /// # Errors
    /// The errors of `on_segment`.
    pub fn finish<E>(&mut self, on_segment: &mut SegmentSink<'_, E>) -> Result<(), E> {
        self.is_ended = true;
        while self.split_next(on_segment)? {}
        Ok(())
    }

    /// The name of the tag of the first block, if there is one.
    pub fn tag(&self) -> Option<&'static str> {
        self.tag
    }

    /// Classifies one piece of the buffer; `false` if more input is needed.
    fn split_next<E>(&mut self, on_segment: &mut SegmentSink<'_, E>) -> Result<bool, E> {
        match &self.state {
            SplitterState::Start => Ok(self.split_start()),
            SplitterState::Thinking(name) => self.split_thinking(name, on_segment),
            SplitterState::Text => self.split_text(on_segment),
            SplitterState::Tag(name, _) => self.split_tag(name, on_segment),
        }
    }

    fn split_start(&mut self) -> bool {
        let rest = self.buffer.trim_start();
        match self.match_tag(rest) {
            TagMatch::Found(name) => {
                self.buffer = rest[name.len() + 2..].to_owned();
                self.state = SplitterState::Thinking(name);
                self.tag.get_or_insert(name);
            }
            TagMatch::Unknown => return false,
            TagMatch::None => self.state = SplitterState::Text,
        }
        true
    }

    fn split_thinking<E>(
        &mut self,
        name: &'static str,
        on_segment: &mut SegmentSink<'_, E>,
    ) -> Result<bool, E> {
        let end = format!("</{name}>");
        if let Some(at) = self.buffer.find(&end) {
            let reasoning = self.take_front(at);
            self.buffer.drain(..end.len());
            self.dropped = DroppedSpace::All;
            self.state = SplitterState::Start;
            on_segment(TextSegment::Reasoning(&reasoning))?;
            return Ok(true);
        }
        // Everything is reasoning, except a suffix that may be the beginning of the closing tag.
        let mut partial_length = 0;
        if !self.is_ended {
            let mut lengths = (0..end.len()).rev();
            partial_length =
                lengths.find(|length| self.buffer.ends_with(&end[..*length])).unwrap_or(0);
        }
        let reasoning = self.take_front(self.buffer.len() - partial_length);
        if !reasoning.is_empty() {
            on_segment(TextSegment::Reasoning(&reasoning))?;
        }
        Ok(false)
    }

    /// Passes on text up to the next tag.
    fn split_text<E>(&mut self, on_segment: &mut SegmentSink<'_, E>) -> Result<bool, E> {
        if !self.drop_space() {
            return Ok(false);
        }
        let mut tag = TagMatch::None;
        let mut end = self.buffer.len();
        for (at, byte) in self.buffer.bytes().enumerate() {
            if byte == b'<' && !self.code.is_in_code() {
                tag = self.match_tag(&self.buffer[at..]);
                if !matches!(tag, TagMatch::None) {
                    end = at;
                    break;
                }
            }
            self.code.step(byte);
        }
        let text = self.take_front(end);
        if !text.is_empty() {
            self.last = text.chars().next_back();
            on_segment(TextSegment::Text(&text))?;
        }
        let TagMatch::Found(name) = tag else {
            return Ok(false);
        };
        let search = CloseSearch {
            searched: 0,
            begins_line: self.code.is_line_blank(),
            code: CodeTracker::default(),
        };
        self.state = SplitterState::Tag(name, search);
        Ok(true)
    }

    /// Drops the white space after a block; `false` if more input is needed.
    fn drop_space(&mut self) -> bool {
        let text = self.buffer.as_str();
        let rest = match self.dropped {
            DroppedSpace::None => return true,
            DroppedSpace::Blanks => text.trim_start_matches([' ', '\t']),
            DroppedSpace::Lines | DroppedSpace::All => text.trim_start(),
        };
        if rest.is_empty() && !self.is_ended {
            return false;
        }
        let mut count = text.len() - rest.len();
        if self.dropped == DroppedSpace::Lines {
            count = text[..count].rfind('\n').map_or(count, |at| at + 1);
        }
        self.buffer.drain(..count);
        self.dropped = DroppedSpace::None;
        true
    }

    /// Passes on the block that begins at a tag within the text. Without an end, the tag is text.
    fn split_tag<E>(
        &mut self,
        name: &'static str,
        on_segment: &mut SegmentSink<'_, E>,
    ) -> Result<bool, E> {
        let SplitterState::Tag(_, search) = &mut self.state else {
            return Ok(false);
        };
        let (start, end_length) = (name.len() + 2, name.len() + 3);
        let begins_line = search.begins_line;
        let end_index = match search.find(&self.buffer, name) {
            TagEnd::Closed(at) => at,
            TagEnd::Reopened => {
                self.state = SplitterState::Text;
                let tag = self.take_front(start);
                return self.push_mention(&tag, on_segment);
            }
            TagEnd::Unknown if !self.is_ended => return Ok(false),
            TagEnd::Unknown => {
                self.unclosed.push(name);
                self.state = SplitterState::Text;
                return Ok(true);
            }
        };
        let block = self.take_front(end_index + end_length);
        self.state = SplitterState::Text;
        let content = &block[start..end_index];
        let follows_space = self.last.is_some_and(char::is_whitespace);
        // The text between two tags that a sentence mentions together: `between <think> and </think>`.
        let is_mentioned = match content.trim() {
            "and" | "or" | "/" | "," => true,
            "..." | "\u{2026}" => !begins_line,
            "" => !begins_line && follows_space,
            _ => false,
        };
        if is_mentioned {
            return self.push_mention(&block, on_segment);
        }
        self.dropped = if begins_line {
            DroppedSpace::Lines
        } else if follows_space {
            DroppedSpace::Blanks
        } else {
            DroppedSpace::None
        };
        self.tag.get_or_insert(name);
        on_segment(TextSegment::Reasoning(content)).map(|()| true)
    }

    /// Passes on tags that are text.
    fn push_mention<E>(
        &mut self,
        text: &str,
        on_segment: &mut SegmentSink<'_, E>,
    ) -> Result<bool, E> {
        text.bytes().for_each(|byte| self.code.step(byte));
        self.last = Some('>');
        on_segment(TextSegment::Text(text)).map(|()| true)
    }

    /// Removes the first `length` bytes of the buffer.
    fn take_front(&mut self, length: usize) -> String {
        let rest = self.buffer.split_off(length);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Matches the beginning of `text` with the opening tags.
    fn match_tag(&self, text: &str) -> TagMatch {
        let is_possible = |name: &&&str| !self.unclosed.contains(name);
        let mut names = TAG_NAMES.iter().filter(is_possible);
        let is_here = |name: &&&str| text.starts_with(&format!("<{name}>"));
        if let Some(name) = names.clone().find(is_here) {
            return TagMatch::Found(name);
        }
        let may_be_here = |name: &&str| format!("<{name}>").starts_with(text);
        if !self.is_ended && names.any(may_be_here) { TagMatch::Unknown } else { TagMatch::None }
    }
}

impl CloseSearch {
    /// Searches for the end of the tag `name` at the beginning of `buffer`, which has grown since the last call. The tag
    /// itself is a part of the search: what follows it does not begin a line.
    fn find(&mut self, buffer: &str, name: &str) -> TagEnd {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        while let Some(byte) = buffer.as_bytes().get(self.searched) {
            if *byte == b'<' && (self.begins_line || !self.code.is_in_code()) {
                let rest = &buffer[self.searched..];
                let may_reopen = self.searched > 0 && !self.begins_line;
                if rest.starts_with(&close) {
                    return TagEnd::Closed(self.searched);
                }
                if may_reopen && rest.starts_with(&open) {
                    return TagEnd::Reopened;
                }
                if close.starts_with(rest) || (may_reopen && open.starts_with(rest)) {
                    return TagEnd::Unknown;
                }
            }
            self.code.step(*byte);
            self.searched += 1;
        }
        TagEnd::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::{TextSegment, ThinkTagSplitter};
    use std::convert::Infallible;

    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = ThinkTagSplitter::default();
        let (mut reasoning, mut text) = (String::new(), String::new());
        let mut emit = |segment: TextSegment<'_>| {
            match segment {
                TextSegment::Text(segment) => text.push_str(segment),
                TextSegment::Reasoning(segment) => reasoning.push_str(segment),
            }
            Ok::<(), Infallible>(())
        };
        for piece in pieces {
            splitter.feed(piece, &mut emit).unwrap();
        }
        splitter.finish(&mut emit).unwrap();
        (reasoning, text)
    }

    #[test]
    fn blocks_outside_of_code_are_reasoning() {
        let check = |stream: &str, reasoning: &str, text: &str| {
            for (cut, _) in stream.char_indices().chain([(stream.len(), ' ')]) {
                assert_eq!(
                    split([&stream[..cut], &stream[cut..]]),
                    (reasoning.into(), text.into()),
                    "{stream:?} cut at {cut}"
                );
            }
            let letters: Vec<String> = stream.chars().map(String::from).collect();
            assert_eq!(
                split(letters.iter().map(String::as_str)),
                (reasoning.into(), text.into()),
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
        check("<think>a</think>answer<think>b</think>", "ab", "answer");
        check("a <think>b</think> c", "b", "a c");
        check("a\n\n<think>b\n\nc</think>\n\n- d\n", "b\n\nc", "a\n\n- d\n");
        check("a\n<thought>b</thought>", "b", "a\n");
        check("a\n<think>`b</think>\n    c", "`b", "a\n    c");
        check("<think>a</think>b <think>", "a", "b <think>");
        check("a <thinking>b</think> c", "", "a <thinking>b</think> c");
        check("a <think>b <thought>c</thought>", "c", "a <think>b ");
        // White space after a tag does not make it code.
        check("a: <think>\tlet me see</think> 4", "\tlet me see", "a: 4");
        check("x <think>    b</think> c", "    b", "x c");
        check("x <think>~~~ hm</think> b", "~~~ hm", "x b");
        // In code.
        for text in [
            "use `<think>x</think>` here",
            "a\n```\n<think>x</think>\n```\nb",
            "a\n\n    <think>x</think>\n",
            "the <think> tag is closed by `</think>`",
        ] {
            check(text, "", text);
        }
        check("Use the <think> tag.\n\n<think>b</think>Done", "b", "Use the <think> tag.\n\nDone");
        check("the <think> tag, <think> again", "", "the <think> tag, <think> again");
        check("\n<think>a <think> b</think>c", "a <think> b", "c");
        check("x\n<think>a <think> b</think>c", "a <think> b", "x\nc");
        check("a<think></think>b", "", "ab");
        check("`<think>` a\n<think>b</think>c", "b", "`<think>` a\nc");
        // Mentioned.
        for text in [
            "between <think> and </think>, and again",
            "in <think></think> tags",
            "the tags (<think> and </think>) mark it",
            "\"<think>...</think>\" marks it",
            "It is so:\n<think> and </think> are tags",
            "the <think> tag",
            "<thinks>a</thinks>",
        ] {
            check(text, "", text);
        }
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
            "a `<think>` b <think>\u{e9}</think> \u{65e5}\n```\n<think></think>\n```\n".as_bytes(),
            b"a <think> and </think> <thought>\n\n<thinking>`</thinking>\n b</thought>\n\n\n c",
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            let stream = nanobot_base::fuzz::lossy_text(input);
            let mut cut = random.below(stream.len() + 1);
            while !stream.is_char_boundary(cut) {
                cut -= 1;
            }
            let whole = split([stream.as_str()]);
            assert_eq!(split([&stream[..cut], &stream[cut..]]), whole);
            assert!(whole.0.len() + whole.1.len() <= stream.len());
            // The rest of the stream is the text, in its order.
            let mut letters = stream.chars();
            assert!(whole.1.chars().all(|letter| letters.any(|other| other == letter)));
        });
    }
}
