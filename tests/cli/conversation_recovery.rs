//! A conversation after a failure: the next request, `--resume`, and the messages to the user.

use crate::attach::png_image;
use crate::formats::Format;
use crate::server::{Ending, Responder, Response, calls, fails, replies, says, sends};
use crate::signals::send_signal;
use crate::story::Story;
use serde_json::json;
use std::io::{BufRead, BufReader};

/// A provider's refusal of a message.
fn refuses() -> Responder {
    fails(400, "content policy violation")
}

/// A provider's refusal of a conversation that is too long.
fn too_long() -> Responder {
    fails(400, "maximum context length exceeded")
}

/// The text that is sent for a message that is left out.
const NOTE: &str = "[message not accepted: the provider refused it, so it is left out]";

/// A server that refuses each request with `bad words` or an image by `status`, and answers all others.
fn refuses_content(status: u16, message: &'static str) -> Responder {
    Box::new(move |request| {
        let is_bad = request.raw.contains("bad words") || request.raw.contains("base64");
        let respond = if is_bad { fails(status, message) } else { says("Fine.") };
        respond(request)
    })
}

const FORMATS: [Format; 3] = [Format::Chat, Format::Anthropic, Format::Responses];

/// A conversation with one answer, and an image in the directory.
fn begun(format: Format) -> Story {
    let png = png_image(2, 2);
    let story = Story::in_format(format, "scripted").file("a.png", png).script([says("Noted.")]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    story
}

/// The beginning of an answer; then the server does nothing more.
fn begins(text: &str) -> Responder {
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": text } }] });
    let event = format!("data: {delta}\n\n");
    sends(Response::events([event]).ending(Ending::Stall))
}

/// Runs a turn, and interrupts it like Ctrl-C once a part of the answer has arrived.
fn interrupt_in_answer(story: &Story, arguments: &[&str]) {
    let mut command = story.command(arguments);
    let mut child = command.args(["--output-format", "stream-json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"type\":\"text\"")));
    send_signal(&child, 2);
    lines.for_each(drop);
    assert_eq!(story.wait(child).signal(), Some(2));
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
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    story
        .run(["agent", "-m", "something bad"])
        .status(1)
        .stderr_has("try: `--resume` sends this message again, to another model perhaps; until then it is left out");
    story.server().script([says("Mia."), refuses(), says("Fine.")]);
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    let expect = ["My cat is Mia.", "Noted.", NOTE, "[interrupted before an answer]", "Who?"];
    assert_eq!(sent(&story, 2), expect);
    drop(story.run(["agent", "-m", "worse"]).status(1).error_text());
    story.run(["agent", "--resume"]).stdout("Fine.\n");
    let last = sent(&story, 4);
    assert_eq!(last.len(), 7, "{last:?}");
    assert!(last[6].contains("worse") && !last.concat().contains("bad"), "{last:?}");
    // From now on, it is a part of the conversation.
    story.server().script([says("Yes.")]);
    story.run(["agent", "-m", "and now?"]).stdout("Yes.\n");
    assert!(sent(&story, 5).concat().contains("worse"));
    story.run(["agent", "--resume"]).status(66).stderr_has("no interrupted turn");
}

/// The table of all statuses is that of `provider::failure_kind`.
#[test]
fn no_status_of_a_refusal_ends_the_conversation() {
    let statuses = [
        400, 401, 402, 403, 404, 407, 408, 409, 410, 413, 415, 422, 425, 429, 451, 500, 501, 502,
        503, 529,
    ];
    for (number, status) in statuses.into_iter().enumerate() {
        for message in [["-m", "bad words"].as_slice(), &["-m", "look", "-a", "a.png"]] {
            let story = begun(FORMATS[number % FORMATS.len()]);
            story.server().always(refuses_content(status, "no"));
            let result = story.run([&["agent"], message].concat());
            let failed = result.error_text();
            assert_ne!(result.code(), 0, "{status} {failed}");
            let next = story.run(["agent", "-m", "Who?"]);
            let stderr = next.error_text();
            if matches!(status, 401 | 402 | 407 | 408 | 409 | 425 | 429) {
                assert!(!failed.contains("left out"), "{status} {failed}");
                assert_ne!(next.code(), 0, "{status}");
                assert!(stderr.contains(&format!("status {status}")), "{status} {stderr}");
                continue;
            }
            assert_eq!(failed.contains("until then it is left out"), status < 500, "{failed}");
            drop(next.stdout("Fine.\n"));
            let last = story.last_request().raw;
            assert!(last.contains(NOTE) && last.contains("Mia"), "{status} {last}");
            let again = story.run(["agent", "-m", "And now?"]);
            again.stdout("Fine.\n").stderr("");
        }
    }
}

