//! The `sessions` tool: lists, searches and reads the conversations of the workspace. It is the only way into their
//! files, which no other tool reads.
//!
//! A conversation may have untrusted content, and reading it brings that content here. So the first line of each result states its origin,
//! and this conversation gets at least that origin.

use super::arguments::usize_argument;
use super::function_tool::FunctionTool;
use super::{CallEffect, ToolError, ToolOutput};
use nanobot_base::message::{Origin, ToolSpec, without_blanks};
use nanobot_config::policy::tool_names::SESSIONS;
use serde_json::Value;
use std::sync::Arc;

/// Number of messages in a result unless the model says otherwise.
const DEFAULT_MESSAGES: usize = 20;

/// Conversations, as text for the model. Errors are text for the model, too.
pub trait SessionLibrary: Send + Sync {
    /// The sessions, newest first, one on each line.
    ///
    /// # Errors
    /// The files cannot be read.
    fn list(&self) -> Result<SessionText, String>;

    /// The lines that contain `text`, in any case, with the key of their session and the number of their message.
    ///
    /// # Errors
    /// The files cannot be read.
    fn search(&self, text: &str) -> Result<SessionText, String>;

    /// At most `count` messages of a session from number `from` on; without it the last ones.
    ///
    /// # Errors
    /// There is no such session, or it cannot be read.
    fn read(&self, key: &str, from: Option<usize>, count: usize) -> Result<SessionText, String>;
}

/// Text of conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionText {
    pub text: String,
    /// The least trusted origin of the conversations that the text is from.
    pub origin: Origin,
}

/// Builds the `sessions` tool.
pub fn tool(library: Arc<dyn SessionLibrary>) -> FunctionTool {
    FunctionTool::new(spec(), CallEffect::Reads, move |arguments| look_up(&*library, arguments))
}

/// Returns the definition of the tool.
pub fn spec() -> ToolSpec {
    let parameters = const {
        &without_blanks(
            br#"{ "type": "object", "required": ["action"], "properties": {
        "action": { "type": "string", "enum": ["list", "search", "read"] },
        "text": { "type": "string", "description": "search: literal text, in any case" },
        "key": { "type": "string", "description": "read: key of the session" },
        "from": { "type": "integer", "description": "read: number of the first message" },
        "count": { "type": "integer", "maximum": 50 }
    } }"#,
        )
    };
    let description =
        "Other conversations with the user: list them, search their text, read their messages";
    ToolSpec::new(SESSIONS, description, parameters)
}

fn look_up(library: &dyn SessionLibrary, arguments: &Value) -> Result<ToolOutput, ToolError> {
    let argument = |name: &str| arguments[name].as_str().filter(|text| !text.is_empty());
    let SessionText { text, origin } = match arguments["action"].as_str() {
        Some("search") => {
            let text = argument("text").ok_or("`text` is required for search")?;
            library.search(text)?
        }
        Some("read") => {
            let key = argument("key").ok_or("`key` is required for read; `list` shows the keys")?;
            let count = usize_argument(arguments, "count").unwrap_or(DEFAULT_MESSAGES);
            library.read(key, usize_argument(arguments, "from"), count)?
        }
        _ => library.list()?,
    };
    Ok(format!("{}\n{text}", origin_line(origin)).into())
}

/// The first line of a result.
fn origin_line(origin: Origin) -> String {
    format!("[origin: {}]", origin.name())
}
