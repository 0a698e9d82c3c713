//! Hostile remote servers.

use super::yard::Yard;
use serde_json::json;

/// Another server received nothing of ours.
#[track_caller]
fn is_unheard(yard: &Yard) {
    let heard = std::fs::read_to_string(&yard.state).unwrap();
    assert!(!heard.contains("canary"), "{heard}");
    assert!(!heard.to_lowercase().contains("x-own"), "{heard}");
}

/// The server is unusable: a missing tool with a notice.
fn is_missing(behaviour: &str, words: &str) {
    let Some(yard) = Yard::new(behaviour) else {
        return;
    };
    let yard = yard.set("startTimeout", json!(3));
    yard.turn().missing(words);
    let (code, ..) = yard.mcp(&["test", "hostile"]);
    assert_ne!(code, 0);
    is_unheard(&yard);
}

/// The server is available, and its call fails.
fn fails(behaviour: &str) {
    let Some(yard) = Yard::new(behaviour) else {
        return;
    };
    let told = yard.turn().called("");
    assert!(!told.results[0].contains("the work is done"));
    is_unheard(&yard);
}

#[test]
fn one_that_is_as_it_should_be() {
    if let Some(yard) = Yard::new("http-tame") {
        yard.turn().called("the work is done");
    }
}

#[test]
fn headers_go_to_nobody_else() {
    is_missing("http-redirects", "");
    fails("http-redirects-later");
    is_missing("sse-elsewhere", "");
}

#[test]
fn one_that_wants_a_login_is_told_of() {
    is_missing("http-unauthorised", "headers");
}

#[test]
fn one_that_is_not_there() {
    is_missing("http-not-found", "404");
}

#[test]
fn one_that_forgets_who_we_are() {
    fails("http-forgets");
}

#[test]
fn a_hundred_megabytes() {
    is_missing("http-huge-error", "500");
    fails("http-huge-result");
}

#[test]
fn events_without_end() {
    fails("http-endless-events");
    fails("http-endless-event");
}

#[test]
fn answers_that_are_no_messages() {
    is_missing("http-html", "");
    is_missing("http-wrong-kind", "");
    fails("http-cuts");
}

#[test]
fn one_that_never_answers() {
    is_missing("http-mute", "");
    is_missing("sse-mute", "");
}
