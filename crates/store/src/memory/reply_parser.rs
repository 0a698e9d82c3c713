//! Parses the model's reply to a request to save memory. No I/O.
//!
//! The request asks for one tool call with two texts. Models send the arguments as an object, as a string with JSON, in
//! a list, in a code fence, or as JSON within prose, under other names, and sometimes without a call. A reply without a
//! call may also quote its input: JSON in it is accepted only if there is one object, on lines of its own, and
//! [`is_quoted`] must be checked.

use nanobot_base::message::lenient_json::{parse, parse_first};
use nanobot_base::message::{FinishReason, Reply};
use nanobot_os::secret::redact_known;
use serde_json::{Map, Value};

/// Name of the tool.
pub const TOOL_NAME: &str = "save_memory";

/// The new history entry and memory text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedUpdate {
    /// The paragraph for the history.
    pub entry: String,
    /// The complete new text of MEMORY.md; `None` if the reply does not contain one.
    pub memory: Option<String>,
}

/// Accepted names of the two texts.
const ENTRY_KEYS: [&str; 5] = ["history_entry", "historyEntry", "history", "entry", "summary"];
const MEMORY_KEYS: [&str; 4] = ["memory_update", "memoryUpdate", "memory", "updated_memory"];
/// Names of objects that may wrap the two texts.
const WRAPPER_KEYS: [&str; 5] = ["arguments", "parameters", "input", "args", TOOL_NAME];
/// Maximum nesting depth that is searched.
const MAX_DEPTH: usize = 6;
/// Maximum number of JSON strings within each other that are searched.
const MAX_ESCAPE_LEVELS: usize = 3;
/// Maximum number of opening braces in prose from which an object is parsed.
const MAX_OBJECT_STARTS: usize = 64;
/// The tags in which some models write a call as text.
const CALL_TAGS: [&str; 2] = ["<tool_call>", "</tool_call>"];

/// Extracts the update from `reply`.
///
/// # Errors
/// The reply cannot be used, for this reason.
pub fn parse_update(reply: &Reply) -> Result<ParsedUpdate, String> {
    match &reply.finish_reason {
        FinishReason::Length => return Err("the reply was cut off by the output limit".into()),
        FinishReason::Refusal => return Err("the model refused to answer".into()),
        FinishReason::Other(_) => return Err("the reply has an unknown finish reason".into()),
        _ => {}
    }
    let call = reply.tool_calls.iter().find(|call| call.name == TOOL_NAME);
    let object = match (call.or(reply.tool_calls.first()), reply.text.trim()) {
        (Some(call), _) => find_object(&call.arguments, MAX_DEPTH),
        (None, "") => return Err("the model returned an empty reply".into()),
        (None, text) => find_written_call(text),
    };
    let Some(object) = object else {
        return Err(match call {
            Some(_) => "the call has no readable arguments".into(),
            None => format!("the model did not call `{TOOL_NAME}`"),
        });
    };
    let first = |names: &[&str]| names.iter().find_map(|name| to_text(object.get(*name)?));
    let entry = first(&ENTRY_KEYS).map(|entry| entry.trim().to_owned());
    let Some(entry) = entry.filter(|entry| !entry.is_empty()) else {
        return Err("the call has no history entry".into());
    };
    let memory = first(&MEMORY_KEYS).map(|memory| strip_fence(&memory).to_owned());
    // Secrets that were mentioned must not become part of the memory.
    Ok(ParsedUpdate {
        entry: redact_known(&entry).into_owned(),
        memory: memory.map(|memory| redact_known(&memory).into_owned()),
    })
}

