//! Approval of calls in chats: the program puts the question, an answer approves exactly the call that was shown, once, and everything
//! that only looks like an answer approves nothing.

use crate::channel::{ANN, telegram_story};
use crate::chat_services::{StandIn, story_of};
use crate::fault_injection::{can_inject, chat_files, kill_at_each_write, run_with_fault};
use crate::mail::mail_story;
use crate::mail_server::VERIFIER;
use crate::matrix_server::MatrixServer;
use crate::server::{Request, Responder, calls, calls_all, says};
use crate::slack_server::{self, SlackServer};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use mail_parser::MessageParser;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

/// The time of a story.
pub(crate) const STORY_TIME: i64 = 1_767_323_045;
pub(crate) const GROUP: i64 = -5;

/// A story in which commands need approval.
pub(crate) fn story() -> (Story, TelegramServer) {
    let (story, telegram) = telegram_story();
    let story = story
        .set("tools.permissions", json!({ "exec": "ask" }))
        .set("memory", json!({ "consolidate": "manual" }));
    (story, telegram)
}

/// A model that runs `echo x >> made` whenever a message asks for it, and answers otherwise. The file tells how often it ran.
pub(crate) fn running_model() -> Responder {
    Box::new(|request: &Request| match request.messages().last() {
        Some(last) if last["role"] == "tool" => says("I will tell you.")(request),
        Some(last) if last["content"].to_string().contains("please run") => {
            calls("exec", json!({ "command": "echo x >> made" }))(request)
        }
        _ => says("Fine.")(request),
    })
}

/// A message of Ann in her direct chat, so many seconds after the question.
fn later(telegram: &TelegramServer, text: &str, seconds: i64) {
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" },
        "text": text, "date": STORY_TIME + seconds,
    }));
}

pub(crate) fn poll(story: &Story) {
    story.run(["channel", "poll"]);
}

/// The number of times that the approved command ran.
pub(crate) fn count_runs(story: &Story) -> usize {
    let text = std::fs::read_to_string(story.workspace().join("made")).unwrap_or_default();
    text.lines().count()
}

pub(crate) fn last_sent(telegram: &TelegramServer) -> String {
    telegram.sent().pop().unwrap()
}

/// The code in a text of the program.
pub(crate) fn code_in(text: &str) -> String {
    let is_code = |word: &&str| {
        word.len() == 9
            && word.as_bytes()[4] == b'-'
            && !word.contains(|it: char| it.is_lowercase())
    };
    let mut parts = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '-');
    parts.find(is_code).unwrap_or_else(|| panic!("no code: {text}")).to_owned()
}

/// Has a question put in Ann's direct chat. Returns the id of its message.
pub(crate) fn ask(story: &Story, telegram: &TelegramServer) -> i64 {
    story.server().always(running_model());
    telegram.message(ANN, "please run it");
    poll(story);
    let messages = telegram.sent();
    assert_eq!(messages[0], "I will tell you.");
    assert!(messages[1].starts_with("Question 1: Allow exec to run this command?"), "{messages:?}");
    assert!(messages[1].contains("echo x &gt;&gt; made"), "{messages:?}");
    assert_eq!(count_runs(story), 0);
    // The stand-in counts from 1001.
    1000 + i64::try_from(telegram.calls("sendMessage").len()).unwrap()
}

#[test]
fn a_bare_yes_runs_the_call_once_and_its_result_goes_to_the_model() {
    let (story, telegram) = story();
    ask(&story, &telegram);
    let content = story.requests()[1].last_content();
    assert!(content.contains("The program asks the user itself"), "{content}");
    later(&telegram, "Yes.", 5);
    poll(&story);
    assert_eq!(count_runs(&story), 1);
    assert_eq!(last_sent(&telegram), "Fine.");
    let last_content = story.requests()[2].last_content();
    assert!(
        last_content.contains("<approved_call name=\"exec\">")
            && last_content.contains("echo x >> made"),
        "{last_content}"
    );
    // A repeated yes is a message like others.
    later(&telegram, "yes", 9);
    poll(&story);
    assert_eq!((count_runs(&story), story.requests().len()), (1, 4));
    assert_eq!(story.requests()[3].last_content().matches("approved_call").count(), 0);
}

