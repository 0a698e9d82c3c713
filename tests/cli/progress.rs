//! Progress on a terminal during a turn: calls and their results, thinking, waits. Nothing of it remains at the end.

use crate::memory::session_text;
use crate::picture::FRAME_MARK;
use crate::screen::{Key, Screen, mask_times};
use crate::server::{Ending, Response, calls, calls_all, fails, says, sends};
use crate::story::{NANOBOT, Story, write};
use regex::Regex;
use serde_json::json;
use std::fmt::Write as _;

/// The frames of the spinner.
const SPINNER_FRAMES: &str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏";

/// A run on a terminal that ends with an answer.
#[track_caller]
fn run_to_success<'a>(story: &'a Story, arguments: &[&str]) -> Screen<'a> {
    let mut screen = story.screen(60, 200).args(arguments);
    assert_status(&mut screen, 0);
    screen
}

#[track_caller]
fn assert_status(screen: &mut Screen<'_>, status: i32) {
    let code = screen.code();
    let text = screen.text_with_scrollback();
    assert_eq!(code, status, "{text}");
    assert!(!text.contains(|letter| SPINNER_FRAMES.contains(letter)), "{text}");
    screen.assert_restored();
}

/// The text of the screen with one spinner frame for all, and with token counts masked, which depend on the length of
/// temporary paths.
fn masked_text(screen: &Screen<'_>) -> String {
    let text = screen.text();
    let frame = |letter: char| if SPINNER_FRAMES.contains(letter) { '⠋' } else { letter };
    let text: String = text.chars().map(frame).collect();
    let pattern = Regex::new(r"[\d.]+k in").expect("it is a pattern");
    pattern.replace_all(&text, "9k in").into_owned()
}

/// Server-sent events with these deltas and this ending.
fn delta_events(all: &[serde_json::Value], ending: Ending) -> Response {
    let event = |delta: &serde_json::Value| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": delta }] });
        format!("data: {chunk}\n\n")
    };
    let mut pieces: Vec<String> = all.iter().map(event).collect();
    if ending == Ending::Complete {
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
        pieces.push(format!("data: {end}\n\ndata: [DONE]\n\n"));
    }
    Response::events(pieces).ending(ending)
}

#[test]
fn what_the_sandbox_refused_to_a_command_that_succeeded_is_said_below_it() {
    let story = Story::new().script([
        calls("exec", json!({ "command": "touch x; ls | head" })),
        calls("exec", json!({ "command": "ls" })),
        says("Done."),
    ]);
    let screen = run_to_success(&story, &["agent", "-m", "go"]);
    let text = screen.text();
    let refused = "the sandbox refused a part of it; `--write` would allow that\n";
    let row = text.split_once("✓ exec touch x; ls | head").expect("it succeeded").1;
    assert!(row.lines().nth(1).unwrap().contains(refused.trim_end()), "{text}");
    assert_eq!(text.matches("refused").count(), 1, "{text}");
}

#[test]
fn calls_are_replaced_by_their_results() {
    let story = Story::new()
        .file("notes.md", "one\ntwo\n")
        .file("long/文書.md", "x".repeat(3000))
        .script([
            calls_all([
                ("read_file", json!({ "path": "notes.md" })),
                ("read_file", json!({ "limit": 2, "path": "long/文書.md" })),
            ]),
            calls("read_file", json!({ "path": "gone.md" })),
            calls("write_file", json!({ "path": "new.md", "content": "x" })),
            calls("exec", json!({ "command": "set -e\necho a command of several lines\nexit 3" })),
            says("Done."),
        ]);
    let screen = run_to_success(&story, &["agent", "-m", "x", "--sandbox", "off"]);
    screen.snapshot("progress-calls", &screen.styled());
}

#[test]
fn changes_are_shown_as_diffs() {
    let long: String = (0..40).map(|line| format!("line {line}\n")).collect();
    let story = Story::new().file("a.md", "one\ntwo\nthree\n").script([
        calls("edit_file", json!({ "path": "a.md", "old_text": "two", "new_text": "2" })),
        calls("write_file", json!({ "path": "a.md", "content": "one\n2\n\tthree\n" })),
        calls("write_file", json!({ "path": "b.md", "content": long })),
        calls("delete_file", json!({ "path": "a.md" })),
        says("Done."),
    ]);
    let screen = run_to_success(&story, &["agent", "-m", "x", "--write"]);
    screen.snapshot("progress-diffs", &screen.styled());
}