#[test]
fn an_image_that_the_model_does_not_take_is_left_out() {
    for format in FORMATS {
        for (status, message) in [
            (404, "No endpoints found that support image input"),
            (403, "m/m requires moderation. Your input was flagged for \"violence\"."),
        ] {
            let story = begun(format);
            story.server().always(refuses_content(status, message));
            story
                .run(["agent", "-m", "look", "-a", "a.png"])
                .status(1)
                .stderr_has("until then it is left out");
            story.run(["agent", "-m", "Who?"]).stdout("Fine.\n");
            story.server().always(says("A cat."));
            story.run(["agent", "-m", "And now?"]).stdout("A cat.\n");
        }
    }
}

/// As llama.cpp does with an image when it has no projector for it.
#[test]
fn a_message_on_which_the_server_fails_is_left_out() {
    let message = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj";
    for format in FORMATS {
        let story = begun(format);
        story.server().always(refuses_content(500, message));
        let arguments = ["agent", "-m", "look", "-a", "a.png"];
        story.run(arguments).status(69).stderr_has("try: `--resume` continues this turn\n");
        // The server may be down, so the message is sent once more.
        story.run(["agent", "--resume"]).status(69).stderr_has("until then it is left out");
        story.run(["agent", "-m", "Who?"]).stdout("Fine.\n").stderr("");
        // The next message is answered in spite of it.
        drop(story.run(arguments).status(69).error_text());
        story
            .run(["agent", "-m", "And?"])
            .stdout("Fine.\n")
            .stderr_has("the server fails on an earlier message, which is left out from now on");
        story.run(["agent", "-m", "And now?"]).stdout("Fine.\n").stderr("");
    }
    // The first message of a conversation.
    let story = Story::new();
    story.server().always(refuses_content(500, message));
    drop(story.run(["agent", "-m", "bad words"]).status(69).error_text());
    story.run(["agent", "-m", "Who?"]).stdout("Fine.\n").stderr_has("left out from now on");
    story.run(["agent", "-m", "And?"]).stdout("Fine.\n").stderr("");
}

/// While the server is down, no message is blamed for it.
#[test]
fn an_outage_leaves_no_message_out() {
    let story = Story::new();
    story.server().always(fails(502, "bad gateway"));
    for message in ["one", "two"] {
        drop(story.run(["agent", "-m", message]).status(69).error_text());
    }
    story.server().always(says("Fine."));
    let result = story.run(["agent", "-m", "three"]).stdout("Fine.\n");
    assert!(result.error_text().contains("marked as interrupted"));
    let last = sent(&story, story.requests().len() - 1).concat();
    assert!(last.contains("one") && last.contains("two") && last.contains("three"), "{last}");
}

#[test]
fn the_hint_of_a_failure_names_what_continues_the_turn() {
    let check = |arguments: &[&str], status: u16, expect: &str| {
        let story = Story::new();
        story.server().always(fails(status, "no"));
        let result = story.run(arguments);
        let stderr = result.error_text();
        assert_ne!(result.code(), 0, "{stderr}");
        assert!(stderr.ends_with(expect), "{arguments:?} {stderr}");
    };
    check(&["agent", "-m", "x"], 502, "  try: `--resume` continues this turn\n");
    check(&["agent", "-m", "x"], 429, "  try: `--resume` continues this turn, later\n");
    check(
        &["agent", "-m", "x", "-s", "a b"],
        502,
        "  try: `-s 'a b' --resume` continues this turn\n",
    );
    check(&["agent", "-m", "x", "--ephemeral"], 502, "(status 502)\n");
    check(&["agent", "-m", "x", "--ephemeral"], 400, "(status 400)\n");
    // Piped text has a session of its own.
    let story = Story::new().stdin("x");
    story.server().always(fails(502, "no"));
    let stderr = story.run(["agent"]).status(69).error_text();
    let hint = stderr.split('`').find(|part| part.starts_with("-s pipe:")).unwrap().to_owned();
    story.server().always(says("Fine."));
    let arguments = [&["agent"], hint.split(' ').collect::<Vec<_>>().as_slice()].concat();
    let resumed =
        story.wait(story.command(arguments).stdin(std::process::Stdio::null()).spawn().unwrap());
    resumed.stdout("Fine.\n");
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
    assert_eq!(sent(&story, 2), [format!("{NOTE}\n\nHi")]);
    // The message that is resumed is the last one.
    story.run(["agent", "--resume"]).status(66).stderr_has("no interrupted turn");
    drop(story.run(["agent", "-m", "again"]).status(1).error_text());
}

