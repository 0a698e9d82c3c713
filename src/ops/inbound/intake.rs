//! Stores a batch of messages: decides about each sender, and writes the messages to answer into the journal.

use crate::ops::inbound::approval_answer;
use crate::ops::inbound::channel_run::{ChannelRun, LockedChannel};
use crate::ops::inbound::chat_command::{ChatCommand, id_text};
use crate::ops::inbound::work_queue::{SessionWork, WorkItem};
use anyhow::Result;
use nanobot_base::message::Origin;
use nanobot_base::message::user_text::UserText;
use nanobot_channel::access::{AccessDecision, AccessRules};
use nanobot_channel::inbox::{ChannelInbox, InboundEntry, InboxRecord, OutboundMessage};
use nanobot_channel::pairing::PairingFile;
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{Batch, Identity, InboundMessage};
use nanobot_os::digest::digest;
use std::collections::HashSet;
use std::sync::Arc;

/// Interval after which a refused sender is recorded again, in milliseconds.
const REFUSAL_RECORD_INTERVAL_MILLIS: i64 = 3_600_000;

/// The longest time between two parts of a text that a client has cut, in seconds.
const MAX_PART_INTERVAL_SECS: i64 = 5;

/// The answer to a message of a kind that is not supported.
const UNREADABLE: &str =
    "I cannot read a message of this kind. Please send it as text, a picture or a file.";

/// A session with an item of work.
pub(crate) type QueuedItem = (String, WorkItem);

/// Writes a batch into the journal, then the position after it. Returns the work. When this returns, the service may
/// forget the messages.
///
/// # Errors
/// Those of [`store_messages`]. The position cannot be written; the messages come again then.
pub(crate) fn store_batch(
    run: &ChannelRun<'_>,
    channel_index: usize,
    identity: &Identity,
    batch: &Batch,
) -> Result<Vec<QueuedItem>> {
    let work = store_messages(run, channel_index, &batch.messages)?;
    let files = &run.channel(channel_index).open.files;
    files.write_cursor(identity, &batch.cursor)?;
    Ok(work)
}

/// Writes messages into the journal. Returns the work.
///
/// # Errors
/// Status 74, or 78 for a damaged `pairing.json`. No message is stored then.
pub(crate) fn store_messages(
    run: &ChannelRun<'_>,
    channel_index: usize,
    messages: &[InboundMessage],
) -> Result<Vec<QueuedItem>> {
    let channel = run.channel(channel_index);
    let rules = channel.open.files.access_rules(run.ctx)?;
    let mut inbox = channel.inbox.lock();
    let mut intake = Intake::new(run, channel_index);
    for message in messages {
        intake.add(message, &rules, &inbox)?;
    }
    intake.write(&mut inbox)
}

/// Answers `/stop` among the work for messages that `serve webhook` has stored. Returns the work that is left.
///
/// # Errors
/// Status 74.
pub(crate) fn answer_stops(
    run: &ChannelRun<'_>,
    channel_index: usize,
    work: Vec<QueuedItem>,
) -> Result<Vec<QueuedItem>> {
    let mut inbox = run.channel(channel_index).inbox.lock();
    let mut intake = Intake::new(run, channel_index);
    for (session, item) in work {
        let entry = inbox.state().inbound(item.id());
        match entry.map(|entry| &entry.message) {
            Some(message) if is_stop(&message.text) => {
                intake.answer_stop(message, &session, &inbox);
            }
            _ => intake.work.push((session, item)),
        }
    }
    intake.write(&mut inbox)
}

/// A message whose text is as long as the service allows, or the last of several that are one text.
#[derive(Clone, Copy)]
struct FullPart {
    record_index: usize,
    /// In seconds since 1970.
    sent_at: i64,
}