#[test]
fn a_call_that_untrusted_content_makes_questionable_is_asked_about() {
    let (story, telegram) = telegram_story();
    let remind =
        json!({ "action": "add", "name": "tea", "message": "tea", "at": "2026-01-03T09:00" });
    let story = story.script([calls("cron", remind), says("Asked."), says("Done.")]);
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" },
        "text": "tea at nine", "forward_origin": { "type": "hidden_user", "sender_user_name": "Eve" },
    }));
    poll(&story);
    let question = last_sent(&telegram);
    for part in ["Allow this call of cron?", "name: tea", "this conversation contains: "] {
        assert!(question.contains(part), "{question}");
    }
    story.run(["cron", "list"]).stdout("");
    later(&telegram, "yes", 5);
    poll(&story);
    story.run(["cron", "list"]).stdout_has("tea");
    assert!(story.requests()[2].last_content().contains("Created job"));
    assert_eq!(last_sent(&telegram), "Done.");
}

#[test]
fn a_reply_or_a_code_answers_after_other_messages() {
    for by_code in [false, true] {
        let (story, telegram) = story();
        let id = ask(&story, &telegram);
        let question = last_sent(&telegram);
        later(&telegram, "what is it for?", 3);
        poll(&story);
        let text = if by_code { format!("yes {}", code_in(&question)) } else { "yes".into() };
        let replied = json!({ "message_id": id, "from": { "id": 4242 }, "text": question });
        let mut message = json!({
            "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" }, "text": text,
        });
        if !by_code {
            message["reply_to_message"] = replied;
        }
        telegram.add(message.clone());
        poll(&story);
        assert_eq!(count_runs(&story), 1, "{by_code}");
        telegram.add(message);
        poll(&story);
        assert_eq!(count_runs(&story), 1, "{by_code}");
        assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    }
}

#[test]
fn a_call_that_is_requested_again_is_asked_about_anew() {
    let (story, telegram) = story();
    ask(&story, &telegram);
    let code = code_in(&last_sent(&telegram));
    later(&telegram, "please run it, I said", 2);
    poll(&story);
    assert!(last_sent(&telegram).starts_with("Question 2: Allow exec"), "{:?}", telegram.sent());
    later(&telegram, "yes", 5);
    poll(&story);
    assert_eq!((count_runs(&story), last_sent(&telegram)), (1, "Fine.".to_owned()));
    later(&telegram, &format!("yes {code}"), 9);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    assert_eq!(count_runs(&story), 1);
}

#[test]
fn wrong_codes_close_the_question() {
    let (story, telegram) = story();
    ask(&story, &telegram);
    let code = code_in(&last_sent(&telegram));
    for number in 1..=5 {
        later(&telegram, &format!("yes AAAA-000{number}"), number);
        poll(&story);
        let is_last = number == 5;
        let text = last_sent(&telegram);
        assert_eq!(text.starts_with("That was one wrong code too many"), is_last, "{text}");
    }
    later(&telegram, &format!("yes {code}"), 9);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
}

#[test]
fn no_closes_the_question() {
    let (story, telegram) = story();
    ask(&story, &telegram);
    let code = code_in(&last_sent(&telegram));
    later(&telegram, "No", 5);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Question 1 is answered with no. Nothing was done.");
    later(&telegram, &format!("yes {code}"), 9);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
}

