//! Hostile behavior during a call: no answer, invalid messages, too much data, and requests to the client.

use super::fixture::{CANARY, HostileServer};
use crate::story::write;
use serde_json::json;

/// The call fails, but the turn succeeds.
fn assert_call_fails(behaviour: &str, phrase: &str) {
    if let Some(server) = HostileServer::new(behaviour) {
        let output = server.turn().result_has(phrase);
        assert!(!output.results[0].contains("the work is done"));
        let (code, ..) = server.mcp(&["call", "hostile", "work", "{}"]);
        assert_ne!(code, 0);
    }
}

/// The call succeeds despite everything sent with it.
fn assert_call_works(behaviour: &str) {
    if let Some(server) = HostileServer::new(behaviour) {
        let server = server.set("toolTimeout", json!(60));
        server.turn().result_has("the work is done");
        let (code, output, _) = server.mcp(&["call", "hostile", "work", "{}"]);
        assert_eq!(code, 0);
        assert!(output.contains("the work is done"), "{output:.2000}");
    }
}

#[test]
fn a_server_that_never_answers_times_out() {
    assert_call_fails("never-answers", "3");
}

#[test]
fn a_server_that_exits_during_a_call_may_have_executed_it() {
    assert_call_fails("dies-in-call", "may have taken effect");
}

#[test]
fn a_server_that_exits_after_half_a_message_fails_the_call() {
    assert_call_fails("half-message", "may have taken effect");
}

#[test]
fn a_server_that_sends_a_byte_a_second_times_out() {
    assert_call_fails("trickles", "");
}

#[test]
fn endless_progress_does_not_extend_the_deadline() {
    assert_call_fails("always-nearly-done", "");
}

#[test]
fn an_endless_line_is_rejected() {
    assert_call_fails("endless-line", "");
}

#[test]
fn endless_log_messages_are_bounded() {
    assert_call_fails("chatters", "");
}

#[test]
fn a_result_of_a_hundred_megabytes_is_rejected() {
    assert_call_fails("huge-result", "");
}

#[test]
fn a_deeply_nested_result_is_rejected() {
    assert_call_fails("deep-result", "");
}

/// An answer after the timeout is not taken for the answer of a later call.
#[test]
fn a_late_answer_is_ignored() {
    let Some(server) = HostileServer::new("late") else {
        return;
    };
    let output = server.turn_with_calls(2);
    assert_eq!(output.answer, "Done.\n");
    assert!(!output.results[1].contains("first call's"), "{:?}", output.results);
}

#[test]
fn malformed_results_are_rejected() {
    for shape in 0..11 {
        if let Some(server) = HostileServer::new("shapeless") {
            let output = server.with_arguments(json!({ "shape": shape })).turn();
            assert_eq!(output.answer, "Done.\n", "{shape}: {}", output.stderr);
            assert_eq!(output.results.len(), 1);
        }
    }
}

#[test]
fn an_oversized_result_is_truncated_for_the_model() {
    for (behaviour, phrase) in [("large-result", "the beginning"), ("huge-error", "it failed")] {
        if let Some(server) = HostileServer::new(behaviour) {
            let server = server.set("toolTimeout", json!(60));
            let output = server.turn().result_has(phrase);
            let length = output.results[0].len();
            assert!(length < 100_000, "{length} bytes");
        }
    }
}

#[test]
fn three_hundred_thousand_notifications_are_handled() {
    let Some(server) = HostileServer::new("floods") else {
        return;
    };
    // They may take longer than the call timeout, which then expires.
    let output = server.set("toolTimeout", json!(60)).turn().result_has("");
    assert!(output.stderr.len() < 2000, "{}", output.stderr);
}

#[test]
fn a_server_that_never_reads_its_input_does_not_block() {
    if let Some(server) = HostileServer::new("deaf") {
        server.turn().result_has("");
    }
}

#[test]
fn standard_error_of_a_hundred_megabytes_is_bounded() {
    assert_call_works("loud");
    if let Some(server) = HostileServer::new("loud") {
        let server = server.set("toolTimeout", json!(60));
        server.turn();
        let size = dir_size_bytes(&server.story.home().join(".nanobot/mcp"));
        assert!(size < 4 << 20, "{size} bytes are kept");
    }
}

fn dir_size_bytes(folder: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let entries = entries.flatten().map(|entry| {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() { dir_size_bytes(&entry.path()) } else { entry.metadata().unwrap().len() }
    });
    entries.sum()
}

