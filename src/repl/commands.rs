//! The table of slash commands: names, arguments, and help text.

/// A slash command.
#[derive(Debug)]
pub struct Command {
    pub name: &'static str,
    pub takes: ArgKind,
    pub about: &'static str,
}

/// The argument of a slash command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    Nothing,
    /// Free text, with its placeholder in the help.
    Words(&'static str),
    Session,
    Model,
    Profile,
    Skill,
    /// The path of a file or a directory.
    Path,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl ArgKind {
    /// The argument as the help shows it.
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

/// Inputs that end the REPL, as in the Python program.
pub(super) const EXITS: &[&str] = &["exit", "quit", "/exit", "/quit", ":q"];

/// The table of commands for the help and the man page.
pub fn table() -> String {
    let line = |command: &Command| {
        let words = command.takes.words();
        let name = format!("/{} {words}", command.name);
        format!("  {:20}  {}\n", name.trim_end(), command.about)
    };
    COMMANDS.iter().map(line).collect()
}

const fn command(name: &'static str, takes: ArgKind, about: &'static str) -> Command {
    Command { name, takes, about }
}

/// All commands, in the order of the help.
pub const COMMANDS: &[Command] = &[
    command("help", ArgKind::Nothing, "this list"),
    command(
        "new",
        ArgKind::Nothing,
        "start afresh; what was said is kept, not sent",
    ),
    command(
        "stop",
        ArgKind::Nothing,
        "stop what is going on, as Ctrl-C does",
    ),
    command(
        "session",
        ArgKind::Session,
        "which one this is; with KEY, go on with that one",
    ),
    command("sessions", ArgKind::Nothing, "all conversations"),
    command(
        "fork",
        ArgKind::Words("[KEY]"),
        "go on with a copy of this conversation",
    ),
    command(
        "compact",
        ArgKind::Words("[WORDS]"),
        "sum up what was said, heeding WORDS",
    ),
    command(
        "undo",
        ArgKind::Words("[TURN]"),
        "take back the file changes of the last turn",
    ),
    command(
        "retry",
        ArgKind::Nothing,
        "go on with what was cut short, or ask it again",
    ),
    command(
        "model",
        ArgKind::Model,
        "which model is asked; with NAME, ask that one",
    ),
    command(
        "profile",
        ArgKind::Profile,
        "what it may do; with NAME, by that profile",
    ),
    command("tools", ArgKind::Nothing, "what it can use"),
    command(
        "skills",
        ArgKind::Skill,
        "what it was taught; with NAME, that text",
    ),
    command(
        "mcp",
        ArgKind::Words("[SERVER]"),
        "the servers of further tools, or what one offers",
    ),
    command(
        "memory",
        ArgKind::OneOf(&["show", "search", "log", "diff", "undo", "edit"]),
        "what is remembered",
    ),
    command("usage", ArgKind::Words("[--by WHAT]"), "what was spent"),
    command(
        "context",
        ArgKind::Nothing,
        "what is sent with the next message",
    ),
    command("save", ArgKind::Path, "write the last answer to FILE"),
    command(
        "edit",
        ArgKind::Words("[WORDS]"),
        "write the message in your editor",
    ),
    command(
        "shell",
        ArgKind::Words("CMD"),
        "run CMD yourself, as `!CMD` does",
    ),
    command(
        "exit",
        ArgKind::Nothing,
        "end (also Ctrl-D, exit, quit, :q)",
    ),
];
