//! Messages that answer none: `channel send`, jobs, and `channel retry`.

use crate::ops::channel::attachments;
use crate::ops::channel::delivery;
use crate::ops::channel::health;
use crate::ops::channel::open_channel::{ChannelFiles, OpenChannel};
use crate::ops::context::{Context, report_error};
use anyhow::{Context as _, Result};
use nanobot_base::error::{Exit, Stop, exit_for, fail, fail_with_hint};
use nanobot_channel::inbox::{
    ChannelInbox, InboundEntry, InboxRecord, InboxState, OutboundMessage,
};
use nanobot_channel::settlement::Settlement;
use nanobot_channel::{Chat, Destination, MessageSource, Part, RateLimit};
use nanobot_os::durable_file;
use nanobot_os::file_lock::FileLock;
use nanobot_os::secret::random_hex;
use nanobot_os::sync::IgnorePoison;
use nanobot_tool::message::NamedContent;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// The beginning of the keys of messages that answer none.
const KEY_PREFIX: &str = "send.";
/// Timeout for the outbox while another process sends.
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
    /// The sender, for the session of the chat, unless that has the message already.
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
        let name = path.file_name().filter(|_| path.is_file());
        let file = durable_file::open_existing(path)?;
        let (Some(name), Some(file)) = (name, file) else {
            let cause = format!("`{}` is not a file", path.display());
            return Err(fail(Exit::NoInput, cause));
        };
        Ok(Self { name: name.to_string_lossy().into_owned(), content: Box::new(file) })
    }

    /// A file with this content.
    pub(crate) fn new((name, content): NamedContent) -> Self {
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

/// Sends a message, which is on disk before it is sent, with copies of its files.
///
/// # Errors
/// As `delivery::deliver`; status 66 if there is nothing to send.
pub(crate) fn send(ctx: &Context, message: OutboxMessage) -> Result<SendOutcome> {
    let files = ChannelFiles::load(ctx, &message.channel)?;
    if message.markdown.trim().is_empty() && message.files.is_empty() {
        return Err(fail(Exit::NoInput, "nothing to send"));
    }
    let network = ctx.settings()?.network;
    let network = if message.is_offline { network.offline() } else { network };
    let open = files.open(ctx, network)?;
    let _lock = lock(&open, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = open.files.open_inbox()?;
    let key = match &message.key {
        Some(key) => format!("{KEY_PREFIX}{key}"),
        None => new_key(),
    };
    if inbox.state().outbound(&key).is_none() {
        let chat = open.files.kind.parse_chat(&message.to);
        let mut parts = open.files.render(&message.markdown);
        parts.retain(|part| !part.plain.trim().is_empty());
        for OutboxFile { name, mut content } in message.files {
            let copy = attachments::store_copy(&open.files.media, &name, &mut content)?;
            match parts.first_mut().filter(|_| open.files.kind.is_mail) {
                Some(mail) => mail.attached.push(copy),
                None => parts.push(Part { file: Some(copy), ..Part::default() }),
            }
        }
        if parts.is_empty() {
            return Err(fail(Exit::NoInput, "nothing to send"));
        }
        let session = open.files.kind.session_key(&chat);
        // A mail belongs to the thread of the mail that it answers.
        let is_reply = message.is_in_conversation && open.files.kind.is_mail;
        let answered = inbox.state().inbound.iter().rev();
        let answered = answered.filter(|_| is_reply).find(|it| it.session == session);
        let reply_facts = answered.map(|it| it.message.reply_facts.clone());
        inbox.append(InboxRecord::Out(OutboundMessage {
            key: key.clone(),
            session,
            destination: Destination { chat, reply_facts: reply_facts.unwrap_or_default() },
            parts,
            at: ctx.clock.timestamp().as_millisecond(),
            source: message.source,
            ..OutboundMessage::default()
        }))?;
    }
    deliver(ctx, &open, inbox, &key)
}

/// Sends a message of the journal that waits, was given up or failed: the parts that the service has not taken. Messages
/// without an answer wait for the next poll.
///
/// # Errors
/// Status 66 for an unknown key, and if no part is left to send; 75 for
/// an answer while a poll runs, which sends it, and for an inbound message that waits for its answer; as [`send`].
pub(crate) fn retry(ctx: &Context, name: &str, key: &str) -> Result<SendOutcome> {
    let open = ChannelFiles::load(ctx, name)?.open(ctx, ctx.settings()?.network)?;
    let _poll_lock =
        if is_in_outbox(key) { None } else { Some(open.files.lock(ctx, Duration::ZERO)?) };
    let _lock = lock(&open, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = open.files.open_inbox()?;
    let Some(entry) = inbox.state().outbound(key).cloned() else {
        return Err(not_outbound_error(name, key, inbox.state()));
    };
    if entry.settlement.is_some_and(|it| it != Settlement::Delivered) {
        let is_left = |(number, _): &(usize, Part)| !entry.sent.contains_key(number);
        let parts = entry.message.parts.into_iter().enumerate().filter(is_left);
        let parts: Vec<Part> = parts.map(|(_, part)| part).collect();
        if parts.is_empty() || entry.settlement == Some(Settlement::Retried) {
            let cause = format!("the message `{key}` has nothing left to send");
            return Err(fail(Exit::NoInput, cause));
        }
        // A new entry, since a settled one stays settled.
        let new_key = new_key();
        let renewed = InboxRecord::Out(OutboundMessage {
            key: new_key.clone(),
            answers: Vec::new(),
            parts,
            at: ctx.clock.timestamp().as_millisecond(),
            ..entry.message
        });
        let retried = InboxRecord::Done { key: key.to_owned(), result: Settlement::Retried };
        inbox.append_all(vec![renewed, retried])?;
        return deliver(ctx, &open, inbox, &new_key);
    }
    deliver(ctx, &open, inbox, key)
}

/// Lets the next poll answer an inbound message that was dropped: it was too old, or a limit was reached. False if there is
/// no such message.
///
/// # Errors
/// Status 74, or 75 while another process writes the journal anew.
pub(crate) fn reopen(ctx: &Context, name: &str, id: &str) -> Result<bool> {
    let files = ChannelFiles::load(ctx, name)?;
    let _lock = lock_files(&files, OUTBOX_LOCK_TIMEOUT)?;
    let mut inbox = files.open_inbox()?;
    let is_dropped = inbox.state().inbound(id).is_some_and(InboundEntry::is_dropped);
    if is_dropped {
        let at = ctx.clock.timestamp().as_millisecond();
        inbox.append(InboxRecord::Reopened { id: id.to_owned(), at })?;
    }
    Ok(is_dropped)
}

/// Takes a message out of the list of those that wait, were given up or failed. It is neither sent nor answered.
///
/// # Errors
/// As [`reopen`]; status 66 if there is no such message.
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
        Some(None) => fail_with_hint(
            Exit::TryAgain,
            format!("`{key}` waits for its answer"),
            format!("`nanobot channel poll {name}`"),
        ),
        None | Some(Some(_)) => fail_with_hint(
            Exit::NoInput,
            format!("the channel {name} has no message `{key}` that waits or failed"),
            "`nanobot channel inbox` for the ids",
        ),
    }
}

/// Sends the message `key`, after all messages of the outbox that wait, in their order: where no poll runs, nothing else
/// sends them, and a message does not overtake an earlier one. The caller holds the lock of the outbox.
fn deliver(
    ctx: &Context,
    open: &OpenChannel,
    inbox: ChannelInbox,
    key: &str,
) -> Result<SendOutcome> {
    let now = ctx.clock.timestamp().as_millisecond();
    let inbox = Mutex::new(inbox);
    let sent = send_earlier(ctx, open, &inbox, key, now)
        .and_then(|()| delivery::deliver(open, &inbox, key, now));
    let is_waiting = inbox.lock().ignore_poison().state().waits(key);
    match &sent {
        Ok(_) => health::note_delivery(ctx, open, None),
        Err(error) if is_waiting && !error.is::<Stop>() => {
            health::note_delivery(ctx, open, Some(error));
        }
        Err(_) => {}
    }
    match sent.with_context(|| format!("channel {}", open.name())) {
        Ok(ids) => Ok(SendOutcome::Sent(ids)),
        Err(error) if exit_for(&error).is_temporary() => Ok(SendOutcome::Waits(error)),
        Err(error) => Err(error),
    }
}

/// Sends the messages of the outbox that wait and come before the message `key`. One that is given up is reported.
///
/// # Errors
/// One of them still waits, so that the message `key` has to wait as well. A rate limit of another chat does not matter.
fn send_earlier(
    ctx: &Context,
    open: &OpenChannel,
    inbox: &Mutex<ChannelInbox>,
    key: &str,
    now: i64,
) -> Result<()> {
    let (chat, earlier) = {
        let inbox = inbox.lock().ignore_poison();
        let state = inbox.state();
        let Some(entry) = state.outbound(key).filter(|it| it.settlement.is_none()) else {
            return Ok(());
        };
        let before = state.undelivered().take_while(|it| it.message.key != key);
        let before = before.filter(|it| is_in_outbox(&it.message.key));
        let before = before.map(|it| (it.message.key.clone(), it.message.destination.chat.clone()));
        (entry.message.destination.chat.clone(), before.collect::<Vec<_>>())
    };
    let mut limited: Vec<Chat> = Vec::new();
    for (earlier_key, earlier_chat) in earlier {
        if limited.contains(&earlier_chat) {
            continue;
        }
        let Err(error) = delivery::deliver(open, inbox, &earlier_key, now) else {
            continue;
        };
        let waits = inbox.lock().ignore_poison().state().waits(&earlier_key);
        if !waits {
            report_error(&error.context(format!("channel {}", open.name())), ctx.terminal);
        } else if error.is::<RateLimit>() && earlier_chat != chat {
            limited.push(earlier_chat);
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
pub(crate) fn lock(open: &OpenChannel, timeout: Duration) -> Result<FileLock> {
    lock_files(&open.files, timeout)
}

fn lock_files(files: &ChannelFiles, timeout: Duration) -> Result<FileLock> {
    durable_file::create_dir(&files.directory)?;
    let path = files.directory.join("outbox.lock");
    FileLock::acquire(&path, "the outbox", "", timeout, &mut |_| {})
}

/// True for the key of a message that any process may send, under the lock of the outbox. All others are sent by the
/// poll, under the channel's lock.
pub(crate) fn is_in_outbox(key: &str) -> bool {
    key.starts_with(KEY_PREFIX)
}

fn new_key() -> String {
    format!("{KEY_PREFIX}{}", random_hex(8))
}
