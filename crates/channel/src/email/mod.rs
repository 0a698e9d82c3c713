//! E-mail: IMAP for inbound mail, SMTP for outbound mail (RFC 3501, RFC 5321, RFC 5322).
//!
//! The position is the mailbox's `UIDVALIDITY` and the next `UID`; flags do not matter, since other programs read the same
//! mailbox. A mail is marked as read after its answer was sent. Addresses of senders can be forged, so an address is trusted only if our
//! own mail server has verified its domain. Each mail is answered by itself, in its thread.

mod address;
mod authentication_results;
mod connection;
mod imap;
pub mod inbound;
mod outbound;
mod quotation;
mod settings;
mod smtp;

use super::access::{AccessDecision, AccessRules};
use super::setup::ChannelSetup;
use super::{
    Batch, Channel, ChannelError, ChannelResult, Chat, Destination, Identity, InboundMessage,
    LoginDialog, LoginOutcome, Part, PollRequest, RemoteFile,
};
use address::is_address;
use anyhow::Result;
use connection::MailConnector;
use imap::{FetchedMail, IdleOutcome, ImapSession, MAX_HEADER_BYTES, SelectedMailbox};
use inbound::{MailHeader, MailUid};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use nanobot_base::error::{Exit, WithHint, fail};
use nanobot_os::clock::Clock;
use nanobot_os::signal;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use settings::{MailSettings, PostAction};
use smtp::{MailEnvelope, SmtpSession};
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

/// Headers that are fetched at once.
const HEADERS_AT_ONCE: usize = 50;
/// The largest mail that is fetched whole, in bytes.
const MAX_MAIL_BYTES: usize = 40 << 20;
/// The beginning that is fetched of a larger one, in bytes.
const LARGE_MAIL_START_BYTES: usize = 256 << 10;
/// The difference of clocks that is allowed for when a mailbox was numbered anew, in seconds.
const CLOCK_MARGIN_SECS: i64 = 3600;
/// Recent mails that are searched for servers that verify senders.
const RECENT_MAILS: u32 = 20;
/// The id of an answer that `autoReplyEnabled` does not allow.
const UNSENT_ID: &str = "not-sent";

struct Email {
    settings: MailSettings,
    connector: MailConnector,
    access: AccessRules,
    clock: Clock,
    /// Sessions that are not in use.
    sessions: Mutex<Vec<ImapSession>>,
    /// The mail whose attachments were fetched last. Each attachment is fetched by a request of its own.
    last_mail: Mutex<Option<(MailUid, Vec<u8>)>>,
}

/// The position in the mailbox, which the cursor stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MailPosition {
    /// [`MailSettings::mailbox_name`].
    mailbox: String,
    uid_validity: u32,
    uid_next: u32,
    /// The time at which everything before was read, in seconds since 1970.
    read_at: i64,
}

impl MailPosition {
    fn to_batch(&self, messages: Vec<InboundMessage>) -> Batch {
        Batch { messages, cursor: json!(self) }
    }
}

/// Creates the channel.
///
/// # Errors
/// Status 78 if a key is missing or unusable.
pub fn open(setup: &ChannelSetup) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Email {
        settings: MailSettings::read(setup)?,
        connector: MailConnector::new(setup)?,
        access: setup.access.clone(),
        clock: setup.clock.clone(),
        sessions: Mutex::default(),
        last_mail: Mutex::default(),
    }))
}

impl Channel for Email {
    fn poll(&self, request: PollRequest<'_>) -> Result<()> {
        let mut session = self.session()?;
        self.poll_in(&mut session, request)?;
        self.sessions.lock().push(session);
        Ok(())
    }

