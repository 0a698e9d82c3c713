//! The search of the model's provider (`native`): what it is sent, when it is left out, what it costs, and what its results may do.

use crate::budgets::with_price;
use crate::server::{Responder, Response, calls, fails, says, sends};
use crate::story::Story;
use crate::web::{PageServer, page_response, run_tool};
use serde_json::{Value, json};

/// A story whose model is at `provider`, with an address that ends in `path`.
fn story_at(provider: &str, path: &str, search: Value) -> Story {
    let story = with_price(Story::new());
    let base = format!("http://127.0.0.1:{}{path}", story.server().port);
    let settings = json!({ "apiKey": "key-of-the-provider", "apiBase": base });
    story
        .set(&format!("providers.{provider}"), settings)
        .set("agents.defaults.provider", json!(provider))
        .set("agents.defaults.model", json!("scripted"))
        .set("tools.web.search", search)
        .allow_extra_keys(&["plugins", "usage"])
}

fn native() -> Value {
    json!({ "provider": "native" })
}

/// The answer of OpenAI's search, with this summary.
fn openai_answer(summary: &str) -> Value {
    let citation = json!({ "type": "url_citation", "url": "https://a.example/x", "title": "T", "start_index": 0, "end_index": 1 });
    let content = json!([{ "type": "output_text", "text": summary, "annotations": [citation] }]);
    json!({ "object": "response", "status": "completed", "model": "scripted",
            "output": [{ "type": "web_search_call", "action": { "type": "search" } }, { "type": "message", "content": content }],
            "usage": { "input_tokens": 10, "output_tokens": 7 } })
}

fn answers(body: &Value) -> Responder {
    sends(Response::json(200, body))
}

fn search_call() -> Responder {
    calls("web_search", json!({ "query": "a b" }))
}

#[test]
fn each_provider_gets_the_query_alone_and_its_pages_are_listed() {
    let check = |provider: &str, base: &str, path: &str, answer: &Value, usd: f64| {
        let story = story_at(provider, base, native());
        let story = story.script([search_call(), answers(answer), says("ok")]);
        let result = story.run(["agent", "-m", "what the user told", "--json"]).json();
        let requests = story.requests();
        assert_eq!(requests.len(), 3, "{provider}");
        let search = &requests[1];
        assert_eq!(search.path, path);
        assert!(search.raw.contains("a b"), "{}", search.raw);
        assert!(!search.raw.contains("what the user told"), "{}", search.raw);
        let header = search.headers.iter().find(|(_, value)| value.contains("key-of-the-provider"));
        assert!(header.is_some(), "{provider}: {:?}", search.headers);
        let expect = r"<results>\nIt is so.\n\n1. T\n   https://a.example/x\n";
        let last = story.last_request().raw;
        assert!(last.contains(expect), "{provider}: {last}");
        let ledger = std::fs::read_to_string(story.home().join(".nanobot/usage.jsonl")).unwrap();
        let lines = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        assert_eq!(lines[1]["cause"], "search");
        let cost = |value: &Value| value.as_f64().unwrap();
        assert!((cost(&lines[1]["usd"]) - usd).abs() < 1e-6, "{provider}: {}", lines[1]);
        assert!((cost(&result["cost_usd"]) - usd - 2.0).abs() < 1e-6, "{provider}: {result}");
    };
    let answer = openai_answer("It is so.");
    check("openai", "/v1", "/v1/responses", &answer, 1.01);
    check("xai", "/v1", "/v1/responses", &answer, 1.005);
    let source = json!({ "type": "web_search_result", "url": "https://a.example/x", "title": "T" });
    let content = json!([{ "type": "web_search_tool_result", "content": [source] }, { "type": "text", "text": "It is so." }]);
    let usage = json!({ "input_tokens": 10, "output_tokens": 7, "server_tool_use": { "web_search_requests": 2 } });
    let answer =
        json!({ "type": "message", "model": "scripted", "content": content, "usage": usage });
    check("anthropic", "", "/v1/messages", &answer, 1.02);
    let source = json!({ "url": "https://a.example/x", "title": "T" });
    let message = json!({ "content": "It is so.", "annotations": [{ "type": "url_citation", "url_citation": source }] });
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 7, "cost": 0.25 });
    let answer =
        json!({ "model": "scripted", "choices": [{ "message": message }], "usage": usage });
    check("openrouter", "/v1", "/v1/chat/completions", &answer, 0.25);
    let chunks = json!([{ "web": { "uri": "https://a.example/x", "title": "T" } }]);
    let candidate = json!({ "content": { "parts": [{ "text": "It is so." }] },
                            "groundingMetadata": { "groundingChunks": chunks, "webSearchQueries": ["a"] } });
    let usage = json!({ "promptTokenCount": 10, "candidatesTokenCount": 7 });
    let answer = json!({ "candidates": [candidate], "usageMetadata": usage });
    let path = "/v1beta/models/scripted:generateContent";
    check("gemini", "/v1beta/openai", path, &answer, 1.035);
}

