//! The name patterns of all lists: a pattern with `*` or `?` matches the whole name, and any other pattern matches a part of it.

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

/// True if `name` matches `pattern`. The time is at most proportional to the product of their lengths, because only the last star is tried
/// again: any text that an earlier star could match in addition can also be matched by the last one.
fn matches_glob(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let mut pattern_index = 0;
    let mut name_index = 0;
    // The index of the last star, and the end of the text that it matches.
    let mut star = None;
    while name_index < name.len() {
        match pattern.get(pattern_index) {
            Some('*') => {
                star = Some((pattern_index, name_index));
                pattern_index += 1;
            }
            Some(character) if *character == '?' || *character == name[name_index] => {
                pattern_index += 1;
                name_index += 1;
            }
            _ => {
                let Some((star_index, end)) = star else {
                    return false;
                };
                star = Some((star_index, end + 1));
                (pattern_index, name_index) = (star_index + 1, end + 1);
            }
        }
    }
    pattern[pattern_index..].iter().all(|character| *character == '*')
}

/// Formats a name, or other text, as one line without control characters.
pub(super) fn single_line(text: &str) -> String {
    sanitize(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::NamePattern;

    #[test]
    fn a_pattern_matches_the_whole_name_and_other_text_a_part_of_it() {
        let check = |pattern: &str, name: &str, expect: bool| {
            assert_eq!(NamePattern(Some(pattern)).matches(name), expect, "{pattern} {name}");
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
