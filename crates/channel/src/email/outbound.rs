//! Writes mails: an answer in its thread, or a mail that answers none. No I/O, except for the attached files.

use super::settings::MailSettings;
use crate::upload::UploadFile;
use crate::{ChannelResult, Destination, Part};
use mail_builder::MessageBuilder;
use mail_builder::headers::address::Address;
use mail_builder::headers::raw::Raw;
use nanobot_os::digest::digest;
use serde_json::Value;
use std::borrow::Cow;

/// Maximum size of the files of a mail, in bytes. Base64 adds a third; most services accept 25 MB.
const MAX_FILES_BYTES: u64 = 18_000_000;
/// Maximum characters of a subject that is taken from the text.
const MAX_SUBJECT_CHARS: usize = 70;
/// The subject of a mail without text.
const DEFAULT_SUBJECT: &str = "nanobot";

/// A mail that is ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct OutboundMail {
    pub(super) message_id: String,
    pub(super) bytes: Vec<u8>,
}

/// Writes the mail for a part. The same key gives the same `Message-ID`, by which readers recognize a mail that comes
/// twice. `now` is in seconds since 1970.
///
/// # Errors
/// A file is missing or too large.
pub(super) fn write(
    settings: &MailSettings,
    destination: &Destination,
    part: &Part,
    key: &str,
    now: i64,
) -> ChannelResult<OutboundMail> {
    let facts = &destination.reply_facts;
    let to = &destination.chat.id;
    let from = &settings.from;
    let domain = from.address.rsplit('@').next().unwrap_or_default();
    let digest = digest(format!("{} {to} {key}", from.address).as_bytes());
    let message_id = format!("{digest}@{domain}");
    let is_answer = !facts.is_null();
    let mut mail = MessageBuilder::new()
        .from(Address::new_address(from.name.as_deref(), from.address.as_str()))
        .to(Address::new_address(None::<&str>, to.as_str()))
        .subject(subject(settings, facts, part))
        .date(now)
        .message_id(message_id.clone())
        // Other programs that answer by themselves must not answer this (RFC 3834).
        .header(
            "Auto-Submitted",
            Raw::new(if is_answer { "auto-replied" } else { "auto-generated" }),
        )
        .header("X-Auto-Response-Suppress", Raw::new("All"));
    if let Some(answered_id) = facts["message_id"].as_str() {
        let references = facts["references"].as_array().into_iter().flatten();
        let references = references.filter_map(Value::as_str).chain([answered_id]);
        mail = mail.in_reply_to(answered_id).references(references.collect::<Vec<_>>());
    }
    mail = mail.text_body(part.plain.as_str());
    if !part.markup.is_empty() {
        mail = mail.html_body(format!("<!DOCTYPE html><html><body>{}</body></html>", part.markup));
    }
    let mut bytes_left = MAX_FILES_BYTES;
    for path in part.file.iter().chain(&part.attached) {
        let file = UploadFile::read(path, bytes_left)?;
        bytes_left -= file.bytes.len() as u64;
        let (_, media_type) = file.media_type();
        mail = mail.attachment(media_type, file.name, file.bytes);
    }
    let bytes = mail.write_to_vec();
    Ok(OutboundMail { message_id, bytes: bytes.map_err(anyhow::Error::from)? })
}

/// The subject of the answered mail with the prefix; else the first line of the text.
fn subject<'s>(settings: &MailSettings, facts: &Value, part: &Part) -> Cow<'s, str> {
    let one_line = |text: &str| -> String {
        text.split(|letter: char| letter.is_whitespace() || letter.is_control())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    if let Some(subject) = facts["subject"].as_str() {
        let subject = one_line(subject);
        let start = subject.get(..3).unwrap_or_default();
        return if start.eq_ignore_ascii_case("re:") {
            subject.into()
        } else {
            format!("{}{subject}", settings.subject_prefix).into()
        };
    }
    let file = part.file.iter().chain(&part.attached).next();
    let file = file.and_then(|path| path.file_name()).unwrap_or_default();
    let file = file.to_string_lossy();
    let mut lines = part.plain.lines().map(one_line);
    let subject = lines.find(|line| !line.is_empty());
    let subject = subject.unwrap_or_else(|| one_line(&file));
    match subject.char_indices().nth(MAX_SUBJECT_CHARS) {
        _ if subject.is_empty() => DEFAULT_SUBJECT.into(),
        None => subject.into(),
        Some((end, _)) => format!("{}…", subject[..end].trim_end()).into(),
    }
}
