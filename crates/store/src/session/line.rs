//! The lines of a session file, in the format of nanobot 0.1.4, which newer Python releases also read. Our additions
//! are extra keys of those lines, since a line of any other kind breaks the older program.

use crate::history::compaction::CompactedHistory;
use nanobot_base::message::lenient_json::parse as parse_json;
use nanobot_base::message::user_text::NamedHosts;
use nanobot_base::message::{
    FinishReason, ImageSource, Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult,
    Usage, UserMessage, plain_text,
};
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::io::{self, Write};

/// A parsed line.
#[derive(Debug)]
pub(super) enum SessionLine {
    Metadata(MetadataLine),
    /// A message; `None` for one that is counted but not sent again, such as a slash command.
    Message(Option<Message>),
    /// Provider state stored by a newer release; true if it holds a state, false if it is empty.
    ProviderState(bool),
    /// Another record type of another release; not a message.
    Other,
    /// Not a JSON object, or none of the above.
    Invalid,
}

/// A metadata line. Only the last one in a file is valid, and it replaces earlier ones entirely.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetadataLine {
    pub(super) key: Option<String>,
    pub(super) created_at: Option<String>,
    pub(super) updated_at: Option<String>,
    /// Metadata of other programs, carried over unchanged.
    pub(super) metadata: Map<String, Value>,
    pub(super) last_consolidated: usize,
    /// Number of messages before this line; only on our closing lines.
    pub(super) message_count: Option<usize>,
    /// Byte offset at which the line begins. A mismatch means that another program has rewritten the file.
    pub(super) offset: Option<u64>,
    /// Byte offset of the line with the summary of the compacted messages. A program that rewrites the file drops it,
    /// together with the summary.
    pub(super) summary_offset: Option<u64>,
    /// True for a line that ends no turn. It is not carried over.
    pub(super) is_mid_turn: bool,
    /// Keys of other releases, carried over.
    pub(super) extra: Map<String, Value>,
}

impl MetadataLine {
    /// Marks the messages before `count` as consolidated.
    pub(super) fn set_consolidated(&mut self, count: usize) {
        self.last_consolidated = count;
        // Newer releases use this field instead, if they wrote it.
        if let Some(archived) = self.extra.get_mut("last_archived") {
            *archived = count.into();
        }
    }
}

/// Value of `ending` in the line of a compaction: the turn continues after it.
pub(super) const COMPACTED: &str = "compacted";

/// Value of `ending` in a line after messages that the chat got from elsewhere (jobs, commands, other runs).
pub(super) const DELIVERED: &str = "delivered";

/// Value of `ending` in a line after a turn that was interrupted.
pub(super) const OPEN: &str = "open";

/// Value of `ending` in the line after which earlier messages are not sent.
pub(super) const NEW: &str = "new";

/// True if a line is a message, without parsing all of it. A malformed message may give false: see [`is_counted`].
pub(super) fn is_message(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct LineTypeFields<'a> {
        #[serde(borrow, rename = "_type")]
        kind: Option<&'a RawValue>,
        role: Option<&'a str>,
    }
    let Ok(fields) = serde_json::from_slice::<LineTypeFields<'_>>(line) else {
        return false;
    };
    fields.kind.is_none() && matches!(fields.role, Some("user" | "assistant" | "tool" | "system"))
}

/// Like [`is_message`], but also accepts malformed messages, and is fast for lines of this program and the Python one.
pub(super) fn is_counted(text: &[u8]) -> bool {
    let roles: [&[u8]; 3] = [b"user\"", b"assistant\"", b"tool\""];
    let has_role = |rest: &[u8]| roles.iter().any(|role| rest.starts_with(role));
    (text.strip_prefix(MESSAGE_PREFIX).is_some_and(has_role) && is_whole(text))
        || is_message(text)
        || matches!(parse(text), SessionLine::Message(_))
}

/// True for a metadata line of this program or the Python one, without parsing it.
pub(super) fn is_metadata(text: &[u8]) -> bool {
    text.starts_with(METADATA_PREFIX) && is_whole(text)
}

