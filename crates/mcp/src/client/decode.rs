//! Parses server results leniently: an entry with a missing or malformed field is dropped, without affecting others. No I/O. Content over
//! the limits is cut, with a note that says so.

use crate::protocol::{
    ContentPart, PromptArgument, PromptInfo, ResourceInfo, ServerAnswer, ToolHints, ToolInfo,
};
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use nanobot_base::json_rpc::{self, RpcMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Maximum of text bytes kept of one answer. No model reads more, and all of it is in memory.
pub(super) const MAX_TEXT_BYTES: usize = 8 << 20;
/// Maximum of binary bytes of one answer, such as images.
pub(super) const MAX_BINARY_BYTES: usize = 16 << 20;
/// Maximum of parts of one answer.
const MAX_PARTS: usize = 1000;
/// The longest name or address, in bytes. No honest server needs longer ones.
const MAX_NAME_BYTES: usize = 1024;

/// The longest type of content, or role, that a message shows, in characters.
const MAX_KIND_CHARS: usize = 40;

/// Base64 as servers write it: with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The member of a result that stays text.
const STRUCTURED_CONTENT: &str = "structuredContent";

/// Parses a message; `None` if it is invalid. The structured content of a result becomes a string with its JSON text, since a parsed
/// number can lose digits.
pub(super) fn message(bytes: &[u8]) -> Option<RpcMessage> {
    #[derive(Deserialize)]
    struct RawResponse<'a> {
        #[serde(borrow)]
        result: RawResult<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct RawResult<'a> {
        #[serde(borrow)]
        structured_content: &'a RawValue,
    }
    let mut message = json_rpc::parse(bytes)?;
    if let RpcMessage::Response { result: Ok(result), .. } = &mut message
        && let Some(content) = result.get_mut(STRUCTURED_CONTENT).filter(|it| !it.is_null())
    {
        // A member that is there twice is an error, but of two values the last one counts.
        *content = match serde_json::from_slice::<RawResponse<'_>>(bytes) {
            Ok(response) => response.result.structured_content.get().into(),
            Err(_) => content.to_string().into(),
        };
    }
    Some(message)
}

fn text_field(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

/// Returns a text field that names something.
fn name_field(value: &Value, key: &str) -> Option<String> {
    text_field(value, key).filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES)
}

/// Returns the entries of the list `key`.
fn list_field<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// Parses a tool of a list; `None` if it has no name.
pub(super) fn tool(value: &Value) -> Option<ToolInfo> {
    let annotations = value.get("annotations").unwrap_or(&Value::Null);
    let hint = |key: &str| annotations.get(key).and_then(Value::as_bool);
    Some(ToolInfo {
        name: name_field(value, "name")?,
        title: text_field(value, "title").or_else(|| text_field(annotations, "title")),
        description: text_field(value, "description").unwrap_or_default(),
        schema: value.get("inputSchema").cloned().unwrap_or_default(),
        hints: ToolHints {
            reads_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
        },
    })
}

/// Parses a resource, or a resource template, whose address is in the field `key`.
pub(super) fn resource(value: &Value, key: &str) -> Option<ResourceInfo> {
    let uri = name_field(value, key)?;
    Some(ResourceInfo {
        name: text_field(value, "name").unwrap_or_else(|| uri.clone()),
        description: text_field(value, "description").unwrap_or_default(),
        kind: text_field(value, "mimeType"),
        uri,
    })
}

pub(super) fn prompt(value: &Value) -> Option<PromptInfo> {
    let argument = |value: &Value| {
        Some(PromptArgument {
            name: name_field(value, "name")?,
            description: text_field(value, "description").unwrap_or_default(),
            required: value.get("required") == Some(&Value::Bool(true)),
        })
    };
    Some(PromptInfo {
        name: name_field(value, "name")?,
        description: text_field(value, "description").unwrap_or_default(),
        arguments: list_field(value, "arguments").filter_map(argument).collect(),
    })
}

/// The remaining limits of an answer.
struct SizeBudget {
    text_bytes: usize,
    binary_bytes: usize,
    parts: Vec<ContentPart>,
}

impl SizeBudget {
    fn new() -> Self {
        Self { text_bytes: MAX_TEXT_BYTES, binary_bytes: MAX_BINARY_BYTES, parts: Vec::new() }
    }

    /// Cuts `text` to the remaining limit.
    fn cut(&mut self, text: String) -> String {
        if text.len() <= self.text_bytes {
            self.text_bytes -= text.len();
            return text;
        }
        let end = text.floor_char_boundary(self.text_bytes);
        self.text_bytes = 0;
        let rest = text.len() - end;
        format!("{}\n[truncated: {rest} more bytes]", &text[..end])
    }

