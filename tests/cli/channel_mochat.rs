//! The Mochat channel through the whole program, against a stand-in on loopback.

use crate::channel::send_signal;
use crate::channel_adapter::open_failure;
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::mochat_server::MochatServer;
use crate::server::says;
use crate::story::{Story, write};
use crate::wait::until;
use rustix::process::Signal;
use serde_json::json;

/// A story after its first poll, in which only Ann is allowed.
fn mochat_story() -> (Story, MochatServer) {
    let server = MochatServer::start();
    server.write("session_1", "old1", "ann", "before the first look");
    server.write("panel1", "old2", "ann", "before the first look");
    let story = Story::new()
        .set("channels", json!({ "mochat": server.keys() }))
        .set("memory", json!({ "consolidate": "manual" }));
    story.run(["channel", "poll"]);
    (story, server)
}

fn answer(chat: &str, text: &str) -> (String, String) {
    (chat.to_owned(), text.to_owned())
}

#[test]
fn a_message_of_a_session_is_answered_once() {
    let (story, server) = mochat_story();
    let story = story.script([says("**Hello** Ann.")]);
    server.write("session_1", "m1", "ann", "hi");
    server.write("session_1", "m2", "eve", "let me in");
    story.run(["channel", "poll"]);
    story.run(["channel", "poll"]);
    assert_eq!(server.answers(), [answer("session_1", "Hello Ann.")]);
    assert_eq!(server.calls("/api/claw/sessions/send")[0]["replyTo"], "m1");
    story.run(["channel", "show", "mochat"]).stdout_has("refused sender eve");
    story.session("mochat_session_1.jsonl");
    story.run(["channel", "check", "mochat"]).stdout_has("agent1");
    story.run(["channel", "send", "mochat", "panel1", "Done"]).stdout("own2\n");
    story
        .run(["channel", "send", "mochat", "session_9", "x"])
        .status(65)
        .stderr_has("session not found");
}

#[test]
fn messages_of_a_panel_are_gathered_until_a_mention_or_a_pause() {
    let (story, server) = mochat_story();
    let story = story
        .set("channels.mochat.allowFrom", json!(["ann", "bob"]))
        .script([says("Both of you."), says("Later.")]);
    server.write("panel1", "m1", "bob", "shall we go?");
    server.write("panel1", "m2", "eve", "obey me");
    story.run(["channel", "poll"]);
    assert!(server.answers().is_empty() && story.requests().is_empty());
    server.write("panel1", "m3", "ann", "@agent1 what do you think?");
    story.run(["channel", "poll"]);
    assert_eq!(server.answers(), [answer("panel1", "Both of you.")]);
    let content = story.requests()[0].last_content();
    assert!(content.contains("bob: shall we go?") && !content.contains("obey"), "{content}");
    assert_eq!(server.calls("/api/claw/groups/panels/send")[0]["groupId"], "g1");
    for (id, text) in [("m4", "one"), ("m5", "two")] {
        server.write("panel1", id, "ann", text);
    }
    story.run(["channel", "poll"]);
    assert_eq!(server.answers().len(), 1);
    let story = story.env("NANOBOT_TEST_TIME", "2026-01-02T03:06:06Z");
    story.run(["channel", "poll"]);
    assert_eq!(server.answers()[1], answer("panel1", "Later."));
    assert!(story.requests()[1].last_content().contains("one\ntwo"));
}

#[test]
fn panels_follow_their_rules() {
    let check = |keys: serde_json::Value, texts: &[&str], expect: usize| {
        let (mut story, server) = mochat_story();
        story = story.set("channels.mochat.replyDelayMode", json!("off"));
        for (key, value) in keys.as_object().unwrap() {
            story = story.set(&format!("channels.mochat.{key}"), value.clone());
        }
        story.server().always(Box::new(|request| says("Yes.")(request)));
        for (number, text) in texts.iter().enumerate() {
            server.write("panel1", &format!("m{number}"), "ann", text);
            story.run(["channel", "poll"]);
        }
        assert_eq!(server.answers().len(), expect, "{keys}");
    };
    check(json!({}), &["hi", "@agent1 hi"], 2);
    check(json!({ "mention": { "requireInGroups": true } }), &["hi", "@agent1 hi"], 1);
    let groups = json!({ "g1": { "requireMention": false } });
    check(json!({ "mention": { "requireInGroups": true }, "groups": groups }), &["hi"], 1);
    check(json!({ "panels": [] }), &["hi"], 0);
    // A session that is gone does not keep the panels from being read.
    check(json!({ "sessions": ["session_gone"] }), &["hi"], 1);
}

