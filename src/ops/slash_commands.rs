//! The table of slash commands: names, arguments, and help text, for the REPL and for chats. No I/O.

use CommandPlace::{Both, Chat, Repl};
use anyhow::{Error, Result};
use nanobot_base::error::{Exit, WithHint, fail};

/// A row of the table. A command that has another meaning in chats has two rows.
#[derive(Clone, Copy, Debug)]
pub struct SlashCommand {
    pub name: &'static str,
    pub argument: ArgKind,
    pub description: &'static str,
    /// Its names in other agents.
    pub aliases: &'static [&'static str],
    place: CommandPlace,
}

/// The place where a command can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandPlace {
    Repl,
    Chat,
    Both,
}

impl SlashCommand {
    /// True if `name` is its name or an alias.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Checks the text after the command.
    ///
    /// # Errors
    /// Status 2 if the command takes fewer or other arguments. Flags are checked by the command itself.
    pub(crate) fn check_arguments(&self, rest: &str) -> Result<()> {
        let is_single = matches!(
            self.argument,
            ArgKind::Session | ArgKind::Model | ArgKind::Effort | ArgKind::Profile | ArgKind::Skill
        );
        if rest.is_empty() || rest.starts_with('-') {
            return Ok(());
        }
        match self.argument {
            ArgKind::Session if is_session_verb(rest) => Ok(()),
            ArgKind::OneOf(choices) if !choices.contains(&first_word(rest)) => {
                let cause = format!("`/{}` has no subcommand `{}`", self.name, first_word(rest));
                Err(fail(Exit::Usage, cause).with_hint(format!("one of {}", choices.join(", "))))
            }
            ArgKind::None => Err(no_arguments_error(self.name)),
            _ if is_single && rest.contains(char::is_whitespace) => {
                Err(fail(Exit::Usage, format!("`/{}` takes one argument", self.name))
                    .with_hint(format!("`/{} {}`", self.name, self.argument.placeholder())))
            }
            _ => Ok(()),
        }
    }
}

/// The argument of a slash command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    None,
    /// Free text, with its placeholder in the help.
    FreeText(&'static str),
    Session,
    Model,
    /// A reasoning effort; models take others than [`EFFORT_LEVELS`] too.
    Effort,
    Profile,
    Skill,
    /// The path of a file or a directory.
    Path,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl ArgKind {
    /// The argument as the help shows it.
    pub fn placeholder(self) -> String {
        let name = match self {
            Self::None => return String::new(),
            Self::FreeText(placeholder) => return placeholder.to_owned(),
            Self::OneOf(choices) => return format!("[{}]", choices.join("|")),
            Self::Session => "KEY",
            Self::Effort => "LEVEL",
            Self::Model | Self::Profile | Self::Skill => "NAME",
            Self::Path => "FILE",
        };
        format!("[{name}]")
    }
}

/// The reasoning efforts that most models take.
pub(crate) const EFFORT_LEVELS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/// The verbs after `/session`. Any other argument is a key.
const SESSION_VERBS: [&str; 4] = ["list", "title", "search", "export"];

fn is_session_verb(rest: &str) -> bool {
    SESSION_VERBS.contains(&first_word(rest))
}

fn first_word(rest: &str) -> &str {
    rest.split_whitespace().next().unwrap_or_default()
}

/// Inputs that end the REPL, here, in the Python program, and in other agents.
pub(crate) const EXITS: &[&str] = &["exit", "quit", "/exit", "/quit", "/q", "/bye", ":q"];

/// Commands of other agents that do not exist here, with their replacements. A command with the same meaning as one of ours is an
/// alias of it instead.
pub(crate) const REPLACEMENTS: &[(&str, &str)] = &[
    ("add-dir", "nanobot help permissions"),
    ("agents", "`/profile`"),
    ("allowed-tools", "nanobot help permissions"),
    ("approvals", "`/profile`, and nanobot help permissions"),
    ("doctor", "`/status --check`"),
    ("export", "`/session export FILE`"),
    ("history", "`/sessions`"),
    ("hooks", "nanobot help hooks"),
    ("keybindings", "nanobot help terminal"),
    ("login", "nanobot model provider login"),
    ("logout", "nanobot model provider logout"),
    ("mode", "`/profile`"),
    ("permissions", "`/profile`, and nanobot policy explain"),
    ("plan", "`/profile plan`"),
    ("plugins", "`/tools`"),
    ("redo", "`/undo --redo`"),
    ("rename", "`/session title TITLE`"),
    ("stats", "`/cost`, or `/usage`"),
    ("version", "nanobot --version"),
];

/// The error for a command that is followed by arguments, but takes none.
pub(crate) fn no_arguments_error(name: &str) -> Error {
    fail(Exit::Usage, format!("`/{name}` takes no arguments")).with_hint(format!("`/{name}` alone"))
}

/// Parses the number after `/NAME`, which counts back from 1, the last one.
///
/// # Errors
/// Status 2 if it is no such number.
pub(crate) fn parse_count_back(name: &str, rest: &str) -> Result<usize> {
    if rest.is_empty() {
        return Ok(1);
    }
    rest.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
        fail(Exit::Usage, format!("`{rest}` is not a number from 1 on"))
            .with_hint(format!("`/{name} 2`"))
    })
}

/// The commands of the REPL, in the order of its help.
pub fn in_repl() -> impl Iterator<Item = &'static SlashCommand> {
    COMMANDS.iter().filter(|command| command.place != CommandPlace::Chat)
}

