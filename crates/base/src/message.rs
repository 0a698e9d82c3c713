//! Messages of a conversation: plain data, independent of any format.
//!
//! There is no system message: the system prompt is built for each request and never stored. The wire formats and the
//! session file have their own types and convert to and from these.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use user_text::MessageSources;

pub mod addresses;
pub mod lenient_json;
mod origin;
pub mod token_estimate;
pub mod user_text;

pub use origin::Origin;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    User(UserMessage),
    Assistant(Reply),
    Tool(ToolResult),
}

impl Message {
    /// The message's id; for a tool result, the id of its call.
    pub fn id(&self) -> &str {
        match self {
            Self::User(user) => &user.id,
            Self::Assistant(reply) => &reply.id,
            Self::Tool(result) => &result.call_id,
        }
    }

    /// The id of the message's turn, with which its own id begins. Empty for messages of other programs and for tool
    /// results.
    pub fn turn_id(&self) -> &str {
        match self {
            Self::User(_) | Self::Assistant(_) => {
                self.id().split_once('-').map_or("", |(turn, _)| turn)
            }
            Self::Tool(_) => "",
        }
    }

    /// The text that the user wrote, with the text of its attachments. `None` for other messages.
    pub fn user_text(&self) -> Option<String> {
        match self {
            Self::User(user) if !user.injected => Some(plain_text(&user.parts)),
            _ => None,
        }
    }

    /// True if a sender typed the whole message. Its text may then be sent again as words of the user.
    pub fn is_typed(&self) -> bool {
        let Self::User(UserMessage { sources: Some(sources), .. }) = self else {
            return false;
        };
        sources.others.is_none() && !sources.has_model_text
    }

    /// The message with each text of a user or a tool replaced by that of `map`; `None` if that changes nothing.
    pub fn map_texts(&self, map: fn(&str) -> Cow<'_, str>) -> Option<Self> {
        let is_changed = |text: &str| matches!(map(text), Cow::Owned(_));
        let is_part_changed =
            |part: &MessagePart| matches!(part, MessagePart::Text(text) if is_changed(text));
        let is_message_changed = match self {
            Self::User(user) => {
                user.parts.iter().any(is_part_changed) || is_changed(&user.runtime_facts)
            }
            Self::Tool(result) => result.parts.iter().any(is_part_changed),
            Self::Assistant(_) => false,
        };
        if !is_message_changed {
            return None;
        }
        let change = |text: &mut String| *text = map(text).into_owned();
        let change_parts = |parts: &mut [MessagePart]| {
            for part in parts {
                if let MessagePart::Text(text) = part {
                    change(text);
                }
            }
        };
        let mut message = self.clone();
        match &mut message {
            Self::User(user) => {
                change_parts(&mut user.parts);
                change(&mut user.runtime_facts);
            }
            Self::Tool(result) => change_parts(&mut result.parts),
            Self::Assistant(_) => {}
        }
        Some(message)
    }

    /// The answer of a turn: the text of a reply without tool calls.
    pub fn answer_text(&self) -> Option<&str> {
        match self {
            Self::Assistant(reply) if reply.tool_calls.is_empty() && !reply.is_blank() => {
                Some(&reply.text)
            }
            _ => None,
        }
    }

    /// True if a turn begins with it.
    pub fn begins_turn(&self) -> bool {
        matches!(self, Self::User(user) if !user.injected && !user.is_steering())
    }
}

/// A user message, from a person, a pipe or a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserMessage {
    pub id: String,
    pub parts: Vec<MessagePart>,
    /// Runtime facts (time, channel), sent beside the text. Stored so that later requests repeat the same bytes.
    pub runtime_facts: String,
    /// True if this program wrote the message (a warning, an objection, a summary), not the user.
    pub injected: bool,
    /// The authors of its parts; `None` if it was stored by another program, or by an older version.
    pub sources: Option<MessageSources>,
    /// The images of an earlier turn that are placeholders in `parts`: the index of the part, and the source.
    pub images: Vec<(usize, ImageSource)>,
}

/// The suffix of the id of a message that the user sent into a running turn, before its number.
pub const STEERING_SUFFIX: &str = "steer";

impl UserMessage {
    /// True if the user sent it into a running turn.
    pub fn is_steering(&self) -> bool {
        let suffix = self.id.rsplit('-').next();
        suffix.is_some_and(|suffix| suffix.starts_with(STEERING_SUFFIX))
    }

    /// The label of a message that was sent into a running turn, by which its sender knows it.
    pub fn steering_label(&self) -> Option<&str> {
        let (_, label) = self.id.split_once('.').filter(|_| self.is_steering())?;
        Some(label)
    }
}

/// A part of the content of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MessagePart {
    Text(String),
    Image(Image),
    Document(Document),
}

/// A complete image. The session file keeps a placeholder, and the source if it is a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// Name of its source, for the placeholder.
    pub name: String,
    /// The file, if later turns can read it again.
    pub source: Option<ImageSource>,
}

/// The file of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSource {
    /// Absolute.
    pub path: String,
    /// Digest of its content.
    pub digest: String,
}

