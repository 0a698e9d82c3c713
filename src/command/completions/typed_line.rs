//! The command line being typed: splits it into words without quotes, and quotes the completed value.
//!
//! Most shells pass words. Bash passes pieces that it also splits at colons and equal signs, and replaces only the last
//! piece. So the bash script passes the line as typed, and the answer contains only the replacement for that piece.

use crate::cli::completions::CompletionShell;
use std::ffi::OsString;

/// The command line up to the cursor.
#[derive(Debug, PartialEq)]
pub(super) struct TypedLine {
    /// The words; the last is the one at the cursor, which may be empty.
    pub(super) arguments: Vec<String>,
    /// In bash, the part of the last word, as typed, before the piece that is replaced.
    fixed_prefix: String,
}

/// The quote that is open at the cursor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quote {
    None,
    Single,
    Double,
}

impl TypedLine {
    /// Parses the arguments that a script passes: bash the line up to the cursor and the piece to replace, the other
    /// shells the words. `None` if they are not valid.
    pub(super) fn from_script(
        shell: CompletionShell,
        script_arguments: &[OsString],
    ) -> Option<Self> {
        let mut arguments: Vec<String> = script_arguments
            .iter()
            .map(|argument| argument.to_str().map(str::to_owned))
            .collect::<Option<_>>()?;
        match (shell, &mut arguments[..]) {
            (CompletionShell::Bash, [line, last_piece]) => {
                let SplitLine { arguments, current, .. } = split_line(line);
                let fixed_prefix = current.strip_suffix(last_piece.as_str()).unwrap_or_default();
                Some(Self { arguments, fixed_prefix: fixed_prefix.to_owned() })
            }
            (CompletionShell::Bash, _) | (_, []) => None,
            (_, [.., last]) => {
                match shell {
                    // Fish passes the word at the cursor with its quotes.
                    CompletionShell::Fish => *last = split_line(last).arguments.pop()?,
                    // Older PowerShell releases drop an empty argument, so the script puts `=` before the last word.
                    CompletionShell::Powershell => *last = last.strip_prefix('=')?.to_owned(),
                    _ => {}
                }
                Some(Self { arguments, fixed_prefix: String::new() })
            }
        }
    }

    /// The word at the cursor.
    pub(super) fn current(&self) -> &str {
        self.arguments.last().map_or("", String::as_str)
    }

    /// Formats `value`, the replacement for the current word, for the script. `None` if the part that bash keeps does
    /// not match.
    pub(super) fn format_value(&self, shell: CompletionShell, value: &str) -> Option<String> {
        if shell != CompletionShell::Bash {
            return Some(value.to_owned());
        }
        let SplitLine { arguments, quote, .. } = split_line(&self.fixed_prefix);
        let prefix = arguments.last().map_or("", String::as_str);
        Some(escape(value.strip_prefix(prefix)?, quote))
    }
}

/// A line without its quotes.
struct SplitLine<'a> {
    /// The words. There is at least one.
    arguments: Vec<String>,
    /// The last word as typed.
    current: &'a str,
    /// The quote that is open at the end.
    quote: Quote,
}

fn split_line(line: &str) -> SplitLine<'_> {
    let mut arguments = vec![String::new()];
    let mut start = 0;
    let mut quote = Quote::None;
    let mut characters = line.char_indices().peekable();
    while let Some((index, character)) = characters.next() {
        let argument = arguments.last_mut().expect("there is always a word");
        match (quote, character) {
            (Quote::None, ' ' | '\t' | '\n') => {
                start = index + 1;
                if !argument.is_empty() || line[..index].ends_with(['\'', '"']) {
                    arguments.push(String::new());
                }
            }
            (Quote::None, '\'') => quote = Quote::Single,
            (Quote::None, '"') => quote = Quote::Double,
            (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
            (Quote::None, '\\') => argument.extend(characters.next().map(|(_, next)| next)),
            (Quote::Double, '\\') => {
                // Within double quotes, a backslash escapes only these.
                let escaped = characters.next_if(|(_, next)| "\"\\$`".contains(*next));
                argument.push(escaped.map_or('\\', |(_, next)| next));
            }
            (_, character) => argument.push(character),
        }
    }
    SplitLine { arguments, current: &line[start..], quote }
}

/// Escapes `text` for a shell line in which `quote` is open.
fn escape(text: &str, quote: Quote) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match quote {
            Quote::Single if character == '\'' => escaped.push_str("'\\'"),
            Quote::Double if "\"\\$`".contains(character) => escaped.push('\\'),
            Quote::None if !(character.is_alphanumeric() || "_-./:=@%+,~".contains(character)) => {
                escaped.push('\\');
            }
            _ => {}
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Quote, SplitLine, TypedLine, split_line};
    use crate::cli::completions::CompletionShell;

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        let check = |line: &str, expect: &[&str], expect_current: &str, expect_quote: Quote| {
            let SplitLine { arguments, current, quote } = split_line(line);
            assert_eq!(arguments, expect, "{line}");
            assert_eq!((current, quote), (expect_current, expect_quote), "{line}");
        };
        check("nanobot ", &["nanobot", ""], "", Quote::None);
        check("nanobot  a", &["nanobot", "a"], "a", Quote::None);
        check("n 'a b' c\\ d", &["n", "a b", "c d"], "c\\ d", Quote::None);
        check("n \"a b", &["n", "a b"], "\"a b", Quote::Double);
        check("n 'it'\\''s", &["n", "it's"], "'it'\\''s", Quote::Single);
        check("n '' x", &["n", "", "x"], "x", Quote::None);
        check("n \"\\$\\x", &["n", "$\\x"], "\"\\$\\x", Quote::Double);
        check("", &[""], "", Quote::None);
    }

    #[test]
    fn bash_gets_the_replacement_for_its_piece() {
        let check = |line: &str, piece: &str, value: &str, expect: &str| {
            let arguments = [line.into(), piece.into()];
            let typed_line = TypedLine::from_script(CompletionShell::Bash, &arguments).unwrap();
            let replacement = typed_line.format_value(CompletionShell::Bash, value);
            assert_eq!(replacement.as_deref(), Some(expect), "{line} {piece}");
        };
        check("n -s cli", "cli", "cli:direct", "cli:direct");
        check("n -s cli:", "", "cli:direct", "direct");
        check("n -s cli:d", "d", "cli:direct", "direct");
        check("n -s \"cli:d", "cli:d", "cli:direct", "cli:direct");
        check("n -s 'it", "it", "it's", "it'\\''s");
        check("n -s my", "my", "my talk $1", "my\\ talk\\ \\$1");
        check("n -s my\\ t", "my\\ t", "my talk", "my\\ talk");
        check("n -s \"a$", "a$", "a$b", "a\\$b");
        check("n --model=g", "g", "--model=gpt", "gpt");
        check("n --model=", "", "--model=gpt", "gpt");
    }
}