    /// Decodes Base64 `data`, or returns a description of the error.
    fn decode_base64(&mut self, data: &str) -> Result<Vec<u8>, String> {
        if data.len() / 4 * 3 > self.binary_bytes {
            return Err(format!("too large ({} bytes)", data.len() / 4 * 3));
        }
        let has_whitespace = data.bytes().any(|byte| byte.is_ascii_whitespace());
        let data =
            if has_whitespace { data.split_ascii_whitespace().collect() } else { data.to_owned() };
        let bytes = BASE64.decode(data).map_err(|_| "not valid Base64".to_owned())?;
        self.binary_bytes = self.binary_bytes.saturating_sub(bytes.len());
        Ok(bytes)
    }

    fn push_text(&mut self, text: String) {
        let text = self.cut(text);
        self.parts.push(ContentPart::Text(text));
    }

    /// Adds the content of a resource, as tools and resources return it.
    fn push_contents(&mut self, value: &Value) {
        let uri = text_field(value, "uri").unwrap_or_default();
        let uri = self.cut(uri);
        let kind = text_field(value, "mimeType");
        if let Some(text) = text_field(value, "text") {
            let text = self.cut(text);
            self.parts.push(ContentPart::Resource { uri, kind, text });
        } else if let Some(data) = value.get("blob").and_then(Value::as_str) {
            match self.decode_base64(data) {
                Ok(bytes) => self.parts.push(ContentPart::Blob { uri, kind, bytes }),
                Err(error) => self.push_text(format!("[{uri}: {error}]")),
            }
        } else {
            self.push_text(format!("[{uri}: no content]"));
        }
    }

    /// Adds a part of an answer; `role` is set for messages of a prompt.
    fn push(&mut self, part: &Value, role: Option<&str>) {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let data = part.get("data").and_then(Value::as_str).unwrap_or_default();
        let media_type = || text_field(part, "mimeType").unwrap_or_default();
        match kind {
            "text" => {
                let text = self.cut(text_field(part, "text").unwrap_or_default());
                self.parts.push(match role {
                    Some(role) => ContentPart::PromptMessage { role: role.to_owned(), text },
                    None => ContentPart::Text(text),
                });
            }
            "image" => match self.decode_base64(data) {
                Ok(bytes) => self.parts.push(ContentPart::Image { kind: media_type(), bytes }),
                Err(error) => self.push_text(format!("[image omitted: {error}]")),
            },
            "audio" => {
                self.parts
                    .push(ContentPart::Audio { kind: media_type(), bytes: data.len() / 4 * 3 });
            }
            "resource" => self.push_contents(part.get("resource").unwrap_or(&Value::Null)),
            "resource_link" => {
                let uri = self.cut(text_field(part, "uri").unwrap_or_default());
                let name = self.cut(text_field(part, "name").unwrap_or_default());
                let description = self.cut(text_field(part, "description").unwrap_or_default());
                self.parts.push(ContentPart::Link { uri, name, description });
            }
            other => {
                let kind: String = other.chars().take(MAX_KIND_CHARS).collect();
                self.push_text(format!("[content of unknown type `{kind}` omitted]"));
            }
        }
    }

    /// Adds `parts` in order, up to the limit.
    fn push_all<'v>(
        &mut self,
        parts: impl Iterator<Item = &'v Value>,
        push: impl Fn(&mut Self, &Value),
    ) {
        let mut parts = parts.peekable();
        while let Some(part) = parts.peek() {
            if self.parts.len() >= MAX_PARTS || self.text_bytes == 0 {
                let rest = parts.count();
                let note = format!("[truncated: {rest} more parts]");
                return self.parts.push(ContentPart::Text(note));
            }
            push(self, part);
            parts.next();
        }
    }
}

/// Parses the content of a message that a server wants the model to answer: a block, or a list of them.
///
/// # Errors
/// The first block that is neither a text nor an image.
pub(super) fn sampling_content(content: &Value) -> Result<Vec<ContentPart>, String> {
    let blocks = match content {
        Value::Array(blocks) if blocks.is_empty() => return Err("a message has no content".into()),
        Value::Array(blocks) => blocks,
        block => std::slice::from_ref(block),
    };
    let mut budget = SizeBudget::new();
    let parse = |block: &Value| match block.get("type").and_then(Value::as_str) {
        Some("text") => {
            let text = text_field(block, "text").ok_or("a text block has no `text`")?;
            Ok(ContentPart::Text(text))
        }
        Some("image") => {
            let data = text_field(block, "data").unwrap_or_default();
            let bytes = budget.decode_base64(&data);
            Ok(ContentPart::Image {
                kind: text_field(block, "mimeType").unwrap_or_default(),
                bytes: bytes.map_err(|error| format!("an image is {error}"))?,
            })
        }
        Some(kind) => {
            let kind: String = kind.chars().take(MAX_KIND_CHARS).collect();
            Err(format!("content of type `{kind}` is not supported"))
        }
        None => Err("a content block has no `type`".into()),
    };
    blocks.iter().map(parse).collect()
}

