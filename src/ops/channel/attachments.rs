//! Attachments of inbound messages: downloaded after the sender was checked, under names of our own.

use crate::ops::channel::message_quotes;
use crate::ops::channel::open_channel::OpenChannel;
use crate::ops::transcription::Transcriber;
use anyhow::Result;
use nanobot_base::error::Stop;
use nanobot_base::message::user_text::UserText;
use nanobot_base::message::{Origin, tagged_block};
use nanobot_channel::inbox::InboxState;
use nanobot_channel::{AttachmentKind, InboundMessage, RemoteFile};
use nanobot_os::age::{Age, is_older};
use nanobot_os::digest::digest;
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use nanobot_os::signal;
use nanobot_tool::attach::{self, AttachmentOrigin};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Largest attachment that is downloaded.
const MAX_ATTACHMENT_BYTES: u64 = 20 << 20;
/// Maximum number of attachments of one message.
const MAX_ATTACHMENTS: usize = 10;
/// Maximum length of the sender's file name in ours, in characters.
const MAX_NAME_CHARS: usize = 60;

/// The attachments of messages, in the form that a turn takes.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    /// Files that are sent to the model with the message.
    pub(crate) paths: Vec<PathBuf>,
    /// Lines about files that are not sent to the model.
    pub(crate) notes: Vec<UserText>,
    /// True if there is other content than speech of the sender.
    pub(crate) has_others_text: bool,
}

/// Downloads the attachments of a message, and transcribes recordings. An attachment that cannot be downloaded becomes a
/// note.
///
/// # Errors
/// The run was stopped, or a file cannot be written.
pub(crate) fn download(
    channel: &OpenChannel,
    message: &InboundMessage,
    transcriber: &Transcriber<'_>,
) -> Result<Attachments> {
    let mut attachments = Attachments::default();
    if message.files.is_empty() {
        return Ok(attachments);
    }
    let directory = &channel.files.media;
    durable_file::create_dir(directory)?;
    for file in message.files.iter().take(MAX_ATTACHMENTS) {
        let name = safe_name(&file.name);
        let path = attachment_path(directory, file);
        let fetch_result = fetch_to(channel, file, &path);
        if let Ok(true) = fetch_result
            && let Some(label) = recording_label(file.kind)
            && let Some(text) = transcribe(channel, transcriber, file, &path)?
        {
            attachments.notes.push(match file.kind {
                AttachmentKind::Voice => {
                    let mut note = UserText::label("[transcription: ");
                    note.push(&UserText::typed(text));
                    note.push(&UserText::label("]"));
                    note
                }
                _ => {
                    let content = message_quotes::others_content(Origin::External);
                    UserText::of_others(tagged_block("quote", Some(label), &text), content)
                }
            });
            attachments.has_others_text |= file.kind != AttachmentKind::Voice;
            continue;
        }
        attachments.has_others_text = true;
        match fetch_result {
            Ok(true) if is_for_model(file, &path) => attachments.paths.push(path),
            Ok(true) => {
                let label = recording_label(file.kind).unwrap_or("file");
                attachments.notes.push(UserText::label(format!("[{label}: {}]", path.display())));
            }
            Ok(false) => {
                attachments
                    .notes
                    .push(UserText::label(format!("[attachment: {name} - too large]")));
            }
            Err(error) => {
                signal::check()?;
                log::warn!(target: "channel", "{}: an attachment was not downloaded: {error:#}", channel.name());
                attachments
                    .notes
                    .push(UserText::label(format!("[attachment: {name} - download failed]")));
            }
        }
    }
    let omitted = message.files.len().saturating_sub(MAX_ATTACHMENTS);
    if omitted > 0 {
        attachments.has_others_text = true;
        attachments
            .notes
            .push(UserText::label(format!("[{omitted} more attachments were left out]")));
    }
    Ok(attachments)
}

/// The path of an attachment in `media`.
pub(crate) fn attachment_path(media: &Path, file: &RemoteFile) -> PathBuf {
    let name = safe_name(&file.name);
    media.join(format!("{}-{name}", &digest(file.id.as_bytes())[..16]))
}

/// The word for a recording of speech; `None` for other files.
fn recording_label(kind: AttachmentKind) -> Option<&'static str> {
    match kind {
        AttachmentKind::Voice => Some("voice"),
        AttachmentKind::Audio => Some("audio"),
        AttachmentKind::Image | AttachmentKind::Video | AttachmentKind::File => None,
    }
}

/// The text of a recording; `None` if it was not transcribed.
///
/// # Errors
/// The run was stopped.
fn transcribe(
    channel: &OpenChannel,
    transcriber: &Transcriber<'_>,
    file: &RemoteFile,
    path: &Path,
) -> Result<Option<String>> {
    match transcriber.transcribe(path, file.seconds) {
        Ok(text) => Ok(text),
        Err(error) if error.is::<Stop>() => Err(error),
        Err(error) => {
            log::warn!(target: "channel", "{}: a recording was not transcribed: {error:#}", channel.name());
            Ok(None)
        }
    }
}

