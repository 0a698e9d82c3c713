//! Deviations of other chat completions servers and their models from OpenAI's API. Requests are still validated against
//! OpenAI's types: each story lists the extra keys of its server.

use crate::server::{Responder, calls, calls_all, fails, replies, says};
use crate::story::Story;
use serde_json::{Value, json};

/// A reply that calls `read_file` on `a.txt` once for each id, with additional keys in the message.
fn calls_read_file(ids: &[&str], more: &Value) -> Responder {
    let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" } });
    let list: Vec<Value> = ids.iter().map(call).collect();
    let mut message = json!({ "role": "assistant", "content": null, "tool_calls": list });
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    replies(message, "tool_calls")
}

/// A story of a model that can read `a.txt`.
fn provider_story(provider: &str, model: &str) -> Story {
    Story::with_provider(provider, model).file("a.txt", "alpha")
}

fn roles(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["role"].as_str().unwrap()).collect()
}

/// The ids of the calls and of the results that were sent.
fn call_and_result_ids(messages: &[Value]) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = messages
        .iter()
        .flat_map(|message| message["tool_calls"].as_array().cloned().unwrap_or_default());
    let results = messages.iter().filter(|message| message["role"] == "tool");
    (
        calls.map(|call| text(&call["id"])).collect(),
        results.map(|result| text(&result["tool_call_id"])).collect(),
    )
}

#[test]
fn mistral_requests() {
    let story = provider_story("mistral", "mistral-small-latest").script([
        calls_read_file(&["call_of_one_kind", "call_of_another"], &json!({})),
        fails(401, "no"),
        calls("read_file", json!({ "path": "a.png" })),
        says("ok"),
    ]);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    let story = story.file("a.png", png);
    story.run(["agent", "-m", "x", "--reasoning-effort", "low"]).status(77).stderr_has("no");
    story
        .run(["agent", "-m", "y", "--reasoning-effort", "medium"])
        .stdout("ok\n")
        .stderr_has("marked as interrupted");
    let requests = story.requests();
    let (called, ids) = call_and_result_ids(&requests[1].messages());
    assert_eq!(called, ids);
    assert!(called[0] != called[1], "{called:?}");
    assert!(
        called
            .iter()
            .all(|id| id.len() == 9 && id.chars().all(|letter| letter.is_ascii_alphanumeric())),
        "{called:?}"
    );
    assert_eq!(requests[1].body["reasoning_effort"], "none");
    assert_eq!(requests[3].body["reasoning_effort"], "high");
    assert!(
        requests
            .iter()
            .all(|request| request.body["stream"] == true
                && request.body["stream_options"].is_null())
    );
    // No user message follows a tool result directly.
    for request in &requests {
        let messages = request.messages();
        let roles = roles(&messages);
        assert!(roles.windows(2).all(|pair| pair != ["tool", "user"]), "{roles:?}");
    }
    assert_eq!(call_and_result_ids(&requests[3].messages()).0[..2], called);
    let last = requests[3].messages();
    let last: Vec<&Value> = last.iter().rev().take(2).map(|message| &message["content"]).collect();
    assert_eq!(last[1], "(images follow)");
    assert_eq!(last[0][0]["type"], "image_url");
}

#[test]
fn deepseek_gets_a_reasoning_field_even_if_empty() {
    for flags in [&[][..], &["--no-stream"]] {
        let story = provider_story("deepseek", "deepseek-chat")
            .allow_extra_keys(&["reasoning_content", "thinking"])
            .script([
                calls_read_file(&["a"], &json!({ "reasoning_content": "I must look." })),
                calls_read_file(&["b"], &json!({})),
                says("ok"),
                says("more"),
            ]);
        story
            .run([&["agent", "-m", "x", "--reasoning-effort", "high"], flags].concat())
            .stdout("ok\n");
        story
            .run([&["agent", "-m", "x", "--reasoning-effort", "none"], flags].concat())
            .stdout("more\n");
        let requests = story.requests();
        for request in &requests[2..] {
            let messages = request.messages();
            let replies = messages.iter().filter(|message| message["role"] == "assistant");
            let thoughts: Vec<&Value> = replies.map(|reply| &reply["reasoning_content"]).collect();
            let expect: Vec<Value> = ["I must look.", "", ""].map(Value::from).into();
            assert_eq!(thoughts, expect.iter().take(thoughts.len()).collect::<Vec<_>>());
        }
        assert_eq!(requests[0].body["thinking"], json!({ "type": "enabled" }));
        assert_eq!(requests[3].body["thinking"], json!({ "type": "disabled" }));
    }
}

