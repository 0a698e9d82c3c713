//! Redaction of keys in every output, in what is sent and in what is stored: plain, encoded, or split in two.

use crate::channel::telegram_story;
use crate::cron_run::{JOB_ID, every_minute, python_job, write_jobs};
use crate::formats::{ALL_FORMATS, Format};
use crate::keys::read_files;
use crate::mail::mail_story;
use crate::mail_server::PASSWORD;
use crate::screen::Key;
use crate::server::{Request, Responder, Response, Server, calls, fails, says, sends};
use crate::session_commands::session_text;
use crate::story::{Story, write};
use crate::telegram_server::TOKEN;
use crate::web::{PageServer, page_response};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Twelve keys and their sources.
const CANARIES: [(&str, &str); 12] = [
    ("apiKeyFile", "canary-0f-a-file-Zq3"),
    ("header", "canary-1n-a-header-Vw8"),
    ("proxy", "canary-2n-a-proxy-Ty1"),
    ("config", "canary-3n-the-config-Hj6"),
    ("odd", "c4nary \"odd\" /\\+ k=y? ü>>"),
    ("search", "canary-5f-a-search-Mb4"),
    ("channel", "canary-6f-a-channel-Rx9"),
    ("reference", "canary-7y-reference-Kd2"),
    ("CANARY_API_KEY", "canary-8n-a-variable-Lp5"),
    ("GH_TOKEN", "canary-9f-a-forge-Ws7"),
    ("DB_PASSWORD", "canary-Af-a-database-Cn3"),
    ("SIGNING_SECRET", "canary-Bo-sign-with-Gt8"),
];

fn canary(name: &str) -> &'static str {
    let canary = CANARIES.iter().find(|(other, _)| *other == name);
    canary.expect("it is in the table").1
}

fn story_with_canaries() -> Story {
    let mut story = Story::new();
    write(&story.home().join("secret/key"), canary("apiKeyFile").as_bytes());
    let block = json!({
        "apiKeyFile": "~/secret/key",
        "apiBase": format!("http://127.0.0.1:{}/v1", story.server().port),
        "extraHeaders": { "X-Team": canary("header") },
    });
    let proxy = format!("http://u:{}@h:1", canary("proxy"));
    story = story
        .set("providers.custom", block)
        .set("providers.groq", json!({ "apiKey": canary("config"), "proxy": proxy }))
        .set("providers.openai", json!({ "apiKey": canary("odd") }))
        .set("providers.anthropic", json!({ "apiKey": "${REFERRED}" }))
        .set("tools.web.search.apiKey", json!(canary("search")))
        .set("channels", json!({ "telegram": { "token": canary("channel") } }))
        .env("REFERRED", canary("reference"));
    for (name, value) in &CANARIES[8..] {
        story = story.env(name, value);
    }
    // Files with keys that our commands may read.
    let all: String = CANARIES.iter().map(|(_, key)| format!("it is {key}\n")).collect();
    story.file("left", all)
}

/// The encodings of a key, written here independently of the program.
fn encodings(key: &str) -> Vec<String> {
    let hex: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let json = serde_json::to_string(key).unwrap();
    let reversed = key.chars().rev().collect();
    let json = json[1..json.len() - 1].to_owned();
    vec![key.to_owned(), json, reversed, hex.to_uppercase(), hex, percent]
}

/// The key in base64 for each alignment.
fn base64_encodings(key: &str) -> Vec<String> {
    let engines = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD];
    let texts = ["", "x", "xx"].map(|before| format!("{before}{key}"));
    let texts = texts.iter();
    texts.flat_map(|text| engines.map(|engine| engine.encode(text))).collect()
}

/// All encodings of all keys, which a server may repeat.
fn all_encodings() -> String {
    let keys = CANARIES.iter();
    let all: Vec<String> =
        keys.flat_map(|(_, key)| [encodings(key), base64_encodings(key)].concat()).collect();
    all.join(" ")
}

#[track_caller]
fn assert_no_canary(case_name: &str, name: &str, text: &str) {
    let joined = text.replace(['\n', '\r'], "").replace("\\n", "");
    for (_, key) in CANARIES {
        // Without the ends, which depend on neighbouring bytes.
        let middles = base64_encodings(key).into_iter();
        let middles = middles.map(|text| text[4..text.len() - 2].to_owned());
        for form in encodings(key).into_iter().chain(middles) {
            let is_there = text.contains(&form) || joined.contains(&form);
            assert!(!is_there, "{case_name}: {form} ({key}) in {name}:\n{text}");
        }
    }
}

