//! Features specific to the Anthropic format: signed thinking and prompt cache prices.

use crate::formats::{Format, typed_events};
use crate::server::{Ending, Responder, Response, says, sends};
use crate::story::Story;
use serde_json::{Value, json};

/// A story with an Anthropic model on the scripted server. The vendor's types omit the temperature of older models.
fn claude_story(model: &str) -> Story {
    Story::with_provider("anthropic", model).allow_extra_keys(&["temperature"])
}

fn message_start(usage: &Value) -> Value {
    json!({ "type": "message_start", "message": { "type": "message", "model": "claude", "content": [], "usage": usage } })
}

/// The events of one content block.
fn block_events(index: usize, head: &Value, deltas: &[Value]) -> Vec<Value> {
    let delta =
        |delta: &Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let mut list =
        vec![json!({ "type": "content_block_start", "index": index, "content_block": head })];
    list.extend(deltas.iter().map(delta));
    list.push(json!({ "type": "content_block_stop", "index": index }));
    list
}

fn message_end(reason: &str, usage: &Value) -> [Value; 2] {
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    [
        json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        json!({ "type": "message_stop" }),
    ]
}

/// A reply with these content blocks, streamed or not as the request asks.
fn replies_with_blocks(content: &[Value]) -> Responder {
    let content = content.to_vec();
    Box::new(move |request| {
        let usage = json!({ "input_tokens": 1, "output_tokens": 2 });
        if request.body["stream"] != json!(true) {
            let answer = json!({ "type": "message", "role": "assistant", "model": "claude", "content": content,
                                 "stop_reason": "tool_use", "usage": usage });
            return Response::json(200, &answer);
        }
        let mut list = vec![message_start(&usage)];
        for (index, whole) in content.iter().enumerate() {
            let mut head = whole.clone();
            let deltas = match whole["type"].as_str() {
                Some("thinking") => {
                    head["thinking"] = "".into();
                    head["signature"] = "".into();
                    vec![
                        json!({ "type": "thinking_delta", "thinking": whole["thinking"] }),
                        json!({ "type": "signature_delta", "signature": whole["signature"] }),
                    ]
                }
                Some("text") => {
                    head["text"] = "".into();
                    vec![json!({ "type": "text_delta", "text": whole["text"] })]
                }
                Some("tool_use") => {
                    head["input"] = json!({});
                    vec![
                        json!({ "type": "input_json_delta", "partial_json": whole["input"].to_string() }),
                    ]
                }
                _ => Vec::new(),
            };
            list.extend(block_events(index, &head, &deltas));
        }
        list.extend(message_end("tool_use", &usage));
        typed_events(&list)
    })
}

#[test]
fn thinking_is_sent_back_unchanged() {
    let thought =
        |text: &str| json!({ "type": "thinking", "thinking": text, "signature": "c2lnbmVk" });
    let read = |id: &str| json!({ "type": "tool_use", "id": id, "name": "read_file", "input": { "path": "a.txt" } });
    let content = [
        thought("First this."),
        json!({ "type": "redacted_thinking", "data": "ZGF0YQ" }),
        json!({ "type": "text", "text": "I look. " }),
        read("toolu_1"),
        thought("Then that."),
        read("toolu_2"),
    ];
    for (model, thinking) in [
        ("claude-sonnet-4-5", json!({ "type": "enabled", "budget_tokens": 16384 })),
        ("claude-opus-4-7", json!({ "type": "adaptive" })),
    ] {
        for flags in [&[][..], &["--no-stream"]] {
            let story = claude_story(model).file("a.txt", "alpha").script([
                replies_with_blocks(&content),
                says("Done."),
                says("More."),
                says("Other."),
            ]);
            let run = |more: &[&str]| {
                let result = story.run(
                    [&["agent", "-m", "x", "--reasoning-effort", "high"], more, flags].concat(),
                );
                result.text()
            };
            assert!(run(&[]).ends_with("Done.\n"));
            assert_eq!(run(&[]), "More.\n");
            assert_eq!(run(&["--model", "claude-haiku-4-5"]), "Other.\n");
            let requests = story.requests();
            for request in &requests[..3] {
                assert_eq!(request.body["thinking"], thinking, "{model} {flags:?}");
                assert!(request.body["temperature"].is_null());
            }
            for request in &requests[1..3] {
                assert_eq!(request.messages()[1]["content"], json!(content), "{model} {flags:?}");
            }
            let kinds: Vec<Value> = requests[3].messages()[1]["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(|block| block["type"].clone())
                .collect();
            assert_eq!(kinds, ["text", "tool_use", "tool_use"]);
        }
    }
}

#[test]
fn a_temperature_is_sent_to_the_models_that_take_it() {
    let request_of = |model: &str, flags: &[&str], notice: &str| {
        let story = claude_story(model).script([says("Done.")]);
        let result = story.run([&["agent", "-m", "x"], flags].concat());
        result.stdout("Done.\n").stderr(notice);
        story.requests()[0].body["temperature"].clone()
    };
    let warm = ["--temperature", "0.7"];
    for model in ["claude-haiku-4-5", "claude-opus-4-6", "claude-sonnet-4-6"] {
        assert_eq!(request_of(model, &warm, ""), json!(0.7), "{model}");
        assert_eq!(request_of(model, &[], ""), json!(0.1), "{model}");
        assert_eq!(request_of(model, &["--temperature", "1.5"], ""), json!(1.0));
        let notice =
            format!("nanobot: `{model}` takes no temperature while it thinks: 0.7 is not sent\n");
        let thinking = [&warm[..], &["--reasoning-effort", "high"]].concat();
        assert_eq!(request_of(model, &thinking, &notice), Value::Null);
    }
    for model in ["claude-opus-4-7", "claude-sonnet-5", "claude-haiku-5-5"] {
        let notice = format!("nanobot: `{model}` takes no temperature: 0.7 is not sent\n");
        assert_eq!(request_of(model, &warm, &notice), Value::Null, "{model}");
        // The default is not worth a notice.
        assert_eq!(request_of(model, &[], ""), Value::Null, "{model}");
    }
}

#[test]
fn a_turn_with_a_reply_without_thinking_keeps_thinking_enabled() {
    let read = |id: &str| json!({ "type": "tool_use", "id": id, "name": "read_file", "input": { "path": "a.txt" } });
    let thought = json!({ "type": "thinking", "thinking": "Hm.", "signature": "s" });
    for (model, first) in [
        ("claude-sonnet-4-5", vec![thought, read("toolu_1")]),
        ("claude-opus-4-7", vec![read("toolu_1")]),
    ] {
        let story = claude_story(model).file("a.txt", "alpha").script([
            replies_with_blocks(&first),
            replies_with_blocks(&[read("toolu_2")]),
            says("Done."),
        ]);
        story.run(["agent", "-m", "x", "--reasoning-effort", "low"]).stdout("Done.\n");
        let requests = story.requests();
        let thinking = |at: usize| &requests[at].body["thinking"];
        assert!(thinking(0) == thinking(1) && thinking(1) == thinking(2));
        assert!(requests.iter().all(|request| request.body["thinking"].is_object()), "{model}");
    }
}

#[test]
fn unsigned_thinking_is_sent_back_only_to_other_vendors() {
    let thought = json!({ "type": "thinking", "thinking": "Hm.", "signature": "" });
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "read_file", "input": { "path": "a.txt" } });
    let both = [thought, call];
    for (provider, model, expect) in
        [("anthropic", "claude-opus-4-7", &both[1..]), ("kimiCoding", "kimi-for-coding", &both[..])]
    {
        let story = Story::with_provider(provider, model)
            .file("a.txt", "alpha")
            .script([replies_with_blocks(&both), says("Done.")]);
        story.run(["agent", "-m", "x", "--reasoning-effort", "low"]).stdout("Done.\n");
        let request = &story.requests()[1];
        assert_eq!(request.messages()[1]["content"], json!(expect), "{model}");
        assert!(request.body["thinking"].is_object());
    }
}

