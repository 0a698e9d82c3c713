//! Selects by name, in every list: a pattern with `*` and `?` matches the whole name, another one a part of it. Pure.

use nanobot_os::terminal::sanitize;

/// The names that match a pattern; all if there is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamePattern<'a>(pub(super) Option<&'a str>);

impl NamePattern<'_> {
    /// True if the pattern matches `name`.
    pub(super) fn matches(self, name: &str) -> bool {
        match self.0 {
            None => true,
            Some(pattern) if has_wildcard(pattern) => matches_glob(pattern, name),
            Some(part) => name.contains(part),
        }
    }
}

/// True if `text` is a pattern rather than a name.
pub(super) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// True if `key` matches `pattern`. The time is at most proportional to the product of their lengths.
fn matches_glob(pattern: &str, key: &str) -> bool {
    let (pattern, key): (Vec<char>, Vec<char>) = (pattern.chars().collect(), key.chars().collect());
    let (mut at, mut place) = (0, 0);
    // The position of the last star, and how much of the key it has matched.
    let mut star = None;
    while place < key.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == key[place] => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((last, taken)) = star else {
                    return false;
                };
                star = Some((last, taken + 1));
                (at, place) = (last + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

/// Formats a key, or other text, as one line without control characters.
pub(super) fn single_line(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::NamePattern;

    #[test]
    fn a_pattern_is_for_the_whole_and_a_word_for_a_part() {
        let check = |pattern: &str, key: &str, expect: bool| {
            assert_eq!(NamePattern(Some(pattern)).matches(key), expect, "{pattern} {key}");
        };
        check("direct", "cli:direct", true);
        check("Direct", "cli:direct", false);
        check("", "x", true);
        check("pipe:*", "pipe:3fa2", true);
        check("pipe:*", "a:pipe:3fa2", false);
        check("*a*b?", "xaybz", true);
        check("*a*b?", "xayb", false);
        check("?", "日", true);
        check("?", "", false);
        check("*", "", true);
        check(&"*a".repeat(30), &"a".repeat(200), true);
        check(&format!("{}b", "*a".repeat(30)), &"a".repeat(200), false);
        assert!(NamePattern(None).matches("x"));
    }
}
