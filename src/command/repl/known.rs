//! What a line of the repl can be completed with: commands and what they take, and files after `@`.

use crate::sys::editor::{Candidate, Known};
use std::path::PathBuf;

/// A command of the repl.
pub struct Command {
    pub name: &'static str,
    pub takes: Takes,
    pub about: &'static str,
}

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// Words of the person's own, as they are called in the help.
    Words(&'static str),
    Session,
    Model,
    Profile,
    Skill,
    /// A file or a directory.
    Path,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// All commands, in the order of the help.
pub const COMMANDS: &[Command] = &[];

/// The names that can be completed, asked for when they are.
pub struct Live {
    pub sessions: Names,
    pub models: Names,
    pub profiles: Names,
    pub skills: Names,
    /// Where files after `@` are.
    pub directory: PathBuf,
}

pub type Names = Box<dyn Fn() -> Vec<Candidate> + Send>;

impl Known for Live {
    fn complete(&self, _line: &str, cursor: usize) -> (usize, Vec<Candidate>) {
        (cursor, Vec::new())
    }

    fn hint(&self, _line: &str, _cursor: usize) -> Option<String> {
        None
    }
}