/// True for a metadata line with which a new conversation begins.
pub(super) fn begins_conversation(text: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct EndingField<'a> {
        ending: Option<&'a str>,
    }
    let fields = || serde_json::from_slice::<EndingField<'_>>(text);
    is_metadata(text) && fields().is_ok_and(|fields| fields.ending == Some(NEW))
}

/// Beginnings of lines of this program and the Python one.
const MESSAGE_PREFIX: &[u8] = b"{\"role\": \"";
const METADATA_PREFIX: &[u8] = b"{\"_type\": \"metadata\"";

/// True if a line ends with its object. A second beginning within a line marks a torn line that another one was
/// appended to.
fn is_whole(text: &[u8]) -> bool {
    let begins_line = |at: usize| {
        text[at..].starts_with(MESSAGE_PREFIX) || text[at..].starts_with(METADATA_PREFIX)
    };
    text.ends_with(b"}") && !memchr::memchr_iter(b'{', text).skip(1).any(begins_line)
}

/// Parses one line, without its newline. Invalid UTF-8 and lone surrogates are replaced, because one bad character is
/// no reason to lose a message.
pub(super) fn parse(line: &[u8]) -> SessionLine {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if !line.trim_ascii_start().starts_with(b"{") {
        return SessionLine::Invalid;
    }
    let text = std::str::from_utf8(line);
    let text = text.map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
    let Some(Value::Object(fields)) = parse_json(&text) else {
        return SessionLine::Invalid;
    };
    match fields.get("_type") {
        Some(Value::String(kind)) => match kind.as_str() {
            "metadata" => SessionLine::Metadata(read_metadata(fields)),
            "provider_state" => SessionLine::ProviderState(
                fields.get("state").is_some_and(|state| !state.is_null()),
            ),
            _ => SessionLine::Other,
        },
        _ => match text_of(&fields, "role") {
            "user" | "assistant" | "tool" | "system" => SessionLine::Message(read_message(fields)),
            _ => SessionLine::Invalid,
        },
    }
}

/// The text of a field; empty if it is missing or of another type.
fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The longest escape of a character in JSON: a surrogate pair, as `\ud83d\ude00`.
const MAX_ESCAPE_BYTES: usize = 12;

/// Parses the beginning of a line; the text of a message is then truncated too.
pub(super) fn parse_truncated(start: &[u8]) -> SessionLine {
    // The cut may be within a character or an escape, and within a string or a list of parts.
    for cut in 0..start.len().min(MAX_ESCAPE_BYTES) {
        let Ok(text) = std::str::from_utf8(&start[..start.len() - cut]) else {
            continue;
        };
        for end in ["\"}", "\"}]}", "\"}}]}"] {
            let line = parse(format!("{text}{end}").as_bytes());
            if !matches!(line, SessionLine::Invalid) {
                return line;
            }
        }
    }
    SessionLine::Invalid
}

/// The session key in a metadata line.
pub(super) fn parse_key(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct KeyFields<'a> {
        #[serde(borrow, rename = "_type")]
        kind: &'a str,
        #[serde(borrow)]
        key: Cow<'a, str>,
    }
    match serde_json::from_slice(line) {
        Ok(KeyFields { kind, key }) => (kind == "metadata").then(|| key.into_owned()),
        Err(_) => match parse(line) {
            SessionLine::Metadata(metadata) => metadata.key,
            _ => None,
        },
    }
}

/// The content of a message's line if it is a string. The text of the message is this string or a part of it.
pub(super) fn plain_content(line: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct ContentField<'a> {
        #[serde(borrow)]
        content: Cow<'a, str>,
    }
    let fields = serde_json::from_slice::<ContentField<'_>>(line);
    fields.ok().map(|fields| fields.content)
}

/// The timestamp (local time, as written) and the turn id of a message's line; empty if missing.
pub(super) fn timestamp_and_turn(line: &[u8]) -> (String, String) {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct TurnFields {
        timestamp: Value,
        turn: Value,
    }
    let fields: TurnFields = serde_json::from_slice(line).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&fields.timestamp), text(&fields.turn))
}

