//! Buttons below questions about calls, and reactions to them: a press is the answer of the person who has pressed, to the question that
//! the program has put there, and to nothing else.

use crate::channel::{ANN, send_signal};
use crate::channel_approvals::{
    GROUP, STORY_TIME, ask, assert_made_at_most_once, code_in, count_runs, last_sent, poll,
    running_model, story,
};
use crate::channel_listen::{ACCEPTED, SIGNING_SECRET, post, slack_request};
use crate::chat_services::{StandIn, story_of};
use crate::discord_server::{self, DiscordServer};
use crate::fault_injection::{can_inject, inject_at_calls, run_with_fault};
use crate::matrix_server::MatrixServer;
use crate::server::{calls, says};
use crate::slack_server::{self, SlackServer};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use crate::wait::until;
use rustix::process::Signal;
use serde_json::{Value, json};

/// The press of a button with `data` below a message in Ann's direct chat, by Ann.
fn query(id: &str, message_id: i64, data: &str) -> Value {
    json!({
        "id": id, "chat_instance": "1", "from": { "id": ANN, "is_bot": false, "first_name": "A" },
        "message": { "message_id": message_id, "date": STORY_TIME, "chat": { "id": ANN, "type": "private" },
            "from": { "id": 4242, "is_bot": true }, "text": "Question 1" },
        "data": data,
    })
}

fn edited_texts(telegram: &TelegramServer) -> Vec<Value> {
    let calls = telegram.calls("editMessageText").into_iter();
    calls.map(|call| call.body).collect()
}

#[test]
fn a_press_approves_the_call_once_and_the_question_shows_it() {
    let (story, telegram) = story();
    let id = ask(&story, &telegram);
    let code = code_in(&last_sent(&telegram));
    let (buttons_id, payloads) = telegram.last_buttons();
    assert_eq!((buttons_id, payloads.len()), (id, 2));
    assert!(payloads.iter().all(|it| it.len() <= 64 && !it.contains(&code)), "{payloads:?}");
    let allowed = telegram.calls("getUpdates")[0].body["allowed_updates"].clone();
    assert_eq!(allowed, json!(["message", "edited_message", "callback_query"]));
    telegram.press(&query("q1", id, &payloads[0]));
    poll(&story);
    assert_eq!((count_runs(&story), last_sent(&telegram)), (1, "Fine.".to_owned()));
    assert!(story.last_request().last_content().contains("<approved_call name=\"exec\">"));
    assert_eq!(telegram.calls("answerCallbackQuery")[0].body["callback_query_id"], "q1");
    let [edited] = &edited_texts(&telegram)[..] else { panic!("one edit") };
    let text = edited["text"].as_str().unwrap();
    assert_eq!((&edited["message_id"], edited.get("reply_markup")), (&json!(id), None));
    assert!(text.contains("echo x &gt;&gt; made") && !text.contains(&code), "{text}");
    assert!(text.ends_with("Answered with <code>yes</code>."), "{text}");
    // The same press again, and another one.
    telegram.press(&query("q1", id, &payloads[0]));
    poll(&story);
    assert_eq!(last_sent(&telegram), "Fine.");
    telegram.press(&query("q2", id, &payloads[1]));
    poll(&story);
    assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    assert_eq!((count_runs(&story), story.requests().len()), (1, 3));
}

#[test]
fn a_press_of_no_closes_the_question() {
    let (story, telegram) = story();
    let id = ask(&story, &telegram);
    let (_, payloads) = telegram.last_buttons();
    telegram.press(&query("q1", id, &payloads[1]));
    telegram.press(&query("q2", id, &payloads[0]));
    poll(&story);
    let messages = telegram.sent();
    assert_eq!(
        messages[messages.len() - 2..],
        [
            "Question 1 is answered with no. Nothing was done.",
            "Question 1 is no longer open. Nothing was done."
        ]
    );
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
    let text = edited_texts(&telegram)[0]["text"].as_str().unwrap().to_owned();
    assert!(text.ends_with("Answered with <code>no</code>."), "{text}");
}

