//! Rules for calls that the user allows permanently. A rule is written to the conversation's profile, or else to the
//! config.

use crate::error::{Exit, fail};
use crate::ops::context::Context;
use crate::ops::profiles;
use crate::policy::known::CHANGING;
use crate::policy::profile::Profile;
use crate::settings::Config;
use crate::shell_quote::unquoted;
use crate::skill;
use crate::sys::input;
use crate::sys::paths::Real;
use crate::sys::store;
use crate::tool::Case;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The longest profile that is read, in bytes.
const LIMIT: usize = 1 << 20;

/// A rule, and the list that it is added to.
pub(crate) struct Rule {
    /// The rule's effect, for people.
    pub(crate) words: String,
    /// The list's key in a profile; in the config it is under `tools`.
    list: &'static str,
    text: String,
    /// The user's own profile; `None` for the config.
    profile: Option<PathBuf>,
}

/// The rule that would allow calls like that of `case`; `None` if there is no such rule.
pub(crate) fn of(ctx: &Context, profile: Option<&str>, case: &Case<'_>) -> Option<Rule> {
    let flag = case.refusal.grant.as_deref()?;
    let (name, value) = match flag.split_once(['=', ' ']) {
        Some((name, value)) => (name, Some(unquoted(value)?)),
        None => (flag, None),
    };
    let (list, text) = match (name, value) {
        ("--allow", Some(rule)) => ("allow", rule),
        ("--net", Some(host)) => ("net", host),
        ("--read", Some(path)) => ("read", path),
        // The rule covers the tool only in the directory of this call.
        ("--write", place) if CHANGING.contains(&case.tool) => {
            let place =
                place.map_or_else(|| std::env::current_dir().ok(), |path| Some(path.into()))?;
            let place = Real::default().of(&place);
            let beneath = match place.is_dir() {
                true => place.join("*"),
                false => place,
            };
            ("allow", format!("{}({})", case.tool, beneath.to_str()?))
        }
        _ => return None,
    };
    let own = profile.filter(|name| Profile::built_in(name).is_none());
    let words = match list {
        "allow" => text.clone(),
        list => format!("{list} {text}"),
    };
    Some(Rule {
        words,
        list,
        text,
        profile: own.map(|name| ctx.paths.profiles().join(format!("{name}.md"))),
    })
}

impl Rule {
    /// Writes the rule. Returns the location, for people.
    pub(crate) fn write(&self, ctx: &Context) -> Result<String> {
        let Some(path) = &self.profile else {
            let mut config = Config::load(&ctx.paths.config)?;
            let path = ["tools", self.list];
            let written = config.get_path(&path.join("."));
            let all = with(written, &self.text);
            config.set(&path, &all)?;
            config.save()?;
            return Ok(format!(
                "`tools.{}` of {}",
                self.list,
                ctx.paths.display(&ctx.paths.config)
            ));
        };
        let shown = ctx.paths.display(path);
        let bytes = input::read_file(path, &shown, LIMIT)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| fail(Exit::Config, format!("`{shown}` is not UTF-8")))?;
        let new = added(&text, self.list, &self.text)
            .map_err(|words| fail(Exit::Config, format!("`{shown}`: {words}")))?;
        store::replace(path, new.as_bytes())?;
        // Load the profile again, to check that what was written can be read.
        let name = path.file_stem().and_then(|name| name.to_str());
        profiles::find(ctx, name.unwrap_or_default())?;
        Ok(format!("`{}` of {shown}", self.list))
    }
}

/// Appends `text` to `list`.
fn with(list: Option<&Value>, text: &str) -> Value {
    let mut all: Vec<Value> = match list {
        Some(Value::Array(items)) => items.clone(),
        Some(Value::String(items)) => items
            .split(',')
            .map(|item| json!(item.trim()))
            .filter(|item| item != "")
            .collect(),
        _ => Vec::new(),
    };
    if !all.iter().any(|item| item == text) {
        all.push(json!(text));
    }
    Value::Array(all)
}

/// Appends `item` to the list `key` in the front matter of the profile `text`.
fn added(text: &str, key: &str, item: &str) -> Result<String, String> {
    let (head, _) = skill::strict_head_and_body(text)?;
    if key == "net" && head.get(key).is_some_and(Value::is_boolean) {
        return Err(format!("`{key}` is not a list"));
    }
    let line = format!("{key}: {}", with(head.get(key), item));
    let lines: Vec<&str> = text.lines().collect();
    let begins = text.trim_start_matches('\u{feff}').starts_with("---");
    if !begins {
        return Ok(format!("---\n{line}\n---\n{text}"));
    }
    let end = lines.iter().skip(1).position(|line| line.trim() == "---");
    let end = end.ok_or("the front matter is not closed")? + 1;
    let is_key = |line: &&str| line.split(':').next() == Some(key);
    let mut new: Vec<String> = Vec::new();
    let mut at = 0;
    let found = lines[..end].iter().position(is_key);
    if let Some(start) = found {
        new.extend(lines[..start].iter().map(|line| (*line).to_owned()));
        let goes_on =
            |line: &&&str| line.starts_with([' ', '\t', '-', ']']) || line.trim().is_empty();
        at = start + 1 + lines[start + 1..end].iter().take_while(goes_on).count();
    } else {
        new.extend(lines[..end].iter().map(|line| (*line).to_owned()));
        at += end;
    }
    new.push(line);
    new.extend(lines[at..].iter().map(|line| (*line).to_owned()));
    Ok(new.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::added;

    #[test]
    fn a_rule_goes_to_the_end_of_its_list_and_nothing_else_changes() {
        let check = |text: &str, expect: &str| {
            assert_eq!(added(text, "allow", "exec").unwrap(), expect);
            // Adding the same item again changes nothing.
            assert_eq!(added(expect, "allow", "exec").unwrap(), expect);
        };
        check(
            "---\nextends: plan\n---\nBe brief.\n",
            "---\nextends: plan\nallow: [\"exec\"]\n---\nBe brief.\n",
        );
        check(
            "---\nallow: [write_file(/a/*)] # mine\nread: /b\n---\n",
            "---\nallow: [\"write_file(/a/*)\",\"exec\"]\nread: /b\n---\n",
        );
        check(
            "---\nallow:\n  - a_tool\n  - grep\nread: /b\n---\n",
            "---\nallow: [\"a_tool\",\"grep\",\"exec\"]\nread: /b\n---\n",
        );
        check("Be brief.\n", "---\nallow: [\"exec\"]\n---\nBe brief.\n");
        assert!(added("---\nnet: true\n---\n", "net", "h").is_err());
        assert!(added("---\nallow: a\n", "allow", "h").is_err());
    }
}