#[test]
fn escape_sequences_and_invisible_characters_are_removed() {
    let Some(server) = HostileServer::new("painted") else {
        return;
    };
    server.turn().result_has("the work is");
    let server = server.with_arguments(json!({ "p": "fail" }));
    server.turn().result_has("red");
    for arguments in [
        &["test", "hostile"][..],
        &["show", "hostile"],
        &["list"],
        &["call", "hostile", "work", "{}"],
        &["call", "hostile", "work", r#"{"p": "fail"}"#],
    ] {
        server.mcp(arguments);
    }
    // Escape sequences are not executed on a terminal.
    let mut screen = server.story.screen(24, 80).args(["tool", "run", "hostile", "work", "{}"]);
    screen.until("zero");
    screen.exit();
    let raw = String::from_utf8_lossy(&screen.raw()).into_owned();
    for obeyed in ["\u{1b}[31m", "\u{1b}]", "\u{1b}[2J", "\u{202e}", "\u{200b}"] {
        assert!(!raw.contains(obeyed), "{obeyed:?} in {raw:?}");
    }
    assert!(raw.contains("the work is"), "{raw:?}");
    screen.assert_restored();
}

#[test]
fn invalid_images_are_rejected() {
    assert_call_works("bad-images");
}

#[test]
fn a_thousand_images_are_bounded() {
    if let Some(server) = HostileServer::new("many-images") {
        let output = server.turn();
        assert_eq!(output.answer, "Done.\n");
    }
}

/// A server request is rejected with the protocol's error.
fn assert_request_rejected(behaviour: &str, rejection: &str) {
    if let Some(server) = HostileServer::new(behaviour) {
        server.turn().result_has(rejection);
        assert!(!server.story.dir().join("owned").exists());
    }
}

#[test]
fn a_sampling_request_is_rejected() {
    assert_request_rejected("samples", "\"error\": {");
}

#[test]
fn an_elicitation_of_a_password_is_declined() {
    // There is no user to prompt, which is reported either before or during the call.
    assert_request_rejected("elicits", "got {");
    assert_request_rejected("elicits-address", "got {");
    if let Some(server) = HostileServer::new("elicits") {
        let output = server.turn();
        assert!(!output.results[0].contains("accept"), "{:?}", output.results);
    }
}

#[test]
fn a_roots_request_reveals_no_directories() {
    let Some(server) = HostileServer::new("wants-roots") else {
        return;
    };
    let output = server.turn().result_has("got {");
    assert!(!output.results[0].contains("file://"), "{:?}", output.results);
}

#[test]
fn a_request_to_run_a_command_is_rejected() {
    assert_request_rejected("made-up-request", "\"error\": {");
}

#[test]
fn a_server_sees_its_configured_variables_and_no_key() {
    let Some(server) = HostileServer::new("environment") else {
        return;
    };
    let output = server.turn().result_has("\"GIVEN\": ");
    // The variable that marks commands of an agent is not a secret.
    let text = output.results[0].replace("NANOBOT_INSIDE", "");
    assert!(!text.contains("SOME_VARIABLE"), "{text}");
    assert!(!text.contains("API_KEY"), "{text}");
    assert!(!text.contains("key-of-the-story"), "{text}");
    assert!(!text.contains("NANOBOT"), "{text}");
}

#[test]
fn a_server_can_neither_read_secrets_nor_write_files() {
    let Some(server) = HostileServer::new("thief") else {
        return;
    };
    let home = server.story.home();
    for path in [".ssh/id_rsa", ".netrc", ".nanobot/workspace/sessions/cli_diary.jsonl"] {
        write(&home.join(path), format!("{{}}\n{CANARY}\n").as_bytes());
    }
    write(&home.join(".bashrc"), b"# mine\n");
    let config = std::fs::read(home.join(".nanobot/config.json")).unwrap();
    // The raw value, before redaction.
    let output = server.turn().result_has("read .ssh/id_rsa: ");
    let loot = &output.results[0];
    let tried = loot
        .lines()
        .filter(|line| !line.starts_with("Untrusted content: "))
        .filter_map(|line| Some((line, line.split_once(": ")?.1)));
    assert!(tried.clone().count() >= 15, "{loot}");
    for (line, got) in tried {
        // The one entry is the directory around the server's own.
        let is_around = line.starts_with("list .nanobot: ") && got == "['mcp']";
        assert!(got.ends_with("Error") || got == "[]" || is_around, "{line}; all of it:\n{loot}");
    }
    assert!(!loot.contains("canary") && !loot.contains("key-of-the-story"));
    assert_eq!(std::fs::read(home.join(".bashrc")).unwrap(), b"# mine\n");
    assert_eq!(std::fs::read(home.join(".nanobot/config.json")).unwrap(), config);
    for path in [".nanobot/workspace/AGENTS.md", ".ssh/authorized_keys"] {
        assert!(!home.join(path).exists(), "{path}");
    }
}
