//! Checks values beyond their type: rules, permissions, hosts, addresses and regular expressions, with the same parsers
//! that a run uses. It also warns about values that are valid but risky.

use super::hooks::HookSettings;
use super::key_spelling::format_path;
use super::layers::UnknownKey;
use super::model_keys::unknown_metadata_keys;
use crate::policy::rule::{PolicyRule, RuleEffect};
use crate::policy::{CommandPattern, Permission, net};
use nanobot_net::ip_ranges::IpRange;
use nanobot_net::web_url;
use serde_json::Value;

/// Returns the error in `value` for the key at `path`; the value's type has already been checked.
pub fn validate(path: &[String], value: &Value) -> Option<String> {
    let joined = format_path(path);
    let told = |text: &str, words: String| format!("`{joined}`: `{text}` {words}");
    let texts = || value.as_array().into_iter().flatten().filter_map(Value::as_str);
    let first = |judge: &dyn Fn(&str) -> Result<(), String>| {
        texts().find_map(|text| judge(text).err().map(|words| told(text, words)))
    };
    let rule = |effect: RuleEffect| {
        first(&|text: &str| PolicyRule::parse(text, effect, &joined).map(drop))
    };
    match joined.as_str() {
        "hooks" => HookSettings::parse(value).err(),
        "tools.permissions" => value.as_object()?.iter().find_map(|(tool, word)| {
            let words = Permission::parse_entry(tool, word.as_str()?).err()?;
            Some(format!("`{joined}.{tool}` {words}"))
        }),
        "tools.allow" => rule(RuleEffect::Allow),
        "tools.deny" => rule(RuleEffect::Deny),
        "tools.net" => first(&|text: &str| net::parse_host(text).map(drop)),
        "tools.exec.allowPatterns" | "tools.exec.denyPatterns" => {
            first(&|text: &str| CommandPattern::compile(text).map(drop))
        }
        "tools.ssrfWhitelist" => first(&|text: &str| {
            let range = text.parse::<IpRange>();
            range.map(drop).map_err(|()| "is not an address range such as `10.0.0.0/8`".into())
        }),
        _ if is_api_base(path) => match value.as_str()?.trim() {
            "" => None,
            text => Some(told(&web_url::redact_url(text), web_url::check_server(text).err()?)),
        },
        _ => {
            let (tool, above) = path.split_last()?;
            let word = value.as_str().filter(|_| above == ["tools", "permissions"])?;
            let words = Permission::parse_entry(tool, word).err()?;
            Some(format!("`{joined}` {words}"))
        }
    }
}

/// True for the address of a provider.
fn is_api_base(path: &[String]) -> bool {
    matches!(path, [section, _, key] if section == "providers" && key == "apiBase")
}

/// Returns the first unknown key in `path` or in `value`, which belongs there: below a key that has names of the user, the
/// table of keys ends.
pub fn unknown_key(path: &[String], value: &Value) -> Option<UnknownKey> {
    // The presets of other releases have more keys.
    let value = match path.first()?.as_str() {
        "models" => value,
        "modelPresets" => &Value::Null,
        _ => return None,
    };
    let above = (0..path.len()).map(|end| (&path[..end], &Value::Null));
    let mut places = above.chain([(path, value)]);
    let found =
        places.find_map(|(path, value)| unknown_metadata_keys(path, value).into_iter().next())?;
    Some(UnknownKey::new(&found, &Value::Null))
}

/// Returns a warning about a valid but risky `value` for the key at `path`.
pub fn warn(path: &str, value: &Value) -> Option<String> {
    match path {
        "tools.ssrfWhitelist" => {
            let texts = value.as_array()?.iter().filter_map(Value::as_str);
            let wide = |text: &&str| text.parse().is_ok_and(|range: IpRange| range.is_wide());
            let text = texts.into_iter().find(wide)?;
            Some(format!(
                "`{path}` contains `{text}`: a web page could direct the agent to almost any reachable host, including this machine and cloud metadata; list only the ranges that you need"
            ))
        }
        _ => None,
    }
}