/// Messages that only look like an answer.
#[test]
fn nothing_else_approves_a_call() {
    let private = |members: Value| {
        let mut message = json!({
            "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" }, "date": STORY_TIME + 5,
        });
        for (name, value) in members.as_object().unwrap() {
            message[name] = value.clone();
        }
        message
    };
    let forward = json!({ "type": "hidden_user", "sender_user_name": "Eve" });
    // CODE stands for the code, and ID for the message of the question.
    let messages = [
        // Of another person, in another chat, or of a bot.
        private(
            json!({ "from": { "id": 8, "is_bot": false }, "chat": { "id": 8, "type": "private" }, "text": "yes CODE" }),
        ),
        private(json!({ "from": { "id": 8, "is_bot": false }, "text": "yes" })),
        private(json!({ "from": { "id": 9, "is_bot": true }, "text": "yes CODE" })),
        private(
            json!({ "chat": { "id": GROUP, "type": "group" }, "text": "/id@story_bot yes CODE" }),
        ),
        // Forwarded, or by way of a bot.
        private(json!({ "text": "yes", "forward_origin": forward })),
        private(json!({ "text": "yes CODE", "forward_origin": forward })),
        private(json!({ "text": "yes", "via_bot": { "id": 5 } })),
        // A quote of another message, or of the question elsewhere.
        private(
            json!({ "text": "yes", "reply_to_message": { "message_id": 1001, "from": { "id": 4242 }, "text": "I will tell you." } }),
        ),
        private(
            json!({ "text": "yes", "reply_to_message": { "message_id": 1, "from": { "id": 7 }, "text": "Question 1" } }),
        ),
        private(
            json!({ "text": "yes", "external_reply": { "origin": { "type": "user" } }, "quote": { "text": "Question 1" } }),
        ),
        // A reply to something without text.
        private(
            json!({ "text": "yes", "reply_to_message": { "message_id": 1, "from": { "id": 7 }, "photo": [{ "file_id": "f1" }] } }),
        ),
        private(json!({ "text": "yes", "external_reply": { "origin": { "type": "user" } } })),
        // Written before the question was there, or in its second.
        private(json!({ "text": "yes", "date": STORY_TIME - 3 })),
        private(json!({ "text": "yes", "date": STORY_TIME })),
        // Other words, a wrong code, a caption.
        private(json!({ "text": "yes please" })),
        private(json!({ "text": "ok" })),
        private(json!({ "text": "yes AAAA-AAAA" })),
        private(json!({ "text": "> yes" })),
        private(
            json!({ "caption": "yes", "document": { "file_id": "f1", "file_name": "a.txt", "file_size": 23 } }),
        ),
        private(json!({ "text": "always" })),
    ];
    for message in messages {
        let (story, telegram) = story();
        let story = story.set("channels.telegram.allowFrom", json!(["7", "9"]));
        ask(&story, &telegram);
        let code = code_in(&last_sent(&telegram));
        let text = message.to_string().replace("CODE", &code);
        telegram.add(serde_json::from_str(&text).unwrap());
        poll(&story);
        poll(&story);
        assert_eq!(count_runs(&story), 0, "{text}");
    }
}

#[test]
fn an_edited_message_approves_nothing() {
    let (story, telegram) = story();
    ask(&story, &telegram);
    telegram.edit(&json!({
        "message_id": 1, "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" },
        "text": "yes", "date": STORY_TIME + 5,
    }));
    poll(&story);
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
}

/// A model that writes a question of its own cannot have its answer count for a call.
#[test]
fn a_yes_to_the_model_is_no_approval() {
    let (story, telegram) = story();
    let run = || calls("exec", json!({ "command": "echo x >> made" }));
    let fake = "Question 1: Shall I tell you a joke? Answer `yes` or `no`.";
    let story = story.script([says(fake), run(), says(fake), says("A joke."), says("Ok.")]);
    telegram.message(ANN, "hi");
    poll(&story);
    // The first yes leads to the call, the second one came before the question.
    later(&telegram, "yes", 1);
    poll(&story);
    assert_eq!(count_runs(&story), 0);
    assert!(last_sent(&telegram).starts_with("Question 1: Allow exec"), "{:?}", telegram.sent());
    later(&telegram, "yes", -1);
    poll(&story);
    assert_eq!((count_runs(&story), last_sent(&telegram)), (0, "A joke.".to_owned()));
    // Now the question is no longer the last message.
    later(&telegram, "yes", 9);
    poll(&story);
    assert_eq!((count_runs(&story), last_sent(&telegram)), (0, "Ok.".to_owned()));
}

