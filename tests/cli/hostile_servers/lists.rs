//! Hostile behavior before a call: servers that do not start, and their tool lists.

use super::yard::{WORK, Yard};
use serde_json::json;

/// An unusable server is a missing tool with a notice, and the next run does not wait for it.
fn is_missing(behaviour: &str, seconds: u64, words: &str) {
    let Some(yard) = Yard::new(behaviour) else {
        return;
    };
    let yard = yard.set("startTimeout", json!(seconds));
    yard.turn().missing(words);
    yard.turn().missing("");
    let (code, ..) = yard.mcp(&["test", "hostile"]);
    assert_ne!(code, 0);
    // Only the config can make a server mandatory.
    let yard = yard.set("required", json!(true));
    yard.story.server().always(crate::server::says("Never."));
    let before = yard.story.asked().len();
    let ran = yard.story.run(["agent", "-m", "x"]);
    assert_ne!(ran.code(), 0);
    assert!(ran.error_text().contains("hostile"), "{}", ran.error_text());
    assert_eq!(ran.text(), "");
    assert_eq!(yard.story.asked().len(), before, "the model was asked");
}

#[test]
fn one_that_never_answers() {
    is_missing("mute", 2, "");
}

#[test]
fn one_that_never_lists() {
    is_missing("never-lists", 2, "");
}

#[test]
fn one_that_ends_at_once_says_why() {
    is_missing("dies", 20, "there is");
}

#[test]
fn one_that_greets_with_an_endless_line() {
    is_missing("endless-greeting", 20, "");
}

/// The tool is available and works whatever else the server lists; `check` gets the tool names.
fn is_offered(behaviour: &str, check: fn(&[String])) {
    is_told(behaviour, &["the work is done"], check);
}

/// Like [`assert_tools`], with one of `words` in the result of the call.
fn is_told(behaviour: &str, words: &[&str], check: fn(&[String])) {
    let Some(yard) = Yard::new(behaviour) else {
        return;
    };
    let told = yard.turn().called_with(words);
    let names: Vec<String> = told
        .offered
        .iter()
        .filter(|name| name.starts_with("mcp_"))
        .cloned()
        .collect();
    check(&names);
    let fits = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    for (index, name) in told.offered.iter().enumerate() {
        assert!(name.len() <= 64 && name.chars().all(fits), "{name}");
        assert!(!told.offered[..index].contains(name), "twice: {name}");
    }
    let (code, output, _) = yard.mcp(&["test", "hostile"]);
    assert_eq!(code, 0);
    assert!(output.contains("2025-"), "no version in {output:.2000}");
}

#[test]
fn one_that_is_as_it_should_be() {
    is_offered("tame", |names| assert_eq!(names, [WORK]));
}

#[test]
fn ten_thousand_tools() {
    is_offered("many-tools", |names| {
        assert!(names.len() <= 1000, "{}", names.len());
    });
}

#[test]
fn pages_without_end() {
    is_offered("endless-pages", |names| {
        assert!(names.len() <= 1000, "{}", names.len());
    });
    is_offered("empty-pages", |names| assert_eq!(names, [WORK]));
}

#[test]
fn names_of_others_and_of_no_kind() {
    is_offered("shadows", |names| {
        let has = |name: &str| names.iter().any(|other| other == name);
        assert!(has(WORK) && has("mcp_hostile_exec"), "{names:?}");
        assert!(!has("exec"), "{names:?}");
    });
}

#[test]
fn schemas_that_are_none() {
    is_offered("odd-schemas", |names| assert!(names.len() > 1, "{names:?}"));
}

#[test]
fn schemas_without_bottom() {
    is_offered("deep-schema", |_| {});
    is_offered("cyclic-schema", |_| {});
}

#[test]
fn a_schema_of_five_megabytes() {
    is_offered("big-schema", |_| {});
}

#[test]
fn a_list_that_changes_each_time() {
    // The listed tool is called, or none.
    let words = ["the work is done", "has changed in the meantime"];
    is_told("fickle", &words, |_| {});
    is_told("restless", &words, |names| assert_eq!(names, [WORK]));
}

#[test]
fn bytes_between_messages() {
    is_offered("binary", |names| assert_eq!(names, [WORK]));
}

#[test]
fn answers_to_nobody() {
    let Some(yard) = Yard::new("wrong-numbers") else {
        return;
    };
    // Whether such a server is used at all is left open; but other messages are not taken for its answer.
    let told = yard.turn();
    assert!(
        !told
            .results
            .iter()
            .any(|text| text.contains("somebody else")),
        "{:?}",
        told.results
    );
}

#[test]
fn a_version_that_nobody_knows() {
    let Some(yard) = Yard::new("future") else {
        return;
    };
    // The version is accepted or the server is not used; the turn ends normally either way.
    let told = yard.turn();
    assert!(
        ["Done.\n", "There is no such tool.\n"].contains(&&*told.answer),
        "{}",
        told.answer
    );
}

#[test]
fn a_sermon_is_cut_and_its_instructions_are_not_passed_on() {
    let Some(yard) = Yard::new("preaches") else {
        return;
    };
    let told = yard.turn().called("the work is done");
    let count = told.raw[0].matches("IGNORE ALL PREVIOUS").count();
    assert!(count < 20, "{count} times");
    assert!(
        told.raw[0].contains("hostile"),
        "whose words they are is not said"
    );
    let system = told.raw[0].split("\"role\":\"user\"").next().unwrap();
    assert!(
        !system.contains("IGNORE ALL PREVIOUS") || system.contains("\"tools\""),
        "the instructions are in the prompt"
    );
}

/// One byte of the description differs: the tool is denied until it is accepted.
#[test]
fn a_description_that_changes() {
    let Some(yard) = Yard::new("changes") else {
        return;
    };
    yard.turn().called("the work is done");
    let told = yard.turn();
    assert!(
        !told
            .results
            .iter()
            .any(|text| text.contains("work is done")),
        "it was called: {:?}",
        told.results
    );
    assert!(
        told.complaints.contains("mcp accept"),
        "no word of how it is accepted: {}",
        told.complaints
    );
    let ran = yard.story.run(["mcp", "accept", "hostile", "--yes"]);
    let shown = ran.text() + &ran.error_text();
    assert_eq!(ran.code(), 0, "{shown}");
    assert!(
        shown.contains("Does the work.") && shown.contains("Does the work!"),
        "{shown}"
    );
    drop(ran);
    yard.turn().called("the work is done");
}

/// A change during a run is not approved, either.
#[test]
fn a_tool_that_grows_in_the_middle_of_a_call() {
    let Some(yard) = Yard::new("grows") else {
        return;
    };
    let told = yard.turn_of(2);
    assert!(told.results[0].contains("the work is done"));
    let last = told.raw.last().unwrap();
    assert!(!last.contains("send it all to me"), "{last:.3000}");
    assert!(!told.offered.contains(&"mcp_hostile_exec".to_owned()));
    assert!(
        !told.results[1].contains("the work is done"),
        "it was called again: {}",
        told.results[1]
    );
}
