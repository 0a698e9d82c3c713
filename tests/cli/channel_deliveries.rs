//! `channel`: the session of a chat knows what jobs, commands and other runs have sent there.

use crate::channel::{ANN, telegram_config, telegram_story};
use crate::cron_run;
use crate::formats::ALL_FORMATS;
use crate::server::{Request, calls, says};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use serde_json::{Value, json};

/// A job whose answer is sent to Ann.
fn add_job(story: &Story) {
    cron_run::write_jobs(story, &[cron_run::python_job(&cron_run::every_minute())]);
    let options = json!({ "v": 1, "sink": { "chat": { "channel": "telegram", "to": "7" } } });
    cron_run::write_terms(story, &options);
}

/// The speakers of a request.
fn roles(request: &Request) -> Vec<String> {
    let messages = request.messages().into_iter();
    let roles = messages.filter_map(|it| it["role"].as_str().map(str::to_owned));
    roles.filter(|role| !["system", "developer"].contains(&role.as_str())).collect()
}

/// The origin that the session of Ann's chat has recorded last.
fn recorded_origin(story: &Story) -> Value {
    let lines = story.session("telegram_7.jsonl");
    let last = lines.iter().rfind(|line| line["_type"] == "metadata").unwrap();
    last["metadata"]["nanobot"]["origin"]["level"].clone()
}

#[test]
fn a_reminder_is_known_when_it_is_answered() {
    for format in ALL_FORMATS {
        let telegram = TelegramServer::start();
        let story =
            Story::in_format(format, "scripted").set("channels", telegram_config(&telegram));
        add_job(&story);
        story.server().script([
            says("Reminder: call **Bob**."),
            says("Snoozed."),
            says("You called."),
            says("Reminder: call Eve."),
            says("Also snoozed."),
        ]);
        story.run(["cron", "run", cron_run::JOB_ID]);
        telegram.message(ANN, "snooze this for 10 minutes");
        story.run(["channel", "poll"]);
        telegram.message(ANN, "done");
        story.run(["channel", "poll"]);
        story.run(["cron", "run", cron_run::JOB_ID]);
        telegram.message(ANN, "this too");
        story.run(["channel", "poll"]);
        assert_eq!(telegram.sent().len(), 5);
        let requests = story.server().requests();
        for (number, count) in [(1, 3), (2, 5), (4, 7)] {
            let request = &requests[number];
            let expect: Vec<&str> = ["user", "assistant"].into_iter().cycle().take(count).collect();
            assert_eq!(roles(request), expect, "{}", request.raw);
            assert_eq!(request.raw.matches("Reminder: call Bob.").count(), 1, "{}", request.raw);
            assert!(request.raw.contains("[sent to this chat by job `digest`; origin: user]"));
        }
        assert!(requests[4].raw.contains("Reminder: call Eve."), "{}", requests[4].raw);
    }
}

#[test]
fn only_what_was_delivered_is_known_with_its_origin() {
    let (story, telegram) = telegram_story();
    let story = story.script([says("Yes."), says("Which one?"), says("That one.")]);
    let poll = |story: &Story, text: &str| {
        telegram.message(ANN, text);
        story.run(["channel", "poll"]);
        story.server().requests().pop().unwrap().raw
    };
    let refused = json!({ "ok": false, "error_code": 400, "description": "Bad Request: no" });
    telegram.fail("sendMessage", 400, refused);
    story.run(["channel", "send", "telegram", "7", "Never seen."]).status(65).error_text();
    story.run(["channel", "send", "telegram", "7", "By hand."]).text();
    story.run(["channel", "send", "telegram", "9", "For others."]).text();
    let request = poll(&story, "hi");
    assert!(request.contains("By hand."), "{request}");
    assert!(!request.contains("Never seen.") && !request.contains("For others."), "{request}");
    assert_eq!(recorded_origin(&story), "user");
    let story = story.stdin("Piped in.");
    story.run(["channel", "send", "telegram", "7"]).text();
    let request = poll(&story, "and this?");
    assert!(request.contains("origin: project]") && request.contains("Piped in."), "{request}");
    assert_eq!(recorded_origin(&story), "project");
    // What came before belongs to the conversation that ends.
    story.run(["channel", "send", "telegram", "7", "Old news."]).text();
    telegram.message(ANN, "/new");
    story.run(["channel", "poll"]);
    let request = poll(&story, "anything?");
    assert!(!request.contains("Old news."), "{request}");
}

