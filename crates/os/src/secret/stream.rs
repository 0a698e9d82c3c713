//! Redacts keys in streamed text, even if a key is split between chunks.
//!
//! Text that may be the beginning of a key is buffered until that is decided. Most chunks do not end in such text and
//! pass at once.

use super::redact::{find_all, known_encodings};
use super::replacement::{KeyMatch, merge_overlapping, replace_matches};
use super::search_set::SearchSet;
use super::{encodings, key_patterns};
use std::borrow::Cow;

/// Maximum number of buffered bytes. No key is longer; anything beyond this passes unchanged.
const MAX_PENDING_BYTES: usize = 32 << 10;
/// Below this number of buffered bytes, every chunk triggers a new search.
const SMALL_PENDING_BYTES: usize = 512;

/// A redactor for a stream of text.
#[derive(Debug, Default)]
pub struct StreamRedactor {
    /// Redact text that looks like a key too.
    redacts_all: bool,
    pending: String,
    /// The byte before the buffered text.
    previous_byte: Option<u8>,
    /// The number of buffered bytes that triggers the next search: long text is not searched again for every chunk.
    next_search_bytes: usize,
}

impl StreamRedactor {
    /// Creates a stream that redacts known keys, as [`super::redact_known`] does.
    pub fn for_known_keys() -> Self {
        Self::default()
    }

    /// Creates a stream that also redacts text that looks like a key, as [`super::redact_all`] does.
    pub fn for_all_keys() -> Self {
        Self { redacts_all: true, ..Self::default() }
    }

    /// Accepts `chunk` and returns the text that is safe to pass on, which may be empty.
    pub fn feed<'t>(&mut self, chunk: &'t str) -> Cow<'t, str> {
        let encoding_set = known_encodings();
        if self.pending.is_empty()
            && self.pending_start(chunk, &encoding_set) == chunk.len()
            && self.find_keys(chunk, &encoding_set).is_empty()
        {
            self.previous_byte = chunk.bytes().next_back().or(self.previous_byte);
            return Cow::Borrowed(chunk);
        }
        self.pending.push_str(chunk);
        if self.pending.len() < self.next_search_bytes {
            return Cow::Borrowed("");
        }
        let mut end = self.pending_start(&self.pending, &encoding_set);
        // A key that may be part of a longer one is buffered too.
        let mut matches = merge_overlapping(self.find_keys(&self.pending, &encoding_set));
        if let Some(incomplete) = matches.iter().find(|key_match| key_match.range.end > end) {
            end = end.min(incomplete.range.start);
        }
        if self.pending.len() - end > MAX_PENDING_BYTES {
            end = self.pending.len();
        }
        matches.retain(|key_match| key_match.range.end <= end);
        let out = self.release(end, matches);
        self.next_search_bytes = match self.pending.len() {
            0..SMALL_PENDING_BYTES => 0,
            length => length + length / 2,
        };
        Cow::Owned(out)
    }

    /// Ends the text and returns the buffered rest, redacted.
    pub fn finish(&mut self) -> String {
        let matches = self.find_keys(&self.pending, &known_encodings());
        let out = self.release(self.pending.len(), matches);
        (self.previous_byte, self.next_search_bytes) = (None, 0);
        out
    }

    /// Returns the start of the suffix of `text` that may be the beginning of a key.
    fn pending_start(&self, text: &str, encoding_set: &SearchSet) -> usize {
        let start = encodings::pending_start(text, encoding_set);
        if self.redacts_all { start.min(key_patterns::pending_start(text)) } else { start }
    }

    fn find_keys(&self, text: &str, encoding_set: &SearchSet) -> Vec<KeyMatch> {
        if self.redacts_all {
            find_all(text, encoding_set, self.previous_byte)
        } else {
            encodings::find_encodings(text, encoding_set)
        }
    }

    /// Removes the first `end` buffered bytes, and returns them with the `matches` in them replaced.
    fn release(&mut self, end: usize, matches: Vec<KeyMatch>) -> String {
        let out = replace_matches(&self.pending[..end], matches).into_owned();
        self.previous_byte = self.pending[..end].bytes().next_back().or(self.previous_byte);
        self.pending.drain(..end);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::StreamRedactor;
    use crate::secret::{Secret, redact_all, redact_known, register};

    fn chunks(
        text: &str,
        mut stream: StreamRedactor,
        cut: &mut dyn FnMut(usize) -> usize,
    ) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while !rest.is_empty() {
            let mut at = cut(rest.len()).clamp(1, rest.len());
            while !rest.is_char_boundary(at) {
                at += 1;
            }
            out.push_str(&stream.feed(&rest[..at]));
            rest = &rest[at..];
        }
        out.push_str(&stream.finish());
        out
    }

    #[test]
    fn a_split_key_is_found() {
        register(&Secret::new("abcabcabd-of-a-stream"));
        let mut stream = StreamRedactor::for_known_keys();
        assert_eq!(stream.feed("fine "), "fine ");
        assert_eq!(stream.feed("abcabcabc"), "abc");
        assert_eq!(stream.feed("abd-of-a"), "");
        assert_eq!(stream.feed("-stream, and ab"), "***, and ");
        assert_eq!(stream.finish(), "ab");
    }

    #[test]
    fn fuzz_a_key_is_found_wherever_it_is_split() {
        register(&Secret::new("abcabcabd-of-a-stream"));
        let block = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            "aB0".repeat(30)
        );
        let seeds: &[&[u8]] = &[
            b"abcabcabcabd-of-a-stream abcabcabd-\nof-a-stream YWJjYWJjYWJkLW9mLWEtc3RyZWFt maerts-a-fo-dbacbacba",
            b"Bearer 0123456789abcdefghijkl sk-0123456789abcdefghij: task-0123456789abcdefghij https://u:pass@h/",
            block.as_bytes(),
        ];
        nanobot_base::fuzz::check(seeds, |input, random| {
            // Only one input in eight: each is searched repeatedly.
            if random.below(8) > 0 {
                return;
            }
            let text = nanobot_base::fuzz::lossy_text(&input[..input.len().min(800)]);
            let masked = redact_known(&text);
            assert_eq!(redact_known(&masked), masked);
            let one =
                chunks(&text, StreamRedactor::for_known_keys(), &mut |left| random.below(left));
            assert_eq!(one, masked);
            let hidden = redact_all(&text);
            let one = chunks(&text, StreamRedactor::for_all_keys(), &mut |left| random.below(left));
            assert_eq!(one, hidden);
        });
    }
}
