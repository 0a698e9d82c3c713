//! What models send when they are asked to save memory. Pure.
//!
//! They are asked for one call with two texts. They send the arguments as an object, as text that holds one, in a list,
//! in a code fence, or as prose with JSON in it, under names of their own, and forget the call. Without a call they may
//! as well quote what they were shown: then JSON counts only where it is all they say.

use crate::message::json::parse;
use crate::message::{Finish, Reply};
use crate::sys::secret::mask;
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
/// Characters of the line that may lead in to JSON without a call: `Here it is:`.
const LEAD: usize = 100;

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
        (None, text) => whole(text).and_then(|value| object(&value, DEPTH)),
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
    // A key that somebody mentioned is nothing to remember.
    Ok(Update {
        entry: mask(&entry).into_owned(),
        memory: memory.map(|memory| mask(&memory).into_owned()),
    })
}

/// Whether a text of `update` stands as JSON in `sent`, the conversation: whoever wrote it there wrote it for us to find.
/// That the memory stays as it is in `memory` is no quotation.
pub fn is_quoted(update: &Update, sent: &str, memory: &str) -> bool {
    let same = |one: &str, other: &str| one.trim() == other.trim();
    let update_memory = update.memory.as_deref();
    let memory = update_memory.filter(|text| !text.trim().is_empty() && !same(text, memory));
    let mut level = sent.to_owned();
    // JSON within a text of JSON, as the arguments of a call have it, is escaped once more.
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

/// The texts that stand under one of `names` in whatever JSON is in `text`.
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

/// The JSON that all of a reply is, alone or in a code fence, after a short line that leads in to it.
fn whole(text: &str) -> Option<Value> {
    let alone = |text: &str| parse(unfenced(text).trim());
    alone(text).or_else(|| {
        let (lead, rest) = text.split_once('\n')?;
        let leads_in = lead.chars().count() <= LEAD && !lead.starts_with("```");
        leads_in.then(|| alone(rest))?
    })
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
        // Words that were said in no such form are what memory is made of.
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
