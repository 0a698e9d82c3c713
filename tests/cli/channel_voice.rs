//! `channel`: voice messages, transcribed by a service or by a command.

use crate::channel::{send_signal, telegram_story};
use crate::server::{Response, Server, calls, says, sends};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use crate::wait::until_exists;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Ann, who may write to us.
const ANN: i64 = 7;
/// Someone else.
const EVE: i64 = 8;

/// A voice message; `members` are added to it.
fn voice(from: i64, members: &Value) -> Value {
    let mut message = json!({
        "from": { "id": from, "is_bot": false }, "chat": { "id": from, "type": "private" },
        "voice": { "file_id": "f1", "file_size": 23, "duration": 4 },
    });
    for (name, value) in members.as_object().unwrap() {
        message[name] = value.clone();
    }
    message
}

/// A story with a channel, and with a service that transcribes.
fn voice_story() -> (Story, TelegramServer, Server) {
    let (story, telegram) = telegram_story();
    let speech = Server::start();
    let groq =
        json!({ "apiKey": "gsk_story", "apiBase": format!("http://127.0.0.1:{}/v1", speech.port) });
    (story.set("providers.groq", groq), telegram, speech)
}

fn transcribes(text: &str) -> Response {
    Response::json(200, &json!({ "text": text, "duration": 3600.0 }))
}

fn ledger_lines(story: &Story, cause: &str) -> Vec<Value> {
    let path = story.home().join(".nanobot/usage.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &Value| line["cause"] == cause).collect()
}

#[test]
fn a_voice_message_is_transcribed_for_allowed_senders_and_paid_for_in_the_ledger() {
    let (story, telegram, speech) = voice_story();
    let story = story.set("transcription.language", json!("en")).script([says("Tea at five.")]);
    speech.script([sends(transcribes("when\nis tea?"))]);
    telegram.add(voice(EVE, &json!({})));
    telegram.add(voice(ANN, &json!({})));
    story.run(["channel", "poll"]);
    assert_eq!(telegram.sent(), ["Tea at five."]);
    let request = &speech.requests()[0];
    assert_eq!(speech.requests().len(), 1, "not for unknown senders");
    assert_eq!(request.path, "/v1/audio/transcriptions");
    assert_eq!(request.header("authorization"), Some("Bearer gsk_story"));
    for part in [
        "name=\"model\"\r\n\r\nwhisper-large-v3\r\n",
        "name=\"language\"\r\n\r\nen\r\n",
        "filename=\"",
        "voice.ogg\"\r\nContent-Type: audio/ogg\r\n\r\nthe content of the file",
    ] {
        assert!(request.raw.contains(part), "{part}: {}", request.raw);
    }
    let content = story.server().requests()[0].last_content();
    assert!(content.contains("[transcription: when is tea?]"), "{content}");
    let lines = ledger_lines(&story, "transcription");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["model"], "whisper-large-v3");
    assert_eq!(lines[0]["usd"], 0.111);
    assert_eq!(lines[0]["sender"], "telegram:7");
}

#[test]
fn spoken_words_are_the_users_and_forwarded_ones_are_not() {
    let remind =
        || calls("cron", json!({ "action": "add", "message": "tea", "every_seconds": 3600 }));
    for (members, count) in [(json!({}), 1), (json!({ "forward_origin": {} }), 0)] {
        let (story, telegram, speech) = voice_story();
        let story = story.script([remind(), says("Done.")]);
        speech.script([sends(transcribes("remind me of the tea"))]);
        telegram.add(voice(ANN, &members));
        story.run(["channel", "poll"]);
        let content = story.server().requests()[0].last_content();
        assert_eq!(content.contains("<quote"), count == 0, "{content}");
        let jobs = story.run(["cron", "list", "--json"]).text();
        let job_count = jobs.lines().filter(|line| line.contains("tea")).count();
        assert_eq!(job_count, count, "{jobs}");
    }
}

#[test]
fn what_cannot_be_transcribed_is_named() {
    // Each of the configs, and the answers of the service that are used up.
    for (settings, duration, answers) in [
        (json!({}), 4, 3),
        (json!({}), 500, 0),
        (json!({ "enabled": false }), 4, 0),
        (json!({ "provider": "openai" }), 4, 0),
        (json!({ "command": "echo no; exit 3" }), 4, 0),
    ] {
        let (story, telegram, speech) = voice_story();
        let story = story.set("transcription", settings.clone()).script([says("I cannot hear.")]);
        speech.always(sends(Response::json(503, &json!({}))));
        let voice_file = json!({ "file_id": "f1", "file_size": 23, "duration": duration });
        telegram.add(voice(ANN, &json!({ "voice": voice_file })));
        story.run(["channel", "poll"]);
        assert_eq!(telegram.sent(), ["I cannot hear."], "{settings}");
        let content = story.server().requests()[0].last_content();
        assert!(content.contains("[voice: ") && content.contains("/media/telegram/"), "{content}");
        assert_eq!(speech.requests().len(), answers, "{settings}");
    }
}

#[test]
fn a_command_transcribes_and_its_text_is_kept() {
    let (story, telegram) = telegram_story();
    let command = "echo once >> \"$HOME/runs\"; tr a-z A-Z < \"$1\"";
    let story = story
        .set("transcription.command", json!(command))
        .script([says("Loud."), says("Still loud.")]);
    for _ in 0..2 {
        telegram.add(voice(ANN, &json!({})));
        story.run(["channel", "poll"]);
    }
    for request in story.server().requests() {
        let content = request.last_content();
        let expect = "[transcription: THE CONTENT OF THE FILE]";
        assert!(content.contains(expect), "{content}");
    }
    // It is the same file of the service.
    let runs = std::fs::read_to_string(story.home().join("runs")).unwrap();
    assert_eq!(runs, "once\n");
}

#[test]
fn a_transcription_can_be_stopped() {
    let (story, telegram) = telegram_story();
    let command = "touch \"$HOME/started\"; sleep 600";
    let story = story.set("transcription.command", json!(command)).script([says("Hello.")]);
    telegram.add(voice(ANN, &json!({})));
    let poll = story.start(&mut story.command(["channel", "poll", "--follow"]));
    until_exists(&story.home().join("started"));
    telegram.message(ANN, "/stop");
    telegram.wait_for_calls("sendMessage", 1);
    telegram.message(ANN, "hi");
    telegram.wait_for_calls("sendMessage", 2);
    send_signal(&poll, Signal::TERM);
    assert_eq!(story.wait(poll).signal(), Some(15));
    assert_eq!(telegram.sent(), ["Stopped 1 task.", "Hello."]);
}

#[test]
fn a_budget_that_is_used_up_pays_for_no_transcription() {
    let (story, telegram, speech) = voice_story();
    let story = story.set("budget.daily", json!(0.1));
    speech.script([sends(transcribes("an hour of words")), sends(transcribes("more"))]);
    telegram.add(voice(ANN, &json!({})));
    telegram
        .add(voice(ANN, &json!({ "voice": { "file_id": "f2", "file_size": 23, "duration": 4 } })));
    story.run(["channel", "poll"]).status(4).stderr_has("`budget.daily` limit");
    assert_eq!(speech.requests().len(), 1);
    assert_eq!(story.server().requests().len(), 0);
}
