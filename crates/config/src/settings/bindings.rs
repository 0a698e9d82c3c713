//! The bindings of a channel: the profile, the workspace, the model and the budget of a chat or of a sender.

use super::channels::ChannelConfig;
use super::key_type::KeyType;
use super::key_type::KeyType::{Number, Text};
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_os::paths::Paths;
use serde_json::Value;
use std::path::PathBuf;

/// The subject of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// A chat, with all its senders.
    Chat,
    /// A sender, in direct chats.
    Sender,
}

impl BindingKind {
    /// The kinds, in the order in which they apply.
    pub const ALL: [Self; 2] = [Self::Chat, Self::Sender];

    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Sender => "sender",
        }
    }

    /// The key of the channel that holds the bindings of this kind.
    pub fn key(self) -> &'static str {
        match self {
            Self::Chat => "chats",
            Self::Sender => "senders",
        }
    }
}

/// The keys of a binding, with their types.
const MEMBERS: [(&str, KeyType); 4] = [
    (ChatBinding::PROFILE, Text),
    (ChatBinding::WORKSPACE, Text),
    (ChatBinding::MODEL, Text),
    (ChatBinding::DAILY_BUDGET, Number(0.0, 1e9)),
];

/// A chat or a sender that has a profile, a workspace, a model or a budget of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatBinding {
    /// The name of the channel.
    pub channel: &'static str,
    pub kind: BindingKind,
    /// The id of the chat or the sender, as it is written.
    pub id: String,
    pub profile: Option<String>,
    /// An absolute path.
    pub workspace: Option<PathBuf>,
    /// A model, or a preset of the config.
    pub model: Option<String>,
    /// Maximum cost per day in US dollars.
    pub daily_budget: Option<f64>,
}

impl ChatBinding {
    pub const PROFILE: &'static str = "profile";
    pub const WORKSPACE: &'static str = "workspace";
    pub const MODEL: &'static str = "model";
    pub const DAILY_BUDGET: &'static str = "dailyBudget";

    /// The chat or sender, as `CHANNEL:ID`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.channel, self.id)
    }

    /// Reads the bindings of a channel.
    ///
    /// # Errors
    /// Status 78 for a binding that cannot be used.
    pub fn read_all(config: &ChannelConfig, paths: &Paths) -> Result<Vec<Self>> {
        let mut bindings = Vec::new();
        for kind in BindingKind::ALL {
            let value = config.value(kind.key());
            if let Some(problem) = problem(&value) {
                let key = format!("channels.{}.{}", config.name, kind.key());
                return Err(fail(Exit::Config, format!("`{key}`: {problem}")));
            }
            for (id, members) in value.as_object().into_iter().flatten() {
                let text = |name: &str| {
                    let text = members[name].as_str().map(str::trim);
                    text.filter(|text| !text.is_empty()).map(str::to_owned)
                };
                let workspace = text(Self::WORKSPACE).map(|path| paths.expand(&path));
                bindings.push(Self {
                    channel: config.name,
                    kind,
                    id: id.clone(),
                    profile: text(Self::PROFILE),
                    workspace,
                    model: text(Self::MODEL),
                    daily_budget: members[Self::DAILY_BUDGET].as_f64(),
                });
            }
        }
        Ok(bindings)
    }
}

/// The first error in `value`, an object of bindings, as a phrase that follows its key.
pub(super) fn problem(value: &Value) -> Option<String> {
    let bindings = value.as_object().into_iter().flatten();
    bindings.into_iter().find_map(|(id, members)| {
        let Some(members) = members.as_object() else {
            return Some(format!("the value of `{id}` is not an object"));
        };
        members.iter().find_map(|(name, value)| {
            let Some((_, kind)) = MEMBERS.iter().find(|(member, _)| member == name) else {
                let names = MEMBERS.map(|(name, _)| name).join("`, `");
                return Some(format!(
                    "`{id}` has the unknown key `{name}`; a binding has `{names}`"
                ));
            };
            let is_relative = name == ChatBinding::WORKSPACE
                && value
                    .as_str()
                    .is_some_and(|path| !path.trim().is_empty() && !path.starts_with(['/', '~']));
            if is_relative {
                return Some(format!("the workspace of `{id}` is not a whole path"));
            }
            let is_valid = value.is_null() || kind.accept(value).as_ref() == Some(value);
            (!is_valid).then(|| {
                let (actual, expected) = (kind.describe_value(value), kind.describe());
                format!("`{name}` of `{id}` is {actual}, expected {expected}")
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::problem;
    use serde_json::{Value, json};

    #[test]
    fn mistakes_are_named() {
        let check = |binding: Value, expect: &str| {
            let problem = problem(&json!({ "-100": binding })).unwrap_or_default();
            assert!(
                problem.contains(expect) && problem.is_empty() == expect.is_empty(),
                "{problem}"
            );
        };
        check(json!({}), "");
        check(
            json!({ "profile": "plan", "workspace": "~/kids", "model": null, "dailyBudget": 0.5 }),
            "",
        );
        check(json!("~/kids"), "the value of `-100` is not an object");
        check(json!({ "workspce": "/w" }), "`-100` has the unknown key `workspce`");
        check(json!({ "workspace": "kids" }), "the workspace of `-100` is not a whole path");
        check(
            json!({ "dailyBudget": "much" }),
            "`dailyBudget` of `-100` is a string, expected a number",
        );
        check(json!({ "dailyBudget": -1 }), "is -1, expected a number from 0");
        check(json!({ "profile": ["plan"] }), "`profile` of `-100` is a list");
    }
}