#[test]
fn after_content_from_outside_it_is_left_out_unless_always() {
    // The first results are such content.
    let script = || [search_call(), answers(&openai_answer("One.")), search_call()];
    let story = story_at("openai", "/v1", native()).script(script()).script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let results = story.last_request().tool_results();
    assert!(results[1].contains("the conversation contains untrusted content"), "{results:?}");
    assert_eq!(story.requests().len(), 4);
    let search = json!({ "provider": "native", "native": "always" });
    let story = story_at("openai", "/v1", search)
        .script(script())
        .script([answers(&openai_answer("Two.")), says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert!(story.last_request().tool_results()[1].contains("Two."));
}

#[test]
fn the_fallback_answers_where_it_is_left_out() {
    let pages = PageServer::start(|_| {
        let results = r#"{"results": [{"title": "Found", "url": "https://b.example/"}]}"#;
        page_response("application/json", results)
    });
    let check = |flags: &[&str], cause: &str| {
        let search = json!({ "provider": "native", "fallback": ["searxng"] });
        let story = story_at("openai", "/v1", search)
            .env("SEARXNG_BASE_URL", &pages.url(""))
            .script([search_call(), says("ok")]);
        story.run([&["agent", "-m", "x"], flags].concat()).stdout("ok\n").error_text();
        let results = story.last_request().tool_results();
        let expect = format!("(answered by SearXNG, because {cause}");
        assert!(results[0].contains("1. Found") && results[0].contains(&expect), "{results:?}");
        assert_eq!(story.requests().len(), 2);
    };
    check(&["--net=c.example"], "the provider's search cannot be held to the hosts of `--net`");
    let rule = "web_fetch(https://c.example*)";
    check(
        &["--deny", rule],
        "the provider's search cannot be held to the rules about the web tools",
    );
}

#[test]
fn offline_nothing_is_searched() {
    let story = story_at("openai", "/v1", native()).script([search_call(), says("ok")]);
    story.run(["agent", "-m", "x", "--offline"]).stdout("ok\n");
    let results = story.last_request().tool_results();
    assert!(results[0].contains("`--offline` leaves out the provider's search"), "{results:?}");
}

#[test]
fn an_address_that_its_model_composed_cannot_be_fetched() {
    let address = "https://evil.example/SECRET";
    let answer = openai_answer(&format!("See {address} for more."));
    let fetch = calls("web_fetch", json!({ "url": address }));
    let story = story_at("openai", "/v1", native())
        .env("NANOBOT_TEST_HOSTS", "evil.example=10.0.0.1")
        .script([search_call(), answers(&answer), fetch, says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n").error_text();
    let results = story.last_request().tool_results();
    assert!(
        results[1].contains("`evil.example` may be requested only at addresses"),
        "{results:?}"
    );
}

#[test]
fn a_search_that_fails_is_told_and_one_that_costs_too_much_ends_the_run() {
    let story = story_at("openai", "/v1", native()).script([
        search_call(),
        fails(401, "wrong key"),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let results = story.last_request().tool_results();
    assert!(results[0].contains("the provider's search: "), "{results:?}");
    let story = story_at("openai", "/v1", native())
        .script([search_call(), answers(&openai_answer("One."))]);
    story.run(["agent", "-m", "x", "--max-cost", "1.5"]).status(4).error_text();
    assert_eq!(story.requests().len(), 2);
}

#[test]
fn a_provider_without_a_search_is_named() {
    let story = Story::new().set("tools.web.search", native()).script([search_call(), says("ok")]);
    let problem = "the provider `custom` has no search of its own";
    story.run(["config", "check"]).stdout_has(problem);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert!(story.last_request().tool_results()[0].contains(problem));
    run_tool(&story, "web_search", &json!({ "query": "a" }))
        .status(1)
        .stderr_has("the call is not part of a turn");
}
