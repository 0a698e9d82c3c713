//! The user's own slash commands: `~/.nanobot/commands/NAME.md` holds the message that `/NAME` sends.

use super::context::Context;
use super::prompt_arguments::PromptArguments;
use anyhow::Result;
use nanobot_os::input;
use nanobot_store::skill;
use serde_json::Value;

/// Maximum size of a command's file, in bytes.
const COMMAND_LIMIT_BYTES: usize = 256 << 10;

pub(crate) struct UserCommand {
    pub(crate) name: String,
    /// The `description` of its front matter, or else its first line.
    pub(crate) description: String,
    message: String,
}

impl UserCommand {
    /// Parses the file of a command. Front matter is optional.
    fn parse(name: &str, text: &str) -> Self {
        // Damaged front matter is a part of the message.
        let (head, message) =
            skill::parse_strict(text).unwrap_or_else(|_| (Value::Null, text.to_owned()));
        let first_line = message.trim().lines().next().unwrap_or_default();
        Self {
            name: name.to_owned(),
            description: head["description"].as_str().unwrap_or(first_line).to_owned(),
            message: message.trim().to_owned(),
        }
    }

    /// The message with the text that follows the command. `$ARGUMENTS` is the whole text, and `$1` to `$9` are its words. Without a
    /// placeholder, the text is appended.
    pub(crate) fn message(&self, arguments: &str) -> String {
        let each: Vec<&str> = arguments.split_whitespace().collect();
        let (mut message, has_placeholder) =
            PromptArguments::Positional { all: arguments, each: &each }.expand(&self.message);
        if !has_placeholder && !arguments.is_empty() {
            message.push_str("\n\n");
            message.push_str(arguments);
        }
        message
    }
}

/// True if a command may have this name. A name with a slash could lead to another directory.
pub(crate) fn is_command_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    !name.is_empty() && name.chars().all(is_plain)
}

/// Reads the command `name`; `None` if there is none.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn find(ctx: &Context, name: &str) -> Result<Option<UserCommand>> {
    let path = ctx.paths.commands().join(format!("{name}.md"));
    if !is_command_name(name) || !path.is_file() {
        return Ok(None);
    }
    let bytes = input::read_file(&path, &path.display().to_string(), COMMAND_LIMIT_BYTES)?;
    Ok(Some(UserCommand::parse(name, &String::from_utf8_lossy(&bytes))))
}

/// All commands, by name. Files that cannot be read are left out.
pub(crate) fn list(ctx: &Context) -> Vec<UserCommand> {
    let Ok(entries) = std::fs::read_dir(ctx.paths.commands()) else {
        return Vec::new();
    };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".md").map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.iter().filter_map(|name| find(ctx, name).ok().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::{UserCommand, is_command_name};

    #[test]
    fn a_file_is_a_message() {
        let check = |text: &str, arguments: &str, description: &str, message: &str| {
            let command = UserCommand::parse("x", text);
            assert_eq!(command.description, description);
            assert_eq!(command.message(arguments), message);
        };
        check("Review it.\n", "", "Review it.", "Review it.");
        check("Review it.\n", "a.rs", "Review it.", "Review it.\n\na.rs");
        check("Review $ARGUMENTS now", "a.rs", "Review $ARGUMENTS now", "Review a.rs now");
        check(
            "Move $1 to $2, for $10 or $2.50",
            "$2 b c",
            "Move $1 to $2, for $10 or $2.50",
            "Move $2 to b, for $10 or $2.50",
        );
        check("Move $1 to $2.", "a", "Move $1 to $2.", "Move a to .");
        check("---\ndescription: a review\n---\nReview.\n", "", "a review", "Review.");
        check("---\n# a note\n---\nReview.\n", "", "Review.", "Review.");
        check("---\nno front matter", "", "---", "---\nno front matter");
    }

    #[test]
    fn names_are_plain() {
        for (name, expect) in
            [("review", true), ("a-b_1", true), ("", false), ("../x", false), ("a.b", false)]
        {
            assert_eq!(is_command_name(name), expect, "{name}");
        }
    }
}
