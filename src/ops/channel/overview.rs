//! Facts about channels for people: the config without secrets, and the messages that wait.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::context::Context;
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nanobot_channel::inbox::{ChannelInbox, InboxState};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::table::CHANNELS;
use nanobot_channel::{Identity, InboundMessage};

/// A message that waits, was given up or failed.
pub(crate) struct WaitingMessage {
    pub(crate) channel: &'static str,
    /// The id; `channel retry` takes the id of an outbound message.
    pub(crate) id: String,
    pub(crate) session: String,
    /// `unanswered`, `undelivered`, or the name of a [`Settlement`].
    pub(crate) state: &'static str,
    pub(crate) at: Option<Timestamp>,
    pub(crate) text: String,
}

/// The journal of a channel, with its config.
///
/// # Errors
/// The config or the journal cannot be read. Status 2 for an unknown name.
pub(crate) fn show(ctx: &Context, name: &str) -> Result<(ChannelFiles, InboxState)> {
    let files = ChannelFiles::load(ctx, name)?;
    let inbox = ChannelInbox::read(&files.directory)?;
    Ok((files, inbox))
}

/// Asks the service for our account. Nothing is sent or stored.
///
/// # Errors
/// The errors of the service.
pub(crate) fn test(ctx: &Context, name: &str) -> Result<Identity> {
    let channel = ChannelFiles::load(ctx, name)?.open(ctx, ctx.settings()?.network)?;
    channel.service.test().with_context(|| format!("channel {name}"))
}

/// The messages that wait, were given up or failed, of one channel or of all.
///
/// # Errors
/// The errors of [`show`].
pub(crate) fn waiting(ctx: &Context, name: Option<&str>) -> Result<Vec<WaitingMessage>> {
    let names: Vec<&str> = match name {
        Some(name) => vec![name],
        None => CHANNELS.iter().map(|kind| kind.name).collect(),
    };
    let mut messages = Vec::new();
    for name in names {
        let (files, state) = show(ctx, name)?;
        messages.extend(waiting_in(files.kind.name, &state));
    }
    Ok(messages)
}

fn waiting_in(channel: &'static str, state: &InboxState) -> Vec<WaitingMessage> {
    let to_timestamp = |millis: i64| Timestamp::from_millisecond(millis).ok();
    let mut messages = Vec::new();
    for entry in &state.inbound {
        let InboundMessage { id, text, .. } = &entry.message;
        let state_name = match (entry.settlement, &entry.answer) {
            (None, None) => "unanswered",
            (Some(settlement), None) if settlement.is_dropped() => settlement.name(),
            _ => continue,
        };
        messages.push(WaitingMessage {
            channel,
            id: id.clone(),
            session: entry.session.clone(),
            state: state_name,
            at: to_timestamp(entry.received_at),
            text: text.as_str().to_owned(),
        });
    }
    for entry in &state.outbound {
        let state_name = match entry.settlement {
            None => "undelivered",
            Some(Settlement::Delivered | Settlement::Dismissed) => continue,
            Some(settlement) => settlement.name(),
        };
        let text: Vec<&str> = entry.message.parts.iter().map(|part| part.plain.as_str()).collect();
        messages.push(WaitingMessage {
            channel,
            id: entry.message.key.clone(),
            session: entry.message.session.clone(),
            state: state_name,
            at: to_timestamp(entry.message.at),
            text: text.join("\n"),
        });
    }
    messages
}
