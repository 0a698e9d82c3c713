//! Arguments in the text of a prompt: `$ARGUMENTS` for all of them, `$1` to `$9` for single words, and names that the prompt
//! declares. Pure.

/// Stands, after `$`, for all arguments.
const ALL: &str = "ARGUMENTS";

/// The arguments of a prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PromptArguments<'a> {
    /// All arguments as they were given.
    pub(crate) all: &'a str,
    /// The arguments one by one.
    pub(crate) positional: &'a [&'a str],
    /// Names, with their values.
    pub(crate) named: &'a [(&'a str, &'a str)],
}

impl PromptArguments<'_> {
    /// Puts the arguments into `text`. Also returns true if there was a place for them.
    pub(crate) fn expand(&self, text: &str) -> (String, bool) {
        let mut parts = text.split('$');
        let mut expanded = parts.next().unwrap_or_default().to_owned();
        let mut has_place = false;
        for part in parts {
            match self.value_at(part) {
                Some((value, rest)) => {
                    has_place = true;
                    expanded.push_str(value);
                    expanded.push_str(rest);
                }
                None => {
                    expanded.push('$');
                    expanded.push_str(part);
                }
            }
        }
        (expanded, has_place)
    }

    /// The value that the beginning of `text`, which follows a `$`, stands for, and the rest of it.
    fn value_at<'t>(&'t self, text: &'t str) -> Option<(&'t str, &'t str)> {
        if let Some(rest) = text.strip_prefix('{') {
            let (name, rest) = rest.split_once('}')?;
            return Some((self.named(name)?, rest));
        }
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = text.find(|letter| !is_letter(letter)).unwrap_or(text.len());
        if let Some(value) = self.named(&text[..end]) {
            return Some((value, &text[end..]));
        }
        if let Some(rest) = text.strip_prefix(ALL) {
            return Some((self.all, rest));
        }
        let number = argument_number(text)?;
        let word = self.positional.get(number - 1).copied();
        Some((word.unwrap_or_default(), &text[1..]))
    }

    fn named(&self, name: &str) -> Option<&str> {
        let found = self.named.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value)
    }
}

/// The number of the word that a text after `$` stands for. `10` and `1.50` are no numbers of words.
fn argument_number(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(|first: char| ('1'..='9').contains(&first))?;
    let fraction = rest.strip_prefix(['.', ',']).unwrap_or(rest);
    let continues = fraction.starts_with(|next: char| next.is_ascii_digit());
    match continues {
        true => None,
        false => text[..1].parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::PromptArguments;

    #[test]
    fn places_are_filled_once() {
        let arguments = PromptArguments {
            all: "a $1",
            positional: &["a", "$1"],
            named: &[("place", "Brest"), ("day", "$place")],
        };
        let check = |text: &str, expect: &str, has_place: bool| {
            assert_eq!(
                arguments.expand(text),
                (expect.to_owned(), has_place),
                "{text}"
            );
        };
        check("to $place.", "to Brest.", true);
        check("to ${place}s on $day", "to Brests on $place", true);
        check(
            "$places cost $5.20 or $HOME",
            "$places cost $5.20 or $HOME",
            false,
        );
        check("${other} $1 $2 $3|", "${other} a $1 |", true);
        check("all: $ARGUMENTS", "all: a $1", true);
        check("$", "$", false);
    }
}
