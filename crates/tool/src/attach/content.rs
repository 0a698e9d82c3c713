//! Converts bytes to a part of the message. Their type is detected from content, not from the extension.

use super::audio::SoundRecording;
use super::options::AttachOptions;
use super::origin::AttachmentOrigin;
use super::{image_scaling, office, pdf};
use anyhow::Result;
use nanobot_base::error::{Exit, Stop, WithHint, exit_for, fail, hint_for};
use nanobot_base::message::{Document, MessagePart};
use nanobot_os::input;

/// Converts `bytes` to a message part.
///
/// # Errors
/// Status 65 if the content is of no use to the model.
pub fn part_from_bytes(
    bytes: Vec<u8>,
    origin: AttachmentOrigin<'_>,
    options: &AttachOptions<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<MessagePart> {
    if let Some(part) = media_part(&bytes, origin, options, on_notice)? {
        return Ok(part);
    }
    if bytes.is_empty() {
        on_notice(&format!("{origin} is empty"));
    }
    let decoded = input::decode(bytes, &origin.to_string())?;
    decoded.notice.iter().for_each(|notice| on_notice(notice));
    text_part(&decoded.text, origin)
}

/// The line before the text of a recording.
const TRANSCRIPTION_NOTE: &str = "[transcription of a recording]\n";

/// Returns `bytes` as an image, a document or a recording; `None` if they may be text. A PDF and a recording are converted to text if
/// the model does not accept them.
///
/// # Errors
/// Status 65 if the content is of no use to the model.
pub fn media_part(
    bytes: &[u8],
    origin: AttachmentOrigin<'_>,
    options: &AttachOptions<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<Option<MessagePart>> {
    if let Some(media_type) = input::image_type(bytes) {
        if !options.accepts.images {
            let cause = format!("{origin} is an image, and the model does not accept images");
            return Err(fail(Exit::BadInput, cause).with_hint("another `--model`"));
        }
        let image =
            image_scaling::fit_image(bytes, media_type, origin, options.image_limits, on_notice)?;
        return Ok(Some(MessagePart::Image(image)));
    }
    if let Some(recording) = SoundRecording::find(bytes) {
        if options.accepts.audio && recording.is_for_models() {
            return Ok(Some(document_part(recording.media_type, bytes, origin)));
        }
        return match options.transcribe {
            Some(transcribe) => {
                let text = transcribe(&recording).map_err(|error| of_recording(error, origin))?;
                text_part(&format!("{TRANSCRIPTION_NOTE}{text}"), origin).map(Some)
            }
            None => Ok(None),
        };
    }
    if !pdf::is_pdf(bytes) {
        let text = office::read_text(bytes, origin)?;
        return text.map(|text| text_part(&text, origin)).transpose();
    }
    if !options.accepts.pdf {
        let text = pdf::extract_text(bytes, origin, options.env.get("PATH"))?;
        return text_part(&text, origin).map(Some);
    }
    Ok(Some(document_part("application/pdf", bytes, origin)))
}

fn document_part(
    media_type: &'static str,
    bytes: &[u8],
    origin: AttachmentOrigin<'_>,
) -> MessagePart {
    let name = origin.name().into();
    MessagePart::Document(Document { media_type, bytes: bytes.to_vec(), name })
}

/// The error of a transcription, with the name of the recording.
fn of_recording(error: anyhow::Error, origin: AttachmentOrigin<'_>) -> anyhow::Error {
    if error.is::<Stop>() {
        return error;
    }
    let cause = format!("{origin} is a recording, and was not transcribed: {error:#}");
    match hint_for(&error) {
        Some(hint) => fail(exit_for(&error), cause).with_hint(hint),
        None => fail(exit_for(&error), cause),
    }
}

/// True if `bytes` begin as a PDF or an office document does, which cannot be read if its end is missing.
pub(crate) fn is_document(bytes: &[u8]) -> bool {
    pdf::is_pdf(bytes) || office::is_archive(bytes)
}

/// Extracts the text of a PDF or of an office document. `None` if `bytes` are neither. `path` is the `PATH` of the
/// program that reads PDFs.
///
/// # Errors
/// The document has no text that can be read, or the program is missing. The error contains the hint, since the caller is a tool.
pub fn document_text(
    bytes: &[u8],
    origin: AttachmentOrigin<'_>,
    path: Option<&str>,
) -> Result<Option<String>, String> {
    let text = if pdf::is_pdf(bytes) {
        pdf::extract_text(bytes, origin, path).map(Some)
    } else {
        office::read_text(bytes, origin)
    };
    text.map_err(|error| match hint_for(&error) {
        Some(hint) => format!("{error:#}; {hint}"),
        None => format!("{error:#}"),
    })
}

pub(super) fn text_part(text: &str, origin: AttachmentOrigin<'_>) -> Result<MessagePart> {
    if text.len() > input::MAX_STDIN_BYTES {
        let cause = format!("{origin} is longer than {} MiB", input::MAX_STDIN_BYTES >> 20);
        return Err(fail(Exit::BadInput, cause));
    }
    Ok(origin.wrap_text(text))
}

#[cfg(test)]
mod tests {
    use super::{AttachOptions, AttachmentOrigin, image_scaling::ImageLimits, part_from_bytes};
    use crate::attach::options::AcceptedInputs;
    use nanobot_base::error::{Exit, exit_for};
    use nanobot_base::message::{Document, MessagePart};
    use nanobot_os::env::Env;

    #[test]
    fn content_is_converted_to_what_a_model_accepts() {
        let env = Env::default();
        let convert = |bytes: &[u8], images, pdf| {
            let options = AttachOptions {
                accepts: AcceptedInputs { images, pdf, audio: false },
                image_limits: ImageLimits::default(),
                network: None,
                transcribe: None,
                env: &env,
            };
            part_from_bytes(bytes.to_vec(), AttachmentOrigin::File("a"), &options, &mut |_| {})
        };
        let pdf = b"%PDF-1.4";
        let document =
            Document { media_type: "application/pdf", bytes: pdf.to_vec(), name: "a".into() };
        assert_eq!(convert(pdf, false, true).unwrap(), MessagePart::Document(document));
        let gif = b"GIF89a\x01\0\x01\0\0\0\0";
        assert!(matches!(convert(gif, true, true), Ok(MessagePart::Image(_))));
        let error = convert(gif, false, true).unwrap_err();
        assert_eq!(exit_for(&error), Exit::BadInput);
        assert_eq!(error.to_string(), "`a` is an image, and the model does not accept images");
        let text = MessagePart::Text("<file name=\"a\">\nwords\n</file>".into());
        assert_eq!(convert(b"words", false, false).unwrap(), text);
    }
}
