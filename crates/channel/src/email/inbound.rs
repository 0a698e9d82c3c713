//! Reads mails: the checks of a header, and the message that a mail becomes. A whole mail is parsed in a process of its own.

use super::address::is_address;
use super::settings::{AttachmentLimits, MailSettings};
use super::{authentication_results, quotation};
use crate::{AttachmentKind, Chat, InboundMessage, QuotedText, RemoteFile, Sender};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mail_parser::decoders::html::html_to_text;
use mail_parser::{DateTime, Message, MessageParser, MessagePart, MimeHeaders, PartType};
use nanobot_base::error::{Exit, Stop, fail};
use nanobot_base::message::user_text::UserText;
use nanobot_os::digest::digest;
use nanobot_os::input;
use nanobot_sandbox::process::isolated_parser::{self, IsolatedParser, ParserError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum number of mails of a thread that an answer refers to.
const MAX_REFERENCES: usize = 19;
/// Maximum length of a `Message-ID` in bytes.
const MAX_MESSAGE_ID_BYTES: usize = 250;
/// Prefixes of addresses that programs write from, and that no person reads.
const UNREAD_ADDRESSES: [&str; 6] =
    ["mailer-daemon@", "postmaster@", "noreply", "no-reply", "donotreply", "do-not-reply"];

/// The identifier of a mail in the mailbox (RFC 3501, 2.3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailUid {
    pub(super) uid_validity: u32,
    pub(super) uid: u32,
}

/// A header that was read.
pub(super) struct MailHeader<'m> {
    raw: &'m [u8],
    message: Message<'m>,
}

impl<'m> MailHeader<'m> {
    /// Parses the header of a mail. `None` if there is none.
    pub(super) fn parse(raw: &'m [u8]) -> Option<Self> {
        let message = MessageParser::new().parse_headers(raw)?;
        Some(Self { raw, message })
    }

    /// The address of the sender, in lower case. `None` unless there is exactly one.
    pub(super) fn sender(&self) -> Option<String> {
        if self.values("From").count() != 1 {
            return None;
        }
        let mut addresses = self.message.from()?.iter();
        let address = addresses.next()?.address()?.to_ascii_lowercase();
        (addresses.next().is_none() && is_address(&address)).then_some(address)
    }

    /// The server whose results about the sender are the topmost.
    pub(super) fn verifying_server(&self) -> Option<String> {
        let value = self.values("Authentication-Results").next()?;
        let server = authentication_results::AuthenticationResults::parse(&value).server;
        (!server.is_empty()).then_some(server)
    }

    /// Checks that the address of the sender is not forged. Returns true if it was verified by DMARC.
    ///
    /// # Errors
    /// The address is not verified, for this reason.
    pub(super) fn verify(&self, address: &str, settings: &MailSettings) -> Result<bool, String> {
        let results: Vec<String> = self.values("Authentication-Results").collect();
        authentication_results::verify(&results, address, &settings.verification)
    }

