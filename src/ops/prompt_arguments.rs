//! Arguments in the text of a prompt: the names that the prompt declares, or else `$ARGUMENTS` for all of them and `$1` to `$9` for single
//! words. Each may be in braces, and a backslash before the `$` makes text of it. No I/O.

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

/// A placeholder of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder<'a> {
    /// A name, or `ARGUMENTS`.
    Name(&'a str),
    /// A number from 1 to 9.
    Number(usize),
}

impl Placeholder<'_> {
    /// True if it stands for all arguments of a prompt that declares none.
    pub(crate) fn is_all(self) -> bool {
        self == Self::Name(ALL)
    }
}

impl PromptArguments<'_> {
    /// Replaces the placeholders in `text`. Also returns true if there was one.
    pub(crate) fn expand(&self, text: &str) -> (String, bool) {
        let mut parts = text.split('$');
        let mut previous = parts.next().unwrap_or_default();
        let mut expanded = previous.to_owned();
        let mut has_placeholder = false;
        for part in parts {
            let value = split_placeholder(part)
                .and_then(|(placeholder, rest)| Some((self.value_of(placeholder)?, rest)));
            match value {
                Some((value, rest)) if !previous.ends_with('\\') => {
                    has_placeholder = true;
                    expanded.push_str(value);
                    expanded.push_str(rest);
                }
                value => {
                    if value.is_some() {
                        expanded.pop();
                    }
                    expanded.push('$');
                    expanded.push_str(part);
                }
            }
            previous = part;
        }
        (expanded, has_placeholder)
    }

    fn value_of(&self, placeholder: Placeholder<'_>) -> Option<&str> {
        match (self, placeholder) {
            (Self::Named(values), Placeholder::Name(name)) => {
                values.iter().find(|(declared, _)| *declared == name).map(|(_, value)| *value)
            }
            (Self::Positional { all, .. }, placeholder) if placeholder.is_all() => Some(all),
            (Self::Positional { each, .. }, Placeholder::Number(number)) => {
                Some(each.get(number - 1).copied().unwrap_or_default())
            }
            _ => None,
        }
    }
}

/// Iterates over what may be placeholders in `text`, in order.
pub(crate) fn placeholders(text: &str) -> impl Iterator<Item = Placeholder<'_>> {
    let parts = text.split('$').zip(text.split('$').skip(1));
    let unescaped = parts.filter(|(previous, _)| !previous.ends_with('\\'));
    unescaped.filter_map(|(_, part)| Some(split_placeholder(part)?.0))
}

/// The placeholder at the beginning of `text`, which follows a `$`, and the rest of the text.
fn split_placeholder(text: &str) -> Option<(Placeholder<'_>, &str)> {
    if let Some(number) = argument_number(text) {
        return Some((Placeholder::Number(number), &text[1..]));
    }
    if let Some((name, rest)) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        let number = argument_number(name).filter(|_| name.len() == 1);
        return Some((number.map_or(Placeholder::Name(name), Placeholder::Number), rest));
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let end = text.find(|letter| !is_letter(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic());
    is_name.then_some((Placeholder::Name(name), rest))
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
    use super::{Placeholder, PromptArguments, placeholders};

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
        check(words, "${1}s ${2} ${12} ${ARGUMENTS}", "as $1 ${12} a $1", true);
        check(words, r"\$1 for \${2}, \$HOME \\", r"$1 for ${2}, \$HOME \\", false);
        check(named, r"\$place $place", "$place Brest", true);
        check(words, "all: $ARGUMENTS", "all: a $1", true);
        check(words, "$5.20 or $HOME", "$5.20 or $HOME", false);
        check(words, "$", "$", false);
    }

    #[test]
    fn placeholders_are_found() {
        let check = |text: &str, expect: &[Placeholder<'_>]| {
            assert_eq!(placeholders(text).collect::<Vec<_>>(), expect, "{text}");
        };
        check("$1 and ${2}", &[Placeholder::Number(1), Placeholder::Number(2)]);
        check(r"\$1, $1.50, $10, $", &[]);
        check(
            "$ARGUMENTS of $place",
            &[Placeholder::Name("ARGUMENTS"), Placeholder::Name("place")],
        );
    }
}
