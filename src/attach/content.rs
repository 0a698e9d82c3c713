//! Converts bytes to a part of the message. Their type is detected from content, not from the extension.

use super::options::Terms;
use super::origin::Origin;
use super::{pdf, picture};
use crate::error::{Exit, fail, fail_hint};
use crate::message::{Document, Part};
use crate::sys::input;
use anyhow::Result;

/// Converts `bytes` to a message part.
///
/// # Errors
/// Status 65 if the content is of no use to the model.
pub fn of_bytes(
    bytes: Vec<u8>,
    origin: Origin<'_>,
    options: &Terms<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<Part> {
    if let Some(part) = other_than_text(&bytes, origin, options, on_notice)? {
        return Ok(part);
    }
    let text = input::decode(bytes, &origin.to_string())?;
    text.notice.iter().for_each(|notice| on_notice(notice));
    text_part(&text.text, origin)
}

/// Returns `bytes` as an image or a document; `None` if they may be text. A PDF is converted to text if the model
/// does not accept documents.
///
/// # Errors
/// Status 65 if the content is of no use to the model.
pub fn other_than_text(
    bytes: &[u8],
    origin: Origin<'_>,
    options: &Terms<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<Option<Part>> {
    if let Some(media_type) = input::image_type(bytes) {
        if !options.accepts.images {
            let cause = format!("{origin} is an image, and the model does not accept images");
            return Err(fail_hint(Exit::BadInput, cause, "another `--model`"));
        }
        let image = picture::fit(bytes, media_type, origin, options.images, on_notice)?;
        return Ok(Some(Part::Image(image)));
    }
    if !pdf::is_one(bytes) {
        return Ok(None);
    }
    if !options.accepts.pdf {
        let text = pdf::text(bytes, origin, options.env)?;
        return text_part(&text, origin).map(Some);
    }
    Ok(Some(Part::Document(Document {
        media_type: "application/pdf",
        bytes: bytes.to_vec(),
        name: origin.name().into(),
    })))
}

pub(super) fn text_part(text: &str, origin: Origin<'_>) -> Result<Part> {
    if text.len() > input::LIMIT {
        let cause = format!("{origin} is longer than {} MiB", input::LIMIT >> 20);
        return Err(fail(Exit::BadInput, cause));
    }
    Ok(origin.block(text))
}

#[cfg(test)]
mod tests {
    use super::{Origin, Terms, of_bytes, picture::ImageLimits};
    use crate::attach::options::Accepts;
    use crate::error::{Exit, exit_of};
    use crate::message::{Document, Part};
    use crate::sys::env::Env;

    #[test]
    fn a_model_gets_what_it_takes() {
        let env = Env::default();
        let made = |bytes: &[u8], images, pdf| {
            let options = Terms {
                accepts: Accepts { images, pdf },
                images: ImageLimits::default(),
                offline: true,
                env: &env,
            };
            of_bytes(bytes.to_vec(), Origin::File("a"), &options, &mut |_| {})
        };
        let pdf = b"%PDF-1.4";
        let document = Document {
            media_type: "application/pdf",
            bytes: pdf.to_vec(),
            name: "a".into(),
        };
        assert_eq!(made(pdf, false, true).unwrap(), Part::Document(document));
        let gif = b"GIF89a\x01\0\x01\0\0\0\0";
        assert!(matches!(made(gif, true, true), Ok(Part::Image(_))));
        let error = made(gif, false, true).unwrap_err();
        assert_eq!(exit_of(&error), Exit::BadInput);
        assert_eq!(
            error.to_string(),
            "`a` is an image, and the model does not accept images"
        );
        let text = Part::Text("<file name=\"a\">\nwords\n</file>".into());
        assert_eq!(made(b"words", false, false).unwrap(), text);
    }
}
