//! What `--attach` takes: files, directories, pages and what was piped in, each made into one part of the message.
//!
//! Whatever a model cannot be sent fails here, before it is asked.

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

/// The largest file that is read. Photographs are, since they are made smaller; of a text see [`input::LIMIT`].
const LIMIT: usize = 32 << 20;

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
