//! Files that are sent to a service.

use super::{AttachmentKind, ChannelError, ChannelResult};
use anyhow::Context as _;
use nanobot_base::error::{Exit, fail};
use nanobot_os::durable_file;
use nanobot_os::secret::random_hex;
use std::fmt::Display;
use std::io::Read;
use std::path::Path;

/// A file that is read for an upload.
pub struct UploadFile {
    /// The file's name, without characters that would end a header.
    pub name: String,
    pub bytes: Vec<u8>,
}

impl UploadFile {
    /// Reads a file of at most `limit_bytes`.
    ///
    /// # Errors
    /// The file is missing, too large, or cannot be read.
    pub fn read(path: &Path, limit_bytes: u64) -> ChannelResult<Self> {
        let Some(file) = durable_file::open_existing(path)? else {
            let cause = format!("`{}` does not exist", path.display());
            return Err(ChannelError::Other(fail(Exit::NoInput, cause)));
        };
        let mut bytes = Vec::new();
        let read = file.take(limit_bytes + 1).read_to_end(&mut bytes);
        read.with_context(|| format!("read `{}`", path.display()))?;
        if bytes.len() as u64 > limit_bytes {
            let cause =
                format!("`{}` is larger than {} MB", path.display(), limit_bytes / 1_000_000);
            return Err(ChannelError::Undeliverable(cause));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.replace(|letter: char| letter == '"' || letter.is_control(), "_");
        Ok(Self { name, bytes })
    }

    /// The kind of attachment that services show, and the media type. Both follow from the extension of the file's name.
    pub fn media_type(&self) -> (AttachmentKind, &'static str) {
        let extension = self.name.rsplit('.').next().unwrap_or_default();
        match extension.to_lowercase().as_str() {
            "png" => (AttachmentKind::Image, "image/png"),
            "jpg" | "jpeg" => (AttachmentKind::Image, "image/jpeg"),
            "gif" => (AttachmentKind::Image, "image/gif"),
            "webp" => (AttachmentKind::Image, "image/webp"),
            "ogg" | "oga" | "opus" => (AttachmentKind::Voice, "audio/ogg"),
            "mp3" => (AttachmentKind::Audio, "audio/mpeg"),
            "m4a" => (AttachmentKind::Audio, "audio/mp4"),
            "mp4" => (AttachmentKind::Video, "video/mp4"),
            "pdf" => (AttachmentKind::File, "application/pdf"),
            "txt" | "md" => (AttachmentKind::File, "text/plain"),
            _ => (AttachmentKind::File, "application/octet-stream"),
        }
    }

    /// A form with `fields` and the file as `file_field`: its media type and its bytes (RFC 7578).
    pub fn to_form<S: Display>(&self, fields: &[(S, S)], file_field: &str) -> (String, Vec<u8>) {
        let boundary = format!("nanobot-{}", random_hex(16));
        let mut form = Vec::with_capacity(self.bytes.len() + 1024);
        for (name, value) in fields {
            form.extend_from_slice(
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
                    .as_bytes(),
            );
        }
        let (_, media_type) = self.media_type();
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{file_field}\"; filename=\"{}\"\r\nContent-Type: {media_type}\r\n\r\n",
            self.name
        );
        form.extend_from_slice(head.as_bytes());
        form.extend_from_slice(&self.bytes);
        form.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        (format!("multipart/form-data; boundary={boundary}"), form)
    }
}
