//! Recordings in `--attach`, in standard input and in `read_file`: sent to a model that takes them, or transcribed.

use crate::server::{Response, Server, calls, fails, says, sends};
use crate::story::Story;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Seconds of silence as WAV, of 100 samples each.
pub(crate) fn wav(seconds: u32) -> Vec<u8> {
    let length = seconds * 100;
    let mut bytes = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    bytes.extend([100_u32.to_le_bytes(), 100_u32.to_le_bytes()].concat());
    bytes.extend(b"\x01\0\x08\0data");
    bytes.extend(length.to_le_bytes());
    bytes.resize(bytes.len() + length as usize, 0);
    bytes
}

/// A frame of MP3.
fn mp3() -> Vec<u8> {
    [&b"\xff\xfb\x58\0"[..], &[0; 284]].concat()
}

/// The head of an Opus file of no length.
pub(crate) fn ogg() -> Vec<u8> {
    [&b"OggS\0\x02"[..], &[0; 20], b"\x01\x13OpusHead", &[0; 11]].concat()
}

/// A story with a service that transcribes.
fn story_with_service() -> (Story, Server) {
    let service = Server::start();
    let base = format!("http://127.0.0.1:{}/v1", service.port);
    let groq = json!({ "apiKey": "gsk_story", "apiBase": base });
    (Story::new().set("providers.groq", groq), service)
}

fn transcribes(text: &str) -> Response {
    Response::json(200, &json!({ "text": text, "duration": 3600.0 }))
}

/// The lines of the ledger that pay for `cause`.
pub(crate) fn ledger_lines(story: &Story, cause: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(story.home().join(".nanobot/usage.jsonl"));
    let text = text.unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &Value| line["cause"] == cause).collect()
}

#[test]
fn a_model_that_takes_sound_gets_it_byte_for_byte() {
    for (bytes, format) in [(mp3(), "mp3"), (wav(2), "wav")] {
        // The name says nothing.
        let story = Story::new().set("models", json!({ "scripted": { "audio": true } }));
        let story = story.file("memo.txt", &bytes);
        story.server().script([says("Tea."), says("Still tea.")]);
        story.run(["agent", "-m", "listen", "-a", "memo.txt"]).stdout("Tea.\n");
        let messages = story.requests()[0].messages();
        let audio = json!({ "data": STANDARD.encode(&bytes), "format": format });
        let part = &messages[1]["content"][0];
        assert_eq!(*part, json!({ "type": "input_audio", "input_audio": audio }));
        // Later turns have its name.
        story.run(["agent", "-m", "and now"]).stdout("Still tea.\n");
        assert!(story.requests()[1].raw.contains("[audio: memo.txt]"));
        assert!(!story.requests()[1].raw.contains("input_audio"));
    }
}

#[test]
fn a_recording_is_transcribed_and_paid_for() {
    let (story, service) = story_with_service();
    let story = story.file("memo.ogg", ogg()).script([says("Noted.")]);
    service.script([sends(transcribes("buy\nmilk"))]);
    story.run(["agent", "-m", "do it", "-a", "memo.ogg"]).stdout("Noted.\n");
    let request = &service.requests()[0];
    assert_eq!(request.path, "/v1/audio/transcriptions");
    assert_eq!(request.header("authorization"), Some("Bearer gsk_story"));
    assert!(request.raw.contains("filename=\"recording.ogg\"\r\nContent-Type: audio/ogg"));
    let expect = "<file name=\"memo.ogg\">\n[transcription of a recording]\nbuy milk\n</file>";
    let content = story.requests()[0].last_content();
    assert!(content.starts_with(&format!("do it\n\n{expect}")), "{content}");
    let lines = ledger_lines(&story, "transcription");
    assert_eq!((lines.len(), &lines[0]["usd"]), (1, &json!(0.111)));
    // A budget that is used up pays for no other.
    let story = story.set("budget.daily", json!(0.1));
    let result = story.run(["agent", "-m", "again", "-a", "memo.ogg"]).status(4);
    result.stderr_has("`memo.ogg` is a recording, and was not transcribed: ");
    assert_eq!(service.requests().len(), 1);
}

#[test]
fn a_command_hears_files_and_standard_input() {
    let command = "cat \"$1\" | wc -c; echo loading >&2; case \"$1\" in *.wav) echo wave ;; esac";
    let story = Story::new().set("transcription.command", json!(command));
    let story = story.file("memo", wav(1)).stdin(wav(2)).script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "memo"]).stdout("ok\n");
    let content = story.requests()[0].last_content();
    for text in ["\n144 wave\n</file>", "\n244 wave\n</stdin>"] {
        assert!(content.contains(text), "{content}");
    }
    assert!(!content.contains("loading"), "{content}");
}

