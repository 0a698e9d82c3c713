//! Sessions that outgrow the context window: truncation of old results, summaries, and failures of both.

use crate::server::{Ending, Request, Responder, calls, fails, replies, says, sends};
use crate::story::{Story, write};
use serde_json::{Value, json};

/// About `tokens` tokens of text, starting with `start`.
fn long_text(start: &str, tokens: usize) -> String {
    format!("{start} {}", "lorem ipsum\n".repeat(tokens / 3))
}

/// A story that compacts its sessions at this token count. A request without history has about 1,000 tokens.
fn story(threshold: u64) -> Story {
    Story::new()
        .set("compaction.threshold", json!(threshold))
        .set("compaction.warning", json!(false))
}

/// The texts of the messages in the request, one per message.
fn message_texts(request: &Request) -> Vec<String> {
    let text = |message: Value| match &message["content"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    request.messages().into_iter().map(text).collect()
}

/// Two turns; the second one passes the threshold of 3,000 tokens and triggers a summary.
fn compacted_story() -> Story {
    let story = story(3000).script([says("Noted."), says("- the user likes Mia"), says("Done.")]);
    let first = long_text("My cat is Mia.", 2400);
    story.run(["agent", "-m", &first]).stdout("Noted.\n");
    story
        .run(["agent", "-m", "And now?"])
        .stdout("Done.\n")
        .stderr_has("the session was compacted: ");
    story
}

#[test]
fn prompts_are_replaced_by_the_files_of_the_config() {
    let file = |name: &str| json!(format!("prompts/{name}.md"));
    let story = story(3000)
        .set("agents.defaults.promptFiles", json!({ "system": file("system"), "compaction": file("compaction"), "consolidation": file("consolidation") }))
        .set("agents.defaults.memoryWindow", json!(1))
        .script([
            says("Noted."),
            says("a summary"),
            says("Done."),
            crate::memory::calls_save_memory("[2026-01-01 10:00] Words.", "m"),
        ]);
    for name in ["system", "compaction", "consolidation"] {
        let path = story.home().join(format!(".nanobot/prompts/{name}.md"));
        write(&path, format!("My own {name} prompt.\n").as_bytes());
    }
    let first = long_text("My cat is Mia.", 2400);
    story.run(["agent", "-m", &first]).stdout("Noted.\n");
    story.run(["agent", "-m", "And now?"]).stdout("Done.\n").stderr_has("compacted");
    story.run(["memory", "consolidate", "-s", "cli:direct"]).stdout_has("cli:direct");
    let texts: Vec<Vec<String>> = story.requests().iter().map(message_texts).collect();
    // The directories and permissions in force are stated all the same.
    let system = &texts[0][0];
    assert!(
        system.starts_with("My own system prompt.\n\n## Directories\n- Working directory: "),
        "{system}"
    );
    assert!(
        system.contains("\n## Permissions\n") && !system.contains("You are nanobot"),
        "{system}"
    );
    assert_eq!(texts[1].last().unwrap(), "My own compaction prompt.");
    assert_eq!(texts[3][0], "My own consolidation prompt.");
    // A file of the working directory is none of them.
    std::fs::remove_dir_all(story.home().join(".nanobot/prompts")).unwrap();
    let story = story.file("prompts/system.md", "Planted.");
    story.run(["agent", "-m", "x"]).status(78).stderr_has("`agents.defaults.promptFiles.system`");
}

#[test]
fn a_long_session_continues_from_a_summary_and_the_user_messages() {
    let story = compacted_story();
    let requests = story.requests();
    // The summary request starts with the bytes of the request before it and forbids tool calls.
    let first = message_texts(&requests[0]);
    assert_eq!(message_texts(&requests[1])[..first.len()], first);
    assert_eq!(requests[1].body["tool_choice"], "none");
    let last = message_texts(&requests[2]);
    assert_eq!(last.len(), 2, "system, summary and question: {last:?}");
    assert!(
        last[1].contains("- the user likes Mia")
            && last[1].contains("<user_message>\nMy cat is Mia. lorem")
    );
    assert!(last[1].contains("And now?"));
    assert!(requests[2].raw.len() < requests[1].raw.len() / 4 * 3);
    // The session file has all messages, in a format that the Python program can read.
    let lines = story.session("cli_direct.jsonl");
    let roles: Vec<&str> = lines
        .iter()
        .map(|line| line["_type"].as_str().or(line["role"].as_str()).unwrap())
        .collect();
    let turn = ["user", "assistant", "metadata"];
    let second = ["user", "metadata", "assistant", "metadata"];
    assert_eq!(roles, [&["metadata"][..], &turn, &second].concat());
    assert_eq!(lines[5]["ending"], "compacted");
}

#[test]
fn the_next_run_begins_with_the_same_bytes() {
    let story = compacted_story();
    story.server().script([says("Again.")]);
    story.run(["agent", "-m", "Still there?"]).stdout("Again.\n");
    let requests = story.requests();
    let (before, after) = (message_texts(&requests[2]), message_texts(&requests[3]));
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 2);
}

