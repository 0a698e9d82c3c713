//! Reads mails: the checks of a header, and the message that a mail becomes. Pure.

use super::address::is_address;
use super::settings::{AttachmentLimits, MailSettings};
use super::{authentication_results, quotation};
use crate::channel::{AttachmentKind, Chat, InboundMessage, QuotedText, RemoteFile, Sender};
use crate::sys::digest::digest;
use crate::sys::input;
use mail_parser::decoders::html::html_to_text;
use mail_parser::{DateTime, Message, MessageParser, MessagePart, MimeHeaders, PartType};
use serde_json::json;

/// The mails of a thread that an answer refers to, at most.
const MAX_REFERENCES: usize = 19;
/// Maximum length of a `Message-ID` in bytes.
const MAX_MESSAGE_ID_BYTES: usize = 250;
/// Beginnings of addresses that programs write from, and that are not read.
const UNREAD_ADDRESSES: [&str; 6] = [
    "mailer-daemon@",
    "postmaster@",
    "noreply",
    "no-reply",
    "donotreply",
    "do-not-reply",
];

/// The place of a mail in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MailPlace {
    pub(super) uid_validity: u32,
    pub(super) uid: u32,
}

/// A header that was read.
pub(super) struct MailHeader<'m>(Message<'m>);

impl<'m> MailHeader<'m> {
    /// Parses the header of a mail. `None` if there is none.
    pub(super) fn parse(raw: &'m [u8]) -> Option<Self> {
        MessageParser::new().parse_headers(raw).map(Self)
    }

    /// The address of the sender, in lower case. `None` unless there is exactly one.
    pub(super) fn sender(&self) -> Option<String> {
        let [_] = self.values("From").collect::<Vec<_>>()[..] else {
            return None;
        };
        let mut addresses = self.0.from()?.iter();
        let address = addresses.next()?.address()?.to_lowercase();
        (addresses.next().is_none() && is_address(&address)).then_some(address)
    }

    /// The server whose results about the sender are the topmost.
    pub(super) fn verifying_server(&self) -> Option<String> {
        let value = self.values("Authentication-Results").next()?;
        let server = authentication_results::AuthenticationResults::parse(value).server;
        (!server.is_empty()).then_some(server)
    }