    /// The reason why the mail must not be answered, even if its sender is allowed: programs would answer each other
    /// without end.
    pub(super) fn reason_to_ignore(
        &self,
        address: &str,
        own_addresses: &[String],
    ) -> Option<&'static str> {
        let value = |name: &str| self.values(name).next().map(|value| value.trim().to_lowercase());
        let has = |name: &str| self.values(name).next().is_some();
        let first_word = |name: &str| {
            let value = value(name).unwrap_or_default();
            let end = value.find([';', ' ', '(']).unwrap_or(value.len());
            value[..end].to_owned()
        };
        let is_report = first_word("Content-Type") == "multipart/report";
        if own_addresses.iter().any(|own| own == address) {
            Some("it is from ourselves")
        } else if value("Return-Path").is_some_and(|path| path == "<>") {
            Some("it is a bounce")
        } else if is_report {
            Some("it is a report")
        } else if has("Auto-Submitted") && first_word("Auto-Submitted") != "no" {
            Some("a program has written it (`Auto-Submitted`)")
        } else if matches!(first_word("Precedence").as_str(), "bulk" | "junk" | "list") {
            Some("it is bulk mail (`Precedence`)")
        } else if has("List-Id") || has("List-Unsubscribe") {
            Some("it is from a mailing list")
        } else if has("X-Autoreply") || has("X-Autorespond") {
            Some("it is an automatic answer")
        } else if UNREAD_ADDRESSES.iter().any(|prefix| address.starts_with(prefix)) {
            Some("the sender's address is not read")
        } else {
            None
        }
    }

    /// The message, still without its text, with the mail that it answers.
    pub(super) fn to_message(
        &self,
        address: &str,
        mail_uid: MailUid,
        arrived_at: Option<i64>,
    ) -> InboundMessage {
        let MailUid { uid_validity, uid } = mail_uid;
        let header = &self.message;
        let is_id = |id: &&str| !id.is_empty() && id.len() <= MAX_MESSAGE_ID_BYTES;
        let message_id = header.message_id().filter(is_id);
        let references = header.references();
        let references = references.as_text_list().unwrap_or_default().iter();
        let references: Vec<&str> = references.map(AsRef::as_ref).filter(is_id).collect();
        let recent = references.len().saturating_sub(MAX_REFERENCES);
        let answered_ids = header.in_reply_to();
        let answered_ids = answered_ids.as_text_list().unwrap_or_default();
        let mut answered_ids = answered_ids.iter().map(AsRef::as_ref).filter(is_id);
        let answered_id = answered_ids.next_back().or_else(|| references.last().copied());
        let sent_at = header.date().map(DateTime::to_timestamp);
        InboundMessage {
            id: match message_id {
                Some(id) => format!("{address}/{id}"),
                None => format!("{address}/{}", digest(self.raw)),
            },
            chat: Chat::new(address, None, true),
            from: Sender::new(address, None, false),
            quotes: answered_id
                .map(|id| QuotedText::replied("", 0, Some(id), false))
                .into_iter()
                .collect(),
            sent_at: arrived_at.or(sent_at).unwrap_or_default(),
            reply_facts: json!({
                "uid_validity": uid_validity,
                "uid": uid,
                "message_id": message_id,
                "references": references[recent..],
                "subject": header.subject().unwrap_or_default(),
            }),
            ..InboundMessage::default()
        }
    }

    /// The values of a field, from the top. Bytes that are not UTF-8 are replaced, so that no field is skipped.
    fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = String> {
        let fields = self.message.headers().iter();
        let fields = fields.filter(move |field| field.name().eq_ignore_ascii_case(name));
        fields.map(|field| {
            let (start, end) = (field.offset_start(), field.offset_end());
            let value = self.raw.get(start as usize..end as usize);
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        })
    }
}

/// Parses `INTERNALDATE`, as in `17-Jul-1996 02:44:25 -0700`, to seconds since 1970.
pub(super) fn parse_arrival(date: &str) -> Option<i64> {
    let date = DateTime::parse_rfc822(&date.trim().replacen('-', " ", 2))?;
    date.is_valid().then(|| date.to_timestamp())
}

/// The parser of whole mails, in a process of its own.
pub struct MailParser;

/// A request to the parser.
#[derive(Serialize, Deserialize)]
pub enum MailQuery {
    Content {
        max_chars: usize,
        limits: AttachmentLimits,
        reply_facts: Value,
    },
    /// The content of the attachment with this number.
    Attachment(usize),
}

#[derive(Serialize, Deserialize)]
pub enum MailAnswer {
    Content(MailContent),
    /// In base64.
    Attachment(String),
    /// The content is not a mail, or there is no such attachment.
    Nothing,
}

