//! Quoting of shell words, so that a suggested flag can be copied and pasted unchanged.

use std::fmt::Write;

/// Quotes `text` as one shell word, on one line and free of terminal control characters.
pub fn quote(text: &str) -> String {
    let is_plain =
        |character: char| character.is_alphanumeric() || "_@%+=:,./-".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    if !text.chars().any(is_hidden) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // Invisible characters are escaped in the `$'…'` form that shells parse back.
    let mut out = String::from("$'");
    for character in text.chars() {
        match character {
            '\n' => out.push_str(r"\n"),
            '\t' => out.push_str(r"\t"),
            '\r' => out.push_str(r"\r"),
            '\'' | '\\' => out.extend(['\\', character]),
            character if character.is_ascii_control() => {
                write!(out, "\\x{:02x}", u32::from(character))
                    .expect("writing to a string cannot fail");
            }
            character if is_hidden(character) => {
                write!(out, "\\u{:04x}", u32::from(character))
                    .expect("writing to a string cannot fail");
            }
            character => out.push(character),
        }
    }
    out.push('\'');
    out
}

/// Reverses [`quote`]. `None` for the `$'…'` form, which is not parsed.
pub fn unquote(quoted: &str) -> Option<String> {
    let Some(inner) = quoted.strip_prefix('\'') else {
        return (!quoted.starts_with("$'")).then(|| quoted.to_owned());
    };
    Some(inner.strip_suffix('\'')?.replace(r"'\''", "'"))
}

/// Splits a command line into arguments as a shell does: at blanks, with quotes and backslashes; nothing is expanded. `None` if a quote is open,
/// or a backslash ends the line.
pub fn split_arguments(line: &str) -> Option<Vec<String>> {
    let (mut arguments, mut argument) = (Vec::new(), None::<String>);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character.is_whitespace() {
            arguments.extend(argument.take());
            continue;
        }
        let argument = argument.get_or_insert_default();
        match character {
            '\'' | '"' => loop {
                match characters.next()? {
                    end if end == character => break,
                    '\\' if character == '"' => {
                        let escaped = characters.next()?;
                        if !matches!(escaped, '"' | '\\' | '$' | '`') {
                            argument.push('\\');
                        }
                        argument.push(escaped);
                    }
                    quoted => argument.push(quoted),
                }
            },
            '\\' => argument.push(characters.next()?),
            plain => argument.push(plain),
        }
    }
    arguments.extend(argument);
    Some(arguments)
}

/// True for control characters, bidirectional marks and zero-width characters.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::{quote, split_arguments, unquote};

    #[test]
    fn arguments_are_split_as_a_shell_does() {
        let check = |text: &str, expect: &[&str]| {
            let arguments = split_arguments(text).unwrap();
            assert_eq!(arguments, expect, "{text}");
        };
        check("", &[]);
        check("  a  b ", &["a", "b"]);
        check("'a b' c", &["a b", "c"]);
        check(r#""a \"b\" \n" '' x"y z""#, &[r#"a "b" \n"#, "", "xy z"]);
        check(r"a\ b '\'", &["a b", r"\"]);
        check("#1 $HOME", &["#1", "$HOME"]);
        for open in ["'a", "\"a", "a\\", "\"a\\"] {
            assert_eq!(split_arguments(open), None, "{open}");
        }
    }

    #[test]
    fn shell_words_are_quoted() {
        let check = |text: &str, expect: &str| {
            assert_eq!(quote(text), expect);
            let back = (!expect.starts_with('$')).then(|| text.to_owned());
            assert_eq!(unquote(expect), back);
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
