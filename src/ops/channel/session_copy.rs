//! Messages that jobs, commands and other runs have sent to the chat of a session. They are added to the session when it
//! is opened, so that no delivery waits for the session's lock.

use crate::ops::context::Context;
use anyhow::Result;
use nanobot_channel::inbox::ChannelInbox;
use nanobot_channel::table;
use nanobot_store::session::{DeliveredMessage, KnownDeliveries, Session};

/// Maximum number of messages that a session of several chats remembers to have.
const MAX_KNOWN_MESSAGES: usize = 1000;

/// Appends to `session` the messages that were delivered to the chat with the key `chat` since it was last opened.
///
/// # Errors
/// The channel's journal cannot be read, or the session's log cannot be written.
pub(crate) fn add_sent_messages(ctx: &Context, session: &mut Session, chat: &str) -> Result<()> {
    let channel = chat.split_once(':').and_then(|(name, _)| table::find(name));
    let Some(channel) = channel else {
        return Ok(());
    };
    let state = ChannelInbox::read(&ctx.paths.channels().join(channel.name))?;
    let entries: Vec<_> = state.from_others(chat).collect();
    let deliveries = session.known_deliveries();
    let last = entries.iter().position(|entry| entry.message.key == deliveries.through);
    let mut new_deliveries =
        KnownDeliveries { through: deliveries.through.clone(), later: Vec::new() };
    let mut messages = Vec::new();
    // False once a message was not delivered yet: the messages after it are listed by key. Those of several chats have no order.
    let mut is_without_gap = session.key() == chat;
    if !is_without_gap {
        new_deliveries.later.clone_from(&deliveries.later);
    }
    for entry in &entries[last.map_or(0, |last| last + 1)..] {
        if entry.settlement.is_none() {
            is_without_gap = false;
            continue;
        }
        let text = entry.sent_text();
        if !text.is_empty()
            && !deliveries.later.contains(&entry.message.key)
            && let Some(source) = &entry.message.source
        {
            messages.push(DeliveredMessage {
                key: entry.message.key.clone(),
                source: source.name.clone(),
                origin: source.origin,
                text,
            });
        }
        if is_without_gap {
            new_deliveries.through.clone_from(&entry.message.key);
        } else if !new_deliveries.later.contains(&entry.message.key) {
            new_deliveries.later.push(entry.message.key.clone());
        }
    }
    let excess = new_deliveries.later.len().saturating_sub(MAX_KNOWN_MESSAGES);
    new_deliveries.later.drain(..excess);
    if messages.is_empty() {
        return Ok(());
    }
    session.append_delivered(&messages, new_deliveries)
}