    fn send(&self, destination: &Destination, part: &Part, key: &str) -> ChannelResult<String> {
        let to = &destination.chat.id;
        if !is_address(to) {
            let cause = format!("`{to}` is not a mail address");
            return Err(ChannelError::Undeliverable(cause));
        }
        if !self.settings.replies && !destination.reply_facts.is_null() {
            log::info!(target: "channel", "email: an answer to {to} was not sent (`channels.email.autoReplyEnabled`)");
            return Ok(UNSENT_ID.to_owned());
        }
        let now = self.clock.timestamp().as_second();
        let mail = outbound::write(&self.settings, destination, part, key, now)?;
        let mut session = SmtpSession::open(&self.connector, &self.settings.smtp)?;
        let from = &self.settings.from.address;
        session.send(MailEnvelope { from, to }, &mail.bytes)?;
        session.quit();
        Ok(mail.message_id)
    }

    fn fetch(&self, file: &RemoteFile, writer: &mut dyn Write, limit_bytes: u64) -> Result<bool> {
        let limit = limit_bytes.min(self.settings.attachments.max_bytes);
        if file.size_bytes.is_some_and(|size| size > limit) {
            return Ok(false);
        }
        let numbers: Vec<u32> = file.id.split('.').flat_map(str::parse).collect();
        let [uid_validity, uid, number] = numbers[..] else {
            return Err(fail(Exit::BadInput, "the id of the attachment does not name a mail"));
        };
        let mail_uid = MailUid { uid_validity, uid };
        let mut last_mail = self.last_mail.lock();
        if last_mail.as_ref().is_none_or(|(other, _)| *other != mail_uid) {
            let raw = self.fetch_mail(mail_uid)?;
            *last_mail = Some((mail_uid, raw));
        }
        let raw = last_mail.as_ref().map_or(&[][..], |(_, raw)| raw);
        let content = inbound::read_attachment(raw, usize::try_from(number)?)?;
        let content = content.ok_or_else(|| fail(Exit::Unavailable, "the mail has changed"))?;
        if content.len() as u64 > limit {
            return Ok(false);
        }
        writer.write_all(&content)?;
        Ok(true)
    }

    fn mark_answered(&self, message: &InboundMessage) {
        let facts = &message.reply_facts;
        let number =
            |name: &str| facts[name].as_u64().and_then(|number| u32::try_from(number).ok());
        if let (Some(uid_validity), Some(uid)) = (number("uid_validity"), number("uid"))
            && let Err(error) = self.mark(MailUid { uid_validity, uid })
        {
            log::warn!(target: "channel", "email: an answered mail was not marked: {error}");
        }
    }

    fn identity(&self) -> Result<Identity> {
        // Mail is read even while SMTP rejects the login: the answers wait.
        let mut session = self.session()?;
        let mailbox = self.select(&mut session)?;
        self.require_verification(&mut session, mailbox)?;
        self.sessions.lock().push(session);
        let address = &self.settings.from.address;
        Ok(Identity { id: address.clone(), name: address.clone() })
    }

    fn test(&self) -> Result<Identity> {
        let identity = self.identity()?;
        self.check_smtp()?;
        Ok(identity)
    }

    fn login(&self, _dialog: &mut dyn LoginDialog) -> Result<LoginOutcome> {
        let mut session = self.session()?;
        let mailbox = self.select(&mut session)?;
        self.check_smtp()?;
        let address = &self.settings.from.address;
        Ok(LoginOutcome::of_message(match self.require_verification(&mut session, mailbox) {
            Ok(()) => address.clone(),
            Err(error) => format!("{address}; still to do: {error:#}"),
        }))
    }
}

/// The address of a recipient.
pub fn parse_chat(recipient: &str, _thread_mark: Option<&str>) -> Chat {
    Chat::new(&recipient.trim().to_ascii_lowercase(), None, true)
}

impl Email {
    /// A session: one that is not in use and whose connection is open, or a new one.
    fn session(&self) -> ChannelResult<ImapSession> {
        loop {
            let unused = self.sessions.lock().pop();
            let Some(mut session) = unused else {
                return ImapSession::open(&self.connector, &self.settings.imap);
            };
            match session.noop() {
                Ok(()) => return Ok(session),
                Err(ChannelError::Other(error)) => return Err(ChannelError::Other(error)),
                Err(error) => log::debug!(target: "channel", "email: {error}"),
            }
        }
    }