#[test]
fn user_messages_survive_a_second_compaction() {
    let story = compacted_story();
    let more = long_text("My dog is Rex.", 2400);
    story.server().script([says("- s2"), says("Nice.")]);
    drop(story.run(["agent", "-m", &more]).stdout("Nice.\n").error_text());
    // The message is unanswered, so it is not truncated.
    assert!(story.requests()[4].last_content().contains(&more));
    story.server().script([says("- two"), says("Mia and Rex.")]);
    drop(story.run(["agent", "-m", "Which animals?"]).stdout("Mia and Rex.\n").error_text());
    let requests = story.requests();
    let last = message_texts(requests.last().unwrap());
    assert!(last[1].contains("My cat is Mia.") && last[1].contains("My dog is Rex."), "{last:?}");
    assert_eq!(last[1].matches("<summary>").count(), 1);
}

#[test]
fn old_results_are_shortened_before_a_summary_is_requested() {
    let story =
        story(11_000).file("a.txt", long_text("alpha", 4500)).file("b.txt", "beta").script([
            calls("read_file", json!({ "path": "a.txt" })),
            calls("read_file", json!({ "path": "a.txt" })),
            calls("read_file", json!({ "path": "a.txt" })),
            calls("read_file", json!({ "path": "b.txt" })),
            says("read"),
        ]);
    story
        .run(["agent", "-m", "read"])
        .stdout("read\n")
        .stderr_has("old tool results are truncated");
    let requests = story.requests();
    assert_eq!(requests.len(), 5);
    let shortened = |request: &Request| -> Vec<bool> {
        let results = request.tool_results();
        results.iter().map(|result| result.contains("characters omitted")).collect()
    };
    assert_eq!(shortened(&requests[2]), [false, false]);
    assert_eq!(shortened(&requests[3]), [true, true, false]);
    // The results stay truncated for the rest of the turn and in the next run.
    assert_eq!(shortened(&requests[4]), [true, true, false, false]);
    story.server().script([says("yes")]);
    story.run(["agent", "-m", "sure?"]).stdout("yes\n");
    assert_eq!(shortened(&story.requests()[5]), [true, true, false, false]);
    let lines = story.session("cli_direct.jsonl");
    let stored_line = lines.iter().find(|line| line["role"] == "tool").unwrap();
    assert!(!stored_line.to_string().contains("characters omitted"));
}

#[test]
fn a_request_rejected_as_too_long_is_compacted_and_resent() {
    let story = Story::new().script([
        says("Noted."),
        fails(400, "maximum context length exceeded"),
        says("- a cat"),
        says("Mia."),
    ]);
    story.run(["agent", "-m", &long_text("My cat is Mia.", 600)]).stdout("Noted.\n");
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n").stderr_has("the session was compacted");
    let requests = story.requests();
    assert!(message_texts(&requests[3])[1].contains("- a cat"));
    assert!(message_texts(&requests[3])[1].contains("Who?"));
}

