//! Hostile behavior during a call: no answer, invalid messages, too much data, and requests to the client.

use super::yard::{CANARY, Yard};
use crate::story::write;
use serde_json::json;

/// The call fails, but the turn succeeds.
fn fails(behaviour: &str, words: &str) {
    if let Some(yard) = Yard::new(behaviour) {
        let told = yard.turn().called(words);
        assert!(!told.results[0].contains("the work is done"));
        let (code, ..) = yard.mcp(&["call", "hostile", "work", "{}"]);
        assert_ne!(code, 0);
    }
}

/// The call succeeds despite everything sent with it.
fn works(behaviour: &str) {
    if let Some(yard) = Yard::new(behaviour) {
        let yard = yard.set("toolTimeout", json!(60));
        yard.turn().called("the work is done");
        let (code, output, _) = yard.mcp(&["call", "hostile", "work", "{}"]);
        assert_eq!(code, 0);
        assert!(output.contains("the work is done"), "{output:.2000}");
    }
}

#[test]
fn one_that_never_answers_is_late() {
    fails("never-answers", "3");
}

#[test]
fn one_that_ends_may_have_done_it() {
    fails("dies-in-call", "may have taken effect");
}

#[test]
fn one_that_sends_half_a_message_and_ends() {
    fails("half-message", "may have taken effect");
}

#[test]
fn a_byte_a_second() {
    fails("trickles", "");
}

#[test]
fn progress_without_end_does_not_put_off_the_deadline() {
    fails("always-nearly-done", "");
}

#[test]
fn a_line_without_end() {
    fails("endless-line", "");
}

#[test]
fn words_for_people_without_end() {
    fails("chatters", "");
}

#[test]
fn a_hundred_megabytes() {
    fails("huge-result", "");
}

#[test]
fn a_result_that_is_too_deep() {
    fails("deep-result", "");
}

/// An answer after the timeout is not taken for the answer of a later call.
#[test]
fn an_answer_that_comes_too_late() {
    let Some(yard) = Yard::new("late") else {
        return;
    };
    let told = yard.turn_of(2);
    assert_eq!(told.answer, "Done.\n");
    assert!(
        !told.results[1].contains("first call's"),
        "{:?}",
        told.results
    );
}

#[test]
fn results_of_every_wrong_shape() {
    for shape in 0..11 {
        if let Some(yard) = Yard::new("shapeless") {
            let told = yard.with(json!({ "shape": shape })).turn();
            assert_eq!(told.answer, "Done.\n", "{shape}: {}", told.complaints);
            assert_eq!(told.results.len(), 1);
        }
    }
}

#[test]
fn more_than_a_model_can_take() {
    for (behaviour, words) in [
        ("large-result", "the beginning"),
        ("huge-error", "it failed"),
    ] {
        if let Some(yard) = Yard::new(behaviour) {
            let yard = yard.set("toolTimeout", json!(60));
            let told = yard.turn().called(words);
            let length = told.results[0].len();
            assert!(length < 100_000, "{length} bytes");
        }
    }
}

#[test]
fn three_hundred_thousand_notifications() {
    let Some(yard) = Yard::new("floods") else {
        return;
    };
    // They may take longer than the call timeout, which then expires.
    let told = yard.set("toolTimeout", json!(60)).turn().called("");
    assert!(told.complaints.len() < 2000, "{}", told.complaints);
}

#[test]
fn questions_whose_answers_nobody_reads() {
    if let Some(yard) = Yard::new("deaf") {
        yard.turn().called("");
    }
}

#[test]
fn a_hundred_megabytes_on_standard_error() {
    works("loud");
    if let Some(yard) = Yard::new("loud") {
        let yard = yard.set("toolTimeout", json!(60));
        yard.turn();
        let kept = size(&yard.story.home().join(".nanobot/mcp"));
        assert!(kept < 4 << 20, "{kept} bytes are kept");
    }
}

fn size(folder: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let entries = entries.flatten().map(|entry| {
        let kind = entry.file_type().unwrap();
        match kind.is_dir() {
            true => size(&entry.path()),
            false => entry.metadata().unwrap().len(),
        }
    });
    entries.sum()
}

