//! Patterns of the config that commands must match or must not match.

use super::refusal::Refusal;
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Patterns for commands, matched against the lower-cased command as the Python program does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandPatterns {
    pub denied: Vec<CommandPattern>,
    /// Allow lists. A command must match an entry of every list.
    pub allowed: Vec<Vec<CommandPattern>>,
}

/// A regular expression for commands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CommandPattern(Regex);

impl CommandPattern {
    /// Compiles a regular expression from the config.
    ///
    /// # Errors
    /// A phrase to append to the expression.
    pub fn compile(text: &str) -> Result<Self, String> {
        // The library's message marks the position over several lines; only the last line is the cause.
        Regex::new(text).map(Self).map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default();
            let cause = last.trim_start_matches("error: ");
            format!("is not a valid regular expression: {cause}")
        })
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<CommandPattern> for String {
    fn from(pattern: CommandPattern) -> Self {
        pattern.to_string()
    }
}

impl TryFrom<String> for CommandPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::compile(&text).map_err(|error| format!("`{text}` {error}"))
    }
}

impl CommandPatterns {
    /// The refusal of `command`, if these patterns forbid it.
    pub(super) fn check(&self, command: &str) -> Option<Refusal> {
        let command = command.to_lowercase();
        if let Some(pattern) = self.denied.iter().find(|pattern| pattern.0.is_match(&command)) {
            return Some(Refusal::new(format!(
                "the command matches `{pattern}` of `tools.exec.denyPatterns`"
            )));
        }
        let mut lists = self.allowed.iter();
        let is_allowed = lists.all(|list| list.iter().any(|pattern| pattern.0.is_match(&command)));
        if is_allowed {
            None
        } else {
            Some(Refusal::new("the command matches none of `tools.exec.allowPatterns`"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandPattern, CommandPatterns};

    #[test]
    fn a_command_matches_no_denied_pattern_and_one_of_each_list() {
        let compile = |texts: &[&str]| -> Vec<CommandPattern> {
            texts.iter().map(|text| CommandPattern::compile(text).unwrap()).collect()
        };
        let check = |denied: &[&str], allowed: &[&[&str]], command: &str, expect: &str| {
            let allowed = allowed.iter().map(|list| compile(list)).collect();
            let patterns = CommandPatterns { denied: compile(denied), allowed };
            let refusal = patterns.check(command).map(|refusal| refusal.message);
            let refusal = refusal.unwrap_or_default();
            assert!(
                refusal.contains(expect) && refusal.is_empty() == expect.is_empty(),
                "{command}: {refusal}"
            );
        };
        let (denied, not_allowed) = ("matches `rm ` of", "none of `tools.exec.allowPatterns`");
        check(&[], &[], "rm x", "");
        check(&["rm "], &[], "rm x", denied);
        check(&["rm "], &[&["rm"]], "rm x", denied);
        // The command is in lower case, and the pattern is as it is.
        check(&["rm "], &[], "RM x", denied);
        check(&["RM "], &[], "RM x", "");
        check(&[], &[&["^ls", "^cat"]], "cat x", "");
        check(&[], &[&["^ls", "^cat"], &["x$"]], "cat x", "");
        check(&[], &[&["^ls", "^cat"], &["y$"]], "cat x", not_allowed);
        check(&[], &[&[]], "cat x", not_allowed);
    }
}