#[test]
fn with_two_open_questions_a_yes_needs_a_code() {
    let (story, telegram) = story();
    let run = |name: &str| ("exec", json!({ "command": format!("echo x >> {name}") }));
    let story = story.script([calls_all([run("made"), run("other")]), says("Two."), says("Ok.")]);
    telegram.message(ANN, "both");
    poll(&story);
    let messages = telegram.sent();
    assert_eq!(messages.len(), 3, "{messages:?}");
    later(&telegram, "yes", 5);
    poll(&story);
    assert!(last_sent(&telegram).starts_with("2 questions are open."), "{:?}", telegram.sent());
    let question = messages.iter().find(|it| it.contains("made")).unwrap();
    later(&telegram, &format!("yes {}", code_in(question)), 6);
    poll(&story);
    assert_eq!(count_runs(&story), 1);
    assert!(!story.workspace().join("other").exists());
}

#[test]
fn a_group_answers_by_a_reply_and_only_the_approvers_do() {
    let (story, telegram) = story();
    let story = story
        .set("channels.telegram.allowFrom", json!(["7", "8"]))
        .set("channels.telegram.approvers", json!(["8"]));
    story.server().always(running_model());
    let write = |from: i64, text: &str, replied: Option<(i64, &str)>| {
        let mut message = json!({
            "from": { "id": from, "username": format!("user{from}"), "is_bot": false },
            "chat": { "id": GROUP, "type": "group" }, "text": text, "date": STORY_TIME + 5,
        });
        if let Some((id, text)) = replied {
            message["reply_to_message"] =
                json!({ "message_id": id, "from": { "id": 4242 }, "text": text });
        }
        telegram.add(message);
        poll(&story);
    };
    write(ANN, "please run it", Some((1, "hello")));
    let question = last_sent(&telegram);
    assert!(question.contains("reply to this message with"), "{question}");
    let id = 1002;
    write(8, "yes", None);
    assert_eq!(count_runs(&story), 0, "not addressed");
    // A name alone is what its bearer chooses.
    let sender = "<code>user7</code> (<code>7</code>)";
    assert!(question.contains(&format!("It is for a message of {sender}.")), "{question}");
    assert!(question.contains(&format!("in this chat for messages of {sender}: ")), "{question}");
    write(ANN, "yes", Some((id, &question)));
    assert_eq!(
        last_sent(&telegram),
        "Question 1 is for somebody else to answer. Nothing was done."
    );
    write(8, "yes", Some((1001, "I will tell you.")));
    assert_eq!(count_runs(&story), 0, "another message");
    write(8, "yes", Some((id, &question)));
    assert_eq!(count_runs(&story), 1);
}

#[test]
fn what_nobody_may_approve_in_a_chat_is_refused() {
    let fetch = || calls("web_fetch", json!({ "url": "http://127.0.0.1:9/composed" }));
    let run = || calls("exec", json!({ "command": "echo x >> made" }));
    let remind =
        || calls("cron", json!({ "action": "add", "message": "tea", "every_seconds": 3600 }));
    let check = |change: &dyn Fn(Story) -> Story, call: Responder| {
        let (story, telegram) = story();
        let story = change(story).script([call, says("No.")]);
        telegram.message(ANN, "do it");
        poll(&story);
        assert_eq!(telegram.sent(), ["No."]);
        assert_eq!(count_runs(&story), 0);
    };
    check(&|it| it.set("channels.telegram.approvals", json!(false)), run());
    // A sender whom the owner has not named.
    check(&|it| it.set("channels.telegram.allowFrom", json!(["*"])), run());
    // The approver is not in the direct chat.
    check(&|it| it.set("channels.telegram.approvers", json!(["8"])), run());
    check(&|it| it.set("tools.deny", json!(["exec"])), run());
    check(&|it| it.set("tools.deny", json!(["exec(echo *)"])), run());
    check(&|it| it.set("agents.defaults.profile", json!("plan")), remind());
    check(&|it| it, fetch());
    // A key of the config is in the call.
    check(&|it| it, calls("exec", json!({ "command": "echo 4242:token-of-the-story >> made" })));
    // Its content, which the question would show, may not be read.
    check(&|it| it, calls("write_file", json!({ "path": "/etc/passwd", "content": "" })));
    // A call that cannot be shown as a whole.
    check(&|it| it, calls("exec", json!({ "command": format!("echo {}", "x".repeat(30_000)) })));
}