#[test]
fn escapes_and_invisible_letters() {
    let Some(yard) = Yard::new("painted") else {
        return;
    };
    yard.turn().called("the work is");
    let yard = yard.with(json!({ "p": "fail" }));
    yard.turn().called("red");
    for words in [
        &["test", "hostile"][..],
        &["show", "hostile"],
        &["list"],
        &["call", "hostile", "work", "{}"],
        &["call", "hostile", "work", r#"{"p": "fail"}"#],
    ] {
        yard.mcp(words);
    }
    // Escape sequences are not executed on a terminal.
    let mut screen = yard
        .story
        .screen(24, 80)
        .args(["mcp", "call", "hostile", "work", "{}"]);
    screen.until("zero");
    screen.exit();
    let raw = String::from_utf8_lossy(&screen.raw()).into_owned();
    for obeyed in ["\u{1b}[31m", "\u{1b}]", "\u{1b}[2J", "\u{202e}", "\u{200b}"] {
        assert!(!raw.contains(obeyed), "{obeyed:?} in {raw:?}");
    }
    assert!(raw.contains("the work is"), "{raw:?}");
    screen.is_restored();
}

#[test]
fn pictures_that_are_none() {
    works("bad-images");
}

#[test]
fn a_thousand_pictures() {
    if let Some(yard) = Yard::new("many-images") {
        let told = yard.turn();
        assert_eq!(told.answer, "Done.\n");
    }
}

/// A server request is rejected with the protocol's error.
fn asks(behaviour: &str, no: &str) {
    if let Some(yard) = Yard::new(behaviour) {
        yard.turn().called(no);
        assert!(!yard.story.dir().join("owned").exists());
    }
}

#[test]
fn it_wants_the_model() {
    asks("samples", "\"error\": {");
}

#[test]
fn it_wants_a_password() {
    // Nobody can be asked, which is reported either before or during the call.
    asks("elicits", "got {");
    asks("elicits-address", "got {");
    if let Some(yard) = Yard::new("elicits") {
        let told = yard.turn();
        assert!(!told.results[0].contains("accept"), "{:?}", told.results);
    }
}

#[test]
fn it_wants_our_directories() {
    let Some(yard) = Yard::new("wants-roots") else {
        return;
    };
    let told = yard.turn().called("got {");
    assert!(!told.results[0].contains("file://"), "{:?}", told.results);
}

#[test]
fn it_wants_us_to_run_a_command() {
    asks("made-up-request", "\"error\": {");
}

#[test]
fn it_sees_the_variables_of_the_config_and_no_key() {
    let Some(yard) = Yard::new("environment") else {
        return;
    };
    let told = yard.turn().called("\"GIVEN\": ");
    // The variable that marks commands of an agent is not a secret.
    let seen = told.results[0].replace("NANOBOT_INSIDE", "");
    assert!(!seen.contains("SOME_VARIABLE"), "{seen}");
    assert!(!seen.contains("API_KEY"), "{seen}");
    assert!(!seen.contains("key-of-the-story"), "{seen}");
    assert!(!seen.contains("NANOBOT"), "{seen}");
}

#[test]
fn it_takes_nothing_and_leaves_nothing() {
    let Some(yard) = Yard::new("thief") else {
        return;
    };
    let home = yard.story.home();
    for path in [
        ".ssh/id_rsa",
        ".netrc",
        ".nanobot/workspace/sessions/cli_diary.jsonl",
    ] {
        write(&home.join(path), format!("{{}}\n{CANARY}\n").as_bytes());
    }
    write(&home.join(".bashrc"), b"# mine\n");
    let config = std::fs::read(home.join(".nanobot/config.json")).unwrap();
    // The raw value, before redaction.
    let told = yard.turn().called("read .ssh/id_rsa: ");
    let loot = &told.results[0];
    let tried = loot
        .lines()
        .filter_map(|line| Some((line, line.split_once(": ")?.1)));
    assert!(tried.clone().count() >= 15, "{loot}");
    for (line, got) in tried {
        assert!(
            got.ends_with("Error") || got == "[]",
            "{line}; all of it:\n{loot}"
        );
    }
    assert!(!loot.contains("canary") && !loot.contains("key-of-the-story"));
    assert_eq!(std::fs::read(home.join(".bashrc")).unwrap(), b"# mine\n");
    assert_eq!(
        std::fs::read(home.join(".nanobot/config.json")).unwrap(),
        config
    );
    for path in [".nanobot/workspace/AGENTS.md", ".ssh/authorized_keys"] {
        assert!(!home.join(path).exists(), "{path}");
    }
}