    /// Checks that the sender is who it says.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub(super) fn verify(&self, address: &str, settings: &MailSettings) -> Result<(), String> {
        let results: Vec<&str> = self.values("Authentication-Results").collect();
        authentication_results::verify(&results, address, &settings.verification)
    }

    /// The reason why the mail must not be answered, even if its sender is allowed: programs would answer each other
    /// without end.
    pub(super) fn reason_to_ignore(
        &self,
        address: &str,
        own_addresses: &[String],
    ) -> Option<&'static str> {
        let value = |name: &str| self.values(name).next().map(|it| it.trim().to_lowercase());
        let has = |name: &str| self.values(name).next().is_some();
        let word = |name: &str| {
            let value = value(name).unwrap_or_default();
            let end = value.find([';', ' ', '(']).unwrap_or(value.len());
            value[..end].to_owned()
        };
        let is_report = word("Content-Type") == "multipart/report";
        match () {
            () if own_addresses.iter().any(|own| own == address) => Some("it is from ourselves"),
            () if value("Return-Path").is_some_and(|path| path == "<>") => Some("it is a bounce"),
            () if is_report => Some("it is a report"),
            () if has("Auto-Submitted") && word("Auto-Submitted") != "no" => {
                Some("a program has written it (`Auto-Submitted`)")
            }
            () if matches!(word("Precedence").as_str(), "bulk" | "junk" | "list") => {
                Some("it is bulk mail (`Precedence`)")
            }
            () if has("List-Id") || has("List-Unsubscribe") => Some("it is from a mailing list"),
            () if has("X-Autoreply") || has("X-Autorespond") => Some("it is an automatic answer"),
            () if UNREAD_ADDRESSES.iter().any(|it| address.starts_with(it)) => {
                Some("the sender's address is not read")
            }
            () => None,
        }
    }

    /// The message, still without its text.
    pub(super) fn to_message(
        &self,
        address: &str,
        place: MailPlace,
        arrived_at: Option<i64>,
    ) -> InboundMessage {
        let MailPlace { uid_validity, uid } = place;
        let header = &self.0;
        let is_id = |id: &&str| !id.is_empty() && id.len() <= MAX_MESSAGE_ID_BYTES;
        let message_id = header.message_id().filter(is_id);
        let references = header.references();
        let references = references.as_text_list().unwrap_or_default().iter();
        let references: Vec<&str> = references.map(AsRef::as_ref).filter(is_id).collect();
        let recent = references.len().saturating_sub(MAX_REFERENCES);
        let sent_at = header.date().map(DateTime::to_timestamp);
        InboundMessage {
            id: match message_id {
                Some(id) => format!("{address}/{id}"),
                None => format!("{address}/{}", digest(header.raw_message())),
            },
            chat: Chat {
                id: address.to_owned(),
                thread: None,
                is_direct: true,
            },
            from: Sender {
                id: address.to_owned(),
                ..Sender::default()
            },
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

    /// The values of a field, from the top.
    fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s str> {
        let fields = self.0.headers_raw();
        fields.filter_map(move |(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
    }
}

/// Parses `INTERNALDATE`, as in `17-Jul-1996 02:44:25 -0700`, to seconds since 1970.
pub(super) fn parse_arrival(date: &str) -> Option<i64> {
    let date = DateTime::parse_rfc822(&date.trim().replacen('-', " ", 2))?;
    date.is_valid().then(|| date.to_timestamp())
}

/// Adds the text and the attachments of the whole mail to a message. The header and all that is not the sender's own
/// words in this mail become quotes, so that a mail always counts as content from outside.
pub(super) fn add_content(message: &mut InboundMessage, raw: &[u8], settings: &MailSettings) {
    let Some(mail) = MessageParser::new().parse(raw) else {
        return;
    };
    let text: Vec<String> = mail.text_bodies().map(text_of).collect();
    let text = quotation::divide(&text.join("\n\n"));
    let limit = settings.max_body_chars;
    message.text = cut(&text.typed, limit);
    let mut left_out = Vec::new();
    let mut files = Vec::new();
    for (number, part) in attachments(&mail) {
        let file = to_file(&message.reply_facts, number, part);
        match is_taken(part, &settings.attachments) && files.len() < settings.attachments.max_count
        {
            true => files.push(file),
            false => left_out.push(file.name),
        }
    }
    message.files = files;
    let header = describe_header(&mail, &left_out);
    let quotes = [
        ("header of the mail", header),
        ("quoted text", cut(&text.quoted, limit)),
        ("signature", cut(&text.signature, limit)),
    ];
    message.quotes = quotes
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| QuotedText {
            label: label.to_owned(),
            text,
        })
        .collect();
}

fn describe_header(mail: &Message<'_>, left_out: &[String]) -> String {
    let one_line = |text: &str| text.replace(['\r', '\n'], " ");
    let sender = mail.from().and_then(|from| from.first());
    let name = sender.and_then(|it| it.name()).unwrap_or_default();
    let address = sender.and_then(|it| it.address()).unwrap_or_default();
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

/// The content of the attachment with this number.
pub(super) fn attachment_content(raw: &[u8], number: usize) -> Option<Vec<u8>> {
    let mail = MessageParser::new().parse(raw)?;
    let (_, part) = attachments(&mail).find(|(found, _)| *found == number)?;
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

fn to_file(facts: &serde_json::Value, number: usize, part: &MessagePart<'_>) -> RemoteFile {
    let content = part.contents();
    let media_type = media_type(part);
    // What a mail says of an image or of a text is not relied on.
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