struct Intake<'a> {
    run: &'a ChannelRun<'a>,
    channel_index: usize,
    channel: &'a LockedChannel,
    now: i64,
    /// The ids of the messages of this batch, and the keys of its pairing codes.
    ids: HashSet<String>,
    /// The sessions in which this batch reports that a message was too old.
    sessions_with_drop: HashSet<String>,
    records: Vec<InboxRecord>,
    work: Vec<QueuedItem>,
    /// The record of the last message, if its text is as long as the service allows: what follows may be the rest of it.
    full_part: Option<FullPart>,
    /// The work that `/stop` ends once this is on disk.
    stopped: Vec<Arc<SessionWork>>,
}

impl<'a> Intake<'a> {
    fn new(run: &'a ChannelRun<'a>, channel_index: usize) -> Self {
        Self {
            run,
            channel_index,
            channel: run.channel(channel_index),
            now: run.ctx.clock.timestamp().as_millisecond(),
            ids: HashSet::new(),
            sessions_with_drop: HashSet::new(),
            records: Vec::new(),
            work: Vec::new(),
            full_part: None,
            stopped: Vec::new(),
        }
    }

    /// Writes the records, ends the work that was stopped, and returns the new work.
    fn write(self, inbox: &mut ChannelInbox) -> Result<Vec<QueuedItem>> {
        inbox.append_all(self.records)?;
        for work in self.stopped {
            work.token.cancel();
        }
        Ok(self.work)
    }

    fn add(
        &mut self,
        message: &InboundMessage,
        rules: &AccessRules,
        inbox: &ChannelInbox,
    ) -> Result<()> {
        if message.is_edit {
            self.edit(message, inbox);
            return Ok(());
        }
        if inbox.state().has_seen(&message.id) {
            return Ok(());
        }
        let Some(message) = approval_answer::place_press(inbox.state(), message) else {
            return Ok(());
        };
        let message = &*message;
        if !self.ids.insert(message.id.clone()) {
            return Ok(());
        }
        match rules.decide(message) {
            AccessDecision::Ignore => Ok(()),
            AccessDecision::Refuse => {
                self.record_refusal(message, inbox);
                Ok(())
            }
            AccessDecision::Pair => {
                self.record_refusal(message, inbox);
                if message.press.is_some() { Ok(()) } else { self.offer_pairing(message, inbox) }
            }
            // In a group, such a message is usually meant for its other members.
            AccessDecision::Answer
                if message.is_unreadable && !message.chat.is_direct && !message.mentions_us =>
            {
                Ok(())
            }
            AccessDecision::Answer => {
                self.accept(message, inbox);
                Ok(())
            }
        }
    }

    /// Takes the new text of a message that no turn has begun to answer. It neither makes nor changes a command or an answer to a question.
    fn edit(&mut self, edit_message: &InboundMessage, inbox: &ChannelInbox) {
        let is_mail = self.channel.open.files.kind.is_mail;
        let is_text = |message: &InboundMessage| {
            matches!(message_item(message, is_mail), WorkItem::Message { may_join: true, .. })
        };
        // A text of several messages is not that of the edited one alone.
        let full_length = self.full_length().unwrap_or(usize::MAX);
        let is_edited = |message: &InboundMessage| {
            message.id == edit_message.id
                && length(&message.text) < full_length
                && message.chat.id == edit_message.chat.id
                && message.from.is_same(&edit_message.from)
                && is_text(message)
        };
        if edit_message.text.is_empty() || !is_text(edit_message) {
            return;
        }
        for record in &mut self.records {
            if let InboxRecord::In { message, .. } = record
                && is_edited(message)
            {
                message.text = edit_message.text.clone();
                return;
            }
        }
        let entry = inbox.state().inbound(&edit_message.id);
        let waits = |entry: &InboundEntry| {
            entry.is_unanswered() && entry.turns.is_empty() && is_edited(&entry.message)
        };
        if entry.is_some_and(waits) {
            let (id, text) = (edit_message.id.clone(), edit_message.text.clone());
            self.records.push(InboxRecord::Edited { id, text });
        }
    }

