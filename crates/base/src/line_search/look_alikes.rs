//! Compares texts without regard to characters that look alike: blanks, quotes, dashes, composed and decomposed letters,
//! invisible characters. Models write the plain ones whatever the file has.

use crate::diff::common_words;
use std::borrow::Cow;
use std::ops::Range;
use unicode_normalization::char::{decompose_canonical, is_combining_mark};

/// The differences that a comparison ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredForms {
    /// Of line endings.
    LineEnds,
    /// Of line endings, and of characters that look alike.
    LookAlikes,
}

/// A text as it is compared, and the positions of its parts in the original.
struct FoldedText {
    text: String,
    /// The characters whose folded form has another length, in order.
    folds: Vec<Fold>,
}

struct Fold {
    /// The range in the text as it is compared; empty if the character is ignored.
    folded: Range<usize>,
    original: Range<usize>,
}

impl FoldedText {
    fn new(original: &str, ignored: IgnoredForms) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut folds = Vec::new();
        let mut characters = original.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let start = text.len();
            let mut end = at + character.len_utf8();
            match character {
                '\r' if characters.next_if(|(_, next)| *next == '\n').is_some() => {
                    text.push('\n');
                    end += 1;
                }
                _ if character.is_ascii() || ignored == IgnoredForms::LineEnds => {
                    text.push(character);
                }
                _ => push_folded(character, &mut text),
            }
            let is_one = text[start..].chars().nth(1).is_none();
            if text.len() - start != end - at || !is_one {
                folds.push(Fold { folded: start..text.len(), original: at..end });
            }
        }
        Self { text, folds }
    }

    /// The part of the original that is compared as `range`, without ignored characters at its ends; `None` if it cuts a
    /// character.
    fn original(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let before_start = self.folds.partition_point(|fold| fold.folded.end <= range.start);
        let before_end = self.folds.partition_point(|fold| {
            fold.folded.end < range.end || (fold.folded.end == range.end && !fold.folded.is_empty())
        });
        let start = self.original_at(before_start, range.start)?;
        let end = self.original_at(before_end, range.end)?;
        // A combining mark belongs to the letter before it.
        let cuts_letter = self.text[range.end..].starts_with(is_combining_mark);
        (!cuts_letter && start <= end).then_some(start..end)
    }

    /// The position in the original of the `position` behind the first `count` folds.
    fn original_at(&self, count: usize, position: usize) -> Option<usize> {
        if self.folds.get(count).is_some_and(|next| next.folded.start < position) {
            return None;
        }
        Some(match count.checked_sub(1).map(|last| &self.folds[last]) {
            Some(last) => last.original.end + position - last.folded.end,
            None => position,
        })
    }

    /// The position in the text as it is compared, of a `position` in the original between two characters.
    fn folded_at(&self, position: usize) -> usize {
        let count = self.folds.partition_point(|fold| fold.original.end <= position);
        match count.checked_sub(1).map(|last| &self.folds[last]) {
            Some(last) => last.folded.end + position - last.original.end,
            None => position,
        }
    }
}

/// Appends the plain characters that look like `character`; none if it is invisible.
fn push_folded(character: char, text: &mut String) {
    match character {
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
            text.push(' ');
        }
        '\u{2bc}' | '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{ff07}' => text.push('\''),
        '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{ff02}' => text.push('"'),
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => {
            text.push('-');
        }
        '\u{2026}' => text.push_str("..."),
        '\u{ad}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2060}'
        | '\u{fe0e}'
        | '\u{fe0f}'
        | '\u{feff}' => {}
        _ => decompose_canonical(character, |part| text.push(part)),
    }
}

/// `text` as it is compared.
pub fn fold(text: &str, ignored: IgnoredForms) -> Cow<'_, str> {
    let changes = match ignored {
        IgnoredForms::LineEnds => text.contains('\r'),
        IgnoredForms::LookAlikes => !text.is_ascii() || text.contains('\r'),
    };
    if changes { Cow::Owned(FoldedText::new(text, ignored).text) } else { Cow::Borrowed(text) }
}

/// The ranges of `text` at which `wanted` occurs, apart from `ignored` differences. They do not overlap.
pub fn find_similar(text: &str, wanted: &str, ignored: IgnoredForms) -> Vec<Range<usize>> {
    let wanted = fold(wanted, ignored);
    if wanted.is_empty() {
        return Vec::new();
    }
    let folded = FoldedText::new(text, ignored);
    let matches = folded.text.match_indices(&*wanted);
    matches.filter_map(|(start, text)| folded.original(&(start..start + text.len()))).collect()
}

