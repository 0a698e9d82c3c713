//! A session with an IMAP server (RFC 3501), with IDLE (RFC 2177), MOVE (RFC 6851) and UIDPLUS (RFC 4315) where it has them.
//!
//! `imap-proto` parses responses. Responses that it cannot parse are skipped, as the protocol requires of clients, unless a mail
//! that was asked for is missing then.

use super::connection::{MailConnection, MailConnector, authentication, no_tls, unexpected};
use super::settings::{MailSecurity, MailServer, PostAction};
use crate::{ChannelError, ChannelResult, RateLimit};
use base64::Engine as _;
use base64::alphabet::IMAP_MUTF7;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use imap_proto::{AttributeValue, Capability, MailboxDatum, Response, ResponseCode};
use std::borrow::Cow;
use std::time::Duration;

/// Maximum size of a line, in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Maximum size of a response with its literals, in bytes: the largest mail that services accept.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Maximum size of a header that is fetched, in bytes. One that reaches it is not whole.
pub(super) const MAX_HEADER_BYTES: usize = 64 << 10;
/// The delay before the next attempt at a server that is busy.
const BUSY_DELAY: Duration = Duration::from_secs(300);
/// The flag of mail that was answered here, where the server stores flags of clients.
const DONE_FLAG: &str = "$NanobotDone";

/// Receives a response; `None` for one that cannot be parsed.
type ResponseSink<'a> = dyn FnMut(Option<&Response<'_>>) + 'a;

/// A session in which we are logged in.
pub(super) struct ImapSession {
    connection: MailConnection,
    last_tag: u32,
    /// In upper case.
    capabilities: Vec<String>,
    /// True if the server has reported new mail since the last search.
    has_new_mail: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SelectedMailbox {
    pub(super) uid_validity: u32,
    pub(super) uid_next: u32,
    takes_flags_of_clients: bool,
}

/// A mail, with the attributes that were requested.
#[derive(Clone, Debug, Default)]
pub(super) struct FetchedMail {
    pub(super) uid: u32,
    pub(super) size_bytes: u32,
    /// `INTERNALDATE`: the time of its arrival, as in `17-Jul-1996 02:44:25 -0700`.
    pub(super) arrived: String,
    /// The header or the whole mail. `None` if the server's answer cannot be parsed.
    pub(super) content: Option<Vec<u8>>,
}

/// The answer to a FETCH.
struct FetchAnswer {
    mails: Vec<FetchedMail>,
    /// True if a response could not be parsed. It may be that of a mail.
    has_unknown: bool,
}

/// The end of a wait for new mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleOutcome {
    NewMail,
    TimedOut,
    /// The server cannot report new mail.
    Unsupported,
}

/// The end of a command.
enum ImapOutcome {
    Ok,
    /// `NO` or `BAD`, with the server's explanation.
    Refused(String),
    /// Like `Refused`, with a response code that says that a later attempt can succeed (RFC 5530).
    Busy(String),
}

impl ImapOutcome {
    /// Fails unless the `command` has succeeded.
    fn require_ok(self, command: &str) -> ChannelResult<()> {
        match self {
            Self::Ok => Ok(()),
            Self::Refused(cause) => Err(ChannelError::Unavailable(format!("{command}: {cause}"))),
            Self::Busy(cause) => Err(busy(format!("{command}: {cause}"))),
        }
    }
}

impl ImapSession {
    /// Connects, and logs in.
    pub(super) fn open(connector: &MailConnector, server: &MailServer) -> ChannelResult<Self> {
        let server = connector.with_token(server)?;
        let mut connection = connector.connect(&server)?;
        let mut greeting = Vec::new();
        connection.read_line(&mut greeting, MAX_LINE_BYTES)?;
        if !greeting.to_ascii_uppercase().starts_with(b"* OK") {
            let cause = connection.describe(&greeting);
            return if greeting.to_ascii_uppercase().starts_with(b"* BYE") {
                Err(busy(cause))
            } else {
                Err(unexpected(&server, "IMAP"))
            };
        }
        let mut session =
            Self { connection, last_tag: 0, capabilities: Vec::new(), has_new_mail: false };
        session.read_capabilities()?;
        if server.security == MailSecurity::StartTls {
            if !session.has("STARTTLS") {
                return Err(no_tls(&server));
            }
            session.run("STARTTLS")?;
            session.connection = session.connection.encrypt()?;
            session.read_capabilities()?;
        }
        session.log_in(&server)?;
        // Servers may offer more after the login.
        session.read_capabilities()?;
        Ok(session)
    }