/// Presses that approve nothing. None of them reaches the model.
#[test]
fn only_a_press_of_the_asked_person_below_the_question_counts() {
    let group = json!({ "id": GROUP, "type": "group" });
    // ID stands for the message of the question, and KEY for the question.
    let changes = [
        // Of a stranger, of another allowed person, and of a bot.
        json!({ "from": { "id": 6, "is_bot": false } }),
        json!({ "from": { "id": 8, "is_bot": false } }),
        json!({ "from": { "id": 9, "is_bot": true } }),
        // The question was forwarded or copied to another chat.
        json!({ "message": { "message_id": "ID", "date": STORY_TIME, "chat": group } }),
        json!({ "message": { "message_id": 77, "date": STORY_TIME, "chat": group,
            "forward_origin": { "type": "user", "sender_user": { "id": 4242 } } } }),
        // Below another message, without a message, and by way of another bot's text.
        json!({ "message": { "message_id": 1001, "date": STORY_TIME, "chat": { "id": ANN, "type": "private" } } }),
        json!({ "message": null }),
        json!({ "message": null, "inline_message_id": "x" }),
        // Of another question, or of no question.
        json!({ "data": "yes.0123456789abcdef" }),
        json!({ "data": "always.KEY" }),
        json!({ "data": "KEY" }),
        json!({ "data": null, "game_short_name": "yes.KEY" }),
    ];
    for change in changes {
        let (story, telegram) = story();
        let story = story.set("channels.telegram.allowFrom", json!(["7", "8", "9"]));
        let id = ask(&story, &telegram);
        let (_, payloads) = telegram.last_buttons();
        let mut press = query("q1", id, &payloads[0]);
        let change = change.to_string().replace("\"ID\"", &id.to_string());
        let change = change.replace("KEY", payloads[0].trim_start_matches("yes."));
        let changed: Value = serde_json::from_str(&change).unwrap();
        for (name, value) in changed.as_object().unwrap() {
            press[name] = value.clone();
        }
        telegram.press(&press);
        poll(&story);
        poll(&story);
        assert_eq!((count_runs(&story), story.requests().len()), (0, 2), "{change}");
        story.run(["channel", "inbox"]).stdout("");
        // The question is as it was.
        telegram.press(&query("q2", id, &payloads[0]));
        poll(&story);
        assert_eq!(count_runs(&story), 1, "{change}");
    }
}

#[test]
fn a_press_after_an_hour_does_nothing() {
    let (story, telegram) = story();
    let id = ask(&story, &telegram);
    let (_, payloads) = telegram.last_buttons();
    telegram.press(&query("q1", id, &payloads[0]));
    let mut command = story.command(["channel", "poll"]);
    command.env("NANOBOT_TEST_TIME", "2026-01-02T04:04:06Z");
    command.output().unwrap();
    assert_eq!(last_sent(&telegram), "Question 1 is no longer open. Nothing was done.");
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
}

/// A call that is not shown as a whole takes the code that `/show` gives.
#[test]
fn a_long_call_has_no_buttons() {
    let (story, telegram) = story();
    let lines: String = (0..200).map(|number| format!("echo {number}\n")).collect();
    let command = format!("{lines}echo x >> made");
    let story = story.script([calls("exec", json!({ "command": command })), says("Asked.")]);
    telegram.message(ANN, "run it");
    poll(&story);
    assert!(last_sent(&telegram).contains("too long to be shown here"));
    let sent = telegram.calls("sendMessage");
    assert!(sent.iter().all(|call| call.body["reply_markup"].is_null()));
    let path = story.home().join(".nanobot/channels/telegram/approvals.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let key = file["questions"][0]["id"].as_str().unwrap();
    telegram.press(&query("q1", 1002, &format!("yes.{key}")));
    poll(&story);
    assert!(last_sent(&telegram).contains("/show 1 shows all of it"), "{:?}", telegram.sent());
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
}

#[test]
fn in_a_group_only_the_approvers_press() {
    let (story, telegram) = story();
    let story = story
        .set("channels.telegram.allowFrom", json!(["7", "8"]))
        .set("channels.telegram.approvers", json!(["8"]));
    story.server().always(running_model());
    let chat = json!({ "id": GROUP, "type": "group" });
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": chat, "text": "please run it",
        "reply_to_message": { "message_id": 1, "from": { "id": 4242 }, "text": "hello" },
    }));
    poll(&story);
    let (id, payloads) = telegram.last_buttons();
    let press = |number: &str, from: i64| {
        let mut press = query(number, id, &payloads[0]);
        press["from"] = json!({ "id": from, "is_bot": false, "username": "bob*" });
        press["message"]["chat"] = chat.clone();
        telegram.press(&press);
        poll(&story);
    };
    press("q1", ANN);
    assert_eq!(
        last_sent(&telegram),
        "Question 1 is for somebody else to answer. Nothing was done."
    );
    assert_eq!(count_runs(&story), 0);
    press("q2", 8);
    assert_eq!(count_runs(&story), 1);
    let text = edited_texts(&telegram)[0]["text"].as_str().unwrap().to_owned();
    assert!(
        text.ends_with("Answered with <code>yes</code> by <code>bob*</code> (<code>8</code>)."),
        "{text}"
    );
}

