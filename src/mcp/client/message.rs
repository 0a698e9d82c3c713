//! Parses protocol messages from untrusted bytes. Pure.

use rmcp::model::ServerJsonRpcMessage;

/// Maximum of JSON values in a message. A parsed value takes about a hundred bytes of memory, however short its text,
/// so a message of a few MiB could otherwise take a GiB.
const VALUES: usize = 500_000;

/// Parses the message in `bytes`; `None` if it is invalid or has too many values.
pub(super) fn read(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    if is_dense(bytes) {
        return None;
    }
    serde_json::from_slice(bytes).ok()
}

/// True if JSON text has too many values. The result for other text does not matter.
pub(super) fn is_dense(bytes: &[u8]) -> bool {
    // Each value takes at least two bytes.
    if bytes.len() < VALUES {
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
    values > VALUES
}

#[cfg(test)]
mod tests {
    use super::{VALUES, is_dense, read};

    #[test]
    fn messages_with_too_many_values_are_none() {
        let message =
            |inner: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":{inner}}}}}"#);
        let list = |count: usize| message(&format!("[{}0]", "0,".repeat(count)));
        assert!(read(list(10).as_bytes()).is_some());
        assert!(is_dense(list(VALUES).as_bytes()) && read(list(VALUES).as_bytes()).is_none());
        let text = message(&format!(
            "\"{}\\\"{}\"",
            ",[{".repeat(VALUES),
            ",".repeat(VALUES)
        ));
        assert!(!is_dense(text.as_bytes()) && read(text.as_bytes()).is_some());
    }

    #[test]
    fn odd_messages_are_none_or_something() {
        let check = |text: &str, expect: bool| {
            assert_eq!(read(text.as_bytes()).is_some(), expect, "{text}");
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
        crate::fuzz::hold(seeds, |input, _| drop(read(input)));
    }
}
