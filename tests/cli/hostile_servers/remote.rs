//! Hostile remote servers.

use super::fixture::HostileServer;
use serde_json::json;

/// Another server received nothing of ours.
#[track_caller]
fn assert_canary_not_received(server: &HostileServer) {
    let requests = std::fs::read_to_string(&server.state_file).unwrap();
    assert!(!requests.contains("canary"), "{requests}");
    assert!(!requests.to_lowercase().contains("x-own"), "{requests}");
}

/// The server is unusable: a missing tool with a notice.
fn assert_unavailable(behaviour: &str, phrase: &str) {
    let Some(server) = HostileServer::new(behaviour) else {
        return;
    };
    let server = server.set("startTimeout", json!(3));
    server.turn().tool_is_missing(phrase);
    let (code, ..) = server.mcp(&["test", "hostile"]);
    assert_ne!(code, 0);
    assert_canary_not_received(&server);
}

/// The server is available, and its call fails.
fn assert_call_fails(behaviour: &str) {
    let Some(server) = HostileServer::new(behaviour) else {
        return;
    };
    let output = server.turn().result_has("");
    assert!(!output.results[0].contains("the work is done"));
    assert_canary_not_received(&server);
}

#[test]
fn a_well_behaved_server_works() {
    if let Some(server) = HostileServer::new("http-tame") {
        server.turn().result_has("the work is done");
    }
}

#[test]
fn headers_are_not_sent_to_other_hosts() {
    assert_unavailable("http-redirects", "");
    assert_call_fails("http-redirects-later");
    assert_unavailable("sse-elsewhere", "");
}

#[test]
fn a_server_that_requires_a_login_is_reported() {
    assert_unavailable("http-unauthorised", "headers");
}

#[test]
fn an_unreachable_server_is_reported() {
    assert_unavailable("http-not-found", "404");
}

#[test]
fn a_server_that_forgets_the_session_is_reconnected() {
    assert_call_fails("http-forgets");
}

#[test]
fn a_response_of_a_hundred_megabytes_is_rejected() {
    assert_unavailable("http-huge-error", "500");
    assert_call_fails("http-huge-result");
}

#[test]
fn endless_events_are_bounded() {
    assert_call_fails("http-endless-events");
    assert_call_fails("http-endless-event");
}

#[test]
fn invalid_responses_are_rejected() {
    assert_unavailable("http-html", "");
    assert_unavailable("http-wrong-kind", "");
    assert_call_fails("http-cuts");
}

#[test]
fn a_server_that_never_answers_times_out() {
    assert_unavailable("http-mute", "");
    assert_unavailable("sse-mute", "");
}
