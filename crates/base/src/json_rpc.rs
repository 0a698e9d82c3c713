//! JSON-RPC 2.0 messages (<https://www.jsonrpc.org/specification>): parsed from untrusted bytes, and written. No I/O.

use serde_json::{Map, Value, json};

/// Maximum of JSON values in a message. A parsed value takes about a hundred bytes of memory, however short its text,
/// so a message of a few MiB could otherwise take a GiB.
const MAX_VALUES: usize = 500_000;

/// Error code for input that is not a message.
const PARSE_ERROR: i64 = -32700;
/// Error code for a message that is not a valid request, or not at this time.
const INVALID_REQUEST: i64 = -32600;
/// Error code for a request that could not be carried out.
const INTERNAL_ERROR: i64 = -32603;
/// Error code for a method that the receiver does not have.
const METHOD_NOT_FOUND: i64 = -32601;
/// Error code for parameters that do not fit the method.
const INVALID_PARAMS: i64 = -32602;

/// A message of the peer.
#[derive(Debug, PartialEq)]
pub enum RpcMessage {
    /// A request to us; `id` is a string or a number.
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// The answer to a request. An error without an id means that the server could not read the id.
    Response {
        id: Value,
        result: Result<Value, ErrorObject>,
    },
}

/// The error of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorObject {
    pub code: i64,
    pub message: String,
}

impl ErrorObject {
    pub fn method_not_found(message: impl Into<String>) -> Self {
        Self { code: METHOD_NOT_FOUND, message: message.into() }
    }

    pub fn parse_error(message: impl Into<String>) -> Self {
        Self { code: PARSE_ERROR, message: message.into() }
    }

    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self { code: INVALID_REQUEST, message: message.into() }
    }

    /// The error of a request that could not be carried out.
    pub fn failure(message: impl Into<String>) -> Self {
        Self { code: INTERNAL_ERROR, message: message.into() }
    }

    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self { code: INVALID_PARAMS, message: message.into() }
    }
}

/// Parses the message in `bytes`; `None` if it is invalid or has too many values.
pub fn parse(bytes: &[u8]) -> Option<RpcMessage> {
    if has_too_many_values(bytes) {
        return None;
    }
    let mut members: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    let mut take = |key: &str| members.swap_remove(key);
    if take("jsonrpc")? != "2.0" {
        return None;
    }
    match (take("method"), take("id"), take("result"), take("error")) {
        (Some(Value::String(method)), id, None, None) => {
            let params = match take("params") {
                None | Some(Value::Null) => Map::new(),
                Some(Value::Object(params)) => params,
                Some(_) => return None,
            };
            match id {
                None => Some(RpcMessage::Notification { method, params }),
                Some(id @ (Value::String(_) | Value::Number(_))) => {
                    Some(RpcMessage::Request { id, method, params })
                }
                Some(_) => None,
            }
        }
        (None, Some(id), Some(result), None) => {
            Some(RpcMessage::Response { id, result: Ok(result) })
        }
        (None, id, None, Some(error)) => Some(RpcMessage::Response {
            id: id.unwrap_or_default(),
            result: Err(ErrorObject {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
            }),
        }),
        _ => None,
    }
}

/// Returns the id as the number of a request that this program sent. Some servers return the number as a string.
pub fn own_id(id: &Value) -> Option<u64> {
    match id {
        Value::String(text) => text.parse().ok(),
        id => id.as_u64(),
    }
}

/// Writes a request.
pub fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    message.to_string().into_bytes()
}

/// Writes a notification, without `params` if they are null.
pub fn notification(method: &str, params: &Value) -> Vec<u8> {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if !params.is_null() {
        message["params"] = params.clone();
    }
    message.to_string().into_bytes()
}

/// Writes the answer to the request `id`.
pub fn response(id: &Value, result: Result<Value, ErrorObject>) -> Vec<u8> {
    let message = match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(ErrorObject { code, message }) => {
            let error = json!({ "code": code, "message": message });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    };
    message.to_string().into_bytes()
}

/// True if JSON text has too many values. The result for other text does not matter.
pub(crate) fn has_too_many_values(bytes: &[u8]) -> bool {
    // Each value takes at least two bytes.
    if bytes.len() < MAX_VALUES {
        return false;
    }
    let mut values = 0;
    let mut is_in_string = false;
    let mut is_escaped = false;
    for byte in bytes {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match byte {
            b'\\' if is_in_string => is_escaped = true,
            b'"' => is_in_string = !is_in_string,
            b',' | b'[' | b'{' if !is_in_string => values += 1,
            _ => {}
        }
    }
    values > MAX_VALUES
}

#[cfg(test)]
mod tests {
    use super::{
        ErrorObject, MAX_VALUES, RpcMessage, has_too_many_values, notification, own_id, parse,
        request, response,
    };
    use serde_json::json;

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
        let text =
            message(&format!("\"{}\\\"{}\"", ",[{".repeat(MAX_VALUES), ",".repeat(MAX_VALUES)));
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
        check(r#"{"jsonrpc":"2.0","method":"notifications/odd","params":[1]}"#, false);
        check(r#"{"jsonrpc":"2.0","method":"notifications/odd","params":{}}"#, true);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"odd/odd"}"#, true);
        check(r#"{"jsonrpc":"2.0","id":null,"method":"odd/odd"}"#, false);
        check(r#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#, false);
        check(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, false);
        check(r#"{"jsonrpc":"2.0","error":7}"#, true);
        check(&"[".repeat(100_000), false);
    }

    #[test]
    fn messages_are_read_as_written() {
        let check = |bytes: Vec<u8>, expect: RpcMessage| assert_eq!(parse(&bytes), Some(expect));
        let params = json!({"a": [1]});
        let members = params.as_object().unwrap().clone();
        check(
            request(7, "tools/list", &params),
            RpcMessage::Request {
                id: json!(7),
                method: "tools/list".into(),
                params: members.clone(),
            },
        );
        for (params, members) in [(params, members), (json!(null), serde_json::Map::new())] {
            check(
                notification("x", &params),
                RpcMessage::Notification { method: "x".into(), params: members },
            );
        }
        let error = ErrorObject::method_not_found("no");
        for result in [Ok(json!([])), Err(error)] {
            check(
                response(&json!("q"), result.clone()),
                RpcMessage::Response { id: json!("q"), result },
            );
        }
    }

    #[test]
    fn own_ids_are_numbers_or_digits() {
        let check = |id: serde_json::Value, expect: Option<u64>| assert_eq!(own_id(&id), expect);
        check(json!(7), Some(7));
        check(json!("7"), Some(7));
        check(json!(-7), None);
        check(json!("a"), None);
        check(json!(null), None);
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