/// The content of a mail.
#[derive(Serialize, Deserialize)]
pub struct MailContent {
    /// The text that the sender typed in this mail.
    typed: String,
    quotes: Vec<QuotedText>,
    files: Vec<RemoteFile>,
}

impl IsolatedParser for MailParser {
    const NAME: &'static str = "mail";
    const TIMEOUT: Duration = Duration::from_secs(30);
    const MEMORY_MIB: u64 = 512;
    type Parameters = MailQuery;
    type Output = MailAnswer;

    fn parse(query: MailQuery, document: &[u8]) -> MailAnswer {
        let answer = match query {
            MailQuery::Content { max_chars, limits, reply_facts } => {
                parse_content(document, max_chars, &limits, &reply_facts).map(MailAnswer::Content)
            }
            MailQuery::Attachment(number) => attachment_content(document, number)
                .map(|content| MailAnswer::Attachment(STANDARD.encode(content))),
        };
        answer.unwrap_or(MailAnswer::Nothing)
    }
}

/// Adds the text and the attachments of the whole mail to a message. The header and all text that the
/// sender did not type in this mail become quotes, so that a mail is always untrusted content.
///
/// # Errors
/// The run ends.
pub(super) fn add_content(
    message: &mut InboundMessage,
    raw: &[u8],
    max_chars: usize,
    limits: &AttachmentLimits,
) -> Result<(), Stop> {
    let reply_facts = message.reply_facts.clone();
    let query = MailQuery::Content { max_chars, limits: limits.clone(), reply_facts };
    let content = match isolated_parser::parse::<MailParser>(query, raw) {
        Ok(MailAnswer::Content(content)) => content,
        Ok(_) => return Ok(()),
        Err(ParserError::Stopped(stop)) => return Err(stop),
        Err(error) => {
            message.text = UserText::label(format!("[this mail cannot be read: {error}]"));
            return Ok(());
        }
    };
    // Programs mark quotations too differently to know which text of a mail was typed.
    message.text = UserText::label(content.typed);
    message.files = content.files;
    message.quotes.extend(content.quotes);
    Ok(())
}

/// Reads the content of the attachment with this number. `None` if there is none.
///
/// # Errors
/// The parser did not finish, or the run ends.
pub(super) fn read_attachment(raw: &[u8], number: usize) -> anyhow::Result<Option<Vec<u8>>> {
    match isolated_parser::parse::<MailParser>(MailQuery::Attachment(number), raw) {
        Ok(MailAnswer::Attachment(content)) => Ok(Some(STANDARD.decode(content)?)),
        Ok(_) => Ok(None),
        Err(ParserError::Stopped(stop)) => Err(stop.into()),
        Err(error) => Err(fail(Exit::BadInput, format!("the mail cannot be read: {error}"))),
    }
}

fn parse_content(
    raw: &[u8],
    max_chars: usize,
    limits: &AttachmentLimits,
    reply_facts: &Value,
) -> Option<MailContent> {
    let mail = MessageParser::new().parse(raw)?;
    let text: Vec<String> = mail.text_bodies().map(text_of).collect();
    let text = quotation::divide(&text.join("\n\n"));
    let mut left_out = Vec::new();
    let mut files = Vec::new();
    for (number, part) in attachments(&mail) {
        let file = to_file(reply_facts, number, part);
        if is_taken(part, limits) && files.len() < limits.max_count {
            files.push(file);
        } else {
            left_out.push(file.name);
        }
    }
    let header = describe_header(&mail, &left_out);
    let quotes = [
        ("header of the mail", header),
        ("quoted text", cut(&text.quoted, max_chars)),
        ("signature", cut(&text.signature, max_chars)),
    ];
    let quotes = quotes
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| QuotedText::new(label, text))
        .collect();
    Some(MailContent { typed: cut(&text.typed, max_chars), quotes, files })
}

