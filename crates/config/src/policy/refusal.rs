//! A refused tool call: the reason, and the flag that would allow the call.

use super::tool_names::WRITE_TOOLS;
use nanobot_base::shell_quote::unquote;

/// The start of the result of a refused call.
pub const DENIED: &str = "Tool call denied: ";

/// A refusal by the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for the model and for people: the path, host or tool that is refused.
    pub message: String,
    /// The flag that would grant it, if there is one.
    pub suggested_flag: Option<String>,
    /// True if the message says itself how that flag grants it. Otherwise the texts for readers add the flag.
    pub names_flag: bool,
}

/// A suggested flag in its parts: `--write`, `--net=HOST` or `--allow RULE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedFlag<'f> {
    pub name: &'f str,
    /// The value, not quoted any more.
    pub value: Option<String>,
}

impl<'f> SuggestedFlag<'f> {
    /// Takes `flag` apart. `None` if its value is quoted in a form that is not parsed.
    pub fn parse(flag: &'f str) -> Option<Self> {
        Some(match flag.split_once(['=', ' ']) {
            Some((name, value)) => Self { name, value: Some(unquote(value)?) },
            None => Self { name: flag, value: None },
        })
    }
}

impl Refusal {
    /// A refusal that no flag can lift.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggested_flag: None, names_flag: false }
    }

    /// The message to the model after a refused call of `tool`: the reason, and the flag to suggest to the user.
    pub fn for_model(&self, tool: &str) -> String {
        let message = &self.message;
        match &self.suggested_flag {
            Some(flag) if !self.names_flag && WRITE_TOOLS.contains(&tool) => {
                format!("{message}; show the change instead, and say that `{flag}` would allow it")
            }
            Some(flag) if !self.names_flag => {
                format!("{message}; the user can grant it with `{flag}`")
            }
            _ => message.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusal, SuggestedFlag};

    #[test]
    fn a_flag_has_parts() {
        let check = |flag: &str, name: &str, value: Option<&str>| {
            let parsed = SuggestedFlag::parse(flag).unwrap();
            assert_eq!((parsed.name, parsed.value.as_deref()), (name, value), "{flag}");
        };
        check("--write", "--write", None);
        check("--net=example.org", "--net", Some("example.org"));
        check("--allow 'exec(a=b)'", "--allow", Some("exec(a=b)"));
        assert_eq!(SuggestedFlag::parse("--read=$'/a\\n'"), None);
    }

    #[test]
    fn a_flag_is_named_once() {
        let refusal = |names_flag: bool| Refusal {
            // The text of a command may follow, and is no advice.
            message: "refused\n\n--write".into(),
            suggested_flag: Some("--write".into()),
            names_flag,
        };
        assert_eq!(refusal(true).for_model("exec"), "refused\n\n--write");
        assert!(refusal(false).for_model("exec").ends_with("can grant it with `--write`"));
        assert!(refusal(false).for_model("write_file").ends_with("`--write` would allow it"));
        assert_eq!(Refusal::new("refused").for_model("exec"), "refused");
    }
}