/// The summary in the line that begins at offset `at`, if it has one.
pub(super) fn parse_summary(line: &[u8], at: u64) -> Option<CompactedHistory> {
    let value: Value = serde_json::from_slice(line).ok()?;
    if value["_type"] != "metadata" || value["at"].as_u64() != Some(at) {
        return None;
    }
    let summary = value.get("summary")?;
    let count = |name: &str| usize::try_from(summary[name].as_u64()?).ok();
    let user_messages = summary["words"].as_array()?.iter();
    Some(CompactedHistory {
        summary: summary["text"].as_str()?.to_owned(),
        user_messages: user_messages
            .filter_map(|message| message.as_str().map(str::to_owned))
            .collect(),
        omitted: count("left_out")?,
        hosts: NamedHosts::deserialize(&summary["hosts"]).unwrap_or_default(),
        first_sent: count("from")?,
    })
}

fn read_metadata(mut object: Map<String, Value>) -> MetadataLine {
    let mut take = |key: &str| object.remove(key).unwrap_or_default();
    let text = |value: Value| value.as_str().map(str::to_owned);
    let count = |value: Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    // A later line has its own, if any.
    for key in ["_type", "turn", "summary"] {
        drop(take(key));
    }
    let ending = take("ending");
    MetadataLine {
        key: text(take("key")),
        created_at: text(take("created_at")),
        updated_at: text(take("updated_at")),
        metadata: if let Value::Object(inner) = take("metadata") { inner } else { Map::new() },
        last_consolidated: count(take("last_consolidated")).unwrap_or(0),
        message_count: count(take("messages")),
        offset: take("at").as_u64(),
        summary_offset: take("summary_at").as_u64(),
        is_mid_turn: ending == COMPACTED || ending == OPEN,
        extra: object,
    }
}

/// Reads a message. A field of an unexpected type is treated as missing, because other programs write these files too.
fn read_message(mut fields: Map<String, Value>) -> Option<Message> {
    let is_true = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    if is_true("_command") {
        return None;
    }
    let (injected, failed) = (is_true("injected"), is_true("failed"));
    let role = text_of(&fields, "role").to_owned();
    let mut take = |name: &str| fields.remove(name);
    let parts = read_parts(take("content").unwrap_or_default());
    match role.as_str() {
        "user" => {
            // Messages of this program have an id, and store their runtime facts separately.
            let id = take("id").filter(Value::is_string);
            let parts = match id {
                Some(_) => parts,
                None => parts.into_iter().map(without_runtime_block).collect(),
            };
            Some(Message::User(UserMessage {
                id: into_text(id),
                parts,
                runtime_facts: into_text(take("facts")),
                injected,
                sources: take("sources").and_then(|stored| serde_json::from_value(stored).ok()),
                images: read_image_sources(&take("images").unwrap_or_default()),
            }))
        }
        "assistant" => Some(Message::Assistant(Reply {
            id: into_text(take("id")),
            text: into_plain_text(parts),
            reasoning: into_text(take("reasoning_content")),
            tool_calls: read_calls(take("tool_calls")),
            finish_reason: match into_text(take("finish_reason")).as_str() {
                "interrupted" => FinishReason::Interrupted,
                "length" => FinishReason::Length,
                _ => FinishReason::Stop,
            },
            usage: read_usage(&take("usage").unwrap_or_default()),
            // These values are stored in the ledger.
            cost: None,
            model: into_text(take("model")),
            provider_data: take("opaque"),
        })),
        "tool" => Some(Message::Tool(ToolResult {
            call_id: into_text(take("tool_call_id")),
            name: into_text(take("name")),
            parts,
            failed,
            source: read_source(take("source").as_ref().and_then(Value::as_str)),
        })),
        // A system message was never part of a stored session in this format.
        _ => None,
    }
}

