//! Recording, replay, the demo, and the files a run may use.

use crate::server::{calls, fails, says};
use crate::story::Story;
use serde_json::json;

#[test]
fn the_demo_answers_from_real_files() {
    let story =
        Story::bare().file("README.md", "# The great work\n").file("src/main.c", "int main;");
    let result = story.run(["agent", "--replay", "demo", "-m", "What is in this folder?"]);
    let text = result.text();
    assert!(
        text.starts_with("This folder contains 1 file and 1 folder:\n\n- README.md\n- src/\n"),
        "{text}"
    );
    assert!(text.contains("README.md begins: The great work"), "{text}");
    drop(result);
    assert!(!story.home().join(".nanobot").exists(), "a rehearsal leaves nothing behind");
    // The home directory is protected from the agent, but the demo still works there.
    let child = story
        .command(["agent", "--replay", "demo", "-m", "x"])
        .current_dir(story.home())
        .spawn()
        .unwrap();
    story.wait(child).stdout_has("This folder is empty.");
    let empty = Story::bare();
    empty.run(["agent", "--replay", "demo", "-m", "x"]).stdout_has("This folder is empty.");
    empty
        .run(["agent", "--replay", "demo", "--no-tools", "-m", "x"])
        .stdout_has("no tools to show");
}

#[test]
fn a_recording_is_replayed_without_a_network() {
    let story = Story::new()
        .file("a.txt", "alpha")
        .script([calls("read_file", json!({ "path": "a.txt" })), says("It says alpha.")]);
    story
        .run(["agent", "-m", "read a.txt", "--record", "tape", "--ephemeral"])
        .stdout("It says alpha.\n");
    let story = story.set("providers.custom.apiBase", json!("http://127.0.0.1:1/v1"));
    let replay = |message: &str| {
        story.run(["agent", "-m", message, "--replay", "tape", "--model", "scripted"])
    };
    replay("read a.txt").stdout("It says alpha.\n");
    replay("read b.txt")
        .stdout("It says alpha.\n")
        .stderr_has("differs from the recorded one at /messages/0/text");
    std::fs::write(story.dir().join("tape"), "").unwrap();
    replay("x").status(65).stderr_has("no further exchange");
    std::fs::write(story.dir().join("tape"), "nonsense\n").unwrap();
    replay("x").status(65).stderr_has("is not a recording: line 1");
    story
        .run(["agent", "-m", "x", "--replay", "gone"])
        .status(66)
        .stderr_has("there is no recording `gone`");
}

#[test]
fn a_dry_run_prints_the_exact_request() {
    let story = Story::new().script([says("ok")]);
    let stdout = story.run(["agent", "-m", "hello", "--dry-run"]).text();
    assert!(!story.workspace().join("sessions").exists());
    story.run(["agent", "-m", "hello", "--ephemeral"]).stdout("ok\n");
    assert_eq!(stdout.trim_end(), story.normalize_paths(&story.requests()[0].raw));
    let curl = story.run(["agent", "-m", "it's", "--dry-run=curl"]).text();
    let base = format!("http://127.0.0.1:{}/v1/chat/completions", story.server().port);
    assert!(curl.starts_with(&format!("curl -sS '{base}'")) && curl.contains("$API_KEY"), "{curl}");
    story.server().script([says("ok")]);
    let output = std::process::Command::new("sh").arg("-c").arg(&curl).env("API_KEY", "k").output();
    if output.is_ok_and(|output| output.status.success()) {
        assert!(story.requests()[1].last_content().starts_with("it's"));
    } else {
        // Without curl a run receives the script's reply instead.
        story.run(["agent", "-m", "x", "--ephemeral"]).stdout("ok\n");
    }
}

