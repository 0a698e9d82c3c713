//! Reads the inputs of `--attach`: files, directories, web pages and piped data. Each becomes one part of the
//! message.
//!
//! Content that a model cannot accept is rejected here, before any request.

use anyhow::Result;
use nanobot_base::message::{Image, ImageSource, MessagePart};
use nanobot_os::digest::digest;
use nanobot_os::input;
use std::ffi::OsStr;
use std::path::Path;

mod audio;
pub mod charset;
mod content;
mod directory;
pub mod html;
mod image_scaling;
mod office;
mod options;
mod origin;
mod page;
pub mod pdf;
mod picture;

pub use audio::{SoundRecording, TranscribeRecording};
pub(crate) use content::is_document;
pub use content::{document_text, media_part, part_from_bytes};
pub use image_scaling::{ImageLimits, ImageParser};
pub use office::OfficeParser;
pub use options::{AcceptedInputs, AttachOptions};
pub use origin::AttachmentOrigin;

/// Maximum file size in bytes. It allows for photographs, which are scaled down later; see [`input::MAX_STDIN_BYTES`] for text.
const MAX_FILE_BYTES: usize = 32 << 20;

/// Reads `input`: a file, a directory or a web page. Of a directory, the files that `is_closed` are left out: the user has named none of
/// them. `on_notice` receives notices about content that was changed or left out.
///
/// # Errors
/// Status 66 if it does not exist, 65 if it is of no use to the model, 77 for a page that must not be fetched, and 69
/// for one that cannot be fetched.
pub fn read(
    input: &OsStr,
    options: &AttachOptions<'_>,
    is_closed: &dyn Fn(&Path) -> bool,
    on_notice: &mut dyn FnMut(&str),
) -> Result<MessagePart> {
    let name = input.to_string_lossy();
    let path = Path::new(input);
    if page::is_http_url(&name) {
        page::fetch(&name, options, on_notice)
    } else if path.is_dir() {
        directory::read(path, &name, is_closed, on_notice)
    } else {
        let bytes = input::read_file(path, &name, MAX_FILE_BYTES)?;
        part_from_file(bytes, Some(path), AttachmentOrigin::File(&name), options, on_notice)
    }
}

/// Like [`part_from_bytes`], for the content of the file `path`. An image is read again from there in later turns.
///
/// # Errors
/// The errors of [`part_from_bytes`].
pub fn part_from_file(
    bytes: Vec<u8>,
    path: Option<&Path>,
    origin: AttachmentOrigin<'_>,
    options: &AttachOptions<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<MessagePart> {
    let is_image = input::image_type(&bytes).is_some();
    let path = if is_image { path } else { None };
    let source = path.and_then(|path| image_source(path, &bytes));
    let mut part = part_from_bytes(bytes, origin, options, on_notice)?;
    if let MessagePart::Image(image) = &mut part {
        image.source = source;
    }
    Ok(part)
}

/// True if an input is the address of a web page.
pub fn is_page(input: &OsStr) -> bool {
    page::is_http_url(&input.to_string_lossy())
}

fn image_source(path: &Path, bytes: &[u8]) -> Option<ImageSource> {
    let path = std::path::absolute(path).ok()?;
    Some(ImageSource { path: path.to_str()?.to_owned(), digest: digest(bytes) })
}

/// Reads the image `name` of an earlier turn again. `None` if its file has changed since, or is of no use to the model.
pub fn read_image_again(
    name: &str,
    source: &ImageSource,
    options: &AttachOptions<'_>,
) -> Option<Image> {
    let path = Path::new(&source.path);
    if !options.accepts.images || !path.is_file() {
        return None;
    }
    let bytes = input::read_file(path, name, MAX_FILE_BYTES).ok()?;
    if digest(&bytes) != source.digest {
        return None;
    }
    match media_part(&bytes, AttachmentOrigin::File(name), options, &mut |_| {}) {
        Ok(Some(MessagePart::Image(image))) => {
            Some(Image { source: Some(source.clone()), ..image })
        }
        _ => None,
    }
}