#[test]
fn an_unanswered_message_is_never_truncated() {
    // The warning is between the failed call and the answer.
    let story = Story::new().set("compaction.threshold", json!(9000)).script([
        says(&long_text("Noted.", 300)),
        fails(400, "maximum context length exceeded"),
        says("- a cat"),
        says("Mia."),
    ]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout_has("Noted.");
    let question = format!("{}\nWho is she?\n{}", long_text("a", 2000), long_text("b", 2000));
    drop(story.run(["agent", "-m", &question]).stdout("Mia.\n").error_text());
    let requests = story.requests();
    assert!(requests[1].raw.contains("at 9000 it is compacted"));
    assert!(message_texts(&requests[3])[1].contains("\nWho is she?\n"));
}

#[test]
fn an_oversized_system_prompt_does_not_cause_repeated_compaction() {
    let story = story(900).script([says("one"), says("two"), says("three")]);
    for text in ["one", "two", "three"] {
        story.run(["agent", "-m", "x"]).stdout(&format!("{text}\n"));
    }
    assert_eq!(story.requests().len(), 3);
}

#[test]
fn a_repeatedly_failing_call_ends_the_turn_even_if_compaction_is_exhausted() {
    let story = story_before_compaction([]);
    let call = || calls("read_file", json!({ "path": "nowhere" }));
    story.server().script([
        fails(400, "no"),
        call(),
        call(),
        call(),
        call(),
        call(),
        says("It is not there."),
    ]);
    let result = story.run(["agent", "-m", "read it"]);
    drop(result.status(3).stdout("It is not there.\n").error_text());
}

#[test]
fn a_fork_made_by_the_agent_command_has_the_user_messages() {
    let story = compacted_story();
    story.server().script([says("Mia.")]);
    drop(
        story
            .run(["agent", "--fork", "cli:direct", "-s", "copy", "-m", "Who?"])
            .stdout("Mia.\n")
            .error_text(),
    );
    story.server().script([says("- s2")]);
    drop(story.run(["session", "compact", "copy"]).text());
    story.server().script([says("Mia!")]);
    story.run(["agent", "-s", "copy", "-m", "Who now?"]).stdout("Mia!\n");
    let requests = story.requests();
    let last = message_texts(requests.last().unwrap());
    assert!(last[1].contains("My cat is Mia.") && last[1].contains("- s2"), "{last:?}");
}

#[test]
fn an_interrupted_turn_is_not_ended_by_compaction() {
    let story = Story::new().script([calls("list_dir", json!({})), fails(401, "no")]);
    drop(story.run(["agent", "-m", "look"]).status(77).error_text());
    story.run(["agent", "-m", "/compact"]).status(2).stderr_has("--resume");
    story.server().script([says("empty")]);
    story.run(["agent", "--resume"]).stdout("empty\n");
}

#[test]
fn a_history_too_long_to_summarize_loses_its_oldest_half() {
    let story = Story::new();
    for turn in 0..4 {
        story.server().script([says("ok")]);
        let message = long_text(&format!("fact {turn}"), 300);
        story.run(["agent", "-m", &message]).stdout("ok\n");
    }
    let too_long = || fails(400, "maximum context length exceeded");
    story.server().script([too_long(), too_long(), says("- facts"), says("all")]);
    drop(story.run(["agent", "-m", "which facts?"]).stdout("all\n").error_text());
    let requests = story.requests();
    let (whole, half) = (message_texts(&requests[5]), message_texts(&requests[6]));
    assert!(half.len() < whole.len() && half[1].contains("do not fit"), "{half:?}");
    // The user's messages are preserved as far as they fit.
    assert!(message_texts(&requests[7])[1].contains("fact 3"));
}

/// A story whose second turn needs compaction; the server answers the summary request with `responses`.
fn story_before_compaction(responses: impl IntoIterator<Item = Responder>) -> Story {
    let story = story(3000).script([says("Noted.")]);
    let first = long_text("My cat is Mia.", 2400);
    story.run(["agent", "-m", &first]).stdout("Noted.\n");
    story.server().script(responses);
    story
}

#[test]
fn a_failed_compaction_leaves_the_session_unchanged() {
    let cut = replies(json!({ "role": "assistant", "content": "- the us" }), "length");
    let longer = says(&long_text("- it was said that", 4000));
    for responder in [says(" "), fails(400, "no such thing"), cut, longer] {
        let story = story_before_compaction([responder, says("Mia.")]);
        story.run(["agent", "-m", "Who?"]).stdout("Mia.\n").stderr_has("could not be compacted");
        let requests = story.requests();
        assert_eq!(requests.len(), 3, "it is tried once in a turn");
        let last = message_texts(&requests[2]);
        assert!(last.len() == 4 && last[1].contains("My cat is Mia."), "{last:?}");
        let lines = story.session("cli_direct.jsonl");
        assert!(lines.iter().all(|line| line["ending"] != "compacted"));
    }
}

/// A small model that cannot summarize must not end the conversation.
#[test]
fn a_rejected_request_without_a_summary_goes_out_without_the_old_answers() {
    let cut = replies(json!({ "role": "assistant", "content": "- the us" }), "length");
    let too_long = || fails(400, "maximum context length exceeded");
    let story =
        Story::new().script([says(&long_text("Noted.", 600)), too_long(), cut, says("Mia.")]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout_has("Noted.");
    let text = story.run(["agent", "-m", "Who?"]).stdout("Mia.\n").error_text();
    assert!(text.contains("earlier answers and tool results are left out"), "{text}");
    let requests = story.requests();
    let last = message_texts(&requests[3])[1..].concat();
    assert!(last.contains("My cat is Mia.") && last.contains("Who?") && !last.contains("Noted."));
}

/// The newer half of the conversation has results alone, without their calls: there is nothing to summarize in it.
#[test]
fn a_summary_of_nothing_does_not_replace_the_conversation() {
    let too_long = || fails(400, "maximum context length exceeded");
    let story = Story::new().file("notes", "lorem ipsum\n".repeat(80)).script([
        calls("read_file", json!({ "path": "notes" })),
        too_long(),
        too_long(),
        says("Mia."),
    ]);
    let text = story.run(["agent", "-m", "read it"]).stdout("Mia.\n").error_text();
    assert!(text.contains("even the most recent messages are too long to summarize"), "{text}");
    let requests = story.requests();
    assert_eq!(
        requests.len(),
        4,
        "the call, the rejected request, one for a summary, the shorter one"
    );
    let last = message_texts(&requests[3])[1..].concat();
    assert!(last.contains("read it") && last.contains("No summary of the earlier"), "{last}");
}

#[test]
fn no_request_for_a_summary_is_repeated() {
    let story = Story::new().script([says("Noted.")]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    story.server().always(fails(400, "maximum context length exceeded"));
    story
        .run(["session", "compact", "cli:direct"])
        .status(65)
        .stderr_has("even the most recent messages are too long to summarize");
    // Both messages, then the answer alone.
    let requests = story.requests();
    assert_eq!(requests.len(), 3);
    let last = message_texts(&requests[2])[1..].concat();
    assert!(last.contains("Noted.") && !last.contains("My cat is Mia."), "{last}");
}

/// There is no turn to resume, and `--new` would discard the messages that must be preserved.
#[test]
fn a_failed_compact_command_suggests_neither_resume_nor_new() {
    let half = "data: {\"choices\": [{\"delta\": {\"content\": \"- the\"}}]}\n\n";
    let cut = sends(crate::server::Response::events([half]).ending(Ending::Disconnect));
    let too_long = fails(400, "maximum context length is 10 tokens");
    for (responder, status) in [(cut, 69), (too_long, 65)] {
        let story = story_before_compaction([]);
        story.server().always(responder);
        let result = story.run(["session", "compact", "cli:direct"]);
        let text = result.status(status).error_text();
        assert!(text.contains("the session was not compacted: "), "{text}");
        assert!(!text.contains("--resume") && !text.contains("--new"), "{text}");
    }
}

#[test]
fn a_run_killed_during_compaction_loses_nothing() {
    let stalls = sends(crate::server::Response::events(["data: {}\n\n"]).ending(Ending::Stall));
    let story = story_before_compaction([stalls]);
    let mut child = story.command(["agent", "-m", "Who?"]).spawn().unwrap();
    story.server().wait_for_requests(2);
    child.kill().unwrap();
    child.wait().unwrap();
    story.server().script([says("- a cat"), says("Mia.")]);
    drop(story.run(["agent", "--resume"]).stdout("Mia.\n").error_text());
    let requests = story.requests();
    assert!(message_texts(requests.last().unwrap())[1].contains("My cat is Mia."));
}

#[test]
fn an_exhausted_budget_ends_the_turn_before_compaction() {
    let price = json!({ "scripted": { "price": { "input": 1000.0, "output": 1000.0 } } });
    let story = story(3000).set("models", price).script([says("Noted.")]);
    let first = long_text("My cat is Mia.", 2400);
    story.run(["agent", "-m", &first]).stdout("Noted.\n");
    let story = story.set("budget.daily", json!(0.01));
    drop(story.run(["agent", "-m", "Who?"]).status(4).error_text());
    let lines = story.session("cli_direct.jsonl");
    assert!(lines.iter().all(|line| line["ending"] != "compacted"));
}

#[test]
fn slash_compact_accepts_instructions() {
    let story = Story::new();
    story.run(["agent", "-m", "/compact"]).stdout("Nothing to compact.\n");
    story.server().script([says(&long_text("Noted.", 500)), says("- Mia")]);
    drop(story.run(["agent", "-m", "My cat is Mia."]).text());
    let stdout = story.run(["agent", "-m", "/compact keep the names"]).text();
    let lines = story.session("cli_direct.jsonl");
    let stats = &lines.last().unwrap()["metadata"]["nanobot"]["stats"];
    assert_eq!((&stats["turns"], stats["steps"].as_u64()), (&json!(1), Some(1)));
    assert!(stdout.starts_with("Compacted: ") && stdout.ends_with(" tokens.\n"), "{stdout}");
    assert!(
        story.requests()[1].last_content().ends_with("Instructions from the user: keep the names")
    );
    story.server().script([says("Mia.")]);
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    let last = message_texts(&story.requests()[2]);
    assert!(last[1].contains("- Mia") && last[1].contains("Who?"), "{last:?}");
    // A message that only starts with the command is an ordinary message.
    story.server().script([says("?")]);
    story.run(["agent", "-m", "/compactly"]).stdout("?\n");
}

#[test]
fn a_summary_alone_is_not_an_interrupted_turn() {
    let story = Story::new().script([says(&long_text("Noted.", 500)), says("- Mia")]);
    drop(story.run(["agent", "-m", "My cat is Mia."]).text());
    drop(story.run(["agent", "-m", "/compact"]).text());
    story.run(["agent", "--resume"]).status(66).stderr_has("no interrupted turn");
}

#[test]
fn after_new_no_summary_is_sent() {
    let story = compacted_story();
    story.server().script([says("Hello.")]);
    story.run(["agent", "--new", "-m", "Hi"]).stdout("Hello.\n");
    assert_eq!(message_texts(&story.requests()[3]).len(), 2);
}

#[test]
fn a_forked_and_a_renamed_session_begin_with_the_same_summary() {
    let story = compacted_story();
    let quiet = |arguments: &[&str]| drop(story.run(arguments).error_text());
    quiet(&["session", "fork", "cli:direct", "copy"]);
    quiet(&["session", "rename", "cli:direct", "a much longer key than before"]);
    // A session forked before the compaction has no summary.
    quiet(&["session", "fork", "copy", "early", "--at", "1"]);
    for (key, summed_up) in
        [("copy", true), ("a much longer key than before", true), ("early", false)]
    {
        story.server().script([says("Mia.")]);
        drop(story.run(["agent", "-s", key, "-m", "Who?"]).stdout("Mia.\n").error_text());
        let requests = story.requests();
        let last = message_texts(requests.last().unwrap());
        assert_eq!(last[1].contains("- the user likes Mia"), summed_up, "{key}: {last:?}");
        assert!(last[1].contains("My cat is Mia."));
    }
}

#[test]
fn the_model_is_notified_once_at_half_of_the_context_window() {
    let story = Story::new().set("compaction.threshold", json!(6000)).script([
        says("Noted."),
        says("Mia."),
        says("Yes."),
    ]);
    let first = long_text("My cat is Mia.", 2800);
    story.run(["agent", "-m", &first]).stdout("Noted.\n");
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
    story.run(["agent", "-m", "Sure?"]).stdout("Yes.\n");
    let warnings = |request: &Request| request.raw.matches("at 6000 it is compacted").count();
    let requests = story.requests();
    assert_eq!(requests.iter().map(warnings).collect::<Vec<_>>(), [0, 1, 1]);
    let lines = story.session("cli_direct.jsonl");
    let injected = lines.iter().find(|line| line["injected"] == true).unwrap();
    assert!(injected["id"].as_str().unwrap().ends_with("-warning"));
}

#[test]
fn without_a_threshold_there_is_no_compaction() {
    let story = story(0).script([says("Noted."), says("Mia.")]);
    let first = long_text("My cat is Mia.", 9000);
    story.run(["agent", "-m", &first]).stdout("Noted.\n");
    story.run(["agent", "-m", "Who?"]).stdout("Mia.\n");
}

#[test]
fn compaction_emits_an_event_and_is_counted() {
    let story = story_before_compaction([says("- a cat"), says("Mia.")])
        .set("models", json!({ "scripted": { "price": { "input": 1.0, "output": 1.0 } } }));
    let run_result = story.run(["agent", "-m", "Who?", "--output-format", "stream-json"]);
    let lines = run_result.json_lines();
    drop(run_result.error_text());
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    let expect = [
        "user",
        "compact_start",
        "usage",
        "compact_end",
        "notice",
        "text",
        "assistant",
        "usage",
        "result",
    ];
    assert_eq!(kinds, expect);
    assert_eq!((&lines[1]["threshold"], &lines[3]["error"]), (&json!(3000), &Value::Null));
    assert!(lines[1]["tokens"].as_u64() >= Some(3000));
    assert_eq!(lines[3]["tokens_before"], lines[1]["tokens"]);
    assert!(lines[3]["tokens_after"].as_u64() < lines[3]["tokens_before"].as_u64());
    let result = lines.last().unwrap();
    let cost = |line: &Value| line["cost_usd"].as_f64().unwrap();
    let sum = cost(&lines[2]) + cost(&lines[7]);
    assert!((cost(result) - sum).abs() < 1e-7, "the summary costs too");
    assert_eq!(result["iterations"], 1);
}

#[test]
fn statistics_are_stored_in_the_session() {
    let story = Story::new().script([
        calls("list_dir", json!({})),
        calls("no_such_tool", json!({})),
        calls("read_file", json!({ "path": "/etc/shadow-of-nothing" })),
        says("one"),
        says("two"),
    ]);
    let run_result = story.run(["agent", "-m", "hi", "--json"]);
    let result = run_result.json();
    drop(run_result.error_text());
    let expect = json!({ "agreed": 1, "rejected": 1, "failed": 1, "succeeded": 1 });
    assert_eq!(result["calls"], expect);
    assert!(result["context_tokens"].as_u64().unwrap() > 500);
    story.run(["agent", "-m", "more"]).stdout("two\n");
    let lines = story.session("cli_direct.jsonl");
    let stats = |line: &Value| line["metadata"]["nanobot"]["stats"].clone();
    let (first, last) = (stats(&lines[9]), stats(lines.last().unwrap()));
    assert_eq!((&first["turns"], &first["steps"]), (&json!(1), &json!(4)));
    assert_eq!((&last["turns"], &last["steps"]), (&json!(2), &json!(5)));
    assert_eq!(
        (&last["agreed"], &last["rejected"], &last["failed"], &last["succeeded"]),
        (&json!(1), &json!(1), &json!(1), &json!(1))
    );
    assert!(last["in"].as_u64() > first["in"].as_u64());
}
