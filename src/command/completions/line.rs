//! The line that is being typed: its words without their quotes, and how a value is written into it.
//!
//! Most shells hand words over. Bash hands over pieces that it also parts at colons and equal signs, and replaces only the
//! last piece; so it is given the line as it was typed, and the answer says what comes into the piece's place.

use crate::cli::completions::Shell;
use std::ffi::OsString;

/// What was typed up to the cursor.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// The words; the last is the one under the cursor, which may be empty.
    pub(super) words: Vec<String>,
    /// In bash, what is in front of the piece that is replaced, of the last word as typed.
    kept: String,
}

/// The quote that is open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quote {
    None,
    Single,
    Double,
}

impl Line {
    /// What a script passes on: of bash the line up to the cursor and the piece that it would replace, of the others the words.
    pub(super) fn read(shell: Shell, passed: &[OsString]) -> Option<Self> {
        let mut passed: Vec<String> = passed
            .iter()
            .map(|word| word.to_str().map(str::to_owned))
            .collect::<Option<_>>()?;
        match (shell, &mut passed[..]) {
            (Shell::Bash, [line, piece]) => {
                let (words, last, _) = parts(line);
                let kept = last.strip_suffix(piece.as_str()).unwrap_or_default();
                Some(Self {
                    words,
                    kept: kept.to_owned(),
                })
            }
            (Shell::Bash, _) | (_, []) => None,
            (_, [.., last]) => {
                match shell {
                    // The word under the cursor is as typed.
                    Shell::Fish => *last = parts(last).0.pop()?,
                    // Its older releases leave an empty word out, so that something stands in front of it.
                    Shell::Powershell => *last = last.strip_prefix('=')?.to_owned(),
                    _ => {}
                }
                Some(Self {
                    words: passed,
                    kept: String::new(),
                })
            }
        }
    }

    /// The word under the cursor.
    pub(super) fn current(&self) -> &str {
        self.words.last().map_or("", String::as_str)
    }

    /// `value`, which is to stand in place of the current word, as the script wants it.
    pub(super) fn written(&self, shell: Shell, value: &str) -> Option<String> {
        if shell != Shell::Bash {
            return Some(value.to_owned());
        }
        let (words, _, quote) = parts(&self.kept);
        let kept = words.last().map_or("", String::as_str);
        Some(quoted(value.strip_prefix(kept)?, quote))
    }
}

/// The words of `line`, the last of them also as typed, and the quote that is open at its end.
fn parts(line: &str) -> (Vec<String>, &str, Quote) {
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

/// `text` as it can be typed in a shell, where `quote` is open.
fn quoted(text: &str, quote: Quote) -> String {
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
    use super::{Line, Quote, parts};
    use crate::cli::completions::Shell;

    #[test]
    fn a_line_is_parted_as_a_shell_does() {
        let check = |line: &str, expect: &[&str], last: &str, quote: Quote| {
            let (words, typed, open) = parts(line);
            assert_eq!(
                (&words[..], typed, open),
                (
                    &expect
                        .iter()
                        .map(|word| (*word).to_owned())
                        .collect::<Vec<_>>()[..],
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
            let read = Line::read(Shell::Bash, &[line.into(), piece.into()]).unwrap();
            let written = read.written(Shell::Bash, value);
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
