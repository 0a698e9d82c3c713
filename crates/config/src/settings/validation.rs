//! Checks values beyond their type: rules, permissions, hosts, addresses and regular expressions, with the same parsers
//! that a run uses. It also warns about values that are valid but risky.

use super::bindings;
use super::hooks::HookSettings;
use super::key_node::KeyNode;
use super::key_spelling::format_path;
use super::layers::UnknownKey;
use super::model_keys::unknown_model_keys;
use crate::policy::rule::{PolicyRule, RuleEffect};
use crate::policy::{CommandPattern, Permission, net};
use nanobot_net::ip_ranges::IpRange;
use nanobot_net::web_url;
use nanobot_os::clock::named_zone;
use serde_json::Value;

/// The address of a job's pings that stands for none.
pub const NO_PING: &str = "none";
/// The place of the job's name in such an address.
pub const JOB_NAME_FIELD: &str = "{job}";

/// Returns the error in `value` for the key at `path`; the value's type has already been checked.
pub fn validate(path: &[String], value: &Value) -> Option<String> {
    let path_text = format_path(path);
    let describe = |text: &str, message: String| format!("`{path_text}`: `{text}` {message}");
    let first_error = |check: &dyn Fn(&str) -> Result<(), String>| {
        let mut texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.find_map(|text| check(text).err().map(|message| describe(text, message)))
    };
    let first_rule_error = |effect: RuleEffect| {
        first_error(&|text: &str| PolicyRule::parse(text, effect, &path_text).map(drop))
    };
    match path_text.as_str() {
        "hooks" => HookSettings::parse(value).err(),
        "tools.permissions" => value.as_object()?.iter().find_map(|(tool, word)| {
            let message = Permission::parse_entry(tool, word.as_str()?).err()?;
            Some(format!("`{path_text}.{tool}` {message}"))
        }),
        "tools.allow" => first_rule_error(RuleEffect::Allow),
        "tools.deny" => first_rule_error(RuleEffect::Deny),
        "tools.net" => first_error(&|text: &str| net::parse_host(text).map(drop)),
        "tools.exec.allowPatterns" | "tools.exec.denyPatterns" => {
            first_error(&|text: &str| CommandPattern::compile(text).map(drop))
        }
        "tools.ssrfWhitelist" => first_error(&|text: &str| {
            let range = text.parse::<IpRange>();
            range.map(drop).map_err(|()| "is not an address range such as `10.0.0.0/8`".into())
        }),
        "notify.target" => {
            let text = value.as_str()?.trim();
            let is_valid = match text.split_once(':') {
                None => ["", "mail"].contains(&text),
                Some((_, "")) => false,
                Some((channel, _)) => {
                    channel == "command" || KeyNode::at(&["channels", channel]).is_some()
                }
            };
            let message = "is not a target; expected `CHANNEL:CHAT`, `command:CMD` or `mail`";
            (!is_valid).then(|| describe(text, message.into()))
        }
        "cron.ping" => match value.as_str()?.trim() {
            "" | NO_PING => None,
            text => {
                let message = web_url::parse(&text.replace(JOB_NAME_FIELD, "job")).err()?;
                Some(format!("`{path_text}`: {message}"))
            }
        },
        _ if holds_bindings(path) => {
            bindings::problem(value).map(|problem| format!("`{path_text}`: {problem}"))
        }
        _ if is_api_base(path) => match value.as_str()?.trim() {
            "" => None,
            text => Some(describe(&web_url::redact_url(text), web_url::check_server(text).err()?)),
        },
        _ => {
            let [tools, permissions, tool] = path else {
                return None;
            };
            if tools != "tools" || permissions != "permissions" {
                return None;
            }
            let message = Permission::parse_entry(tool, value.as_str()?).err()?;
            Some(format!("`{path_text}` {message}"))
        }
    }
}

/// True for an object of bindings of a channel.
fn holds_bindings(path: &[String]) -> bool {
    matches!(path, [section, _, key] if section == "channels" && (key == "chats" || key == "senders"))
}

/// True for the address of a provider.
fn is_api_base(path: &[String]) -> bool {
    matches!(path, [section, _, key] if section == "providers" && key == "apiBase")
}

/// Returns the first unknown key in `path`, or in `value` at this path. The table of keys ends at names that the user
/// chooses.
pub fn unknown_key(path: &[String], value: &Value) -> Option<UnknownKey> {
    // The presets of other releases have more keys.
    let value = match path.first()?.as_str() {
        "models" => value,
        "modelPresets" => &Value::Null,
        _ => return None,
    };
    let unknown_in_path =
        (0..path.len()).find_map(|end| unknown_model_keys(&path[..end], &Value::Null).pop());
    let unknown_path = match unknown_in_path {
        Some(unknown_path) => unknown_path,
        None => unknown_model_keys(path, value).into_iter().next()?,
    };
    Some(UnknownKey::new(&unknown_path, &Value::Null))
}

/// Returns a warning about a valid but risky `value` for the key at `path`.
pub fn warn(path: &str, value: &Value) -> Option<String> {
    match path {
        "tools.ssrfWhitelist" => {
            let mut texts = value.as_array()?.iter().filter_map(Value::as_str);
            let is_wide = |text: &&str| text.parse().is_ok_and(|range: IpRange| range.is_wide());
            let text = texts.find(is_wide)?;
            Some(format!(
                "`{path}` contains `{text}`: a web page could direct the agent to almost any reachable host, including this machine and cloud metadata; list only the ranges that you need"
            ))
        }
        "agents.defaults.timezone" => {
            let name = value.as_str().filter(|name| named_zone(name).is_none())?;
            Some(format!(
                "`{path}` is `{name}`, which is no time zone here, so the system's is used"
            ))
        }
        _ => None,
    }
}
