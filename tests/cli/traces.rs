//! The trace of a run: what it starts continues it, and its spans are exported as OTLP/JSON if the config says where to.

use crate::mcp::{read_only_tool, story_with_servers, with_plan};
use crate::server::{Request, Response, Server, calls, calls_all, fails, says, sends};
use crate::story::{Story, TIME, write, write_program};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn traceparent() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

/// A story whose turns append their spans to [`exports`].
fn with_file(story: Story) -> Story {
    story.set("telemetry", json!({ "otlp": "~/spans.jsonl" }))
}

/// The exported requests, by the order of their turns.
fn exports(story: &Story) -> Vec<Value> {
    let text = std::fs::read_to_string(story.home().join("spans.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The spans of a request, which has those of one resource and one scope.
fn spans(export: &Value) -> Vec<Value> {
    let [resource] = export["resourceSpans"].as_array().unwrap().as_slice() else {
        panic!("{export}");
    };
    let names = attributes(&resource["resource"]);
    assert_eq!(names["service.name"], "nanobot");
    assert_eq!(names["service.version"], env!("CARGO_PKG_VERSION"));
    let [scope] = resource["scopeSpans"].as_array().unwrap().as_slice() else {
        panic!("{export}");
    };
    assert_eq!(scope["scope"]["name"], "nanobot");
    let spans = scope["spans"].as_array().unwrap().clone();
    spans.iter().for_each(check_span);
    let mut ids: Vec<&Value> = spans.iter().map(|span| &span["spanId"]).collect();
    ids.sort_by_key(|id| id.as_str());
    ids.dedup();
    assert_eq!(ids.len(), spans.len(), "{export}");
    spans
}

/// Checks what the encoding demands of each span.
fn check_span(span: &Value) {
    let is_id = |key: &str, length: usize| {
        let id = span[key].as_str().unwrap_or_default();
        id.len() == length && id.bytes().all(|byte| b"0123456789abcdef".contains(&byte))
    };
    assert!(is_id("traceId", 32) && is_id("spanId", 16), "{span}");
    assert!(span["parentSpanId"].is_null() || is_id("parentSpanId", 16), "{span}");
    let (start, end) = (nanos(span, "startTimeUnixNano"), nanos(span, "endTimeUnixNano"));
    let begin = TIME.parse::<jiff::Timestamp>().unwrap().as_nanosecond();
    assert!(begin <= start && start <= end, "{span}");
    let kind = if name(span).starts_with("chat ") { 3 } else { 1 };
    assert_eq!(span["kind"], kind, "{span}");
    let has_error = attributes(span)["error.type"].is_string();
    assert_eq!(span["status"], if has_error { json!({ "code": 2 }) } else { Value::Null });
}

fn nanos(span: &Value, key: &str) -> i128 {
    span[key].as_str().expect("a 64-bit number is text").parse().unwrap()
}

fn name(span: &Value) -> &str {
    span["name"].as_str().unwrap()
}

/// The span with this name, of which there is one.
fn find<'s>(spans: &'s [Value], wanted: &str) -> &'s Value {
    let mut named = spans.iter().filter(|span| name(span) == wanted);
    let span = named.next().unwrap_or_else(|| panic!("no {wanted} in {spans:#?}"));
    assert!(named.next().is_none(), "{spans:#?}");
    span
}

/// The attributes as an object, with numbers as numbers.
fn attributes(owner: &Value) -> Value {
    let pairs = owner["attributes"].as_array().unwrap().iter().map(|attribute| {
        let value = match attribute["value"].as_object().unwrap().iter().next().unwrap() {
            (kind, value) if kind == "stringValue" => value.clone(),
            (kind, value) if kind == "intValue" => {
                value.as_str().unwrap().parse::<u64>().unwrap().into()
            }
            (_, list) => list["values"][0]["stringValue"].clone(),
        };
        (attribute["key"].as_str().unwrap().to_owned(), value)
    });
    Value::Object(pairs.collect())
}

/// The result of the last tool call.
fn last_result(story: &Story) -> String {
    story.last_request().last_content()
}

#[test]
fn the_spans_of_a_turn_are_a_line_of_a_file() {
    let story = with_file(Story::new().env("TRACEPARENT", &traceparent()))
        .script([calls("exec", json!({ "command": "echo $TRACEPARENT" })), says("Done.")]);
    story.run(["agent", "-s", "work", "-m", "hello"]).stdout("Done.\n");
    let exports = exports(&story);
    assert_eq!(exports.len(), 1);
    let spans = spans(&exports[0]);
    let names: Vec<&str> = spans.iter().map(name).collect();
    let expect = ["chat scripted", "execute_tool exec", "chat scripted", "invoke_agent nanobot"];
    assert_eq!(names, expect);
    let turn = find(&spans, "invoke_agent nanobot");
    assert_eq!(
        (turn["traceId"].as_str(), turn["parentSpanId"].as_str()),
        (Some(TRACE), Some(PARENT))
    );
    for span in &spans[..3] {
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&turn["traceId"], &turn["spanId"]));
        assert!(nanos(turn, "startTimeUnixNano") <= nanos(span, "startTimeUnixNano"), "{spans:#?}");
        assert!(nanos(span, "endTimeUnixNano") <= nanos(turn, "endTimeUnixNano"), "{spans:#?}");
    }
    // One after the other.
    for pair in spans[..3].windows(2) {
        let (end, start) =
            (nanos(&pair[0], "endTimeUnixNano"), nanos(&pair[1], "startTimeUnixNano"));
        assert!(end <= start, "{spans:#?}");
    }
    let input = |index: usize| attributes(&spans[index])["gen_ai.usage.input_tokens"].clone();
    let usage = |input: &Value, output: u64| {
        json!({
            "gen_ai.usage.input_tokens": input, "gen_ai.usage.output_tokens": output,
            "gen_ai.usage.cache_read.input_tokens": 0, "gen_ai.usage.cache_creation.input_tokens": 0,
            "gen_ai.usage.reasoning.output_tokens": 0,
        })
    };
    let with_usage = |mut names: Value, usage: Value| {
        names.as_object_mut().unwrap().extend(usage.as_object().unwrap().clone());
        names
    };
    let chat = |finish_reason: &str| {
        json!({
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": "custom",
            "gen_ai.request.model": "scripted", "gen_ai.response.model": "scripted",
            "gen_ai.conversation.id": "work", "gen_ai.response.finish_reasons": finish_reason,
        })
    };
    assert_eq!(attributes(&spans[0]), with_usage(chat("tool_call"), usage(&input(0), 7)));
    assert_eq!(attributes(&spans[2]), with_usage(chat("stop"), usage(&input(2), 7)));
    let expect = json!({
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "exec",
        "gen_ai.tool.type": "function", "gen_ai.tool.call.id": "call_2_0",
    });
    assert_eq!(attributes(&spans[1]), expect);
    let expect = json!({
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "nanobot",
        "gen_ai.provider.name": "custom", "gen_ai.request.model": "scripted",
        "gen_ai.conversation.id": "work",
    });
    let sum = input(0).as_u64().unwrap() + input(2).as_u64().unwrap();
    assert_eq!(attributes(turn), with_usage(expect, usage(&sum.into(), 14)));
    // The command continues the span of its call.
    let call = spans[1]["spanId"].as_str().unwrap();
    assert_eq!(last_result(&story), format!("00-{TRACE}-{call}-01"));
}

