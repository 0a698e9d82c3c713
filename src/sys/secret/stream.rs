//! Redacts keys in streamed text, even if a key is split between pieces.
//!
//! Text that may be the beginning of a key is held back until that is decided. Most pieces end in nothing of the kind
//! and pass at once.

use super::redact::{hidden, known_forms};
use super::replacement::{Found, replaced, united};
use super::{formats, forms};

/// The most bytes held back. No key is longer; anything beyond this passes unchanged.
const LONGEST: usize = 32 << 10;
/// Below this number of bytes held back, every piece triggers a new search.
const SHORT: usize = 512;

/// A redactor for a stream of text.
#[derive(Debug, Default)]
pub struct Stream {
    /// Redact text that looks like a key too.
    hides: bool,
    held: String,
    /// The byte before the text held back.
    before: Option<u8>,
    /// The number of bytes held back that triggers the next search: long text is not searched again for every piece.
    enough: usize,
}

impl Stream {
    /// Creates a stream that redacts known keys, as [`super::redact_known`] does.
    pub fn masking() -> Self {
        Self::default()
    }

    /// Creates a stream that also redacts text that looks like a key, as [`super::redact_all`] does.
    pub fn hiding() -> Self {
        Self {
            hides: true,
            ..Self::default()
        }
    }

    /// Accepts `piece` and returns the text that is safe to pass on, which may be empty.
    pub fn pass(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        if self.held.len() < self.enough {
            return String::new();
        }
        let forms = known_forms();
        let mut end = forms::pending(&self.held, &forms);
        if self.hides {
            end = end.min(formats::pending(&self.held));
        }
        // A key that may be part of a longer one is held back too.
        let mut found = united(self.found(&forms));
        let cut = found.iter().find(|found| found.range.end > end);
        end = cut.map_or(end, |found| end.min(found.range.start));
        if self.held.len() - end > LONGEST {
            end = self.held.len();
        }
        found.retain(|found| found.range.end <= end);
        let out = self.let_go(end, found);
        self.enough = match self.held.len() {
            0..SHORT => 0,
            length => length + length / 2,
        };
        out
    }

    /// Ends the text and returns what was held back, redacted.
    pub fn rest(&mut self) -> String {
        let found = self.found(&known_forms());
        let out = self.let_go(self.held.len(), found);
        (self.before, self.enough) = (None, 0);
        out
    }

    fn found(&self, forms: &[String]) -> Vec<Found> {
        match self.hides {
            true => hidden(&self.held, forms, self.before),
            false => forms::find(&self.held, forms),
        }
    }

    fn let_go(&mut self, end: usize, found: Vec<Found>) -> String {
        let out = replaced(&self.held[..end], found).into_owned();
        self.before = self.held[..end].bytes().next_back().or(self.before);
        self.held.drain(..end);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Stream;
    use crate::sys::secret::{Secret, hide, mask, remember};

    fn pieces(text: &str, mut stream: Stream, cut: &mut dyn FnMut(usize) -> usize) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while !rest.is_empty() {
            let mut at = cut(rest.len()).clamp(1, rest.len());
            while !rest.is_char_boundary(at) {
                at += 1;
            }
            out.push_str(&stream.pass(&rest[..at]));
            rest = &rest[at..];
        }
        out.push_str(&stream.rest());
        out
    }

    #[test]
    fn a_key_in_two_pieces_is_found() {
        remember(&Secret::new("abcabcabd-of-a-stream"));
        let mut stream = Stream::masking();
        assert_eq!(stream.pass("fine "), "fine ");
        assert_eq!(stream.pass("abcabcabc"), "abc");
        assert_eq!(stream.pass("abd-of-a"), "");
        assert_eq!(stream.pass("-stream, and ab"), "***, and ");
        assert_eq!(stream.rest(), "ab");
    }

    #[test]
    fn fuzz_a_key_is_found_wherever_it_is_cut() {
        remember(&Secret::new("abcabcabd-of-a-stream"));
        let block = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            "aB0".repeat(30)
        );
        let seeds: &[&[u8]] = &[
            b"abcabcabcabd-of-a-stream abcabcabd-\nof-a-stream YWJjYWJjYWJkLW9mLWEtc3RyZWFt maerts-a-fo-dbacbacba",
            b"Bearer 0123456789abcdefghijkl sk-0123456789abcdefghij: task-0123456789abcdefghij https://u:pass@h/",
            block.as_bytes(),
        ];
        crate::fuzz::hold(seeds, |input, random| {
            // Only one input in eight: each is searched repeatedly.
            if random.below(8) > 0 {
                return;
            }
            let text = crate::fuzz::text(&input[..input.len().min(800)]);
            let masked = mask(&text);
            assert_eq!(mask(&masked), masked);
            let one = pieces(&text, Stream::masking(), &mut |left| random.below(left));
            assert_eq!(one, masked);
            let hidden = hide(&text);
            let one = pieces(&text, Stream::hiding(), &mut |left| random.below(left));
            assert_eq!(one, hidden);
        });
    }
}
