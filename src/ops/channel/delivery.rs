//! Sends the parts of an outbound message that were not sent yet.

use crate::ops::channel::attachments;
use crate::ops::channel::open_channel::OpenChannel;
use anyhow::Result;
use nanobot_base::error::Stop;
use nanobot_channel::inbox::{ChannelInbox, InboxRecord, OutboundEntry};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{Channel, ChannelError, ChannelResult, InboundMessage, Part};
use parking_lot::Mutex;

/// Age at which an outbound message is given up, in milliseconds: a day.
const MAX_OUTBOUND_AGE_MILLIS: i64 = 24 * 3_600_000;

/// Sends the outbound message `key`, part by part, and settles it. Each step is on disk before the next. Copies of files
/// are removed once it is delivered. Returns the service's ids of all parts.
///
/// # Errors
/// A part was not sent. The status depends on the failure: 65 and 77 for a recipient that cannot be reached, which settles the message.
/// With 69, 75, 77 for a rejected token, and 78, the message waits for the next poll.
pub(crate) fn deliver(
    channel: &OpenChannel,
    inbox: &Mutex<ChannelInbox>,
    key: &str,
) -> Result<Vec<String>> {
    let entry = inbox.lock().begin_delivery(key);
    let Some(entry) = entry else {
        return Ok(Vec::new());
    };
    if entry.settlement.is_some() {
        return Ok(entry.sent.into_values().collect());
    }
    let service = &*channel.service;
    match send_parts(service, inbox, &entry) {
        Ok(remote_ids) => {
            // Once the message is settled, the inbox may drop the messages that it answers.
            let answered_messages = find_answered_messages(&inbox.lock(), &entry);
            settle(inbox, &entry, Settlement::Delivered)?;
            for part in &entry.message.parts {
                for file in part.file.iter().chain(&part.attached) {
                    attachments::remove_copy(&channel.files.media, file);
                }
            }
            for message in &answered_messages {
                service.mark_answered(message);
            }
            Ok(remote_ids)
        }
        Err(error) => {
            // A signal is not a failure of the service.
            let is_stop = matches!(&error, ChannelError::Other(error) if error.is::<Stop>());
            let is_too_old =
                channel.files.now() - entry.message.at > MAX_OUTBOUND_AGE_MILLIS && !is_stop;
            let settlement = match &error {
                ChannelError::RecipientRefused(_) => Some(Settlement::Refused),
                ChannelError::Undeliverable(_) => Some(Settlement::GivenUp),
                _ => None,
            };
            let settlement = settlement.or(is_too_old.then_some(Settlement::GivenUp));
            if let Some(settlement) = settlement {
                settle(inbox, &entry, settlement)?;
            }
            let state = match settlement {
                Some(_) => "a message was given up",
                None => "a message waits to be sent",
            };
            Err(anyhow::Error::from(error).context(state))
        }
    }
}

/// The messages that an outbound message answers.
fn find_answered_messages(inbox: &ChannelInbox, entry: &OutboundEntry) -> Vec<InboundMessage> {
    let ids = entry.message.answers.iter();
    ids.filter_map(|id| Some(inbox.state().inbound(id)?.message.clone())).collect()
}

fn send_parts(
    service: &dyn Channel,
    inbox: &Mutex<ChannelInbox>,
    entry: &OutboundEntry,
) -> ChannelResult<Vec<String>> {
    let mut remote_ids = Vec::new();
    for (number, part) in entry.message.parts.iter().enumerate() {
        if let Some(remote_id) = entry.sent.get(&number) {
            remote_ids.push(remote_id.clone());
            continue;
        }
        let remote_id = send_part(service, entry, number, part)?;
        remote_ids.push(remote_id.clone());
        inbox.lock().append(InboxRecord::Sent {
            key: entry.message.key.clone(),
            part: number,
            remote: remote_id,
        })?;
    }
    Ok(remote_ids)
}

/// Sends a part, the first one in the place of the draft. Returns the service's id.
fn send_part(
    service: &dyn Channel,
    entry: &OutboundEntry,
    number: usize,
    part: &Part,
) -> ChannelResult<String> {
    let destination = &entry.message.destination;
    let draft = entry.message.draft.as_ref().filter(|_| number == 0 && part.file.is_none());
    if let Some(draft) = draft {
        match service.edit(destination, draft, part) {
            Ok(()) => return Ok(draft.clone()),
            // It was removed, or is too old to be changed.
            Err(ChannelError::Undeliverable(cause) | ChannelError::RecipientRefused(cause)) => {
                log::info!(target: "channel", "a draft was not replaced: {cause}");
            }
            Err(error) => return Err(error),
        }
    }
    let key = entry.part_key(number);
    // An earlier process may have been killed between the sending and its record.
    let sent_id = if entry.is_untried { None } else { service.find_sent(destination, &key)? };
    match sent_id {
        Some(remote_id) => Ok(remote_id),
        None => service.send(destination, part, &key),
    }
}

fn settle(
    inbox: &Mutex<ChannelInbox>,
    entry: &OutboundEntry,
    settlement: Settlement,
) -> Result<()> {
    inbox.lock().append(InboxRecord::Done { key: entry.message.key.clone(), result: settlement })
}