#[test]
fn a_running_call_is_shown_with_its_output() {
    let command = "printf 'beg%s\\n' un; until test -e go; do sleep 0.01; done; echo over";
    let story = Story::new().script([calls("exec", json!({ "command": command })), says("Done.")]);
    let arguments = ["agent", "-m", "x", "--sandbox", "off"];
    let mut screen = story.screen(10, 120).args(arguments);
    screen.until_snapshot("progress-running", masked_text);
    // A narrower window shows the same.
    screen.resize_between_frames(10, 40).until_gone("un; until").until("  begun");
    write(&story.dir().join("go"), b"");
    assert_status(&mut screen, 0);
    assert!(screen.text().starts_with("  ✓ exec printf"), "{}", screen.text());
    assert_eq!(screen.text().matches("exec").count(), 1, "{}", screen.text());
}

#[test]
fn the_plan_is_ticked_off_in_place() {
    let todos = |done: &str| {
        calls(
            "todo",
            json!({ "todos": [
                { "content": "read the notes", "status": done },
                { "content": "write the tests", "status": "pending" },
            ] }),
        )
    };
    let gate = "until test -e go; do sleep 0.01; done";
    let story = Story::new().script([
        todos("in_progress"),
        todos("completed"),
        calls("exec", json!({ "command": gate })),
        says("Done."),
    ]);
    let arguments = ["agent", "-m", "x", "--sandbox", "off"];
    let mut screen = story.screen(12, 60).args(arguments);
    screen.until("  ☑ read the notes\n  ☐ write the tests");
    assert!(!screen.text().contains("▸"), "{}", screen.text());
    write(&story.dir().join("go"), b"");
    assert_status(&mut screen, 0);
    let text = screen.text();
    assert!(text.contains("✓ todo  0 of 2 done, now: read the notes"), "{text}");
    assert!(text.contains("✓ todo  1 of 2 done"), "{text}");
    assert!(!text.contains("☐"), "{text}");
}

#[test]
fn thinking_is_collapsed() {
    let thoughts = [
        json!({ "reasoning_content": "First I look\naround. " }),
        json!({ "reasoning_content": "Then I see a long way that leads to where I am, and go back. " }),
    ];
    let story = Story::new().script([
        sends(delta_events(&thoughts, Ending::Stall)),
        sends(delta_events(
            &[&thoughts[..], &[json!({ "content": "So." })]].concat(),
            Ending::Complete,
        )),
        sends(delta_events(
            &[&thoughts[..], &[json!({ "content": "So." })]].concat(),
            Ending::Complete,
        )),
    ]);
    let mut screen = story.screen(10, 60).args(["agent", "-m", "x"]);
    screen.until_snapshot("progress-thinking", masked_text);
    screen.press(Key::Ctrl('c'));
    assert_status(&mut screen, 130);
    let screen = run_to_success(&story, &["agent", "-m", "x", "-s", "new"]);
    screen.snapshot("progress-thoughts", &screen.styled());
    // Wide enough that no line of the log wraps: one lists all tools.
    let mut screen = story.screen(60, 2_000).args(["agent", "-v", "-m", "x", "-s", "newer"]);
    assert_status(&mut screen, 0);
    let text = screen.styled();
    // Logs and the last line have their own numbers.
    let is_told = |line: &&str| !line.contains(" ms  ") && !line.contains(" request");
    let lines: Vec<&str> = text.lines().filter(is_told).collect();
    screen.snapshot("progress-thoughts-verbose", &lines.join("\n"));
}

