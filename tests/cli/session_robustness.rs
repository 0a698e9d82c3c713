//! Session bugs of other agents, each prevented here. Numbers refer to their issues and changes: `nanobot` is HKUDS/nanobot,
//! `vibe` is Mistral's.

use crate::cron_tampering::list_recursively;
use crate::formats::{ALL_FORMATS, Format};
use crate::requirements::skip;
use crate::server::{Responder, Response, calls, calls_all, fails, replies, says, sends};
use crate::story::{NANOBOT, Story, write};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TIMESTAMP: &str = "2026-01-02T03:04:05.000000";
const SESSION_FILE: &str = "sessions/cli_direct.jsonl";

/// Lines as written by the Python program.
fn to_json_lines(list: &[Value]) -> String {
    list.iter().map(|line| format!("{line}\n")).collect()
}

fn metadata_line(more: &Value) -> Value {
    let mut head = json!({ "_type": "metadata", "key": "cli:direct", "created_at": TIMESTAMP, "updated_at": TIMESTAMP,
                           "metadata": {}, "last_consolidated": 0 });
    for (key, value) in more.as_object().unwrap() {
        head[key] = value.clone();
    }
    head
}

fn user_message(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into(), "timestamp": TIMESTAMP })
}

fn assistant_message(content: impl Into<Value>) -> Value {
    json!({ "role": "assistant", "content": content.into(), "timestamp": TIMESTAMP })
}

fn assistant_calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "list_dir", "arguments": "{}" } });
    let calls: Vec<Value> = ids.iter().map(call).collect();
    json!({ "role": "assistant", "content": null, "tool_calls": calls, "timestamp": TIMESTAMP })
}

fn tool_result(id: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "name": "list_dir", "content": "out", "timestamp": TIMESTAMP })
}

/// The messages of a chat request, summarized as role and content; user messages without the runtime facts.
fn summarize(messages: &[Value]) -> Vec<String> {
    let word = |message: &Value| {
        let text = message["content"].as_str().unwrap_or_default();
        match message["role"].as_str().unwrap() {
            "user" => format!("user: {}", without_runtime_facts(text)),
            "tool" => format!("={}", message["tool_call_id"].as_str().unwrap()),
            _ if message["tool_calls"].is_array() => {
                let calls = message["tool_calls"].as_array().unwrap();
                let ids = calls.iter().map(|call| call["id"].as_str().unwrap());
                format!("+{}", ids.collect::<Vec<_>>().join("+"))
            }
            role => format!("{role}: {text}"),
        }
    };
    messages.iter().map(word).collect()
}

fn without_runtime_facts(text: &str) -> String {
    let mut whole_text = String::new();
    for part in text.split("\n\n") {
        if !part.starts_with("[Runtime") {
            whole_text.push_str(if whole_text.is_empty() { "" } else { " / " });
            whole_text.push_str(part);
        }
    }
    whole_text
}

/// Checks the requirements of every provider: a user message first and last, alternating roles, and one result for each
/// call.
#[track_caller]
fn assert_valid_messages(messages: &[Value]) {
    let summary = summarize(messages);
    let mut open: Vec<String> = Vec::new();
    let mut before = "system";
    let mut used = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap();
        assert!(role == "tool" || role != before, "{summary:?}");
        assert!(before != "system" || role == "user", "{summary:?}");
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            assert!(!open.is_empty() && open.remove(0) == id, "{summary:?}");
        } else {
            assert!(open.is_empty(), "{summary:?}");
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(!used.contains(&id), "{summary:?}");
            used.push(id.clone());
            open.push(id);
        }
        before = role;
    }
    assert!(open.is_empty() && before == "user", "{summary:?}");
}

/// The messages sent for a session with this text, and the notices on standard error.
#[track_caller]
fn sent_messages(text: impl AsRef<[u8]>) -> (Vec<String>, String) {
    let text = text.as_ref();
    let story = Story::new().workspace_file(SESSION_FILE, text).script([says("ok")]);
    let stderr = story.run(["agent", "-m", "next"]).stdout("ok\n").error_text();
    let messages = story.requests()[0].messages()[1..].to_vec();
    assert_valid_messages(&messages);
    let now = std::fs::read(story.workspace().join(SESSION_FILE)).unwrap();
    let whole = text.iter().rposition(|byte| *byte == b'\n');
    let whole_lines = &text[..whole.map_or(0, |at| at + 1)];
    assert!(now.starts_with(whole_lines), "the file is only appended to");
    (summarize(&messages), stderr)
}

/// Like [`sent_messages`], for a session without notices.
#[track_caller]
fn assert_sent(text: impl AsRef<[u8]>, expect: &[&str]) {
    let (messages, sent) = sent_messages(text);
    assert_eq!(messages, expect);
    let notice = if expect.contains(&SUPERSEDED) {
        "and 1 before it, marked as superseded; `--new` leaves them out\n"
    } else {
        "got no answer; it is sent too, marked as interrupted; `--new` leaves it out\n"
    };
    let is_marked = expect.iter().rev().nth(1) == Some(&NO_ANSWER);
    assert_eq!(sent.ends_with(notice), is_marked, "{sent}");
    assert_eq!(sent.lines().count(), usize::from(is_marked), "{sent}");
}

/// The reply that is sent for a turn without one.
const NO_ANSWER: &str = "assistant: [interrupted before an answer]";
/// The one for a turn after which another one had none either.
const SUPERSEDED: &str = "assistant: [interrupted before an answer; a later message takes its place, so it is not to be acted on]";

const WHOLE_SESSION: [&str; 3] = ["user: one", "assistant: 1", "user: next"];

#[test]
fn an_invalid_pointer_hides_no_history() {
    // nanobot #4066, PR #3712
    let session_with = |pointer: Value| {
        to_json_lines(&[
            metadata_line(&json!({ "last_consolidated": pointer })),
            user_message("one"),
            assistant_message("1"),
        ])
    };
    for pointer in
        [json!(-1), json!("7"), json!(1.5), json!(1e300), Value::Null, json!(true), json!([2])]
    {
        assert_sent(session_with(pointer), &WHOLE_SESSION);
    }
    for pointer in [3_u64, 99, u64::MAX] {
        let (messages, sent) = sent_messages(session_with(json!(pointer)));
        assert_eq!(messages, WHOLE_SESSION);
        assert!(sent.contains("are marked as consolidated; all are sent"), "{sent}");
    }
    // The next lines are well-formed again.
    let story = Story::new()
        .workspace_file(SESSION_FILE, session_with(json!(99)))
        .script([says("ok"), says("more")]);
    story.run(["agent", "-m", "next"]).stdout("ok\n").error_text();
    let last = story.session("cli_direct.jsonl").pop().unwrap();
    assert_eq!((&last["last_consolidated"], &last["messages"]), (&json!(0), &json!(4)));
    story.run(["agent", "-m", "again"]).stdout("more\n");
    assert_eq!(story.requests()[1].messages().len(), 6);
}

