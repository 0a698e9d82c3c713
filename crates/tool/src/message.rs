//! The `message` tool: writes to the user's chats, with files. Messages go through [`MessageOutlet`].
//!
//! A message leaves the machine, so untrusted content must not choose its recipient: after such content, only the chat of the conversation
//! itself can be written to, unless the user permits more.

use super::files::Files;
use super::{Call, Tool, ToolError, ToolOutput};
use nanobot_base::message::{Origin, ToolSpec, without_blanks};
use nanobot_config::policy::Refusal;
use nanobot_config::policy::provenance::{ChangeGrants, GuardedChange, ProvenanceTracker};
use nanobot_config::policy::tool_names::MESSAGE;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of files in a message.
const MAX_FILES: usize = 10;
/// Prefixes of session keys that are not channels, so nothing can be sent by such a key. Destinations that print or store
/// text on this machine are for the user to choose.
const NON_CHANNEL_PREFIXES: &[&str] = &[
    "acp",
    "cli",
    "command",
    "cron",
    "file",
    "fork",
    "heartbeat",
    "import",
    "mcp",
    "pipe",
    "system",
    "tool",
    "unified",
];

/// A chat of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTarget {
    pub channel: String,
    pub recipient: String,
}

impl ChatTarget {
    /// The chat of the session `key`; `None` if the session is not a channel.
    pub(crate) fn from_session_key(key: &str) -> Option<Self> {
        let (channel, recipient) = key.split_once(':')?;
        let is_channel = |name: &&str| name.eq_ignore_ascii_case(channel.trim());
        let is_none = channel.trim().is_empty()
            || recipient.is_empty()
            || NON_CHANNEL_PREFIXES.iter().any(is_channel);
        (!is_none).then(|| Self { channel: channel.to_owned(), recipient: recipient.to_owned() })
    }
}

impl fmt::Display for ChatTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.channel, self.recipient)
    }
}

/// A file to be sent: its name and its content.
pub type NamedContent = (String, Vec<u8>);

/// Sends messages. Errors are text for the model.
pub trait MessageOutlet: Send + Sync {
    /// True if the user has named this chat in the config, or has written in it.
    ///
    /// # Errors
    /// There is no such channel.
    fn is_known(&self, chat: &ChatTarget) -> anyhow::Result<bool>;

    /// Sends a message. `origin` is the origin of its text. Returns false if it waits until the service can take it.
    ///
    /// # Errors
    /// The message cannot be delivered.
    fn send(
        &self,
        chat: &ChatTarget,
        text: &str,
        files: Vec<NamedContent>,
        origin: Origin,
    ) -> anyhow::Result<bool>;
}

/// The `message` tool.
pub struct MessageTool {
    spec: ToolSpec,
    outlet: Arc<dyn MessageOutlet>,
    files: Arc<Files>,
    provenance: Arc<ProvenanceTracker>,
    grants: ChangeGrants,
    own_chat: Option<ChatTarget>,
    /// The chat that gets the final text.
    answer_chat: Option<ChatTarget>,
    /// True once the model has written to that chat.
    has_answered: AtomicBool,
}

impl MessageTool {
    /// Creates the tool for the session `key`, whose final text goes to `answer_chat`, or else to its own chat. `provenance`
    /// and `grants` decide about chats other than the session's.
    pub fn new(
        outlet: Arc<dyn MessageOutlet>,
        files: Arc<Files>,
        provenance: Arc<ProvenanceTracker>,
        grants: ChangeGrants,
        key: &str,
        answer_chat: Option<ChatTarget>,
    ) -> Self {
        let own_chat = ChatTarget::from_session_key(key);
        Self {
            spec: spec(),
            outlet,
            files,
            provenance,
            grants,
            answer_chat: answer_chat.or_else(|| own_chat.clone()),
            own_chat,
            has_answered: AtomicBool::new(false),
        }
    }

