//! Tool calls that a model wrote as text in its own notation, because its server does not parse it. Servers have an option for that;
//! without it, the call would be printed as the answer. JSON in a code block is never a call.

use super::tool_call_repair::repair_name;
use super::{Request, ToolChoice};
use nanobot_base::message::{
    FinishReason, Message, Reply, ToolCall, ToolSpec, lenient_json, to_plain_text,
};
use serde_json::{Map, Value};

/// The marks before and after calls, by the models that write them.
const MARKS: &[(&str, &str)] = &[
    // Hermes, Qwen, GLM
    ("<tool_call>", "</tool_call>"),
    // Kimi
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    // DeepSeek
    (
        "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
        "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>",
    ),
    // MiniMax
    ("<minimax:tool_call>", "</minimax:tool_call>"),
    // Claude
    ("<function_calls>", "</function_calls>"),
    ("<invoke ", "</invoke>"),
    // Llama
    ("<function=", "</function>"),
    // Mistral
    ("[TOOL_CALLS]", ""),
];

/// Marks within a block, between the name and the arguments or around them.
const INNER_MARKS: &[&str] = &[
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>",
    "<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}>",
    "function<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
    "<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
    "[ARGS]",
    "```json",
    "```",
];

/// Recognizes a call of an offered tool at the end of the text of `reply`. The call is accepted if `is_accepted`, and if its
/// mark does not occur in a message or a result that the model has read: the model could be repeating that. Otherwise the
/// finish reason says that a call is missing.
pub(super) fn settle_written_call(reply: &mut Reply, request: &Request<'_>, is_accepted: bool) {
    if !reply.tool_calls.is_empty()
        || request.tool_choice == ToolChoice::None
        || !matches!(reply.finish_reason, FinishReason::Stop | FinishReason::ToolCalls)
    {
        return;
    }
    let Some(block) = WrittenBlock::find(&reply.text, request.tools) else {
        return;
    };
    reply.finish_reason = FinishReason::ToolCalls;
    if !is_accepted || has_read(request.messages, block.mark) {
        return;
    }
    let Some((name, arguments)) = block.parse_call(request.tools) else {
        return;
    };
    let id = format!("call_{}_0", request.messages.len());
    let length = reply.text[..block.start].trim_end().len();
    reply.text.truncate(length);
    reply.tool_calls.push(ToolCall { id, name, arguments });
    // The provider data describes the reply as it was sent.
    reply.provider_data = None;
}

/// True if `mark` occurs in text that the model has read.
fn has_read(messages: &[Message], mark: &str) -> bool {
    messages.iter().any(|message| match message {
        Message::User(user) => to_plain_text(&user.parts).contains(mark),
        Message::Tool(result) => to_plain_text(&result.parts).contains(mark),
        Message::Assistant(_) => false,
    })
}

/// The block of calls at the end of a text.
struct WrittenBlock<'a> {
    /// The mark with which it begins.
    mark: &'static str,
    /// Its start in the text, in bytes.
    start: usize,
    /// The block with its marks.
    text: &'a str,
    /// The block without the marks around it.
    inner: &'a str,
}

impl<'a> WrittenBlock<'a> {
    /// Finds the block that ends `text`, if it names one of `tools`.
    fn find(text: &'a str, tools: &[ToolSpec]) -> Option<Self> {
        let text = text.trim_end();
        let block = MARKS.iter().find_map(|(mark, end)| {
            let start = text.find(mark)?;
            let inner = text[start + mark.len()..].strip_suffix(end)?;
            Some(Self { mark, start, text: &text[start..], inner })
        })?;
        let is_named = |tool: &ToolSpec| block.text.contains(&tool.name);
        (tools.iter().any(is_named) && !is_in_code_block(&text[..block.start])).then_some(block)
    }