/// The commands of chats, in the order of their help.
pub(crate) fn in_chats() -> impl Iterator<Item = &'static SlashCommand> {
    COMMANDS.iter().filter(|command| command.place != CommandPlace::Repl)
}

/// The REPL's commands for its help and the man page.
pub fn help_table() -> String {
    let line = |command: &SlashCommand| {
        let usage = format!("/{} {}", command.name, command.argument.placeholder());
        let aliases = command.aliases.iter().map(|alias| format!(" (also /{alias})"));
        let aliases: String = aliases.collect();
        format!("  {:20}  {}{aliases}\n", usage.trim_end(), command.description)
    };
    in_repl().map(line).collect()
}

/// The row of the command `names[0]`; the other names are its names in other agents.
const fn command(
    command_place: CommandPlace,
    names: &'static [&'static str],
    argument: ArgKind,
    description: &'static str,
) -> SlashCommand {
    let (name, aliases) = names.split_at(1);
    SlashCommand { name: name[0], argument, description, aliases, place: command_place }
}

// One row per line keeps the table readable.
#[rustfmt::skip]
/// All commands, in the order of the help.
const COMMANDS: &[SlashCommand] = &[
    command(Repl, &["help"], ArgKind::FreeText("[COMMAND]"), "list the commands, or the options of one"),
    command(Chat, &["help"], ArgKind::None, "list the commands"),
    command(Both, &["new", "clear"], ArgKind::None, "start over; earlier messages are kept, not sent"),
    command(Chat, &["stop"], ArgKind::None, "stop the task that is running"),
    command(Repl, &["sessions"], ArgKind::None, "choose one of the last sessions"),
    command(Repl, &["session"], ArgKind::Session, "list the last; KEY switches; also title, search, export"),
    command(Repl, &["fork"], ArgKind::FreeText("[KEY]"), "continue in a copy of this session"),
    command(Both, &["compact"], ArgKind::FreeText("[WORDS]"), "summarise the session, following WORDS"),
    command(Repl, &["last"], ArgKind::FreeText("[N]"), "show the whole output of the last tool call"),
    command(Repl, &["rewind"], ArgKind::FreeText("[N]"), "edit the last message, or the Nth last (also Esc Esc)"),
    command(Repl, &["undo"], ArgKind::FreeText("[TURN]"), "undo the file changes of the last turn"),
    command(Chat, &["undo"], ArgKind::None, "undo the file changes of this chat's last turn"),
    command(Repl, &["diff"], ArgKind::OneOf(&["all"]), "show the file changes of the last turn, or of all"),
    command(Repl, &["retry"], ArgKind::None, "continue an interrupted turn, or ask again"),
    command(Repl, &["resume"], ArgKind::None, "continue an interrupted turn"),
    command(Both, &["model"], ArgKind::Model, "list the models; with NAME, switch to that one"),
    command(Both, &["effort"], ArgKind::Effort, "show the reasoning effort; with LEVEL, set it"),
    command(Repl, &["profile"], ArgKind::Profile, "list the profiles; with NAME, switch to that one"),
    command(Repl, &["tools"], ArgKind::None, "list the tools"),
    command(Repl, &["skills"], ArgKind::Skill, "list the skills; with NAME, print that one"),
    command(Chat, &["skill", "skills"], ArgKind::FreeText("[NAME TEXT]"), "list the skills; with NAME, use that one for TEXT"),
    command(Chat, &["jobs"], ArgKind::None, "list the scheduled jobs"),
    command(Chat, &["show"], ArgKind::FreeText("N"), "show the whole call that question N is about"),
    command(Chat, &["grants"], ArgKind::FreeText("[remove N]"), "list what is approved for good here, or take it back"),
    command(Repl, &["mcp"], ArgKind::FreeText("[SERVER]"), "list the MCP servers, or the tools of one"),
    command(Repl, &["memory"], ArgKind::OneOf(&["show", "search", "log", "diff", "undo", "edit"]), "show or change the memory"),
    command(Both, &["cost"], ArgKind::None, "show what this conversation has cost"),
    command(Repl, &["usage"], ArgKind::FreeText("[--by WHAT]"), "show tokens, cost and runs of all days"),
    command(Repl, &["status"], ArgKind::None, "show the configuration"),
    command(Chat, &["status"], ArgKind::None, "show the state of this conversation"),
    command(Chat, &["id"], ArgKind::None, "show your id and the chat's"),
    command(Chat, &["start"], ArgKind::None, "show a greeting"),
    command(Repl, &["config", "settings"], ArgKind::FreeText("[--all]"), "show what differs from the defaults"),
    command(Repl, &["trust"], ArgKind::FreeText("[DIR]"), "let this directory give instructions and skills"),
    command(Repl, &["context"], ArgKind::None, "show what is sent with the next message"),
    command(Repl, &["save"], ArgKind::Path, "write the last answer to FILE"),
    command(Repl, &["copy"], ArgKind::None, "copy the last answer to the clipboard of the terminal"),
    command(Repl, &["paste"], ArgKind::None, "attach the image in the clipboard (also Ctrl-V)"),
    command(Repl, &["edit"], ArgKind::FreeText("[WORDS]"), "write the message in your editor"),
    command(Repl, &["shell"], ArgKind::FreeText("CMD"), "run CMD yourself, like `!CMD`"),
    command(Repl, &["exit"], ArgKind::None, "end (also Ctrl-D, exit, quit, :q)"),
];
