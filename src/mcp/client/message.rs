//! Parses protocol messages from untrusted bytes. Pure.

use rmcp::model::ServerJsonRpcMessage;

/// Maximum of JSON values in a message. A parsed value takes about a hundred bytes of memory, however short its text,
/// so a message of a few MiB could otherwise take a GiB.
const MAX_VALUES: usize = 500_000;

/// Parses the message in `bytes`; `None` if it is invalid or has too many values.
pub(super) fn parse(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    if has_too_many_values(bytes) {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// True if JSON text has too many values. The result for other text does not matter.
pub(super) fn has_too_many_values(bytes: &[u8]) -> bool {
    // Each value takes at least two bytes.
    if bytes.len() < MAX_VALUES {
        return false;
    }
    let (mut values, mut in_text, mut escaped) = (0, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    values > MAX_VALUES
}

#[cfg(test)]
mod tests {
    use super::{MAX_VALUES, has_too_many_values, parse};

    #[test]
    fn messages_with_too_many_values_are_none() {
        let message =
            |inner: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":{inner}}}}}"#);
        let list = |count: usize| message(&format!("[{}0]", "0,".repeat(count)));
        assert!(parse(list(10).as_bytes()).is_some());
        assert!(
            has_too_many_values(list(MAX_VALUES).as_bytes())
                && parse(list(MAX_VALUES).as_bytes()).is_none()
        );
        let text = message(&format!(
            "\"{}\\\"{}\"",
            ",[{".repeat(MAX_VALUES),
            ",".repeat(MAX_VALUES)
        ));
        assert!(!has_too_many_values(text.as_bytes()) && parse(text.as_bytes()).is_some());
    }

    #[test]
    fn invalid_messages_are_none() {
        let check = |text: &str, expect: bool| {
            assert_eq!(parse(text.as_bytes()).is_some(), expect, "{text}");
        };
        check("", false);
        check("null", false);
        check("[]", false);
        check(r#"{"jsonrpc":"2.0"}"#, false);
        check(r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, false);
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, true);
        check(r#"{"jsonrpc":"2.0","id":"1","result":7}"#, true);
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/odd","params":[1]}"#,
            false,
        );
        check(
            r#"{"jsonrpc":"2.0","method":"notifications/odd","params":{}}"#,
            true,
        );
        check(r#"{"jsonrpc":"2.0","id":1,"method":"odd/odd"}"#, true);
        check(&"[".repeat(100_000), false);
    }

    #[test]
    fn fuzz_no_bytes_are_too_odd() {
        let seeds: &[&[u8]] = &[
            br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}],"isError":false}}"#,
            br#"{"jsonrpc":"2.0","id":18446744073709551615,"result":{"tools":[{"name":"a","inputSchema":{}}]}}"#,
            br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1e999}}"#,
            br#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"a","requestedSchema":{"type":"object","properties":{}}}}"#,
        ];
        crate::fuzz::check(seeds, |input, _| drop(parse(input)));
    }
}
