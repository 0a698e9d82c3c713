//! Repairs of tool calls: names with parts of the model's own notation, and arguments that are almost JSON. A repair is made only if the
//! text is unambiguous, and never to a call that the end of the reply may have cut.

use nanobot_base::message::{FinishReason, Reply, ToolSpec, lenient_json};
use serde_json::Value;
use std::borrow::Cow;

/// Namespaces that models put before the names of tools: Kimi and gpt-oss, Gemini, others.
const NAMESPACES: &[&str] = &["functions", "function", "default_api", "tools", "tool", "api"];

/// Maximum length of a name that all servers accept.
const MAX_NAME_CHARS: usize = 64;

/// Repairs the calls of `reply`, to which `tools` were offered.
pub(super) fn repair_calls(reply: &mut Reply, tools: &[ToolSpec]) {
    for call in &mut reply.tool_calls {
        if let Some(name) = repair_name(&call.name, tools) {
            call.name = name.to_owned();
        }
        if reply.finish_reason == FinishReason::ToolCalls
            && let Value::String(text) = &call.arguments
            && let Some(arguments) = repair_arguments(text)
        {
            call.arguments = arguments;
        }
    }
}

/// The tool that `name` means without the model's notation; `None` if there is no such tool, or if the name needs no change.
pub(super) fn repair_name<'a>(name: &str, tools: &'a [ToolSpec]) -> Option<&'a str> {
    let find = |name: &str| tools.iter().map(|tool| tool.name.as_str()).find(|tool| *tool == name);
    if find(name).is_some() {
        return None;
    }
    // The channels of gpt-oss: `assistant<|channel|>commentary to=functions.exec <|constrain|>json`.
    let recipient = name.rsplit_once("to=").map_or(name, |(_, recipient)| recipient);
    let recipient = recipient.split("<|").next().unwrap_or_default().trim();
    let mut bare = recipient.trim_matches(['"', '\'', '`']);
    while let Some((namespace, rest)) = bare.split_once(['.', ':', '/'])
        && NAMESPACES.contains(&namespace)
    {
        bare = rest;
    }
    // Kimi numbers its calls: `functions.exec:0`.
    if let Some((start, number)) = bare.rsplit_once(':')
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        bare = start;
    }
    find(bare).or_else(|| find(&to_legal_name(bare)))
}

/// `name` in the form that all servers accept. A call of a tool that does not exist is sent back too.
pub(super) fn to_legal_name(name: &str) -> Cow<'_, str> {
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if (1..=MAX_NAME_CHARS).contains(&name.len()) && name.chars().all(is_legal) {
        return Cow::Borrowed(name);
    }
    let letters = name.chars().map(|letter| if is_legal(letter) { letter } else { '_' });
    let legal: String = letters.take(MAX_NAME_CHARS).collect();
    Cow::Owned(if legal.is_empty() { "unnamed".into() } else { legal })
}

/// Parses arguments with strings in single quotes, commas before a closing bracket, or without the last bracket. `None`
/// if the text needs any other repair.
fn repair_arguments(text: &str) -> Option<Value> {
    let mut json = String::with_capacity(text.len() + 1);
    let mut open = Vec::new();
    let mut letters = text.trim().chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' | '\'' => push_string(&mut json, letter, &mut letters)?,
            '{' => {
                open.push('}');
                json.push(letter);
            }
            '[' => {
                open.push(']');
                json.push(letter);
            }
            '}' | ']' => {
                if open.pop() != Some(letter) {
                    return None;
                }
                drop_comma(&mut json);
                json.push(letter);
            }
            _ => json.push(letter),
        }
    }
    match open.as_slice() {
        [] => {}
        [last] => {
            drop_comma(&mut json);
            json.push(*last);
        }
        _ => return None,
    }
    lenient_json::parse(&json).filter(Value::is_object)
}