/// A complete document or recording, passed to the model unparsed. As with images, the session file keeps a placeholder.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// `application/pdf`, `audio/mpeg` or `audio/wav`.
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// Name of its source, for the placeholder.
    pub name: String,
}

impl Document {
    /// True for a recording of sound.
    pub fn is_audio(&self) -> bool {
        self.media_type.starts_with("audio/")
    }

    /// The word for it in placeholders.
    pub fn label(&self) -> &'static str {
        if self.is_audio() { "audio" } else { "document" }
    }
}

/// Iterates over `parts` with images and documents before text, so that a question follows its pictures.
pub fn images_first(parts: &[MessagePart]) -> impl Iterator<Item = &MessagePart> {
    let is_text = |part: &&MessagePart| matches!(part, MessagePart::Text(_));
    let others = parts.iter().filter(move |part| !is_text(part));
    others.chain(parts.iter().filter(is_text))
}

/// Formats `parts` as text, one part per line, with placeholders for images and documents.
pub fn plain_text(parts: &[MessagePart]) -> String {
    to_plain_text(parts).into_owned()
}

/// Formats `parts` as [`plain_text`] does, without a copy of a single text.
pub fn to_plain_text(parts: &[MessagePart]) -> Cow<'_, str> {
    if let [MessagePart::Text(text)] = parts {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for part in parts {
        if !out.is_empty() {
            out.push('\n');
        }
        match part {
            MessagePart::Text(text) => out.push_str(text),
            MessagePart::Image(image) => out.extend(["[image: ", &image.name, "]"]),
            MessagePart::Document(document) => {
                out.extend(["[", document.label(), ": ", &document.name, "]"]);
            }
        }
    }
    Cow::Owned(out)
}

/// One assistant message: the model's reply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub id: String,
    /// The text without think blocks.
    pub text: String,
    /// The model's reasoning, if the provider returns it.
    pub reasoning: String,
    pub tool_calls: Vec<ToolCall>,
    pub finish_reason: FinishReason,
    pub usage: Usage,
    /// Cost in US dollars as reported by the provider, else computed from its prices. `None` if neither is known.
    pub cost: Option<f64>,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// Provider-specific data to be sent back unchanged, such as signed thinking.
    pub provider_data: Option<Value>,
}

impl Reply {
    /// Number of times that a model is asked again after a blank reply.
    pub const MAX_BLANK_RETRIES: u32 = 2;

    /// True if it has neither tool calls nor visible text.
    pub fn is_blank(&self) -> bool {
        self.tool_calls.is_empty() && self.text.trim().is_empty()
    }
}

/// The finish reason of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FinishReason {
    /// The reply is complete.
    #[default]
    Stop,
    /// The model requests tool calls.
    ToolCalls,
    /// Truncated by the output limit.
    Length,
    /// The run was stopped, or the connection broke, before the reply was complete.
    Interrupted,
    /// Declined by the model or by the provider's content filter.
    Refusal,
    /// Any other finish reason, as the provider names it.
    Other(String),
}

/// A tool call requested by the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object. Arguments that do not parse as one are kept as `Value::String`, so that the error can be reported
    /// to the model.
    #[serde(default)]
    pub arguments: Value,
}

impl ToolCall {
    /// The arguments as [`Self::arguments_object`], in JSON.
    pub fn arguments_json(&self) -> String {
        serde_json::to_string(&self.arguments_object()).expect("a JSON value can be serialized")
    }

    /// The arguments, always as an object, for formats that accept nothing else.
    pub fn arguments_object(&self) -> Cow<'_, Value> {
        match &self.arguments {
            Value::Object(_) => Cow::Borrowed(&self.arguments),
            other => Cow::Owned(serde_json::json!({ "malformed_arguments": other })),
        }
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The id of the call it answers.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    pub parts: Vec<MessagePart>,
    pub failed: bool,
    pub source: ResultSource,
}

/// The source of a result's text, as far as it was known when the call ended. Later turns cannot tell it from the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultSource {
    /// Whatever the tool and its arguments suggest.
    #[default]
    Unspecified,
    /// None: the call was not made, or failed before it read anything from outside, and the text is that of this program.
    NotMade,
    /// An address. Untrusted content cannot have chosen any part of it.
    SafeAddress,
}

/// Token usage, as counted by the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All input tokens, including cached ones.
    pub input: u64,
    /// The part of `input` read from the provider's cache.
    pub cached: u64,
    /// The part of `input` written to that cache, if the provider bills cache writes separately.
    pub cache_write: u64,
    /// All output tokens, including reasoning.
    pub output: u64,
    /// The part of `output` spent on reasoning.
    pub reasoning: u64,
    /// True if the provider reported no usage and these are estimates.
    pub estimated: bool,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.estimated = self.estimated || other.estimated;
    }
}

/// A tool definition, as sent to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub parameters: ParameterSchema,
}

impl ToolSpec {
    /// Creates the definition. `parameters` are a JSON schema of type object.
    pub fn new(name: &str, description: &str, parameters: impl Into<ParameterSchema>) -> Self {
        let (name, description) = (name.to_owned(), description.to_owned());
        Self { name, description, parameters: parameters.into() }
    }
}

