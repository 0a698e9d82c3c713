//! `agents.defaults.unifiedSession`: all chats of a workspace are one conversation, and those of another workspace are not part of it.

use crate::channel::{ANN, telegram_story};
use crate::chat_services::{StandIn, story_of};
use crate::cron::jobs;
use crate::server::{calls, says};
use crate::slack_server::SlackServer;
use serde_json::json;

const BOB: i64 = 8;

#[test]
fn the_chats_of_a_workspace_are_one_conversation() {
    let (story, telegram) = telegram_story();
    let story = story
        .set("channels.telegram.allowFrom", json!([ANN.to_string(), BOB.to_string()]))
        .set("agents.defaults.unifiedSession", json!(true))
        .set("memory", json!({ "consolidate": "manual" }));
    let warning = "`agents.defaults.unifiedSession`: several senders are allowed";
    story.run(["config", "check"]).stdout_has(warning);
    let write = |from: i64, text: &str| {
        telegram.message(from, text);
        story.run(["channel", "poll"]).text();
        story.last_request().raw
    };
    let add = json!({ "action": "add", "message": "say tea", "every_seconds": 3600 });
    story.server().script([says("Noted."), calls("cron", add), says("Pelican.")]);
    write(ANN, "the word is pelican");
    let request = write(BOB, "what is the word?");
    assert!(request.contains("the word is pelican"), "{request}");
    assert!(request.contains("channel telegram, chat 8"), "{request}");
    // A reminder that Bob asks for comes to Bob, and both know of it.
    let id = jobs(&story)[0]["id"].as_str().unwrap().to_owned();
    story.server().always(says("Tea."));
    story.run(["cron", "run", &id]).text();
    assert_eq!(telegram.calls("sendMessage").last().unwrap().body["chat_id"], BOB);
    for _ in 0..2 {
        let request = write(BOB, "and?");
        assert_eq!(request.matches("[sent to this chat by job").count(), 1, "{request}");
    }
    let sessions = story.workspace().join("sessions");
    assert!(sessions.join("unified_default.jsonl").exists());
    // The chat's own session has no message.
    let own = story.session("telegram_7.jsonl");
    assert!(own.iter().all(|line| line["_type"] == "metadata"), "{own:?}");
    story.run(["session", "list"]).stdout_has("unified:default");
    // A new conversation is one for all.
    write(BOB, "/new");
    let request = write(ANN, "hi");
    assert!(!request.contains("pelican"), "{request}");
    // Another workspace has a conversation of its own.
    let kids = story.home().join("kids");
    let bind = ["channel", "bind", "telegram", "--sender=8", "-w", kids.to_str().unwrap()];
    story.run(bind).stderr_has("is bound");
    write(ANN, "the word is heron");
    let request = write(BOB, "and now?");
    assert!(!request.contains("heron"), "{request}");
    assert!(kids.join("sessions/unified_default.jsonl").exists());
    // A chat with a profile has a conversation of its own: the shared one has results that its profile would refuse.
    story
        .run(["channel", "bind", "telegram", "--sender=7", "--profile=plan"])
        .stderr_has("is bound");
    let request = write(ANN, "and now?");
    assert!(!request.contains("heron"), "{request}");
}

#[test]
fn a_chat_with_another_id_than_its_sender_is_known_by_its_own_session() {
    let slack = SlackServer::start();
    let story = story_of(&slack, 1).set("agents.defaults.unifiedSession", json!(true));
    let kids = story.home().join("kids");
    let kids = kids.to_str().unwrap();
    let bind = ["channel", "bind", "slack", "--sender=UANN", "-w", kids];
    story.run(bind).stderr_has("is bound");
    let message = || {
        let arguments = json!({ "content": "psst", "channel": "slack", "chat_id": "D0" });
        calls("message", arguments)
    };
    story.server().script([says("Hello."), message(), says("No."), message(), says("Yes.")]);
    slack.write_in(0, "hi");
    story.run(["channel", "poll"]).text();
    assert!(std::path::Path::new(kids).join("sessions/slack_D0.jsonl").exists());
    let result = story.run(["agent", "-m", "tell Ann"]).stdout("No.\n");
    result.stderr_has("slack:D0 is not a chat of the user");
    assert!(!slack.answers_in(0).contains(&"psst".to_owned()));
    story.run(["agent", "-w", kids, "-m", "tell Ann"]).stdout("Yes.\n");
    story.run(["channel", "poll"]);
    assert!(slack.answers_in(0).contains(&"psst".to_owned()), "{:?}", slack.answers_in(0));
}
