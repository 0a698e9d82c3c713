//! Lenient parsing of JSON written by models, servers and other programs.

use serde_json::Value;

/// Parses `text` as JSON. Lone surrogates, which models and servers do send, become the replacement character.
pub fn parse(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .ok()
        .or_else(|| serde_json::from_str(&without_lone_surrogates(text)).ok())
}

/// Replaces every lone surrogate escape in `json` with `\uFFFD`.
pub fn without_lone_surrogates(json: &str) -> String {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        out.push_str(&json[at..at + found]);
        at += found;
        let (taken, kept) = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, true),
            (Some(0xd800..=0xdfff), _) => (6, false),
            // Skip the escaped character too: an escaped backslash must not start another escape.
            _ => (
                1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
                true,
            ),
        };
        out.push_str(if kept {
            &json[at..at + taken]
        } else {
            "\\ufffd"
        });
        at += taken;
    }
    out.push_str(&json[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::without_lone_surrogates;

    #[test]
    fn replaces_lone_surrogates() {
        let check = |json: &str, expect: &str| assert_eq!(without_lone_surrogates(json), expect);
        check(r#""plain""#, r#""plain""#);
        check(r#""\ud83d\ude42""#, r#""\ud83d\ude42""#);
        check(r#""\ud83d""#, r#""\ufffd""#);
        check(r#""\ude42x\ud83d\n""#, r#""\ufffdx\ufffd\n""#);
        check(r#""\\ud83d""#, r#""\\ud83d""#);
        check(r#""é\"#, r#""é\"#);
    }
}
