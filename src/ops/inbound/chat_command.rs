//! Chat messages that are commands. They are answered without a model. A turn has commands of its own, such as `/compact`.

use crate::ops::agent_turn;
use crate::ops::channel::session_copy;
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_channel::InboundMessage;
use nanobot_config::settings::Settings;
use nanobot_store::session::Session;

/// The answer to `/help`.
const HELP_TEXT: &str = "/new – start a new conversation\n/stop – stop the running task\n/compact – summarize the conversation\n/status – show the \
    state of this conversation\n/id – show your id and the chat's\n/help – show this list";

/// A command in a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatCommand {
    New,
    Stop,
    Help,
    Start,
    Status,
    Id,
}

impl ChatCommand {
    /// Parses a message. A command is the whole text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text.trim() {
            "/new" => Self::New,
            "/stop" => Self::Stop,
            "/help" => Self::Help,
            "/start" => Self::Start,
            "/status" => Self::Status,
            "/id" => Self::Id,
            _ => return None,
        })
    }

    /// Runs the command, except for `/stop`, which the intake runs at once. Returns the answer.
    ///
    /// # Errors
    /// The session cannot be read or written.
    pub(crate) fn run(
        self,
        ctx: &Context,
        settings: &Settings,
        session: &str,
        message: &InboundMessage,
    ) -> Result<String> {
        Ok(match self {
            Self::New => {
                start_new_conversation(ctx, settings, session)?;
                "New session started.".to_owned()
            }
            // An old one that `channel retry` has queued again.
            Self::Stop => "No active task to stop.".to_owned(),
            Self::Help => HELP_TEXT.to_owned(),
            Self::Start => format!("Hello. Send me a message and I will answer.\n\n{HELP_TEXT}"),
            Self::Id => id_text(message),
            Self::Status => status_text(ctx, settings, session)?,
        })
    }
}

/// The ids of a message's sender and chat.
pub(crate) fn id_text(message: &InboundMessage) -> String {
    format!("Your id: {}\nThis chat: {}", message.from.id, message.chat.id)
}

fn start_new_conversation(ctx: &Context, settings: &Settings, key: &str) -> Result<()> {
    let store = ctx.session_store(settings)?;
    let mut session = Session::open(&store, key, agent_turn::CHAT_LOCK_TIMEOUT, &mut |_| {})?;
    session_copy::add_sent_messages(ctx, &mut session)?;
    session.start_new_conversation()
}

fn status_text(ctx: &Context, settings: &Settings, key: &str) -> Result<String> {
    let store = ctx.session_store(settings)?;
    let session = Session::read(&store, key, &mut |_| {})?;
    let model = settings.models[0].model.as_deref();
    Ok(format!(
        "nanobot {}\nModel: {}\nMessages in this conversation: {}",
        env!("CARGO_PKG_VERSION"),
        model.unwrap_or("the provider's default"),
        session.messages().len()
    ))
}

#[cfg(test)]
mod tests {
    use super::ChatCommand;

    #[test]
    fn only_the_whole_text_is_a_command() {
        let check = |text: &str, expect| assert_eq!(ChatCommand::parse(text), expect, "{text}");
        check("/new", Some(ChatCommand::New));
        check(" /stop\n", Some(ChatCommand::Stop));
        check("/new one", None);
        check("say /help", None);
        check("/NEW", None);
        check("", None);
    }
}
