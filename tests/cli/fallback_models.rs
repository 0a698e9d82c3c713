//! Fallback models, presets, and rate limits shared between runs.

use crate::server::{Response, calls, fails, says, sends};
use crate::story::Story;
use serde_json::{Value, json};

fn with_fallback(story: Story, fallback: Value) -> Story {
    story.set("agents.defaults.fallbackModels", fallback)
}

fn other_model() -> Value {
    json!([{ "model": "other", "provider": "custom" }])
}

#[test]
fn errors_of_one_model_use_the_fallback() {
    for (status, message) in
        [(404, "no such model"), (401, "bad key"), (402, "insufficient credit")]
    {
        let story =
            with_fallback(Story::new(), other_model()).script([fails(status, message), says("x")]);
        story
            .run(["agent", "-m", "hi"])
            .stdout("x\n")
            .stderr_has("falling back from `scripted` to `other`");
        let models: Vec<Value> =
            story.requests().iter().map(|request| request.body["model"].clone()).collect();
        assert_eq!(models, ["scripted", "other"]);
    }
    // Server errors are retried for a while first.
    let story = with_fallback(Story::new(), other_model());
    story.server().always(fails(503, "down"));
    let result = story.run(["agent", "-m", "hi"]).status(69);
    assert!(result.error_text().contains("falling back from `scripted` to `other`"));
    assert_eq!(story.requests().len(), 8);
}

#[test]
fn errors_of_the_request_do_not_use_the_fallback() {
    let story = with_fallback(Story::new(), other_model()).script([fails(400, "bad parameter")]);
    story.run(["agent", "-m", "hi"]).status(1).stderr_has("bad parameter");
    assert_eq!(story.requests().len(), 1);
}

#[test]
fn a_stream_that_keeps_breaking_uses_the_fallback_if_nothing_was_shown() {
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\ndata: {\"error\": {\"message\": \"broke\"}}\n\n";
    let breaks = || sends(Response::events([half]));
    let story = with_fallback(Story::new(), other_model())
        .script((0..4).map(|_| breaks()).chain([says("whole")]));
    story
        .run(["agent", "-m", "hi"])
        .stdout("whole\n")
        .stderr_has("falling back from `scripted` to `other`");
    // A text that was passed on cannot be taken back.
    let story = with_fallback(Story::new(), other_model()).script([breaks()]);
    drop(
        story
            .run(["agent", "-m", "hi", "--output-format", "stream-json"])
            .status(69)
            .stderr_has("broke")
            .text(),
    );
}

#[test]
fn a_model_that_stays_empty_uses_the_fallback() {
    let empty = || says("");
    let story = with_fallback(Story::new(), other_model()).script([
        empty(),
        empty(),
        empty(),
        says("x"),
        says("y"),
    ]);
    let run_result = story.run(["agent", "-m", "hi", "--json"]);
    assert!(
        run_result.error_text().contains("an empty reply; falling back from `scripted` to `other`")
    );
    let result = run_result.json();
    // All requests are paid for.
    assert_eq!((&result["text"], &result["usage"]["output"]), (&json!("x"), &json!(28)));
    drop(run_result);
    story.run(["agent", "-m", "hi"]).stdout("y\n");
}

#[test]
fn a_fallback_is_used_for_the_rest_of_the_run() {
    let story = with_fallback(Story::new(), other_model()).script([
        fails(404, "gone"),
        calls("list_dir", json!({})),
        says("x"),
    ]);
    let result = story.run(["agent", "-m", "hi", "--json"]);
    assert!(result.error_text().contains("; falling back from `scripted` to `other`"));
    assert_eq!(result.json()["iterations"], 2);
    let models: Vec<Value> =
        story.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["scripted", "other", "other"]);
}

