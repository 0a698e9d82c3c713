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

impl Takes {
    /// As the help has it.
    pub fn words(self) -> String {
        let word = match self {
            Self::Nothing => return String::new(),
            Self::Words(words) => return words.to_owned(),
            Self::OneOf(words) => return words.join("|"),
            Self::Session => "KEY",
            Self::Model | Self::Profile | Self::Skill => "NAME",
            Self::Path => "FILE",
        };
        format!("[{word}]")
    }
}

const fn command(name: &'static str, takes: Takes, about: &'static str) -> Command {
    Command { name, takes, about }
}

/// All commands, in the order of the help.
pub const COMMANDS: &[Command] = &[
    command("help", Takes::Nothing, "this list"),
    command(
        "new",
        Takes::Nothing,
        "start the conversation afresh; what was said is kept, but not sent",
    ),
    command(
        "stop",
        Takes::Nothing,
        "stop what is going on (Ctrl-C does it at once)",
    ),
    command(
        "session",
        Takes::Session,
        "which conversation this is; with KEY, go on with that one",
    ),
    command("sessions", Takes::Nothing, "all conversations"),
    command(
        "fork",
        Takes::Words("[KEY]"),
        "go on with a copy of this conversation",
    ),
    command(
        "compact",
        Takes::Words("[WORDS]"),
        "sum up what was said, heeding WORDS",
    ),
    command(
        "undo",
        Takes::Words("[TURN]"),
        "take back what the last turn changed with file tools",
    ),
    command(
        "retry",
        Takes::Nothing,
        "go on with a turn that was cut short, or ask the same again",
    ),
    command(
        "model",
        Takes::Model,
        "which model is asked; with NAME, ask that one",
    ),
    command(
        "profile",
        Takes::Profile,
        "what the agent may do; with NAME, by that profile",
    ),
    command("tools", Takes::Nothing, "what it can use"),
    command("skills", Takes::Nothing, "what it was taught"),
    command("mcp", Takes::Nothing, "the servers of further tools"),
    command(
        "memory",
        Takes::OneOf(&["show", "search", "log", "diff", "undo", "edit"]),
        "what is remembered of all conversations",
    ),
    command("usage", Takes::Words("[--by WHAT]"), "what was spent"),
    command(
        "context",
        Takes::Nothing,
        "what is sent with the next message, and what it weighs",
    ),
    command("save", Takes::Path, "write the last answer to FILE"),
    command(
        "edit",
        Takes::Words("[WORDS]"),
        "write the message in your editor",
    ),
    command(
        "shell",
        Takes::Words("CMD"),
        "run CMD yourself, as `!CMD` does",
    ),
    command("exit", Takes::Nothing, "end (also Ctrl-D, exit, quit, :q)"),
];

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
