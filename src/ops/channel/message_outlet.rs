//! The messages of the `message` tool: they go through the outbox.

use crate::ops::channel::outbox::{self, OutboxFile, OutboxMessage, SendOutcome};
use crate::ops::channel::recipients;
use crate::ops::context::Context;
use anyhow::Result;
use nanobot_base::message::Origin;
use nanobot_channel::MessageSource;
use nanobot_tool::message::{ChatTarget, MessageOutlet, NamedContent};

/// The outbox of all channels.
pub(crate) struct OutboxOutlet {
    ctx: Context,
    is_offline: bool,
    /// The session of the run.
    session: String,
}

impl OutboxOutlet {
    /// Creates the outlet of a run, which reaches only loopback addresses if it is offline.
    pub(crate) fn new(ctx: &Context, is_offline: bool, session: &str) -> Self {
        Self { ctx: ctx.clone(), is_offline, session: session.to_owned() }
    }
}

impl MessageOutlet for OutboxOutlet {
    fn is_known(&self, chat: &ChatTarget) -> Result<bool> {
        recipients::is_known(&self.ctx, &chat.channel, &chat.recipient)
    }

    fn send(
        &self,
        chat: &ChatTarget,
        text: &str,
        files: Vec<NamedContent>,
        origin: Origin,
    ) -> Result<bool> {
        let is_in_conversation = self.session == format!("{}:{}", chat.channel, chat.recipient);
        let message = OutboxMessage {
            channel: chat.channel.clone(),
            to: chat.recipient.clone(),
            markdown: text.to_owned(),
            files: files.into_iter().map(OutboxFile::new).collect(),
            key: None,
            is_offline: self.is_offline,
            is_in_conversation,
            source: (!is_in_conversation).then(|| MessageSource {
                name: format!("a run in session `{}`", self.session),
                origin,
            }),
        };
        let outcome = outbox::send(&self.ctx, message)?;
        Ok(matches!(outcome, SendOutcome::Sent(_)))
    }
}