/// Returns `new`, which a model wrote to replace `old`. The parts that it has in common with `old` get the characters of the file;
/// `file_text` is `old` as the file has it.
pub fn respell(new: &str, old: &str, file_text: &str, ignored: IgnoredForms) -> String {
    let old_folded = FoldedText::new(old, ignored);
    let file_folded = FoldedText::new(file_text, ignored);
    if old_folded.text != file_folded.text {
        return new.to_owned();
    }
    let mut text = String::with_capacity(new.len());
    let mut end = 0;
    for (old_range, new_range) in common_words(old, new) {
        let folded = old_folded.folded_at(old_range.start)..old_folded.folded_at(old_range.end);
        text.push_str(&new[end..new_range.start]);
        match file_folded.original(&folded) {
            Some(range) => text.push_str(&file_text[range]),
            None => text.push_str(&new[new_range.clone()]),
        }
        end = new_range.end;
    }
    text.push_str(&new[end..]);
    text
}

/// Names the first character by which `line`, of a file, differs from `wanted`, which is called `name` and looks the same.
/// `line` begins after `columns_before` characters of its line. `None` if they are equal, apart from white space around
/// them, or look different.
pub fn describe_difference(
    line: &str,
    wanted: &str,
    name: &str,
    columns_before: usize,
) -> Option<String> {
    let indentation = line.chars().take_while(|character| character.is_whitespace()).count();
    let (line, wanted) = (line.trim(), wanted.trim());
    let is_alike = fold(line, IgnoredForms::LookAlikes) == fold(wanted, IgnoredForms::LookAlikes);
    if line == wanted || !is_alike {
        return None;
    }
    let mut pairs = line.chars().zip(wanted.chars());
    let same = pairs.by_ref().take_while(|(character, other)| character == other).count();
    let char_at = |text: &str, index: usize| text.chars().nth(index);
    let (mut character, other) = (char_at(line, same), char_at(wanted, same));
    let mut column = same + 1;
    // After a plain letter, the combining mark is the difference.
    if character.is_some_and(|character| character.is_ascii())
        && let Some(mark) = char_at(line, column).filter(|next| is_combining_mark(*next))
    {
        character = Some(mark);
        column += 1;
    }
    let describe = |character: Option<char>| match character {
        Some(character) if is_visible(character) => {
            format!("U+{:04X} ({character})", u32::from(character))
        }
        Some(character) => format!("U+{:04X}", u32::from(character)),
        None => "nothing".to_owned(),
    };
    let column = columns_before + indentation + column;
    Some(format!(
        "differs in {} at column {column}; {name} has {} there",
        describe(character),
        describe(other)
    ))
}

fn is_visible(character: char) -> bool {
    let mut plain = String::new();
    push_folded(character, &mut plain);
    !plain.trim().is_empty() && !is_combining_mark(character)
}

/// Returns the content of `file_line` between the leading and the trailing white space of `line`.
pub fn with_content_of(line: &str, file_line: &str) -> String {
    let content = line.trim();
    if content.is_empty() {
        return line.to_owned();
    }
    let start = line.len() - line.trim_start().len();
    format!("{}{}{}", &line[..start], file_line.trim(), &line[start + content.len()..])
}

#[cfg(test)]
mod tests {
    use super::{IgnoredForms, describe_difference, find_similar, respell};