/// Runs the script, and searches for keys everywhere except in their own headers.
fn run_and_check(case_name: &str, script: Vec<Responder>, arguments: &[&str]) {
    let story = story_with_canaries().script(script);
    let log = story.dir().join("log");
    let story = story.env("NANOBOT_LOG", log.to_str().unwrap());
    let mut command = story.command(["agent", "-m", "hi", "-v"]);
    let output = command.args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut outputs = vec![
        ("stdout".to_owned(), text(&output.stdout)),
        ("stderr".to_owned(), text(&output.stderr)),
    ];
    let sources = ["config.json", "secret/key", "dir/left"];
    outputs.extend(read_files(story.home().parent().unwrap(), &sources));
    assert!(outputs.iter().any(|(name, _)| name.ends_with("dir/log")));
    for request in story.requests() {
        outputs.push(("a request".into(), format!("{} {}", request.path, request.raw)));
        let others = request
            .headers
            .iter()
            .filter(|(name, _)| !["authorization", "x-team"].contains(&name.as_str()));
        outputs.extend(others.map(|(name, value)| (format!("header {name}"), value.clone())));
    }
    for (name, text) in &outputs {
        assert_no_canary(case_name, name, text);
    }
}

#[test]
fn command_output_contains_no_keys() {
    let commands = [
        "cat left",
        "base64 left",
        "base64 -w0 left",
        "base64 < left | tr '+/' '-_'",
        "od -An -v -tx1 left | tr -d ' \\n'",
        "od -An -v -tx1 left | tr -d ' ' | tr a-f A-F",
        "while read -r line; do printf %s \"$line\" | awk '{ for (i = length; i; i--) printf substr($0, i, 1) }'; done < left",
        "while IFS= read -r line; do printf '%s' \"$line\" | fold -b -w 3 | while IFS= read -r part; do printf '%s' \"$part\"; done; done < left",
        "cat left >&2; exit 3",
        "env; cat ~/.nanobot/config.json ~/secret/key; cat /proc/$PPID/environ | tr '\\0' '\\n'",
    ];
    for command in commands {
        let script = || vec![calls("exec", json!({ "command": command })), says("ok")];
        run_and_check(command, script(), &["--output-format", "stream-json"]);
        run_and_check(command, script(), &["--record", "tape"]);
    }
    let reads = vec![calls("read_file", json!({ "path": "left" })), says("ok")];
    run_and_check("read_file", reads, &["--json"]);
}

#[test]
fn model_and_server_output_contains_no_keys() {
    let all = all_encodings();
    let once = |turn: &dyn Fn() -> Responder, arguments: &[&str]| {
        run_and_check("said", vec![turn()], arguments);
    };
    once(&|| says(&all), &[]);
    once(&|| says(&all), &["--output-format", "stream-json", "--record", "tape"]);
    once(&|| says(&all), &["--json", "--no-stream"]);
    once(&|| fails(400, &all), &["--json"]);
    once(&|| fails(401, &all), &["--record", "tape"]);
    once(&|| sends(Response::text(403, "text/html", &format!("<title>{all}</title>"))), &[]);
    for (_, key) in CANARIES {
        // One character per chunk, and a reply with nothing else.
        let letters = key.chars().map(|letter| {
            let delta =
                json!({ "choices": [{ "index": 0, "delta": { "content": letter.to_string() } }] });
            format!("data: {delta}\n\n")
        });
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
        let pieces: Vec<String> =
            letters.chain([format!("data: {end}\n\ndata: [DONE]\n\n")]).collect();
        once(&|| sends(Response::events(&pieces)), &["--output-format", "stream-json"]);
    }
    // Arguments of calls and their results are stored without keys.
    let wants =
        vec![calls("read_file", json!({ "path": format!("{}/x", canary("config")) })), says("ok")];
    run_and_check("called", wants, &["--output-format", "stream-json", "--record", "tape"]);
}

