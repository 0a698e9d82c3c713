//! Profiles: named sets of permissions, optionally with a prompt and a model. Five are built in, plus one for
//! sub-agents. User profiles are files with these fields as front matter and the prompt as the body.

use super::net::{self, Net};
use super::rule::{Pattern, PolicyRule, RuleEffect};
use super::{Permission, tool_names};
use serde_json::Value;

/// The kind of agent that a profile is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileKind {
    #[default]
    Agent,
    /// Sub-agents started by `spawn` only.
    Subagent,
}

/// A named set of permissions, with an optional prompt and model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pub name: String,
    /// One-line description, for people and for a model that selects a sub-agent.
    pub description: String,
    pub kind: ProfileKind,
    /// Appended to the system prompt.
    pub prompt: Option<String>,
    pub model: Option<String>,
    /// Maximum number of model requests per turn.
    pub max_iterations: Option<u32>,
    /// Allow list of tools; `None` for all.
    pub tools: Option<Vec<Pattern>>,
    pub permissions: Vec<(Pattern, Permission)>,
    pub rules: Vec<PolicyRule>,
    /// Roots to read and to write, as the user wrote them; `.` is the working directory.
    pub read: Vec<String>,
    pub write: Vec<String>,
    pub net: Net,
    /// Forbids all changes, including in the workspace.
    pub reads_only: bool,
    /// Answers every approval request with yes.
    pub auto_approve: bool,
    /// Removes the sandbox and the limits on paths.
    pub is_unrestricted: bool,
}

/// The profile of a run that names none.
pub const DEFAULT_NAME: &str = "default";

/// The built-in profiles: name and description.
pub const BUILT_IN: &[(&str, &str)] = &[
    (DEFAULT_NAME, "reads the working directory, changes only the workspace"),
    ("plan", "reads only, and presents a plan"),
    ("accept-edits", "may change the working directory"),
    (
        "auto-approve",
        "may change the working directory; approves every tool, but no other path; no network",
    ),
    ("full", "no sandbox and no limits: may do everything that you can"),
    ("explore", "a sub-agent that reads and reports"),
];

impl Profile {
    /// Returns the built-in profile `name`.
    pub fn built_in(name: &str) -> Option<Self> {
        let (name, description) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name)?;
        let profile =
            Self { name: (*name).into(), description: (*description).into(), ..Self::default() };
        let write = vec![".".to_owned()];
        let never = |tools: &[&str]| {
            tools.iter().map(|tool| (Pattern::new(*tool), Permission::Never)).collect()
        };
        Some(match *name {
            "plan" => Self { reads_only: true, ..profile },
            "accept-edits" => Self { write, ..profile },
            "auto-approve" => Self {
                write,
                auto_approve: true,
                permissions: never(&["web_search", "web_fetch"]),
                ..profile
            },
            "full" => Self {
                write: vec!["/".into()],
                net: Net::Any,
                auto_approve: true,
                is_unrestricted: true,
                ..profile
            },
            "explore" => Self {
                kind: ProfileKind::Subagent,
                reads_only: true,
                permissions: never(&["todo", "message", "cron"]),
                prompt: Some(EXPLORE_PROMPT.into()),
                ..profile
            },
            _ => profile,
        })
    }

    /// Parses a user profile from its front matter `head` and its prompt `body`.
    ///
    /// # Errors
    /// A message that names the wrong field and the values it takes.
    pub fn parse(name: &str, head: &Value, body: &str) -> Result<Self, String> {
        if Self::built_in(name).is_some() {
            return Err("it has the name of a built-in profile".into());
        }
        let base = match head.get("extends").map(|base| base.as_str()) {
            None => Self::default(),
            Some(Some("full")) => {
                return Err("`extends` cannot be `full`, which must be typed each time".into());
            }
            Some(Some(base)) => Self::built_in(base)
                .ok_or(format!("`extends`: there is no built-in profile `{base}`"))?,
            Some(None) => return Err("`extends` is not a name".into()),
        };
        let mut profile = Self {
            name: name.into(),
            description: String::new(),
            kind: ProfileKind::Agent,
            ..base
        };
        let origin = format!("profile {name}");
        let fields = head.as_object().ok_or("the front matter is not a list of `key: value`")?;
        for (key, value) in fields {
            let key = key.replace('_', "-");
            let field = ProfileField { key: &key, value };
            match field.key {
                "name" | "extends" => {}
                "description" => profile.description = field.text()?,
                "kind" => profile.kind = field.kind()?,
                "model" => profile.model = Some(field.text()?),
                "max-iterations" => profile.max_iterations = Some(field.count()?),
                "tools" => profile.tools = Some(field.tools()?),
                "permissions" => profile.permissions.extend(field.permissions()?),
                "allow" => profile.rules.extend(field.rules(RuleEffect::Allow, &origin)?),
                "deny" => profile.rules.extend(field.rules(RuleEffect::Deny, &origin)?),
                "read" => profile.read.extend(field.texts()?),
                "write" => profile.write.extend(field.paths()?),
                "net" => profile.net = field.net()?,
                _ => return Err(format!("unknown field `{key}`")),
            }
        }
        let body = body.trim();
        if !body.is_empty() {
            profile.prompt = Some(body.to_owned());
        }
        Ok(profile)
    }
}