#[test]
fn errors_within_a_stream() {
    let error =
        |kind: &str| json!({ "type": "error", "error": { "type": kind, "message": "Not now." } });
    let begun = || {
        vec![
            message_start(&json!({ "input_tokens": 1, "output_tokens": 1 })),
            json!({ "type": "ping" }),
        ]
    };
    let story = claude_story("claude-opus-4-7").script([
        sends(typed_events(&[begun(), vec![error("overloaded_error")]].concat())),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x", "-v"]).stdout("ok\n").stderr_has("Not now.");
    let half = block_events(0, &json!({ "type": "text", "text": "half" }), &[]);
    for (ending, message) in
        [(vec![error("api_error")], "Not now."), (Vec::new(), "sent an incomplete response")]
    {
        let answer =
            typed_events(&[begun(), half.clone(), ending].concat()).ending(Ending::Disconnect);
        let story = claude_story("claude-opus-4-7").script((0..4).map(|_| sends(answer.clone())));
        story.run(["agent", "-m", "x"]).status(69).stderr_has(message);
    }
}

#[test]
fn cache_reads_and_writes_are_counted() {
    let first = json!({ "input_tokens": 100, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10, "output_tokens": 1 });
    let late = json!({ "input_tokens": 0, "output_tokens": 0 });
    let text = || block_events(0, &json!({ "type": "text", "text": "ok" }), &[]);
    let events = |first: &Value, last: Value| {
        typed_events(
            &[vec![message_start(first)], text(), message_end("end_turn", &last).into()].concat(),
        )
    };
    for (answer, input, cached) in [
        (events(&first, json!({ "output_tokens": 50 })), 1110, 1000),
        // LiteLLM's proxy reports it only at the end.
        (events(&late, json!({ "input_tokens": 1110, "output_tokens": 50 })), 1110, 0),
    ] {
        let story = claude_story("claude-sonnet-4-5").script([sends(answer)]);
        let result = story.run(["agent", "-m", "x", "--json"]);
        let usage = &result.json()["usage"];
        assert_eq!(
            (&usage["input"], &usage["cached"], &usage["output"]),
            (&json!(input), &json!(cached), &json!(50))
        );
    }
}

#[test]
fn request_urls_and_headers() {
    let story = Story::in_format(Format::Anthropic, "scripted").script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let request = &story.requests()[0];
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(
        (request.header("x-api-key"), request.header("authorization")),
        (Some("key-of-the-story"), None)
    );
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    // A header set by the user replaces ours.
    let story = story
        .set("providers.custom.extraHeaders", json!({ "Anthropic-Version": "2099-01-01" }))
        .script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let request = &story.requests()[1];
    let versions = request.headers.iter().filter(|(name, _)| name == "anthropic-version");
    assert_eq!(versions.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["2099-01-01"]);
}
