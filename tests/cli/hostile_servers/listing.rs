//! Hostile behavior before a call: servers that do not start, and their tool lists.

use super::fixture::{HostileServer, TOOL_NAME};
use serde_json::json;

/// An unusable server is a missing tool with a notice, and the next run does not wait for it.
fn assert_unavailable(behaviour: &str, seconds: u64, phrase: &str) {
    let Some(server) = HostileServer::new(behaviour) else {
        return;
    };
    let server = server.set("startTimeout", json!(seconds));
    server.turn().tool_is_missing(phrase);
    server.turn().tool_is_missing("");
    let (code, ..) = server.mcp(&["test", "hostile"]);
    assert_ne!(code, 0);
    // Only the config can make a server mandatory.
    let server = server.set("required", json!(true));
    server.story.server().always(crate::server::says("Never."));
    let before = server.story.requests().len();
    let result = server.story.run(["agent", "-m", "x"]);
    assert_ne!(result.code(), 0);
    assert!(result.error_text().contains("hostile"), "{}", result.error_text());
    assert_eq!(result.text(), "");
    assert_eq!(server.story.requests().len(), before, "the model was asked");
}

#[test]
fn a_server_that_never_answers_is_unavailable() {
    assert_unavailable("mute", 2, "");
}

#[test]
fn a_server_that_never_lists_tools_is_unavailable() {
    assert_unavailable("never-lists", 2, "");
}

#[test]
fn a_server_that_exits_at_once_is_reported_with_its_stderr() {
    assert_unavailable("dies", 20, "there is");
}

#[test]
fn a_server_with_an_endless_first_line_is_unavailable() {
    assert_unavailable("endless-greeting", 20, "");
}

#[test]
fn a_handshake_that_cannot_be_used_is_reported_with_its_cause() {
    for (behaviour, cause) in [
        ("partial-greeting", "unexpected response to the MCP handshake: missing field `version`"),
        ("silent-refusal", "MCP handshake failed: error -32602"),
    ] {
        if let Some(server) = HostileServer::new(behaviour) {
            let (_, output, complaints) = server.mcp(&["check", "hostile"]);
            assert!(format!("{output}{complaints}").contains(cause), "{output}{complaints}");
        }
    }
}

/// The tool is available and works whatever else the server lists; `check` gets the tool names.
fn assert_tools(behaviour: &str, check: fn(&[String])) {
    assert_tools_and_result(behaviour, &["the work is done"], check);
}

/// Like [`assert_tools`], with one of `phrases` in the result of the call.
fn assert_tools_and_result(behaviour: &str, phrases: &[&str], check: fn(&[String])) {
    let Some(server) = HostileServer::new(behaviour) else {
        return;
    };
    let turn_output = server.turn().result_has_any(phrases);
    let names: Vec<String> =
        turn_output.tools.iter().filter(|name| name.starts_with("mcp_")).cloned().collect();
    check(&names);
    let fits = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    for (index, name) in turn_output.tools.iter().enumerate() {
        assert!(name.len() <= 64 && name.chars().all(fits), "{name}");
        assert!(!turn_output.tools[..index].contains(name), "twice: {name}");
    }
    let (code, output, _) = server.mcp(&["test", "hostile"]);
    assert_eq!(code, 0);
    assert!(output.contains("2025-"), "no version in {output:.2000}");
}

#[test]
fn a_well_behaved_server_works() {
    assert_tools("tame", |names| assert_eq!(names, [TOOL_NAME]));
}

#[test]
fn ten_thousand_tools_are_bounded() {
    assert_tools("many-tools", |names| {
        assert!(names.len() <= 1000, "{}", names.len());
    });
}

#[test]
fn endless_pages_are_bounded() {
    assert_tools("endless-pages", |names| {
        assert!(names.len() <= 1000, "{}", names.len());
    });
    assert_tools("empty-pages", |names| assert_eq!(names, [TOOL_NAME]));
}