/// A front-matter field, with its key spelled with `-`.
struct ProfileField<'a> {
    key: &'a str,
    value: &'a Value,
}

impl ProfileField<'_> {
    fn type_error(&self, expected: &str) -> String {
        format!("`{}` must be {expected}", self.key)
    }

    /// An error about one item of the field; `message` follows the item.
    fn item_error(&self, item: &str, message: &str) -> String {
        format!("`{}`: `{item}` {message}", self.key)
    }

    fn text(&self) -> Result<String, String> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            // YAML parses unquoted `on`, `1.0` and the like as booleans and numbers.
            Value::Bool(_) | Value::Number(_) => Err(self.type_error("text: put it in quotes")),
            _ => Err(self.type_error("text")),
        }
    }

    fn texts(&self) -> Result<Vec<String>, String> {
        parse_texts(self.value).ok_or(self.type_error("a list of strings"))
    }

    fn kind(&self) -> Result<ProfileKind, String> {
        match self.text()?.as_str() {
            "agent" => Ok(ProfileKind::Agent),
            "subagent" | "sub-agent" => Ok(ProfileKind::Subagent),
            _ => Err(self.type_error("`agent` or `subagent`")),
        }
    }

    fn count(&self) -> Result<u32, String> {
        let count = match self.value.as_str() {
            Some(text) => text.parse().ok(),
            None => self.value.as_u64(),
        };
        let count = count.and_then(|count| u32::try_from(count).ok());
        let count = count.filter(|count| *count > 0);
        count.ok_or(self.type_error("a number from 1"))
    }

    fn tools(&self) -> Result<Vec<Pattern>, String> {
        let names = self.texts()?;
        for name in &names {
            tool_names::check(name).map_err(|message| self.item_error(name, &message))?;
        }
        Ok(names.into_iter().map(Pattern::new).collect())
    }

    fn permissions(&self) -> Result<Vec<(Pattern, Permission)>, String> {
        let map = self.value.as_object();
        let map = map.ok_or(self.type_error("a map from tools to permissions"))?;
        let permission = |(tool, word): (&String, &Value)| {
            let word = word.as_str();
            let word = word.ok_or(self.type_error("a map to `always`, `ask` or `never`"))?;
            Permission::parse_entry(tool, word).map_err(|message| self.item_error(tool, &message))
        };
        map.iter().map(permission).collect()
    }

    fn rules(&self, effect: RuleEffect, origin: &str) -> Result<Vec<PolicyRule>, String> {
        let rule = |text: String| {
            PolicyRule::parse(&text, effect, origin)
                .map_err(|message| self.item_error(&text, &message))
        };
        self.texts()?.into_iter().map(rule).collect()
    }

    /// Parses paths; `true` is the working directory.
    fn paths(&self) -> Result<Vec<String>, String> {
        match self.value {
            Value::Bool(true) => Ok(vec![".".into()]),
            Value::Bool(false) => Ok(Vec::new()),
            _ => self.texts(),
        }
    }

    fn net(&self) -> Result<Net, String> {
        let host = |text: String| {
            net::parse_host(&text).map_err(|message| self.item_error(&text, &message))
        };
        match self.value {
            Value::Bool(true) => Ok(Net::Any),
            Value::Bool(false) => Ok(Net::Default),
            _ => {
                let hosts: Vec<Pattern> =
                    self.texts()?.into_iter().map(host).collect::<Result<_, _>>()?;
                Ok(Net::Hosts { commands: hosts.clone(), hosts })
            }
        }
    }
}