/// The text of a field; empty if it is missing or of another type.
fn into_text(field: Option<Value>) -> String {
    match field {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// Reads the tool calls of a reply. A malformed one is left out.
fn read_calls(calls: Option<Value>) -> Vec<ToolCall> {
    let Some(Value::Array(calls)) = calls else {
        return Vec::new();
    };
    let read = |mut call: Value| {
        let arguments = call.pointer_mut("/function/arguments").map(Value::take);
        Some(ToolCall {
            id: call["id"].as_str()?.to_owned(),
            name: call["function"]["name"].as_str()?.to_owned(),
            arguments: match arguments.unwrap_or_default() {
                Value::String(text) => parse_json(&text).unwrap_or(Value::String(text)),
                arguments => arguments,
            },
        })
    };
    calls.into_iter().filter_map(read).collect()
}

/// Reads the token counts that are stored with a reply.
fn read_usage(usage: &Value) -> Usage {
    let count = |name: &str| usage[name].as_u64().unwrap_or_default();
    Usage {
        input: count("input"),
        cached: count("cached"),
        output: count("output"),
        reasoning: count("reasoning"),
        ..Usage::default()
    }
}

/// The text of `parts`, without a copy if it is a single text.
fn into_plain_text(mut parts: Vec<MessagePart>) -> String {
    match parts.as_mut_slice() {
        [MessagePart::Text(text)] => std::mem::take(text),
        _ => plain_text(&parts),
    }
}

/// Reads message content: a string, a list of blocks, or null.
fn read_parts(content: Value) -> Vec<MessagePart> {
    let block = |block: &Value| match block["type"].as_str() {
        Some("image_url") => MessagePart::Text("[image]".into()),
        _ => MessagePart::Text(
            block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned),
        ),
    };
    match content {
        Value::Null => Vec::new(),
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![MessagePart::Text(text)],
        Value::Array(blocks) => blocks.iter().map(block).collect(),
        other => vec![MessagePart::Text(other.to_string())],
    }
}

/// Removes the runtime block: release 0.1.4.post2 stored it at the end of the user's text, later ones at its beginning.
fn without_runtime_block(part: MessagePart) -> MessagePart {
    let MessagePart::Text(text) = part else {
        return part;
    };
    if let Some((before, _)) = text.split_once("\n\n[Runtime Context") {
        return MessagePart::Text(before.to_owned());
    }
    match text.split_once("\n\n") {
        Some((block, after)) if block.starts_with("[Runtime Context") => {
            MessagePart::Text(after.to_owned())
        }
        _ => MessagePart::Text(text),
    }
}

/// Formats a message as a line, including its newline.
pub(super) fn format_message(message: &Message, turn: &str, timestamp: &str) -> String {
    let mut line = Map::new();
    let mut put = |key: &str, value: Value| drop(line.insert(key.into(), value));
    match message {
        Message::User(user) => {
            put("role", "user".into());
            put("content", format_content(&user.parts));
            put("timestamp", timestamp.into());
            put("id", user.id.as_str().into());
            if !user.runtime_facts.is_empty() {
                put("facts", user.runtime_facts.as_str().into());
            }
            if user.injected {
                put("injected", true.into());
            }
            if let Some(sources) = &user.sources {
                let sources = serde_json::to_value(sources);
                put("sources", sources.expect("plain values are JSON"));
            }
            let images = format_image_sources(&user.parts);
            if !images.is_empty() {
                put("images", images.into());
            }
        }
        Message::Assistant(reply) => {
            put("role", "assistant".into());
            let is_silent = reply.text.is_empty() && !reply.tool_calls.is_empty();
            let text = (!is_silent).then_some(reply.text.as_str());
            put("content", text.into());
            if !reply.tool_calls.is_empty() {
                put("tool_calls", reply.tool_calls.iter().map(format_call).collect());
            }
            if !reply.reasoning.is_empty() {
                put("reasoning_content", reply.reasoning.as_str().into());
            }
            put("timestamp", timestamp.into());
            put("id", reply.id.as_str().into());
            put("model", reply.model.as_str().into());
            put("usage", format_usage(reply.usage));
            if let Some(reason) = finish_reason_name(&reply.finish_reason) {
                put("finish_reason", reason.into());
            }
            if let Some(opaque) = &reply.provider_data {
                put("opaque", opaque.clone());
            }
        }
        Message::Tool(result) => {
            put("role", "tool".into());
            put("tool_call_id", result.call_id.as_str().into());
            put("name", result.name.as_str().into());
            put("content", plain_text(&result.parts).into());
            put("timestamp", timestamp.into());
            if result.failed {
                put("failed", true.into());
            }
            if let Some(source) = source_name(result.source) {
                put("source", source.into());
            }
        }
    }
    if !turn.is_empty() {
        put("turn", turn.into());
    }
    to_json_line(&Value::Object(line))
}

/// The sources of the images in `parts` that are files, so that later turns can load them again. The content of the line
/// has a placeholder for each image.
fn format_image_sources(parts: &[MessagePart]) -> Vec<Value> {
    let sources = parts.iter().enumerate().filter_map(|(index, part)| match part {
        MessagePart::Image(image) => {
            let ImageSource { path, digest } = image.source.as_ref()?;
            Some(json!({ "part": index, "path": path, "digest": digest }))
        }
        _ => None,
    });
    sources.collect()
}

/// Reads the list that [`format_image_sources`] wrote. Malformed entries are left out.
fn read_image_sources(list: &Value) -> Vec<(usize, ImageSource)> {
    let source = |entry: &Value| {
        let text = |key: &str| entry[key].as_str().map(str::to_owned);
        let source = ImageSource { path: text("path")?, digest: text("digest")? };
        Some((usize::try_from(entry["part"].as_u64()?).ok()?, source))
    };
    list.as_array().into_iter().flatten().filter_map(source).collect()
}

fn source_name(source: ResultSource) -> Option<&'static str> {
    match source {
        ResultSource::Unspecified => None,
        ResultSource::NotMade => Some("program"),
        ResultSource::SafeAddress => Some("safe_address"),
    }
}