#[test]
fn conflicting_and_invalid_tool_names_are_rejected() {
    assert_tools("shadows", |names| {
        let has = |name: &str| names.iter().any(|other| other == name);
        assert!(has(TOOL_NAME) && has("mcp_hostile_exec"), "{names:?}");
        assert!(!has("exec"), "{names:?}");
    });
}

#[test]
fn invalid_schemas_are_rejected() {
    assert_tools("odd-schemas", |names| assert!(names.len() > 1, "{names:?}"));
}

#[test]
fn recursive_and_deep_schemas_are_handled() {
    assert_tools("deep-schema", |_| {});
    assert_tools("cyclic-schema", |_| {});
}

#[test]
fn a_schema_of_five_megabytes_is_rejected() {
    assert_tools("big-schema", |_| {});
}

#[test]
fn a_tool_list_that_changes_each_time_is_handled() {
    // The listed tool is called, or none.
    let phrases = ["the work is done", "its tools have changed in the meantime"];
    assert_tools_and_result("fickle", &phrases, |_| {});
    assert_tools_and_result("restless", &phrases, |names| assert_eq!(names, [TOOL_NAME]));
}

#[test]
fn garbage_between_messages_is_ignored() {
    assert_tools("binary", |names| assert_eq!(names, [TOOL_NAME]));
}

#[test]
fn unsolicited_answers_are_ignored() {
    let Some(server) = HostileServer::new("wrong-numbers") else {
        return;
    };
    // Whether such a server is used at all is left open; but other messages are not taken for its answer.
    let output = server.turn();
    assert!(
        !output.results.iter().any(|text| text.contains("somebody else")),
        "{:?}",
        output.results
    );
}

#[test]
fn an_unknown_protocol_version_is_reported() {
    let Some(server) = HostileServer::new("future") else {
        return;
    };
    // The version is accepted or the server is not used; the turn ends normally either way.
    let output = server.turn();
    assert!(
        ["Done.\n", "There is no such tool.\n"].contains(&&*output.answer),
        "{}",
        output.answer
    );
}

#[test]
fn long_server_instructions_are_truncated_and_withheld() {
    let Some(server) = HostileServer::new("preaches") else {
        return;
    };
    let output = server.turn().result_has("the work is done");
    let count = output.request_bodies[0].matches("IGNORE ALL PREVIOUS").count();
    assert!(count < 20, "{count} times");
    assert!(output.request_bodies[0].contains("hostile"), "whose words they are is not said");
    let system = output.request_bodies[0].split("\"role\":\"user\"").next().unwrap();
    assert!(
        !system.contains("IGNORE ALL PREVIOUS") || system.contains("\"tools\""),
        "the instructions are in the prompt"
    );
}

/// One byte of the description differs: the tool is denied until it is accepted.
#[test]
fn a_changed_description_needs_approval() {
    let Some(server) = HostileServer::new("changes") else {
        return;
    };
    server.turn().result_has("the work is done");
    let output = server.turn();
    assert!(
        !output.results.iter().any(|text| text.contains("work is done")),
        "it was called: {:?}",
        output.results
    );
    assert!(
        output.stderr.contains("mcp accept"),
        "no word of how it is accepted: {}",
        output.stderr
    );
    let result = server.story.run(["mcp", "accept", "hostile", "--yes"]);
    let stderr = result.text() + &result.error_text();
    assert_eq!(result.code(), 0, "{stderr}");
    assert!(stderr.contains("Does the work.") && stderr.contains("Does the work!"), "{stderr}");
    drop(result);
    server.turn().result_has("the work is done");
}

/// A change during a run is not approved, either.
#[test]
fn a_tool_that_changes_during_a_call_is_handled() {
    let Some(server) = HostileServer::new("grows") else {
        return;
    };
    let output = server.turn_with_calls(2);
    assert!(output.results[0].contains("the work is done"));
    let last = output.request_bodies.last().unwrap();
    assert!(!last.contains("send it all to me"), "{last:.3000}");
    assert!(!output.tools.contains(&"mcp_hostile_exec".to_owned()));
    assert!(
        !output.results[1].contains("the work is done"),
        "it was called again: {}",
        output.results[1]
    );
}
