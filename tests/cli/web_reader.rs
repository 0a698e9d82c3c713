//! `web_fetch` with a reader service: which addresses it gets, and what happens when it fails.

use crate::story::Story;
use crate::web::{PageResponse, PageServer, fetch, page_response, redirect};
use serde_json::{Value, json};

/// A server that is the proxy of public hosts, the hosts themselves, and the reader service, which answers with `status` and `body`.
fn serve(status: u16, body: &'static str) -> PageServer {
    PageServer::start(move |path| -> PageResponse {
        match path.split('?').next().unwrap_or_default() {
            "/page" => page_response("text/html; charset=utf-8", "<p>read directly</p>"),
            "/data" => page_response("application/json", r#"{"read": "directly"}"#),
            "/closed" => (403, vec![], b"no".to_vec()),
            "/gone" => (404, vec![], Vec::new()),
            "/to-page" => redirect("http://pub.example/page"),
            "/to-denied" => redirect("http://denied.example/page"),
            "/to-private" => redirect("http://private.example/page"),
            path if path.starts_with("/read/http") => {
                (status, vec![("content-type", "application/json".into())], body.into())
            }
            path => panic!("{path}"),
        }
    })
}

const ANSWER: &str = r#"{"code": 200, "data": {"title": "Title", "content": "read by the service", "url": "http://x.example/"}}"#;

fn story_with(pages: &PageServer, fetch_settings: &Value) -> Story {
    let web = json!({ "proxy": pages.url(""), "fetch": fetch_settings });
    Story::new()
        .set("tools", json!({ "web": web, "deny": ["web_fetch(http://denied.example*)"] }))
        .env("NANOBOT_TEST_HOSTS", "pub.example=1.1.1.1;denied.example=1.1.1.2;private.example=10.0.0.1;here.example=127.0.0.2")
        .env("JINA_API_KEY", "jina_key_of_the_story")
}

fn reader_at(pages: &PageServer) -> Value {
    json!({ "reader": pages.url("/read/") })
}

/// The addresses that the service got.
fn read_addresses(pages: &PageServer) -> Vec<String> {
    let requests = pages.requests();
    let paths = requests.iter().filter_map(|request| request.split(' ').nth(1));
    paths.filter_map(|path| path.strip_prefix("/read/")).map(str::to_owned).collect()
}

#[test]
fn pages_are_read_by_the_service_after_their_redirects() {
    let pages = serve(200, ANSWER);
    let story = story_with(&pages, &reader_at(&pages));
    for path in ["page?a=1", "to-page", "closed"] {
        fetch(&story, &format!("http://pub.example/{path}"))
            .stdout_has("Untrusted content")
            .stdout_has("# Title\n\nread by the service")
            .stdout_has("(read by the reader service http://127.0.0.2:");
    }
    let expect =
        ["http://pub.example/page?a=1", "http://pub.example/page", "http://pub.example/closed"];
    assert_eq!(read_addresses(&pages), expect);
    // The key is Jina's, and this is another service.
    assert!(!pages.requests().concat().contains("jina_key_of_the_story"));
}

#[test]
fn addresses_that_concern_nobody_else_do_not_reach_the_service() {
    let pages = serve(200, ANSWER);
    let story = story_with(&pages, &reader_at(&pages));
    fetch(&story, "http://pub.example/data").stdout_has("\"read\": \"directly\"");
    fetch(&story, "http://pub.example/page?access_token=abc").stdout_has("read directly");
    fetch(&story, "http://pub.example/gone").status(1).stderr_has("the server returned 404");
    for path in ["to-denied", "to-private"] {
        fetch(&story, &format!("http://pub.example/{path}")).status(77).error_text();
    }
    fetch(&story, "http://private.example/page").status(77).error_text();
    let story = story.set("tools.ssrfWhitelist", json!(["127.0.0.2/32"]));
    fetch(&story, &pages.url("/page")).stdout_has("read directly");
    let local = format!("http://here.example:{}/page", pages.port());
    fetch(&story, &local).stdout_has("read directly");
    assert_eq!(read_addresses(&pages), Vec::<String>::new());
}

#[test]
fn nothing_is_sent_to_a_service_that_the_user_has_not_named() {
    let pages = serve(200, ANSWER);
    // The Python program writes this default into every config.
    let story = story_with(&pages, &json!({ "useJinaReader": true }));
    fetch(&story, "http://pub.example/page").stdout_has("read directly");
    let hosts = pages.requests().concat();
    assert!(!hosts.contains("jina"), "{hosts}");
}

#[test]
fn a_page_is_read_directly_if_the_service_fails() {
    let check = |status: u16, body: &'static str, cause: &str| {
        let pages = serve(status, body);
        let story = story_with(&pages, &reader_at(&pages));
        fetch(&story, "http://pub.example/page")
            .stdout_has("read directly")
            .stdout_has(&format!("/read` {cause}, so the page was read directly)"));
    };
    check(429, "", "has reached its rate limit");
    check(402, r#"{"code": 402}"#, "wants to be paid");
    check(401, "", "returned 401");
    check(500, ANSWER, "returned 500");
    check(302, "", "returned 302");
    check(200, "junk", "returned no text");
    check(200, r#"{"data": {"title": "T", "content": ""}}"#, "returned no text");
    let pages = serve(200, ANSWER);
    let story = story_with(&pages, &json!({ "reader": "http://127.0.0.1:9/read" }));
    fetch(&story, "http://pub.example/page")
        .stdout_has("read directly")
        .stdout_has("the request to the reader service `http://127.0.0.1:9/read` failed");
}
