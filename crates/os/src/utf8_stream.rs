//! Incremental UTF-8 decoding: a character split between two chunks is decoded as one, and invalid bytes become U+FFFD.

/// Decodes a stream of bytes.
#[derive(Debug, Default)]
pub struct Utf8Decoder {
    /// The start of an incomplete character, at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Decoder {
    /// Adds `bytes` and returns all text that is complete, up to the last whole character.
    pub fn feed(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let end = self.pending.len() - incomplete_suffix_bytes(&self.pending);
        let text = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end);
        text
    }

    /// Returns the rest at the end of the stream: U+FFFD for an incomplete character.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Returns the number of bytes at the end that may start a character.
fn incomplete_suffix_bytes(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let is_incomplete = |count: &usize| {
        let suffix = std::str::from_utf8(&tail[tail.len() - count..]);
        suffix.is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=tail.len()).rev().find(is_incomplete).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Utf8Decoder;

    #[test]
    fn fuzz_output_does_not_depend_on_chunks() {
        let seeds: &[&[u8]] = &["aé日🔬".as_bytes(), b"\xe2\x80 \xf0\x9f\xff\xc3"];
        nanobot_base::fuzz::check(seeds, |input, random| {
            let mut decoder = Utf8Decoder::default();
            let mut text = String::new();
            let mut rest = input;
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(1 + random.below(rest.len().min(9)));
                text.push_str(&decoder.feed(chunk));
                rest = after;
            }
            text.push_str(&decoder.finish());
            assert_eq!(text, String::from_utf8_lossy(input));
        });
    }
}