#[test]
fn waits_are_counted_down() {
    let busy = Response::json(429, &json!({ "error": { "message": "too many" } }));
    let busy = busy.header("retry-after", "3");
    let story = Story::new().script([sends(busy), says("Done.")]);
    let screen = story.screen(10, 80).env("NANOBOT_TEST_TIME", "");
    let mut screen = screen.args(["agent", "-m", "x"]);
    assert_status(&mut screen, 0);
    // The frames that are drawn depend on the machine's load.
    let raw = String::from_utf8_lossy(&screen.raw()).into_owned();
    let counted = Regex::new(r"retrying in (\d) s").expect("it is a pattern");
    let mut counted: Vec<u8> =
        counted.captures_iter(&raw).map(|captures| captures[1].parse().unwrap()).collect();
    assert!(counted.is_sorted_by(|before, after| before >= after));
    counted.dedup();
    assert!(counted.len() > 1, "{counted:?}");
    assert!(screen.text().contains("attempt 2: "), "{}", screen.text());
}

#[test]
fn a_wait_for_another_run_is_counted_down() {
    let stall = sends(delta_events(&[json!({ "content": "So\n\nand" })], Ending::Stall));
    let story = Story::new().script([stall]);
    let mut first = story.screen(10, 80).args(["agent", "-m", "x"]);
    first.until("So");
    let mut second = story.screen(10, 80).args(["agent", "-m", "y"]);
    second.until("waiting for session `cli:direct`").until("giving up in 9 min");
    second.press(Key::Ctrl('c'));
    assert_status(&mut second, 130);
    first.press(Key::Ctrl('c'));
    assert_status(&mut first, 130);
}

#[test]
fn verbose_prints_a_summary_at_the_end() {
    let story = Story::new()
        .file("a", "one\ntwo\n")
        .script([calls("read_file", json!({ "path": "a", "limit": 5 })), says("Done.")]);
    let text = run_to_success(&story, &["agent", "-v", "-m", "x"]).text();
    for phrase in [
        "✓",
        "read_file a",
        "limit: 5",
        "1| one",
        "policy: `read_file` is allowed",
        "http: status 200",
        "session: `cli:direct`",
        " · 2 requests · ",
        " · 1 tool call",
    ] {
        assert!(text.contains(phrase), "no {phrase:?} in {text}");
    }
    assert!(!text.contains("key-of-the-story"), "{text}");
}

#[test]
fn a_sub_agent_has_a_line_of_its_own() {
    let story = Story::new();
    let story = story.script([calls("spawn", json!({ "task": "look around", "label": "look" }))]);
    // The order of both is undefined.
    story.server().always(Box::new(|request| match request.last_content() {
        last if last.contains("finished") => says("Done.")(request),
        last if last.contains("look around") => says("Nothing there.")(request),
        _ => says("I wait.")(request),
    }));
    let text = run_to_success(&story, &["agent", "-m", "x"]).styled();
    let line = "✓» spawn1 look«dim:";
    assert!(text.contains(line), "{text}");
    assert_eq!(text.matches("spawn").count(), 1, "{text}");
}

#[test]
fn progress_is_plain_on_dumb_terminals_and_hidden_with_quiet() {
    for (kind, flag) in [("dumb", "--no-stdin"), ("dumb", "-q"), ("xterm", "-q")] {
        let story = Story::new().file("a", "one\n").script([
            fails(500, "down"),
            calls("read_file", json!({ "path": "a" })),
            says("Done."),
        ]);
        let screen = story.screen(10, 60).env("TERM", kind);
        let mut screen = screen.args(["agent", "-m", "x", flag]);
        assert_status(&mut screen, 0);
        let port = story.server().port;
        let text = match flag {
            "-q" => "Done.".to_owned(),
            _ => format!(
                "  … attempt 2: http://127.0.0.1:{port}/v1: down (status 500)\n  ✓ read_file a  9 s, 6 B\nDone."
            ),
        };
        assert_eq!(mask_times(&screen.text()), text);
        let expect = format!("{text}\n").replace('\n', "\r\n");
        let raw = String::from_utf8(screen.raw()).unwrap();
        assert_eq!(mask_times(&raw), expect);
    }
}

