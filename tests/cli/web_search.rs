//! Searches when an engine fails: the next of `tools.web.search.fallback` is queried.

use crate::server::{calls, says};
use crate::story::{RunResult, Story};
use crate::web::{PageServer, page_response, run_tool};
use serde_json::{Value, json};

/// A story with Brave, whose server answers with `status` and `body`, and the configured `fallback`. SearXNG is at the same server, and
/// finds "Found".
fn story_with(status: u16, body: &'static str, fallback: &Value) -> (Story, PageServer) {
    let pages = PageServer::start(move |path| {
        if path.starts_with("/res/") {
            return (status, vec![], body.as_bytes().to_vec());
        }
        assert!(path.starts_with("/search?q="), "{path}");
        let results =
            r#"{"results": [{"title": "Found", "url": "https://a.example/", "content": "in it"}]}"#;
        page_response("application/json", results)
    });
    let search = json!({ "provider": "brave", "apiKey": "key-of-brave", "baseUrl": pages.url(""), "fallback": fallback });
    let story = Story::new()
        .set("tools", json!({ "web": { "search": search } }))
        .env("SEARXNG_BASE_URL", &pages.url(""));
    (story, pages)
}

fn search(story: &Story) -> RunResult<'_> {
    run_tool(story, "web_search", &json!({ "query": "a b" }))
}

#[test]
fn the_next_engine_answers_after_each_failure_and_is_named() {
    let check = |status: u16, body: &'static str, cause: &str| {
        let (story, pages) = story_with(status, body, &json!(["searxng"]));
        let result = search(&story);
        let text = result.stdout_has("1. Found\n   https://a.example/\n   in it\n");
        text.stdout_has(&format!("\n(answered by SearXNG, because {cause}"));
        assert_eq!(pages.requests().len(), 2);
        assert!(!pages.requests()[1].contains("key-of-brave"));
    };
    check(429, "", "Brave: rate limit exceeded)");
    check(402, "", "Brave returned 402)");
    check(500, "{}", "Brave returned 500)");
    check(200, "<html>", "Brave did not return a list of results)");
    check(200, r#"{"web": {"results": "none"}}"#, "Brave did not return a list of results)");
}

#[test]
fn a_rejected_key_is_also_told_to_the_user_once() {
    let (story, _pages) = story_with(401, "", &json!(["searxng"]));
    let query = |text: &str| calls("web_search", json!({ "query": text }));
    let story = story.script([query("a"), query("b"), says("ok")]);
    let result = story.run(["agent", "-m", "x"]);
    let cause = "Brave rejects the key of `tools.web.search.apiKey` or `BRAVE_API_KEY`";
    let errors = result.stdout("ok\n").error_text();
    assert_eq!(errors.matches(cause).count(), 1, "{errors}");
    let results = story.last_request().tool_results();
    assert!(results.iter().all(|text| text.contains(cause) && text.contains("Found")));
}

#[test]
fn no_other_engine_is_asked_without_need_or_without_being_named() {
    let (story, pages) = story_with(200, r#"{"web": {"results": []}}"#, &json!(["searxng"]));
    search(&story).stdout("No results; try other words.\n");
    assert_eq!(pages.requests().len(), 1);
    let (story, pages) = story_with(500, "", &json!([]));
    search(&story).status(1).stderr_has("Brave returned 500; continue without it");
    assert_eq!(pages.requests().len(), 1);
    // The engine that has failed is not asked again.
    let (story, pages) = story_with(500, "", &json!(["brave"]));
    search(&story).status(1).stderr_has("Brave returned 500; continue without it");
    assert_eq!(pages.requests().len(), 1);
    let (story, pages) = story_with(500, "", &json!(["mst", "searxng"]));
    search(&story).stdout_has("(answered by SearXNG, because Brave returned 500; ");
    assert_eq!(pages.requests().len(), 2);
}

#[test]
fn the_error_names_each_engine_that_failed() {
    let pages = PageServer::start(|_| (503, vec![], Vec::new()));
    let search_settings = json!({ "provider": "brave", "apiKey": "key-of-brave", "baseUrl": pages.url(""), "fallback": ["searxng"] });
    let story = Story::new()
        .set("tools", json!({ "web": { "search": search_settings } }))
        .env("SEARXNG_BASE_URL", &pages.url("/x"));
    search(&story).status(1).stderr_has("Brave returned 503; SearXNG returned 503; continue");
}

#[test]
fn an_engine_without_its_key_is_replaced_by_the_fallback() {
    let (story, pages) = story_with(500, "", &json!(["tavily", "searxng"]));
    let story = story
        .set("tools.web.search.provider", json!("exa"))
        .set("tools.web.search.apiKey", json!(""))
        .set("tools.web.search.baseUrl", json!(""));
    search(&story).stdout_has("1. Found");
    assert_eq!(pages.requests().len(), 1);
    story
        .run(["config", "check"])
        .stdout_has("Exa has no key (`tools.web.search.apiKey` or `EXA_API_KEY`)")
        .stdout_has("Tavily has no key");
    let story = Story::new().set("tools.web.search.fallback", json!(["mst", "searxng"]));
    story
        .run(["config", "check"])
        .stdout_has("`tools.web.search.fallback` is `mst`, expected one of duckduckgo, ")
        .stdout_has("SearXNG requires an address in `tools.web.search.baseUrl`");
}

#[test]
fn requests_that_reached_nobody_are_no_content_from_outside() {
    let search = json!({ "provider": "searxng", "baseUrl": "http://127.0.0.1:1" });
    let story = Story::new().set("tools", json!({ "web": { "search": search } }));
    let remind =
        || calls("cron", json!({ "action": "add", "message": "water", "every_seconds": 3600 }));
    story.server().script([
        calls("web_fetch", json!({ "url": "notaurl" })),
        calls("web_search", json!({ "query": "x" })),
        remind(),
        says("Done."),
    ]);
    story.run(["agent", "-m", "remind me"]).stdout("Done.\n").stderr_has("the agent added the job");
    // An answer is content, even if it cannot be read.
    let (story, _pages) = story_with(200, "<html>", &json!([]));
    story.server().script([calls("web_search", json!({ "query": "x" })), remind(), says("Done.")]);
    story
        .run(["agent", "-m", "remind me"])
        .stdout("Done.\n")
        .stderr_has("denied: cron: ")
        .stderr_has("the conversation contains untrusted content");
}