#[test]
fn a_reply_names_the_reminder_that_it_is_about() {
    let (story, telegram) = telegram_story();
    let add = json!({ "action": "add", "message": "call Bob", "every_seconds": 3600 });
    story.server().script([
        calls("cron", add.clone()),
        says("Snoozed."),
        says("Noted."),
        calls("cron", add),
        says("No."),
    ]);
    story.run(["channel", "send", "telegram", "7", "Reminder: call Bob."]).text();
    story.run(["channel", "send", "telegram", "7", "Reminder: call **Eve**."]).text();
    let reply = |text: &str, replied: Value| {
        telegram.add(json!({
            "from": { "id": ANN, "is_bot": false, "first_name": "A" }, "text": text,
            "chat": { "id": ANN, "type": "private" }, "reply_to_message": replied,
        }));
        let before = story.server().requests().len();
        story.run(["channel", "poll"]);
        let request = story.server().requests().swap_remove(before);
        request.messages().last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    let bot_message =
        |id: i64, text: &str| json!({ "message_id": id, "from": { "id": 4242 }, "text": text });
    let content = reply("snooze this", bot_message(1001, "Reminder: call Bob."));
    let block =
        "<replied name=\"sent by `nanobot channel send`\">\nReminder: call Bob.\n</replied>";
    assert!(content.contains(&format!("snooze this\n\n{block}")), "{content}");
    assert_eq!(recorded_origin(&story), "user");
    let jobs = story.run(["cron", "list", "--json"]).text();
    assert!(jobs.contains("call Bob"), "{jobs}");
    let content = reply("this one is done", bot_message(1002, "Reminder: call Eve."));
    assert!(content.contains("\nReminder: call Eve.\n</replied>"), "{content}");
    assert!(!content.contains("Bob"), "{content}");
    // What a stranger wrote is still content from outside.
    let content =
        reply("and this", json!({ "from": { "id": 66 }, "text": "Reminder: call Mallory." }));
    assert!(content.contains("<quote name=\"quoted message\">"), "{content}");
    assert_eq!(recorded_origin(&story), "external");
    assert_eq!(story.run(["cron", "list", "--json"]).text(), jobs);
}

#[test]
fn a_message_of_another_run_is_known_with_its_session() {
    let (story, telegram) = telegram_story();
    story.server().script([
        calls(
            "message",
            json!({ "content": "Build done.", "channel": "telegram", "chat_id": "7" }),
        ),
        says("Sent."),
        says("Green."),
    ]);
    story.run(["agent", "-m", "tell me there"]).stdout("Sent.\n");
    telegram.message(ANN, "and the tests?");
    story.run(["channel", "poll"]);
    let request = story.server().requests().pop().unwrap().raw;
    assert!(request.contains("by a run in session `cli:direct`; origin: user]"), "{request}");
    assert!(request.contains("Build done."), "{request}");
}

#[test]
fn an_answer_by_the_message_tool_is_the_only_one() {
    for last in ["Done.", ""] {
        let (story, telegram) = telegram_story();
        story.server().script([calls("message", json!({ "content": "Done." })), says(last)]);
        telegram.message(ANN, "do it");
        story.run(["channel", "poll"]).status(0).stdout("");
        story.run(["channel", "poll"]).status(0).stdout("");
        assert_eq!(telegram.sent(), ["Done."], "{last:?}");
        story.run(["channel", "inbox"]).stdout("");
        assert_eq!(story.server().requests().len(), 2);
    }
}

#[test]
fn an_answer_of_a_job_by_the_message_tool_is_the_only_one() {
    for last in ["Done.", ""] {
        let (story, telegram) = telegram_story();
        add_job(&story);
        let message = json!({ "content": "Done.", "channel": "telegram", "chat_id": "7" });
        story.server().script([calls("message", message), says(last)]);
        story.run(["cron", "run", cron_run::JOB_ID]).status(0).stdout("");
        assert_eq!(telegram.sent(), ["Done."], "{last:?}");
        assert_eq!(cron_run::outcomes(&story), ["ok"]);
    }
}

#[test]
fn a_failure_is_told_in_words_for_the_sender() {
    let (story, telegram) = telegram_story();
    story.server().always(says(""));
    telegram.message(ANN, "hi");
    story.run(["channels", "poll"]).status(1).error_text();
    let messages = telegram.sent();
    assert_eq!(
        messages,
        [
            "I could not answer this message: something went wrong. You can try it again, perhaps in other words."
        ]
    );
}