fn read_source(name: Option<&str>) -> ResultSource {
    let named = [ResultSource::NotMade, ResultSource::SafeAddress];
    let has_name = |source: &ResultSource| name.is_some() && source_name(*source) == name;
    named.into_iter().find(has_name).unwrap_or_default()
}

/// The counts of a reply, without zeros. The other usage fields are in the ledger.
fn format_usage(usage: Usage) -> Value {
    let counts = [
        ("input", usage.input),
        ("cached", usage.cached),
        ("output", usage.output),
        ("reasoning", usage.reasoning),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(name, count)| (name.to_owned(), count.into()));
    Value::Object(counts.collect())
}

/// The stored name of the finish reason of an incomplete reply.
fn finish_reason_name(reason: &FinishReason) -> Option<&'static str> {
    match reason {
        FinishReason::Interrupted => Some("interrupted"),
        FinishReason::Length => Some("length"),
        _ => None,
    }
}

/// User content: a string if it is a single text, else blocks, with placeholders for images and documents.
fn format_content(parts: &[MessagePart]) -> Value {
    let block = |part: &MessagePart| json!({ "type": "text", "text": plain_text(std::slice::from_ref(part)) });
    match parts {
        [MessagePart::Text(text)] => text.as_str().into(),
        _ => parts.iter().map(block).collect(),
    }
}

fn format_call(call: &ToolCall) -> Value {
    let arguments = call.arguments_json();
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
}

/// The line that clears the provider state of a newer release, because that state does not include our turn.
pub(super) const NO_PROVIDER_STATE: &str = "{\"_type\": \"provider_state\", \"state\": null}\n";

/// Additional fields of a closing line.
pub(super) struct ClosingLine<'a> {
    pub(super) turn: &'a str,
    pub(super) ending: &'a str,
    /// The summary that replaces compacted messages.
    pub(super) summary: Option<&'a CompactedHistory>,
}