    fn has(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|offered| offered == capability)
    }

    fn read_capabilities(&mut self) -> ChannelResult<()> {
        let mut capabilities = Vec::new();
        self.run_with("CAPABILITY", &mut |response| {
            if let Some(Response::Capabilities(list)) = response {
                capabilities.extend(list.iter().map(|capability| match capability {
                    Capability::Imap4rev1 => "IMAP4REV1".to_owned(),
                    Capability::Auth(name) => format!("AUTH={}", name.to_ascii_uppercase()),
                    Capability::Atom(name) => name.to_ascii_uppercase(),
                }));
            }
        })?;
        self.capabilities = capabilities;
        Ok(())
    }

    fn log_in(&mut self, server: &MailServer) -> ChannelResult<()> {
        let Some(login) = &server.login else {
            return Ok(());
        };
        let offers = |mechanism: &str| self.has(&format!("AUTH={mechanism}"));
        let outcome = match authentication(login, &offers) {
            Some((mechanism, response)) => self.authenticate(mechanism, &response)?,
            None if self.has("LOGINDISABLED") => {
                let cause = format!("`{}` does not allow password logins", server.host);
                return Err(ChannelError::Misconfigured(cause));
            }
            None => {
                let (user, password) = login.user_and_proof();
                let line = format!("LOGIN {} {}", quoted(user)?, quoted(password)?);
                self.execute(line.as_bytes(), &mut |_| {})?
            }
        };
        match outcome {
            ImapOutcome::Ok => Ok(()),
            ImapOutcome::Refused(cause) => Err(login.rejected(&cause)),
            ImapOutcome::Busy(cause) => Err(busy(cause)),
        }
    }

    fn authenticate(&mut self, mechanism: &str, response: &str) -> ChannelResult<ImapOutcome> {
        let tag = self.next_tag();
        let has_initial_response = self.has("SASL-IR");
        let line = if has_initial_response {
            format!("{tag} AUTHENTICATE {mechanism} {response}\r\n")
        } else {
            format!("{tag} AUTHENTICATE {mechanism}\r\n")
        };
        self.connection.write(line.as_bytes())?;
        let mut pending_response = if has_initial_response { None } else { Some(response) };
        loop {
            let raw = self.read_response()?;
            if raw.starts_with(b"+") {
                // After the response, the server explains a failure, which is answered with an empty line.
                let text = pending_response.take().unwrap_or_default();
                self.connection.write(format!("{text}\r\n").as_bytes())?;
            } else if let Some(outcome) = self.end_of(&tag, &raw) {
                return Ok(outcome);
            }
        }
    }

    /// Selects a mailbox.
    pub(super) fn select(&mut self, mailbox: &str) -> ChannelResult<SelectedMailbox> {
        let mut selected = SelectedMailbox::default();
        let line = format!("SELECT {}", quoted(&encode_mailbox(mailbox))?);
        let outcome = self.execute(line.as_bytes(), &mut |response| {
            let Some(Response::Data { outcome, .. }) = response else {
                return;
            };
            match &outcome.code {
                Some(ResponseCode::UidValidity(number)) => selected.uid_validity = *number,
                Some(ResponseCode::UidNext(number)) => selected.uid_next = *number,
                Some(ResponseCode::PermanentFlags(flags)) => {
                    selected.takes_flags_of_clients = flags.iter().any(|flag| flag == "\\*");
                }
                _ => {}
            }
        })?;
        match outcome {
            ImapOutcome::Refused(cause) => {
                let cause = format!("the mailbox `{mailbox}` cannot be opened: {cause}");
                Err(ChannelError::Misconfigured(cause))
            }
            ImapOutcome::Busy(cause) => Err(busy(cause)),
            ImapOutcome::Ok if selected.uid_validity == 0 || selected.uid_next == 0 => {
                let cause =
                    "the server does not number its mail (UIDVALIDITY and UIDNEXT are missing)";
                Err(ChannelError::Misconfigured(cause.to_owned()))
            }
            ImapOutcome::Ok => Ok(selected),
        }
    }

    /// The numbers of the mails that match, in order.
    pub(super) fn search(&mut self, criteria: &str) -> ChannelResult<Vec<u32>> {
        let mut uids = Vec::new();
        self.has_new_mail = false;
        self.run_with(&format!("UID SEARCH {criteria}"), &mut |response| {
            if let Some(Response::MailboxData(MailboxDatum::Search(matches))) = response {
                uids.extend(matches);
            }
        })?;
        uids.sort_unstable();
        uids.dedup();
        Ok(uids)
    }

    /// Fetches headers up to [`MAX_HEADER_BYTES`], sizes and times of arrival.
    pub(super) fn fetch_headers(&mut self, uids: &[u32]) -> ChannelResult<Vec<FetchedMail>> {
        let header = format!("BODY.PEEK[HEADER]<0.{MAX_HEADER_BYTES}>");
        let items = format!("RFC822.SIZE INTERNALDATE {header}");
        let FetchAnswer { mut mails, has_unknown } = self.fetch(uids, &items)?;
        if has_unknown {
            let is_missing = |uid: &&u32| mails.iter().all(|mail| mail.uid != **uid);
            let missing: Vec<u32> = uids.iter().filter(is_missing).copied().collect();
            for uid in missing {
                // It may be the size or the time that cannot be parsed.
                mails.extend(self.fetch_one(uid, &header)?);
            }
        }
        Ok(mails)
    }

    /// Fetches a mail, or its first `limit_bytes`; `None` if it is gone.
    pub(super) fn fetch_content(
        &mut self,
        uid: u32,
        limit_bytes: usize,
    ) -> ChannelResult<Option<FetchedMail>> {
        let mail = self.fetch_one(uid, &format!("BODY.PEEK[]<0.{limit_bytes}>"))?;
        Ok(mail.filter(|mail| mail.content.as_ref().is_none_or(|content| !content.is_empty())))
    }

    /// Fetches an item of one mail; `None` if the mail is gone.
    fn fetch_one(&mut self, uid: u32, item: &str) -> ChannelResult<Option<FetchedMail>> {
        let FetchAnswer { mails, has_unknown } = self.fetch(&[uid], item)?;
        let unreadable = || FetchedMail { uid, ..FetchedMail::default() };
        Ok(mails.into_iter().next().or_else(|| has_unknown.then(unreadable)))
    }

    fn fetch(&mut self, uids: &[u32], items: &str) -> ChannelResult<FetchAnswer> {
        let mut answer = FetchAnswer { mails: Vec::new(), has_unknown: false };
        let set: Vec<String> = uids.iter().map(u32::to_string).collect();
        let line = format!("UID FETCH {} (UID {items})", set.join(","));
        self.run_with(&line, &mut |response| {
            answer.has_unknown |= response.is_none();
            let Some(Response::Fetch(_, attributes)) = response else {
                return;
            };
            let mut mail = FetchedMail::default();
            for attribute in attributes {
                match attribute {
                    AttributeValue::Uid(uid) => mail.uid = *uid,
                    AttributeValue::Rfc822Size(size) => mail.size_bytes = *size,
                    AttributeValue::InternalDate(date) => mail.arrived = date.to_string(),
                    AttributeValue::BodySection { data, .. } => {
                        mail.content = Some(data.as_deref().unwrap_or_default().to_vec());
                    }
                    _ => {}
                }
            }
            // Changes of flags by other clients come in the same form.
            if mail.content.is_some() && uids.contains(&mail.uid) {
                answer.mails.push(mail);
            }
        })?;
        answer.mails.sort_unstable_by_key(|mail| mail.uid);
        Ok(answer)
    }

    /// Marks a mail as answered, and also as read if the settings say so.
    pub(super) fn mark_answered(
        &mut self,
        mailbox: SelectedMailbox,
        uid: u32,
        marks_seen: bool,
    ) -> ChannelResult<()> {
        let seen_flag = if marks_seen { " \\Seen" } else { "" };
        let done_flag =
            if mailbox.takes_flags_of_clients { format!(" {DONE_FLAG}") } else { String::new() };
        self.run(&format!("UID STORE {uid} +FLAGS.SILENT (\\Answered{seen_flag}{done_flag})"))
    }

    /// Deletes or moves a mail.
    pub(super) fn apply(&mut self, action: &PostAction, uid: u32) -> ChannelResult<()> {
        let delete = format!("UID STORE {uid} +FLAGS.SILENT (\\Deleted)");
        match action {
            PostAction::Keep => Ok(()),
            PostAction::Delete { expunges } => {
                self.run(&delete)?;
                if *expunges && self.has("UIDPLUS") {
                    self.run(&format!("UID EXPUNGE {uid}"))
                } else {
                    // EXPUNGE would also remove mails that other clients have marked.
                    Ok(())
                }
            }
            PostAction::Move(mailbox) => {
                let mailbox = quoted(&encode_mailbox(mailbox))?;
                if self.has("MOVE") {
                    self.run(&format!("UID MOVE {uid} {mailbox}"))
                } else {
                    self.run(&format!("UID COPY {uid} {mailbox}"))?;
                    self.run(&delete)
                }
            }
        }
    }

    /// Waits for new mail until `end`, on the clock of `signal::now`.
    pub(super) fn idle(&mut self, end: Duration) -> ChannelResult<IdleOutcome> {
        if !self.has("IDLE") {
            return Ok(IdleOutcome::Unsupported);
        }
        // It was reported with the answer to another command.
        if self.has_new_mail {
            return Ok(IdleOutcome::NewMail);
        }
        let tag = self.next_tag();
        self.connection.write(format!("{tag} IDLE\r\n").as_bytes())?;
        let mut outcome = None;
        while outcome.is_none() && !self.has_new_mail && self.connection.wait_until(end)? {
            outcome = self.read_outcome(&tag, &mut |_| {})?;
        }
        let outcome = match outcome {
            // The server has ended the command.
            Some(outcome) => outcome,
            None => {
                self.connection.write(b"DONE\r\n")?;
                self.finish(&tag, &mut |_| {})?
            }
        };
        outcome.require_ok("IDLE")?;
        Ok(if self.has_new_mail { IdleOutcome::NewMail } else { IdleOutcome::TimedOut })
    }

    /// Sends a command without effect. The server reports new mail with it, and a broken connection is noticed.
    pub(super) fn noop(&mut self) -> ChannelResult<()> {
        self.run("NOOP")
    }

    fn run(&mut self, line: &str) -> ChannelResult<()> {
        self.run_with(line, &mut |_| {})
    }

    /// Runs a command that must succeed.
    fn run_with(&mut self, line: &str, sink: &mut ResponseSink<'_>) -> ChannelResult<()> {
        let command = line.split(" (").next().unwrap_or_default();
        self.execute(line.as_bytes(), sink)?.require_ok(command)
    }

    /// Runs a command. `sink` gets the responses before its end, and `None` for one that cannot be parsed.
    fn execute(&mut self, line: &[u8], sink: &mut ResponseSink<'_>) -> ChannelResult<ImapOutcome> {
        let tag = self.next_tag();
        let line = [tag.as_bytes(), b" ", line, b"\r\n"].concat();
        self.connection.write(&line)?;
        self.finish(&tag, sink)
    }

    /// Reads responses up to the end of the command `tag`.
    fn finish(&mut self, tag: &str, sink: &mut ResponseSink<'_>) -> ChannelResult<ImapOutcome> {
        loop {
            if let Some(outcome) = self.read_outcome(tag, sink)? {
                return Ok(outcome);
            }
        }
    }

    /// Reads a response. Returns the end of the command `tag` if this is it.
    fn read_outcome(
        &mut self,
        tag: &str,
        sink: &mut ResponseSink<'_>,
    ) -> ChannelResult<Option<ImapOutcome>> {
        let raw = self.read_response()?;
        let outcome = self.end_of(tag, &raw);
        if outcome.is_none() {
            let raw = to_parsable(&raw);
            let response = parse(&raw);
            self.has_new_mail |=
                matches!(response, Some(Response::MailboxData(MailboxDatum::Exists(_))));
            sink(response.as_ref());
        }
        Ok(outcome)
    }

    fn next_tag(&mut self) -> String {
        self.last_tag += 1;
        format!("a{}", self.last_tag)
    }

    /// The end of the command `tag`, if this is it.
    fn end_of(&self, tag: &str, raw: &[u8]) -> Option<ImapOutcome> {
        let rest = raw.strip_prefix(tag.as_bytes())?.strip_prefix(b" ")?;
        if rest.to_ascii_uppercase().starts_with(b"OK") {
            return Some(ImapOutcome::Ok);
        }
        let cause = self.connection.describe(rest);
        Some(match response_code(rest).as_deref() {
            Some(b"UNAVAILABLE" | b"INUSE" | b"LIMIT") => ImapOutcome::Busy(cause),
            _ => ImapOutcome::Refused(cause),
        })
    }

    /// Reads a line with the literals in it.
    fn read_response(&mut self) -> ChannelResult<Vec<u8>> {
        let mut raw = Vec::new();
        loop {
            let start = raw.len();
            self.connection.read_line(&mut raw, MAX_LINE_BYTES)?;
            let literal = literal_size(&raw[start..]);
            raw.extend_from_slice(b"\r\n");
            match literal {
                None => return Ok(raw),
                Some(size) if size.saturating_add(raw.len()) > MAX_RESPONSE_BYTES => {
                    let cause = "the server sends more than was asked for";
                    return Err(ChannelError::Unavailable(cause.to_owned()));
                }
                Some(size) => self.connection.read_exact(&mut raw, size)?,
            }
        }
    }
}

