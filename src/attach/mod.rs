//! Reads the inputs of `--attach`: files, directories, web pages and piped data. Each becomes one part of the
//! message.
//!
//! Content that a model cannot accept is rejected here, before any request.

use crate::message::MessagePart;
use crate::sys::input;
use anyhow::Result;
use std::ffi::OsStr;
use std::path::Path;

pub mod charset;
mod content;
mod directory;
pub mod html;
mod image_scaling;
mod options;
mod origin;
mod page;
pub mod pdf;

pub use content::{media_part, part_from_bytes};
pub use image_scaling::ImageLimits;
pub use options::{AcceptedInputs, AttachOptions};
pub use origin::AttachmentOrigin;

/// Maximum file size in bytes. It allows for photographs, which are scaled down later; see [`input::MAX_STDIN_BYTES`] for text.
const MAX_FILE_BYTES: usize = 32 << 20;

/// Reads `input`: a file, a directory or a web page. `on_notice` receives notices about content that was changed or
/// left out.
///
/// # Errors
/// Status 66 if it does not exist, 65 if it is of no use to the model, 77 for a page that must not be fetched, and 69
/// for one that cannot be fetched.
pub fn read(
    input: &OsStr,
    options: &AttachOptions<'_>,
    on_notice: &mut dyn FnMut(&str),
) -> Result<MessagePart> {
    let name = input.to_string_lossy();
    let path = Path::new(input);
    if page::is_http_url(&name) {
        page::fetch(&name, options, on_notice)
    } else if path.is_dir() {
        directory::read(path, &name, on_notice)
    } else {
        let bytes = input::read_file(path, &name, MAX_FILE_BYTES)?;
        part_from_bytes(bytes, AttachmentOrigin::File(&name), options, on_notice)
    }
}