/// The privacy check: what a command would send, in the state of its conversation.
#[test]
fn a_dry_run_is_byte_for_byte_what_the_same_command_sends() {
    let story = Story::new().script([says("Noted.")]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    let session = || std::fs::read(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    for arguments in [
        &["-m", "Who?"][..],
        &["-m", "Plan it.", "--profile", "plan"],
        &["-m", "Who?", "--new"],
        &["-m", "Who?", "-s", "other"],
        &["-m", "Who?", "--ephemeral"],
        &["-m", "Who?", "--fork", "cli:direct"],
        &["-m", "/compact"],
    ] {
        let command = |more: &[&'static str]| [&["agent"], arguments, more].concat();
        let before = session();
        let stdout = story.run(command(&["--dry-run"])).text();
        assert_eq!(session(), before, "{arguments:?}");
        let locked = story.workspace().join("sessions/cli_direct.jsonl.lock");
        std::fs::remove_file(&locked).unwrap();
        story.run(command(&["--dry-run"])).stdout(&stdout);
        assert!(!locked.exists(), "{arguments:?}");
        std::fs::write(&locked, "").unwrap();
        story.server().script([says("ok")]);
        let result = story.run(command(&[]));
        drop((result.text(), result.error_text(), result.code()));
        drop(result);
        let body = story.normalize_paths(&story.last_request().raw);
        assert!(stdout.trim_end_matches('\n') == body, "{arguments:?}:\n{stdout}\n{body}");
    }
    let story = story.stdin("some text");
    let stdout = story.run(["agent", "-m", "Sum up", "--dry-run"]).text();
    story.server().script([says("ok")]);
    story.run(["agent", "-m", "Sum up"]).stdout("ok\n");
    let body = story.normalize_paths(&story.last_request().raw);
    assert_eq!(stdout.trim_end_matches('\n'), body);
}

#[test]
fn a_replay_of_a_conversation_names_the_session_for_the_same_requests() {
    let story = Story::new().script([says("Noted."), says("Mia.")]);
    story.run(["agent", "-m", "My cat is Mia."]).stdout("Noted.\n");
    story.run(["agent", "-m", "Who?", "--record", "tape"]).stdout("Mia.\n");
    let replay = ["agent", "-m", "Who?", "--replay", "tape", "--model", "scripted"];
    story
        .run(replay)
        .stdout("Mia.\n")
        .stderr_has("`nanobot session fork cli:direct COPY --at 2`, then `-s COPY`");
    story.run(["session", "fork", "cli:direct", "COPY", "--at", "2"]).stderr_has("copied");
    // No request differs.
    story.run(replay.iter().chain(&["-s", "COPY"])).stdout("Mia.\n");
}

/// Runs one call and returns its tool result.
fn run_call(
    story: Story,
    arguments: &[&str],
    name: &str,
    call: serde_json::Value,
) -> (Story, String) {
    let story = story.script([calls(name, call), says("ok")]);
    let mut all = vec!["agent", "-m", "x", "--new"];
    all.extend(arguments);
    // A denial is also printed on standard error.
    story.run(all).stdout("ok\n").error_text();
    let content = story.last_request().last_content();
    (story, content)
}

#[test]
fn only_the_write_flag_allows_changes() {
    let write = |path: &str| json!({ "path": path, "content": "x" });
    let (story, content) = run_call(Story::new(), &[], "write_file", write("a.txt"));
    assert!(content.contains("--write") && !story.dir().join("a.txt").exists(), "{content}");
    let (story, content) = run_call(story, &["--write"], "write_file", write("a.txt"));
    assert!(content.starts_with("created") && story.dir().join("a.txt").exists(), "{content}");
    std::fs::create_dir(story.dir().join("out")).unwrap();
    let (story, content) = run_call(story, &["--write=out"], "write_file", write("out/b.txt"));
    assert!(content.starts_with("created"), "{content}");
    let (story, content) = run_call(story, &["--write=out"], "write_file", write("c.txt"));
    assert!(content.contains("--write"), "{content}");
    let memory = story.workspace().join("memory/MEMORY.md");
    let (story, content) = run_call(story, &[], "write_file", write(memory.to_str().unwrap()));
    assert!(content.starts_with("created") && memory.exists(), "{content}");
    let (story, content) = run_call(story, &["--write"], "write_file", write("../up.txt"));
    assert!(content.contains("outside") && !story.dir().join("../up.txt").exists(), "{content}");
    let session = story.workspace().join("sessions/cli_direct.jsonl");
    let (story, content) = run_call(story, &["--write"], "read_file", json!({ "path": session }));
    assert!(content.contains("not accessible to tools"), "{content}");
    let config = story.home().join(".nanobot/config.json");
    let (_, content) = run_call(story, &["--read", "/"], "read_file", json!({ "path": config }));
    assert!(content.contains("not accessible to tools"), "{content}");
}

#[test]
fn readable_and_writable_paths_of_a_run() {
    let (story, content) =
        run_call(Story::new(), &[], "read_file", json!({ "path": "/etc/hostname" }));
    assert!(content.contains("--read /etc/hostname"), "{content}");
    let (story, content) =
        run_call(story, &["--read", "/etc"], "read_file", json!({ "path": "/etc/passwd" }));
    assert!(content.contains("root:"), "{content}");
    let story = story.workspace_file("notes.md", "in the workspace");
    let (story, content) = run_call(story, &[], "read_file", json!({ "path": "notes.md" }));
    assert!(content.contains("/workspace/notes.md"), "{content}");
    // The home directory cannot be the working directory; the workspace is used instead.
    let home = story.home();
    story.server().script([calls("exec", json!({ "command": "pwd" })), says("ok")]);
    let child = story.command(["agent", "-m", "x", "--new"]).current_dir(&home).spawn().unwrap();
    story.wait(child).stdout("ok\n");
    assert!(story.last_request().last_content().ends_with("/.nanobot/workspace"));
    let story =
        story.set("tools", json!({ "restrictToWorkspace": true, "exec": { "enable": false } }));
    story.run(["agent", "-m", "x", "-C", "/"]).status(77).stderr_has("restrictToWorkspace");
    story.server().script([says("ok")]);
    story.run(["agent", "-m", "x", "--new"]).stdout("ok\n");
    assert_eq!(story.last_request().body["tools"].as_array().unwrap().len(), 12);
}

#[test]
fn tools_can_be_chosen() {
    let story = Story::new().script([says("1"), says("2")]);
    story.run(["agent", "-m", "x", "--tools", "read_file,list_dir"]).stdout("1\n");
    story.run(["agent", "-m", "x", "--no-tools"]).stdout("2\n");
    assert_eq!(story.requests()[0].body["tools"].as_array().unwrap().len(), 2);
    assert!(
        story.requests()[1].body["tools"].is_null()
            && story.requests()[1].body["tool_choice"].is_null()
    );
    story
        .run(["agent", "-m", "x", "--tools", "fly"])
        .status(2)
        .stderr_has("there is no tool `fly`");
}

#[test]
fn skills_and_instruction_files_are_in_the_system_prompt() {
    let story = Story::new()
        .workspace_file("AGENTS.md", "Speak in rhyme.")
        .workspace_file("memory/MEMORY.md", "The user likes tea.")
        .workspace_file("skills/gh/SKILL.md", "---\ndescription: does git hub\nmetadata: '{\"nanobot\": {\"requires\": {\"bins\": [\"no-such-program\"]}}}'\n---\nHow.")
        .workspace_file("skills/on/SKILL.md", "---\nalways: true\n---\nAlways here.")
        .script([calls("read_file", json!({ "path": "skills/memory/SKILL.md" })), says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    let system = story.requests()[0].messages()[0]["content"].as_str().unwrap().to_owned();
    let order = [
        "# nanobot",
        "## AGENTS.md\n\nSpeak in rhyme.",
        "# Memory\n\n## Long-term Memory\nThe user likes tea.",
        "# Active Skills\n\n### Skill: on\n\nAlways here.",
        "# Skills",
        "<skill available=\"false\">\n    <name>gh</name>",
        "<requires>CLI: no-such-program</requires>",
        "memory: Remember lasting facts",
    ];
    let positions: Vec<usize> = order
        .iter()
        .map(|phrase| system.find(phrase).unwrap_or_else(|| panic!("{phrase} in {system}")))
        .collect();
    assert!(positions.is_sorted(), "{positions:?}");
    assert!(
        story.requests()[1].last_content().contains("memory/HISTORY.md"),
        "a built-in skill can be read"
    );
}

#[test]
fn an_image_read_by_a_tool_is_sent_to_the_model() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
    let (story, content) =
        run_call(Story::new().file("a.png", png), &[], "read_file", json!({ "path": "a.png" }));
    assert!(content.contains("data:image/png;base64,iVBORw0KGgo"), "{content}");
    let messages = story.requests()[1].messages();
    assert_eq!(messages[messages.len() - 2]["content"], "[image: a.png]");
    let stored = story.session("cli_direct.jsonl");
    assert!(
        stored.iter().any(|line| line["role"] == "tool" && line["content"] == "[image: a.png]")
    );
}

#[test]
fn a_recorded_failure_is_replayed_with_its_status() {
    let check = |status: u16, tries: usize, exit: i32| {
        let story = Story::new().script((0..tries).map(|_| fails(status, "no luck")));
        let record = ["agent", "-m", "x", "--record", "tape"];
        story.run(record).status(exit).stderr_has("no luck");
        let replay = ["agent", "-m", "x", "--replay", "tape"];
        story.run(replay).status(exit).stderr_has("no luck");
    };
    check(500, 4, 69);
    check(401, 1, 77);
    check(404, 1, 78);
}

#[test]
fn a_strict_replay_in_another_place_accepts_the_same_requests_only() {
    let story = Story::new()
        .file("a.txt", "alpha")
        .script([calls("read_file", json!({ "path": "a.txt" })), says("It says alpha.")]);
    let ask = |story: &Story, more: &[&str]| {
        let arguments = [&["agent", "-m", "read a.txt", "--model", "scripted"], more].concat();
        let result = story.run(arguments);
        let done = (result.code(), result.text(), result.error_text());
        drop(result);
        done
    };
    assert_eq!(ask(&story, &["--record", "tape"]).0, 0);
    let tape = std::fs::read_to_string(story.dir().join("tape")).unwrap();
    let home = story.home().display().to_string();
    assert!(!tape.contains(&home), "{tape}");
    assert!(tape.contains("${nanobot.workspace}"), "{tape}");
    // Another machine: another home, workspace and directory.
    let other = Story::new().file("a.txt", "alpha").file("tape", &tape);
    let strict = ["--replay", "tape", "--replay-strict"];
    let (exit, text, errors) = ask(&other, &strict);
    assert_eq!((exit, text.as_str()), (0, "It says alpha.\n"), "{errors}");
    // A file that differs makes the second request differ.
    let other = Story::new().file("a.txt", "beta").file("tape", &tape);
    let (exit, text, errors) = ask(&other, &strict);
    assert_eq!((exit, text.as_str()), (65, ""), "{errors}");
    let expect = "the request differs from the recorded one at /messages/2/text\n  | --- recorded\n  | +++ request\n";
    assert!(errors.contains(expect), "{errors}");
    assert!(errors.contains("alpha") && errors.contains("beta"), "{errors}");
    // Without the flag it is only said.
    let (exit, _, errors) = ask(&other, &["--replay", "tape"]);
    assert_eq!(exit, 0);
    assert!(errors.contains("the request differs"), "{errors}");
    other.run(["agent", "-m", "x", "--replay-strict"]).status(2).stderr_has("--replay");
}
