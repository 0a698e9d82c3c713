//! Replies that their server did not complete: half an answer is never an answer, in any wire format.

use crate::cron_run::{JOB_ID, every_minute, outcomes, python_job, stored_job, write_jobs};
use crate::formats::ALL_FORMATS;
use crate::server::{Responder, Response, replies, says, sends};
use crate::story::Story;
use serde_json::{Value, json};

fn half(finish: &str) -> Responder {
    replies(json!({ "role": "assistant", "content": "Half of" }), finish)
}

/// A complete call that would write a file, in a reply with this finish reason.
fn half_with_call(finish: &str) -> Responder {
    let arguments = json!({ "path": "made.txt", "content": "x" }).to_string();
    let function = json!({ "name": "write_file", "arguments": arguments });
    let calls = json!([{ "id": "call_1", "type": "function", "function": function }]);
    let message = json!({ "role": "assistant", "content": "I write.", "tool_calls": calls });
    replies(message, finish)
}

fn with_fallback(story: Story) -> Story {
    let other = json!([{ "model": "other", "provider": "custom" }]);
    story.set("agents.defaults.fallbackModels", other)
}

fn models(story: &Story) -> Vec<Value> {
    story.requests().iter().map(|request| request.body["model"].clone()).collect()
}

#[test]
fn a_reply_that_the_server_broke_is_requested_again() {
    for format in ALL_FORMATS {
        for mode in [&[][..], &["--no-stream"]] {
            let arguments = || [&["agent", "-m", "x", "--write"], mode].concat();
            let story = Story::in_format(format, "scripted").script([
                half("network_error"),
                half("error"),
                says("Whole."),
            ]);
            story.run(arguments()).stdout("Whole.\n");
            let story = Story::in_format(format, "scripted");
            story.server().always(half("abort"));
            let result = story.run(arguments()).status(69);
            let stderr = result.error_text();
            assert!(
                stderr.contains("incomplete response: its finish reason is `abort`"),
                "{stderr}"
            );
            drop(result);
            assert_eq!(story.requests().len(), 4);
            // A complete call within it is not carried out.
            let story = Story::in_format(format, "scripted");
            story.server().always(half_with_call("insufficient_system_resource"));
            story.run(arguments()).status(69).stderr_has("insufficient_system_resource");
            assert!(!story.dir().join("made.txt").exists());
            assert_eq!(story.requests().len(), 4);
        }
    }
}

#[test]
fn a_reply_that_keeps_breaking_uses_the_fallback() {
    for finish in ["cancelled", "function_call_filter: MALFORMED_FUNCTION_CALL"] {
        let story = with_fallback(Story::new())
            .script((0..4).map(|_| half(finish)).chain([says("Whole.")]));
        story
            .run(["agent", "-m", "x"])
            .stdout("Whole.\n")
            .stderr_has("falling back from `scripted` to `other`");
        assert_eq!(models(&story), ["scripted", "scripted", "scripted", "scripted", "other"]);
    }
}

#[test]
fn a_broken_reply_that_was_shown_is_not_requested_again() {
    let story = Story::new().script([half("error")]);
    let result = story.run(["agent", "-m", "x", "--output-format", "stream-json"]).status(69);
    drop(result.stderr_has("its finish reason is `error`").text());
    let lines = story.session("cli_direct.jsonl");
    assert_eq!(lines[2]["content"], "Half of\n\n[interrupted]");
}

#[test]
fn an_error_in_a_choice_is_the_error_of_the_request() {
    let text = json!({ "choices": [{ "delta": { "content": "Half of" } }] });
    let error = json!({ "code": 502, "message": "the upstream is down" });
    let end = json!({ "choices": [{ "delta": { "content": "" }, "error": error, "finish_reason": "error" }] });
    let story = Story::new();
    let events = [format!("data: {text}\n\n"), format!("data: {end}\n\n")];
    story.server().always(sends(Response::events(events)));
    story.run(["agent", "-m", "x"]).status(69).stderr_has("the upstream is down (status 502)");
}

#[test]
fn an_unknown_finish_reason_is_reported() {
    for format in ALL_FORMATS {
        let story = Story::in_format(format, "scripted").script([half("odd")]);
        let run_result = story.run(["agent", "-m", "x"]).status(1).stdout("Half of\n");
        run_result
            .stderr_has("the answer may be incomplete: it has the unknown finish reason `odd`");
        let story = Story::in_format(format, "scripted").script([half("odd")]);
        let run_result = story.run(["agent", "-m", "x", "--json"]).status(1);
        let result = run_result.json();
        assert_eq!((&result["partial"], &result["text"]), (&json!(true), &json!("Half of")));
        drop(run_result.stderr_has("odd"));
        // The calls are complete, and the model goes on after them.
        let story =
            Story::in_format(format, "scripted").script([half_with_call("odd"), says("Done.")]);
        story
            .run(["agent", "-m", "x", "--write"])
            .stdout("Done.\n")
            .stderr_has("a reply with tool calls has the unknown finish reason `odd`");
        assert!(story.dir().join("made.txt").exists());
    }
    let arguments = ["agent", "-m", "x", "--schema", "n: integer"];
    let number = replies(json!({ "role": "assistant", "content": "{\"n\": 1}" }), "odd");
    Story::new().script([number]).run(arguments).status(1).stderr_has("`odd`");
}

#[test]
fn calls_that_a_filter_stopped_are_not_carried_out() {
    for format in ALL_FORMATS {
        for finish in ["sensitive", "SAFETY"] {
            let story = Story::in_format(format, "scripted").script([half_with_call(finish)]);
            story
                .run(["agent", "-m", "x", "--write"])
                .status(1)
                .stdout("I write.\n")
                .stderr_has("declined");
            assert!(!story.dir().join("made.txt").exists());
        }
        let story =
            Story::in_format(format, "scripted").script([half("MAX_TOKENS"), says(" it all.")]);
        story.run(["agent", "-m", "x"]).stdout("Half of it all.\n");
    }
}

#[test]
fn a_job_with_half_an_answer_has_failed() {
    for (finish, count, status) in [("error", 4, 69), ("odd", 1, 1)] {
        let story = Story::new().script((0..count).map(|_| half(finish)));
        write_jobs(&story, &[python_job(&every_minute())]);
        let result = story.run(["cron", "run", JOB_ID, "--scheduled"]).status(status);
        drop((result.text(), result.error_text()));
        drop(result);
        assert_eq!(outcomes(&story), ["failed"]);
        assert_eq!(stored_job(&story)["state"]["lastStatus"], "error");
    }
}
