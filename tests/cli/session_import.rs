//! `session import`: conversations of other programs become sessions.

use crate::provenance::origin_of;
use crate::server::says;
use crate::story::Story;
use serde_json::{Value, json};

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

/// A transcript of Claude Code: a reply has a line for each of its blocks, and a result is a message of the user.
fn claude_code() -> String {
    let reply = |uuid: &str, id: &str, block: Value| {
        json!({
            "type": "assistant", "uuid": uuid, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z",
            "message": { "id": id, "role": "assistant", "model": "claude", "content": [block] },
        })
    };
    let user = |uuid: &str, content: Value| json!({ "type": "user", "uuid": uuid, "sessionId": "s", "message": { "role": "user", "content": content } });
    let call = |id: &str, name: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": name, "input": input });
    let result = |id: &str, content: Value| json!([{ "type": "tool_result", "tool_use_id": id, "content": content }]);
    let mut meta = user("m", json!("Caveat: written by a program"));
    meta["isMeta"] = true.into();
    let mut sidechain = user("c", json!("the task of a sub-agent"));
    sidechain["isSidechain"] = true.into();
    lines(&[
        json!({ "type": "summary", "summary": "Tea", "leafUuid": "z" }),
        json!({ "type": "file-history-snapshot", "messageId": "a" }),
        meta,
        user("a", json!("read notes.md and look at example.org")),
        reply(
            "b1",
            "msg_1",
            json!({ "type": "thinking", "thinking": "secret thought", "signature": "x" }),
        ),
        reply("b2", "msg_1", json!({ "type": "text", "text": "I read both." })),
        reply("b3", "msg_1", call("toolu_1", "Read", json!({ "file_path": "notes.md" }))),
        user("d1", result("toolu_1", json!("milk"))),
        // A line that was written twice, and one whose results came between.
        reply("b3", "msg_1", call("toolu_1", "Read", json!({ "file_path": "notes.md" }))),
        reply("b4", "msg_1", call("toolu_2", "Grep", json!({ "pattern": "tea" }))),
        user("d2", result("toolu_2", json!([{ "type": "text", "text": "nothing" }]))),
        sidechain,
        reply("e1", "msg_2", call("toolu_3", "Write", json!({ "file_path": "x" }))),
        user(
            "f",
            json!([{ "type": "text", "text": "never mind" }, { "type": "image", "source": {} }]),
        ),
        reply("g", "msg_3", json!({ "type": "text", "text": "Fine." })),
    ]) + "{\"type\": \"assist"
}

/// A transcript of one question and its answer.
pub(crate) fn short_transcript() -> String {
    let line = |role: &str, content: Value| json!({ "type": role, "message": { "role": role, "id": "m", "content": content } });
    lines(&[
        line("user", json!("how is tea made?")),
        line("assistant", json!([{ "type": "text", "text": "With water." }])),
    ])
}

/// A rollout of Codex: items of the Responses API, each in an envelope.
fn codex() -> String {
    let item = |payload: Value| json!({ "timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload });
    let message = |role: &str, kind: &str, text: &str| {
        item(
            json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] }),
        )
    };
    lines(&[
        json!({ "timestamp": "t", "type": "session_meta", "payload": { "id": "i", "cwd": "/src" } }),
        message("developer", "input_text", "you are codex"),
        message("user", "input_text", "<environment_context>\n/src</environment_context>"),
        message("user", "input_text", "run the tests"),
        json!({ "timestamp": "t", "type": "event_msg", "payload": { "type": "user_message", "message": "run the tests" } }),
        item(json!({ "type": "reasoning", "summary": [], "encrypted_content": "gAAA" })),
        message("assistant", "output_text", "Running."),
        item(
            json!({ "type": "function_call", "name": "shell", "arguments": "{\"command\": [\"make\", \"test\"]}", "call_id": "call_1" }),
        ),
        item(json!({ "type": "function_call_output", "call_id": "call_1", "output": "2 passed" })),
        item(
            json!({ "type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin Patch", "call_id": "call_2" }),
        ),
        item(
            json!({ "type": "custom_tool_call_output", "call_id": "call_2", "output": { "content": "no such file", "success": false } }),
        ),
        message("assistant", "output_text", "They pass."),
    ])
}