/// A refusal may be due to a message that never got an answer, not to the last one.
#[test]
fn a_refusal_leaves_out_everything_since_the_last_answer() {
    let story = Story::new().script([says("Noted."), fails(401, "no"), refuses(), says("Mia.")]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    drop(story.run(["agent", "-m", "one"]).status(77).error_text());
    drop(story.run(["agent", "-m", "two"]).status(1).error_text());
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    let last = sent(&story, 3);
    assert!(!last.concat().contains("one"), "{last:?}");
}

#[test]
fn a_message_that_is_too_long_does_not_end_the_conversation() {
    let long = "word ".repeat(2000);
    for compact in [["agent", "-m", "/compact"].as_slice(), &["session", "compact", "cli:direct"]] {
        let story = Story::new().script([says(&"Noted. ".repeat(100))]);
        drop(story.run(["agent", "-m", "My cat is Mia."]).text());
        // Attempts to shorten the conversation fail too.
        story.server().always(too_long());
        story.run(["agent", "-m", &long]).status(65).stderr_has("until then it is left out");
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
        assert!(last[0].contains("- a cat") && last[0].contains("word word"), "{last:?}");
    }
}

#[test]
fn a_compacted_conversation_fits_a_smaller_window() {
    let story = Story::new();
    // A server whose window has this many bytes for messages.
    let answer = |window: usize| -> Responder {
        Box::new(move |request| {
            let messages = request.messages();
            let bytes: usize = messages[1..].iter().map(|m| m.to_string().len()).sum();
            let answer = if bytes > window { too_long() } else { says("Noted.") };
            answer(request)
        })
    };
    let long = "word ".repeat(2000);
    story.server().always(answer(50_000));
    for number in 0..3 {
        let message = format!("{number} {long}");
        story.run(["agent", "-m", &message]).stdout("Noted.\n");
    }
    story.run(["session", "compact", "cli:direct"]).stdout_has("Compacted: ");
    // The summary holds half of the messages: there is no reply left that another summary could replace.
    story.server().always(answer(5_000));
    story
        .run(["agent", "-m", "Who?"])
        .stdout("Noted.\n")
        .stderr_has("the user's earlier messages are truncated");
    story.run(["agent", "-m", "And now?"]).stdout("Noted.\n");
    let last = sent(&story, story.requests().len() - 1).concat();
    assert!(last.contains("0 word") && last.contains("2 word"), "{last}");
    // A message that does not fit by itself leaves the earlier ones as they are.
    drop(story.run(["agent", "-m", &long]).status(65).error_text());
    story.run(["agent", "-m", "And now?"]).stdout("Noted.\n");
    let after = sent(&story, story.requests().len() - 1).concat();
    assert!(after.contains("0 word") && after.contains("2 word"), "{after}");
}

#[test]
fn a_refused_message_is_left_out_of_the_consolidation() {
    let story = Story::new().set("agents.defaults.memoryWindow", json!(2));
    let memory =
        json!({ "history_entry": "[2026-01-02 03:04] A cat.", "memory_update": "A cat, Mia." });
    story.server().script([says("Noted."), refuses(), says("Mia."), calls("save_memory", memory)]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    drop(story.run(["agent", "-m", "something bad"]).status(1).error_text());
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    drop(story.run(["memory", "consolidate", "--all"]).text());
    let request = story.last_request();
    assert!(request.raw.contains("My cat is Mia"), "{}", request.raw);
    assert!(!request.raw.contains("something bad"), "{}", request.raw);
}

#[test]
fn a_partial_answer_is_kept_when_it_is_interrupted() {
    let story = Story::new().script([begins("Half of"), says("Mia."), says("Fine.")]);
    interrupt_in_answer(&story, &["agent", "-m", "Tell me everything."]);
    let lines = story.session("cli_direct.jsonl");
    assert_eq!(lines[2]["content"], "Half of\n\n[interrupted]");
    assert_eq!(lines[2]["finish_reason"], "interrupted");
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    let expect = ["Tell me everything.", "Half of\n\n[interrupted]", "Who?"];
    assert_eq!(sent(&story, 1), expect);
    story.run(["agent", "-m", "And?"]).stdout("Fine.\n");
    assert_eq!(sent(&story, 2)[..3], expect);
}

#[test]
fn a_resumed_answer_is_complete() {
    let story = Story::new().script([begins("Half of"), begins("All of"), says("All of it.")]);
    interrupt_in_answer(&story, &["agent", "-m", "Tell me everything."]);
    interrupt_in_answer(&story, &["agent", "--resume"]);
    story.run(["agent", "--resume"]).stdout("All of it.\n");
    let last = sent(&story, 2);
    assert!(last[4].contains("Write the complete answer"), "{last:?}");
    story.run(["agent", "--resume"]).status(66).stderr_has("no interrupted turn");
}

#[test]
fn an_abandoned_question_is_not_merged_into_the_next_one() {
    let story = Story::new().script([fails(401, "no"), says("Mia."), says("Fine.")]);
    drop(story.run(["agent", "-m", "Delete everything."]).status(77).error_text());
    story
        .run(["agent", "-m", "Who?"])
        .stdout("Mia.\n")
        .stderr("nanobot: the previous message `Delete everything.` got no answer; it is sent too, marked as interrupted; `--new` leaves it out\n");
    let expect = ["Delete everything.", "[interrupted before an answer]", "Who?"];
    assert_eq!(sent(&story, 1), expect);
    // The request of a later turn begins with the same messages.
    story.run(["agent", "-m", "And?"]).stdout("Fine.\n");
    assert_eq!(sent(&story, 2)[..3], expect);
}

/// A script that tries again during an outage gives one order, and what it asked before stands beside it as superseded.
#[test]
fn a_retried_message_is_sent_once() {
    let story = Story::new().script([
        fails(401, "no"),
        fails(401, "no"),
        fails(401, "no"),
        says("Posted."),
        says("Fine."),
    ]);
    for _ in 0..3 {
        drop(story.run(["agent", "-m", "post the report"]).status(77).error_text());
    }
    story.run(["agent", "-m", "post the report"]).stdout("Posted.\n");
    assert_eq!(sent(&story, 3), ["post the report"]);
    story.run(["agent", "-m", "And?"]).stdout("Fine.\n");
    assert_eq!(sent(&story, 4), ["post the report", "Posted.", "And?"]);
    // The file keeps each of them.
    let stored = story.session("cli_direct.jsonl");
    let count = stored.iter().filter(|line| line["content"] == "post the report").count();
    assert_eq!(count, 4, "{stored:?}");

    let story = Story::new().script([fails(401, "no"), fails(401, "no"), says("Fine.")]);
    for text in ["post it, try 1", "post it, try 2"] {
        drop(story.run(["agent", "-m", text]).status(77).error_text());
    }
    story.run(["agent", "-m", "Hello."]).stdout("Fine.\n").stderr(
        "nanobot: the previous message `post it, try 2` got no answer; it is sent too, marked as interrupted, and 1 before it, marked as \
         superseded; `--new` leaves them out\n",
    );
    let superseded = "[interrupted before an answer; a later message takes its place, so it is not to be acted on]";
    let expect = [
        "post it, try 1",
        superseded,
        "post it, try 2",
        "[interrupted before an answer]",
        "Hello.",
    ];
    assert_eq!(sent(&story, 2), expect);
}

#[test]
fn a_question_abandoned_after_a_tool_call_is_not_merged_into_the_next_one() {
    let story = Story::new().file("notes", "alpha").script([
        calls("read_file", json!({ "path": "notes" })),
        fails(401, "no"),
        says("Mia."),
    ]);
    drop(story.run(["agent", "-m", "Read."]).status(77).error_text());
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n").stderr_has("marked as interrupted");
    assert_eq!(sent(&story, 2)[3], "[interrupted before an answer]");
}

/// A part of an answer that the output limit cuts.
fn cuts(text: &str) -> Responder {
    replies(json!({ "content": text }), "length")
}

#[test]
fn an_answer_that_the_output_limit_cuts_is_continued() {
    let story = Story::new().script([cuts("Once up"), cuts("on a time"), says(" they\n\nlived.")]);
    story.run(["agent", "-m", "tell"]).stdout("Once upon a time they\n\nlived.\n");
    let last = sent(&story, 2);
    assert_eq!((last.len(), last[1].as_str(), last[3].as_str()), (5, "Once up", "on a time"));
    assert!(last[4].contains("Continue it exactly where it stopped"), "{last:?}");
    story.server().script([says("Fine.")]);
    story.run(["agent", "-m", "And?"]).stdout("Fine.\n");
    let story = Story::new().script([cuts("Once "), says("more.")]);
    let result = story.run(["agent", "-m", "tell", "--json"]);
    assert_eq!(result.json()["text"], "Once more.");
    assert_eq!(result.json()["partial"], false);
    assert_eq!(result.json()["usage"]["output"], 14);
}

#[test]
fn the_parts_of_an_answer_are_one_text_on_a_terminal() {
    let story = Story::new().script([cuts("Once up"), says("on a time.")]);
    let mut command = story.program("script");
    let line = format!("{} agent -m x", crate::story::NANOBOT);
    let child = command.args(["-qec", &line, "/dev/null"]).spawn().unwrap();
    let stdout = story.wait(child).text();
    assert!(stdout.contains("Once upon a time."), "{stdout:?}");
}

#[test]
fn a_continuation_that_fails_is_resumed() {
    let story = Story::new().script([cuts("Once up"), fails(401, "no"), says("on a time.")]);
    drop(story.run(["agent", "-m", "tell"]).status(77).error_text());
    story.run(["agent", "--resume"]).stdout("Once upon a time.\n");
}

#[test]
fn an_answer_is_not_continued_beyond_the_iteration_limit() {
    let story = Story::new().script([cuts("Once up"), says("Fine.")]);
    story
        .run(["agent", "-m", "tell", "--max-iterations", "1"])
        .stdout("Once up\n")
        .stderr_has("truncated by the output limit")
        .status(3);
    story.run(["agent", "-m", "And?"]).stdout("Fine.\n");
}

/// A message that no model of the run can take is refused before it is uploaded, and leaves no trace.
#[test]
fn a_message_far_beyond_the_window_is_not_sent() {
    let story = |large: u64| {
        Story::new()
            .set("agents.defaults.model", json!("small"))
            .set(
                "models",
                json!({ "small": { "contextWindowTokens": 4000 }, "large": { "contextWindowTokens": large } }),
            )
            .set("agents.defaults.fallbackModels", json!(["large"]))
            .stdin("word ".repeat(20_000))
    };
    let refused = story(8000);
    let result = refused.run(["agent", "-m", "summarise"]).status(65);
    let stderr = result.stdout("").error_text();
    assert!(
        stderr.starts_with("nanobot: the message has 97.7 KB, about 25")
            && stderr.contains(" tokens, and the model takes at most 8000\n  try: at most 15.6 KB"),
        "{stderr}"
    );
    assert_eq!(refused.requests().len(), 0);
    refused.run(["session", "list"]).stdout("");
    // The window of an unknown model is the configured one.
    let unknown = Story::new()
        .set("agents.defaults.contextWindowTokens", json!(9000))
        .stdin("word ".repeat(20_000));
    let stderr = unknown.run(["agent", "-m", "summarise"]).status(65).error_text();
    assert!(stderr.contains("`agents.defaults.contextWindowTokens` is 9000"), "{stderr}");
    assert_eq!(unknown.requests().len(), 0);
    // A fallback may be able to take it, and an estimate may be wrong.
    for large in [30_000, 18_000] {
        let story = story(large).script([says("ok")]);
        story.run(["agent", "-m", "summarise"]).stdout("ok\n");
    }
}

#[test]
fn a_resumed_turn_takes_no_message() {
    let story = Story::new().stdin("piped\n");
    for flags in [&["agent", "--resume"][..], &["agent", "--resume", "-m", "x"]] {
        story.run(flags).status(2).stderr_has("`--resume` continues a turn, and takes no message");
    }
    assert!(story.requests().is_empty());
}
