//! Sends the parts of an outbound message that were not sent yet.

use crate::ops::channel::attachments;
use crate::ops::channel::open_channel::OpenChannel;
use anyhow::Result;
use nanobot_base::error::Stop;
use nanobot_channel::inbox::{ChannelInbox, InboxRecord, OutboundEntry};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{Channel, ChannelError, ChannelResult, InboundMessage};
use nanobot_os::sync::IgnorePoison;
use std::sync::Mutex;

/// Age at which an outbound message is given up, in milliseconds: a day.
const MAX_OUTBOUND_AGE_MILLIS: i64 = 24 * 3_600_000;

/// Sends the outbound message `key`, part by part, and settles it. Each step is on disk before the next. Copies of files
/// are removed once it is delivered. Returns the service's ids of all parts.
///
/// # Errors
/// A part was not sent. The status is that of the failure: 65 and 77 for a recipient that cannot be reached, which
/// settles the message; with 69, 75, 77 for a rejected token and 78 it waits for the next poll.
pub(crate) fn deliver(
    open: &OpenChannel,
    inbox: &Mutex<ChannelInbox>,
    key: &str,
    now: i64,
) -> Result<Vec<String>> {
    let entry = inbox.lock().ignore_poison().begin_delivery(key);
    let Some(entry) = entry else {
        return Ok(Vec::new());
    };
    if entry.settlement.is_some() {
        return Ok(entry.sent.into_values().collect());
    }
    let service = &*open.service;
    match send_parts(service, inbox, &entry) {
        Ok(remote_ids) => {
            // Once it is settled, the inbox may forget what it answers.
            let answered = answered_messages(&inbox.lock().ignore_poison(), &entry);
            settle(inbox, &entry, Settlement::Delivered)?;
            let files =
                entry.message.parts.iter().flat_map(|part| part.file.iter().chain(&part.attached));
            files.for_each(|file| attachments::remove_copy(&open.files.media, file));
            answered.iter().for_each(|it| service.mark_answered(it));
            Ok(remote_ids)
        }
        Err(error) => {
            // The end of this run says nothing about the service.
            let is_stop = matches!(&error, ChannelError::Other(error) if error.is::<Stop>());
            let is_too_old = now - entry.message.at > MAX_OUTBOUND_AGE_MILLIS && !is_stop;
            let result = match &error {
                ChannelError::RecipientRefused(_) => Some(Settlement::Refused),
                ChannelError::Undeliverable(_) => Some(Settlement::GivenUp),
                _ => None,
            };
            let result = result.or(is_too_old.then_some(Settlement::GivenUp));
            if let Some(result) = result {
                settle(inbox, &entry, result)?;
            }
            let state = match result {
                Some(_) => "a message was given up",
                None => "a message waits to be sent",
            };
            Err(anyhow::Error::from(error).context(state))
        }
    }
}

/// The messages that an outbound message answers.
fn answered_messages(inbox: &ChannelInbox, entry: &OutboundEntry) -> Vec<InboundMessage> {
    let answered = entry.message.answers.iter();
    let answered = answered.filter_map(|id| inbox.state().inbound(id));
    answered.map(|it| it.message.clone()).collect()
}

fn send_parts(
    service: &dyn Channel,
    inbox: &Mutex<ChannelInbox>,
    entry: &OutboundEntry,
) -> ChannelResult<Vec<String>> {
    let mut remote_ids = Vec::new();
    for (number, part) in entry.message.parts.iter().enumerate() {
        if let Some(remote) = entry.sent.get(&number) {
            remote_ids.push(remote.clone());
            continue;
        }
        let key = entry.part_key(number);
        let found = if entry.is_untried {
            None
        } else {
            service.find_sent(&entry.message.destination, &key)?
        };
        let remote = match found {
            Some(remote) => remote,
            None => service.send(&entry.message.destination, part, &key)?,
        };
        remote_ids.push(remote.clone());
        inbox.lock().ignore_poison().append(InboxRecord::Sent {
            key: entry.message.key.clone(),
            part: number,
            remote,
        })?;
    }
    Ok(remote_ids)
}

fn settle(inbox: &Mutex<ChannelInbox>, entry: &OutboundEntry, result: Settlement) -> Result<()> {
    inbox
        .lock()
        .ignore_poison()
        .append(InboxRecord::Done { key: entry.message.key.clone(), result })
}