#[test]
fn slack_tells_of_a_press_by_socket_mode_or_by_a_signed_request() {
    for by_socket in [true, false] {
        let slack = SlackServer::start();
        let (key, value) = if by_socket {
            ("appToken", slack_server::APP_TOKEN)
        } else {
            ("signingSecret", SIGNING_SECRET)
        };
        let story = story_of(&slack, 1)
            .set("tools.permissions", json!({ "exec": "ask" }))
            .set(&format!("channels.slack.{key}"), json!(value));
        story.server().always(running_model());
        slack.write_in(0, "please run it");
        poll(&story);
        let payload = slack.press_payload("D0", slack_server::ANN, "yes");
        let story = if by_socket {
            let mut command = story.command(["channel", "poll", "--follow"]);
            let child = story.start(&mut command);
            slack.press(&payload);
            slack.sockets.wait_for_message(|message| message["envelope_id"] == "press");
            until("the call is made", || {
                slack.answers_in(0).last().is_some_and(|it| it == "Fine.")
            });
            send_signal(&child, Signal::TERM);
            assert_eq!(story.wait(child).signal(), Some(15));
            story
        } else {
            let mut story = story;
            let form = url::form_urlencoded::Serializer::new(String::new())
                .append_pair("payload", &payload.to_string())
                .finish();
            let unsigned = post(&[("X-Slack-Signature", "v0=00")], &form);
            let signed = slack_request(STORY_TIME, &form);
            // The text of an event is of anyone: a form in it is no press.
            let event = format!(r#"{{"type":"event_callback","event":{{"text":"x&{form}&"}}}}"#);
            story = story.stdin(slack_request(STORY_TIME, &event));
            story.run(["serve", "webhook", "slack"]).stdout(ACCEPTED);
            assert_eq!(count_runs(&story), 0);
            // The service may repeat a request.
            for (request, status) in [(&unsigned, 77), (&signed, 0), (&signed, 0)] {
                story = story.stdin(request);
                let result = story.run(["serve", "webhook", "slack"]).status(status);
                if status == 0 {
                    result.stdout(ACCEPTED);
                } else {
                    result.error_text();
                    assert!(result.text().starts_with("HTTP/1.1 401 "));
                    assert_eq!(count_runs(&story), 0);
                }
            }
            story
        };
        assert_eq!((count_runs(&story), story.requests().len()), (1, 3));
        let question = &slack.answers("D0")[1];
        assert_eq!(question["blocks"].as_array().unwrap().len(), 1, "{question}");
        assert!(question["text"].as_str().unwrap().ends_with("Answered with `yes`."));
    }
}

/// Without a way to hear of a press there is no button that fails.
#[test]
fn slack_without_events_has_no_buttons() {
    let slack = SlackServer::start();
    let story = story_of(&slack, 1).set("tools.permissions", json!({ "exec": "ask" }));
    story.server().always(running_model());
    slack.write_in(0, "please run it");
    poll(&story);
    let question = slack.answers("D0").pop().unwrap();
    assert!(question["text"].as_str().unwrap().starts_with("Question 1: "), "{question}");
    assert!(question["blocks"].is_null(), "{question}");
}

#[test]
fn a_press_in_a_thread_of_discord_is_of_its_server() {
    let discord = DiscordServer::start();
    let mut keys = discord.keys();
    keys["allowFrom"] = json!([discord_server::ANN, discord_server::EVE]);
    let story = Story::new()
        .set("channels", json!({ "discord": keys }))
        .set("tools.permissions", json!({ "exec": "ask" }))
        .set("memory", json!({ "consolidate": "manual" }));
    poll(&story);
    story.server().always(running_model());
    discord.add(json!({
        "channel_id": discord_server::THREAD, "author": { "id": discord_server::ANN },
        "content": format!("<@{}> please run it", discord_server::BOT),
        "mentions": [{ "id": discord_server::BOT, "username": "bot" }],
    }));
    poll(&story);
    let mut command = story.command(["channel", "poll", "--follow"]);
    let child = story.start(&mut command);
    discord.press(discord_server::THREAD, discord_server::EVE, "Yes");
    let last_text = || discord.answer_texts(discord_server::THREAD).pop().unwrap_or_default();
    until("another person is refused", || last_text().starts_with("Question 1 is for"));
    assert_eq!(count_runs(&story), 0);
    // The refusal stands below the question, whose buttons are still there.
    let is_callback = |path: &str| path.contains("/interactions/") && path.ends_with("/callback");
    until("the press is acknowledged", || {
        discord.http.requests().iter().any(|it| is_callback(&it.path))
    });
    send_signal(&child, Signal::TERM);
    assert_eq!(story.wait(child).signal(), Some(15));
    let question = discord.answers(discord_server::THREAD)[1].clone();
    assert_eq!(question["components"][0]["components"].as_array().unwrap().len(), 2, "{question}");
}

#[test]
fn a_reaction_in_matrix_answers_the_question_alone() {
    let matrix = MatrixServer::start();
    let story = story_of(&matrix, 1)
        .set("tools.permissions", json!({ "exec": "ask" }))
        .set("channels.matrix.allowFrom", json!(["@ann:h", "@bob:h"]));
    story.server().always(running_model());
    matrix.write_in(0, "please run it");
    poll(&story);
    let (room_id, question) = ("!r0:h", matrix.last_answer_id("!r0:h"));
    let offered = matrix.reactions(room_id);
    assert_eq!(offered.iter().map(|it| &it["key"]).collect::<Vec<_>>(), ["✅", "❌"]);
    assert!(offered.iter().all(|it| it["event_id"] == question.as_str()));
    // Of a stranger, of another allowed person, to another message, with another meaning, and one that was taken back.
    matrix.react(room_id, "@eve:h", &question, "✅");
    matrix.react(room_id, "@bob:h", &question, "✅");
    matrix.react(room_id, "@ann:h", "$1", "✅");
    matrix.react(room_id, "@ann:h", &question, "👍");
    matrix.push(room_id, "m.reaction", "@ann:h", json!({}));
    poll(&story);
    assert_eq!((count_runs(&story), story.requests().len()), (0, 2));
    assert!(matrix.answers_in(0).pop().unwrap().starts_with("Question 1 is for somebody else"));
    matrix.react(room_id, "@ann:h", &question, "✅\u{fe0f}");
    poll(&story);
    assert_eq!((count_runs(&story), story.requests().len()), (1, 3));
    // A reaction that is taken back undoes nothing, and a second one comes too late.
    matrix.push(room_id, "m.room.redaction", "@ann:h", json!({ "redacts": "$9" }));
    matrix.react(room_id, "@ann:h", &question, "❌");
    poll(&story);
    assert_eq!((count_runs(&story), story.requests().len()), (1, 3));
    let last = matrix.answers_in(0).pop().unwrap();
    assert_eq!(last, "Question 1 is no longer open. Nothing was done.");
}

/// Kills the poll that gets a press at the `n`-th system call of a kind.
fn kill_at(kind: &str, n: usize) -> bool {
    let (story, telegram) = story();
    let id = ask(&story, &telegram);
    let (_, payloads) = telegram.last_buttons();
    telegram.press(&query("q1", id, &payloads[0]));
    let fault = (kind, "SIGKILL", n);
    let (result, is_killed) = run_with_fault(&story, &["channel", "poll"], &[], fault);
    result.code();
    result.error_text();
    for _ in 0..2 {
        poll(&story);
    }
    assert_made_at_most_once(&story, &format!("{kind} {n}: {:?}", telegram.sent()));
    is_killed
}

#[test]
fn a_killed_poll_makes_the_call_of_a_press_once() {
    if can_inject() {
        let kill = |kind: &str| inject_at_calls(|n| kill_at(kind, n));
        let counts = ["write", "rename"].map(kill);
        assert!(counts.iter().sum::<usize>() > 8, "{counts:?}");
    }
}