/// Formats a metadata line, including its newline. Every line is complete, since readers use only the last one.
pub(super) fn format_metadata(
    metadata: &MetadataLine,
    closing: Option<&ClosingLine<'_>>,
) -> String {
    let mut line = Map::new();
    let mut put = |key: &str, value: Value| drop(line.insert(key.into(), value));
    put("_type", "metadata".into());
    put("key", metadata.key.clone().unwrap_or_default().into());
    put("created_at", metadata.created_at.clone().unwrap_or_default().into());
    put("updated_at", metadata.updated_at.clone().unwrap_or_default().into());
    put("metadata", Value::Object(metadata.metadata.clone()));
    put("last_consolidated", metadata.last_consolidated.into());
    for (key, value) in &metadata.extra {
        put(key, value.clone());
    }
    if let Some(at) = metadata.summary_offset {
        put("summary_at", at.into());
    }
    if let Some(ClosingLine { turn, ending, summary }) = closing {
        put("turn", (*turn).into());
        put("messages", metadata.message_count.into());
        put("at", metadata.offset.into());
        put("ending", (*ending).into());
        if let Some(summary) = summary {
            put("summary", format_summary(summary));
        }
    }
    to_json_line(&Value::Object(line))
}

/// The value that [`parse_summary`] reads.
fn format_summary(history: &CompactedHistory) -> Value {
    let CompactedHistory { summary, user_messages, omitted, hosts, first_sent } = history;
    let mut value =
        json!({ "text": summary, "words": user_messages, "left_out": omitted, "from": first_sent });
    if !hosts.is_empty() {
        value["hosts"] = hosts.iter().map(String::as_str).collect();
    }
    value
}

/// Formats the metadata line `text` with another key and all else unchanged; `None` if it is not a metadata line.
pub(super) fn with_key(text: &[u8], key: &str) -> Option<String> {
    let mut object: Map<String, Value> = serde_json::from_slice(text).ok()?;
    if object.get("_type")? != "metadata" {
        return None;
    }
    object.insert("key".into(), key.into());
    Some(to_json_line(&Value::Object(object)))
}