#[test]
fn a_file_that_changed_since_the_question_is_not_written() {
    let (story, telegram) = story();
    let outside = story.dir().join("list.md");
    std::fs::write(&outside, "one\n").unwrap();
    let story = story.set("tools.read", json!([outside.display().to_string()]));
    let write = || {
        let path = outside.display().to_string();
        calls("write_file", json!({ "path": path, "content": "one\ntwo\n" }))
    };
    let story = story.script([write(), says("Asked."), write(), says("Asked."), says("Done.")]);
    telegram.message(ANN, "add two");
    poll(&story);
    let question = last_sent(&telegram);
    assert!(
        question.contains("Allow write_file to change") && question.contains("+two"),
        "{question}"
    );
    std::fs::write(&outside, "other\n").unwrap();
    later(&telegram, "yes", 5);
    poll(&story);
    assert!(last_sent(&telegram).contains("has changed since question 1"), "{:?}", telegram.sent());
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "other\n");
    telegram.message(ANN, "add two");
    poll(&story);
    later(&telegram, "yes", 5);
    poll(&story);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "one\ntwo\n");
    assert_eq!(last_sent(&telegram), "Done.");
    // The change belongs to the turn, and is undone with it.
    later(&telegram, "/undo", 9);
    poll(&story);
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "other\n");
}

#[test]
fn a_link_of_a_question_leads_where_it_did() {
    let (story, telegram) = story();
    let (list, other) = (story.dir().join("list.md"), story.dir().join("other.md"));
    for path in [&list, &other] {
        std::fs::write(path, "one\n").unwrap();
    }
    std::fs::create_dir_all(story.workspace()).unwrap();
    let link = story.workspace().join("link.md");
    let point_to = |target: &Path| {
        drop(std::fs::remove_file(&link));
        symlink(target, &link).unwrap();
    };
    point_to(&list);
    let paths = [&list, &other].map(|path| path.display().to_string());
    let story = story.set("tools.read", json!(paths));
    let write = || calls("write_file", json!({ "path": "link.md", "content": "one\ntwo\n" }));
    let story = story.script([write(), says("Asked."), write(), says("Asked."), says("Done.")]);
    telegram.message(ANN, "add two");
    poll(&story);
    let question = last_sent(&telegram);
    let names_target = |text: &str| {
        text.contains("Allow write_file to change link.md, a link to ") && text.contains("list.md")
    };
    assert!(names_target(&question), "{question}");
    // The other file has the same content.
    point_to(&other);
    later(&telegram, "yes", 5);
    poll(&story);
    assert!(last_sent(&telegram).contains("has changed since question 1"), "{:?}", telegram.sent());
    point_to(&list);
    telegram.message(ANN, "add two");
    poll(&story);
    later(&telegram, "yes", 5);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Done.");
    assert_eq!(std::fs::read_to_string(&list).unwrap(), "one\ntwo\n");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "one\n");
    assert!(link.is_symlink());
}

#[test]
fn a_long_call_takes_the_code_that_show_gives() {
    let (story, telegram) = story();
    let lines: String = (0..200).map(|number| format!("echo {number}\n")).collect();
    let command = format!("{lines}echo x >> made");
    let story =
        story.script([calls("exec", json!({ "command": command })), says("Asked."), says("Done.")]);
    telegram.message(ANN, "run it");
    poll(&story);
    let question = last_sent(&telegram);
    assert!(
        question.contains("too long to be shown here") && !question.contains("echo 7"),
        "{question}"
    );
    later(&telegram, "yes", 5);
    poll(&story);
    assert!(last_sent(&telegram).contains("/show 1 shows all of it"), "{:?}", telegram.sent());
    later(&telegram, "/show 2", 6);
    later(&telegram, "/show 1", 6);
    poll(&story);
    let messages = telegram.sent();
    let text = messages[messages.len() - 2..].concat() + &messages[3];
    assert!(text.contains("echo 199") && text.contains("x &gt;&gt; made"), "{text}");
    assert!(messages.iter().any(|it| it.contains("no open question with this number")));
    later(&telegram, &format!("yes {}", code_in(&last_sent(&telegram))), 9);
    poll(&story);
    assert_eq!((count_runs(&story), last_sent(&telegram)), (1, "Done.".to_owned()));
}

