//! Reads the inputs of `--attach`: files, directories, web pages and piped data. Each becomes one part of the
//! message.
//!
//! Content that a model cannot accept is rejected here, before any request.

use crate::message::Part;
use crate::sys::input;
use anyhow::Result;
use std::ffi::OsStr;
use std::path::Path;

pub mod charset;
mod content;
mod directory;
pub mod html;
mod options;
mod origin;
mod page;
pub mod pdf;
mod picture;

pub use content::{of_bytes, other_than_text};
pub use options::{Accepts, Terms};
pub use origin::Origin;
pub use picture::ImageLimits;

/// Maximum file size in bytes. It allows for photographs, which are scaled down later; see [`input::LIMIT`] for text.
const LIMIT: usize = 32 << 20;

/// Reads `input`: a file, a directory or a web page. `on_notice` receives notices about content that was changed or
/// left out.
///
/// # Errors
/// Status 66 if it does not exist, 65 if it is of no use to the model, 77 for a page that must not be fetched, and 69
/// for one that cannot be fetched.
pub fn read(given: &OsStr, options: &Terms<'_>, on_notice: &mut dyn FnMut(&str)) -> Result<Part> {
    let name = given.to_string_lossy();
    let path = Path::new(given);
    if page::is_one(&name) {
        page::read(&name, options, on_notice)
    } else if path.is_dir() {
        directory::read(path, &name, on_notice)
    } else {
        let bytes = input::read_file(path, &name, LIMIT)?;
        of_bytes(bytes, Origin::File(&name), options, on_notice)
    }
}
