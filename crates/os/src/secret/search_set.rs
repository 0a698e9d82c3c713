//! A set of strings that are searched for in one pass, however many they are. No I/O.
//!
//! The text is compared only where two of its bytes begin a string. A chunk of a stream is often shorter than a line, so nothing is
//! prepared for each text.

/// The strings, each of at least two bytes, in order and without duplicates.
#[derive(Debug)]
pub(super) struct SearchSet {
    strings: Vec<String>,
    /// A bit for each pair of bytes: 1 if a string begins with them.
    pairs: Vec<u64>,
    max_bytes: usize,
}

impl SearchSet {
    /// Creates a set. Strings of less than two bytes are left out.
    pub(super) fn new(mut strings: Vec<String>) -> Self {
        strings.retain(|string| string.len() >= 2);
        strings.sort();
        strings.dedup();
        let mut pairs = vec![0; (1 << 16) / 64];
        for string in &strings {
            let pair = pair_number(string.as_bytes());
            pairs[pair / 64] |= 1 << (pair % 64);
        }
        let max_bytes = strings.iter().map(String::len).max().unwrap_or_default();
        Self { strings, pairs, max_bytes }
    }

    pub(super) fn strings(&self) -> &[String] {
        &self.strings
    }

    /// The occurrences of the strings in `text`, as positions in the text and in [`Self::strings`]. At one position, longer strings
    /// come first.
    pub(super) fn find<'s>(&'s self, text: &'s [u8]) -> impl Iterator<Item = (usize, usize)> {
        let last_start = text.len().saturating_sub(1);
        let starts = (0..last_start).filter(|start| self.may_begin(&text[*start..]));
        starts.flat_map(|start| self.strings_at(&text[start..]).map(move |string| (start, string)))
    }

    /// The start of the longest suffix of `text` with which a longer string begins; the length of `text` if there is none.
    pub(super) fn pending_start(&self, text: &[u8]) -> usize {
        let first_start = (text.len() + 1).saturating_sub(self.max_bytes.max(1));
        let begins_string = |start: &usize| {
            let suffix = &text[*start..];
            let next = || self.strings.partition_point(|string| string.as_bytes() <= suffix);
            (suffix.len() < 2 || self.may_begin(suffix))
                && self
                    .strings
                    .get(next())
                    .is_some_and(|string| string.as_bytes().starts_with(suffix))
        };
        (first_start..text.len()).find(begins_string).unwrap_or(text.len())
    }

    /// True if strings begin with the first two bytes of `text`.
    fn may_begin(&self, text: &[u8]) -> bool {
        let pair = pair_number(text);
        self.pairs[pair / 64] & (1 << (pair % 64)) != 0
    }

    /// The strings that `text` begins with, the longest first.
    fn strings_at(&self, text: &[u8]) -> impl Iterator<Item = usize> {
        let start = self.strings.partition_point(|string| string.as_bytes()[..2] < text[..2]);
        let rest = &self.strings[start..];
        let count = rest.partition_point(|string| string.as_bytes()[..2] == text[..2]);
        (start..start + count)
            .rev()
            .filter(|index| text.starts_with(self.strings[*index].as_bytes()))
    }
}

fn pair_number(text: &[u8]) -> usize {
    usize::from(text[0]) << 8 | usize::from(text[1])
}

#[cfg(test)]
mod tests {
    use super::SearchSet;

    #[test]
    fn strings_are_found_wherever_they_are() {
        let set = SearchSet::new(["ab", "abc", "bcd", "é!", "x", "ab"].map(str::to_owned).into());
        assert_eq!(set.strings(), ["ab", "abc", "bcd", "é!"]);
        let check = |text: &str, expect: &[(usize, &str)]| {
            let occurrences = set.find(text.as_bytes());
            let occurrences: Vec<_> =
                occurrences.map(|(at, index)| (at, &*set.strings()[index])).collect();
            assert_eq!(occurrences, expect, "{text}");
        };
        check("abcd", &[(0, "abc"), (0, "ab"), (1, "bcd")]);
        check("xaab é!", &[(2, "ab"), (5, "é!")]);
        check("", &[]);
        check("a", &[]);
        check("bc", &[]);
    }

    #[test]
    fn a_string_may_begin_at_the_end() {
        let set = SearchSet::new(["ab", "abc", "bcd"].map(str::to_owned).into());
        let check = |text: &str, expect: usize| {
            assert_eq!(set.pending_start(text.as_bytes()), expect, "{text}");
        };
        check("", 0);
        check("xa", 1);
        check("xab", 1);
        check("abc", 1);
        check("abcd", 4);
        check("bbc", 1);
        check("c", 1);
        assert_eq!(SearchSet::new(Vec::new()).pending_start(b"abc"), 3);
    }
}