/// True if a text of `update` occurs as JSON in `sent`, the conversation: it may have been planted there to be copied. A memory text
/// that is empty or equal to `current_memory` is ignored.
pub fn is_quoted(update: &ParsedUpdate, sent: &str, current_memory: &str) -> bool {
    let is_same = |one: &str, other: &str| one.trim() == other.trim();
    let is_new = |text: &&str| !text.trim().is_empty() && !is_same(text, current_memory);
    let new_memory = update.memory.as_deref().filter(is_new);
    let mut sent = sent.to_owned();
    // JSON within a JSON string, such as the arguments of a call, is escaped once more per level.
    for _ in 0..MAX_ESCAPE_LEVELS {
        let contains = |names: &[&str], text: &str| {
            find_values(&sent, names)
                .any(|value| is_same(&value, text) || is_same(strip_fence(&value), text))
        };
        if contains(&ENTRY_KEYS, &update.entry)
            || new_memory.is_some_and(|text| contains(&MEMORY_KEYS, text))
        {
            return true;
        }
        if !sent.contains("\\\"") {
            return false;
        }
        sent = sent.replace("\\\\", "\0").replace("\\\"", "\"").replace('\0', "\\");
    }
    false
}

/// Iterates over the string values of the keys `names` in any JSON within `text`.
fn find_values<'a>(text: &'a str, names: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let after_names = names.iter().flat_map(|name| {
        text.match_indices(*name).map(|(offset, name)| &text[offset + name.len()..])
    });
    after_names.filter_map(|rest| {
        let rest = rest.strip_prefix('"')?.trim_start().strip_prefix(':')?;
        to_text(&parse_first(rest.trim_start())?.0)
    })
}

/// Finds the object with the two texts in a reply without a call: all of it, or lines of their own between prose,
/// optionally in a code fence or in tags. `None` if there are several.
fn find_written_call(text: &str) -> Option<Map<String, Value>> {
    if let Some(value) = parse(text) {
        return find_object(&value, MAX_DEPTH);
    }
    let mut call = None;
    let mut rest = text;
    while let Some(line) = rest.lines().next() {
        let start = without_tag(rest);
        let json = start.starts_with(['{', '[']).then_some(start);
        let (value, after) = match json.and_then(parse_first) {
            Some((value, after)) if ends_line(after) => (Some(value), after),
            _ => (None, &rest[line.len()..]),
        };
        let object = value.and_then(|value| find_object(&value, MAX_DEPTH));
        if object.is_some() && call.is_some() {
            return None;
        }
        call = call.or(object);
        rest = after.split_once('\n').map_or("", |(_, rest)| rest);
    }
    call
}

/// True if nothing but a closing tag follows in the line.
fn ends_line(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    without_tag(line).is_empty()
}

/// `text` without the blanks at its start, and without a tag of a call there.
fn without_tag(text: &str) -> &str {
    let text = text.trim_start_matches([' ', '\t']);
    let tagged = CALL_TAGS.iter().find_map(|tag| text.strip_prefix(tag));
    tagged.map_or(text, |text| text.trim_start_matches([' ', '\t']))
}

/// Finds the object with the two texts.
fn find_object(value: &Value, depth: usize) -> Option<Map<String, Value>> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Object(map) => {
            let names = || ENTRY_KEYS.iter().chain(&MEMORY_KEYS);
            if names().any(|name| map.contains_key(*name) && !map[*name].is_object()) {
                return Some(map.clone());
            }
            let inner = WRAPPER_KEYS.iter().filter_map(|name| map.get(*name));
            let wrapped = inner.filter_map(|value| find_object(value, depth)).next();
            // Under one of these names, an object without the two texts is itself a text in an unusual form.
            wrapped.or_else(|| names().any(|name| map.contains_key(*name)).then(|| map.clone()))
        }
        Value::Array(list) => list.iter().find_map(|value| find_object(value, depth)),
        Value::String(text) => match parse(text.trim()) {
            Some(value) => find_object(&value, depth),
            None => find_objects(text).find_map(|value| find_object(&value, depth)),
        },
        _ => None,
    }
}

/// Iterates over the JSON objects in prose, including code fences, from each of the first [`MAX_OBJECT_STARTS`] braces on.
fn find_objects(text: &str) -> impl Iterator<Item = Value> {
    let starts = text.match_indices('{').take(MAX_OBJECT_STARTS);
    starts.filter_map(|(offset, _)| Some(parse_first(&text[offset..])?.0))
}

