//! Removes invisible characters from untrusted content. They can carry instructions to the model that a human reader of
//! the page cannot see, and reverse the order of the text next to them. No I/O. Joiners are kept where a script needs them.

use std::borrow::Cow;

/// Returns `text` without invisible characters, and the number that was removed.
pub fn strip(text: &str) -> (Cow<'_, str>, usize) {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) || byte == b'\n' || byte == b'\t';
    if text.bytes().all(is_plain) {
        return (Cow::Borrowed(text), 0);
    }
    let mut visible = String::with_capacity(text.len());
    let mut removed = 0;
    let mut before = '\0';
    for character in text.chars() {
        // A carriage return is part of a line ending, not hidden text.
        if character == '\r' {
            continue;
        }
        if is_hidden(character, before) {
            removed += 1;
        } else {
            visible.push(character);
        }
        before = character;
    }
    (Cow::Owned(visible), removed)
}

/// True if `character` is invisible after `previous`.
fn is_hidden(character: char, previous: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // Joiners are valid after letters of joining scripts and in composed emoji, one at a time.
        '\u{200c}' | '\u{200d}' => !accepts_joiner(previous),
        // Selects the text or emoji form of a symbol; has no effect after a letter.
        '\u{fe0e}' | '\u{fe0f}' => {
            previous.is_alphabetic() || is_selector(previous) || previous <= ' '
        }
        _ => {
            character.is_control()
                || is_selector(character)
                || matches!(character,
                    '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                    | '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                    | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
        }
    }
}

fn is_selector(character: char) -> bool {
    matches!(character, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// True if a joiner may follow `character`: Arabic to the Indic and South-East Asian scripts, Mongolian, emoji.
fn accepts_joiner(character: char) -> bool {
    matches!(character,
        '\u{620}'..='\u{8ff}' | '\u{900}'..='\u{dff}' | '\u{e00}'..='\u{109f}' | '\u{1780}'..='\u{18af}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{2600}'..='\u{27bf}' | '\u{1f000}'..='\u{1faff}' | '\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use super::strip;

    #[test]
    fn invisible_characters_are_removed() {
        let check = |text: &str, expect: &str, removed: usize| {
            let (visible, count) = strip(text);
            assert_eq!((visible.as_ref(), count), (expect, removed), "{text:?}");
        };
        check("", "", 0);
        check("plain\n\ttext", "plain\n\ttext", 0);
        check("caf\u{e9} \u{4f60}\u{597d} \u{1f642}", "caf\u{e9} \u{4f60}\u{597d} \u{1f642}", 0);
        check("a\r\nb", "a\nb", 0);
        // Tag characters can spell words.
        check("a\u{e0041}\u{e0042}\u{e007f}b", "ab", 3);
        check("a\u{200b}b\u{2060}c\u{feff}d\u{ad}e", "abcde", 4);
        check("\u{202e}txt.exe\u{202c}\u{2066}x\u{2069}", "txt.exex", 4);
        check("\u{200f}\u{200e}\u{61c}", "", 3);
        check("a\u{1b}[2Jb\u{7f}\u{9b}c\0", "a[2Jbc", 4);
        check("a\u{2028}b", "ab", 1);
        check("\u{3164}\u{ffa0}\u{115f}x", "x", 3);
        // Data encoded in variation selectors after a letter.
        check("a\u{fe01}\u{e0101}\u{fe0f}", "a", 3);
        check("\u{2764}\u{fe0f}", "\u{2764}\u{fe0f}", 0);
        check("\u{2764}\u{fe0f}\u{fe0f}", "\u{2764}\u{fe0f}", 1);
        // Persian needs its non-joiner and composed emoji need joiners; other text does not.
        check("\u{645}\u{6cc}\u{200c}\u{62e}", "\u{645}\u{6cc}\u{200c}\u{62e}", 0);
        check("\u{645}\u{200c}\u{200c}\u{200d}", "\u{645}\u{200c}", 2);
        check("\u{1f468}\u{200d}\u{1f469}", "\u{1f468}\u{200d}\u{1f469}", 0);
        check("a\u{200d}b\u{200c}", "ab", 2);
    }

    #[test]
    fn fuzz_stripping_leaves_nothing_to_strip() {
        let seeds: &[&[u8]] = &[
            "a\u{200d}b\u{e0041}\u{fe0f}\u{202e}".as_bytes(),
            "\u{645}\u{200c}\u{1f468}\u{200d}\u{1f469}\u{2764}\u{fe0f}".as_bytes(),
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            let (visible, _) = strip(&text);
            let (again, _) = strip(&visible);
            assert!(
                again.chars().all(|character| !('\u{e0000}'..='\u{e0fff}').contains(&character))
            );
            assert!(!visible.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\r', '\0']));
        });
    }
}