    /// Logs in at the server for outbound mail.
    fn check_smtp(&self) -> ChannelResult<()> {
        SmtpSession::open(&self.connector, &self.settings.smtp).map(SmtpSession::quit)
    }

    fn poll_in(&self, session: &mut ImapSession, request: PollRequest<'_>) -> Result<()> {
        let PollRequest { cursor, wait, store_batch, report, .. } = request;
        let end = signal::now().saturating_add(wait);
        let mailbox = self.select(session)?;
        self.require_verification(session, mailbox)?;
        let now = MailPosition {
            mailbox: self.settings.mailbox_name(),
            uid_validity: mailbox.uid_validity,
            uid_next: mailbox.uid_next,
            read_at: self.clock.timestamp().as_second(),
        };
        // Mail from before the first poll is not answered.
        let Some(mut position) = cursor.and_then(|cursor| self.position(cursor)) else {
            return store_batch(now.to_batch(Vec::new()));
        };
        if position.uid_validity != now.uid_validity {
            let mails = self.mails_since(session, position.read_at)?;
            let messages = self.read_all(session, &mails, now.uid_validity, report);
            store_batch(now.to_batch(messages?))?;
            position = now.clone();
        }
        let mut may_have_new_mail = position.uid_next < now.uid_next;
        loop {
            let has_messages = may_have_new_mail
                && self.read_new_mails(session, &mut position, store_batch, report)?;
            if has_messages || signal::now() >= end {
                return Ok(());
            }
            may_have_new_mail = self.wait_for_mail(session, end)?;
        }
    }

    /// The position in a cursor. `None` if the cursor is for another mailbox.
    fn position(&self, cursor: &Value) -> Option<MailPosition> {
        let position = MailPosition::deserialize(cursor).ok()?;
        (position.mailbox == self.settings.mailbox_name()).then_some(position)
    }

    fn select(&self, session: &mut ImapSession) -> ChannelResult<SelectedMailbox> {
        session.select(&self.settings.mailbox)
    }

    /// Stores the mails after the position. Returns true if there are messages.
    fn read_new_mails(
        &self,
        session: &mut ImapSession,
        position: &mut MailPosition,
        store_batch: &mut dyn FnMut(Batch) -> Result<()>,
        report: &dyn Fn(&str),
    ) -> Result<bool> {
        let first = position.uid_next;
        let mut uids = session.search(&format!("UID {first}:*"))?;
        // `*` is the last mail, even if its number is lower.
        uids.retain(|uid| *uid >= first);
        let mut has_messages = false;
        for uids in uids.chunks(HEADERS_AT_ONCE) {
            let mails = session.fetch_headers(uids)?;
            let messages = self.read_all(session, &mails, position.uid_validity, report)?;
            has_messages |= !messages.is_empty();
            position.uid_next = uids.last().map_or(first, |uid| uid.saturating_add(1));
            position.read_at = self.clock.timestamp().as_second();
            store_batch(position.to_batch(messages))?;
        }
        Ok(has_messages)
    }

    /// The headers of the mails that have arrived since `time`, for a mailbox whose mails were numbered anew. Those that
    /// were answered before are known by their `Message-ID`.
    fn mails_since(&self, session: &mut ImapSession, time: i64) -> ChannelResult<Vec<FetchedMail>> {
        let time = time - CLOCK_MARGIN_SECS;
        // The search compares days, in the server's zone.
        let day = Timestamp::from_second(time - 24 * 3600).unwrap_or_default();
        let day = day.to_zoned(TimeZone::UTC).strftime("%-d-%b-%Y").to_string();
        let uids = session.search(&format!("SINCE {day}"))?;
        let mut mails = Vec::new();
        for uids in uids.chunks(HEADERS_AT_ONCE) {
            mails.extend(session.fetch_headers(uids)?);
        }
        mails.retain(|mail| inbound::parse_arrival(&mail.arrived).is_none_or(|at| at >= time));
        Ok(mails)
    }