fn describe_header(mail: &Message<'_>, left_out: &[String]) -> String {
    let one_line = |text: &str| text.replace(['\r', '\n'], " ");
    let sender = mail.from().and_then(|from| from.first());
    let name = sender.and_then(|sender| sender.name()).unwrap_or_default();
    let address = sender.and_then(|sender| sender.address()).unwrap_or_default();
    let mut lines = vec![
        format!("From: {} <{}>", one_line(name), one_line(address)),
        format!("Subject: {}", one_line(mail.subject().unwrap_or_default())),
    ];
    if let Some(date) = mail.date() {
        lines.push(format!("Date: {}", date.to_rfc822()));
    }
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().map(|name| one_line(name)).collect();
        lines.push(format!("Attachments left out: {}", names.join(", ")));
    }
    lines.join("\n")
}

fn text_of(part: &MessagePart<'_>) -> String {
    match &part.body {
        PartType::Text(text) => text.to_string(),
        PartType::Html(html) => html_to_text(html),
        _ => String::new(),
    }
}

fn cut(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}\n[cut after {max_chars} characters]", &text[..end]),
    }
}

/// The attachments, with the numbers of their parts.
fn attachments<'m, 'x>(
    mail: &'m Message<'x>,
) -> impl Iterator<Item = (usize, &'m MessagePart<'x>)> {
    let numbers = mail.attachments.iter();
    let numbers = numbers.filter_map(|number| usize::try_from(*number).ok());
    numbers.filter_map(|number| Some((number, mail.parts.get(number)?)))
}

fn attachment_content(raw: &[u8], number: usize) -> Option<Vec<u8>> {
    let mail = MessageParser::new().parse(raw)?;
    let (_, part) = attachments(&mail).find(|(other, _)| *other == number)?;
    Some(part.contents().to_vec())
}

/// The media type, in lower case.
fn media_type(part: &MessagePart<'_>) -> String {
    let Some(declared) = part.content_type() else {
        return "application/octet-stream".to_owned();
    };
    let subtype = declared.subtype().unwrap_or_default();
    format!("{}/{subtype}", declared.ctype()).to_lowercase()
}

fn is_taken(part: &MessagePart<'_>, limits: &AttachmentLimits) -> bool {
    let media_type = media_type(part);
    limits.types.iter().any(|allowed| {
        let allowed = allowed.to_lowercase();
        match allowed.strip_suffix('*') {
            Some(start) => media_type.starts_with(start),
            None => media_type == allowed,
        }
    })
}

