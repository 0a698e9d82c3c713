//! Messages that are not answers: messages of `channel send`, of jobs, of the tool `message`, and of `channel retry`.

use crate::ops::channel::attachments;
use crate::ops::channel::delivery;
use crate::ops::channel::health;
use crate::ops::channel::open_channel::{ChannelFiles, OpenChannel};
use crate::ops::channel::recipients;
use crate::ops::context::{Context, report_error};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, Stop, WithHint as _, exit_for, fail};
use nanobot_base::message::Origin;
use nanobot_channel::inbox::{
    ChannelInbox, InboundEntry, InboxRecord, InboxState, OutboundMessage,
};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{Chat, Destination, MessageSource, Part, RateLimit};
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use nanobot_os::secret::random_hex;
use nanobot_tool::message::{ChatTarget, MessageOutlet, NamedContent};
use parking_lot::Mutex;
use std::io::{Cursor, Read};
use std::path::Path;
use std::time::Duration;

/// The beginning of the keys of messages that are not answers.
const KEY_PREFIX: &str = "send.";
/// The name of the lock of the outbox, in the directory of its channel.
pub(crate) const LOCK_NAME: &str = "outbox.lock";
/// Maximum wait for the lock of the outbox, which another process holds while it sends.
const OUTBOX_LOCK_TIMEOUT: Duration = Duration::from_secs(120);

/// A message to be sent by the user or a job.
#[derive(Default)]
pub(crate) struct OutboxMessage {
    /// The channel's name.
    pub(crate) channel: String,
    /// The chat, as the service's adapter reads it.
    pub(crate) to: String,
    pub(crate) markdown: String,
    pub(crate) files: Vec<OutboxFile>,
    /// A key under which the message is sent once.
    pub(crate) key: Option<String>,
    /// Reach only loopback addresses.
    pub(crate) is_offline: bool,
    /// Sent by a turn to the chat that it answers.
    pub(crate) is_in_conversation: bool,
    /// The sender, for the session of the chat. `None` if the session has the message already.
    pub(crate) source: Option<MessageSource>,
}

/// A file of a message.
pub(crate) struct OutboxFile {
    name: String,
    content: Box<dyn Read>,
}

impl OutboxFile {
    /// Opens a file of the user.
    ///
    /// # Errors
    /// Status 66 if there is no such file, 74 if it cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = if path.is_file() { path.file_name() } else { None };
        let file = durable_file::open_existing(path)?;
        let (Some(name), Some(file)) = (name, file) else {
            let cause = format!("`{}` is not a file", path.display());
            return Err(fail(Exit::NoInput, cause));
        };
        Ok(Self { name: name.to_string_lossy().into_owned(), content: Box::new(file) })
    }

    /// A file with this content.
    fn new((name, content): NamedContent) -> Self {
        Self { name, content: Box::new(Cursor::new(content)) }
    }
}

/// The state of a message after an attempt to send it.
pub(crate) enum SendOutcome {
    /// The service's ids of its parts.
    Sent(Vec<String>),
    /// The service cannot take it now, for this reason; the next message or poll of the channel sends it.
    Waits(anyhow::Error),
}

fn empty_message_error() -> anyhow::Error {
    fail(Exit::NoInput, "nothing to send")
        .with_hint("a text as argument or on standard input, or a file")
}

