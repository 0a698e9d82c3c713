//! Expands `${VARIABLE}` references in the config's strings. `$${` is an escaped, literal `${`.

use nanobot_os::env::Env;
use serde_json::Value;

/// The name of an environment variable that is unset or empty.
#[derive(Debug, PartialEq, Eq)]
pub struct UnsetVariable(pub String);

/// Replaces each `${NAME}` in `text`. Braces that do not contain a valid name are left unchanged.
pub fn expand(text: &str, env: &Env) -> Result<String, UnsetVariable> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$${") {
            expanded.push_str("${");
            rest = after;
        } else if let Some((name, after)) = parse_reference(rest) {
            expanded.push_str(env.get(name).ok_or_else(|| UnsetVariable(name.to_owned()))?);
            rest = after;
        } else {
            expanded.push('$');
            rest = &rest[1..];
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Applies [`expand`] to every string inside `value`.
pub(crate) fn expand_all(value: &Value, env: &Env) -> Result<Value, UnsetVariable> {
    Ok(match value {
        Value::String(text) => Value::String(expand(text, env)?),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| expand_all(item, env)).collect::<Result<_, _>>()?)
        }
        Value::Object(members) => Value::Object(
            members
                .iter()
                .map(|(name, value)| Ok((name.clone(), expand_all(value, env)?)))
                .collect::<Result<_, _>>()?,
        ),
        other => other.clone(),
    })
}

/// Replaces each `${NAME:-DEFAULT}` in the strings of `value`, as the files `.mcp.json` of other agents have it, by a reference to the variable
/// if it is set, else by the default.
pub fn expand_defaults(value: &mut Value, env: &Env) {
    match value {
        Value::String(text) => *text = with_defaults(text, env),
        Value::Array(items) => items.iter_mut().for_each(|item| expand_defaults(item, env)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| expand_defaults(member, env));
        }
        _ => {}
    }
}

fn with_defaults(text: &str, env: &Env) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        expanded.push_str(&rest[..start]);
        let reference = rest[start + 2..].split_once('}').and_then(|(inner, after)| {
            let (name, default) = inner.split_once(":-")?;
            is_variable_name(name).then_some((name, default, after))
        });
        rest = match reference {
            Some((name, default, after)) if !expanded.ends_with('$') => {
                match env.get(name) {
                    Some(_) => expanded.push_str(&format!("${{{name}}}")),
                    None => expanded.push_str(default),
                }
                after
            }
            _ => {
                expanded.push_str("${");
                &rest[start + 2..]
            }
        };
    }
    expanded.push_str(rest);
    expanded
}

/// True if `text` refers to an environment variable, and so contains no secret itself.
pub fn has_reference(text: &str) -> bool {
    text.match_indices("${").any(|(at, _)| {
        let is_escaped = text[..at].ends_with('$');
        !is_escaped && parse_reference(&text[at..]).is_some()
    })
}

/// True if `name` is a valid name for an environment variable.
pub fn is_variable_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && letters.all(|letter| letter == b'_' || letter.is_ascii_alphanumeric())
}

/// Parses the reference at the start of `text`; returns its name and the text that follows.
fn parse_reference(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.strip_prefix("${")?.split_once('}')?;
    is_variable_name(name).then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::{UnsetVariable, expand, expand_defaults, has_reference};
    use nanobot_os::env::Env;
    use serde_json::json;

    #[test]
    fn references_are_replaced() {
        let env: Env = [("A", "1"), ("B_2", "two"), ("E", "")].into_iter().collect();
        let check = |text: &str, expect: Result<&str, &str>| {
            let expect = expect.map(str::to_owned).map_err(|name| UnsetVariable(name.to_owned()));
            assert_eq!(expand(text, &env), expect, "{text}");
        };
        check("", Ok(""));
        check("plain $ $A {A}", Ok("plain $ $A {A}"));
        check("${A}", Ok("1"));
        check("x${A}y${B_2}z", Ok("x1ytwoz"));
        check("$${A}", Ok("${A}"));
        check("$$${A}", Ok("$${A}"));
        check("${a-b} ${} ${", Ok("${a-b} ${} ${"));
        check("é${A}é", Ok("é1é"));
        check("${NO}", Err("NO"));
        check("${E}", Err("E"));
    }

    #[test]
    fn literals_are_not_references() {
        assert!(has_reference("Bearer ${A}"));
        assert!(!has_reference("$${A}"));
        assert!(!has_reference("sk-${"));
    }

    #[test]
    fn defaults_take_the_place_of_unset_variables() {
        let env: Env = [("A", "1"), ("E", "")].into_iter().collect();
        let check = |text: &str, expect: &str| {
            let mut value = json!({ "args": [text] });
            expand_defaults(&mut value, &env);
            assert_eq!(value["args"][0], expect, "{text}");
        };
        check("${A:-2}", "${A}");
        check("x${B:-2}y${C:-}z", "x2yz");
        check("${E:-2}", "2");
        check("${A} ${B}", "${A} ${B}");
        check("$${B:-2}", "$${B:-2}");
        check("${1:-2} ${B:-2", "${1:-2} ${B:-2");
    }

    #[test]
    fn fuzz_any_text_is_expanded_or_names_what_is_missing() {
        let env: Env = [("A", "value")].into_iter().collect();
        nanobot_base::fuzz::check(
            &[b"${A}", b"x${A}y${B}z$${A}", b"$A ${A:-b} ${}"],
            |input, _| {
                let text = nanobot_base::fuzz::lossy_text(input);
                let actual = super::expand(&text, &env);
                if !super::has_reference(&text) && !text.contains("$$") {
                    assert_eq!(actual.ok().as_deref(), Some(text.as_str()));
                }
            },
        );
    }
}
