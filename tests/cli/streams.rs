//! Standard input, output and error.

use crate::server::{Response, replies, says, sends};
use crate::story::{NANOBOT, Story};
use serde_json::json;
use std::io::Read;
use std::process::Stdio;

#[test]
fn piped_text_alone_is_the_message() {
    let story = Story::new().stdin("What is 2 + 2?\n").script([says("4")]);
    story.run(["agent"]).stdout("4\n");
    assert!(story.requests()[0].last_content().starts_with("What is 2 + 2?\n\n\n[Runtime: "));
}

#[test]
fn piped_text_is_appended_to_the_message_in_a_block() {
    let story = Story::new().stdin("a\nb\n").script([says("two")]);
    story.run(["agent", "-m", "count"]).stdout("two\n");
    assert!(
        story.requests()[0]
            .last_content()
            .starts_with("count\n\n<stdin>\na\nb\n</stdin>\n\n[Runtime: ")
    );
}

#[test]
fn piped_input_gets_a_session_of_its_own() {
    let story = Story::new().stdin("x").script([says("1"), says("2"), says("3")]);
    story.run(["agent"]).stdout("1\n");
    story.run(["agent"]).stdout("2\n");
    story.run(["agent", "-s", "work"]).stdout("3\n");
    assert!(story.requests().iter().all(|request| request.messages().len() == 2));
    let mut names: Vec<String> = std::fs::read_dir(story.workspace().join("sessions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 3);
    assert!(
        names[0].starts_with("pipe_") && names[1].starts_with("pipe_") && names[2] == "work.jsonl"
    );
}

#[test]
fn a_dash_reads_the_message_from_standard_input() {
    let story = Story::new().stdin("hello").script([says("hi")]);
    story.run(["agent", "-m", "-"]).stdout("hi\n");
    assert!(story.requests()[0].last_content().starts_with("hello\n\n[Runtime"));
}

#[test]
fn standard_input_can_be_ignored() {
    let story = Story::new().stdin("secret").script([says("1"), says("2")]);
    story.run(["agent", "-m", "x", "--no-stdin"]).stdout("1\n");
    let story = story.env("NANOBOT_STDIN", "never");
    story.run(["agent", "-m", "x"]).stdout("2\n");
    assert!(story.requests().iter().all(|request| !request.raw.contains("secret")));
}

#[test]
fn a_run_without_a_message_exits_with_a_usage_error() {
    let story = Story::new();
    story.run(["agent"]).status(66).stderr_has("nanobot: no message\n  try: `nanobot agent -m");
    let story = story.stdin(" \n");
    story
        .run(["agent"])
        .status(66)
        .stderr("nanobot: standard input is empty\n  try: a message with `-m`, or a command that prints text into the pipe\n");
}

#[test]
fn invalid_bytes_are_explained() {
    let story = Story::new().stdin(b"caf\xe9").script([says("ok")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("ok\n")
        .stderr_has("standard input is not valid UTF-8 (first error at byte 4)");
    let story = Story::new().stdin(b"\x00\x01\x02");
    story
        .run(["agent", "-m", "x"])
        .status(65)
        .stderr("nanobot: standard input is binary, not text\n");
    let story = Story::new().stdin(b"\xff\xfeh\x00i\x00").script([says("ok")]);
    story.run(["agent"]).stdout("ok\n");
    assert!(story.requests()[0].last_content().starts_with("hi\n"));
}

#[test]
fn the_answer_is_byte_for_byte_and_ends_in_one_newline() {
    let check = |text: &str, expect: &str| {
        let story = Story::new().script([says(text)]);
        assert_eq!(story.run(["agent", "-m", "x"]).bytes(), expect.as_bytes());
    };
    check("plain", "plain\n");
    check("  two  spaces\tand a tab  \n\n", "  two  spaces\tand a tab  \n");
    check("\u{1b}[31mred\u{202e} 日本", "\u{1b}[31mred\u{202e} 日本\n");
    check("<think>hm, 4?</think>\n\n4", "4\n");
}

#[test]
fn two_agents_in_a_pipeline() {
    let story = Story::new().script([says("first answer"), says("second answer")]);
    let mut first = story.command(["agent", "-m", "one"]).spawn().unwrap();
    let second =
        story.command(["agent", "-m", "two"]).stdin(first.stdout.take().unwrap()).spawn().unwrap();
    story.wait(second).stdout("second answer\n");
    assert!(first.wait().unwrap().success());
    assert!(story.requests()[1].last_content().contains("<stdin>\nfirst answer\n</stdin>"));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let story = Story::new().script([says("nobody reads this")]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = story.command(["agent", "-m", "x"]).stdout(writer).spawn().unwrap();
    story.wait(child);
    assert!(
        story.session("cli_direct.jsonl").iter().any(|line| line["content"] == "nobody reads this")
    );
}

#[test]
fn a_full_disk_under_standard_output_is_a_failure() {
    let story = Story::new().script([says("lost")]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = story.command(["agent", "-m", "x"]).stdout(full).spawn().unwrap();
    story.wait(child).status(74).stderr_has("standard output");
}

#[test]
fn quiet_prints_only_failures() {
    let story = Story::new().stdin(b"caf\xe9").script([says("ok")]);
    story.run(["agent", "-m", "x", "-q"]).stdout("ok\n");
}

#[test]
fn verbose_prints_tool_calls() {
    let story =
        Story::new().script([crate::server::calls("list_dir", json!({ "path": "." })), says("ok")]);
    story.run(["agent", "-m", "x", "-v"]).stdout("ok\n").stderr("  ↳ list_dir(\".\")\n");
}

#[test]
fn verbose_prints_thoughts_and_interim_text() {
    let call = json!({ "id": "c", "type": "function", "function": { "name": "list_dir", "arguments": "{}" } });
    let story = Story::new().allow_extra_keys(&["reasoning_content"]).script([
        replies(json!({ "content": "Let me look.\u{1b}[2J", "tool_calls": [call] }), "tool_calls"),
        replies(json!({ "content": "ok", "reasoning_content": "One thought.\nAnother." }), "stop"),
        replies(json!({ "content": "ok", "reasoning_content": "A thought." }), "stop"),
    ]);
    story
        .run(["agent", "-m", "x", "-v"])
        .stdout("ok\n")
        .stderr("  Let me look.\\u{1b}[2J\n  ↳ list_dir\n  ~ One thought.\n  ~ Another.\n");
    // Without the flag, standard error stays empty.
    story.run(["agent", "-m", "x"]).stdout("ok\n");
}

#[test]
fn a_prompt_file_is_the_message_or_follows_it() {
    let story = Story::new()
        .file("prompt.txt", "/new\nreview\n\n")
        .file("empty.txt", "\n")
        .script((0..4).map(|_| says("ok")));
    let run = |arguments: &[&str]| {
        let arguments = [&["agent", "--ephemeral", "--prompt-file"], arguments].concat();
        story.run(arguments).stdout("ok\n");
        story.last_request().last_content()
    };
    assert!(run(&["prompt.txt"]).contains("/new\nreview"));
    assert!(run(&["prompt.txt", "-m", "Briefly."]).contains("Briefly.\n\n/new\nreview"));
    let story = story.stdin("piped");
    let piped = |arguments: &[&str]| {
        let arguments =
            [&["agent", "--ephemeral", "--prompt-file", "prompt.txt"], arguments].concat();
        story.run(arguments).stdout("ok\n");
        let text = story.last_request().last_content();
        let (before, after) = text.split_once("/new\nreview\n\n<stdin").unwrap();
        assert!(after.contains("piped") && !before.contains("piped"), "{text}");
    };
    piped(&[]);
    piped(&["-m", "-"]);
    let fails = |name: &str, status: i32, message: &str| {
        let result = story.run(["agent", "-m", "x", "--prompt-file", name]);
        result.status(status).stderr_has(message);
    };
    fails("missing.txt", 66, "no such file: `missing.txt`");
    fails("empty.txt", 66, "`empty.txt` is empty");
    fails("-", 2, "expected a file");
}

#[test]
fn attachments_are_sent() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    let story = Story::new().file("a.png", png).file("a.txt", "text\n").script([says("ok")]);
    story.run(["agent", "-m", "look", "-a", "a.png", "-a", "a.txt"]).stdout("ok\n");
    let content = story.requests()[0].messages()[1]["content"].clone();
    assert!(
        content[0]["image_url"]["url"]
            .as_str()
            .unwrap()
            .starts_with("data:image/png;base64,iVBORw0KGgo")
    );
    assert!(
        content[1]["text"]
            .as_str()
            .unwrap()
            .starts_with("look\n\n<file name=\"a.txt\">\ntext\n</file>")
    );
    let stored = story.session("cli_direct.jsonl")[1]["content"].clone();
    assert_eq!(stored[0], json!({ "type": "text", "text": "[image: a.png]" }));
    story
        .run(["agent", "-m", "x", "-a", "gone.txt"])
        .status(66)
        .stderr("nanobot: no such file: `gone.txt`\n");
}

#[test]
fn a_piped_image_is_attached() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    let story = Story::new().stdin(png).script([says("a dot")]);
    story.run(["agent", "-m", "what is this?"]).stdout("a dot\n");
    assert_eq!(story.requests()[0].messages()[1]["content"][0]["type"], "image_url");
}

#[test]
fn a_silent_stream_times_out() {
    let stalled = Response::events(["data: {\"choices\":[{\"delta\":{\"content\":\"par\"}}]}\n\n"])
        .ending(crate::server::Ending::Stall);
    let story = Story::new()
        .env("NANOBOT_STREAM_IDLE_TIMEOUT_S", "0.5")
        .script((0..4).map(|_| sends(stalled.clone())));
    story
        .run(["agent", "-m", "x"])
        .status(69)
        .stderr_has("sent an incomplete response: timed out waiting for more data");
}

#[test]
fn the_first_byte_has_a_longer_timeout_than_the_stream() {
    let story =
        Story::new().env("NANOBOT_STREAM_IDLE_TIMEOUT_S", "1").env("NANOBOT_LLM_TIMEOUT_S", "30");
    story.server().script([Box::new(|request: &crate::server::Request| {
        // Longer than the idle timeout of a stream: this wait is what is tested.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        says("late")(request)
    }) as crate::server::Responder]);
    story.run(["agent", "-m", "x"]).stdout("late\n");
    let story = Story::new().env("NANOBOT_LLM_TIMEOUT_S", "1");
    story.server().always(Box::new(|_| {
        std::thread::sleep(std::time::Duration::from_secs(2));
        Response::default()
    }));
    story.run(["agent", "-m", "x"]).status(69).stderr_has("timed out waiting for a response");
}

#[test]
fn an_answer_on_a_terminal_is_sanitized() {
    let story = Story::new().script([says("red \u{1b}[31m alert")]);
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &format!("{} agent -m x", env!("CARGO_BIN_EXE_nanobot")), "/dev/null"]);
    command
        .current_dir(story.dir())
        .env_clear()
        .env("HOME", story.home())
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "dumb");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut screen = String::new();
    child.stdout.take().unwrap().read_to_string(&mut screen).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(screen.contains("red \\u{1b}[31m alert"), "{screen:?}");
}

#[test]
fn an_interrupted_answer_on_a_terminal_is_followed_by_its_error_line() {
    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": "Half of" } }] });
    let stalled = Response::events([format!("data: {delta}\n\n")]);
    let story = Story::new().script([sends(stalled.ending(crate::server::Ending::Stall))]);
    let mut command = story.program("script");
    let line = format!("{NANOBOT} agent -m x --timeout 3");
    let child = command.args(["-qec", &line, "/dev/null"]).spawn().unwrap();
    let stdout = story.wait(child).status(124).text();
    assert!(stdout.contains("Half of\r\n"), "{stdout:?}");
    assert!(stdout.contains("--timeout"), "{stdout:?}");
}
