//! Words of a command line as a shell takes them, so that a flag that is suggested can be copied as it stands.

use std::fmt::Write;

/// `text` as one word of a shell, on one line and with nothing in it that a terminal obeys.
pub fn quoted(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "_@%+=:,./-".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.chars().any(is_hidden) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // What cannot be seen is spelled out, in the form that shells read back.
    let mut out = String::from("$'");
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str(r"\n"),
            '\t' => out.push_str(r"\t"),
            '\r' => out.push_str(r"\r"),
            '\'' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_ascii_control() => {
                write!(out, "\\x{:02x}", u32::from(letter))
                    .expect("writing to a string cannot fail");
            }
            letter if is_hidden(letter) => {
                write!(out, "\\u{:04x}", u32::from(letter))
                    .expect("writing to a string cannot fail");
            }
            letter => out.push(letter),
        }
    }
    out.push('\'');
    out
}

/// The text that [`quoted`] made `word` of. Nothing where it is spelled out.
pub fn unquoted(word: &str) -> Option<String> {
    let Some(inner) = word.strip_prefix('\'') else {
        return (!word.starts_with("$'")).then(|| word.to_owned());
    };
    Some(inner.strip_suffix('\'')?.replace(r"'\''", "'"))
}

/// Controls, and marks that change the order of text or cannot be seen.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::{quoted, unquoted};

    #[test]
    fn words_of_a_shell() {
        let check = |text: &str, expect: &str| {
            assert_eq!(quoted(text), expect);
            let back = (!expect.starts_with('$')).then(|| text.to_owned());
            assert_eq!(unquoted(expect), back);
        };
        check("/tmp/a-b_c.d", "/tmp/a-b_c.d");
        check("/tmp/ä", "/tmp/ä");
        check("", "''");
        check("/tmp/sp dir/f", "'/tmp/sp dir/f'");
        check("a'b", r"'a'\''b'");
        check("$(x)", "'$(x)'");
        check("[::1]:80", "'[::1]:80'");
        check("a\nb", r"$'a\nb'");
        check("a'\\\x1b[2J", r"$'a\'\\\x1b[2J'");
        check("a\u{202e}b", r"$'a\u202eb'");
    }
}
