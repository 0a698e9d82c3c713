//! What `--attach` takes: files, directories, pages and what was piped in, each made into one part of the message.
//!
//! What something is, its bytes say, not its name. Whatever a model cannot be sent fails here, before it is asked.

use crate::error::{Exit, fail, fail_hint};
use crate::message::{Document, Part};
use crate::sys::env::Env;
use crate::sys::input;
use anyhow::Result;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

pub mod charset;
mod directory;
pub mod html;
mod page;
pub mod pdf;
mod picture;

pub use picture::ImageLimits;

/// The largest file that is read. Photographs are, since they are made smaller; of a text see [`input::LIMIT`].
const LIMIT: usize = 32 << 20;

/// What the model takes besides text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepts {
    pub images: bool,
    /// PDFs as they are; where it does not, it gets their text.
    pub pdf: bool,
}

impl Default for Accepts {
    fn default() -> Self {
        Self {
            images: true,
            pdf: false,
        }
    }
}

/// On what terms something is attached.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub accepts: Accepts,
    pub images: ImageLimits,
    /// No page is fetched.
    pub offline: bool,
    pub env: &'a Env,
}

/// Where something came from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    File(&'a str),
    Page(&'a str),
    Stdin,
}

impl Origin<'_> {
    fn name(&self) -> &str {
        match self {
            Self::File(name) | Self::Page(name) => name,
            Self::Stdin => "standard input",
        }
    }

    /// `text` in a block that says where it came from.
    fn block(&self, text: &str) -> Part {
        Part::Text(match self {
            Self::File(name) => crate::message::block("file", Some(name), text),
            Self::Page(url) => crate::message::block("page", Some(url), text),
            Self::Stdin => crate::message::block("stdin", None, text),
        })
    }
}

/// As messages name it.
impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) | Self::Page(name) => write!(f, "`{name}`"),
            Self::Stdin => f.write_str("standard input"),
        }
    }
}

/// What `given` names: a file, a directory or a page. `tell` takes what was changed or left out.
///
/// # Errors
/// Status 66 where there is nothing of that name, 65 where it is of no use to the model, 77 for a page that may not be
/// fetched and 69 for one that cannot be.
pub fn read(given: &OsStr, terms: &Terms<'_>, tell: &mut dyn FnMut(&str)) -> Result<Part> {
    let name = given.to_string_lossy();
    let path = Path::new(given);
    if page::is_one(&name) {
        page::read(&name, terms, tell)
    } else if path.is_dir() {
        directory::read(path, &name, tell)
    } else {
        let bytes = input::read_file(path, &name, LIMIT)?;
        of_bytes(bytes, Origin::File(&name), terms, tell)
    }
}

/// The part that `bytes` make.
///
/// # Errors
/// As [`read`].
pub fn of_bytes(
    bytes: Vec<u8>,
    origin: Origin<'_>,
    terms: &Terms<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<Part> {
    if let Some(part) = other_than_text(&bytes, origin, terms, tell)? {
        return Ok(part);
    }
    let text = input::decode(bytes, &origin.to_string())?;
    text.notice.iter().for_each(|notice| tell(notice));
    text_part(&text.text, origin)
}

/// The image or the document that `bytes` are; `None` where they may be text. A PDF comes as its text where the model
/// takes no documents.
///
/// # Errors
/// As [`read`].
pub fn other_than_text(
    bytes: &[u8],
    origin: Origin<'_>,
    terms: &Terms<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<Part>> {
    if let Some(media_type) = input::image_type(bytes) {
        if !terms.accepts.images {
            let cause = format!("{origin} is an image, and the model takes none");
            return Err(fail_hint(Exit::BadInput, cause, "another `--model`"));
        }
        let image = picture::fit(bytes, media_type, origin, terms.images, tell)?;
        return Ok(Some(Part::Image(image)));
    }
    if !pdf::is_one(bytes) {
        return Ok(None);
    }
    if !terms.accepts.pdf {
        let text = pdf::text(bytes, origin, terms.env)?;
        return text_part(&text, origin).map(Some);
    }
    Ok(Some(Part::Document(Document {
        media_type: "application/pdf",
        bytes: bytes.to_vec(),
        name: origin.name().into(),
    })))
}

fn text_part(text: &str, origin: Origin<'_>) -> Result<Part> {
    if text.len() > input::LIMIT {
        let cause = format!("{origin} is longer than {} MiB", input::LIMIT >> 20);
        return Err(fail(Exit::BadInput, cause));
    }
    Ok(origin.block(text))
}

#[cfg(test)]
mod tests {
    use super::{Accepts, ImageLimits, Origin, Terms, of_bytes};
    use crate::error::{Exit, exit_of};
    use crate::message::{Document, Part};
    use crate::sys::env::Env;

    #[test]
    fn a_model_gets_what_it_takes() {
        let env = Env::default();
        let made = |bytes: &[u8], images, pdf| {
            let terms = Terms {
                accepts: Accepts { images, pdf },
                images: ImageLimits::default(),
                offline: true,
                env: &env,
            };
            of_bytes(bytes.to_vec(), Origin::File("a"), &terms, &mut |_| {})
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
            "`a` is an image, and the model takes none"
        );
        let text = Part::Text("<file name=\"a\">\nwords\n</file>".into());
        assert_eq!(made(b"words", false, false).unwrap(), text);
    }
}