/// Parses the answer to a tool call, as [`message`] returns it.
pub(super) fn tool_result(value: &Value) -> ServerAnswer {
    let mut budget = SizeBudget::new();
    match value.get("content") {
        // Some servers return a single part or its text instead of a list.
        Some(Value::String(text)) => budget.push_text(text.clone()),
        Some(part @ Value::Object(_)) => budget.push(part, None),
        _ => budget.push_all(list_field(value, "content"), |budget, part| {
            budget.push(part, None);
        }),
    }
    let structured = value.get(STRUCTURED_CONTENT).and_then(Value::as_str);
    let size = structured.map_or(0, str::len);
    let fits = size <= budget.text_bytes;
    if !fits {
        let note = format!("[structured content omitted: {size} bytes]");
        budget.parts.push(ContentPart::Text(note));
    }
    ServerAnswer {
        parts: budget.parts,
        structured: structured.filter(|_| fits).map(str::to_owned),
        is_error: value.get("isError") == Some(&Value::Bool(true)),
    }
}

/// Parses the content of a resource.
pub(super) fn resource_contents(value: &Value) -> ServerAnswer {
    let mut budget = SizeBudget::new();
    budget.push_all(list_field(value, "contents"), SizeBudget::push_contents);
    ServerAnswer { parts: budget.parts, ..ServerAnswer::default() }
}

/// Parses a filled-in prompt.
pub(super) fn prompt_messages(value: &Value) -> ServerAnswer {
    let mut budget = SizeBudget::new();
    budget.push_all(list_field(value, "messages"), |budget, message| {
        let role = message.get("role").and_then(Value::as_str);
        let role: String = role.unwrap_or("user").chars().take(MAX_KIND_CHARS).collect();
        match message.get("content") {
            Some(Value::Array(parts)) => {
                budget.push_all(parts.iter(), |budget, part| budget.push(part, Some(&role)));
            }
            Some(part) => budget.push(part, Some(&role)),
            None => {}
        }
    });
    ServerAnswer { parts: budget.parts, ..ServerAnswer::default() }
}

/// Parses the progress of a request, as one text; `None` if it has no number.
pub(super) fn progress(params: &Map<String, Value>) -> Option<String> {
    let number = |key: &str| params.get(key).and_then(Value::as_f64);
    let message = params.get("message").and_then(Value::as_str);
    Some(format_progress(number("progress")?, number("total"), message))
}