/// The messages that a next turn sends, each on a line, without the system prompt and that turn.
fn sent(story: &Story, key: &str) -> Vec<String> {
    story.server().script([says("Yes.")]);
    story.run(["agent", "-m", "go on", "-s", key]).stdout("Yes.\n").error_text();
    let requests = story.requests();
    let messages = requests.last().unwrap().messages();
    let calls = |message: &Value| {
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| format!(" {}", call["function"]["name"].as_str().unwrap()));
        calls.collect::<String>()
    };
    let line = |message: &Value| {
        let role = message["role"].as_str().unwrap();
        format!("{role}: {}{}", message["content"].as_str().unwrap_or_default(), calls(message))
    };
    messages[1..messages.len() - 1].iter().map(line).collect()
}

#[test]
fn a_transcript_may_come_by_a_pipe() {
    let story = Story::new().stdin(claude_code());
    story.run(["session", "import", "-"]).stderr_has("8 messages of Claude Code as `import:stdin`");
    story.run(["session", "import", "-", "tea"]).stderr_has("as `tea`");
    assert_eq!(sent(&story, "tea").len(), 9);
}

/// The limit is that of a file, not that of a message.
#[test]
fn a_transcript_from_a_pipe_may_be_larger_than_a_message() {
    let summary = json!({ "type": "summary", "summary": "tea ".repeat(1 << 18), "leafUuid": "z" });
    let story = Story::new().stdin(format!("{summary}\n").repeat(17) + &claude_code());
    story.run(["session", "import", "-"]).stderr_has("8 messages of Claude Code as `import:stdin`");
}

#[test]
fn a_transcript_of_claude_code_becomes_a_session() {
    let story = Story::new().file("talk.jsonl", claude_code());
    story
        .run(["session", "import", "talk.jsonl", "tea"])
        .stdout("")
        .stderr("nanobot: imported 8 messages of Claude Code as `tea`; `nanobot agent -s tea` continues it\n");
    let expect = [
        "user: read notes.md and look at example.org",
        "assistant: I read both. Read Grep",
        "tool: milk",
        "tool: nothing",
        "assistant:  Write",
        "tool: (the file has no result of this call)",
        "assistant: [interrupted before an answer]",
        "user: never mind\n[image]",
        "assistant: Fine.",
    ];
    assert_eq!(sent(&story, "tea"), expect);
    // Only files were read there.
    assert!(origin_of(&story, "tea").starts_with("project (an imported conversation"));
    let raw = story.run(["session", "show", "tea", "--raw"]).text();
    assert!(!raw.contains("secret thought") && !raw.contains("sub-agent"), "{raw}");
    // The words of a user in an imported conversation name no host.
    assert!(!raw.contains("\"hosts\""), "{raw}");
    story.run(["session", "repair", "--all", "--dry-run"]).stdout("").error_text();
}

#[test]
fn the_messages_of_our_own_file_keep_their_times() {
    let line = |role: &str, content: &str, time: Value| json!({ "role": role, "content": content, "timestamp": time });
    let call = json!([{ "id": "c", "type": "function", "function": { "name": "list_dir", "arguments": "{}" } }]);
    let mut reply = line("assistant", "", json!("2025-05-01T10:00:02.000000"));
    reply["tool_calls"] = call;
    let mut result = line("tool", "a.txt", json!("2025-05-01T10:00:05.000000"));
    (result["tool_call_id"], result["name"]) = (json!("c"), json!("list_dir"));
    let file = lines(&[
        json!({ "_type": "metadata", "key": "old" }),
        line("user", "what is there?", json!("2025-05-01T10:00:00.000000")),
        reply,
        result,
        line("assistant", "One file.", json!("2025-05-01T10:00:09.000000")),
        line("user", "thanks", json!("\u{1b}[2J")),
    ]);
    let story = Story::new().file("old.jsonl", file);
    story.run(["session", "import", "old.jsonl", "old"]).error_text();
    let imported = story.session("old.jsonl");
    let times: Vec<&str> = imported.iter().filter_map(|line| line["timestamp"].as_str()).collect();
    let at = |seconds: u32| format!("2025-05-01T10:00:0{seconds}.000000");
    assert_eq!(times[..4], [at(0), at(2), at(5), at(9)]);
    assert!(times[4].starts_with("2026-01-02"), "{times:?}");
}