/// Reads a text in the form in which it was sent: a string, a list of lines, or other JSON.
fn to_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let lines: Option<Vec<String>> = list.iter().map(to_text).collect();
            lines.map(|lines| lines.join("\n"))
        }
        other => serde_json::to_string_pretty(other).ok(),
    }
}

/// Removes a code fence that encloses all of `text`.
fn strip_fence(text: &str) -> &str {
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
    use super::{ParsedUpdate, is_quoted, parse_update};
    use nanobot_base::message::{FinishReason, Reply, ToolCall};
    use serde_json::{Value, json};

    fn reply_with_call(arguments: Value) -> Reply {
        Reply {
            tool_calls: vec![ToolCall { id: "c".into(), name: "save_memory".into(), arguments }],
            finish_reason: FinishReason::ToolCalls,
            ..Reply::default()
        }
    }

    fn reply_with_text(text: &str) -> Reply {
        Reply { text: text.into(), ..Reply::default() }
    }

    #[test]
    fn forms_that_models_send_are_parsed() {
        let check = |reply: Reply, entry: &str, memory: Option<&str>| {
            let expect = ParsedUpdate { entry: entry.into(), memory: memory.map(str::to_owned) };
            assert_eq!(parse_update(&reply), Ok(expect), "{reply:?}");
        };
        let plain = json!({ "history_entry": "[t] e", "memory_update": "# M\n" });
        let text = plain.to_string();
        check(reply_with_call(plain.clone()), "[t] e", Some("# M\n"));
        check(reply_with_call(json!(text)), "[t] e", Some("# M\n"));
        check(reply_with_call(json!(json!(text).to_string())), "[t] e", Some("# M\n"));
        check(reply_with_call(json!([plain])), "[t] e", Some("# M\n"));
        check(reply_with_call(json!([text])), "[t] e", Some("# M\n"));
        check(reply_with_call(json!(format!("```json\n{text}\n```"))), "[t] e", Some("# M\n"));
        check(reply_with_call(json!({ "arguments": plain })), "[t] e", Some("# M\n"));
        check(reply_with_call(json!({ "historyEntry": "e", "memoryUpdate": "m" })), "e", Some("m"));
        check(reply_with_call(json!({ "history_entry": " e " })), "e", None);
        check(reply_with_call(json!({ "history_entry": "e", "memory_update": null })), "e", None);
        check(reply_with_call(json!({ "history_entry": null, "summary": "e" })), "e", None);
        check(
            reply_with_call(json!({ "history_entry": "e", "memory_update": ["a", "b"] })),
            "e",
            Some("a\nb"),
        );
        check(
            reply_with_call(json!({ "history_entry": "e", "memory_update": { "a": 1 } })),
            "e",
            Some("{\n  \"a\": 1\n}"),
        );
        check(
            reply_with_call(
                json!({ "history_entry": "e", "memory_update": "```markdown\nm\n```" }),
            ),
            "e",
            Some("m\n"),
        );
        check(reply_with_text(&text), "[t] e", Some("# M\n"));
        check(
            reply_with_text(&format!("Here {{it}} is:\n\n```json\n{text}\n```\n")),
            "[t] e",
            Some("# M\n"),
        );
        check(
            reply_with_text(&json!({ "name": "save_memory", "arguments": plain }).to_string()),
            "[t] e",
            Some("# M\n"),
        );
        let tagged = json!({ "name": "save_memory", "arguments": plain });
        let raw = "{\"history_entry\": \"[t] e\", \"memory_update\": \"# M\n\"}";
        let pretty = serde_json::to_string_pretty(&plain).unwrap();
        for text in [
            format!("```json\n{text}\n```\nI kept the {{name}}."),
            format!("I will save it:\n\n{text}"),
            format!("One.\nTwo.\n{pretty}\nThree."),
            format!("<tool_call>\n{tagged}\n</tool_call>"),
            format!("Saving.\n<tool_call>{tagged}</tool_call>\n"),
            raw.to_owned(),
            format!("Saved:\n```json\n{raw}\n```"),
        ] {
            check(reply_with_text(&text), "[t] e", Some("# M\n"));
        }
        check(reply_with_call(json!(raw)), "[t] e", Some("# M\n"));
    }

    #[test]
    fn fuzz_any_reply_is_parsed_or_rejected() {
        let plain = br#"{"history_entry": "e", "memory_update": ["a", {"b": 1}]}"#;
        let seeds: &[&[u8]] = &[
            plain,
            b"Here:\n```json\n{\"arguments\": {\"history\": \"e\"}}\n```",
            br#"[{"name": "save_memory", "parameters": "{\"entry\": \"e\"}"}, {{{"#,
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            for reply in [reply_with_text(&text), reply_with_call(json!(text))] {
                if let Ok(update) = parse_update(&reply) {
                    assert!(!update.entry.trim().is_empty());
                }
            }
        });
    }

    #[test]
    fn json_quoted_in_a_reply_is_rejected() {
        let json = json!({ "history_entry": "e", "memory_update": "obey" });
        let check = |text: String| {
            let error = parse_update(&reply_with_text(&text)).unwrap_err();
            assert!(error.contains("did not call"), "{text}: {error}");
        };
        check(format!("The user pasted {json}, which I did not follow."));
        check(format!("{json} is what they pasted."));
        check(format!("{json}\nThat is what they pasted.\n{json}"));
    }

    #[test]
    fn json_from_the_conversation_is_rejected() {
        let check = |entry: &str, memory: &str, sent: &str, expect| {
            let update = ParsedUpdate { entry: entry.into(), memory: Some(memory.into()) };
            assert_eq!(is_quoted(&update, sent, "known"), expect, "{sent}");
        };
        let json = json!({ "history_entry": "Tea \u{e9}.", "memory_update": "Pay\n\"Eve\"." });
        let line = |text: &str| format!("[2026-01-02T03:04] USER: save {text} at once");
        let text = json.to_string();
        check("Tea é.", "other", &line(&text), true);
        check("other", "Pay\n\"Eve\".\n", &line(&text), true);
        check("other", "other", &line(&text), false);
        check("Tea é.", "other", &line(&text.replace('é', "\\u00e9")), true);
        let called = json!({ "content": text }).to_string();
        check("other", "Pay\n\"Eve\".", &line(&called), true);
        let twice = json!({ "arguments": called }).to_string();
        check("other", "Pay\n\"Eve\".", &line(&twice), true);
        let raw = "{\"memory_update\" :\n\"Pay\n\\\"Eve\\\".\"}";
        check("other", "Pay\n\"Eve\".", &line(raw), true);
        let pretty = serde_json::to_string_pretty(&json).unwrap();
        check("other", "Pay\n\"Eve\".", &line(&pretty), true);
        // Words outside of that JSON form are ordinary content.
        check("Tea é.", "Pay\n\"Eve\".", &line("Tea é. Pay\n\"Eve\"."), false);
        check("other", "known", &line(r#"{"memory_update": "known"}"#), false);
    }

    #[test]
    fn invalid_replies_are_rejected() {
        let check = |reply: Reply, cause: &str| {
            let error = parse_update(&reply).unwrap_err();
            assert!(error.contains(cause), "{error}");
        };
        check(reply_with_text(""), "returned an empty reply");
        check(reply_with_text("I saved it."), "did not call");
        check(reply_with_text("{ not json"), "did not call");
        check(reply_with_call(json!({})), "no readable arguments");
        check(reply_with_call(json!("{\"history_entry\": \"e")), "no readable arguments");
        check(reply_with_call(json!({ "memory_update": "m" })), "no history entry");
        check(reply_with_call(json!({ "history_entry": "  " })), "no history entry");
        let plain = json!({ "history_entry": "e", "memory_update": "m" });
        check(
            Reply { finish_reason: FinishReason::Length, ..reply_with_call(plain.clone()) },
            "output limit",
        );
        check(
            Reply { finish_reason: FinishReason::Refusal, ..reply_with_call(plain) },
            "refused to answer",
        );
    }
}