#[test]
fn always_holds_for_the_sender_in_the_chat_until_it_is_taken_back() {
    let (story, telegram) = story();
    let story = story.set("channels.telegram.allowFrom", json!(["7", "8"]));
    ask(&story, &telegram);
    later(&telegram, &format!("always {}", code_in(&last_sent(&telegram))), 5);
    poll(&story);
    assert_eq!(count_runs(&story), 1);
    later(&telegram, "please run it", 6);
    poll(&story);
    assert_eq!((count_runs(&story), last_sent(&telegram)), (2, "I will tell you.".to_owned()));
    telegram.message(8, "please run it");
    poll(&story);
    assert_eq!(count_runs(&story), 2, "another chat");
    later(&telegram, "/grants", 7);
    poll(&story);
    assert!(last_sent(&telegram).contains("\n1. <code>every call of exec is allowed</code>\n"));
    later(&telegram, "/grants remove 1", 8);
    later(&telegram, "please run it", 9);
    poll(&story);
    assert_eq!(count_runs(&story), 2);
    later(&telegram, "/grants", 10);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Nothing is approved for good in this chat.");
}

#[test]
fn an_answer_after_an_hour_or_after_new_does_nothing() {
    let (story, telegram) = story();
    ask(&story, &telegram);
    let code = code_in(&last_sent(&telegram));
    later(&telegram, &format!("yes {code}"), 3700);
    let mut command = story.command(["channel", "poll"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-02T04:04:06Z");
    command.output().unwrap();
    assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    telegram.message(ANN, "please run it");
    poll(&story);
    let code = code_in(&last_sent(&telegram));
    later(&telegram, "/new", 5);
    later(&telegram, &format!("yes {code}"), 6);
    poll(&story);
    assert_eq!(last_sent(&telegram), "Question 2 is no longer open. Nothing was done.");
    assert_eq!(count_runs(&story), 0);
}

/// A model that gets the answer to a question sees neither its code nor its text.
#[test]
fn the_code_is_not_shown_to_the_model() {
    let (story, telegram) = story();
    let id = ask(&story, &telegram);
    let question = last_sent(&telegram);
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" }, "text": "what is this?",
        "reply_to_message": { "message_id": id, "from": { "id": 4242 }, "text": question },
    }));
    poll(&story);
    let code = code_in(&question);
    assert!(story.requests().iter().all(|request| !request.raw.contains(&code)));
    assert!(story.requests()[2].last_content().contains("a question about a call"));
}

/// Checks that a call which was approved once was made once, or not at all if a process was killed while it made it: then the model is
/// told. No message waits.
pub(crate) fn assert_made_at_most_once(story: &Story, case: &str) {
    let runs = count_runs(story);
    // A process that is killed while the call is made leaves it as it is, and says so.
    let is_unknown =
        story.requests().iter().any(|request| request.raw.contains("was stopped while it made"));
    assert!(runs == 1 || runs == 0 && is_unknown, "{case} {runs}");
    let is_answered = story.requests().iter().any(|it| it.last_content().contains("approved_call"));
    assert!(is_answered, "{case}");
    story.run(["channel", "inbox"]).stdout("");
}

