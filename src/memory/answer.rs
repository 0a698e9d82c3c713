//! What models send when they are asked to save memory. Pure.
//!
//! They are asked for one call with two texts. They send the arguments as an object, as text that holds one, in a list,
//! in a code fence, or as prose with JSON in it, under names of their own, and forget the call.

use crate::message::json::parse;
use crate::message::{Finish, Reply};
use serde_json::{Map, Value};

/// The tool's name.
pub const TOOL: &str = "save_memory";

/// What memory is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The paragraph for the history.
    pub entry: String,
    /// The whole of MEMORY.md; `None` where nothing is said of it.
    pub memory: Option<String>,
}

/// Names under which the two texts come.
const ENTRY: [&str; 5] = [
    "history_entry",
    "historyEntry",
    "history",
    "entry",
    "summary",
];
const MEMORY: [&str; 4] = ["memory_update", "memoryUpdate", "memory", "updated_memory"];
/// Names under which the two may be wrapped.
const WRAPPERS: [&str; 5] = ["arguments", "parameters", "input", "args", TOOL];
/// How deep they are looked for.
const DEPTH: usize = 6;

/// What `reply` says.
///
/// # Errors
/// Nothing that can be used, in words.
pub fn update(reply: &Reply) -> Result<Update, String> {
    match reply.finish {
        Finish::Length => return Err("the answer was cut by the output limit".into()),
        Finish::Refusal => return Err("the model would not answer".into()),
        _ => {}
    }
    let call = reply.calls.iter().find(|call| call.name == TOOL);
    let object = match (call.or(reply.calls.first()), reply.text.trim()) {
        (Some(call), _) => object(&call.arguments, DEPTH),
        (None, "") => return Err("the model answered nothing".into()),
        (None, text) => object(&Value::String(text.to_owned()), DEPTH),
    };
    let Some(object) = object else {
        return Err(match call {
            Some(_) => "the call has no arguments that can be read".into(),
            None => format!("the model did not call `{TOOL}`"),
        });
    };
    let first = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| object.get(*name))
            .and_then(text)
    };
    let entry = first(&ENTRY).map(|entry| entry.trim().to_owned());
    let Some(entry) = entry.filter(|entry| !entry.is_empty()) else {
        return Err("the call says nothing for the history".into());
    };
    let memory = first(&MEMORY).map(|memory| unfenced(&memory).to_owned());
    Ok(Update { entry, memory })
}

/// The object with the two texts in what was sent.
fn object(value: &Value, depth: usize) -> Option<Map<String, Value>> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Object(map) => {
            let names = || ENTRY.iter().chain(&MEMORY);
            if names().any(|name| map.contains_key(*name) && !map[*name].is_object()) {
                return Some(map.clone());
            }
            let inner = WRAPPERS.iter().filter_map(|name| map.get(*name));
            let wrapped = inner.filter_map(|value| object(value, depth)).next();
            // Anything else that is called as one of them is a text in an odd shape.
            wrapped.or_else(|| {
                names()
                    .any(|name| map.contains_key(*name))
                    .then(|| map.clone())
            })
        }
        Value::Array(list) => list.iter().find_map(|value| object(value, depth)),
        Value::String(text) => match parse(text.trim()) {
            Some(value) => object(&value, depth),
            None => within(text).find_map(|value| object(&value, depth)),
        },
        _ => None,
    }
}

/// The JSON objects in prose, code fences included: from a brace on, as far as it makes sense.
fn within(text: &str) -> impl Iterator<Item = Value> {
    text.match_indices('{').take(64).filter_map(|(at, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        values.next()?.ok()
    })
}

/// A text in the shape it came in: lines as a list, or JSON of some kind.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let lines: Option<Vec<String>> = list.iter().map(text).collect();
            lines.map(|lines| lines.join("\n"))
        }
        other => serde_json::to_string_pretty(other).ok(),
    }
}

/// `text` without the code fence around all of it.
fn unfenced(text: &str) -> &str {
    let trimmed = text.trim();
    let inner = trimmed
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"))
        .and_then(|rest| rest.split_once('\n'))
        .filter(|(language, inner)| {
            language.chars().all(char::is_alphanumeric) && !inner.contains("```")
        });
    inner.map_or(text, |(_, inner)| inner)
}