    /// The length from which on a text may be a part of a longer one: clients that cut between words stay a little below the limit.
    fn full_length(&self) -> Option<usize> {
        self.channel.open.files.kind.max_typed_length.map(|limit| limit - limit / 20)
    }

    /// Adds the rest of a text that the service has cut to the message before it. Returns false if it is no such rest.
    fn add_rest(&mut self, rest_message: &InboundMessage) -> bool {
        let limit = self.channel.open.files.kind.max_typed_length;
        let (Some(full_part), Some(limit)) = (self.full_part.take(), limit) else {
            return false;
        };
        let Some(InboxRecord::In { message, .. }) = self.records.get_mut(full_part.record_index)
        else {
            return false;
        };
        if rest_message.sent_at - full_part.sent_at > MAX_PART_INTERVAL_SECS
            || message.chat != rest_message.chat
            || !message.from.is_same(&rest_message.from)
            || !is_plain(rest_message)
        {
            return false;
        }
        // A client that has cut between words has left out the blank.
        let separator = if length(&message.text).is_multiple_of(limit) { "" } else { "\n" };
        let text = format!("{}{separator}{}", message.text.as_str(), rest_message.text.as_str());
        message.text = UserText::typed(text);
        self.records
            .push(InboxRecord::Settled { ids: vec![rest_message.id.clone()], at: self.now });
        true
    }

    fn accept(&mut self, message: &InboundMessage, inbox: &ChannelInbox) {
        let full_length = self.full_length();
        let is_full =
            is_plain(message) && full_length.is_some_and(|limit| length(&message.text) >= limit);
        let full_part =
            |record_index| is_full.then_some(FullPart { record_index, sent_at: message.sent_at });
        let first_index = self.full_part.map(|part| part.record_index);
        if self.add_rest(message) {
            self.full_part = first_index.and_then(full_part);
            return;
        }
        let session = self.channel.open.files.kind.session_key(&message.chat);
        let record_index = self.records.len();
        self.records.push(InboxRecord::In {
            message: message.clone(),
            session: session.clone(),
            at: self.now,
        });
        if self.is_stale(message) {
            self.records.push(InboxRecord::Dropped {
                ids: vec![message.id.clone()],
                result: Settlement::Stale,
            });
            let name = self.channel.open.name();
            self.run.ctx.notice(&format!(
                "channel {name}: a message in {session} is too old and was not answered"
            ));
            self.report_drop(message, &session);
            return;
        }
        if message.is_unreadable {
            self.answer_now(message, &session, UNREADABLE);
            return;
        }
        if is_stop(&message.text) && !self.run.only_stores {
            self.answer_stop(message, &session, inbox);
            return;
        }
        let item = message_item(message, self.channel.open.files.kind.is_mail);
        self.full_part = full_part(record_index);
        self.work.push((session, item));
    }

    fn answer_stop(&mut self, message: &InboundMessage, session: &str, inbox: &ChannelInbox) {
        let text =
            if self.stop(session, inbox) { "Stopped 1 task." } else { "No active task to stop." };
        self.answer_now(message, session, text);
    }

    /// Settles the messages that a session answers now. Returns false if there are none.
    fn stop(&mut self, session: &str, inbox: &ChannelInbox) -> bool {
        let Some(work) = self.run.queue.running(self.channel_index, session) else {
            return false;
        };
        let mut entries = work.unanswered(inbox);
        entries.retain(|entry| ChatCommand::parse(&entry.message.text).is_none());
        let is_stopped = self.stopped.iter().any(|stopped| Arc::ptr_eq(stopped, &work));
        if entries.is_empty() || is_stopped {
            return false;
        }
        self.records.push(InboxRecord::Dropped {
            ids: InboundEntry::ids_of(&entries),
            result: Settlement::Stopped,
        });
        self.stopped.push(work);
        true
    }

    fn is_stale(&self, message: &InboundMessage) -> bool {
        let limit = self.channel.open.files.settings.max_age_millis() / 1000;
        message.sent_at > 0
            && (self.now / 1000 - message.sent_at > limit
                || self.run.since.is_some_and(|since| message.sent_at < since))
    }

