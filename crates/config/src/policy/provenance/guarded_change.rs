//! Changes that take effect in later runs or outside the machine. In a conversation with untrusted content they need the user's permission.

use crate::policy::refusal::Refusal;

/// A change that takes effect in later runs or outside the machine. A conversation with untrusted content may make it only with the user's
/// permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedChange {
    /// Jobs, which the `cron` tool adds and removes.
    Jobs,
    /// The workspace's files that instruct later runs, and its skills.
    Notes,
    /// Instruction files and skills of a trusted directory.
    Startup,
    /// Messages to chats other than the conversation's own.
    Messages,
}

impl GuardedChange {
    /// The word for it in a rule.
    pub fn word(self) -> &'static str {
        match self {
            Self::Jobs => "cron",
            Self::Notes => "notes",
            Self::Startup => "startup",
            Self::Messages => "message",
        }
    }
}

/// The user's decision about a [`GuardedChange`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grant {
    /// There is no rule about it.
    #[default]
    Unset,
    Allowed,
    Denied,
    /// The profile only reads.
    ReadOnly,
}

/// The user's decisions about all of these changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChangeGrants {
    pub jobs: Grant,
    pub notes: Grant,
    pub startup: Grant,
    pub messages: Grant,
}

impl ChangeGrants {
    /// Decides whether a conversation may make a change. `external` names its untrusted content, if it has any, and `denial` is
    /// the start of the refusal, such as "jobs cannot be added".
    ///
    /// # Errors
    /// A refusal with the flag that would grant it.
    pub fn check(
        self,
        change: GuardedChange,
        external: Option<String>,
        denial: &str,
    ) -> Result<(), Refusal> {
        let (word, grant) = (change.word(), self.get(change));
        match (grant, external) {
            (Grant::Denied, _) => {
                Err(Refusal::new(format!("{denial}: `{word}` is denied by a rule")))
            }
            (Grant::ReadOnly, _) => Err(Refusal {
                message: format!("{denial}: the profile changes nothing"),
                suggested_flag: Some(format!("--allow {word}")),
                names_flag: false,
            }),
            (Grant::Unset, Some(content)) => Err(Refusal {
                message: format!(
                    "{denial} without permission: the conversation contains untrusted content ({content})"
                ),
                suggested_flag: Some(format!("--allow {word}")),
                names_flag: false,
            }),
            (Grant::Allowed, _) | (_, None) => Ok(()),
        }
    }

    fn get(self, change: GuardedChange) -> Grant {
        match change {
            GuardedChange::Jobs => self.jobs,
            GuardedChange::Notes => self.notes,
            GuardedChange::Startup => self.startup,
            GuardedChange::Messages => self.messages,
        }
    }
}
