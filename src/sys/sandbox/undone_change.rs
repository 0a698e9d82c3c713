//! A change that a command made and that was undone, with the remedy.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// A change of a protected path, which was undone.
#[derive(Debug)]
pub struct UndoneChange {
    /// The path.
    pub path: PathBuf,
    /// The remedy. An error means that the change is still there.
    pub remedy: io::Result<Remedy>,
}

/// The treatment of a change of a protected path.
#[derive(Debug)]
pub enum Remedy {
    /// It is as it was before.
    Restored,
    /// It was new and now has this name.
    SetAside(PathBuf),
    /// It is the config of a new repository, without the lines that could make git run a program.
    LinesRemoved {
        /// The lines, as `section.key = value`.
        lines: Vec<String>,
        /// The path of the whole file.
        whole: PathBuf,
    },
}

impl UndoneChange {
    /// The change of `path`, which now is at `name` in the same directory.
    pub(super) fn set_aside(path: PathBuf, name: io::Result<OsString>) -> Self {
        let remedy = name.map(|name| Remedy::SetAside(path.with_file_name(name)));
        Self { path, remedy }
    }
}
