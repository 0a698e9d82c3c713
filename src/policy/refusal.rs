//! A refused call: the reason, and the flag that would allow it.

use super::known::CHANGING;

/// A refusal by the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why, for a model and for people: what is refused, by which name.
    pub words: String,
    /// The flag that would grant it, where one would.
    pub grant: Option<String>,
}

impl Refusal {
    /// One that no flag lifts.
    pub fn of(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            grant: None,
        }
    }

    /// What the model is told, whose call of `tool` it was: why, and what it may tell the user.
    pub fn for_model(&self, tool: &str) -> String {
        let Self { words, grant } = self;
        match grant {
            Some(flag) if words.contains(flag.as_str()) => words.clone(),
            Some(flag) if CHANGING.contains(&tool) => {
                format!("{words}; show the change instead, and say that `{flag}` would allow it")
            }
            Some(flag) => format!("{words}; the user can grant it with `{flag}`"),
            None => words.clone(),
        }
    }
}
