//! Converts a directory to one text: the list of its files and the content of its text files. Hidden files and files
//! ignored by `.gitignore` are left out, and links are not followed. The same directory always gives the same text.

use super::pdf;
use crate::error::{Exit, fail};
use crate::message::{Part, block};
use crate::sys::beneath::{self, Root};
use crate::sys::store::size_in_words;
use crate::sys::{input, signal};
use anyhow::{Context, Result};
use ignore::{DirEntry, Walk, WalkBuilder};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Maximum total text in bytes; about a third of a small model's context window.
const TEXT: usize = 256 << 10;
/// Maximum number of listed files.
const FILES: usize = 2_000;
/// Bytes read of a file that does not fit, to detect if it is text.
const GLANCE: u64 = 8 << 10;

/// Reads the directory at `path`, which the user calls `name`.
///
/// # Errors
/// The directory cannot be read, or the run is cancelled.
pub(super) fn read(path: &Path, name: &str, on_notice: &mut dyn FnMut(&str)) -> Result<Part> {
    let what = || format!("read `{name}`");
    let path = std::fs::canonicalize(path).with_context(what)?;
    let root = Root::open(&path).with_context(what)?;
    std::fs::read_dir(&path).with_context(what)?;
    let mut list = String::new();
    let mut blocks = String::new();
    let mut room = TEXT;
    let (mut files, mut left_out) = (0, LeftOut::default());
    for entry in walk(&path) {
        signal::check()?;
        let Ok(entry) = entry else {
            left_out.unread += 1;
            continue;
        };
        let Some(below) = below(&entry, &path) else {
            continue;
        };
        if files == FILES {
            left_out.is_cut = true;
            break;
        }
        files += 1;
        // A name with a line break would produce two lines in the list.
        let display_name = below.to_string_lossy().replace(char::is_control, "?");
        let found = look(&root, below, room);
        left_out.count(&found);
        let note = match found {
            Found::Text(text, size) => {
                room -= text.len();
                let block = block("file", Some(&display_name), &text);
                write!(blocks, "\n{block}\n").expect("writing to a string cannot fail");
                size_in_words(size)
            }
            Found::Long(size) => format!("{}, omitted", size_in_words(size)),
            Found::Binary(size) => format!("{}, binary", size_in_words(size)),
            Found::Unread => "cannot be read".into(),
            Found::Other(what) => what.into(),
        };
        writeln!(list, "{display_name}  {note}").expect("writing to a string cannot fail");
    }
    if files == 0 {
        return Err(fail(
            Exit::NoInput,
            format!("`{name}` contains only hidden and ignored files"),
        ));
    }
    if let Some(summary) = left_out.describe() {
        on_notice(&format!("`{name}`: {summary}"));
        writeln!(list, "({summary})").expect("writing to a string cannot fail");
    }
    let text = format!("{list}{blocks}");
    Ok(Part::Text(block("directory", Some(name), &text)))
}

/// Counts of the files whose content is left out.
#[derive(Default)]
struct LeftOut {
    long: usize,
    binary: usize,
    unread: usize,
    /// True if there are more files than [`MAX_FILES`].
    is_cut: bool,
}

impl LeftOut {
    fn count(&mut self, found: &Found) {
        match found {
            Found::Long(_) => self.long += 1,
            Found::Binary(_) => self.binary += 1,
            Found::Unread => self.unread += 1,
            Found::Text(..) | Found::Other(_) => {}
        }
    }

    fn describe(&self) -> Option<String> {
        let Self {
            long,
            binary,
            unread,
            is_cut,
        } = self;
        let mut parts = Vec::new();
        if *long > 0 {
            let limit = size_in_words(TEXT as u64);
            parts.push(format!("{long} over the total limit of {limit}"));
        }
        if *binary > 0 {
            parts.push(format!("{binary} binary"));
        }
        if *unread > 0 {
            parts.push(format!("{unread} unreadable"));
        }
        if *is_cut {
            parts.push(format!("all after the first {FILES}, not listed"));
        }
        let parts = parts.join("; ");
        (!parts.is_empty()).then(|| format!("file contents omitted: {parts}"))
    }
}

/// Walks the entries below `path`, in the order of their names.
fn walk(path: &Path) -> Walk {
    // As in git, ignore files of parent directories apply up to the root of the repository, and only inside one.
    let in_repository = path.ancestors().any(|above| above.join(".git").exists());
    let mut walk = WalkBuilder::new(path);
    walk.standard_filters(false)
        .hidden(true)
        .git_ignore(true)
        .require_git(false)
        .parents(in_repository)
        .follow_links(false)
        .sort_by_file_path(Path::cmp);
    walk.build()
}

/// Returns the path of `entry` relative to `path`; `None` for a directory.
fn below<'a>(entry: &'a DirEntry, path: &Path) -> Option<&'a Path> {
    let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
    entry.path().strip_prefix(path).ok().filter(|_| !is_dir)
}

/// The kind of a file's content.
enum Found {
    /// Text with the size of the file in bytes, which may differ from that of the text.
    Text(String, u64),
    /// Text that exceeds the remaining budget.
    Long(u64),
    Binary(u64),
    Unread,
    /// A file without content of its own.
    Other(&'static str),
}

/// Reads the file at `below` if it is text of at most `room` bytes.
fn look(root: &Root, below: &Path, room: usize) -> Found {
    let file = match root.read(below) {
        Ok(file) => file,
        Err(error) if beneath::is_link(&error) => {
            return Found::Other("symbolic link, not followed");
        }
        Err(_) => return Found::Unread,
    };
    let size = match file.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Found::Other("not a regular file"),
        Err(_) => return Found::Unread,
    };
    let fits = size <= room as u64;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    let most = if fits { size } else { GLANCE };
    if file.take(most).read_to_end(&mut bytes).is_err() {
        return Found::Unread;
    }
    if input::image_type(&bytes).is_some() || pdf::is_one(&bytes) {
        return Found::Binary(size);
    }
    match input::decode(bytes, "") {
        Err(_) => Found::Binary(size),
        // The read limit may split a character.
        Ok(_) if !fits => Found::Long(size),
        Ok(text) if text.notice.is_some() => Found::Binary(size),
        // UTF-16 text can be longer in UTF-8 than on disk.
        Ok(text) if text.text.len() > room => Found::Long(size),
        Ok(text) => Found::Text(text.text, size),
    }
}