#[test]
fn a_too_long_request_falls_back_only_to_a_larger_context_window() {
    let windows = json!({ "scripted": { "contextWindowTokens": 1000 }, "other": { "contextWindowTokens": 9000 },
                          "small": { "contextWindowTokens": 500 } });
    let too_long = || fails(400, "maximum context length exceeded");
    let story = with_fallback(Story::new(), other_model())
        .set("models", windows.clone())
        .script([too_long(), says("x")]);
    story
        .run(["agent", "-m", "hi"])
        .stdout("x\n")
        .stderr_has("; falling back from `scripted` to `other`");
    let small = json!([{ "model": "small", "provider": "custom" }]);
    let story = with_fallback(Story::new(), small).set("models", windows).script([too_long()]);
    story.run(["agent", "-m", "hi"]).status(65).stderr_has("context length");
}

#[test]
fn long_results_are_shortened_if_the_request_is_too_long() {
    let long = "word ".repeat(10).trim_end().to_owned() + "\n";
    let long = long.repeat(300);
    let story = Story::new().file("long.txt", &long).script([
        calls("read_file", json!({ "path": "long.txt" })),
        fails(400, "maximum context length exceeded"),
        says("read"),
    ]);
    story.run(["agent", "-m", "hi"]).stdout("read\n").stderr_has("are truncated");
    let requests = story.requests();
    assert!(
        requests[1].raw.len() > 15_000 && requests[2].raw.len() < requests[1].raw.len() - 12_000
    );
    assert!(requests[2].last_content().contains("characters omitted"));
    // The session stores it completely.
    let lines = story.session("cli_direct.jsonl");
    let stored_line = lines.iter().find(|line| line["role"] == "tool").unwrap();
    assert!(stored_line["content"].as_str().unwrap().len() > 14_000);
    // Only once: a request that is still too long fails.
    let story = Story::new().script([fails(400, "maximum context length exceeded")]);
    story.run(["agent", "-m", "hi"]).status(65).stderr_has("context length");
}

#[test]
fn presets_and_model_names() {
    let presets = json!({ "fast": "quick-model", "deep": { "model": "deep-model", "provider": "custom", "maxTokens": 99,
                          "reasoning_effort": "high", "extraBody": { "top_k": 5 }, "fallbacks": ["fast"] } });
    let story =
        Story::new().set("modelPresets", presets).set("agents.defaults.provider", json!("auto"));
    let body = |model: &str, more: &[&str]| {
        let mut arguments = vec!["agent", "-m", "hi", "--dry-run", "--model", model];
        arguments.extend(more);
        story.run(arguments).json()
    };
    assert_eq!(body("fast", &[])["model"], "quick-model");
    let deep = body("deep", &[]);
    assert_eq!(
        (&deep["model"], &deep["max_tokens"], &deep["reasoning_effort"]),
        (&json!("deep-model"), &json!(99), &json!("high"))
    );
    assert_eq!((&deep["top_k"], &body("fast", &[])["top_k"]), (&json!(5), &Value::Null));
    assert_eq!(body("deep", &["--max-tokens", "7"])["max_tokens"], 7);
    assert_eq!(body("other", &[])["model"], "other");
    let story = story
        .set("agents.defaults.modelPreset", json!("deep"))
        .script([fails(404, "gone"), says("x")])
        .allow_extra_keys(&["top_k"]);
    story
        .run(["agent", "-m", "hi"])
        .stdout("x\n")
        .stderr_has("falling back from `deep-model` to `quick-model`");
    let story = story.set("agents.defaults.modelPreset", json!("none"));
    story.run(["agent", "-m", "hi"]).status(78).stderr_has("there is no such preset");
}

