//! Incremental UTF-8 decoding: a character split between two pieces is decoded as one, and invalid bytes become U+FFFD.

/// Decodes a stream of bytes.
#[derive(Debug, Default)]
pub struct Letters {
    /// The start of an incomplete character, at most three bytes.
    held: Vec<u8>,
}

impl Letters {
    /// Adds `bytes` and returns all text that is complete, up to the last whole character.
    pub fn pass(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let end = self.held.len() - open(&self.held);
        let text = String::from_utf8_lossy(&self.held[..end]).into_owned();
        self.held.drain(..end);
        text
    }

    /// Returns the rest at the end of the stream: U+FFFD for an incomplete character.
    pub fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Returns the number of bytes at the end that may start a character.
fn open(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let is_open = |count: &usize| {
        let part = std::str::from_utf8(&tail[tail.len() - count..]);
        part.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=tail.len()).rev().find(is_open).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Letters;

    #[test]
    fn fuzz_letters_are_whole_wherever_they_are_cut() {
        let seeds: &[&[u8]] = &["aé日🔬".as_bytes(), b"\xe2\x80 \xf0\x9f\xff\xc3"];
        crate::fuzz::hold(seeds, |input, random| {
            let mut letters = Letters::default();
            let mut text = String::new();
            let mut rest = input;
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + random.below(rest.len().min(9)));
                text.push_str(&letters.pass(piece));
                rest = after;
            }
            text.push_str(&letters.rest());
            assert_eq!(text, String::from_utf8_lossy(input));
        });
    }
}