/// Parses a string, a list of strings, or a string with commas between its items. A comma in the parentheses of a rule separates none.
fn parse_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => {
            let mut depth = 0_usize;
            let is_separator = |letter: char| {
                match letter {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                letter == ',' && depth == 0
            };
            let parts = text.split(is_separator).map(|part| part.trim().to_owned());
            Some(parts.filter(|part| !part.is_empty()).collect())
        }
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect()
        }
        _ => None,
    }
}

const EXPLORE_PROMPT: &str = "You research for another agent: find the requested information with as few reads as possible, change \
                       nothing, and report your findings with paths and line numbers. Say what you could not find.";

#[cfg(test)]
mod tests {
    use super::{BUILT_IN, Profile, ProfileKind};
    use crate::policy::net::Net;
    use serde_json::{Value, json};

    #[test]
    fn built_in_profiles_are_complete() {
        for (name, description) in BUILT_IN {
            let profile = Profile::built_in(name).unwrap();
            assert_eq!(
                (profile.name.as_str(), profile.description.as_str()),
                (*name, *description)
            );
            assert_eq!(profile.is_unrestricted, *name == "full");
        }
        assert_eq!(Profile::built_in("yolo"), None);
    }

    #[test]
    fn user_profiles_are_parsed_or_rejected() {
        let check = |head: Value, expect: &str| match Profile::parse("mine", &head, "") {
            Ok(_) => assert_eq!(expect, "", "{head}"),
            Err(message) => assert!(!expect.is_empty() && message.contains(expect), "{message}"),
        };
        check(json!({}), "");
        check(json!({"extends": "plan", "tools": "read_file, exec", "deny": ["exec(rm *)"]}), "");
        let rules =
            Profile::parse("mine", &json!({"deny": "exec(a, b), read_file(*.{key,pem})"}), "");
        let rules: Vec<String> = rules.unwrap().rules.iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["exec(a, b)", "read_file(*.{key,pem})"]);
        check(json!({"extends": "full"}), "typed each time");
        check(json!({"extends": "nobody"}), "no built-in profile");
        check(json!({"tools": 5}), "a list of strings");
        check(json!({"permissions": {"exec": "maybe"}}), "`always`, `ask` or `never`");
        check(json!({"allow": ["exec(git *)"]}), "confined");
        check(json!({"max_iterations": 0}), "from 1");
        check(json!({"sandbox": "off"}), "unknown field `sandbox`");
        check(json!({"model": true}), "text: put it in quotes");
        check(json!({"tools": "exce"}), "did you mean `exec`?");
        check(json!({"deny": "Exec"}), "did you mean `exec`?");
        check(json!({"permissions": {"readfile": "never"}}), "did you mean `read_file`?");
        check(json!({"net": ["http://x/"]}), "is not a host");
        check(json!([1]), "is not a list");
        assert!(Profile::parse("plan", &json!({}), "").is_err());
        let head =
            json!({"kind": "subagent", "write": true, "net": ["example.org"], "description": "d"});
        let profile = Profile::parse("mine", &head, "\nBe brief.\n").unwrap();
        assert_eq!(profile.kind, ProfileKind::Subagent);
        assert_eq!(profile.write, ["."]);
        assert_eq!(profile.prompt.as_deref(), Some("Be brief."));
        assert!(matches!(profile.net, Net::Hosts { hosts, .. } if hosts.len() == 1));
    }
}