/// A response in ASCII, unless it has the content of a mail: `imap-proto` panics at other characters after a response
/// code.
fn to_parsable(raw: &[u8]) -> Cow<'_, [u8]> {
    let first_byte = raw.strip_prefix(b"* ").and_then(|rest| rest.first());
    if raw.is_ascii() || first_byte.is_some_and(u8::is_ascii_digit) {
        raw.into()
    } else {
        let to_ascii = |byte: &u8| if byte.is_ascii() { *byte } else { b'?' };
        raw.iter().map(to_ascii).collect()
    }
}

fn parse(raw: &[u8]) -> Option<Response<'_>> {
    // `imap-proto` panics at a date that is NIL. What follows the first line is a mail.
    let first_line = raw.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has_no_date =
        memchr::memmem::find(&first_line.to_ascii_uppercase(), b"INTERNALDATE NIL").is_some();
    let parsed = if has_no_date { None } else { Response::parse(raw).ok() };
    if parsed.is_none() {
        log::debug!(target: "channel", "email: the server sends an unknown response of {} bytes", raw.len());
    }
    parsed.map(|(_, response)| response)
}

/// The size of the literal that a line announces at its end.
fn literal_size(line: &[u8]) -> Option<usize> {
    let start = memchr::memrchr(b'{', line)?;
    let digits = line[start + 1..].strip_suffix(b"}")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The code of a response such as `NO [AUTHENTICATIONFAILED] …`, in upper case (RFC 3501 §7.1).
fn response_code(response: &[u8]) -> Option<Vec<u8>> {
    let text = response.splitn(2, |byte| *byte == b' ').nth(1)?.strip_prefix(b"[")?;
    let end = text.iter().position(|byte| matches!(byte, b']' | b' '))?;
    Some(text[..end].to_ascii_uppercase())
}

fn busy(cause: String) -> ChannelError {
    ChannelError::RateLimited(RateLimit(BUSY_DELAY), cause)
}

/// A quoted string.
fn quoted(text: &str) -> ChannelResult<String> {
    if text.chars().any(|letter| !letter.is_ascii() || letter.is_control()) {
        let cause = "the user name, the password or the mailbox has characters that IMAP commands cannot contain";
        return Err(ChannelError::Misconfigured(cause.to_owned()));
    }
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{text}\""))
}