/// Stores a copy of a file to be sent: the file may have changed when a later poll sends it. Each copy has its own
/// directory in `media`, because the service shows the file's name.
///
/// # Errors
/// The file cannot be read, or the copy cannot be written.
pub(crate) fn store_copy(media: &Path, name: &str, content: &mut dyn Read) -> Result<PathBuf> {
    let directory = media.join(random_hex(8));
    durable_file::create_dir(&directory)?;
    let path = directory.join(name);
    durable_file::replace_with(&path, |out| Ok(std::io::copy(content, out).map(drop)?))?;
    Ok(path)
}

/// Removes a copy with its directory. Other files stay.
pub(crate) fn remove_copy(media: &Path, path: &Path) {
    let directory = path.parent().filter(|directory| directory.parent() == Some(media));
    if let Some(Err(error)) = directory.map(std::fs::remove_dir_all) {
        log::warn!(target: "channel", "`{}` was not removed: {error}", path.display());
    }
}

/// Removes attachments, and copies of files that could not be sent, from the directory `media` of the channel with this inbox, if they
/// were not changed for longer than `age`. The files of messages that wait stay.
pub(crate) fn remove_old(media: &Path, age: Age, now: SystemTime, inbox: &InboxState) {
    let Some(limit) = age.limit(now) else {
        return;
    };
    let entries = std::fs::read_dir(media).into_iter().flatten().flatten();
    let mut old_paths =
        entries.map(|entry| entry.path()).filter(|path| is_older(path, limit)).peekable();
    if old_paths.peek().is_none() {
        return;
    }
    let used_paths = used_paths(media, inbox);
    for path in old_paths.filter(|path| !used_paths.iter().any(|used| used.starts_with(path))) {
        let is_directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let result =
            if is_directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match result {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                log::warn!(target: "channel", "`{}` was not removed: {error}", path.display());
            }
            Ok(()) => {}
        }
    }
}

/// The files of messages that wait for an answer, and of those that wait for their delivery.
fn used_paths(media: &Path, inbox: &InboxState) -> Vec<PathBuf> {
    let received = inbox.unanswered().flat_map(|entry| &entry.message.files);
    let parts = inbox.undelivered().flat_map(|entry| &entry.message.parts);
    let sent = parts.flat_map(|part| part.file.iter().chain(&part.attached));
    received.map(|file| attachment_path(media, file)).chain(sent.cloned()).collect()
}

/// Downloads a file to `path`. Returns false if it is too large; then no file is left.
fn fetch_to(channel: &OpenChannel, file: &RemoteFile, path: &Path) -> Result<bool> {
    if file.size_bytes.is_some_and(|size| size > MAX_ATTACHMENT_BYTES) {
        return Ok(false);
    }
    let mut is_whole = true;
    durable_file::replace_with(path, |out| {
        is_whole = channel.service.fetch(file, out, MAX_ATTACHMENT_BYTES)?;
        Ok(())
    })?;
    if !is_whole {
        drop(std::fs::remove_file(path));
    }
    Ok(is_whole)
}

/// True if models take such content: images, PDF and office documents, and text.
fn is_for_model(file: &RemoteFile, path: &Path) -> bool {
    match file.kind {
        AttachmentKind::Image => true,
        AttachmentKind::Voice | AttachmentKind::Audio | AttachmentKind::Video => false,
        AttachmentKind::File => {
            let content = durable_file::read_limited(path, MAX_ATTACHMENT_BYTES).ok().flatten();
            let content = content.unwrap_or_default();
            content.starts_with(b"%PDF-")
                || std::str::from_utf8(&content).is_ok_and(|text| !text.contains('\0'))
                || is_office_document(&content, path)
        }
    }
}

/// True for an office document whose text can be read.
fn is_office_document(content: &[u8], path: &Path) -> bool {
    let name = path.to_string_lossy();
    attach::document_text(content, AttachmentOrigin::File(&name), None)
        .is_ok_and(|text| text.is_some())
}

/// A file name without separators, control characters or a leading dot.
fn safe_name(name: &str) -> String {
    let to_safe = |letter: char| {
        if letter.is_alphanumeric() || ".-_".contains(letter) { letter } else { '_' }
    };
    let name: String = name.chars().map(to_safe).take(MAX_NAME_CHARS).collect();
    match name.trim_start_matches('.') {
        "" => "file".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::safe_name;

    #[test]
    fn names_cannot_leave_the_directory() {
        let check = |name: &str, expect: &str| assert_eq!(safe_name(name), expect);
        check("notes.md", "notes.md");
        check("../../.bashrc", "_.._.bashrc");
        check("/etc/passwd", "_etc_passwd");
        check("a\nb\u{202e}", "a_b_");
        check("..", "file");
        check("", "file");
    }
}