    #[test]
    fn look_alikes_are_found() {
        let check = |text: &str, wanted: &str, expect: &[&str]| {
            let parts = find_similar(text, wanted, IgnoredForms::LookAlikes);
            let parts: Vec<&str> = parts.into_iter().map(|range| &text[range]).collect();
            assert_eq!(parts, expect, "{text:?} {wanted:?}");
        };
        check("a\u{a0}b a\u{202f}b", "a b", &["a\u{a0}b", "a\u{202f}b"]);
        check("say \u{201c}it\u{2019}s\u{201d}.", "\"it's\"", &["\u{201c}it\u{2019}s\u{201d}"]);
        check("1\u{2013}2 \u{2014} 3\u{2212}4", "1-2 - 3-4", &["1\u{2013}2 \u{2014} 3\u{2212}4"]);
        check("and so on\u{2026} or", "so on... or", &["so on\u{2026} or"]);
        check("cafe\u{301} x", "caf\u{e9} x", &["cafe\u{301} x"]);
        check("caf\u{e9} x", "cafe\u{301} x", &["caf\u{e9} x"]);
        check(
            "\u{d55c}\u{ae00}",
            "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}",
            &["\u{d55c}\u{ae00}"],
        );
        check("a\u{200b}b\u{feff}c", "abc", &["a\u{200b}b\u{feff}c"]);
        check("abc", "a\u{200b}bc\u{ad}", &["abc"]);
        check("x\u{200b}ab\u{200b}y", "ab", &["ab"]);
        check("a\r\nb\r\nc", "b\nc", &["b\r\nc"]);
        // A letter is not found in another, nor a part of one character.
        check("cafe\u{301}", "cafe", &[]);
        check("caf\u{e9}", "cafe", &[]);
        check("wait\u{2026}", "wait.", &[]);
        check("abc", "\u{200b}", &[]);
        check("abc", "d", &[]);
    }

    #[test]
    fn the_characters_of_the_file_are_kept_where_nothing_changes() {
        let check = |new: &str, old: &str, file_text: &str, expect: &str| {
            assert_eq!(respell(new, old, file_text, IgnoredForms::LookAlikes), expect, "{new:?}");
        };
        let file_text = "\u{201c}one\u{201d} is\u{a0}10\u{a0}km \u{2014} cafe\u{301}";
        let old = "\"one\" is 10 km - caf\u{e9}";
        check(
            "\"one\" is 12 km - caf\u{e9}s!",
            old,
            file_text,
            "\u{201c}one\u{201d} is\u{a0}12\u{a0}km \u{2014} caf\u{e9}s!",
        );
        check("\"two\" is 10 km", old, file_text, "\u{201c}two\u{201d} is\u{a0}10\u{a0}km");
        check("", old, file_text, "");
        check("x\nb", "a\nb", "a\r\nb", "x\r\nb");
        // Parts without a counterpart are left unchanged.
        check("new", "old", "other", "new");
    }

    #[test]
    fn differences_are_named() {
        let check = |line: &str, wanted: &str, expect: Option<&str>| {
            let difference = describe_difference(line, wanted, "old_text", 0);
            assert_eq!(difference.as_deref(), expect, "{line:?} {wanted:?}");
        };
        check("a", "a", None);
        check("a", "b", None);
        check(
            "  a\u{a0}b",
            "a b",
            Some("differs in U+00A0 at column 4; old_text has U+0020 there"),
        );
        check("a\u{a0}b", "a b", Some("differs in U+00A0 at column 2; old_text has U+0020 there"));
        check(
            "\u{201c}a\u{201d}",
            "\"a\"",
            Some("differs in U+201C (\u{201c}) at column 1; old_text has U+0022 (\") there"),
        );
        check(
            "cafe\u{301}",
            "caf\u{e9}",
            Some("differs in U+0301 at column 5; old_text has U+00E9 (\u{e9}) there"),
        );
        check(
            "ab\u{200b}",
            "ab",
            Some("differs in U+200B at column 3; old_text has nothing there"),
        );
    }

    #[test]
    fn fuzz_matches_look_like_what_was_sought() {
        let seeds: &[&[u8]] = &[
            "a\u{a0}b\u{200b}\r\ncafe\u{301} \u{2026}\u{d55c}".as_bytes(),
            "\u{201c}a\u{201d}\u{2014}\u{e9}\u{301}".as_bytes(),
        ];
        crate::fuzz::check(seeds, |input, random| {
            let text = crate::fuzz::lossy_text(input);
            let characters: Vec<char> = text.chars().take(40).collect();
            let start = random.below(characters.len() + 1);
            let wanted: String = characters[start..].iter().take(5).collect();
            for ignored in [IgnoredForms::LineEnds, IgnoredForms::LookAlikes] {
                for range in find_similar(&text, &wanted, ignored) {
                    let file_text = &text[range];
                    assert_eq!(super::fold(file_text, ignored), super::fold(&wanted, ignored));
                    let respelled = respell(&wanted, &wanted, file_text, ignored);
                    assert_eq!(super::fold(&respelled, ignored), super::fold(file_text, ignored));
                }
            }
        });
    }
}