fn to_json_line(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, PythonFormatter);
    value.serialize(&mut serializer).expect("a JSON value can be written to memory");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// JSON formatter with the separators of Python's `json.dumps`.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ClosingLine, MetadataLine, SessionLine, format_message, format_metadata, parse,
        plain_content,
    };
    use nanobot_base::message::{
        Document, Image, Message, MessagePart, Reply, ResultSource, ToolCall, ToolResult,
        UserMessage,
        user_text::{MessageSources, UserText},
    };
    use serde_json::json;
    use std::borrow::Cow;

    const TIME: &str = "2026-02-28T10:00:00.123456";

    #[test]
    fn lines_as_the_python_program_writes_them() {
        let metadata = MetadataLine {
            key: Some("cli:direct".into()),
            created_at: Some(TIME.into()),
            updated_at: Some(TIME.into()),
            message_count: Some(4),
            offset: Some(99),
            ..MetadataLine::default()
        };
        let head = format!(
            "{{\"_type\": \"metadata\", \"key\": \"cli:direct\", \"created_at\": \"{TIME}\", \"updated_at\": \"{TIME}\", \"metadata\": {{}}, \"last_consolidated\": 0"
        );
        assert_eq!(format_metadata(&metadata, None), format!("{head}}}\n"));
        let closing = ClosingLine { turn: "t", ending: "answered", summary: None };
        let expect = format!(
            "{head}, \"turn\": \"t\", \"messages\": 4, \"at\": 99, \"ending\": \"answered\"}}\n"
        );
        assert_eq!(format_metadata(&metadata, Some(&closing)), expect);

        let user = UserMessage {
            id: "i".into(),
            parts: vec![MessagePart::Text("né\n".into())],
            runtime_facts: "[now]".into(),
            sources: Some(MessageSources::default()),
            ..UserMessage::default()
        };
        let expect = format!(
            "{{\"role\": \"user\", \"content\": \"né\\n\", \"timestamp\": \"{TIME}\", \"id\": \"i\", \"facts\": \"[now]\", \"sources\": {{}}, \"turn\": \"t\"}}\n"
        );
        assert_eq!(format_message(&Message::User(user), "t", TIME), expect);

        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: json!({ "a": 1 }) };
        let reply = Reply { tool_calls: vec![call], ..Reply::default() };
        let line = format_message(&Message::Assistant(reply), "", TIME);
        assert!(line.starts_with(
            "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\":1}\"}}], \"timestamp\""
        ));
        let result = ToolResult {
            call_id: "c".into(),
            name: "f".into(),
            parts: vec![MessagePart::Text("out".into())],
            failed: false,
            source: ResultSource::Unspecified,
        };
        let expect = format!(
            "{{\"role\": \"tool\", \"tool_call_id\": \"c\", \"name\": \"f\", \"content\": \"out\", \"timestamp\": \"{TIME}\"}}\n"
        );
        assert_eq!(format_message(&Message::Tool(result), "", TIME), expect);
    }

    #[test]
    fn messages_round_trip() {
        let call =
            ToolCall { id: "c".into(), name: "f".into(), arguments: json!({ "a": [1, "x"] }) };
        let messages = [
            Message::User(UserMessage {
                id: "i".into(),
                parts: vec![MessagePart::Text("hi".into())],
                runtime_facts: "[now]".into(),
                sources: Some(UserText::typed("see a.example").sources(&|_| false)),
                ..UserMessage::default()
            }),
            Message::Assistant(Reply {
                id: "r".into(),
                text: "t".into(),
                reasoning: "why".into(),
                tool_calls: vec![call],
                model: "m".into(),
                provider_data: Some(json!([1])),
                ..Reply::default()
            }),
            Message::Tool(ToolResult {
                call_id: "c".into(),
                name: "f".into(),
                parts: vec![MessagePart::Text("x".into())],
                failed: true,
                source: ResultSource::NotMade,
            }),
        ];
        for message in messages {
            let line = format_message(&message, "t", TIME);
            let SessionLine::Message(Some(read)) = parse(line.trim_end().as_bytes()) else {
                panic!("{line}")
            };
            assert_eq!(read, message);
        }
        let image = MessagePart::Image(Image {
            media_type: "image/png",
            bytes: vec![1],
            name: "a.png".into(),
            source: None,
        });
        let document = MessagePart::Document(Document {
            media_type: "application/pdf",
            bytes: vec![1],
            name: "a.pdf".into(),
        });
        let user = UserMessage {
            parts: vec![image, document, MessagePart::Text("look".into())],
            ..UserMessage::default()
        };
        let line = format_message(&Message::User(user), "", TIME);
        let texts = ["[image: a.png]", "[document: a.pdf]", "look"]
            .map(|text| format!("{{\"type\": \"text\", \"text\": \"{text}\"}}"));
        assert!(line.contains(&format!("\"content\": [{}]", texts.join(", "))));
    }

    #[test]
    fn lines_of_other_releases() {
        let kind = |line: &str| match parse(line.as_bytes()) {
            SessionLine::Metadata(_) => "metadata",
            SessionLine::Message(Some(_)) => "message",
            SessionLine::Message(None) => "unsent",
            SessionLine::ProviderState(true) => "state",
            SessionLine::ProviderState(false) => "no state",
            SessionLine::Other => "other",
            SessionLine::Invalid => "bad",
        };
        assert_eq!(kind(r#"{"_type": "metadata", "created_at": "x"}"#), "metadata");
        assert_eq!(
            kind(r#"{"_type": "metadata", "metadata": null, "last_consolidated": "x"}"#),
            "metadata"
        );
        assert_eq!(kind(r#"{"_type": "provider_state", "state": null}"#), "no state");
        assert_eq!(kind(r#"{"role": "user", "content": "h\u00e9"}"#), "message");
        assert_eq!(kind(r#"{"role": "assistant", "content": "x", "tools_used": null}"#), "message");
        assert_eq!(kind(r#"{"role": "user", "content": "/x", "_command": true}"#), "unsent");
        assert_eq!(kind("\u{feff}{\"role\": \"user\", \"content\": \"x\"}\r"), "message");
        for bad in ["", "{", "[]", "{}", "{\"role\": 1}", "\0\0\0"] {
            assert_eq!(kind(bad), "bad", "{bad:?}");
        }
        assert_eq!(kind("{\"role\": \"user\", \"content\": \"\\ud83d\"}"), "message");
        assert!(matches!(
            parse(b"{\"role\": \"user\", \"content\": \"\xff\"}"),
            SessionLine::Message(Some(_))
        ));
        let text = |line: &str| match parse(line.as_bytes()) {
            SessionLine::Message(Some(Message::User(user))) => {
                nanobot_base::message::plain_text(&user.parts)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(
            text(r#"{"role": "user", "content": "hi\n\n[Runtime Context]\nCurrent Time: x"}"#),
            "hi"
        );
        assert_eq!(
            text(r#"{"role": "user", "id": "x", "content": "my\n\n[Runtime Context]"}"#),
            "my\n\n[Runtime Context]"
        );
        assert_eq!(
            text(r#"{"role": "user", "content": "a\ud83d\ude00\ud83d \ude00b\\ud83d"}"#),
            "a\u{1f600}\u{fffd} \u{fffd}b\\ud83d"
        );
        assert_eq!(
            text(r#"{"role": "user", "content": "[Runtime Context — metadata only]\nTime\n\nhi"}"#),
            "hi"
        );
        assert_eq!(
            text(
                r#"{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "hi"}]}"#
            ),
            "[image]\nhi"
        );
    }

    #[test]
    fn only_keys_of_other_releases_are_carried_over() {
        let line = br#"{"_type": "metadata", "key": "a", "turn": "t", "messages": 4, "at": 9, "ending": "new", "summary": {}, "summary_at": 3, "last_archived": 2}"#;
        let SessionLine::Metadata(metadata) = parse(line) else {
            panic!("a metadata line");
        };
        let keys: Vec<&str> = metadata.extra.keys().map(String::as_str).collect();
        assert_eq!(keys, ["last_archived"]);
        assert_eq!(metadata.summary_offset, Some(3));
    }

    #[test]
    fn malformed_calls_are_left_out() {
        let line = br#"{"role": "assistant", "tool_calls": [1, {"id": "a"}, {"id": "b", "function": "f"}, {"id": "c", "function": {"name": "f"}}]}"#;
        let SessionLine::Message(Some(Message::Assistant(reply))) = parse(line) else {
            panic!("a reply");
        };
        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: json!(null) };
        assert_eq!(reply.tool_calls, [call]);
    }

    #[test]
    fn plain_content_is_not_copied() {
        let plain = |line: &'static str| plain_content(line.as_bytes());
        assert!(matches!(plain(r#"{"role": "user", "content": "x"}"#), Some(Cow::Borrowed("x"))));
        assert_eq!(plain(r#"{"content": "x\ny"}"#).as_deref(), Some("x\ny"));
        for line in [r#"{"content": null}"#, r#"{"content": ["x"]}"#, r#"{"role": "user"}"#, "{"] {
            assert_eq!(plain(line), None, "{line}");
        }
    }

    #[test]
    fn fuzz_any_line_is_parsed_or_skipped() {
        let seeds: &[&[u8]] = &[
            br#"{"_type": "metadata", "key": "a:b", "created_at": "x", "metadata": {"a": 1}, "last_consolidated": 3, "messages": 4, "at": 99, "turn": "t", "ending": "answered"}"#,
            br#"{"role": "user", "content": "h\u00e9\n\n[Runtime Context]\nx", "timestamp": "x", "id": "i", "facts": "f"}"#,
            br#"{"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1]}"}}], "usage": {"input": 3}}"#,
            br#"{"role": "tool", "tool_call_id": "c", "name": "f", "content": [{"type": "text", "text": "out"}, {"type": "image_url"}], "failed": true}"#,
            br#"{"_type": "provider_state", "state": {"a": 1}}"#,
        ];
        nanobot_base::fuzz::check(seeds, |input, _| match parse(input) {
            SessionLine::Message(Some(message)) => {
                let line = format_message(&message, "t", TIME);
                assert!(super::is_message(line.trim_end().as_bytes()));
                // Formatting and parsing again gives the same value.
                let SessionLine::Message(Some(again)) = parse(line.trim_end().as_bytes()) else {
                    panic!("{line}");
                };
                assert_eq!(format_message(&again, "t", TIME), line);
            }
            SessionLine::Metadata(metadata) => {
                let line = format_metadata(&metadata, None);
                assert!(
                    matches!(parse(line.trim_end().as_bytes()), SessionLine::Metadata(_)),
                    "{line}"
                );
            }
            _ => {}
        });
    }
}