    fn read_all(
        &self,
        session: &mut ImapSession,
        mails: &[FetchedMail],
        uid_validity: u32,
        report: &dyn Fn(&str),
    ) -> ChannelResult<Vec<InboundMessage>> {
        let mut messages = Vec::new();
        for mail in mails {
            match &mail.content {
                Some(header) => messages.extend(self.read(session, mail, header, uid_validity)?),
                None => report(&format!(
                    "the mail with UID {} is not answered: the server's answer to FETCH cannot be parsed",
                    mail.uid
                )),
            }
        }
        Ok(messages)
    }

    /// Reads a mail: the header first, and the rest if the mail is to be answered.
    fn read(
        &self,
        session: &mut ImapSession,
        mail: &FetchedMail,
        header: &[u8],
        uid_validity: u32,
    ) -> ChannelResult<Option<InboundMessage>> {
        let uid = mail.uid;
        let ignore = |reason: &str| {
            log::info!(target: "channel", "email: the mail with UID {uid} is not answered: {reason}");
            Ok(None)
        };
        if header.len() >= MAX_HEADER_BYTES {
            return ignore("its header is too large");
        }
        let Some(header) = MailHeader::parse(header) else {
            return ignore("it has no header");
        };
        let Some(sender) = header.sender() else {
            return ignore("it does not have exactly one sender");
        };
        if let Some(reason) = header.reason_to_ignore(&sender, &self.settings.own_addresses) {
            return ignore(reason);
        }
        let mail_uid = MailUid { uid_validity, uid };
        let arrived_at = inbound::parse_arrival(&mail.arrived);
        let mut message = header.to_message(&sender, mail_uid, arrived_at);
        let verified = header.verify(&sender, &self.settings);
        message.from.passed_dmarc = verified == Ok(true);
        if let Err(reason) = verified {
            if self.access.allow_from.iter().any(|entry| entry == "*") {
                return ignore(&reason);
            }
            // `channel show` lists it among the refused senders. A forged mail must not replace the real one with the same `Message-ID`.
            message.from.is_unverified = true;
            message.id = format!("unverified/{sender}/{}", message.id);
            message.from.name = Some(reason);
        }
        if self.access.decide(&message) != AccessDecision::Answer {
            return Ok(Some(message));
        }
        let is_large = mail.size_bytes as usize > MAX_MAIL_BYTES;
        let limit = if is_large { LARGE_MAIL_START_BYTES } else { MAX_MAIL_BYTES };
        let Some(mail) = session.fetch_content(uid, limit)? else {
            return ignore("it is gone");
        };
        let Some(raw) = mail.content else {
            message.is_unreadable = true;
            return Ok(Some(message));
        };
        // The size that the server gave may be missing.
        let is_large = is_large || raw.len() >= MAX_MAIL_BYTES;
        let settings = &self.settings;
        let (max_chars, limits) = (settings.max_body_chars, &settings.attachments);
        let result = inbound::add_content(&mut message, &raw, max_chars, limits);
        result.map_err(|stop| ChannelError::Other(stop.into()))?;
        if is_large {
            // Attachments are cut, so each is reported as too large to be fetched.
            for file in &mut message.files {
                file.size_bytes = Some(u64::MAX);
            }
        }
        Ok(Some(message))
    }

