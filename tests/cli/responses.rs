//! Features specific to OpenAI's responses: encrypted reasoning, and items that are sent more than once.

use crate::formats::{Format, typed_events};
use crate::server::{Ending, Responder, Response, says, sends};
use crate::story::Story;
use serde_json::{Value, json};

fn responses_story(model: &str) -> Story {
    Story::in_format(Format::Responses, model)
}

fn response(status: &str, output: &[Value]) -> Value {
    json!({ "object": "response", "model": "gpt", "status": status, "error": null, "output": output,
            "usage": { "input_tokens": 9, "output_tokens": 2 } })
}

fn event(kind: &str, index: usize, more: &Value) -> Value {
    let mut event = json!({ "type": format!("response.{kind}"), "output_index": index });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

fn completed(output: &[Value]) -> Value {
    json!({ "type": "response.completed", "response": response("completed", output) })
}

/// A reply with these items, streamed or not as the request asks.
fn replies_with_items(output: &[Value]) -> Responder {
    let output = output.to_vec();
    Box::new(move |request| {
        if request.body["stream"] != json!(true) {
            return Response::json(200, &response("completed", &output));
        }
        let mut list = Vec::new();
        for (index, item) in output.iter().enumerate() {
            let mut open = item.clone();
            for key in ["encrypted_content", "content", "arguments", "summary"] {
                open.as_object_mut().unwrap().shift_remove(key);
            }
            list.push(event("output_item.added", index, &json!({ "item": open })));
            list.push(event("output_item.done", index, &json!({ "item": item })));
        }
        list.push(completed(&output));
        typed_events(&list)
    })
}

fn function_call(number: usize) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{number}"), "call_id": format!("call_{number}"), "name": "read_file",
            "arguments": "{\"path\":\"a.txt\"}", "status": "completed" })
}

fn output_message(phrase: &str, phase: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": phrase, "annotations": [] }]);
    json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": phase, "content": content })
}

#[test]
fn reasoning_is_sent_back_unchanged() {
    let thought = |id: &str| {
        json!({ "type": "reasoning", "id": id, "summary": [{ "type": "summary_text", "text": "Hm." }],
                                     "encrypted_content": "c2VjcmV0", "status": "completed" })
    };
    let output = [
        thought("rs_1"),
        output_message("I look.", "commentary"),
        function_call(1),
        thought("rs_2"),
        function_call(2),
    ];
    for flags in [&[][..], &["--no-stream"]] {
        let story = responses_story("gpt-5").file("a.txt", "alpha").script([
            replies_with_items(&output),
            replies_with_items(&[thought("rs_3"), output_message("Done.", "final_answer")]),
            says("More."),
            says("Other."),
        ]);
        let run = |more: &[&str]| {
            story
                .run([&["agent", "-m", "x", "--reasoning-effort", "high"], more, flags].concat())
                .text()
        };
        assert_eq!(run(&[]), "Done.\n");
        assert_eq!(run(&[]), "More.\n");
        assert_eq!(run(&["--model", "gpt-6"]), "Other.\n");
        let requests = story.requests();
        let without_status = |id: &str| {
            let mut item = thought(id);
            item.as_object_mut().unwrap().shift_remove("status");
            item
        };
        let call = |number: usize| {
            json!({ "type": "function_call", "call_id": format!("call_{number}"), "name": "read_file",
                                           "arguments": "{\"path\":\"a.txt\"}" })
        };
        let aside = json!({ "type": "message", "phase": "commentary", "role": "assistant", "content": "I look." });
        let expect = [without_status("rs_1"), aside, call(1), without_status("rs_2"), call(2)];
        for request in &requests[1..3] {
            assert_eq!(request.messages()[1..6], expect, "{flags:?}");
        }
        let answer = json!({ "type": "message", "role": "assistant", "content": "Done.", "phase": "final_answer" });
        assert_eq!(requests[2].messages()[8..10], [without_status("rs_3"), answer]);
        for request in &requests {
            let body = &request.body;
            assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
            assert_eq!(
                (&body["store"], &body["reasoning"]),
                (&json!(false), &json!({ "effort": "high" }))
            );
            assert!(body["temperature"].is_null());
        }
        assert!(
            !requests[3].raw.contains("rs_") && requests[3].raw.contains("Done."),
            "another model is not told"
        );
    }
}