#[test]
fn invalid_metadata_does_not_discard_a_session() {
    // nanobot #3312, PR #1027: an invalid date, and null instead of an object
    for more in [
        json!({ "metadata": null }),
        json!({ "metadata": [] }),
        json!({ "metadata": "x" }),
        json!({ "created_at": "yesterday", "updated_at": 7 }),
        json!({ "created_at": null, "updated_at": null }),
        json!({ "updated_at": "2999-01-01T00:00:00" }),
        json!({ "messages": "many", "at": [], "turn": 3, "ending": null }),
        json!({ "metadata": { "nanobot": "odd" } }),
        json!({ "metadata": { "nanobot": { "stats": 7, "tries": "x", "left": [1] } } }),
    ] {
        let text =
            to_json_lines(&[metadata_line(&more), user_message("one"), assistant_message("1")]);
        assert_sent(&text, &WHOLE_SESSION);
        let story = Story::new().workspace_file(SESSION_FILE, text);
        story.run(["session", "list"]).stdout_has("cli:direct");
    }
    assert_sent(to_json_lines(&[user_message("one"), assistant_message("1")]), &WHOLE_SESSION);
}

#[test]
fn an_unreadable_line_loses_only_itself() {
    // nanobot #3312, #3369, PR #1027
    let (first, one, answer) = (
        to_json_lines(&[metadata_line(&json!({}))]),
        to_json_lines(&[user_message("one")]),
        to_json_lines(&[assistant_message("1")]),
    );
    for bad in [
        "{\"role\": \"user\", \"cont\n",
        "{\n",
        "oops\n",
        "7\n",
        "{\"role\": \"user\", \"content\": \"a\"} {\"role\": \"user\"}\n",
        "\0\0\0\n",
    ] {
        for text in [
            // In the middle, as the first line, as the last, and between call and result.
            format!("{first}{one}{bad}{answer}"),
            format!("{bad}{one}{answer}"),
            format!("{first}{one}{answer}{bad}"),
            format!("{bad}{bad}{first}{one}{bad}{answer}{bad}"),
        ] {
            let (messages, sent) = sent_messages(&text);
            assert_eq!(messages, WHOLE_SESSION, "{text}");
            assert!(sent.contains("skipped an unreadable line"), "{sent}");
        }
        let (messages, sent) = sent_messages(bad.repeat(3));
        assert_eq!(messages, ["user: next"]);
        assert_eq!(sent.lines().count(), 3, "{sent}");
    }
    let (messages, _) = sent_messages(format!(
        "{first}{one}{}oops\n{}{answer}",
        to_json_lines(&[assistant_calls(&["c"])]),
        to_json_lines(&[tool_result("c")])
    ));
    assert_eq!(messages, ["user: one", "+c", "=c", "assistant: 1", "user: next"]);
}

#[test]
fn an_unterminated_last_line_is_not_joined_with_the_next() {
    // nanobot #3369
    let text =
        to_json_lines(&[metadata_line(&json!({})), user_message("one"), assistant_message("1")]);
    assert_sent(text.trim_end(), &WHOLE_SESSION);
    let (messages, sent) = sent_messages(&text[..text.len() - 10]);
    assert_eq!(messages, ["user: one", NO_ANSWER, "user: next"]);
    assert!(sent.contains("the last line of the session was incomplete"), "{sent}");
}

#[test]
fn the_window_does_not_split_a_group_of_calls() {
    // nanobot #2007, #4006, #4058, PR #4091
    let mut list = vec![metadata_line(&json!({}))];
    for turn in 0..6 {
        let (one, other) = (format!("{turn}a"), format!("{turn}b"));
        list.push(user_message(format!("q{turn}")));
        list.push(assistant_calls(&[&one, &other]));
        list.extend([tool_result(&one), tool_result(&other)]);
        if turn % 2 == 0 {
            list.push(assistant_calls(&[&format!("{turn}c")]));
            list.push(tool_result(&format!("{turn}c")));
        }
        list.push(assistant_message(format!("a{turn}")));
    }
    for window in 1..=16 {
        for pointer in [0, 1, 2, 3, 4, 5, 20] {
            list[0]["last_consolidated"] = pointer.into();
            let story = Story::new()
                .set("agents.defaults.memoryWindow", json!(window))
                .workspace_file(SESSION_FILE, to_json_lines(&list))
                .script([calls("list_dir", json!({})), says("ok"), says("more")]);
            story.run(["agent", "-m", "next"]).stdout("ok\n");
            story.run(["agent", "-m", "last"]).stdout("more\n");
            let requests = story.requests();
            for number in [0, 2] {
                assert_valid_messages(&requests[number].messages()[1..]);
            }
        }
    }
}

#[test]
fn a_window_within_a_group_starts_at_its_user_message() {
    // nanobot #4006: after truncation the history consists of results only
    let story = Story::new()
        .set("agents.defaults.memoryWindow", json!(2))
        .workspace_file(
            SESSION_FILE,
            to_json_lines(&[
                metadata_line(&json!({})),
                user_message("one"),
                assistant_calls(&["a", "b", "c"]),
                tool_result("a"),
                tool_result("b"),
                tool_result("c"),
            ]),
        )
        .script([says("ok")]);
    story.run(["agent", "-m", "next"]).stdout("ok\n").stderr_has("marked as interrupted");
    let messages = story.requests()[0].messages()[1..].to_vec();
    assert_eq!(
        summarize(&messages),
        ["user: one", "+a+b+c", "=a", "=b", "=c", NO_ANSWER, "user: next"]
    );
}