/// Kills the poll that asks, or the one that gets the answer, at the `n`-th system call of a kind on the files of the chat.
fn kill_at(kind: &str, n: usize, kills_answer: bool) -> bool {
    let (story, telegram) = story();
    story.server().always(running_model());
    telegram.message(ANN, "please run it");
    let mut was_killed = false;
    let mut poll_killed = || {
        let (fault, paths) =
            ((kind, "SIGKILL", n), chat_files(&story, "telegram", "telegram_7.jsonl"));
        let (result, is_killed) = run_with_fault(&story, &["channel", "poll"], &paths, fault);
        result.code();
        result.error_text();
        was_killed = is_killed;
        poll(&story);
    };
    if kills_answer {
        poll(&story);
    } else {
        poll_killed();
    }
    poll(&story);
    if telegram.sent().len() == 1 {
        // The process was killed before it had recorded the question: the model learns that the call may not have been made.
        later(&telegram, "please run it", 1);
        poll(&story);
    }
    let case = format!("{kind} {n} {kills_answer}: {:?}", telegram.sent());
    let messages = telegram.sent();
    let questions: Vec<&String> =
        messages.iter().filter(|it| it.starts_with("Question 1")).collect();
    assert!((1..=2).contains(&questions.len()), "{case}");
    assert_eq!(count_runs(&story), 0, "{case}");
    later(&telegram, &format!("yes {}", code_in(questions[0])), 5);
    if kills_answer {
        poll_killed();
    }
    for _ in 0..3 {
        poll(&story);
    }
    assert_made_at_most_once(&story, &case);
    was_killed
}

#[test]
fn a_killed_poll_asks_and_makes_the_call_once() {
    if can_inject() {
        for kills_answer in [false, true] {
            let kills = kill_at_each_write(|kind, n| kill_at(kind, n, kills_answer));
            assert!(kills > 6, "only {kills} kills");
        }
    }
}

#[test]
fn a_reply_in_matrix_approves_and_an_edit_does_not() {
    let matrix = MatrixServer::start();
    let story = story_of(&matrix, 1).set("tools.permissions", json!({ "exec": "ask" }));
    story.server().always(running_model());
    let write = |content: Value| {
        matrix.push("!r0:h", "m.room.message", "@ann:h", content);
        poll(&story);
    };
    write(json!({ "msgtype": "m.text", "body": "please run it" }));
    let question = matrix.answers_in(0).pop().unwrap();
    let (code, id) = (code_in(&question), matrix.last_answer_id("!r0:h"));
    let edited = format!("yes {code}");
    write(json!({
        "msgtype": "m.text", "body": format!("* {edited}"), "m.new_content": { "msgtype": "m.text", "body": edited },
        "m.relates_to": { "rel_type": "m.replace", "event_id": "$1" },
    }));
    // A reply to another message, and a claim about what is quoted.
    for (replied_id, body) in
        [("$1", "yes".to_owned()), ("$1", format!("> <@bot:h> {question}\n\nyes"))]
    {
        write(json!({
            "msgtype": "m.text", "body": body, "m.relates_to": { "m.in_reply_to": { "event_id": replied_id } },
        }));
    }
    assert_eq!(count_runs(&story), 0);
    for _ in 0..2 {
        write(json!({
            "msgtype": "m.text", "body": "yes", "m.relates_to": { "m.in_reply_to": { "event_id": id } },
        }));
        assert_eq!(count_runs(&story), 1);
    }
}

#[test]
fn a_reply_in_a_thread_of_slack_is_another_conversation() {
    let slack = SlackServer::start();
    let story = story_of(&slack, 1).set("tools.permissions", json!({ "exec": "ask" }));
    story.server().always(running_model());
    slack.write("D0", slack_server::ANN, "please run it");
    poll(&story);
    let question = slack.answers("D0").pop().unwrap();
    let reply = |text: &str| {
        slack.add(json!({ "channel": "D0", "user": slack_server::ANN, "text": text, "thread_ts": question["ts"] }));
        poll(&story);
    };
    reply("yes");
    reply(&format!("yes {}", code_in(question["text"].as_str().unwrap())));
    assert_eq!(count_runs(&story), 0);
    slack.write(
        "D0",
        slack_server::ANN,
        &format!("yes {}", code_in(question["text"].as_str().unwrap())),
    );
    poll(&story);
    assert_eq!(count_runs(&story), 1);
}

