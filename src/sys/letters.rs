//! Bytes that arrive in pieces, as text: a letter that is cut in two is one letter, and what is none is shown as U+FFFD.

/// Makes text of a stream of bytes.
#[derive(Debug, Default)]
pub struct Letters {
    /// The beginning of a letter, three bytes at the most.
    held: Vec<u8>,
}

impl Letters {
    /// The text of what arrived so far and was not yet passed on, up to the last whole letter.
    pub fn pass(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let end = self.held.len() - open(&self.held);
        let text = String::from_utf8_lossy(&self.held[..end]).into_owned();
        self.held.drain(..end);
        text
    }

    /// What is left at the end: a letter that never became whole.
    pub fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// How many bytes at the end may be the beginning of a letter.
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
