//! Commands in chats: they are answered without a model, and change their own conversation only.

use crate::channel::{ANN, telegram_story};
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::server::{Request, calls, says};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use serde_json::json;

/// The answers to `texts` of Ann, each of which is sent after the answer to the one before.
fn answers(story: &Story, telegram: &TelegramServer, texts: &[&str]) -> Vec<String> {
    let before = telegram.sent().len();
    for text in texts {
        telegram.message(ANN, text);
        story.run(["channel", "poll"]);
    }
    telegram.sent().split_off(before)
}

fn model_of(request: &Request) -> String {
    request.body["model"].as_str().unwrap().to_owned()
}

#[test]
fn help_lists_the_commands_of_chats_and_a_mistake_costs_nothing() {
    let (story, telegram) = telegram_story();
    let messages =
        answers(&story, &telegram, &["/help", "/helo", "/xyzzy now", "/new idea", "/Id"]);
    assert!(messages[0].contains("/undo – undo the file changes"), "{messages:?}");
    assert!(messages[0].contains("/skill [NAME TEXT] – "), "{messages:?}");
    assert!(!messages[0].contains("/paste"), "a command of terminals: {messages:?}");
    let unknown = "There is no command /helo. Did you mean /help? /help lists the commands. No model was asked.";
    assert_eq!(messages[1], unknown);
    assert!(messages[2].starts_with("There is no command /xyzzy. /help"), "{messages:?}");
    assert!(messages[3].contains("takes no arguments"), "{messages:?}");
    assert!(messages[4].starts_with("Your id: 7"), "{messages:?}");
    assert!(story.requests().is_empty());
}

#[test]
fn a_path_is_a_message() {
    let (story, telegram) = telegram_story();
    let texts = ["/etc/passwd is what?", "/tmp is full, what now?", "/ is the root?", "//x"];
    story.server().always(says("A path."));
    assert_eq!(answers(&story, &telegram, &texts), ["A path."; 4]);
    for (request, text) in story.requests().iter().zip(texts) {
        assert!(request.last_content().contains(text));
    }
}

#[test]
fn commands_of_others_and_those_in_quotes_do_nothing() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("A forward.")]);
    telegram.message(8, "/status");
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" },
        "text": "/model other", "forward_origin": { "type": "hidden_user", "sender_user_name": "Eve" },
    }));
    // In a group, only what addresses the bot counts.
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": -5, "type": "group" }, "text": "/jobs",
    }));
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["A forward."]);
}

#[test]
fn the_model_of_a_chat_is_one_of_the_config() {
    let (story, telegram) = telegram_story();
    let story = story
        .set("modelPresets", json!({ "fast": "the-fast-one" }))
        .set("channels.telegram.allowFrom", json!(["7", "8"]));
    story.server().always(says("Hi."));
    let configured = model_of(&{
        answers(&story, &telegram, &["hi"]);
        story.requests().remove(0)
    });
    let messages = answers(&story, &telegram, &["/model", "/model gpt-evil", "/model fast", "hi"]);
    assert!(
        messages[0].starts_with(&format!("Model: {configured}\nChoices: {configured}, fast\n"))
    );
    assert!(messages[1].starts_with("Not done: the config has no model"), "{messages:?}");
    assert_eq!(messages[2..], ["Model: fast", "Hi."]);
    // Another chat, `/new`, and the way back.
    telegram.message(8, "hi");
    story.run(["channel", "poll"]);
    let messages = answers(&story, &telegram, &["/new", "hi", "/model default", "hi"]);
    assert_eq!(messages[2], format!("Model: {configured}"));
    let models: Vec<String> = story.requests().iter().map(model_of).collect();
    let fast = "the-fast-one".to_owned();
    assert_eq!(models, [&configured, &fast, &configured, &fast, &configured].map(Clone::clone));
    // A choice that the config no longer has does not count.
    answers(&story, &telegram, &["/model fast"]);
    let story = story.set("modelPresets", json!({}));
    answers(&story, &telegram, &["hi"]);
    assert_eq!(model_of(&story.requests()[5]), configured);
}

