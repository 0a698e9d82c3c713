//! A conversation after a failure: the next request, `--resume`, and the messages to the user.

use crate::server::{Responder, calls, fails, says};
use crate::story::Story;
use serde_json::json;

/// A provider's refusal of a message.
fn refuses() -> Responder {
    fails(400, "content policy violation")
}

/// A provider's refusal of a conversation that is too long.
fn too_long() -> Responder {
    fails(400, "maximum context length exceeded")
}

/// The texts of the messages of the request `index`, without the system prompt.
fn sent(story: &Story, index: usize) -> Vec<String> {
    let messages = story.requests()[index].messages();
    let text = |message: &serde_json::Value| match message["content"].as_str() {
        Some(text) => text.split("\n\n[Runtime").next().unwrap().to_owned(),
        None => message["content"].to_string(),
    };
    messages[1..].iter().map(text).collect()
}

#[test]
fn a_refused_message_is_left_out_until_it_is_resumed() {
    let story = Story::new().script([says("Noted."), refuses()]);
    story
        .run(["agent", "-m", "My cat is Mia."])
        .stdout("Noted.\n");
    story
        .run(["agent", "-m", "something bad"])
        .status(1)
        .stderr_has("try: `--resume` to send this message again; until then it is left out");
    story
        .server()
        .script([says("Mia."), refuses(), says("Fine.")]);
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    assert_eq!(sent(&story, 2).len(), 3, "{:?}", sent(&story, 2));
    drop(story.run(["agent", "-m", "worse"]).status(1).error_text());
    story.run(["agent", "--resume"]).stdout("Fine.\n");
    let last = sent(&story, 4);
    assert_eq!(last.len(), 5, "{last:?}");
    assert!(
        last[4].contains("worse") && !last.concat().contains("bad"),
        "{last:?}"
    );
    // From now on, it is a part of the conversation.
    story.server().script([says("Yes.")]);
    story.run(["agent", "-m", "and now?"]).stdout("Yes.\n");
    assert!(sent(&story, 5).concat().contains("worse"));
    story
        .run(["agent", "--resume"])
        .status(66)
        .stderr_has("no interrupted turn");
}

#[test]
fn a_refused_turn_with_tool_calls_is_left_out_as_a_whole() {
    let story = Story::new().file("notes", "text that the provider refuses");
    story.server().script([
        calls("read_file", json!({ "path": "notes" })),
        refuses(),
        says("Hello."),
        refuses(),
    ]);
    drop(story.run(["agent", "-m", "read"]).status(1).error_text());
    story.run(["agent", "-m", "Hi"]).stdout("Hello.\n");
    assert_eq!(sent(&story, 2).len(), 1, "{:?}", sent(&story, 2));
    // The message that is resumed is the last one.
    story
        .run(["agent", "--resume"])
        .status(66)
        .stderr_has("no interrupted turn");
    drop(story.run(["agent", "-m", "again"]).status(1).error_text());
}

/// A refusal may be due to a message that never got an answer, not to the last one.
#[test]
fn a_refusal_leaves_out_everything_since_the_last_answer() {
    let story = Story::new().script([says("Noted."), fails(401, "no"), refuses(), says("Mia.")]);
    story
        .run(["agent", "-m", "My cat is Mia."])
        .stdout("Noted.\n");
    drop(story.run(["agent", "-m", "one"]).status(77).error_text());
    drop(story.run(["agent", "-m", "two"]).status(1).error_text());
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    let last = sent(&story, 3);
    assert!(!last.concat().contains("one"), "{last:?}");
}

#[test]
fn a_message_that_is_too_long_does_not_end_the_conversation() {
    let long = "word ".repeat(2000);
    for compact in [
        ["agent", "-m", "/compact"].as_slice(),
        &["session", "compact", "cli:direct"],
    ] {
        let story = Story::new().script([says(&"Noted. ".repeat(100))]);
        drop(story.run(["agent", "-m", "My cat is Mia."]).text());
        // Attempts to shorten the conversation fail too.
        story.server().always(too_long());
        story
            .run(["agent", "-m", &long])
            .status(65)
            .stderr_has("until then it is left out");
        story.server().script([says("Mia.")]);
        story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
        let last = sent(&story, story.requests().len() - 1);
        assert!(!last.concat().contains("word"), "{last:?}");
        drop(story.run(["agent", "-m", &long]).status(65).error_text());
        story.server().script([says("- a cat")]);
        story.run(compact).stdout_has("Compacted: ");
        // Now there may be room for it.
        story.server().script([says("Long.")]);
        story.run(["agent", "--resume"]).stdout("Long.\n");
        let last = sent(&story, story.requests().len() - 1);
        assert!(
            last[0].contains("- a cat") && last[0].contains("word word"),
            "{last:?}"
        );
    }
}

#[test]
fn a_refused_message_is_left_out_of_the_consolidation() {
    let story = Story::new().set("agents.defaults.memoryWindow", json!(2));
    let memory =
        json!({ "history_entry": "[2026-01-02 03:04] A cat.", "memory_update": "A cat, Mia." });
    story.server().script([
        says("Noted."),
        refuses(),
        says("Mia."),
        calls("save_memory", memory),
    ]);
    story
        .run(["agent", "-m", "My cat is Mia."])
        .stdout("Noted.\n");
    drop(
        story
            .run(["agent", "-m", "something bad"])
            .status(1)
            .error_text(),
    );
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    drop(story.run(["memory", "consolidate", "--all"]).text());
    let asked = story.requests().pop().unwrap();
    assert!(asked.raw.contains("My cat is Mia"), "{}", asked.raw);
    assert!(!asked.raw.contains("something bad"), "{}", asked.raw);
}