#[test]
fn long_operations_have_a_progress_bar() {
    let story = Story::new()
        .workspace_file("sessions/cli_direct.jsonl", session_text("cli:direct", 120))
        .script([sends(delta_events(&[], Ending::Stall)), sends(delta_events(&[], Ending::Stall))]);
    let consolidate = ["memory", "consolidate"];
    let mut screen = story.screen(10, 80).args(consolidate);
    screen.until("──── 0/70").until("cli:direct");
    screen.press(Key::Ctrl('c'));
    assert_status(&mut screen, 130);
    assert!(!screen.text().contains('─'), "{}", screen.text());
    let screen = story.screen(10, 80).env("TERM", "dumb");
    let mut screen = screen.args(consolidate);
    story.server().wait_for_requests(2);
    screen.press(Key::Ctrl('c'));
    assert_status(&mut screen, 130);
    assert!(!screen.raw().contains(&0xe2), "{}", screen.text());
}

/// The picture of the README: a denial with the flag that helps, an approval with a diff, an undo, and jobs.
#[test]
fn the_scene_of_the_readme() {
    let edit = || {
        let change = json!({ "path": "notes.md", "old_text": "twoo", "new_text": "two" });
        calls("edit_file", change)
    };
    let story = Story::new().script([
        edit(),
        says("It says `twoo`. I may not change the file."),
        edit(),
        says("Corrected."),
    ]);
    write(&story.dir().join("notes.md"), b"# Tea\n\nTea for twoo at four.\n");
    for (name, schedule, message) in [
        ("digest", "0 8 * * 1-5", "what is new in ~/inbox?"),
        ("backup", "0 3 * * *", "did it run?"),
    ] {
        let result = story.run(["cron", "add", "-n", name, "-c", schedule, "-m", message]);
        assert!(result.text().contains(name), "{}", result.error_text());
        result.error_text();
    }
    let programs = story.home().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(NANOBOT, programs.join("nanobot")).unwrap();
    let path = format!("{}:{}", programs.display(), story.path());
    let mut screen = story
        .screen(24, 76)
        .env("PATH", &path)
        .env("PS1", "$ ")
        .program("bash", ["--norc", "--noprofile"]);
    let mut frames = String::new();
    let mut record = |screen: &Screen, millis: u64| {
        writeln!(frames, "{FRAME_MARK}{millis}\n{}", screen.styled()).unwrap();
    };
    screen.until_prompt("$");
    record(&screen, 600);
    let mut enter = |screen: &mut Screen, line: &str, expect: &str, prompt: &str| {
        let mut typed = String::new();
        for word in line.split_inclusive(' ') {
            typed.push_str(word);
            screen.type_to(word, typed.trim_end());
            record(screen, 250);
        }
        screen.press(Key::Enter).until(expect).until_prompt(prompt);
        record(screen, 3500);
    };
    enter(&mut screen, "nanobot agent \"fix the typo in notes.md\"", "I may not change", "$");
    enter(&mut screen, "nanobot repl", "cli:direct", "> ");
    enter(&mut screen, "fix it", "Allow edit_file", "  allow?");
    screen
        .type_("y")
        .until("Corrected.")
        .until_prompt("> ")
        .press(Key::Ctrl('d'))
        .until_prompt("$");
    enter(&mut screen, "clear", "$", "$");
    enter(&mut screen, "nanobot undo", "notes.md", "$");
    enter(&mut screen, "nanobot cron list", "digest", "$");
    // The times of a test are not those of a reader's machine.
    let frames = mask_times(&frames).replace("  9 s, ", "  ");
    let id = regex::Regex::new(r"(?m)^[0-9a-f]{8}  ").unwrap();
    let frames = id.replace_all(&frames, "3f2a9c1d  ");
    screen.snapshot("readme", frames.trim_end());
    screen.exit_with_ctrl_d();
}

#[test]
fn the_start_of_a_server_is_waited_for_visibly() {
    let story = Story::new()
        .set("tools.mcpServers", json!({ "silent": { "command": "sleep", "args": ["60"] } }));
    let screen = story.screen(10, 80).env("NANOBOT_TEST_TIME", "");
    let mut screen = screen.args(["agent", "-m", "x"]);
    screen.until("starting MCP servers; giving up in");
    screen.press(Key::Ctrl('c'));
    assert_status(&mut screen, 130);
}
