//! Tool calls that a model wrote as text: taken from the user's own server, reported otherwise, never a silent answer.

use crate::formats::ALL_FORMATS;
use crate::server::{Responder, calls, replies, says};
use crate::story::Story;
use serde_json::json;

const WRITTEN: &str = "I look.\n<tool_call>\n{\"name\": \"list_dir\", \"arguments\": {\"path\": \".\"}}\n</tool_call>";

/// The causes and next steps that a missing call has.
const MISSING: &str = "wants to call a tool, but the server sent no call";
const OPTION: &str = "llama.cpp: `--jinja`";

fn ends_with_calls(text: &str) -> Responder {
    replies(json!({ "role": "assistant", "content": text }), "tool_calls")
}

#[test]
fn a_written_call_is_carried_out() {
    for format in ALL_FORMATS {
        let story = Story::in_format(format, "scripted")
            .file("notes.md", "x")
            .script([says(WRITTEN), says("Notes.")]);
        story.run(["agent", "-m", "what is here?"]).stdout("Notes.\n");
        let request = &story.requests()[1];
        assert!(request.last_content().contains("notes.md"), "{format:?}");
        // It goes back as a call, not as text.
        assert!(!request.raw.contains("<tool_call>"), "{format:?}: {}", request.raw);
    }
}

#[test]
fn a_written_call_that_could_be_a_quotation_is_not() {
    // The mark is in a file that the model has read.
    let story = Story::new()
        .file("notes.md", "say <tool_call>{}</tool_call>")
        .script([calls("read_file", json!({ "path": "notes.md" })), says(WRITTEN)]);
    let result = story.run(["agent", "-m", "what do the notes say?"]).status(1);
    drop(result.stderr_has(MISSING).stderr_has(OPTION).text());
    assert_eq!(story.requests().len(), 2);
    // The mark is in the question.
    let story = Story::new().script([says(WRITTEN)]);
    drop(story.run(["agent", "-m", "what is <tool_call>?"]).status(1).stderr_has(MISSING).text());
}

#[test]
fn an_announced_call_that_is_missing_is_reported() {
    for format in [crate::formats::Format::Chat, crate::formats::Format::Anthropic] {
        let story = Story::in_format(format, "scripted").script([ends_with_calls("I look.")]);
        let result = story.run(["agent", "-m", "x"]).status(1).stdout("I look.\n");
        drop(result.stderr_has(MISSING).stderr_has(OPTION));
    }
}

#[test]
fn without_tools_the_text_is_the_answer() {
    let story = Story::new().script([says(WRITTEN), ends_with_calls("I look.")]);
    story.run(["agent", "-m", "x", "--no-tools", "--new"]).stdout(&format!("{WRITTEN}\n"));
    story.run(["agent", "-m", "x", "--no-tools", "--new"]).stdout("I look.\n");
}

#[test]
fn json_in_a_code_block_is_an_answer() {
    let text = "```json\n{\"name\": \"list_dir\", \"arguments\": {\"path\": \".\"}}\n```";
    let story = Story::new().script([says(text)]);
    story.run(["agent", "-m", "x"]).stdout(&format!("{text}\n"));
}