#[test]
fn kimi_requests_have_no_temperature() {
    let story =
        provider_story("moonshot", "kimi-k2.6").allow_extra_keys(&["reasoning_content"]).script([
            calls_read_file(&["read_file:0"], &json!({ "reasoning_content": "hm" })),
            says("ok"),
        ]);
    story
        .run(["agent", "-m", "x", "--temperature", "0.3"])
        .stdout("ok\n")
        .stderr("nanobot: `kimi-k2.6` takes no temperature: 0.3 is not sent\n");
    let requests = story.requests();
    assert!(requests.iter().all(|request| request.body["temperature"].is_null()));
    assert_eq!(requests[1].messages()[2]["reasoning_content"], "hm");
    let (called, ids) = call_and_result_ids(&requests[1].messages());
    assert_eq!(called, ids);
}

#[test]
fn reasoning_effort_is_set_per_model() {
    let check = |provider: &str, model: &str, key: &str, high: Value, none: Value| {
        let story = provider_story(provider, model).allow_extra_keys(&[key]).script([
            says("1"),
            says("2"),
            says("3"),
        ]);
        story.run(["agent", "-m", "x", "--reasoning-effort", "high"]).stdout("1\n");
        story.run(["agent", "-m", "x", "--reasoning-effort", "none"]).stdout("2\n");
        story.run(["agent", "-m", "x"]).stdout("3\n");
        let requests = story.requests();
        assert_eq!((&requests[0].body[key], &requests[1].body[key]), (&high, &none), "{provider}");
        let unasked = if key == "reasoning_split" { json!(true) } else { Value::Null };
        assert_eq!(requests[2].body[key], unasked, "{provider}");
    };
    let kind = |kind: &str| json!({ "type": kind });
    check("dashscope", "qwen3-max", "enable_thinking", json!(true), json!(false));
    check("zhipu", "glm-5", "thinking", kind("enabled"), kind("disabled"));
    check("minimax", "MiniMax-M2", "reasoning_split", json!(true), json!(true));
    check(
        "openrouter",
        "openai/gpt-4.1",
        "reasoning",
        json!({ "effort": "high" }),
        json!({ "effort": "none" }),
    );
    check("openai", "gpt-5", "reasoning_effort", json!("high"), json!("none"));
    check("mistral", "magistral-medium", "reasoning_effort", Value::Null, Value::Null);
}

#[test]
fn openrouter_requests() {
    let detail = |text: &str| json!({ "type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": text });
    let signed = json!({ "type": "reasoning.text", "index": 0, "signature": "s" });
    let other = json!({ "type": "reasoning.encrypted", "index": 1, "data": "d" });
    let merged = json!([{ "type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1", "text": "I must", "signature": "s" }, other]);
    let chunk = |delta: Value, more: Value| {
        let mut chunk =
            json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
        chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("data: {chunk}\n\n")
    };
    let none = || json!({});
    let call = json!([{ "index": 0, "id": "a", "type": "function", "function": { "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" } }]);
    let answer = crate::server::Response::events([
        ": OPENROUTER PROCESSING\n\n".to_owned(),
        chunk(json!({ "reasoning": "I ", "reasoning_details": [detail("I ")] }), none()),
        chunk(json!({ "reasoning": "must", "reasoning_details": [detail("must")] }), none()),
        chunk(json!({ "reasoning_details": [signed, other] }), none()),
        chunk(json!({ "tool_calls": call }), none()),
        chunk(
            none(),
            json!({ "usage": { "prompt_tokens": 5, "completion_tokens": 2, "cost": 0.25 } }),
        ),
        chunk(
            none(),
            json!({ "usage": { "prompt_tokens": 9, "completion_tokens": 3, "cost": 0.5 } }),
        ),
        "data: [DONE]\n\n".to_owned(),
    ]);
    for (model, marks) in [("anthropic/claude-sonnet-4.5", 2), ("openai/gpt-4.1", 0)] {
        let story = provider_story("openrouter", model)
            .allow_extra_keys(&["reasoning_details", "cache_control"]);
        let story = story.script([crate::server::sends(answer.clone()), says("ok")]);
        let run_result = story.run(["agent", "-m", "x", "--json"]);
        let result = run_result.json();
        // The second answer reports no cost: the table's price is added to the reported cost of the first one.
        assert!(result["cost_usd"].as_f64().unwrap() >= 0.5, "{result}");
        assert!(result["cost_usd"].as_f64().unwrap() < 0.6, "{result}");
        drop(run_result);
        let requests = story.requests();
        assert_eq!(requests[1].messages()[2]["reasoning_details"], merged);
        for request in &requests {
            assert_eq!(request.raw.matches("cache_control").count(), marks, "{model}");
        }
        assert!(requests[1].raw.starts_with(requests[0].raw.strip_suffix("]}").unwrap()));
    }
}

