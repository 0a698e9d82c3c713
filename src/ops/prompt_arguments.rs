//! Arguments in the text of a prompt: the names that the prompt declares, or else `$ARGUMENTS` for all of them and `$1` to `$9` for single
//! words. No I/O.

/// The name of the placeholder for all arguments.
const ALL: &str = "ARGUMENTS";

#[derive(Clone, Copy, Debug)]
pub(crate) enum PromptArguments<'a> {
    /// The arguments of a prompt that declares names: each name with its value. A number after `$` is text.
    Named(&'a [(&'a str, &'a str)]),
    /// The arguments of any other prompt.
    Positional {
        /// All arguments as they were given.
        all: &'a str,
        /// The arguments one by one.
        each: &'a [&'a str],
    },
}

impl PromptArguments<'_> {
    /// Replaces the placeholders in `text`. Also returns true if there was one.
    pub(crate) fn expand(&self, text: &str) -> (String, bool) {
        let mut parts = text.split('$');
        let mut expanded = parts.next().unwrap_or_default().to_owned();
        let mut has_placeholder = false;
        for part in parts {
            match self.value_at(part) {
                Some((value, rest)) => {
                    has_placeholder = true;
                    expanded.push_str(value);
                    expanded.push_str(rest);
                }
                None => {
                    expanded.push('$');
                    expanded.push_str(part);
                }
            }
        }
        (expanded, has_placeholder)
    }

    /// The value of the placeholder at the beginning of `text`, which follows a `$`, and the rest of the text.
    fn value_at<'t>(&'t self, text: &'t str) -> Option<(&'t str, &'t str)> {
        match self {
            Self::Named(values) => {
                let (name, rest) = split_name(text)?;
                let (_, value) = values.iter().find(|(declared, _)| *declared == name)?;
                Some((value, rest))
            }
            Self::Positional { all, each } => {
                if let Some(rest) = text.strip_prefix(ALL) {
                    return Some((all, rest));
                }
                let word = each.get(argument_number(text)? - 1).copied();
                Some((word.unwrap_or_default(), &text[1..]))
            }
        }
    }
}

/// The name at the beginning of `text`, which may be in braces, and the rest of it.
fn split_name(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('{') {
        return rest.split_once('}');
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_letter(letter));
    Some(text.split_at(end.unwrap_or(text.len())))
}

/// The number of the argument at the beginning of a text after `$`. `10` and `1.50` are amounts of money, not arguments.
fn argument_number(text: &str) -> Option<usize> {
    let rest = text.strip_prefix(|first: char| ('1'..='9').contains(&first))?;
    let fraction = rest.strip_prefix(['.', ',']).unwrap_or(rest);
    let continues = fraction.starts_with(|next: char| next.is_ascii_digit());
    if continues { None } else { text[..1].parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::PromptArguments;

    #[test]
    fn placeholders_are_replaced_once() {
        let check =
            |arguments: PromptArguments, text: &str, expect: &str, has_placeholder: bool| {
                assert_eq!(arguments.expand(text), (expect.to_owned(), has_placeholder), "{text}");
            };
        let named = PromptArguments::Named(&[("place", "Brest"), ("day", "$place")]);
        check(named, "to $place.", "to Brest.", true);
        check(named, "to ${place}s on $day", "to Brests on $place", true);
        check(named, "$places cost $5, $HOME", "$places cost $5, $HOME", false);
        check(named, "$1 $ARGUMENTS ${1} ${", "$1 $ARGUMENTS ${1} ${", false);
        let words = PromptArguments::Positional { all: "a $1", each: &["a", "$1"] };
        check(words, "${other} $1 $2 $3|", "${other} a $1 |", true);
        check(words, "all: $ARGUMENTS", "all: a $1", true);
        check(words, "$5.20 or $HOME", "$5.20 or $HOME", false);
        check(words, "$", "$", false);
    }
}