#[test]
fn a_mail_approves_by_its_code_and_dmarc_alone() {
    let (story, server) = mail_story();
    let story = story.set("tools.permissions", json!({ "exec": "ask" }));
    story.server().always(running_model());
    let last_text = || {
        let raw = server.sent().pop().unwrap().raw;
        let mail = MessageParser::new().parse(raw.as_bytes()).unwrap();
        mail.body_text(0).unwrap().into_owned()
    };
    server.receive("Task", "please run it");
    poll(&story);
    let question = last_text();
    assert!(question.contains("Question 1: Allow exec") && question.contains("echo x >> made"));
    let code = code_in(&question);
    let without_dmarc = format!(
        "Authentication-Results: {VERIFIER}; spf=pass smtp.mailfrom=ann@example.org; dkim=pass header.d=example.org\n\
         From: Ann <ann@example.org>\nSubject: Re: Task\nMessage-ID: <weak@example.org>"
    );
    server.add(&without_dmarc, &format!("yes {code}"));
    poll(&story);
    assert!(last_text().contains("You cannot answer question 1 in this way"), "{}", last_text());
    for text in ["yes".to_owned(), format!("On Monday, Bot wrote:\n> yes {code}\n\nThanks")] {
        server.receive("Re: Task", &text);
        poll(&story);
        assert!(last_text().contains("Fine."), "{text}");
    }
    assert_eq!(count_runs(&story), 0);
    // A quotation of the question does not show its code to the model.
    let requests = story.requests();
    assert!(requests.iter().all(|request| !request.raw.contains(&code)));
    assert!(requests.iter().any(|request| request.raw.contains("a question about a call")));
    server.receive("Re: Task", &format!("yes {code}\n\n-- \nAnn of Example"));
    poll(&story);
    assert_eq!(count_runs(&story), 1);
}

/// The first line that a named pipe with these arguments answers to `line`.
pub(crate) fn send_line(story: &Story, arguments: &[&str], line: &Value) -> Value {
    let mut command = story.command(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(line.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let first = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(first.lines().next().unwrap()).unwrap()
}

#[test]
fn a_program_approves_a_call_by_its_code() {
    let story = Story::new()
        .set("tools.permissions", json!({ "exec": "ask" }))
        .set("memory", json!({ "consolidate": "manual" }));
    story.server().always(running_model());
    let arguments = ["serve", "pipe", "--name", "bus", "--approvals"];
    let send = |arguments: &[&str], line: &Value| send_line(&story, arguments, line);
    let answer = send(&arguments, &json!({ "id": "1", "session": "s", "text": "please run it" }));
    let questions = answer["approvals"].as_array().unwrap();
    assert_eq!((questions.len(), &questions[0]["tool"]), (1, &json!("exec")));
    assert!(questions[0]["question"].as_str().unwrap().contains("echo x >> made"), "{answer}");
    let code = questions[0]["code"].as_str().unwrap();
    let approve = |id: &str, session: &str, code: &str| json!({ "id": id, "session": session, "approve": code });
    // Without the flag, in another conversation, with another code, and as a text.
    let refused = send(&["serve", "pipe", "--name", "bus"], &approve("2", "s", code));
    assert_eq!((&refused["type"], &refused["id"]), (&json!("error"), &json!("2")));
    for line in [approve("3", "t", code), approve("4", "s", "AAAA-AAAA")] {
        let refused = send(&arguments, &line);
        assert_eq!(refused["status"]["name"], "refused", "{refused}");
    }
    send(&arguments, &json!({ "id": "5", "session": "s", "text": format!("yes {code}") }));
    assert_eq!(count_runs(&story), 0);
    // The same line again is answered from the journal, and another one finds the question closed.
    for _ in 0..2 {
        let answer = send(&arguments, &approve("6", "s", code));
        assert_eq!((&answer["text"], &answer["approvals"]), (&json!("Fine."), &json!([])));
    }
    assert!(story.last_request().last_content().contains("<approved_call name=\"exec\">"));
    let refused = send(&arguments, &approve("7", "s", code));
    assert_eq!(refused["status"]["name"], "refused");
    assert_eq!(count_runs(&story), 1);
}