    /// The name and the arguments, if the block is one call of one of `tools`.
    fn parse_call(&self, tools: &[ToolSpec]) -> Option<(String, Value)> {
        let is_single = self.inner.matches(self.mark).count() == 0;
        let inner = self.inner.trim();
        let (name, arguments) = if !is_single {
            return None;
        } else if inner.starts_with(['{', '[']) {
            parse_json_call(inner)?
        } else if let Some((name, rest)) = between(self.text, "<invoke name=\"", "\">") {
            let (fields, rest) = rest.split_once("</invoke>")?;
            is_end(rest).then_some(())?;
            (name.to_owned(), parse_fields(fields, ["<parameter name=\"", "\">", "</parameter>"])?)
        } else if let Some((name, rest)) = between(self.text, "<function=", ">") {
            let (fields, rest) = rest.split_once("</function>")?;
            is_end(rest).then_some(())?;
            let arguments = if fields.trim_start().starts_with('{') {
                lenient_json::parse(fields.trim())?
            } else {
                parse_fields(fields, ["<parameter=", ">", "</parameter>"])?
            };
            (name.to_owned(), arguments)
        } else if let Some(at) = inner.find("<arg_key>") {
            let (name, fields) = inner.split_at(at);
            let fields = fields.replace("</arg_key>\n<arg_value>", "</arg_key><arg_value>");
            let marks = ["<arg_key>", "</arg_key><arg_value>", "</arg_value>"];
            (name.trim().to_owned(), parse_fields(&fields, marks)?)
        } else {
            let at = inner.find('{')?;
            let (arguments, rest) = lenient_json::parse_first(&inner[at..])?;
            without_inner_marks(rest).is_empty().then_some(())?;
            (without_inner_marks(&inner[..at]), arguments)
        };
        let is_tool = |tool: &ToolSpec| tool.name == name;
        let name = match repair_name(&name, tools) {
            Some(tool) => tool.to_owned(),
            None if tools.iter().any(is_tool) => name,
            None => return None,
        };
        arguments.is_object().then_some((name, arguments))
    }
}

/// True if a code block is open at the end of `text`.
fn is_in_code_block(text: &str) -> bool {
    text.lines().filter(|line| line.trim_start().starts_with("```")).count() % 2 == 1
}

/// Parses a call in JSON, alone or in a list.
fn parse_json_call(text: &str) -> Option<(String, Value)> {
    let (value, rest) = lenient_json::parse_first(text)?;
    let call = match value.as_array().map(Vec::as_slice) {
        Some([call]) => call.clone(),
        Some(_) => return None,
        None => value,
    };
    let call = if call["function"].is_object() { &call["function"] } else { &call };
    let arguments = [&call["arguments"], &call["parameters"]];
    let arguments = arguments.into_iter().find(|value| value.is_object())?;
    let name = call["name"].as_str()?.to_owned();
    rest.trim().is_empty().then(|| (name, arguments.clone()))
}

/// Parses fields of the form `[open]name[separator]value[close]`. A value is a text; tools convert it as their schemas
/// say.
fn parse_fields(text: &str, [open, separator, close]: [&str; 3]) -> Option<Value> {
    let mut fields = Map::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix(open)?.split_once(separator)?;
        let (value, after) = after.split_once(close)?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        if fields.insert(name.trim().to_owned(), value.into()).is_some() {
            return None;
        }
        rest = after.trim_start();
    }
    Some(Value::Object(fields))
}

/// The text between `open` and the next `close`, and the text after that.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(open)?.1.split_once(close)
}

/// True if only marks of the end follow a call.
fn is_end(text: &str) -> bool {
    let text = text.trim();
    text.is_empty() || MARKS.iter().any(|(_, end)| text == *end)
}