#[test]
fn messages_before_the_first_user_message_are_not_sent() {
    // nanobot 2f573e591, db276bdf2: orphaned results were sent if the window had no user message
    assert_sent(to_json_lines(&[tool_result("a"), tool_result("b")]), &["user: next"]);
    assert_sent(to_json_lines(&[assistant_message("hello")]), &["user: next"]);
    assert_sent(
        to_json_lines(&[assistant_calls(&["a"]), tool_result("a"), assistant_message("x")]),
        &["user: next"],
    );
    assert_sent(
        to_json_lines(&[assistant_message("hello"), user_message("one"), assistant_message("1")]),
        &WHOLE_SESSION,
    );
    // The pointer is within a group.
    let pointed = metadata_line(&json!({ "last_consolidated": 2 }));
    let group = [
        pointed,
        user_message("old"),
        assistant_calls(&["a", "b"]),
        tool_result("a"),
        tool_result("b"),
        assistant_message("x"),
        user_message("one"),
        assistant_message("1"),
    ];
    assert_sent(to_json_lines(&group), &WHOLE_SESSION);
}

#[test]
fn results_are_matched_to_calls_by_id_once() {
    // vibe 2.5.0 (missing answers were matched by count), vibe §13.2 (missing and duplicate ids)
    let check = |list: &[Value], expect: &[&str]| assert_sent(to_json_lines(list), expect);
    let one = user_message("one");
    check(
        &[one.clone(), assistant_calls(&["a", "b"]), tool_result("b"), assistant_message("1")],
        &["user: one", "+a+b", "=a", "=b", "assistant: 1", "user: next"],
    );
    check(
        &[
            one.clone(),
            assistant_calls(&["a"]),
            tool_result("a"),
            tool_result("a"),
            tool_result("z"),
            assistant_message("1"),
        ],
        &["user: one", "+a", "=a", "assistant: 1", "user: next"],
    );
    check(
        &[
            one.clone(),
            assistant_calls(&["a", "a"]),
            tool_result("a"),
            tool_result("a"),
            assistant_message("1"),
        ],
        &["user: one", "+a+ax1", "=a", "=ax1", "assistant: 1", "user: next"],
    );
    // Calls without an id or a name, as some servers sent them, are ignored.
    let mut odd = assistant_calls(&["a"]);
    odd["tool_calls"][0]["id"] = Value::Null;
    check(&[one.clone(), odd, assistant_message("1")], &WHOLE_SESSION);
    let mut odd = assistant_calls(&["a"]);
    odd["tool_calls"] = Value::Null;
    check(&[one, odd, tool_result("a"), assistant_message("1")], &WHOLE_SESSION);
}

#[test]
fn empty_replies_are_not_sent() {
    // nanobot 66063abb8, #1303, PR #1314 (null), 0036116e0 (empty); vibe 2.3.0
    for empty in
        [Value::Null, json!(""), json!(" \n\t"), json!([]), json!([{ "type": "text", "text": "" }])]
    {
        let list = [user_message("one"), assistant_message(empty.clone()), assistant_message("1")];
        assert_sent(to_json_lines(&list), &WHOLE_SESSION);
        let list = [
            user_message("one"),
            assistant_message("1"),
            user_message("two"),
            assistant_message(empty),
        ];
        assert_sent(
            to_json_lines(&list),
            &["user: one", "assistant: 1", "user: two", NO_ANSWER, "user: next"],
        );
    }
    let mut without = assistant_message("");
    without.as_object_mut().unwrap().shift_remove("content");
    assert_sent(
        to_json_lines(&[user_message("one"), without, assistant_message("1")]),
        &WHOLE_SESSION,
    );
}

#[test]
fn empty_user_messages_are_accepted_in_every_format() {
    // nanobot 66063abb8: null content in a stored message made every later request fail
    for format in ALL_FORMATS {
        for empty in [Value::Null, json!(""), json!([])] {
            let text = to_json_lines(&[
                user_message(empty),
                assistant_message("1"),
                user_message("two"),
                assistant_message("2"),
            ]);
            let story = Story::in_format(format, "scripted")
                .workspace_file(SESSION_FILE, text)
                .script([says("ok")]);
            story.run(["agent", "-m", "next"]).stdout("ok\n");
            let blank = |message: &Value| {
                let content = &message["content"];
                matches!(content.as_str(), Some("")) || content == &json!([]) || content.is_null()
            };
            let messages = story.requests()[0].messages();
            assert!(!messages.iter().any(blank), "{format:?}: {messages:?}");
        }
    }
}

#[test]
fn roles_alternate_in_requests() {
    // nanobot ad99d5aaa, #3143: GLM's error 1214; failed requests leave adjacent user messages, and proactive messages
    // leave adjacent replies
    assert_sent(
        to_json_lines(&[user_message("a"), user_message("b")]),
        &["user: a", SUPERSEDED, "user: b", NO_ANSWER, "user: next"],
    );
    assert_sent(
        to_json_lines(&[
            user_message("one"),
            assistant_message("1"),
            assistant_message("2"),
            user_message("two"),
            assistant_message("3"),
        ]),
        &["user: one", "assistant: 1\n\n2", "user: two", "assistant: 3", "user: next"],
    );
}

#[test]
fn images_in_old_sessions_are_not_sent() {
    // nanobot 6aed4265b: post2 stored them as data
    let data = format!("data:image/png;base64,{}", "QUJD".repeat(100_000));
    let text = to_json_lines(&[
        user_message(json!([
            { "type": "image_url", "image_url": { "url": data } },
            { "type": "text", "text": "one" },
        ])),
        assistant_message("1"),
    ]);
    for format in ALL_FORMATS {
        let story = Story::in_format(format, "scripted")
            .workspace_file(SESSION_FILE, &text)
            .script([says("ok")]);
        story.run(["agent", "-m", "next"]).stdout("ok\n");
        let raw = &story.requests()[0].raw;
        assert!(!raw.contains("QUJDQUJD"), "{format:?}");
        assert!(raw.contains("[image]") && raw.contains("one"), "{format:?}");
    }
}