    /// The chat that a call names; that of the conversation if it names none.
    fn chat(&self, arguments: &Value) -> Result<ChatTarget, ToolError> {
        let argument = |name: &str| arguments[name].as_str().filter(|text| !text.is_empty());
        let own_channel = self.own_chat.as_ref().map(|chat| chat.channel.as_str());
        let own_recipient = self.own_chat.as_ref().map(|chat| chat.recipient.as_str());
        let channel = argument("channel").or(own_channel);
        // Another channel has other recipients.
        let default_recipient = if channel == own_channel { own_recipient } else { None };
        let recipient = argument("chat_id").or(default_recipient);
        match (channel, recipient) {
            (Some(channel), Some(recipient)) => {
                Ok(ChatTarget { channel: channel.to_owned(), recipient: recipient.to_owned() })
            }
            (Some(channel), None) if own_channel.is_some() => Err(format!(
                "`chat_id` is required: this conversation is in no chat of `{channel}`"
            )
            .into()),
            _ => {
                Err("`channel` and `chat_id` are required: this conversation is in no chat".into())
            }
        }
    }

    /// Refuses to write to a chat that the user has not named, or that untrusted content may have chosen.
    fn check_chat(&self, chat: &ChatTarget) -> Result<(), ToolError> {
        if self.own_chat.as_ref() == Some(chat) {
            return Ok(());
        }
        if !self.outlet.is_known(chat).map_err(|error| format!("{error:#}"))? {
            return Err(Refusal::new(format!(
                "{chat} is not a chat of the user; the user can add it to `channels.{}.recipients`",
                chat.channel
            ))
            .into());
        }
        let consequence = format!("no message can be sent to {chat}");
        let external = self.provenance.external_content();
        Ok(self.grants.check(GuardedChange::Messages, external, &consequence)?)
    }

    fn read_files(&self, arguments: &Value) -> Result<Vec<NamedContent>, ToolError> {
        let paths = arguments["media"].as_array().into_iter().flatten();
        let paths: Vec<&str> = paths.filter_map(Value::as_str).collect();
        if paths.len() > MAX_FILES {
            return Err(format!("a message has at most {MAX_FILES} files").into());
        }
        let files = paths.into_iter().map(|path| {
            let (bytes, path) = self.files.load(path)?;
            let name = path.file_name().unwrap_or_default();
            Ok((name.to_string_lossy().into_owned(), bytes))
        });
        files.collect()
    }
}

impl Tool for MessageTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: &mut Call<'_>) -> Result<ToolOutput, ToolError> {
        let arguments = call.arguments;
        let chat = self.chat(arguments)?;
        self.check_chat(&chat)?;
        let text = arguments["content"].as_str().unwrap_or_default();
        let files = self.read_files(arguments)?;
        if text.trim().is_empty() && files.is_empty() {
            return Err("`content` is empty".into());
        }
        let attachments = match files.len() {
            0 => String::new(),
            count => format!(" with {count} attachments"),
        };
        let origin = self.provenance.origin().0;
        let is_sent =
            self.outlet.send(&chat, text, files, origin).map_err(|error| format!("{error:#}"))?;
        let delay =
            if is_sent { "" } else { "; the service cannot take it now, so it is sent later" };
        // Files without a text are not an answer: the final text follows them.
        let is_answer = self.answer_chat.as_ref() == Some(&chat) && !text.trim().is_empty();
        let ending = if is_answer {
            ". Your final text is not sent there too: send anything else with this tool"
        } else {
            ""
        };
        self.has_answered.fetch_or(is_answer, Ordering::SeqCst);
        Ok(format!("Message sent to {chat}{attachments}{delay}{ending}").into())
    }

    fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::SeqCst)
    }

    fn check_call(&self, arguments: &Value) -> Result<(), ToolError> {
        self.check_chat(&self.chat(arguments)?)
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: MESSAGE.into(),
        description: "Send a message to a chat of the user: to another chat, or files to this one. Your final text is sent to \
                      the chat of this conversation by itself, unless you have written there with this tool"
            .into(),
        parameters: const { &without_blanks(br#"{ "type": "object", "required": ["content"], "properties": {
            "content": { "type": "string", "description": "Markdown" },
            "channel": { "type": "string", "description": "such as `telegram`; default: this chat's" },
            "chat_id": { "type": "string", "description": "default: this chat" },
            "media": { "type": "array", "items": { "type": "string" }, "description": "paths of files to attach" }
        } }"#) }.into(),
    }
}