    /// Tells the sender that old messages are not answered, once for each batch and session.
    fn report_drop(&mut self, message: &InboundMessage, session: &str) {
        if self.channel.open.files.reports_drop(message)
            && self.run.since.is_none()
            && self.sessions_with_drop.insert(session.to_owned())
        {
            let key = format!("old.{}", &digest(message.id.as_bytes())[..16]);
            let text = "I did not answer a message from here that was too old when I saw it. Please send it again if it \
                        still matters.";
            self.send(message, Vec::new(), session, key, text);
        }
    }

    /// Answers without a model.
    fn answer_now(&mut self, message: &InboundMessage, session: &str, text: &str) {
        let (ids, key) = (vec![message.id.clone()], answer_key(&message.id));
        self.send(message, ids, session, key, text);
    }

    fn offer_pairing(&mut self, message: &InboundMessage, inbox: &ChannelInbox) -> Result<()> {
        let (name, now) = (self.channel.open.name(), self.now / 1000);
        let code = PairingFile::change(&self.run.ctx.paths.pairing(), |file| {
            file.code_for(name, &message.from.id, now)
        })?;
        let Some(code) = code else {
            return Ok(());
        };
        // If an earlier process was killed here, the code is valid and its message is not in the journal.
        let key = format!("pair.{code}");
        if inbox.state().outbound(&key).is_some() || !self.ids.insert(key.clone()) {
            return Ok(());
        }
        let text = format!(
            "I do not know you yet. Your pairing code is {code}\n\nThe owner of this bot can let you in within 10 \
             minutes: nanobot channel pair approve {code}\n\n{}",
            id_text(message)
        );
        let session = self.channel.open.files.kind.session_key(&message.chat);
        self.send(message, Vec::new(), &session, key, &text);
        Ok(())
    }

    /// Sends a text of this program to the chat of `message`. It answers the messages with the ids `answers`.
    fn send(
        &mut self,
        message: &InboundMessage,
        answers: Vec<String>,
        session: &str,
        key: String,
        text: &str,
    ) {
        let outbound = self.channel.open.render_message(message, session, &key, text);
        let origin = Some(Origin::User);
        self.records.push(InboxRecord::Out(OutboundMessage { answers, origin, ..outbound }));
        self.work.push((session.to_owned(), WorkItem::Deliver(key)));
    }

    fn record_refusal(&mut self, message: &InboundMessage, inbox: &ChannelInbox) {
        let is_recent = inbox.state().refused.iter().any(|refused| {
            refused.sender.is_same(&message.from)
                && self.now - refused.last_at < REFUSAL_RECORD_INTERVAL_MILLIS
        });
        if !is_recent {
            self.records.push(InboxRecord::Refused {
                sender: message.from.clone(),
                chat: message.chat.id.clone(),
                at: self.now,
            });
        }
    }
}

/// The work for an inbound message. A command, a message that may answer a question, and a mail have a turn of their own.
pub(crate) fn message_item(message: &InboundMessage, is_mail: bool) -> WorkItem {
    WorkItem::Message {
        id: message.id.clone(),
        sender: message.from.id.clone(),
        may_join: ChatCommand::parse(&message.text).is_none()
            && !approval_answer::stands_alone(&message.text)
            && !is_mail,
    }
}

/// True if the message has nothing but a text that its sender typed.
fn is_plain(message: &InboundMessage) -> bool {
    message.text.is_typed()
        && message.press.is_none()
        && message.files.is_empty()
        && message.quotes.is_empty()
}

/// The length of a text as services count it.
fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

fn is_stop(text: &str) -> bool {
    ChatCommand::parse(text).is_some_and(|command| command.is_stop())
}

/// The key of an answer that does not come from a turn.
pub(crate) fn answer_key(id: &str) -> String {
    format!("re.{}", &digest(id.as_bytes())[..16])
}