#[test]
fn gemini_thought_signatures_are_sent_back() {
    let call = |id: &str, sign: &str| {
        json!({ "id": id, "type": "function", "extra_content": { "google": { "thought_signature": sign } },
                                              "function": { "name": "read_file", "arguments": "{\"path\":\"a.txt\"}" } })
    };
    let mut third = call("c", "");
    third.as_object_mut().unwrap().shift_remove("extra_content");
    for flags in [&[][..], &["--no-stream"]] {
        // The second time their ids are in use.
        let list = json!([call("a", "first"), call("", "second"), third]);
        let signs = || {
            let message = json!({ "role": "assistant", "content": null, "tool_calls": list });
            replies(message, "tool_calls")
        };
        let story = provider_story("gemini", "gemini-3-pro")
            .allow_extra_keys(&["extra_content"])
            .script([signs(), says("ok"), signs(), says("more"), says("last")]);
        story.run([&["agent", "-m", "x"], flags].concat()).stdout("ok\n");
        story.run([&["agent", "-m", "x"], flags].concat()).stdout("more\n");
        story.run([&["agent", "-m", "x"], flags].concat()).stdout("last\n");
        for (number, request) in story.requests().iter().enumerate() {
            let messages = request.messages();
            let calls = messages.iter().filter_map(|message| message["tool_calls"].as_array());
            let calls: Vec<&Value> = calls.flatten().collect();
            assert_eq!(calls.len(), [0, 3, 3, 6, 6][number]);
            for (index, call) in calls.into_iter().enumerate() {
                let sign = &call["extra_content"]["google"]["thought_signature"];
                let expect = [json!("first"), json!("second"), Value::Null];
                assert_eq!(*sign, expect[index % 3]);
            }
        }
    }
}