    /// Waits until there may be new mail. Returns false if there is none at `end`.
    fn wait_for_mail(&self, session: &mut ImapSession, end: Duration) -> Result<bool> {
        match session.idle(end)? {
            IdleOutcome::NewMail => return Ok(true),
            IdleOutcome::TimedOut => return Ok(false),
            IdleOutcome::Unsupported => {}
        }
        let interval = Duration::from_secs(self.settings.poll_interval_secs);
        let time_left = end.saturating_sub(signal::now());
        signal::sleep(interval.min(time_left))?;
        session.noop()?;
        Ok(true)
    }

    /// Fails if senders must be verified and the config names no server that does so. The error names the servers that have
    /// verified recent mail.
    fn require_verification(
        &self,
        session: &mut ImapSession,
        mailbox: SelectedMailbox,
    ) -> Result<()> {
        let verification = &self.settings.verification;
        if !verification.is_required || !verification.trusted_ids.is_empty() {
            return Ok(());
        }
        let servers = verifying_servers(session, mailbox)?;
        let cause =
            "`channels.email.trustedAuthservIds` is empty, and addresses of senders can be forged";
        let Some(first) = servers.first() else {
            return Err(fail(Exit::Config, format!("{cause}; no server has verified the senders of recent mail"))
                .with_hint("the id that your mail server writes into `Authentication-Results`; or `false` for `verifyDkim` and \
                 `verifySpf`, to believe every sender"));
        };
        let names: Vec<String> = servers.iter().map(|server| format!("`{server}`")).collect();
        Err(fail(Exit::Config, format!("{cause}; the senders of recent mail were verified by {}", names.join(", ")))
            .with_hint(format!(
                "`nanobot config set channels.email.trustedAuthservIds '[\"{first}\"]'`, if that is your mail server"
            )))
    }

    fn fetch_mail(&self, mail_uid: MailUid) -> ChannelResult<Vec<u8>> {
        let missing_mail = || ChannelError::Unavailable("the mail is gone".to_owned());
        let mut session = self.session()?;
        let mailbox = self.select(&mut session)?;
        if mailbox.uid_validity != mail_uid.uid_validity {
            return Err(missing_mail());
        }
        let mail = session.fetch_content(mail_uid.uid, MAX_MAIL_BYTES)?;
        self.sessions.lock().push(session);
        mail.and_then(|mail| mail.content).ok_or_else(missing_mail)
    }

    fn mark(&self, mail_uid: MailUid) -> ChannelResult<()> {
        let mut session = self.session()?;
        let mailbox = self.select(&mut session)?;
        if mailbox.uid_validity == mail_uid.uid_validity {
            let settings = &self.settings;
            session.mark_answered(mailbox, mail_uid.uid, settings.marks_seen)?;
            if settings.post_action != PostAction::Keep {
                session.apply(&settings.post_action, mail_uid.uid)?;
            }
        }
        self.sessions.lock().push(session);
        Ok(())
    }
}

/// The servers that have verified the senders of recent mail.
fn verifying_servers(
    session: &mut ImapSession,
    mailbox: SelectedMailbox,
) -> ChannelResult<BTreeSet<String>> {
    let first = mailbox.uid_next.saturating_sub(RECENT_MAILS).max(1);
    let uids = session.search(&format!("UID {first}:*"))?;
    if uids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mails = session.fetch_headers(&uids)?;
    let headers = mails.iter().filter_map(|mail| MailHeader::parse(mail.content.as_deref()?));
    Ok(headers.filter_map(|header| header.verifying_server()).collect())
}

/// Parses a message of the service, for the test of all services.
#[cfg(test)]
pub fn decode(value: &Value) -> Option<InboundMessage> {
    let raw = value.as_str()?.as_bytes();
    let header = inbound::MailHeader::parse(raw)?;
    let mail_uid = inbound::MailUid { uid_validity: 1, uid: 1 };
    let mut message = header.to_message("ann@example.org", mail_uid, None);
    let limits =
        settings::AttachmentLimits { types: vec!["*".into()], max_bytes: 1000, max_count: 5 };
    inbound::add_content(&mut message, raw, 5000, &limits).ok()?;
    Some(message)
}
