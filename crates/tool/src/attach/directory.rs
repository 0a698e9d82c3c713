//! Converts a directory to one text: the list of its files and the content of its text files. Hidden files and files
//! ignored by `.gitignore` are left out, as are those that the user closes by rules, and links are not followed. The same directory
//! always gives the same text.

use super::pdf;
use anyhow::{Context, Result};
use ignore::{DirEntry, Walk, WalkBuilder};
use nanobot_base::error::{Exit, fail};
use nanobot_base::message::{MessagePart, tagged_block};
use nanobot_os::durable_file::format_size;
use nanobot_os::input;
use nanobot_os::rooted_fs::{self, RootDir};
use nanobot_os::signal;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Maximum total text in bytes; about a third of a small model's context window.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Maximum number of listed files.
const MAX_FILES: usize = 2_000;
/// Bytes read of a file that does not fit, to detect whether it is text.
const PROBE_BYTES: u64 = 8 << 10;

/// Reads the directory at `path`, which the user calls `name`, without the files that `is_closed` tells by their whole path.
///
/// # Errors
/// The directory cannot be read, or the run is cancelled.
pub(super) fn read(
    path: &Path,
    name: &str,
    is_closed: &dyn Fn(&Path) -> bool,
    on_notice: &mut dyn FnMut(&str),
) -> Result<MessagePart> {
    let context = || format!("read `{name}`");
    let path = std::fs::canonicalize(path).with_context(context)?;
    let root = RootDir::open(&path).with_context(context)?;
    let mut entries = std::fs::read_dir(&path).with_context(context)?;
    let mut list = String::new();
    let mut blocks = String::new();
    let mut remaining_bytes = MAX_TEXT_BYTES;
    let (mut file_count, mut omitted) = (0, OmittedFiles::default());
    for entry in walk(&path) {
        signal::check()?;
        let Ok(entry) = entry else {
            omitted.unreadable += 1;
            continue;
        };
        let Some(relative) = relative_path(&entry, &path) else {
            continue;
        };
        if is_closed(entry.path()) {
            omitted.closed += 1;
            continue;
        }
        if file_count == MAX_FILES {
            omitted.is_truncated = true;
            break;
        }
        file_count += 1;
        // A name with a line break would produce two lines in the list.
        let display_name = relative.to_string_lossy().replace(char::is_control, "?");
        let file = read_file(&root, relative, remaining_bytes);
        omitted.count(&file);
        let note = match file {
            DirectoryFile::Text(text, size) => {
                remaining_bytes -= text.len();
                let block = tagged_block("file", Some(&display_name), &text);
                write!(blocks, "\n{block}\n").expect("writing to a string cannot fail");
                format_size(size)
            }
            DirectoryFile::TooLong(size) => format!("{}, omitted", format_size(size)),
            DirectoryFile::Binary(size) => format!("{}, binary", format_size(size)),
            DirectoryFile::Unreadable => "cannot be read".into(),
            DirectoryFile::Other(kind) => kind.into(),
        };
        writeln!(list, "{display_name}  {note}").expect("writing to a string cannot fail");
    }
    if file_count == 0 {
        let cause = match entries.next() {
            Some(_) if omitted.closed > 0 => "contains only hidden, ignored and denied files",
            Some(_) => "contains only hidden and ignored files",
            None => "is empty",
        };
        return Err(fail(Exit::NoInput, format!("`{name}` {cause}")));
    }
    if let Some(summary) = omitted.describe() {
        on_notice(&format!("`{name}`: {summary}"));
        writeln!(list, "({summary})").expect("writing to a string cannot fail");
    }
    let text = format!("{list}{blocks}");
    Ok(MessagePart::Text(tagged_block("directory", Some(name), &text)))
}

/// Counts of the files whose content is left out.
#[derive(Default)]
struct OmittedFiles {
    too_long: usize,
    binary: usize,
    unreadable: usize,
    closed: usize,
    /// True if there are more files than [`MAX_FILES`].
    is_truncated: bool,
}

impl OmittedFiles {
    fn count(&mut self, file: &DirectoryFile) {
        match file {
            DirectoryFile::TooLong(_) => self.too_long += 1,
            DirectoryFile::Binary(_) => self.binary += 1,
            DirectoryFile::Unreadable => self.unreadable += 1,
            DirectoryFile::Text(..) | DirectoryFile::Other(_) => {}
        }
    }

    fn describe(&self) -> Option<String> {
        let Self { too_long, binary, unreadable, closed, is_truncated } = self;
        let mut parts = Vec::new();
        if *too_long > 0 {
            let limit = format_size(MAX_TEXT_BYTES as u64);
            parts.push(format!("{too_long} over the total limit of {limit}"));
        }
        if *binary > 0 {
            parts.push(format!("{binary} binary"));
        }
        if *unreadable > 0 {
            parts.push(format!("{unreadable} unreadable"));
        }
        if *closed > 0 {
            parts.push(format!("{closed} denied by a rule, not listed"));
        }
        if *is_truncated {
            parts.push(format!("all after the first {MAX_FILES}, not listed"));
        }
        let parts = parts.join("; ");
        (!parts.is_empty()).then(|| format!("file contents omitted: {parts}"))
    }
}

/// Walks the entries below `path`, in the order of their names.
fn walk(path: &Path) -> Walk {
    // As in git, ignore files of parent directories apply up to the root of the repository, and only inside a repository.
    let in_repository = path.ancestors().any(|ancestor| ancestor.join(".git").exists());
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
fn relative_path<'a>(entry: &'a DirEntry, path: &Path) -> Option<&'a Path> {
    let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
    if is_dir { None } else { entry.path().strip_prefix(path).ok() }
}

/// The kind of a file's content.
enum DirectoryFile {
    /// Text with the size of the file in bytes, which may differ from that of the text.
    Text(String, u64),
    /// Text that exceeds the remaining budget.
    TooLong(u64),
    Binary(u64),
    Unreadable,
    /// A file without content of its own.
    Other(&'static str),
}

/// Reads the file at `relative` if it is text of at most `max_bytes` bytes.
fn read_file(root: &RootDir, relative: &Path, max_bytes: usize) -> DirectoryFile {
    let file = match root.open_for_reading(relative) {
        Ok(file) => file,
        Err(error) if rooted_fs::is_link(&error) => {
            return DirectoryFile::Other("symbolic link, not followed");
        }
        Err(_) => return DirectoryFile::Unreadable,
    };
    let size = match file.metadata() {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return DirectoryFile::Other("not a regular file"),
        Err(_) => return DirectoryFile::Unreadable,
    };
    let is_within_limit = size <= max_bytes as u64;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    let read_limit = if is_within_limit { size } else { PROBE_BYTES };
    if file.take(read_limit).read_to_end(&mut bytes).is_err() {
        return DirectoryFile::Unreadable;
    }
    if input::image_type(&bytes).is_some() || pdf::is_pdf(&bytes) {
        return DirectoryFile::Binary(size);
    }
    match input::decode(bytes, "") {
        Err(_) => DirectoryFile::Binary(size),
        // The read limit may split a character.
        Ok(_) if !is_within_limit => DirectoryFile::TooLong(size),
        Ok(text) if text.notice.is_some() => DirectoryFile::Binary(size),
        // UTF-16 text can be longer in UTF-8 than on disk.
        Ok(text) if text.text.len() > max_bytes => DirectoryFile::TooLong(size),
        Ok(text) => DirectoryFile::Text(text.text, size),
    }
}