/// A JSON schema of type object. Clones share it. Most runs send schemas without reading them, so a schema that is given as text is parsed
/// on demand.
#[derive(Clone)]
pub struct ParameterSchema(Arc<SchemaForms>);

/// The forms of a schema. At least one is set from the start; the other is computed on demand.
#[derive(Default)]
struct SchemaForms {
    value: OnceLock<Value>,
    json: OnceLock<Cow<'static, str>>,
}

impl ParameterSchema {
    /// The schema as JSON without blanks.
    pub fn as_json(&self) -> &str {
        let forms = &self.0;
        forms.json.get_or_init(|| Value::to_string(self).into())
    }
}

impl From<Value> for ParameterSchema {
    fn from(schema: Value) -> Self {
        Self(Arc::new(SchemaForms { value: schema.into(), ..SchemaForms::default() }))
    }
}

/// A constant schema, which [`without_blanks`] has made compact when the program was compiled.
impl<const LENGTH: usize> From<&'static [u8; LENGTH]> for ParameterSchema {
    fn from(json: &'static [u8; LENGTH]) -> Self {
        let source = str::from_utf8(json.trim_ascii_end());
        let source = source.expect("a constant schema is text, as tested");
        Self(Arc::new(SchemaForms { json: Cow::Borrowed(source).into(), ..SchemaForms::default() }))
    }
}

impl Deref for ParameterSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        let forms = &self.0;
        forms.value.get_or_init(|| {
            serde_json::from_str(self.as_json())
                .expect("a constant schema is valid JSON, as tested")
        })
    }
}

impl PartialEq for ParameterSchema {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for ParameterSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

/// Moves the blanks and line breaks between the tokens of `json` to its end. `ParameterSchema` drops them there.
pub const fn without_blanks<const LENGTH: usize>(json: &[u8; LENGTH]) -> [u8; LENGTH] {
    let mut text = [b' '; LENGTH];
    let mut from = 0;
    let mut to = 0;
    let mut is_in_string = false;
    while from < LENGTH {
        let byte = json[from];
        from += 1;
        if is_in_string || !byte.is_ascii_whitespace() {
            text[to] = byte;
            to += 1;
        }
        if is_in_string && byte == b'\\' {
            text[to] = json[from];
            (from, to) = (from + 1, to + 1);
        } else if byte == b'"' {
            is_in_string = !is_in_string;
        }
    }
    text
}

/// Wraps `text` in tags that occur neither in it nor in `name`, so that the text cannot close the block itself.
pub fn tagged_block(tag: &str, name: Option<&str>, text: &str) -> String {
    let mut unique_tag = tag.to_owned();
    let mut number = 1;
    let name = name.unwrap_or_default();
    while text.contains(&format!("</{unique_tag}>")) || name.contains(&format!("</{unique_tag}>")) {
        number += 1;
        unique_tag = format!("{tag}-{number}");
    }
    let name = match name {
        "" => String::new(),
        name => format!(" name=\"{}\"", name.replace('"', "&quot;")),
    };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("<{unique_tag}{name}>\n{text}{end}</{unique_tag}>")
}

/// The tags of piped and attached text, which follows the words of a message.
const CONTENT_TAGS: [&str; 5] = ["stdin", "file", "directory", "page", "resource"];

/// The words of a stored message before its first block of piped or attached text; all of it if it begins with a block.
pub fn before_blocks(text: &str) -> &str {
    let begins_block = |(at, _): &(usize, &str)| {
        let tag = text[at + 1..].strip_prefix('<').unwrap_or_default();
        CONTENT_TAGS.iter().any(|name| {
            tag.strip_prefix(name).is_some_and(|rest| rest.starts_with(['>', ' ', '-']))
        })
    };
    let end = text.match_indices('\n').find(begins_block).map_or(text.len(), |(at, _)| at);
    text[..end].trim_end()
}

#[cfg(test)]
mod tests {
    use super::{ParameterSchema, before_blocks, tagged_block, without_blanks};
    use serde_json::json;

    #[test]
    fn schemas_are_the_same_as_text_and_as_values() {
        let text = const {
            &without_blanks(
                br#"{
                    "type": "object", "properties": { "a b": { "description": "x,  \"y\":\n z" } }
                }"#,
            )
        };
        let text: ParameterSchema = text.into();
        let value: ParameterSchema = json!({
            "type": "object", "properties": { "a b": { "description": "x,  \"y\":\n z" } }
        })
        .into();
        assert_eq!(text, value);
        assert_eq!(text.as_json(), value.as_json());
    }

    #[test]
    fn words_end_at_the_first_block() {
        let check = |text: &str, expect: &str| assert_eq!(before_blocks(text), expect, "{text}");
        let stdin = tagged_block("stdin", None, "a</stdin>");
        let file = tagged_block("file", Some("a.md"), "a");
        check(&format!("why?\n\nand how\n{stdin}\n\n{file}"), "why?\n\nand how");
        check(&format!("look {file}\n{file}"), &format!("look {file}"));
        check(&file, &file);
        check("a\n<filed>\n<b>", "a\n<filed>\n<b>");
        check("", "");
    }
}