/// A session of an earlier time has keys: no document of it has one.
#[test]
fn an_export_contains_no_keys() {
    let canaries = CANARIES.iter().filter(|(name, _)| *name != "apiKeyFile");
    let keys: Vec<&str> = canaries.map(|(_, key)| *key).collect();
    let texts: Vec<String> = keys.iter().map(|key| format!("my key is {key}.")).collect();
    let messages: Vec<(&str, &str)> = texts.iter().map(|text| ("user", text.as_str())).collect();
    let story =
        story_with_canaries().workspace_file("sessions/old.jsonl", session_text("old", &messages));
    for format in ["markdown", "html", "json"] {
        let arguments = ["session", "export", "old", "--format", format];
        let stdout = story.run(arguments).text();
        story.run([&arguments[..], &["-o", "out"]].concat()).stdout("");
        let file_text = std::fs::read_to_string(story.dir().join("out")).unwrap();
        for (name, text) in [("stdout", stdout), ("file", file_text)] {
            for key in &keys {
                let json = Value::from(*key).to_string();
                for form in [key, json.trim_matches('"'), &*escape_html(key)] {
                    assert!(!text.contains(form), "{format}, {name}: {form} in {text}");
                }
            }
            assert_eq!(text.matches("***").count(), keys.len(), "{format}, {name}: {text}");
        }
    }
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[test]
fn a_dry_run_contains_no_keys() {
    for form in ["--dry-run", "--dry-run=curl", "--dry-run=table"] {
        let story = story_with_canaries();
        let message = format!("is {} a good key?", canary("config"));
        let mut command = story.command(["agent", "-m", &message, form]);
        let output = command.output().unwrap();
        assert!(output.status.success());
        assert_no_canary(form, "stdout", &String::from_utf8_lossy(&output.stdout));
        assert_no_canary(form, "stderr", &String::from_utf8_lossy(&output.stderr));
    }
}

/// The key of [`story_with_a_key`].
const KEY: &str = "pk-Quince7Medlar3Sloe";
/// The notice about a key that was masked.
const MASK_NOTICE: &str =
    "nanobot: a known key is masked as `***` in what is sent and stored; `--send-keys` sends it\n";

/// A story that knows [`KEY`] from a variable, in this wire format.
fn story_with_a_key(format: Format) -> Story {
    Story::in_format(format, "scripted").env("FRUIT_TOKEN", KEY)
}

/// Everything that was sent, apart from headers, and every session.
fn sent_and_stored(story: &Story) -> String {
    let mut texts: Vec<String> = story.requests().into_iter().map(|it| it.raw).collect();
    let sessions = story.workspace().join("sessions");
    if sessions.is_dir() {
        texts.extend(read_files(&sessions, &[]).into_iter().map(|(_, text)| text));
    }
    texts.join("\n")
}

#[track_caller]
fn assert_masked(story: &Story) {
    let text = sent_and_stored(story);
    assert!(text.contains("***") && !text.contains("Quince7"), "{text}");
}

#[test]
fn known_keys_in_a_message_are_masked_in_what_is_sent_and_stored() {
    for format in ALL_FORMATS {
        let story = story_with_a_key(format)
            .file("notes.env", format!("FRUIT={KEY}\n"))
            .stdin(format!("piped {KEY}"))
            .script([says("one"), says("two")]);
        let message = format!("typed {KEY}, again {KEY}");
        let arguments = ["agent", "-m", &message, "-a", "notes.env", "-s", "work"];
        let printed_request = story.run([&arguments[..], &["--dry-run"]].concat());
        let dry_run = printed_request.text();
        printed_request.stderr(MASK_NOTICE);
        story.run(arguments).stdout("one\n").stderr(MASK_NOTICE);
        let request = &story.requests()[0];
        for text in ["typed ***, again ***", "piped ***", "FRUIT=***"] {
            assert!(request.raw.contains(text), "{text}: {}", request.raw);
        }
        assert_eq!(dry_run.trim_end(), story.normalize_paths(&request.raw));
        assert_masked(&story);
        // The next turn has the message as it was stored, and nothing to tell.
        let story = story.stdin("");
        story.run(["agent", "-m", "next", "-s", "work", "--no-stdin"]).stdout("two\n").stderr("");
        assert!(story.requests()[1].raw.contains("typed ***, again ***"));
        assert_masked(&story);
    }
}

#[test]
fn send_keys_sends_a_known_key_and_stores_it_masked() {
    for format in ALL_FORMATS {
        let story = story_with_a_key(format).script([
            calls("list_dir", json!({ "path": "." })),
            says("one"),
            says("two"),
        ]);
        let phrase = format!("typed {KEY}");
        let arguments = ["agent", "-m", &phrase, "-s", "work", "--send-keys"];
        let stdout = story.run([&arguments[..], &["--dry-run"]].concat()).text();
        story.run(arguments).stdout("one\n").stderr("");
        let requests = story.requests();
        assert_eq!(stdout.trim_end(), story.normalize_paths(&requests[0].raw));
        assert!(requests.iter().all(|request| request.raw.contains(&phrase)));
        assert!(
            !std::fs::read_to_string(story.workspace().join("sessions/work.jsonl"))
                .unwrap()
                .contains(KEY)
        );
        story.run(["agent", "-m", "next", "-s", "work"]).stdout("two\n").stderr("");
        assert!(story.requests()[2].raw.contains("typed ***"));
    }
}

#[test]
fn known_keys_are_masked_whatever_starts_the_turn() {
    let message = format!("use {KEY}");
    let story = story_with_a_key(Format::Chat).file("p.md", &message).script([says("ok")]);
    story.run(["run", "p.md"]).stdout("ok\n").stderr(MASK_NOTICE);
    assert_masked(&story);

    let line = json!({ "id": "a", "session": "work", "text": message });
    let story = story_with_a_key(Format::Chat).stdin(format!("{line}\n")).script([says("ok")]);
    story.run(["serve", "pipe"]).stdout_has("ok").stderr(MASK_NOTICE);
    assert_masked(&story);

    let (story, telegram) = telegram_story();
    let story = story.env("FRUIT_TOKEN", KEY).script([says("ok")]);
    telegram.message(7, &message);
    story.run(["channel", "poll"]).stderr("");
    assert_eq!(telegram.sent(), ["ok"]);
    assert_masked(&story);

    let story = story_with_a_key(Format::Chat).script([says("ok")]);
    let mut job = python_job(&every_minute());
    job["payload"]["message"] = message.clone().into();
    write_jobs(&story, &[job]);
    let result = story.command(["cron", "run", JOB_ID]).output().unwrap();
    assert!(result.status.success(), "{result:?}");
    assert_masked(&story);

    let story = story_with_a_key(Format::Chat).script([says("ok")]);
    let mut screen = story.screen(24, 100).args(["repl"]);
    screen.until("lists").until_prompt("> ").type_(&message).press(Key::Enter);
    screen.until("a known key is masked").until("ok").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    drop(screen);
    assert_masked(&story);
}

#[test]
fn a_sub_agent_and_the_system_prompt_get_no_known_key() {
    let story =
        story_with_a_key(Format::Chat).workspace_file("AGENTS.md", format!("The key is {KEY}."));
    let parent = |request: &Request| {
        if request.messages().iter().any(|it| it["role"] == "tool") {
            says("done")
        } else {
            calls("spawn", json!({ "task": format!("look for {KEY}") }))
        }
    };
    story.server().always(Box::new(move |request: &Request| {
        let is_child = request.raw.contains("sub-agent of nanobot");
        if is_child { says("found")(request) } else { parent(request)(request) }
    }));
    story.run(["agent", "-m", "x"]).stderr(MASK_NOTICE).stdout("done\n");
    let requests = story.requests();
    assert!(requests.iter().any(|it| it.raw.contains("look for ***")));
    assert!(requests[0].raw.contains("The key is ***."));
    assert_masked(&story);
}

#[test]
fn a_key_in_a_file_of_the_config_is_known_before_it_is_used() {
    let story = Story::new().script([says("ok")]);
    write(&story.home().join("groq"), format!("{KEY}\n").as_bytes());
    let story = story.set("providers.groq", json!({ "apiKeyFile": "~/groq" }));
    story.run(["agent", "-m", &format!("use {KEY}")]).stdout("ok\n").stderr(MASK_NOTICE);
    assert_masked(&story);
}

#[test]
fn placeholders_and_text_that_only_looks_like_a_key_are_sent() {
    let token = format!("ghp_{}", "a1B2".repeat(10));
    let story = Story::new()
        .set("providers.ollama", json!({ "apiKey": "ollama" }))
        .set("providers.vllm", json!({ "apiKey": "your-api-key-here" }))
        .env("SHORT_TOKEN", "hunter22")
        .script([says(&token)]);
    let phrase = format!("ollama hunter22 your-api-key-here {token}");
    // The answer contains key-like text unchanged: a pipe gets the model's output.
    story
        .run(["agent", "-m", &phrase, "--record", "tape"])
        .stdout(&format!("{token}\n"))
        .stderr("");
    assert!(story.requests()[0].last_content().contains(&phrase));
    // A recording may be shared.
    let tape = std::fs::read_to_string(story.dir().join("tape")).unwrap();
    assert!(tape.contains("ghp_***") && !tape.contains(&token), "{tape}");
    // It replays identically.
    story.run(["agent", "-m", &phrase, "--replay", "tape"]).stdout("ghp_***\n");
}

#[test]
fn a_masked_key_that_is_written_back_stays_in_the_file() {
    let env = format!("A=1\nFRUIT={KEY}\n");
    let after = format!("A=2\nFRUIT={KEY}\nB=3\n");
    let patch = "*** Begin Patch\n*** Update File: .env\n-A=1\n-FRUIT=***\n+A=2\n+FRUIT=***\n+B=3\n*** End Patch";
    for (tool, arguments) in [
        ("write_file", json!({ "path": ".env", "content": "A=2\nFRUIT=***\nB=3\n" })),
        (
            "edit_file",
            json!({ "path": ".env", "old_text": "A=1\nFRUIT=***", "new_text": "A=2\nFRUIT=***\nB=3" }),
        ),
        ("apply_patch", json!({ "patch": patch })),
    ] {
        for format in ALL_FORMATS {
            let model = if tool == "apply_patch" { "gpt-5" } else { "scripted" };
            let story = Story::in_format(format, model)
                .env("FRUIT_TOKEN", KEY)
                .file(".env", &env)
                .script([calls(tool, arguments.clone()), says("done")]);
            let message = format!("add B to this: {env}");
            story.run(["agent", "-m", &message, "--write"]).stdout("done\n").stderr(MASK_NOTICE);
            let now = std::fs::read_to_string(story.dir().join(".env")).unwrap();
            assert_eq!(now, after, "{tool}");
            assert_masked(&story);
        }
    }
}

#[test]
fn a_mask_whose_key_is_unclear_is_not_written() {
    let two = format!("[a]\npw={KEY}\n[b]\npw={KEY}2\n");
    let story = story_with_a_key(Format::Chat)
        .env("OTHER_TOKEN", &format!("{KEY}2"))
        .file("two", &two)
        .script([
            calls("write_file", json!({ "path": "two", "content": "[c]\npw=***\n" })),
            calls("write_file", json!({ "path": "new.env", "content": "FRUIT=***\n" })),
            calls("write_file", json!({ "path": "new.md", "content": "***bold***\n\n***\n" })),
            says("done"),
        ]);
    let message = format!("put {KEY} into new.env");
    story.run(["agent", "-m", &message, "--write"]).stdout("done\n").stderr(MASK_NOTICE);
    let contents: Vec<String> = story.requests().iter().map(Request::last_content).collect();
    assert!(
        contents[1].contains("nothing was written") && contents[1].contains("edit_file"),
        "{}",
        contents[1]
    );
    assert!(
        contents[2].contains("nothing was written") && contents[2].contains("--send-keys"),
        "{}",
        contents[2]
    );
    assert!(contents[3].contains("created"), "{}", contents[3]);
    assert_eq!(std::fs::read_to_string(story.dir().join("two")).unwrap(), two);
    assert!(!story.dir().join("new.env").exists());
}

#[test]
fn key_like_strings_are_redacted_for_the_model_and_stay_in_the_file() {
    let token = format!("sk-ant-api03-{}", "a1B2".repeat(10));
    let file = format!("name = one\nkey = {token}\n");
    let masked = "name = one\nkey = sk-ant-***\nmore = 1\n";
    let story = Story::new().file("settings", &file).script([
        calls("read_file", json!({ "path": "settings" })),
        calls("write_file", json!({ "path": "settings", "content": masked })),
        calls("edit_file", json!({ "path": "settings", "old_text": "key = sk-ant-***\nmore = 1\n", "new_text": "key = sk-ant-***\n" })),
        calls("edit_file", json!({ "path": "settings", "old_text": "one", "new_text": "two" })),
        says("ok"),
    ]);
    story.run(["agent", "-m", "x", "--write"]).stdout("ok\n");
    let contents: Vec<String> =
        story.requests().iter().map(crate::server::Request::last_content).collect();
    assert!(
        contents[1].contains("key = sk-ant-***") && contents[1].contains("hidden"),
        "{}",
        contents[1]
    );
    assert!(contents[2].contains("replaced"), "{}", contents[2]);
    assert!(contents[3].contains("edited"), "{}", contents[3]);
    assert!(contents[4].contains("edited"), "{}", contents[4]);
    assert!(contents.iter().all(|content| !content.contains(&token)));
    let now = std::fs::read_to_string(story.dir().join("settings")).unwrap();
    assert_eq!(now, file.replace("one", "two"));
}

#[test]
fn streamed_command_output_does_not_split_keys() {
    let key = canary("config");
    let (one, two) = key.split_at(9);
    let command = format!("printf {one}; printf '%s' '{two}'; printf ', and more'");
    let story =
        story_with_canaries().script([calls("exec", json!({ "command": command })), says("ok")]);
    let events = story.run(["agent", "-m", "x", "--output-format", "stream-json"]).json_lines();
    let is_output = |event: &&Value| event["type"] == "tool_output";
    let text: String =
        events.iter().filter(is_output).filter_map(|event| event["text"].as_str()).collect();
    assert_eq!(text, "***, and more");
}

/// A program can print a key in another spelling.
#[test]
fn known_keys_are_masked_in_tool_results_however_they_are_spelled() {
    let key = "pk-Quince7Medlar3Sloe";
    let spaced: String = key.chars().flat_map(|letter| [letter, ' ']).collect();
    let story = Story::new()
        .env("FRUIT_TOKEN", key)
        .file("upper", key.to_uppercase())
        .file("spaced", format!("see {spaced}!"))
        .script([
            calls("read_file", json!({ "path": "upper" })),
            calls("read_file", json!({ "path": "spaced" })),
            says("done"),
        ]);
    drop(story.run(["agent", "-m", "x"]).stdout("done\n"));
    let requests = story.requests();
    let body = &requests.last().unwrap().raw;
    assert!(!body.contains("QUINCE7") && !body.contains("Q u i n c e"), "{body}");
    assert!(body.matches("***").count() >= 2, "{body}");
}

/// The forms of a secret in the config. `keep` stores its text where the form finds it.
fn secret_forms(story: Story, text: &str) -> (Story, Vec<(&'static str, Value)>) {
    let folder = story.home().join("credentials");
    write(&folder.join("kept"), format!("{text}\n").as_bytes());
    write(&story.home().join("kept"), format!("{text}\n").as_bytes());
    let forms = vec![
        ("value", json!(text)),
        ("variable", json!("${KEPT_VALUE}")),
        ("file", json!({ "file": "~/kept" })),
        ("command", json!({ "command": "echo run >> ~/ran; cat ~/kept" })),
        ("credential", json!({ "credential": "kept" })),
    ];
    let story =
        story.env("KEPT_VALUE", text).env("CREDENTIALS_DIRECTORY", folder.to_str().unwrap());
    (story, forms)
}

#[test]
fn the_token_of_a_channel_can_be_kept_anywhere() {
    for index in 0..5 {
        let (story, telegram) = telegram_story();
        let (story, forms) = secret_forms(story, TOKEN);
        let (form, value) = &forms[index];
        let story = story.set("channels.telegram.token", value.clone()).script([says("ok")]);
        // Neither listing nor showing needs the token.
        story.run(["config", "list"]).stdout_has("channels.telegram.token");
        assert!(!story.home().join("ran").exists(), "{form}");
        assert!(story.command(["config", "check"]).output().unwrap().status.success(), "{form}");
        telegram.message(7, "hi");
        story.run(["channel", "poll"]).stderr("");
        assert_eq!(telegram.sent(), ["ok"], "{form}");
        if *form == "command" {
            let result = std::fs::read_to_string(story.home().join("ran")).unwrap();
            assert_eq!(result, "run\nrun\n", "once for the check and once for the poll");
        }
    }
}

#[test]
fn the_password_of_a_mailbox_can_be_kept_anywhere() {
    for index in 0..5 {
        let (story, server) = mail_story();
        let (story, forms) = secret_forms(story, PASSWORD);
        let (form, value) = &forms[index];
        let story = story
            .set("channels.email.smtpPassword", value.clone())
            .set("channels.email.imapPassword", value.clone())
            .script([says("ok")]);
        server.receive("Hello", "hi");
        story.run(["channel", "poll"]).stderr("");
        assert_eq!(server.sent().len(), 1, "{form}");
    }
}

#[test]
fn the_address_of_a_webhook_is_a_secret_and_can_be_kept_anywhere() {
    let server = Server::start();
    let url = format!("http://127.0.0.1:{}/hooks/Quince7Medlar3?sig=Sloe", server.port);
    for index in 0..5 {
        let (story, forms) = secret_forms(Story::new(), &url);
        let (form, value) = &forms[index];
        let webhook = json!({ "enabled": true, "url": value });
        let story = story.set("channels", json!({ "webhook": webhook }));
        server.script([sends(Response::text(200, "text/plain", "ok"))]);
        story.run(["channel", "send", "webhook", "ops", "Done", "--key", "k"]).stdout("send.k.0\n");
        assert_eq!(server.requests().len(), index + 1, "{form}");
        assert_eq!(server.requests()[index].path, "/hooks/Quince7Medlar3?sig=Sloe");
        let mut stdout = String::new();
        for arguments in [
            &["config", "list"][..],
            &["config", "get", "channels"],
            &["channel", "show", "webhook"],
            &["channel", "show", "webhook", "--json"],
            &["channel", "check", "webhook"],
            &["channel", "list"],
            &["status"],
        ] {
            let result =
                story.command(arguments).env("NANOBOT_LOG", "http=debug").output().unwrap();
            stdout += &String::from_utf8_lossy(&[result.stdout, result.stderr].concat());
        }
        // A closed port: the error of the connection.
        let text = format!("http://127.0.0.1:1/hooks/Quince7Medlar3?sig=Sloe{index}");
        let story = story.set("channels.webhook.url", json!(text));
        let failed = story.command(["channel", "send", "webhook", "ops", "x"]).output().unwrap();
        assert!(!failed.status.success());
        stdout += &String::from_utf8_lossy(&failed.stderr);
        assert!(!stdout.contains("Medlar3") && !stdout.contains("Sloe"), "{form}: {stdout}");
    }
}

#[test]
fn config_check_names_a_secret_that_cannot_be_read() {
    for (message, cause) in [
        (json!({ "file": "/nowhere/token" }), "/nowhere/token"),
        (json!({ "command": "echo Quince7Medlar3; exit 3" }), "the command failed"),
        (json!({ "credential": "token" }), "`CREDENTIALS_DIRECTORY` is not set"),
    ] {
        let story = Story::new()
            .set("channels", json!({ "telegram": { "token": message } }))
            .set("tools.mcpServers", json!({ "m": { "command": "x", "env": { "K": message } } }));
        let checked = story.command(["config", "check"]).output().unwrap();
        let text = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
        assert_eq!(checked.status.code(), Some(78), "{text}");
        for phrase in ["`channels.telegram.token`", "`tools.mcpServers.m.env.K`", cause] {
            assert!(text.contains(phrase), "no {phrase} in {text}");
        }
        assert!(!text.contains("Quince7Medlar3"), "{text}");
    }
    // Other places are refused where they are set.
    let story = Story::new();
    let wrong = ["config", "set", "channels.telegram.token", r#"{"vault": "x"}"#];
    drop(story.run(wrong).stderr_has("every process can see"));
    let right = ["config", "set", "channels.telegram.token", r#"{"file": "~/kept"}"#];
    write(&story.home().join("kept"), b"1:x");
    drop(story.run(right));
    story.run(["config", "get", "channels.telegram.token"]).stdout("{\"file\":\"~/kept\"}\n");
}

/// The key of a provider, a header of a provider, and those of an MCP server over HTTP.
#[test]
fn keys_and_headers_of_requests_can_be_kept_anywhere() {
    for index in 0..5 {
        let (story, forms) = secret_forms(Story::new(), KEY);
        let (form, value) = &forms[index];
        let story = story
            .set("providers.custom.apiKey", value.clone())
            .set("providers.custom.extraHeaders", json!({ "X-Team": value }))
            .script([says("ok")]);
        story.run(["agent", "-m", "hi"]).stdout("ok\n").stderr("");
        let request = &story.requests()[0];
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")), "{form}");
        assert_eq!(request.header("x-team"), Some(KEY), "{form}");
        if *form == "command" {
            assert_eq!(std::fs::read_to_string(story.home().join("ran")).unwrap(), "run\n");
        }
    }
}

/// The key of a vendor whose keys can tell that a gateway is meant.
#[test]
fn the_key_of_a_vendor_can_be_kept_anywhere() {
    for index in 0..5 {
        let (story, forms) = secret_forms(Story::with_provider("openai", "gpt-6-luna"), KEY);
        let (form, value) = &forms[index];
        let story = story
            .set("providers.openai.apiKey", value.clone())
            .set("providers.openai.apiType", json!("chat"))
            .script([says("ok")]);
        story.run(["model", "provider", "list"]).stdout_has("openai");
        assert!(!story.home().join("ran").exists(), "a list reads no key");
        story.run(["agent", "-m", "hi"]).stdout("ok\n");
        let bearer = format!("Bearer {KEY}");
        assert_eq!(story.requests()[0].header("authorization"), Some(&*bearer), "{form}");
    }
}

#[test]
fn variables_of_mcp_servers_can_be_kept_anywhere() {
    for index in 0..5 {
        let (story, forms) = secret_forms(Story::new(), KEY);
        let (form, value) = &forms[index];
        let path = story.home().join("seen");
        write(&path, b"");
        let script = r#"printf %s "$API_KEY" >"$1""#;
        let server = json!({ "command": "/bin/sh", "args": ["-c", script, "x", path],
            "env": { "API_KEY": value } });
        let story = story.set("tools.mcpServers.s", server);
        story.run(["mcp", "list"]).stdout_has("s ");
        assert!(!story.home().join("ran").exists(), "a list reads no key");
        // The server speaks no protocol.
        let called = story.run(["tool", "run", "s", "x"]).stderr_has("MCP server `s`: it ");
        assert_ne!(called.code(), 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), KEY, "{form}");
    }
}

#[test]
fn headers_of_mcp_servers_and_search_keys_can_be_kept_anywhere() {
    let pages =
        PageServer::start(|_| page_response("application/json", r#"{"web": {"results": []}}"#));
    for index in 0..5 {
        let (story, forms) = secret_forms(Story::new(), KEY);
        let (form, value) = &forms[index];
        let count = pages.requests().len();
        let server = json!({ "url": pages.url("/mcp"), "headers": { "X-Key": value } });
        let search = json!({ "provider": "brave", "apiKey": value, "baseUrl": pages.url("") });
        let story = story.set("tools.mcpServers", json!({ "s": server }));
        let called = story.run(["tool", "run", "s", "x"]).stderr_has("not an MCP message");
        assert_ne!(called.code(), 0);
        drop(called);
        let requests = pages.requests().split_off(count);
        assert!(!requests.is_empty(), "{form}");
        let header = format!("x-key: {KEY}\n");
        assert!(requests.iter().all(|head| head.contains(&header)), "{form}: {requests:?}");
        let story = story.set("tools", json!({ "web": { "search": search } }));
        let searched = story.run(["tool", "run", "web_search", r#"{"query": "a"}"#]);
        drop(searched.stdout_has("No results"));
        let header = format!("x-subscription-token: {KEY}\n");
        assert!(pages.requests().last().unwrap().contains(&header), "{form}");
    }
    // One that cannot be read is named, and nothing is sent.
    let key_source = json!({ "file": "/nowhere/key" });
    let server = json!({ "url": pages.url("/mcp"), "headers": { "X-Key": key_source } });
    let search = json!({ "provider": "brave", "apiKey": key_source, "baseUrl": pages.url("") });
    let story = Story::new().set("tools.mcpServers", json!({ "s": server }));
    let count = pages.requests().len();
    let called = story.run(["tool", "run", "s", "x"]);
    let called = called.stderr_has("read `tools.mcpServers.s.headers.X-Key`");
    assert_ne!(called.code(), 0);
    drop(called);
    let story = story.set("tools", json!({ "web": { "search": search } }));
    let searched = story.run(["tool", "run", "web_search", r#"{"query": "a"}"#]);
    let searched = searched.stderr_has("read `tools.web.search.apiKey`");
    assert_ne!(searched.code(), 0);
    assert_eq!(pages.requests().len(), count);
}

/// The commands wait until the notice was seen.
#[test]
fn a_slow_command_of_a_key_is_named_while_it_is_waited_for() {
    let command = "until [ -e ~/seen ]; do sleep 0.1; done; echo key-of-a-command";
    let start = |key: &'static str, value: Value| {
        let story = Story::new().script([says("ok")]);
        let base = format!("http://127.0.0.1:{}/v1", story.server().port);
        let story = story.set("providers.custom", json!({ "apiBase": base })).set(key, value);
        let mut run = story.command(["agent", "-m", "hi"]);
        let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        (key, story, run)
    };
    let runs = [
        start("providers.custom.apiKeyCommand", json!(command)),
        start("providers.custom.apiKey", json!({ "command": command })),
    ];
    for (key, story, mut run) in runs {
        let mut notice = String::new();
        BufReader::new(run.stderr.take().unwrap()).read_line(&mut notice).unwrap();
        let expect = format!("nanobot: waiting for the command of `{key}`, up to a minute\n");
        assert_eq!(notice, expect);
        write(&story.home().join("seen"), b"");
        story.wait(run).stdout("ok\n");
        let header = story.requests()[0].header("authorization").map(str::to_owned);
        assert_eq!(header.as_deref(), Some("Bearer key-of-a-command"));
    }
}