#[test]
fn a_poll_that_waits_answers_at_once() {
    let (story, server) = mochat_story();
    let story = story
        .set("channels.mochat.sessions", json!(["session_1"]))
        .set("channels.mochat.panels", json!([]))
        .script([says("Hello.")]);
    let mut poll = story.command(["channel", "poll", "--follow"]).spawn().unwrap();
    let waits =
        || server.calls("/api/claw/sessions/watch").iter().any(|call| call["timeoutMs"] != 0);
    until("a wait at the service", waits);
    server.write("session_1", "m1", "ann", "hi");
    until("the answer", || server.answers().len() == 1);
    send_signal(&poll, Signal::TERM);
    poll.wait().unwrap();
}

#[test]
fn positions_of_the_python_program_are_taken_over() {
    let server = MochatServer::start();
    server.write("session_1", "m1", "ann", "seen there");
    server.write("session_1", "m2", "ann", "not yet");
    let story =
        Story::new().set("channels", json!({ "mochat": server.keys() })).script([says("Now.")]);
    let cursors = json!({ "schemaVersion": 1, "cursors": { "session_1": 1 } });
    let path = story.home().join(".nanobot/mochat/session_cursors.json");
    write(&path, cursors.to_string().as_bytes());
    story.run(["channel", "poll"]);
    assert_eq!(server.answers(), [answer("session_1", "Now.")]);
    assert!(!story.requests()[0].last_content().contains("seen there"));
}

#[test]
fn a_damaged_position_begins_anew() {
    let (story, server) = mochat_story();
    let story = story.script([says("Hello.")]);
    let path = story.home().join(".nanobot/channels/mochat/cursor.json");
    for cursor in [json!(5), json!({ "sessions": 5, "panels": "x", "delayed": [1] })] {
        let stored = json!({ "account": "agent1", "cursor": cursor });
        write(&path, stored.to_string().as_bytes());
        story.run(["channel", "poll"]);
    }
    server.write("session_1", "m1", "ann", "hi");
    story.run(["channel", "poll"]);
    assert_eq!(server.answers(), [answer("session_1", "Hello.")]);
}

#[test]
fn the_id_of_the_agent_is_needed() {
    // Without its id, it would answer its own messages.
    assert_eq!(open_failure("mochat", &json!({ "clawToken": "x", "allowFrom": ["*"] })), 78);
}

#[test]
fn a_killed_poll_of_mochat_loses_no_message() {
    if !can_inject() {
        return;
    }
    let kill = |kind: &str, n: usize| {
        let (story, server) = mochat_story();
        let story = story.set("channels.maxParallel", json!(1));
        story.server().always(Box::new(|request| says("Done.")(request)));
        server.write("session_1", "m1", "ann", "hi");
        server.write("panel1", "m2", "ann", "@agent1 hi");
        let (result, is_killed) =
            run_with_fault(&story, &["channel", "poll"], &[], (kind, "SIGKILL", n));
        result.code();
        result.text();
        result.error_text();
        drop(result);
        for _ in 0..2 {
            story.run(["channel", "poll"]);
        }
        let answers = server.answers();
        // The service recognises no repeated part: the one in flight may come twice.
        let max_count = 2 + usize::from(is_killed);
        assert!((2..=max_count).contains(&answers.len()), "{kind} {n}: {answers:?}");
        for chat in ["session_1", "panel1"] {
            assert!(answers.contains(&answer(chat, "Done.")), "{kind} {n}: {answers:?}");
        }
        is_killed
    };
    let kills = ["write", "sendto"].map(|kind| inject_at_calls(|n| kill(kind, n)));
    assert!(kills.iter().sum::<usize>() > 5, "{kills:?}");
}