#[test]
fn the_first_message_of_a_chat_may_choose() {
    let (story, telegram) = telegram_story();
    let story = story
        .set("modelPresets", json!({ "fast": { "model": "the-fast-one" } }))
        .script([says("Hi.")]);
    let texts = ["/effort", "/effort extreme", "/effort high", "/model fast", "hi", "/status"];
    let messages = answers(&story, &telegram, &texts);
    assert!(messages[0].starts_with("Reasoning effort: the model's default\nChoices: none, "));
    assert!(messages[1].starts_with("Not done: there is no reasoning effort"), "{messages:?}");
    assert_eq!(messages[2..5], ["Reasoning effort: high", "Model: fast", "Hi."]);
    assert!(messages[5].contains("Model: fast\nMessages in this conversation: 2"), "{messages:?}");
    assert_eq!(model_of(&story.requests()[0]), "the-fast-one");
    story.run(["session", "list"]).stdout_has("telegram:7");
}

#[test]
fn undo_takes_back_the_changes_of_the_chat_alone() {
    let (story, telegram) = telegram_story();
    let story = story.set("channels.telegram.allowFrom", json!(["7", "8"]));
    let put =
        |name: &str, text: &str| calls("write_file", json!({ "path": name, "content": text }));
    let story = story.script([
        put("a.md", "one"),
        says("ok"),
        put("a.md", "two"),
        says("ok"),
        put("b.md", "of another chat"),
        says("ok"),
    ]);
    answers(&story, &telegram, &["write", "again"]);
    telegram.message(8, "write");
    story.run(["channel", "poll"]);
    let read = |name: &str| std::fs::read_to_string(story.workspace().join(name)).ok();
    let messages = answers(&story, &telegram, &["/undo"]);
    assert_eq!(messages[0], "restored a.md");
    assert_eq!(read("a.md").as_deref(), Some("one"));
    let messages = answers(&story, &telegram, &["/undo", "/undo", "/undo 3"]);
    assert!(messages[0].starts_with("removed "), "{messages:?}");
    assert!(messages[1].starts_with("No turn of this chat"), "{messages:?}");
    assert!(messages[2].starts_with("Not done: "), "{messages:?}");
    assert_eq!((read("a.md"), read("b.md").is_some()), (None, true));
}

/// Kills a poll with `/undo` at the `n`-th system call of a kind: the next poll finishes the same undo, and starts no other.
fn kill_undo_at(kind: &str, n: usize) -> bool {
    let (story, telegram) = telegram_story();
    let put = |text: &str| calls("write_file", json!({ "path": "a.md", "content": text }));
    let story = story.set("memory", json!({ "consolidate": "manual" })).script([
        put("one"),
        says("ok"),
        put("two"),
        says("ok"),
    ]);
    answers(&story, &telegram, &["write", "again"]);
    telegram.message(ANN, "/undo");
    let (result, is_killed) =
        run_with_fault(&story, &["channel", "poll"], &[], (kind, "SIGKILL", n));
    result.code();
    result.error_text();
    story.run(["channel", "poll"]);
    story.run(["channel", "poll"]);
    let text = std::fs::read_to_string(story.workspace().join("a.md")).unwrap();
    assert_eq!(text, "one", "{kind} {n}: {:?}", telegram.sent());
    is_killed
}

#[test]
fn a_killed_undo_takes_back_one_turn() {
    if can_inject() {
        let kinds = ["write", "fsync", "rename"];
        let calls: usize =
            kinds.map(|kind| inject_at_calls(|n| kill_undo_at(kind, n))).iter().sum();
        assert!(calls > 12, "only {calls} calls");
    }
}

#[test]
fn cost_jobs_and_skills_are_listed() {
    let (story, telegram) = telegram_story();
    let remind =
        json!({ "action": "add", "name": "tea", "message": "tea", "at": "2026-01-03T09:00" });
    let story = story
        .workspace_file("skills/soup/SKILL.md", "---\nname: soup\ndescription: Cooks.\n---\nLeeks.")
        .script([calls("cron", remind), says("ok"), says("Soup.")]);
    let texts =
        ["/jobs", "tea tomorrow", "/jobs", "/cost", "/skill", "/skill sup", "/skill soup for two"];
    let messages = answers(&story, &telegram, &texts);
    assert_eq!(messages[0], "No scheduled jobs.");
    assert!(messages[2].contains("tea (id: "), "{messages:?}");
    assert!(messages[3].contains("2 requests in 1 turn"), "{messages:?}");
    assert!(messages[4].contains("soup – Cooks."), "{messages:?}");
    assert_eq!(messages[5..], ["There is no skill <code>sup</code>. /skill lists them.", "Soup."]);
    let content = story.requests()[2].last_content();
    assert!(content.contains("Use the skill `soup`. for two"), "{content}");
}
