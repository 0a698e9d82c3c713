//! The progress of a turn, in its chat: the typing indicator, the texts before tool calls, and the names of the tools.
//!
//! These messages are not in the journal. A message that cannot be sent is dropped.

use crate::ops::channel::open_channel::ChannelFiles;
use crate::ops::inbound::channel_run::LockedChannel;
use crate::ops::inbound::code_span;
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

/// Creates the observer of a turn, which passes on the texts for its chat.
pub(super) fn observer(files: &ChannelFiles, text_sender: Sender<String>) -> EventObserver {
    // In a mail, each text would be a mail of its own.
    let has_text = files.settings.send_progress && !files.kind.is_mail;
    let has_hints = files.settings.send_tool_hints && !files.kind.is_mail;
    Box::new(move |event| {
        let Event::Assistant { reply, is_final: false } = event else {
            return;
        };
        for text in progress_texts(reply, has_text, has_hints) {
            // The turn continues without a receiver.
            drop(text_sender.send(text));
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

/// Shows in the chat that turn `turn` is in progress, until all senders of `text_receiver` are dropped or `timeout` is over.
/// Returns false if it was over.
pub(super) fn show(
    channel: &LockedChannel,
    destination: &Destination,
    turn: &str,
    text_receiver: &Receiver<String>,
    timeout: Duration,
) -> bool {
    let end = signal::now() + timeout;
    let mut count = 0;
    loop {
        let is_open = !channel.is_closed_for(&destination.chat);
        if is_open {
            channel.open.service.show_typing(destination);
        }
        let left = end.saturating_sub(signal::now());
        if left.is_zero() {
            return false;
        }
        match text_receiver.recv_timeout(TYPING_INTERVAL.min(left)) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return true,
            Ok(_) if !is_open => {}
            Ok(text) => {
                for part in channel.open.files.render(&text) {
                    let key = format!("{turn}.progress{count}");
                    count += 1;
                    if let Err(error) = channel.open.service.send(destination, &part, &key) {
                        log::warn!(target: "channel", "{}: progress was not sent: {error}", channel.open.name());
                        if let ChannelError::RateLimited(limit, _) = error {
                            channel.limit(&destination.chat, limit);
                        }
                        break;
                    }
                }
            }
        }
    }
}