#[test]
fn minimax_reasoning_is_split() {
    let details = json!([{ "type": "reasoning.text", "id": "r", "format": "MiniMax-response-v1", "index": 0, "text": "hm" }]);
    let story = provider_story("minimax", "MiniMax-M2")
        .allow_extra_keys(&["reasoning_split", "reasoning_details"])
        .script([calls_read_file(&["a"], &json!({ "reasoning_details": details })), says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert_eq!(story.requests()[1].messages()[2]["reasoning_details"], details);
}

#[test]
fn openai_requests() {
    let request_of = |model: &str| {
        let story = Story::with_provider("openai", model).script([says("ok")]);
        story
            .run(["agent", "-m", "x", "--temperature", "0.7", "--max-tokens", "99"])
            .stdout("ok\n")
            .stderr(&match model {
                "gpt-4.1" => String::new(),
                model => format!("nanobot: `{model}` takes no temperature: 0.7 is not sent\n"),
            });
        story.requests()[0].clone()
    };
    let mini = request_of("o1-mini");
    assert_eq!(roles(&mini.messages()), ["user"]);
    let content = mini.last_content();
    assert!(content.starts_with("# nanobot") && content.contains("\n\nx\n\n[Runtime"), "{content}");
    for (model, temperature) in
        [("gpt-5", Value::Null), ("o3", Value::Null), ("gpt-4.1", json!(0.7))]
    {
        let request = request_of(model);
        assert_eq!(request.body["temperature"], temperature, "{model}");
        assert_eq!(
            (&request.body["max_completion_tokens"], &request.body["max_tokens"]),
            (&json!(99), &Value::Null)
        );
    }
}

#[test]
fn output_limits_are_set_per_model() {
    for (format, key) in [("chat", "max_tokens"), ("anthropic", "max_tokens")] {
        let story = Story::with_provider("custom", "gpt-4o")
            .set("providers.custom.apiType", json!(format))
            .script([says("ok")]);
        story.run(["agent", "-m", "x", "--max-tokens", "999999"]).stdout("ok\n");
        assert_eq!(story.requests()[0].body[key], 16_384);
    }
}

#[test]
fn invalid_tool_call_ids_are_rewritten() {
    let long = "x".repeat(100);
    let longer = "x".repeat(101);
    for format in ["chat", "anthropic", "responses"] {
        let story =
            provider_story("custom", "scripted").set("providers.custom.apiType", json!(format));
        let list = ["", long.as_str(), longer.as_str(), "functions.read:0|a", "same", "same"];
        let story = story.script([
            calls_read_file(&list, &json!({})),
            says("ok"),
            calls_all([("read_file", json!({ "path": "a.txt" }))]),
            says("more"),
        ]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        story.run(["agent", "-m", "x"]).stdout("more\n");
        for request in [&story.requests()[1], &story.requests()[3]] {
            let mut called = Vec::new();
            let mut result_ids = Vec::new();
            collect_ids(&request.body, &mut called, &mut result_ids);
            assert_eq!(called, result_ids, "{format}");
            let fits = |id: &String| {
                (1..=64).contains(&id.len())
                    && id
                        .chars()
                        .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
            };
            assert!(called.iter().all(fits), "{called:?}");
            let number = called.len();
            called.sort();
            called.dedup();
            assert_eq!(called.len(), number, "{called:?}");
        }
    }
}

#[test]
fn calls_with_the_same_id_get_unique_ids() {
    for format in ["chat", "anthropic", "responses"] {
        let story =
            provider_story("custom", "scripted").set("providers.custom.apiType", json!(format));
        let read = || calls_read_file(&["call_0", "call_1"], &json!({}));
        let story = story.script([read(), read(), says("ok"), read(), says("more")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        story.run(["agent", "-m", "x"]).stdout("more\n");
        let mut before = String::new();
        for (number, request) in story.requests().iter().enumerate() {
            let (mut called, mut result_ids) = (Vec::new(), Vec::new());
            collect_ids(&request.body, &mut called, &mut result_ids);
            assert_eq!(called, result_ids, "{format}");
            assert_eq!(called.len(), [0, 2, 4, 4, 6][number], "{format}");
            called.sort();
            called.dedup();
            assert_eq!(called.len(), result_ids.len(), "{format}: {result_ids:?}");
            let open = before.strip_suffix("]}").unwrap_or_default();
            let is_same = format == "anthropic" || request.raw.starts_with(open);
            assert!(is_same, "{format}, {number}:\n{before}\n{}", request.raw);
            before.clone_from(&request.raw);
        }
    }
}

/// The ids of calls and of results, in any format.
fn collect_ids(value: &Value, called: &mut Vec<String>, result_ids: &mut Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match value["type"].as_str() {
        Some("tool_use" | "function") if value["id"].is_string() => called.push(text(&value["id"])),
        Some("function_call") => called.push(text(&value["call_id"])),
        Some("tool_result") => result_ids.push(text(&value["tool_use_id"])),
        Some("function_call_output") => result_ids.push(text(&value["call_id"])),
        _ if value["role"] == "tool" => result_ids.push(text(&value["tool_call_id"])),
        _ => {}
    }
    let inner: Vec<&Value> = match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(object) => object.values().collect(),
        _ => Vec::new(),
    };
    for value in inner {
        collect_ids(value, called, result_ids);
    }
}