#[test]
fn a_preset_uses_no_other_provider_than_the_configured_one() {
    let presets = json!({ "alias": "big-model", "big": { "model": "big-model" }, "auto": { "model": "custom/big-model", "provider": "auto" },
                          "other": { "model": "big-model", "provider": "custom" } });
    let story =
        Story::new().set("modelPresets", presets).set("agents.defaults.provider", json!("openai"));
    for preset in ["alias", "big", "auto"] {
        story
            .run(["agent", "-m", "hi", "--model", preset])
            .status(78)
            .stderr_has("no API key for provider `openai`");
    }
    assert!(story.requests().is_empty());
    // A provider that the preset names was chosen by the user.
    story.server().script([says("x")]);
    story.run(["agent", "-m", "hi", "--model", "other"]).stdout("x\n");
    // A fallback is skipped rather than sent to another provider.
    let story = Story::with_provider("vllm", "first")
        .set("agents.defaults.fallbackModels", json!(["openai/gpt-5"]))
        .env("OPENAI_API_KEY", "key-of-the-story")
        .script([fails(404, "gone"), says("y")]);
    story
        .run(["agent", "-m", "hi"])
        .stdout("y\n")
        .stderr_has("falling back from `first` to `openai/gpt-5`");
    assert_eq!(story.requests().len(), 2);
}

#[test]
fn a_rate_limit_is_shared_with_other_runs() {
    let busy = || {
        sends(
            Response::json(429, &json!({ "error": { "message": "slow down" } }))
                .header("retry-after", "120"),
        )
    };
    let story = Story::new().script([busy()]);
    story.run(["agent", "-m", "hi"]).status(75).stderr_has("slow down");
    // Another run sends no request meanwhile.
    story
        .run(["agent", "-m", "hi", "-s", "other"])
        .status(75)
        .stderr_has("is rate-limited until 2026-01-02T03:06:05Z, as reported to another run");
    assert_eq!(story.requests().len(), 1);
    // Another model is not affected.
    story.server().script([says("x")]);
    story
        .run(["agent", "-m", "hello", "--model", "other"])
        .stdout("x\n")
        .stderr_has("marked as interrupted");
    // After the rate limit, requests are sent again.
    story.server().script([says("y")]);
    let mut later = story.command(["agent", "-m", "hi", "-s", "third"]);
    later.env("NANOBOT_TEST_TIME", "2026-01-02T03:06:06Z");
    story.wait(later.spawn().unwrap()).stdout("y\n");
    // A short rate limit is waited for, and the request is repeated.
    let short = sends(
        Response::json(429, &json!({ "error": { "message": "slow down" } }))
            .header("retry-after", "5"),
    );
    let story = Story::new().script([short, says("x"), says("y")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    story.run(["agent", "-m", "hi"]).stdout("y\n");
    assert_eq!(story.requests().len(), 3);
}

#[test]
fn a_rate_limit_worded_as_quota_is_waited_for() {
    let message = "You exceeded your current quota, please check your plan and billing details. Please retry in 5.5s.";
    let story = Story::new().script([fails(429, message), says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n");
    // Without a time it is a quota error.
    let story = Story::new().script([fails(429, "You exceeded your current quota.")]);
    story.run(["agent", "-m", "hi"]).status(77).stderr_has("quota");
}

#[test]
fn missing_credentials_use_the_fallback() {
    let story = with_fallback(Story::new(), other_model())
        .set("agents.defaults.provider", json!("openaiCodex"))
        .script([says("x")]);
    story.run(["agent", "-m", "hi"]).stdout("x\n").stderr_has("not logged in");
    // A fallback without a key is skipped.
    let nowhere = json!([{ "model": "m", "provider": "openai" }]);
    let story = with_fallback(Story::new(), nowhere).script([says("x")]);
    story
        .run(["agent", "-m", "hi"])
        .stdout("x\n")
        .stderr_has("fallback `m` is unavailable: no API key for provider `openai`");
}

#[test]
fn an_address_is_shown_without_its_password() {
    let story = Story::new();
    let base = format!("http://u:hidden-password@127.0.0.1:{}/v1", story.server().port);
    let story = story
        .set("providers.custom.apiBase", json!(base))
        .set("providers.custom.extraQuery", json!({ "key": "hidden-key" }))
        .script([fails(400, "no")]);
    let stderr = story.run(["agent", "-m", "hi"]).status(1).error_text();
    assert!(stderr.contains("***@127.0.0.1") && !stderr.contains("hidden"), "{stderr}");
    let curl = story.run(["agent", "-m", "hi", "--dry-run=curl"]).text();
    assert!(!curl.contains("hidden-"), "{curl}");
}
