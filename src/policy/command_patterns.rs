//! Patterns of the config for commands: what they must match, and what they must not.

use super::refusal::Refusal;
use regex::Regex;

/// Patterns for commands, matched against the lower-cased command as the Python program does.
#[derive(Clone, Debug, Default)]
pub struct CommandPatterns {
    pub denied: Vec<Regex>,
    /// Allow lists. A command must match an entry of every list.
    pub allowed: Vec<Vec<Regex>>,
}

impl CommandPatterns {
    /// Compiles a regular expression from the config.
    ///
    /// # Errors
    /// A phrase to append to the expression.
    pub fn compile(text: &str) -> Result<Regex, String> {
        // The library's message marks the position over several lines; only the last line is the cause.
        Regex::new(text).map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default();
            let cause = last.trim_start_matches("error: ");
            format!("is not a valid regular expression: {cause}")
        })
    }

    /// The refusal of a command, the first of `subjects`, if these forbid it.
    pub(super) fn check(&self, subjects: &[String]) -> Option<Refusal> {
        let command = subjects.first()?.to_lowercase();
        if let Some(denied) = self.denied.iter().find(|denied| denied.is_match(&command)) {
            return Some(Refusal::new(format!(
                "the command matches `{denied}` of `tools.exec.denyPatterns`"
            )));
        }
        let matches = |list: &Vec<Regex>| list.iter().any(|allowed| allowed.is_match(&command));
        let may = self.allowed.iter().all(matches);
        (!may).then(|| Refusal::new("the command matches none of `tools.exec.allowPatterns`"))
    }
}
