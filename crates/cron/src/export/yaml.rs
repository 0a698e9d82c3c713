//! Writes a value as a YAML document. The crate serde-saphyr quotes every text that a YAML 1.1 or 1.2 reader would
//! take for a number, a boolean, a date or null.

use serde_json::Value;

/// Formats the value as a complete document.
pub(super) fn to_document(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
    };
    serde_saphyr::to_string_with_options(value, options)
        .expect("a JSON value has text keys, and a string takes every write")
}

#[cfg(test)]
mod tests {
    use super::to_document;
    use serde_json::{Value, json};

    #[test]
    fn a_document_is_readable() {
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
                - --scheduled
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
        .assert_eq(&to_document(&value));
    }

    #[test]
    fn ambiguous_scalars_are_quoted() {
        let scalars = [
            "y",
            "n",
            "yes",
            "No",
            "on",
            "OFF",
            "true",
            "null",
            "~",
            "",
            "1",
            "0x1f",
            "1e3",
            ".5",
            "1_0",
            "12:30",
            "2026-11-22",
            "a: b",
            "a #b",
            "- a",
            "*a",
            "a\nb",
        ];
        for scalar in scalars {
            let quoted = Value::from(scalar).to_string();
            let written = to_document(&json!({ "k": scalar, "l": [scalar], scalar: 1 }));
            let expect = format!("k: {quoted}\nl:\n  - {quoted}\n{quoted}: 1\n");
            assert_eq!(written, expect);
        }
    }

    #[test]
    fn every_text_round_trips() {
        let seeds: [&[u8]; 4] = [
            b"a: b # c",
            b"0x10 1e3 .5 ~ null -1 [x] {y}",
            "\u{85}\u{feff}\u{2028}\u{7f} 🙂\t\n".as_bytes(),
            b"'\"\\ %&*!|>@`",
        ];
        nanobot_base::fuzz::check(&seeds, |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            // YAML limits the length of keys; ours are short.
            let key: String = text.chars().take(100).collect();
            let value = json!({ "k": text, "l": [{ key: text }] });
            let written = to_document(&value);
            let read: Value = serde_saphyr::from_str(&written)
                .unwrap_or_else(|error| panic!("{error} in {written:?}"));
            assert_eq!(read, value, "{written}");
        });
    }
}