#[test]
fn without_either_way_the_error_names_both() {
    let story = Story::new().file("memo.m4a", b"\0\0\0\x10ftypM4A \0\0\0\0soun");
    let result = story.run(["agent", "-m", "x", "-a", "memo.m4a"]).status(78);
    result.stderr_has(
        "`memo.m4a` is a recording, and was not transcribed: the model does not take it",
    );
    let result = story.run(["agent", "-m", "x", "-a", "memo.m4a"]).status(78);
    result.stderr_has(
        "a `--model` that takes MP3 and WAV, `nanobot config set transcription.command",
    );
    assert!(story.requests().is_empty());
    // A run that sends nothing asks no service.
    let (story, service) = story_with_service();
    let story = story.file("memo.ogg", ogg());
    let request = story.run(["agent", "--dry-run", "-m", "x", "-a", "memo.ogg"]).text();
    assert!(request.contains("(not transcribed in this run"), "{request}");
    story
        .set("providers.groq.apiBase", json!("http://192.0.2.1/v1"))
        .run(["agent", "--offline", "-m", "x", "-a", "memo.ogg"])
        .status(69)
        .stderr_has("`--offline` forbids connecting to `192.0.2.1`");
    assert!(service.requests().is_empty());
}

#[test]
fn a_service_that_fails_ends_the_run_before_the_model_is_asked() {
    let junk = || Response::text(200, "text/html", "<p>welcome</p>");
    let flood = Response::text(200, "application/json", &"x".repeat(2 << 20));
    for (response, status, count, message) in [
        (
            Response::json(401, &json!({ "error": { "message": "bad key" } })),
            77,
            1,
            "bad key (status 401)",
        ),
        (
            Response::json(429, &json!({ "error": { "message": "quota" } })),
            69,
            3,
            "quota (status 429)",
        ),
        (junk(), 69, 1, "the response has no text"),
        (flood, 69, 1, "the response is larger than 1 MB"),
        (transcribes("  "), 65, 1, "no speech was recognized in it"),
    ] {
        let (story, service) = story_with_service();
        service.script((0..count).map(|_| sends(response.clone())));
        let story = story.file("memo.ogg", ogg());
        story.run(["agent", "-m", "x", "-a", "memo.ogg"]).status(status).stderr_has(message);
        assert_eq!(service.requests().len(), count, "{message}");
        assert!(story.requests().is_empty(), "{message}");
    }
}

#[test]
fn commands_and_files_that_are_of_no_use() {
    let check = |bytes: Vec<u8>, settings: Value, status: i32, message: &str| {
        let story = Story::new().set("transcription", settings).file("memo.mp3", bytes);
        let arguments = ["agent", "-m", "x", "-a", "memo.mp3", "--timeout", "2s"];
        story.run(arguments).status(status).stderr_has(message);
        assert!(story.requests().is_empty(), "{message}");
    };
    let command = |text: &str| json!({ "command": text });
    check(wav(1), command("echo out of memory >&2; exit 3"), 1, "exit status: 3: out of memory");
    check(wav(1), command("sleep 600"), 124, "");
    check(wav(1), command("true"), 65, "no speech was recognized in it");
    check(wav(1), command("head -c 2000000 /dev/zero"), 1, "printed more than 1 MB");
    let limits = json!({ "command": "echo hi", "maxDurationSec": 5, "maxUploadMb": 1 });
    check(wav(6), limits.clone(), 65, "it takes 6 s, and `transcription.maxDurationSec` is 5");
    let large = [wav(1), vec![0; 2 << 20]].concat();
    check(large, limits, 65, "it is larger than `transcription.maxUploadMb`");
    let disabled = json!({ "command": "echo hi", "enabled": false });
    check(wav(1), disabled, 78, "`transcription.enabled` is false");
    // A name alone makes no recording.
    check(b"\0\x01\x02".to_vec(), command("echo hi"), 65, "is binary, not text");
    let story = Story::new().file("memo.mp3", "a text").script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "memo.mp3"]).stdout("ok\n");
    assert!(story.requests()[0].last_content().contains("\na text\n"));
}

#[test]
fn read_file_reads_recordings_where_transcription_is_configured() {
    let read = || calls("read_file", json!({ "path": "memo.ogg" }));
    let (story, service) = story_with_service();
    let story = story.file("memo.ogg", ogg());
    story.server().script([read(), says("Milk."), read(), says("No.")]);
    service.script([sends(transcribes("buy milk")), fails(401, "bad key")]);
    story.run(["agent", "-m", "what do I need?"]).stdout("Milk.\n");
    let result = &story.requests()[1].tool_results()[0];
    assert_eq!(result, "1| buy milk\n(transcription of a recording)");
    let lines = ledger_lines(&story, "transcription");
    assert_eq!((lines.len(), &lines[0]["session"]), (1, &json!("cli:direct")));
    story.run(["agent", "-m", "and now?"]).stdout("No.\n");
    let result = &story.requests()[3].tool_results()[1];
    assert!(result.contains("`memo.ogg` is a recording, and was not transcribed: "), "{result}");
    // Its cost counts for the limit of the run.
    service.script([sends(transcribes("eggs"))]);
    story.server().script([read()]);
    story.run(["agent", "-m", "more", "--max-cost", "0.1"]).status(4).stderr_has("--max-cost");
}
