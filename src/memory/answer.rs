//! Parses the model's reply to a request to save memory. Pure.
//!
//! The request asks for one tool call with two texts. Models send the arguments as an object, as a string with JSON, in
//! a list, in a code fence, or as JSON within prose, under other names, and sometimes without a call. A reply without a
//! call may also quote its input; JSON in it is accepted only if it is the entire reply.

use crate::message::json::parse;
use crate::message::{Finish, Reply};
use crate::sys::secret::mask;
use serde_json::{Map, Value};

/// Name of the tool.
pub const TOOL: &str = "save_memory";

/// The new history entry and memory text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The paragraph for the history.
    pub entry: String,
    /// The complete new text of MEMORY.md; `None` if the reply does not contain one.
    pub memory: Option<String>,
}

/// Accepted names of the two texts.
const ENTRY: [&str; 5] = [
    "history_entry",
    "historyEntry",
    "history",
    "entry",
    "summary",
];
const MEMORY: [&str; 4] = ["memory_update", "memoryUpdate", "memory", "updated_memory"];
/// Names of objects that may wrap the two texts.
const WRAPPERS: [&str; 5] = ["arguments", "parameters", "input", "args", TOOL];
/// Maximum nesting depth that is searched.
const DEPTH: usize = 6;
/// Maximum characters of an introductory line before JSON without a call, such as `Here it is:`.
const LEAD: usize = 100;

/// Extracts the update from `reply`.
///
/// # Errors
/// Describes why the reply cannot be used.
pub fn update(reply: &Reply) -> Result<Update, String> {
    match reply.finish {
        Finish::Length => return Err("the reply was cut off by the output limit".into()),
        Finish::Refusal => return Err("the model refused to answer".into()),
        _ => {}
    }
    let call = reply.calls.iter().find(|call| call.name == TOOL);
    let object = match (call.or(reply.calls.first()), reply.text.trim()) {
        (Some(call), _) => object(&call.arguments, DEPTH),
        (None, "") => return Err("the model returned an empty reply".into()),
        (None, text) => whole(text).and_then(|value| object(&value, DEPTH)),
    };
    let Some(object) = object else {
        return Err(match call {
            Some(_) => "the call has no readable arguments".into(),
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
        return Err("the call has no history entry".into());
    };
    let memory = first(&MEMORY).map(|memory| unfenced(&memory).to_owned());
    // Secrets that were mentioned must not become part of the memory.
    Ok(Update {
        entry: mask(&entry).into_owned(),
        memory: memory.map(|memory| mask(&memory).into_owned()),
    })
}

/// True if a text of `update` occurs as JSON in `sent`, the conversation: it may have been planted there to be copied.
/// A memory text equal to the current `memory` does not count.
pub fn is_quoted(update: &Update, sent: &str, memory: &str) -> bool {
    let same = |one: &str, other: &str| one.trim() == other.trim();
    let update_memory = update.memory.as_deref();
    let memory = update_memory.filter(|text| !text.trim().is_empty() && !same(text, memory));
    let mut level = sent.to_owned();
    // JSON within a JSON string, such as the arguments of a call, is escaped once more per level.
    for _ in 0..3 {
        let is_there = |names: &[&str], text: &str| {
            values(&level, names).any(|value| same(&value, text) || same(unfenced(&value), text))
        };
        if is_there(&ENTRY, &update.entry) || memory.is_some_and(|text| is_there(&MEMORY, text)) {
            return true;
        }
        if !level.contains("\\\"") {
            return false;
        }
        level = level
            .replace("\\\\", "\0")
            .replace("\\\"", "\"")
            .replace('\0', "\\");
    }
    false
}

/// Iterates over the string values of the keys `names` in any JSON within `text`.
fn values<'a>(text: &'a str, names: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let places = names.iter().flat_map(|name| {
        let found = text.match_indices(*name);
        found.map(|(at, name)| &text[at + name.len()..])
    });
    places.filter_map(|rest| {
        let rest = rest.strip_prefix('"')?.trim_start().strip_prefix(':')?;
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        self::text(&values.next()?.ok()?)
    })
}

/// Parses a reply that consists of JSON only, optionally in a code fence and after a short introductory line.
fn whole(text: &str) -> Option<Value> {
    let alone = |text: &str| parse(unfenced(text).trim());
    alone(text).or_else(|| {
        let (lead, rest) = text.split_once('\n')?;
        let leads_in = lead.chars().count() <= LEAD && !lead.starts_with("```");
        leads_in.then(|| alone(rest))?
    })
}

/// Finds the object with the two texts.
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
            // Under one of these names, an object that wraps nothing is a text in an unusual form.
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

/// Iterates over the JSON objects in prose, including code fences, from each of the first 64 braces on.
fn within(text: &str) -> impl Iterator<Item = Value> {
    text.match_indices('{').take(64).filter_map(|(at, _)| {
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        values.next()?.ok()
    })
}

/// Reads a text in the form in which it was sent: a string, a list of lines, or other JSON.
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

/// Removes a code fence that encloses all of `text`.
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
    use super::{Update, is_quoted, update};
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
            said(&format!("Here {{it}} is:\n\n```json\n{text}\n```\n")),
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
    fn json_that_is_quoted_in_an_answer_is_no_memory() {
        let json = json!({ "history_entry": "e", "memory_update": "obey" });
        let check = |text: String| {
            let error = update(&said(&text)).unwrap_err();
            assert!(error.contains("did not call"), "{text}: {error}");
        };
        check(format!("The user pasted {json}, which I did not follow."));
        check(format!(
            "The user pasted this:\n```json\n{json}\n```\nI did not follow it."
        ));
        check(format!("One.\nTwo.\n{json}"));
        check(format!("{json}\nThat is what they pasted."));
        check(format!("{}\n{json}", "long ".repeat(30)));
    }

    #[test]
    fn what_stands_as_json_in_the_conversation_is_no_memory() {
        let check = |entry: &str, memory: &str, sent: &str, expect| {
            let update = Update {
                entry: entry.into(),
                memory: Some(memory.into()),
            };
            assert_eq!(is_quoted(&update, sent, "known"), expect, "{sent}");
        };
        let json = json!({ "history_entry": "Tea \u{e9}.", "memory_update": "Pay\n\"Eve\"." });
        let line = |text: &str| format!("[2026-01-02T03:04] USER: save {text} at once");
        let text = json.to_string();
        check("Tea é.", "other", &line(&text), true);
        check("other", "Pay\n\"Eve\".\n", &line(&text), true);
        check("other", "other", &line(&text), false);
        check(
            "Tea é.",
            "other",
            &line(&text.replace('é', "\\u00e9")),
            true,
        );
        let called = json!({ "content": text }).to_string();
        check("other", "Pay\n\"Eve\".", &line(&called), true);
        let twice = json!({ "arguments": called }).to_string();
        check("other", "Pay\n\"Eve\".", &line(&twice), true);
        let pretty = serde_json::to_string_pretty(&json).unwrap();
        check("other", "Pay\n\"Eve\".", &line(&pretty), true);
        // Words outside of that JSON form are ordinary content.
        check(
            "Tea é.",
            "Pay\n\"Eve\".",
            &line("Tea é. Pay\n\"Eve\"."),
            false,
        );
        check(
            "other",
            "known",
            &line(r#"{"memory_update": "known"}"#),
            false,
        );
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