/// Sends a message, which is on disk before it is sent, with copies of its files.
///
/// # Errors
/// The errors of `delivery::deliver`; status 66 if there is nothing to send.
pub(crate) fn send(ctx: &Context, message: OutboxMessage) -> Result<SendOutcome> {
    let files = ChannelFiles::load(ctx, &message.channel)?;
    if message.markdown.trim().is_empty() && message.files.is_empty() {
        return Err(empty_message_error());
    }
    let network = ctx.settings()?.network;
    let network = if message.is_offline { network.offline() } else { network };
    let channel = files.open(ctx, network)?;
    let _lock = lock(&channel, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = channel.files.open_inbox()?;
    let key = match &message.key {
        Some(key) => format!("{KEY_PREFIX}{key}"),
        None => generate_key(),
    };
    if inbox.state().outbound(&key).is_none() {
        let chat = channel.files.kind.parse_chat(&message.to);
        let mut parts = channel.files.render(&message.markdown);
        parts.retain(|part| !part.plain.trim().is_empty());
        for OutboxFile { name, mut content } in message.files {
            let copy = attachments::store_copy(&channel.files.media, &name, &mut content)?;
            if channel.files.kind.is_mail
                && let Some(mail) = parts.first_mut()
            {
                mail.attached.push(copy);
            } else {
                parts.push(Part { file: Some(copy), ..Part::default() });
            }
        }
        if parts.is_empty() {
            return Err(empty_message_error());
        }
        let session = channel.files.kind.session_key(&chat);
        // A mail belongs to the thread of the mail that it answers.
        let is_reply = message.is_in_conversation && channel.files.kind.is_mail;
        let mut entries = inbox.state().inbound.iter().rev();
        let reply_facts = entries
            .find(|entry| is_reply && entry.session == session)
            .map(|entry| entry.message.reply_facts.clone())
            .unwrap_or_default();
        inbox.append(InboxRecord::Out(OutboundMessage {
            key: key.clone(),
            session,
            destination: Destination { chat, reply_facts },
            parts,
            at: channel.files.now(),
            source: message.source,
            ..OutboundMessage::default()
        }))?;
    }
    deliver(ctx, &channel, inbox, &key)
}

/// Sends a message of the journal that waits, was given up or failed: the parts that the service has not taken. Messages
/// without an answer wait for the next poll.
///
/// # Errors
/// Status 66 for an unknown key, and if no part is left to send. Status 75 for an answer while a poll runs, because the poll sends it, and
/// for an inbound message that waits for its answer. The errors of [`send`].
pub(crate) fn retry(ctx: &Context, name: &str, key: &str) -> Result<SendOutcome> {
    let channel = ChannelFiles::load(ctx, name)?.open(ctx, ctx.settings()?.network)?;
    let _poll_lock =
        if is_in_outbox(key) { None } else { Some(channel.files.lock(Duration::ZERO)?) };
    let _lock = lock(&channel, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = channel.files.open_inbox()?;
    let Some(entry) = inbox.state().outbound(key).cloned() else {
        return Err(not_outbound_error(name, key, inbox.state()));
    };
    if entry.settlement.is_some_and(|settlement| settlement != Settlement::Delivered) {
        let mut parts = Vec::new();
        for (number, part) in entry.message.parts.into_iter().enumerate() {
            if !entry.sent.contains_key(&number) {
                parts.push(part);
            }
        }
        if parts.is_empty() || entry.settlement == Some(Settlement::Retried) {
            let cause = format!("the message `{key}` has nothing left to send");
            return Err(fail(Exit::NoInput, cause));
        }
        // It gets a new entry, since a settled one stays settled.
        let copy_key = generate_key();
        let copy = InboxRecord::Out(OutboundMessage {
            key: copy_key.clone(),
            answers: Vec::new(),
            parts,
            at: channel.files.now(),
            ..entry.message
        });
        let settlement = InboxRecord::Done { key: key.to_owned(), result: Settlement::Retried };
        inbox.append_all(vec![copy, settlement])?;
        return deliver(ctx, &channel, inbox, &copy_key);
    }
    deliver(ctx, &channel, inbox, key)
}

/// Lets the next poll answer an inbound message that was dropped because it was too old or a limit was reached. Returns
/// false if there is no such message.
///
/// # Errors
/// Status 74, or 75 while another process rewrites the journal.
pub(crate) fn reopen(ctx: &Context, name: &str, id: &str) -> Result<bool> {
    let files = ChannelFiles::load(ctx, name)?;
    let _lock = lock_files(&files, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = files.open_inbox()?;
    let is_dropped = inbox.state().inbound(id).is_some_and(InboundEntry::is_dropped);
    if is_dropped {
        inbox.append(InboxRecord::Reopened { id: id.to_owned(), at: files.now() })?;
    }
    Ok(is_dropped)
}

/// Removes a message from the list of messages that wait, were given up or failed. It is neither sent nor answered.
///
/// # Errors
/// The errors of [`reopen`]; status 66 if there is no such message.
pub(crate) fn dismiss(ctx: &Context, name: &str, id: &str) -> Result<()> {
    let files = ChannelFiles::load(ctx, name)?;
    let _lock = lock_files(&files, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = files.open_inbox()?;
    let result = Settlement::Dismissed;
    let record = if inbox.state().outbound(id).is_some() {
        InboxRecord::Done { key: id.to_owned(), result }
    } else {
        InboxRecord::Dropped { ids: vec![id.to_owned()], result }
    };
    inbox.append(record)
}

/// The error about `key`, which is not the key of an outbound message. Only polls answer inbound messages, under the limits
/// of their senders.
fn not_outbound_error(name: &str, key: &str, state: &InboxState) -> anyhow::Error {
    match state.inbound(key).map(|entry| entry.settlement) {
        Some(None) => fail(Exit::TryAgain, format!("`{key}` waits for its answer"))
            .with_hint(format!("`nanobot channel poll {name}`")),
        None | Some(Some(_)) => {
            let cause = format!("the channel {name} has no message `{key}` that waits or failed");
            fail(Exit::NoInput, cause).with_hint("`nanobot channel inbox` for the ids")
        }
    }
}

/// Sends the message `key`, after all messages of the outbox that wait, in their order: without a poll, nothing else
/// sends them, and no message overtakes an earlier one. The caller holds the lock of the outbox.
fn deliver(
    ctx: &Context,
    channel: &OpenChannel,
    inbox: ChannelInbox,
    key: &str,
) -> Result<SendOutcome> {
    let inbox = Mutex::new(inbox);
    let sent = send_earlier(ctx, channel, &inbox, key)
        .and_then(|()| delivery::deliver(channel, &inbox, key));
    let is_waiting = inbox.lock().state().waits(key);
    match &sent {
        Ok(_) => health::record_delivery(ctx, channel, None),
        Err(error) if is_waiting && !error.is::<Stop>() => {
            health::record_delivery(ctx, channel, Some(error));
        }
        Err(_) => {}
    }
    match sent.with_context(|| format!("channel {}", channel.name())) {
        Ok(ids) => Ok(SendOutcome::Sent(ids)),
        Err(error) if exit_for(&error).is_temporary() => Ok(SendOutcome::Waits(error)),
        Err(error) => Err(error),
    }
}

/// Sends the messages of the outbox that wait and come before the message `key`. A message that is given up is reported.
///
/// # Errors
/// An earlier message still waits, so the message `key` has to wait as well. A rate limit of another chat does not matter.
fn send_earlier(
    ctx: &Context,
    channel: &OpenChannel,
    inbox: &Mutex<ChannelInbox>,
    key: &str,
) -> Result<()> {
    let (chat, earlier) = {
        let inbox = inbox.lock();
        let state = inbox.state();
        let Some(entry) = state.outbound(key).filter(|entry| entry.settlement.is_none()) else {
            return Ok(());
        };
        let earlier: Vec<OutboundMessage> = state
            .undelivered()
            .map(|entry| &entry.message)
            .take_while(|message| message.key != key)
            .filter(|message| is_in_outbox(&message.key))
            .cloned()
            .collect();
        (entry.message.destination.chat.clone(), earlier)
    };
    let mut limited_chats: Vec<Chat> = Vec::new();
    for message in earlier {
        let earlier_chat = message.destination.chat;
        if limited_chats.contains(&earlier_chat) {
            continue;
        }
        let Err(error) = delivery::deliver(channel, inbox, &message.key) else {
            continue;
        };
        let waits = inbox.lock().state().waits(&message.key);
        if !waits {
            report_error(&error.context(format!("channel {}", channel.name())), ctx.terminal);
        } else if error.is::<RateLimit>() && earlier_chat != chat {
            limited_chats.push(earlier_chat);
        } else {
            return Err(error);
        }
    }
    Ok(())
}

/// Takes the lock under which messages of the outbox are sent.
///
/// # Errors
/// Status 75 if another process holds it for longer than `timeout`.
pub(crate) fn lock(channel: &OpenChannel, timeout: Duration) -> Result<FileLock> {
    lock_files(&channel.files, timeout)
}

fn lock_files(files: &ChannelFiles, timeout: Duration) -> Result<FileLock> {
    durable_file::create_dir(&files.directory)?;
    let path = files.directory.join(LOCK_NAME);
    FileLock::acquire(&path, "the outbox", None, timeout, &mut |_| {})
}

/// True for the key of a message that any process may send, under the lock of the outbox. Only the poll sends the other
/// messages, under the channel's lock.
pub(crate) fn is_in_outbox(key: &str) -> bool {
    key.starts_with(KEY_PREFIX)
}

fn generate_key() -> String {
    format!("{KEY_PREFIX}{}", random_hex(8))
}

/// The outbox of all channels, for the tool `message`.
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
                job: None,
            }),
        };
        let outcome = send(&self.ctx, message)?;
        Ok(matches!(outcome, SendOutcome::Sent(_)))
    }
}