#[test]
fn events_that_only_carry_ids() {
    // As sent by LiteLLM.
    let strip = |mut event: Value, id: &str| {
        event.as_object_mut().unwrap().shift_remove("output_index");
        event["item_id"] = id.into();
        event
    };
    let mut open = function_call(1);
    open["arguments"] = "".into();
    let list = [
        strip(event("output_item.added", 0, &json!({ "item": open })), "fc_1"),
        strip(event("function_call_arguments.delta", 0, &json!({ "delta": "{\"path\":" })), "fc_1"),
        strip(event("output_item.added", 0, &json!({ "item": function_call(2) })), "fc_2"),
        strip(event("function_call_arguments.delta", 0, &json!({ "delta": "\"a.txt\"}" })), "fc_1"),
    ];
    for last in [completed(&[]), completed(&[function_call(1), function_call(2)])] {
        let calls = [&list[..], &[last]].concat();
        let text = |phrase: &str| {
            strip(event("output_text.delta", 0, &json!({ "delta": phrase })), "msg_1")
        };
        let events = [text("It says "), text("alpha."), completed(&[])];
        let story = responses_story("scripted")
            .file("a.txt", "alpha")
            .script([sends(typed_events(&calls)), sends(typed_events(&events))]);
        story.run(["agent", "-m", "x"]).stdout("It says alpha.\n");
        let results = story.requests()[1].messages();
        let results: Vec<&Value> =
            results.iter().filter(|item| item["type"] == "function_call_output").collect();
        assert_eq!(results.len(), 2);
        assert!(
            results.iter().all(|item| item["output"].to_string().contains("alpha")),
            "{results:?}"
        );
    }
}

#[test]
fn failures_within_a_stream_are_reported() {
    let failed = |code: &str| {
        let mut failed = response("failed", &[]);
        failed["error"] = json!({ "code": code, "message": "Not now." });
        json!({ "type": "response.failed", "response": failed })
    };
    let created = json!({ "type": "response.created", "response": response("in_progress", &[]) });
    let story_of = |list: &[Value], tries: usize| {
        let answer = typed_events(list);
        responses_story("scripted").script((0..tries).map(|_| sends(answer.clone())))
    };
    for (code, tries, status) in [
        ("server_error", 4, 69),
        ("rate_limit_exceeded", 4, 75),
        ("context_length_exceeded", 1, 65),
        ("invalid_prompt", 1, 1),
        ("insufficient_quota", 1, 77),
    ] {
        let story = story_of(&[created.clone(), failed(code)], tries);
        story.run(["agent", "-m", "x"]).status(status).stderr_has("Not now.");
        let error = json!({ "type": "error", "code": code, "message": "Not now.", "param": null, "sequence_number": 1 });
        let story = story_of(&[created.clone(), error], tries);
        story.run(["agent", "-m", "x"]).status(status).stderr_has("Not now.");
    }
    let half = event("output_text.delta", 0, &json!({ "delta": "half" }));
    let answer = typed_events(&[created, half]).ending(Ending::Disconnect);
    let story = responses_story("scripted").script((0..4).map(|_| sends(answer.clone())));
    story.run(["agent", "-m", "x"]).status(69).stderr_has("sent an incomplete response");
}

#[test]
fn output_limits_are_set_per_model() {
    let story = responses_story("gpt-4.1").script([says("ok"), says("ok")]);
    story.run(["agent", "-m", "x", "--max-tokens", "999999"]).stdout("ok\n");
    story.run(["agent", "-m", "x", "--max-tokens", "1"]).stdout("ok\n");
    let requests = story.requests();
    assert_eq!(
        (&requests[0].body["max_output_tokens"], &requests[1].body["max_output_tokens"]),
        (&json!(32768), &json!(16))
    );
    assert!(requests[0].body["include"].is_null(), "it does not reason");
}