/// The name of a mailbox in modified UTF-7 (RFC 3501 §5.1.3).
fn encode_mailbox(name: &str) -> String {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(&IMAP_MUTF7, NO_PAD);
    let is_plain = |letter: char| matches!(letter, ' '..='~');
    let mut encoded = String::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let ends_run = |letter: char| is_plain(letter) != is_plain(first);
        let end = rest.find(ends_run).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        if is_plain(first) {
            encoded += &run.replace('&', "&-");
        } else {
            let units = run.encode_utf16().flat_map(u16::to_be_bytes);
            let units = ENGINE.encode(units.collect::<Vec<u8>>());
            encoded += &format!("&{units}-");
        }
        rest = after;
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::{encode_mailbox, literal_size, parse, quoted, response_code, to_parsable};

    #[test]
    fn names_and_texts_are_encoded() {
        assert_eq!(encode_mailbox("INBOX"), "INBOX");
        assert_eq!(encode_mailbox("R&D"), "R&-D");
        assert_eq!(encode_mailbox("~peter/mail/台北/日本語"), "~peter/mail/&U,BTFw-/&ZeVnLIqe-");
        assert_eq!(quoted("a\"b\\c").unwrap(), "\"a\\\"b\\\\c\"");
        assert!(quoted("a\r\nb").is_err() && quoted("ä").is_err());
    }

    #[test]
    fn literals_and_codes_are_found() {
        assert_eq!(literal_size(b"* 1 FETCH (BODY[] {310}"), Some(310));
        assert_eq!(literal_size(b"* 1 FETCH (BODY[] ~{3}"), Some(3));
        assert_eq!(literal_size(b"* OK {x}"), None);
        assert_eq!(literal_size(b"* OK {3} "), None);
        assert_eq!(response_code(b"NO [inuse] busy").as_deref(), Some(&b"INUSE"[..]));
        assert_eq!(response_code(b"NO [X y] z").as_deref(), Some(&b"X"[..]));
        assert_eq!(response_code(b"NO z [y]"), None);
    }

    #[test]
    fn a_date_without_a_value_is_an_unknown_response() {
        assert!(parse(b"* 1 FETCH (UID 9 INTERNALDATE NIL)\r\n").is_none());
        assert!(parse(b"* 1 FETCH (UID 9 BODY[] {18}\r\nINTERNALDATE NIL\r\n)\r\n").is_some());
    }

    #[test]
    fn fuzz_responses_of_servers() {
        let seeds: &[&[u8]] = &[
            b"* OK [ALERT]\xc3\xa9t\xc3\xa9\r\n",
            b"* OK [UIDVALIDITY 7] valid\r\n",
            b"* OK [PERMANENTFLAGS (\\Answered \\Seen \\*)] kept\r\n",
            b"* CAPABILITY IMAP4rev1 SASL-IR AUTH=PLAIN IDLE\r\n",
            b"* SEARCH 1 2 3\r\n",
            b"* 3 EXISTS\r\n",
            b"* 1 FETCH (UID 9 RFC822.SIZE 5 INTERNALDATE \"02-Jan-2026 03:04:05 +0000\" BODY[HEADER]<0> {5}\r\nab\r\nc)\r\n",
            b"* 1 FETCH (FLAGS (\\Seen) MODSEQ (12))\r\n",
            b"* BYE closing\r\n",
            b"+ idling\r\n",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            parse(&to_parsable(input));
            literal_size(input);
            response_code(input);
        });
    }
}