#[test]
fn each_turn_has_a_trace_of_its_own() {
    let story = with_file(Story::new()).script([says("one"), says("two")]);
    story.run(["agent", "-m", "x"]).stdout("one\n");
    story.run(["agent", "-m", "x"]).stdout("two\n");
    let exports = exports(&story);
    let traces: Vec<Value> = exports
        .iter()
        .map(|export| {
            let spans = spans(export);
            assert_eq!(find(&spans, "invoke_agent nanobot")["parentSpanId"], Value::Null);
            spans[0]["traceId"].clone()
        })
        .collect();
    assert_eq!(traces.len(), 2);
    assert_ne!(traces[0], traces[1]);
    // No request is sent, so there is nothing to measure.
    let stdout = story.run(["agent", "--dry-run", "-m", "x"]).text();
    assert!(stdout.contains("messages"), "{stdout}");
    story.run(["agent", "--replay", "demo", "-m", "x"]).text();
    story.run(["agent", "-m", "/help"]).stdout_has("/help");
    assert_eq!(self::exports(&story).len(), 2);
}

#[test]
fn the_spans_of_a_turn_are_sent_to_a_collector() {
    let collector = Server::start();
    collector.always(sends(Response::json(200, &json!({}))));
    let base = format!("http://127.0.0.1:{}", collector.port);
    let addresses = [base.clone(), format!("{base}/"), format!("{base}/v1/traces")];
    for (index, address) in addresses.into_iter().enumerate() {
        let story = Story::new().set("telemetry.otlp", json!(address)).script([says("Hi.")]);
        // An address of this machine is allowed.
        story.run(["agent", "--offline", "-m", "hello"]).stdout("Hi.\n").stderr("");
        let requests = collector.requests();
        assert_eq!(requests.len(), index + 1);
        let Request { method, path, body, .. } = &requests[index];
        assert_eq!((method.as_str(), path.as_str()), ("POST", "/v1/traces"));
        assert_eq!(requests[index].header("content-type"), Some("application/json"));
        let names: Vec<String> = spans(body).iter().map(|span| name(span).to_owned()).collect();
        assert_eq!(names, ["chat scripted", "invoke_agent nanobot"]);
    }
}