/// Copies the rest of a string in `quote` as a JSON string; `None` if it does not end.
fn push_string(json: &mut String, quote: char, letters: &mut std::str::Chars<'_>) -> Option<()> {
    json.push('"');
    loop {
        match letters.next()? {
            '\\' => match letters.next()? {
                '\'' => json.push('\''),
                escaped => json.extend(['\\', escaped]),
            },
            letter if letter == quote => {
                json.push('"');
                return Some(());
            }
            '"' => json.push_str("\\\""),
            letter => json.push(letter),
        }
    }
}

/// Removes a comma from the end of `json`.
fn drop_comma(json: &mut String) {
    let length = json.trim_end().len();
    if json[..length].ends_with(',') {
        json.truncate(length - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::{repair_arguments, repair_name, to_legal_name};
    use nanobot_base::message::ToolSpec;
    use serde_json::json;

    #[test]
    fn names_lose_the_notation_of_the_model() {
        let tools = ["list_dir", "exec", "notes_search_all"].map(|name| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({}).into(),
        });
        let check = |name: &str, expect: Option<&str>| {
            assert_eq!(repair_name(name, &tools), expect, "{name}");
        };
        for name in [
            "functions.list_dir",
            "functions.list_dir:0",
            "default_api:list_dir",
            "tools/list_dir",
            "list_dir<|channel|>commentary",
            "assistant<|channel|>commentary to=functions.list_dir <|constrain|>json",
            "`list_dir`",
            " list_dir\n",
        ] {
            check(name, Some("list_dir"));
        }
        check("notes.search.all", Some("notes_search_all"));
        // Already a tool, or no tool at all.
        for name in
            ["list_dir", "other.list_dir", "list_dir.exec", "List_Dir", "functions", "", "to="]
        {
            check(name, None);
        }
    }

    #[test]
    fn names_are_legal_for_every_server() {
        let check = |name: &str, expect: &str| assert_eq!(to_legal_name(name), expect);
        check("list_dir", "list_dir");
        check("functions.list_dir", "functions_list_dir");
        check("x<|channel|>y", "x__channel__y");
        check("\u{e9}", "_");
        check("", "unnamed");
        check(&"x".repeat(65), &"x".repeat(64));
    }

    #[test]
    fn arguments_with_one_reading_are_repaired() {
        let check = |text: &str, expect| assert_eq!(repair_arguments(text), expect, "{text}");
        let one = || Some(json!({ "a": 1 }));
        check(r#"{"a": 1,}"#, one());
        check(r#"{"a": 1"#, one());
        check(r#"{"a": 1, "#, one());
        check(r#"{'a': 1}"#, one());
        check(r#"{"a": [1, 2, ], }"#, Some(json!({ "a": [1, 2] })));
        check(r#"{"a": {"b": "}"}"#, Some(json!({ "a": { "b": "}" } })));
        check(r#"{'a': 'say "no", it\'s\n'}"#, Some(json!({ "a": "say \"no\", it's\n" })));
        check(r#"{"a": "it's, ]"}"#, Some(json!({ "a": "it's, ]" })));
        for text in [
            "",
            "a",
            "[1,]",
            r#"{"a": "b"#,
            r#"{"a":"#,
            r#"{"a""#,
            r#"{"a": {"b": 1"#,
            r#"{"a": 1]"#,
            r#"{'a': 'it's'}"#,
            "{'a': 'b}",
            r#"{"a": 1}}"#,
            "{,}x",
            r#"{"a": 1} {"b": 2}"#,
        ] {
            check(text, None);
        }
    }

    #[test]
    fn fuzz_any_call_can_be_repaired_or_not() {
        let seeds: &[&[u8]] =
            &[br#"{'a': "b", "c": [1, 2,],}"#, b"functions.list_dir:0<|channel|>json"];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            repair_arguments(&text);
            repair_name(&text, &[]);
            let legal = to_legal_name(&text);
            assert_eq!(to_legal_name(&legal), legal);
        });
    }
}
