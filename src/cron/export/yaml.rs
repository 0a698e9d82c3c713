//! A value as YAML, in blocks; every text that could be read as something else in quotes.

use serde_json::Value;

/// The value as a document of its own.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    node(&mut out, value, 0);
    out
}

/// A map or a list, each of its lines from `indent` on, or a plain value.
fn node(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                pad(out, indent);
                out.push_str(&scalar(key));
                out.push(':');
                below(out, value, indent);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                pad(out, indent);
                match is_block(value) {
                    // Its first line stands behind the dash.
                    true => {
                        let mut inner = String::new();
                        node(&mut inner, value, indent + 2);
                        out.push_str("- ");
                        out.push_str(inner.trim_start());
                    }
                    false => {
                        out.push('-');
                        below(out, value, indent);
                    }
                }
            }
        }
        plain => {
            out.push_str(&flat(plain));
            out.push('\n');
        }
    }
}

/// What stands behind a key or a dash.
fn below(out: &mut String, value: &Value, indent: usize) {
    match is_block(value) {
        true => {
            out.push('\n');
            node(out, value, indent + 2);
        }
        false => {
            out.push(' ');
            node(out, value, 0);
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// A text: as it is where it is a word that means nothing else, or as JSON, which YAML reads.
fn scalar(text: &str) -> String {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let is_word = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(letter);
    let lower = text.to_ascii_lowercase();
    let means_more = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    if is_word && !means_more.contains(&&*lower) {
        return text.to_owned();
    }
    let mut out = String::new();
    for letter in Value::from(text).to_string().chars() {
        match letter {
            // JSON has these as they are; YAML does not.
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => out.push(letter),
        }
    }
    out
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use super::document;
    use serde_json::{Value, json};

    #[test]
    fn a_document_reads_well() {
        let value = json!({
            "kind": "CronJob",
            "spec": {
                "args": ["cron", "run", "0815", "--scheduled", "true"],
                "rules": [{ "action": "Ignore", "values": [75] }, { "n": 1.5 }],
                "empty": {}, "none": [], "is": true, "nested": [["a", ["b"]], []],
            },
        });
        expect_test::expect![[r#"
            kind: CronJob
            spec:
              args:
                - cron
                - run
                - "0815"
                - "--scheduled"
                - "true"
              rules:
                - action: Ignore
                  values:
                    - 75
                - "n": 1.5
              empty: {}
              none: []
              is: true
              nested:
                - - a
                  - - b
                - []
        "#]]
        .assert_eq(&document(&value));
    }

    #[test]
    fn every_text_is_read_back() {
        let seeds: [&[u8]; 4] = [
            b"a: b # c",
            b"0x10 1e3 .5 ~ null -1 [x] {y}",
            "\u{85}\u{feff}\u{2028}\u{7f} 🙂\t\n".as_bytes(),
            b"'\"\\ %&*!|>@`",
        ];
        crate::fuzz::hold(&seeds, |input, _| {
            let text = crate::fuzz::text(input);
            // Keys have an end in YAML; ours are short.
            let key: String = text.chars().take(100).collect();
            let value = json!({ "k": text, "l": [{ key: text }] });
            let written = document(&value);
            let read: Value = serde_saphyr::from_str(&written)
                .unwrap_or_else(|error| panic!("{error} in {written:?}"));
            assert_eq!(read, value, "{written}");
        });
    }
}
