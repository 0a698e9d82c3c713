//! Rules for calls that the user allows permanently. A rule is written to the conversation's profile, or else to the
//! config.

use crate::ops::context::Context;
use crate::ops::profiles;
use anyhow::Result;
use nanobot_base::error::{Exit, fail};
use nanobot_config::policy::profile::Profile;
use nanobot_config::policy::refusal::SuggestedFlag;
use nanobot_config::policy::rule::{PolicyRule, RuleEffect};
use nanobot_config::policy::tool_names::WRITE_TOOLS;
use nanobot_config::settings::Config;
use nanobot_os::durable_file;
use nanobot_os::input;
use nanobot_os::symlinks::PathResolver;
use nanobot_store::skill;
use nanobot_tool::ApprovalRequest;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Maximum size of a profile, in bytes.
const MAX_PROFILE_BYTES: usize = 1 << 20;

/// A rule, and the list that it is added to.
pub(crate) struct PermanentRule {
    /// The key of the list and the rule, for people.
    pub(crate) description: String,
    /// The list's key in a profile; in the config it is under `tools`.
    list: &'static str,
    text: String,
    /// The user's own profile; `None` for the config.
    profile: Option<PathBuf>,
}

/// The rule that would allow calls like the one in `request`; `None` if there is none.
pub(crate) fn rule_for(
    ctx: &Context,
    profile: Option<&str>,
    request: &ApprovalRequest<'_>,
) -> Option<PermanentRule> {
    let flag = request.refusal.suggested_flag.as_deref()?;
    let SuggestedFlag { name, value } = SuggestedFlag::parse(flag)?;
    let (list, text) = match (name, value) {
        ("--allow", Some(rule)) => ("allow", rule),
        ("--net", Some(host)) => ("net", host),
        ("--read", Some(path)) => ("read", path),
        // The rule is for the tool and the path of this call. No rule opens a path outside of the run's file scope.
        ("--write", path) if WRITE_TOOLS.contains(&request.tool) => {
            let path =
                path.map_or_else(|| std::env::current_dir().ok(), |path| Some(path.into()))?;
            let path = PathResolver::default().resolve(&path);
            request.file_scope.roots.iter().find(|root| path.starts_with(&root.path))?;
            let pattern = if path.is_dir() { path.join("*") } else { path };
            let rule = format!("{}({})", request.tool, pattern.to_str()?);
            // A file name may be an invalid glob.
            PolicyRule::parse(&rule, RuleEffect::Allow, "").ok()?;
            ("allow", rule)
        }
        _ => return None,
    };
    let own_profile = profile.filter(|name| Profile::built_in(name).is_none());
    let key = match own_profile {
        Some(_) => list.to_owned(),
        None => format!("tools.{list}"),
    };
    Some(PermanentRule {
        description: format!("{key}: {text}"),
        list,
        text,
        profile: own_profile.map(|name| ctx.paths.profiles().join(format!("{name}.md"))),
    })
}

impl PermanentRule {
    /// Writes the rule. Returns the location, for people.
    pub(crate) fn write(&self, ctx: &Context) -> Result<String> {
        let Some(path) = &self.profile else {
            let file = Config::change(&ctx.paths, |config| {
                let path = ["tools", self.list];
                let list = with_item(config.get_path(&path.join(".")), &self.text);
                config.set(&path, &list)?;
                Ok(ctx.paths.display(config.file_of(&path).path()))
            })?;
            return Ok(format!("`tools.{}` of {file}", self.list));
        };
        let file_name = ctx.paths.display(path);
        let lock = durable_file::lock_for_change(path, &file_name)?;
        let bytes = input::read_file(path, &file_name, MAX_PROFILE_BYTES)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| fail(Exit::Config, format!("`{file_name}` is not UTF-8")))?;
        let new_text = add_to_front_matter(&text, self.list, &self.text)
            .map_err(|error| fail(Exit::Config, format!("`{file_name}`: {error}")))?;
        durable_file::replace(path, new_text.as_bytes())?;
        lock.remove()?;
        // Load the profile again, to check that it is still valid.
        let name = path.file_stem().and_then(|name| name.to_str());
        profiles::find(ctx, name.unwrap_or_default())?;
        Ok(format!("`{}` of {file_name}", self.list))
    }
}

/// Appends `text` to `list`.
fn with_item(list: Option<&Value>, text: &str) -> Value {
    let mut new_list: Vec<Value> = match list {
        Some(Value::Array(items)) => items.clone(),
        Some(Value::String(items)) => {
            items.split(',').map(|item| json!(item.trim())).filter(|item| item != "").collect()
        }
        _ => Vec::new(),
    };
    if !new_list.iter().any(|item| item == text) {
        new_list.push(json!(text));
    }
    Value::Array(new_list)
}

/// Appends `item` to the list `key` in the front matter of the profile `text`.
fn add_to_front_matter(text: &str, key: &str, item: &str) -> Result<String, String> {
    let (head, _) = skill::parse_strict(text)?;
    if key == "net" && head.get(key).is_some_and(Value::is_boolean) {
        return Err(format!("`{key}` is not a list"));
    }
    let line = format!("{key}: {}", with_item(head.get(key), item));
    let lines: Vec<&str> = text.lines().collect();
    if !text.trim_start_matches('\u{feff}').starts_with("---") {
        return Ok(format!("---\n{line}\n---\n{text}"));
    }
    let closing = lines.iter().skip(1).position(|line| line.trim() == "---");
    let closing = closing.ok_or("the front matter is not closed")? + 1;
    let is_key = |line: &&str| {
        let name = line.split_once(':').map(|(name, _)| name.trim_end());
        name.is_some_and(|name| name.trim_matches(['"', '\'']) == key)
    };
    // The lines of the key, or the empty range before the closing line.
    let (start, end) = match lines[..closing].iter().position(is_key) {
        Some(start) => {
            let continues =
                |line: &&&str| line.starts_with([' ', '\t', '-', ']']) || line.trim().is_empty();
            (start, start + 1 + lines[start + 1..closing].iter().take_while(continues).count())
        }
        None => (closing, closing),
    };
    let new_lines = [&lines[..start], &[line.as_str()], &lines[end..]].concat();
    let new_text = new_lines.join("\n") + "\n";
    // A profile that cannot be parsed would stop every run that names it.
    skill::parse_strict(&new_text)?;
    Ok(new_text)
}

#[cfg(test)]
mod tests {
    use super::add_to_front_matter;

    #[test]
    fn a_rule_goes_to_the_end_of_its_list_and_nothing_else_changes() {
        let check = |text: &str, expect: &str| {
            assert_eq!(add_to_front_matter(text, "allow", "exec").unwrap(), expect);
            // Adding the same item again changes nothing.
            assert_eq!(add_to_front_matter(expect, "allow", "exec").unwrap(), expect);
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
        for key in ["\"allow\":", "allow :"] {
            let expect = "---\nallow: [\"grep\",\"exec\"]\n---\n";
            check(&format!("---\n{key} [grep]\n---\n"), expect);
        }
        // A list that goes on after a comment is left as it is.
        let text = "---\nallow:\n  - grep\n# mine\n  - a_tool\n---\n";
        assert!(add_to_front_matter(text, "allow", "exec").is_err());
        assert!(add_to_front_matter("---\nnet: true\n---\n", "net", "h").is_err());
        assert!(add_to_front_matter("---\nallow: a\n", "allow", "h").is_err());
    }
}
