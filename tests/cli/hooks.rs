//! Hooks: what they get, what they can change, what happens when they fail, and scripts written for other programs.

use crate::cron::add_job;
use crate::screen::Key;
use crate::server::{calls, says};
use crate::story::{Story, write_program};
use serde_json::{Value, json};

/// A story with a program `hook` in a directory that no run may change, and the hooks of the config.
fn with_hook(script: &str, hooks: impl Fn(&str) -> Value) -> Story {
    let story = Story::new();
    let path = story.home().join(".nanobot/hooks/hook");
    write_program(&path, &format!("#!/bin/sh\n{script}\n"));
    story.set("hooks", hooks(path.to_str().unwrap()))
}

/// The results of tools that the model got with the last request.
fn last_result(story: &Story) -> String {
    story.requests().last().unwrap().last_content()
}

/// The JSON objects that hooks have stored, one a line.
fn stored_inputs(story: &Story) -> Vec<Value> {
    let text = std::fs::read_to_string(story.home().join("inputs")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

const STORE: &str = "cat >> \"$HOME/inputs\"; echo >> \"$HOME/inputs\"";

#[test]
fn a_hook_gets_the_facts_of_each_event() {
    let events = ["pre_tool", "post_tool", "pre_turn", "post_turn"];
    let story = with_hook(STORE, |hook| {
        events
            .iter()
            .map(|event| ((*event).to_owned(), json!([{ "command": hook }])))
            .collect::<serde_json::Map<_, _>>()
            .into()
    })
    .file("notes.md", "buy milk\n")
    .script([calls("read_file", json!({ "path": "notes.md" })), says("Milk.")]);
    story.run(["agent", "-s", "shop", "-m", "what do I need?"]).stdout("Milk.\n");
    let inputs = stored_inputs(&story);
    let named: Vec<&str> =
        inputs.iter().map(|it| it["hook_event_name"].as_str().unwrap()).collect();
    assert_eq!(named, ["pre_turn", "pre_tool", "post_tool", "post_turn"]);
    for input in &inputs {
        assert_eq!(input["session_id"], "shop");
        assert_eq!(input["profile"], "default");
        assert_eq!(input["parent_session_id"], Value::Null);
        assert_eq!(input["cwd"], json!(story.dir().canonicalize().unwrap()));
        let transcript = input["transcript_path"].as_str().unwrap();
        assert!(transcript.ends_with("/sessions/shop.jsonl"), "{transcript}");
    }
    assert_eq!(inputs[0]["prompt"], "what do I need?");
    assert_eq!(inputs[1]["tool_name"], "read_file");
    assert_eq!(inputs[1]["tool_input"], json!({ "path": "notes.md" }));
    assert_eq!(inputs[2]["tool_status"], "success");
    assert!(inputs[2]["tool_output_text"].as_str().unwrap().contains("buy milk"));
    assert_eq!(inputs[3]["answer"], "Milk.");
}

#[test]
fn a_hook_forbids_a_call_with_words_for_the_model() {
    let script = "grep -q secret || exit 0; echo 'ask for the summary instead' >&2; exit 2";
    let story = with_hook(
        script,
        |hook| json!({ "pre_tool": [{ "match": "read_*", "command": hook, "name": "guard" }] }),
    )
    .file("secret.md", "x")
    .script([
        calls("read_file", json!({ "path": "secret.md" })),
        calls("list_dir", json!({})),
        says("No."),
    ]);
    story
        .run(["agent", "-m", "x"])
        .stdout("No.\n")
        .stderr_has("denied: read_file: hook `guard`: ask for the summary instead");
    let denied = story.requests()[1].last_content();
    assert!(denied.contains("hook `guard`: ask for the summary instead"), "{denied}");
    assert!(!denied.contains("final"), "another way is welcome: {denied}");
    // The hook is for other tools.
    assert!(last_result(&story).contains("secret.md"));
    let result = story.run(["tool", "run", "read_file", r#"{"path": "secret.md"}"#]).status(77);
    result.stderr_has("ask for the summary instead");
}

#[test]
fn changed_arguments_pass_the_schema_and_the_policy_again() {
    let change = |arguments: &str| {
        let script = format!("echo '{{\"arguments\": {arguments}}}'");
        let story = with_hook(
            &script,
            |hook| json!({ "pre_tool": [{ "match": "read_file", "command": hook, "name": "h" }] }),
        );
        story
            .file("a.md", "this is a\n")
            .file("b.md", "this is b\n")
            .script([calls("read_file", json!({ "path": "a.md" })), says("Done.")])
    };
    let story = change(r#"{"path": "b.md"}"#);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    let result = last_result(&story);
    assert!(result.contains("this is b") && !result.contains("this is a"), "{result}");
    assert!(result.contains("[hook h] changed the arguments to"), "{result}");
    // The session has the model's own call.
    let stored =
        std::fs::read_to_string(story.workspace().join("sessions/cli_direct.jsonl")).unwrap();
    assert!(stored.contains("a.md"), "{stored}");

    let story = change(r#"{"path": "/etc/shadow"}"#);
    let ran = story.run(["agent", "-m", "x"]).stdout("Done.\n");
    ran.stderr_has("denied: read_file");
    assert!(last_result(&story).contains("Tool call denied: "));

    let story = change(r#"{"file": "b.md"}"#);
    story
        .run(["agent", "-m", "x"])
        .stdout("Done.\n")
        .stderr_has("hook `h`: it changed the arguments to invalid ones");
}

#[test]
fn a_hook_cannot_allow_what_the_policy_denies() {
    let story = with_hook(
        "echo '{\"decision\": \"allow\"}'",
        |hook| json!({ "pre_tool": [{ "command": hook }] }),
    )
    .script([calls("write_file", json!({ "path": "a", "content": "x" })), says("No.")]);
    story.run(["agent", "-m", "x"]).stdout("No.\n").stderr_has("denied: write_file");
    assert!(!story.dir().join("a").exists());
}

#[test]
fn a_hook_asks_for_approval() {
    let hooks = |hook: &str| json!({ "pre_tool": [{ "match": "list_dir", "command": hook }] });
    let script = "echo '{\"decision\": \"ask\", \"reason\": \"are you sure?\"}'";
    let story = with_hook(script, hooks).script([calls("list_dir", json!({})), says("No.")]);
    story.run(["agent", "-m", "x"]).stdout("No.\n").stderr_has("are you sure?");
    assert!(last_result(&story).contains("Tool call denied: "));

    let story = with_hook(script, hooks).script([calls("list_dir", json!({})), says("Yes.")]);
    let mut screen = story.screen(24, 80).args(["repl"]);
    screen.until_prompt("> ").type_("x").press(Key::Enter);
    screen.until("are you sure?").until("allow?").type_("y");
    screen.until("Yes.").press(Key::Ctrl('d'));
    assert_eq!(screen.code(), 0);
    assert!(!last_result(&story).contains("denied"));
}

#[test]
fn a_hook_that_fails_is_reported_and_stops_only_if_it_is_strict() {
    let check = |script: &str, strict: bool, expect: &str| {
        let story = with_hook(script, |hook| {
            json!({ "pre_tool": [{ "command": hook, "name": "h", "strict": strict, "timeout": 0.5 }] })
        })
        .script([calls("list_dir", json!({})), says("Done.")]);
        let ran = story.run(["agent", "-m", "x"]).stdout("Done.\n");
        ran.stderr_has(expect);
        let result = last_result(&story);
        assert_eq!(result.contains("Tool call denied: "), strict, "{script}: {result}");
    };
    check("echo broken >&2; exit 1", false, "hook `h` failed with exit status 1: broken");
    check("echo broken >&2; exit 1", true, "hook `h` failed with exit status 1: broken");
    check("echo hello", false, "hook `h` printed something that is not a JSON object");
    check("echo '{'", true, "hook `h` printed JSON that cannot be read");
    check("exec sleep 600", true, "hook `h` timed out after 0.5 s");
    check("kill -9 $PPID", false, "hook `h` was killed");
    check("head -c 3000000 /dev/zero", false, "hook `h` printed more than 1 MiB");
}

#[test]
fn a_hook_changes_or_withholds_a_result() {
    let check = |answer: &str, expect: &[&str], absent: &str| {
        let story = with_hook(
            &format!("echo '{answer}'"),
            |hook| json!({ "post_tool": [{ "command": hook, "name": "h" }] }),
        )
        .file("a.md", "the text\n")
        .script([calls("read_file", json!({ "path": "a.md" })), says("Done.")]);
        story.run(["agent", "-m", "x"]).stdout("Done.\n");
        let result = last_result(&story);
        expect.iter().for_each(|part| assert!(result.contains(part), "{result}"));
        assert!(absent.is_empty() || !result.contains(absent), "{result}");
    };
    check(r#"{"context": "it is old"}"#, &["the text", "[hook h] it is old"], "");
    check(r#"{"output": "nothing to see"}"#, &["nothing to see"], "the text");
    check(
        r#"{"decision": "deny", "reason": "it is private"}"#,
        &["[hook h] withheld the result: it is private"],
        "the text",
    );
}

#[test]
fn a_hook_adds_words_to_a_message_or_forbids_the_turn() {
    let story = with_hook(
        "echo 'the build is red'",
        |hook| json!({ "pre_turn": [{ "command": hook, "name": "build" }] }),
    )
    .script([says("Red.")]);
    story.run(["agent", "-m", "how is it?"]).stdout("Red.\n");
    assert!(story.requests()[0].last_content().contains("[hook build] the build is red"));

    let story = with_hook(
        "echo 'not on Sundays' >&2; exit 2",
        |hook| json!({ "pre_turn": [{ "command": hook, "name": "rest" }] }),
    );
    story.run(["agent", "-m", "x"]).status(77).stderr("nanobot: hook `rest`: not on Sundays\n");
    assert!(story.requests().is_empty());
}

#[test]
fn a_hook_sends_an_answer_back_at_most_three_times() {
    let script = "grep -q 'tests passed' && exit 0; echo 'run the tests first' >&2; exit 2";
    let hooks = |hook: &str| json!({ "post_turn": [{ "command": hook, "name": "h" }] });
    let story = with_hook(script, hooks).script([says("Done."), says("tests passed")]);
    story.run(["agent", "-m", "x"]).stdout("tests passed\n");
    assert!(last_result(&story).contains("[hook h] run the tests first"));

    let story = with_hook(script, hooks).script([says("1"), says("2"), says("3"), says("4")]);
    story.run(["agent", "-m", "x"]).stdout("4\n");
    assert_eq!(story.requests().len(), 4);
}

#[test]
fn a_hook_forbids_or_instructs_a_compaction() {
    let conversation = |script: &str| {
        let story =
            with_hook(script, |hook| json!({ "pre_compact": [{ "command": hook, "name": "h" }] }));
        let long = "word ".repeat(400);
        story.script([says(&long), says("The summary.")])
    };
    let story = conversation("echo '{\"context\": \"keep the names\"}'");
    story.run(["agent", "-m", "x"]).stdout_has("word");
    story.run(["agent", "-m", "/compact"]).stdout_has("Compacted");
    assert!(last_result(&story).contains("keep the names"));

    let story = conversation("echo 'not now' >&2; exit 2");
    story.run(["agent", "-m", "x"]).stdout_has("word");
    let ran = story.run(["agent", "-m", "/compact"]);
    ran.status(1).stderr_has("hook `h`: not now");
    assert_eq!(story.requests().len(), 1);
    story.server().script([]);
    story.run(["agent", "-m", "y", "--new"]).stdout("The summary.\n");
}

#[test]
fn a_hook_runs_at_the_end_of_a_job() {
    let story = with_hook(STORE, |hook| json!({ "job_end": [{ "command": hook }] }))
        .script([says("All is well.")]);
    let id = add_job(&story, &["--cron", "0 8 * * *", "--name", "look"]);
    story.run(["cron", "run", &id]).stdout("All is well.\n");
    let inputs = stored_inputs(&story);
    assert_eq!(inputs.len(), 1);
    let input = &inputs[0];
    assert_eq!(input["hook_event_name"], "job_end");
    assert_eq!((&input["job_name"], &input["status"]), (&json!("look"), &json!(0)));
    assert_eq!(input["answer"], "All is well.");
}

#[test]
fn sub_agents_have_the_same_hooks() {
    let story =
        with_hook(STORE, |hook| json!({ "pre_tool": [{ "match": "list_dir", "command": hook }] }))
            .script([
                calls("spawn", json!({ "task": "look" })),
                Box::new(|request| {
                    // Either the sub-agent or its parent asks first.
                    let is_child =
                        request.last_content().contains("look") && request.messages().len() == 2;
                    if is_child {
                        calls("list_dir", json!({}))(request)
                    } else {
                        says("Waiting.")(request)
                    }
                }),
                Box::new(|request| {
                    let is_child =
                        request.last_content().contains("look") && request.messages().len() == 2;
                    if is_child {
                        calls("list_dir", json!({}))(request)
                    } else {
                        says("Waiting.")(request)
                    }
                }),
                says("Nothing there."),
                says("Nothing."),
            ]);
    story.run(["agent", "-m", "x"]).stdout("Nothing.\n");
    let inputs = stored_inputs(&story);
    assert_eq!(inputs.len(), 1, "{inputs:?}");
    assert_eq!(inputs[0]["parent_session_id"], inputs[0]["session_id"]);
}

#[test]
fn scripts_for_claude_code_run_as_they_are() {
    // Shell scripts as people have them: they read the names of that program, and answer in its fields.
    let script = r#"
input=$(cat)
case "$input" in
*'"hook_event_name":"PreToolUse"'*'"file_path":"a.md"'*)
    echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"file_path": "b.md", "old_string": "tea", "new_string": "coffee"}}}' ;;
*'"hook_event_name":"PostToolUse"'*'"tool_name":"Edit"'*)
    test "$PWD" = "$CLAUDE_PROJECT_DIR" || exit 1
    echo 'lint: no newline' >&2; exit 2 ;;
*) exit 1 ;;
esac"#;
    let story = with_hook(script, |hook| {
        let hooks = json!([{ "type": "command", "command": hook, "timeout": 10 }]);
        json!({
            "PreToolUse": [{ "matcher": "Edit|Write", "hooks": hooks }],
            "PostToolUse": [{ "matcher": "", "hooks": hooks }],
            "Notification": [{ "hooks": hooks }],
        })
    })
    .file("a.md", "tea")
    .file("b.md", "tea")
    .script([
        calls("edit_file", json!({ "path": "a.md", "old_text": "tea", "new_text": "beer" })),
        says("Done."),
    ]);
    story.run(["agent", "--write", "-m", "x"]).stdout("Done.\n");
    let read = |name: &str| std::fs::read_to_string(story.dir().join(name)).unwrap();
    assert_eq!((read("a.md").as_str(), read("b.md").as_str()), ("tea", "coffee"));
    let result = last_result(&story);
    assert!(result.contains("lint: no newline") && !result.contains("withheld"), "{result}");
    story.run(["config", "check"]).stdout_has("hooks for `Notification` never run");
}

#[test]
fn scripts_for_vibe_run_as_they_are() {
    let script = r#"
grep -q '"tool_name":"bash"' || exit 1
echo '{"decision": "allow", "hook_specific_output": {"tool_input": {"command": "echo from the hook"}}}'"#;
    let story = with_hook(script, |hook| {
        json!([{ "name": "rewrite", "type": "before_tool", "match": "BASH", "command": hook }])
    })
    .script([calls("exec", json!({ "command": "echo from the model" })), says("Done.")]);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    assert!(last_result(&story).contains("from the hook"));
    // Status 2 has no meaning there: it is a failure, which stops nothing.
    let story =
        with_hook("exit 2", |hook| json!([{ "name": "h", "type": "pre_tool", "command": hook }]))
            .script([calls("list_dir", json!({})), says("Done.")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("Done.\n")
        .stderr_has("hook `h` failed with exit status 2");
}

#[test]
fn a_hook_that_the_run_may_change_is_refused() {
    let story = Story::new();
    write_program(&story.dir().join("hook"), "#!/bin/sh\n");
    let path = story.dir().join("hook");
    let story = story
        .set("hooks", json!({ "pre_tool": [{ "command": format!("sh {}", path.display()) }] }));
    story.run(["agent", "--write", "-m", "x"]).status(78).stderr_has("which this run may change");
    assert!(story.requests().is_empty());
    story.server().script([says("Yes.")]);
    story.run(["agent", "-m", "x"]).stdout("Yes.\n");
}

#[test]
fn a_hook_is_refused_however_its_command_names_what_the_run_may_change() {
    let check = |command: &str, is_refused: bool| {
        let story = Story::new();
        let outside = story.home().join(".nanobot/hooks/hook");
        write_program(&outside, "#!/bin/sh\n");
        write_program(&story.dir().join("hook"), "#!/bin/sh\n");
        let linked = story.dir().join("tools");
        std::os::unix::fs::symlink(outside.parent().unwrap(), linked).unwrap();
        let command = command.replace("HOOKS", &outside.parent().unwrap().display().to_string());
        let story = story.set(
            "hooks",
            json!({ "pre_turn": [{ "command": format!("cd $NANOBOT_DIRECTORY; {command}; true") }] }),
        );
        story.server().script((!is_refused).then(|| says("Yes.")));
        let ran = story.run(["agent", "--write", "-m", "x"]);
        match is_refused {
            true => drop(ran.status(78).stderr_has("which this run may change")),
            false => drop(ran.stdout("Yes.\n")),
        }
    };
    check("HOOKS/hook", false);
    check("HOOKS/hook > $NANOBOT_DIRECTORY/new.log", false);
    check("cat /dev/null|$NANOBOT_DIRECTORY/hook", true);
    check("true&&\"$NANOBOT_DIRECTORY\"/hook", true);
    check("env A=$NANOBOT_DIRECTORY/hook true", true);
    // The link lies where the run may replace it.
    check("$NANOBOT_DIRECTORY/tools/hook", true);
    // A missing file can be made.
    check("test -x $NANOBOT_DIRECTORY/new && $NANOBOT_DIRECTORY/new", true);
    check("HOOKS/missing || true", false);
}

#[test]
fn a_directory_sets_no_hooks() {
    let hooks = r#"{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "touch $HOME/ran"}]}]}}"#;
    let story = Story::new()
        .file(".claude/settings.json", hooks)
        .file(".nanobot/config.json", hooks)
        .file("config.json", hooks)
        .file(
            ".vibe/hooks.toml",
            "[[hooks]]\nname = \"x\"\ntype = \"pre_tool\"\ncommand = \"touch $HOME/ran\"\n",
        )
        .script([calls("list_dir", json!({})), says("Done.")]);
    story.run(["agent", "-m", "x"]).stdout("Done.\n");
    assert!(!story.home().join("ran").exists());
}

#[test]
fn a_mistake_in_the_hooks_stops_runs_and_is_found_by_the_check() {
    let story = Story::new().set("hooks", json!({ "pre_tol": [{ "command": "true" }] }));
    story
        .run(["agent", "-m", "x"])
        .status(78)
        .stderr_has("`hooks` key `pre_tol` is not an event; did you mean `pre_tool`?");
    story.run(["config", "check"]).status(78).stdout_has("did you mean `pre_tool`?");
    story.run(["session", "list"]).stderr_has("");
}

#[test]
fn a_nanobot_in_a_hook_runs_no_hooks() {
    let script =
        "\"$0-nanobot\" agent -s inner --no-stdin -m inner > \"$HOME/inner\" 2>&1 < /dev/null";
    let story = with_hook(script, |hook| json!({ "pre_turn": [{ "command": hook }] }))
        .script([says("Inner."), says("Outer.")]);
    let link = story.home().join(".nanobot/hooks/hook-nanobot");
    std::os::unix::fs::symlink(crate::story::NANOBOT, link).unwrap();
    story.run(["agent", "-m", "outer"]).stdout("Outer.\n");
    let inner = std::fs::read_to_string(story.home().join("inner")).unwrap();
    assert_eq!(inner, "Inner.\n");
}