#[test]
fn a_rollout_of_codex_becomes_a_session() {
    let story = Story::new().file("rollout-2026 x.jsonl", codex());
    let imported = story.run(["session", "import", "rollout-2026 x.jsonl", "--json"]).json();
    let key = "import:rollout-2026-x";
    assert_eq!(imported, json!({ "v": 1, "session": key, "messages": 6, "format": "Codex" }));
    let expect = [
        "user: run the tests",
        "assistant: Running. shell",
        "tool: 2 passed",
        "assistant:  apply_patch",
        "tool: no such file",
        "assistant: They pass.",
    ];
    assert_eq!(sent(&story, key), expect);
    // Commands have a network there.
    assert!(origin_of(&story, key).starts_with("external (an imported conversation"));
    // Older files have the items without an envelope.
    let old = lines(&[
        json!({ "id": "i", "timestamp": "t", "instructions": null }),
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hello" }] }),
        json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Hi." }] }),
    ]);
    let story = story.file("old.jsonl", old);
    story.run(["session", "import", "old.jsonl"]).stderr_has("2 messages of Codex");
    assert_eq!(sent(&story, "import:old"), ["user: hello", "assistant: Hi."]);
}

#[test]
fn a_session_file_from_elsewhere_is_text_of_others() {
    let story = Story::new().script([says("Milk.")]);
    story.run(["agent", "-m", "see example.org", "-s", "here"]).stdout("Milk.\n");
    let raw = story.run(["session", "show", "here", "--raw"]).text();
    let story = story.file("here.jsonl", &raw);
    story.run(["session", "import", "here.jsonl", "there"]).stderr_has("2 messages of nanobot");
    assert_eq!(sent(&story, "there"), ["user: see example.org", "assistant: Milk."]);
    assert!(origin_of(&story, "there").starts_with("project (an imported conversation"));
    assert!(origin_of(&story, "here").starts_with("user"));
    // The origin that the file states counts if it is less trusted.
    let outside = raw.replace("\"level\": \"user\"", "\"level\": \"external\"");
    assert_ne!(outside, raw);
    let story = story.file("outside.jsonl", outside);
    story.run(["session", "import", "outside.jsonl", "outside"]).stderr_has("2 messages");
    assert!(origin_of(&story, "outside").starts_with("external (an imported conversation"));
}

#[test]
fn what_cannot_be_imported_is_an_error() {
    let story = Story::new()
        .file("talk.jsonl", claude_code())
        .file("text.md", "# Notes\n")
        .file("array.json", "[1]\n")
        .file("other.jsonl", "{\"a\": 1}\n{\"b\": 2}\n")
        .file("empty.jsonl", "")
        .file("meta.jsonl", "{\"_type\": \"metadata\", \"key\": \"k\"}\n")
        .file("torn.jsonl", "{\"role\": \"user\", \"content\": \"a\"}\n{\"ro\n{\"role\": \"user\", \"content\": \"b\"}\n");
    let check = |file: &str, status: i32, cause: &str| {
        story.run(["session", "import", file, "k"]).status(status).stderr(cause);
    };
    check("gone.jsonl", 66, "nanobot: no such file: `gone.jsonl`\n");
    check("text.md", 65, "nanobot: `text.md`: line 1 is not a JSON object\n");
    check("array.json", 65, "nanobot: `array.json`: line 1 is not a JSON object\n");
    check(
        "other.jsonl",
        65,
        "nanobot: `other.jsonl`: it is no session of nanobot, Claude Code or Codex\n",
    );
    check(
        "empty.jsonl",
        65,
        "nanobot: `empty.jsonl`: it is no session of nanobot, Claude Code or Codex\n",
    );
    check("meta.jsonl", 65, "nanobot: `meta.jsonl`: it has no messages\n");
    check("torn.jsonl", 65, "nanobot: `torn.jsonl`: line 2 is not a JSON object\n");
    story.run(["session", "list", "--all"]).stdout("");
    // No session is overwritten.
    story.run(["session", "import", "talk.jsonl", "k"]).stderr_has("imported 8 messages");
    let before = story.run(["session", "show", "k", "--raw"]).text();
    check(
        "talk.jsonl",
        2,
        "nanobot: session `k` already exists\n  try: another key, or `nanobot session remove`\n",
    );
    assert_eq!(story.run(["session", "show", "k", "--raw"]).text(), before);
}
