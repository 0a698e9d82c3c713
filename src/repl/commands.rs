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
    command("help", ArgKind::Nothing, "list the commands"),
    command(
        "new",
        ArgKind::Nothing,
        "start over; earlier messages are kept, not sent",
    ),
    command(
        "stop",
        ArgKind::Nothing,
        "stop the running turn, like Ctrl-C",
    ),
    command(
        "session",
        ArgKind::Session,
        "show the session; with KEY, switch to that one",
    ),
    command("sessions", ArgKind::Nothing, "list all sessions"),
    command(
        "fork",
        ArgKind::Words("[KEY]"),
        "continue in a copy of this session",
    ),
    command(
        "compact",
        ArgKind::Words("[WORDS]"),
        "summarize the session, following WORDS",
    ),
    command(
        "undo",
        ArgKind::Words("[TURN]"),
        "undo the file changes of the last turn",
    ),
    command(
        "retry",
        ArgKind::Nothing,
        "continue an interrupted turn, or ask again",
    ),
    command(
        "model",
        ArgKind::Model,
        "show the model; with NAME, switch to that one",
    ),
    command(
        "profile",
        ArgKind::Profile,
        "list the profiles; with NAME, switch to that one",
    ),
    command("tools", ArgKind::Nothing, "list the tools"),
    command(
        "skills",
        ArgKind::Skill,
        "list the skills; with NAME, print that one",
    ),
    command(
        "mcp",
        ArgKind::Words("[SERVER]"),
        "list the MCP servers, or the tools of one",
    ),
    command(
        "memory",
        ArgKind::OneOf(&["show", "search", "log", "diff", "undo", "edit"]),
        "show or change the memory",
    ),
    command(
        "usage",
        ArgKind::Words("[--by WHAT]"),
        "show tokens, cost and runs",
    ),
    command(
        "context",
        ArgKind::Nothing,
        "show what is sent with the next message",
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
        "run CMD yourself, like `!CMD`",
    ),
    command(
        "exit",
        ArgKind::Nothing,
        "end (also Ctrl-D, exit, quit, :q)",
    ),
];
