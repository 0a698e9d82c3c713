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
    pub(super) fn from_script(shell: CompletionShell, passed: &[OsString]) -> Option<Self> {
        let mut passed: Vec<String> =
            passed.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>()?;
        match (shell, &mut passed[..]) {
            (CompletionShell::Bash, [line, piece]) => {
                let (words, last, _) = split_line(line);
                let kept = last.strip_suffix(piece.as_str()).unwrap_or_default();
                Some(Self { arguments: words, fixed_prefix: kept.to_owned() })
            }
            (CompletionShell::Bash, _) | (_, []) => None,
            (_, [.., last]) => {
                match shell {
                    // Fish passes the word at the cursor with its quotes.
                    CompletionShell::Fish => *last = split_line(last).0.pop()?,
                    // Older PowerShell releases drop an empty argument, so the script puts `=` before the last word.
                    CompletionShell::Powershell => *last = last.strip_prefix('=')?.to_owned(),
                    _ => {}
                }
                Some(Self { arguments: passed, fixed_prefix: String::new() })
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
        let (words, _, quote) = split_line(&self.fixed_prefix);
        let kept = words.last().map_or("", String::as_str);
        Some(escape(value.strip_prefix(kept)?, quote))
    }
}

/// Splits `line` into words. Also returns the last word as typed, and the quote that is open at its end.
fn split_line(line: &str) -> (Vec<String>, &str, Quote) {
    let mut words = vec![String::new()];
    let (mut start, mut quote) = (0, Quote::None);
    let mut letters = line.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let word = words.last_mut().expect("there is always a word");
        match (quote, letter) {
            (Quote::None, ' ' | '\t' | '\n') => {
                start = at + 1;
                if !word.is_empty() || line[..at].ends_with(['\'', '"']) {
                    words.push(String::new());
                }
            }
            (Quote::None, '\'') => quote = Quote::Single,
            (Quote::None, '"') => quote = Quote::Double,
            (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
            (Quote::None, '\\') => word.extend(letters.next().map(|(_, letter)| letter)),
            (Quote::Double, '\\') => match letters.next_if(|(_, next)| "\"\\$`".contains(*next)) {
                Some((_, next)) => word.push(next),
                None => word.push('\\'),
            },
            (_, letter) => word.push(letter),
        }
    }
    (words, &line[start..], quote)
}

/// Escapes `text` for a shell line in which `quote` is open.
fn escape(text: &str, quote: Quote) -> String {
    let mut written = String::new();
    for letter in text.chars() {
        match quote {
            Quote::Single if letter == '\'' => written.push_str("'\\'"),
            Quote::Double if "\"\\$`".contains(letter) => written.push('\\'),
            Quote::None if !(letter.is_alphanumeric() || "_-./:=@%+,~".contains(letter)) => {
                written.push('\\');
            }
            _ => {}
        }
        written.push(letter);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::{Quote, TypedLine, split_line};
    use crate::cli::completions::CompletionShell;

    #[test]
    fn a_line_is_parted_as_a_shell_does() {
        let check = |line: &str, expect: &[&str], last: &str, quote: Quote| {
            let (words, typed, open) = split_line(line);
            assert_eq!(
                (&words[..], typed, open),
                (
                    &expect.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()[..],
                    last,
                    quote
                ),
                "{line}"
            );
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
    fn bash_is_told_what_comes_into_the_place_of_its_piece() {
        let check = |line: &str, piece: &str, value: &str, expect: &str| {
            let read = TypedLine::from_script(CompletionShell::Bash, &[line.into(), piece.into()])
                .unwrap();
            let written = read.format_value(CompletionShell::Bash, value);
            assert_eq!(written.as_deref(), Some(expect), "{line} {piece}");
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