/// Formats progress, with the server's message: `2/5 indexing`.
fn format_progress(progress: f64, total: Option<f64>, message: Option<&str>) -> String {
    let number = |number: f64| {
        if number.fract() == 0.0 && number.abs() < 1e15 {
            format!("{number:.0}")
        } else {
            format!("{number:.2}")
        }
    };
    let mut text = number(progress);
    if let Some(total) = total {
        text.push('/');
        text.push_str(&number(total));
    }
    if let Some(message) = message {
        text.push(' ');
        text.push_str(message);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_TEXT_BYTES, format_progress, message, prompt, prompt_messages, resource,
        resource_contents, tool, tool_result,
    };
    use crate::protocol::ContentPart;
    use nanobot_base::json_rpc::RpcMessage;
    use serde_json::{Value, json};

    #[test]
    fn answers_are_decoded_leniently() {
        let check = |value: Value, expect: &str| {
            let answer = tool_result(&value);
            let text = format!("{:?} {:?} {}", answer.parts, answer.structured, answer.is_error);
            assert_eq!(text, expect, "{value}");
        };
        check(json!({"content": [{"type": "text", "text": "a"}]}), r#"[Text("a")] None false"#);
        check(json!({"content": "a", "isError": true}), r#"[Text("a")] None true"#);
        check(json!({"content": {"type": "text", "text": "a"}}), r#"[Text("a")] None false"#);
        check(
            json!({"structuredContent": "{\"a\": 1}", "isError": "yes"}),
            r#"[] Some("{\"a\": 1}") false"#,
        );
        check(
            json!({"content": [{"type": "image", "data": "AAE=", "mimeType": "image/png"}]}),
            r#"[Image { kind: "image/png", bytes: [0, 1] }] None false"#,
        );
        check(
            json!({"content": [{"type": "image", "data": "AA\nE"}]}),
            r#"[Image { kind: "", bytes: [0, 1] }] None false"#,
        );
        check(
            json!({"content": [{"type": "image", "data": "?"}]}),
            r#"[Text("[image omitted: not valid Base64]")] None false"#,
        );
        check(
            json!({"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}),
            r#"[Audio { kind: "audio/wav", bytes: 3 }] None false"#,
        );
        check(
            json!({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "t"}}]}),
            r#"[Resource { uri: "a:b", kind: None, text: "t" }] None false"#,
        );
        check(
            json!({"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "AA=="}}]}),
            r#"[Blob { uri: "a:b", kind: None, bytes: [0] }] None false"#,
        );
        check(
            json!({"content": [{"type": "resource_link", "uri": "a:b", "name": "n"}]}),
            r#"[Link { uri: "a:b", name: "n", description: "" }] None false"#,
        );
        check(
            json!({"content": [{"type": "video"}, 7, null]}),
            r#"[Text("[content of unknown type `video` omitted]"), Text("[content of unknown type `` omitted]"), Text("[content of unknown type `` omitted]")] None false"#,
        );
        check(json!(null), "[] None false");
        check(json!([1]), "[] None false");
    }

    #[test]
    fn answers_are_truncated() {
        let part = json!({"type": "text", "text": "é".repeat(MAX_TEXT_BYTES / 2 - 1) + "xéé"});
        let answer = tool_result(
            &json!({"content": [part, {"type": "text", "text": "more"}], "structuredContent": "{}"}),
        );
        let ContentPart::Text(text) = &answer.parts[0] else { panic!() };
        assert!(text.ends_with("éx\n[truncated: 4 more bytes]"), "{}", &text[MAX_TEXT_BYTES - 9..]);
        assert_eq!(answer.parts[1], ContentPart::Text("[truncated: 1 more parts]".into()));
        assert_eq!(answer.structured, None);
        let many: Vec<Value> = vec![json!({"type": "text", "text": "a"}); 5_000];
        assert_eq!(tool_result(&json!({"content": many})).parts.len(), 1_001);
    }

    #[test]
    fn structured_content_stays_text() {
        let check = |members: &str, expect: &str| {
            let text = format!(r#"{{"jsonrpc": "2.0", "id": 1, "result": {{{members}}}}}"#);
            let Some(RpcMessage::Response { result: Ok(result), .. }) = message(text.as_bytes())
            else {
                panic!("{text}");
            };
            assert_eq!(tool_result(&result).structured.unwrap_or_default(), expect, "{text}");
        };
        check(
            r#""structuredContent": {"id": 12345678901234567890123, "price": 1.10}"#,
            r#"{"id": 12345678901234567890123, "price": 1.10}"#,
        );
        check(r#""structuredContent": "{}""#, r#""{}""#);
        check(r#""structuredContent": [1], "structuredContent": [2]"#, "[2]");
        check(r#""structuredContent": null"#, "");
        check(r#""content": []"#, "");
    }

    #[test]
    fn resources_and_prompts() {
        let answer = resource_contents(
            &json!({"contents": [{"uri": "a:b", "mimeType": "text/plain", "text": "t"}, {}]}),
        );
        assert_eq!(answer.parts.len(), 2);
        let answer = prompt_messages(&json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": "t"}},
            {"role": "assistant", "content": [{"type": "text", "text": "u"}]},
            {"role": "user"},
        ]}));
        let message = |role: &str, text: &str| ContentPart::PromptMessage {
            role: role.into(),
            text: text.into(),
        };
        assert_eq!(answer.parts, [message("user", "t"), message("assistant", "u")]);
    }

    #[test]
    fn entries_without_a_name_are_dropped() {
        assert_eq!(tool(&json!({"description": "a"})), None);
        assert_eq!(tool(&json!({"name": ""})), None);
        assert_eq!(tool(&json!({"name": 7})), None);
        let odd = tool(
            &json!({"name": "a", "inputSchema": 7, "annotations": {"title": "T", "readOnlyHint": true, "destructiveHint": 1}}),
        );
        let odd = odd.unwrap();
        assert_eq!(
            (odd.title.as_deref(), odd.schema, odd.hints.reads_only, odd.hints.destructive),
            (Some("T"), json!(7), Some(true), None)
        );
        assert_eq!(resource(&json!({"uri": "a:b"}), "uri").unwrap().name, "a:b");
        assert_eq!(resource(&json!({"name": "a"}), "uri"), None);
        let prompt =
            prompt(&json!({"name": "p", "arguments": [{"name": "a", "required": true}, {}]}))
                .unwrap();
        assert_eq!(prompt.arguments.len(), 1);
    }

    #[test]
    fn progress_is_formatted() {
        assert_eq!(format_progress(2.0, Some(5.0), Some("indexing")), "2/5 indexing");
        assert_eq!(format_progress(0.5, None, None), "0.50");
        assert_eq!(format_progress(f64::INFINITY, Some(f64::NAN), None), "inf/NaN");
        assert_eq!(format_progress(1e300, None, None).len(), 304);
    }
}
