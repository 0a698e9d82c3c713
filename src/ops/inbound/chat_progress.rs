//! The progress of a turn, in its chat: the typing indicator, the texts before tool calls, and the names of the tools.
//!
//! These messages are not in the journal. A message that cannot be sent is dropped.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::inbound::channel_run::LockedChannel;
use crate::ops::inbound::code_span;
use crate::ops::inbound::draft::{AnswerDraft, TextDelta};
use nanobot_agent::report::EventObserver;
use nanobot_agent::report::short_text::call_hint_within;
use nanobot_base::event::Event;
use nanobot_base::message::Reply;
use nanobot_channel::{ChannelError, Destination};
use nanobot_os::signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Interval at which the typing indicator is renewed; Telegram shows it for five seconds.
const TYPING_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum characters of an argument in a hint.
const MAX_ARGUMENT_CHARS: usize = 40;

/// Something that a chat shows of a turn.
pub(super) enum ProgressItem {
    /// A message.
    Text(String),
    /// A piece for the draft.
    Delta(TextDelta),
}

/// Creates the observer of a turn, which passes on what its chat shows. `has_draft` is true if it shows the draft of the answer.
pub(super) fn observer(
    files: &ChannelFiles,
    has_draft: bool,
    item_sender: Sender<ProgressItem>,
) -> EventObserver {
    // In a mail, each text would be a mail of its own; and a draft has shown it.
    let has_text = files.settings.send_progress && !files.kind.is_mail && !has_draft;
    let has_hints = files.settings.send_tool_hints && !files.kind.is_mail;
    Box::new(move |event| {
        let items = match event {
            Event::Text { message_id, text } if has_draft => {
                let (reply, text) = ((*message_id).to_owned(), (*text).to_owned());
                vec![ProgressItem::Delta(TextDelta { reply, text })]
            }
            Event::Assistant { reply, is_final: false } => {
                let texts = progress_texts(reply, has_text, has_hints).into_iter();
                texts.map(ProgressItem::Text).collect()
            }
            _ => Vec::new(),
        };
        for item in items {
            // The turn continues without a receiver.
            drop(item_sender.send(item));
        }
    })
}

fn progress_texts(reply: &Reply, has_text: bool, has_hints: bool) -> Vec<String> {
    let text = reply.text.trim();
    let calls = reply.tool_calls.iter();
    let hints: Vec<String> = calls
        .map(|call| call_hint_within(&call.name, &call.arguments, MAX_ARGUMENT_CHARS))
        .collect();
    let text = (has_text && !text.is_empty()).then(|| text.to_owned());
    let hints = (has_hints && !hints.is_empty()).then(|| code_span(&hints.join(", ")));
    text.into_iter().chain(hints).collect()
}

/// Shows in the chat that turn `turn` is in progress, until all senders of `items` are dropped or `timeout` is over.
/// Returns false if it was over.
pub(super) fn show(
    channel: &LockedChannel,
    destination: &Destination,
    turn: &str,
    mut draft: Option<AnswerDraft<'_>>,
    items: &Receiver<ProgressItem>,
    timeout: Duration,
) -> bool {
    let end = signal::now() + timeout;
    let (mut count, mut typing_at) = (0, Duration::ZERO);
    loop {
        let is_open = !channel.is_closed_for(&destination.chat);
        let now = signal::now();
        if now >= typing_at {
            if is_open {
                channel.open.service.show_typing(destination);
            }
            typing_at = now + TYPING_INTERVAL;
        }
        let due_at = draft.as_ref().and_then(AnswerDraft::due_at).unwrap_or(Duration::MAX);
        if signal::now() >= due_at
            && let Some(due_draft) = &mut draft
            && let Err(error) = due_draft.show()
        {
            log::warn!(target: "channel", "{}: a draft was not shown: {error:#}", channel.open.name());
            draft = None;
        }
        let now = signal::now();
        if now >= end {
            return false;
        }
        let due_at = draft.as_ref().and_then(AnswerDraft::due_at).unwrap_or(Duration::MAX);
        match items.recv_timeout(end.min(typing_at).min(due_at).saturating_sub(now)) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
            Ok(ProgressItem::Delta(delta)) => {
                if let Some(draft) = &mut draft {
                    draft.add(delta);
                }
            }
            Ok(ProgressItem::Text(_)) if !is_open => {}
            Ok(ProgressItem::Text(text)) => {
                count += send_text(channel, destination, turn, count, &text);
                typing_at = Duration::ZERO;
            }
        }
    }
}

/// Sends a text in parts, of which `count` were sent before. Returns the number of parts that were tried.
fn send_text(
    channel: &LockedChannel,
    destination: &Destination,
    turn: &str,
    count: usize,
    text: &str,
) -> usize {
    let mut tried_parts = 0;
    for part in channel.open.files.render(text) {
        let key = format!("{turn}.progress{}", count + tried_parts);
        tried_parts += 1;
        if let Err(error) = channel.open.service.send(destination, &part, &key) {
            log::warn!(target: "channel", "{}: progress was not sent: {error}", channel.open.name());
            if let ChannelError::RateLimited(limit, _) = error {
                channel.limit(&destination.chat, limit);
            }
            break;
        }
    }
    tried_parts
}