#[test]
fn a_collector_that_fails_does_not_fail_the_run() {
    let check = |address: &str, flags: &[&str], expect: &str| {
        let story = Story::new().set("telemetry.otlp", json!(address));
        story.server().script([says("one"), says("two")]);
        story.run(["agent", "-m", "x"].iter().chain(flags)).stdout("one\n").stderr("");
        let story = story.env("NANOBOT_LOG", "http");
        let text = story.run(["agent", "-m", "x"].iter().chain(flags)).stdout("two\n").error_text();
        let line = text.lines().find(|line| line.contains("the spans were not sent"));
        assert!(line.is_some_and(|line| line.contains(expect)), "{expect}: {text}");
    };
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    check(&address, &[], &format!("http: warn: the spans were not sent to {address}/v1/traces: "));
    check("http://127.0.0.1:1", &[], "connection refused");
    check("http://user:pass@127.0.0.1:1", &[], "to http://***@127.0.0.1:1/v1/traces");
    let failing = Server::start();
    failing.always(fails(500, "down"));
    check(&format!("http://127.0.0.1:{}", failing.port), &[], "status 500");
    check("https://collector.example", &["--offline"], "`--offline` forbids connecting");
    // A file that cannot be written is a mistake in the config.
    let story = Story::new().set("telemetry.otlp", json!("/proc/spans")).script([says("Hi.")]);
    story.run(["agent", "-m", "x"]).stdout("Hi.\n").stderr_has("nanobot: cannot write the spans: ");
    let story = Story::new().set("telemetry.otlp", json!("localhost:4318"));
    story.run(["agent", "-m", "x"]).status(78).stderr_has("`telemetry.otlp` is `localhost:4318`");
}

