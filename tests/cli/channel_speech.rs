//! `channel`: answers that are spoken besides their text, by a service or by a command.

use crate::channel::telegram_story;
use crate::server::{Response, Server, says, sends};
use crate::sound::{ledger_lines, ogg, wav};
use crate::story::Story;
use crate::telegram_server::TelegramServer;
use serde_json::json;

/// Ann, who may write to us.
const ANN: i64 = 7;

/// Adds a voice message of Ann.
fn speak(telegram: &TelegramServer) {
    telegram.add(json!({
        "from": { "id": ANN, "is_bot": false }, "chat": { "id": ANN, "type": "private" },
        "voice": { "file_id": "f1", "file_size": 23, "duration": 4 },
    }));
}

/// A story whose voice messages are heard, and a service that speaks.
fn speech_story() -> (Story, TelegramServer, Server) {
    let (story, telegram) = telegram_story();
    let service = Server::start();
    let base = format!("http://127.0.0.1:{}/v1", service.port);
    let story = story
        .set("transcription.command", json!("echo when is tea"))
        .set("providers.openai", json!({ "apiKey": "sk-speech-story", "apiBase": base }))
        .set("speech.provider", json!("openai"));
    (story, telegram, service)
}

fn recording(bytes: &[u8]) -> Response {
    Response { chunks: vec![bytes.to_vec()], ..Response::text(200, "audio/ogg", "") }
}

#[test]
fn the_answer_to_a_voice_message_is_sent_and_spoken() {
    let (story, telegram, service) = speech_story();
    let story = story.set("speech.model", json!("tts-1")).set("speech.voice", json!("nova"));
    let answer = "At **five**:\n\n```\ncode\n```\n\nsee https://tea.example/x";
    story.server().script([says(answer), says("Hello.")]);
    service.script([sends(recording(&ogg()))]);
    speak(&telegram);
    story.run(["channel", "poll"]);
    let request = &service.requests()[0];
    assert_eq!(request.path, "/v1/audio/speech");
    assert_eq!(request.header("authorization"), Some("Bearer sk-speech-story"));
    let text = "At five: see";
    assert_eq!(
        request.body,
        json!({ "model": "tts-1", "voice": "nova", "input": text, "response_format": "opus" })
    );
    assert_eq!(telegram.sent().len(), 1);
    let upload = &telegram.calls("sendVoice")[0];
    assert!(upload.raw.contains("filename=\"recording.ogg\""), "{}", upload.raw);
    let lines = ledger_lines(&story, "speech");
    assert_eq!((lines.len(), &lines[0]["sender"]), (1, &json!("telegram:7")));
    assert_eq!(lines[0]["usd"], 15.0 * text.len() as f64 / 1e6);
    // A written message is answered by text alone.
    telegram.message(ANN, "hi");
    story.run(["channel", "poll"]);
    assert_eq!((telegram.sent().len(), telegram.calls("sendVoice").len()), (2, 1));
    assert_eq!(service.requests().len(), 1);
}

#[test]
fn the_config_says_which_answers_a_command_speaks() {
    for (when, is_voice, count) in
        [("always", false, 1), ("voice", true, 1), ("voice", false, 0), ("never", true, 0)]
    {
        let (story, telegram) = telegram_story();
        std::fs::write(story.home().join("say.wav"), wav(1)).unwrap();
        let command = "cat > \"$HOME/spoken\"; echo loading >&2; cat \"$HOME/say.wav\"";
        let story = story
            .set("transcription.command", json!("echo when is tea"))
            .set("speech", json!({ "when": when, "command": command }))
            .script([says("At *five*.")]);
        if is_voice {
            speak(&telegram);
        } else {
            telegram.message(ANN, "when is tea?");
        }
        story.run(["channel", "poll"]);
        assert_eq!(telegram.sent().len(), 1, "{when}");
        assert_eq!(telegram.calls("sendDocument").len(), count, "{when}");
        let spoken = std::fs::read_to_string(story.home().join("spoken")).unwrap_or_default();
        assert_eq!(spoken, if count == 1 { "At five." } else { "" }, "{when}");
    }
}

#[test]
fn an_answer_that_cannot_be_spoken_is_sent_as_text() {
    let json =
        |status: u16, text: &str| Response::json(status, &json!({ "error": { "message": text } }));
    let flood = vec![b'x'; 17 << 20];
    for (response, count, status, message) in [
        (json(401, "bad key"), 1, 77, "bad key (status 401)"),
        (json(429, "quota"), 3, 69, "quota (status 429)"),
        (recording(b"<p>welcome</p>"), 1, 69, "the response has no recording"),
        (recording(b""), 1, 69, "the response has no recording"),
        (recording(&flood), 1, 69, "the response is larger than 16 MB"),
    ] {
        let (story, telegram, service) = speech_story();
        service.script((0..count).map(|_| sends(response.clone())));
        let story = story.script([says("Five.")]);
        speak(&telegram);
        let result = story.run(["channel", "poll"]).status(status);
        result
            .stderr_has(&format!(
                "the answer was sent as text alone: http://127.0.0.1:{}",
                service.port
            ))
            .stderr_has(message);
        assert_eq!(telegram.sent(), ["Five."], "{message}");
        assert!(telegram.calls("sendVoice").is_empty(), "{message}");
        assert_eq!(service.requests().len(), count, "{message}");
        // It is not tried again.
        story.run(["channel", "poll"]);
        assert_eq!(service.requests().len(), count, "{message}");
    }
    for (command, message) in [
        ("echo no voice >&2; exit 3", "`speech.command` failed: exit status: 3: no voice"),
        ("true", "0 bytes that are no recording"),
        ("head -c 20000000 /dev/zero", "`speech.command` printed more than 16 MB"),
    ] {
        let (story, telegram, _) = speech_story();
        let story = story.set("speech.command", json!(command)).script([says("Five.")]);
        speak(&telegram);
        let result = story.run(["channel", "poll"]);
        let result = if message.contains("0 bytes") { result.status(69) } else { result.status(1) };
        result.stderr_has(message);
        assert_eq!(telegram.sent(), ["Five."], "{command}");
    }
}

#[test]
fn a_recording_that_waits_is_sent_by_the_next_poll() {
    let (story, telegram, service) = speech_story();
    service.script([sends(recording(&ogg()))]);
    telegram.fail("sendVoice", 500, json!({ "ok": false }));
    let story = story.set("channels.sendMaxRetries", json!(1)).script([says("Five.")]);
    speak(&telegram);
    drop(story.run(["channel", "poll"]).status(69).stderr_has("telegram"));
    story.run(["channel", "poll"]);
    assert_eq!((telegram.sent().len(), service.requests().len()), (1, 1));
    assert_eq!(telegram.calls("sendVoice").len(), 2);
}