fn to_file(facts: &Value, number: usize, part: &MessagePart<'_>) -> RemoteFile {
    let content = part.contents();
    let media_type = media_type(part);
    // The declared type of an image or a text may be wrong, so the content decides.
    let kind = match media_type.split('/').next() {
        _ if input::image_type(content).is_some() => AttachmentKind::Image,
        Some("audio") => AttachmentKind::Audio,
        Some("video") => AttachmentKind::Video,
        _ => AttachmentKind::File,
    };
    let default_name = match part.message() {
        Some(_) => "message.eml",
        None => "attachment",
    };
    RemoteFile {
        id: format!("{}.{}.{number}", facts["uid_validity"], facts["uid"]),
        name: part.attachment_name().unwrap_or(default_name).to_owned(),
        kind,
        size_bytes: u64::try_from(content.len()).ok(),
        seconds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AttachmentLimits, MailHeader, MailUid, add_content, attachment_content, is_address,
        parse_arrival,
    };

    #[test]
    fn a_mail_has_one_sender() {
        let check = |header: &[u8], expect: Option<&str>| {
            let header = [header, b"\r\n\r\n"].concat();
            let sender = MailHeader::parse(&header).and_then(|header| header.sender());
            assert_eq!(sender.as_deref(), expect, "{header:?}");
        };
        check(b"From: Ann <Ann@Example.org>", Some("ann@example.org"));
        check(b"from: ann@example.org (Ann)", Some("ann@example.org"));
        // The sign for kelvin is another letter than `k`, although it is `k` in lower case.
        check("From: \u{212a}im@b.c".as_bytes(), Some("\u{212a}im@b.c"));
        check(b"Subject: x", None);
        check(b"From: a@b.c, ann@example.org", None);
        check(b"From: a@b.c\r\nFrom: ann@example.org", None);
        check(b"From: \xff <a@b.c>\r\nFrom: ann@example.org", None);
        check(b"From: group: a@b.c, ann@example.org;", None);
        check(b"From: \"ann@example.org\" <a@b.c>", Some("a@b.c"));
        check(b"From: ann", None);
        check(b"From: <ann@example.org> <a@b.c>", None);
    }

    /// Otherwise the header of the server would be hidden by what a sender makes it quote.
    #[test]
    fn a_field_with_other_bytes_than_utf_8_counts() {
        let header = b"Authentication-Results: mx.example.net; spf=fail smtp.mailfrom=\xff\r\n\
            Authentication-Results: mx.other.example; none\r\n\r\n";
        let header = MailHeader::parse(header).unwrap();
        assert_eq!(header.verifying_server().as_deref(), Some("mx.example.net"));
    }

    #[test]
    fn ids_tell_mails_apart() {
        let id = |header: &[u8]| {
            let mail_uid = MailUid { uid_validity: 1, uid: 2 };
            let header = [header, b"\r\n\r\n"].concat();
            let header = MailHeader::parse(&header).unwrap();
            header.to_message("a@b.c", mail_uid, None).id
        };
        assert_eq!(id(b"Message-ID: <x@y>"), "a@b.c/x@y");
        assert_ne!(id(b"Subject: 1"), id(b"Subject: 2"));
        assert_eq!(id(b"Subject: 1"), id(b"Subject: 1"));
    }

    #[test]
    fn times_of_arrival_are_parsed() {
        let check = |text: &str, expect: Option<i64>| assert_eq!(parse_arrival(text), expect);
        check("17-Jul-1996 02:44:25 -0700", Some(837_596_665));
        check(" 2-Jan-2026 03:04:05 +0000", Some(1_767_323_045));
        check("", None);
    }

    #[test]
    fn fuzz_mails() {
        let seeds: &[&[u8]] = &[
            b"Authentication-Results: mx.example.net (a); dmarc=pass header.from=example.org\r\nFrom: Ann <ann@example.org>\r\n\
              Subject: =?utf-8?q?L=C3=BCnch?=\r\nMessage-ID: <1@b.c>\r\nReferences: <2@b.c>\r\n\r\nhi\r\n> a\r\n-- \r\nAnn\r\n",
            b"From: a@b.c\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>x\r\n--b\r\n\
              Content-Type: image/png; name=\"a\"\r\nContent-Transfer-Encoding: base64\r\n\r\nAAAA\r\n--b--\r\n",
            b"From: a@b.c\r\nContent-Type: message/rfc822\r\n\r\nFrom: x@y.z\r\n\r\nForwarded message\r\n",
        ];
        let limits = AttachmentLimits { types: vec!["*".into()], max_bytes: 100, max_count: 2 };
        let mail_uid = MailUid { uid_validity: 1, uid: 2 };
        nanobot_base::fuzz::check(seeds, |input, _| {
            let Some(header) = MailHeader::parse(input) else {
                return;
            };
            header.verifying_server();
            let Some(sender) = header.sender() else {
                return;
            };
            assert!(is_address(&sender) && sender == sender.to_ascii_lowercase());
            header.reason_to_ignore(&sender, &[]);
            let mut message = header.to_message(&sender, mail_uid, None);
            add_content(&mut message, input, 50, &limits).unwrap();
            assert!(message.files.len() <= 2);
            for file in &message.files {
                let number = file.id.rsplit('.').next().unwrap().parse().unwrap();
                assert!(attachment_content(input, number).is_some());
            }
        });
    }
}
