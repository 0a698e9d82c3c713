//! What is said in a conversation: plain data, no formats.
//!
//! There is no system message: the system text is derived for each request and never stored. The wire formats and
//! the session file have shapes of their own and translate from and to these.

use serde_json::Value;

pub mod json;
pub mod token_estimate;

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    User(User),
    Assistant(Reply),
    Tool(ToolResult),
}

impl Message {
    /// The message's own id; a tool result goes by the id of its call.
    pub fn id(&self) -> &str {
        match self {
            Self::User(user) => &user.id,
            Self::Assistant(reply) => &reply.id,
            Self::Tool(result) => &result.call,
        }
    }
}

/// What a person, a pipe or a job said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    pub id: String,
    pub parts: Vec<Part>,
    /// Facts of the moment (time, channel), sent beside the text. Stored, so that a later request repeats the same bytes.
    pub facts: String,
    /// We said it, and no user did: a warning, an objection, a summary.
    pub injected: bool,
}

/// A piece of content.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Image(Image),
    Document(Document),
}

/// An image, whole. It is sent while the turn lasts; the session file keeps a placeholder.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// Where it came from, for the placeholder.
    pub name: String,
}

/// A document that the model reads itself, whole. As with an image, the session file keeps a placeholder.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// `application/pdf`.
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
    /// Where it came from, for the placeholder.
    pub name: String,
}

/// `parts` with what is no text before what is: a question follows its pictures.
pub fn pictures_first(parts: &[Part]) -> impl Iterator<Item = &Part> {
    let is_text = |part: &&Part| matches!(part, Part::Text(_));
    let others = parts.iter().filter(move |part| !is_text(part));
    others.chain(parts.iter().filter(is_text))
}

/// The text of `parts`, images and documents as placeholders, one part a line.
pub fn plain_text(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push('\n');
        }
        let (kind, name) = match part {
            Part::Text(words) => {
                text.push_str(words);
                continue;
            }
            Part::Image(image) => ("image", &image.name),
            Part::Document(document) => ("document", &document.name),
        };
        text.extend(["[", kind, ": ", name, "]"]);
    }
    text
}

/// What the model answered: one assistant message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    pub id: String,
    /// The text without think blocks.
    pub text: String,
    /// What it thought on the way, where the provider tells.
    pub reasoning: String,
    pub calls: Vec<ToolCall>,
    pub finish: Finish,
    pub usage: Usage,
    /// What it cost, in US dollars: as the provider says, else by its prices. `None` where neither is known.
    pub cost: Option<f64>,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// What its provider wants back unchanged, such as signed thinking.
    pub opaque: Option<Value>,
}

impl Reply {
    /// Whether it has neither calls nor a word that can be seen.
    pub fn is_blank(&self) -> bool {
        self.calls.is_empty() && self.text.trim().is_empty()
    }
}

/// Why a reply ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Finish {
    /// It had said what it wanted.
    #[default]
    Stop,
    /// It waits for its tool calls.
    Calls,
    /// The output limit cut it.
    Length,
    /// The provider's filter, or the model, declined.
    Refusal,
    /// Something this program has no name for.
    Other(String),
}

/// A tool the model wants run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object. Text that is no JSON object arrives as `Value::String`, so that the model can be told.
    pub arguments: Value,
}

impl ToolCall {
    /// The arguments as an object in every case, for formats that take nothing else.
    pub fn arguments_object(&self) -> Value {
        match &self.arguments {
            Value::Object(_) => self.arguments.clone(),
            other => serde_json::json!({ "malformed_arguments": other }),
        }
    }
}

/// What came of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The id of the call it answers.
    pub call: String,
    /// The tool's name.
    pub name: String,
    pub parts: Vec<Part>,
    pub failed: bool,
}

/// Tokens, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All tokens that went in, cached ones included.
    pub input: u64,
    /// Of `input`, those read from the provider's cache.
    pub cached: u64,
    /// Of `input`, those that were written to that cache, where this is paid for apart.
    pub cache_write: u64,
    /// All tokens that came out, reasoning included.
    pub output: u64,
    /// Of `output`, those spent on reasoning.
    pub reasoning: u64,
    /// The provider gave no numbers; these are our own guess.
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

/// A tool as it is described to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// A JSON schema of type object.
    pub parameters: Value,
}

/// Wraps `text` in marks that occur neither in it nor in `name`, so that the text cannot close the block itself.
pub fn block(tag: &str, name: Option<&str>, text: &str) -> String {
    let mut mark = tag.to_owned();
    let mut number = 1;
    let name = name.unwrap_or_default();
    while text.contains(&format!("</{mark}>")) || name.contains(&format!("</{mark}>")) {
        number += 1;
        mark = format!("{tag}-{number}");
    }
    let name = match name {
        "" => String::new(),
        name => format!(" name=\"{}\"", name.replace('"', "&quot;")),
    };
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("<{mark}{name}>\n{text}{end}</{mark}>")
}