fn without_inner_marks(text: &str) -> String {
    let text = INNER_MARKS.iter().fold(text.to_owned(), |text, mark| text.replace(mark, " "));
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::settle_written_call;
    use crate::provider::response::test_support::REQUEST;
    use crate::provider::{Request, ToolChoice};
    use nanobot_base::message::{FinishReason, Message, MessagePart, Reply, ToolSpec, UserMessage};
    use serde_json::{Value, json};

    const HERMES: &str =
        "<tool_call>\n{\"name\": \"list_dir\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";

    fn tools() -> [ToolSpec; 2] {
        ["list_dir", "exec"].map(|name| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: json!({}).into(),
        })
    }

    /// Settles a reply with this text to a request with tools.
    fn settle(text: &str) -> Reply {
        settle_for(&Request { tools: &tools(), ..REQUEST }, text, true)
    }

    fn settle_for(request: &Request<'_>, text: &str, is_accepted: bool) -> Reply {
        let mut reply = Reply { text: text.into(), ..Reply::default() };
        settle_written_call(&mut reply, request, is_accepted);
        reply
    }

    #[track_caller]
    fn check_call(text: &str, expect: (&str, Value)) {
        let reply = settle(&format!("I look.\n{text}\n"));
        assert_eq!((reply.text.as_str(), reply.tool_calls.len()), ("I look.", 1), "{text}");
        let call = &reply.tool_calls[0];
        assert_eq!((call.name.as_str(), call.arguments.clone()), expect, "{text}");
        assert_eq!(reply.finish_reason, FinishReason::ToolCalls);
    }

    #[track_caller]
    fn check_missing(reply: &Reply, text: &str) {
        assert_eq!((reply.text.as_str(), &reply.tool_calls), (text, &Vec::new()));
        assert_eq!(reply.finish_reason, FinishReason::ToolCalls, "{text}");
    }

    #[test]
    fn calls_in_the_notations_of_models() {
        let path = || ("list_dir", json!({ "path": "a" }));
        for text in [
            HERMES,
            "<tool_call>{\"name\": \"functions.list_dir\", \"parameters\": {\"path\": \"a\"}}</tool_call>",
            "<tool_call>\n<function=list_dir>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
            "<function=list_dir>{\"path\": \"a\"}</function>",
            "<tool_call>list_dir\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n</tool_call>",
            "[TOOL_CALLS][{\"name\": \"list_dir\", \"arguments\": {\"path\": \"a\"}}]",
            "[TOOL_CALLS]list_dir[ARGS]{\"path\": \"a\"}",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.list_dir:0<|tool_call_argument_begin|>{\"path\": \"a\"}<|tool_call_end|><|tool_calls_section_end|>",
            "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}><\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>function<\u{ff5c}tool\u{2581}sep\u{ff5c}>list_dir\n```json\n{\"path\": \"a\"}\n```<\u{ff5c}tool\u{2581}call\u{2581}end\u{ff5c}><\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>",
            "<invoke name=\"list_dir\">\n<parameter name=\"path\">a</parameter>\n</invoke>",
            "<function_calls>\n<invoke name=\"list_dir\">\n<parameter name=\"path\">a</parameter>\n</invoke>\n</function_calls>",
            "<minimax:tool_call><invoke name=\"list_dir\"><parameter name=\"path\">a</parameter></invoke></minimax:tool_call>",
        ] {
            check_call(text, path());
        }
        check_call("<function=exec>\n</function>", ("exec", json!({})));
    }

    #[test]
    fn other_texts_are_answers() {
        for text in [
            "list_dir",
            "```json\n{\"name\": \"list_dir\", \"arguments\": {}}\n```",
            "{\"name\": \"list_dir\", \"arguments\": {}}",
            &format!("```\n{HERMES}\n```"),
            &format!("{HERMES} is how it is written."),
            "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>",
        ] {
            let reply = settle(text);
            assert_eq!((reply.text.as_str(), &reply.finish_reason), (text, &FinishReason::Stop));
            assert_eq!(reply.tool_calls, []);
        }
        let tools = tools();
        let closing = Request { tools: &tools, tool_choice: ToolChoice::None, ..REQUEST };
        for request in [REQUEST, closing] {
            let reply = settle_for(&request, HERMES, true);
            assert_eq!((reply.text.as_str(), reply.finish_reason), (HERMES, FinishReason::Stop));
        }
    }

    #[test]
    fn a_call_that_is_not_taken_is_missing() {
        let tools = tools();
        let request = Request { tools: &tools, ..REQUEST };
        check_missing(&settle_for(&request, HERMES, false), HERMES);
        let twice = format!("{HERMES}\n{HERMES}");
        check_missing(&settle(&twice), &twice);
        let both = "<function_calls><invoke name=\"exec\"></invoke><invoke name=\"list_dir\"></invoke></function_calls>";
        check_missing(&settle(both), both);
        let broken = "<tool_call>{\"name\": \"list_dir\"</tool_call>";
        check_missing(&settle(broken), broken);
        let messages = [Message::User(UserMessage {
            parts: vec![MessagePart::Text("Say <tool_call>{}</tool_call>.".into())],
            ..UserMessage::default()
        })];
        let request = Request { messages: &messages, ..request };
        check_missing(&settle_for(&request, HERMES, true), HERMES);
    }

    #[test]
    fn fuzz_any_text_is_an_answer_or_a_call() {
        let seeds: &[&[u8]] = &[
            HERMES.as_bytes(),
            b"[TOOL_CALLS]list_dir[ARGS]{\"path\": \"a\"}",
            b"<tool_call>list_dir\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
            b"<invoke name=\"exec\"><parameter name=\"a\">b</parameter></invoke>",
        ];
        nanobot_base::fuzz::check(seeds, |input, _| {
            let text = nanobot_base::fuzz::lossy_text(input);
            let reply = settle(&text);
            assert!(text.starts_with(&reply.text));
        });
    }
}
