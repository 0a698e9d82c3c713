//! A refused tool call: the reason, and the flag that would allow the call.

use super::tool_names::WRITE_TOOLS;

/// The start of the result of a refused call.
pub const DENIED: &str = "Tool call denied: ";

/// A refusal by the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for the model and for people: the path, host or tool that is refused.
    pub message: String,
    /// The flag that would grant it, if there is one.
    pub suggested_flag: Option<String>,
}

impl Refusal {
    /// A refusal that no flag can lift.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggested_flag: None }
    }

    /// The message to the model after a refused call of `tool`: the reason, and the flag to suggest to the user.
    pub fn for_model(&self, tool: &str) -> String {
        let Self { message, suggested_flag } = self;
        match suggested_flag {
            Some(flag) if message.contains(flag.as_str()) => message.clone(),
            Some(flag) if WRITE_TOOLS.contains(&tool) => {
                format!("{message}; show the change instead, and say that `{flag}` would allow it")
            }
            Some(flag) => format!("{message}; the user can grant it with `{flag}`"),
            None => message.clone(),
        }
    }
}
