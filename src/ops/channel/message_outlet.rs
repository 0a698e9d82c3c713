//! The messages of the `message` tool: they go through the outbox, with copies of their files.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::channel::outbox::{self, OutboxMessage, SendOutcome};
use crate::ops::channel::recipients;
use crate::ops::context::Context;
use crate::sys::durable_file;
use crate::sys::secret::random_hex;
use crate::tool::message::{ChatTarget, MessageOutlet, NamedContent};
use anyhow::Result;
use std::path::PathBuf;

/// The outbox of all channels.
pub(crate) struct OutboxOutlet {
    ctx: Context,
}

impl OutboxOutlet {
    /// Creates the outlet of a run.
    pub(crate) fn new(ctx: &Context) -> Self {
        Self { ctx: ctx.clone() }
    }

    /// Copies files, since the message may be sent by a later poll, when they have changed.
    fn copy_files(&self, channel: &str, files: Vec<NamedContent>) -> Result<Vec<PathBuf>> {
        let name = ChannelFiles::load(&self.ctx, channel)?.kind.name;
        let directory = self.ctx.paths.media().join(name).join(random_hex(8));
        let copy = |(name, bytes): NamedContent| {
            durable_file::create_dir(&directory)?;
            let path = directory.join(name);
            durable_file::replace(&path, &bytes)?;
            Ok(path)
        };
        files.into_iter().map(copy).collect()
    }

    fn send(&self, chat: &ChatTarget, text: &str, files: Vec<NamedContent>) -> Result<bool> {
        let message = OutboxMessage {
            channel: chat.channel.clone(),
            to: chat.recipient.clone(),
            markdown: text.to_owned(),
            files: self.copy_files(&chat.channel, files)?,
            key: None,
        };
        let outcome = outbox::send(&self.ctx, &message)?;
        Ok(matches!(outcome, SendOutcome::Sent(_)))
    }
}

impl MessageOutlet for OutboxOutlet {
    fn is_known(&self, chat: &ChatTarget) -> Result<bool, String> {
        let known = recipients::is_known(&self.ctx, &chat.channel, &chat.recipient);
        known.map_err(|error| format!("{error:#}"))
    }

    fn send(
        &self,
        chat: &ChatTarget,
        text: &str,
        files: Vec<NamedContent>,
    ) -> Result<bool, String> {
        self.send(chat, text, files)
            .map_err(|error| format!("{error:#}"))
    }
}