#[test]
fn spans_have_content_only_on_request() {
    let command = "echo 'key-of-the-story'; echo \"low tide\"";
    let run = |story: Story| {
        let story = story.script([
            calls("exec", json!({ "command": command })),
            says("It is \"ebb\", key-of-the-story."),
        ]);
        story.run(["agent", "-m", "what of my secret diary?"]).text();
        let text = std::fs::read_to_string(story.home().join("spans.jsonl")).unwrap();
        assert!(!text.contains("key-of-the-story"), "{text}");
        (text, spans(&exports(&story)[0]))
    };
    let (text, _) = run(with_file(Story::new()));
    for private in ["diary", "echo", "tide", "ebb"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
    let (_, spans) = run(with_file(Story::new()).set("telemetry.content", json!(true)));
    let parsed = |index: usize, key: &str| -> Value {
        serde_json::from_str(attributes(&spans[index])[key].as_str().unwrap()).unwrap()
    };
    let text_part = |content: &str| json!({ "type": "text", "content": content });
    assert_eq!(
        parsed(0, "gen_ai.input.messages"),
        json!([{ "role": "user", "parts": [text_part("what of my secret diary?")] }])
    );
    let arguments = json!({ "command": "echo '***'; echo \"low tide\"" });
    let call =
        json!({ "type": "tool_call", "id": "call_2_0", "name": "exec", "arguments": arguments });
    let reply = json!([{ "role": "assistant", "parts": [call], "finish_reason": "tool_call" }]);
    assert_eq!(parsed(0, "gen_ai.output.messages"), reply);
    assert_eq!(parsed(1, "gen_ai.tool.call.arguments"), arguments);
    let result = attributes(&spans[1])["gen_ai.tool.call.result"].clone();
    assert!(result.as_str().unwrap().starts_with("***\nlow tide\n"), "{result}");
    // A request has what is new since the one before it.
    let response = json!({ "type": "tool_call_response", "id": "call_2_0", "response": result });
    assert_eq!(
        parsed(2, "gen_ai.input.messages"),
        json!([{ "role": "tool", "parts": [response] }])
    );
    let parts = [text_part("It is \"ebb\", ***.")];
    let reply = json!([{ "role": "assistant", "parts": parts, "finish_reason": "stop" }]);
    assert_eq!(parsed(2, "gen_ai.output.messages"), reply);
}

#[test]
fn failures_have_a_type() {
    let story = with_file(Story::new()).script([
        calls_all([
            ("exec", json!({ "command": "exit 3" })),
            ("write_file", json!({ "path": "a", "content": "x" })),
            ("read_file", json!({ "path": "gone" })),
            ("no_such_tool", json!({})),
        ]),
        fails(401, "diary"),
    ]);
    story.run(["agent", "-m", "x"]).status(77).stderr_has("diary");
    let spans = spans(&exports(&story)[0]);
    let errors: Vec<(&str, Value)> =
        spans.iter().map(|span| (name(span), attributes(span)["error.type"].clone())).collect();
    let expect = [
        ("chat scripted", Value::Null),
        // A command that fails is a result like others.
        ("execute_tool exec", Value::Null),
        ("execute_tool write_file", "denied".into()),
        ("execute_tool read_file", "failed".into()),
        ("execute_tool no_such_tool", "skipped".into()),
        ("chat scripted", "key_rejected".into()),
        ("invoke_agent nanobot", "refused".into()),
    ];
    assert_eq!(errors, expect);
    assert!(!exports(&story)[0].to_string().contains("diary"));
    // A fallback has a span of its own.
    let fallback = json!([{ "model": "other", "provider": "custom" }]);
    let story = with_file(Story::new())
        .set("agents.defaults.fallbackModels", fallback)
        .script([fails(404, "no such model"), says("Hi.")]);
    story.run(["agent", "-m", "x"]).stdout("Hi.\n").stderr_has("falling back");
    let spans = self::spans(&exports(&story)[0]);
    assert_eq!(attributes(find(&spans, "chat scripted"))["error.type"], "not_found");
    assert_eq!(attributes(find(&spans, "chat other"))["gen_ai.request.model"], "other");
}

#[test]
fn a_sub_agent_has_a_span_within_the_turn() {
    let story = with_file(Story::new());
    let requests = AtomicUsize::new(0);
    story.server().always(Box::new(move |request| {
        let is_child = request.messages()[0].to_string().contains("sub-agent of nanobot");
        let is_answered = request.messages().iter().any(|message| message["role"] == "tool");
        let responder = match (is_child, is_answered) {
            (true, false) => calls("exec", json!({ "command": "echo $TRACEPARENT" })),
            (true, true) => says(&format!("It was {}", request.last_content())),
            (false, false) => calls("spawn", json!({ "task": "look" })),
            // The turn waits for the report, and then answers with it.
            (false, true) => match requests.fetch_add(1, Ordering::SeqCst) {
                0 => says("I wait."),
                _ => says(&request.last_content()),
            },
        };
        responder(request)
    }));
    let answer = story.run(["agent", "-m", "x"]).text();
    let spans = spans(&exports(&story)[0]);
    let turn = find(&spans, "invoke_agent nanobot");
    let subagent = find(&spans, "invoke_agent spawn1");
    let call = find(&spans, "execute_tool exec");
    assert_eq!(subagent["parentSpanId"], turn["spanId"]);
    assert_eq!(call["parentSpanId"], subagent["spanId"]);
    assert_eq!(find(&spans, "execute_tool spawn")["parentSpanId"], turn["spanId"]);
    let children_of = |agent: &Value| {
        let children = spans.iter().filter(|span| span["parentSpanId"] == agent["spanId"]);
        children.filter(|span| name(span) == "chat scripted").count()
    };
    assert_eq!((children_of(turn), children_of(subagent)), (3, 2), "{spans:#?}");
    let context =
        format!("00-{}-{}-01", turn["traceId"].as_str().unwrap(), call["spanId"].as_str().unwrap());
    assert!(answer.contains(&context), "{context}: {answer}");
}

/// A story in which a command, a server, and a hook in each place report their variables.
fn story_of_children() -> Story {
    let mut tool = read_only_tool("look", "Look.");
    tool["runs"] = "echo $TRACEPARENT $TRACESTATE".into();
    let story = story_with_servers(&[("one", json!({}), json!({}))]);
    let story = with_plan(story, "one", &json!({ "tools": [tool] }));
    let hook = story.home().join(".nanobot/hooks/hook");
    write_program(&hook, "#!/bin/sh\nprintf '%s: <%s>\\n' \"$1\" \"$TRACEPARENT\" >&2; exit 1\n");
    write(&story.home().join(".nanobot/hooks/.announced"), b"");
    let command = |field: &str| format!("{} {field}", hook.display());
    story.set(
        "hooks",
        json!({ "pre_turn": [
            { "name": "home", "command": command("home"), "in": "home" },
            { "name": "sandbox", "command": command("sandbox"), "in": "sandbox" },
        ] }),
    )
}

/// Runs a turn, and returns what its children have found.
fn run_children(story: &Story) -> [String; 4] {
    story.server().script([
        calls("exec", json!({ "command": "echo $TRACEPARENT $TRACESTATE" })),
        calls("mcp_one_look", json!({})),
        says("Done."),
    ]);
    let text = story.run(["agent", "-m", "x"]).stdout("Done.\n").error_text();
    let hook = |field: &str| {
        let (_, rest) = text.split_once(&format!("{field}: <")).unwrap_or_else(|| panic!("{text}"));
        rest.split_once('>').unwrap().0.to_owned()
    };
    let requests = story.requests();
    let results = requests[requests.len() - 2..].iter().map(|request| {
        let content = request.last_content();
        let line = content.lines().find(|line| line.starts_with("00-"));
        line.unwrap_or_default().to_owned()
    });
    let [command, server] = results.collect::<Vec<_>>().try_into().unwrap();
    [command, server, hook("home"), hook("sandbox")]
}

#[test]
fn the_trace_of_the_caller_is_passed_on() {
    let traceparent = traceparent();
    let check = |variables: &[(&str, &str)], expect: &str, state: &str| {
        let mut story = story_of_children();
        for (name, value) in variables {
            story = story.env(name, value);
        }
        let with_state = format!("{expect}{state}");
        let expect = [with_state.as_str(), &with_state, expect, expect];
        assert_eq!(run_children(&story), expect, "{variables:?}");
    };
    check(&[("TRACEPARENT", &traceparent), ("TRACESTATE", "a=b")], &traceparent, " a=b");
    // An invalid trace is ignored with its state, and none is invented.
    check(&[("TRACEPARENT", "00-4bf9-00f0-01"), ("TRACESTATE", "a=b")], "", "");
    check(&[], "", "");
}

#[test]
fn children_continue_the_span_of_the_turn() {
    let story = with_file(story_of_children());
    let [command, server, home, sandbox] = run_children(&story);
    let spans = spans(&exports(&story)[0]);
    let context = |wanted: &str| {
        let span = find(&spans, wanted);
        let [trace, span] = ["traceId", "spanId"].map(|key| span[key].as_str().unwrap());
        format!("00-{trace}-{span}-01")
    };
    let turn = context("invoke_agent nanobot");
    assert_eq!(command, context("execute_tool exec"));
    assert_eq!([server, home, sandbox], [turn.clone(), turn.clone(), turn]);
}

#[test]
fn a_trace_that_is_not_recorded_is_passed_on_alone() {
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let story = with_file(Story::new().env("TRACEPARENT", &unsampled))
        .script([calls("exec", json!({ "command": "echo $TRACEPARENT" })), says("Done.")]);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    assert_eq!(last_result(&story), unsampled);
    assert!(!story.home().join("spans.jsonl").exists());
}