#[test]
fn our_own_images_are_not_stored_in_the_session() {
    // nanobot 6aed4265b; vibe `test_agent_loop_images`: images of the history are left out
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\x05\0\x01\xff\x89\x99=\x1d\0\0\0\0IEND\xaeB`\x82";
    let story = Story::new().file("a.png", png).script([says("A dot."), says("more")]);
    story.run(["agent", "-m", "what is it?", "-a", "a.png"]).stdout("A dot.\n");
    std::fs::remove_file(story.dir().join("a.png")).unwrap();
    story.run(["agent", "-m", "next"]).stdout("more\n");
    let requests = story.requests();
    assert!(requests[0].raw.contains("base64,") && !requests[1].raw.contains("base64"));
    assert!(requests[1].raw.contains("a.png]"));
    let session_file = std::fs::read_to_string(story.workspace().join(SESSION_FILE)).unwrap();
    assert!(!session_file.contains("base64"));
}

#[test]
fn runtime_facts_of_old_turns_are_not_user_text() {
    // nanobot 45ae410f0: the runtime block in the format of three releases
    let block = "[Runtime Context]\nCurrent Time: 2026-01-01 10:00 (Thursday)\nChannel: cli\nChat ID: direct";
    let later = "[Runtime Context — metadata only, not instructions]\nCurrent Time: x";
    for content in [
        json!(format!("one\n\n{block}")),
        json!(format!("{later}\n\none")),
        json!([{ "type": "text", "text": format!("{later}\n\none") }]),
    ] {
        assert_sent(
            to_json_lines(&[user_message(content), assistant_message("1")]),
            &WHOLE_SESSION,
        );
    }
    // User text that mentions the block is not truncated.
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "see\n\n[Runtime Context]\nit says"]).stdout("1\n");
    story.run(["agent", "-m", "next"]).stdout("2\n");
    assert!(story.requests()[1].raw.contains("it says"));
}

#[test]
fn lines_of_other_releases_are_interpreted_correctly() {
    // nanobot §4.2: slash commands, sub-agents, tools without messages, channel keys, lines that are not messages
    let mut command = user_message("/status");
    command["_command"] = true.into();
    let mut its_answer = assistant_message("all is well");
    its_answer["_command"] = true.into();
    let mut used = assistant_message("1");
    used["tools_used"] = json!(["exec"]);
    used["latency_ms"] = 7.into();
    used["_channel_delivery"] = true.into();
    used["injected_event"] = json!({});
    let mut nobody = assistant_message("2");
    nobody["tools_used"] = Value::Null;
    let mut python_message = user_message("two");
    python_message["sender_id"] = "7".into();
    python_message["media"] = json!(["/tmp/a.png"]);
    python_message["cli_apps"] = json!([]);
    let text = to_json_lines(&[
        metadata_line(&json!({})),
        user_message("one"),
        used,
        command,
        its_answer,
        json!({ "_type": "provider_state", "state": { "response": "x" } }),
        json!({ "_type": "of tomorrow", "role": "user", "content": "no message" }),
        json!({ "role": "system", "content": "old instructions" }),
        python_message,
        nobody,
        user_message("[System: subagent] it is done"),
        assistant_message("3"),
    ]);
    // The server has validated that the request has no such keys.
    assert_sent(
        text,
        &[
            "user: one",
            "assistant: 1",
            "user: two",
            "assistant: 2",
            "user: [System: subagent] it is done",
            "assistant: 3",
            "user: next",
        ],
    );
}

#[test]
fn unusual_characters_lose_no_message_and_no_line() {
    // vibe 2.15.0 (invalid UTF-8), 2.16.0 (split at U+2028); nanobot §13.41 (unpaired surrogate)
    let (one, answer) =
        (to_json_lines(&[user_message("one")]), to_json_lines(&[assistant_message("1")]));
    let at = one.find("one").unwrap() + 3;
    let put = |bytes: &[u8]| {
        [&one.as_bytes()[..at], bytes, &one.as_bytes()[at..], answer.as_bytes()].concat()
    };
    for (bytes, letters) in [
        (&b"\xff"[..], "\u{fffd}"),
        (b"\xed\xa0\xbd", "\u{fffd}\u{fffd}\u{fffd}"),
        (b"\\ud83d", "\u{fffd}"),
        (b"\\udc00\\ud83d", "\u{fffd}\u{fffd}"),
        (b"\\ud83d\\ude00", "\u{1f600}"),
        (b"\\u0000", "\0"),
        ("\u{2028}\u{2029}\u{85}".as_bytes(), "\u{2028}\u{2029}\u{85}"),
        (b"\\u001c\\u001d\\u2028", "\u{1c}\u{1d}\u{2028}"),
        (b"\xc3\xa9\\u00e9", "\u{e9}\u{e9}"),
    ] {
        assert_sent(put(bytes), &[&format!("user: one{letters}"), "assistant: 1", "user: next"]);
    }
    let both = format!("{one}{answer}");
    assert_sent(format!("\u{feff}{both}"), &WHOLE_SESSION);
    assert_sent(both.replace('\n', "\r\n"), &WHOLE_SESSION);
    assert_sent(both.replace('\n', "\n\n  \n"), &WHOLE_SESSION);
}

#[test]
fn message_text_is_preserved_exactly() {
    // vibe 2.0.0 (escaped characters), 2.4.0 (read in the locale's encoding), 2.16.0; nanobot PR #5160
    let odd = "é 日本 \u{1f600} \u{2028}\u{2029}\u{85} \u{1b}[1m \\ud83d \"q\" \t \u{feff}\u{202e}";
    let story = Story::new()
        .env("LC_ALL", "C")
        .env("PYTHONIOENCODING", "ascii")
        .script([says(&format!("re {odd}")), says("ok")]);
    story.run(["agent", "-m", odd]).stdout(&format!("re {odd}\n"));
    story.run(["agent", "-m", "next"]).stdout("ok\n");
    let messages = story.requests()[1].messages();
    assert!(messages[1]["content"].as_str().unwrap().starts_with(odd));
    assert_eq!(messages[2]["content"], format!("re {odd}"));
    let text = std::fs::read_to_string(story.workspace().join(SESSION_FILE)).unwrap();
    assert!(text.contains("é 日本 \u{1f600} \u{2028}"));
    assert_eq!(text.lines().count(), 7);
}

#[test]
fn special_files_are_not_sessions() {
    // nanobot §4.1: links were refused; a pipe would block its reader forever
    type CreateFile = fn(&Path);
    let kinds: [(&str, CreateFile); 5] = [
        ("a directory", |path| std::fs::create_dir(path).unwrap()),
        ("a pipe", |path| {
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }),
        ("a link to a file", |path| {
            write(&path.with_file_name("other"), b"{\"role\": \"user\", \"content\": \"known\"}\n");
            symlink("other", path).unwrap();
        }),
        ("a link to nothing", |path| {
            symlink("nothing", path).unwrap();
        }),
        ("a link to itself", |path| symlink(path, path).unwrap()),
    ];
    for (kind, make) in kinds {
        for side in ["", ".lock"] {
            // Locks work on a pipe as well.
            if side == ".lock" && kind == "a pipe" {
                continue;
            }
            let story = Story::new();
            let path = story.workspace().join(format!("{SESSION_FILE}{side}"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            make(&path);
            let result = story.run(["agent", "-m", "x"]);
            assert_eq!(result.code(), 74, "{kind}{side}: {}", result.error_text());
            assert!(
                result.error_text().contains("cli_direct.jsonl"),
                "{kind}: {}",
                result.error_text()
            );
            drop(result);
            assert!(story.requests().is_empty(), "nothing is paid for: {kind}");
            assert!(std::fs::symlink_metadata(&path).is_ok(), "{kind} stays");
        }
    }
}

#[test]
fn special_files_do_not_hide_sessions() {
    let story = Story::new().script([says("1")]);
    story.run(["agent", "-m", "x", "-s", "good"]).stdout("1\n");
    let sessions = story.workspace().join("sessions");
    std::fs::create_dir(sessions.join("dir.jsonl")).unwrap();
    assert!(Command::new("mkfifo").arg(sessions.join("pipe.jsonl")).status().unwrap().success());
    symlink("nothing", sessions.join("link.jsonl")).unwrap();
    story.run(["session", "list"]).stdout_has("good");
    let result = story.run(["session", "show", "pipe"]);
    assert_eq!(result.code(), 74);
    assert!(result.error_text().contains("pipe.jsonl"));
}

/// A run by a user to whom file modes apply, and who owns the story's files. `None` if there is no such user.
fn run_as_owner(story: &Story, arguments: &[&str]) -> Option<Output> {
    let mut command = story.command(arguments);
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // File modes do not apply to root. Another user gets the files and must be able to run the program.
        const NOBODY: u32 = 65_534;
        let temp = story.home().parent().unwrap().to_owned();
        for path in list_recursively(&temp).into_iter().chain([temp]) {
            lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut probe = Command::new(NANOBOT);
        probe.arg("--version").stdout(Stdio::null()).uid(NOBODY);
        if !probe.status().is_ok_and(|status| status.success()) {
            skip("nobody but root can run the program: modes of files do not apply");
            return None;
        }
        command.uid(NOBODY);
    }
    Some(command.output().unwrap())
}

#[test]
fn sessions_without_permissions_are_not_recreated() {
    // nanobot PR #1027: unreadable sessions were taken for new ones and overwritten
    let text =
        to_json_lines(&[metadata_line(&json!({})), user_message("one"), assistant_message("1")]);
    for (file_name, mode) in
        [(SESSION_FILE, 0o000), (SESSION_FILE, 0o400), (SESSION_FILE, 0o200), ("sessions", 0o000)]
    {
        let story = Story::new().workspace_file(SESSION_FILE, &text);
        let path = story.workspace().join(file_name);
        let set = |mode| {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        set(mode);
        let Some(output) = run_as_owner(&story, &["agent", "-m", "x"]) else {
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(74), "{file_name} {mode:o}: {stderr}");
        assert!(stderr.contains("sessions"), "{stderr}");
        assert!(story.requests().is_empty(), "nothing is paid for");
        set(0o700);
        assert_eq!(std::fs::read_to_string(story.workspace().join(SESSION_FILE)).unwrap(), text);
    }
}

#[test]
fn an_unwritable_directory_is_reported_before_any_request() {
    let story = Story::new();
    let sessions = story.workspace().join("sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    std::fs::set_permissions(&sessions, PermissionsExt::from_mode(0o500)).unwrap();
    let Some(output) = run_as_owner(&story, &["agent", "-m", "x"]) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(74), "{stderr}");
    assert!(stderr.contains("sessions") && story.requests().is_empty(), "{stderr}");
}

#[test]
fn keys_with_the_same_file_name_have_separate_sessions() {
    // nanobot #4057, 463f53675
    let story = Story::new();
    let keys = ["cli:a/b", "cli:a_b", "cli_a_b", "cli:a:b", " cli:a:b ", "cli:a?b", "CLI:a:b"];
    for round in 0..2 {
        for key in keys {
            story.server().script([says(&format!("{key} {round}"))]);
            story
                .run(["agent", "-m", &format!("{round} of {key}"), "-s", key])
                .stdout(&format!("{key} {round}\n"));
        }
    }
    let requests = story.requests();
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(requests[number].messages().len(), 2, "{key:?}");
        let messages = requests[keys.len() + number].messages();
        let expect = [
            format!("user: 0 of {key}"),
            format!("assistant: {key} 0"),
            format!("user: 1 of {key}"),
        ];
        assert_eq!(summarize(&messages[1..]), expect);
    }
    let list = story.run(["session", "list", "--json"]).json_lines();
    let mut listed_keys: Vec<&str> =
        list.iter().map(|line| line["key"].as_str().unwrap()).collect();
    listed_keys.sort_unstable();
    let mut expect = keys.to_vec();
    expect.sort_unstable();
    assert_eq!(listed_keys, expect);
}

#[test]
fn keys_with_separators_are_listed_unchanged() {
    // nanobot #899, 73530d51a: `telegram:a_b` was listed as `telegram:a:b` or `telegram_a:b`
    let story = Story::new();
    for key in ["telegram:a_b", "a_b:c", "under_score", "cron:1:2", "日本:é"] {
        story.server().script([says("1"), says("2")]);
        story.run(["agent", "-m", "x", "-s", key]).stdout("1\n");
        story.run(["session", "list"]).stdout_has(key);
        story.run(["agent", "-m", "x", "-s", key]).stdout("2\n");
    }
    assert_eq!(story.run(["session", "list", "--json"]).json_lines().len(), 5);
}

#[test]
fn a_key_like_an_encoded_file_name_has_its_own_session() {
    // nanobot #4057: `YV9i` is the encoded name of `a_b`
    let story = Story::new().script([says("1"), says("2"), says("3"), says("4")]);
    story.run(["agent", "-m", "x", "-s", "YV9i"]).stdout("1\n");
    story.run(["agent", "-m", "x", "-s", "a_b"]).stdout("2\n");
    assert_eq!(story.requests()[1].messages().len(), 2);
    story.run(["agent", "-m", "x", "-s", "a_b"]).stdout("3\n");
    assert_eq!(story.requests()[2].messages().len(), 4);
    // If no name is left, that is reported.
    story.run(["agent", "-m", "x", "-s", "a:b"]).stdout("4\n");
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "x", "-s", "YV9i"]).stdout("1\n");
    story.run(["agent", "-m", "x", "-s", "a:b"]).stdout("2\n");
    story.run(["agent", "-m", "x", "-s", "a_b"]).status(2).stderr_has("`YV9i`");
}

#[test]
fn keys_cannot_escape_the_directory() {
    // nanobot §4.1; vibe `test_agents` (traversal in ids)
    let story = Story::new();
    let long = "k".repeat(140);
    let keys = [
        "../x",
        "../../x",
        "..",
        ".",
        "/etc/passwd",
        ".hidden",
        "a\nb",
        "a\r",
        "\u{1b}[31m",
        "a/../../b",
        "~",
        "$HOME",
        "-x",
        "con",
        "a.jsonl",
        "a.lock",
        "*",
        "%2e%2e",
        &long,
        "\u{202e}x",
    ];
    for key in keys {
        for message in ["1", "2"] {
            story.server().script([says(message)]);
            story
                .run(["agent", "-m", "x", &format!("--session={key}")])
                .stdout(&format!("{message}\n"));
        }
        assert_eq!(story.last_request().messages().len(), 4, "{key:?}");
    }
    let logs = || {
        let mut paths = list_recursively(story.home().parent().unwrap());
        paths.retain(|path| path.to_string_lossy().contains("jsonl"));
        paths.retain(|path| !path.ends_with("usage.jsonl"));
        paths
    };
    let sessions = story.workspace().join("sessions");
    assert!(logs().iter().all(|path| path.parent() == Some(&sessions)));
    let list = story.run(["session", "list"]).text();
    assert!(!list.contains('\u{1b}') && list.lines().count() > keys.len(), "{list}");
    for key in keys {
        story.run(["session", "rm", "--for-good", "-q", "--", key]);
    }
    assert!(logs().is_empty());
    for key in ["", "  ", &"k".repeat(200), &"é".repeat(100)] {
        story
            .run(["agent", "-m", "x", &format!("--session={key}")])
            .status(2)
            .stderr_has("a session key has 1 to");
    }
}

#[test]
fn fields_of_newer_releases_are_preserved() {
    // nanobot #4940, PR #4941: unknown fields were lost with the next save
    let metadata = json!({
        "title": "t", "_last_usage": { "prompt_tokens": 7 }, "_last_summary": { "text": "s", "last_active": TIMESTAMP },
        "goal_state": null, "runtime_checkpoint": [1, { "a": "\u{e9}" }], "pending_user_turn": true,
        "nanobot": { "of": "tomorrow" },
    });
    let first = metadata_line(
        &json!({ "metadata": metadata, "last_archived": 0, "of_tomorrow": { "x": [1] } }),
    );
    let story = Story::new()
        .workspace_file(
            SESSION_FILE,
            to_json_lines(&[first.clone(), user_message("one"), assistant_message("1")]),
        )
        .script([says("2"), says("3")]);
    for (text, answer) in [("two", "2\n"), ("three", "3\n")] {
        story.run(["agent", "-m", text]).stdout(answer);
        let last = story.session("cli_direct.jsonl").pop().unwrap();
        for key in ["key", "created_at", "last_archived", "of_tomorrow"] {
            assert_eq!(last[key], first[key], "{key}");
        }
        for (key, value) in metadata.as_object().unwrap() {
            let stored_value = &last["metadata"][key];
            match key.as_str() {
                "nanobot" => assert_eq!(stored_value["of"], value["of"]),
                _ => assert_eq!(stored_value, value, "{key}"),
            }
        }
    }
}

#[test]
fn a_resumed_session_keeps_its_key_and_creation_time() {
    // vibe 2.9.0: resumed sessions changed their id
    let old = "2025-01-01T00:00:00.000001";
    let story = Story::new()
        .workspace_file(
            SESSION_FILE,
            to_json_lines(&[metadata_line(
                &json!({ "created_at": old, "updated_at": "2999-01-01T00:00:00" }),
            )]),
        )
        .script([says("1"), says("2")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    story.run(["agent", "-m", "two"]).stdout("2\n");
    for line in story.session("cli_direct.jsonl").iter().filter(|line| line["ending"].is_string()) {
        assert_eq!((&line["key"], &line["created_at"]), (&json!("cli:direct"), &json!(old)));
        assert_eq!(line["updated_at"], TIMESTAMP);
    }
}

#[test]
fn a_session_stores_each_message_once_and_leaves_no_other_files() {
    // vibe 2.0.2 (duplicate messages), 2.0.0 (stored system prompt; leftover temporary files), nanobot `test_session_atomic`
    let story = Story::new();
    for number in 0..4 {
        story.server().script([
            calls_all([("list_dir", json!({})), ("list_dir", json!({ "path": "." }))]),
            says(&format!("a{number}")),
        ]);
        story.run(["agent", "-m", &format!("q{number}")]).stdout(&format!("a{number}\n"));
    }
    let session = story.session("cli_direct.jsonl");
    assert!(session.iter().all(|line| line["role"] != "system"));
    let messages = session.iter().filter(|line| line["role"].is_string());
    let mut ids: Vec<String> =
        messages.map(|line| format!("{}{}", line["id"], line["tool_call_id"])).collect();
    assert_eq!(ids.len(), 4 * 5);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4 * 5);
    let mut names: Vec<_> = std::fs::read_dir(story.workspace().join("sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["cli_direct.jsonl", "cli_direct.jsonl.lock"]);
}

#[test]
fn the_last_answer_and_all_results_are_stored() {
    // nanobot f2e0847d6, PR #1198 (the answer was not stored), #937 (results were not stored, and the model invented them)
    let story = Story::new().file("a.txt", "alpha").script([
        calls("read_file", json!({ "path": "a.txt" })),
        says("It says alpha."),
        says("yes"),
    ]);
    story.run(["agent", "-m", "one"]).stdout("It says alpha.\n");
    story.run(["agent", "-m", "next"]).stdout("yes\n");
    let messages = story.requests()[2].messages()[1..].to_vec();
    assert_valid_messages(&messages);
    assert!(messages[2]["content"].as_str().unwrap().contains("alpha"));
    assert_eq!(
        (summarize(&messages)[3].as_str(), summarize(&messages)[4].as_str()),
        ("assistant: It says alpha.", "user: next")
    );
}

#[test]
fn a_failed_turn_stores_the_user_message_and_no_error_as_answer() {
    // nanobot 66063abb8, #1303: error texts stored as replies made every later request fail; §4.3: an interrupted turn was
    // lost completely
    let broken = || {
        let text = "data: {\"choices\":[{\"delta\":{\"content\":\"half an ans\"}}]}\n\n";
        let error = "data: {\"error\":{\"message\":\"it broke\",\"code\":400}}\n\n";
        sends(Response::events([text, error]))
    };
    let within =
        || sends(Response::json(200, &json!({ "error": { "message": "no", "code": 400 } })));
    let blank = || replies(json!({ "content": null }), "length");
    let refused = || replies(json!({ "content": null }), "content_filter");
    type FailingResponder = Box<dyn Fn() -> Responder>;
    let all: [FailingResponder; 8] = [
        Box::new(|| fails(400, "no")),
        Box::new(|| fails(401, "no")),
        Box::new(|| fails(404, "no")),
        Box::new(|| fails(413, "no")),
        Box::new(broken),
        Box::new(within),
        Box::new(blank),
        Box::new(refused),
    ];
    let story = Story::new();
    for (number, failing) in all.iter().enumerate() {
        story.server().script([failing()]);
        let result = story.run(["agent", "-m", &format!("q{number}")]);
        assert_ne!(result.code(), 0, "{number}");
        assert!(!result.error_text().is_empty(), "{number}");
        result.text();
    }
    story.server().script([says("at last")]);
    story.run(["agent", "-m", "next"]).stdout("at last\n").stderr_has("marked as interrupted");
    let messages = story.last_request().messages()[1..].to_vec();
    // A note stands for the refused message, and for those before it that have no answer.
    let refused = "[message not accepted: the provider refused it, so it is left out]";
    let first = format!("user: {refused} / q6");
    assert_eq!(summarize(&messages), [&first, SUPERSEDED, "user: q7", NO_ANSWER, "user: next"]);
}

#[test]
fn thinking_is_stored_and_sent_back_to_its_server_or_where_required() {
    // nanobot 5ca386ebf; #194, #946, #1834, #3469, #3554, #3665, #3760
    let mut thought = assistant_calls(&["a"]);
    thought["reasoning_content"] = "I must look.".into();
    let mut last = assistant_message("1");
    last["reasoning_content"] = "It is one.".into();
    last["thinking_blocks"] = json!([{ "type": "thinking", "thinking": "x", "signature": "y" }]);
    let text = to_json_lines(&[
        metadata_line(&json!({})),
        user_message("one"),
        thought,
        tool_result("a"),
        last,
    ]);
    // The session does not say where its older thoughts are from.
    for (provider, model, expect) in [
        ("deepseek", "deepseek-chat", &["I must look.", "It is one.", "And two."][..]),
        ("custom", "scripted", &["And two."]),
    ] {
        let story = Story::with_provider(provider, model)
            .allow_extra_keys(&["reasoning_content", "thinking"])
            .workspace_file(SESSION_FILE, &text)
            .script([
                replies(json!({ "content": "2", "reasoning_content": "And two." }), "stop"),
                says("3"),
            ]);
        story.run(["agent", "-m", "two"]).stdout("2\n");
        story.run(["agent", "-m", "three"]).stdout("3\n");
        let messages = story.requests()[1].messages();
        let thoughts: Vec<&str> =
            messages.iter().filter_map(|message| message["reasoning_content"].as_str()).collect();
        assert_eq!(thoughts, expect, "{provider}");
        let lines = story.session("cli_direct.jsonl");
        assert!(lines.iter().any(|line| line["reasoning_content"] == "And two."));
    }
}

#[test]
fn usage_that_comes_with_every_chunk_is_not_summed() {
    // vibe §2.3, §13.2
    let chunk = |delta: Value, output: u64, finish: Value| {
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": output, "total_tokens": 100 + output,
                            "prompt_tokens_details": { "cached_tokens": 40 } });
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage }))
    };
    let events = [
        chunk(json!({ "role": "assistant", "content": "a" }), 1, Value::Null),
        chunk(json!({ "content": "b" }), 2, Value::Null),
        chunk(json!({ "content": "c" }), 3, json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let story = Story::new().script([sends(Response::events(events))]);
    let run_result = story.run(["agent", "-m", "x", "--json"]);
    let result = run_result.json();
    assert_eq!(result["text"], "abc");
    assert_eq!(result["usage"]["input"], 100, "{result}");
    assert_eq!(result["usage"]["output"], 3, "{result}");
    assert_eq!(result["usage"]["cached"], 40, "{result}");
    drop(run_result);
    let lines = story.session("cli_direct.jsonl");
    assert_eq!(lines[2]["usage"]["output"], 3);
}

#[test]
fn results_are_stored_up_to_the_limit_with_a_truncation_notice() {
    // nanobot 0a0017ff4 (500 characters made the model repeat its work), #2437 (a wrong size was reported)
    let lines = |length: usize, limit: u64, tool: Responder| {
        let story = Story::new()
            .set("agents.defaults.maxToolResultChars", json!(limit))
            .file("a.txt", "é".repeat(length))
            .script([tool, says("ok"), says("more")]);
        story.run(["agent", "-m", "x"]).stdout("ok\n");
        story.run(["agent", "-m", "y"]).stdout("more\n");
        let requests = story.requests();
        let content = requests[1].messages()[3]["content"].clone();
        // The same in the turn, in the next one, and in the file.
        assert_eq!(requests[2].messages()[3]["content"], content);
        assert_eq!(story.session("cli_direct.jsonl")[3]["content"], content);
        content.as_str().unwrap().to_owned()
    };
    let read = || calls("read_file", json!({ "path": "a.txt" }));
    let cat = || calls("exec", json!({ "command": "cat a.txt" }));
    // A file is read in pages, with long lines truncated; a command's output is only truncated here.
    for (length, limit, tool) in [
        (501, 16_000, read()),
        (2_000, 16_000, read()),
        (501, 16_000, cat()),
        (7_000, 16_000, cat()),
        (15_000, 40_000, cat()),
    ] {
        let content = lines(length, limit, tool);
        assert!(content.contains(&"é".repeat(length)), "{length}: {content}");
        assert!(!content.contains("left out"), "{length}");
    }
    for (length, limit) in [(9_000, 1000), (9_000, 8000), (300_000, 16_000), (300_000, 1000)] {
        let content = lines(length, limit, cat());
        assert!(content.chars().count() as u64 <= limit);
        let letter_count = content.matches('é').count();
        let (_, rest) = content.split_once("[… ").expect("something was cut");
        let (number, _) = rest.split_once(" bytes left out").unwrap();
        // A split character at the cut is dropped.
        let all = 2 * letter_count + number.parse::<usize>().unwrap();
        assert!(all.abs_diff(2 * length) <= 2, "{length} {limit}: {all}");
    }
}

#[test]
fn concurrent_migrations_of_an_old_session_lose_nothing() {
    // nanobot #863: moving a session from its old location was a race
    let id = "0123456789abcdef0123456789abcdef";
    let story = Story::new();
    let store = story.home().join(".nanobot/sessions").join(id);
    write(&story.workspace().join(".nanobot/workspace-id"), id.as_bytes());
    write(&store.join(".workspace"), story.workspace().to_str().unwrap().as_bytes());
    write(
        &story.home().join(".nanobot/sessions/cli_direct.jsonl"),
        to_json_lines(&[metadata_line(&json!({})), user_message("one"), assistant_message("1")])
            .as_bytes(),
    );
    story.server().always(says("ok"));
    let commands: Vec<Command> =
        (0..8).map(|number| story.command(["agent", "-m", &format!("n{number}")])).collect();
    std::thread::scope(|scope| {
        for mut command in commands {
            scope.spawn(move || {
                let output = command.output().unwrap();
                assert!(output.status.success(), "{output:?}");
            });
        }
    });
    let text = std::fs::read_to_string(store.join("Y2xpOmRpcmVjdA.jsonl")).unwrap();
    let is_user = |line: &Value| line["role"] == "user";
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut texts: Vec<String> =
        all.filter(is_user).map(|line| line["content"].as_str().unwrap().to_owned()).collect();
    texts.sort();
    let mut expect: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    expect.push("one".into());
    assert_eq!(texts, expect);
    assert!(!story.home().join(".nanobot/sessions/cli_direct.jsonl").exists());
}

#[test]
fn a_wire_format_change_between_turns_breaks_no_group() {
    // nanobot §13.40 (ids too long or invalid for the next provider), vibe 2.3.0 (results out of order)
    let list = [
        user_message("one"),
        assistant_calls(&[
            "call_abcdefghijklmnopqrstuvwxyz0123456789_abcdefghijklmnopqrstuvwxyz0123456789",
            "functions.x:1",
            "3",
        ]),
        tool_result("3"),
        tool_result("functions.x:1"),
        assistant_message("1"),
    ];
    for format in ALL_FORMATS {
        let story = Story::in_format(format, "scripted")
            .workspace_file(SESSION_FILE, to_json_lines(&list))
            .script([calls("list_dir", json!({})), says("ok"), says("more")]);
        story.run(["agent", "-m", "two"]).stdout("ok\n");
        let story =
            story.set("providers.custom.apiType", json!(Format::config_name(ALL_FORMATS[0])));
        story.run(["agent", "-m", "next"]).stdout("more\n");
        assert_valid_messages(&story.requests()[2].messages()[1..]);
    }
}

#[test]
fn the_clock_does_not_change_what_was_sent_before() {
    // nanobot `test_context_prompt_cache`: a time in the system prompt invalidated the cache of every request
    let story = Story::new().script([says("1")]);
    story.run(["agent", "-m", "one"]).stdout("1\n");
    let story = story.env("NANOBOT_TEST_TIME", "2026-03-04T05:06:07Z").script([says("2")]);
    story.run(["agent", "-m", "two"]).stdout("2\n");
    let requests = story.requests();
    assert_eq!(requests[0].messages(), requests[1].messages()[..2]);
    assert_ne!(requests[1].messages()[1], requests[1].messages()[3]);
    assert!(requests[1].messages()[3].to_string().contains("2026-03-04"));
}

// When the Python program clears a session, its metadata remains, with message numbers that no longer apply.
#[test]
fn a_session_reset_by_another_program_has_no_old_messages() {
    let text = |phrase: &str| format!("{phrase} {}", "lorem ipsum\n".repeat(400));
    let metadata = json!({ "_type": "metadata", "key": "cli:direct", "created_at": "2026-01-01T00:00:00.000000",
        "updated_at": "2026-01-02T00:00:00.000000", "metadata": { "nanobot": { "aged": 200 } }, "last_consolidated": 0 });
    let user =
        json!({ "role": "user", "content": "read", "timestamp": "2026-01-02T00:00:00.000000" });
    let call = json!({ "role": "assistant", "content": null, "timestamp": "2026-01-02T00:00:00.000000",
        "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "read_file", "arguments": "{}" } }] });
    let result = json!({ "role": "tool", "tool_call_id": "c1", "name": "read_file", "content": text("alpha"),
        "timestamp": "2026-01-02T00:00:00.000000" });
    let answer =
        json!({ "role": "assistant", "content": "yes", "timestamp": "2026-01-02T00:00:00.000000" });
    let lines: String =
        [metadata, user, call, result, answer].iter().map(|line| format!("{line}\n")).collect();
    let story =
        Story::new().workspace_file("sessions/cli_direct.jsonl", lines).script([says("more")]);
    story.run(["agent", "-m", "x"]).stdout("more\n");
    assert!(!story.requests()[0].raw.contains("characters omitted"));
    let lines = story.session("cli_direct.jsonl");
    assert!(lines.last().unwrap()["metadata"]["nanobot"]["aged"].is_null());
}

#[test]
fn a_session_name_that_is_not_utf_8_is_explained() {
    use std::os::unix::ffi::OsStrExt;
    let story = Story::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let mut command = story.command(["agent", "-m", "x", "-s"]);
    story
        .wait(command.arg(name).spawn().unwrap())
        .status(2)
        .stderr("nanobot: the value 'caf\u{fffd}' of -s is not UTF-8\n");
    let mut command = story.command(["session", "show"]);
    story
        .wait(command.arg(name).spawn().unwrap())
        .status(2)
        .stderr("nanobot: the argument 'caf\u{fffd}' is not UTF-8\n");
}
