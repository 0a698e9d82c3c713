//! JSON output, validated against the published schema: it has no undescribed fields and lacks no required ones.

use crate::server::{Response, calls, calls_all, fails, replies, says, sends};
use crate::story::Story;
use jiff::Timestamp;
use nanobot::cli::json_table;
use nanobot_base::error::Exit;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn read_schema() -> Value {
    serde_json::from_str(nanobot_agent::report::json::SCHEMA).unwrap()
}

/// The violations of `schema` by `value`, each with its path.
pub(crate) fn violations(
    schema: &Value,
    value: &Value,
    root: &Value,
    pointer: &str,
) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").expect("references are local");
        return violations(&root["$defs"][name], value, root, pointer);
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        let mut messages = kinds.iter().map(|kind| violations(kind, value, root, pointer));
        return if messages.clone().any(|list| list.is_empty()) {
            Vec::new()
        } else {
            messages.next().unwrap_or_default()
        };
    }
    let mut messages = Vec::new();
    let mut no = |message: String| messages.push(format!("{pointer}: {message}"));
    if schema["format"] == "date-time"
        && value
            .as_str()
            .is_some_and(|text| text.parse::<Timestamp>().is_err() || !text.ends_with('Z'))
    {
        no(format!("{value} is not a time in UTC"));
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        no(format!("{value} is not {}", schema["const"]));
    }
    if let Some(list) = schema["enum"].as_array()
        && !list.contains(value)
    {
        no(format!("{value} is none of {list:?}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |name: &Value| name == kind || (name == "number" && kind == "integer");
    match &schema["type"] {
        Value::Null => {}
        Value::Array(kinds) if kinds.iter().any(fits) => {}
        name if fits(name) => {}
        other => no(format!("a {kind}, not {other}")),
    }
    if let (Some(minimum), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < minimum
    {
        no(format!("{number} is below {minimum}"));
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            messages.extend(violations(
                &schema["items"],
                item,
                root,
                &format!("{pointer}[{index}]"),
            ));
        }
    }
    if let Some(object) = value.as_object() {
        messages.extend(object_violations(schema, object, root, pointer));
    }
    messages
}

fn object_violations(
    schema: &Value,
    object: &serde_json::Map<String, Value>,
    root: &Value,
    pointer: &str,
) -> Vec<String> {
    let mut messages = Vec::new();
    let parts = schema["allOf"].as_array().into_iter().flatten();
    let parts: Vec<&Value> = parts
        .map(|part| &root["$defs"][part["$ref"].as_str().unwrap().trim_start_matches("#/$defs/")])
        .chain([schema])
        .collect();
    if parts.iter().all(|part| part["properties"].is_null()) {
        return messages;
    }
    for name in parts.iter().flat_map(|part| part["required"].as_array()).flatten() {
        if !object.contains_key(name.as_str().unwrap()) {
            messages.push(format!("{pointer}: no {name}"));
        }
    }
    for (name, value) in object {
        let pointer = format!("{pointer}.{name}");
        let described: Vec<&Value> = parts
            .iter()
            .map(|part| &part["properties"][name])
            .filter(|part| !part.is_null())
            .collect();
        if described.is_empty() {
            messages.push(format!("{pointer}: not described"));
        }
        for part in described {
            messages.extend(violations(part, value, root, &pointer));
        }
    }
    messages
}

/// Validates an event, a result, or an object of another command. Every story that reads JSON output calls this.
#[track_caller]
pub(crate) fn assert_valid(line: &Value) {
    let Some(kind) = line["type"].as_str() else {
        let root = json_table::schema();
        let definitions = root["$defs"].as_object().unwrap().values();
        let mut commands = definitions.filter(|definition| definition["title"].is_string());
        let is_described = commands.any(|command| violations(command, line, &root, "").is_empty());
        return assert!(is_described, "no command is described that prints {line:#}");
    };
    let root = read_schema();
    let described = &root["$defs"][kind];
    assert!(!described.is_null(), "the schema has no {kind}");
    let named = json!({ "$ref": format!("#/$defs/{kind}") });
    assert!(root["oneOf"].as_array().unwrap().contains(&named), "{kind}");
    let wrong = violations(described, line, &root, kind);
    assert!(wrong.is_empty(), "{wrong:#?}\n{line:#}");
}

#[test]
fn the_checker_finds_violations() {
    let story = Story::new().script([says("x")]);
    let good = story.run(["agent", "-m", "x", "--json"]).json();
    let check = |pointer: &str, value: Value, phrase: &str| {
        let mut bad = good.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[name] = value;
        let root = read_schema();
        let messages = violations(&root["$defs"]["result"], &bad, &root, "result").join("\n");
        assert!(messages.contains(phrase), "{pointer}: {messages}");
    };
    check("/text", json!(1), "result.text: a integer");
    check("/v", json!(2), "result.v: 2 is not 1");
    check("/status/name", json!("fine"), "result.status.name: \"fine\" is none of");
    check("/usage/extra", json!(0), "result.usage.extra: not described");
    check("/iterations", json!(-1), "result.iterations: -1 is below 0");
    check("/tools", json!([{ "name": "x" }]), "result.tools[0]: no \"count\"");
}

#[test]
fn the_schema_is_printed_and_lists_every_status() {
    let story = Story::bare();
    let stdout = story.run(["config", "schema", "--events"]).text();
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap(), read_schema());
    let names: Vec<Value> = Exit::ALL.iter().map(|exit| exit.name().into()).collect();
    let result = &read_schema()["$defs"]["result"]["properties"];
    assert_eq!(result["status"]["properties"]["name"]["enum"], json!(names));
    assert_eq!(result["error"]["properties"]["cause"]["enum"], json!(names));
}

#[test]
fn every_event_kind_matches_the_schema() {
    let mut names = BTreeSet::new();
    let mut outcomes = BTreeSet::new();
    let mut take = |lines: Vec<Value>| {
        for line in lines {
            names.insert(line["type"].as_str().unwrap().to_owned());
            if let Some(outcome) = line["outcome"].as_str() {
                outcomes.insert(outcome.to_owned());
            }
        }
    };
    let thinks = json!({ "role": "assistant", "content": "<think>hm</think>Done." });
    let story = Story::new().script([
        fails(503, "overloaded"),
        calls_all([
            ("exec", json!({ "command": "echo out" })),
            ("exec", json!({ "command": "sleep 9", "timeout": 1 })),
            ("write_file", json!({ "path": "/etc/x", "content": "" })),
            ("fly", json!({})),
        ]),
        replies(thinks, "stop"),
    ]);
    let result = story.run(["agent", "-m", "x", "--output-format", "stream-json"]);
    take(result.json_lines());
    result.error_text();
    // Two at once: the second one waits with a notice.
    let lock = story.workspace().join("sessions/cli_direct.jsonl.lock");
    let lock_file = std::fs::File::open(lock).unwrap();
    lock_file.lock().unwrap();
    let result =
        story.run(["agent", "-m", "x", "--output-format", "stream-json", "--wait", "0"]).status(75);
    take(result.json_lines());
    result.error_text();
    // Not only by closing the file: a process that another test is about to start may still share it.
    lock_file.unlock().unwrap();
    let odd = Response::json(
        200,
        &json!({ "choices": [{ "message": { "reasoning_content": "why", "content": "So." }, "finish_reason": "stop" }] }),
    );
    story.server().script([sends(odd)]);
    let result = story.run(["agent", "-m", "x", "--output-format", "stream-json"]);
    take(result.json_lines());
    let story = Story::new().script([says("x")]).stdin(b"caf\xe9");
    let result = story.run(["agent", "--output-format", "stream-json"]);
    take(result.json_lines());
    assert!(result.error_text().contains("UTF-8"));
    let story = Story::new()
        .set("agents.defaults.fallbackModels", json!([{ "model": "other", "provider": "custom" }]))
        .script([fails(404, "no such model"), says("x")]);
    let result = story.run(["agent", "-m", "x", "--output-format", "stream-json"]);
    take(result.json_lines());
    assert!(result.error_text().contains("falling back from `scripted` to `other`"));
    let story = Story::new()
        .set("compaction.threshold", json!(10))
        .set("providers.custom.requestsPerMinute", json!(1))
        .script([says(&"word ".repeat(500)), says("- a word"), says("x")]);
    story.run(["agent", "-m", "x"]).text();
    let result = story.run(["agent", "-m", "x", "--output-format", "stream-json"]);
    take(result.json_lines());
    assert!(result.error_text().contains("the session was compacted"));
    let described: BTreeSet<String> = read_schema()["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["$ref"].as_str().unwrap().replace("#/$defs/", ""))
        .collect();
    assert_eq!(names, described);
    let all = ["ok", "error", "denied", "skipped"].map(str::to_owned);
    assert_eq!(outcomes, BTreeSet::from(all));
}

#[test]
fn the_event_log_has_complete_lines_after_any_existing_content() {
    let story = Story::new().script([calls("list_dir", json!({})), says("x y z"), says("two")]);
    let log = story.dir().join("log");
    std::fs::write(&log, "{\"torn\": tr").unwrap();
    let story = story.env("NANOBOT_LOG", log.to_str().unwrap());
    story.run(["agent", "-m", "x"]).stdout("x y z\n");
    story.run(["agent", "-m", "x"]).stdout("two\n");
    let text = std::fs::read_to_string(&log).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("{\"torn\": tr"));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(assert_valid);
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let first =
        ["user", "assistant", "usage", "tool_call", "tool_result", "assistant", "usage", "result"];
    assert_eq!(kinds[..8], first);
    assert_eq!(kinds[8..], ["user", "assistant", "usage", "result"]);
    // An unwritable log is reported, and the answer is printed nevertheless.
    let story = story.script([says("three")]).env("NANOBOT_LOG", "/nowhere/log");
    story.run(["agent", "-m", "x"]).stdout("three\n").stderr_has("cannot write the log");
}