#[cfg(test)]
mod tests {
    use super::{Update, update};
    use crate::message::{Finish, Reply, ToolCall};
    use serde_json::{Value, json};

    fn called(arguments: Value) -> Reply {
        Reply {
            calls: vec![ToolCall {
                id: "c".into(),
                name: "save_memory".into(),
                arguments,
            }],
            finish: Finish::Calls,
            ..Reply::default()
        }
    }

    fn said(text: &str) -> Reply {
        Reply {
            text: text.into(),
            ..Reply::default()
        }
    }

    #[test]
    fn what_models_really_send_is_understood() {
        let check = |reply: Reply, entry: &str, memory: Option<&str>| {
            let expect = Update {
                entry: entry.into(),
                memory: memory.map(str::to_owned),
            };
            assert_eq!(update(&reply), Ok(expect), "{reply:?}");
        };
        let plain = json!({ "history_entry": "[t] e", "memory_update": "# M\n" });
        let text = plain.to_string();
        check(called(plain.clone()), "[t] e", Some("# M\n"));
        check(called(json!(text)), "[t] e", Some("# M\n"));
        check(
            called(json!(json!(text).to_string())),
            "[t] e",
            Some("# M\n"),
        );
        check(called(json!([plain])), "[t] e", Some("# M\n"));
        check(called(json!([text])), "[t] e", Some("# M\n"));
        check(
            called(json!(format!("```json\n{text}\n```"))),
            "[t] e",
            Some("# M\n"),
        );
        check(
            called(json!({ "arguments": plain })),
            "[t] e",
            Some("# M\n"),
        );
        check(
            called(json!({ "historyEntry": "e", "memoryUpdate": "m" })),
            "e",
            Some("m"),
        );
        check(called(json!({ "history_entry": " e " })), "e", None);
        check(
            called(json!({ "history_entry": "e", "memory_update": null })),
            "e",
            None,
        );
        check(
            called(json!({ "history_entry": "e", "memory_update": ["a", "b"] })),
            "e",
            Some("a\nb"),
        );
        check(
            called(json!({ "history_entry": "e", "memory_update": { "a": 1 } })),
            "e",
            Some("{\n  \"a\": 1\n}"),
        );
        check(
            called(json!({ "history_entry": "e", "memory_update": "```markdown\nm\n```" })),
            "e",
            Some("m\n"),
        );
        check(said(&text), "[t] e", Some("# M\n"));
        check(
            said(&format!("Here {{it}} is:\n```json\n{text}\n```\nDone.")),
            "[t] e",
            Some("# M\n"),
        );
        check(
            said(&json!({ "name": "save_memory", "arguments": plain }).to_string()),
            "[t] e",
            Some("# M\n"),
        );
    }

    #[test]
    fn fuzz_whatever_is_sent_is_taken_or_refused() {
        let plain = br#"{"history_entry": "e", "memory_update": ["a", {"b": 1}]}"#;
        let seeds: &[&[u8]] = &[
            plain,
            b"Here:\n```json\n{\"arguments\": {\"history\": \"e\"}}\n```",
            br#"[{"name": "save_memory", "parameters": "{\"entry\": \"e\"}"}, {{{"#,
        ];
        crate::fuzz::hold(seeds, |input, _| {
            let text = crate::fuzz::text(input);
            for reply in [said(&text), called(json!(text))] {
                if let Ok(update) = update(&reply) {
                    assert!(!update.entry.trim().is_empty());
                }
            }
        });
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        let check = |reply: Reply, words: &str| {
            let error = update(&reply).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        check(said(""), "nothing");
        check(said("I saved it."), "did not call");
        check(said("{ not json"), "did not call");
        check(called(json!({})), "no arguments");
        check(called(json!("{\"history_entry\": \"e")), "no arguments");
        check(
            called(json!({ "memory_update": "m" })),
            "nothing for the history",
        );
        check(
            called(json!({ "history_entry": "  " })),
            "nothing for the history",
        );
        let plain = json!({ "history_entry": "e", "memory_update": "m" });
        check(
            Reply {
                finish: Finish::Length,
                ..called(plain.clone())
            },
            "output limit",
        );
        check(
            Reply {
                finish: Finish::Refusal,
                ..called(plain)
            },
            "would not",
        );
    }
}
